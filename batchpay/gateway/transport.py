"""A transport adapter for requests that proves what left this machine: one request, one answer, one deadline.

The order is fixed: connection first, then `SendProof.before_first_byte` (the ledger's durable commit), then the bytes,
counted before each write. So `SendProof.bytes_sent == 0` after a failure proves that no byte of the request left,
whatever exception was raised; the classes of exceptions prove nothing. If the permission to send has expired meanwhile,
nothing is sent: a process that was suspended, or a machine that slept, can't know what others were told since, that the
row is in doubt, or that a person decided to send it again. Nothing is sent again, no redirect is followed,
no cookie kept, and nothing is taken from the environment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from batchpay.gateway.connection import Connection, Connector, ExchangeFailed, problem_of, remaining_s
from batchpay.gateway.origin import check_origin
from batchpay.gateway.wire import AnswerReader, AnswerRefused, checked_target, header_block
from batchpay.settings import GatewaySettings, Secret

PERMISSION_S = 10.0
"""A row leaves within this many seconds after the ledger was asked for permission, or not with this permission."""
TOO_OLD = "this machine or the ledger stalled between the permission to send and the first byte"

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

BeforeFirstByte = Callable[[], float | None]
"""The last step before sending; returns when its permission to send expires, on `since_boot_s`, if it does."""


def since_boot_s() -> float:
    """Return the seconds on a clock that keeps running while the machine sleeps, and that nobody can set."""
    return time.clock_gettime(_CLOCK)


UNASKED_ANSWER = "an unrequested answer arrived: neither this row's answer nor that of the row before is proven"
_STEADY_S = 1.0
"""A connection used this recently is checked only once, right before the first byte, and not also when it is chosen."""


def _nothing() -> None:
    """Do nothing before the first byte: for requests that are not in a ledger."""


class _Unanswered(ExchangeFailed):
    """The connection was closed, and nothing of an answer came."""


class SendProof:
    """What is known of one exchange, whatever its result."""

    __slots__ = ("allowed_until", "before_first_byte", "bytes_sent", "tls_version")

    def __init__(self, before_first_byte: BeforeFirstByte = _nothing) -> None:
        self.before_first_byte = before_first_byte
        """Called once. What it raises propagates to the caller, and nothing is sent."""
        self.allowed_until: float | None = None
        """When the permission to send expires, on `since_boot_s`."""
        self.bytes_sent = 0
        """Most bytes of the request that may have left; 0 is proof that none did."""
        self.tls_version: str | None = None


class ProvenRequest(requests.PreparedRequest):
    """A prepared request with its proof; a copy for the next payment shares everything except body and proof."""

    def __init__(self, head: memoryview | None = None) -> None:
        super().__init__()
        self.head = head
        """What `Transport.head` made of method, url and headers: the same for each copy."""
        self.proof = SendProof()

    @classmethod
    def prepared(cls, prepared: requests.PreparedRequest, head: memoryview | None) -> ProvenRequest:
        """Take over what a session prepared."""
        request = cls(head)
        request.method, request.url, request.headers, request.body = (
            prepared.method, prepared.url, prepared.headers, prepared.body,
        )  # fmt: skip
        return request

    def copy_for(self, body: bytes, proof: SendProof) -> ProvenRequest:
        """Return the same request with another body."""
        request = ProvenRequest.__new__(ProvenRequest)
        request.__dict__.update(self.__dict__, body=body, proof=proof)
        return request


class GatewaySession(requests.Session):
    """A session that knows one origin, over one transport, and nothing of the environment, cookies or redirects."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self.trust_env = False
        self.adapters.clear()
        self.mount(f"{transport.origin}/", transport)

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        """Pass a request to the transport and return the answer, even a redirect: its target is not even read.

        What requests does around it would be a tenth of a payment's work, for proxies, hooks and cookies not used here.
        """
        return self.get_adapter(request.url or "").send(request)


class GatewayAnswer(requests.Response):
    """The answer as a Response of requests, with its body read; `headers` are by lower-case name."""

    encoding, reason = None, ""

    def __init__(self, request: requests.PreparedRequest, reader: AnswerReader) -> None:
        # Without the __init__ of requests, which creates a cookie jar for every answer: none are kept here.
        self.request, self.url, self.history, self.raw = request, request.url or "", [], None
        self.status_code, self._content = reader.http_status, reader.body
        self.headers = cast("CaseInsensitiveDict[str]", reader.headers)


class Transport(BaseAdapter):
    """Connections to one origin, one kept for each thread."""

    def __init__(self, settings: GatewaySettings, secret_headers: Mapping[str, Secret]) -> None:
        """Check the settings; raises SettingsNotUsable. `secret_headers` are revealed only in the bytes sent."""
        super().__init__()
        self.origin = check_origin(settings.base_url)
        self._connector = Connector(self.origin, settings)
        self._prefix = str(self.origin)
        self._timeout_s = settings.timeout
        self._keep_alive = settings.keep_alive
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
        """Carry out one exchange; raises ExchangeFailed if no complete answer came.

        Deadline, authorities and proxy are those of the settings: what requests passes along with the request (it may
        come from the environment) is ignored.
        """
        deadline = time.monotonic() + self._timeout_s
        proof = request.proof if isinstance(request, ProvenRequest) else SendProof()
        message = self._message(request)
        connection = self._connection(deadline)
        proof.tls_version = connection.tls_version
        proof.allowed_until = proof.before_first_byte()
        if self._has_ended(connection):  # while the ledger committed
            self._drop(connection)
            connection = self._connection(deadline)
        try:
            reader = self._exchange(connection, message, proof, deadline)
            self._check_in_step(connection)
        except BaseException as error:
            if isinstance(error, ConnectionError | _Unanswered):
                self._stop_keeping_if_ended_early(connection)
            self._drop(connection)
            if not isinstance(error, Exception):
                raise
            raise ExchangeFailed(problem_of(error)) from None
        if reader.keep_alive and self._keep_alive:
            connection.used_at = time.monotonic()
            connection.answers += 1
        else:
            self._drop(connection)
        return GatewayAnswer(request, reader)

    def drop_connection(self) -> None:
        """Close this thread's connection, perhaps out of step: its next answer may belong to an earlier request."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            self._drop(kept)

    def close(self) -> None:
        """Close all connections, including those of other threads."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.shut_down()
            connection.close()

    def _exchange(self, connection: Connection, message: memoryview, proof: SendProof, deadline: float) -> AnswerReader:
        """Write the request and read its answer."""
        reader = AnswerReader(self._answer_bytes_max)
        if proof.allowed_until is not None and since_boot_s() >= proof.allowed_until:
            raise ExchangeFailed(TOO_OLD)
        while message:
            remaining_s(deadline)  # before the bytes are counted: if the deadline has passed, nothing was sent
            proof.bytes_sent += len(message)  # before the write: what fails halfway counts as sent
            written = connection.send(message, deadline)
            proof.bytes_sent -= len(message) - written
            message = message[written:]
        data = b""
        while not reader.done:
            failure = ExchangeFailed if data else _Unanswered
            data = connection.receive(deadline)
            if not data:
                raise failure("the connection was closed before the answer was complete")
            try:
                reader.feed(data)
            except AnswerRefused as refused:
                raise ExchangeFailed(str(refused)) from None
        return reader

    def _check_in_step(self, connection: Connection) -> None:
        """Raise ExchangeFailed if the answer just read may be another request's.

        A gateway or proxy that answers twice shifts every later answer on its connections by one. The sign is an answer
        that no request waits for: after this one, or before this request, when the thread's connection was replaced.
        """
        connection.is_quiet()
        out_of_step, self._local.out_of_step = getattr(self._local, "out_of_step", False), False
        if out_of_step or _is_answer(connection.unasked):
            connection.unasked = b""  # this row carries the doubt, not the one after it as well
            raise ExchangeFailed(UNASKED_ANSWER)

    def _message(self, request: requests.PreparedRequest) -> memoryview:
        """Return the whole request as bytes; a memoryview, since its repr shows none of them."""
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        head = request.head if isinstance(request, ProvenRequest) else None
        if head is None:
            head = self.head(request.method or "", request.url or "", request.headers)
        length = b"Content-Length: %d\r\n" % len(body) if body or request.method != "GET" else b""
        return memoryview(b"".join((head, length, b"\r\n", body)))

    def head(self, method: str, url: str, headers: Mapping[str, str]) -> memoryview:
        """Return a request's head without its length, for use in many; raises ValueError if it can't be sent."""
        if not url.startswith(self._prefix):
            raise ValueError(f"a request for another place than {self.origin}")
        target = checked_target(url[len(self._prefix) :])
        ours = ("content-length", "connection")
        given = [(name, value) for name, value in headers.items() if name.lower() not in ours]
        parts = (
            f"{method} {target} HTTP/1.1\r\nHost: {self.origin.authority}\r\n".encode("ascii"),
            header_block([*given, ("Connection", "keep-alive" if self._keep_alive else "close")]),
            header_block((name, secret.reveal()) for name, secret in self._secret_headers.items()),
        )
        return memoryview(b"".join(parts))

    def _connection(self, deadline: float) -> Connection:
        """Return this thread's kept connection if it is still good, else a new one."""
        kept: Connection | None = getattr(self._local, "connection", None)
        if kept is not None:
            idle_s = time.monotonic() - kept.used_at
            if idle_s <= self._idle_s and idle_s < _STEADY_S:
                return kept
            if kept.is_quiet() and idle_s <= self._idle_s:
                return kept
            self._drop(kept)
        connection = self._connector.open(deadline)
        if not connection.is_quiet():
            connection.close()
            raise ExchangeFailed(f"{self.origin} sent data before the request, or closed the connection")
        self._local.connection = connection
        with self._lock:
            self._connections.add(connection)
        return connection

    def _has_ended(self, connection: Connection) -> bool:
        """Return whether a connection can no longer be used."""
        if connection.is_quiet():
            return bool(connection.answers) and not self._keep_alive
        if not connection.unasked:
            self._stop_keeping_if_ended_early(connection)
        return True

    def _stop_keeping_if_ended_early(self, connection: Connection) -> None:
        """Give each payment its own connection from now on if the gateway ended one right after its first answer.

        One that does so without announcing it keeps none alive: sooner or later it would close one on which a request
        has just left, which would then be in doubt, or just did.
        """
        if connection.answers == 1 and time.monotonic() - connection.used_at < _STEADY_S:
            self._keep_alive = False

    def _drop(self, connection: Connection) -> None:
        """Close a connection; if an unsolicited answer came over it, the next one is not trusted either."""
        if _is_answer(connection.unasked):
            self._local.out_of_step = True
        self._local.connection = None
        with self._lock:
            self._connections.discard(connection)
        connection.close()


def _is_answer(unasked: bytes) -> bool:
    """Return whether unsolicited bytes may answer a payment: a server may close an idle connection with a 408."""
    return bool(unasked) and not unasked.startswith((b"HTTP/1.1 408", b"HTTP/1.0 408"))
