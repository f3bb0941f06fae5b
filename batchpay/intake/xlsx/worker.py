"""The child process that parses an XLSX, with limits on memory and time: a crash in a library does not stop the parent.

Standard input is the workbook, the second argument the job (JSON). Standard output gets one line of JSON (what was
found, or a refusal), then chunks: eight bytes of length, a line of JSON (or a refusal) and text. The line has
`first_row`, the chunk's first row in the sheet, the number of `rows`, the `columns` (`c0`, `c1` and so on, and the
marks `_fault.cN`, `_suggest.cN`, `_warn.cN` where they occur) and the `separator` of the text: all cells of the first
column, then of the second. polars is not needed here: it would take longer to load than most workbooks.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from batchpay.errors import FileRefused
from batchpay.intake.header import (
    HEADER_NAMES_ENOUGH,
    HEADER_ROWS_MAX,
    HELPER_SHEET,
    CellForm,
    canonical_name,
    known_names,
    title_notes,
)
from batchpay.intake.streams import OpenFile, PrivateCopy
from batchpay.intake.xlsx.archive import SheetEntry, list_sheets, open_archive
from batchpay.intake.xlsx.columns import ColumnRenderer, plain_value
from batchpay.text import row_count
from batchpay.writing.process_memory import keep_memory_private

if TYPE_CHECKING:
    from batchpay.intake.xlsx.pieces import PiecedSheet, SheetPiece

MEMORY_BYTES_MAX = 1 << 30
CPU_S_MAX = 600
Row = list[Any]


def main() -> None:
    """Do the job; every failure becomes a refusal in the first line, or a broken pipe that the parent understands."""
    out = sys.stdout.buffer
    gc.disable()  # cells are in no cycles, and there are millions
    refusal, has_begun = "", False
    try:
        _limit()
        workbook = OpenFile("-", PrivateCopy(sys.stdin.fileno(), os.fstat(sys.stdin.fileno()).st_size))
        for block in _blocks(workbook, json.loads(sys.argv[2])):
            out.write(block)
            has_begun = True
    except FileRefused as error:
        refusal = str(error)
    except MemoryError:
        refusal = "needs more memory than a payment file may; it is not read"
    if refusal:
        line = _line({"refused": refusal})
        out.write(_with_length(line) if has_begun else line)
    with contextlib.suppress(BrokenPipeError):
        out.flush()


def _limit() -> None:
    keep_memory_private()  # the parent's own setting does not survive starting another program
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, CPU_S_MAX),
        (resource.RLIMIT_FSIZE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _blocks(file: OpenFile, job: dict[str, Any]) -> Iterator[bytes]:
    from batchpay.intake.xlsx.pieces import PiecedSheet  # after the limits: it loads the library

    archive = open_archive(file.reader(), macros="known" not in job)
    entries = list_sheets(archive)
    if "known" not in job:
        yield from _plain(archive, [entry for entry in entries if entry.state == "visible" and entry.path], job)
        return

    @cache
    def sheet_of(entry: SheetEntry) -> PiecedSheet:
        return PiecedSheet(archive, entry)

    def holds_payments(entry: SheetEntry) -> bool:
        rows = _first_rows(sheet_of(entry).pieces())
        return any(_known_names(cells, job["known"]) >= HEADER_NAMES_ENOUGH for cells in rows)

    entry, notes = _choose(entries, job["sheet"], holds_payments)
    sheet = sheet_of(entry)
    above, names = _header(_first_rows(sheet.pieces()), job["known"])
    header_row = len(above) + 1
    notes += title_notes(f"sheet {entry.name!r}", "row", header_row, list(enumerate(above, 1)), names)
    if hidden := [row for row in sheet.extent.hidden_rows if row > header_row]:
        count = row_count(len(hidden))
        if not job["include_hidden"]:
            raise FileRefused(
                f"sheet {entry.name!r}: {count} can't be seen, hidden or filtered out (the first is row {hidden[0]}); "
                "show or delete them, or use --include-hidden"
            )
        notes.append(f"{count} that can't be seen, hidden or filtered out: read as well")
    first_column = sheet.extent.first_column - 1
    yield _line({"names": names, "first_column": first_column, "notes": notes, "sheet": entry.name})
    forms = {name: CellForm(**form) for name, form in job["forms"].items()}
    of_columns = [forms.get(name) or CellForm(canonical_name(name)) for name in names]
    renderer = ColumnRenderer(of_columns, first_column, sheet.pieces)
    for piece in sheet.pieces():
        if rows := piece.rows[max(0, header_row + 1 - piece.first_row) :]:
            part = piece._replace(rows=rows, first_row=max(piece.first_row, header_row + 1))
            columns = renderer.columns(part)
            separator, text = _joined(columns.values(), len(rows))
            head = {"first_row": part.first_row, "rows": len(rows), "columns": list(columns), "separator": separator}
            yield _with_length(_line(head) + text.encode())


def _plain(archive: ZipFile, entries: Sequence[SheetEntry], job: dict[str, Any]) -> Iterator[bytes]:
    """Yield the names of the visible sheets, then, if asked, the rows of one as JSON: numbers, texts, null if blank."""
    from batchpay.intake.xlsx.pieces import PiecedSheet

    yield _line({"sheets": [entry.name for entry in entries]})
    wanted = job["of"]
    named = [entry for entry in entries if entry.name in wanted] or (entries if None in wanted else [])
    if not named:
        return
    sheet = PiecedSheet(archive, named[0])
    for piece in sheet.pieces():
        for (row, column), text in piece.special.errors.items():
            piece.rows[row - piece.first_row][column - sheet.extent.first_column] = text
        rows = [[plain_value(cell) for cell in cells] for cells in piece.rows]
        before = [None] * (sheet.extent.first_column - 1)
        head = {"first_row": piece.first_row, "rows": len(rows)}
        yield _with_length(_line(head) + json.dumps([before + cells for cells in rows]).encode())


def _first_rows(pieces: Iterable[SheetPiece]) -> list[Row]:
    """Return the rows among which a header is looked for, from the sheet's first one on."""
    rows: list[Row] = []
    for piece in pieces:
        if piece.first_row > HEADER_ROWS_MAX:
            break
        rows += [[] for _ in range(piece.first_row - 1 - len(rows))]
        rows += piece.rows[: HEADER_ROWS_MAX - len(rows)]
    return rows


def _choose(
    sheets: Sequence[SheetEntry], asked: str | None, holds_payments: Callable[[SheetEntry], bool]
) -> tuple[SheetEntry, list[str]]:
    """Return the requested sheet, else the visible one with payments, and notes about it."""
    if asked is not None:
        found = next((sheet for sheet in sheets if sheet.name == asked), None)
        if found is None:
            raise FileRefused(f"has no sheet {asked!r}, but {', '.join(sheet.name for sheet in sheets)}")
    else:
        visible = [sheet for sheet in sheets if sheet.state == "visible" and sheet.path]
        chosen = [sheet for sheet in visible if holds_payments(sheet)] if len(visible) > 1 else []
        if len(chosen) > 1:
            names = ", ".join(repr(sheet.name) for sheet in chosen)
            raise FileRefused(f"has several sheets of payments, {names}; name one with --sheet")
        found = next(iter(chosen or visible), None)
    if found is None or not found.path:
        raise FileRefused("has no visible sheet with cells")
    others = sum(not _is_helper(sheet) for sheet in sheets if sheet is not found)
    others_text = "sheet" if others == 1 else f"{others} sheets"
    return found, [f"sheet {found.name!r} is read, not the other {others_text}"] if others else []


def _is_helper(sheet: SheetEntry) -> bool:
    """Whether a program made the sheet for itself; LibreOffice saves one that was very hidden as hidden."""
    return sheet.state == "veryHidden" or (sheet.state == "hidden" and sheet.name == HELPER_SHEET)


def _known_names(cells: Row, known: Sequence[str]) -> int:
    return known_names((cell for cell in cells if isinstance(cell, str)), known)


def _header(rows: Sequence[Row], known: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Find the header among the first rows; return the cells of each row above it that are not blank, and the header.

    It is the first row with enough known names, else the one with most, else the first with anything in it.
    """
    filled = [at for at, cells in enumerate(rows) if any(cell != "" for cell in cells)]
    if not filled:
        raise FileRefused("has no header")
    counts = {at: min(_known_names(rows[at], known), HEADER_NAMES_ENOUGH) for at in filled}
    place = max(filled, key=counts.__getitem__)
    above = [[str(cell) for cell in cells if cell != ""] for cells in rows[:place]]
    return above, [cell if isinstance(cell, str) else str(cell) for cell in rows[place]]


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _joined(columns: Collection[Sequence[str]], rows: int) -> tuple[str, str]:
    """Join all cells into one text, separated by the first character that occurs in none of them."""
    for separator in map(chr, range(sys.maxunicode)):
        text = separator.join(map(separator.join, columns))
        if text.count(separator) == len(columns) * rows - 1:
            return separator, text
    raise AssertionError("no chunk holds every character")
