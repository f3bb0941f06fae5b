"""Sending, piece by piece: the recorder's groups, and the order of a row's steps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.gateway.transport import PERMISSION_S, BeforeFirstByte
from batchpay.ledger.records import PendingPayment
from batchpay.outcome import Answer, Outcome, Pace
from batchpay.payment import State
from batchpay.sending.limits import CircuitBreaker, Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.recorder import Recorder
from batchpay.sending.sender import Attempts, Pay, Sender, Tally
from batchpay.settings import SubmitSettings
from batchpay.text import local_time
from tests.sending.plain_run import PlainRun

ACCEPTED = Outcome(State.ACCEPTED, "success", Answer(200))


class _Groups(PlainRun):
    """A run that notes what each commit was given; if it is held, the first one waits until told."""

    def __init__(self, rows: int = 0, *, is_held: bool = False) -> None:
        super().__init__(rows)
        self.outcomes: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        if not is_held:
            self.go_on.set()

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        self.outcomes.append([row for row, _ in outcomes])
        self.begun.set()
        assert self.go_on.wait(30)
        return super().commit(intents, outcomes)


def accept(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
    """Send a payment that is accepted."""
    before_first_byte()
    return ACCEPTED


def never(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
    raise AssertionError("nothing may be sent")


def sender_of(
    run: PlainRun, pay: Pay, settings: SubmitSettings, stop: StopRequest, throttle: type[Throttle] = Throttle
) -> Sender:
    """A sender at the settings' pace."""
    paced = throttle.from_settings(settings, stop)
    return Sender(run, pay, paced, Attempts(settings, stop), settings, stop)


def test_a_commit_takes_all_that_waits_in_order() -> None:
    """A commit costs as much as ten rows of it: with a quarter of what waits in each, a row cost twice as much."""
    run = _Groups(is_held=True)
    recorder = Recorder(run, StopRequest())
    recorder.record(0, ACCEPTED)
    recorder.record(1, ACCEPTED)
    assert run.begun.wait(30)
    for row in range(2, 102):
        recorder.record(row, ACCEPTED)
    run.go_on.set()
    recorder.close()
    assert [row for group in run.outcomes for row in group] == list(range(102))
    assert len(run.outcomes) == 2


def test_a_commit_takes_what_workers_hand_in_that_are_ready_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 workers on one core most of those that were ready came too late, and a commit had 28 rows, not 43."""
    run, ready = _Groups(), [2, 3, 4]

    def others_run() -> None:
        while ready:
            recorder.record(ready.pop(0), ACCEPTED)

    monkeypatch.setattr("batchpay.sending.recorder._give_way", others_run)
    recorder = Recorder(run, StopRequest())
    intent = threading.Thread(target=recorder.mark_sending, args=(1,))
    intent.start()
    intent.join()
    recorder.close()
    assert run.outcomes == [[2, 3, 4]]


def test_after_a_commit_that_failed_nothing_is_granted_any_more() -> None:
    """The next commit would work (the disk has room again), but what the ledger holds by now nobody knows."""
    commits: list[list[int]] = []
    spilled: list[list[int]] = []

    class Failing(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            commits.append(list(intents))
            if len(commits) == 1:
                raise LedgerNotUsable("no space left")
            return set(intents)

        def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
            spilled.append([row for row, _ in outcomes])

    stop = StopRequest()
    recorder = Recorder(Failing(), stop)
    for row in (1, 2):
        with pytest.raises(LedgerNotUsable, match="no space left"):
            recorder.mark_sending(row)
    recorder.record(3, ACCEPTED)
    with pytest.raises(LedgerNotUsable, match="no space left"):
        recorder.close()
    assert (commits, spilled, stop.reason) == ([[1]], [[3]], "the ledger can't be written: no space left")


def test_whatever_a_commit_fails_with_ends_the_run_in_words_of_ours() -> None:
    """Its own text may hold a row. Where nothing can be spilled either, the next start calls the row in doubt."""

    class Failing(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            raise ValueError("account 4929871003216789")

        def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
            spilled.extend(row for row, _ in outcomes)
            raise OSError

    spilled: list[int] = []
    stop = StopRequest()
    recorder = Recorder(Failing(), stop)
    recorder.record(1, ACCEPTED)
    with pytest.raises(LedgerNotUsable, match=r"^the ledger failed with ValueError$"):
        recorder.close()
    assert (spilled, stop.reason) == ([1], "the ledger can't be written: the ledger failed with ValueError")


@pytest.mark.parametrize("granted", [True, False])
def test_a_fault_of_ours_is_a_doubt_only_once_the_row_may_have_left(granted: bool) -> None:
    """Before its commit no byte can have gone: the row stays pending, and the ledger hears nothing of it."""
    run, stop, settings = _Groups(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        if granted:
            before_first_byte()
        raise ZeroDivisionError

    sender = sender_of(run, pay, settings, stop)
    sender.send_all(Limits())
    state = State.IN_DOUBT if granted else State.PENDING
    assert {state: count for state, count in sender.tally.outcomes.items() if count} == {state: 1}
    assert [row for group in run.outcomes for row in group] == [1] * granted
    assert (sender.tally.attempts, stop.reason) == (1, "internal error: ZeroDivisionError")


def test_the_pace_hears_every_answer_and_nothing_else() -> None:
    """Where nothing came back the gateway has said nothing of its limit."""
    run, stop = _Groups(rows=4), StopRequest()
    settings = SubmitSettings(rate="1000", workers=1, wait_s_max=0.001)
    paces, heard = [Pace(retry_after_s=0.5), None, Pace(limit=9.0), Pace(refused=True)], list[Pace | None]()
    answers = [Outcome(State.ACCEPTED, "success", Answer(200), pace=pace) for pace in paces[:3]]
    answers.append(Outcome(State.PENDING, "HTTP 429", Answer(429), pace=paces[3]))
    answers.append(Outcome(State.IN_DOUBT, "silence"))

    class Hearing(Throttle):
        def learn(self, pace: Pace | None, sent_at: float) -> None:
            heard.append(pace)
            super().learn(None, sent_at)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        return answers[len(heard)]

    sender = sender_of(run, pay, settings, stop, Hearing)
    sender.send_all(Limits())
    assert heard == paces
    assert (sender.tally.attempts, sender.tally.finished) == (5, 4)


def test_a_row_waits_for_its_slot_then_for_its_commit_then_leaves() -> None:
    """What the ledger's commit held up is spread again before the first byte: bunched, it is more than the rate."""
    steps: list[str] = []

    class Paced(Throttle):
        def acquire(self) -> bool:
            steps.append("slot")
            return super().acquire()

        def leave(self) -> None:
            steps.append("leave")
            super().leave()

    class Noting(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            steps.extend("sending is durable" for _ in intents)
            return super().commit(intents, outcomes)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        steps.append("bytes")
        return ACCEPTED

    run, stop, settings = Noting(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)
    sender = sender_of(run, pay, settings, stop, Paced)
    sender.send_all(Limits())
    assert steps == ["slot", "sending is durable", "leave", "bytes"] * 5
    assert sender.tally.outcomes[State.ACCEPTED] == 5


def test_permission_counts_from_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine slept while its ledger committed, and woke when a person had sent the row again: it was paid twice."""
    now_s, until_s = 100.0, []

    class Slow(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            nonlocal now_s
            now_s += 7.0
            return super().commit(intents, outcomes)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        until_s.append(before_first_byte())
        return ACCEPTED

    monkeypatch.setattr("batchpay.sending.sender.since_boot_s", lambda: now_s)
    run, stop, settings = Slow(rows=1), StopRequest(), SubmitSettings(rate="1000", workers=1)
    sender_of(run, pay, settings, stop).send_all(Limits())
    assert until_s == [100.0 + PERMISSION_S]


def test_a_row_that_another_run_has_is_not_sent_and_stops_the_run() -> None:
    """Two runs on one batch: whatever let the second one begin, only one of them may go on."""

    class Taken(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            return super().commit(intents, outcomes) - {2}

    run, stop, settings = Taken(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)
    sender = sender_of(run, accept, settings, stop)
    sender.send_all(Limits())
    assert [row for group in run.outcomes for row in group] == [1]
    assert (sender.tally.attempts, stop.reason) == (1, "the ledger did not give this run a row")


def test_until_is_held_by_rows_that_wait_already() -> None:
    """Rows handed to workers before the time was over are not begun after it. Once up to two a worker were."""
    run, stop, settings = _Groups(rows=50), StopRequest(), SubmitSettings(rate="10000", workers=8)
    paid = 0

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        nonlocal paid
        before_first_byte()
        paid += 1
        if paid == 5:
            stop.until = 0.0
        return ACCEPTED

    sender_of(run, pay, settings, stop).send_all(Limits())
    assert 5 <= paid <= 5 + settings.workers
    assert stop.reason == f"the time given by --until, {local_time(datetime.fromtimestamp(0, UTC))}, is reached"


@pytest.mark.parametrize("by_signal", [True, False])
def test_the_run_may_be_over_when_a_slot_comes(*, by_signal: bool) -> None:
    """At a low rate a row waits for it for a while: meanwhile the time is over, or a signal comes."""
    run, stop, settings = _Groups(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)

    class Slow(Throttle):
        def acquire(self) -> bool:
            if by_signal:
                stop.ask("SIGTERM")
            else:
                stop.until = 0.0
            return True

    sender = sender_of(run, never, settings, stop, Slow)
    sender.send_all(Limits())
    too_late = f"the time given by --until, {local_time(datetime.fromtimestamp(0, UTC))}, is reached"
    assert (sender.tally.attempts, run.outcomes) == (0, [])
    assert stop.reason == ("SIGTERM" if by_signal else too_late)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("refused_first", [0, 1])
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_row_that_waited_beyond_its_day_is_held_back(workers: int, refused_first: int, is_answered: bool) -> None:
    """Rows in the workers' hands at midnight were sent after it: they wait for a slot, or minutes after a 429.

    Where it is the first row of all, the next one goes alone in its place.
    """
    run, stop, settings = _Groups(rows=6), StopRequest(), SubmitSettings(rate="1000", workers=workers, wait_s_max=0.01)
    too_late = set[int]()

    class Slow(Throttle):
        def acquire(self) -> bool:
            if not refused_first:
                too_late.update({1, 3})
            return True

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        if not too_late:
            too_late.update({1, 3})
            return Outcome(State.PENDING, "HTTP 429", Answer(429), bytes_sent=9, pace=Pace(refused=True))
        return ACCEPTED if is_answered else Outcome(State.IN_DOUBT, "reset", bytes_sent=9)

    sender = sender_of(run, pay, settings, stop, Slow)
    sender.send_all(Limits(), holds_back=lambda payment: payment.row in too_late)
    sent = sorted(row for group in run.outcomes for row in group)
    assert sent == [1] * refused_first + ([2, 4, 5, 6] if is_answered else [2])
    assert stop.reason == (None if is_answered else "the first answer left a row in doubt: reset")


@pytest.mark.parametrize(("rows_max", "reason"), [(3, "the limit of 3 rows was reached"), (None, "Ctrl-C")])
def test_a_run_that_ends_early_takes_no_more_rows(rows_max: int | None, reason: str) -> None:
    """What is left is neither fetched nor counted: the limit is for all files of a call."""
    run, stop, settings = _Groups(rows=2000), StopRequest(), SubmitSettings(rate="10000", workers=1)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        if rows_max is None:
            stop.ask("Ctrl-C")
        return ACCEPTED

    limits, sender = Limits(rows_max), sender_of(run, pay, settings, stop)
    sender.send_all(limits)
    assert (len(run.claim(2000)), stop.reason) == (1500, reason)
    assert sender.tally.outcomes[State.ACCEPTED] == (rows_max or 1)
    assert limits.started <= 3


def test_a_file_of_as_many_rows_as_the_limit_is_done() -> None:
    """The last of them is no reason to stop, nor does the file's end count as a row: the limit is for all files."""
    run, stop, settings = _Groups(rows=3), StopRequest(), SubmitSettings(rate="10000", workers=2)

    limits = Limits(rows_max=3)
    sender_of(run, accept, settings, stop).send_all(limits)
    assert (limits.started, stop.reason) == (3, None)


def test_a_ledger_that_can_not_be_read_any_more_is_told_by_the_caller_of_the_workers() -> None:
    """A worker fetches the next rows: its error must not end with its thread. What was taken before is sent."""

    class Failing(_Groups):
        def claim(self, limit: int) -> list[PendingPayment]:
            if not self._rows:
                raise LedgerNotUsable("the disk is gone")
            return super().claim(limit)

    run, stop, settings = Failing(rows=5), StopRequest(), SubmitSettings(rate="10000", workers=3)

    sender = sender_of(run, accept, settings, stop)
    with pytest.raises(LedgerNotUsable, match="the disk is gone"):
        sender.send_all(Limits())
    assert sender.tally.outcomes[State.ACCEPTED] == 5
    assert sorted(row for group in run.outcomes for row in group) == [1, 2, 3, 4, 5]


def test_a_caller_that_gives_up_takes_no_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a program that handles no signals of its own: what is under way ends, the other rows stay pending.

    The recorder closes after the last answer, not before. A second Ctrl-C leaves threads that keep no process alive.
    """
    run, stop, settings = _Groups(rows=500), StopRequest(), SubmitSettings(rate="100", workers=2)
    given_up, under_way, at_close = threading.Event(), set[int](), list[set[int]]()
    keeps_alive = set[str]()
    close = Recorder.close

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        if sender.tally.attempts:
            under_way.add(threading.get_ident())
            keeps_alive.update(one.name for one in threading.enumerate() if "er" in one.name and not one.daemon)
            assert given_up.wait(30)
            under_way.discard(threading.get_ident())
        return ACCEPTED

    def progress(tally: Tally) -> None:
        if not given_up.is_set():
            given_up.set()
            raise KeyboardInterrupt

    def close_last(recorder: Recorder) -> None:
        at_close.append(set(under_way))
        close(recorder)

    monkeypatch.setattr(Recorder, "close", close_last)
    sender = sender_of(run, pay, settings, stop)
    with pytest.raises(KeyboardInterrupt):
        sender.send_all(Limits(), progress)
    assert 3 <= sender.tally.outcomes[State.ACCEPTED] < 500
    assert (at_close, keeps_alive) == ([set()], set())


def test_a_worker_that_fails_outside_of_an_exchange_stops_the_run() -> None:
    """Its thread would end without a word: with one after the other gone, the rest of the batch was left, and well."""
    run, stop, settings = _Groups(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)
    asked = 0

    class Failing(Throttle):
        def acquire(self) -> bool:
            nonlocal asked
            asked += 1
            if asked == 3:
                raise ZeroDivisionError
            return True

    sender = sender_of(run, accept, settings, stop, Failing)
    sender.send_all(Limits())
    assert stop.reason == "internal error: ZeroDivisionError"
    assert sender.tally.outcomes[State.ACCEPTED] == 2


def test_a_row_whose_slot_never_comes_stays_pending() -> None:
    """Stopped while it waited for its turn: no byte leaves, and the ledger hears nothing of it."""
    run, stop, settings = _Groups(rows=5), StopRequest(), SubmitSettings(rate="1000", workers=1)

    class Stopped(Throttle):
        def acquire(self) -> bool:
            return False

    sender = sender_of(run, never, settings, stop, Stopped)
    sender.send_all(Limits())
    assert {state: count for state, count in sender.tally.outcomes.items() if count} == {State.PENDING: 1}
    assert (sender.tally.attempts, run.outcomes, stop.reason) == (0, [], "stopped")


@pytest.mark.parametrize(
    "last",
    [Outcome(State.PENDING, "no such path"), Outcome(State.DECLINED, "HTTP 404", stop="no such path")],
)
def test_an_outcome_may_stop_a_run_by_itself(last: Outcome) -> None:
    """A row that stays pending after its attempts, and an answer that says that none can be taken."""
    breaker = CircuitBreaker(SubmitSettings())
    assert [breaker.reason_to_stop(outcome) for outcome in (ACCEPTED, last)] == [None, "no such path"]


def test_rows_whose_references_repeat_are_counted_in_doubt() -> None:
    """The worker had counted them as accepted; the run stops at the second, and says what a person may set."""

    class Repeating(_Groups):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            self.repeated += sum(row in (2, 4) for row, _ in outcomes)
            return super().commit(intents, outcomes)

    stop, settings = StopRequest(), SubmitSettings(rate="1000", workers=1)
    sender = sender_of(run := Repeating(rows=50), accept, settings, stop)
    sender.send_all(Limits())
    assert (run.repeated, sender.tally.outcomes[State.IN_DOUBT]) == (2, 2)
    assert 4 <= sender.tally.finished <= 5
    assert stop.reason is not None and "gateway.reference_is_unique = false" in stop.reason


_OUTCOMES = {
    "y": Outcome(State.ACCEPTED, "success", Answer(200)),
    "n": Outcome(State.DECLINED, "declined", Answer(400)),
    "?": Outcome(State.IN_DOUBT, "no answer", bytes_sent=1),
}


@pytest.mark.parametrize(
    ("answers", "begun", "reason"),
    [
        ("y??y??y", 7, None),  # an answer begins the count anew
        ("y??n??n", 7, None),  # a no is an answer as well
        ("y???yyyy", 4, "3 rows in doubt in a row"),
        ("y??y???yyyy", 7, "3 rows in doubt in a row"),
        ("y?y?y?y?y?yyyy", 10, "5 rows in doubt"),
        ("y?y?y?y?yyyyy", 13, None),
        ("?yyy", 1, "the first answer left a row in doubt: no answer"),
    ],
)
def test_the_breaker_counts_exactly(answers: str, begun: int, reason: str | None) -> None:
    """Its count in a row need not be reset, nor be exact, for any test to pass: then it stops early, or late."""
    stop, settings = StopRequest(), SubmitSettings(rate="20000", workers=1)
    left = list(answers)

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        return _OUTCOMES[left.pop(0)]

    sender_of(PlainRun(len(answers)), pay, settings, stop).send_all(Limits())
    assert (len(answers) - len(left), stop.reason) == (begun, reason)
