"""The reader of answers, fed directly: what it refuses at once, where a connection that stays open would go on."""

from __future__ import annotations

import pytest

from batchpay.gateway.wire import HEAD_BYTES_MAX, INTERIM_ANSWERS_MAX, AnswerReader, AnswerRefused

OK = b"HTTP/1.1 200 OK\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\n{}"
BODY_BYTES_MAX = 40


def fed(data: bytes) -> AnswerReader:
    reader = AnswerReader(BODY_BYTES_MAX)
    reader.feed(data)
    return reader


@pytest.mark.parametrize(
    ("data", "why"),
    [
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
        (b"HTTP/1.1 099 Odd\r\n\r\n" + WHOLE, "not valid HTTP"),
        (WHOLE * 2, "more came than one answer"),
        (b"hello", "not valid HTTP"),
    ],
)
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
