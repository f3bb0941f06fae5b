"""Another attempt at a payment, only if the last one proved that nothing was applied."""

from __future__ import annotations

from collections.abc import Callable

import tenacity

from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.sending.limits import StopRequest
from batchpay.settings import SubmitSettings

_PENDING = State.PENDING
WAIT_S_FIRST = 0.5
"""Upper bound of the random wait before the second attempt; doubled for each further one."""


def may_repeat(outcome: Outcome) -> bool:
    """Return whether an attempt proved that nothing was applied, and the run may try again."""
    return outcome.state is _PENDING and outcome.stop is None


class Attempts:
    """Repeats a payment while its outcome is pending; shared by all threads of a run.

    At most submit.attempts_max attempts, with waits of at most submit.wait_s_max between them: random, growing, and not
    shorter than the gateway's Retry-After. When `stop` is set, a wait ends early and no further attempt is made.

    A row refused because of too many requests (429) is not given up before it has waited for as long as that many
    attempts may take: when the last minute's quota was used up, a run with one worker ended there within ten seconds.
    """

    def __init__(self, settings: SubmitSettings, stop: StopRequest) -> None:
        self._stop = stop
        self._wait_s_max = settings.wait_s_max
        self._attempts_max = settings.attempts_max
        self._backoff = tenacity.wait_random_exponential(multiplier=WAIT_S_FIRST, max=settings.wait_s_max)
        self._retrying = tenacity.Retrying(
            sleep=stop.wait,  # type: ignore[arg-type]
            retry=tenacity.retry_if_result(may_repeat),
            stop=self._is_enough,
            wait=self._wait_s,
            retry_error_callback=_last_outcome,
        )

    def run(self, attempt: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome that is not to be repeated, or the last one. Exceptions of `attempt` propagate."""
        outcome = attempt()
        if not may_repeat(outcome):
            return outcome
        begun = False

        def next_outcome() -> Outcome:
            nonlocal begun, outcome
            if begun and not self._stop.is_set():
                outcome = attempt()
            begun = True  # tenacity's first call is for the attempt that was already made
            return outcome

        return self._retrying(next_outcome)

    def _is_enough(self, state: tenacity.RetryCallState) -> bool:
        """Return whether no further attempt is made: the run is to stop, or the row is given up."""
        if self._stop.is_set():
            return True
        pace = _last_outcome(state).pace
        waits_s = (self._attempts_max - 1) * self._wait_s_max if pace is not None and pace.refused else 0.0
        return state.attempt_number >= self._attempts_max and state.idle_for >= waits_s

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        """Return the seconds before the next attempt."""
        pace = _last_outcome(state).pace
        asked_s = (pace.retry_after_s or 0.0) if pace is not None else 0.0
        return min(self._wait_s_max, max(asked_s, self._backoff(state)))


def _last_outcome(state: tenacity.RetryCallState) -> Outcome:
    assert state.outcome is not None
    outcome: Outcome = state.outcome.result()
    return outcome
