"""What a run without a terminal says of itself while it goes on."""

from __future__ import annotations

import pytest

from batchpay.cli.context import Context
from batchpay.cli.progress import QuietProgress
from batchpay.outcome import Pace
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
