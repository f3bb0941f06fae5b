"""What an answer means: CONTRACT.md's table as data, changed by the setting `gateway.profile`, checked when loaded.

The gateway's answers to payments are not documented. So the table is ours, and whoever knows better can override it:

    [gateway.profile]
    status_member = "result.word"        # where the deciding word is found (dotted); `status` by default
    accepted = ["APPROVED"]              # words for a payment that was made, exactly as written
    declined = ["DENIED"]                # words for a payment that was not
    reference = ["transactionId"]        # names under which the answer's own id is looked for, the likeliest first
    message = ["responseText"]           # likewise for its text
    response_code = ["responseCode"]     # likewise for its code
    status = ["state"]                   # names of what may contradict an accepted word
    not_accepted = ["declined", "hold"]  # words or phrases that do, in any letter case
    echo = ["invoiceNumber"]             # names under which the answer may repeat the payment's invoiceNumber
    echo_amount = ["amount"]             # its amount; likewise echo_direction (DEBIT, CREDIT) and echo_currency
    error = ["errorMessage"]             # names used only for errors
    success = ["successMessage"]         # names used only for successes
    [gateway.profile.http]               # meaning of an HTTP status: word, declined, pending or in_doubt
    409 = "declined"
    402 = "word"
    404 = "declined, stop"               # and the run stops

An answer that repeats another invoiceNumber, amount, direction or currency than the payment's belongs to another
payment: it leaves this one in doubt. So does an answer that says yes and no at the same time: the word `success` next
to an errorMessage, or to a status that says no or not yet (answer.py). No table can turn silence, a redirect or
an answer without a word into an accepted payment.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.answer import (
    GOOD,
    PAID,
    Node,
    NotStrictJson,
    Secrets,
    Sent,
    echoes_another,
    folded,
    masked,
    message_against,
    nodes_of,
    of_this_payment,
    parse_object,
    read_pace,
    status_against,
)
from batchpay.outcome import CUT, Answer, Outcome, Pace
from batchpay.payment import State
from batchpay.settings import GatewaySettings

_TABLE = csv.DictReader(Path(__file__).with_name("profile.csv").read_text("utf-8").splitlines())
_WORDS = {line["part"]: tuple(line["words"].split("; ")) for line in _TABLE}
"""Names and words of each part, the likeliest first."""
WORD = "word"
"""An HTTP status whose meaning the body's word decides."""

_MEANINGS = {
    WORD: None,
    "declined": State.DECLINED,
    "pending": State.PENDING,
    "in_doubt": State.IN_DOUBT,
}

_STOPS = {
    401: "credentials refused",
    403: "credentials refused",
    404: "the gateway does not know the path (HTTP 404): is gateway.base_url correct?",
    405: "the gateway refuses the method (HTTP 405): is gateway.base_url correct?",
    415: "the gateway refuses the content type (HTTP 415)",
}
_REDIRECTED = "the gateway redirects, which is not followed: is gateway.base_url correct?"

_DEFAULT_HTTP: dict[str, str] = {
    "2xx": WORD,
    "3xx": "in_doubt, stop",
    **dict.fromkeys(("400", "402", "410", "413", "422"), "declined"),
    **dict.fromkeys(("404", "405", "415"), "declined, stop"),
    **dict.fromkeys(("401", "403"), "pending, stop"),
}
_HTTP_KEY = re.compile(r"[1-5][0-9]{2}|[245]xx", re.ASCII)
_ACCEPTED = State.ACCEPTED
_NOTHING: frozenset[str] = frozenset()
MESSAGE_CHARACTERS_MAX = 200
_REFERENCE_CHARACTERS_MAX = 64
_CODE_CHARACTERS_MAX = 16


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one HTTP status means; `state` None leaves it to the body's word."""

    state: State | None
    stop: bool = False


_UNLISTED = Meaning(State.IN_DOUBT)


@dataclass(frozen=True, slots=True)
class Profile:
    """The table, ready to use."""

    http: Mapping[str, Meaning]
    status_member: tuple[str, ...] = _WORDS["status_member"]
    accepted: frozenset[str] = frozenset(_WORDS["accepted"])
    declined: frozenset[str] = frozenset(_WORDS["declined"])
    reference: tuple[str, ...] = _WORDS["reference"]
    message: tuple[str, ...] = _WORDS["message"]
    response_code: tuple[str, ...] = _WORDS["response_code"]
    status: tuple[str, ...] = _WORDS["status"]
    not_accepted: frozenset[str] = frozenset(_WORDS["not_accepted"])
    echo: tuple[str, ...] = _WORDS["echo"]
    echo_amount: tuple[str, ...] = _WORDS["echo_amount"]
    echo_direction: tuple[str, ...] = _WORDS["echo_direction"]
    echo_currency: tuple[str, ...] = _WORDS["echo_currency"]
    error: tuple[str, ...] = _WORDS["error"]
    success: tuple[str, ...] = _WORDS["success"]
    resend_after_429: bool = True
    resend_after_503: bool = False
    _good: frozenset[str] = field(init=False)
    _against: frozenset[str] = field(init=False)
    _statuses: frozenset[str] = field(init=False)
    _references: frozenset[str] = field(init=False)
    _invoice: frozenset[str] = field(init=False)
    _echoed: frozenset[str] = field(init=False)
    _echoes: Mapping[str, frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        accepted = frozenset(map(folded, self.accepted))
        echoes = {
            "amount": self.echo_amount,
            "transactionType": self.echo_direction,
            "currencyCode": self.echo_currency,
        }
        found = {
            "_good": GOOD | accepted,
            "_against": (self.not_accepted | frozenset(map(folded, self.declined))) - accepted,
            "_statuses": frozenset(self.status),
            "_references": frozenset(self.reference),
            "_invoice": frozenset(self.echo),
            "_echoed": frozenset().union(*echoes.values()),
            "_echoes": {member: frozenset(names) for member, names in echoes.items()},
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @classmethod
    def load(cls, settings: GatewaySettings) -> Profile:
        """Apply the setting `gateway.profile` to the table; raises SettingsNotUsable saying what is wrong with it."""
        changes = dict(settings.profile)
        http = {**_DEFAULT_HTTP, **_checked_http(changes.pop("http", {}))}
        parts: dict[str, Any] = {}
        for name, value in changes.items():
            if name == "status_member":
                if not isinstance(value, str) or not all(value.split(".")):
                    raise SettingsNotUsable("gateway.profile.status_member must be a name, or names joined by dots")
                parts[name] = tuple(value.split("."))
            elif name in ("accepted", "declined"):
                parts[name] = frozenset(_words(name, value))
            elif name == "not_accepted":
                parts[name] = frozenset(map(folded, _words(name, value, may_be_empty=True)))
            elif name in ("reference", "message", "response_code", "error", "success"):
                parts[name] = tuple(_words(name, value))
            elif name in ("status", "echo", "echo_amount", "echo_direction", "echo_currency"):
                parts[name] = tuple(_words(name, value, may_be_empty=True))
            else:
                raise SettingsNotUsable(f"gateway.profile.{name} is not a part of a profile")
        profile = cls(
            http={key: _meaning(text) for key, text in http.items()},
            resend_after_429=settings.resend_after_429,
            resend_after_503=settings.resend_after_503,
            **parts,
        )
        both = sorted(profile.accepted & profile.declined)
        if both:
            raise SettingsNotUsable(f"gateway.profile: {both[0]} can't mean both accepted and declined")
        return profile

    def outcome_of(
        self,
        http_status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        sent: Sent = lambda name: None,
        secrets: Callable[[], Secrets] = Secrets,
        bytes_sent: int = 0,
    ) -> Outcome:
        """Judge a complete answer.

        `headers` are looked up by lower-case names. `sent` returns what the request says, and `secrets` what must not
        be stored, should the answer repeat it: each is called only if it is needed.
        """
        try:
            value: dict[str, Any] | None = parse_object(body)
            problem = ""
        except NotStrictJson as refused:
            value, problem = None, f"HTTP {http_status}, but {refused}"
        nodes = nodes_of(value) if value is not None else []
        members = _members(nodes)
        answer = self._answer(http_status, members, secrets)
        pace = read_pace(http_status, headers)
        word = self._word(value)
        state, stop, reason = self._judge(http_status, word, pace)
        if not self._invoice.isdisjoint(members) and echoes_another([members], {"invoiceNumber": self._invoice}, sent):
            state, reason = State.IN_DOUBT, "the answer names another invoiceNumber"
        elif state is None:  # the body's word decides, and there is no known word
            state = State.IN_DOUBT
            reason = problem or f"HTTP {http_status} without a known {'.'.join(self.status_member)}"
        elif (word in self.accepted and _holds(members, self.error)) or (
            word in self.declined and _holds(members, self.success)
        ):
            state, reason = State.IN_DOUBT, f"HTTP {http_status}, but the answer says both yes and no"
        elif nodes and (state is _ACCEPTED or state is State.DECLINED):
            state, reason = self._looked_over(state, reason, nodes, members, sent)
        return Outcome(state, reason, answer, bytes_sent, stop=stop, pace=pace)

    def _looked_over(
        self, state: State, reason: str, nodes: Sequence[Node], members: Members, sent: Sent
    ) -> tuple[State, str]:
        """Return state and reason after all else that the answer says; `reason` notes a status on no list."""
        against, good = (self._against, self._good) if state is _ACCEPTED else (PAID, _NOTHING)
        for name in self.message:
            if name in members and (said := message_against(members[name], against)) is not None:
                return State.IN_DOUBT, f"{reason}, but the answer also says {said!r}"
        echoes = not self._echoed.isdisjoint(members)
        if (
            not echoes
            and state is _ACCEPTED
            and all(
                value is None or (isinstance(value, str) and value.casefold() in good)
                for name in self._statuses.intersection(members)
                for value in members[name]
            )
        ):  # as it is with nearly every answer
            return state, reason
        ours = partial(of_this_payment, nodes, self.status_member, self._references)
        if echoes and (another := echoes_another(ours(also_echoed=True), self._echoes, sent)):
            return State.IN_DOUBT, f"{reason}, but the answer names another {another}"
        said, unknown = status_against(ours(also_echoed=False), self._statuses, against, good)
        if said is not None:
            return State.IN_DOUBT, f"{reason}, but the answer also says {said!r}"
        is_noted = unknown is not None and state is _ACCEPTED
        return state, f"{reason}; what it says under {unknown} is on no list" if is_noted else reason

    def _judge(self, http_status: int, word: str | None, pace: Pace | None) -> tuple[State | None, str | None, str]:
        """Return state, stop and reason for an HTTP status with a word; the state is None if no known word decides."""
        is_known = word in self.accepted or word in self.declined
        reason = f"HTTP {http_status}, {'.'.join(self.status_member)} {word}" if is_known else f"HTTP {http_status}"
        meaning = self.http.get(str(http_status)) or self.http.get(f"{http_status // 100}xx")
        if meaning is None and http_status == 429 and self.resend_after_429:
            meaning = Meaning(State.PENDING)
        if meaning is None and http_status == 503 and self.resend_after_503 and pace is not None and pace.refused:
            meaning = Meaning(State.PENDING)
        meaning = meaning or _UNLISTED
        stop = None
        if meaning.stop:
            known = _REDIRECTED if 300 <= http_status < 400 else _STOPS.get(http_status)
            stop = known or f"the gateway answered HTTP {http_status}, at which gateway.profile stops"
        if meaning.state is not None:
            if word in self.accepted and http_status >= 400:
                # The status says no and the body says yes: nothing is proved.
                return State.IN_DOUBT, stop, reason
            return meaning.state, stop, reason
        if word in self.accepted:
            return _ACCEPTED, stop, reason
        if word in self.declined:
            return State.DECLINED, stop, reason
        return None, stop, reason

    def _word(self, value: dict[str, Any] | None) -> str | None:
        """Return the text in the deciding member; a boolean or whole number as JSON writes it."""
        node: Any = value
        for name in self.status_member:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, str):
            return node
        if isinstance(node, bool):
            return "true" if node else "false"
        return str(node) if isinstance(node, int) else None

    def _answer(self, http_status: int, members: Members, secrets: Callable[[], Secrets]) -> Answer:
        """Take the code, text and id from the answer, wherever in its nodes they are."""
        code = _find(members, self.response_code, _scalar)
        message = _find(members, self.message, _text)
        reference = _find(members, self.reference, _scalar)
        if code is None and message is None and reference is None:
            return Answer(http_status)
        hidden = secrets()
        return Answer(
            http_status,
            response_code=defused(code, _CODE_CHARACTERS_MAX, hidden),
            message=defused(message, MESSAGE_CHARACTERS_MAX, hidden),
            gateway_reference=defused(reference, _REFERENCE_CHARACTERS_MAX, hidden),
        )


Members = Mapping[str, Sequence[Any]]
"""The values under each name of an answer, the outer ones first."""


def _members(nodes: Sequence[Node]) -> Members:
    """Collect the values in the objects of an answer, the outer ones first."""
    found: dict[str, list[Any]] = {}
    for node in nodes:
        for name, part in node.members.items():
            found.setdefault(name, []).append(part)
    return found


def _holds(members: Members, names: Sequence[str]) -> bool:
    """Return whether one of the names has a value that is not null, false, zero, blank or empty."""
    values = [value for name in names if name in members for value in members[name]]
    return any(value.strip() if isinstance(value, str) else value for value in values)


def _find(members: Members, names: Sequence[str], read: Callable[[Any], str | None]) -> str | None:
    """Return the first usable value under the likeliest name."""
    for name in names:
        if name in members:  # few are
            for value in members[name]:
                if text := read(value):
                    return text
    return None


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    return str(value) if isinstance(value, (str, int)) else None


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return "; ".join(item for item in value if isinstance(item, str)) or None
    return value if isinstance(value, str) else None


def defused(text: str | None, characters_max: int, secrets: Secrets) -> str | None:
    """Return one printable line of bounded length, without control characters and without what must not be stored."""
    if text is None:
        return None
    text = masked(text, secrets)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(text.split())
    return (line if len(line) <= characters_max else line[: characters_max - 1] + CUT) or None


def _words(name: str, value: Any, *, may_be_empty: bool = False) -> list[str]:
    is_list = isinstance(value, list) and all(isinstance(word, str) and word for word in value)
    if not is_list or not (value or may_be_empty):
        raise SettingsNotUsable(f"gateway.profile.{name} must be a list of one or more text values")
    return list(value)


def _checked_http(changes: Any) -> dict[str, str]:
    """Check [gateway.profile.http]; a class of statuses is written as 4xx."""
    if not isinstance(changes, dict):
        raise SettingsNotUsable("gateway.profile.http must be a table")
    for key, text in changes.items():
        if not _HTTP_KEY.fullmatch(str(key)):
            raise SettingsNotUsable(f"gateway.profile.http.{key} is not an HTTP status (such as 409, or 5xx)")
        word, _, stop = (part.strip() for part in str(text).partition(","))
        if word not in _MEANINGS or stop not in ("", "stop"):
            raise SettingsNotUsable(
                f"gateway.profile.http.{key} must be one of {', '.join(_MEANINGS)}, or that and ', stop'"
            )
        if str(key)[0] in "13" and word != "in_doubt":
            raise SettingsNotUsable(
                f"gateway.profile.http.{key}: a redirect or interim answer leaves a payment in doubt"
            )
        if word == "pending" and (str(key)[0] == "2" or str(key).endswith("xx")):
            raise SettingsNotUsable(
                f"gateway.profile.http.{key}: only a single status from 400 on can mean that nothing was applied"
            )
    return {str(key): str(text) for key, text in changes.items()}


def _meaning(text: str) -> Meaning:
    word, _, stop = text.partition(",")
    return Meaning(_MEANINGS[word.strip()], bool(stop))
