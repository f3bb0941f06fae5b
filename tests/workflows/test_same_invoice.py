"""An invoice that was paid is not paid once more because its amount was corrected; part payments are let through."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from batchpay.payment import Environment
from batchpay.settings import PolicySettings
from tests.model import clock
from tests.support.payment_files import DATA
from tests.workflows.desk import DECLINED, IN_DOUBT, Desk

pytestmark = pytest.mark.usefixtures("on_both")

PAID = {"invoiceNumber": "INV-7", "amount": "606.41"}
CORRECTED = {"invoiceNumber": "inv-7", "amount": "616.41"}
OTHER = {"invoiceNumber": "INV-9", "amount": "1.00"}


def found(desk: Desk, *rows: dict[str, str], **options: object) -> tuple[dict[str, int], dict[str, int]]:
    """Dry-run a file of these rows; return how many errors and warnings it has, by rule."""
    preview = desk.dry_run(desk.file("june.csv", *rows), **options)  # type: ignore[arg-type]
    late: dict[str, int] = {}
    for failure in preview.verdict.failures:
        late[failure.name] = late.get(failure.name, 0) + 1
    return late, dict(preview.verdict.warning_counts)


ERROR: tuple[dict[str, int], dict[str, int]] = ({"row.same_invoice": 1}, {})
WARNING: tuple[dict[str, int], dict[str, int]] = ({}, {"row.same_invoice": 1})
NOTHING: tuple[dict[str, int], dict[str, int]] = ({}, {})


def test_a_paid_invoice_with_another_amount_is_not_sent(desk: Desk) -> None:
    """A corrected file was "nothing unusual" and paid each payee twice; the message names what was paid, and when."""
    first = desk.submit(desk.file("may.csv", OTHER, PAID))
    assert found(desk, CORRECTED) == ERROR
    paid = desk.submit(desk.file("june.csv", CORRECTED, OTHER | {"invoiceNumber": "INV-8"}))
    assert (paid.exit_code, desk.arrived) == (3, {"INV-9": 1, "INV-7": 1, "INV-8": 1})
    (told,) = desk.verdict.failures
    assert (told.row, told.line, told.column, told.code) == (1, 2, "row", "same_invoice")
    assert f"line 3 of batch {first.batch} of {clock.now():%m/%d/%Y}, 606.41" in told.message
    assert told.message.endswith(
        "give it an invoice number of its own, or submit it with --allow-duplicates --reason TEXT"
    )


@pytest.mark.parametrize(("earlier", "later"), [("P-1", ""), ("", "P-2"), ("P-1", "P-2")])
def test_with_a_payment_id_it_is_a_warning(desk: Desk, earlier: str, later: str) -> None:
    """Part payments have ids of their own; whoever wants each decided on has warnings rejected."""
    first = desk.submit(desk.file("may.csv", PAID | {"paymentId": earlier}))
    row = CORRECTED | {"paymentId": later}
    assert found(desk, row) == WARNING
    assert found(desk, row, warnings_as_errors=True) == ERROR
    (told,) = desk.dry_run(desk.file("june.csv", row)).variances
    assert f"line 2 of batch {first.batch} of " in told.message
    assert ", 606.41" in told.message
    assert desk.submit(desk.file("june.csv", row)).exit_code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"transactionType": "DEBIT"},
        {"invoiceNumber": "INV-8"},
        {"invoiceNumber": ""},
        {"achAccountNumber": "648443925"},
        {"achRoutingNumber": "021000021"},
    ],
)
def test_another_direction_account_or_invoice_is_another_payment(desk: Desk, change: dict[str, str]) -> None:
    desk.submit(desk.file("may.csv", PAID))
    assert found(desk, CORRECTED | change) == NOTHING


def test_an_invoice_number_that_was_filled_in_counts_as_blank(desk: Desk) -> None:
    """It differs from file to file; whoever copies it from the results gave none."""
    desk.settings = replace(desk.settings, gateway=replace(desk.settings.gateway, stamp_invoice=True))
    desk.submit(desk.file("may.csv", PAID | {"invoiceNumber": ""}))
    (stamped,) = desk.arrived
    assert stamped.startswith("BP")
    assert found(desk, CORRECTED | {"invoiceNumber": stamped}) == NOTHING


def test_what_is_in_doubt_counts_and_what_was_declined_does_not(desk: Desk) -> None:
    """One may have been paid, the other was not."""
    desk.answer = lambda reference: {"INV-7": IN_DOUBT}.get(reference, DECLINED)
    for row in (PAID, OTHER):
        desk.submit(desk.file(f"{row['invoiceNumber']}.csv", row))
    assert len(desk.arrived) == 2
    preview = desk.dry_run(desk.file("june.csv", CORRECTED, OTHER | {"amount": "2.00"}))
    assert [(one.row, one.name) for one in preview.verdict.failures] == [(1, "row.same_invoice")]


def test_the_other_environment_does_not_count(desk: Desk) -> None:
    """A rehearsal makes no live row an error."""
    desk.submit(desk.file("may.csv", PAID))
    desk.settings = replace(
        desk.settings,
        gateway=replace(desk.settings.gateway, base_url="https://pay.example", environment=Environment.LIVE),
    )
    assert found(desk, CORRECTED) == NOTHING


@pytest.mark.parametrize(("days", "expected"), [(4.9, ERROR), (5.1, NOTHING)])
def test_it_counts_within_the_days_in_which_bills_are_duplicates(
    desk: Desk, days: float, expected: tuple[dict[str, int], dict[str, int]]
) -> None:
    desk.submit(desk.file("may.csv", PAID))
    clock.offset_s = days * 86_400
    clock.exchange()
    assert found(desk, CORRECTED) == expected


def test_a_row_for_a_day_far_from_the_payment_is_told(desk: Desk) -> None:
    """The next installment is paid a month later, and told as such."""
    desk.submit(desk.file("may.csv", PAID))
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, zone="UTC"))
    days = [f"{clock.now().date() + timedelta(days=days):%m/%d/%Y}" for days in (3, 20)]
    assert [found(desk, CORRECTED | {"payOn": day})[0] for day in days] == [ERROR[0], {}]
    assert found(desk, CORRECTED | {"payOn": days[1]})[1]["row.same_invoice"] == 1


def test_it_is_let_through_as_duplicates_are_and_recorded(desk: Desk) -> None:
    """With batch and row of what it pays beside; a row of which only warnings are told is no duplicate."""
    first = desk.submit(desk.file("may.csv", OTHER, PAID))
    path = desk.file("june.csv", CORRECTED, OTHER | {"amount": "2.00", "paymentId": "P"})
    paid = desk.submit(path, allow_duplicates=True)
    assert (paid.exit_code, desk.arrived) == (0, {"INV-9": 2, "INV-7": 1, "inv-7": 1})
    assert paid.allowed_duplicates["list"] == [{"row": 1, "batch": first.batch, "earlier_row": 2}]
    assert paid.allowed_duplicates["amount"] == "616.41"
    assert f"line 2 (line 3 of batch {first.batch})" in " ".join(paid.notes)


def test_it_is_released_where_it_is_let_through(desk: Desk) -> None:
    """An earlier submission rejected the row; `--release` alone does not send it."""
    desk.submit(desk.file("may.csv", PAID))
    path = desk.file("june.csv", CORRECTED, OTHER)
    assert desk.submit(path).exit_code == 3
    assert desk.submit(path, release="a second delivery").released.rows == 0
    assert desk.submit(path, release="a second delivery", allow_duplicates=True).released.rows == 1


def test_a_duplicate_is_not_told_again_and_the_rule_can_be_switched_off(desk: Desk) -> None:
    """Both parts of an invoice were paid: the file's row repeats one of them, which is what the person must know."""
    desk.submit(desk.file("may.csv", PAID))
    desk.submit(desk.file("more.csv", CORRECTED), allow_duplicates=True)
    assert found(desk, CORRECTED | {"billingFirstName": "Anne"}) == ({"row.duplicate": 1}, {})
    off = PolicySettings(variance=False, rules_off=["row.same_invoice"])
    desk.settings = replace(desk.settings, policy=off)
    assert found(desk, CORRECTED | {"amount": "1.11"}) == NOTHING


@pytest.mark.parametrize("rows", [({"invoiceNumber": "", "amount": "1.00"},), (CORRECTED,)])
def test_without_invoice_numbers_or_recent_batches_nothing_is_read(
    desk: Desk, rows: tuple[dict[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordinary files cost what they cost before."""
    desk.submit(desk.file("may.csv", PAID))
    if rows == (CORRECTED,):
        clock.offset_s = 9 * 86_400
        clock.exchange()

    def fail(*_: object) -> None:
        raise AssertionError("nothing needs the accounts' digests")

    monkeypatch.setattr("batchpay.registration.digests.account_digests", fail)
    assert found(desk, *rows) == NOTHING


def test_a_corrected_file_of_the_field(desk: Desk) -> None:
    """Three payees, each ten dollars more: all were paid twice."""
    first, second = (DATA / "field" / f"corr_{letter}.csv" for letter in "ab")
    if not first.is_file():
        pytest.skip("the field's files are not here")
    desk.submit(first, rejects=Path(desk.folder / "a.rejects.csv"))
    preview = desk.dry_run(second)
    assert [(one.row, one.name) for one in preview.verdict.failures] == [(n, "row.same_invoice") for n in (1, 2, 3)]
