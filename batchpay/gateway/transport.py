"""A transport adapter for requests that proves what left this machine: one request, one answer, one deadline.

The order is fixed: connection first, then `SendProof.before_first_byte` (the ledger's durable commit), then the bytes,
counted before each write. So `SendProof.bytes_sent == 0` after a failure proves that no byte of the request left,
whatever exception came up; the classes of exceptions prove nothing. Nothing is sent again, no redirect is looked at, no
cookie kept, and nothing is taken from the environment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from batchpay.gateway.connection import Connection, Connector, ExchangeFailed, problem_of
from batchpay.gateway.origin import check_origin
from batchpay.gateway.wire import AnswerReader, AnswerRefused, checked_target, header_block
from batchpay.settings import GatewaySettings, Secret


def _nothing() -> None:
    """Do nothing before the first byte: for requests that no ledger holds."""


class SendProof:
    """What is known of one exchange, whatever became of it."""

    __slots__ = ("before_first_byte", "bytes_sent", "tls_version")

    def __init__(self, before_first_byte: Callable[[], None] = _nothing) -> None:
        self.before_first_byte = before_first_byte
        """Called once, when all but the sending is done. What it raises goes on to the caller, and nothing is sent."""
        self.bytes_sent = 0
        """Most bytes of the request that may have left; 0 is proof that none did."""
        self.tls_version: str | None = None


class WitnessedRequest(requests.PreparedRequest):
    """A prepared request that carries its witness."""

    witness: SendProof
    head: memoryview | None
    """What `Transport.head` made of method, url and headers, where that was done already."""

    def __init__(
        self, method: str, url: str, headers: Any, body: bytes, witness: SendProof, head: memoryview | None = None
    ) -> None:
        super().__init__()
        self.head = head
        self.method, self.url, self.headers, self.body, self.witness = method, url, headers, body, witness


class Transport(BaseAdapter):
    """Connections to one origin, one kept for each thread."""

    def __init__(self, settings: GatewaySettings, secret_headers: Mapping[str, Secret]) -> None:
        """Check the settings; raises SettingsNotUsable. `secret_headers` are revealed only in what is written."""
        super().__init__()
        self.origin = check_origin(settings.base_url)
        self._connector = Connector(self.origin, settings)
        self._prefix = str(self.origin)
        self._timeout_s = settings.timeout
        self._idle_s = settings.idle_s
        self._answer_bytes_max = settings.answer_bytes_max
        self._secret_headers = dict(secret_headers)
        self._local = threading.local()
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Carry out one exchange; raises ExchangeFailed where no complete answer came.

        Deadline, authorities and proxy are those of the settings: what requests hands down beside the request (it may
        stem from the environment) is not looked at.
        """
        started = time.monotonic()
        deadline = started + self._timeout_s
        witness = request.witness if isinstance(request, WitnessedRequest) else SendProof()
        message = self._message(request)
        connection = self._connection(deadline)
        witness.tls_version = connection.tls_version
        witness.before_first_byte()
        if not connection.is_quiet():  # the commit took time in which a kept connection may have ended
            self._drop(connection)
            connection = self._connection(deadline)
        try:
            reader = self._exchange(connection, message, witness, deadline)
        except BaseException as error:
            self._drop(connection)
            if not isinstance(error, Exception):
                raise
            raise ExchangeFailed(problem_of(error)) from None
        if reader.keep_alive:
            connection.used_at = time.monotonic()
        else:
            self._drop(connection)
        return _response(request, reader, time.monotonic() - started)

    def drop_connection(self) -> None:
        """End this thread's connection, which may be out of step: its next answer may belong to an earlier request."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            self._drop(kept)

    def close(self) -> None:
        """End all connections, those of other threads too."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.shut_down()
            connection.close()

    def _exchange(
        self, connection: Connection, message: memoryview, witness: SendProof, deadline: float
    ) -> AnswerReader:
        """Write the request and read its answer."""
        reader = AnswerReader(self._answer_bytes_max)
        while message:
            connection.wait_until(deadline)
            witness.bytes_sent += len(message)  # before the write: what fails half-way counts as sent
            written = connection.send(message)
            witness.bytes_sent -= len(message) - written
            message = message[written:]
        while not reader.done:
            connection.wait_until(deadline)
            data = connection.receive()
            if not data:
                raise ExchangeFailed("the connection was closed before the answer was complete")
            try:
                reader.feed(data)
            except AnswerRefused as refused:
                raise ExchangeFailed(str(refused)) from None
        return reader

    def _message(self, request: requests.PreparedRequest) -> memoryview:
        """The whole request as bytes; a memoryview, since its repr shows nothing of them."""
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        head = request.head if isinstance(request, WitnessedRequest) else None
        if head is None:
            head = self.head(request.method or "", request.url or "", request.headers)
        length = b"Content-Length: %d\r\n" % len(body) if body or request.method != "GET" else b""
        return memoryview(b"".join((head, length, b"\r\n", body)))

    def head(self, method: str, url: str, headers: Mapping[str, str]) -> memoryview:
        """All of a request's head but its length, to be used for many; raises ValueError where it can't be sent."""
        if not url.startswith(self._prefix):
            raise ValueError(f"a request for another place than {self.origin}")
        target = checked_target(url[len(self._prefix) :])
        parts = (
            f"{method} {target} HTTP/1.1\r\nHost: {self.origin.authority}\r\n".encode("ascii"),
            header_block((name, value) for name, value in headers.items() if name.lower() != "content-length"),
            header_block((name, secret.reveal()) for name, secret in self._secret_headers.items()),
        )
        return memoryview(b"".join(parts))

    def _connection(self, deadline: float) -> Connection:
        """Give this thread's kept connection if it is still good, else a new one."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            if time.monotonic() - kept.used_at <= self._idle_s and kept.is_quiet():
                return kept
            self._drop(kept)
        connection = self._connector.open(deadline)
        if not connection.is_quiet():
            connection.close()
            raise ExchangeFailed(f"{self.origin} spoke before it was asked, or closed at once")
        self._local.connection = connection
        with self._lock:
            self._connections.add(connection)
        return connection

    def _drop(self, connection: Connection) -> None:
        self._local.connection = None
        with self._lock:
            self._connections.discard(connection)
        connection.close()


def _response(request: requests.PreparedRequest, reader: AnswerReader, elapsed_s: float) -> requests.Response:
    """The answer as requests knows it, its body read."""
    response = requests.Response()
    response.status_code = reader.http_status
    response.headers = CaseInsensitiveDict(reader.headers)
    response._content = reader.body
    response._content_consumed = True  # type: ignore[attr-defined]
    response.url = request.url or ""
    response.request = request
    response.elapsed = timedelta(seconds=elapsed_s)
    return response
