"""The gateway's account interface: list, get, create, update, delete and set the default of gateway accounts.

A read may be repeated. A change is repeated only if no byte of the request left this machine; if bytes left and no
recognized answer came back, it is in doubt, and reported as such. Before any payment is claimed, the gateway is asked
whether it accepts our credentials, and each account of the file (`Preflight`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import tenacity

from batchpay.errors import BatchpayError, CredentialsRefused, GatewayUnreachable, RunStopped
from batchpay.gateway.answer import NotStrictJson, Secrets, parse_object
from batchpay.gateway.channel import Channel, Exchange
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient, outcome_without_answer
from batchpay.gateway.profile import MESSAGE_CHARACTERS_MAX, Profile, defused
from batchpay.outcome import Outcome
from batchpay.payment import State
from batchpay.schemas.columns import ACCOUNT_SECRETS
from batchpay.settings import GatewaySettings

Value = TypeVar("Value")

ATTEMPTS_MAX = 4
WAIT_S_FIRST = 0.2
WAIT_S_MAX = 5.0
_ID_MAX = 2**63 - 1
_REFUSED_HTTP = {"404": "declined", "409": "declined"}
"""In this interface these answers concern the account: its id is unknown, or it is in the wrong state."""


class AccountRefused(BatchpayError):
    """The gateway answered no; nothing was changed."""

    exit_code = 3


class AccountInDoubt(BatchpayError):
    """Bytes of a change left and no recognized answer came back; the text says how to check."""

    exit_code = 7


@dataclass(frozen=True, slots=True)
class GatewayAccount:
    """An account as the gateway returns it."""

    id: int
    gateway_type_id: int | str | None
    gateway_name: str
    gateway_display_name: str | None
    date_updated: str | None
    date_created: str | None

    @property
    def is_echeck(self) -> bool:
        """Return whether payments of this interface can go through it."""
        return self.gateway_name.endswith("_ach")

    def as_json(self) -> dict[str, Any]:
        """Return the account under the gateway's own names."""
        return asdict(self)


def account_id(text: str) -> int | None:
    """Read an account's id, a positive whole number in digits; return None if the text is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return int(text) if 0 < int(text) <= _ID_MAX else None


class AccountsClient:
    """Reads and changes gateway accounts; safe to share between threads."""

    def __init__(
        self,
        settings: GatewaySettings,
        credentials: Credentials,
        wait: Callable[[tenacity.RetryCallState], float] | None = None,
    ) -> None:
        """Check the settings, open nothing; raises SettingsNotUsable. `wait` paces repeated attempts."""
        # The interface documents this API's envelope, so a profile for payments does not apply here.
        self._profile = Profile.load(replace(settings, profile={"http": _REFUSED_HTTP}))
        self._secrets = Secrets(others=(credentials.api_key.reveal(),))
        self._wait = wait or tenacity.wait_random_exponential(multiplier=WAIT_S_FIRST, max=WAIT_S_MAX)
        self._channel = Channel(
            settings,
            headers={"svs-api-id": credentials.api_id},
            secret_headers={"svs-api-key": credentials.api_key},
        )

    @property
    def origin(self) -> str:
        """Return the gateway's origin, as shown to people."""
        return str(self._channel.origin)

    def close(self) -> None:
        """Close all connections."""
        self._channel.close()

    def accounts(self, deleted: bool | None = None) -> list[GatewayAccount]:
        """Return the deleted accounts, the others, or all. Raises RunStopped, AccountRefused."""
        query = "" if deleted is None else f"?deleted={int(deleted)}"
        return self._read(f"/demoapi/gateways.json{query}", lambda message: [_account(i) for i in message["gateways"]])

    def get(self, number: int) -> GatewayAccount:
        """Return one account. Raises RunStopped; AccountRefused if there is none."""
        return self._read(f"/demoapi/gateway.json/{number}", lambda message: _account(message["gateway"], number))

    def create(self, node: Mapping[str, int | str]) -> int:
        """Create an account and return its id. Raises RunStopped, AccountRefused, AccountInDoubt."""
        look = (
            f"the account may have been created: `batchpay gateway list --not-deleted` shows whether a new"
            f" {node.get('gateway_name')} is there, before you create it again"
        )
        return self._change("gateway.json", node, lambda message: _whole(message["gateway"]["gateway_id"]), look)

    def update(self, number: int, node: Mapping[str, int | str]) -> str:
        """Replace an account's attributes; return the gateway's message. Raises as `create`."""
        look = f"`batchpay gateway get {number}` shows when it was last updated"
        return self._change(f"gateway.json/{number}/update", node, _words, look)

    def delete(self, number: int) -> str:
        """Delete an account; return the gateway's message. Raises as `create`."""
        look = f"`batchpay gateway list --deleted` shows whether {number} is among the deleted"
        return self._change(f"gateway.json/{number}/delete", {}, _words, look)

    def make_default(self, number: int) -> str:
        """Make an account the default of its kind; return the gateway's message. Raises as `create`."""
        look = "making it the default again does no harm"
        return self._change(f"gateway.json/{number}/default", {}, _words, look)

    def _read(self, path: str, take: Callable[[Any], Value]) -> Value:
        """GET, repeated while there is no usable answer."""

        def unusable(exchange: Exchange) -> bool:
            outcome = self._outcome(exchange, self._secrets)
            return outcome.state in (State.PENDING, State.IN_DOUBT) and outcome.stop is None

        exchange = self._repeat(unusable, lambda: self._channel.exchange("GET", path))
        outcome = self._outcome(exchange, self._secrets)
        if outcome.state is not State.DECLINED or self._is_refused_in_words(exchange):
            self._raise_for(outcome)
        with suppress(KeyError, TypeError, ValueError):
            return take(_message(exchange, outcome, self._secrets))
        if exchange.http_status is None:
            raise GatewayUnreachable(outcome.reason)
        raise RunStopped(f"{self.origin} gave an answer that is not recognized ({outcome.reason})")

    def _change(self, path: str, node: Mapping[str, int | str], take: Callable[[Any], Value], look: str) -> Value:
        """POST, repeated only if no byte left; without attributes it has no body."""
        body = json.dumps({"gateway": dict(node)}, ensure_ascii=False, separators=(",", ":")).encode() if node else b""
        secrets = Secrets(
            others=[*self._secrets.others, *(str(node[name]) for name in ACCOUNT_SECRETS if name in node)]
        )

        def unsent(exchange: Exchange) -> bool:
            return exchange.http_status is None and exchange.bytes_sent == 0 and not exchange.certificate

        exchange = self._repeat(unsent, lambda: self._channel.exchange("POST", f"/demoapi/{path}", body))
        outcome = self._outcome(exchange, secrets)
        self._raise_for(outcome)
        with suppress(KeyError, TypeError, ValueError):
            return take(_message(exchange, outcome, secrets))
        raise AccountInDoubt(f"in doubt ({outcome.reason}): {look}")

    def _repeat(self, again: Callable[[Exchange], bool], attempt: Callable[[], Exchange]) -> Exchange:
        """Return the first exchange that need not be repeated, or the last one."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(again),
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
            wait=self._wait,
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        exchange: Exchange = retrying(attempt)
        return exchange

    def _outcome(self, exchange: Exchange, secrets: Secrets) -> Outcome:
        if exchange.http_status is None:
            return outcome_without_answer(exchange)
        status = exchange.http_status
        return self._profile.outcome_of(status, exchange.headers, exchange.body, secrets=lambda: secrets)

    def _is_refused_in_words(self, exchange: Exchange) -> bool:
        """Return whether the interface itself says no: the bare 404 of a proxy says nothing about an account.

        Rows of an account that does not exist are rejected for good.
        """
        try:
            word = parse_object(exchange.body).get("status")
        except NotStrictJson:
            return False
        return exchange.http_status == 404 or (isinstance(word, str) and word in self._profile.declined)

    def _raise_for(self, outcome: Outcome) -> None:
        """Raise for an outcome that proves that nothing was changed."""
        status, said = outcome.answer.http_status, outcome.answer.message
        if status in (401, 403):
            raise CredentialsRefused(f"{self.origin} refuses the id or the key (HTTP {status})")
        if outcome.state is State.DECLINED:
            raise AccountRefused(f"the gateway refused: {said or outcome.stop or outcome.reason}")
        if outcome.state is State.PENDING and status is None:
            raise GatewayUnreachable(outcome.reason)
        if outcome.state is State.PENDING:
            raise RunStopped(f"{self.origin} is busy (HTTP {status}), nothing was changed; try again later")


def _message(exchange: Exchange, outcome: Outcome, secrets: Secrets) -> Any:
    """Return the content of the success envelope; raises KeyError, TypeError or ValueError for any other answer."""
    if outcome.state is not State.ACCEPTED:
        raise ValueError
    return _defused(parse_object(exchange.body)["successMessage"]["message"], secrets)


def _defused(value: Any, secrets: Secrets) -> Any:
    """Return a value of an answer with its texts as they may be shown and written."""
    if isinstance(value, str):
        return defused(value, MESSAGE_CHARACTERS_MAX, secrets) or ""
    if isinstance(value, list):
        return [_defused(item, secrets) for item in value]
    return {name: _defused(part, secrets) for name, part in value.items()} if isinstance(value, dict) else value


def _words(message: Any) -> str:
    if not isinstance(message, str):
        raise TypeError
    return message


def _account(item: Any, number: int | None = None) -> GatewayAccount:
    """Read an account; only its id and name are required.

    By an answer for another account than `number` that takes no bank payments rows would be rejected for good: it is
    not recognized. One that takes them stops nothing, as a gateway may name accounts by an id of its own.
    """
    type_id = item.get("gateway_type_id")
    found = GatewayAccount(
        id=_whole(item["id"]),
        gateway_type_id=type_id if isinstance(type_id, (int, str)) else None,
        gateway_name=_words(item["gateway_name"]),
        gateway_display_name=_text(item.get("gateway_display_name")),
        date_updated=_text(item.get("date_updated")),
        date_created=_text(item.get("date_created")),
    )
    if number is not None and found.id != number and not found.is_echeck:
        raise ValueError
    return found


def _whole(value: Any) -> int:
    """Read an id given as a number or in digits."""
    number = account_id(str(value)) if isinstance(value, (int, str)) else None
    if number is None:
        raise TypeError
    return number


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


UNKNOWN = "unknown"
NOT_ECHECK = "not_echeck"


class Preflight:
    """Asks the gateway once about each account, however many rows it concerns."""

    def __init__(self, settings: GatewaySettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._codes: dict[str, str | None] = {}

    def check_connection(self) -> None:
        """Raise CredentialsRefused or GatewayUnreachable unless the gateway answers and accepts our credentials."""
        with closing(PaymentsClient(self._settings, self._credentials)) as client:
            report = client.test_connection()
        if not report.ok:
            error = CredentialsRefused if report.http_status in (401, 403) else GatewayUnreachable
            raise error(report.problem or "the gateway did not answer as expected")

    def refused(self, gateway_ids: Iterable[str]) -> dict[str, str]:
        """Return the ids that no payment can go through, with the code of what is wrong; raises RunStopped."""
        wanted = list(dict.fromkeys(gateway_ids))
        with closing(AccountsClient(self._settings, self._credentials)) as client:
            for gateway_id in wanted:
                if gateway_id not in self._codes:
                    code: str | None = UNKNOWN
                    if (number := account_id(gateway_id)) is not None:
                        with suppress(AccountRefused):
                            code = None if client.get(number).is_echeck else NOT_ECHECK
                    self._codes[gateway_id] = code
        codes = {gateway_id: self._codes[gateway_id] for gateway_id in wanted}
        return {gateway_id: code for gateway_id, code in codes.items() if code is not None}
