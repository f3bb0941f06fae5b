"""How the sandbox words what the gateway's interface leaves open.

The interface documents the success envelope of the accounts API and nothing else: no answers to a payment or a
connection test, no error, no HTTP status, no Retry-After. Each dialect is one guess at all of that. `envelope`, the
default, is our assumption: the documented envelope, applied to payments too, and its likeliest counterpart for errors.
The client must work in every dialect, with the gateway profile that the dialect names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

JSON_TYPE = "application/json"


def json_bytes(value: Any) -> bytes:
    """Return a JSON value as it is sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer before it is sent."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE

    @classmethod
    def of_json(cls, status: int, value: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """Answer with a JSON value."""
        return cls(status, json_bytes(value), headers or {})


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a request: its field (dotted, '' for the whole) and a text."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """A payment that was made."""

    number: int
    invoice: str | None
    series: str = ""
    """Letters that differ from one start of a sandbox to the next: its references are not given twice."""

    @property
    def reference(self) -> str:
        """The id by which the gateway would identify it."""
        return f"SBX{self.series}{self.number:09d}"


_KINDS = {
    "credentials": 401,
    "not_found": 404,
    "method": 405,
    "media_type": 415,
    "too_large": 413,
    "syntax": 400,
    "fields": 400,
    "no_account": 404,
    "state": 409,
    "busy": 429,
    "error": 500,
    "unavailable": 503,
}
"""Why a request is refused, and the HTTP status that the default dialect uses for it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to answer."""

    name: str
    summary: str
    profile: Mapping[str, Any]
    """What the client's setting `gateway.profile` must hold to understand it."""
    made: Callable[[Made], Any]
    declined: Callable[[str, str], Any]
    refused: Callable[[str, int, Sequence[Problem]], Any]
    """From the kind of refusal, the default HTTP status for it, and what is wrong."""
    connected: Callable[[], Any]
    made_status: int = 200
    declined_status: int = 200
    statuses: Mapping[str, int] = field(default_factory=dict)
    """HTTP statuses of refusals that differ from the default's."""
    retry_after: str = "seconds"
    """`seconds`, `date` or `none`."""
    limit_headers: bool = False

    def declined_reply(self, code: str, text: str, status: int | None = None) -> Reply:
        """Report that a payment was declined."""
        return Reply.of_json(status or self.declined_status, self.declined(code, text))

    def refusal(
        self, kind: str, problems: Sequence[Problem], *, wait_s: float | None = None, retry_after: str | None = None
    ) -> Reply:
        """Refuse a request; `wait_s` is how long it must wait, `retry_after` a header to send verbatim."""
        status = self.statuses.get(kind, _KINDS[kind])
        headers = {}
        if retry_after is None and wait_s is not None:
            retry_after = self._retry_after(wait_s)
        if retry_after is not None:
            headers["Retry-After"] = retry_after
        return Reply.of_json(status, self.refused(kind, _KINDS[kind], problems), headers)

    def _retry_after(self, wait_s: float) -> str | None:
        seconds = max(1, -int(-wait_s // 1))
        if self.retry_after == "date":
            # A date has whole seconds: add one, so that it is not over before the wait is.
            return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds + 1), usegmt=True)
        return str(seconds) if self.retry_after == "seconds" else None


def success(response_code: int | str, message: Any) -> Any:
    """Wrap a message in the success envelope that the accounts API documents."""
    return {"status": "success", "successMessage": {"response_code": response_code, "message": message}}


def _first(problems: Sequence[Problem]) -> str:
    problem = problems[0]
    return f"{problem.field}: {problem.text}" if problem.field else problem.text


def _envelope_error(code: Any, message: str, name: str = "") -> Any:
    inner = {"response_code": code, "message": message}
    return {"status": "error", "errorMessage": {**inner, **({"field": name} if name else {})}}


ENVELOPE = Dialect(
    name="envelope",
    summary="our assumption: the documented envelope for payments too, errors in its counterpart errorMessage",
    profile={},
    made=lambda made: success(
        100, {"payment": {"transaction_id": made.reference, "invoiceNumber": made.invoice, "result": "Approved"}}
    ),
    declined=_envelope_error,
    refused=lambda _kind, status, problems: _envelope_error(status, _first(problems), problems[0].field),
    connected=lambda: success(200, "Connection Success"),
)

FLAT = Dialect(
    name="flat",
    summary="one level, declines as HTTP 402, every wrong field as HTTP 422, no Retry-After",
    profile={},
    made=lambda made: {"status": "success", "transactionId": made.reference, "message": "Approved"},
    declined=lambda code, text: {"status": "declined", "code": code, "message": text},
    refused=lambda kind, _status, problems: {
        "status": "fail",
        "code": kind.upper(),
        "message": _first(problems),
        "errors": [{"field": problem.field, "message": problem.text} for problem in problems],
    },
    connected=lambda: {"status": "success", "message": "Connected"},
    made_status=201,
    declined_status=402,
    statuses={"fields": 422, "syntax": 422},
    retry_after="none",
)

ALWAYS_200 = Dialect(
    name="always_200",
    summary="HTTP 200 for every answer that the gateway itself gives, the rest in the body; Retry-After as a date",
    profile={},
    made=lambda made: {"status": "success", "response": {"responseCode": "00", "paymentId": made.reference}},
    declined=lambda code, text: {"status": "failed", "response": {"responseCode": code, "responseText": text}},
    refused=lambda _kind, status, problems: {
        "status": "failure",
        "response": {"responseCode": str(status), "responseText": _first(problems)},
    },
    connected=lambda: {"status": "success"},
    statuses=dict.fromkeys(
        ("not_found", "method", "media_type", "too_large", "syntax", "fields", "no_account", "state"), 200
    ),
    retry_after="date",
)

RESULT = Dialect(
    name="result",
    summary="no `status` member but `result`, other words, and X-RateLimit headers",
    profile={"status_member": "result", "accepted": ["APPROVED", "OK"], "declined": ["DENIED", "INVALID"]},
    made=lambda made: {"result": "APPROVED", "id": made.reference, "reason": None},
    declined=lambda code, text: {"result": "DENIED", "reason": {"code": code, "text": text}},
    refused=lambda _kind, _status, problems: {
        "result": "INVALID",
        "reason": {"code": "INVALID", "text": _first(problems)},
    },
    connected=lambda: {"result": "OK"},
    statuses={"fields": 200, "syntax": 200},
    limit_headers=True,
)

SHARED = replace(
    FLAT,
    name="shared",
    summary="as flat, with one reference for eight payments (gateway.reference_is_unique = false)",
    made=lambda made: {"status": "success", "transactionId": replace(made, number=made.number // 8).reference},
)

DIALECTS = {dialect.name: dialect for dialect in (ENVELOPE, FLAT, ALWAYS_200, RESULT, SHARED)}


def listing() -> str:
    """Write the text of `--list-dialects`: name, what it does, and the profile it needs as TOML."""
    lines = []
    for dialect in DIALECTS.values():
        profile = ", ".join(f"{name} = {json.dumps(value)}" for name, value in dialect.profile.items())
        needs = f"gateway.profile = {{ {profile} }}" if profile else "the client's default profile"
        lines.append(f"{dialect.name:<11} {dialect.summary}; needs {needs}")
    return "\n".join(lines)
