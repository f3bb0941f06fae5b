"""What ends a run early, and what must not: signals at any moment, threads that can't be started, a broken display."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from batchpay.errors import RunStopped
from batchpay.gateway.transport import BeforeFirstByte
from batchpay.outcome import Answer, Outcome, Pace
from batchpay.payment import State
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.sender import Attempts, Sender, Tally
from batchpay.settings import SubmitSettings
from batchpay.text import local_time
from tests.sending.plain_run import PlainRun

ACCEPTED = Outcome(State.ACCEPTED, "success", Answer(200))
TWO_SIGNALS = """
import faulthandler, os, signal, sys
from batchpay.sending.limits import SignalStop
faulthandler.dump_traceback_later(20, exit=True)
stop = SignalStop()
stop.begin()

def again(frame, event, arg):
    if event != "return" and frame.f_code.co_name == PLACE:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGHUP)

sys.setprofile(again)
os.kill(os.getpid(), signal.SIGTERM)
while not stop.wait(10):
    pass
print(stop.reason)
"""


@pytest.mark.parametrize("place", ["_hear", "ask", "name", "is_set", "wait", "sleep"])
def test_a_second_signal_while_the_first_is_handled_hangs_nothing(place: str) -> None:
    """SIGTERM, and SIGHUP within 0.3 ms: the second handler waited forever for the lock that the first one had."""
    code = TWO_SIGNALS.replace("PLACE", repr(place))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("stopped by SIGTERM\n", "stopped by SIGHUP\n")


def test_the_time_of_until_is_heard_by_who_waits_for_the_gateway() -> None:
    """A run that waited for Retry-After ended up to a minute late: nobody looked at the clock meanwhile."""
    stop = StopRequest(until=0.0)
    assert stop.wait(60)
    assert stop.reason == f"the time given by --until, {local_time(datetime.fromtimestamp(0, UTC))}, is reached"
    for later in (StopRequest(), StopRequest(until=4e9)):
        assert not later.wait(0.0)
        assert later.reason is None


class Noting(PlainRun):
    """A run that notes what it was given to record."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.granted: list[int] = []
        self.recorded: list[int] = []

    def commit(self, intents: object, outcomes: object) -> set[int]:
        granted = super().commit(intents, outcomes)  # type: ignore[arg-type]
        self.granted += granted
        self.recorded += [row for row, _ in outcomes]  # type: ignore[attr-defined]
        return granted


def sender(run: PlainRun, stop: StopRequest, workers: int = 8, tried: threading.Event | None = None) -> Sender:
    """A sender whose workers get no answer before something was tried."""

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        assert tried is None or not made.tally.attempts or tried.wait(30)
        return ACCEPTED

    settings = SubmitSettings(rate="20000", workers=workers)
    made = Sender(run, pay, Throttle.from_settings(settings, stop), Attempts(settings, stop), settings, stop)
    return made


@pytest.mark.parametrize("started", [0, 1, 3])
def test_threads_that_can_not_be_started_leave_no_row_in_doubt(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    """A container's limit on processes: four rows were in doubt, at every run anew, and the run ended with 1.

    Those that run go on; with none at all the run stops, and the rows stay pending.
    """
    start, count, told, tried = threading.Thread.start, 0, list[str](), threading.Event()

    def refused(thread: threading.Thread) -> None:
        nonlocal count
        if thread.name.startswith("worker"):
            count += 1
            if count > started:
                tried.set()
                raise RuntimeError("can't start new thread")
        start(thread)

    run, stop = Noting(rows=40), StopRequest()
    one = sender(run, stop, tried=tried)
    monkeypatch.setattr(threading.Thread, "start", refused)
    one.send_all(Limits(), say=told.append)
    assert sorted(run.granted) == sorted(run.recorded), "in doubt otherwise"
    if started:
        assert (run.recorded.count(2), len(run.recorded), stop.reason) == (1, 40, None)
        assert told == [f"{started} of 8 workers run: the system starts no more threads"]
    else:
        assert (run.recorded, told) == ([1], [])
        assert stop.reason == "the system starts no more threads; what was not sent is pending, safe to run again"


def test_without_a_thread_that_records_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    run = Noting(rows=4)
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RunStopped, match="starts no more threads"):
        sender(run, StopRequest())
    assert run.granted == []


def test_a_limit_of_rows_is_kept_to_where_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that it was to begin with counts once."""
    start, tried = threading.Thread.start, threading.Event()

    def refused(thread: threading.Thread) -> None:
        if thread.name == "worker 2":
            tried.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    run, stop = Noting(rows=40), StopRequest()
    one = sender(run, stop, tried=tried)
    monkeypatch.setattr(threading.Thread, "start", refused)
    one.send_all(Limits(rows_max=10))
    assert sorted(run.recorded) == list(range(1, 11))


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_display_that_fails_ends_and_loses_nothing(fails_at: int) -> None:
    """What shows the progress, a terminal that is gone or a full disk, may not decide what becomes of payments."""
    shown = 0

    def progress(tally: Tally) -> None:
        nonlocal shown
        shown += 1
        if shown >= fails_at:
            raise OSError("no space left on device")

    run, stop = Noting(rows=200), StopRequest()
    one = sender(run, stop)
    one.send_all(Limits(), progress)
    assert sorted(run.recorded) == list(range(1, 201))
    assert (stop.reason, shown) == (None, fails_at)
    assert one.tally.outcomes[State.ACCEPTED] == 200


@pytest.mark.parametrize(("until_s", "stops"), [(600.0, True), (7200.0, False)])
def test_a_quota_that_is_spent_until_after_the_end_stops_the_run(until_s: float, stops: bool) -> None:
    """An hour's quota: where the rest would wait past --until the run ends now, and says why; else it says so once."""
    told, run = list[str](), Noting(rows=6)
    stop, settings = StopRequest(time.time() + until_s), SubmitSettings(rate="20000", workers=1, wait_s_max=0.001)
    answers = [ACCEPTED, *[Outcome(State.PENDING, "HTTP 429", Answer(429), pace=Pace(1800.0, refused=True))] * 2]

    def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        before_first_byte()
        return answers.pop(0) if answers else ACCEPTED

    now = [0.0]

    def sleep(seconds: float) -> bool:
        now[0] += seconds
        return stop.is_set()

    throttle = Throttle(20_000.0, wait_s_max=0.001, clock=lambda: now[0], sleep=sleep, stopped=stop.is_set)
    Sender(run, pay, throttle, Attempts(settings, stop), settings, stop).send_all(Limits(), say=told.append)
    spent = "the gateway's quota is spent: it asks to wait 1,800 s"
    assert told == [spent]
    assert stop.reason == (f"{spent}, past the time given by --until" if stops else None)
    assert len(run.granted) == (2 if stops else 8)
