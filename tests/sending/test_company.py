"""One of several machines that send a batch: what it tells the others, when it stops with them, and waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.gateway.permission import BeforeFirstByte
from batchpay.ledger.hosts import Shared
from batchpay.ledger.records import PendingPayment
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.recorder import Recorder
from batchpay.sending.retry import Attempts
from batchpay.sending.sender import Sender, Tally
from batchpay.settings import SubmitSettings
from tests.sending.plain_run import PlainRun

ACCEPTED, SILENCE = Outcome(State.ACCEPTED, "success", Answer(200)), Outcome(State.IN_DOUBT, "silence", bytes_sent=9)
REFUSED = Outcome(State.PENDING, "HTTP 401", Answer(401), stop="the gateway refused the key")
ENOUGH = 100
"""Nobody looks so often at machines of which each look counts."""


class Team:
    """The other machines: busy for so many looks at them; notes in order what is sent here, told and asked."""

    def __init__(self, *, leads: bool, shared: Shared | None = None, busy: int = 0) -> None:
        self.leads, self.shared, self.busy = leads, shared or Shared(), busy
        self.beat_every_s = 0.001
        self.steps: list[str] = []
        self.has_heard, self.has_beaten, self.has_looked = (threading.Event() for _ in range(3))
        self.beats = 0
        self.fails: Exception | None = None

    @property
    def others_busy(self) -> bool:
        return self.busy > 0

    def share(self) -> None:
        self.steps.append("share")

    def tell(self, stop: str) -> None:
        if f"tell: {stop}" not in self.steps:
            self.steps.append(f"tell: {stop}")
        self.has_heard.set()

    def beat(self, *, is_idle: bool = False) -> None:
        self.beats += 1
        if self.fails is not None:
            raise self.fails
        if self.beats == 4:
            self.has_beaten.set()
        if is_idle:
            self.busy -= 1
            assert self.busy > -ENOUGH, "it waits for nobody"
            self.steps.append("idle")

    def at_work(self) -> bool:
        self.steps.append("still at work?")
        return self.others_busy


class TeamRun(PlainRun):
    """A run in company."""

    def __init__(self, team: Team, rows: int) -> None:
        super().__init__(rows)
        self.company = team  # type: ignore[assignment]
        self.team = team

    def send(
        self,
        answer: Callable[[], Outcome] = lambda: ACCEPTED,
        *,
        stop: StopRequest | None = None,
        shares: bool = True,
        workers: int = 1,
        progress: Callable[[Tally], None] = lambda tally: None,
    ) -> str | None:
        """Send its rows; return why it stopped."""
        stop = StopRequest() if stop is None else stop
        settings = SubmitSettings(rate="20000", workers=workers)

        def pay(body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
            before_first_byte()
            self.team.steps.append("row")
            return answer()

        throttle, attempts = Throttle.from_settings(settings, stop.event), Attempts(settings, stop.event)
        Sender(self, pay, throttle, attempts, settings, stop).send_all(Limits(), progress, shares=shares)
        return stop.reason


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchpay.sending.sender._TICK_S", 0.001)


@pytest.mark.parametrize(
    ("shared", "reason"),
    [
        (Shared("the gateway refused the key"), "the gateway refused the key"),
        (Shared(in_a_row=3, in_all=3), "3 rows in doubt in a row"),
        (Shared(in_a_row=1, in_all=5), "5 rows in doubt"),
        (Shared(in_a_row=2, in_all=4), None),
    ],
)
@pytest.mark.parametrize("leads", [True, False])
def test_a_machine_that_comes_after_the_stop_sends_nothing(shared: Shared, reason: str | None, *, leads: bool) -> None:
    """The others stopped because of answers that prove nothing: its own first row would be one more in doubt."""
    team = Team(leads=leads, shared=shared)
    assert TeamRun(team, 3).send() == reason
    assert team.steps.count("row") == (0 if reason else 3)


@pytest.mark.parametrize(
    ("leads", "shares", "first", "steps"),
    [
        (True, True, ACCEPTED, ["row", "share", "row"]),
        (True, False, ACCEPTED, ["row", "row"]),
        (False, True, ACCEPTED, ["row", "row"]),
        (True, True, SILENCE, ["row"]),
    ],
)
def test_others_get_rows_once_the_first_answer_is_recognized(
    leads: bool, shares: bool, first: Outcome, steps: list[str]
) -> None:
    """Before it, ten machines would have ten rows in doubt; and one that has a limit shares none of its rows."""
    team = Team(leads=leads)
    answers = iter([first, ACCEPTED])
    TeamRun(team, 2).send(lambda: next(answers), shares=shares)
    assert [step for step in team.steps if step in ("row", "share")] == steps


def test_a_stop_is_told_while_rows_are_still_in_flight() -> None:
    """Ctrl-C while the gateway takes half a minute to answer: until then the others would send hundreds of rows."""
    team, stop = Team(leads=True), StopRequest()

    def answer() -> Outcome:
        if "share" in team.steps:
            stop.ask("Ctrl-C")
            assert team.has_heard.wait(10)
            team.steps.append("answer")
        return ACCEPTED

    assert TeamRun(team, 2).send(answer, stop=stop) == "Ctrl-C"
    assert team.steps[:5] == ["row", "share", "row", "tell: Ctrl-C", "answer"]


def test_an_answer_that_stops_all_machines_is_told_together_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when whoever looks after the workers comes by again: until then the others send with a key that is void."""
    monkeypatch.setattr("batchpay.sending.sender._TICK_S", 1000.0)
    team, heard = Team(leads=False), []

    def answer() -> Outcome:
        worker = threading.current_thread().name
        if worker == "worker 1":  # the one that is looked after
            heard.append(team.has_heard.wait(10))
        return REFUSED if worker == "worker 2" else ACCEPTED

    assert TeamRun(team, 3).send(answer, workers=2) == REFUSED.stop
    assert heard == [True]


def test_a_row_that_is_not_begun_any_more_hides_no_answer_that_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a refusal, before it is told: the row of another worker ends for it as well, and says no reason."""
    team, refused, ended = Team(leads=False), threading.Event(), threading.Event()
    announce = Sender._announce_stop

    def acquire(_: Throttle) -> bool:
        return threading.current_thread().name != "worker 1" or not refused.wait(10)

    def announce_late(sender: Sender) -> None:
        worker = threading.current_thread().name
        if worker == "worker 2":
            refused.set()
            ended.wait(10)
        if worker.startswith("worker"):
            announce(sender)
        if worker == "worker 1":
            ended.set()

    monkeypatch.setattr(Throttle, "acquire", acquire)
    monkeypatch.setattr(Sender, "_announce_stop", announce_late)
    answers = iter([ACCEPTED, REFUSED])
    assert TeamRun(team, 3).send(lambda: next(answers), workers=2) == REFUSED.stop
    assert [step for step in team.steps if step.startswith("tell")] == [f"tell: {REFUSED.stop}"]


@pytest.mark.parametrize(
    ("leads", "answers", "asked", "told"),
    [
        (True, [ACCEPTED], "Ctrl-C", ["tell: Ctrl-C"]),
        (False, [ACCEPTED], "Ctrl-C", []),
        (True, [REFUSED], None, [f"tell: {REFUSED.stop}"]),
        (False, [REFUSED], None, []),
        (False, [ACCEPTED, REFUSED], None, [f"tell: {REFUSED.stop}"]),
    ],
)
def test_whoever_stops_tells_the_others_only_what_stops_them_too(
    leads: bool, answers: list[Outcome], asked: str | None, told: list[str]
) -> None:
    """One that only helps may leave, and a wrong key of its own stops nobody; a key that worked until now stops all."""
    team, stop = Team(leads=leads), StopRequest()
    left = iter(answers)
    if asked is not None:
        stop.ask(asked)
    assert TeamRun(team, len(answers)).send(lambda: next(left), stop=stop) == (asked or REFUSED.stop)
    assert [step for step in team.steps if step.startswith("tell")] == told


@pytest.mark.parametrize(
    ("leads", "shared", "asked", "looks"),
    [
        (True, Shared(), "Ctrl-C", 5),
        (False, Shared("Ctrl-C"), None, 5),
        (False, Shared(), "SIGTERM", 1),
        (False, Shared("Ctrl-C"), "SIGTERM", 1),
    ],
)
def test_where_all_machines_stop_the_last_rows_of_each_are_waited_for(
    leads: bool, shared: Shared, asked: str | None, looks: int
) -> None:
    """A machine that died meanwhile held the batch, unseen; and the leader's results lacked the others' last rows."""
    team, stop = Team(leads=leads, shared=shared, busy=5), StopRequest()
    if asked is not None:
        stop.ask(asked)
    TeamRun(team, 5).send(stop=stop)
    assert team.steps.count("idle") == looks
    assert "row" not in team.steps


def test_a_run_that_is_through_waits_no_more() -> None:
    """It looks once, when it has no row in progress; whoever is at work then may leave rows that it is to send."""
    team = Team(leads=True)
    assert TeamRun(team, 2).send() is None
    assert team.steps == ["row", "share", "row", "idle", "still at work?"]


class _Freed(TeamRun):
    """A run whose last row another machine claims first, and gives up."""

    def claim(self, limit: int) -> list[PendingPayment]:
        claimed = super().claim(1) if self.team.busy < 8 or len(self._rows) > 1 else []
        self.team.steps.append(f"claims {len(claimed)}")
        return claimed


def test_a_row_that_another_machine_gives_up_is_sent() -> None:
    """It was claimed by one that died: a run that ends before that is known leaves it pending, and nobody sends it.

    Each look comes after a beat that says that nothing is in progress here: else two machines wait for each other.
    """
    team = Team(leads=True, busy=10)
    assert _Freed(team, 3).send() is None
    assert team.steps.count("row") == 3
    assert team.busy == 0
    asked = [number for number, step in enumerate(team.steps) if step == "still at work?"]
    assert len(asked) == 10
    assert all(team.steps[number - 1] == "idle" for number in asked)


class _Noting(TeamRun):
    """A run that notes when it found no row to claim."""

    def claim(self, limit: int) -> list[PendingPayment]:
        claimed = super().claim(limit)
        if not claimed and self.team.steps.count("row") == 2:
            self.team.steps.append("claims none")
            self.team.has_looked.set()
        return claimed


def test_a_machine_with_a_row_in_flight_is_not_idle() -> None:
    """Another worker of it waits for an answer: were the others told that nothing is in progress, they would leave."""
    team = Team(leads=True, busy=1)

    def answer() -> Outcome:
        if "share" in team.steps:
            assert team.has_looked.wait(10)
            team.steps.append("answer")
        return ACCEPTED

    assert _Noting(team, 2).send(answer, workers=2) is None
    assert [step for step in team.steps if step != "claims none"] == [
        "row", "share", "row", "answer", "idle", "still at work?",
    ]  # fmt: skip


def test_a_caller_that_gives_up_waits_for_no_other_machine() -> None:
    """Its worker waited for rows of the others: with no end to that, neither Ctrl-C nor a fault ended the program."""
    team = Team(leads=True, busy=1_000_000)

    def progress(tally: Tally) -> None:
        if "still at work?" in team.steps and team.busy > ENOUGH:
            team.busy = ENOUGH
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TeamRun(team, 2).send(progress=progress)
    assert team.busy > ENOUGH / 2


def test_the_last_that_is_told_of_a_run_is_all_that_it_did() -> None:
    """A run of one row has no worker to be watched, and its progress stayed at 0 of 1."""
    told: list[int] = []
    TeamRun(Team(leads=False), 1).send(progress=lambda tally: told.append(tally.finished))
    assert told == [1]


@pytest.mark.parametrize(("leads", "told"), [(True, ["tell: SIGTERM"]), (False, [])])
def test_a_helper_that_is_ended_while_a_row_waits_for_its_slot_stops_nobody_else(
    monkeypatch: pytest.MonkeyPatch, *, leads: bool, told: list[str]
) -> None:
    """That row's end was taken for an answer of the gateway's: a helper that was shut down stopped all machines."""
    team, stop, asked = Team(leads=leads), StopRequest(), []

    def acquire(_: Throttle) -> bool:
        asked.append(True)
        if len(asked) == 2:
            stop.ask("SIGTERM")
        return not stop

    monkeypatch.setattr(Throttle, "acquire", acquire)
    assert TeamRun(team, 3).send(stop=stop) == "SIGTERM"
    assert [step for step in team.steps if step.startswith("tell")] == told
    assert team.steps.count("row") == 1


def test_a_machine_with_nothing_to_commit_beats_all_the_same() -> None:
    """Its rows wait for a gateway that takes half a minute: without a beat the others shut it out meanwhile."""
    team = Team(leads=False)
    recorder = Recorder(TeamRun(team, 0), StopRequest())
    assert team.has_beaten.wait(10)
    recorder.close()


def test_a_machine_beats_at_its_start_its_end_and_when_it_rests_and_hears_after_each_commit() -> None:
    """A beat for each commit would double what a row costs; and what stops all is to be heard before the next row."""
    team, heard = Team(leads=False), []
    team.beat_every_s = 1000.0
    recorder = Recorder(TeamRun(team, 0), StopRequest(), lambda: heard.append(team.beats))
    for row in range(20):
        recorder.mark_sending(row)
    recorder.rest()
    assert team.steps == ["idle"]
    recorder.close()
    assert (team.beats, heard) == (3, [1] * 20 + [2, 3])


@pytest.mark.parametrize("fails", [LedgerNotUsable("taken over by another machine"), ZeroDivisionError("row 1")])
def test_a_machine_whose_beat_fails_sends_nothing_more(fails: Exception) -> None:
    """It may have been shut out: whatever it is granted now another machine sends as well. Nobody waits for it."""
    team, stop, granted = Team(leads=False), StopRequest(), list[list[int]]()
    team.beat_every_s = 1000.0

    class Granting(TeamRun):
        def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
            granted.append(list(intents))
            return super().commit(intents, outcomes)

    recorder = Recorder(Granting(team, 0), stop)
    recorder.mark_sending(1)
    team.fails = fails
    for _ in range(2):
        recorder.rest()
    with pytest.raises(LedgerNotUsable):
        recorder.mark_sending(2)
    with pytest.raises(LedgerNotUsable, match=r"^taken over|^the ledger failed with ZeroDivisionError$"):
        recorder.close()
    assert (granted, team.beats) == ([[1]], 2)
    assert (stop.reason or "").startswith("the ledger can't be written: ")
