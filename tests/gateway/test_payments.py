"""What an answer proves when all else fails: our own fault, and a payment without an invoice number."""

from __future__ import annotations

import json

import pytest

from batchpay.gateway.answer import Secrets
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
