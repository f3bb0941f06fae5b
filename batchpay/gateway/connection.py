"""A connection to the gateway: name lookup, TCP, explicit proxy and TLS, under one deadline; before any request."""

from __future__ import annotations

import contextlib
import math
import re
import select
import socket
import ssl
import struct
import threading
import time
from pathlib import Path
from typing import Any

import certifi
import requests

from batchpay.errors import NoThread, SettingsNotUsable, start_thread
from batchpay.gateway.origin import Origin, Proxy, check_proxy, is_literal, is_loopback
from batchpay.settings import GatewaySettings, read_secret_file

RECEIVE_BYTES = 65_536
_READ_S = 1
"""A read waits this many seconds, then the deadline is checked; a poll before each read would be one more call."""
_PROXY_HEAD_BYTES_MAX = 16_384
_PROXY_AGREES = re.compile(rb"HTTP/1\.[01] 2[0-9]{2}[ \r]", re.ASCII)


class ExchangeFailed(requests.ConnectionError):
    """An exchange ended without a complete answer. The text is in plain words and contains nothing of the request."""

    def __init__(self, problem: str, *, certificate: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.certificate = certificate
        """The gateway's certificate can't be trusted: there is no point in trying again."""


def problem_of(error: BaseException) -> str:
    """Describe an exception in plain words, without its text, which may quote the request."""
    if isinstance(error, ExchangeFailed):
        return error.problem
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, requests.RequestException):
        return (error.strerror or type(error).__name__).lower()
    return f"it failed ({type(error).__name__})"


def remaining_s(deadline: float) -> float:
    """Return the seconds left until a deadline on the monotonic clock; raises TimeoutError when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def tls_context(settings: GatewaySettings) -> ssl.SSLContext:
    """Return a context: TLS 1.2 or later, host names checked, authorities from certifi or gateway.ca_bundle.

    `ssl.create_default_context` is not used, since it writes the session's keys to the file that SSLKEYLOGFILE names
    and trusts the authorities that SSL_CERT_FILE names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(settings.ca_bundle or certifi.where())
    except (OSError, ssl.SSLError):
        raise SettingsNotUsable(f"gateway.ca_bundle {settings.ca_bundle} can't be read as PEM certificates") from None
    if settings.client_cert:
        _show_client_certificate(context, settings.client_cert, settings.client_key or settings.client_cert)
    elif settings.client_key:
        raise SettingsNotUsable("gateway.client_key is set, but not gateway.client_cert")
    return context


def _show_client_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load what a gateway with mutual TLS asks for; raises CredentialsNotUsable for a key that others can read."""
    read_secret_file(Path(key), "gateway.client_cert" if key == certificate else "gateway.client_key")

    def no_password() -> str:
        raise SettingsNotUsable(f"gateway.client_key {key} is encrypted; its password can't be asked for")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except (OSError, ssl.SSLError):
        raise SettingsNotUsable(
            f"gateway.client_cert {certificate} and the key in {key} can't be read as PEM, or do not belong together"
        ) from None


class Connection:
    """An open connection, used by one thread."""

    __slots__ = ("_poll", "_socket", "_tls", "answers", "tls_version", "unasked", "used_at")

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._tls = isinstance(opened, ssl.SSLSocket)
        if not self._tls:
            opened.setblocking(True)  # otherwise Python would poll before each call
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _READ_S, 0))
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self.tls_version = opened.version() if isinstance(opened, ssl.SSLSocket) else None
        self.unasked = b""
        """The first bytes that arrived unsolicited; set by `is_quiet`."""
        self.answers = 0
        """Requests answered over this connection so far."""
        self.used_at = time.monotonic()

    def is_quiet(self) -> bool:
        """Return whether nothing arrived unsolicited: a close, an error or an answer that no request waits for."""
        if not self._poll.poll(0):
            return True
        try:
            if self._tls:  # TLS 1.3 sends unsolicited session tickets: they make the socket readable but carry no data
                self._socket.settimeout(0)
                self.unasked = self._socket.recv(RECEIVE_BYTES)
            else:
                self.unasked = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except (ssl.SSLWantReadError, BlockingIOError):
            return True
        except OSError:
            return False
        return False

    def send(self, data: memoryview, deadline: float) -> int:
        """Write some of the data and return how much; raises TimeoutError if the deadline has passed."""
        left_s = remaining_s(deadline)
        if not self._tls:
            try:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:  # rare: the buffer nearly always has room for a whole payment
                pass
        self._socket.settimeout(left_s)
        try:
            return self._socket.send(data)
        finally:
            if not self._tls:
                self._socket.setblocking(True)

    def receive(self, deadline: float) -> bytes:
        """Wait for the next bytes, empty when the other side has closed; raises TimeoutError at the deadline."""
        if self._tls:
            self._socket.settimeout(remaining_s(deadline))
            return self._socket.recv(RECEIVE_BYTES)
        while True:
            left_s = remaining_s(deadline)
            try:
                if left_s > _READ_S or self._poll.poll(math.ceil(left_s * 1000)):
                    return self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:  # nothing came within that time
                continue

    def shut_down(self) -> None:
        """Shut down the connection while a thread may be waiting on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()


class Connector:
    """Opens connections to one origin."""

    def __init__(self, origin: Origin, settings: GatewaySettings) -> None:
        self.origin = origin
        self._proxy: Proxy | None = check_proxy(settings.proxy)
        self._connect_timeout_s = settings.connect_timeout
        self._tls = tls_context(settings) if origin.is_tls else None

    def open(self, deadline: float) -> Connection:
        """Look up the name, connect and negotiate TLS. Raises ExchangeFailed; no byte of a request has left by then."""
        deadline = min(deadline, time.monotonic() + self._connect_timeout_s)
        place = self._proxy or self.origin
        opened: socket.socket | None = None
        try:
            opened = self._connect(place.host, self._look_up(place.host, place.port, deadline), deadline)
            if self._proxy:
                self._ask_proxy(opened, self._proxy, deadline)
            if self._tls:
                opened.settimeout(remaining_s(deadline))
                opened = self._tls.wrap_socket(opened, server_hostname=self.origin.host)
            return Connection(opened)
        except BaseException as error:
            if opened is not None:
                opened.close()
            if not isinstance(error, Exception):
                raise
            raise ExchangeFailed(
                f"no connection to {self.origin}: {problem_of(error)}",
                certificate=isinstance(error, ssl.SSLCertVerificationError),
            ) from None

    def _look_up(self, host: str, port: int, deadline: float) -> list[Any]:
        """Find the host's addresses. The system's lookup has no deadline, so it runs in a thread of its own."""
        found: list[Any] = []
        failed: list[Exception] = []

        def look_up() -> None:
            try:
                found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except Exception as error:
                failed.append(error)

        if is_literal(host):
            look_up()
        else:
            thread = threading.Thread(target=look_up, daemon=True, name="batchpay-lookup")
            try:
                start_thread(thread)
            except NoThread:
                look_up()  # the system's own limits hold
            else:
                thread.join(remaining_s(deadline))
            if thread.is_alive():
                raise ExchangeFailed(f"the name {host} was not looked up in time")
        if failed or not found:
            raise ExchangeFailed(f"the name {host} was not found")
        return found

    def _connect(self, host: str, addresses: list[Any], deadline: float) -> socket.socket:
        """Connect to the first address that answers; the time is divided among them."""
        problem: Exception = ExchangeFailed(f"{host} has no address that may be used")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            if not self.origin.is_tls and not self._proxy and not is_loopback(address[0]):
                continue  # `localhost` in an unusual hosts file: http does not leave this machine
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(remaining_s(deadline) / (len(addresses) - number))
                opened.connect(address)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return opened
            except BaseException as error:
                opened.close()
                if not isinstance(error, OSError):
                    raise
                problem = error
        raise problem

    def _ask_proxy(self, opened: socket.socket, proxy: Proxy, deadline: float) -> None:
        """Have the proxy open a tunnel; it sees only its own credentials."""
        host = f"[{self.origin.host}]" if ":" in self.origin.host else self.origin.host
        lines = [f"CONNECT {host}:{self.origin.port} HTTP/1.1", f"Host: {host}:{self.origin.port}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        opened.settimeout(remaining_s(deadline))
        opened.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        head = b""
        while b"\r\n\r\n" not in head:
            opened.settimeout(remaining_s(deadline))
            data = opened.recv(4096)
            head += data
            if not data or len(head) > _PROXY_HEAD_BYTES_MAX:
                raise ExchangeFailed("the proxy's answer is not valid")
        if not _PROXY_AGREES.match(head) or not head.endswith(b"\r\n\r\n"):
            raise ExchangeFailed("the proxy refused to open a tunnel")
