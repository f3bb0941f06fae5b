"""Limits of a day, to the cent: what was sent, what is given back, what is planned, and who may exceed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta

import pytest

from batchpay.errors import LedgerDamaged
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile, Run
from batchpay.ledger.days import DayCheck, DayLimits, Sums
from batchpay.ledger.records import Decision, SignOff
from batchpay.outcome import Outcome
from batchpay.payment import Environment, State, Totals
from tests.ledger.batches import (
    ACCEPTED,
    DECLINED,
    IN_DOUBT,
    NOT_SENT,
    columns,
    new_batch,
    register,
    rejected,
    states,
)
from tests.ledger.factories import LedgerFactory, PostgresFactory

DEBITS, CREDITS = [1, 2, 4, 5, 7, 8], [3, 6, 9]
"""Rows of `columns`, by direction."""
DAY = DayLimits(max_per_day=200)
PAYEE = DayLimits(max_per_payee_day=200)
BOTH = DayLimits(max_per_day=200, max_per_payee_day=100)


def batch_of(ledger: Ledger, rows: list[int], content: bytes = b"one", cents: int = 100) -> str:
    """Register rows of so many cents each; a row's account is that of the same row of other batches."""
    return register(ledger, columns(ledger, rows, salt=content.hex(), amount_cents=cents), content=content)


@contextmanager
def run_of(ledger: Ledger, batch: str, limits: DayLimits = DAY, day: date | None = None) -> Iterator[Run]:
    """Hold a batch and begin a run of it, which the caller ends."""
    with ledger.lock(ledger.find(batch).digest):
        run = ledger.start(batch, "ada", limits=limits, day=day)
        run.claim(99)
        yield run


def sent(ledger: Ledger, day: date | None = None) -> tuple[int, int]:
    """What counts as sent on a day, debits and credits."""
    found = ledger.sent_on(Environment.TEST, day or ledger.today())
    return found["DEBIT"], found["CREDIT"]


def settle(ledger: Ledger, batch: str, outcomes: Mapping[int, State]) -> None:
    """Settle rows in doubt by a person's word."""
    ledger.resolve(batch, [Decision(row, state) for row, state in outcomes.items()], "ben", "the bank's list")


def test_rows_are_granted_up_to_the_limit_and_no_further(ledger: Ledger) -> None:
    """Debits and credits apart; a smaller row that fits is granted after one that did not."""
    batch = register(ledger, columns(ledger, range(1, 10)))  # row N has N * 100 + 1 cents
    with run_of(ledger, batch, DayLimits(max_per_day=700)) as run:
        assert run.commit([1, 2, 4, 5], []) == {1, 2}
        assert run.commit([3, 6, 7], []) == {3}
        assert run.commit([8], []) == set()
        assert (sent(ledger), run.sending.reached) == ((302, 301), {"max_per_day"})
        run.commit([], [(row, ACCEPTED) for row in (1, 2, 3)])
        run.finish(None)
    assert [row for row, state in states(ledger, batch).items() if state is State.PENDING] == [4, 5, 6, 7, 8, 9]
    with run_of(ledger, batch, DayLimits(max_per_day=703)) as run:
        assert run.commit([4, 5], []) == {4}
    assert ledger.check() == []


def test_claimed_rows_that_can_not_fit_any_more_are_known(ledger: Ledger) -> None:
    """No slot of the gateway's pace is used for them; smaller ones, and the other direction, are not among them."""
    batch = register(ledger, columns(ledger, range(1, 10)))
    with ledger.lock(ledger.find(batch).digest):
        run = ledger.start(batch, "ada", limits=DayLimits(max_per_day=500, max_per_payee_day=10_000))
        claimed = run.claim(99)
        assert not any(map(run.sending.is_over, claimed))
        assert run.commit([5], []) == set()
        assert [payment.row for payment in claimed if run.sending.is_over(payment)] == [5, 7, 8]


@pytest.mark.parametrize("limits", [DAY, DayLimits(max_per_payee_day=100)])
@pytest.mark.parametrize(
    ("outcome", "left"), [(ACCEPTED, 200), (IN_DOUBT, 200), (DECLINED, 100), (NOT_SENT, 100)]
)  # fmt: skip
def test_what_was_not_paid_makes_room_in_the_same_commit(
    ledger: Ledger, outcome: Outcome, left: int, limits: DayLimits
) -> None:
    """And what may have been paid keeps it."""
    first, second = batch_of(ledger, [1, 2]), batch_of(ledger, [1, 2], b"two")
    with run_of(ledger, first, limits) as run:
        assert run.commit([1, 2], []) == {1, 2}
        run.commit([], [(1, outcome), (2, ACCEPTED)])
        assert sent(ledger) == (left, 0)
        run.finish(None)
    with run_of(ledger, second, limits) as run:
        assert run.commit([1, 2], []) == ({1} if left == 100 else set())
    if outcome is NOT_SENT:
        with run_of(ledger, first, limits) as run:
            assert run.commit([1], []) == set()
    assert ledger.check() == []


@pytest.mark.parametrize("limits", [DAY, PAYEE])
@pytest.mark.parametrize("outcome", [DECLINED, NOT_SENT])
def test_a_group_that_ends_one_row_and_asks_for_another(ledger: Ledger, outcome: Outcome, limits: DayLimits) -> None:
    """With few workers outcome and next intent are one commit: the row that was not paid must not block the next."""
    batch = batch_of(ledger, [1, 2, 4], cents=150)
    with run_of(ledger, batch, replace(limits, max_per_payee_day=limits.max_per_payee_day and 150)) as run:
        assert run.commit([1], []) == {1}
        wanted = [1, 2] if outcome is NOT_SENT else [2, 4]
        assert wanted[0] in run.commit(wanted, [(1, outcome)])
        run.finish(None)


@pytest.mark.parametrize(
    ("decided", "left"), [(State.ACCEPTED, 300), (State.DECLINED, 200), (State.PENDING, 200)]
)  # fmt: skip
def test_what_a_person_decides_gives_back_its_own_day(ledger: Ledger, decided: State, left: int) -> None:
    """A row that was sent yesterday makes no room today."""
    batch, today = batch_of(ledger, DEBITS), ledger.today()
    yesterday = today - timedelta(days=1)
    for day, rows in ((yesterday, [1, 2, 4]), (today, [5, 7])):
        with run_of(ledger, batch, DayLimits(300, 300), day) as run:
            assert run.commit(rows, []) == set(rows)
            run.commit([], [(row, IN_DOUBT) for row in rows])
            run.finish(None)
    settle(ledger, batch, {1: decided})
    assert (sent(ledger, yesterday), sent(ledger, today)) == ((left, 0), (200, 0))
    with run_of(ledger, batch, DayLimits(300, 100)) as run:
        wanted = {8} if decided is not State.PENDING else {1}
        assert run.commit([1, 8] if decided is State.PENDING else [8], []) == wanted


@pytest.mark.parametrize("decided", [State.DECLINED, State.PENDING])
def test_what_a_run_without_the_limit_sent_counts_for_its_account(ledger: Ledger, decided: State) -> None:
    """A doubt of it, once settled, made room that another payment had taken: the account got 200 of 100."""
    first, second, third = batch_of(ledger, [1]), batch_of(ledger, [1], b"two"), batch_of(ledger, [1], b"three")
    limits = DayLimits(max_per_payee_day=100)
    with run_of(ledger, first, DayLimits()) as run:
        assert run.commit([1], []) == {1}
        run.commit([], [(1, IN_DOUBT)])
        run.finish(None)
    with run_of(ledger, second, limits) as run:
        assert run.commit([1], []) == set()
        run.finish(None)
    settle(ledger, first, {1: decided})
    for batch, granted in ((second, {1}), (third, set())):
        with run_of(ledger, batch, limits) as run:
            assert run.commit([1], []) == granted
            run.finish(None)
    assert ledger.check() == []


def test_a_killed_run_keeps_what_it_was_sending(ledger_factory: LedgerFactory) -> None:
    """Its rows are in doubt: they may have been paid. What it had spilled counts as it ended."""
    ledger = ledger_factory.create()
    batch = batch_of(ledger, DEBITS)
    with run_of(ledger, batch, DayLimits(400, 400)) as run:
        assert run.commit([1, 2, 4], []) == {1, 2, 4}
        run.spill([(1, DECLINED), (2, ACCEPTED)])
    ledger_factory.close()
    ledger = ledger_factory.open()
    assert sent(ledger) == (300, 0)
    with run_of(ledger, batch, DayLimits(400, 400)) as run:
        assert (sent(ledger), run.recovered) == ((200, 0), 1)
        assert run.commit([5, 7, 8], []) == {5, 7}
    assert ledger.check() == []


def test_an_account_over_many_batches(ledger: Ledger) -> None:
    """One account of many; others go on, and so does it on the next day."""
    first, second = batch_of(ledger, [1, 2]), batch_of(ledger, [1, 2, 4], b"two", cents=101)
    with run_of(ledger, first, PAYEE) as run:
        assert run.commit([1, 2], []) == {1, 2}
        run.commit([], [(1, ACCEPTED), (2, DECLINED)])
        run.finish(None)
    with run_of(ledger, second, PAYEE) as run:
        assert run.commit([1, 2, 4], []) == {2, 4}
        assert run.sending.reached == {"max_per_payee_day"}
        run.commit([], [(2, ACCEPTED), (4, ACCEPTED)])
        run.finish(None)
    with run_of(ledger, second, PAYEE, ledger.today() + timedelta(days=1)) as run:
        assert run.commit([1], []) == {1}


def test_two_days_that_end_at_once(ledger: Ledger) -> None:
    """A run that began before midnight counts on its own day, beside one that began after."""
    first, second = batch_of(ledger, DEBITS), batch_of(ledger, DEBITS, b"two")
    today = ledger.today()
    with run_of(ledger, first, BOTH, today) as old, run_of(ledger, second, BOTH, today + timedelta(days=1)) as new:
        assert (old.commit([1], []), new.commit([1], [])) == ({1}, {1})
        assert (old.commit([2, 4], []), new.commit([2, 4], [])) == ({2}, {2})
        assert new.commit([5], [(1, DECLINED)]) == {5}
        assert old.commit([5], []) == set()
    assert (sent(ledger), sent(ledger, today + timedelta(days=1))) == ((200, 0), (200, 0))


def test_test_and_live_are_counted_apart(ledger: Ledger) -> None:
    """What a rehearsal sends takes nothing from the day's payments."""
    live = register(ledger, columns(ledger, [1, 2], amount_cents=100), environment=Environment.LIVE)
    for batch in (live, batch_of(ledger, [1, 2])):
        with run_of(ledger, batch, BOTH) as run:
            assert run.commit([1, 2], []) == {1, 2}
            run.finish(None)


def test_what_a_restored_ledger_puts_in_doubt_counts_today(ledger_factory: LedgerFactory) -> None:
    """It may have been sent today; a person's word that it was not makes room."""
    ledger = ledger_factory.create()
    batch = batch_of(ledger, [1, 2, 4, 5])
    ledger_factory.close()
    ledger_factory.accept_loss("restored from a backup", rows_in_doubt=True)
    ledger = ledger_factory.open()
    assert sent(ledger) == (400, 0)
    settle(ledger, batch, {1: State.DECLINED, 2: State.PENDING, 4: State.ACCEPTED})
    assert sent(ledger) == (200, 0)
    with run_of(ledger, batch, DayLimits(300, 100)) as run:
        assert run.commit([2], []) == {2}
    assert ledger.check() == []


def test_a_check_finds_a_day_whose_sum_was_changed(ledger_factory: LedgerFactory) -> None:
    """More would be sent than the limit allows, or nothing at all."""
    ledger = ledger_factory.create()
    batch, day = batch_of(ledger, [1, 2]), ledger.today()
    with run_of(ledger, batch) as run:
        run.commit([1], [])
        run.finish(None)
    ledger_factory.close()
    values = f"('test', {day.toordinal()}, 1, -50)"
    ledger_factory.edit(
        sqlite="UPDATE day_total SET cents = cents - 50", postgres=f"INSERT INTO day_total VALUES {values}"
    )
    told = f"the ledger is damaged: what counts as sent on {day:%m/%d/%Y} differs from its rows"
    try:
        found = ledger_factory.open().check()
    except LedgerDamaged as error:  # a small file is checked whole where it is opened
        found = [str(error).partition(";")[0]]
    assert found == [told]


def check_of(ledger: Ledger, limits: DayLimits = DAY) -> DayCheck:
    """The check of a registration of today."""
    return ledger.day_check(Environment.TEST, limits)


def register_within(ledger: Ledger, rows: list[int], content: bytes, check: DayCheck, **options: object) -> str:
    """Register rows of 100 cents each within limits."""
    with ledger.register(new_batch(ledger, len(rows), content=content), "ada", check) as registering:
        registering.add_payments(columns(ledger, rows, salt=content.hex(), amount_cents=100, **options))  # type: ignore[arg-type]
        return registering.finish()


@pytest.mark.parametrize("limits", [DAY, DayLimits(max_per_payee_day=100)])
def test_a_registration_counts_what_is_sent_and_planned_today(ledger: Ledger, limits: DayLimits) -> None:
    """Nothing of one above the limit is registered; what was cancelled or declined makes room."""
    check = check_of(ledger, limits)
    first = register_within(ledger, [1, 2], b"one", check)
    with pytest.raises(RegisteredMeanwhile):
        register_within(ledger, [1], b"two", check)
    assert len(ledger.batches()) == 1
    with run_of(ledger, first) as run:
        run.commit([1], [])
        run.commit([], [(1, DECLINED)])
        run.finish(None)
    second = register_within(ledger, [1], b"two", check)
    with pytest.raises(RegisteredMeanwhile):
        register_within(ledger, [1], b"three", check)
    with ledger.lock(ledger.find(second).digest):
        ledger.cancel(second, None, "ben", "not to be paid")
    register_within(ledger, [1], b"three", check)
    assert register_within(ledger, CREDITS[:2], b"four", check)


def test_a_later_day_counts_for_itself(ledger: Ledger) -> None:
    """Rows of three days in one batch, beside others of the same days."""
    check, today = check_of(ledger), ledger.today()
    later = {1: today + timedelta(days=1), 2: today + timedelta(days=2), 4: today + timedelta(days=2)}
    register_within(ledger, [1, 2, 4, 5, 7], b"one", check, pay_on=later)
    with pytest.raises(RegisteredMeanwhile):
        register_within(ledger, [2], b"two", check, pay_on={2: later[2]})
    with pytest.raises(RegisteredMeanwhile):
        register_within(ledger, [8], b"two", check)
    register_within(ledger, [2], b"two", check, pay_on={2: later[1]})
    known = ledger.known_of_days(check, Sums({(day.toordinal(), "DEBIT"): 0 for day in (today, *later.values())}))
    assert dict(known) == {(today.toordinal() + day, "DEBIT"): 200 for day in range(3)}


def test_rows_left_from_earlier_days_count_on_the_day_they_go(ledger_factory: LedgerFactory) -> None:
    """Ten days of rows that a dead gateway left refuse no new file; they wait where both do not fit."""
    ledger = ledger_factory.create()
    old = batch_of(ledger, [1, 2, 4])
    check = check_of(ledger)
    tomorrow = replace(check, today=check.today + 1, begins_ms=check.begins_ms + 86_400_000)
    new = register_within(ledger, [5, 7], b"two", tomorrow)
    day = ledger.today() + timedelta(days=1)
    for batch, rows, granted in ((old, [1], {1}), (new, [5, 7], {5})):
        with run_of(ledger, batch, DAY, day) as run:
            assert run.commit(rows, []) == granted
            run.finish(None)


def test_a_release_is_held_against_the_day(ledger: Ledger) -> None:
    """With all that is pending of its own batch."""
    batch = register(ledger, columns(ledger, [1], amount_cents=100), rejected([2, 4]))
    again = columns(ledger, [2, 4], amount_cents=201)
    seen = ledger.registration_count()

    def release(check: DayCheck) -> int:
        return ledger.release(batch, [again], "ben", "right", registration_count_seen=seen, day_check=check)

    with pytest.raises(RegisteredMeanwhile):
        release(check_of(ledger, DayLimits(max_per_day=300)))
    assert states(ledger, batch) == {1: State.PENDING}
    assert release(check_of(ledger, DayLimits(max_per_day=301))) == 1


def test_a_batch_that_others_let_through_is_not_stopped(ledger_factory: LedgerFactory) -> None:
    """After a restart as well, by the limit that the plan names; and what it sends counts for others."""
    ledger = ledger_factory.create()
    sign_off = SignOff("p1", "SEAL", "ann", (), Totals(3, 300), Totals(), lifts=("max_per_day",))
    check = check_of(ledger, DAY.without(sign_off.lifts))
    with ledger.register(replace(new_batch(ledger, 3), sign_off=sign_off), "ada", check) as registering:
        registering.add_payments(columns(ledger, [1, 2, 4], amount_cents=100))
        name = registering.finish()
    with run_of(ledger, name, DayLimits(200, 99)) as run:
        assert run.commit([1], []) == set()
        run.finish(None)
    for rows in ([1, 2], [4]):
        ledger_factory.close()
        ledger = ledger_factory.open()
        with run_of(ledger, name) as run:
            assert run.commit(rows, []) == set(rows)
            run.commit([], [(row, ACCEPTED) for row in rows])
            run.finish(None)
    other = batch_of(ledger, [5], b"two")
    with run_of(ledger, other) as run:
        assert run.commit([5], []) == set()


def test_sums_of_accounts_are_dropped_after_a_month(ledger_factory: LedgerFactory) -> None:
    """They are no record: the rows are."""
    ledger = ledger_factory.create()
    batch, today = batch_of(ledger, DEBITS), ledger.today()
    for days, row in ((40, 1), (20, 2), (0, 4)):
        with run_of(ledger, batch, PAYEE, today - timedelta(days=days)) as run:
            run.commit([row], [])
            run.finish(None)
    ledger_factory.close()
    assert ledger_factory.count("payee_day") == 2


@pytest.mark.ledgers("postgres", why="a file has one writer, whatever the limits are")
def test_without_limits_no_run_waits_for_anothers_commit(ledger_factory: PostgresFactory) -> None:
    """What a run sends is in its own record: the lock of the days is for those that have limits."""
    ledger = ledger_factory.create()
    first = batch_of(ledger, [1])
    with (
        run_of(ledger, first, DayLimits()) as run,
        ledger_factory._as_owner() as other,
    ):
        other.execute("SELECT pg_advisory_xact_lock(7089057378828283248)")
        assert run.commit([1], []) == {1}
    assert sent(ledger) == (100, 0)
