"""Deliberate faults: what the sandbox can do instead of answering as it should, and the rules that say when.

A rule is a JSON object: `fault` (a name below) and, optionally, `operation` (one of those below, payment by default),
`at` (the n-th request of that operation since the rule was set, from 1), `every` (each n-th), `times` (at most this
many), `code` of a decline or return, `text` of a decline, `status` (HTTP status, for `status`), `retry_after` (the
header, verbatim) and `delay_ms` (for `slow`).

An ending of an account number asks for a fault too: its last six characters are `9900` and two digits. Samples and
tests choose their ordinary accounts so that they never end in `9900NN`.
"""

from __future__ import annotations

import csv
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Ending:
    """What happens to a payment whose account number has this ending."""

    ending: str
    fault: str
    """Name of a fault (faults.py)."""
    meaning: str
    code: str | None = None
    """Return code of a decline."""
    once: bool = False
    """Only the first time that the very same request arrives."""


def table(name: str) -> list[dict[str, str]]:
    """Read the lines of a table of the sandbox."""
    return list(csv.DictReader(Path(__file__).with_name(name).read_text("utf-8").splitlines()))


RETURN_CODES = {line["code"]: line["words"] for line in table("return_codes.csv")}
"""Codes that the sandbox declines and returns with, and of changes (C), nearly in Nacha's words."""
ENDINGS = tuple(
    Ending(line["ending"], line["fault"], line["meaning"], line["code"] or None, once=line["once"] == "yes")
    for line in table("endings.csv")
)
"""An ending of what comes back later has the number of its code, to which 50 is added, 80 for a change."""
_BY_ENDING = {item.ending: item for item in ENDINGS}


def ending_of(account_number: str) -> Ending | None:
    """Find what an account number asks for; None for an ordinary one."""
    return _BY_ENDING.get(account_number[-6:])


def listing() -> str:
    """Write the table for `--list-magic`: one ending per line, then what it does."""
    return "\n".join(f"{item.ending}  {item.meaning}" for item in ENDINGS)


_FAULTS = table("faults.csv")
NAMES = {line["name"]: line["meaning"] for line in _FAULTS}
AFTER = frozenset(line["name"] for line in _FAULTS if line["after"] == "yes")
"""Faults that come after the payment was made; the others replace it."""
CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "declined_inside": {"transaction": {"status": "declined", "text": "Insufficient funds"}},
    "other_amount": {"amount": "0.01"},
}
"""What an answer says beside its accepted word."""
_OF_ACCOUNTS = ("list", "get", "create", "update", "delete", "default")
OPERATIONS = ("payment", "connection", *(f"account_{name}" for name in _OF_ACCOUNTS))
_GROUPS = {"any": frozenset(OPERATIONS), "accounts": frozenset(OPERATIONS[2:])}
"""Words that stand for several operations in a rule."""
SLOW_MS = 3_000.0

_TYPES: dict[str, Any] = {
    **dict.fromkeys(("fault", "operation", "code", "text", "retry_after"), (str,)),
    **dict.fromkeys(("at", "every", "times", "status"), (int,)),
    "delay_ms": (int, float),
}


class BadRule(ValueError):
    """A fault rule that can't be applied; the text names the member."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to cause now."""

    name: str
    code: str = "R01"
    text: str | None = None
    status: int = 500
    retry_after: str | None = None
    delay_ms: float = SLOW_MS

    @property
    def after(self) -> bool:
        """Whether the request is processed anyway."""
        return self.name in AFTER


@dataclass(slots=True)
class _Rule:
    given: dict[str, Any]
    seen: int = 0
    fired: int = 0

    def fires(self, operation: str) -> bool:
        """Count the request and return whether it is hit."""
        meant = self.given.get("operation", "payment")
        if operation not in _GROUPS.get(meant, (meant,)):
            return False
        self.seen += 1
        given = self.given
        if "times" in given and self.fired >= given["times"]:
            return False
        if "at" in given and self.seen != given["at"]:
            return False
        if "every" in given and self.seen % given["every"]:
            return False
        self.fired += 1
        return True

    def fault(self) -> Fault:
        names = ("code", "text", "status", "retry_after", "delay_ms")
        return Fault(self.given["fault"], **{name: self.given[name] for name in names if name in self.given})


class FaultRules:
    """The rules in force, and how often each was hit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []

    def set(self, rules: Any) -> None:
        """Replace the old rules with new ones; raises BadRule and changes nothing if one can't be applied."""
        if not isinstance(rules, list):
            raise BadRule("fault rules are a JSON list of objects")
        checked = [_Rule(_checked(rule)) for rule in rules]
        with self._lock:
            self._rules = checked

    def next(self, operation: str) -> Fault | None:
        """Count a request with every rule; the first that fires decides."""
        with self._lock:
            fired = [rule for rule in self._rules if rule.fires(operation)]
            return fired[0].fault() if fired else None

    def listing(self) -> Sequence[dict[str, Any]]:
        """Return the rules with the number of requests each has seen and hit."""
        with self._lock:
            return [{**rule.given, "seen": rule.seen, "fired": rule.fired} for rule in self._rules]


def _checked(rule: Any) -> dict[str, Any]:
    if not isinstance(rule, dict):
        raise BadRule("a fault rule is a JSON object")
    for name, value in rule.items():
        if name not in _TYPES:
            raise BadRule(f"{name}: unknown key in a fault rule")
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise BadRule(f"{name}: wrong type")
        if not isinstance(value, str) and value < (1 if name in ("at", "every", "times") else 0):
            raise BadRule(f"{name}: too small")
    if rule.get("fault") not in NAMES:
        raise BadRule(f"fault: one of {', '.join(NAMES)}")
    if rule.get("operation", "payment") not in (*OPERATIONS, *_GROUPS):
        raise BadRule(f"operation: one of {', '.join((*OPERATIONS, *_GROUPS))}")
    if rule.get("code", "R01") not in RETURN_CODES:
        raise BadRule(f"code: one of {', '.join(RETURN_CODES)}")
    if not 200 <= rule.get("status", 500) <= 599:
        raise BadRule("status: 200 to 599")
    if "\n" in rule.get("retry_after", "") or "\r" in rule.get("retry_after", ""):
        raise BadRule("retry_after: one line")
    return dict(rule)
