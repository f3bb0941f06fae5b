"""How an answer is read: JSON with a single meaning, secrets masked, its pace, what it says against itself.

What two readers could read differently, or what no answer needs, is refused. A gateway may repeat an account number in
its text in any form: truncated, spaced, hyphenated, in full-width digits.

CONTRACT.md, "An answer contradicts itself": only objects that speak of this payment are asked: the one that has the
deciding word, the one that has the reference, those around them, and those named payment, transaction or result.
Nothing is concluded from what is said about an address, a card check, an account or a customer.
"""

from __future__ import annotations

import json
import math
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from batchpay.outcome import MASK, Pace

DIGITS_LEAST = 5
"""This many consecutive digits of an account are masked, wherever they appear."""
_VISIBLE_CHARACTERS = 4
_BETWEEN = re.compile(r"[\W_]+")
"""What may appear between the characters of a secret."""
_MANY_DIGITS = re.compile(rf"\d(?:[\W_]*\d){{{DIGITS_LEAST - 1},}}")
_DIGIT = re.compile(r"\d")


@dataclass(slots=True)
class Secrets:
    """What one answer must not repeat."""

    account: str = field(default="", repr=False)
    """Masked wherever five or more of its digits appear in sequence."""
    others: Sequence[str] = field(default=(), repr=False)
    """Masked wherever they appear whole."""


def masked(text: str, secrets: Secrets) -> str:
    """Replace secrets with asterisks, leaving at most their last four characters.

    Digits of other scripts and widths become plain ones (NFKC), so that no form hides them.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if _MANY_DIGITS.search(text):
        digits = _BETWEEN.sub("", secrets.account)
        text = _MANY_DIGITS.sub(lambda found: _without_digits_of(digits, found[0]), text)
    bare = _bare(text)
    for secret in (secrets.account, *secrets.others):
        if len(secret) > _VISIBLE_CHARACTERS and _bare(secret) in bare:
            pattern = rf"(?:{_BETWEEN.pattern})?".join(map(re.escape, _bare(secret)))
            text = re.sub(pattern, MASK + secret[-_VISIBLE_CHARACTERS:], text, flags=re.IGNORECASE)
            bare = _bare(text)
    return text


def _without_digits_of(account: str, text: str) -> str:
    """Mask the longest pieces of an account in a text of digits and separators."""
    places = [found.start() for found in _DIGIT.finditer(text)]
    digits = "".join(str(unicodedata.decimal(text[place])) for place in places)
    parts, written, at = [], 0, 0
    while at + DIGITS_LEAST <= len(digits):
        length = 0
        while at + length < len(digits) and digits[at : at + length + 1] in account:
            length += 1
        if length < DIGITS_LEAST:
            at += 1
            continue
        ends_it = digits[at : at + length].endswith(account[-_VISIBLE_CHARACTERS:])
        parts += [text[written : places[at]], MASK, account[-_VISIBLE_CHARACTERS:] if ends_it else ""]
        at += length
        written = places[at - 1] + 1
    return "".join([*parts, text[written:]])


def _bare(text: str) -> str:
    return (text if text.isalnum() else _BETWEEN.sub("", text)).casefold()


DEPTH_MAX = 32


class NotStrictJson(ValueError):
    """The bytes are not a JSON object that every reader reads alike; the text is safe to show."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; raises NotStrictJson.

    Refused: a byte order mark, anything but UTF-8, a key twice in one object, NaN, Infinity and numbers beyond a float,
    lone surrogates, more than DEPTH_MAX levels, anything after the object, and anything that is not an object.
    """
    if not body.strip():
        raise NotStrictJson("the answer is empty")
    try:
        text = body.decode("utf-8").strip(" \t\n\r")
        value, end = _DECODER.raw_decode(text)
    except NotStrictJson:
        raise
    except RecursionError:
        raise NotStrictJson("the answer is nested too deeply") from None
    except ValueError:  # includes UnicodeDecodeError, JSONDecodeError, and a number with thousands of digits
        raise NotStrictJson("the answer is not JSON") from None
    if end < len(text):
        raise NotStrictJson("the answer is not JSON")
    if not isinstance(value, dict):
        raise NotStrictJson("the answer is not a JSON object")
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX or "\\u" in text:
        _look_over(value)
    return value


def _look_over(value: Any) -> None:
    """Refuse what shows only in the parsed value: depth and lone surrogates. Without recursion."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if any("\ud800" <= character <= "\udfff" for character in item):
                raise NotStrictJson("the answer contains an incomplete character")
        elif isinstance(item, (dict, list)):
            if depth > DEPTH_MAX:
                raise NotStrictJson("the answer is nested too deeply")
            parts = [*item.keys(), *item.values()] if isinstance(item, dict) else item
            waiting.extend((part, depth + 1) for part in parts)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotStrictJson("the answer has the same key twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrictJson("the answer contains a number that is too large")
    return number


def _no_constant(_: str) -> NoReturn:
    raise NotStrictJson("the answer contains NaN or Infinity")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)


Sent = Callable[[str], str | None]
"""Returns the text of one member of the request by its name; None or empty if it has none."""

NODES_MAX = 256
_PHRASE_CHARACTERS_MAX = 64
_ASIDE = ("billing", "shipping", "avs", "cvv", "cvc", "account", "customer", "merchant", "batch")
"""A member whose name begins so speaks of something other than the payment."""
_ECHOED = frozenset({"ach", "recurring", "request", "echo"})
_NAMED = frozenset({"payment", "payments", "transaction", "transactions", "result", "results"})
GOOD = frozenset({"approved", "accepted", "completed", "complete", "ok", "paid", "success", "successful", "true"})
"""Words of a status that contradict no acceptance."""
PAID = frozenset({"approved", "paid"})
"""Words that contradict a decline."""
_NEGATIONS = frozenset({"no", "not", "never", "none", "without"})
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_AMOUNT = re.compile(r"(-?)\$?\s*([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_CURRENCY = re.compile(r"[a-z]{3}")
_DEFAULT_CURRENCY = "usd"


class Node(NamedTuple):
    """One object of an answer."""

    members: Mapping[str, Any]
    name: str
    """Of the member that holds it, or that holds the list it is in; the answer itself has none."""
    around: int
    """The index of the object around it; -1 for the answer itself."""


def nodes_of(answer: Mapping[str, Any]) -> list[Node]:
    """List the objects of an answer that may speak of the payment, the outer ones first, up to a bound."""
    found = [Node(answer, "", -1)]
    for at, node in enumerate(found):
        for name, part in node.members.items():
            if isinstance(part, (dict, list)) and not name.casefold().startswith(_ASIDE):
                for one in part if isinstance(part, list) else (part,):
                    if isinstance(one, dict) and len(found) < NODES_MAX:
                        found.append(Node(one, name, at))
    return found


def of_this_payment(
    nodes: Sequence[Node], word_path: Sequence[str], reference: frozenset[str], *, also_echoed: bool
) -> list[Mapping[str, Any]]:
    """Return the objects whose words count, and those that repeat the request if `also_echoed`.

    `reference` are the names of what a reference is looked for under.
    """
    holder: Any = nodes[0].members
    for name in word_path[:-1]:
        holder = holder.get(name) if isinstance(holder, dict) else None
    found: set[int] = set()
    for at, node in enumerate(nodes):
        is_ours = node.name.casefold() in _NAMED or not reference.isdisjoint(node.members)
        counts = node.members is holder or (also_echoed if _is_echoed(nodes, at) else is_ours)
        while counts and at >= 0 and at not in found:
            found.add(at)
            at = nodes[at].around
    return [nodes[at].members for at in sorted(found)]


def _is_echoed(nodes: Sequence[Node], at: int) -> bool:
    while at >= 0:
        if nodes[at].name.casefold() in _ECHOED:
            return True
        at = nodes[at].around
    return False


def status_against(
    objects: Iterable[Mapping[str, Any]], names: frozenset[str], against: frozenset[str], good: frozenset[str]
) -> tuple[str | None, str | None]:
    """Return what a status of these objects says of no or not yet, in words of the lists, and which status is unknown.

    The latter is the name of one whose words are neither in `against` nor in `good`.
    """
    unknown: str | None = None
    for name, status in _texts(objects, names):
        said, is_known = _judged(status, against, good)
        if said is not None:
            return said, None
        if not is_known:
            unknown = unknown or name
    return None, unknown


@lru_cache(256)
def _judged(status: str, against: frozenset[str], good: frozenset[str]) -> tuple[str | None, bool]:
    """Return what a status says of no or not yet, and whether its words are known."""
    words = _WORD.findall(folded(_CAMEL.sub(" ", status)))
    phrase, is_denied = " ".join(words), bool(_NEGATIONS.intersection(words))
    if phrase in against:
        return phrase, True
    if found := (good if is_denied else against).intersection(words):
        return f"not {min(found)}" if is_denied else min(found), True
    return None, phrase in good or phrase.isdecimal()


def message_against(messages: Sequence[Any], against: frozenset[str]) -> str | None:
    """Return a message that is nothing but words of `against`: more is prose, where `no review needed` is good news."""
    for message in messages:
        if isinstance(message, str) and len(message) <= _PHRASE_CHARACTERS_MAX:
            phrase = " ".join(_WORD.findall(folded(message)))
            if phrase in against:
                return phrase
    return None


def echoes_another(objects: Sequence[Mapping[str, Any]], names: Mapping[str, frozenset[str]], sent: Sent) -> str | None:
    """Return which member of the request is repeated with another meaning; None if none is.

    `names` are those under which the answer may repeat each member. What can't be compared is no contradiction.
    """
    for member, echoes in names.items():
        for _, echo in _texts(objects, echoes):
            if _DIFFERS[member](folded(echo), folded(sent(member) or "")):
                return member
    return None


def folded(text: str) -> str:
    """Return a text as two of them are compared: NFKC, trimmed, case folded."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).strip().casefold()


def _texts(objects: Iterable[Mapping[str, Any]], names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the texts under these names that are not blank, each with its name."""
    for members in objects:
        for name in names & members.keys():
            yield from ((name, text) for text in _texts_in(members[name]))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _texts_in(one)
    elif isinstance(value, (str, bool, int, float)) and (text := str(value).strip()):
        yield text


def _amount_differs(echo: str, own: str) -> bool:
    found = _AMOUNT.fullmatch(echo)
    try:
        return found is not None and Decimal(found[1] + found[2].replace(",", "")) != Decimal(own)
    except InvalidOperation:
        return False


_DIFFERS: Mapping[str, Callable[[str, str], bool]] = {
    "invoiceNumber": lambda echo, own: bool(own) and echo != own,
    "amount": _amount_differs,
    "transactionType": lambda echo, own: {echo, own} == {"debit", "credit"},
    "currencyCode": lambda echo, own: _CURRENCY.fullmatch(echo) is not None and echo != (own or _DEFAULT_CURRENCY),
}


_IN_WORDS = ("limit", "remaining", "reset")
_NAMES = frozenset({"retry-after", "ratelimit", "ratelimit-policy"}).union(
    f"{prefix}ratelimit-{word}" for prefix in ("", "x-") for word in _IN_WORDS
)
_SECONDS = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)
_PARAMETER = re.compile(r"(?:^|[;,\s])\s*([A-Za-z]+)\s*=\s*([0-9]{1,12})(?![0-9.])", re.ASCII)
_LEADING_NUMBER = re.compile(r"\s*([0-9]{1,12})(?![0-9.])", re.ASCII)
_EPOCH_S_LEAST = 1_000_000_000
"""A reset of at least this many seconds is a point in time, not a duration."""


def read_pace(http_status: int, headers: Mapping[str, str]) -> Pace | None:
    """Read the limit that an answer states; None if it states none. Values that make no sense are left out.

    `headers` are by lower-case name.
    """
    if _NAMES.isdisjoint(headers) and http_status != 429:
        return None
    given = {name: headers[name] for name in _NAMES if name in headers}
    date = _date_s(headers.get("date", ""))
    now = time.time() if date is None else date
    retry_after = _retry_after_s(given.get("retry-after", ""), now)
    policy = _parameters(given.get("ratelimit-policy", ""))
    current = _parameters(given.get("ratelimit", ""))
    limit_alone, remaining_alone, reset_alone = (
        _first(*(_leading(given.get(f"{prefix}ratelimit-{word}", "")) for prefix in ("", "x-"))) for word in _IN_WORDS
    )
    limit = policy.get("q") or current.get("limit") or limit_alone
    reset = _first(current.get("t"), current.get("reset"), reset_alone)
    if reset is not None and reset >= _EPOCH_S_LEAST:
        reset = max(0.0, reset - now)
    remaining = _first(current.get("r"), current.get("remaining"), remaining_alone)
    return Pace(
        retry_after_s=retry_after,
        limit=limit or None,
        window_s=policy.get("w") or None,
        remaining=None if remaining is None else int(remaining),
        reset_s=reset,
        refused=http_status == 429 or (http_status == 503 and retry_after is not None),
    )


def _retry_after_s(text: str, now: float) -> float | None:
    """Return the seconds to wait: a number, or a date relative to the answer's own; a past date is 0, nonsense None."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    date = _date_s(text)
    return None if date is None else max(0.0, date - now)


def _date_s(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch."""
    if not text or len(text) > 40:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _parameters(text: str) -> dict[str, float]:
    """Read the parameters of the first item of a RateLimit or RateLimit-Policy header, in its later or earlier form.

    Later: `"default";q=100;w=60`, `"default";r=50;t=30`. Earlier: `100;w=60`, `limit=100, remaining=50, reset=5`.
    """
    if ";" in text:
        text = text.split(",", 1)[0]
    found = {name.lower(): float(number) for name, number in _PARAMETER.findall(text[:200])}
    if (leading := _leading(text)) is not None:
        found["q"] = leading
    return found


def _leading(text: str) -> float | None:
    match = _LEADING_NUMBER.match(text)
    return float(match[1]) if match else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
