"""Control totals kept with the rows: every transaction that moves rows moves their counts and cents as well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from batchpay.payment import Totals


class TotalsDelta:
    """What a transaction adds to, and takes from, the totals by state and direction."""

    def __init__(self) -> None:
        self._changes: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, state: int, direction: int, rows: int, cents: int) -> None:
        """Add rows and cents to a state; negative numbers take away."""
        change = self._changes[state, direction]
        change[0] += rows
        change[1] += cents

    def move(self, before: int, after: int, direction: int, cents: Sequence[int]) -> None:
        """Move rows with these amounts from a state to another."""
        total = sum(cents)
        self.add(before, direction, -len(cents), -total)
        self.add(after, direction, len(cents), total)

    def total(self) -> Totals:
        """Return the total over all states."""
        return Totals(
            sum(rows for rows, _ in self._changes.values()), sum(cents for _, cents in self._changes.values())
        )

    def of(self, state: int) -> Totals:
        """Return the total of one state."""
        changes = [change for (changed, _), change in self._changes.items() if changed == state]
        return Totals(sum(rows for rows, _ in changes), sum(cents for _, cents in changes))

    def changes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield state, direction, rows and cents of everything that changes."""
        for (state, direction), (rows, cents) in self._changes.items():
            if rows or cents:
                yield state, direction, rows, cents
