"""The circuit breaker counts rows in doubt exactly: one after another, and in all."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from batchpay.gateway.transport import BeforeFirstByte
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.sending.limits import Limits, StopRequest
from batchpay.sending.pacing import Throttle
from batchpay.sending.retry import Attempts
from batchpay.sending.sender import Sender
from batchpay.settings import SubmitSettings
from batchpay.text import local_time
from tests.sending.plain_run import PlainRun

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

    throttle, attempts = Throttle.from_settings(settings, stop.event), Attempts(settings, stop.event)
    Sender(PlainRun(len(answers)), pay, throttle, attempts, settings, stop).send_all(Limits())
    assert (len(answers) - len(left), stop.reason) == (begun, reason)


def test_the_time_of_until_is_heard_by_who_waits_for_the_gateway() -> None:
    """A run that waited for Retry-After ended up to a minute late: nobody looked at the clock meanwhile."""
    stop = StopRequest()
    with Limits(until=0.0).watched(stop):
        assert stop.event.wait(10)
        for watcher in (one for one in threading.enumerate() if one.name == "until"):
            watcher.join(10)
            assert not watcher.is_alive(), "it looked again and again, on a processor of its own"
    assert stop.reason == f"the time given by --until, {local_time(datetime.fromtimestamp(0, UTC))}, is reached"
    for limits in (Limits(), Limits(until=4e9)):
        stop = StopRequest()
        with limits.watched(stop):
            pass
        assert stop.reason is None
