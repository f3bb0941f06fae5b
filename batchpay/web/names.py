"""What files that the page offers for download are called."""

from __future__ import annotations

_KINDS = {"xlsx": "xlsx", "xlsm": "xlsx", "parquet": "parquet", "pq": "parquet"}


def stem(name: str) -> str:
    """Return a file's name without its extension."""
    return name.rpartition(".")[0] or name


def rejects_name(name: str) -> str:
    """Return the name of the file of the rows to correct: in the person's own format."""
    return f"{stem(name)}.to-correct.{_KINDS.get(name.rpartition('.')[2].lower(), 'csv')}"
