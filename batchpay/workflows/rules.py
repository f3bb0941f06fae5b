"""The table of rules, read from the schemas: what applies to every text column appears once."""

from __future__ import annotations

from dataclasses import dataclass

from batchpay.schemas import catalogue
from batchpay.schemas.columns import MAP_FAULT
from batchpay.schemas.rule import IDENTIFIERS, RuleFacts

_EVERY_TEXT = ("characters", "whitespace", "length")
_SINGLE = {"leading_zero": "{}", "numeric_account": "{}", MAP_FAULT: "a mapped cell"}
"""What a rule for cells that are not our text applies to, if that is not any typed cell."""


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One line of the table."""

    where: str
    """A column, or what the rule applies to."""
    fact: RuleFacts


def all_rules() -> list[RuleFacts]:
    """Return every rule of every column."""
    return catalogue.rules() + catalogue.typed_cell_rules()


def rule_table() -> list[RuleLine]:
    """Return the table's lines; what applies to every text column, the row, or typed cells is at the end."""
    facts = catalogue.rules()
    placeholders = {fact.severity: fact for fact in facts if fact.code == "placeholder"}
    shared = (fact for fact in facts if not _is_for_every_text(fact) and fact.code != "placeholder")
    own = [fact for fact in shared if fact.column != "row"]
    row = [fact for fact in facts if fact.column == "row"]
    every = {fact.code: fact for fact in facts if _is_for_every_text(fact)}
    cells = {fact.code: fact for fact in catalogue.typed_cell_rules()}
    return [
        *(RuleLine(fact.column, fact) for fact in own),
        *(RuleLine("every text", every[code]) for code in _EVERY_TEXT),
        *(RuleLine("names, addresses, paymentId, invoiceNumber", fact) for fact in placeholders.values()),
        *(RuleLine("the row", fact) for fact in row),
        *(RuleLine(_SINGLE.get(code, "a typed cell").format(fact.column), fact) for code, fact in cells.items()),
    ]


def _is_for_every_text(fact: RuleFacts) -> bool:
    stricter = fact.code == "characters" and fact.column in IDENTIFIERS
    return fact.code in _EVERY_TEXT and fact.source == "H" and fact.severity == "error" and not stricter
