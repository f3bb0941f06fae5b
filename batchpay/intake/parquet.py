"""Reading a Parquet file as chunks of text: typed cells are rendered per the table 'Typed cells', or marked faulty."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.cell_form import CellForm
from batchpay.intake.header import Header
from batchpay.intake.one_content import changed_meanwhile
from batchpay.intake.streams import OpenFile
from batchpay.intake.table_rows import finish_chunk, with_text_formulas
from batchpay.intake.typed_cells import render_column
from batchpay.schemas.columns import CELL_MARKS
from batchpay.text import column_name
from batchpay.writing.parquet_pages import BrokenPages, check_pages

CHUNK_ROWS = 60_000
"""The most rows that are decoded at a time.

For each part polars unpacks the dictionaries of its row groups again, which in groups of a million rows takes as long
as the rows themselves; larger parts take more memory.
"""

_DIGITS_MAX = 38
"""The digits of a decimal that polars can read."""
_TWICE = re.compile(r"column with name '(.*)' has more than one occurrence", re.DOTALL)
_NO_CELLS = (pl.Object, pl.Time, pl.Duration, pl.Unknown, pl.Float16)
"""Types that a payment's cells can't have; of half floats not even 2,049 is distinguished from 2,048."""


class ParquetReader:
    """The rows of a Parquet file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._path = file.path
        self._schema = self._read_schema()
        try:
            self._group_rows = check_pages(file.descriptor)
        except (BrokenPages, OSError):
            raise FileRefused(f"{file.name}: is a broken Parquet file") from None
        self.names = tuple(self._schema)
        self._places = [f"c{at}" for at in range(len(self.names))]
        """What the columns are called here, whatever the file calls them."""
        for name, kind in self._schema.items():
            what = f"holds {kind}, which can't be a payment's cell"
            if kind == pl.Binary:
                what = "holds binary values, such as UUIDs, which can't be a payment's cell; write it as text"
            elif isinstance(kind, pl.Decimal) and kind.precision > _DIGITS_MAX:
                what = f"holds decimals of {kind.precision} digits; write it with {_DIGITS_MAX} at most, or as text"
            elif not (kind.is_nested() or kind in _NO_CELLS):
                continue
            raise FileRefused(f"{file.name}: column {column_name(name)} {what}")

    def _read_schema(self) -> dict[str, pl.DataType]:
        try:
            return dict(pl.read_parquet_schema(self._path))
        except pl.exceptions.DuplicateError as error:
            name = _TWICE.search(str(error))
            told = f": {column_name(name[1])}" if name else ""
            raise FileRefused(f"{self._file.name}: the header has the same column twice{told}") from None
        except (Exception, pl.exceptions.PanicException):  # its text may quote the file
            raise FileRefused(f"{self._file.name}: is a broken Parquet file, or cut off") from None

    def use(self, header: Header, forms: Mapping[str, CellForm]) -> None:
        """Set which columns to yield, and what the cells of each are to become, by the file's names."""
        self._header = header
        own = zip(self._places, header.names, header.internal, strict=True)
        self._forms = {place: forms[name] for place, name, inner in own if inner is not None}

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in file order; raises FileRefused where the file is broken."""
        names = dict(zip(self._places, self._header.internal, strict=True))
        kinds = dict(zip(self._places, self._schema.values(), strict=True))
        if self._read_schema() != self._schema:
            raise changed_meanwhile(self._file.name)
        columns = [pl.lit(None, pl.UInt32).alias("_line")]
        for place, form in self._forms.items():
            columns += render_column(place, kinds[place], form, str(names[place]))
        columns += [pl.col(place).cast(pl.String) for place in self._marked()]
        self._header.examples.restart()
        row = 0
        for part in self._parts():
            try:
                frame = part.select(columns)
            except pl.exceptions.PanicException:  # its cells are not valid values
                raise FileRefused(f"{self._file.name}: has a date or time outside the calendar") from None
            frame = frame.drop(name for name in frame.columns if name.startswith(CELL_MARKS) and _all_null(frame, name))
            frame = finish_chunk(self._file.name, frame, self._places, self._header, row)
            row += frame.height
            if frame.height:
                yield with_text_formulas(frame, self._header.own)

    def _marked(self) -> list[str]:
        """Return the place of the column that says which rows are examples, if there is one."""
        return [] if self._header.note_at is None else [self._places[self._header.note_at]]

    def _parts(self) -> Iterator[pl.DataFrame]:
        try:
            total = pl.scan_parquet(self._path, glob=False).select(pl.len()).collect().item()
            if total != sum(self._group_rows):
                raise changed_meanwhile(self._file.name)
            renamed = dict(zip(self.names, self._places, strict=True))
            plan = pl.scan_parquet(self._path, glob=False).rename(renamed).select(*self._forms, *self._marked())
            start = 0
            for rows in _parts_of(self._group_rows):
                yield plan.slice(start, rows).collect()
                start += rows
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):  # a panic if cut off since
            raise FileRefused(f"{self._file.name}: is a broken Parquet file") from None


def _parts_of(group_rows: Sequence[int]) -> Iterator[int]:
    """Return how many rows each part has: whole row groups as far as they fit, larger ones in equal parts."""
    waiting = 0
    for rows in group_rows:
        if waiting + rows > CHUNK_ROWS and waiting:
            yield waiting
            waiting = 0
        for parts_left in range(-(-rows // CHUNK_ROWS), 1, -1):
            part = -(-rows // parts_left)
            yield part
            rows -= part
        waiting += rows
    if waiting:
        yield waiting


def _all_null(frame: pl.DataFrame, name: str) -> bool:
    return frame.get_column(name).null_count() == frame.height
