"""What stands in the file stands in the request, character by character, or the row is rejected."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from batchpay.intake.source import open_source
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import NewBatch
from batchpay.payment import Environment
from batchpay.registration.digests import payment_columns
from batchpay.registration.request_body import request_form, show_requests
from batchpay.schemas.columns import ACH, BILLING, COLUMNS, NUMBERS_ON_THE_WIRE, RECURRING, SHIPPING, TOP
from batchpay.schemas.rule import RuleOptions
from batchpay.settings import GatewaySettings
from batchpay.validation.check import valid_rows
from tests.support.ledger_factory import ledger_settings
from tests.support.whole_check import check

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
"""Any text but NUL, for which the file is refused whole."""
AS_OF = datetime.date(2026, 11, 21)
NODES = {"billing": BILLING, "shipping": SHIPPING, "ach": ACH, "recurring": RECURRING}
FREE_TEXTS = (
    "invoiceNumber", "billingInternalId", "billingFirstName", "billingLastName", "billingCompany",
    "billingAddressLine1", "billingAddressLine2", "billingCity", "shippingFirstName", "shippingLastName",
    "shippingCompany", "shippingAddressLine1", "shippingAddressLine2", "shippingCity", "achBankName", "achNameOnCheck",
)  # fmt: skip
VALID = {
    "gatewayId": "1001", "transactionType": "DEBIT", "recurringIndicator": "FALSE", "amount": "12.50",
    "billingFirstName": "Ada", "billingLastName": "Quill", "shippingFirstName": "Ada", "shippingLastName": "Quill",
    "achNameOnCheck": "Ada Quill", "achAccountNumber": "7700012345", "achRoutingNumber": "121000332",
    "achAccountType": "PERSONAL", "achDepositType": "CHECKING", "achAgreementFlag": "1",
}  # fmt: skip
RECURS = {
    "recurringIndicator": "TRUE", "recurringStartDate": "01/15/2035", "recurringBillingCycle": "MONTHLY",
    "recurringEndOfMonth": "N", "recurringNumOfPayments": "12", "recurringAgreementFlag": "Y", "achSecCode": "PPD",
}  # fmt: skip


class KeylessLedger:
    """Gives every text some digest: bodies do not depend on any."""

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        return [None if text is None else bytes(size) for text in texts]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"registration asked the ledger for {name}")


def write(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def bodies(path: Path, settings: GatewaySettings) -> dict[int, dict[str, Any]]:
    """Read, check and register a file; the request of every row that passed."""
    source = open_source(str(path))
    options = RuleOptions(AS_OF, allow_duplicates=True)
    verdict = check(source, options)
    found: dict[int, dict[str, Any]] = {}
    for frame in valid_rows(source, options, verdict):
        for columns in payment_columns(KeylessLedger(), frame, (), request_form(settings)):
            found |= {row: json.loads(body) for row, body in zip(columns.rows, columns.bodies.each(), strict=True)}
    return found


def flat(request: dict[str, Any]) -> dict[str, Any]:
    """The request's fields without their nodes; each node holds only its own."""
    fields = {name: value for name, value in request.items() if name not in NODES}
    assert set(fields) <= set(TOP)
    for node, names in NODES.items():
        members = request.get(node, {})
        assert set(members) <= {*names, "emails", *(["achSecCode"] if node == "recurring" else [])}
        fields |= members
    return fields


@hypothesis.settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    cells=st.lists(
        st.dictionaries(st.sampled_from(FREE_TEXTS), TEXTS, max_size=6),
        min_size=1,
        max_size=6,
    )
)
def test_free_text_goes_over_unchanged_or_not_at_all(tmp_path: Path, cells: list[dict[str, str]]) -> None:
    """Any text in any free column: in the request it is the same text, or its row is rejected."""
    rows = [VALID | texts for texts in cells]
    file = write(tmp_path / "a.csv", rows)
    for number, request in bodies(file, GatewaySettings(stamp_invoice=False)).items():
        sent = flat(request)
        for name, text in rows[number - 1].items():
            value = sent[name]
            assert (str(value) if name in NUMBERS_ON_THE_WIRE else value) == text, name
        assert set(sent) == set(rows[number - 1])


def one(tmp_path: Path, change: dict[str, str], **settings: Any) -> dict[str, Any]:
    request: dict[str, Any] = bodies(write(tmp_path / "a.csv", [VALID | change]), GatewaySettings(**settings))[1]
    return request


def test_numbers_letters_and_nodes_are_as_the_interface_has_them(tmp_path: Path) -> None:
    """GatewayId and flags are numbers, all else text; recurring repeats achSecCode; fields not given are left out."""
    request = one(tmp_path, RECURS, stamp_invoice=False)
    assert request["gatewayId"] == 1001
    assert request["ach"]["achAgreementFlag"] == 1
    assert request["recurring"] == {
        "recurringStartDate": "01/15/2035",
        "recurringBillingCycle": "MONTHLY",
        "recurringEndOfMonth": "N",
        "recurringNumOfPayments": "12",
        "recurringAgreementFlag": 1,
        "achSecCode": "PPD",
    }
    assert "invoiceNumber" not in request
    assert "recurring" not in one(tmp_path, {})


def test_settings_change_the_agreement_and_the_emails(tmp_path: Path) -> None:
    """The letter for the agreement, and the name of the node that holds several addresses, are settings."""
    letter = one(tmp_path, RECURS, recurring_agreement="Y")
    assert letter["recurring"]["recurringAgreementFlag"] == "Y"
    both = {"billingEmail": "a@example.com;b@example.com"}
    assert one(tmp_path, both)["billing"]["emails"] == {"billingEmail": ["a@example.com", "b@example.com"]}
    assert "mails" in one(tmp_path, both, emails_node="mails")["billing"]
    assert one(tmp_path, {"billingEmail": "a@example.com"})["billing"]["billingEmail"] == "a@example.com"


def test_a_blank_invoice_is_stamped_a_given_one_is_not(tmp_path: Path) -> None:
    """The stamp is short, unique in the file, and stands only where nothing was given."""
    file = write(tmp_path / "a.csv", [VALID, VALID | {"amount": "13.00"}, VALID | {"invoiceNumber": "MINE"}])
    invoices = [request["invoiceNumber"] for request in bodies(file, GatewaySettings()).values()]
    assert invoices[2] == "MINE"
    assert len(set(invoices)) == 3
    assert all(invoice.startswith("BP") and len(invoice) <= 16 for invoice in invoices[:2])


def test_shown_requests_are_masked(tmp_path: Path) -> None:
    """What a dry run shows has neither the account nor the routing number."""
    source = open_source(str(write(tmp_path / "a.csv", [VALID])))
    options = RuleOptions(AS_OF)
    (frame,) = valid_rows(source, options, check(source, options))
    (shown,) = show_requests(frame, request_form(GatewaySettings()))
    assert "7700012345" not in shown
    assert "121000332" not in shown
    assert json.loads(shown)["ach"]["achAccountNumber"] == "****2345"


def test_the_ledger_keeps_a_body_byte_for_byte(tmp_path: Path) -> None:
    """What was registered comes back from the ledger to the letter, odd characters too."""
    odd = VALID | {"billingCompany": 'Ó "quoted" \\ back, slash', "achNameOnCheck": "Zoë O'Brien"}
    source = open_source(str(write(tmp_path / "a.csv", [odd])))
    options = RuleOptions(AS_OF)
    verdict = check(source, options)
    with closing(open_ledger(ledger_settings(tmp_path), create_as="tester")) as ledger:
        (frame,) = valid_rows(source, options, verdict)
        (columns,) = payment_columns(ledger, frame, (), request_form(GatewaySettings()))
        new = NewBatch(
            bytes(32), "a.csv", (), 1, {}, "http://127.0.0.1:9", Environment.TEST, ledger.registration_count()
        )
        with ledger.register(new, "tester") as registering:
            registering.add_payments(columns)
            name = registering.finish()
        with ledger.lock(bytes(32)):
            run = ledger.start(name, "tester")
            (payment,) = run.claim(10)
            run.finish(None)
    assert [payment.body] == columns.bodies.each()
    assert json.loads(payment.body)["billing"]["billingCompany"] == odd["billingCompany"]
