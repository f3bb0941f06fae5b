"""What an answer proves when all else fails: our own fault, and a payment without an invoice number."""

from __future__ import annotations

import json

import pytest

from batchpay.gateway.profile import Profile
from batchpay.payment import Answer, State
from tests.support.fault_client import ACCOUNT, GOOD, body, client_of, nothing
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
