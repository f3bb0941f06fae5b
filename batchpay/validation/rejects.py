"""The rejects file: the person's own rows as they were read, with what is wrong in front, in the input's own kind."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import BinaryIO, Protocol

import polars as pl

from batchpay.errors import WrongUse
from batchpay.intake.source import Source
from batchpay.validation.packed import packed, unpacked
from batchpay.writing.atomic import PendingFile
from batchpay.writing.columns import Column, Kind
from batchpay.writing.place import MayReplace, anything, place
from batchpay.writing.table import csv_lines
from batchpay.writing.xlsx import Workbook

OURS = ("_row", "_line", "_errors", "_warnings", "_suggestions")
LENGTHS = ("_surplus", "_missing")
"""What a reader says of a row that is longer or shorter than the header."""
_RUNS = r"^[=@]|^[+-].*[^0-9 ().-]"
"""How a cell begins that a spreadsheet runs as a formula; a signed number or a telephone number is none. A tab or a
carriage return at a cell's beginning is an error already."""
_RUNS_TOLD = "a spreadsheet may run this cell, look at it as text"
_BEYOND = " "
"""The name of no column."""
_PARQUET_ROWS = 5_000


class Rejects(Protocol):
    """Takes rejected rows in file order; nothing is at the path before `commit`."""

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows of a chunk with `_errors`, `_warnings` and `_suggestions`, in row order."""

    def late(self, frame: pl.DataFrame) -> None:
        """Take rows found wrong only after all chunks; called after every `add`, merged by `_row`."""

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        """Put the file in its place, or where its name has a number; gives where it is.

        Without a row none is made, and one that may be replaced keeps its header alone.
        """

    def abandon(self) -> None:
        """Write nothing."""


Begin = Callable[[Path], PendingFile]


def open_rejects(path: str | Path, source: Source, begin: Begin = PendingFile) -> Rejects:
    """Begin a rejects file in the format of the path's ending; raises WrongUse where that is none of ours.

    `begin` makes the file under way, for those whose rejects never lie on a disk in the clear.
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
    """Give one that hands everything on to several; the first says where the file is. None where there is none."""
    return (several[0] if len(several) == 1 else _Together(several)) if several else None


class _Together:
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
    """What all formats share: rows take the file's shape."""

    def __init__(self, target: Path, source: Source, begin: Begin) -> None:
        self._target = target
        self._source = source
        self._begin = begin

    def _shaped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Our columns, then the person's own; `_surplus` and `_missing` last where a row is of another length."""
        marks = [name for name in LENGTHS if name in frame.columns and frame[name].null_count() < frame.height]
        return frame.select(*OURS, *self._source.own_columns, *marks)

    @property
    def _header(self) -> list[str]:
        return [*OURS, *self._source.own_header]


class CsvRejects(_Rows):
    """CSV in the source's own separator, written as the rows come; late ones are merged into a second file."""

    def __init__(self, target: Path, source: Source, begin: Begin) -> None:
        super().__init__(target, source, begin)
        self._file = self._begun()
        self._begins: list[int] = []
        """Where each frame begins in the file."""
        self._merged: PendingFile | None = None
        self._records: Iterator[tuple[int, bytes]] = iter(())
        """The records written first that are not merged yet, after the next one."""
        self._next: tuple[int, bytes] | None = None

    def add(self, frame: pl.DataFrame) -> None:
        """Write rows."""
        if frame.height:
            with self._file.abandoned_on_error():
                self._begins.append(self._file.file.tell())
                self._encode(self._file.file, self._reported(self._shaped(frame)))

    def late(self, frame: pl.DataFrame) -> None:
        """Write rows between those that were added; a late row replaces one that was added before."""
        if not frame.height:
            return
        if self._merged is None:
            self._merged = self._begun()
            with self._file.abandoned_on_error():  # reading it writes what waits in memory
                self._records = self._written()
                self._next = next(self._records, None)
        lines = io.BytesIO()
        self._encode(lines, self._reported(self._shaped(frame)))
        with self._merged.abandoned_on_error():
            for row, line in _records(lines.getvalue(), self._source.separator):
                self._merge_up_to(self._merged, row)
                self._merged.file.write(line)

    def commit(self, may_replace: MayReplace = anything) -> Path | None:
        """Put the file in its place."""
        if self._merged is not None:
            with self._file.abandoned_on_error(), self._merged.abandoned_on_error():
                self._merge_up_to(self._merged, None)
            self._file.abandon()
            self._file, self._merged = self._merged, None
            return place(self._file, may_replace)
        return place(self._file, may_replace, only_over=not self._begins)

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

    def _written(self) -> Iterator[tuple[int, bytes]]:
        """Read what was added, a frame at a time, as records with their row numbers."""
        file = self._file.file
        for begin, end in pairwise((*self._begins, file.tell())):
            file.seek(begin)
            yield from _records(file.read(end - begin), self._source.separator)

    def _merge_up_to(self, merged: PendingFile, row: int | None) -> None:
        """Copy the records before a row, or all that are left, and pass over the row's own."""
        while self._next is not None and (row is None or self._next[0] <= row):
            if self._next[0] != row:
                merged.file.write(self._next[1])
            self._next = next(self._records, None)

    def _reported(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Warn of cells that a spreadsheet would run: they come back as they were read, so they can't be defused."""
        headers = dict(zip(self._source.own_columns, self._source.own_header, strict=True))
        own = {name: header for name, header in headers.items() if frame[name].null_count() < frame.height}
        looks = (pl.col(name).str.contains(_RUNS).any() for name in own)
        columns = [name for name, may_run in frame.select(looks).row(0, named=True).items() if may_run]
        if not columns:
            return frame
        found = [
            pl.when(pl.col(name).str.contains(_RUNS)).then(
                pl.lit(f"{own[name].replace(';', ' ')}: formula: {_RUNS_TOLD}")
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


class _Held(_Rows, ABC):
    """For formats that are written at the end: rows wait in memory, packed."""

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
        """Give the frames with the late rows in their places."""
        late = self._late_rows()
        following = [first for first, _ in self._frames[1:]]
        for (_, data), next_row in zip_longest(self._frames, following):
            frame = unpacked(data)
            if late.height:
                between = late if next_row is None else late.filter(pl.col("_row") < next_row)
                late = late.slice(between.height)
                earlier = frame.join(between, on="_row", how="anti")  # a late row replaces what was said of it before
                frame = pl.concat([earlier, between], how="diagonal").sort("_row")
            yield beyond(frame, self._source.separator)
        if late.height:
            yield beyond(late, self._source.separator)

    @abstractmethod
    def _write(self, file: BinaryIO) -> None:
        """Write the whole file."""


class ParquetRejects(_Held):
    """Parquet, all text; the cells beyond the header's in a last column without a name."""

    def _write(self, file: BinaryIO) -> None:
        places = (*OURS, *self._source.own_columns)
        names = dict(zip(places, self._header, strict=True))
        empty = pl.DataFrame(schema=dict.fromkeys(places, pl.String))
        frames = [frame.cast({"_row": pl.String, "_line": pl.String}) for frame in self._in_order()]
        whole = pl.concat([empty, *frames], how="diagonal")
        whole.rename(names).write_parquet(file, row_group_size=_PARQUET_ROWS)


class XlsxRejects(_Held):
    """XLSX: wrong cells are red, and their comment says what is wrong."""

    def _write(self, file: BinaryIO) -> None:
        places = [*OURS, *self._source.own_columns]
        own_of = self._source.own_of
        position = {name: places.index(own) for name, own in own_of.items() if own in places}
        kinds = {"_row": Kind.INTEGER, "_line": Kind.INTEGER, **dict.fromkeys(OURS[2:], Kind.WRAP)}
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
    """Give the rows of a CSV as long as they were: a short one that was filled up would pass when it is fed back."""
    marks = [name for name in LENGTHS if name in frame.columns]
    columns = [frame[name].to_list() if name in marks else [None] * frame.height for name in LENGTHS]
    for cells, surplus, missing in zip(frame.drop(marks).iter_rows(), *columns, strict=True):
        yield [*cells[: len(cells) - (missing or 0)], *(surplus or ())]


def beyond(frame: pl.DataFrame, separator: str) -> pl.DataFrame:
    """Put what a row is too long or too short by into a last column without a name: read, it is found again."""
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
    """Take `_errors` apart: by position of the cell, what is wrong there."""
    wrong: dict[int, list[str]] = {}
    for entry in errors.split("; "):
        column, _, rest = entry.partition(": ")
        if column in position:
            wrong.setdefault(position[column], []).append(rest)
    return {at: "\n".join(messages) for at, messages in wrong.items()}


def _records(block: bytes, separator: str) -> Iterator[tuple[int, bytes]]:
    """Cut written lines into records with the row number that each begins with."""
    mark, at = separator.encode(), 0
    while at < len(block):
        end = block.index(b"\n", at) + 1
        while block.count(b'"', at, end) % 2:
            end = block.index(b"\n", end) + 1
        yield int(block[at : block.index(mark, at, end)]), block[at:end]
        at = end
