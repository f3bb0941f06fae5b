"""What the bank sent back, or changed, is not paid again the same way: by the next file, nor by what still waits."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from batchpay.gateway.origin import environment_of
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.open import open_ledger
from batchpay.payment import State, Totals
from batchpay.sending.limits import Limits
from batchpay.workflows.check import validate
from batchpay.workflows.requests import CheckOptions, file_request
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import Desk

pytestmark = pytest.mark.usefixtures("on_both")

FRIDAY = date(2026, 11, 27)
ACCOUNT, ROUTING = "648443925", "021000021"
FIRST = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
NEXT = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00"}
OTHER = {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "30.00", "achAccountNumber": ACCOUNT}
CORRECTED: dict[str, dict[str, str]] = {
    "C01": {"achAccountNumber": ACCOUNT},
    "C02": {"achRoutingNumber": ROUTING},
    "C03": {"achAccountNumber": ACCOUNT, "achRoutingNumber": ROUTING},
    "C04": {"achNameOnCheck": "GRACE Q MARLOWE"},
    "C05": {"achDepositType": "SAVINGS"},
    "C06": {"achAccountNumber": ACCOUNT, "achDepositType": "SAVINGS"},
    "C07": {"achAccountNumber": ACCOUNT, "achRoutingNumber": ROUTING, "achDepositType": "SAVINGS"},
}


def took_in(
    desk: Desk, batch: object, code: str, row: int = 1, *, unattended: bool = False, cents: int = 10_00
) -> None:
    """Record what a bank says of a payment."""
    is_change = code.startswith("C")
    kind = FactKind.CHANGED if is_change else FactKind.RETURNED
    fact = NewFact(kind, str(batch), row, code, FRIDAY, 0 if is_change else 10_00, 1, CORRECTED.get(code, {}))
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        environment = environment_of(desk.settings.gateway)
        ledger.record_facts([fact], environment, f"{code}.csv", code, "ann", unattended=unattended)


def failures(desk: Desk, *rows: dict[str, str], **options: Any) -> list[tuple[int, str]]:
    """Look at a file as validate, dry run and submission do, which agree; return rows and rules that they break."""
    path = desk.file("next.csv", *rows)
    with_rejects = file_request(str(path), desk.folder / "looked.rejects.csv", CheckOptions(**options), desk.settings)
    looked = validate(with_rejects, desk.settings)
    found = [(one.row, one.name) for one in looked.verdict.failures]
    dry = desk.dry_run(path, **options)
    assert [(one.row, one.name) for one in dry.verdict.failures] == found
    desk.submit(path, **options)
    assert [(one.row, one.name) for one in desk.verdict.failures] == found
    texts = json.dumps([looked.as_json(), dry.as_json(), *dry.page(), *(one.message for one in desk.verdict.failures)])
    shown = [value for one in CORRECTED.values() for value in one.values() if value not in ("SAVINGS", ROUTING)]
    assert not any(value in texts for value in shown), "a corrected value is in the rejects file alone"
    return found


def rejects(desk: Desk) -> dict[int, str]:
    """What the rejects of the next file suggest, by row."""
    with (desk.folder / "next.rejects.csv").open() as lines:
        return {int(row["_row"]): row["_suggestions"] for row in csv.DictReader(lines)}


@pytest.mark.parametrize(
    ("code", "direction", "is_blocked"),
    [
        ("R02", "CREDIT", True), ("R02", "DEBIT", True), ("R01", "CREDIT", False), ("R14", "CREDIT", True),
        ("R14", "DEBIT", False), ("R10", "DEBIT", True), ("R10", "CREDIT", False), ("R08", "DEBIT", True),
    ],
)  # fmt: skip
def test_an_account_that_sent_a_payment_back_is_an_error(
    desk: Desk, code: str, direction: str, is_blocked: bool
) -> None:
    """Next month's payment to a closed account passed; the same account the other way may be right."""
    batch = desk.submit(desk.file("first.csv", FIRST | {"transactionType": direction})).batch
    took_in(desk, batch, code)
    expected = [(1, "achAccountNumber.returned")] if is_blocked else []
    assert failures(desk, NEXT | {"transactionType": direction}, OTHER) == expected
    if is_blocked:
        (told,) = desk.verdict.failures
        assert f"back with {code} of 11/27/2026 (" in told.message and f"line 2 of batch {batch})" in told.message
        assert ("no release ends this" in told.message) == (code == "R08")
    assert desk.arrived == {"A-1": 1, "A-3": 1} | ({} if is_blocked else {"A-2": 1})


@pytest.mark.parametrize("code", CORRECTED)
def test_what_the_bank_changed_is_an_error_until_it_is_corrected(desk: Desk, code: str) -> None:
    """The rejects have what is right; nothing else shows it, and no option accepts it."""
    batch = desk.submit(desk.file("first.csv", FIRST)).batch
    took_in(desk, batch, code)
    column = next(iter(CORRECTED[code]))
    assert failures(desk, NEXT, OTHER, accept_suggestions="all") == [(1, f"{column}.changed_by_bank")]
    (told,) = desk.verdict.failures
    assert f"changed this with {code} of 11/27/2026 (" in told.message
    assert told.message.endswith("which is in the rejects file, by 12/07/2026 or before the next payment")
    assert rejects(desk) == {1: "; ".join(f"{name}: {value}" for name, value in CORRECTED[code].items())}
    assert (desk.folder / "next.rejects.csv").stat().st_mode & 0o777 == 0o600
    assert failures(desk, NEXT | CORRECTED[code]) == []
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_a_corrected_account_is_told_as_a_new_one(desk: Desk) -> None:
    """The corrected row is the maker's own file: whoever changed the account, a person is told."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=True))
    took_in(desk, desk.submit(desk.file("first.csv", FIRST)).batch, "C01")
    preview = desk.dry_run(desk.file("next.csv", NEXT | CORRECTED["C01"]))
    assert [one.name for one in preview.verdict.warning_failures] == ["achAccountNumber.changed_account"]


def test_a_change_of_no_column_of_ours_stops_nothing(desk: Desk) -> None:
    """Nothing in a file could correct it."""
    took_in(desk, desk.submit(desk.file("first.csv", FIRST)).batch, "C09")
    assert failures(desk, NEXT) == []


def test_what_waits_for_a_returned_account_is_held_back(desk: Desk) -> None:
    """A row of an earlier file to an account that was closed since was sent by `resume`, and refused by `submit`."""
    first = desk.submit(desk.file("first.csv", FIRST)).batch
    waiting = desk.submit(path := desk.file("waits.csv", OTHER, NEXT), run=RunRequest(None, Limits(1))).batch
    took_in(desk, first, "R02")
    for held in (desk.resume(waiting), desk.submit(path)):
        assert (held.held_back, desk.arrived["A-2"]) == (Totals(1, 20_00), 0)


def test_rows_that_were_paid_are_no_errors_later(desk: Desk) -> None:
    """The file of a returned payment, run again, says what it said before."""
    path = desk.file("first.csv", FIRST, OTHER)
    took_in(desk, desk.submit(path).batch, "R02")
    assert (desk.submit(path).exit_code, desk.verdict.counts) == (0, {})
    assert desk.dry_run(path).as_the_ledger_has_it().exit_codes == [0]
    assert desk.submit(path, again="the bank lost it").of(State.REJECTED).rows == 1
