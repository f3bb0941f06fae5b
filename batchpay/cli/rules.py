"""`batchpay rules`: the table of rules, printed from the schemas themselves."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

import click

from batchpay.cli.context import Command, Context

if TYPE_CHECKING:
    from batchpay.schemas.catalogue import RuleFacts

_SEVERITIES = {"error": "the row is rejected", "warning": "the row goes on"}
_SOURCES = {"S": "the gateway's interface", "N": "Nacha or the ABA", "H": "a house rule, a setting can switch it off"}
_EVERY_TEXT = ("characters", "whitespace", "length")


@click.command(cls=Command, short_help="Print every rule of a payment row.")
@click.option("--markdown", is_flag=True, help="A Markdown table.")
@click.pass_context
def rules(context: click.Context, markdown: bool) -> None:
    """Print every rule of a payment row: what is looked at, the code, what breaks it, and whose rule it is.

    Example: batchpay rules --markdown
    """
    from batchpay.schemas import catalogue

    facts, typed = catalogue.rules(), catalogue.typed_cell_rules()
    if context.ensure_object(Context).json:
        click.echo(json.dumps({"rules": [_plain(fact) for fact in facts + typed]}, ensure_ascii=False, indent=2))
    elif markdown:
        click.echo(_markdown(_table(facts, typed)))
    else:
        click.echo(_text(_table(facts, typed)))


def _plain(fact: RuleFacts) -> dict[str, str]:
    return {
        "column": fact.column,
        "code": fact.code,
        "severity": fact.severity,
        "source": fact.source,
        "rule": fact.words,
        "message": fact.message,
    }


def _table(facts: list[RuleFacts], typed: list[RuleFacts]) -> list[tuple[str, ...]]:
    """Lines of column, rule, code, severity and source; what holds for every column stands once, at the end."""
    own = [fact for fact in facts if not _is_for_every_text(fact) and fact.column != "row"]
    row = [fact for fact in facts if fact.column == "row"]
    every = {fact.code: fact for fact in facts if _is_for_every_text(fact)}
    cells = {fact.code: fact for fact in typed}
    return [
        *(_line(fact.column, fact) for fact in own),
        *(_line("every text", every[code]) for code in _EVERY_TEXT),
        *(_line("the row", fact) for fact in row),
        *(_line(fact.column if code == "leading_zero" else "a typed cell", fact) for code, fact in cells.items()),
    ]


def _is_for_every_text(fact: RuleFacts) -> bool:
    from batchpay.schemas.rule import IDENTIFIERS

    stricter = fact.code == "characters" and fact.column in IDENTIFIERS
    return fact.code in _EVERY_TEXT and fact.source == "H" and fact.severity == "error" and not stricter


def _line(column: str, fact: RuleFacts) -> tuple[str, ...]:
    return column, fact.words, fact.code, fact.severity, fact.source


def _markdown(table: list[tuple[str, ...]]) -> str:
    lines = ["| Column | Rule | Code | Severity | Source |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return "\n".join(lines)


def _text(table: list[tuple[str, ...]]) -> str:
    lines = []
    last = ""
    for column, words, code, severity, source in table:
        if column != last:
            lines += ["", column]
            last = column
        head = f"  {code:<15}{severity:<9}{source:<5}"
        lines += textwrap.wrap(words, 110, initial_indent=head, subsequent_indent=" " * len(head))
    legend = [f"{name}: {meaning}" for name, meaning in {**_SEVERITIES, **_SOURCES}.items()]
    return "\n".join([*lines[1:], "", *legend])
