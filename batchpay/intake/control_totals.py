"""Control totals: what the maker of a file says is in it, compared with what was read."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import FileRefused
from batchpay.intake.small_tables import read_toml
from batchpay.payment import Totals, format_cents, parse_cents
from batchpay.text import column_name, row_count
from batchpay.writing.atomic import FileIdentity

if TYPE_CHECKING:
    from batchpay.intake.source import Source

_NOT_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EACCES))
"""There is no such file, no file can have that name, or the payment file's own folder can't be entered."""


_SERIES = re.compile(r"[\w.-]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ControlTotals:
    """Number of rows and sum in cents that a file must have; None where it is not stated."""

    rows: int | None = None
    cents: int | None = None
    series: tuple[str, int] | None = field(default=None, compare=False)
    """The series of files that it belongs to, and its number there."""
    read: FileIdentity | None = field(default=None, compare=False)
    """The control file that stated them, where there is one."""

    @property
    def stated(self) -> bool:
        """Whether there is anything to compare a file with."""
        return self.rows is not None or self.cents is not None


def stated_totals(path: str, rows: int | None = None, cents: int | None = None) -> ControlTotals:
    """Return the totals of the options, else those of the sidecar `FILE.control.toml`; raises FileRefused.

    An option and the sidecar that contradict each other are refused too.
    """
    given = ControlTotals(rows, cents)
    sidecar = Path(f"{path}.control.toml")
    if path == "-" or "://" in path:
        return given
    try:
        read = FileIdentity.of(sidecar.stat())  # before it is read, so that one that replaces it in between is noticed
    except OSError as error:
        if error.errno in _NOT_THERE and not _is_link(sidecar):
            return given
        raise FileRefused(f"{sidecar} can't be read: {error.strerror}") from None
    beside = _read_sidecar(str(sidecar))
    for stated, other in ((given.rows, beside.rows), (given.cents, beside.cents)):
        if stated is not None and other is not None and stated != other:
            raise FileRefused(f"{sidecar} states totals that differ from the options")
    return ControlTotals(
        beside.rows if given.rows is None else given.rows,
        beside.cents if given.cents is None else given.cents,
        beside.series,
        read,
    )


def require_whole(expected: ControlTotals, source: Source, actual: Totals, unreadable: int = 0) -> None:
    """Raise FileRefused where a file seems to be cut off, or is not as stated: by a person or in its last row.

    `unreadable` rows have an amount that can't be read, which is not in the actual totals.
    """
    end, name, line_word = source.end, source.name, source.line_word
    whole = sum(source.left_out.values(), actual)  # whoever stated the totals may have counted what the map leaves out
    rows, total = row_count(actual.rows), format_cents(actual.cents)
    if end.total_cents is not None and end.total_cents not in (actual.cents, whole.cents) and not end.is_net:
        place, wrong = end.total_place(line_word), format_cents(end.total_cents)
        why = "a row is missing or changed (if it is a payment, fill it in; if it is another sum, delete the row)"
        if unreadable:
            why = f"{_unread(unreadable)}; delete the row of the total, and every error is listed"
        raise FileRefused(
            f"{name}: {place} has only an amount, a total of {wrong}, and the {rows} before it add up to {total}: {why}"
        )
    stated = expected.stated or end.total_cents is not None
    if end.unfinished_line is not None and (end.is_cut or not stated):
        last = f"the last line ({end.unfinished_line}) has no line break at its end"
        if end.is_cut:
            raise FileRefused(f"{name}: {last} and not all its cells, so the file is cut off: {rows}, {total} in total")
        raise FileRefused(
            f"{name}: {last}, so the file may be cut off: {rows}, {total} in total; if it is whole, state "
            f"--expect-rows {actual.rows} --expect-total {total}"
        )
    if expected.rows in (None, whole.rows) and expected.cents in (None, whole.cents):
        return
    require_totals(expected, actual, name, unreadable)


def require_totals(expected: ControlTotals, actual: Totals, name: str = "the file", unreadable: int = 0) -> None:
    """Raise FileRefused where a stated total is not met."""
    wrong = []
    if expected.rows is not None and expected.rows != actual.rows:
        wrong.append(f"found {row_count(actual.rows)}, expected {expected.rows:,}")
    if expected.cents is not None and expected.cents != actual.cents:
        wrong.append(f"found {format_cents(actual.cents)} in total, expected {format_cents(expected.cents)}")
    if not wrong:
        return
    why = "cut off, or another file"
    if unreadable and expected.rows in (None, actual.rows):
        why = f"{_unread(unreadable)}; without the stated total every error is listed"
    raise FileRefused(f"{name}: {' and '.join(wrong)}: {why}")


def _unread(unreadable: int) -> str:
    return f"the amount of {row_count(unreadable)} can't be read, and is not in it"


def _read_sidecar(path: str) -> ControlTotals:
    table = read_toml(path, "file of control totals")
    for key in table:
        if key not in ("rows", "total", "series", "number"):
            raise FileRefused(f"{path}: {column_name(key)} is unknown; use rows, total, series and number")
    rows, total, series, number = (table.get(key) for key in ("rows", "total", "series", "number"))
    is_numbered = series is not None or number is not None
    if is_numbered and not (isinstance(series, str) and _SERIES.fullmatch(series) and _is_count(number)):
        raise FileRefused(f'{path}: a numbered file has both, like series = "payroll" and number = 12')
    if rows is None and total is None:  # cut off as well, by the same full disk
        raise FileRefused(f"{path} states neither rows nor total, so nothing can be compared; write rows = N into it")
    if rows is not None and not _is_count(rows):
        raise FileRefused(f"{path}: rows must be a whole number")
    if total is not None and not isinstance(total, str):
        raise FileRefused(f'{path}: total must be text in quotation marks, such as "12345.67"')
    of_series = (str(series), int(number or 0)) if is_numbered else None
    return ControlTotals(rows, None if total is None else _cents(path, total), of_series)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _is_link(path: Path) -> bool:
    """Whether a path that leads to no file is a link, whose disk may be gone."""
    try:
        return path.is_symlink()
    except OSError:
        return False


def _cents(path: str, text: str) -> int:
    """Return the cents of a total; raises FileRefused. Whole dollars and one decimal are as clear as two."""
    whole, point, decimals = text.partition(".")
    cents = None if point and not decimals else parse_cents(f"{whole}.{decimals:0<2}")
    if cents is None:
        raise FileRefused(f"{path}: total must be an amount such as 12345.67")
    return cents
