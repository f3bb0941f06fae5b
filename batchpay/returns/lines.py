"""What came back, line by line, whatever file says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from batchpay.payment import Direction


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """One payment that came back, or whose account is to be corrected."""

    line: int
    """Of a table, or the number of the record in an ACH file."""
    code: str
    """R01; blank where the line has none that can be one."""
    day: date | None
    cents: int | None
    """None where the line has no amount, as a notification of change has none."""
    direction: Direction | None = None
    payment_id: str = ""
    reference: str = ""
    invoice: str = ""
    routing: str = field(default="", repr=False)
    account: str = field(default="", repr=False)
    """The whole account number; blank where it is masked."""
    last_four: str = ""
    name: str = field(default="", repr=False)
    corrected: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReturnFile:
    """A file of returns, read whole."""

    name: str
    digest: str
    """SHA-256 of its bytes."""
    lines: Sequence[ReturnLine]
    skipped: int = 0
    """Lines of a table that say nothing of a return."""
