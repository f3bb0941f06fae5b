"""Exchanges by their bytes: refused answers, exceptions in every phase, requests as the interface has them."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from batchpay.gateway.connection import Connection, Connector
from batchpay.gateway.wire import HEAD_BYTES_MAX, INTERIM_ANSWERS_MAX, AnswerReader, AnswerRefused, header_block
from batchpay.payment import State
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.command import SAMPLES, Home
from tests.support.fault_client import (
    ACCOUNT,
    GOOD,
    KEY,
    body,
    client_of,
    nothing,
)
from tests.support.fault_server import FaultServer
from tests.support.openapi import Description
from tests.support.sandbox_requests import control

OK = b"HTTP/1.1 200 OK\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\n{}"
BODY_BYTES_MAX = 40


def fed(data: bytes) -> AnswerReader:
    reader = AnswerReader(BODY_BYTES_MAX)
    reader.feed(data)
    return reader


@pytest.mark.parametrize(("data", "why"), [
    (OK + b"\r\n{}", "does not say where it ends"),
    (OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "stated in two ways|not valid HTTP"),
    (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "stated in two ways"),
    (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n", "longer than allowed|not valid HTTP"),
    (OK + b"Content-Length: 2\r\nContent-Length: \r\n\r\n", "longer than allowed|not valid HTTP"),
    (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "stated in two ways|not valid HTTP"),
    (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n", "stated in two ways|not valid HTTP"),
    (OK + 2 * b"Content-Encoding: identity\r\n" + b"Content-Length: 2\r\n\r\n", "compressed"),
    (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", "compressed"),
    (OK + b"Content-Length: 41\r\n\r\n", "longer than allowed"),
    (OK + b"X: %b\r\n\r\n" % (b"x" * HEAD_BYTES_MAX), "headers are longer than allowed"),
    (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "unknown version|not valid HTTP"),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "another protocol"),
    (b"HTTP/1.1 101 Switching\r\n\r\n", "another protocol"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n29\r\n" + b"x" * 41, "longer than allowed"),
    (HINTS * (INTERIM_ANSWERS_MAX + 1), "too many interim answers"),
    (b"HTTP/1.1 150 Wait\r\nContent-Length: 2\r\n\r\n{}" + WHOLE, "an interim answer has a body"),
    (b"HTTP/1.1 099 Odd\r\n\r\n" + WHOLE, "not valid HTTP"), (WHOLE * 2, "more came than one answer"),
    (b"hello", "not valid HTTP"),
])  # fmt: skip
def test_what_is_no_single_whole_answer_is_refused_at_once(data: bytes, why: str) -> None:
    """Waiting for more, until the time is over or the other side closes, would hold up a worker for nothing."""
    with pytest.raises(AnswerRefused, match=why):
        fed(data)


def test_a_whole_answer_is_read_whatever_comes_before_it() -> None:
    """As many interim answers as are allowed, of which no header stays; then the answer, byte by byte."""
    reader = AnswerReader(BODY_BYTES_MAX)
    for byte in HINTS * (INTERIM_ANSWERS_MAX - 1) + CONTINUE + WHOLE:
        assert not reader.done
        reader.feed(bytes([byte]))
    assert (reader.done, reader.http_status, reader.body, reader.keep_alive) == (True, 200, b"{}", True)
    assert reader.headers == {"content-length": "2"}


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_body_that_there_never_is_needs_no_length(status: bytes) -> None:
    """The status says so by itself."""
    reader = fed(b"HTTP/1.1 %b\r\n\r\n" % status)
    assert (reader.done, reader.body) == (True, b"")


def test_what_follows_a_body_is_no_header_of_it() -> None:
    """A trailer would say of the answer what its head did not: when to come back, or that it is packed."""
    reader = fed(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nRetry-After: 0\r\n\r\n")
    assert (reader.done, reader.body) == (True, b"{}")
    assert reader.headers == {"transfer-encoding": "chunked"}


def test_a_header_without_an_end_is_cut_off_and_a_long_body_is_not() -> None:
    """Only the head has the small bound: the list of a gateway's accounts is longer than any head."""
    body = b"x" * (5 * HEAD_BYTES_MAX)
    reader = AnswerReader(len(body))
    for part in (OK + b"Content-Length: %d\r\n\r\n" % len(body), body[:-1], body[-1:]):
        reader.feed(part)
    assert (reader.done, reader.body) == (True, body)
    endless = AnswerReader(1 << 30)
    endless.feed(OK + b"X: ")
    with pytest.raises(AnswerRefused, match="headers are longer than allowed"):
        for _ in range(5):
            endless.feed(b"x" * HEAD_BYTES_MAX)


def test_what_surrounds_an_answer_is_bounded_as_well() -> None:
    """An answer in the shortest chunks, with many short headers, is one; a chunk's notes without an end are none.

    A gateway that never ends takes a worker, and memory, until the deadline.
    """
    short = OK + b"".join(b"X-%d: 1\r\n" % number for number in range(4000)) + b"Transfer-Encoding: chunked\r\n\r\n"
    reader = AnswerReader(20_000)
    for part in (short, b"1\r\nx\r\n" * 20_000, b"0\r\n\r\n"):
        reader.feed(part)
    assert (reader.done, reader.body, len(reader.headers)) == (True, b"x" * 20_000, 4001)
    noted = fed(OK + b"Transfer-Encoding: chunked\r\n\r\n1;")
    with pytest.raises(AnswerRefused, match="the answer is longer than allowed"):
        for _ in range(20):
            noted.feed(b"x" * 4096)


def test_an_api_id_of_two_headers_is_none() -> None:
    """It put an extra header into every request."""
    with pytest.raises(ValueError, match="not allowed in a header"):
        header_block([("SERVICE-API-ID", "office\r\nX-Smuggled: 1")])


def exception_classes() -> list[type[BaseException]]:
    """Every exception class of requests, urllib3, ssl and the network."""
    found = {
        cls
        for module in (requests.exceptions, urllib3.exceptions, ssl, socket, builtins)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Exception) and not issubclass(cls, Warning)
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def make(cls: type[BaseException]) -> BaseException:
    """An instance whose text holds what must not be shown, whatever its constructor wants."""
    if issubclass(cls, BaseExceptionGroup):
        return cls(KEY, [ValueError(ACCOUNT)])
    error = cls.__new__(cls)
    error.args = (f"{ACCOUNT} {KEY}",)
    for name, value in (("reason", KEY), ("verify_message", "expired"), ("_message", KEY), ("msg", KEY)):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, name, value)
    return error


class Raising(Connection):
    """A connection that fails in a chosen phase."""

    error: BaseException
    phase: str

    def send(self, data: memoryview, deadline: float) -> int:
        if self.phase == "write":
            raise self.error
        return super().send(data, deadline)

    def receive(self, deadline: float) -> bytes:
        if self.phase == "read":
            raise self.error
        return super().receive(deadline)


@pytest.mark.parametrize("cls", exception_classes())
def test_every_exception_is_judged_by_bytes_alone(cls: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever class comes up: before the first byte the payment is pending, from then on in doubt; no text is kept."""
    error = make(cls)

    def fail_to_look_up(*_: Any) -> Any:
        raise error

    with FaultServer(GOOD) as server:
        for phase, expected in (("connect", State.PENDING), ("write", State.IN_DOUBT), ("read", State.IN_DOUBT)):
            with client_of(server) as client, monkeypatch.context() as patch:
                if phase == "connect":
                    patch.setattr(Connector, "_connect", fail_to_look_up)
                else:
                    patch.setattr("batchpay.gateway.connection.Connection", Raising)
                    patch.setattr(Raising, "error", error, raising=False)
                    patch.setattr(Raising, "phase", phase, raising=False)
                outcome = client.pay(body(phase), nothing)
            assert outcome.state is expected, (phase, outcome)
            assert (outcome.bytes_sent > 0) is (expected is State.IN_DOUBT)
            assert ACCOUNT not in repr(outcome)
            if not isinstance(error, ssl.SSLError):
                assert KEY not in repr(outcome)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The journal of a sandbox to which the whole sample was submitted."""
    path: Path = tmp_path_factory.mktemp("home")
    (path / "payments.csv").write_bytes((SAMPLES / "payments.csv").read_bytes())
    with running(Options(port=0)) as url:
        Home(path, origin=url).json("submit", "payments.csv")
        yield journal_of(url)


def journal_of(url: str) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    while page := control(url, "GET", f"journal?after={requests[-1]['number'] if requests else 0}")["requests"]:
        requests += page
    return requests


def test_every_request_keeps_to_the_description(sent: list[dict[str, Any]]) -> None:
    """Path, query and body of each of the sample's requests are as described (account numbers masked)."""
    description = Description()
    assert sum(request["operation"] == "payment" for request in sent) > 900
    problems = {
        problem
        for request in sent
        for problem in description.request_problems(request["method"], request["path"], request["body"])
    }
    assert problems == set()


def test_the_sample_uses_every_node(sent: list[dict[str, Any]]) -> None:
    """One-time and recurring payments, one and several addresses: the test above has something to look at."""
    bodies = [request["body"] for request in sent if request["operation"] == "payment"]
    assert any("recurring" in body for body in bodies)
    assert any("emails" in body["billing"] for body in bodies)
    assert any("billingEmail" in body["billing"] for body in bodies)


def test_no_payment_is_refused_for_its_form_or_made_twice(sent: list[dict[str, Any]]) -> None:
    """The sandbox checks every field by itself; only what was told to wait arrives a second time."""
    assert {request["http_status"] for request in sent} <= {200, 429, None}
    again = [request for request in sent if request["operation"] == "payment" and request["times"] > 1]
    assert all(request["fault"] in ("busy", None) for request in again)
    made = [request["payment"] for request in sent if request["payment"] is not None]
    assert len(made) == len(set(made))
