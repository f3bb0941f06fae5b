"""The table of rules, read out of the schemas: what holds for every text column stands once."""

from __future__ import annotations

from dataclasses import dataclass

from batchpay.schemas import catalogue
from batchpay.schemas.catalogue import RuleFacts
from batchpay.schemas.columns import MAP_FAULT
from batchpay.schemas.rule import IDENTIFIERS

_EVERY_TEXT = ("characters", "whitespace", "length")
_SINGLE = {"leading_zero": "{}", "numeric_account": "{}", MAP_FAULT: "a mapped cell"}
"""What a rule of cells that are no text of ours holds for, where that is not any typed cell."""


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One line of the table."""

    where: str
    """A column, or what the rule holds for."""
    fact: RuleFacts


def all_rules() -> list[RuleFacts]:
    """Give every rule of every column."""
    return catalogue.rules() + catalogue.typed_cell_rules()


def rule_table() -> list[RuleLine]:
    """Give the table's lines; what holds for every text column, for the row, or for typed cells stands at the end."""
    facts = catalogue.rules()
    own = [fact for fact in facts if not _is_for_every_text(fact) and fact.column != "row"]
    row = [fact for fact in facts if fact.column == "row"]
    every = {fact.code: fact for fact in facts if _is_for_every_text(fact)}
    cells = {fact.code: fact for fact in catalogue.typed_cell_rules()}
    return [
        *(RuleLine(fact.column, fact) for fact in own),
        *(RuleLine("every text", every[code]) for code in _EVERY_TEXT),
        *(RuleLine("the row", fact) for fact in row),
        *(RuleLine(_SINGLE.get(code, "a typed cell").format(fact.column), fact) for code, fact in cells.items()),
    ]


def _is_for_every_text(fact: RuleFacts) -> bool:
    stricter = fact.code == "characters" and fact.column in IDENTIFIERS
    return fact.code in _EVERY_TEXT and fact.source == "H" and fact.severity == "error" and not stricter
