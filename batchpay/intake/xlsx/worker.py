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
import itertools
import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

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
from batchpay.intake.xlsx import archive
from batchpay.intake.xlsx.columns import ColumnRenderer
from batchpay.text import row_count
from batchpay.writing.process_memory import keep_memory_private

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

MEMORY_BYTES_MAX = 6 << 30
CPU_S_MAX = 600
CHUNK_ROWS = 10_000
"""Few enough that the parent checks the first rows while the next are still being rendered."""
Row = list[Any]
Made = TypeVar("Made")


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
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    workbook_zip = archive.open_archive(file.reader())
    formats = archive.number_formats(workbook_zip)
    try:
        with ThreadPoolExecutor(1) as helper:
            opening = _begun(helper, CalamineWorkbook.from_filelike, file.reader())

            def holds_payments(entry: archive.SheetEntry) -> bool:
                archive.scan_sheet(workbook_zip, entry.path, {})
                return _holds_payments(_rows(opening.result().get_sheet_by_name(entry.name)), job["known"])

            entry, notes = _choose(archive.list_sheets(workbook_zip), job["sheet"], holds_payments)
            # The library must not allocate a sheet that was not found to be of a sane size.
            scan = archive.scan_sheet(workbook_zip, entry.path, formats)
        sheet = opening.result().get_sheet_by_name(entry.name)
        rows, columns_before = _rows(sheet), sheet.start[1] if sheet.start else 0
        above, names, rows = _header(rows, job["known"])
    except PasswordError:
        raise FileRefused("is protected by a password; save it without one") from None
    except CalamineError:
        raise FileRefused("is a broken XLSX") from None
    header_row = len(above) + 1
    notes += title_notes(f"sheet {entry.name!r}", "row", header_row, list(enumerate(above, 1)), names)
    if hidden := [row for row in scan.hidden_rows if row > header_row]:
        count = row_count(len(hidden))
        if not job["include_hidden"]:
            raise FileRefused(
                f"sheet {entry.name!r}: {count} can't be seen, hidden or filtered out (the first is row {hidden[0]}); "
                "show or delete them, or use --include-hidden"
            )
        notes.append(f"{count} that can't be seen, hidden or filtered out: read as well")
    yield _line({"names": names, "first_column": columns_before, "notes": notes, "sheet": entry.name})
    forms = {name: CellForm(**form) for name, form in job["forms"].items()}
    of_columns = [forms.get(name) or CellForm(canonical_name(name)) for name in names]
    yield from _chunks(rows, header_row + 1, ColumnRenderer(of_columns, scan, columns_before, lambda: _rows(sheet)))


def _begun(helper: ThreadPoolExecutor, work: Callable[..., Made], *given: Any) -> Future[Made]:
    """Begin work in a thread; where the system gives none, do it now."""
    try:
        return helper.submit(work, *given)
    except RuntimeError:
        done = Future[Made]()
        done.set_result(work(*given))
        return done


def _rows(sheet: CalamineSheet) -> Iterator[Row]:
    """Read a sheet from its first row; raises FileRefused where a number is shown as a date beyond all calendars."""
    row = 0
    try:
        for cells in sheet.iter_rows():
            row += 1
            yield cells
    except (OverflowError, ValueError):
        raise FileRefused(
            f"sheet {sheet.name!r}: row {row + 1} has a number that is shown as a time outside the calendar; format "
            "the cell as text and type it again"
        ) from None


def _choose(
    sheets: Sequence[archive.SheetEntry], asked: str | None, holds_payments: Callable[[archive.SheetEntry], bool]
) -> tuple[archive.SheetEntry, list[str]]:
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


def _is_helper(sheet: archive.SheetEntry) -> bool:
    """Whether a program made the sheet for itself; LibreOffice saves one that was very hidden as hidden."""
    return sheet.state == "veryHidden" or (sheet.state == "hidden" and sheet.name == HELPER_SHEET)


def _holds_payments(rows: Iterable[Row], known: Sequence[str]) -> bool:
    """Whether a sheet has a payment header."""
    return any(_known_names(cells, known) >= HEADER_NAMES_ENOUGH for cells in itertools.islice(rows, HEADER_ROWS_MAX))


def _known_names(cells: Row, known: Sequence[str]) -> int:
    return known_names((cell for cell in cells if isinstance(cell, str)), known)


def _header(rows: Iterator[Row], known: Sequence[str]) -> tuple[list[int], list[str], Iterator[Row]]:
    """Find the header; return how many cells each row above it has, the header, and the rows after it.

    It is the first row with enough known names, else the one with most, else the first with anything in it.
    """
    best: tuple[int, int] | None = None
    seen: list[Row] = []
    for cells in itertools.islice(rows, HEADER_ROWS_MAX):
        seen.append(cells)
        known_count = _known_names(cells, known)
        if any(cell != "" for cell in cells) and (best is None or known_count > best[0]):
            best = (known_count, len(seen))
        if known_count >= HEADER_NAMES_ENOUGH:
            break
    if best is None:
        raise FileRefused("has no header")
    above = [sum(cell != "" for cell in cells) for cells in seen[: best[1] - 1]]
    names = [cell if isinstance(cell, str) else str(cell) for cell in seen[best[1] - 1]]
    return above, names, itertools.chain(seen[best[1] :], rows)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def _chunks(rows: Iterator[Row], first_row: int, renderer: ColumnRenderer) -> Iterator[bytes]:
    while part := list(itertools.islice(rows, CHUNK_ROWS)):
        columns = renderer.columns(part, first_row)
        separator, text = _joined(columns.values(), len(part))
        head = {"first_row": first_row, "rows": len(part), "columns": list(columns), "separator": separator}
        yield _with_length(_line(head) + text.encode())
        first_row += len(part)


def _joined(columns: Collection[Sequence[str]], rows: int) -> tuple[str, str]:
    """Join all cells into one text, separated by the first character that occurs in none of them."""
    for separator in map(chr, range(sys.maxunicode)):
        text = separator.join(map(separator.join, columns))
        if text.count(separator) == len(columns) * rows - 1:
            return separator, text
    raise AssertionError("no chunk holds every character")
