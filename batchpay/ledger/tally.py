"""The contents of a ledger's tables, compared with its history and its control totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import mul
from typing import Any

from batchpay.ledger.database import Statements, View
from batchpay.ledger.event_chain import Replay
from batchpay.text import counted


def batches_out_of_totals(view: View, statements: Statements) -> list[str]:
    """Find batches whose states do not add up to their control totals."""
    return [
        f"the ledger is damaged: the states of batch {name} do not add up to its control totals"
        for (name,) in view.execute(statements.BATCHES_OUT_OF_TOTALS)
    ]


def rows_without_bill(view: View, statements: Statements) -> list[str]:
    """Find payments that would no longer be found as duplicates: the digest of bill or paymentId is missing."""
    missing = view.execute(statements.ROWS_WITHOUT_BILL).fetchone()[0]
    if not missing:
        return []
    return [unknown_if_it_came_again(missing)]


def texts_of_purged(view: View, statements: Statements) -> list[str]:
    """Find texts that a purge had to erase."""
    left = view.execute(statements.TEXTS_OF_PURGED).fetchone()[0]
    have = counted(left, "answer of a purged batch has a text", "answers of purged batches have texts")
    return [f"the ledger is damaged: {have}"] if left else []


def unknown_if_it_came_again(payments: int) -> str:
    """Report that payments would no longer be found as duplicates."""
    return f"the ledger is damaged: {counted(payments, 'payment')} would not be known if it came again"


def _by_key(keys: Sequence[int], *columns: Sequence[int]) -> Iterator[tuple[int, Sequence[Sequence[int]]]]:
    """Yield each key with its part of the columns: all of them if there is one key, as is usual for states."""
    present = set(keys)
    for key in present:
        if len(present) == 1:
            yield key, columns
        else:
            chosen = list(map(key.__eq__, keys))
            yield key, [list(compress(column, chosen)) for column in columns]


class BatchTally:
    """The state of one batch's rows.

    Rows are added by column, a few thousand at a time: a loop over single rows would cost several times as much.
    """

    def __init__(self, replay: Replay, batch: int) -> None:
        self._batch = batch
        self._states = replay.states.get(batch, bytearray())
        self._registered = replay.registered.get(batch, {})
        self._rows = self._weight = self._line_weight = 0
        self._counts: Counter[tuple[int, int]] = Counter()
        self._cents: Counter[tuple[int, int]] = Counter()

    def add(
        self,
        numbers: Sequence[int],
        line_weight: int,
        amounts: Sequence[int],
        directions: Sequence[int],
        codes: Sequence[int],
    ) -> tuple[int, int] | None:
        """Count rows, in file order; return the first whose state differs from its history, and that state.

        `line_weight` is the sum over all of them of row number times line.
        """
        states, first, last = self._states, numbers[0], numbers[-1]
        if last < len(states):
            none_is_left_out = last - first == len(numbers) - 1
            known = states[first : last + 1] if none_is_left_out else bytes(map(states.__getitem__, numbers))
        if last >= len(states) or bytes(codes) != known:
            standing = zip(numbers, codes, strict=True)
            return next((row, code) for row, code in standing if row >= len(states) or states[row] != code)
        self._rows += len(numbers)
        self._weight += sum(map(mul, numbers, amounts))
        self._line_weight += line_weight
        for code, (of_state, directions_of_state) in _by_key(codes, amounts, directions):
            for direction, (cents,) in _by_key(directions_of_state, of_state):
                self._counts[code, direction] += len(cents)
                self._cents[code, direction] += sum(cents)
        return None

    def problem(self, view: View, statements: Statements) -> str | None:
        """Compare the totals with the rows, and the batch with what was registered."""
        found = view.execute(statements.BATCH_AS_REGISTERED, (self._batch,)).fetchone()
        name, digest, rows, cents, *about = found
        seen: dict[str, Any] = {"name": name, "digest": digest.hex(), "rows": rows, "cents": cents, "about": about}
        seen |= {"weight": str(self._weight), "line weight": str(self._line_weight)}
        if self._rows != rows or any(self._registered.get(key) != value for key, value in seen.items()):
            return f"batch {name} is not what was registered"
        totals = view.execute(statements.TOTALS_OF_BATCH, (self._batch,))
        stored = {(state, direction): (count, cents) for state, direction, count, cents in totals}
        if stored != {kind: (count, self._cents[kind]) for kind, count in self._counts.items()}:
            return f"the control totals of batch {name} differ from its rows"
        return None
