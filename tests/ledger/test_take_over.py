"""Several machines with one ledger: who has a batch, who takes it over, and what is believed of those who come back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from batchpay.errors import ClockDiffers, HeldElsewhere, LedgerNotUsable, WrongUse
from batchpay.ledger import machine
from batchpay.ledger.contract import Ledger
from batchpay.ledger.postgres import heartbeat, take_over
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.fences import FENCED_REASON
from batchpay.ledger.postgres.heartbeat import LOOK_S, Heartbeat, Observer
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.run import PostgresRun
from batchpay.ledger.records import LEASE_S, Decision
from batchpay.operations import health
from batchpay.operations.health import read_ledger_state
from batchpay.payment import Environment, State
from tests.ledger.batches import ACCEPTED, DECLINED, IN_DOUBT, NOT_SENT, columns, register, states
from tests.ledger.factories import LedgerFactory, PostgresFactory

pytestmark = pytest.mark.ledgers("postgres", why="several machines share a database, never a file")
ROWS = 30


@dataclass
class Clock:
    """Time that passes only while somebody watches a heartbeat."""

    now_s: float = 1000.0
    meanwhile: Callable[[], object] = lambda: None
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept.append(seconds)
        self.meanwhile()


class Machines:
    """Machines with one ledger, and one batch of which some rows may be on their way."""

    def __init__(self, factory: PostgresFactory) -> None:
        self.factory = factory
        self.ledger = factory.create()
        factory.run("ALTER TABLE batchpay.batch ALTER COLUMN id RESTART WITH 7")  # no run has a batch's number
        self.name = register(self.ledger, columns(self.ledger, range(1, ROWS + 1)))
        self.said: list[str] = []
        self._others: list[LedgerFactory] = []
        self._held = ExitStack()

    def start(self, ledger: Ledger | None = None, *, name: str = "", who: str = "ada") -> PostgresRun:
        """Begin a run, of the batch on the first machine unless others are given."""
        ledger = ledger or self.ledger
        self._held.enter_context(ledger.lock(ledger.find(name or self.name).digest))
        run = ledger.start(name or self.name, who)
        assert isinstance(run, PostgresRun)
        return run

    def another(self) -> Ledger:
        """Let one more machine join; return its ledger."""
        self._others.append(self.factory.on_another_machine(self.factory.folder / f"other {len(self._others)}"))
        return self._others[-1].join()

    def register_another(self) -> str:
        """Register a batch that is none of the others' affair."""
        return register(self.ledger, columns(self.ledger, range(1, 76), salt="other"), content=b"other")

    def take_over(self, ledger: Ledger, who: str = "ben") -> None:
        """Want the batch on another machine."""
        ledger.take_over(ledger.find(self.name).digest, who, self.said.append)

    def taken_over(self, rows: int) -> tuple[PostgresRun, list[int], PostgresRun]:
        """Let a run die with this many rows on their way, and another machine go on; return both, and the rows."""
        dead, other = self.start(), self.another()
        sending = [payment.row for payment in dead.claim(rows)]
        dead.commit(sending, [])
        self.take_over(other)
        return dead, sending, self.start(other, who="ben")

    def leave(self) -> None:
        """Let go of all batches, as processes that end."""
        self._held.close()

    def close(self) -> None:
        """Let all of them go."""
        self.leave()
        for other in self._others:
            other.close()


@pytest.fixture
def machines(ledger_factory: LedgerFactory) -> Iterator[Machines]:
    assert isinstance(ledger_factory, PostgresFactory)
    found = Machines(ledger_factory)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Real time does not count: on a busy machine a run that is dead beat while another watched it."""
    found = Clock()
    monkeypatch.setattr(heartbeat, "BEAT_S", 3600.0)
    monkeypatch.setattr(heartbeat, "time", found)
    monkeypatch.setattr(take_over, "time", found)
    return found


def send_all(run: PostgresRun) -> list[int]:
    """Send whatever a run can claim."""
    sent: list[int] = []
    while claimed := [payment.row for payment in run.claim(500)]:
        run.commit(claimed, [])
        run.commit([], [(row, ACCEPTED) for row in claimed])
        sent += claimed
    return sent


def resolve(machines: Machines, row: int, state: State) -> None:
    machines.ledger.resolve(machines.name, [Decision(row, state)], "cy", "looked it up")


def test_a_dead_machines_batch_is_taken_over_by_whoever_wants_it(machines: Machines) -> None:
    """What it was sending is in doubt, what it had claimed is sent by the other, and its next commit is refused."""
    machines.start().finish("stopped")
    machines.leave()
    dead, sending, run = machines.taken_over(4)
    assert run.recovered == 0, "they were put in doubt by the transaction that fenced it"
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        dead._settle_unknown([], dead._number, dead._mac)  # had the answer to its latest commit been lost
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        dead.beat()
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        dead.commit([10], [(sending[0], ACCEPTED)])
    assert send_all(run) == list(range(5, ROWS + 1))
    run.finish(None)
    found = states(machines.ledger, machines.name)
    assert {row for row, state in found.items() if state is State.IN_DOUBT} == set(sending)
    assert set(found.values()) == {State.ACCEPTED, State.IN_DOUBT}
    _, fenced, last = machines.ledger.runs(machines.name)
    assert (fenced.is_fenced, fenced.standing, fenced.in_doubt) == (True, "taken over, not heard of since", 4)
    assert (last.rows, last.standing) == (ROWS - 4, "ended")
    told = {event.kind: (event.who, event.why) for event in machines.ledger.events(machines.name)}
    assert (told["fenced"], told["recovered"]) == (("ben", None), ("ben", FENCED_REASON))
    assert machines.ledger.check() == []
    waits, done = machines.said
    assert "has sent 0 of 30; its heartbeat is 0 s old; if that stands still for 30 s, this machine takes over" in waits
    assert "4 rows that it was sending are in doubt" in done


def test_a_machine_that_is_alive_keeps_its_batch(machines: Machines, clock: Clock) -> None:
    """The first heartbeat that moves ends the wait: 9, with which machine has it and how old its heartbeat is."""
    alive, other = machines.start(), machines.another()
    digest = other.find(machines.name).digest
    alive.commit([1], [])
    clock.meanwhile = alive.beat
    machines.take_over(other)
    assert clock.slept == [LOOK_S]
    machines.factory.run("UPDATE batchpay.run SET seen_at = seen_at - 12000")
    held = f"a run on .* has batch {machines.name} and has sent 0 of 30; its heartbeat is 12 s old"
    with pytest.raises(HeldElsewhere, match=held), other.lock(digest):
        pass
    assert alive.commit([2], [(1, ACCEPTED)]) == {2}
    assert [event.kind for event in machines.ledger.events(machines.name)].count("fenced") == 0
    alive.finish(None)
    clock.slept.clear()
    machines.take_over(other)
    assert clock.slept == [], "nobody has it any more"


def test_only_time_in_which_this_machine_could_commit_counts(clock: Clock) -> None:
    """Of a pause of one's own two looks: it may have stopped everybody."""
    observer = Observer()
    assert not observer.look(7)
    clock.now_s += 10 * LEASE_S
    assert not observer.look(7)
    assert observer.stood_s == 2 * LOOK_S, "this machine slept"
    for _ in range(3):
        observer.fail()
        clock.now_s += LEASE_S
        observer.look(7)
    assert observer.stood_s == 2 * LOOK_S, "the database was away"
    for _ in range(int(LEASE_S / LOOK_S) - 2):
        assert not observer.is_dead
        clock.now_s += LOOK_S
        observer.look(7)
    assert observer.is_dead
    assert observer.look(8)
    assert observer.stood_s == 0, "it moved"


def test_a_database_that_was_away_fences_nobody(
    machines: Machines, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could beat while this machine could not commit: the 30 seconds are of its own commits."""
    machines.start()
    other, commit = machines.another(), sql.COMMIT_NOTHING
    cut = "SELECT pg_terminate_backend(pg_backend_pid())"

    def now_and_then_away() -> None:
        is_away = len(clock.slept) % 20 < 10
        monkeypatch.setattr(sql, "COMMIT_NOTHING", cut if is_away else commit)

    clock.meanwhile = now_and_then_away
    machines.take_over(other)
    assert sum(clock.slept) > 1.9 * LEASE_S
    assert machines.ledger.runs(machines.name)[0].is_fenced


def test_a_machine_that_moves_while_it_is_suspected_is_left_alone(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter is compared in the very statement that fences it."""
    alive, other = machines.start(), machines.another()
    watch = take_over._stands_still_at

    def watch_and_wait(*arguments: object) -> int | None:
        beats = watch(*arguments)  # type: ignore[arg-type]
        assert alive.commit([2], []) == {2}
        return beats

    monkeypatch.setattr(take_over, "_stands_still_at", watch_and_wait)
    machines.take_over(other)
    assert alive.commit([3], [(2, ACCEPTED)]) == {3}
    with pytest.raises(HeldElsewhere):
        machines.start(other)


def test_two_machines_that_want_a_dead_ones_batch_share_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen it stand still; one fences it and goes on, the other is told who has it."""
    machines.start().commit([1], [])
    one, two = machines.another(), machines.another()
    watch, began = take_over._stands_still_at, list[PostgresRun]()

    def watch_too_long(*arguments: object) -> int | None:
        beats = watch(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(take_over, "_stands_still_at", watch)
        machines.take_over(two)
        began.append(machines.start(two))
        return beats

    monkeypatch.setattr(take_over, "_stands_still_at", watch_too_long)
    machines.take_over(one)
    assert began[0].commit([2], []) == {2}
    with pytest.raises(HeldElsewhere):
        machines.start(one)
    assert states(machines.ledger, machines.name)[1] is State.IN_DOUBT
    assert machines.ledger.check() == []


def test_a_batch_has_one_live_run_whatever_a_program_does(machines: Machines) -> None:
    """The database itself refuses a second one."""
    machines.start()
    with pytest.raises(Exception, match="run_live"):
        machines.factory.run(
            "INSERT INTO batchpay.run (batch, who, host, started_at, token, mac, is_live)"
            " SELECT batch, who, host, started_at, token, mac, true FROM batchpay.run"
        )


def test_a_machine_that_sleeps_in_a_transaction_keeps_its_locks_for_a_while_only(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the campaign: it was stopped with the batch locked, and nobody could fence it, nor go on."""
    monkeypatch.setattr(sql, "LOCK_BATCH", sql.LOCK_BATCH.replace("60s", "100ms"))
    run, other = machines.start(), machines.another()
    with run._store.transaction() as asleep:
        run._lock(asleep)
        machines.take_over(other)
        assert machines.ledger.runs(machines.name)[0].is_fenced
        asleep.rollback()
        asleep.commit = lambda: None  # type: ignore[method-assign]


def test_a_machine_that_sleeps_with_the_ledger_locked_does_so_for_a_while_only(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended right before a registration committed: until it woke, no run began, ended or was fenced."""
    monkeypatch.setattr(sql, "LOCK_LEDGER", sql.LOCK_LEDGER.replace("60s", "100ms"))
    run, other = machines.start(), machines.another()
    assert isinstance(other, PostgresLedger)
    with other.store.transaction() as asleep:
        asleep.registrations()
        run.finish(None)
        asleep.rollback()
        asleep.commit = lambda: None  # type: ignore[method-assign]


def test_a_run_beats_while_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it asks the gateway for its accounts, or waits for its pace; a beat that fails ends no thread."""
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    beats, enough = [0], threading.Event()

    def beat() -> None:
        beats[0] += 1
        if beats[0] == 1:
            raise LedgerNotUsable("the connection was lost")
        enough.set()

    found = Heartbeat(beat)
    assert enough.wait(60)
    found.stop()
    counted = beats[0]
    found.stop()
    assert beats[0] == counted


def test_a_run_whose_machines_clock_moves_grants_nothing_more(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat finds it more than two minutes from the server: answers are recorded, and no row is begun."""
    run = machines.start()
    assert run.commit([1], []) == {1}
    monkeypatch.setattr(machine, "now_ms", lambda: int((time.time() - 119) * 1000))
    run.beat()
    assert run.commit([2], [(1, ACCEPTED)]) == {2}
    monkeypatch.setattr(machine, "now_ms", lambda: int((time.time() - 121) * 1000))
    run.beat()
    assert run.commit([3], [(2, ACCEPTED)]) == set()
    assert run.refusal is not None
    assert run.refusal.startswith("the clock of this machine shows 20")
    run.finish(run.refusal)
    assert [state for _, state in sorted(states(machines.ledger, machines.name).items())][:3] == [
        State.ACCEPTED, State.ACCEPTED, State.PENDING,
    ]  # fmt: skip
    with pytest.raises(ClockDiffers, match="more than two minutes apart; nothing more is sent from here"):
        machines.ledger.start(machines.name, "ada")
    monkeypatch.undo()
    assert (machines.ledger.now() - datetime.now(UTC)) < timedelta(seconds=60)


def test_the_quickest_of_a_servers_answers_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that took long may have been asked for long before: half of that is no difference of the clocks."""
    took_ms = iter([0, 400, 0, 2, 0, 9000])
    monkeypatch.setattr(machine, "since_boot_ms", lambda: next(took_ms))
    monkeypatch.setattr(machine, "now_ms", lambda: 1_000_000)
    asked = machine.SharedClock.ask(lambda: 1_000_001, times=3)
    assert (asked.took_ms, asked.machine_ms, asked.server_ms) == (2, 1_000_001, 1_000_001)
    machine.SharedClock(0, 124_000, 0, 8000).require_alike()
    with pytest.raises(ClockDiffers):
        machine.SharedClock(0, 124_001, 0, 8000).require_alike()


def test_rows_of_a_dead_run_are_in_doubt_for_every_machine_before_anybody_takes_over(machines: Machines) -> None:
    """From the moment it could be fenced: exit codes, metrics, health and status of another machine count them."""
    run, other = machines.start(), machines.another()
    run.commit([1, 2], [])
    batch = other.find(machines.name)
    assert (other.is_held(batch.digest), other.abandoned(batch), other.left_behind(Environment.TEST)) == (True, [], [])
    assert read_ledger_state(other, Environment.TEST).in_doubt == []
    machines.factory.run("UPDATE batchpay.run SET seen_at = seen_at - 30000")
    assert not other.is_held(batch.digest)
    assert [row.row for row in other.abandoned(batch)] == [1, 2]
    assert other.left_behind(Environment.TEST) == [machines.name]
    assert other.left_behind(Environment.LIVE) == machines.ledger.left_behind(Environment.TEST) == []
    state = read_ledger_state(other, Environment.TEST)
    assert (state.by_state[State.IN_DOUBT].rows, state.by_state[State.SENDING].rows) == (2, 0)
    assert health.doubts(state, datetime.now(UTC)).exit_code == 7
    assert other.runs(machines.name)[-1].standing == "no sign of life, heartbeat 30 s old"
    assert machines.ledger.abandoned(batch) == [], "it is this machine's, which holds the batch"
    run.beat()
    assert other.abandoned(batch) == []


def test_answers_that_come_too_late_are_evidence(machines: Machines) -> None:
    """A row in doubt becomes what its attempt proved, unless a person has decided; nothing becomes pending by it."""
    dead, rows, run = machines.taken_over(5)
    run.finish("a test")
    machines.leave()
    resolve(machines, rows[4], State.ACCEPTED)
    late = list(zip(rows, [ACCEPTED, DECLINED, NOT_SENT, IN_DOUBT, DECLINED], strict=True))
    with pytest.raises(LedgerNotUsable):
        dead.commit([], late)
    dead.spill(late)
    assert machines.ledger.runs(machines.name)[0].is_fenced, "its workers may be sending yet"
    dead.close()
    assert not machines.ledger.runs(machines.name)[0].is_fenced
    found = states(machines.ledger, machines.name)
    assert [found[row] for row in rows] == [
        State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.IN_DOUBT, State.ACCEPTED,
    ]  # fmt: skip
    answers = {row.row: row.answer for row in machines.ledger.rows(machines.name)}
    assert (answers[rows[0]], answers[rows[1]]) == (ACCEPTED.answer, DECLINED.answer)
    assert machines.ledger.check() == []
    assert not list(machines.factory.witness.parent.glob("witness.*.*"))


def test_late_answers_with_one_reference_prove_one_row(machines: Machines) -> None:
    """As in a run: the second row that has it stays in doubt, and a person is told what was said."""
    dead, rows, run = machines.taken_over(2)
    run.finish("a test")
    machines.leave()
    dead._is_unique = True
    late = [(row, ACCEPTED) for row in rows]
    with pytest.raises(LedgerNotUsable):
        dead.commit([], late)
    dead.spill(late)
    dead.close()
    assert [states(machines.ledger, machines.name)[row] for row in rows] == [State.ACCEPTED, State.IN_DOUBT]
    assert machines.ledger.check() == []


def test_a_row_is_not_sent_again_while_its_machine_may_still_send_it(machines: Machines) -> None:
    """A prototype paid twice by this: the machine slept with a permission, a person sent again, the machine woke up."""
    dead, rows, run = machines.taken_over(3)
    [own] = run.claim(1)
    run.commit([own.row], [])
    run.commit([], [(own.row, IN_DOUBT)])
    run.finish("a test")
    other = machines.start(name=machines.register_another())
    other.commit([rows[0]], [])
    other.commit([], [(rows[0], IN_DOUBT)])
    other.finish("a test")
    machines.leave()
    machines.start(machines.another()).finish("what another machine begins says nothing of it")
    with pytest.raises(WrongUse, match=f"row {rows[0]} was being sent by .* --host-is-gone"):
        resolve(machines, rows[0], State.PENDING)
    resolve(machines, rows[0], State.ACCEPTED)
    resolve(machines, own.row, State.PENDING)
    machines.ledger.resolve(other._name, [Decision(rows[0], State.PENDING)], "cy", "another batch's, whose run ended")
    assert machines.ledger.say_hosts_gone(other._name, "cy", "the machine burned") == []
    with pytest.raises(WrongUse, match="named person"):
        machines.ledger.say_hosts_gone(machines.name, "cy", " ")
    assert len(machines.ledger.say_hosts_gone(machines.name, "cy", "the machine burned")) == 1
    resolve(machines, rows[1], State.PENDING)
    said = machines.ledger.latest_event("host gone")
    assert said is not None and (said.who, said.why) == ("cy", "the machine burned")
    assert json.loads(said.detail)["runs"] == [dead._id]
    assert machines.ledger.say_hosts_gone(machines.name, "cy", "again") == []
    with pytest.raises(LedgerNotUsable):
        dead.commit([], [(rows[2], ACCEPTED)])
    dead.close()
    assert "heard" not in [event.kind for event in machines.ledger.events(machines.name)], "that it ended is no news"
    assert machines.ledger.check() == []


def test_a_machine_whose_process_ended_has_been_heard_of(machines: Machines) -> None:
    """It was killed while it was fenced: its next run holds the lock, so nothing of the dead one can send.

    That says nothing of another machine; nor does a run of another batch that the same machine begins.
    """
    dead, rows, asleep = machines.taken_over(2)
    dead._spill.write([])
    dead.spill([(rows[0], ACCEPTED)])
    asleep.commit([asleep.claim(1)[0].row], [])
    third = machines.another()
    machines.take_over(third)
    machines.start(third).finish("a test")
    machines.start(name=machines.register_another()).finish(None)
    machines.leave()
    assert [run.is_fenced for run in machines.ledger.runs(machines.name)] == [True, True, False]
    again = machines.start()
    assert again.recovered == 0
    again.finish("a test")
    machines.leave()
    assert [run.is_fenced for run in machines.ledger.runs(machines.name)] == [False, True, False, False]
    assert states(machines.ledger, machines.name)[rows[0]] is State.ACCEPTED
    heard = [json.loads(event.detail) for event in machines.ledger.events() if event.kind == "heard"]
    assert heard == [{"run": dead._id, "accepted": str(rows[0])}]
    resolve(machines, rows[1], State.PENDING)
    assert machines.ledger.check() == []


def test_a_dead_run_of_this_machine_is_replaced_at_once(machines: Machines) -> None:
    """Its restart proves it dead without waiting, and the mark of it goes."""
    run = machines.start()
    run.commit([1], [])
    machines.ledger._locks.held.clear()  # type: ignore[attr-defined]
    machines.leave()
    machines.take_over(machines.ledger)
    again = machines.start()
    assert (again.recovered, machines.said) == (1, [])
    assert len(list(machines.factory.witness.parent.glob("witness.run.*"))) == 1
    assert send_all(again) == list(range(2, ROWS + 1))
    again.finish(None)
    assert machines.ledger.check() == []
