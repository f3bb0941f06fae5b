"""A plan: what a submission will send, written down to be approved, and held against what is really sent later.

The plan is a JSON file. It names the content by its keyed digest and carries a keyed code of its own text, made with
the ledger's key: neither another file nor another text passes for the approved one. Someone who can read the ledger's
key could write a plan, which is why the key has mode 0600.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from batchpay.errors import FileRefused
from batchpay.intake.small_tables import read_json_object
from batchpay.ledger.contract import Ledger
from batchpay.payment import Direction, State, Totals, format_cents, parse_cents
from batchpay.schemas.options import RuleOptions
from batchpay.summary import Summary
from batchpay.text import instant
from batchpay.writing.atomic import atomic_writer

VERSION = 1
_CODE_BYTES = 32
_KEYS = frozenset({"plan", "digest", "file", "origin", "rows", "amount", "rules", "created_at", "who", "code"})
_SHARES = ("total", "valid", "rejected", *Direction)
"""What a plan gives rows and cents of."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was approved."""

    digest: bytes
    """The batch's keyed digest (NewBatch.digest)."""
    file: str
    """The name the file had; another name of the same content is the same plan."""
    origin: str
    totals: Mapping[str, Totals]
    """Rows and cents: total, valid, rejected, and the valid ones by DEBIT and CREDIT."""
    rules: Mapping[str, Any]
    """The options that decide what passes, as JSON values."""
    created_at: datetime
    who: str

    @classmethod
    def make(
        cls, digest: bytes, summary: Summary, rules: RuleOptions, origin: str, *, created_at: datetime, who: str
    ) -> Plan:
        """Put a plan together from what a dry run found."""
        return cls(digest, summary.file, origin, _totals(summary), _rules_as_json(rules), created_at, who)

    def write(self, path: str, ledger: Ledger) -> None:
        """Write the plan atomically with mode 0600; raises NotUsable where it can't be written."""
        content = self._as_json()
        content["code"] = _code(content, ledger)
        with atomic_writer(path) as file:
            file.write(json.dumps(content, indent=2).encode("ascii") + b"\n")

    @classmethod
    def read(cls, path: str, ledger: Ledger) -> Plan:
        """Read a plan; raises FileRefused where it is none, was changed, or was made with another ledger's key."""
        content = _read_object(path)
        if content.get("plan") != VERSION:
            raise FileRefused(f"{path} is not a plan of this version of batchpay")
        code = content.pop("code", None)
        if not isinstance(code, str) or not hmac.compare_digest(code.encode(), _code(content, ledger).encode()):
            raise FileRefused(f"plan {path} was changed after it was written, or belongs to another ledger")
        try:
            return cls(
                digest=bytes.fromhex(content["digest"]),
                file=content["file"],
                origin=content["origin"],
                totals={name: Totals(content["rows"][name], _cents(content["amount"][name])) for name in _SHARES},
                rules=content["rules"],
                created_at=datetime.fromisoformat(content["created_at"]),
                who=content["who"],
            )
        except (KeyError, TypeError, ValueError):
            raise FileRefused(f"{path} is not a plan of this version of batchpay") from None

    def verify(self, digest: bytes, summary: Summary, rules: RuleOptions, origin: str) -> None:
        """Raise FileRefused, naming everything that differs, unless a check found exactly what was approved.

        The day that counts as today may differ: what it changes, it changes in the totals.
        """
        differences = []
        if not hmac.compare_digest(digest, self.digest):
            differences.append("the content is another")
        if origin != self.origin:
            differences.append(f"the gateway is {origin}, the plan is for {self.origin}")
        now = _rules_as_json(rules)
        changed = sorted(name for name in now.keys() | self.rules.keys() if now.get(name) != self.rules.get(name))
        differences += [f"the rule option {name} differs" for name in changed if name != "as_of"]
        found = _totals(summary)
        for name in _SHARES:
            if found[name] != self.totals[name]:
                differences.append(f"{name} is {_words(found[name])}, planned was {_words(self.totals[name])}")
        if differences:
            raise FileRefused(f"{summary.file} is not what the plan approved: {', '.join(differences)}")

    def _as_json(self) -> dict[str, Any]:
        return {
            "plan": VERSION,
            "digest": self.digest.hex(),
            "file": self.file,
            "origin": self.origin,
            "rows": {name: self.totals[name].rows for name in _SHARES},
            "amount": {name: format_cents(self.totals[name].cents) for name in _SHARES},
            "rules": dict(self.rules),
            "created_at": instant(self.created_at),
            "who": self.who,
        }


def _totals(summary: Summary) -> dict[str, Totals]:
    return {
        "total": summary.total,
        "valid": summary.valid,
        "rejected": summary.of(State.REJECTED),
        **{direction: summary.by_direction.get(direction, Totals()) for direction in Direction},
    }


def _rules_as_json(rules: RuleOptions) -> dict[str, Any]:
    values = dataclasses.asdict(rules)
    for name, value in values.items():
        if isinstance(value, frozenset):
            values[name] = sorted(value)
        elif isinstance(value, date):
            values[name] = value.isoformat()
    return values


def _code(content: dict[str, Any], ledger: Ledger) -> str:
    """Keyed code of a plan's text, however it is spaced or ordered."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    (code,) = ledger.digest("plan", [text], _CODE_BYTES)
    assert code is not None, "a text has a digest"
    return code.hex()


def _read_object(path: str) -> dict[str, Any]:
    content = read_json_object(path, "plan")
    if set(content) != _KEYS:
        raise FileRefused(f"{path} is not a plan: `batchpay submit --plan` writes one")
    return content


def _cents(text: str) -> int:
    cents = parse_cents(text)
    if cents is None:
        raise ValueError("no amount")
    return cents


def _words(totals: Totals) -> str:
    return f"{totals.rows} rows and {format_cents(totals.cents)}"
