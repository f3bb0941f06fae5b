"""The sandbox's payment API over real HTTP, and its limits: each counts as its kind says."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from batchpay.errors import WrongUse
from batchpay.sandbox import checks
from batchpay.sandbox.faults import ENDINGS
from batchpay.sandbox.options import Limiter, Options, parse_limit
from batchpay.sandbox.server import running
from batchpay.schemas import tables
from tests.support.sandbox_requests import (
    ACCOUNT_HEADERS,
    PAYMENT_HEADERS,
    TIMEOUT_S,
    control,
    pay,
    payment_body,
    recurring_body,
    with_cell,
)


def counts(url: str, operation: str = "payment") -> dict[str, int]:
    counted: dict[str, int] = control(url, "GET", "journal")["counts"][operation]
    return counted


@pytest.mark.parametrize("path", ["/v2/api/payment.json", "/v2/api/payment?format=json"])
def test_payment_is_made_on_both_paths(url: str, path: str) -> None:
    """Both ways of naming the payment operation make the payment."""
    answer = pay(url, payment_body(), path)
    assert answer.json()["status"] == "success"
    assert counts(url)["made"] == 1


def test_the_query_must_say_json(url: str) -> None:
    """Without format=json there is no payment."""
    assert pay(url, payment_body(), "/v2/api/payment?format=xml").json()["errorMessage"]["field"] == "format"
    assert counts(url)["made"] == 0


@pytest.mark.parametrize("headers", [
    {}, {"SERVICE-API-ID": "sandbox"}, {"SERVICE-API-ID": "sandbox", "SERVICE-API-KEY": "wrong"},
    {"SERVICE-API-ID": "other", "SERVICE-API-KEY": "sandbox-key"},
    {"svs-api-id": "sandbox", "svs-api-key": "sandbox-key"},
])  # fmt: skip
@pytest.mark.parametrize("path", ["payment.json", "connection.json"])
def test_wrong_credentials_are_refused(url: str, path: str, headers: dict[str, str]) -> None:
    """Missing or wrong keys, and those of the other API, are refused with 401, and nothing is made."""
    answer = requests.post(f"{url}/v2/api/{path}", json=payment_body(), headers=headers, timeout=TIMEOUT_S)
    assert answer.status_code == 401
    assert counts(url)["made"] == 0


def test_the_word_for_service_is_an_option() -> None:
    """The payment API's header names begin with the word the sandbox was started with."""
    with running(Options(port=0, service_header="ACME")) as url:
        headers = {"ACME-API-ID": "sandbox", "ACME-API-KEY": "sandbox-key", "Content-Type": "application/json"}
        there = requests.post(url + "/v2/api/connection.json", headers=headers, timeout=TIMEOUT_S)
        other = requests.post(url + "/v2/api/connection.json", headers=PAYMENT_HEADERS, timeout=TIMEOUT_S)
    assert (there.status_code, other.status_code) == (200, 401)


WRONG: list[tuple[str, Any]] = [
    ("gatewayId", None), ("gatewayId", "1001"), ("gatewayId", True), ("gatewayId", 0), ("gatewayId", 999),
    ("gatewayId", 1003), ("transactionType", "debit"), ("recurringIndicator", None), ("amount", "12.5"),
    ("amount", "1,000.00"), ("amount", 12.5), ("taxAmount", "-1.00"), ("currencyCode", "usd"), ("billing", None),
    ("billing", []), ("billing.billingLastName", None), ("billing.billingLastName", ""),
    ("billing.billingState", "QQ"), ("billing.billingCountry", "USA"), ("billing.billingPhone", "5550100"),
    ("billing.billingEmail", "nobody"), ("billing.emails", {"billingEmail": []}),
    ("shipping.shippingFirstName", None), ("shipping.shippingTax", "1"), ("ach.achRoutingNumber", "01100019"),
    ("ach.achAccountNumber", None), ("ach.achAccountType", "COMPANY"), ("ach.achDepositType", "Checking"),
    ("ach.achAgreementFlag", "Y"), ("ach.achAgreementFlag", 2), ("recurring", {"recurringStartDate": "01/01/2030"}),
    ("paymentId", "P-1"), ("ach.achColour", "blue"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{path}={value!r}" for path, value in WRONG])
def test_a_wrong_field_is_named(url: str, path: str, value: Any) -> None:
    """A field that is missing, wrong or unknown is named in the error, and nothing is made."""
    answer = pay(url, with_cell(payment_body(), path, value))
    assert answer.status_code == 400
    assert answer.json()["errorMessage"]["field"].startswith(path)
    assert counts(url)["made"] == 0


@pytest.mark.parametrize(("name", "value"), [
    ("recurringStartDate", "02/30/2030"), ("recurringStartDate", "2030-01-31"), ("recurringBillingCycle", "WEEKLY"),
    ("recurringEndOfMonth", "no"), ("recurringNumOfPayments", "twelve"), ("recurringNumOfPayments", 4),
    ("recurringAgreementFlag", "yes"),
])  # fmt: skip
def test_a_wrong_recurring_field_is_named(url: str, name: str, value: Any) -> None:
    """The recurring node of a recurring payment is checked as strictly."""
    answer = pay(url, recurring_body(**{name: value}))
    assert answer.json()["errorMessage"]["field"] == f"recurring.{name}"


def test_a_state_must_belong_to_its_country(url: str) -> None:
    """Ontario is not a state of the US."""
    body = with_cell(with_cell(payment_body(), "billing.billingCountry", "US"), "billing.billingState", "ON")
    assert pay(url, body).json()["errorMessage"]["field"] == "billing.billingState"


@pytest.mark.parametrize(("country", "state"), [
    ("DE", "Bayern"), ("DE", "DE"), ("US", "UM"), ("US", "AE"), ("US", "AP"), ("US", "AA"), ("CA", "QC"),
    (None, "ON"),
])  # fmt: skip
def test_states_of_every_country_are_taken(url: str, country: str | None, state: str) -> None:
    """A list of states exists for US and CA; elsewhere a state is any text. Once `Bayern` was refused."""
    body = with_cell(payment_body(), "billing.billingState", state)
    if country is not None:
        body = with_cell(body, "billing.billingCountry", country)
    assert pay(url, body).json()["status"] == "success"


@pytest.mark.parametrize("flag", [1, 0, "1", "0"])
def test_an_agreement_flag_is_taken_as_a_number_and_as_a_text(url: str, flag: int | str) -> None:
    """The interface calls it one digit, and shows it both ways."""
    body = with_cell(recurring_body(recurringAgreementFlag=flag), "ach.achAgreementFlag", flag)
    assert pay(url, body).json()["status"] == "success"


def test_every_code_of_our_tables_is_taken() -> None:
    """What the rules let through the sandbox takes: countries, currencies and states of both lists."""
    assert frozenset(tables.COUNTRIES) <= checks.COUNTRIES
    assert frozenset(tables.CURRENCIES) <= checks.CURRENCIES
    assert frozenset(tables.STATES["US"]) <= checks.US_STATES
    assert frozenset(tables.STATES["CA"]) <= checks.CANADIAN_PROVINCES


def test_every_optional_field_is_taken(url: str) -> None:
    """A payment that uses each field of the interface, several addresses included, is made."""
    body = recurring_body(recurringAgreementFlag="Y")
    body |= {"invoiceNumber": "INV-1", "currencyCode": "USD", "taxAmount": "1.00"}
    for node in ("billing", "shipping"):
        place = {"AddressLine1": "1 Elm", "AddressLine2": "B", "City": "Québec", "State": "QC", "Zip": "G1R 4S9"}
        place |= {"Country": "CA", "Phone": "(418) 555-0100", "Company": "Ltée"}
        body[node] |= {node + name: value for name, value in place.items()}
    body["billing"] |= {"billingInternalId": "C1", "emails": {"billingEmail": ["a@example.com", "b@example.org"]}}
    body["shipping"]["shippingTax"] = "0.50"
    body["ach"] |= {"achBankName": "First", "achCheckNumber": "100", "achSecCode": "PPD"}
    assert pay(url, body).json()["status"] == "success"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"gatewayId": 1, "gatewayId": 1}', b'{"amount": NaN}', b"\xff"])
def test_what_is_no_json_object_is_refused(url: str, body: bytes) -> None:
    """A body that is no single, unambiguous JSON object is refused."""
    answer = requests.post(url + "/v2/api/payment.json", data=body, headers=PAYMENT_HEADERS, timeout=TIMEOUT_S)
    assert answer.status_code == 400


def test_every_request_must_name_json(url: str) -> None:
    """Another content type is refused with 415, and none as well: a GET without it was answered."""
    plain = {**PAYMENT_HEADERS, **ACCOUNT_HEADERS, "Content-Type": "text/plain"}
    answers = [
        requests.post(url + "/v2/api/payment.json", data=json.dumps(payment_body()), headers=plain, timeout=TIMEOUT_S),
        requests.get(url + "/demoapi/gateways.json", headers=plain, timeout=TIMEOUT_S),
    ]
    del plain["Content-Type"]
    answers.append(requests.get(url + "/demoapi/gateway.json/1001", headers=plain, timeout=TIMEOUT_S))
    assert [answer.status_code for answer in answers] == [415, 415, 415]


@pytest.mark.parametrize(("ending", "status"), [("990006", 429), ("990007", 503)])
def test_busy_comes_once(url: str, ending: str, status: int) -> None:
    """The first request is told to wait and not made, the same one again is made."""
    body = payment_body("77" + ending)
    first, second = pay(url, body), pay(url, body)
    assert (first.status_code, first.headers["Retry-After"]) == (status, "1")
    assert second.json()["status"] == "success"
    assert counts(url)["made"] == 1


def test_no_ending_is_hit_by_an_ordinary_account(url: str) -> None:
    """All endings are 9900 and two digits, so that nobody meets one by chance."""
    assert all(item.ending[:4] == "9900" and len(item.ending) == 6 for item in ENDINGS)
    assert pay(url, payment_body("990001000")).json()["status"] == "success"


def test_the_journal_counts_and_masks(url: str) -> None:
    """What arrived stands in the journal with the account number masked, and a repeated request is counted."""
    for body in (payment_body("9876543210"), payment_body("9876543210"), payment_body("555")):
        pay(url, body)
    journal = control(url, "GET", "journal?operation=payment")
    accounts = [entry["body"]["ach"]["achAccountNumber"] for entry in journal["requests"]]
    assert accounts == ["****3210", "****3210", "****"]
    assert [entry["times"] for entry in journal["requests"]] == [2, 2, 1]
    counted = journal["counts"]["payment"]
    assert (counted["arrived"], counted["different"], counted["most_often"], counted["repeated"]) == (3, 2, 2, 1)
    assert "9876543210" not in json.dumps(journal)


def test_the_journal_is_paged(url: str) -> None:
    """`after` and `limit` walk through a long journal; anything else is refused."""
    for number in range(5):
        pay(url, payment_body(invoiceNumber=str(number)))
    page = control(url, "GET", "journal?after=2&limit=2")["requests"]
    assert [entry["number"] for entry in page] == [3, 4]
    assert "error" in control(url, "GET", "journal?limit=-1")


def test_the_limit_refuses_what_is_over_it() -> None:
    """With a limit of one request in 1,000 seconds, the second is refused with a Retry-After that says so."""
    with running(Options(port=0, limit=0.001)) as url:
        first, second = pay(url, payment_body()), pay(url, payment_body())
        counted = counts(url)
    assert (first.status_code, second.status_code) == (200, 429)
    assert 900 < int(second.headers["Retry-After"]) <= 1000
    assert (counted["arrived"], counted["made"]) == (2, 1)


@pytest.mark.parametrize(("kind", "at_s", "taken"), [
    ("second", [0.0] * 7 + [0.99, 1.0], [True] * 5 + [False] * 3 + [True]),
    ("strict", [0.0] * 7 + [0.5, 1.0], [True] * 5 + [False] * 3 + [True]),
    ("strict", [0.0] * 5 + [0.5] * 5 + [1.0], [True] * 5 + [False] * 6),
    ("clock", [0.9] * 6 + [1.0] * 6, [True] * 5 + [False] + [True] * 5 + [False]),
    ("bucket", [0.0] * 6 + [0.2] * 2 + [1.2] * 6, [True] * 5 + [False, True, False] + [True] * 5 + [False]),
    ("burst", [0.0] * 11 + [0.2] * 2, [True] * 10 + [False, True, False]),
    ("even", [0.0, 0.1, 0.2, 0.3, 0.41], [True, False, True, False, True]),
    ("minute", [0.0] * 301 + [59.0, 60.0], [True] * 300 + [False, False, True]),
])  # fmt: skip
def test_each_kind_counts_as_it_says(kind: str, at_s: list[float], taken: list[bool]) -> None:
    """Five a second, by each of the kinds; a refused request is told when to come again."""
    now = [600.0]
    limiter = Limiter(5, kind, clock=lambda: now[0])
    found = []
    for at in at_s:
        now[0] = 600.0 + at
        wait_s = limiter.wait_s()
        assert 0 <= wait_s <= 60
        found.append(wait_s == 0)
    assert found == taken


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "ten", "5:", "5:unknown", ":bucket"])
def test_a_limit_that_is_written_wrongly_is_refused(text: str) -> None:
    """The refusal names the kinds."""
    if text == "5:":
        assert parse_limit(text) == (5.0, "second")
        return
    with pytest.raises(WrongUse, match="bucket"):
        parse_limit(text)
    assert parse_limit("2.5:minute") == (2.5, "minute")
