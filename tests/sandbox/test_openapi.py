"""The OpenAPI description against the running sandbox: generated requests, good and bad, and the lists in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
import yaml
from hypothesis import strategies
from schemathesis.config import SchemathesisConfig

from batchpay.sandbox import checks
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import create_app
from tests.support.sandbox_requests import ACCOUNT_HEADERS, PAYMENT_HEADERS

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
