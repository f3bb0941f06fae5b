"""The rejects file: the user's own rows as they were read, with what is wrong in front, in the input's own format.

Frames kept for later are compressed bytes: a filtered frame would keep the whole block that it was taken from.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import polars as pl

from batchpay.errors import BatchpayError, WrongUse
from batchpay.intake.own_output import rows_of
from batchpay.intake.source import Source
from batchpay.intake.table_rows import FileEnd
from batchpay.schemas.columns import REJECTS_OWN
from batchpay.writing.atomic import CSV_ENDINGS, MayReplace, PendingFile, anything, place
from batchpay.writing.table import csv_lines
from batchpay.writing.xlsx import Column, Kind, Workbook


def packed(frame: pl.DataFrame) -> bytes:
    """Compress a frame."""
    out = io.BytesIO()
    frame.write_ipc_stream(out, compression="lz4")
    return out.getvalue()


def unpacked(data: bytes) -> pl.DataFrame:
    """Return the frame again."""
    return pl.read_ipc_stream(io.BytesIO(data))


LENGTHS = ("_surplus", "_missing")
"""What a file reader records for a row that is longer or shorter than the header."""
_RUNS = r"^[=@\t\r]|^[+-].*[^0-9 ().-]"
"""How a cell begins that a spreadsheet would run as a formula; a signed number or a phone number does not."""
_RUNS_MESSAGE = "a spreadsheet may run this cell, view it as text"
_BEYOND = " "
"""Not the name of any column."""
_PARQUET_ROWS = 5_000


class Rejects(Protocol):
    """Receives rejected rows in file order; nothing is at the path before `commit`."""

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of a chunk with `_errors`, `_warnings` and `_suggestions`, in row order."""

    def late(self, frame: pl.DataFrame) -> None:
        """Add rows found invalid only after all chunks; called after every `add`, merged by `_row`."""

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        """Put the file in its place, or under its name with a number; return where it is.

        Without a row no file is written, and an existing one that may be replaced keeps only its header.
        """

    def abandon(self) -> None:
        """Write nothing."""


Begin = Callable[[Path], PendingFile]


def open_rejects(path: str | Path, source: Source, begin: Begin = PendingFile) -> Rejects:
    """Begin a rejects file in the format of the path's extension; raises WrongUse for an extension that is not ours.

    `begin` creates the pending file, for callers whose rejects must never be on a disk in the clear.
    """
    target = Path(path)
    ending = target.suffix.lower()
    if ending in (".csv", ".txt", ".tsv"):
        return CsvRejects(target, source, begin)
    if ending in (".parquet", ".pq"):
        return ParquetRejects(target, source, begin)
    if ending == ".xlsx":
        return XlsxRejects(target, source, begin)
    raise WrongUse(f"{target}: the name of a rejects file must end in .csv, .parquet or .xlsx")


def together(several: Sequence[Rejects]) -> Rejects | None:
    """Combine several into one; the first says where the file is. None where there are none."""
    return (several[0] if len(several) == 1 else _SeveralRejects(several)) if several else None


def with_corrected(several: Sequence[Rejects], corrected: Mapping[int, str]) -> list[Rejects]:
    """Let those that are files have what the bank corrected, by row, which is known when late rows come."""
    return [_Corrected(one, corrected) if isinstance(one, _Rows) else one for one in several]


class _Corrected:
    """A rejects file that also has, as suggestions, what the bank corrected: it is shown nowhere else, nor accepted."""

    def __init__(self, file: Rejects, corrected: Mapping[int, str]) -> None:
        self._file, self._corrected = file, corrected
        self.add, self.commit, self.abandon = file.add, file.commit, file.abandon

    def late(self, frame: pl.DataFrame) -> None:
        """Add late rows, with what was corrected of each."""
        given = pl.col("_row").replace_strict(self._corrected, default=None, return_dtype=pl.String)
        both = pl.concat_str("_suggestions", given, separator="; ", ignore_nulls=True)
        self._file.late(frame.with_columns(_suggestions=both) if self._corrected else frame)


class _SeveralRejects:
    """See `together`."""

    def __init__(self, several: Sequence[Rejects]) -> None:
        self._several = several

    def add(self, frame: pl.DataFrame) -> None:
        for one in self._several:
            one.add(frame)

    def late(self, frame: pl.DataFrame) -> None:
        for one in self._several:
            one.late(frame)

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        first, *_ = [one.commit(may_replace) for one in self._several]
        return first

    def abandon(self) -> None:
        for one in self._several:
            one.abandon()


class _Rows:
    """What all formats share: shaping rows for the file."""

    def __init__(self, target: Path, source: Source, begin: Begin) -> None:
        self._target = target
        self._source = source
        self._begin = begin

    def _shaped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select our columns, then the user's own; `_surplus` and `_missing` last where a row differs in length."""
        marks = [name for name in LENGTHS if name in frame.columns and frame[name].null_count() < frame.height]
        return frame.select(*REJECTS_OWN, *self._source.own_columns, *marks)

    @property
    def _header(self) -> list[str]:
        return [*REJECTS_OWN, *self._source.own_header]


class CsvRejects(_Rows):
    """CSV with the source's own separator, written as the rows come; late ones are merged into a second file."""

    def __init__(self, target: Path, source: Source, begin: Begin) -> None:
        super().__init__(target, source, begin)
        self._file = self._begun()
        self._blocks: deque[_Block] = deque()
        """Where frames are in the file; once late rows came, of those that are not in the second file yet."""
        self._merged: PendingFile | None = None
        self._records: list[tuple[int, bytes]] = []
        """What is left to merge from a block that late rows fall into, with the row numbers."""

    def add(self, frame: pl.DataFrame) -> None:
        """Write rows."""
        if frame.height:
            with self._file.abandoned_on_error():
                begin = self._file.file.tell()
                self._encode(self._file.file, self._reported(self._shaped(frame)))
                rows = frame.get_column("_row")
                self._blocks.append(_Block(rows, begin, self._file.file.tell()))

    def late(self, frame: pl.DataFrame) -> None:
        """Write rows between those that were added; a late row replaces one that was added before."""
        if not frame.height:
            return
        if self._merged is None:
            self._merged = self._begun()
        rows = frame.get_column("_row").to_list()
        lines = io.BytesIO()
        self._encode(lines, self._reported(self._shaped(frame)))
        with self._file.abandoned_on_error(), self._merged.abandoned_on_error():
            records = self._added_up_to(rows[-1], self._merged, before=rows[0])
            if not records:
                self._merged.file.write(lines.getbuffer())
                return
            records.update(zip(rows, _records(lines.getvalue()), strict=True))
            self._merged.file.writelines(records[row] for row in sorted(records))

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        """Put the file in its place."""
        if self._merged is None:
            return place(self._file, may_replace, only_over=not self._blocks)
        with self._file.abandoned_on_error(), self._merged.abandoned_on_error():
            self._merged.file.writelines(line for _, line in self._records)
            for block in self._blocks:
                self._merged.file.write(self._read(block))
        self._file.abandon()
        self._file, self._merged = self._merged, None
        return place(self._file, may_replace)

    def abandon(self) -> None:
        """Remove what was written."""
        self._file.abandon()
        if self._merged is not None:
            self._merged.abandon()

    def _begun(self) -> PendingFile:
        """Begin a file with the header."""
        pending = self._begin(self._target)
        with pending.abandoned_on_error():
            pending.file.write(self._line(self._header))
        return pending

    def _added_up_to(self, last: int, merged: PendingFile, *, before: int) -> dict[int, bytes]:
        """Take the records up to a row out of what was added; whole blocks of rows `before` are copied unchanged."""
        while self._blocks and self._blocks[0].rows[0] <= last:
            block = self._blocks.popleft()
            written = self._read(block)
            if block.rows[-1] < before and not self._records:
                merged.file.write(written)
                continue
            self._records += zip(block.rows.to_list(), _records(written), strict=True)
        count = bisect_right(self._records, last, key=itemgetter(0))
        taken, self._records = self._records[:count], self._records[count:]
        return dict(taken)

    def _read(self, block: _Block) -> bytes:
        """Read what was added; what is buffered is written first."""
        self._file.file.seek(block.begin)
        return self._file.file.read(block.end - block.begin)

    def _reported(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Warn of cells that a spreadsheet would run: they are returned as read, so they can't be defused."""
        headers = dict(zip(self._source.own_columns, self._source.own_header, strict=True))
        own = {name: header for name, header in headers.items() if frame[name].null_count() < frame.height}
        # A formula's first character sorts before 0 or from = to @: comparing takes half as long as a pattern.
        predicates = [((pl.col(name) < "0") | pl.col(name).is_between(pl.lit("="), pl.lit("A"))).any() for name in own]
        columns = _true_of(frame, predicates)
        columns = _true_of(frame, [pl.col(name).str.contains(_RUNS).any() for name in columns])
        if not columns:
            return frame
        found = [
            pl.when(pl.col(name).str.contains(_RUNS)).then(
                pl.lit(f"{own[name].replace(';', ' ')}: formula: {_RUNS_MESSAGE}")
            )
            for name in columns
        ]
        warnings = pl.concat_str("_warnings", *found, separator="; ", ignore_nulls=True)
        return frame.with_columns(pl.when(warnings != "").then(warnings).alias("_warnings"))

    def _encode(self, out: BinaryIO, frame: pl.DataFrame) -> None:
        if any(name in frame.columns for name in LENGTHS):
            for cells in rows_as_long_as_read(frame):
                out.write(self._line(cells))
            return
        frame.write_csv(out, include_header=False, separator=self._source.separator)

    def _line(self, cells: Sequence[object]) -> bytes:
        return csv_lines([cells], self._source.separator).encode()


class _HeldRejects(_Rows, ABC):
    """For formats that are written at the end: rows are kept in memory, packed."""

    def __init__(self, target: Path, source: Source, begin: Begin) -> None:
        super().__init__(target, source, begin)
        self._frames: list[tuple[int, bytes]] = []
        self._late: list[bytes] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Keep rows for the end."""
        if frame.height:
            self._frames.append((frame.get_column("_row")[0], packed(self._shaped(frame))))

    def late(self, frame: pl.DataFrame) -> None:
        """Keep late rows for the end."""
        if frame.height:
            self._late.append(packed(self._shaped(frame)))

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        """Write the file and put it in its place."""
        pending = self._begin(self._target)
        with pending.abandoned_on_error():
            self._write(pending.file)
        return place(pending, may_replace, only_over=not (self._frames or self._late))

    def abandon(self) -> None:
        """Forget the rows."""
        self._frames.clear()

    def _late_rows(self) -> pl.DataFrame:
        frames = [unpacked(data) for data in self._late]
        return pl.concat(frames, how="diagonal").sort("_row") if frames else pl.DataFrame()

    def _in_order(self) -> Iterator[pl.DataFrame]:
        """Yield the frames with the late rows in their places."""
        late = self._late_rows()
        following = [first for first, _ in self._frames[1:]]
        for (_, data), next_row in zip_longest(self._frames, following):
            frame = unpacked(data)
            if late.height:
                between = late if next_row is None else late.filter(pl.col("_row") < next_row)
                late = late.slice(between.height)
                earlier = frame.join(between, on="_row", how="anti")  # a late row replaces the one added before
                frame = pl.concat([earlier, between], how="diagonal").sort("_row")
            yield beyond(frame, self._source.separator)
        if late.height:
            yield beyond(late, self._source.separator)

    @abstractmethod
    def _write(self, file: BinaryIO) -> None:
        """Write the whole file."""


class ParquetRejects(_HeldRejects):
    """Parquet, all text; cells beyond the header's are in a last column without a name."""

    def _write(self, file: BinaryIO) -> None:
        places = (*REJECTS_OWN, *self._source.own_columns)
        names = dict(zip(places, self._header, strict=True))
        empty = pl.DataFrame(schema=dict.fromkeys(places, pl.String))
        frames = [frame.cast({"_row": pl.String, "_line": pl.String}) for frame in self._in_order()]
        whole = pl.concat([empty, *frames], how="diagonal")
        whole.rename(names).write_parquet(file, row_group_size=_PARQUET_ROWS)


class XlsxRejects(_HeldRejects):
    """XLSX: wrong cells are red, and their comment says what is wrong."""

    def _write(self, file: BinaryIO) -> None:
        places = [*REJECTS_OWN, *self._source.own_columns]
        own_of = self._source.own_of
        position = {name: places.index(own) for name, own in own_of.items() if own in places}
        kinds = {"_row": Kind.INTEGER, "_line": Kind.INTEGER, **dict.fromkeys(REJECTS_OWN[2:], Kind.WRAP)}
        kinds |= dict.fromkeys(self._source.own_amounts, Kind.AMOUNT)
        columns = [Column(name, kinds.get(at, Kind.TEXT)) for at, name in zip(places, self._header, strict=True)]
        with Workbook(file) as workbook:
            sheet = workbook.sheet("rejects", columns)
            for frame in self._in_order():
                shown = [*places, _BEYOND] if _BEYOND in frame.columns else places
                for row in frame.select(shown).iter_rows():
                    cells = [None if cell is None else str(cell) for cell in row]
                    sheet.row(cells, wrong_cells(cells[2] or "", position))


def rows_as_long_as_read(frame: pl.DataFrame) -> Iterator[list[object]]:
    """Yield the rows of a CSV at their original length: a short one that was padded would pass when read again."""
    marks = [name for name in LENGTHS if name in frame.columns]
    columns = [frame[name].to_list() if name in marks else [None] * frame.height for name in LENGTHS]
    for cells, surplus, missing in zip(frame.drop(marks).iter_rows(), *columns, strict=True):
        yield [*cells[: len(cells) - (missing or 0)], *(surplus or ())]


def beyond(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Put what a row is too long or too short by into a last column without a name: it is found when read again."""
    marks = [name for name in LENGTHS if name in frame.columns]
    texts = {
        "_surplus": pl.col("_surplus").list.join(separator),
        "_missing": pl.when(pl.col("_missing") == 1)
        .then(pl.lit("(the last cell of this row was missing)"))
        .otherwise(pl.format("(the last {} cells of this row were missing)", "_missing")),
    }
    if not marks:
        return frame
    return frame.with_columns(pl.coalesce(texts[name] for name in marks).alias(_BEYOND)).drop(marks)


def wrong_cells(errors: str, position: Mapping[str, int]) -> dict[int, str]:
    """Split `_errors` by position of the cell: what is wrong there."""
    wrong: dict[int, list[str]] = {}
    for entry in errors.split("; "):
        column, _, rest = entry.partition(": ")
        if column in position:
            wrong.setdefault(position[column], []).append(rest)
    return {at: "\n".join(messages) for at, messages in wrong.items()}


def _true_of(frame: pl.DataFrame, predicates: Sequence[pl.Expr]) -> list[str]:
    """Name the columns for which a predicate is true."""
    return [predicate.name for predicate in frame.select(predicates) if predicate.item()]


class _Block(NamedTuple):
    """A frame's rows in a file."""

    rows: pl.Series
    """Their numbers: how a line is written may depend on its cells, so none is read out of one."""
    begin: int
    end: int


def _records(written: bytes) -> Iterator[bytes]:
    """Split written lines into records: a line break within quotation marks belongs to a cell."""
    record = b""
    for line in io.BytesIO(written):
        record += line
        if record.count(b'"') % 2 == 0:
            yield record
            record = b""


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
