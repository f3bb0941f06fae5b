"""The history of a ledger, independent of any database: how an event is authenticated, and what states follow from it.

Each event is authenticated together with the one before it, so that none can be changed, omitted or inserted without
the ledger's key. `Replay` goes through the events again and derives the state in which every row must be.
`BatchTally` compares the rows of a batch with it. Directions, row ids and times are written in tables as this module
writes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import compress
from operator import mul
from typing import Any

from batchpay.ledger.database import Statements, View
from batchpay.ledger.keys import Keys
from batchpay.ledger.records import PLAN_USED, PURGED, SignOff
from batchpay.ledger.states import OPEN, STATE_CODES, befores
from batchpay.payment import Direction, Totals
from batchpay.text import counted, instant, read_ranges

DIRECTION_CODES = {Direction.DEBIT.value: 1, Direction.CREDIT.value: 2}
DIRECTIONS = {code: word for word, code in DIRECTION_CODES.items()}

ROWS_BITS = 32
"""A row's id is its batch's number shifted by this, plus its row number."""
ROW_MASK = (1 << ROWS_BITS) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS, EPOCH_DAY = 86_400_000, _EPOCH.toordinal()
"""A day has this many milliseconds, and the first one that is counted in them is this day (`date.toordinal()`)."""


def row_id(batch: int, row: int) -> int:
    """Return the id of a batch's row."""
    return batch << ROWS_BITS | row


def id_range(batch: int) -> tuple[int, int]:
    """Return the range of ids (first included, last not) that contains all rows of a batch."""
    return batch << ROWS_BITS, batch + 1 << ROWS_BITS


def to_ms(moment: datetime) -> int:
    """Convert an aware datetime to milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> datetime:
    """Convert a stored time to a datetime."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def maybe_datetime(milliseconds: int | None) -> datetime | None:
    """Convert a stored time that may be missing to a datetime."""
    return None if milliseconds is None else to_datetime(milliseconds)


FIRST_MAC = bytes(32)
"""What the first event is chained to."""
_ORIGIN, _ABOUT_BEFORE_VERSION_3 = 1, 6
"""The origin's position in what an event says about its batch, and how many values events had for it at first."""
_TO_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_CODES_BY_WORD = {state.value: code for state, code in STATE_CODES.items()}


def event_text(detail: dict[str, Any]) -> str:
    """Write an event's detail, as it is stored and authenticated."""
    return _TO_JSON(detail)


def event_mac(keys: Keys, before: bytes, event: Iterable[Any]) -> bytes:
    """Authenticate an event (number, at, batch, kind, who, why, detail) together with the one before it."""
    return keys.mac("event", before, _TO_JSON(list(event)).encode())


def account_noted(keys: Keys, api_id: str | None) -> dict[str, str]:
    """Return what an event notes of the account at the gateway: a keyed digest of its API ID, if one is given."""
    if not api_id:
        return {}
    return {"account": keys.mac("gateway account", api_id.encode("utf-8", "surrogateescape"))[:8].hex()}


def environment_before_version_3(origin: str) -> str:
    """Return the environment of a batch that was registered before there were any, by where its gateway was."""
    on_loopback = ("http://", "https://localhost", "https://127.", "https://[::1]")
    return "test" if origin.lower().startswith(on_loopback) else "live"


def plan_detail(sign_off: SignOff, adds: Totals) -> dict[str, Any]:
    """Return what the history says of a plan that let these totals through."""
    return {
        "plan": sign_off.plan,
        "seal": sign_off.seal,
        "prepared by": sign_off.prepared_by,
        "approvals": [{"who": approval.who, "at": instant(approval.at)} for approval in sign_off.approvals],
        "rows": adds.rows,
        "cents": adds.cents,
        "rows held back": sign_off.held_back.rows,
        **({"limits": list(sign_off.lifts)} if sign_off.lifts else {}),
    }


def approvers_of(let_through: Iterable[tuple[str, str]]) -> int:
    """Return how many people approved all that is pending of a batch, by what let it through (kind, detail), in order.

    The fewest for any part that was registered or released: what came without a plan voids earlier approvals.
    """
    cleared = 0
    for kind, detail in let_through:
        if kind != PLAN_USED:
            cleared = 0
            continue
        used = json.loads(detail)
        if not used["rows held back"]:
            cleared = max(cleared, len(used["approvals"]))
    return cleared


def limits_lifted(let_through: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the limits of a day that do not stop what is pending of a batch, by what let it through, in order."""
    found: set[str] = set()
    for kind, detail in let_through:
        if kind == PLAN_USED:
            found |= {*json.loads(detail).get("limits", ())}
        else:
            found.clear()
    return frozenset(found)


class Replay:
    """The states that follow from the history for the rows of every batch, and what it says of batches and runs."""

    def __init__(self) -> None:
        self.states: dict[int, bytearray] = {}
        """One byte per row: its state's code, by batch and row number."""
        self.registered: dict[int, dict[str, Any]] = {}
        """What was registered, by batch."""
        self.runs: dict[int, list[Any]] = {}
        """Batch, who, start, end and reason of the end, by run."""
        self.purged: set[int] = set()
        """Batches whose texts were erased: none of their rows may move again."""

    def apply(self, batch: int, kind: str, who: str, why: str | None, detail: dict[str, Any]) -> str | None:
        """Apply an event; return what is impossible about it."""
        if kind == "started":
            self.runs[detail["run"]] = [batch, who, detail["at"], None, None]
        elif kind == "finished":
            self.runs[detail["run"]][3:] = [detail["at"], why]
        elif kind == "registered":
            if len(detail["about"]) == _ABOUT_BEFORE_VERSION_3:
                detail["about"].append(environment_before_version_3(detail["about"][_ORIGIN]))
            self.registered[batch] = detail
        elif kind == "gateway moved":
            self.registered[batch]["about"][_ORIGIN] = detail["to"]
        states = self.states.setdefault(batch, bytearray())
        if kind == PURGED:
            if batch in self.purged or not set(OPEN).isdisjoint(states):
                return "a batch can't be purged twice, nor before all its rows are final"
            self.purged.add(batch)
        return self._move(batch, states, kind, detail)

    def _move(self, batch: int, states: bytearray, kind: str, detail: dict[str, Any]) -> str | None:
        """Move the rows that an event names; return what is impossible about it."""
        for word, ranges in detail.items():
            after = _CODES_BY_WORD.get(word)
            if after is None or not isinstance(ranges, str):
                continue
            legal = befores(kind).get(after, frozenset()) if batch not in self.purged else frozenset()
            for first, last in read_ranges(ranges):
                if last >= len(states):
                    states.extend(bytes(max(last + 1 - len(states), len(states))))
                if not legal.issuperset(states[first : last + 1]):
                    return f"rows {first} to {last} can't become {word} by '{kind}'"
                states[first : last + 1] = bytes((after,)) * (last + 1 - first)
        return None


def batches_out_of_totals(view: View, statements: Statements) -> list[str]:
    """Find batches whose states do not add up to their control totals."""
    return [
        f"the ledger is damaged: the states of batch {name} do not add up to its control totals"
        for (name,) in view.execute(statements.BATCHES_OUT_OF_TOTALS)
    ]


def sums_unlike_rows(view: View, statements: Statements) -> Iterator[str]:
    """Find what no longer goes with the rows: payments that would not be found as duplicates, and sums of days.

    A payment whose digest of bill or paymentId is missing is unknown, and a limit would hold for another sum.
    """
    missing = view.execute(statements.ROWS_WITHOUT_BILL).fetchone()[0]
    if missing:
        yield unknown_if_it_came_again(missing)
    for (day,) in view.execute(statements.DAYS_UNLIKE_ROWS):
        yield f"the ledger is damaged: what counts as sent on {date.fromordinal(day):%m/%d/%Y} differs from its rows"


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
