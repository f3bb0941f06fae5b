"""A ledger moves from its file to a database: all of it, and there are never two that send, wherever it is cut off."""

from __future__ import annotations

import re
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import BatchHeld, LedgerBehind, LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger import open as door
from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.days import DayLimits
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.postgres import arrival
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite import audit, opening, restoring
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.ledger.sqlite.store import SqliteStore
from batchpay.ledger.witness import Witness
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Actor, Environment, State
from batchpay.settings import GatewaySettings, LedgerSettings, Settings
from batchpay.workflows.move_gateway import move_gateway
from tests.ledger.batches import (
    ACCEPTED,
    DECLINED,
    IN_DOUBT,
    NOT_SENT,
    columns,
    held_run,
    register,
    rejected,
    release,
    send,
    states,
)
from tests.ledger.factories import LedgerFactory
from tests.support.postgres import Server

pytestmark = pytest.mark.ledgers("sqlite", why="only a ledger in a file moves, and what it moves to is a database")
WHY = "a second host, ticket 4711"
TEST = Environment.TEST


class Mover:
    """A ledger in a file, and an empty database for it."""

    def __init__(self, factory: LedgerFactory, server: Server) -> None:
        self.factory, self.server = factory, server
        factory.settings = replace(factory.settings, witness="")
        self.database = server.new_database()
        self.url = server.url(self.database)
        self.there = replace(factory.settings, url=self.url, key_file=str(factory.key))

    def move(self, to: str | None = None) -> None:
        """What the command does."""
        door.move(self.factory.settings, to or self.url, "ada", WHY, owner_url=self.server.owner_url(self.database))

    def open(self, settings: LedgerSettings) -> Ledger | None:
        """Open one of the two to send from it; None where it refuses."""
        with suppress(LedgerNotUsable):
            return door.open_ledger(settings)
        return None

    def in_force(self) -> list[LedgerSettings]:
        """Those of the two that would send."""
        found = []
        for settings in (self.factory.settings, self.there):
            if (ledger := self.open(settings)) is not None:
                ledger.close()
                found.append(settings)
        return found


@pytest.fixture
def mover(ledger_factory: LedgerFactory, postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> Mover:
    monkeypatch.setenv("XDG_STATE_HOME", str(ledger_factory.folder / "home"))
    return Mover(ledger_factory, postgres_server)


def fill(ledger: Ledger) -> str:
    """Bring rows into every state there is, in every way; gives the name of the batch with rows that wait."""
    old = register(ledger, columns(ledger, [1, 2], named=[1], salt="old", id_salt="old"), content=b"old")
    send(ledger, old, {1: ACCEPTED, 2: DECLINED})
    ledger.purge(datetime.now(UTC) + timedelta(days=1), "ann", "retention rule 7")
    late = register(ledger, columns(ledger, [1], salt="late account"), content=b"late account")
    reject(ledger, late, 1, None)  # and its group of rows has none left
    release(ledger, late, [columns(ledger, [1], salt="late account")], "ann", "the account is there")
    name = register(ledger, columns(ledger, range(1, 601), named=range(1, 5)), rejected(range(601, 604)))
    message = Outcome(State.ACCEPTED, "success", Answer(200, "1", "all\0 well", "TX-1"), bytes_sent=900)
    send(ledger, name, {1: message, 2: DECLINED, 3: IN_DOUBT, 4: IN_DOUBT, 5: NOT_SENT, 6: IN_DOUBT})
    ledger.resolve(name, [Decision(3, State.ACCEPTED, "BANK-3"), Decision(4, State.PENDING)], "ann", "asked the bank")
    release(ledger, name, [columns(ledger, [602], salt="late")], "ann", "the account is right")
    reject(ledger, name, 7, "the limit was reached")
    came_back = NewFact(FactKind.RETURNED, name, 1, "R02", date(2026, 11, 27), 101, 2)
    change = NewFact(FactKind.CHANGED, name, 3, "C02", date(2026, 11, 27), 0, 3, {"achRoutingNumber": "021000021"})
    ledger.record_facts([came_back, change], TEST, "returns.csv", "ab", "ann", unattended=True)
    ledger.withdraw_fact(name, 1, "ann", "the bank undid it")
    ledger.record_facts([replace(came_back, code="R03")], TEST, "later.csv", "cd", "ann", unattended=False)
    return name


def reject(ledger: Ledger, name: str, row: int, stopped: str | None) -> None:
    """Run a batch and reject a row, as a run does whose gateway does not know its account."""
    with held_run(ledger, name) as run:
        run.reject([row], "gatewayId.unknown")
        run.finish(stopped)


def told(ledger: Ledger) -> dict[str, Any]:
    """All that a ledger tells the rest of batchpay."""
    batches = [replace(batch, apart={}) for batch in ledger.batches()]  # which may name states that no row is in
    found: dict[str, Any] = {"batches": batches, "count": ledger.registration_count()}
    found["references"] = sorted(ledger.gateway_references(TEST))
    found["lost"], found["origins"] = ledger.lost_window(), ledger.origins(TEST)
    payments = columns(ledger, range(1, 10), named=range(1, 5))
    lookup = Lookup(payments.rows, payments.fingerprints, payments.payment_ids)
    found["earlier"] = ledger.earlier(lookup, TEST, days=9, now=datetime.now(UTC))
    found["payees"] = ledger.payee_facts(payments.payees, TEST)
    found["facts"] = [(one, ledger.corrected(one)) for one in ledger.facts(TEST)]
    found["accounts"] = ledger.last_accounts(payments.payees, TEST)
    for batch in ledger.batches():
        found[batch.batch] = [list(ledger.rows(batch.batch)), list(ledger.rejected(batch.batch))]
    found["events"] = [(one.kind, one.who, one.why, one.batch, one.at) for one in ledger.events()]
    return found


def test_what_was_sent_today_counts_where_the_ledger_moved_to(mover: Mover) -> None:
    """A limit of the day would begin anew at noon, in all and for each account."""
    with closing(mover.factory.create()) as ledger:
        fill(ledger)
        sent = ledger.sent_on(TEST, ledger.today())
    mover.move()
    with closing(door.open_ledger(mover.there)) as there:
        assert there.sent_on(TEST, there.today()) == sent == {"DEBIT": 2 * 101, "CREDIT": 301 + 601}
        again = register(there, columns(there, [1, 2], salt="more"), content=b"more")
        with there.lock(there.find(again).digest):
            run = there.start(again, "ada", limits=DayLimits(max_per_day=202 + 201, max_per_payee_day=300))
            assert run.commit([1, 2], []) == {2}


def test_all_of_a_ledger_arrives(mover: Mover) -> None:
    """And the database goes on with it: what waits is sent, what was paid is known, what was purged stays purged."""
    before = mover.factory.create()
    name = fill(before)
    stood = told(before)
    assert before.check() == []
    mover.factory.close()
    mover.move()
    with closing(door.open_ledger(mover.there)) as ledger:
        found = told(ledger)
        assert [event[:3] for event in found["events"][-1:]] == [("arrived", "ada", WHY)]
        assert found.pop("events")[:-1] == stood.pop("events")
        stood[name][0][0] = replace(stood[name][0][0], answer=Answer(200, "1", "all\ufffd well", "TX-1"))
        assert found == stood
        assert ledger.check() == []
        waiting = [row for row, state in states(ledger, name).items() if state is State.PENDING]
        assert {4, 5, 602} < set(waiting)
        with ledger.lock(ledger.find(name).digest):
            run = ledger.start(name, "ben")
            claimed = run.claim(1000)
            assert [payment.row for payment in claimed] == waiting
            run.commit(waiting, [])
            run.commit([], [(row, ACCEPTED) for row in waiting])
            run.finish(None)
        register(ledger, columns(ledger, [1], salt="new"), content=b"new")
        assert ledger.check() == []
    with closing(sqlite3.connect(mover.factory.path)) as file:
        assert file.execute("SELECT who, why FROM event WHERE kind = 'moved'").fetchall() == [("ada", WHY)]
    mover.move()  # once more does nothing
    assert mover.in_force() == [mover.there]
    with pytest.raises(LedgerNotUsable, match=f"has moved to {mover.url.replace('payer@', '')}"):
        door.open_ledger(mover.factory.settings, read_only=True)
    with pytest.raises(WrongUse, match="has moved to"):
        mover.move(mover.url.replace(mover.database, "another"))
    with pytest.raises(LedgerNotUsable, match="has moved to"):
        door.accept(mover.factory.settings, "eve", "let me send from it", rows_in_doubt=True)


def test_an_acceptance_by_an_earlier_version_holds_nothing_back_there_either(mover: Mover) -> None:
    """It did not write down what was lost; a ledger that came with one could not be read in the database."""
    before = mover.factory.create()
    assert isinstance(before, SqliteLedger)
    with before.store.transaction() as transaction:
        transaction.event("witness accepted", None, "ben", "the disk died", {"doubted": 0})
    mover.factory.close()
    mover.move()
    with closing(door.open_ledger(mover.there)) as ledger:
        assert ledger.lost_window() is None
        register(ledger, columns(ledger, [1]))


class Killed(BaseException):
    """The power went."""


POINTS: dict[str, tuple[Any, str, bool]] = {
    "amid the copy": (arrival, "_attempts", False),
    "before the copy was looked over": (arrival, "check", False),
    "before the file has ended": (arrival, "check", True),
    "before the database begins": (opening, "contents", False),
    "before this machine knows the database": (Witness, "replace", False),
    "before its last commit": (Witness, "replace", True),
}
"""Where the power goes: before a function, or after it."""
IN_THE_FILE = 3
"""So many of these leave the file in force."""


def test_a_move_that_was_cut_short_leaves_one_ledger_and_is_completed_by_the_next(
    mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the file has ended it goes on; from then on nothing is sent before the move is completed."""
    ledger = mover.factory.create()
    name = register(ledger, columns(ledger, range(1, 9)))
    send(ledger, name, {1: ACCEPTED, 2: IN_DOUBT})
    mover.factory.close()
    known = {1: State.ACCEPTED, 2: State.IN_DOUBT}
    for number, (place, function, afterwards) in enumerate(POINTS.values()):
        whole = getattr(place, function)

        def kill(*arguments: Any, **named: Any) -> None:
            if afterwards:  # noqa: B023
                whole(*arguments, **named)  # noqa: B023
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(place, function, kill)
            mover.move()
        in_the_file = number < IN_THE_FILE
        assert mover.in_force() == ([mover.factory.settings] if in_the_file else [])
        if in_the_file:  # payments of the time between are in the file alone
            with closing(door.open_ledger(mover.factory.settings)) as again:
                send(again, name, {3 + number: ACCEPTED})
                known[3 + number] = State.ACCEPTED
    mover.move()
    assert mover.in_force() == [mover.there]
    with closing(door.open_ledger(mover.there)) as moved:
        assert states(moved, name) == {row: known.get(row, State.PENDING) for row in range(1, 9)}
        assert moved.check() == []


def test_rows_that_a_killed_run_was_sending_arrive_in_doubt(mover: Mover) -> None:
    ledger = mover.factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with ledger.lock(ledger.find(name).digest):
        ledger.start(name, "ada").commit([1, 2], [])
    mover.factory.close()
    mover.move()
    with closing(door.open_ledger(mover.there)) as moved:
        assert states(moved, name) == {1: State.IN_DOUBT, 2: State.IN_DOUBT, 3: State.PENDING}
        begun = [(event.who, event.why) for event in moved.events(name) if event.kind == "started"]
        assert begun == [("ada", None), ("ada", "the ledger moves to another database")]
        assert moved.check() == []


@pytest.fixture
def few_files() -> Iterator[None]:
    """Let this process open sixteen more files than it has open now: fewer than there are batches."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + 16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def register_many(ledger: Ledger) -> list[str]:
    return [register(ledger, columns(ledger, [1], salt=f"{n}"), content=bytes([n])) for n in range(30)]


@pytest.mark.usefixtures("few_files")
def test_a_ledger_of_many_batches_moves(mover: Mover) -> None:
    """With 1,100 batches, the lock of each was held open: there were no descriptors left."""
    names = register_many(mover.factory.create())
    mover.factory.close()
    mover.move()
    with closing(door.open_ledger(mover.there)) as moved:
        assert {batch.batch for batch in moved.batches()} == set(names)


@pytest.mark.ledgers("sqlite", "postgres")
@pytest.mark.usefixtures("few_files")
def test_many_batches_follow_their_gateway(ledger_factory: LedgerFactory) -> None:
    """Here too the lock of each was held open."""
    ledger = ledger_factory.create()
    names = register_many(ledger)
    old, new = ledger.find(names[0]).origin, "http://127.0.0.1:10"
    settings = Settings(gateway=GatewaySettings(base_url=new), ledger=ledger_factory.settings)
    assert set(move_gateway(old, new, WHY, settings, Actor("ann", "test"))) == set(names)
    assert {ledger.find(name).origin for name in names} == {new}


def test_nothing_moves_while_a_run_is_under_way_or_where_anything_is_wrong(mover: Mover) -> None:
    ledger = mover.factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with ledger.lock(ledger.find(name).digest), pytest.raises(BatchHeld):
        mover.move()
    with pytest.raises(WrongUse, match="--to postgresql"):
        mover.move(str(mover.factory.path.with_name("other.db")))
    send(ledger, name, {1: ACCEPTED})
    mover.factory.close()
    other = Mover(LedgerFactory(mover.factory.folder / "other"), mover.server)
    other.database, other.url = mover.database, mover.url
    other.factory.create()
    other.factory.close()
    other.move()
    with pytest.raises(LedgerNotUsable, match=r"already contains a ledger"):
        mover.move()
    assert mover.in_force() == [mover.factory.settings]
    with closing(door.open_ledger(mover.factory.settings)) as left, pytest.raises(LedgerDamaged):
        connection = left.store._connection  # type: ignore[attr-defined]
        connection.execute("UPDATE row SET amount_cents = 5 WHERE state = 5")
        mover.move()


def test_what_only_the_check_of_a_whole_ledger_finds_does_not_move(
    mover: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large ledger is checked in short when it is opened."""
    register(mover.factory.create(), columns(mover.factory.open(), [1]))
    mover.factory.close()
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "check", lambda store: ["a row contradicts its attempts"])
        with pytest.raises(LedgerDamaged, match="a row contradicts its attempts; nothing was moved"):
            mover.move()
    assert mover.in_force() == [mover.factory.settings]


def test_whoever_opened_the_file_before_the_move_writes_nothing_to_it_after(mover: Mover) -> None:
    """A submission that still read its file went on in the old ledger: what it paid, the database paid once more."""
    old = mover.factory.create()
    name, other = (register(old, columns(old, [1, 2, 3], salt=salt), content=salt.encode()) for salt in ("a", "b"))
    send(old, other, {1: IN_DOUBT})
    mover.move()
    with old.lock(old.find(name).digest), pytest.raises(LedgerNotUsable, match="has moved to a database meanwhile"):
        old.start(name, "ada")
    with pytest.raises(LedgerNotUsable, match="has moved"):
        register(old, columns(old, [1], salt="c"), content=b"c")
    with pytest.raises(LedgerNotUsable, match="has moved"):
        old.resolve(other, [Decision(1, State.PENDING)], "ann", "not in the portal")
    with closing(door.open_ledger(mover.there)) as moved:
        send(moved, name, {1: ACCEPTED})
        assert [batch.batch for batch in moved.batches()] == [other, name]


@pytest.mark.parametrize(("ends", "told"), [
    (False, "another run is working on a batch"), (True, "something was written to the ledger while it was checked"),
])  # fmt: skip
def test_a_file_registered_while_the_ledger_is_checked_is_not_left_behind(
    mover: Mover, monkeypatch: pytest.MonkeyPatch, *, ends: bool, told: str
) -> None:
    """Its run held a lock that the move did not look for, and had payments under way when the copy was made."""
    ledger = mover.factory.create()
    register(ledger, columns(ledger, [1, 2]))

    def check(store: SqliteStore) -> list[str]:
        name = register(ledger, columns(ledger, [1, 2], salt="late"), content=b"late")
        held.enter_context(ledger.lock(ledger.find(name).digest))
        runs.append(ledger.start(name, "bob"))
        runs[0].commit([1], [])
        if ends:
            finish()
        return audit.check(store)

    def finish() -> None:
        runs[0].commit([2], [(1, ACCEPTED)])
        runs[0].commit([], [(2, ACCEPTED)])
        runs[0].finish(None)
        held.close()

    runs: list[Run] = []
    monkeypatch.setattr(restoring, "check", check)
    with ExitStack() as held:
        with pytest.raises(BatchHeld, match=told):
            mover.move()
        if not ends:
            finish()
    monkeypatch.undo()
    assert mover.in_force() == [mover.factory.settings]


@pytest.mark.parametrize("with_witness", [False, True])
def test_a_file_restored_from_before_the_move_is_never_in_force(mover: Mover, *, with_witness: bool) -> None:
    """Its own witness may even agree: the one that the machine has of the database tells where the ledger went."""
    factory = mover.factory
    name = register(factory.create(), columns(factory.open(), [1, 2, 3]))
    send(factory.open(), name, {1: ACCEPTED})
    own = Path(door.location(factory.settings).witness)
    factory.open().backup(factory.folder / "copy.db")
    kept = own.read_bytes()
    factory.close()
    mover.move()
    for ending in ("-wal", "-shm"):
        factory.path.with_name(factory.path.name + ending).unlink(missing_ok=True)
    (factory.folder / "copy.db").replace(factory.path)
    if with_witness:
        own.write_bytes(kept)
    assert mover.in_force() == [mover.there]
    for doubt in (False, True):
        with pytest.raises(LedgerNotUsable, match="has moved to a database"):
            door.accept(factory.settings, "ben", "as the message said", rows_in_doubt=doubt)
    with pytest.raises(LedgerNotUsable, match=re.escape(f"move that witness and {own} away; ")):
        door.open_ledger(factory.settings)  # one that agrees would have let through what the database has sent
    Path(door.location(mover.there).witness).unlink()  # the database burned
    own.unlink()
    with pytest.raises(LedgerBehind):
        door.open_ledger(factory.settings)
    assert door.accept(factory.settings, "ben", "the database is lost for good").marked_in_doubt == 2
