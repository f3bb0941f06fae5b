"""The ping, over real HTTP on loopback."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest
import trustme

from batchpay.errors import WrongUse
from batchpay.operations.ping import Ping
from tests.support.monitor import monitor


def test_start_and_exit_code_are_told() -> None:
    """`/start`, then the exit code; two requests, without anything about payments."""
    with monitor() as kept:
        ping = Ping(f"{kept.origin}/ping/0b1c/")
        assert ping.start() is None
        assert ping.finish(7) is None
    assert kept.requests == [("GET", "/ping/0b1c/start"), ("GET", "/ping/0b1c/7")]
    assert set(kept.headers[0]) <= {"Host", "User-Agent", "Connection", "Accept-Encoding"}


@pytest.mark.parametrize("status", [204, 404, 500])
def test_an_answer_is_judged_but_never_raised(status: int) -> None:
    """Any 2xx is well; anything else is told in words that don't show the address."""
    with monitor(status) as kept:
        problem = Ping(f"{kept.origin}/secret").start()
    assert problem == (None if status == 204 else f"--ping-url answered HTTP {status}")


def test_a_redirect_is_not_followed() -> None:
    """A monitor can't send us anywhere else."""
    with monitor() as second, monitor(302, f"{second.origin}/elsewhere") as first:
        assert Ping(first.origin).start() == "--ping-url answered HTTP 302"
    assert len(first.requests) == 1
    assert second.requests == []


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxy the environment names gets nothing."""
    with monitor() as proxy, monitor() as kept:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        monkeypatch.setenv("no_proxy", "")
        assert Ping(kept.origin).start() is None
    assert proxy.requests == []


def test_nobody_there_is_told() -> None:
    """A refused connection is a line, not an error, and holds no address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert Ping(f"http://127.0.0.1:{port}/secret").finish(0) == "--ping-url could not be reached (URLError)"


def test_a_silent_monitor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the connection and never answers holds the run up for the time-out, both pings together.

    It was five seconds for each.
    """
    waits_s: list[float] = []
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        waits_s.append(timeout or 0.0)
        join(thread, timeout)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        ping = Ping(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        monkeypatch.setattr(threading.Thread, "join", joined)
        for problem in (ping.start(), ping.finish(0)):
            assert problem is not None
            assert problem.startswith(("no answer", "--ping-url could not be reached"))
    assert waits_s[0] == 0.1
    assert waits_s[1] <= 0.1


def test_an_untrusted_certificate_gets_no_request(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """TLS is verified, and no certificate authority is taken from the environment."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    path = f"{tmp_path}/ca.pem"
    authority.cert_pem.write_to_path(path)
    monkeypatch.setenv("SSL_CERT_FILE", path)
    with monitor(context=context) as kept:
        assert Ping(kept.origin).start() == "--ping-url could not be reached (URLError)"
    assert kept.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://monitor.example/x", "ftp://localhost/x", "file:///etc/passwd", "monitor.example", "https://", "",
        "https://user:word@monitor.example/", "https://monitor.example/?a=b", "https://monitor.example/#a",
        "https://monitor.example/a b", "https://monitor.example:port/", "https://[::1", "http://localhost.evil.example/",
        "https://monitor.example/\r\nX: y",
    ],
)  # fmt: skip
def test_other_addresses_are_refused_before_the_run(url: str) -> None:
    """Only https, or http to this machine, without user, query and fragment; the refusal does not show the address."""
    with pytest.raises(WrongUse) as refused:
        Ping(url)
    assert "monitor.example" not in str(refused.value)
    assert "monitor.example" not in repr(Ping("https://monitor.example/uuid"))
