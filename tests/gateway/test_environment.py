"""Nothing is taken from the environment; an explicit proxy sees a tunnel and no more."""

from __future__ import annotations

import contextlib
import netrc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import requests.exceptions
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from batchpay.errors import CredentialsNotUsable, SettingsNotUsable
from batchpay.gateway.connection import tls_context
from batchpay.gateway.transport import Transport
from batchpay.payment import State
from batchpay.settings import GatewaySettings
from tests.support.fault_client import (
    GOOD,
    GOOD_TLS,
    KEY,
    body,
    client_of,
    nothing,
    settings_for,
)
from tests.support.fault_server import Fault, FaultServer


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: trustme.CA) -> Iterator[socket.socket]:
    """An environment that redirects, trusts and records; gives the listener that must never be spoken to."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text(
        "machine localhost login canary password canary\ndefault login canary password canary\n"
    )
    (home / ".netrc").chmod(0o600)
    assert netrc.netrc(str(home / ".netrc")).authenticators("localhost")
    evil = tmp_path / "evil.pem"
    authority.cert_pem.write_to_path(str(evil))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            monkeypatch.setenv(name, str(evil))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("NETRC", str(home / ".netrc"))
        yield listener
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert not (tmp_path / "keys.log").exists()


def test_environment_is_not_heeded(traps: socket.socket, authority: trustme.CA, bundle: str) -> None:
    """Proxies, netrc, authorities and key log of the environment change nothing, with TLS and without."""
    for fault in (GOOD, GOOD_TLS):
        with FaultServer(fault, authority) as server, client_of(server, ca_bundle=bundle) as client:
            assert client.pay(body(), nothing).state is State.ACCEPTED
            assert b"Authorization" not in server.heads[0]


@pytest.fixture
def client_pem(authority: trustme.CA, tmp_path: Path) -> Path:
    """A client's certificate and its key in one file that only its owner reads."""
    path = tmp_path / "client.pem"
    path.touch(0o600)
    authority.issue_cert("batchpay.client.test").private_key_and_cert_chain_pem.write_to_path(path)
    return path


def test_a_gateway_that_asks_for_a_certificate_gets_it(authority: trustme.CA, bundle: str, client_pem: Path) -> None:
    """Mutual TLS: without the certificate the gateway takes nothing."""
    asks = Fault(frozenset({State.ACCEPTED}), tls="client_certificate")
    with FaultServer(asks, authority) as server:
        with client_of(server, ca_bundle=bundle, client_cert=str(client_pem)) as client:
            assert client.pay(body(), nothing).state is State.ACCEPTED
        with client_of(server, ca_bundle=bundle) as client:
            assert client.pay(body(), nothing).state is not State.ACCEPTED


def test_a_client_key_is_kept_like_the_api_key(authority: trustme.CA, client_pem: Path, tmp_path: Path) -> None:
    """Read by others, of another certificate, encrypted, or alone: settings that can't be used, before a connection."""
    other, encrypted = tmp_path / "other.pem", tmp_path / "encrypted.pem"
    key = authority.issue_cert("other.test").private_key_pem.bytes()
    other.write_bytes(key)
    encrypted.write_bytes(
        load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    )
    for path in (other, encrypted):
        path.chmod(0o600)
    pem = str(client_pem)
    with pytest.raises(SettingsNotUsable, match="do not belong together"):
        tls_context(GatewaySettings(client_cert=pem, client_key=str(other)))
    with pytest.raises(SettingsNotUsable, match="is encrypted"):
        tls_context(GatewaySettings(client_cert=pem, client_key=str(encrypted)))
    with pytest.raises(SettingsNotUsable, match=r"not gateway\.client_cert"):
        tls_context(GatewaySettings(client_key=pem))
    client_pem.chmod(0o644)
    with pytest.raises(CredentialsNotUsable, match="readable by other users"):
        tls_context(GatewaySettings(client_cert=pem))


def test_authority_of_the_environment_is_not_trusted(traps: socket.socket, authority: trustme.CA) -> None:
    """A certificate that only REQUESTS_CA_BUNDLE and SSL_CERT_FILE would trust stops the run, nothing sent."""
    with FaultServer(GOOD_TLS, authority) as server, client_of(server) as client:
        outcome = client.pay(body(), nothing)
    assert (outcome.state, outcome.bytes_sent, server.request_bytes) == (State.PENDING, 0, 0)
    assert outcome.stop is not None and "certificate" in outcome.stop


def test_adapter_in_a_session_that_trusts_the_environment(
    traps: socket.socket, authority: trustme.CA, bundle: str
) -> None:
    """Mounted in a plain Session, with verification switched off there, the adapter keeps to its own settings."""
    with FaultServer(GOOD_TLS, authority) as server, requests.Session() as session:
        trusting = Transport(settings_for(server, ca_bundle=bundle), {})
        session.mount("https://", trusting)
        response = session.post(f"{server.base_url}/v2/api/payment.json", data=body(), verify=False)
        assert response.json()["status"] == "success"
        trusting.close()
        session.mount("https://", Transport(settings_for(server), {}))
        with pytest.raises(requests.ConnectionError, match="certificate"):
            session.post(f"{server.base_url}/v2/api/payment.json", data=body(), verify=False)
    assert server.bodies == {"one": 1}
    assert server.heads[0].startswith(b"POST /v2/api/payment.json HTTP/1.1\r\n")


def test_key_log_variable_is_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context that is used never writes session keys, whatever SSLKEYLOGFILE says."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    assert tls_context(GatewaySettings()).keylog_filename is None


class TunnelProxy:
    """A proxy on loopback that opens tunnels, or answers as told."""

    def __init__(self, reply: bytes | None = None) -> None:
        self.heads: list[bytes] = []
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                with opened:
                    self._serve(opened)

    def _serve(self, opened: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += opened.recv(4096)
        self.heads.append(head)
        if self._reply is not None:
            opened.sendall(self._reply)
            return
        port = int(head.split(b" ")[1].rsplit(b":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as onward:
            opened.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
            back = threading.Thread(target=_copy, args=(onward, opened))
            back.start()
            _copy(opened, onward)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_explicit_proxy_sees_only_the_tunnel(authority: trustme.CA, bundle: str) -> None:
    """Through gateway.proxy the payment goes under TLS; the proxy learns the host and its own credentials, no more."""
    proxy = TunnelProxy()
    address = f"http://user:pass@127.0.0.1:{proxy.port}"
    with FaultServer(GOOD_TLS, authority) as server, client_of(server, ca_bundle=bundle, proxy=address) as client:
        assert client.pay(body(), nothing).state is State.ACCEPTED
    proxy.close()
    assert proxy.heads[0].startswith(f"CONNECT localhost:{server.port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in proxy.heads[0]
    assert KEY.encode() not in proxy.heads[0]
    assert b"Proxy-Authorization" not in server.heads[0]


@pytest.mark.parametrize(("reply", "words"), [
    (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "refused to open a tunnel"),
    (b"HTTP/1.1 200", "answer is not valid"), (b"", "answer is not valid"),
    (b"HTTP/1.1 200 OK\r\n\r\nand more", "refused to open a tunnel"),
    (b"HTTP/1.1 301 Moved\r\nLocation: http://evil\r\n\r\n", "refused to open a tunnel"),
    (b"x" * 20_000, "answer is not valid"),
])  # fmt: skip
def test_proxy_that_opens_no_tunnel(reply: bytes, words: str, authority: trustme.CA, bundle: str) -> None:
    """A proxy that refuses, ends or talks nonsense leaves the payment pending: nothing was sent, and it is named."""
    proxy = TunnelProxy(reply)
    with (
        FaultServer(GOOD_TLS, authority) as server,
        client_of(server, ca_bundle=bundle, proxy=f"http://127.0.0.1:{proxy.port}") as client,
    ):
        outcome = client.pay(body(), nothing)
    proxy.close()
    assert (outcome.state, outcome.bytes_sent, outcome.stop) == (State.PENDING, 0, None)
    assert server.request_bytes == 0
    assert f"the proxy {words}" in outcome.reason or f"the proxy's {words}" in outcome.reason
