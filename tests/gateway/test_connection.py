"""A connection by itself: whether a kept one is still good, and that nothing outlasts its deadline."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
import threading
import time
from typing import Any

import pytest
import requests

from batchpay.gateway.channel import Channel
from batchpay.gateway.connection import Connection, Connector, ExchangeFailed, problem_of
from batchpay.gateway.origin import check_origin
from batchpay.settings import GatewaySettings


def test_a_connection_that_was_reset_is_not_quiet() -> None:
    """A payment sent over it would be in doubt, where a new connection pays it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = Connection(socket.create_connection(listener.getsockname()))
        other, _ = listener.accept()
        assert kept.is_quiet()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        assert not kept.is_quiet()
        kept.close()


class _Full(socket.socket):
    """A socket whose buffer has no room at once; notes how long a write may wait."""

    waits_s: float | None = None

    def send(self, data: Any, flags: int = 0) -> int:
        if flags & socket.MSG_DONTWAIT:
            raise BlockingIOError
        self.waits_s = self.gettimeout()
        return len(data)


def test_a_write_that_waits_for_room_ends_at_the_deadline() -> None:
    """A gateway that reads nothing held up its worker for ever, and with it the end of the run."""
    with _Full() as full:
        assert Connection(full).send(memoryview(b"x"), time.monotonic() + 100) == 1
        assert full.waits_s is not None and 0 < full.waits_s <= 100
        with pytest.raises(TimeoutError):
            Connection(full).send(memoryview(b"x"), time.monotonic() - 1)


class _Late(socket.socket):
    """A socket on which a read comes back with nothing, so many times."""

    empty_reads = 3

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.empty_reads -= 1
        if self.empty_reads >= 0:
            raise BlockingIOError
        return b"answer"


def test_a_read_goes_on_until_the_deadline_and_no_longer() -> None:
    """A read waits a second at most, a gateway may take half a minute: what comes late is an answer all the same."""
    with _Late() as late:
        assert Connection(late).receive(time.monotonic() + 100) == b"answer"
    near, far = socket.socketpair()
    with near, far, pytest.raises(TimeoutError):
        Connection(near).receive(time.monotonic() + 0.01)


def test_an_answer_has_the_requests_time_and_not_what_was_left_for_connecting() -> None:
    """With the time for connecting still on the socket, a gateway that thinks longer left every payment in doubt."""
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(0.001)
        connection = Connection(near)
        threading.Timer(0.05, far.sendall, (b"answer",)).start()
        assert connection.receive(time.monotonic() + 100) == b"answer"


class _Woken(socket.socket):
    """A socket that seems to have something to read, and has nothing: a packet that was damaged on its way."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        raise BlockingIOError


def test_a_connection_on_which_nothing_came_is_kept() -> None:
    """A new connection for nothing costs a payment three trips to the gateway."""
    near, far = socket.socketpair()
    with _Woken(fileno=near.detach()) as woken, far:
        far.sendall(b"x")
        assert Connection(woken).is_quiet()


def test_the_next_address_is_asked_where_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gateway's two addresses one is down: payments go to the other, each at once (no delay for company)."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = closed.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in (down, listener.getsockname())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        settings = GatewaySettings(base_url="http://localhost:9")
        connection = Connector(check_origin(settings.base_url), settings).open(time.monotonic() + 100)
        accepted, _ = listener.accept()
        with accepted:
            assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            connection.close()


def _tls_failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL] 7700012345")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network is unreachable"),
        (TimeoutError(), "no answer in time"),
        (_tls_failure("WRONG_VERSION_NUMBER"), "TLS failed (WRONG_VERSION_NUMBER)"),
        (requests.ConnectionError("POST of 7700012345"), "it failed (ConnectionError)"),
        (ValueError("7700012345"), "it failed (ValueError)"),
    ],
)
def test_a_problem_is_told_in_words_of_ours(error: Exception, words: str) -> None:
    """What a person does next depends on it; the text of a foreign exception may quote the request."""
    assert problem_of(error) == words


def test_a_look_up_that_hangs_keeps_no_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's look-up knows no deadline: the run goes on without it, and may end before it does."""
    go_on = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go_on.wait(30) and [])
    settings = GatewaySettings(base_url="https://pay.example.com")
    connector = Connector(check_origin(settings.base_url), settings)
    with (
        monkeypatch.context() as patch,
        pytest.raises(ExchangeFailed, match=r"pay\.example\.com was not looked up in time"),
    ):
        patch.setattr("time.monotonic", lambda: 100.0)  # on a busy machine the time is over before it begins
        connector.open(100.05)
    (hangs,) = [thread for thread in threading.enumerate() if thread.name == "batchpay-lookup"]
    assert hangs.daemon
    go_on.set()
    hangs.join(30)


def test_a_name_that_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the look-up fails or finds nothing; the time that it took is told as well."""

    def unknown(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "canary")

    def nothing(*_: object, **__: object) -> list[Any]:
        return []

    for look_up in (unknown, nothing):
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        channel = Channel(GatewaySettings(base_url="https://pay.example.com"), {}, {})
        exchange = channel.exchange("POST", "/")
        assert exchange.problem == ("no connection to https://pay.example.com: the name pay.example.com was not found")
        assert (exchange.http_status, exchange.bytes_sent) == (None, 0)
        assert 0 <= exchange.elapsed_s < 60
        channel.close()
