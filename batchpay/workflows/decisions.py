"""What a person decided in a command: it counts for this one call only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchpay.errors import WrongUse
from batchpay.text import place_of

if TYPE_CHECKING:
    from batchpay.intake.source import Source
    from batchpay.schemas.options import RuleOptions


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a person decided in this call, and why; no file and no variable can request it."""

    again: bool = False
    """Pay the same content once more."""
    release: bool = False
    """Send rows of this batch that were rejected earlier and are valid now."""
    paid_elsewhere_checked: bool = False
    """A person has checked: neither another ledger nor the other environment paid this file, despite the signs."""
    reason: str | None = None

    @property
    def again_reason(self) -> str | None:
        """Return why the same content is paid once more, or None if it is not."""
        return self.reason if self.again else None


def refuse_account_number(reason: str | None, source: Source, rules: RuleOptions) -> None:
    """Raise WrongUse if a reason contains an account number of the file: the ledger keeps it, and nothing erases it."""
    if reason is None:
        return
    import polars as pl  # few calls have a reason

    from batchpay.reconciliation.resolution import long_numbers
    from batchpay.validation.check import all_rows

    numbers = long_numbers(reason)
    digits = pl.col("achAccountNumber").str.replace_all("-", "", literal=True)
    for rows in all_rows(source, rules) if numbers else ():
        for row, line in rows.filter(digits.is_in(numbers)).select("_row", "_line").head(1).iter_rows():
            place = place_of(source.line_word, row, line)
            raise WrongUse(f"the reason contains the account number of {place}; write its last four digits only")
