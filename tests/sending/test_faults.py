"""Every kind of fault, once: judged right, sent once at most, nothing to another origin, over in time."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trustme

from batchpay.gateway.payments import PaymentsClient
from batchpay.outcome import Outcome
from batchpay.payment import State
from tests.support.fault_client import CREDENTIALS, body, settings_for
from tests.support.fault_kinds import FAULTS
from tests.support.fault_server import Conversation, Fault, FaultServer, answer, success

TIMEOUT_S = 0.4


@pytest.fixture
def connect(bundle: str) -> Iterator[Callable[[FaultServer], PaymentsClient]]:
    """Clients with a short deadline, closed at the end."""
    clients: list[PaymentsClient] = []

    def make(server: FaultServer) -> PaymentsClient:
        settings = settings_for(server, timeout=TIMEOUT_S, connect_timeout=TIMEOUT_S, ca_bundle=bundle)
        clients.append(PaymentsClient(settings, CREDENTIALS))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def second_origin() -> Iterator[socket.socket]:
    """Another server, which must never be spoken to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def judge(outcome: Outcome, server: FaultServer, invoice: str) -> None:
    """What must hold after every attempt, whatever the fault."""
    assert server.bodies[invoice] <= 1, "a payment was sent twice"
    if outcome.state is State.PENDING and outcome.answer.http_status is None:
        assert outcome.bytes_sent == 0
        assert server.bodies[invoice] == 0, "a payment that arrived was called not sent"
    if outcome.state is State.ACCEPTED:
        assert server.bodies[invoice] == 1


@pytest.mark.parametrize("name", FAULTS)
def test_fault(
    name: str,
    authority: trustme.CA,
    connect: Callable[[FaultServer], PaymentsClient],
    second_origin: socket.socket,
) -> None:
    """Each kind of fault leads to the state that it proves, in time, and the next payment is not touched by it."""
    fault = FAULTS[name]
    with FaultServer(fault, authority) as server:
        server.second_port = second_origin.getsockname()[1]
        client = connect(server)
        begun: list[int] = []
        started = time.monotonic()
        outcome = client.pay(body("first"), lambda: begun.append(1))
        elapsed_s = time.monotonic() - started
        assert outcome.state in fault.states, outcome
        if fault.stop is not None:
            assert (outcome.stop is not None) is fault.stop, outcome
        assert elapsed_s < TIMEOUT_S + 0.5
        assert len(begun) <= 1
        judge(outcome, server, "first")
        if not fault.reaches:
            assert not begun
            assert server.request_bytes == 0
            return
        if fault.lasts:
            return
        server.armed = False
        following = client.pay(body("following"), lambda: None)
        assert following.state is State.ACCEPTED, following
        assert following.answer.gateway_reference == "T-following"
        judge(following, server, "following")
        assert server.bodies["first"] <= 1


def test_answer_cut_at_every_byte(connect: Callable[[FaultServer], PaymentsClient]) -> None:
    """An answer cut anywhere leaves the payment in doubt."""
    whole = success("T-1", "Content-Type: application/json")
    cut = iter(range(len(whole)))

    def write_part(conversation: Conversation) -> None:
        conversation.write(whole[: next(cut)])
        conversation.socket.close()

    with FaultServer(Fault(frozenset({State.IN_DOUBT}), on_request=write_part)) as server:
        client = connect(server)
        for number in range(len(whole)):
            outcome = client.pay(body(f"cut-{number}"), lambda: None)
            assert outcome.state is State.IN_DOUBT, (number, outcome)
            judge(outcome, server, f"cut-{number}")


def test_memory_stays_bounded(connect: Callable[[FaultServer], PaymentsClient]) -> None:
    """Answers without end take no memory worth naming: under 16 MiB for all of them together."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in (name for name in FAULTS if name.startswith("endless") or name in ("packed_bomb", "interim_storm")):
        with FaultServer(FAULTS[name]) as server:
            assert connect(server).pay(body(name), lambda: None).state is State.IN_DOUBT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024


def test_answers_swapped_between_connections(connect: Callable[[FaultServer], PaymentsClient]) -> None:
    """Two payments under way whose answers are swapped are both in doubt, since each answer names the other."""
    both = threading.Barrier(2, timeout=5)
    others = {"one": "two", "two": "one"}

    def answer_for_the_other(conversation: Conversation) -> None:
        both.wait()
        said = {"status": "success", "payment": {"invoiceNumber": others[conversation.invoice]}}
        conversation.write(answer("200 OK", json.dumps(said).encode()))

    outcomes: dict[str, Outcome] = {}
    with FaultServer(Fault(frozenset({State.IN_DOUBT}), on_request=answer_for_the_other)) as server:
        client = connect(server)
        threads = [
            threading.Thread(target=lambda name=name: outcomes.update({name: client.pay(body(name), lambda: None)}))
            for name in others
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {outcome.state for outcome in outcomes.values()} == {State.IN_DOUBT}
    assert {outcome.reason for outcome in outcomes.values()} == {"the answer names another invoiceNumber"}
