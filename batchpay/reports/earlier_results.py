"""What a results file that lies there already tells of a batch: more than the ledger, where that was brought back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchpay.ledger.contract import Ledger
from batchpay.payment import State
from batchpay.writing.place import first_row, rows_of, separator_of

_COLUMNS = ("row", "state", "attempts")
_Told = tuple[Counter[str], dict[int, int]]


def states_told(path: Path, batch: str) -> Counter[str]:
    """Count the rows of each state in a results file of this batch; none of any other file, or one that is broken."""
    return _told(path, batch)[0]


def told_more(ledger: Ledger, batch: str, path: Path) -> str | None:
    """Say what a results file knows of a batch that its ledger does not; None if it knows no more.

    No row ever leaves `accepted` or `declined`, and no attempt is ever forgotten: such a ledger was restored from an
    earlier time, even if its witness agrees with it.
    """
    counts, doubts = _told(path, batch)
    if not counts:
        return None  # usually of another day
    by_state = ledger.find(batch).by_state  # read after the file, which another run may just have written
    for state in (State.ACCEPTED, State.DECLINED):
        if counts[state] > (known := by_state[state].rows):
            return f"{counts[state]} {state} rows of batch {batch}, the ledger of {known}"
    for columns in ledger.row_columns(batch, [State.PENDING]) if doubts else ():
        for row, attempts in zip(columns.rows, columns.attempts, strict=True):
            if doubts.get(row, 0) > attempts:
                return f"row {row} of batch {batch} as in doubt, the ledger of no such attempt"
    return None


def _told(path: Path, batch: str) -> _Told:
    """Read what a results file of this batch holds: its rows by state, and how often each row in doubt was sent."""
    if (first_row(path, saved_anew=True) or {}).get("batch") != batch:
        return Counter(), {}
    try:
        return _of_workbook(path) if path.suffix.lower() == ".xlsx" else _of_table(path)
    except Exception:  # whatever a library makes of a file that was cut off or edited
        return Counter(), {}


def _of_table(path: Path) -> _Told:
    """Read three columns alone: by whole rows a million would hold up the first payment for seconds."""
    import polars as pl  # only where there is something to read: a run starts without it

    if path.suffix.lower() in (".parquet", ".pq"):
        found = pl.read_parquet(path, columns=list(_COLUMNS), glob=False)
    else:
        with path.open(encoding="utf-8", errors="replace") as file:
            separator = separator_of(file.readline())
        found = pl.read_csv(
            path, columns=list(_COLUMNS), separator=separator, encoding="utf8-lossy", infer_schema=False, glob=False
        )
    doubts = found.filter(pl.col("state") == State.IN_DOUBT).select(_COLUMNS)
    return Counter(found["state"].to_list()), _attempts(doubts.rows())


def _of_workbook(path: Path) -> _Told:
    rows = rows_of(path)
    header = list(next(rows))
    places = [header.index(name) for name in _COLUMNS]
    found = [tuple(row[place] for place in places) for row in rows]
    return Counter(str(row[1]) for row in found), _attempts(row for row in found if row[1] == State.IN_DOUBT)


def _attempts(doubts: Iterable[Sequence[object]]) -> dict[int, int]:
    """Read number and attempts of rows in doubt; what somebody typed over says nothing."""
    numbers = ((str(row), str(attempts)) for row, _, attempts in doubts)
    return {int(row): int(attempts) for row, attempts in numbers if row.isdecimal() and attempts.isdecimal()}
