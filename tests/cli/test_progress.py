"""What a run without a terminal says of itself while it goes on."""

from __future__ import annotations

import pytest

from batchpay.cli.context import Context
from batchpay.cli.progress import QuietProgress, TerminalProgress
from batchpay.outcome import Pace
from batchpay.payment import State
from batchpay.sending.pacing import Throttle
from batchpay.sending.sender import Tally


def test_a_slow_run_says_at_which_pace_it_goes_or_how_long_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four rows in forty seconds, or a minute's pause: nothing told why."""
    monkeypatch.setattr("batchpay.cli.progress._LOG_EVERY_S", 0.0)
    progress = QuietProgress(Context())
    for rate, pace in ((2500.0, "at most 2,500 a second"), (0.1, "at most 0.1 a second")):
        progress.update(Tally(), Throttle(rate))
        assert capsys.readouterr().err.strip().endswith(pace)
    throttle = Throttle(10.0, clock=lambda: 5.0)
    throttle.learn(Pace(retry_after_s=40.0, refused=True), 5.0)
    progress.update(Tally(), throttle)
    assert capsys.readouterr().err.strip().endswith("0 in doubt, paused 40 s")


def test_the_bar_is_one_line_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is as long as what is done, never longer than the line, and gone where a line is said."""
    monkeypatch.setattr("batchpay.cli.progress._DRAW_EVERY_S", 0.0)
    progress, tally = TerminalProgress(Context(), ask=False), Tally()
    progress._pending = 4_000
    tally.outcomes[State.ACCEPTED] = 1_000
    for columns, end in ((200, "1,000 accepted, 0 declined, 0 in doubt, 0/s of 50"), (30, "] 1,000/4,000 1,")):
        monkeypatch.setenv("COLUMNS", str(columns))
        progress.update(tally, Throttle(50.0))
        drawn = capsys.readouterr().err
        assert drawn.startswith("\r\x1b[K[###         ] 1,000/4,000 ") and drawn.endswith(end), drawn
    progress.say("the gateway's limit was found")
    assert capsys.readouterr().err == "\r\x1b[Kthe gateway's limit was found\n"
