"""A spreadsheet's typed cell becomes the text that will be sent, or a marked fault (RULES.md: Typed cells)."""

from __future__ import annotations

import datetime
import math

from batchpay.intake.cell_form import CellForm
from batchpay.intake.xlsx.number_formats import is_scaled, shown
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DATES, DIGITS_MATTER, FLAGS, MONEY, ROUTING

LOST_ZERO, TEXT_FORMULA = "leading_zero", "text_formula"
NUMERIC_ACCOUNT = "numeric_account"
"""An account number in a numeric cell, shown without leading zeros: nobody knows whether it lost some."""
IDENTIFIERS = ("paymentId", "gatewayId", "achAccountNumber", "achRoutingNumber", "achCheckNumber")
"""Like money columns, these may not be computed by a formula: the user may see a value other than the cached one."""
_WHOLE_MAX = 2**53

Typed = str | int | float | bool | datetime.date | datetime.time | datetime.timedelta
Cell = tuple[str | None, str | None, str | None]
"""Text, code of a fault, suggestion."""


def render(value: Typed, column: str, *, number_format: str | None = None) -> Cell:
    """Render one cell of a column; carried columns have no faults.

    `number_format` is given only where a number may be shown with other digits than its own.
    """
    known = column in COLUMNS
    if isinstance(value, str):
        return value or None, None, None
    if isinstance(value, bool):
        if column in FLAGS:
            return str(int(value)), None, None
        return str(value).upper(), None, None
    if isinstance(value, (int, float)):
        return _number(float(value), column, number_format) if known else _carried(float(value), number_format)
    if isinstance(value, datetime.date):
        return _date(value, column, known)
    return str(value), "format" if known else None, None


def render_as(value: Typed, form: CellForm, *, number_format: str | None = None) -> Cell:
    """Render one cell like the texts of its column."""
    if form.date is not None and isinstance(value, datetime.date) and not _is_timed(value):
        return value.strftime(form.date), None, None
    text, fault, suggestion = render(value, form.target, number_format=number_format)
    if text is not None and isinstance(value, (int, float)) and form.target in MONEY:
        text = text.replace(".", form.decimal)
    return text, fault, suggestion


def plain_number(value: float) -> str:
    """Return a number as a person would write it: `12`, `12.5`."""
    return str(int(value)) if _is_whole(value) else repr(value)


def leading_zero_suggestion(digits: str) -> str | None:
    """Return the routing number with a leading zero, where that makes its check digit right (ABA: weights 3, 7, 1)."""
    padded = f"0{digits}"
    if len(padded) != 9 or not padded.isdigit():
        return None
    weighed = sum(int(digit) * weight for digit, weight in zip(padded, (3, 7, 1) * 3, strict=True))
    return padded if weighed % 10 == 0 else None


def _number(value: float, column: str, number_format: str | None) -> Cell:
    if column in MONEY:
        return _money(value, number_format)
    if abs(value) >= 1e15 and column in DIGITS_MATTER:
        # Written so that nobody takes it for the number: it comes back in the rejects, as a text like any other.
        return f"{value:.14E}", "precision", None
    if not _is_whole(value):
        return plain_number(value), "format", None
    digits = str(int(value))
    if number_format is not None and value >= 0:
        seen = shown(number_format, int(value))
        if seen is None and column in DIGITS_MATTER:
            return digits, "precision", None
        digits = seen or digits
    elif column == ACCOUNT:
        return digits, NUMERIC_ACCOUNT, None
    if column == ROUTING and len(digits) <= 8:
        return digits, LOST_ZERO, leading_zero_suggestion(digits)
    return digits, None, None


def _carried(value: float, number_format: str | None) -> Cell:
    seen = shown(number_format, int(value)) if number_format and value >= 0 and _is_whole(value) else None
    return seen or plain_number(value), None, None


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value == round(value) and abs(value) < _WHOLE_MAX


def _money(value: float, number_format: str | None) -> Cell:
    cents = round(value * 100) if math.isfinite(value) and abs(value) < _WHOLE_MAX / 1000 else None
    if cents is None or abs(value - cents / 100) > 1e-9 or (number_format and is_scaled(number_format)):
        return plain_number(value), "format", None
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}", None, None


def _date(value: datetime.date, column: str, known: bool) -> Cell:
    if _is_timed(value):
        return str(value), "format" if known else None, None
    if column in DATES:
        return value.strftime("%m/%d/%Y"), None, None
    # In any other known column the spreadsheet turned something that was typed into a date.
    return f"{value:%Y-%m-%d}", "format" if known else None, None


def _is_timed(value: datetime.date) -> bool:
    return isinstance(value, datetime.datetime) and value.time() != datetime.time()
