"""A row that was rejected is sent only when a named person releases it, whatever else has changed since."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from batchpay.errors import WrongUse
from batchpay.intake.source import Source
from batchpay.payment import State, Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.rule import RuleOptions
from batchpay.sending.limits import Limits
from batchpay.settings import PolicySettings
from batchpay.workflows import submit as submitting
from batchpay.workflows.file_check import CheckContext, FileCheck, check_file
from batchpay.workflows.rejected_earlier import RejectedEarlier, Releasable, how_to_release
from batchpay.workflows.requests import FileRequest
from batchpay.workflows.run import RunRequest
from tests.workflows.desk import Desk, Quiet

SMALL = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
LARGE = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "500.00"}


@pytest.fixture
def file(desk: Desk) -> Path:
    """A file with one row that was above the limit and was rejected; the limit is gone."""
    path = desk.file("may.csv", SMALL, LARGE)
    desk.limit("100.00")
    first = desk.submit(path)
    assert (first.exit_code, desk.arrived) == (3, {"A-1": 1})
    desk.limit("")
    return path


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"allow_duplicates": True}, {"allow_open_ended": True}])
def test_a_repeated_run_never_sends_what_was_rejected(desk: Desk, file: Path, options: dict[str, Any]) -> None:
    """A raised limit and a repeated cron job paid rows that someone had reviewed and left out."""
    again = desk.submit(file, **options)
    assert (again.exit_code, desk.arrived) == (3, {"A-1": 1})
    assert again.notes == [
        "1 row, 500.00, that an earlier submission rejected passes the rules now: "
        f"submit --release {''.join(f'--{name} '.replace('_', '-') for name in options)}--reason TEXT "
        "would check them again, accounts as well"
    ]
    with file.with_suffix(".rejects.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["_row"], row["_errors"].split(": ")[1]) for row in rows] == [("2", "rejected_before")]


def test_a_release_sends_them_once_and_names_who_and_why(desk: Desk, file: Path) -> None:
    """The event names person and reason; the same command again sends nothing."""
    released = desk.submit(file, release="the limit was raised by the board")
    assert (released.exit_code, released.released) == (0, Totals(1, 50_000))
    assert desk.submit(file, release="the limit was raised by the board").released == Totals()
    assert desk.arrived == {"A-1": 1, "A-2": 1}
    assert desk.events("released") == [("ann@desk-3", "the limit was raised by the board")]
    assert {why for _, why in desk.events("started")} == {None}, "nobody has said where else it may have been paid"


def test_what_a_release_has_paid_is_not_an_error_in_a_later_run(desk: Desk) -> None:
    """Paid with --normalize, it was shown as `1 amount.format` under every later run of the original file."""
    path = desk.file("may.csv", SMALL, {"paymentId": "P-2", "amount": "5"}, {"paymentId": "P-3", "amount": "six"})
    assert desk.submit(path).exit_code == 3
    assert desk.submit(path, release="its cents are certain", normalize=True).released == Totals(1, 500)
    preview = desk.dry_run(path)
    assert (preview.verdict.counts, [one.row for one in preview.verdict.failures]) == ({"amount.format": 1}, [3])
    checked = desk.submit(path)
    assert (checked.exit_code, desk.verdict.counts) == (3, {"amount.format": 1})
    assert [one.row for one in desk.verdict.failures] == [3]


def test_a_dry_run_shows_what_a_release_would_add(desk: Desk, file: Path) -> None:
    """Without --release the row is counted separately, with it among what would be sent; the ledger is unchanged."""
    without = desk.dry_run(file)
    assert (without.proposal.to_send.total.rows, without.releasable) == (0, Totals(1, 50_000))
    with_it = desk.dry_run(file, release="looked at it")
    assert (with_it.proposal.to_send.total.rows, with_it.summary.released) == (1, Totals(1, 50_000))
    assert desk.events("released") == []


def test_a_content_that_nobody_submitted_has_nothing_to_release(desk: Desk, file: Path) -> None:
    """A corrected file is a different content: with --release it would be paid whole."""
    corrected = desk.file("june.csv", SMALL, LARGE | {"amount": "50.00"})
    for call in (desk.submit, desk.dry_run):
        with pytest.raises(WrongUse, match="not been submitted yet"):
            call(corrected, release="corrected")


def test_a_payment_made_in_between_stops_its_release_at_any_age(desk: Desk) -> None:
    """The row was paid by another file while it was rejected: released then, it was paid twice, days later."""
    large = {"amount": "500.00"}
    path = desk.file("may.csv", SMALL, large)
    desk.limit("100.00")
    desk.submit(path)
    desk.limit("")
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, duplicate_days=0))
    assert desk.submit(desk.file("urgent.csv", large)).exit_code == 0
    again = desk.submit(path, release="overlooked")
    assert (again.exit_code, again.released, desk.arrived.total()) == (3, Totals(), 2)


@pytest.mark.parametrize("first", ["release", "register"])
def test_two_concurrent_commands_pay_one_payment_id_once(
    desk: Desk, file: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Each checked before the other wrote: one released P-2, the other registered it in a file of its own."""
    other = desk.file("other.csv", LARGE | {"amount": "500.01"})
    asked: list[FileRequest] = []

    def check_and_wait(source: Source, request: FileRequest, around: CheckContext) -> FileCheck:
        checked = check_file(source, request, around)
        if not asked:
            asked.append(request)
            desk.submit(*((file, "the board agreed") if first == "release" else (other,)))
        return checked

    monkeypatch.setattr(submitting, "check_file", check_and_wait)
    desk.submit(*((other,) if first == "release" else (file, "the board agreed")))
    assert desk.arrived == {"A-1": 1, "A-2": 1}


@pytest.mark.parametrize("amount", [" 5", "5", "5.0"])
def test_a_repaired_row_is_released_with_the_amount_that_was_rejected(desk: Desk, amount: str) -> None:
    """--normalize alone sends nothing; with a release the repaired row counts with the cents it was rejected with."""
    path = desk.file("odd.csv", SMALL, LARGE | {"amount": amount})
    assert desk.submit(path).exit_code == 3
    assert desk.submit(path, normalize=True).exit_code == 3
    assert desk.submit(path, release="repaired", normalize=True).released == Totals(1, 500)


AS_READ: dict[str, Any] = {}
REPAIRED: dict[str, Any] = {"normalize": True}
SUGGESTED: dict[str, Any] = {"accept_suggestions": "all"}


@pytest.mark.parametrize(("odd", "first", "then", "invoice"), [
    ({"amount": "12"}, AS_READ, REPAIRED, ""), ({"amount": "12"}, REPAIRED, AS_READ, "A-3"),
    ({"transactionType": "credit"}, AS_READ, REPAIRED, "A-3"),
    ({"achAccountNumber": " 648443924"}, AS_READ, REPAIRED, "A-3"),
    ({"achRoutingNumber": "21000021"}, AS_READ, SUGGESTED, "A-3"),
    ({"achRoutingNumber": "21000021"}, SUGGESTED, AS_READ, ""),
])  # fmt: skip
def test_a_bill_that_one_of_two_readings_has_twice_is_paid_once(
    desk: Desk, odd: dict[str, str], first: dict[str, Any], then: dict[str, Any], invoice: str
) -> None:
    """One row was paid as read and the other one, repaired, by a release that nobody meant to pay it again."""
    bill = {"invoiceNumber": invoice, "amount": "12.00", "achRoutingNumber": "021000021"}
    path = desk.file("may.csv", SMALL, bill | odd, bill)
    assert desk.submit(path, **first).by_state[State.ACCEPTED].rows == 2
    preview = desk.dry_run(path, release="the others", **then)
    assert (preview.releasable, preview.proposal.to_send.total) == (Totals(), Totals())
    again = desk.submit(path, release="the others", **then)
    assert (again.released, desk.arrived.total()) == (Totals(), 2)
    (told,) = [one for one in desk.verdict.failures if one.row in (2, 3) and one.code == "duplicate"]
    assert told.message.startswith(f"is the same bill as line {6 - told.row} of this file (account, direction")
    assert told.message.endswith("if both are due, submit it with --allow-duplicates --reason TEXT")
    both = desk.submit(path, release="two deliveries", allow_duplicates=True, **then)
    assert (both.released, desk.arrived.total()) == (Totals(1, 1200), 3)
    assert [(one["batch"], one["row"] + one["earlier_row"]) for one in both.allowed_duplicates["list"]] == [(None, 5)]
    places = f"line {told.row + 1} (line {6 - told.row} of this file)"
    assert f"duplicates that were allowed: 1 row, 12.00: {places}" in both.notes


def test_a_bill_that_waits_in_its_own_batch_is_not_released_beside_it(desk: Desk) -> None:
    """The release paid the repaired row, and the next call without --normalize the one that had waited."""
    bill = {"invoiceNumber": "A-3", "amount": "12.00"}
    path = desk.file("may.csv", SMALL, bill | {"amount": "12"}, bill)
    desk.submit(path, run=RunRequest(results=None, limits=Limits(rows_max=1)))
    assert desk.submit(path, release="repaired", normalize=True).released == Totals()
    desk.submit(path)
    assert desk.arrived == {"A-1": 1, "A-3": 1}


def test_what_waits_and_is_let_through_by_a_release_counts_as_well(desk: Desk) -> None:
    """It is sent beside what is released, and was paid by another file since."""
    bill = {"invoiceNumber": "A-3", "amount": "12.00"}
    path = desk.file("may.csv", SMALL, bill, {"invoiceNumber": "A-4", "amount": "7"})
    desk.submit(path, run=RunRequest(results=None, limits=Limits(rows_max=1)))
    desk.submit(desk.file("urgent.csv", SMALL | {"paymentId": "P-9"}, bill), allow_duplicates=True)
    both = desk.submit(path, release="both are due", normalize=True, allow_duplicates=True)
    assert [one["row"] for one in both.allowed_duplicates["list"]] == [2]
    assert (both.released, desk.arrived) == (Totals(1, 700), {"A-1": 2, "A-3": 2, "A-4": 1})


def test_a_payment_id_that_one_of_two_readings_has_twice_is_used_once(desk: Desk) -> None:
    """One row was paid while the other one's paymentId ended with a blank; it is not let through either."""
    path = desk.file("may.csv", {"paymentId": "P", "amount": "1"}, {"paymentId": "P", "amount": "2.00"})
    path.write_text(path.read_text().replace("P,", "P ,", 1))
    desk.submit(path)
    for options in (REPAIRED, REPAIRED | {"allow_duplicates": True}):
        assert desk.submit(path, release="repaired", **options).released == Totals()
    assert desk.arrived.total() == 1


def test_a_bill_under_a_payment_id_of_its_own_is_released(desk: Desk) -> None:
    """In one file rents and salaries repeat: that is a warning, and no reason to keep the row back."""
    bill = {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "12.00"}
    path = desk.file("may.csv", SMALL, bill | {"paymentId": "P-4", "amount": "12"}, bill)
    desk.submit(path)
    again = desk.submit(path, release="repaired", normalize=True)
    assert again.released == Totals(1, 1200)
    assert not any("duplicates" in note for note in again.notes), "nobody has allowed any"
    assert desk.arrived == {"A-1": 1, "A-3": 2}


def test_what_was_registered_and_released_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a call that nobody watches, its log is all that says what it did."""
    told: list[object] = []
    monkeypatch.setattr(Quiet, "say", lambda self, text: told.append(text))
    monkeypatch.setattr(submitting, "log", lambda event, **fields: told.append((event, fields["rows"])))
    desk.limit("50.00")
    bills = [{"invoiceNumber": f"A-{number}", "amount": amount} for number, amount in ((1, "10.00"), (2, "99.00"))]
    path = desk.file("may.csv", *bills)
    desk.submit(path)
    desk.limit("100.00")
    desk.submit(path, release="seen by Kim")
    assert told == [("checked", 2), ("registered", 2), ("checked", 2), "rejected before and released now: 1 row"]


NOW, TODAY = datetime(2026, 5, 20, 12, tzinfo=UTC), date(2026, 5, 4)


def rejected(purged_at: datetime | None = None, *reasons: str) -> RejectedEarlier:
    """Return rows 2 and 5 of a present batch: 10.00, and one whose amount could not be read."""
    found = list(reasons or ["why"])
    rows = [SimpleNamespace(row=row, amount_cents=cents, reasons=found) for row, cents in ((2, 1_000), (5, None))]
    ledger: Any = SimpleNamespace(rejected=lambda batch: rows, today=lambda: TODAY)
    batch: Any = SimpleNamespace(batch="b", registered_at=NOW, purged_at=purged_at)
    return RejectedEarlier(ledger, batch)


@pytest.mark.parametrize(
    ("cents", "purged_at", "released"),
    [([1_000, 700], None, 1_000), ([1_001, 700], None, 0), ([1_000, 700], NOW, 0)],
)
def test_only_the_amount_that_was_rejected_is_released(
    cents: list[int], purged_at: datetime | None, released: int
) -> None:
    """A row with a different amount today is a different payment; a purged batch has nothing to compare it with."""
    found = Releasable()
    rows, amounts = pl.Series([2, 5], dtype=pl.UInt32), pl.Series(cents, dtype=pl.Int64)
    held = rejected(purged_at).held(rows, amounts, None, found)
    assert found.totals == Totals(1 if released else 0, released)
    assert held.to_list() == ([5] if released else [2, 5])


@pytest.mark.parametrize(
    ("reasons", "rows", "released", "by_name"),
    [
        (["achAccountNumber.returned"], None, 0, [2]),
        (["achAccountNumber.returned"], {2}, 1_000, []),
        (["achAccountNumber.returned"], {5}, 0, [2]),
        (["achAccountNumber.returned", "amount.limit"], None, 1_000, []),
    ],
)
def test_a_row_that_waits_for_a_person_is_released_only_by_name(
    reasons: list[str], rows: set[int] | None, released: int, by_name: list[int]
) -> None:
    """Among forty rows over a limit, one whose account the bank had closed would be released as well."""
    found, all_rows = Releasable(), pl.Series([2], dtype=pl.UInt32)
    held = rejected(None, *reasons).held(all_rows, pl.Series([1_000]), rows, found)
    assert (found.totals.cents, found.by_name, held.to_list()) == (released, by_name, [] if released else [2])
    notes = found.notes(RuleOptions(TODAY), released=True, accounts_asked=False)
    assert notes == [
        f"1 row waits for a person, released by name alone: submit --release --rows {row} --reason TEXT"
        for row in by_name
    ]
    told = rejected(None, *reasons).failures(held)
    assert all(message.endswith("by name: --release --rows 2 --reason TEXT") for _, _, message in told.values())


def test_a_release_of_named_rows_sends_those_alone(desk: Desk) -> None:
    """Whoever looked at one of forty rejected rows had to release all forty; the plan, too, has that one alone."""
    path = desk.file("may.csv", SMALL, LARGE, LARGE | {"paymentId": "P-3", "invoiceNumber": "A-3"})
    desk.limit("100.00")
    desk.submit(path)
    desk.limit("")
    preview = desk.dry_run(path, release="agreed", rows={3})
    assert (preview.proposal.to_send.released, preview.releasable) == (Totals(1, 50_000), Totals(1, 50_000))
    released = desk.submit(path, release="agreed", rows={3})
    assert (released.exit_code, released.released, desk.arrived) == (3, Totals(1, 50_000), {"A-1": 1, "A-3": 1})
    assert [one.row for one in desk.verdict.failures] == [2]


@pytest.mark.parametrize("row", [1, 3])
def test_a_named_row_that_is_not_rejected_releases_nothing(desk: Desk, file: Path, row: int) -> None:
    """A typing error in one of the numbers is told before the others are paid."""
    for call in (desk.submit, desk.dry_run):
        with pytest.raises(WrongUse, match=f"row {row} is not among the rejected rows of batch"):
            call(file, release="agreed", rows={2, row})
    assert desk.arrived == {"A-1": 1}


@pytest.mark.parametrize(("passed", "days"), [(0, 4), (1, 5), (30, 34), (-2, 3)])
def test_the_check_goes_back_to_before_the_batch_was_registered(passed: int, days: int) -> None:
    """Whatever came in while the row was rejected is checked; a clock that was set back doesn't shorten that."""
    assert rejected().days_until(NOW + timedelta(days=passed), 3) == days


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (RuleOptions(TODAY), "--release --reason TEXT"),
        (RuleOptions(TODAY, normalize=True, allow_open_ended=True),
         "--release --allow-open-ended --normalize --reason TEXT"),
        (RuleOptions(TODAY, accept_suggestions=suggesting_rules()), "--release --accept-suggestions --reason TEXT"),
        (RuleOptions(date(2026, 1, 5), accept_suggestions=frozenset(["b.c", "a.b"])),
         "--release --accept-suggestions=a.b,b.c --as-of 2026-01-05 --reason TEXT"),
    ],
)  # fmt: skip
def test_the_options_that_made_a_row_valid_release_it(rules: RuleOptions, options: str) -> None:
    """Without them the release checks the row as it was rejected, and leaves it."""
    assert how_to_release(rules, TODAY) == options
