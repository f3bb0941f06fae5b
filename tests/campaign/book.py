"""What must be true after many nights, in plain Python: each payment by its reference, from what the gateway logged.

The book never reads the ledger. It knows what came in from the files, what was paid from the gateway's log, and what
was decided from the person who decided it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

STATES = ("rejected", "pending", "sending", "accepted", "declined", "in_doubt")
_SAYS = {"success": "accepted", "none": "in_doubt", "held": "in_doubt", "lost": "in_doubt"}
"""What a row is, by the gateway's last word on it."""

Totals = Mapping[str, tuple[int, int]]
"""Rows and cents by state."""


def reference_of(number: int) -> str:
    """Return a payment's reference as it is sent (tests/support/command.py)."""
    return f"INV-{number}"


def cents_of(number: int) -> int:
    """Return the amount of a payment."""
    return number * 100 + 25


def amount_of(cents: int) -> str:
    """Write cents as files and JSON do."""
    return f"{cents // 100}.{cents % 100:02d}"


@dataclass
class Batch:
    """A file that was registered."""

    numbers: list[int]
    """Its payments."""
    rejected: tuple[int, int] = (0, 0)
    """Rows and cents that the rules reject."""
    touched: int = 0
    """The last night on which anything was done with it."""
    name: str = ""
    purged: bool = False
    accepted_cents: int | None = None
    """Its total, once every payment of it is accepted: nothing can change that any longer."""


@dataclass
class Book:
    """All that came in, by night."""

    log: Path
    batches: dict[int, Batch] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    """References that a person said were made."""
    sent_again: set[str] = field(default_factory=set)
    """References that a person said never arrived."""
    _words: dict[str, list[str]] = field(default_factory=dict)
    read_bytes: int = 0
    """How much of the log was read."""

    def read(self) -> None:
        """Read what the gateway has logged since."""
        with self.log.open("rb") as file:
            file.seek(self.read_bytes)
            whole, end, _ = file.read().rpartition(b"\n")
        self.read_bytes += len(whole) + len(end)
        for line in whole.splitlines():
            entry = json.loads(line)
            self._words.setdefault(entry["reference"], []).append(entry["answer"])

    def words(self, reference: str) -> list[str]:
        """Return what the gateway answered each time that a payment arrived or was lost."""
        return self._words.get(reference, [])

    def state(self, number: int) -> str:
        """Return the state that a registered payment must have."""
        reference = reference_of(number)
        words = self.words(reference)
        if not words:
            return "pending"
        if reference in self.settled:
            return "accepted"
        if reference in self.sent_again and len(words) == 1:
            return "pending"
        return _SAYS[words[-1]]

    def totals(self, batches: Iterable[Batch]) -> Totals:
        """Add up rows and cents by state."""
        rows, cents = Counter[str](), Counter[str]()
        for batch in batches:
            rows["rejected"] += batch.rejected[0]
            cents["rejected"] += batch.rejected[1]
            if batch.accepted_cents is not None:
                rows["accepted"] += len(batch.numbers)
                cents["accepted"] += batch.accepted_cents
                continue
            states = [self.state(number) for number in batch.numbers]
            for number, state in zip(batch.numbers, states, strict=True):
                rows[state] += 1
                cents[state] += cents_of(number)
            if set(states) == {"accepted"}:
                batch.accepted_cents = sum(map(cents_of, batch.numbers))
        return {state: (rows[state], cents[state]) for state in STATES}

    def doubts(self, nights: Iterable[int]) -> dict[int, list[int]]:
        """Return the payments in doubt of these nights, by night."""
        found = {
            night: [number for number in self.batches[night].numbers if self.state(number) == "in_doubt"]
            for night in nights
            if night in self.batches and self.batches[night].accepted_cents is None
        }
        return {night: numbers for night, numbers in found.items() if numbers}

    def paid_wrongly(self) -> list[str]:
        """Return what arrived more than once, or not at all: each payment must have been made exactly once."""
        expected = {reference_of(number) for batch in self.batches.values() for number in batch.numbers}
        made = Counter({reference: sum(word != "lost" for word in words) for reference, words in self._words.items()})
        return [f"{one} arrived {made[one]} times" for one in sorted(expected | set(made)) if made[one] != 1]
