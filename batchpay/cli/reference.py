"""What needs neither ledger nor gateway: `batchpay rules`, `template` and `completion`."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.options import encoding_of
from batchpay.cli.paths import outputs_of
from batchpay.errors import WrongUse
from batchpay.text import row_count
from batchpay.workflows.requests import CheckOptions, file_request

if TYPE_CHECKING:
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
        names = ("column", "code", "severity", "source", "message")
        plain = [{name: getattr(fact, name) for name in names} | {"rule": fact.words} for fact in all_rules()]
        click.echo(json.dumps({"rules": plain}, ensure_ascii=False, indent=2))
    elif markdown:
        lines = ["| Column | Rule | Code | Severity | Source |", "|---|---|---|---|---|"]
        rows = ([cell.replace("|", chr(92) + "|") for cell in _cells(line)] for line in rule_table())
        click.echo("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]))
    else:
        click.echo(_text([_cells(line) for line in rule_table()]))


def _cells(line: RuleLine) -> tuple[str, ...]:
    fact = line.fact
    return line.where, fact.words, fact.code, fact.severity, fact.source


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


@click.command(cls=Command)
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=Path("payments-template.xlsx"))
@option("--from", "from_", metavar="FILE", help="Payees of this payment file, one row an account, without amounts.")
@option("--map", "map_file", metavar="FILE", help="Column map of that file.")
@option("--encoding", type=encoding_of, metavar="NAME", help="Encoding of that file, a CSV that is not UTF-8.")
@option("--sheet", metavar="NAME", help="Sheet of that workbook.")
@option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def template(context: Context, /, path: Path, from_: str | None, force: bool, **reading: str | None) -> None:
    """Write an empty payment file: XLSX with drop-downs, or CSV.

    The example row is not a payment as long as its _note cell says "example". With --from, payees, accounts and fixed
    fields of an earlier file are kept; amounts, dates, invoice and check numbers are blank, paymentIds are new.

    Example: batchpay template december.xlsx --from november.csv
    """
    from batchpay.workflows.template import make_next, make_template

    outputs_of(context, [from_] if from_ else []).guard(path)
    if from_ is None:
        if named := [name for name, value in reading.items() if value is not None]:
            raise WrongUse(f"--{named[0].removesuffix('_file')} says how the file of --from is read; name that file")
        make_template(path, replace=force)
        if context.json:
            output.print_json(context, {"template": str(path)})
        else:
            output.say(context, f"{path} written")
        return
    settings = context.settings
    request = file_request(from_, None, CheckOptions(**reading), settings)  # type: ignore[arg-type]
    made = make_next(path, request, settings, replace=force)
    told = {"left out, not right or no payment": made.left_out, "further rows of an account": made.same_account}
    told["accounts that a bank has spoken against, see _note"] = made.marked
    notes = [f"{what}: {count:,}" for what, count in told.items() if count]
    output.tell(
        context,
        {"template": str(path), **asdict(made)},
        "\n  ".join([f"{path} written: {row_count(made.rows)}, amounts blank", *notes]),
    )


_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_obj
def completion(context: Context, shell: str) -> None:
    """Print what makes a shell complete commands, options and files.

    Example: batchpay completion bash >>~/.bashrc
    """
    script = _SHELLS[shell](click.get_current_context().find_root().command, {}, "batchpay", "_BATCHPAY_COMPLETE")
    output.tell(context, {"script": script.source()}, script.source())
