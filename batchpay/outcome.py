"""What an attempt proved: its outcome, the gateway's answer, and what the answer says about the gateway's pace.

Types of the half that sends; a check does not load them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from batchpay.payment import State

MASK = "****"
"""Replaces the part of a gateway's reference that must not be kept: what is left proves nothing."""
CUT = "…"
"""Ends a text of an answer that was longer than the ledger keeps."""
_RECOGNIZED = frozenset((State.ACCEPTED, State.DECLINED))


class Answer(NamedTuple):
    """What the gateway answered to one request, as far as it could be read: safe to store and to show."""

    http_status: int | None = None
    response_code: str | None = None
    message: str | None = None
    gateway_reference: str | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """What an answer says about the gateway's rate limit; None where it says nothing."""

    retry_after_s: float | None = None
    limit: float | None = None
    """Requests allowed in a window of `window_s` seconds."""
    window_s: float | None = None
    remaining: int | None = None
    reset_s: float | None = None
    """Seconds until the window restarts."""
    refused: bool = False
    """The gateway refused this request because too many came (429, or 503 with Retry-After)."""

    @property
    def asked_s(self) -> float | None:
        """How long the gateway asks to wait; None if it does not say."""
        return self.reset_s if self.retry_after_s is None else self.retry_after_s


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about a gateway's limit, to be shown and used as the start next time."""

    rate: float
    """Requests per second that it accepts."""
    window_s: float | None = None
    """For a quota, the seconds of its window."""
    refused_share: float | None = None
    """The share of requests that it refuses whatever the rate: then `rate` is no limit."""

    def __str__(self) -> str:
        if self.refused_share is not None:
            return f"{100 * self.refused_share:.1f} % of the requests, whatever the rate"
        if self.window_s is None:
            return f"{self.rate:,.0f} a second" if self.rate >= 100 else f"{self.rate:.3g} a second"
        return f"{self.rate * self.window_s:,.0f} in {self.window_s:,.0f} s"


class Outcome(NamedTuple):
    """What one attempt proved (CONTRACT.md, 'What an answer means').

    `state` is PENDING, ACCEPTED, DECLINED or IN_DOUBT. `reason` is a short text for logs and the ledger, free of any
    personal data. `bytes_sent` is how many bytes of the request were passed to the operating system: 0 is the proof
    behind a PENDING that needs no answer. `stop` says why the run must not continue, or is None.
    """

    state: State
    reason: str
    answer: Answer = Answer()
    bytes_sent: int = 0
    stop: str | None = None
    pace: Pace | None = None

    @property
    def recognized(self) -> bool:
        """Whether the gateway's answer is one that the profile knows: it opens the canary, resets the breaker."""
        return self.state in _RECOGNIZED
