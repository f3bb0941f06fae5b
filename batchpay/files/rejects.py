"""The rejects file: the person's own rows as they were read, with what is wrong in front, in the input's own kind."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import polars as pl

from batchpay.errors import WrongUse
from batchpay.files.atomic import PendingFile
from batchpay.files.source import Source

OURS = ("_row", "_line", "_errors", "_warnings", "_suggestions")
_PARQUET_ROWS = 5_000
"""Rows of a row group: small groups let go of the input's buffers soon, so that memory stays flat."""


class Rejects(Protocol):
    """Takes rejected rows in file order; nothing is at the path before `commit`."""

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows of a chunk with `_errors`, `_warnings` and `_suggestions`, in row order."""

    def late(self, frame: pl.DataFrame) -> None:
        """Take rows found wrong only after all chunks; called after every `add`, merged by `_row`."""

    def commit(self) -> None:
        """Put the file in its place. Without a row none is made, and an old one keeps its header alone."""

    def abandon(self) -> None:
        """Write nothing."""


def open_rejects(path: str | Path, source: Source) -> Rejects:
    """Begin a rejects file in the format of the path's ending; raises WrongUse where that is none of ours."""
    target = Path(path)
    ending = target.suffix.lower()
    if ending in (".csv", ".txt", ".tsv"):
        return CsvRejects(target, source)
    if ending in (".parquet", ".pq"):
        return ParquetRejects(target, source)
    raise WrongUse(f"{target}: a rejects file ends in .csv, .parquet or .xlsx")


class _Rows:
    """What all formats share: late rows are merged, and a file without a row is not made."""

    def __init__(self, target: Path, source: Source) -> None:
        self._target = target
        self._source = source
        self._rows = 0
        self._late: list[pl.DataFrame] = []

    def late(self, frame: pl.DataFrame) -> None:
        """Keep late rows for the end."""
        if frame.height:
            self._late.append(frame)

    def _shaped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Our columns, then the person's own; `_surplus` last where a row is longer than the header."""
        surplus = ["_surplus"] if "_surplus" in frame.columns else []
        self._rows += frame.height
        return frame.select(*OURS, *self._source.own_columns, *surplus)

    def _late_rows(self) -> pl.DataFrame | None:
        if not self._late:
            return None
        return pl.concat([self._shaped(frame) for frame in self._late], how="diagonal").sort("_row")


class CsvRejects(_Rows):
    """CSV in the source's own separator."""

    def __init__(self, target: Path, source: Source) -> None:
        super().__init__(target, source)
        self._file = PendingFile(target)
        self._header = self._line([*OURS, *source.own_header])
        self._file.file.write(self._header)
        self._first_rows: list[int] = []
        """For every frame written: where it begins, so that late rows can be put between."""
        self._offsets: list[int] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in row order."""
        if frame.height:
            self._first_rows.append(frame.get_column("_row")[0])
            self._offsets.append(self._file.file.tell())
            self._write(self._file, self._shaped(frame))

    def commit(self) -> None:
        """Merge the late rows and put the file in its place."""
        late = self._late_rows()
        if late is not None:
            self._merge(late)
        if self._rows or self._target.exists():
            self._file.commit()
        else:
            self._file.abandon()

    def abandon(self) -> None:
        """Write nothing."""
        self._file.abandon()

    def _merge(self, late: pl.DataFrame) -> None:
        """Write the file once more, the late rows between the others, a frame at a time."""
        merged = PendingFile(self._target)
        merged.file.write(self._header)
        self._file.file.flush()
        ends = [*self._offsets[1:], self._file.file.tell()][: len(self._offsets)]
        following = [*self._first_rows[1:], None][: len(self._offsets)]
        done = 0
        if not self._offsets:
            self._write(merged, late)
        for begin, end, next_row in zip(self._offsets, ends, following, strict=True):
            self._file.file.seek(begin)
            block = self._file.file.read(end - begin)
            upto = late.height if next_row is None else int((late.get_column("_row") < next_row).sum())
            between = late.slice(done, upto - done)
            done = upto
            merged.file.write(block if between.is_empty() else self._between(block, between))
        self._file.abandon()
        self._file = merged

    def _between(self, block: bytes, late: pl.DataFrame) -> bytes:
        """Merge a block of written lines with late rows by `_row`, the first cell of a record."""
        written = list(_records(block, self._source.separator))
        for number, frame in zip(late.get_column("_row"), late.iter_slices(1), strict=True):
            out = io.BytesIO()
            self._encode(out, frame)
            written.append((number, out.getvalue()))
        written.sort(key=lambda record: record[0])
        return b"".join(line for _, line in written)

    def _write(self, file: PendingFile, frame: pl.DataFrame) -> None:
        self._encode(file.file, frame)

    def _encode(self, out: BinaryIO, frame: pl.DataFrame) -> None:
        if "_surplus" in frame.columns and frame.get_column("_surplus").null_count() < frame.height:
            for *cells, surplus in frame.iter_rows():
                out.write(self._line([*cells, *(surplus or ())]))
            return
        frame.select(*OURS, *self._source.own_columns).write_csv(
            out,
            include_header=False,
            separator=self._source.separator,
        )

    def _line(self, cells: list[object]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._source.separator, lineterminator="\n").writerow(cells)
        return text.getvalue().encode()


class ParquetRejects(_Rows):
    """Parquet, all text."""

    def __init__(self, target: Path, source: Source) -> None:
        super().__init__(target, source)
        self._frames: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in row order."""
        if frame.height:
            self._frames.append(self._shaped(frame))

    def commit(self) -> None:
        """Merge the late rows and put the file in its place."""
        late = self._late_rows()
        frames = [*self._frames, *([] if late is None else [late])]
        if not frames and not self._target.exists():
            return
        names = [*OURS, *self._source.own_header]
        empty = pl.DataFrame(schema=dict.fromkeys((*OURS, *self._source.own_columns), pl.String))
        whole = pl.concat([empty, *(frame.cast({"_row": pl.String}) for frame in frames)], how="diagonal_relaxed")
        file = PendingFile(self._target)
        try:
            whole.rename(dict(zip(whole.columns, names, strict=False))).write_parquet(
                file.file, row_group_size=_PARQUET_ROWS
            )
        except BaseException:
            file.abandon()
            raise
        file.commit()

    def abandon(self) -> None:
        """Write nothing."""
        self._frames.clear()


def _records(block: bytes, separator: str) -> Iterator[tuple[int, bytes]]:
    """Cut written lines into records with the row number that each begins with."""
    at = 0
    while at < len(block):
        end = block.index(b"\n", at) + 1
        while block.count(b'"', at, end) % 2:
            end = block.index(b"\n", end) + 1
        yield int(block[at : block.index(separator.encode(), at, end)]), block[at:end]
        at = end
