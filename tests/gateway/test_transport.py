"""The exchange with the gateway over real sockets: order, proof, kept connections, secrets, the connection test."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests
import requests.exceptions
import trustme
from requests.structures import CaseInsensitiveDict

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.connection import Connection, Connector
from batchpay.gateway.payments import PaymentsClient
from batchpay.gateway.transport import (
    PERMISSION_S,
    TOO_OLD,
    UNASKED_ANSWER,
    GatewaySession,
    ProvenRequest,
    SendProof,
    Transport,
    since_boot_s,
)
from batchpay.gateway.wire import header_block
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.settings import GatewaySettings
from tests.support.fault_client import (
    ACCOUNT,
    CREDENTIALS,
    GOOD,
    GOOD_TLS,
    KEY,
    ROUTING,
    body,
    client_of,
    nothing,
    settings_for,
)
from tests.support.fault_server import Conversation, Fault, FaultServer, answer, success

# What is sent


def test_request_on_the_wire() -> None:
    """A payment goes as POST with the documented headers, identity encoding and the body to the letter."""
    with FaultServer(GOOD) as server, client_of(server, service_header="BRAND") as client:
        outcome = client.pay(body(), nothing)
        lines = server.heads[0].decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert lines[0] == "POST /v2/api/payment.json HTTP/1.1"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert headers["Content-Type"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Connection"] == "keep-alive"
    assert (headers["BRAND-API-ID"], headers["BRAND-API-KEY"]) == ("api-id", KEY)
    assert headers["Content-Length"] == str(len(body()))
    assert not {"Cookie", "Authorization", "Expect"} & set(headers)
    assert outcome.bytes_sent == len(server.heads[0]) + 4 + len(body()) == server.request_bytes


def test_before_first_byte_comes_before_any_byte() -> None:
    """When the ledger's commit is asked for, a connection stands and the gateway has not one byte."""
    with FaultServer(GOOD) as server, client_of(server) as client:
        seen: list[tuple[int, int]] = []

        def look() -> None:
            server.wait_for_connections(1)
            seen.append((server.connections, server.request_bytes))

        assert client.pay(body(), look).state is State.ACCEPTED
    assert seen == [(1, 0)]


def test_refused_commit_sends_nothing() -> None:
    """What the commit raises goes on as it is, nothing is sent, and the connection serves the next payment."""
    with FaultServer(GOOD) as server, client_of(server) as client:
        for error in (LookupError("not granted"), TimeoutError(), ConnectionResetError(), KeyboardInterrupt()):

            def fail(error: BaseException = error) -> None:
                raise error

            with pytest.raises(type(error)) as caught:
                client.pay(body(), fail)
            assert caught.value is error
        assert server.request_bytes == 0
        assert client.pay(body(), nothing).state is State.ACCEPTED
        assert (server.connections, server.bodies["one"]) == (1, 1)


def test_an_old_permission_sends_nothing() -> None:
    """It is looked at after everything else, on a clock that counts a machine's sleep too; the next payment goes."""
    with FaultServer(GOOD) as server, client_of(server) as client:
        late = client.pay(body("late"), since_boot_s)
        assert (late.state, late.bytes_sent, late.reason) == (State.PENDING, 0, TOO_OLD)
        assert client.pay(body("in time"), lambda: since_boot_s() + PERMISSION_S).state is State.ACCEPTED
    assert server.bodies == {"in time": 1}


def test_a_deadline_that_passes_during_the_commit_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that takes longer than a request may: nothing has left, so the row is sent again and not in doubt."""
    now_s, clock = 0.0, time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: clock() + now_s)

    def commit() -> None:
        nonlocal now_s
        now_s = 60.0

    with FaultServer(GOOD) as server, client_of(server) as client:
        late = client.pay(body("late"), commit)
        assert (late.state, late.bytes_sent, late.reason) == (State.PENDING, 0, "no answer in time")
        assert client.pay(body("in time"), nothing).state is State.ACCEPTED
    assert server.bodies == {"in time": 1}


def test_a_request_that_leaves_in_parts_is_counted_as_what_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much left is what a person asks about a row in doubt; the server has every byte, and none twice."""
    send = Connection.send
    monkeypatch.setattr(Connection, "send", lambda self, data, deadline: send(self, data[:100], deadline))
    with FaultServer(GOOD) as server, client_of(server) as client:
        outcome = client.pay(body(), nothing)
    assert (outcome.state, server.bodies) == (State.ACCEPTED, {"one": 1})
    assert outcome.bytes_sent == server.request_bytes


def test_ctrl_c_during_an_exchange_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row goes from the main thread, where Ctrl-C is raised: taken for a failure, the run went on."""

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    with FaultServer(GOOD) as server, client_of(server) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.pay(body("a"), nothing)
        assert client.pay(body("b"), nothing).answer.gateway_reference == "T-b"
        assert server.connections == 2, "the answer to the first may still come over the other"


# Connections


def test_connection_is_kept_for_each_thread() -> None:
    """Payments of one thread share a connection; threads do not share theirs, and get their own answers."""
    with FaultServer(GOOD) as server, client_of(server) as client:
        wrong: list[Outcome] = []

        def work(name: str) -> None:
            for number in range(20):
                invoice = f"{name}-{number}"
                outcome = client.pay(body(invoice), nothing)
                if outcome.answer.gateway_reference != f"T-{invoice}":
                    wrong.append(outcome)

        threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert server.connections == 8
    assert set(server.bodies.values()) == {1}
    assert len(server.bodies) == 160


@pytest.mark.parametrize(("settings", "said", "connections"), [
    ({}, "X: y", 1), ({"idle_s": 0.0}, "X: y", 2), ({}, "Connection: close", 2), ({"keep_alive": False}, "X: y", 2),
])  # fmt: skip
def test_which_connections_are_used_again(
    settings: dict[str, Any], said: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that rested is, if nothing came: a new one costs three trips to the gateway.

    One that was idle for longer than gateway.idle_s is not, nor one whose end was announced: a payment that has just
    left over it would be in doubt for nothing. With gateway.keep_alive = false none is, and each request says so.
    """
    monkeypatch.setattr("batchpay.gateway.transport._STEADY_S", 0.0)
    fault = Fault(frozenset(), on_request=lambda talk: talk.write(success(f"T-{talk.invoice}", said)))
    with FaultServer(fault) as server, client_of(server, **settings) as client:
        for invoice in "ab":
            assert client.pay(body(invoice), nothing).answer.gateway_reference == f"T-{invoice}"
        assert server.connections == connections
    asked = [b"\r\nConnection: close" in head for head in server.heads]
    assert asked == [not settings.get("keep_alive", True)] * 2


def test_a_gateway_that_speaks_first_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of another service, which greets: found before the ledger is asked, so that the row is not in doubt."""
    connect = Connector.open

    def greeted(connector: Connector, deadline: float) -> Connection:
        connection = connect(connector, deadline)
        assert select.select([connection._socket], [], [], 5)[0]
        return connection

    def greet(conversation: Conversation) -> None:
        conversation.write(b"220 mail.example ESMTP\r\n")
        conversation.hang()

    monkeypatch.setattr(Connector, "open", greeted)
    asked: list[str] = []
    with FaultServer(Fault(frozenset(), on_connect=greet)) as server, client_of(server) as client:
        outcome = client.pay(body(), lambda: asked.append("commit"))
    assert (outcome.state, outcome.bytes_sent, asked, server.request_bytes) == (State.PENDING, 0, [], 0)
    assert outcome.reason == f"{server.base_url} sent data before the request, or closed the connection"


@contextlib.contextmanager
def answering_twice(late: bytes | None, tls: str | None, authority: trustme.CA) -> Iterator[tuple[FaultServer, Late]]:
    """Answer the first request and, while the next row is being committed, send more or close."""
    released, ended = threading.Event(), threading.Event()

    def answer_and_more(conversation: Conversation) -> None:
        conversation.write(success(f"T-{conversation.invoice}"))
        released.wait(5)
        if late is None:
            conversation.socket.close()
        else:
            conversation.write(late)
        ended.set()

    fault = Fault(frozenset({State.ACCEPTED}), on_request=answer_and_more, tls=tls)
    with FaultServer(fault, authority) as server:
        yield server, Late(released, ended)


class Late:
    """What the server is told, and what it tells."""

    def __init__(self, released: threading.Event, ended: threading.Event) -> None:
        self._released, self._ended = released, ended

    def go_on(self) -> None:
        """Let the server do what comes late, and wait until it has."""
        self._released.set()
        assert self._ended.wait(5)


@pytest.mark.parametrize("late", [None, b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
@pytest.mark.parametrize("tls", [None, "good"])
def test_connection_that_has_ended_is_not_used_again(
    late: bytes | None, tls: str | None, authority: trustme.CA, bundle: str
) -> None:
    """A kept connection that has ended, or was given up with a 408, is replaced: the next row loses nothing by it."""
    with answering_twice(late, tls, authority) as (server, event), client_of(server, ca_bundle=bundle) as client:
        assert client.pay(body("a"), nothing).answer.gateway_reference == "T-a"
        server.armed = False
        assert client.pay(body("b"), event.go_on).answer.gateway_reference == "T-b"
        assert (server.connections, server.bodies) == (2, {"a": 1, "b": 1})


@pytest.mark.parametrize("late", [success("T-late"), b"x"])
@pytest.mark.parametrize("tls", [None, "good"])
def test_gateway_that_answers_twice_proves_nothing_for_the_next_row(
    late: bytes, tls: str | None, authority: trustme.CA, bundle: str
) -> None:
    """An answer that nobody asked for ends its connection and leaves the next row in doubt; the one after is proven.

    A proxy that answered one request twice gave every later payment the answer of the payment before it.
    """
    with answering_twice(late, tls, authority) as (server, event), client_of(server, ca_bundle=bundle) as client:
        assert client.pay(body("a"), nothing).answer.gateway_reference == "T-a"
        server.armed = False
        outcome = client.pay(body("b"), event.go_on)
        assert (outcome.state, outcome.reason) == (State.IN_DOUBT, UNASKED_ANSWER)
        assert client.pay(body("c"), nothing).answer.gateway_reference == "T-c"
        assert (server.connections, server.bodies) == (3, {"a": 1, "b": 1, "c": 1})


def test_answer_with_another_right_behind_it_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two answers to one request leave it in doubt also where the first one fills what was read; the next is proven."""
    monkeypatch.setattr("batchpay.gateway.connection.RECEIVE_BYTES", len(success("T-x")))
    twice = Fault(frozenset(), on_request=lambda conversation: conversation.write(success("T-x") * 2))
    with FaultServer(twice) as server, client_of(server) as client:
        assert client.pay(body("a"), nothing).reason == UNASKED_ANSWER
        server.armed = False
        assert client.pay(body("b"), nothing).answer.gateway_reference == "T-b"


def test_answer_that_comes_twice_while_idle_counts_too() -> None:
    """The second answer is seen as well when the connection is given up because it was idle for too long."""
    sent = threading.Event()

    def answer_twice(conversation: Conversation) -> None:
        conversation.write(success("T-a"))
        sent.wait(5)
        conversation.write(success("T-a"))

    with FaultServer(Fault(frozenset(), on_request=answer_twice)) as server, client_of(server, idle_s=0.0) as client:
        assert client.pay(body("a"), nothing).state is State.ACCEPTED
        sent.set()
        deadline = time.monotonic() + 5
        while server.armed and time.monotonic() < deadline:  # until the second answer is there
            server.armed = not select.select([client_socket(client)], [], [], 0.01)[0]
        assert client.pay(body("b"), nothing).reason == UNASKED_ANSWER


def client_socket(client: PaymentsClient) -> socket.socket:
    """The one connection that a client keeps."""
    (connection,) = client._channel._transport._connections
    return connection._socket


@pytest.mark.parametrize(("ends_after", "keeps"), [(1, False), (2, True)])
def test_a_gateway_that_ends_connections_unannounced_gets_a_new_one_each_time(*, ends_after: int, keeps: bool) -> None:
    """One that answered and hung up: 9 of 170 rows left just then, were in doubt for nothing, and the run stopped."""
    go_on, ended = threading.Event(), threading.Event()

    def answer_and_end(conversation: Conversation) -> None:
        conversation.write(success("T-a"))
        if sum(server.bodies.values()) == ends_after:
            go_on.wait(5)
            conversation.socket.close()
            ended.set()

    def commit() -> None:
        go_on.set()
        assert ended.wait(5)

    with FaultServer(Fault(frozenset(), on_request=answer_and_end)) as server, client_of(server) as client:
        for number in range(ends_after):
            assert client.pay(body(f"{number}"), nothing).state is State.ACCEPTED
        assert client.pay(body("b"), commit).state is State.ACCEPTED
        assert bool(client._channel._transport._connections) is keeps
    assert set(server.bodies.values()) == {1}


def once_a_connection() -> Fault:
    """Make the fault of a gateway that answers one request of a connection, and ends it when the second comes."""
    answered: list[socket.socket] = []

    def answer_once(conversation: Conversation) -> None:
        if conversation.socket in answered:
            conversation.socket.close()
        else:
            answered.append(conversation.socket)
            conversation.write(success("T-a"))

    return Fault(frozenset(), on_request=answer_once)


def test_a_gateway_that_ends_a_connection_as_its_second_request_leaves_does_so_once() -> None:
    """Its close came too late to be seen before the request left: every second row was in doubt until a run stopped."""
    with FaultServer(once_a_connection()) as server, client_of(server) as client:
        states = [client.pay(body(invoice), nothing).state for invoice in "abcdef"]
        assert server.connections == 5
    assert states == [State.ACCEPTED, State.IN_DOUBT, *4 * [State.ACCEPTED]]
    assert set(server.bodies.values()) == {1}


def test_what_one_thread_finds_of_a_gateway_that_ends_connections_holds_for_all() -> None:
    """Each of 64 workers had to learn it by itself, with a row in doubt each; a new connection is used all the same."""
    with FaultServer(once_a_connection()) as server, client_of(server) as client:
        assert client.pay(body("a"), nothing).state is State.ACCEPTED
        states: list[State] = []
        other = threading.Thread(target=lambda: states.extend(client.pay(body(each), nothing).state for each in "bcd"))
        other.start()
        other.join()
        assert states == [State.ACCEPTED, State.IN_DOUBT, State.ACCEPTED]
        assert [client.pay(body(each), nothing).state for each in "ef"] == [State.ACCEPTED] * 2
        assert server.connections == 5


@pytest.mark.parametrize("cut", ["while idle", "in an answer"])
def test_a_connection_that_ends_otherwise_is_no_reason_to_keep_none(cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end after a rest, as every gateway makes one, or in the middle of an answer: connections are worth keeping."""
    monkeypatch.setattr("batchpay.gateway.transport._STEADY_S", 0.0 if cut == "while idle" else 1.0)
    half = success("T-b")[:-5] if cut == "in an answer" else b""

    def end(conversation: Conversation) -> None:
        if conversation.invoice == "b":
            conversation.write(half)
            conversation.socket.close()
        else:
            conversation.write(success("T-x"))

    with FaultServer(Fault(frozenset(), on_request=end)) as server, client_of(server) as client:
        assert [client.pay(body(each), nothing).state is State.ACCEPTED for each in "abcd"] == [True, False, True, True]
        assert server.connections == 2


@pytest.mark.parametrize("tls", [None, "good"])
def test_close_ends_connections_of_all_threads(tls: str | None, authority: trustme.CA, bundle: str) -> None:
    """Closing the client ends a wait of another thread: in doubt, since bytes had left."""
    arrived = threading.Event()

    def hang(conversation: Conversation) -> None:
        arrived.set()
        conversation.hang()

    outcomes: list[Outcome] = []
    fault = Fault(frozenset(), on_request=hang, tls=tls)
    with FaultServer(fault, authority) as server, client_of(server, timeout=30, ca_bundle=bundle) as client:
        thread = threading.Thread(target=lambda: outcomes.append(client.pay(body(), nothing)))
        thread.start()
        assert arrived.wait(5)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
    assert outcomes[0].state is State.IN_DOUBT


def test_cookies_are_not_kept() -> None:
    """A cookie that the gateway sets does not come back."""
    setting = Fault(frozenset(), on_request=lambda conversation: conversation.write(success("T", "Set-Cookie: a=b")))
    with FaultServer(setting) as server, client_of(server) as client:
        client.pay(body("a"), nothing)
        client.pay(body("b"), nothing)
    assert not any(b"ookie" in head for head in server.heads)


def request_for(url: str, body: bytes) -> requests.PreparedRequest:
    """A prepared request as nobody but a mistake of ours would make it: requests itself refuses some of these URLs."""
    request = requests.PreparedRequest()
    request.method, request.url, request.body = "POST", url, body
    request.headers = CaseInsensitiveDict()
    return request


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", b"", None), ("GET", b"abc", b"3"), ("POST", b"", b"0"), ("POST", b"abc", b"3")],
)
def test_a_request_says_where_it_ends(method: str, body: bytes, length: bytes | None) -> None:
    """A body without its length would be read as the next request; a look-up has none, and some servers refuse one."""
    transport = Transport(GatewaySettings(base_url="http://127.0.0.1:1"), {})
    request = request_for("http://127.0.0.1:1/v2", body)
    request.method = method
    head, _, rest = bytes(transport._message(request)).partition(b"\r\n\r\n")
    lengths = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    assert (lengths, rest) == ([] if length is None else [length], body)


def test_request_for_another_origin_is_refused() -> None:
    """The adapter writes nothing for a URL outside its origin, however alike."""
    with FaultServer(GOOD) as server:
        transport = Transport(settings_for(server), {})
        session = GatewaySession(transport)
        assert list(session.adapters.values()) == [transport], "requests' own adapters are gone"
        for url in (
            f"{server.base_url}0/x",
            f"{server.base_url}.evil/x",
            "http://127.0.0.2/x",
            f"{server.base_url}@evil/",
            f"{server.base_url.replace('127.0.0.1', '127.0.0.2')}/x",
        ):
            with pytest.raises(ValueError, match=r"another place|a path must begin"):
                transport.send(request_for(url, b""))
            with pytest.raises((ValueError, requests.exceptions.InvalidSchema)):
                session.send(request_for(url, b""))
        assert server.request_bytes == 0


@pytest.mark.parametrize("changes", [
    {"service_header": "A B"}, {"service_header": "A\r\nX: y"}, {"payment_path": "v2"}, {"payment_path": "/v2 x"},
    {"payment_path": "/v2\r\nX: y"}, {"ca_bundle": "/nowhere/at-all.pem", "base_url": "https://gateway.example"},
    {"proxy": "socks5://a"}, {"base_url": "http://gateway.example"},
])  # fmt: skip
def test_unusable_settings_are_refused_before_anything(changes: dict[str, str]) -> None:
    """Settings that can't stand on the wire are refused when the client is made."""
    with pytest.raises(SettingsNotUsable):
        PaymentsClient(GatewaySettings(**{"base_url": "http://127.0.0.1:1", **changes}), CREDENTIALS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", ["id\r\nX-Injected: 1", "id\nX: 1", "id\r", "id\x00", "id\x7f", "\u0130d", " id", "id\t"]
)
def test_header_values_are_checked_one_by_one(value: str) -> None:
    """A line break in gateway.api_id made a header of its own; a space before it was an internal error."""
    with pytest.raises(SettingsNotUsable, match=r"gateway\.api_id"):
        PaymentsClient(GatewaySettings(base_url="http://127.0.0.1:1"), replace(CREDENTIALS, api_id=value))
    with pytest.raises(ValueError, match="not allowed in a header"):
        header_block([("X", value)])
    with pytest.raises(ValueError, match="not allowed in a header"):
        header_block([(value, "x")])


# Secrets


def locals_shown(error: BaseException) -> str:
    """A traceback's text, and the variables of the gateway's own frames as a debugging tool would print them."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [str(frame.locals) for frame in shown.stack if "/batchpay/gateway/" in frame.filename]
    assert frames
    return "\n".join([*frames, *shown.format_exception_only(), *map(str, (error.__cause__, error.args))])


def test_no_secret_shows_anywhere(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither key nor account is in a repr, a log, an outcome or a traceback with the values of its variables."""
    caplog.set_level(logging.DEBUG)
    repeating = json.dumps({"status": "declined", "message": f"{ACCOUNT} {ROUTING} {KEY}", "id": ACCOUNT}).encode()
    shown: list[str] = []

    def fail() -> None:
        raise LookupError

    def act(conversation: Conversation) -> None:
        conversation.write(answer("200 OK", repeating))
        conversation.socket.close()

    with FaultServer(Fault(frozenset(), on_request=act)) as server:
        with client_of(server) as client:
            shown += [repr(client.pay(body(), nothing)), repr(client), repr(vars(client))]
        transport = Transport(settings_for(server), {"SERVICE-API-KEY": CREDENTIALS.api_key})
        with contextlib.closing(transport):
            for proof in (SendProof(fail), SendProof()):
                server.fault = Fault(frozenset(), on_request=lambda conversation: conversation.socket.close())
                session = GatewaySession(transport)
                request = ProvenRequest.prepared(request_for(f"{server.base_url}/x", b""), None).copy_for(body(), proof)
                shown += [repr(item) for item in (transport, vars(transport), session, vars(session), request, proof)]
                with pytest.raises((LookupError, requests.ConnectionError)) as caught:
                    session.send(request)
                shown.append(locals_shown(caught.value))
    shown += [caplog.text, *capfd.readouterr()]
    for secret in (ACCOUNT, ROUTING, KEY):
        assert secret not in "\n".join(shown)
    assert "****4444 ****6780 ****nary" in shown[0]


# The test of the connection


@pytest.mark.parametrize(("reply", "ok", "words"), [
    (success(), True, None),
    (answer("200 OK", b'{"status":"success","successMessage":{"message":"Connection Success"}}'), True, None),
    (answer("401 Unauthorized", b"{}"), False, "refuses the id or the key"),
    (answer("403 Forbidden", b"{}"), False, "refuses the id or the key"),
    (answer("404 Not Found", b""), False, "is gateway.base_url correct"),
    (answer("301 Moved", b"", "Location: https://evil.example/"), False, "redirects"),
    (answer("429 Slow Down", b""), False, "busy"),
    (answer("200 OK", b'{"status":"error","message":"no"}'), False, "refused"),
    (answer("200 OK", b"<html>"), False, "not recognized"), (answer("500 Oh", b""), False, "not recognized"),
    (b"HTTP/1.1 200 OK\r\n", False, "closed before the answer was complete"),
])  # fmt: skip
def test_connection_report(reply: bytes, ok: bool, words: str | None) -> None:
    """The report says in plain words whether the gateway knows us, and what is wrong if not."""

    def act(conversation: Conversation) -> None:
        conversation.write(reply)
        conversation.socket.close()

    with FaultServer(Fault(frozenset(), on_request=act)) as server, client_of(server) as client:
        began = time.monotonic()
        report = client.test_connection()
        assert 0 <= report.elapsed_s <= time.monotonic() - began
        assert server.heads[0].startswith(b"POST /v2/api/connection.json HTTP/1.1\r\n")
        assert b"Content-Length: 0" in server.heads[0]
    assert (report.ok, report.origin, report.tls) == (ok, server.base_url, None)
    assert (report.problem is None) is (words is None)
    assert words is None or words in (report.problem or "")


def test_connection_report_over_tls(authority: trustme.CA, bundle: str) -> None:
    """Over TLS the report names its version; without a trusted certificate it says so."""
    with FaultServer(GOOD_TLS, authority) as server:
        with client_of(server, ca_bundle=bundle) as client:
            report = client.test_connection()
            assert (report.ok, report.tls) == (True, "TLSv1.3")
        with client_of(server) as client:
            report = client.test_connection()
            assert (report.ok, report.http_status) == (False, None)
            assert "certificate is not trusted" in (report.problem or "")
