"""The bars of the benchmarks: each holds at its limit, and is seen to fail when it is raised.

Part of no other run of the tests: `make test T=tests/benchmarks/test_bars.py`.
"""

from __future__ import annotations

import signal

import pytest

from tests.benchmarks.__main__ import at_most
from tests.benchmarks.process import BenchmarkFailed
from tests.benchmarks.results import Bar, fallen, read_bars, toothless

BARS = read_bars()


def _limit(bar: Bar) -> float:
    limit = bar.at_most if bar.at_least is None else bar.at_least
    assert limit is not None
    return limit


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.name)
def test_a_bar_holds_at_its_limit_and_fails_when_raised(bar: Bar) -> None:
    """A figure that just passes fails once the bar is raised over it, and the message names bar and figure."""
    figures = {bar.name: _limit(bar)}
    assert fallen(figures, [bar]) == []
    (message,) = fallen(figures, [bar.raised_over(_limit(bar))])
    assert message.startswith(f"{bar.name}: ")


def test_a_figure_that_was_not_measured_neither_passes_nor_fails() -> None:
    """Half a run says nothing of the other half's bars."""
    assert fallen({}, BARS) == []


def test_a_bar_that_can_not_fail_is_found() -> None:
    """The check proves its own teeth with the figures of the run; a bar without a limit would be named."""

    class Blunt(Bar):
        """Lets everything pass."""

        def holds(self, figure: float) -> bool:
            return True

        def raised_over(self, figure: float) -> Bar:
            return self

    assert toothless({"blunt": 1.0}, [Blunt("blunt", "", at_least=0.5)]) == ["blunt"]
    assert toothless({bar.name: _limit(bar) for bar in BARS}, BARS) == []


def test_a_part_that_hangs_ends_in_words() -> None:
    """A run without anybody before it ends, however long a program that it measures would take."""
    with pytest.raises(BenchmarkFailed, match="sending was not done in 10 minutes"), at_most(600, "sending"):
        signal.raise_signal(signal.SIGALRM)
