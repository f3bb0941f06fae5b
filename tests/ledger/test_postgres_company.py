"""Several machines on one batch: who may claim, who is shut out, and what is believed of those who come back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain

import pytest

from batchpay.errors import HeldElsewhere, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.company import BEAT_S, LEASE_S, Observer
from batchpay.ledger.postgres.fences import SHUT_OUT_REASON
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.run import PostgresRun
from batchpay.ledger.records import Decision
from batchpay.payment import Environment, State
from tests.ledger.batches import ACCEPTED, DECLINED, IN_DOUBT, NOT_SENT, columns, register, states
from tests.ledger.factories import LedgerFactory, PostgresFactory

pytestmark = pytest.mark.ledgers("postgres")
CHUNK_ROWS = 64


class Machines:
    """Machines that work on one batch, each with files of its own."""

    def __init__(self, factory: PostgresFactory, rows: int) -> None:
        self.factory = factory
        self.ledger = factory.create()
        factory.run("ALTER TABLE batchpay.batch ALTER COLUMN id RESTART WITH 7")  # no run has a batch's number
        self.name = register(self.ledger, columns(self.ledger, range(1, rows + 1)))
        self.now_s = 1000.0
        self._others: list[LedgerFactory] = []
        self._held = ExitStack()

    def start(self, ledger: Ledger | None = None, *, helps: bool = False, who: str = "ada") -> PostgresRun:
        """Begin a run, on the first machine unless another one's ledger is given."""
        ledger = ledger or self.ledger
        self._held.enter_context(ledger.lock(ledger.find(self.name).digest, helps=helps))
        run = ledger.start(self.name, who, helps=helps)
        assert isinstance(run, PostgresRun)
        run.company.observer = Observer(lambda: self.now_s)
        return run

    def another(self) -> Ledger:
        """Let one more machine join; gives its ledger."""
        self._others.append(self.factory.on_another_machine(self.factory.folder / f"other {len(self._others)}"))
        return self._others[-1].join()

    def pair(self) -> tuple[PostgresRun, PostgresRun]:
        """A machine that leads and has shared the batch after its first row, and one that helps."""
        leader, helper = self.start(), self.start(self.another(), helps=True, who="ben")
        [first] = leader.claim(1)
        leader.commit([first.row], [])
        leader.company.share()
        leader.commit([], [(first.row, ACCEPTED)])
        return leader, helper

    def start_another_batch(self) -> PostgresRun:
        """Begin a run of a batch that is none of the others' affair: it has sent nothing yet, and does not beat."""
        other = register(self.ledger, columns(self.ledger, range(1, 76), salt="other"), content=b"other")
        self._held.enter_context(self.ledger.lock(self.ledger.find(other).digest))
        run = self.ledger.start(other, "ada")
        assert isinstance(run, PostgresRun)
        return run

    def let_pass(self, run: PostgresRun, seconds: float) -> None:
        """Let a run beat, and look at the others, for some time."""
        for _ in range(int(seconds / BEAT_S) + 1):
            self.now_s += BEAT_S
            run.company.beat()

    def close(self) -> None:
        """Let all of them go."""
        self._held.close()
        for other in self._others:
            other.close()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchpay.ledger.payload.CHUNK_ROWS", CHUNK_ROWS)


@pytest.fixture
def machines(ledger_factory: LedgerFactory) -> Iterator[Machines]:
    assert isinstance(ledger_factory, PostgresFactory)
    found = Machines(ledger_factory, 75)
    yield found
    found.close()


def send(run: PostgresRun, rows: int) -> list[int]:
    """Claim so many rows, and bring them to their end."""
    claimed = [payment.row for payment in run.claim(rows)]
    if claimed:
        run.commit(claimed, [])
        run.commit([], [(row, ACCEPTED) for row in claimed])
    return claimed


def send_all(run: PostgresRun) -> int:
    """Send whatever a run can claim; gives how many rows."""
    return sum(iter(lambda: len(send(run, 500)), 0))


def test_helpers_claim_only_what_the_leader_has_shared(machines: Machines) -> None:
    """The first row goes alone: before its answer is recognized nobody else gets any. Then each row has one sender."""
    leader, helper = machines.start(), machines.start(machines.another(), helps=True)
    assert helper.claim(500) == []
    assert helper.company.at_work()
    [first] = leader.claim(1)
    leader.commit([first.row], [])
    assert helper.claim(500) == []
    leader.company.share()
    leader.commit([], [(first.row, ACCEPTED)])
    sent = [first.row]
    while some := send(helper, 5) + send(leader, 20):
        sent += some
    assert sorted(sent) == list(range(1, 76))
    assert not (leader.company.shared.stop or helper.company.shared.stop)
    helper.finish(None)
    leader.finish(None)
    assert set(states(machines.ledger, machines.name).values()) == {State.ACCEPTED}
    assert [(run.leads, run.rows) for run in machines.ledger.runs(machines.name)] == [(True, 64), (False, 11)]
    started = [json.loads(event.detail) for event in machines.ledger.events() if event.kind == "started"]
    assert ["helps" in detail for detail in started] == [False, True]
    assert machines.ledger.check() == []


def test_machines_that_claim_at_once_share_all_chunks(ledger_factory: LedgerFactory) -> None:
    """Whoever finds the first free chunk locked takes the next one, and none is handed out twice."""
    assert isinstance(ledger_factory, PostgresFactory)
    machines = Machines(ledger_factory, CHUNK_ROWS * 12)
    leader, helper = machines.pair()
    runs = [leader, helper, machines.start(machines.another(), helps=True)]
    found: list[list[int]] = [[], [], []]
    start = threading.Barrier(3)

    def claim(number: int) -> None:
        start.wait()
        found[number] += [payment.row for payment in runs[number].claim(CHUNK_ROWS)]
        start.wait()  # a machine that comes late finds that the others have left it nothing, which is right as well
        while some := runs[number].claim(CHUNK_ROWS):
            found[number] += [payment.row for payment in some]

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chain.from_iterable(found)) == list(range(2, CHUNK_ROWS * 12 + 1))
    assert all(found)
    machines.close()


def test_time_in_which_a_machine_could_not_write_itself_makes_nobody_dead() -> None:
    """Only one's own beats count, and of a pause of one's own two distances: it may have stopped everybody."""
    now = 0.0
    observer = Observer(lambda: now)
    assert observer.look({1: 7}) == []
    now += 10 * LEASE_S
    assert observer.look({1: 7}) == [], "this machine slept"
    for _ in range(3):
        observer.fail()
        now += LEASE_S
        assert observer.look({1: 7}) == [], "the database was away"
    for _ in range(int(LEASE_S / BEAT_S) - 3):
        now += BEAT_S
        assert observer.look({1: 7}) == []
    now += BEAT_S
    assert observer.look({1: 8}) == [], "it moved"
    for _ in range(int(LEASE_S / BEAT_S) - 1):
        now += BEAT_S
        assert observer.look({1: 8}) == []
    now += BEAT_S
    assert observer.look({1: 8}) == [(1, 8)]


def test_a_clock_that_is_set_makes_nobody_dead(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that jump by hours, on either machine, shut nobody out: beats are counted, not dated."""
    leader, helper = machines.pair()
    helper.company.observer = Observer()
    hours = (3600.0 * number for number in range(1_000_000))
    monkeypatch.setattr("time.time", lambda: next(hours))
    monkeypatch.setattr("time.time_ns", lambda: int(next(hours)) * 1_000_000_000)
    leader.company.beat()
    for _ in range(2 * int(LEASE_S / BEAT_S)):
        helper.company.beat()
    monkeypatch.undo()
    assert leader.commit([2], []) == {2}


def test_a_machine_that_beats_is_left_alone(machines: Machines) -> None:
    """Commits and idle beats both count, so two that wait for one another shut nobody out; nor one of another batch."""
    leader, helper = machines.pair()
    other = machines.start_another_batch()
    for _ in range(3 * int(LEASE_S / BEAT_S)):
        machines.let_pass(helper, 0)
        leader.company.beat(is_idle=True)
    assert all(run.is_live for run in machines.ledger.runs(machines.name))
    assert helper.company.at_work(), "63 rows that the leader had claimed"
    assert other.commit([1], []) == {1}


def test_a_machine_that_stands_still_is_shut_out(machines: Machines) -> None:
    """What it was sending is in doubt, what it had claimed is sent by others, and its next commit is refused."""
    machines.start().finish("stopped")
    machines.close()
    leader, helper = machines.pair()
    hanging = [payment.row for payment in leader.claim(4)]
    leader.commit(hanging, [])
    send_all(helper)
    machines.let_pass(helper, LEASE_S)
    helper.company.beat(is_idle=True)
    assert helper.company.at_work(), "there is what the other had claimed"
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        leader._settle_unknown([], leader._number, leader._mac)  # had the answer to its latest commit been lost
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        leader.company.beat()
    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
        leader.commit([10], [(hanging[0], ACCEPTED)])
    while send(helper, 500):
        pass
    helper.company.beat(is_idle=True)
    assert not helper.company.at_work()
    other = register(machines.ledger, columns(machines.ledger, [1], salt="other"), content=b"other")
    with machines.ledger.lock(machines.ledger.find(other).digest):
        machines.ledger.start(other, "ada").finish("another batch whose leader is not dead")
    helper.finish(None)
    found = states(machines.ledger, machines.name)
    assert {row for row, state in found.items() if state is State.IN_DOUBT} == set(hanging)
    assert set(found.values()) == {State.ACCEPTED, State.IN_DOUBT}
    _, shut_out, last = machines.ledger.runs(machines.name)
    assert (shut_out.is_shut_out, shut_out.is_live, shut_out.in_doubt) == (True, False, 4)
    assert (last.leads, last.stopped) == (True, None), "the last one finishes the batch"
    told = {event.kind: (event.who, event.why) for event in machines.ledger.events(machines.name)}
    assert (told["fenced"], told["recovered"]) == (("ben", None), ("ben", SHUT_OUT_REASON))
    assert machines.ledger.find(machines.name).finished_at is not None
    assert machines.ledger.check() == []


def test_an_idle_machine_that_may_be_dead_is_waited_for(machines: Machines) -> None:
    """It died with nothing in hand: were it left alone it would hold the batch, and nobody would look at it again."""
    leader, helper = machines.pair()
    leader.company.beat(is_idle=True)
    helper.company.beat(is_idle=True)
    assert helper.company.others_busy
    leader.company.beat(is_idle=True)
    helper.company.beat(is_idle=True)
    assert not helper.company.others_busy, "it has moved"
    send(helper, 1)
    helper.company.beat(is_idle=True)
    assert helper.company.others_busy, "it has not moved since this run had work again"
    machines.let_pass(helper, LEASE_S)
    helper.company.beat(is_idle=True)
    assert not helper.company.others_busy
    assert not machines.ledger.runs(machines.name)[0].is_live


def test_two_idle_machines_end_whatever_else_they_beat(machines: Machines) -> None:
    """Found by the campaign: a beat of the timer between two rests made each begin to wait for the other anew.

    Nor do they wait for another batch, nor for rows that an earlier run has sent.
    """
    earlier = machines.start()
    send(earlier, CHUNK_ROWS)
    earlier.finish("stopped")
    machines.close()
    leader, helper = machines.pair()
    machines.start_another_batch()
    assert send_all(leader) + send_all(helper) == 75 - CHUNK_ROWS - 1
    for run in (leader, helper) * 3:
        run.company.beat()
        run.company.beat(is_idle=True)
    assert not (leader.company.at_work() or helper.company.at_work())
    helper.company.tell("enough")
    helper.finish(None)
    leader.company.beat()
    assert leader.company.shared.stop == "enough", "told by the very end of a run"


def test_a_machine_that_moves_while_it_is_suspected_is_left_alone(machines: Machines) -> None:
    """The counter is compared in the very statement that shuts it out."""
    leader, helper = machines.pair()
    machines.let_pass(helper, LEASE_S - 2 * BEAT_S)
    look, suspected = helper.company.observer.look, list[set[int]]()

    def look_late(beats: object) -> list[tuple[int, int]]:
        found = look(beats)  # type: ignore[arg-type]
        if found:
            suspected.append(leader.commit([2], []))
        return found

    helper.company.observer.look = look_late  # type: ignore[method-assign]
    machines.let_pass(helper, 2 * BEAT_S)
    assert suspected == [{2}]
    assert leader.commit([3], [(2, ACCEPTED)]) == {3}


def test_a_machine_that_sleeps_in_a_transaction_keeps_its_locks_for_a_while_only(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the campaign: it was stopped with the batch locked, and nobody could shut it out, nor go on."""
    monkeypatch.setattr(sql, "LOCK_BATCH", sql.LOCK_BATCH.replace("60s", "100ms"))
    leader, helper = machines.pair()
    with leader._store.transaction() as asleep:
        leader._lock(asleep)
        machines.let_pass(helper, LEASE_S)
        assert not machines.ledger.runs(machines.name)[0].is_live
        asleep.rollback()
        asleep.commit = lambda: None  # type: ignore[method-assign]


def test_a_machine_that_sleeps_with_the_ledger_locked_does_so_for_a_while_only(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended right before a registration committed: until it woke, no run began, ended or was shut out."""
    monkeypatch.setattr(sql, "LOCK_LEDGER", sql.LOCK_LEDGER.replace("60s", "100ms"))
    run, other = machines.start(), machines.another()
    assert isinstance(other, PostgresLedger)
    with other.store.transaction() as asleep:
        asleep.registrations()
        run.finish(None)
        asleep.rollback()
        asleep.commit = lambda: None  # type: ignore[method-assign]


def test_a_run_that_was_shut_out_shuts_nobody_out_and_keeps_no_chunk(machines: Machines) -> None:
    """It wakes up in the middle of a look, or of a claim: what it takes then is free for all others."""
    leader, helper = machines.pair()
    machines.let_pass(helper, LEASE_S)
    leader.claim(200)
    machines.now_s += LEASE_S
    with pytest.raises(LedgerNotUsable):
        machines.let_pass(leader, LEASE_S)
    assert send_all(helper) == 74


def test_answers_that_come_too_late_are_evidence(machines: Machines) -> None:
    """A row in doubt becomes what its attempt proved, unless a person has decided; nothing becomes pending by it."""
    leader, helper = machines.pair()
    rows = [payment.row for payment in leader.claim(5)]
    leader.commit(rows, [])
    machines.let_pass(helper, LEASE_S)
    helper.finish("a test")
    machines.close()
    resolve(machines, rows[4], State.ACCEPTED)
    late = list(zip(rows, [ACCEPTED, DECLINED, NOT_SENT, IN_DOUBT, DECLINED], strict=True))
    with pytest.raises(LedgerNotUsable):
        leader.commit([], late)
    leader.spill(late)
    assert machines.ledger.runs(machines.name)[0].is_shut_out, "its workers may be sending yet"
    leader.close()
    assert not machines.ledger.runs(machines.name)[0].is_shut_out
    found = states(machines.ledger, machines.name)
    assert [found[row] for row in rows] == [
        State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.IN_DOUBT, State.ACCEPTED,
    ]  # fmt: skip
    answers = {row.row: row.answer for row in machines.ledger.rows(machines.name)}
    assert (answers[rows[0]], answers[rows[1]]) == (ACCEPTED.answer, DECLINED.answer)
    assert machines.ledger.check() == []
    assert not list(machines.factory.witness.parent.glob("witness.*.*"))


def resolve(machines: Machines, row: int, state: State) -> None:
    machines.ledger.resolve(machines.name, [Decision(row, state)], "cy", "looked it up")


def test_a_row_is_not_sent_again_while_its_machine_may_still_send_it(machines: Machines) -> None:
    """A prototype paid twice by this: the machine slept with a permission, a person sent again, the machine woke up."""
    leader, helper = machines.pair()
    rows = [payment.row for payment in leader.claim(3)]
    leader.commit(rows, [])
    [own] = helper.claim(1)
    helper.commit([own.row], [])
    helper.commit([], [(own.row, IN_DOUBT)])
    machines.let_pass(helper, LEASE_S)
    helper.finish("a test")
    other = machines.start_another_batch()
    other.commit([rows[0]], [])
    other.commit([], [(rows[0], IN_DOUBT)])
    other.finish("a test")
    machines.close()
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
    assert json.loads(said.detail)["runs"] == [leader._id]
    assert machines.ledger.say_hosts_gone(machines.name, "cy", "again") == []
    with pytest.raises(LedgerNotUsable):
        leader.commit([], [(rows[2], ACCEPTED)])
    leader.close()
    assert "heard" not in [event.kind for event in machines.ledger.events(machines.name)], "that it ended is no news"
    assert machines.ledger.check() == []


def test_a_machine_whose_process_ended_has_been_heard_of(machines: Machines) -> None:
    """It was killed while it was shut out: its next run holds the lock, so nothing of the dead one can send.

    That says nothing of another machine; nor does a run of another batch that the same machine begins.
    """
    leader, helper = machines.pair()
    asleep = machines.start(machines.another(), helps=True)
    asleep.commit([asleep.claim(1)[0].row], [])
    rows = [payment.row for payment in leader.claim(2)]
    leader.commit(rows, [])
    leader._spill.write([])
    leader.spill([(rows[0], ACCEPTED)])
    machines.let_pass(helper, LEASE_S)
    helper.finish("a test")
    machines.start_another_batch().finish(None)
    machines.close()
    assert [run.is_shut_out for run in machines.ledger.runs(machines.name)] == [True, False, True]
    again = machines.start()
    assert again.recovered == 0
    again.finish("a test")
    machines.close()
    assert [run.is_shut_out for run in machines.ledger.runs(machines.name)] == [False, False, True, False]
    assert states(machines.ledger, machines.name)[rows[0]] is State.ACCEPTED
    heard = [json.loads(event.detail) for event in machines.ledger.events() if event.kind == "heard"]
    assert heard == [{"run": leader._id, "accepted": str(rows[0])}]
    resolve(machines, rows[1], State.PENDING)
    assert machines.ledger.check() == []


def test_a_dead_leader_of_this_machine_is_replaced_by_a_helper_at_once(machines: Machines) -> None:
    """Its restart proves it dead without waiting; machines that are at work keep what they have."""
    leader, helper = machines.pair()
    leader.commit([leader.claim(1)[0].row], [])
    others = [payment.row for payment in helper.claim(3)]
    helper.commit(others, [])
    machines.ledger._locks.held.clear()  # type: ignore[attr-defined]
    machines._held.pop_all().close()
    again = machines.start(helps=True)
    assert again.recovered == 1
    assert helper.commit([], [(row, ACCEPTED) for row in others]) == set()
    while send(again, 500) + send(helper, 500):
        pass
    helper.finish(None)
    again.finish(None)
    assert machines.ledger.find(machines.name).by_state[State.ACCEPTED].rows == 74
    assert machines.ledger.check() == []


def test_what_a_dead_run_had_claimed_is_free_once_its_machine_begins_anew(machines: Machines) -> None:
    """It was stopped again before it claimed anything: the other machine would have ended, and 63 rows stayed."""
    _, helper = machines.pair()
    send_all(helper)
    machines.ledger._locks.held.clear()  # type: ignore[attr-defined]
    machines._held.pop_all().close()
    machines.start(helps=True).finish("stopped by SIGTERM")
    helper.company.beat(is_idle=True)
    assert helper.company.at_work()
    assert send_all(helper) == 63


def test_a_reason_to_stop_and_the_fuse_reach_all(machines: Machines) -> None:
    """Each machine hears with its next commit, or beat, why another one stopped, and how many rows are in doubt."""
    other = register(machines.ledger, columns(machines.ledger, [1], salt="other"), content=b"other")
    leader, helper = machines.pair()
    rows = [payment.row for payment in helper.claim(4)]
    helper.commit(rows, [])
    helper.commit([], [(rows[0], IN_DOUBT), (rows[1], IN_DOUBT)])
    leader.commit([leader.claim(1)[0].row], [])
    assert (leader.company.shared.in_a_row, leader.company.shared.in_all) == (2, 2)
    helper.commit([], [(rows[2], ACCEPTED)])
    leader.company.beat()
    assert (leader.company.shared.in_a_row, leader.company.shared.in_all) == (0, 2)
    helper.company.tell("the gateway refused the key")
    helper.commit([], [(rows[3], ACCEPTED)])
    leader.commit([leader.claim(1)[0].row], [])
    assert leader.company.shared.stop == "the gateway refused the key"
    leader.company.tell("it came second")
    leader.company.beat()
    helper.finish(None)
    shared = "SELECT is_shared, stop, in_a_row, in_all FROM batchpay.batch WHERE name = '{}'"
    assert machines.factory.run(shared.format(other)) == [(False, None, 0, 0)], "another batch goes on"
    with machines.ledger.lock(machines.ledger.find(other).digest):
        machines.ledger.start(other, "ada").finish(None)
    late = machines.start(machines.another(), helps=True)
    assert late.company.shared.stop == "the gateway refused the key"


def test_what_a_machine_put_back_is_free_when_its_run_has_ended(machines: Machines) -> None:
    """Rows whose answer said that nothing was applied lie in chunks that were used up. The other waits for them."""
    leader, helper = machines.pair()
    while some := helper.claim(500):
        helper.commit([payment.row for payment in some], [])
        helper.commit([], [(payment.row, NOT_SENT) for payment in some])
    helper.finish("too many")
    leader.company.beat(is_idle=True)
    assert (leader.company.at_work(), leader.company.shared.stop) == (True, None)
    assert send_all(leader) == 74
    leader.finish("whoever leads stops all")
    late = machines.start(machines.another(), helps=True)
    assert late.company.shared.stop == "whoever leads stops all"


def test_whoever_comes_second_is_told_who_leads_and_how_to_help(machines: Machines) -> None:
    """One leads: the other's exit code is 9 unless it helps. On one machine one process works on a batch."""
    leader, helper = machines.pair()
    send(leader, 30)
    third = machines.another()
    digest = machines.ledger.find(machines.name).digest
    held = f"has sent 31 of 75; help with: batchpay work {machines.name}"
    with pytest.raises(HeldElsewhere, match=held), third.lock(digest):
        pass
    assert [batch.batch for batch in third.at_work(Environment.TEST)] == [machines.name]
    assert third.at_work(Environment.LIVE) == []
    helper.finish(None)
    leader.finish(None)
    assert third.at_work(Environment.TEST) == []
