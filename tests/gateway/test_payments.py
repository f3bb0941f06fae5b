"""What an answer proves when all else fails; rate limit headers in all the shapes they come in."""

from __future__ import annotations

import json

import pytest

from batchpay.gateway.answer import Secrets, read_pace
from batchpay.gateway.channel import Exchange
from batchpay.gateway.payments import _problem as problem_of_report
from batchpay.gateway.payments import outcome_without_answer
from batchpay.gateway.profile import Profile
from batchpay.outcome import Answer, Outcome, Pace
from batchpay.payment import State
from tests.support.fault_client import ACCOUNT, GOOD, KEY, body, client_of, nothing
from tests.support.fault_server import Conversation, Fault, FaultServer, answer


def test_a_fault_of_ours_after_the_answer_leaves_the_row_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request has left: the row is neither lost nor sent again, and the next one has a connection of its own."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(ACCOUNT)

    with FaultServer(GOOD) as server, client_of(server) as client:
        with monkeypatch.context() as patched:
            patched.setattr(Profile, "outcome_of", fail)
            outcome = client.pay(body("first"), nothing)
        assert (outcome.state, outcome.answer, outcome.stop) == (State.IN_DOUBT, Answer(200), None)
        assert outcome.reason == "the answer could not be judged (ZeroDivisionError)"
        assert outcome.bytes_sent > 0
        assert client.pay(body("second"), nothing).state is State.ACCEPTED
    assert (server.bodies, server.connections) == ({"first": 1, "second": 1}, 2)


@pytest.mark.parametrize(("bytes_sent", "state"), [(0, State.PENDING), (1, State.IN_DOUBT)])
def test_one_byte_that_left_is_a_doubt(bytes_sent: int, state: State) -> None:
    """Nobody knows what a gateway does with part of a request: only a row of which nothing left is sent again."""
    silent = Exchange(None, {}, b"", bytes_sent, 0.1, None, problem="silence")
    assert outcome_without_answer(silent)[:2] == (state, "silence")


def test_after_a_doubt_the_next_payment_has_a_connection_of_its_own() -> None:
    """What else comes over a connection whose answer proved nothing may be about the row in doubt."""

    def fails(conversation: Conversation) -> None:
        conversation.write(answer("500 Internal Server Error", b"{}"))

    with FaultServer(Fault(frozenset({State.IN_DOUBT}), on_request=fails)) as server, client_of(server) as client:
        for name in ("first", "second"):
            assert client.pay(body(name), nothing).state is State.IN_DOUBT
    assert server.connections == 2


def test_a_gateway_that_announces_its_limit_is_not_busy() -> None:
    """Whoever tests the connection is told what is wrong: to wait and try again would help nobody."""
    refused = Outcome(State.DECLINED, "HTTP 422", Answer(422), pace=Pace(limit=10.0))
    assert problem_of_report(refused) == "the gateway refused the request (HTTP 422)"
    busy = Outcome(State.PENDING, "HTTP 429", Answer(429), pace=Pace(refused=True))
    assert problem_of_report(busy) == "the gateway is busy (HTTP 429): try again later"


def test_a_payment_without_an_invoice_number_may_be_given_one() -> None:
    """It names no other payment: a gateway that numbers invoices itself would leave every such row in doubt."""

    def numbered(conversation: Conversation) -> None:
        said = {"status": "success", "payment": {"invoiceNumber": "AUTO-1"}}
        conversation.write(answer("200 OK", json.dumps(said).encode()))

    with (
        FaultServer(Fault(frozenset({State.ACCEPTED}), on_request=numbered)) as server,
        client_of(server) as client,
    ):
        assert client.pay(b'{"amount":"12.50"}', nothing).state is State.ACCEPTED
        assert client.pay(body("one"), nothing).state is State.IN_DOUBT


@pytest.mark.parametrize("invoice", ['7" pipe', "a\\b", "M\u00fcller 7"])
def test_an_invoice_number_is_the_same_however_it_is_written(invoice: str) -> None:
    """With a quote in it, or a letter that one side escapes, every such row was in doubt: it seemed to be another's."""

    def repeats(conversation: Conversation) -> None:
        said = {"status": "success", "payment": {"invoiceNumber": invoice}}
        conversation.write(answer("200 OK", json.dumps(said, ensure_ascii=False).encode()))

    with FaultServer(Fault(frozenset(), on_request=repeats)) as server, client_of(server) as client:
        assert client.pay(body(invoice), nothing).state is State.ACCEPTED


def test_what_may_hold_an_account_number_is_in_no_trace() -> None:
    """A gateway may repeat the request in its answer; whatever shows our values shows neither that nor the account."""
    exchange = Exchange(200, {}, body("first"), 1, 0.1, None)
    assert ACCOUNT.encode() in exchange.body
    assert ACCOUNT not in repr(exchange) + repr(Secrets(ACCOUNT, (KEY,)))
    assert KEY not in repr(Secrets(ACCOUNT, (KEY,)))


DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(("text", "seconds"), [
    ("2", 2.0), (" 2 ", 2.0), ("0", 0.0), ("0.5", 0.5), ("999999999999", 999_999_999_999.0), ("9" * 5000, None),
    ("-5", None), ("+5", None), ("soon", None), ("", None), ("5, 10", None), ("1e3", None), ("nan", None),
    ("\u0665", None), ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0), ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
    ("Sun Nov  6 08:49:47 1994", 10.0), ("Sun, 06 Nov 1994 08:49:27 GMT", 0.0),
    ("Sun, 99 Nov 1994 08:49:27 GMT", None), ("Sun, 06 Nov 99999999 08:49:27 GMT", None),
    (f"Sun, 06 Nov 1994 08:49:47 GMT ({20 * 'x'})", None),
])  # fmt: skip
def test_retry_after(text: str, seconds: float | None) -> None:
    """Seconds and dates (against the answer's own date) are understood, nonsense is not a time at all."""
    pace = read_pace(429, {"retry-after": text, "date": DATE})
    assert pace == Pace(retry_after_s=seconds, refused=True)


def test_a_date_without_the_answers_own_counts_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that sends no Date: its refusal could not be judged, so that a row that was not paid was in doubt."""
    monkeypatch.setattr("time.time", lambda: 784_111_777.0)
    assert read_pace(429, {"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT"}) == Pace(retry_after_s=10.0, refused=True)


@pytest.mark.parametrize(("headers", "pace"), [
    ({}, None),
    ({"ratelimit-policy": '"default";q=100;w=60', "ratelimit": '"default";r=50;t=30'}, Pace(None, 100, 60, 50, 30)),
    ({"ratelimit-policy": "100;w=60"}, Pace(None, 100, 60)),
    ({"ratelimit-policy": '100;w=60;comment="at most q=5"'}, Pace(None, 100, 60)),
    ({"ratelimit": "limit=100, remaining=5, reset=7"}, Pace(None, 100, None, 5, 7)),
    ({"ratelimit-policy": '"a";q=10;w=1, "b";q=1000;w=3600'}, Pace(None, 10, 1)),
    ({"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, Pace(None, 100, None, 0, 9)),
    ({"x-ratelimit-limit": "100", "x-ratelimit-reset": "1800000010", "date": "Fri, 15 Jan 2027 08:00:00 GMT"},
     Pace(None, 100, None, None, 10)),
    ({"ratelimit-limit": "many", "x-ratelimit-remaining": "-3", "ratelimit-reset": ""}, Pace()),
    ({"ratelimit-policy": "q=0;w=0"}, Pace()),
    ({"ratelimit-policy": "w=60", "x-ratelimit-limit": "0"}, Pace(window_s=60)),
])  # fmt: skip
def test_announced_limits(headers: dict[str, str], pace: Pace | None) -> None:
    """RateLimit in its later and earlier shape and X-RateLimit are read; what makes no sense is left out."""
    assert read_pace(200, headers) == pace


def test_refusals() -> None:
    """429 is a refusal for pace's sake, 503 only with Retry-After."""
    assert read_pace(429, {}) == Pace(refused=True)
    assert read_pace(503, {}) is None
    assert read_pace(503, {"retry-after": "1"}) == Pace(1.0, refused=True)
    assert read_pace(500, {"retry-after": "1"}) == Pace(1.0)
