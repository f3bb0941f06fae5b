"""Reading a Parquet file as chunks of text: typed cells are rendered per the table 'Typed cells', or marked faulty.

XLSX cells, each with its own type, follow the same table (RULES.md) in xlsx/columns.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.header import CellForm, Header
from batchpay.intake.streams import OpenFile
from batchpay.intake.table_rows import changed_meanwhile, finish_chunk, with_text_formulas
from batchpay.schemas import checks
from batchpay.schemas.columns import (
    ACCOUNT,
    CELL_MARKS,
    COLUMNS,
    DATES,
    DIGITS_MATTER,
    DOUBTED,
    FAULT,
    FLAGS,
    MONEY,
    ROUTING,
    SUGGEST,
    WARN,
)
from batchpay.text import column_name
from batchpay.writing.parquet_pages import BrokenPages, check_pages

CHUNK_ROWS = 60_000
"""The most rows that are decoded at a time.

For each part polars unpacks the dictionaries of its row groups again, which in groups of a million rows takes as long
as the rows themselves; larger parts take more memory.
"""

_DIGITS_CERTAIN = 15
"""A number with more digits may have been a float on its way, which does not hold them."""
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
            what = f"contains {kind}, which can't be a payment's cell"
            if kind == pl.Binary:
                what = "contains binary values, such as UUIDs, which can't be a payment's cell; write it as text"
            elif isinstance(kind, pl.Decimal) and kind.precision > _DIGITS_MAX:
                what = f"contains decimals of {kind.precision} digits; write it with {_DIGITS_MAX} at most, or as text"
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
        of_target = {form.target: place for place, form in self._forms.items() if kinds[place].is_numeric()}
        # A routing number that has lost its zero: then account numbers have lost theirs, too.
        has_both = {ACCOUNT, ROUTING} <= of_target.keys()
        zeros_lost = has_both and self._has(of_target[ROUTING], lambda cell: cell.is_between(1, 10**8 - 1))
        for place, form in self._forms.items():
            kind = kinds[place]
            may_be_whole = kind.is_float() or (isinstance(kind, pl.Decimal) and kind.scale == 0)
            if form.target == "amount" and may_be_whole and not self._has(place, lambda cell: cell % 1 != 0):
                form = replace(form, is_whole=True)  # perhaps cents
            columns += render_column(place, kinds[place], form, str(names[place]), zeros_lost=zeros_lost)
        columns += [pl.col(place).cast(pl.String) for place in self._marked()]
        self._header.examples.restart()
        row = 0
        for part in self._parts():
            try:
                frame = part.select(columns)
            except pl.exceptions.PanicException:  # its cells are not valid values
                raise FileRefused(f"{self._file.name}: has a date or time outside the calendar") from None
            marks = [name for name in frame.columns if name.startswith(CELL_MARKS)]
            frame = frame.drop(name for name in marks if frame[name].null_count() == frame.height)
            frame = finish_chunk(self._file.name, frame, self._places, self._header, row)
            row += frame.height
            if frame.height:
                yield with_text_formulas(frame, self._header.own)

    def _marked(self) -> list[str]:
        """Return the place of the column that says which rows are examples, if there is one."""
        return [] if self._header.note_at is None else [self._places[self._header.note_at]]

    def _has(self, column: str, look: Callable[[pl.Expr], pl.Expr]) -> bool:
        """Return whether any cell of a column is as looked for."""
        return any(part.select(look(pl.col(column)).any()).item() for part in self._parts(column))

    def _parts(self, *places: str) -> Iterator[pl.DataFrame]:
        """Yield these columns, or all that are used, some thousand rows at a time."""
        try:
            total = pl.scan_parquet(self._path, glob=False).select(pl.len()).collect().item()
            if total != sum(self._group_rows):
                raise changed_meanwhile(self._file.name)
            renamed = dict(zip(self.names, self._places, strict=True))
            plan = (
                pl.scan_parquet(self._path, glob=False)
                .rename(renamed)
                .select(places or (*self._forms, *self._marked()))
            )
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


_OURS = "%m/%d/%Y"


@dataclass(frozen=True)
class _Limits:
    """Up to which value a kind of float is faithful."""

    whole: float
    """From here on it no longer distinguishes every whole number from its neighbor."""
    cents: float
    """From here on it may not distinguish every cent."""
    digits: float
    """From here on digits may be lost already."""


_FLOAT32 = _Limits(whole=2**24, cents=2**17, digits=2**24)
_FLOAT64 = _Limits(whole=2**53, cents=2**53 / 1000, digits=1e15)


def render_column(
    name: str, kind: pl.DataType, form: CellForm, alias: str, *, zeros_lost: bool = False
) -> list[pl.Expr]:
    """Return expressions for the text of a column, and where it can have marks, for columns of CELL_MARKS.

    The text keeps the column's `name`, the marks use `alias`. `zeros_lost` says that the file's numbers lost zeros.
    """
    cell, target = pl.col(name), form.target
    fault = suggestion = doubt = pl.lit(None, pl.String)
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        text = cell.cast(pl.String)
        return [pl.when(text != "").then(text).alias(name)]
    if target not in COLUMNS:  # carried, and never checked
        text = cell.cast(pl.String)
        return [(text.str.to_uppercase() if kind == pl.Boolean else text).alias(name)]
    if kind == pl.Boolean:
        yes, no = ("1", "0") if target in FLAGS else ("TRUE", "FALSE")
        text = pl.when(cell).then(pl.lit(yes)).when(~cell).then(pl.lit(no))
    elif kind.is_integer():
        text = cell.cast(pl.String)
    elif kind.is_decimal():
        text, fault = _decimal(cell, kind, target)
    elif kind.is_float():
        text, fault = _float(cell, kind, target)
    elif kind.is_temporal():
        text, fault = _date(cell, kind, form.date or (_OURS if target in DATES else None))
    else:
        raise AssertionError(f"no rule for {kind}")
    if kind.is_numeric() and target == ROUTING:
        fault = _marked(text.str.contains("^[0-9]{1,8}$"), "leading_zero", fault)
        suggestion = checks.with_leading_zero(text)
    if kind.is_float() and target in DIGITS_MATTER:
        lost = cell.abs() >= _limits(kind).digits
        text = pl.when(lost).then(cell.cast(pl.String)).otherwise(text)  # with its point: nobody takes it for one
        fault = _marked(lost, "precision", fault)
    if kind.is_numeric() and target == ACCOUNT:
        fault = _marked(fault.is_null() & (text.str.len_chars() > _DIGITS_CERTAIN), "precision", fault)
        doubt = _marked(fault.is_null() & text.is_not_null(), "numeric_account", doubt)
        text = pl.when((doubt.is_not_null() & zeros_lost) | (fault == "precision")).then(DOUBTED + text).otherwise(text)
        if zeros_lost:
            fault, doubt = pl.coalesce(doubt, fault), pl.lit(None, pl.String)
    marks = ((FAULT, fault), (SUGGEST, suggestion), (WARN, doubt))
    return [_as_texts_are(text, kind, form).alias(name), *(mark.alias(before + alias) for before, mark in marks)]


def _marked(where: pl.Expr, code: str, other: pl.Expr) -> pl.Expr:
    """Return the mark of a cell: the code where it applies, else what it was marked with before."""
    return pl.coalesce(pl.when(where).then(pl.lit(code)), other)


def _as_texts_are(text: pl.Expr, kind: pl.DataType, form: CellForm) -> pl.Expr:
    """Write an amount as the map says that the column's texts are written."""
    is_amount = kind.is_numeric() and form.target in MONEY
    if form.is_whole:
        text = text.str.strip_suffix(".00")
    return text.str.replace(".", form.decimal, literal=True) if is_amount and form.decimal != "." else text


def _decimal(cell: pl.Expr, kind: pl.DataType, target: str) -> tuple[pl.Expr, pl.Expr]:
    assert isinstance(kind, pl.Decimal)
    text = cell.cast(pl.String)
    if kind.scale == 0:
        return (text + ".00" if target in MONEY else text), pl.lit(None, pl.String)
    whole = text.str.extract(r"^(-?[0-9]+)", 1)
    fraction = text.str.extract(r"\.([0-9]+)$", 1)
    if target in MONEY:
        held = fraction.str.slice(2).str.contains("[1-9]")
        plain = whole + "." + (fraction + "0").str.slice(0, 2)
    else:
        held = fraction.str.contains("[1-9]")
        plain = whole
    return pl.when(held).then(text).otherwise(plain), pl.when(held).then(pl.lit("format"))


def _limits(kind: pl.DataType) -> _Limits:
    return _FLOAT32 if kind == pl.Float32 else _FLOAT64


def _float(cell: pl.Expr, kind: pl.DataType, target: str) -> tuple[pl.Expr, pl.Expr]:
    """Money: two decimals if there are no more (within 1e-9); elsewhere the digits of a whole number."""
    raw = cell.cast(pl.String)
    cell = cell.cast(pl.Float64)
    if target in MONEY:
        cents = (cell * 100).round()
        good = cell.is_finite() & (cell.abs() < _limits(kind).cents) & ((cell - cents / 100).abs() <= 1e-9)
        digits = cents.cast(pl.Int64, strict=False)
        sign = pl.when(digits < 0).then(pl.lit("-")).otherwise(pl.lit(""))
        text = sign + (digits.abs() // 100).cast(pl.String) + "." + (digits.abs() % 100).cast(pl.String).str.zfill(2)
    else:
        good = cell.is_finite() & (cell.abs() < _limits(kind).whole) & (cell == cell.round())
        text = cell.cast(pl.Int64, strict=False).cast(pl.String)
    bad = cell.is_not_null() & ~good
    return pl.when(bad).then(raw).otherwise(text), pl.when(bad).then(pl.lit("format"))


def _date(cell: pl.Expr, kind: pl.DataType, written: str | None) -> tuple[pl.Expr, pl.Expr]:
    raw = cell.cast(pl.String)
    if written is None:
        # Whatever wrote the file turned something that is not a date into one.
        return raw, pl.when(cell.is_not_null()).then(pl.lit("format"))
    text = cell.dt.strftime(written)
    if kind == pl.Date:
        return text, pl.lit(None, pl.String)
    timed = cell.dt.time() != pl.time(0, 0, 0)
    return pl.when(timed).then(raw).otherwise(text), pl.when(timed).then(pl.lit("format"))
