"""A connection by itself: where it may go, whether a kept one is still good, and that nothing outlasts its deadline."""

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

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.channel import Channel
from batchpay.gateway.connection import Connection, Connector, ExchangeFailed, problem_of
from batchpay.gateway.origin import check_origin, check_proxy, environment_of, is_loopback, is_rehearsal
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


@pytest.mark.parametrize(("error", "words"), [
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused"),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), "network is unreachable"),
    (TimeoutError(), "no answer in time"), (_tls_failure("WRONG_VERSION_NUMBER"), "TLS failed (WRONG_VERSION_NUMBER)"),
    (requests.ConnectionError("POST of 7700012345"), "it failed (ConnectionError)"),
    (ValueError("7700012345"), "it failed (ValueError)"),
])  # fmt: skip
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


@pytest.mark.parametrize(("base_url", "shown", "authority"), [
    ("https://gateway.example", "https://gateway.example", "gateway.example"),
    ("https://gateway.example/", "https://gateway.example", "gateway.example"),
    ("https://gateway.example:443", "https://gateway.example", "gateway.example"),
    ("https://GATEWAY.example:8443", "https://gateway.example:8443", "gateway.example:8443"),
    ("https://192.0.2.7", "https://192.0.2.7", "192.0.2.7"),
    ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", "[2001:db8::1]:8443"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080"),
    ("http://127.9.8.7", "http://127.9.8.7", "127.9.8.7"), ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
    ("http://localhost:8080", "http://localhost:8080", "localhost:8080"),
])  # fmt: skip
def test_usable_origins(base_url: str, shown: str, authority: str) -> None:
    """An https origin may be anywhere, an http one only on this machine."""
    origin = check_origin(base_url)
    assert (str(origin), origin.authority) == (shown, authority)


@pytest.mark.parametrize("base_url", [
    "", "gateway.example", "//gateway.example", "ftp://gateway.example", "file:///etc/passwd",
    "http://gateway.example", "http://192.168.0.1", "http://localhost.example", "http://localhost.",
    "http://127.0.0.1.example", "http://127.1", "http://2130706433", "http://0x7f000001", "http://[::ffff:127.0.0.1]",
    "http://0.0.0.0", "http://127.0.0.1@gateway.example", "https://user:secret-canary@gateway.example",
    "https://@gateway.example", "https://gateway.example/path", "https://gateway.example//",
    "https://gateway.example?", "https://gateway.example?key=secret-canary", "https://gateway.example#",
    "https://gateway.example#part", "https://gateway.example:0", "https://gateway.example:99999",
    "https://gateway.example:port", "https://gateway.example:80:80", "https://gate way.example",
    "https://gateway.example\n", "https://gateway\t.example", "https://gateway.example\\@evil.example",
    "https://gatew\u0430y.example", "https://gateway.example\x00", "https://", "https://:443",
    "https://-gateway.example", "https://[::1", "https://[::zz]", "https://[fe80::1%eth0]", "https://[v1.a:1]",
    "https://gate%2eway.example",
])  # fmt: skip
def test_unusable_origins(base_url: str) -> None:
    """Anything else is refused in one line that does not repeat what may be a secret."""
    with pytest.raises(SettingsNotUsable) as caught:
        check_origin(base_url)
    assert "\n" not in str(caught.value)
    assert "secret-canary" not in str(caught.value)


def test_loopback_hosts() -> None:
    """Loopback is 127.0.0.0/8, ::1 and localhost, and nothing that looks like it."""
    assert all(map(is_loopback, ("127.0.0.1", "127.255.255.254", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "10.0.0.1", "localhost.", "LOCALHOST.example", "127.0.0.1.example")))


def test_explicit_proxy() -> None:
    """A proxy is http://host:port, with a user where it wants one; its password shows nowhere."""
    proxy = check_proxy("http://us%40er:secret-canary@proxy.example:3128")
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("proxy.example", 3128)
    assert proxy.authorization == "Basic dXNAZXI6c2VjcmV0LWNhbmFyeQ=="
    assert repr(proxy) == "Proxy(proxy.example:3128)"
    assert check_proxy("") is None
    plain = check_proxy("http://proxy.example")
    assert plain is not None
    assert (plain.host, plain.port, plain.authorization) == ("proxy.example", 80, None)


@pytest.mark.parametrize("proxy", [
    "proxy.example:3128", "https://proxy.example", "socks5://proxy.example", "http://", "http://a/b",
    "http://u:secret-canary@",
])  # fmt: skip
def test_unusable_proxies(proxy: str) -> None:
    """Other kinds of proxy are refused, without the text."""
    with pytest.raises(SettingsNotUsable) as caught:
        check_proxy(proxy)
    assert "secret-canary" not in str(caught.value)


@pytest.mark.parametrize(("base_url", "setting", "environment"), [
    ("https://pay.example.com", "", "live"), ("http://127.0.0.1:8080", "", "test"), ("https://localhost", "", "test"),
    ("https://sandbox.example.com", "test", "test"), ("http://[::1]:1", "live", "live"), ("", "", "live"),
    ("nonsense", "", "live"),
])  # fmt: skip
def test_the_environment_is_the_settings_or_the_address_says_it(base_url: str, setting: str, environment: str) -> None:
    """A gateway on loopback is for tests unless the setting says otherwise; every other one is live."""
    assert environment_of(GatewaySettings(base_url=base_url, environment=setting)) == environment


@pytest.mark.parametrize(("base_url", "setting", "is_it"), [
    ("http://127.0.0.1:8080", "", True), ("http://127.0.0.1:8080", "live", False),
    ("https://sandbox.example.com", "test", False), ("https://pay.example.com", "", False),
])  # fmt: skip
def test_nothing_moves_money_only_at_a_test_gateway_on_this_machine(base_url: str, setting: str, is_it: bool) -> None:
    """A live gateway may be reached through a tunnel that ends here, and a test gateway elsewhere may be none."""
    assert is_rehearsal(GatewaySettings(base_url=base_url, environment=setting)) is is_it


def test_an_address_that_is_missing_is_named() -> None:
    """The first thing that somebody is told who has set nothing: what to set, by both of its names."""
    with pytest.raises(SettingsNotUsable, match=r"^gateway\.base_url \(BATCHPAY_BASE_URL\) is not set$"):
        check_origin("")


def test_an_environment_is_live_or_test() -> None:
    """A mistyped word must not make a third world."""
    with pytest.raises(SettingsNotUsable, match="live or test"):
        environment_of(GatewaySettings(environment="prod"))
