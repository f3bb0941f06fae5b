"""A row with a day of its own: no run sends it before that day, whatever stands in the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import move
from batchpay.ledger.records import Decision
from batchpay.payment import State, Totals
from batchpay.settings import LedgerSettings
from tests.ledger.batches import ACCEPTED, CANARY, NOT_SENT, columns, register, rejected, release, send, states
from tests.ledger.factories import LedgerFactory
from tests.model import clock
from tests.support.postgres import Server

MONDAY = date(2027, 3, 1)
FRIDAY, WEDNESDAY = MONDAY + timedelta(days=4), MONDAY + timedelta(days=9)
DAYS = {3: FRIDAY, 4: WEDNESDAY, 5: FRIDAY, 6: MONDAY}


def register_days(ledger: Ledger, rows: int = 8) -> str:
    """Register a batch of which rows 3 to 6 have days."""
    return register(ledger, columns(ledger, range(1, rows + 1), pay_on=DAYS))


def claimed(ledger: Ledger, batch: str, day: date) -> list[int]:
    """Return the rows that a run of that day claims."""
    with ledger.lock(ledger.find(batch).digest):
        run = ledger.start(batch, "ada", day=day)
        rows = [payment.row for payment in run.claim(100)]
        run.finish(None)
    return rows


@pytest.mark.parametrize(
    ("day", "due"),
    [
        (MONDAY - timedelta(days=1), [1, 2, 7, 8]), (MONDAY, [1, 2, 6, 7, 8]),
        (FRIDAY - timedelta(days=1), [1, 2, 6, 7, 8]), (FRIDAY, [1, 2, 3, 5, 6, 7, 8]),
        (WEDNESDAY, [1, 2, 3, 4, 5, 6, 7, 8]), (date.max, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)  # fmt: skip
def test_a_run_claims_what_is_due_on_its_day(ledger: Ledger, day: date, due: list[int]) -> None:
    """The day before, the row stays; on its day and ever after it is claimed."""
    batch = register_days(ledger)
    assert claimed(ledger, batch, day) == due
    assert set(states(ledger, batch).values()) == {State.PENDING}
    assert ledger.check() == []


def test_a_run_without_a_day_is_of_today(ledger: Ledger) -> None:
    """Whoever resolves or moves something begins a run as well; none of these may send ahead."""
    tomorrow = ledger.today() + timedelta(days=1)
    batch = register(ledger, columns(ledger, range(1, 4), pay_on={2: tomorrow, 3: ledger.today()}))
    with ledger.lock(ledger.find(batch).digest):
        run = ledger.start(batch, "ada")
        assert [payment.row for payment in run.claim(9)] == [1, 3]
        run.finish(None)


def test_a_batch_tells_what_is_scheduled_by_day_and_direction(ledger: Ledger) -> None:
    """Rows and cents of what is still to be sent; what was sent, or has no day, is not there."""
    batch = register_days(ledger)
    send(ledger, batch, {5: NOT_SENT, 1: NOT_SENT})
    found = ledger.find(batch)
    assert found.by_day == {
        MONDAY: {"CREDIT": Totals(1, 601)},
        FRIDAY: {"CREDIT": Totals(1, 301), "DEBIT": Totals(1, 501)},
        WEDNESDAY: {"DEBIT": Totals(1, 401)},
    }
    assert found.today == ledger.today()
    with ledger.lock(found.digest):
        run = ledger.start(batch, "ada", day=FRIDAY)
        assert run.commit([3], []) == {3}
        assert ledger.find(batch).by_day[FRIDAY] == {"DEBIT": Totals(1, 501)}
        run.close()


def test_one_day_parts_what_is_scheduled_from_what_is_overdue(ledger: Ledger) -> None:
    """What is due on the very day is neither."""
    batch = ledger.find(register_days(ledger))
    batch = type(batch)(**{name: getattr(batch, name) for name in batch.__slots__} | {"today": FRIDAY})
    assert (batch.scheduled, batch.next_pay_on) == (Totals(1, 401), WEDNESDAY)
    assert batch.overdue == Totals(1, 601)


def test_rows_that_are_released_have_the_day_they_are_released_with(ledger: Ledger) -> None:
    """A day may have passed while the row was rejected, so whoever releases it gives its day anew."""
    batch = register(ledger, columns(ledger, [1, 2], pay_on={1: FRIDAY}), rejected([3, 4]))
    with ledger.lock(ledger.find(batch).digest):
        ledger.cancel(batch, [1], "ada", "not yet")
    again = columns(ledger, [1, 3, 4], pay_on={1: WEDNESDAY, 4: MONDAY})
    assert release(ledger, batch, [again], "ben", "checked") == 3
    assert {day: sum(map(len, [sides])) for day, sides in ledger.find(batch).by_day.items()} == {
        WEDNESDAY: 1,
        MONDAY: 1,
    }
    assert claimed(ledger, batch, MONDAY) == [2, 3, 4]
    assert ledger.check() == []


@pytest.mark.parametrize("forged", ["NULL", str(MONDAY.toordinal())])
def test_a_day_changed_in_a_table_sends_nothing_early(ledger_factory: LedgerFactory, forged: str) -> None:
    """Anyone who can write to the table could have a row sent at once: its body says for which day it was signed."""
    ledger = ledger_factory.create()
    batch = register_days(ledger)
    ledger_factory.close()
    ledger_factory.edit(
        sqlite=f"UPDATE row SET pay_on = {forged} WHERE id & 4294967295 = 4",
        postgres=f"UPDATE payment SET pay_on = {forged} WHERE row = 4",
    )
    found = "the days of chunk 1 of batch 1 are not those registered"
    if ledger_factory.kind == "sqlite":  # a small ledger is checked whole as it is opened
        with pytest.raises(LedgerDamaged, match=found):
            ledger_factory.open()
    else:
        ledger = ledger_factory.open()
        claims_nothing_early(ledger, batch)
    problems = ledger_factory.open(read_only=True).check()
    assert [problem for problem in problems if found in problem]


def claims_nothing_early(ledger: Ledger, batch: str) -> None:
    """A run of Monday finds that row 4 was registered for a later day."""
    with ledger.lock(ledger.find(batch).digest):
        run = ledger.start(batch, "ada", day=MONDAY)
        with pytest.raises(LedgerDamaged, match="rows 4 were registered for a later day"):
            run.claim(100)
        run.close()


@pytest.mark.ledgers("sqlite", why="a large file is not checked whole as it is opened, so the claim must notice")
def test_a_large_ledger_sends_nothing_early_either(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, where opening looks at the end of the history alone."""
    ledger = ledger_factory.create()
    batch = register_days(ledger)
    ledger_factory.close()
    ledger_factory.edit(sqlite="UPDATE row SET pay_on = NULL WHERE id & 4294967295 = 4", postgres="")
    monkeypatch.setattr("batchpay.ledger.sqlite.audit.SMALL_BYTES", 0)
    ledger = ledger_factory.open()
    claims_nothing_early(ledger, batch)


@pytest.mark.parametrize("edited", ["later", "added"])
def test_the_check_finds_a_day_that_was_never_registered(ledger_factory: LedgerFactory, edited: str) -> None:
    """A row put off, or given a day, would wait unpaid and unseen."""
    ledger = ledger_factory.create()
    register_days(ledger)
    register(ledger, columns(ledger, [1], salt="other"), content=b"other")
    ledger_factory.close()
    row, batch = (4, 1) if edited == "later" else (1, 2)
    day = (WEDNESDAY + timedelta(days=300)).toordinal()
    ledger_factory.edit(
        sqlite=f"UPDATE row SET pay_on = {day} WHERE id = {batch << 32 | row}",
        postgres=f"UPDATE payment SET pay_on = {day} WHERE row = {row} AND batch = {batch}",
    )
    problems = ledger_factory.open(read_only=True).check()
    chunk = 1 if edited == "later" or ledger_factory.kind == "postgres" else 2
    assert problems == [f"the ledger is damaged: the days of chunk {chunk} of batch {batch} are not those registered"]


@pytest.mark.ledgers("sqlite", why="it is a file that moves, or is copied")
def test_days_go_with_a_ledger_that_moves(
    ledger_factory: LedgerFactory, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the database, as in a backup, no row is sent before its day either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ledger = ledger_factory.create()
    batch = register_days(ledger)
    ledger.backup(tmp_path / "backup.db")
    with closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        assert backup.execute("SELECT count(pay_on) FROM row").fetchone() == (4,)
    before = ledger.find(batch).by_day
    ledger_factory.close()
    name = postgres_server.new_database()
    there = LedgerSettings(
        url=postgres_server.url(name), key_file=str(ledger_factory.key), witness=ledger_factory.settings.witness
    )
    move(ledger_factory.settings, there.url, "ada", "a second host", owner_url=postgres_server.owner_url(name))
    other = LedgerFactory(ledger_factory.folder, there.url)
    moved = other.open()
    assert moved.find(batch).by_day == before
    assert claimed(moved, batch, MONDAY) == [1, 2, 6, 7, 8]
    assert moved.check() == []
    other.close()
    postgres_server.drop(name)


@pytest.mark.parametrize(
    ("zone", "instant", "day"),
    [
        ("America/New_York", "2026-12-31T23:59", "2026-12-31"), ("America/New_York", "2027-01-01T04:59", "2026-12-31"),
        ("America/New_York", "2027-01-01T05:00", "2027-01-01"), ("Pacific/Auckland", "2026-12-31T11:00", "2027-01-01"),
        ("America/New_York", "2027-03-14T04:59", "2027-03-13"), ("America/New_York", "2027-03-14T05:00", "2027-03-14"),
        ("America/New_York", "2027-03-15T03:59", "2027-03-14"), ("America/New_York", "2027-03-15T04:00", "2027-03-15"),
        ("America/New_York", "2027-11-07T03:59", "2027-11-06"), ("America/New_York", "2027-11-07T04:00", "2027-11-07"),
        ("America/New_York", "2027-11-08T04:59", "2027-11-07"), ("America/New_York", "2027-11-08T05:00", "2027-11-08"),
    ],
)  # fmt: skip
def test_a_day_begins_at_midnight_in_the_zone_of_the_policy(
    ledger_factory: LedgerFactory, zone: str, instant: str, day: str
) -> None:
    """Whatever zone the machine is in; on days of 23 and 25 hours as well, and as a year ends. Times are UTC."""
    clock.exchange()
    try:
        ledger = ledger_factory.create()
        ledger.set_policy(zoned(zone), "ada", "the company is there")
        today = date.fromisoformat(day)
        batch = register(ledger, columns(ledger, [1, 2], pay_on={1: today, 2: today + timedelta(days=1)}))
        moment = datetime.fromisoformat(f"{instant}+00:00") + timedelta(seconds=2)  # clocks agree to milliseconds
        clock.offset_s = (moment - datetime.now(UTC)).total_seconds()
        assert ledger.today() == ledger.find(batch).today == ledger.batches()[0].today == today
        assert ledger.find(batch).next_pay_on == today + timedelta(days=1)
        with ledger.lock(ledger.find(batch).digest):
            run = ledger.start(batch, "ada")
            assert [payment.row for payment in run.claim(9)] == [1]
            clock.offset_s += 86_400
            assert run.claim(9) == [], "a run keeps its day"
            run.finish(None)
        assert ledger.check() == []
    finally:
        clock.restore()


def zoned(zone: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return how a zone is set."""
    return lambda kept: {**kept, "zone": zone}


def test_the_policy_is_set_by_a_named_person_and_kept(ledger_factory: LedgerFactory) -> None:
    """Its latest event holds all of it, and is in the history like any other."""
    ledger = ledger_factory.create()
    assert (ledger.policy(), ledger.zone()) == (None, None)
    for who, why in (("", "because"), ("ada", " ")):
        with pytest.raises(WrongUse, match="the policy is set by a named person, with a reason"):
            ledger.set_policy(zoned("Europe/Paris"), who, why)
    ledger.set_policy(zoned("Europe/Paris"), "ada", "the company is there")
    ledger.set_policy(zoned("Asia/Tokyo"), "ben", "it moved")
    ledger_factory.close()
    ledger = ledger_factory.open(read_only=True)
    event, zone = ledger.policy(), ledger.zone()
    assert event is not None
    assert zone is not None
    assert (event.who, event.why, event.detail, zone.key) == ("ben", "it moved", '{"zone":"Asia/Tokyo"}', "Asia/Tokyo")
    assert ledger.check() == []


def test_a_zone_that_this_machine_does_not_know_sends_nothing(ledger: Ledger) -> None:
    """A newer machine may have set it: nobody here can tell which day it is."""
    ledger.set_policy(zoned("Mars/Olympus_Mons"), "ada", "the company is there")
    with pytest.raises(LedgerNotUsable, match="days of this ledger are those of Mars/Olympus_Mons"):
        ledger.today()


def test_rows_without_days_are_written_as_before(ledger_factory: LedgerFactory) -> None:
    """Their sealed bodies are not a byte longer, and the index on days has nothing of them."""
    ledger = ledger_factory.create()
    batch = register(ledger, columns(ledger, range(1, 601)))
    assert (ledger.find(batch).by_day, ledger.find(batch).scheduled) == ({}, Totals())
    assert claimed(ledger, batch, date.min) == list(range(1, 101))
    assert CANARY not in str(ledger.find(batch))


def test_a_scheduled_row_keeps_its_batch_from_being_purged(ledger: Ledger) -> None:
    """Its body and details are needed on its day, however long nothing happened to the batch."""
    batch = register(ledger, columns(ledger, [1, 2], pay_on={2: FRIDAY}))
    send(ledger, batch, {1: ACCEPTED})
    (old,) = ledger.old_batches(datetime.now(UTC) + timedelta(days=400))
    assert old.stays is not None
    assert ledger.purge(datetime.now(UTC) + timedelta(days=400), "ada", "rule 7").erased == []
    assert claimed(ledger, batch, FRIDAY) == [2]


def test_a_restored_ledger_doubts_its_scheduled_rows(ledger_factory: LedgerFactory) -> None:
    """Since the copy their day may have come and gone: they are put in doubt like all that it would send."""
    ledger = ledger_factory.create()
    batch = register_days(ledger)
    ledger_factory.keep()
    send(ledger, batch, {1: ACCEPTED})
    ledger_factory.close()
    ledger_factory.put_back()
    ledger_factory.accept_loss("its disk died")
    ledger = ledger_factory.open()
    assert set(states(ledger, batch).values()) == {State.IN_DOUBT}
    assert (ledger.find(batch).by_day, ledger.find(batch).scheduled) == ({}, Totals())
    sent_again = [Decision(row, State.PENDING) for row in DAYS]
    ledger.resolve(batch, sent_again, "ada", "none of them is in the portal")
    assert ledger.find(batch).by_day.keys() == {MONDAY, FRIDAY, WEDNESDAY}
    assert claimed(ledger, batch, MONDAY) == [6], "sent again means on its day"
    assert ledger.check() == []


def test_scheduled_rows_are_cancelled_like_others(ledger: Ledger) -> None:
    """What was signed for a later day can be taken back until then."""
    batch = register_days(ledger)
    with ledger.lock(ledger.find(batch).digest):
        assert ledger.cancel(batch, [3, 4], "ada", "the supplier went bankrupt") == 2
    assert ledger.find(batch).by_day.keys() == {MONDAY, FRIDAY}
    assert claimed(ledger, batch, date.max) == [1, 2, 5, 6, 7, 8]
    assert ledger.check() == []
