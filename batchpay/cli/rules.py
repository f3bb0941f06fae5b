"""`batchpay rules`: the table of rules, printed from the schemas themselves."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import TYPE_CHECKING

import click

from batchpay.cli.context import Command, Context, option

if TYPE_CHECKING:
    from batchpay.schemas.catalogue import RuleFacts
    from batchpay.workflows.rules import RuleLine

_WIDTH_LEAST, _WIDTH_MOST = 72, 110
_SEVERITIES = {"error": "the row is rejected", "warning": "the row goes on"}
_SOURCES = {"S": "the gateway's interface", "N": "Nacha or the ABA", "H": "a house rule, a setting can switch it off"}


@click.command(cls=Command, short_help="Print every rule for payment rows.")
@option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.pass_obj
def rules(context: Context, markdown: bool) -> None:
    """Print every rule for payment rows: the column, the code, what breaks the rule, and whose rule it is.

    Example: batchpay rules --markdown
    """
    from batchpay.workflows.rules import all_rules, rule_table

    if context.json:
        click.echo(json.dumps({"rules": [_plain(fact) for fact in all_rules()]}, ensure_ascii=False, indent=2))
    elif markdown:
        click.echo(_markdown([_cells(line) for line in rule_table()]))
    else:
        click.echo(_text([_cells(line) for line in rule_table()]))


def _plain(fact: RuleFacts) -> dict[str, str]:
    return {
        "column": fact.column,
        "code": fact.code,
        "severity": fact.severity,
        "source": fact.source,
        "rule": fact.words,
        "message": fact.message,
    }


def _cells(line: RuleLine) -> tuple[str, ...]:
    fact = line.fact
    return line.where, fact.words, fact.code, fact.severity, fact.source


def _markdown(table: list[tuple[str, ...]]) -> str:
    lines = ["| Column | Rule | Code | Severity | Source |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return "\n".join(lines)


def _text(table: list[tuple[str, ...]]) -> str:
    width = min(_WIDTH_MOST, max(_WIDTH_LEAST, shutil.get_terminal_size((_WIDTH_MOST, 24)).columns))
    lines = []
    last = ""
    for column, words, code, severity, source in table:
        if column != last:
            lines += ["", column]
            last = column
        head = f"  {code:<16}{severity:<9}{source:<5}"
        lines += textwrap.wrap(words, width, initial_indent=head, subsequent_indent=" " * len(head))
    legend = [f"{name}: {meaning}" for name, meaning in {**_SEVERITIES, **_SOURCES}.items()]
    return "\n".join([*lines[1:], "", *legend])
