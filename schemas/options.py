"""What a call may choose about the rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The rules' parameters; the defaults are RULES.md's."""

    as_of: date
    """Today's date, for the rules that depend on it."""
    normalize: bool = False
    """Repair what is unambiguous before the rules are evaluated."""
    accept_suggestions: frozenset[str] = frozenset()
    """Rules, as `column.code`, whose suggestions replace the cells that break them."""
    warnings_as_errors: bool = False
    allow_duplicates: bool = False
    """The same bill may be paid twice."""
    allow_open_ended: bool = False
    """A recurring payment without an end may pass."""
    require_agreement: bool = True
    """A payer who has not agreed is not charged."""
    past_start: bool = True
    """A recurring payment can't start before `as_of`."""
    max_amount_cents: int | None = None
    """An amount above this is rejected; None means no limit."""
    account_hyphens: bool = False
    """An account number may have hyphens inside: some banks print them."""
    check_letters: bool = False
    """A check number may have letters."""
    rules_off: frozenset[str] = frozenset()
    """House rules (source H) switched off, as `column.code`."""

    @property
    def allows_repeated_bills(self) -> bool:
        """Whether the same bill may pass twice: by this call, or because the rule is switched off."""
        return self.allow_duplicates or "row.duplicate" in self.rules_off
