"""Whether an existing rejects file holds rows of the file that was just read, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from batchpay.errors import BatchpayError
from batchpay.intake.source import Source
from batchpay.intake.table_end import FileEnd
from batchpay.schemas.columns import REJECTS_OWN
from batchpay.validation.rejects import LENGTHS, beyond, rows_as_long_as_read
from batchpay.writing.place import CSV_ENDINGS, rows_of

_PLACE = REJECTS_OWN[:2]


def holds_only_rows_of(source: Source, path: Path) -> bool:
    """Whether every row of a rejects file is a row of the source: its number, its line and each of its cells as read.

    Errors, warnings and suggestions are not compared: they change with the rules. A cell that somebody corrected makes
    it a different file, and so does anything not as we write it. Raises FileRefused where the source has changed.
    """
    examples = replace(source.examples)
    try:
        return _holds_only_rows_of(source, path)
    except BatchpayError:
        raise
    except Exception:  # whatever a library raises for a file that is not ours
        return False
    finally:
        # Keep what was found in the whole file: this reading ends early.
        source.examples.count, source.examples.with_account = examples.count, examples.with_account


def _holds_only_rows_of(source: Source, path: Path) -> bool:
    is_csv = path.suffix.lower() in CSV_ENDINGS
    written = rows_of(path, source.separator)
    header, ours = [_text(cell) for cell in next(written, ())], [*REJECTS_OWN, *source.own_header]
    if (header if is_csv else header[: len(ours)]) != ours:
        return False
    rows = (_own_cells(row, is_csv=is_csv) for row in written)
    row = next(rows, None)
    for chunk in replace(source, end=FileEnd()).chunks():
        last, there = max(chunk["_row"], default=0), []
        while row is not None and int(row[0]) <= last:
            there.append(row)
            row = next(rows, None)
        if there != list(_as_written(source, chunk, [int(one[0]) for one in there], is_csv=is_csv)):
            return False
        if row is None:
            return True
    return row is None


def _as_written(source: Source, chunk: pl.DataFrame, numbers: list[int], *, is_csv: bool) -> Iterator[list[str]]:
    """Yield rows of a chunk as a rejects file has them, without errors, warnings and suggestions."""
    frame = chunk.filter(pl.col("_row").is_in(numbers)).select(
        *_PLACE, *source.own_columns, *(name for name in LENGTHS if name in chunk.columns)
    )
    if is_csv:
        yield from ([_text(cell) for cell in row] for row in rows_as_long_as_read(frame))
    else:
        rows = beyond(frame, source.separator).iter_rows()
        yield from (_without_blanks([_text(cell) for cell in row]) for row in rows)


def _own_cells(row: Sequence[object], *, is_csv: bool) -> list[str]:
    """Return a row that was read back, without errors, warnings and suggestions."""
    cells = [*row[: len(_PLACE)], *row[len(REJECTS_OWN) :]]
    texts = [_text(cell, is_amount=at >= len(_PLACE)) for at, cell in enumerate(cells)]
    return texts if is_csv else _without_blanks(texts)


def _text(cell: object, *, is_amount: bool = False) -> str:
    """Return a cell as text; a number in a workbook is an amount, written with its cents."""
    if is_amount and isinstance(cell, int | float):
        return f"{cell:.2f}"
    return "" if cell is None else str(cell)


def _without_blanks(cells: list[str]) -> list[str]:
    """Drop the blanks at the end: a sheet does not record how long its rows are."""
    while cells and not cells[-1].strip():
        cells = cells[:-1]
    return cells
