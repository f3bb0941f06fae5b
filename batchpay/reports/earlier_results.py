"""What an existing results file already shows of a batch: more than the ledger, if that was restored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from batchpay.writing.place import first_row, rows_of, separator_of


def states_told(path: Path, batch: str) -> Counter[str]:
    """Count the rows of each state in a results file of this batch; none for any other file, or one that is broken."""
    if (first_row(path, saved_anew=True) or {}).get("batch") != batch:
        return Counter()
    try:
        return Counter(_workbook_states(path) if path.suffix.lower() == ".xlsx" else _column(path))
    except Exception:  # whatever a library raises for a file that was cut off or edited
        return Counter()


def _column(path: Path) -> list[str]:
    """Read one column alone: reading a million whole rows would delay the first payment by seconds."""
    import polars as pl  # only where there is something to read: a run starts without it

    if path.suffix.lower() in (".parquet", ".pq"):
        return pl.read_parquet(path, columns=["state"], glob=False)["state"].to_list()
    with path.open(encoding="utf-8", errors="replace") as file:
        separator = separator_of(file.readline())
    return pl.read_csv(
        path, columns=["state"], separator=separator, encoding="utf8-lossy", infer_schema=False, glob=False
    )["state"].to_list()


def _workbook_states(path: Path) -> list[str]:
    rows = rows_of(path)
    place = list(next(rows)).index("state")
    return [str(row[place]) for row in rows]
