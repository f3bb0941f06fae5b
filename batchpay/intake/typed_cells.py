"""A typed cell becomes the text that will be sent, or a marked fault (RULES.md, 'Typed cells').

As polars expressions for whole columns; XLSX cells, each with its own type, follow the same table in xlsx/cells.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from batchpay.intake.cell_form import CellForm
from batchpay.schemas import checks
from batchpay.schemas.columns import COLUMNS, DATES, DIGITS_MATTER, FAULT, FLAGS, MONEY, ROUTING, SUGGEST

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


def render_column(name: str, kind: pl.DataType, form: CellForm, alias: str) -> list[pl.Expr]:
    """Return expressions for the text of a column, and where it can have faults, for `_fault.` and `_suggest.` columns.

    The text keeps the column's `name`, the faults use `alias`.
    """
    cell, target = pl.col(name), form.target
    fault: pl.Expr | None = None
    suggestion: pl.Expr | None = None
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        text = cell.cast(pl.String)
        return [pl.when(text != "").then(text).alias(name)]
    if target not in COLUMNS:
        return [_carried(cell, kind).alias(name)]
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
        short = text.str.contains("^[0-9]{1,8}$")
        fault = pl.coalesce(pl.when(short).then(pl.lit("leading_zero")), *([] if fault is None else [fault]))
        suggestion = checks.with_leading_zero(text)
    if kind.is_float() and target in DIGITS_MATTER:
        lost = cell.abs() >= _limits(kind).digits
        text = pl.when(lost).then(cell.cast(pl.String)).otherwise(text)  # with its point: nobody takes it for one
        fault = pl.coalesce(pl.when(lost).then(pl.lit("precision")), *([] if fault is None else [fault]))
    found = [_as_texts_are(text, kind, form).alias(name)]
    if fault is not None:
        found.append(fault.alias(FAULT + alias))
    if suggestion is not None:
        found.append(suggestion.alias(SUGGEST + alias))
    return found


def _carried(cell: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Render a cell of an unknown column, which is carried and never checked."""
    text = cell.cast(pl.String)
    return text.str.to_uppercase() if kind == pl.Boolean else text


def _as_texts_are(text: pl.Expr, kind: pl.DataType, form: CellForm) -> pl.Expr:
    """Write an amount as the map says that the column's texts are written."""
    is_amount = kind.is_numeric() and form.target in MONEY
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
