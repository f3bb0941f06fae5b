"""The gateway's payment interface: one payment, one outcome; and the connection test."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.answer import Secrets
from batchpay.gateway.channel import Channel, Exchange
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.profile import Profile
from batchpay.gateway.transport import BeforeFirstByte
from batchpay.gateway.wire import checked_target
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.settings import GatewaySettings

CONNECTION_PATH = "/v2/api/connection.json"

_IN_DOUBT = State.IN_DOUBT
_ACCOUNT, _ROUTING = b'"achAccountNumber"', b'"achRoutingNumber"'
_TEXT = re.compile(rb'\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")')


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """The result of asking the gateway whether it accepts our credentials."""

    ok: bool
    origin: str
    http_status: int | None
    elapsed_s: float
    tls: str | None
    """The version of TLS; None without it."""
    message: str | None
    """What the gateway says, defused."""
    problem: str | None
    """What is wrong, in plain words; None if nothing is."""


class PaymentsClient:
    """Sends payments; safe to share between threads, each of which keeps one connection."""

    def __init__(self, settings: GatewaySettings, credentials: Credentials) -> None:
        """Check settings and profile, open nothing; raises SettingsNotUsable."""
        self._profile = Profile.load(settings)
        self._key = credentials.api_key
        try:
            self._payment_path = checked_target(settings.payment_path)
        except ValueError as error:
            raise SettingsNotUsable(f"gateway.payment_path: {error}") from None
        self._channel = Channel(
            settings,
            headers={f"{settings.service_header}-API-ID": credentials.api_id},
            secret_headers={f"{settings.service_header}-API-KEY": credentials.api_key},
        )

    @property
    def origin(self) -> str:
        """Return the gateway's origin, as it is shown and recorded."""
        return str(self._channel.origin)

    def pay(self, body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
        """Send one payment, once; `body` is its JSON, sent byte for byte.

        `before_first_byte` is called after a connection is open and before any byte of the request leaves; what it
        raises propagates to the caller, with nothing sent. Nothing is sent either if the permission that it returns has
        expired. Nothing that the network or the gateway does ever raises.
        """
        exchange = self._channel.exchange("POST", self._payment_path, body, before_first_byte)
        if exchange.http_status is None:
            return outcome_without_answer(exchange)
        try:
            outcome = self._profile.outcome_of(
                exchange.http_status,
                exchange.headers,
                exchange.body,
                sent=lambda name: _member(body, f'"{name}"'.encode()),
                secrets=lambda: self._secrets(body),
                bytes_sent=exchange.bytes_sent,
            )
        except Exception as error:  # the request has left: not even our own fault may hide that
            self._channel.drop_connection()
            reason = f"the answer could not be judged ({type(error).__name__})"
            return Outcome(State.IN_DOUBT, reason, Answer(exchange.http_status), exchange.bytes_sent)
        if outcome.state is _IN_DOUBT:
            self._channel.drop_connection()
        return outcome

    def test_connection(self) -> ConnectionReport:
        """Ask the gateway whether it accepts the id and key; no network failure raises."""
        exchange = self._channel.exchange("POST", CONNECTION_PATH)
        if exchange.http_status is None:
            return self._report(exchange, None, exchange.problem)
        outcome = self._profile.outcome_of(
            exchange.http_status, exchange.headers, exchange.body, secrets=lambda: self._secrets(b"")
        )
        return self._report(exchange, outcome.answer.message, _problem(outcome))

    def close(self) -> None:
        """Close all connections."""
        self._channel.close()

    def _secrets(self, body: bytes) -> Secrets:
        """Return what an answer might repeat and must not be stored: the payment's account, routing number, the key."""
        return Secrets(_member(body, _ACCOUNT), (_member(body, _ROUTING), self._key.reveal()))

    def _report(self, exchange: Exchange, message: str | None, problem: str | None) -> ConnectionReport:
        return ConnectionReport(
            ok=problem is None,
            origin=self.origin,
            http_status=exchange.http_status,
            elapsed_s=exchange.elapsed_s,
            tls=exchange.tls_version,
            message=message,
            problem=problem,
        )


def outcome_without_answer(exchange: Exchange) -> Outcome:
    """Judge an exchange without a complete answer: by the bytes that left, and by nothing else."""
    problem = exchange.problem or "no complete answer"
    if exchange.bytes_sent > 0:
        return Outcome(State.IN_DOUBT, problem, bytes_sent=exchange.bytes_sent)
    return Outcome(State.PENDING, problem, stop=problem if exchange.certificate else None)


def _member(body: bytes, quoted: bytes) -> str:
    """Return one text of a payment, '' if it has none; json.dumps made its body, so that a member can be cut out."""
    at = 0
    while (at := body.find(quoted, at) + len(quoted)) >= len(quoted):
        if found := _TEXT.match(body, at):  # otherwise it is the text of another member
            text = found[1]
            return str(json.loads(text)) if b"\\" in text else text[1:-1].decode()
    return ""


def _problem(outcome: Outcome) -> str | None:
    """Describe what is wrong by a judged answer to the connection test; None if nothing is."""
    if outcome.state is State.ACCEPTED:
        return None
    status = outcome.answer.http_status
    if status in (401, 403):
        return f"the gateway refuses the id or the key (HTTP {status})"
    if outcome.stop is not None:
        return outcome.stop
    if outcome.pace is not None and outcome.pace.refused:
        return f"the gateway is busy (HTTP {status}): try again later"
    if outcome.state is State.DECLINED:
        return f"the gateway refused the request ({outcome.reason})"
    return f"the gateway gave an answer that is not recognized ({outcome.reason})"
