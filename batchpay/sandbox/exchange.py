"""One request from its arrival to its answer: journal, limit, credentials, faults, and how an answer is broken."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from flask import Request, Response
from waitress.channel import ClientDisconnected  # type: ignore[import-untyped]

from batchpay.sandbox.dialects import DIALECTS, Dialect, Made, Problem, Reply, json_bytes
from batchpay.sandbox.faults import RETURN_CODES, Fault, FaultRules
from batchpay.sandbox.options import Limiter, Options
from batchpay.sandbox.returns import form_of, return_file
from batchpay.sandbox.store import SandboxStore
from batchpay.writing.atomic import atomic_writer

BODY_BYTES_MAX = 65_536
RESET = "batchpay.sandbox.reset"
"""Name in the WSGI environment of a function that makes the connection close with a reset (server.py)."""
_QUERY_NAMES = {"/demoapi/gateways.json": frozenset({"deleted"}), "/v2/api/payment": frozenset({"format"})}
_MASKED = frozenset({"achaccountnumber", "pin", "password"})


class Refused(Exception):
    """A request that is answered with a refusal of this kind."""

    def __init__(self, kind: str, *problems: Problem) -> None:
        super().__init__(kind)
        self.kind = kind
        self.problems = problems


@dataclass(slots=True)
class SandboxExchange:
    """What is known of one request while it is processed."""

    request: Request
    body: bytes
    times: int
    """How often this very request has arrived, this time included."""
    fault: Fault | None = None
    made: Made | None = None

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object without duplicate keys; raises Refused."""
        try:
            value = json.loads(
                self.body, object_pairs_hook=_without_doubles, parse_constant=_no_constant, parse_float=_number
            )
        except (ValueError, RecursionError):
            raise Refused("syntax", Problem("", "the body is not JSON without duplicate keys")) from None
        if not isinstance(value, dict):
            raise Refused("syntax", Problem("", "the body is not a JSON object"))
        return value


Act = Callable[[SandboxExchange], Reply]


def no_body(exchange: SandboxExchange) -> None:
    """Refuse a body where none is wanted; an empty JSON object counts as none."""
    if exchange.body.strip() not in (b"", b"{}"):
        raise Refused("fields", Problem("body", "must be empty"))


@dataclass(slots=True)
class Sandbox:
    """The parts of one running sandbox."""

    options: Options
    store: SandboxStore
    dialect: Dialect = field(init=False)
    rules: FaultRules = field(init=False)
    limiter: Limiter = field(init=False)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the sandbox ends: deliberate waits end."""
    writing: threading.Lock = field(default_factory=threading.Lock)
    """Held while the return file is written."""

    def __post_init__(self) -> None:
        self.dialect = DIALECTS[self.options.dialect]
        self.rules = FaultRules()
        self.limiter = Limiter(self.options.limit, self.options.limit_kind)

    def keep_returns(self) -> None:
        """Write the file of --returns anew, if there is to be one."""
        if path := self.options.returns:
            with self.writing, atomic_writer(path) as file:
                file.write(return_file(self.store, form_of(path)))

    def exchange(self, operation: str, headers: tuple[str, str], request: Request, act: Act) -> Response:
        """Process one request of an API; `headers` are the names of its credential headers."""
        started = time.monotonic()
        body = request.get_data(cache=False)
        path = request.full_path.removesuffix("?")
        number, times = self.store.arrive(operation, request.method, path, body, _masked_body(body))
        exchange = SandboxExchange(request, body, times)
        reply = self._reply(exchange, operation, headers, act)
        if operation.startswith("account_") and reply.body:
            # An error has a `status` too, we assume: by the interface a success has one.
            reply = replace(reply, body=json_bytes({"status": "error", **json.loads(reply.body)}))
        fault = exchange.fault
        answered = None if fault and fault.name in ("silent", "reset_before", "reset_after") else reply.status
        self.store.answered(number, answered, fault.name if fault else None, exchange.made)
        wait_s = self.options.latency_ms / 1000 - (time.monotonic() - started)
        if fault and fault.name == "slow":
            wait_s += fault.delay_ms / 1000
        if wait_s > 0:
            self.stopping.wait(wait_s)
        return _response(reply, fault, request)

    def _reply(self, exchange: SandboxExchange, operation: str, headers: tuple[str, str], act: Act) -> Reply:
        """Decide the answer; faults are checked for once the request has passed the limit and the credentials."""
        dialect = self.dialect
        try:
            if wait_s := self.limiter.wait_s():
                busy = dialect.refusal("busy", [Problem("", "too many requests")], wait_s=wait_s)
                return self._with_limit_headers(busy)
            self._check_credentials(exchange.request, headers)
            known = _QUERY_NAMES.get(exchange.request.path, frozenset())
            if unknown := sorted(set(exchange.request.args) - known):
                raise Refused("fields", Problem(unknown[0], "is not a parameter of this interface"))
            if exchange.request.mimetype != "application/json":  # the interface asks it of every request, a GET too
                raise Refused("media_type", Problem("", "Content-Type must be application/json"))
            if len(exchange.body) > BODY_BYTES_MAX:
                raise Refused("too_large", Problem("", "the body is too large"))
            exchange.fault = self.rules.next(operation)
            if exchange.fault and not exchange.fault.after:
                return self._with_limit_headers(self.fault_reply(exchange.fault))
            reply = act(exchange)
        except Refused as refused:
            reply = dialect.refusal(refused.kind, refused.problems)
        return self._with_limit_headers(reply)

    def fault_reply(self, fault: Fault) -> Reply:
        """Word a fault that replaces the work."""
        dialect = self.dialect
        if fault.name == "decline":
            return dialect.declined_reply(fault.code, fault.text or RETURN_CODES[fault.code])
        if fault.name == "error_in_200":
            return dialect.declined_reply("E500", fault.text or "Internal processing error", status=200)
        if fault.name == "status":
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return Reply(fault.status, b"", headers)
        kind, text, wait_s = {
            "busy": ("busy", "too many requests", 1.0),
            "unavailable": ("unavailable", "temporarily unavailable", 1.0),
        }.get(fault.name, ("error", "internal error", None))
        problem = Problem("", fault.text or text)
        return dialect.refusal(kind, [problem], wait_s=wait_s, retry_after=fault.retry_after)

    def _check_credentials(self, request: Request, headers: tuple[str, str]) -> None:
        wanted = (self.options.api_id, self.options.api_key)
        given = [request.headers.get(name, "") for name in headers]
        if not all(hmac.compare_digest(a.encode(), b.encode()) for a, b in zip(given, wanted, strict=True)):
            raise Refused("credentials", Problem("", f"{headers[0]} or {headers[1]} is missing or wrong"))

    def _with_limit_headers(self, reply: Reply) -> Reply:
        if not self.dialect.limit_headers:
            return reply
        return replace(reply, headers={**reply.headers, **self.limiter.headers()})


def _response(reply: Reply, fault: Fault | None, request: Request) -> Response:
    """Turn an answer into the response that is sent, broken as the fault requires."""
    name = fault.name if fault else ""
    if name == "garbage":
        return Response("<html><body>Bad Gateway</body></html>", 200, content_type="text/html")
    if name == "empty":
        return Response(b"", 200, content_type=reply.content_type)
    headers = dict(reply.headers)
    if name in ("silent", "reset_before", "reset_after", "truncated"):
        part = reply.body[: len(reply.body) // 2] if name == "truncated" else b""
        reset = request.environ.get(RESET) if name.startswith("reset") else None
        headers["Content-Length"] = str(len(reply.body))
        return Response(_cut(part, reset), reply.status, headers, content_type=reply.content_type)
    return Response(reply.body, reply.status, headers, content_type=reply.content_type)


def _cut(part: bytes, reset: Callable[[], None] | None) -> Iterator[bytes]:
    """Send some bytes of an answer, then end the connection.

    waitress sends the header only with the first bytes of a body, and closes a connection silently when the application
    raises ClientDisconnected.
    """
    if part:
        yield part
    if reset is not None:
        reset()
    raise ClientDisconnected


def _masked_body(body: bytes) -> Any:
    """Read a body for the journal, with secrets in it masked; None if it can't be read."""
    try:
        return _masked(json.loads(body)) if body else None
    except (ValueError, RecursionError):
        return None


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mask(item) if name.lower() in _MASKED else _masked(item) for name, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _mask(value: Any) -> str:
    """Return the last four characters of an account number long enough that they don't give it away."""
    return f"****{value[-4:]}" if isinstance(value, str) and len(value) > 4 else "****"


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("duplicate key")
    return value


def _number(text: str) -> int | float:
    """Read a number with a decimal point as JSON means it: 297.0 is the integer 297."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
