"""The reader of answers, fed directly: what it refuses at once, where a connection that stays open would go on."""

from __future__ import annotations

import pytest

from batchpay.gateway.wire import HEAD_BYTES_MAX, INTERIM_ANSWERS_MAX, AnswerReader, AnswerRefused

OK = b"HTTP/1.1 200 OK\r\n"
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
        (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n", "two content-length|not valid HTTP"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", "packed"),
        (OK + b"Content-Length: 41\r\n\r\n", "longer than allowed"),
        (OK + b"X: %b\r\n\r\n" % (b"x" * HEAD_BYTES_MAX), "headers are longer than allowed"),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "unknown version|not valid HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "another protocol"),
        (HINTS * (INTERIM_ANSWERS_MAX + 1), "too many interim answers"),
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
    for byte in HINTS * INTERIM_ANSWERS_MAX + WHOLE:
        assert not reader.done
        reader.feed(bytes([byte]))
    assert (reader.done, reader.http_status, reader.body, reader.keep_alive) == (True, 200, b"{}", True)
    assert reader.headers == {"content-length": "2"}


def test_a_body_that_there_never_is_needs_no_length() -> None:
    """204 says so by itself."""
    reader = fed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (reader.done, reader.body) == (True, b"")
