"""[limits] of the settings that a whole file may not exceed: its total, and how many of its rows may be rejected.

A file above a limit is refused whole. Where approvals are required, other people may let it through: by approving a
plan that names the limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from batchpay.errors import SettingsNotUsable
from batchpay.payment import Totals, parse_cents
from batchpay.settings import LimitsSettings
from batchpay.text import money, row_count

_REJECTED = re.compile(r"([0-9]{1,9})|([0-9]{1,2}(?:\.[0-9]{1,4})?|100)%")


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What one file may add to the ledger; None where there is no limit."""

    total_cents: int | None
    rejected_rows: int | None
    rejected_percent: Decimal | None
    rejected: str
    """The limit of rejected rows as it is set."""

    @classmethod
    def from_settings(cls, settings: LimitsSettings) -> FileLimits:
        """Read the settings; raises SettingsNotUsable."""
        cents, rejected = parse_cents(settings.max_total), settings.max_rejected.strip()
        if settings.max_total and cents is None:
            raise SettingsNotUsable("limits.max_total must be an amount like 12345.67")
        found = _REJECTED.fullmatch(rejected)
        if rejected and found is None:
            raise SettingsNotUsable('limits.max_rejected must be a number of rows like "20", or a share like "10%"')
        rows, percent = found.groups() if found else (None, None)
        return cls(cents, int(rows) if rows else None, Decimal(percent) if percent else None, rejected)

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return self.total_cents is not None or bool(self.rejected)

    def exceeded(self, adds: Totals, rows: int, mistakes: int) -> tuple[str, ...]:
        """Describe each limit that is exceeded, and by how much.

        `adds` would be registered or released, debits and credits together. Of the file's `rows`, `mistakes` are
        rejected for what they say: not duplicates, nor what an earlier call rejected.
        """
        told = []
        if self.total_cents is not None and adds.cents > self.total_cents:
            told.append(
                f"the payments add up to {money(adds.cents)}, {money(adds.cents - self.total_cents)} more than "
                f"limits.max_total ({money(self.total_cents)})"
            )
        is_over = self.rejected_rows is not None and mistakes > self.rejected_rows
        if is_over or (self.rejected_percent is not None and mistakes * 100 > self.rejected_percent * rows):
            told.append(
                f"{mistakes:,} of {row_count(rows)} are rejected, more than limits.max_rejected ({self.rejected})"
            )
        return tuple(told)
