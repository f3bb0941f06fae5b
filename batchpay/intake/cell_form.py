"""What a typed cell is to become: the column whose rules apply, and how a map says that numbers and dates are written.

Plain Python: the child process that parses workbooks starts without polars.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellForm:
    """The form of a column's typed cells.

    A number or a date has no form of its own. It is written like the texts of its column, so that the map reads both
    the same way, and a rejects file that was written as text reads as the workbook did.
    """

    target: str
    """The known column that it becomes, or the file's own name of one that is carried."""
    decimal: str = "."
    """The character before the decimals of an amount."""
    date: str | None = None
    """How dates are written (strftime); None where only the column's own rules determine it."""
