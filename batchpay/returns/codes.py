"""What the codes of returns (R01) and of notifications of change (C01) mean, and what follows from them.

The table is schemas/tables/return_codes.csv. Facts about the codes: Nacha Operating Rules, Appendix Four and Five.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache

from batchpay.payment import Direction
from batchpay.schemas.calendar import is_banking_day
from batchpay.schemas.tables import rows_of

_LATE_DAYS = 5
"""So many days after its window a return may be dated: files and clocks are late."""
_CODE = re.compile(r"\b([rc])[ -]?(\d\d)\b", re.IGNORECASE)
_DEPOSIT_TYPES = {"2": "CHECKING", "3": "SAVINGS"}
"""By the first digit of a transaction code."""


@dataclass(frozen=True, slots=True)
class ReturnCode:
    """One code of the table."""

    code: str
    kind: str
    """`returned` and `changed` are recorded; `listed` is for a person alone."""
    window: str
    """How long after a payment it may come: `2 banking days`, `60 days`."""
    blocks: str
    """Which payments to the account are errors from then on: `none`, `all`, `credits`, `debits`; `... for good`."""
    deadline: str
    """Until when a person may, or must, act: so many days or banking days after the day of the return."""
    meaning: str
    todo: str
    corrected: str
    """How the corrected data of a change is read: a regular expression with our columns as its groups."""

    @property
    def is_for_good(self) -> bool:
        """Whether no release of ours ends its block."""
        return self.blocks.endswith(" for good")

    def is_blocking(self, direction: str) -> bool:
        """Whether payments of a direction to the account are errors."""
        kinds = {Direction.CREDIT: "credits", Direction.DEBIT: "debits"}
        return self.blocks.split(" ")[0] in ("all", kinds[Direction(direction)])

    def is_within(self, sent: date, day: date) -> bool:
        """Whether a payment sent on one day may come back on another."""
        return sent <= day <= _after(sent, self.window) + timedelta(days=_LATE_DAYS)

    def until(self, day: date) -> date | None:
        """Return the last day for what is to be done about a return of that day; None where there is none."""
        return _after(day, self.deadline) if self.deadline else None

    def corrections(self, text: str) -> dict[str, str]:
        """Return the corrected value by column; nothing where the text is not as the code says: no guess is shown."""
        found = re.fullmatch(self.corrected, text.strip()) if self.corrected else None
        values = {name: value.strip() for name, value in found.groupdict().items()} if found else {}
        if kind := values.get("achDepositType"):
            values["achDepositType"] = _DEPOSIT_TYPES[kind[0]]
        return values


def banking_days_after(day: date, count: int) -> date:
    """Return the day so many banking days later."""
    while count:
        day += timedelta(days=1)
        count -= is_banking_day(day)
    return day


@lru_cache(4096)
def _after(day: date, span: str) -> date:
    count, _, unit = span.partition(" ")
    return banking_days_after(day, int(count)) if unit == "banking days" else day + timedelta(days=int(count))


@cache
def return_codes() -> Mapping[str, ReturnCode]:
    """Return the table by code."""
    return {row["code"]: ReturnCode(**row) for row in rows_of("return_codes.csv")}


def code_in(text: str) -> str:
    """Return the code that a cell names, `R01` for `r01 - NSF`; blank if it names none, or several."""
    found = {f"{kind.upper()}{number}" for kind, number in _CODE.findall(text)}
    return found.pop() if len(found) == 1 else ""
