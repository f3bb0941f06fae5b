"""The sandbox's account API over real HTTP, every operation and transition; and its description, held against it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
import yaml
from hypothesis import strategies
from schemathesis.config import SchemathesisConfig

from batchpay.sandbox import checks
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import create_app
from tests.support.sandbox_requests import (
    ACCOUNT_HEADERS,
    PAYMENT_HEADERS,
    TIMEOUT_S,
    account_node,
    account_request,
    control,
    with_cell,
)


def success(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Ask, expect the success envelope, and give its response_code and message."""
    answer = account_request(url, method, path, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "success"
    inner = answer.json()["successMessage"]
    return inner["response_code"], inner["message"]


def created(url: str, name: str = "processorA_ach") -> int:
    code, message = success(url, "POST", "gateway.json", {"gateway": account_node(name)})
    assert code == 400
    number: int = message["gateway"]["gateway_id"]
    return number


def listed(url: str, query: str = "") -> set[int]:
    code, message = success(url, "GET", "gateways.json" + query)
    assert code == 404
    return {account["id"] for account in message["gateways"]}


def defaults(url: str) -> set[int]:
    return {account["id"] for account in control(url, "GET", "accounts")["accounts"] if account["default"]}


def refused_field(url: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    answer = account_request(url, method, path, body)
    assert answer.json()["status"] == "error"
    return answer.status_code, answer.json()["errorMessage"].get("field", "")


def test_list_gives_accounts_in_the_documented_shape(url: str) -> None:
    """Each listed account has the six members that the interface names, and no other."""
    _, message = success(url, "GET", "gateways.json")
    wanted = {"id", "gateway_type_id", "gateway_name", "gateway_display_name", "date_updated", "date_created"}
    assert message["gateways"]
    assert all(set(account) == wanted for account in message["gateways"])


@pytest.mark.parametrize("name", ["processorA_cc", "processorA_ach", "processorB_ach", "processorC_cc"])
def test_create_each_kind(url: str, name: str) -> None:
    """Each of the four kinds can be created; the account is listed and can be got."""
    number = created(url, name)
    assert number in listed(url)
    assert success(url, "GET", f"gateway.json/{number}")[1]["gateway"]["gateway_name"] == name


@pytest.mark.parametrize("name", ["processorA_cc", "processorA_ach", "processorC_cc"])
def test_update_replaces_the_attributes(url: str, name: str) -> None:
    """After an update the account has the submitted attributes and none of those before."""
    number = created(url, "processorA_ach")
    node = account_node(name, mode="live")
    assert success(url, "POST", f"gateway.json/{number}/update", {"gateway": node}) == (401, "Updated")
    (inside,) = [item for item in control(url, "GET", "accounts")["accounts"] if item["id"] == number]
    expected = {key: "****" if key == "pin" else value for key, value in node.items() if key != "gateway_name"}
    assert (inside["gateway_name"], inside["attributes"]) == (name, expected)


def test_an_update_to_processor_b_is_refused(url: str) -> None:
    """Processor B's accounts can be created only."""
    number = created(url)
    body = {"gateway": account_node("processorB_ach")}
    assert refused_field(url, "POST", f"gateway.json/{number}/update", body) == (400, "gateway.gateway_name")


def test_delete_keeps_the_record(url: str) -> None:
    """A deleted account is listed with deleted=1 and without a filter, not with deleted=0; it can still be got."""
    number = created(url)
    assert number in listed(url, "?deleted=0") - listed(url, "?deleted=1")
    assert success(url, "POST", f"gateway.json/{number}/delete") == (402, "Deleted")
    assert number in listed(url, "?deleted=1") - listed(url, "?deleted=0")
    assert number in listed(url)
    assert success(url, "GET", f"gateway.json/{number}")[0] == 305


@pytest.mark.parametrize("what", ["update", "delete", "default"])
def test_a_deleted_account_can_not_be_changed(url: str, what: str) -> None:
    """Nothing more can be done to a deleted account."""
    number = created(url)
    success(url, "POST", f"gateway.json/{number}/delete")
    body = {"gateway": account_node()} if what == "update" else None
    assert refused_field(url, "POST", f"gateway.json/{number}/{what}", body) == (409, "id")


@pytest.mark.parametrize(("request_", "code", "left"), [
    ("1002/default", 401, {1002, 1003}), ("1004/default", 401, {1001, 1004}), ("1001/delete", 402, {1003}),
    ("1001/update", 401, {1003}),
])  # fmt: skip
def test_each_kind_has_one_default_at_most(url: str, request_: str, code: int, left: set[int]) -> None:
    """A new default takes the place of the old one of its kind, however often it is asked for.

    One that is deleted, or updated to another kind, leaves its kind without one.
    """
    assert defaults(url) == {1001, 1003}
    body = {"gateway": account_node("processorA_cc")} if request_.endswith("update") else None
    assert success(url, "POST", f"gateway.json/{request_}", body)[0] == code
    if request_.endswith("default"):
        assert success(url, "POST", f"gateway.json/{request_}") == (code, "Default Gateway Account Success")
    assert defaults(url) == left


@pytest.mark.parametrize("number", ["4711", "0", "abc", "-1", "1e3", "99999999999999999999999"])
@pytest.mark.parametrize(
    ("method", "action"), [("GET", ""), ("POST", "/update"), ("POST", "/delete"), ("POST", "/default")]
)
def test_an_unknown_id_is_refused(url: str, number: str, method: str, action: str) -> None:
    """An id that no account has is refused, whatever is asked."""
    body = {"gateway": account_node()} if action == "/update" else None
    assert refused_field(url, method, f"gateway.json/{number}{action}", body) == (404, "id")


WRONG: list[tuple[str, str, Any]] = [
    ("processorA_ach", "enabled", None), ("processorA_ach", "enabled", 0), ("processorA_ach", "enabled", "1"),
    ("processorA_ach", "mode", "production"), ("processorA_ach", "gateway_name", None),
    ("processorA_ach", "gateway_name", "processorD_ach"), ("processorA_ach", "active_level2", None),
    ("processorA_ach", "active_level3", 2), ("processorA_ach", "account_id", "letters"),
    ("processorA_ach", "account_id", None), ("processorA_ach", "user_id", None), ("processorA_ach", "pin", None),
    ("processorA_ach", "accept_amex", "yes"), ("processorA_ach", "password", 7),
    ("processorA_cc", "accept_amex", None), ("processorC_cc", "accept_amex", True), ("processorB_ach", "login", None),
    ("processorB_ach", "password", None), ("processorB_ach", "vt_template", None),
    ("processorC_cc", "colour", "blue"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attribute", "value"), WRONG)
def test_a_wrong_attribute_is_named(url: str, name: str, attribute: str, value: Any) -> None:
    """An attribute that is missing, wrong or unknown is named, and no account comes into being."""
    before = listed(url)
    body = with_cell({"gateway": account_node(name)}, f"gateway.{attribute}", value)
    assert refused_field(url, "POST", "gateway.json", body) == (400, f"gateway.{attribute}")
    assert listed(url) == before


def test_secrets_are_kept_nowhere(url: str) -> None:
    """Neither pin nor password stands in the journal or in the account's attributes."""
    for name in ("processorA_ach", "processorB_ach"):
        created(url, name)
    told = str(control(url, "GET", "journal")) + str(control(url, "GET", "accounts"))
    assert "8675309" not in told
    assert "tr0ub4dor" not in told


def test_the_payment_headers_do_not_open_it(url: str) -> None:
    """The account API wants its own header names."""
    answer = requests.get(url + "/demoapi/gateways.json", headers=PAYMENT_HEADERS, timeout=TIMEOUT_S)
    assert answer.status_code == 401


def test_delete_and_default_take_no_body(url: str) -> None:
    """A body where none belongs is refused."""
    for action in ("delete", "default"):
        assert refused_field(url, "POST", f"gateway.json/1001/{action}", {"gateway": {}}) == (400, "body")


def test_the_filter_takes_0_and_1_alone(url: str) -> None:
    """deleted=2 is refused by name."""
    assert refused_field(url, "GET", "gateways.json?deleted=2") == (400, "deleted")


DESCRIPTION = Path(__file__).parents[2] / "schemas" / "gateway.openapi.yaml"
HEADERS = {**PAYMENT_HEADERS, **ACCOUNT_HEADERS}

schemathesis.openapi.format("us-date", strategies.dates().map(lambda day: f"{day:%m/%d/}{day.year:04d}"))


def raw_description() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text("utf-8"))
    # Any positive number is a gatewayId by its form; only these are eCheck accounts of a fresh sandbox.
    described["components"]["schemas"]["Payment"]["properties"]["gatewayId"]["enum"] = [1001, 1002]
    return described


schema = schemathesis.openapi.from_dict(raw_description(), config=SchemathesisConfig.from_dict({"seed": 20350115}))


@schema.parametrize()
@hypothesis.settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_generated_requests_find_no_difference(case: schemathesis.Case[Any], url: str) -> None:
    """What the description allows is taken, what it forbids is refused, and every answer is as described."""
    case.call_and_validate(base_url=url, headers=HEADERS)


def test_the_lists_of_codes_agree() -> None:
    """States, countries and currencies stand in the description as the sandbox checks them."""
    schemas = raw_description()["components"]["schemas"]
    listed = {name: frozenset(schemas[name]["enum"]) for name in ("UsState", "CanadianProvince", "Country", "Currency")}
    assert listed == {
        "UsState": checks.US_STATES,
        "CanadianProvince": checks.CANADIAN_PROVINCES,
        "Country": checks.COUNTRIES,
        "Currency": checks.CURRENCIES,
    }


def test_what_is_assumed_is_marked() -> None:
    """Every error, the answer to a payment and that to a connection test carry x-assumption."""
    described = raw_description()
    answers = described["components"]["responses"]
    assert all("x-assumption" in answer for answer in answers.values())
    connection = described["paths"]["/v2/api/connection.json"]["post"]["responses"]["200"]
    assert "x-assumption" in connection
    assert "x-assumption" in described["components"]["schemas"]["PaymentMade"]


def test_every_documented_route_is_served() -> None:
    """The sandbox has the description's paths and no further ones beside /_sandbox."""
    app = create_app(Options())
    served = {
        (method, re.sub(r"<[^>]+>", "{id}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) & {"GET", "POST"}
        if not rule.rule.startswith(("/_sandbox", "/static"))
    }
    described = {(method.upper(), path) for path, item in raw_description()["paths"].items() for method in item}
    assert served == described
