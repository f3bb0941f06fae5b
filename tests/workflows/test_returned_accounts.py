"""What the bank sent back, or changed, is not paid again the same way: by the next file, nor by what still waits."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date
from typing import Any

import polars as pl
import pytest

from batchpay.gateway.origin import environment_of
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.open import open_ledger
from batchpay.operations.metrics import write_metrics
from batchpay.payment import State, Totals
from batchpay.sending.limits import Limits
from batchpay.validation.rejects import open_rejects
from batchpay.workflows.check import validate
from batchpay.workflows.health import HealthLimits, health, ledger_state
from batchpay.workflows.requests import CheckOptions, file_request
from batchpay.workflows.run import RunRequest
from batchpay.workflows.status import rates_told
from tests.model import clock
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


def file(number: int) -> dict[str, str]:
    """A row that makes a file another one."""
    return OTHER | {"paymentId": f"X-{number}", "invoiceNumber": f"X-{number}", "achAccountNumber": "648443926"}


def took_in(
    desk: Desk, batch: object, code: str, row: int = 1, *, unattended: bool = False, cents: int = 10_00
) -> None:
    """Record what a bank says of a payment."""
    is_change = code.startswith("C")
    kind = FactKind.CHANGED if is_change else FactKind.RETURNED
    fact = NewFact(kind, str(batch), row, code, FRIDAY, 0 if is_change else cents, 1, CORRECTED.get(code, {}))
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        environment = environment_of(desk.settings.gateway)
        ledger.record_facts([fact], environment, f"{code}.csv", code, "ann", unattended=unattended)


def failures(desk: Desk, *rows: dict[str, str], dry: bool = False, **options: Any) -> list[tuple[int, str]]:
    """Look at a file as validate, submission and maybe a dry run do, which agree; return rows and rules it breaks."""
    path = desk.file("next.csv", *rows)
    with_rejects = file_request(str(path), desk.folder / "looked.rejects.csv", CheckOptions(**options), desk.settings)
    looked = validate(with_rejects, desk.settings)
    found = [(one.row, one.name) for one in looked.verdict.failures]
    told: list[Any] = [looked.as_json()]
    if dry:
        preview = desk.dry_run(path, **options)
        assert [(one.row, one.name) for one in preview.verdict.failures] == found
        told += [preview.as_json(), *preview.page()]
    desk.submit(path, **options)
    assert [(one.row, one.name) for one in desk.verdict.failures] == found
    texts = json.dumps([*told, *(one.message for one in desk.verdict.failures)])
    shown = [value for one in CORRECTED.values() for value in one.values() if value not in ("SAVINGS", ROUTING)]
    assert not any(value in texts for value in shown), "a corrected value is in the rejects file alone"
    return found


def rejects(desk: Desk) -> dict[int, str]:
    """What the rejects of the next file suggest, by row."""
    with (desk.folder / "next.rejects.csv").open() as lines:
        return {int(row["_row"]): row["_suggestions"] for row in csv.DictReader(lines)}


def of_both(cases: Iterable[tuple[object, ...]], *on_postgres: tuple[object, ...]) -> list[tuple[object, ...]]:
    """Return all cases for a file, and those for a database that it may answer otherwise: a code means the same."""
    return [("sqlite", *case) for case in cases] + [("postgres", *case) for case in on_postgres]


@pytest.mark.parametrize(("on_both", "code", "direction", "is_blocked"), of_both([
    ("R02", "CREDIT", True), ("R02", "DEBIT", True), ("R01", "CREDIT", False), ("R14", "CREDIT", True),
    ("R14", "DEBIT", False), ("R10", "DEBIT", True), ("R10", "CREDIT", False), ("R08", "DEBIT", True),
], ("R02", "CREDIT", True), ("R14", "DEBIT", False)), indirect=["on_both"])  # fmt: skip
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


@pytest.mark.parametrize(("on_both", "code"), of_both([(code,) for code in CORRECTED], ("C07",)), indirect=["on_both"])
def test_what_the_bank_changed_is_an_error_until_it_is_corrected(desk: Desk, code: str) -> None:
    """The rejects have what is right; nothing else shows it, and no option accepts it."""
    batch = desk.submit(desk.file("first.csv", FIRST)).batch
    took_in(desk, batch, code)
    column = next(iter(CORRECTED[code]))
    assert failures(desk, NEXT, OTHER, dry=True, accept_suggestions="all") == [(1, f"{column}.changed_by_bank")]
    (told,) = desk.verdict.failures
    assert f"changed this with {code} of 11/27/2026 (" in told.message
    assert told.message.endswith("which is in the rejects file, by 12/07/2026 or before the next payment")
    assert rejects(desk) == {1: "; ".join(f"{name}: {value}" for name, value in CORRECTED[code].items())}
    assert (desk.folder / "next.rejects.csv").stat().st_mode & 0o777 == 0o600
    assert failures(desk, NEXT | CORRECTED[code]) == []
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_what_the_bank_changed_is_in_files_of_rejects_alone(desk: Desk) -> None:
    """The page's download has it too; what the page shows has not."""
    took_in(desk, desk.submit(desk.file("first.csv", FIRST)).batch, "C01")
    shown, download = RejectsShown(), desk.folder / "download.csv"
    request = file_request(str(desk.file("next.csv", NEXT, OTHER)), None, CheckOptions(), desk.settings)
    validate(replace(request, sinks=(lambda source: open_rejects(download, source), lambda _: shown)), desk.settings)
    assert f"achAccountNumber: {ACCOUNT}" in download.read_text()
    assert [frame["_row"].to_list() for frame in shown.frames] == [[1]]
    assert shown.frames[0]["_suggestions"].to_list() == [None]


class RejectsShown:
    """What a page takes of rejected rows."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        assert not frame.height

    def late(self, frame: pl.DataFrame) -> None:
        self.frames.append(frame)

    def commit(self, may_replace: object = None) -> None:
        pass

    def abandon(self) -> None:
        pass


def test_a_corrected_account_is_told_as_a_new_one(desk: Desk) -> None:
    """The corrected row is the maker's own file: whoever changed the account, a person is told."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=True))
    took_in(desk, desk.submit(desk.file("first.csv", FIRST)).batch, "C01")
    preview = desk.dry_run(desk.file("next.csv", NEXT | CORRECTED["C01"]))
    assert [one.name for one in preview.verdict.warning_failures] == ["achAccountNumber.changed_account"]


def test_a_made_up_return_hides_no_payment_to_another_account(desk: Desk) -> None:
    """A preparer said that a payment had come back, and paid it again to an account of their own as a new payee's."""
    held = ["achAccountNumber.changed_account", "row.same_payment"]
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=True))
    took_in(desk, desk.submit(desk.file("first.csv", FIRST)).batch, "R02")
    holding = replace(desk.settings, policy=replace(desk.settings.policy, hold=held))
    for row, warned in (
        (FIRST | {"achAccountNumber": ACCOUNT}, [held[1], held[0]]),
        (NEXT | {"achAccountNumber": ACCOUNT}, [held[0]]),
    ):
        path = desk.file(f"{row['paymentId']}.csv", row)
        preview = desk.dry_run(path)
        assert {one.name for one in preview.verdict.warning_failures} == {*warned, "achNameOnCheck.new_payee"}
        told = [one.message for one in preview.verdict.warning_failures if one.name == held[1]]
        assert all("which came back with R02 of 11/27/2026, make sure that the bank said so" in one for one in told)
        loose, desk.settings = desk.settings, holding
        assert desk.submit(path).exit_code == 3
        desk.settings = loose
    assert desk.arrived == {"A-1": 1}


def test_how_many_debits_came_back_is_told_and_seldom_an_alarm(desk: Desk) -> None:
    """Of 60 days' debits, but what was withdrawn; one of three is above every rate, and fails only where asked."""
    kinds = {"unauthorized": 100 / 3, "administrative": 0.0, "overall": 100 / 3}
    debits = [row | {"transactionType": "DEBIT", "amount": "10.00"} for row in (FIRST, NEXT, OTHER)]
    batch = desk.submit(desk.file("first.csv", *debits)).batch
    assert rates_told(desk.settings) == []
    desk.submit(desk.file("credit.csv", FIRST | {"paymentId": "C", "invoiceNumber": "C", "achAccountNumber": "7777"}))
    for row, code in enumerate(("R10", "R02"), 1):
        took_in(desk, batch, code, row)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.withdraw_fact(str(batch), 2, "ann", "the bank undid it")
    for fails in (False, True):
        findings = health(desk.settings, HealthLimits(return_rates=fails), clock.now(UTC)).findings
        (told,) = [one for one in findings if one.check == "returns"]
        assert (told.exit_code, told.word, told.details) == (6 * fails, ("warn", "FAIL")[fails], {"debits": 3, **kinds})
        assert told.message.endswith("overall 33.3 % (at most 15 %); over the limit: unauthorized, overall")
    assert rates_told(desk.settings) == [f"test: {told.message.partition(';')[0]}"]
    path, now = desk.folder / "metrics.prom", clock.now(UTC)
    write_metrics(path, [], 0, now, now, ledger_state(desk.settings), completed=True)
    assert 'batchpay_return_rate{environment="test",kind="overall"} 33.333\n' in path.read_text()


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


def test_a_release_by_name_ends_it_until_the_next_return(desk: Desk) -> None:
    """A plain release leaves it; other rows to the account follow, and the next return counts."""
    first = desk.submit(desk.file("first.csv", FIRST)).batch
    took_in(desk, first, "R02")
    assert failures(desk, NEXT, OTHER) == [(1, "achAccountNumber.returned")]
    path = desk.folder / "next.csv"
    for rows in (None, {2}):
        if rows is None:
            assert desk.submit(path, release="called them at the old number").released == Totals()
    assert desk.submit(path, release="called them at the old number", rows={1}).released == Totals(1, 20_00)
    assert failures(desk, NEXT | {"paymentId": "P-4", "invoiceNumber": "A-4"}) == []
    took_in(desk, desk.resume(None).batch, "R02", cents=20_00)
    assert failures(desk, NEXT | {"paymentId": "P-5", "invoiceNumber": "A-5"}) == [(1, "achAccountNumber.returned")]
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1, "A-4": 1}


def test_what_the_payer_stopped_is_ended_by_no_release(desk: Desk) -> None:
    """R08: only the payer can say that it may be collected again."""
    first = desk.submit(desk.file("first.csv", FIRST | {"transactionType": "DEBIT"})).batch
    took_in(desk, first, "R08")
    path = desk.file("next.csv", NEXT | {"transactionType": "DEBIT"})
    assert desk.submit(path).exit_code == 3
    assert desk.submit(path, release="they agree by letter", rows={1}).released == Totals()
    assert desk.arrived == {"A-1": 1}


def test_a_corrected_account_may_have_the_same_payment_id(desk: Desk) -> None:
    """Refused at any age, people invented ids; uncorrected it is refused, and so is another amount."""
    first = desk.submit(desk.file("first.csv", FIRST)).batch
    corrected = FIRST | {"achAccountNumber": ACCOUNT}
    used = [(1, "paymentId.duplicate")]
    assert failures(desk, corrected, file(1)) == used
    took_in(desk, first, "R02", unattended=True)
    assert failures(desk, corrected, file(2)) == used, "nobody has seen the return"
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.confirm_fact(str(first), 1, "ann", "the bank's letter")
    assert failures(desk, FIRST, file(3)) == [(1, "achAccountNumber.returned")]
    assert failures(desk, corrected | {"amount": "10.01"}, file(4)) == used
    message = desk.verdict.failures[0].message
    assert ", which came back with R02 of 11/27/2026, the same amount may go to another account" in message
    assert failures(desk, corrected | {"transactionType": "DEBIT"}, file(5)) == used
    assert desk.arrived["A-1"] == 1
    assert failures(desk, corrected, file(6)) == []
    assert failures(desk, corrected | {"achRoutingNumber": ROUTING}, file(7)) == used, "one of them stands"
    assert desk.arrived["A-1"] == 2


def test_a_return_that_was_withdrawn_counts_for_nothing(desk: Desk) -> None:
    first = desk.submit(desk.file("first.csv", FIRST)).batch
    took_in(desk, first, "R02")
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        ledger.withdraw_fact(str(first), 1, "ann", "the bank undid it")
    assert failures(desk, FIRST | {"achAccountNumber": ACCOUNT}, NEXT) == [(1, "paymentId.duplicate")]


@pytest.mark.parametrize(("on_both", "direction", "code", "times"), of_both([
    ("DEBIT", "R01", 3), ("DEBIT", "R09", 3), ("CREDIT", "R01", 1), ("DEBIT", "R11", 1),
], ("DEBIT", "R01", 3)), indirect=["on_both"])  # fmt: skip
def test_a_debit_for_want_of_money_is_collected_twice_more(desk: Desk, direction: str, code: str, times: int) -> None:
    """Within 180 days of the first; the third time more is refused, and what came back is named."""
    row = FIRST | {"transactionType": direction}
    for number in range(times):
        assert failures(desk, row, file(number)) == []
        with closing(open_ledger(desk.settings.ledger)) as ledger:
            took_in(desk, ledger.find(None).batch, code)
    assert failures(desk, row, file(9)) == [(1, "paymentId.duplicate")]
    assert f", which came back with {code} of 11/27/2026," in desk.verdict.failures[0].message
    assert desk.arrived["A-1"] == times


@pytest.mark.parametrize(("days", "broken"), [(179, []), (181, [(1, "paymentId.duplicate")])])
def test_a_debit_is_not_collected_again_after_180_days(desk: Desk, days: int, broken: list[tuple[int, str]]) -> None:
    first = desk.submit(desk.file("first.csv", row := FIRST | {"transactionType": "DEBIT"})).batch
    took_in(desk, first, "R01")
    clock.offset_s = days * 86_400
    clock.exchange()
    try:
        looked = desk.dry_run(desk.file("next.csv", row, OTHER))
    finally:
        clock.restore()
        clock.offset_s = 0
    assert [(one.row, one.name) for one in looked.verdict.failures] == broken
