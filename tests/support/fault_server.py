"""A gateway on loopback that misbehaves in one chosen way and counts what really arrived.

It reads and writes plain sockets, so that every byte of an answer is under its control, and shares no code with
batchpay. `FaultServer.bodies` is the truth that a judgment is checked against: complete request bodies by
invoiceNumber.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import trustme

from batchpay.payment import State

HANG_S = 5.0
"""How long a fault that hangs would hang if the client did not end it."""


def answer(status: str, body: bytes, *headers: str) -> bytes:
    """Return a whole answer with its Content-Length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def success(reference: str = "T-1", *headers: str) -> bytes:
    """Return the answer to a payment that was made."""
    return answer("200 OK", json.dumps({"status": "success", "transaction_id": reference}).encode(), *headers)


class Conversation:
    """One connection, as a fault sees it."""

    def __init__(self, server: FaultServer, opened: socket.socket) -> None:
        self.server = server
        self.socket = opened
        self.invoice = ""
        """The invoiceNumber of the request read last."""
        self._buffer = b""

    def read_some(self, at_least: int) -> None:
        """Read part of a request."""
        while len(self._buffer) < at_least:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError
            self.server.count_bytes(len(data))
            self._buffer += data

    def read_request(self) -> str | None:
        """Read a whole request and count it; return its invoiceNumber, or None if the client has closed."""
        while b"\r\n\r\n" not in self._buffer:
            data = self.socket.recv(65_536)
            if not data:
                return None
            self.server.count_bytes(len(data))
            self._buffer += data
        head, _, _ = self._buffer.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        length = int(lengths[0]) if lengths else 0
        self.read_some(len(head) + 4 + length)
        body = self._buffer[len(head) + 4 : len(head) + 4 + length]
        self._buffer = self._buffer[len(head) + 4 + length :]
        self.invoice = self.server.count_body(head, body)
        return self.invoice

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def drip(self, data: bytes, every_s: float = 0.05) -> None:
        """Send bytes one by one."""
        for number in range(len(data)):
            self.write(data[number : number + 1])
            if self.server.closing.wait(every_s):
                return

    def hang(self) -> None:
        """Do nothing until the client or the test gives up."""
        with contextlib.suppress(OSError):
            self.socket.settimeout(HANG_S)
            while self.socket.recv(65_536):
                pass

    def write_under_tls(self, data: bytes) -> None:
        """Send bytes below TLS, where they are meaningless."""
        os.write(self.socket.fileno(), data)

    def reset(self) -> None:
        """End the connection so that the other side sees a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


Act = Callable[[Conversation], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of misbehavior and the right conclusion from it."""

    states: frozenset[State]
    """States that are right for the payment; several if it depends on which side is faster."""
    on_connect: Act | None = None
    """Before anything is read (under TLS: before the handshake, on the bare socket); the connection ends after it."""
    on_request: Act | None = None
    """After a whole request was read and counted; returning continues the same connection, unless it closed it."""
    stop: bool | None = None
    """Whether the run must stop; None if it depends."""
    tls: str | None = None
    """`good`, `expired`, `wrong_host`, `unknown_authority`, `client_certificate`: TLS with that certificate."""
    address: str | None = None
    """Instead of this server: `refused`, `unknown_name`, `full_backlog`."""
    reaches: bool = True
    """Whether a request can reach the server at all."""
    lasts: bool = False
    """Whether it continues when the server is no longer armed."""


class FaultServer:
    """Serves one fault on 127.0.0.1, and good answers while it is not armed."""

    def __init__(self, fault: Fault, authority: trustme.CA | None = None) -> None:
        self.fault = fault
        self.armed = True
        self.closing = threading.Event()
        self.bodies: Counter[str] = Counter()
        self.heads: list[bytes] = []
        self.connections = 0
        self.second_port = 0
        """Port of another server, for redirects."""
        self.request_bytes = 0
        self._lock = threading.Lock()
        self._tls = _server_context(fault.tls, authority) if fault.tls and authority else None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0 if fault.address == "full_backlog" else 128)
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def base_url(self) -> str:
        """Where a client must look for the gateway."""
        scheme = "https" if self._tls or self.fault.tls else "http"
        if self.fault.address == "unknown_name":
            return "https://no-such-name.invalid"
        return f"{scheme}://{'localhost' if scheme == 'https' else '127.0.0.1'}:{self.port}"

    def __enter__(self) -> FaultServer:
        if self.fault.address == "refused":
            self._listener.close()
        elif self.fault.address == "full_backlog":
            self._fill_backlog()
        else:
            self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            still_open = list(self._open)
        for opened in still_open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(HANG_S)
        for opened in still_open:
            opened.close()

    def count_bytes(self, count: int) -> None:
        """Record that bytes of a request arrived."""
        with self._lock:
            self.request_bytes += count

    def count_body(self, head: bytes, body: bytes) -> str:
        """Record a complete request."""
        invoice = ""
        with contextlib.suppress(ValueError, AttributeError):
            invoice = str(json.loads(body).get("invoiceNumber", ""))
        with self._lock:
            self.heads.append(head)
            self.bodies[invoice] += 1
        return invoice

    def wait_for_connections(self, count: int) -> None:
        """Wait until this many connections have been handled by `on_connect`."""
        deadline = time.monotonic() + HANG_S
        while self.connections < count and time.monotonic() < deadline:
            time.sleep(0.001)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fill_backlog(self) -> None:
        """Connect until the kernel accepts no more, so that the next connection's first packet is dropped."""
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._open.add(filler)

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(opened)
            self._start(lambda opened=opened: self._serve(opened))  # type: ignore[misc]

    def _serve(self, opened: socket.socket) -> None:
        """Perform the fault on one connection; whatever the client does to it is not the test's concern."""
        with contextlib.suppress(OSError, ConnectionError, ValueError):
            if self.armed and self.fault.on_connect is not None:
                try:
                    self.fault.on_connect(Conversation(self, opened))
                finally:
                    opened.close()
                    self.connections += 1
                return
            self.connections += 1
            if self._tls is not None:
                opened.settimeout(HANG_S)
                opened = self._tls.wrap_socket(opened, server_side=True)
                with self._lock:
                    self._open.add(opened)
            conversation = Conversation(self, opened)
            for invoice in _requests(conversation):
                if self.armed and self.fault.on_request is not None:
                    self.fault.on_request(conversation)
                else:
                    conversation.write(success(f"T-{invoice}"))
        opened.close()


def _requests(conversation: Conversation) -> Iterator[str]:
    while (invoice := conversation.read_request()) is not None:
        yield invoice


def _server_context(kind: str, authority: trustme.CA) -> ssl.SSLContext:
    """Return the server's TLS context, right or wrong in one way."""
    from datetime import UTC, datetime, timedelta

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if kind == "expired":
        certificate = authority.issue_cert("localhost", not_after=datetime.now(UTC) - timedelta(days=1))
    elif kind == "wrong_host":
        certificate = authority.issue_cert("gateway.example")
    elif kind == "unknown_authority":
        certificate = trustme.CA().issue_cert("localhost")
    else:
        certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.configure_cert(context)
    if kind == "client_certificate":
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context
