"""HTTP/1.1 as bytes: the head of a request, and one answer read strictly under caps.

Strict means: whatever could let two readers disagree about where an answer ends (two lengths, a length as well as
chunks, no length at all) is refused, and so is a body that would have to be decompressed. A refused answer is not an
answer: the payment is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import httptools

HEAD_BYTES_MAX = 32_768
"""Most bytes of an answer's header names and values."""
INTERIM_ANSWERS_MAX = 16
"""Most 1xx answers skipped before the answer itself."""
FRAMING_FACTOR = 8
"""A body in the smallest chunks takes six bytes on the wire for each of its own; anything beyond this is padding."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?", re.ASCII)
_TARGET = re.compile(r"/[!-~]*", re.ASCII)
_NO_BODY_STATUSES = frozenset({204, 304})


class AnswerRefused(Exception):
    """What came back is not a single complete HTTP answer within the caps; the text is safe to show."""


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return header lines as bytes; raises ValueError if a name or value is not allowed in one (it is not quoted)."""
    lines = []
    for name, value in headers:  # one by one: a value that contains a line break would pass for two headers
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("a header's name or value contains characters that are not allowed in a header")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("ascii")


def checked_target(target: str) -> str:
    """Return a request target (path and query) if it is fit for the request line; raises ValueError."""
    if not _TARGET.fullmatch(target):
        raise ValueError("a path must begin with / and contain no spaces, control or non-ASCII characters")
    return target


@dataclass(slots=True, eq=False)
class AnswerReader:
    """Reads one answer to one request from the bytes as they arrive; 1xx answers before it are skipped."""

    _body_bytes_max: int
    done: bool = field(default=False, init=False)
    """Whether the answer is complete."""
    headers: dict[str, str] = field(default_factory=dict, init=False)
    """By lower-case name; trailers are left out."""
    http_status: int = field(default=0, init=False)
    keep_alive: bool = field(default=False, init=False)
    """Whether the connection may carry another request."""
    _body: list[bytes] = field(default_factory=list, init=False, repr=False)
    _body_bytes: int = field(default=0, init=False)
    _head_bytes: int = field(default=0, init=False)
    _in_body: bool = field(default=False, init=False)
    _interim_answers: int = field(default=0, init=False)
    _received: int = field(default=0, init=False)
    _refusal: str | None = field(default=None, init=False)
    _parser: httptools.HttpResponseParser | None = field(init=False)

    def __post_init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)

    @property
    def body(self) -> bytes:
        """Return the body of the complete answer."""
        return b"".join(self._body)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raises AnswerRefused."""
        assert self._parser is not None, "nothing is fed after the answer is complete"
        self._received += len(data)
        if self._received > HEAD_BYTES_MAX * 2 + self._body_bytes_max * FRAMING_FACTOR:
            raise AnswerRefused("the answer is longer than allowed")
        if not self._in_body and self._received > HEAD_BYTES_MAX * 4:
            raise AnswerRefused("the answer's headers are longer than allowed")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise AnswerRefused("the answer switches to another protocol") from None
        except httptools.HttpParserError:
            raise AnswerRefused(self._refusal or "the answer is not valid HTTP") from None
        if self.done:
            self._parser = None  # the parser holds this reader's methods: a cycle that only the collector would free

    # Callbacks of httptools. An error raised here ends the parsing.

    def on_message_begin(self) -> None:
        """Refuse a second answer to the same request."""
        if self.done:
            self._refuse("more came than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; count a trailer and leave it out.

        Two lengths or codings become one that is refused: a number or word with a comma is none that is allowed.
        """
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse("the answer's headers are longer than allowed")
        if self._in_body:
            return
        headers, key, text = self.headers, name.decode("latin-1").lower(), value.decode("latin-1").strip()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Refuse headers that leave open where the answer ends."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == 101:
            self._refuse("the answer switches to another protocol")
        if status < 100:
            self._refuse("the answer is not valid HTTP")
        if status < 200:
            return
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse("the answer is of an unknown version of HTTP")
        self._in_body = True
        length, coding = self.headers.get("content-length"), self.headers.get("transfer-encoding")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            self._refuse("the answer is compressed, which was not requested")
        if coding is not None and (length is not None or coding.lower() != "chunked"):
            self._refuse("the answer's length is stated in two ways")
        if coding is None and length is None and status not in _NO_BODY_STATUSES:
            self._refuse("the answer does not say where it ends")
        if length is not None and (not length.isdecimal() or int(length[:20]) > self._body_bytes_max):
            self._refuse("the answer is longer than allowed")

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body, up to the cap.

        An interim answer has no body: what another reader takes for the answer itself could pass for one.
        """
        if not self._in_body:
            self._refuse("an interim answer has a body")
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            self._refuse("the answer is longer than allowed")
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Record the answer, or skip an interim one."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200:
            self.http_status = status
            self.keep_alive = self._parser.should_keep_alive()  # outside this call it is always False
            self.done = True
            return
        self._interim_answers += 1
        if self._interim_answers > INTERIM_ANSWERS_MAX:
            self._refuse("too many interim answers")
        self.headers.clear()

    def _refuse(self, why: str) -> None:
        self._refusal = why
        raise AnswerRefused(why)
