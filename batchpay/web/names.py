"""What files that the page hands out are called."""

from __future__ import annotations

_KINDS = {"xlsx": "xlsx", "xlsm": "xlsx", "parquet": "parquet", "pq": "parquet"}


def stem(name: str) -> str:
    """Give a file's name without its ending."""
    return name.rpartition(".")[0] or name


def rejects_name(name: str) -> str:
    """Name the file of the rows to correct: of the person's own kind."""
    return f"{stem(name)}.to-correct.{_KINDS.get(name.rpartition('.')[2].lower(), 'csv')}"
