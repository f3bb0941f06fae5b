"""A gateway in a thread that counts what arrived, by command and by payment, and answers as instructed.

It listens on two ports: the live gateway and its sandbox. A payment is recorded whole before it is answered. The
command is known by the API key in the header (each command of a walk has its own), the economic payment by the
billingInternalId, which no change of a file touches.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.model.command import command_of

_ACCOUNT = {
    "status": "success",
    "successMessage": {"response_code": 305, "message": {"gateway": {"id": 1001, "gateway_name": "processorA_ach"}}},
}
_ANSWERS: dict[str, tuple[int, bytes]] = {
    "success": (
        200,
        b'{"status": "success", "successMessage": {"response_code": 200, "message": "ok", "transaction_id": "REF"}}',
    ),
    "error": (200, b'{"status": "error", "errorMessage": {"response_code": 400, "message": "insufficient funds"}}'),
    "both": (200, b'{"status": "success", "errorMessage": {"response_code": 400, "message": "insufficient funds"}}'),
    "garbage": (200, b"<html>something went wrong</html>"),
    "too many": (429, b'{"status": "error"}'),
}
_PROOF_OF_NOT_APPLIED = ("too many",)


@dataclass(slots=True)
class Arrival:
    """One complete request for a payment."""

    command: str
    payment: int
    invoice: str | None
    amount: str
    live: bool
    """Whether it arrived at the live gateway, not at the sandbox."""
    answer: str
    """What the gateway answered: success, error, both, garbage, too many, none; twice is a success and one more,
    repeated a success with the reference of all others of its kind."""
    reference: str = ""
    """The gateway's own id of the payment, which a success reports."""
    void: str = ""
    """Why it does not count as a payment: declined, not applied, or what a person decided."""


Hook = Callable[[str, int], None]
"""Called before a request is answered: with `account`, `connection` or `payment`, and how many of them arrived."""


@dataclass
class Gateway:
    """Both gateways; `begin` starts a new walk."""

    arrivals: list[Arrival] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """Answers of the next payments; success when none is left."""
    hook: Hook | None = None
    odd_answers: int = 0
    """How many payments were answered with something other than success."""
    _counts: dict[str, int] = field(default_factory=dict)
    _turn: threading.RLock = field(default_factory=threading.RLock)
    _listeners: list[socket.socket] = field(default_factory=list)

    def start(self) -> Gateway:
        """Listen on two free ports."""
        for live in (True, False):
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, live), daemon=True).start()
        return self

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def origin(self, *, live: bool) -> str:
        return f"http://127.0.0.1:{self._listeners[0 if live else 1].getsockname()[1]}"

    def begin(self) -> None:
        """Forget everything: a new walk."""
        self.arrivals, self.answers, self.hook, self._counts = [], [], None, {}
        self.odd_answers = 0

    def of(self, command: str) -> list[Arrival]:
        """Return what a command sent."""
        return [one for one in self.arrivals if one.command == command]

    def _accept(self, listener: socket.socket, live: bool) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, live), daemon=True).start()

    def _serve(self, connection: socket.socket, live: bool) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while line := stream.readline():
                    headers: dict[str, str] = {}
                    while (one := stream.readline()) not in (b"\r\n", b""):
                        name, _, value = one.decode("latin-1").partition(":")
                        headers[name.strip().lower()] = value.strip()
                    length = int(headers.get("content-length", 0))
                    body = stream.read(length)
                    if len(body) < length or not self._answer(connection, line.decode("latin-1"), headers, body, live):
                        return
            except OSError:
                return  # the sender is gone

    def _answer(self, connection: socket.socket, line: str, headers: dict[str, str], body: bytes, live: bool) -> bool:
        """Answer one request; False closes the connection."""
        kind = "payment" if "/payment" in line else "account" if line.startswith("GET") else "connection"
        with self._turn:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            answer, reference = "success", f"T{count}"
            if kind == "payment":
                answer = self.answers.pop(0) if self.answers else "success"
                self.odd_answers += answer != "success"
                reference = "T-ALL" if answer == "repeated" else reference
                self._note(json.loads(body), headers, answer, live, reference)
        if self.hook is not None:
            self.hook(kind, count)
        if answer == "none":
            return False
        text = json.dumps(_ACCOUNT).encode() if kind == "account" else b""
        status, text = (200, text) if text else _ANSWERS["success" if answer in ("twice", "repeated") else answer]
        text = text.replace(b"REF", reference.encode())
        whole = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            status, len(text), text,
        )  # fmt: skip
        connection.sendall(whole * (2 if answer == "twice" else 1))
        return True

    def _note(self, payment: dict[str, Any], headers: dict[str, str], answer: str, live: bool, reference: str) -> None:
        command = command_of(headers.get("service-api-key", ""))
        number = int(payment["billing"]["billingInternalId"].removeprefix("E"))
        invoice, amount = str(payment.get("invoiceNumber")), str(payment["amount"])
        arrival = Arrival(command, number, invoice, amount, live, answer, reference)
        if answer == "error":
            arrival.void = "declined"
        elif answer in _PROOF_OF_NOT_APPLIED:
            arrival.void = "not applied"
        self.arrivals.append(arrival)
