"""The results file: one line for every row that passed the rules, read from the ledger, in file order.

Before a run, what an existing results file tells of a batch: more than the ledger, where that was brought back. polars
writes it, and is imported for it: the run before it does without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.intake.own_output import first_row, rows_of, separator_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import Fact, FactKind
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State, Totals
from batchpay.writing.atomic import Stream

if TYPE_CHECKING:
    import polars as pl

    from batchpay.writing.xlsx import Workbook

HEADER = (
    "row", "line", "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "amount",
    "currencyCode", "name", "account", "state", "http_status", "response_code", "message", "gateway_reference",
    "attempts", "sent_at", "finished_at", "batch", "environment", "warnings", "payOn", "returned",
    "return_code",
)  # fmt: skip
"""CONTRACT.md, 'Files'; the file's unknown columns follow."""


def write_results(ledger: Ledger, batch: BatchSummary, path: Path | Stream) -> Path:
    """Write the results of a batch, in the format that the path's ending says, atomically, mode 0600.

    Return where they are: results of another batch are never replaced; the name gets a number.
    """
    header = _header(batch.columns)

    from batchpay.reports.result_frames import KINDS, frame_of, write_frames
    from batchpay.writing.xlsx import columns

    def is_ours(there: Path, _: int) -> bool:
        answered = batch.by_state[State.ACCEPTED].rows + batch.by_state[State.DECLINED].rows
        knows_all = answered == batch.total.rows  # rejected rows may have been released
        return is_results_of(there, batch.batch) and (knows_all or told_more(ledger, batch.batch, there) is None)

    parts = ledger.row_columns(batch.batch)
    returns = returns_of(ledger, batch)
    if Path(str(path)).suffix.lower() != ".xlsx":
        return write_frames(
            path, columns(header, KINDS), (frame_of(part, header, batch, returns) for part in parts), is_ours
        )
    from batchpay.reports.summary_sheet import RowTotals, write_summary_sheet

    totals = RowTotals(Totals)

    def counted() -> Iterator[pl.DataFrame]:
        for part in parts:
            for state, direction, cents in zip(part.states, part.directions, part.amounts_cents, strict=True):
                totals[str(state), direction] += Totals(1, cents)
            yield frame_of(part, header, batch, returns)

    def front(workbook: Workbook, rows: int) -> None:
        write_summary_sheet(workbook, ledger, batch, header, rows, totals)

    return write_frames(path, columns(header, KINDS), counted(), is_ours, front)


def returns_of(ledger: Ledger, batch: BatchSummary) -> dict[int, Fact]:
    """Return by row the latest return that nobody withdrew."""
    facts = ledger.facts(batch.environment, batch=batch.batch)
    return {one.row: one for one in facts if one.kind is FactKind.RETURNED and not one.withdrawn}


def is_results_of(path: Path, batch: str) -> bool:
    """Whether a file holds results of this batch, or a header alone."""
    row = first_row(path)
    return row is not None and row.get("batch", "") in (None, batch)


def _header(carried: Sequence[str]) -> list[str]:
    """A file's column that is named like one of ours, such as `state`, becomes `state (file)`."""
    names = list(HEADER)
    for name in carried:
        while name in names:
            name = f"{name} (file)"
        names.append(name)
    return names


_COLUMNS = ("row", "state", "attempts", "sent_at")
_ANSWERED = (State.ACCEPTED, State.DECLINED)
_SENT = (State.IN_DOUBT, State.SENDING)
"""Sent, without an answer so far: results may be written while a run sends, or after one has died."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a results file holds: how many rows are in each state, and the rows by column."""

    counts: Counter[str] = field(default_factory=Counter)
    rows: Iterable[object] = ()
    states: Iterable[object] = ()
    attempts: Iterable[object] = ()
    sent_at: Iterable[object] = ()

    def answered(self) -> set[int]:
        """Return the rows that were accepted or declined; what somebody typed over says nothing."""
        found = (str(row) for row, state in zip(self.rows, self.states, strict=True) if state in _ANSWERED)
        return {int(row) for row in found if row.isdecimal()}

    def sent(self, since: datetime | None) -> dict[int, int]:
        """Return how often each row without an answer was sent, the last time not before a moment."""
        found = {}
        for row, state, attempts, sent_at in zip(self.rows, self.states, self.attempts, self.sent_at, strict=True):
            numbers = str(row), str(attempts)
            if state in _SENT and all(map(str.isdecimal, numbers)):
                at = _moment(sent_at)
                if since is None or at is None or at >= since:
                    found[int(numbers[0])] = int(numbers[1])
        return found


def told_more(ledger: Ledger, batch: str, path: Path) -> str | None:
    """Say what a results file knows of a batch that its ledger does not; None if it knows no more.

    No row ever leaves `accepted` or `declined`, and no attempt is ever forgotten: such a ledger was restored from an
    earlier time, even if its witness agrees with it.
    """
    told = told_by(path, batch)
    if not told.counts:
        return None  # usually of another day
    by_state = ledger.find(batch).by_state  # read after the file, which another run may just have written
    for state in _ANSWERED:
        if told.counts[state] > (known := by_state[state].rows):
            return f"{told.counts[state]} {state} rows of batch {batch}, the ledger {known}"
    return _row_told_more(ledger, batch, told)


def _row_told_more(ledger: Ledger, batch: str, told: Told) -> str | None:
    """Look row by row: as many as the file has may be accepted or waiting in the ledger, and not be the same ones.

    A doubt that a person settled makes up for a row that was paid, one that was released for a row that waits.

    Rows that were sent before a person accepted the restored ledger were in doubt from then on: whatever is pending
    again, somebody has decided.
    """
    answered = told.answered()
    sent = told.sent(since=ledger.restored_at()) if any(map(told.counts.get, _SENT)) else {}
    for part in ledger.row_columns(batch, [State.PENDING, State.IN_DOUBT]) if answered or sent else ():
        if not answered.isdisjoint(part.rows):  # a million rows one by one would hold up the first payment
            row, state = next(pair for pair in zip(part.rows, part.states, strict=True) if pair[0] in answered)
            return f"row {row} of batch {batch} as answered, the ledger as {state.words}"
        for row, state, attempts in zip(part.rows, part.states, part.attempts, strict=True) if sent else ():
            if state is State.PENDING and sent.get(row, 0) > attempts:
                return f"row {row} of batch {batch} as sent, the ledger no such attempt"
    return None


def told_by(path: Path, batch: str) -> Told:
    """Read a results file of this batch; nothing of any other file, or one that is broken."""
    if (first_row(path, saved_anew=True) or {}).get("batch") != batch:
        return Told()
    try:
        return _of_workbook(path) if path.suffix.lower() == ".xlsx" else _of_table(path)
    except Exception:  # whatever a library makes of a file that was cut off or edited
        return Told()


def _of_table(path: Path) -> Told:
    """Read four columns alone: by whole rows a million would hold up the first payment for seconds."""
    import polars as pl  # only where there is something to read: a run starts without it

    with path.open("rb") as file:  # polars opens no path that is not UTF-8
        if path.suffix.lower() in (".parquet", ".pq"):
            found = pl.read_parquet(file, columns=list(_COLUMNS))
        else:
            separator = separator_of(file.readline().decode(errors="replace"))
            file.seek(0)
            found = pl.read_csv(
                file, columns=list(_COLUMNS), separator=separator, encoding="utf8-lossy", infer_schema=False
            )
    return Told(Counter(found["state"].to_list()), *(found[name] for name in _COLUMNS))  # lists would take much memory


def _of_workbook(path: Path) -> Told:
    rows = rows_of(path)
    header = list(next(rows))
    places = [header.index(name) for name in _COLUMNS]
    found = list(zip(*([row[place] for place in places] for row in rows), strict=True))
    return Told(Counter(map(str, found[_COLUMNS.index("state")])), *found)


def _moment(cell: object) -> datetime | None:
    """Read a moment as we write it, in UTC; None where somebody typed over it."""
    try:
        found = cell if isinstance(cell, datetime) else datetime.fromisoformat(str(cell))
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)
