"""`batchpay map`: propose a column map for somebody else's file, ask what is open, show the first rows through it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.paths import outputs_of
from batchpay.text import column_name, money, printable, row_count, wrapped

if TYPE_CHECKING:
    from batchpay.intake.maps.draft import Question
    from batchpay.workflows.map_file import Proposed

_CELL_CHARACTERS_MAX = 24


@click.command("map", cls=Command, short_help="Propose a column map for another system's file.")
@click.argument("file", metavar="FILE")
@option("--write", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH", help="Write the map here (TOML).")
@option("--encoding", metavar="NAME", help="Encoding of a CSV that is not UTF-8.")
@option("--format", "format_", type=click.Choice(["csv", "parquet", "xlsx"]), help="File format (for -).")
@option("--sheet", metavar="NAME", help="Workbook sheet; required if several contain payments.")
@option("--include-hidden", is_flag=True, help="Also read workbook rows that are hidden or filtered out.")
@click.pass_obj
def map(context: Context, /, file: str, write: Path | None, **options: Any) -> int:
    """Propose a map for another system's file: which column is which, how amounts and dates are written, and why.

    On a terminal it asks what the file does not say. Without one it writes what is certain and lists the rest, and
    exits with 8 while a question must be answered before a row can be sent. Nothing is sent and no file is overwritten.

    Example: batchpay map vendors.csv --write vendors.toml
    """
    from batchpay.workflows.map_file import FileToMap, propose_map

    if write is not None:
        outputs_of(context, [file]).guard(write)
    asked = FileToMap(file, options["format_"], options["encoding"], options["sheet"], options["include_hidden"])
    asker = _Terminal() if output.is_terminal() and not context.json and file != "-" else None
    proposed = propose_map(asked, asker, write)
    if context.json:
        output.print_json(context, proposed.as_json())
    elif not context.quiet:
        if asker is None:
            _print(proposed)
        if proposed.written is not None:
            click.echo(f"written: {printable(str(proposed.written))}")
            click.echo(printable(f"then: {proposed.next_command}"))
        else:
            click.echo("nothing was written: --write PATH writes the map")
    return proposed.exit_code


class _Terminal:
    """Asks a person, one question after the other, and shows the result before it is written."""

    def answer(self, question: Question, number: int, open_count: int) -> str:
        """See workflows.map_file.Asker: 0, or nothing typed, leaves a question open."""
        click.echo(err=True)
        told = f"{number} of {number + open_count - 1}  {question.key}"
        for line in wrapped(printable(told), rest="  "):
            click.echo(line, err=True)
        if question.typed is not None:
            words = "Value (blank to leave it open)"
            return str(click.prompt(words, default="", show_default=False, err=True)).strip()
        for at, choice in enumerate(question.choices, 1):
            for line in wrapped(printable(choice.text), first=f"  {at}  ", rest="     "):
                click.echo(line, err=True)
        chosen = _number("Number (0 to leave it open)", len(question.choices))
        return question.choices[chosen - 1].text if chosen else ""

    def take_back(self, proposed: Proposed) -> str | None:
        """See workflows.map_file.Asker: 0, or nothing typed, takes the result as it is."""
        _print(proposed)
        keys = list(proposed.answers)
        if not keys:
            return None
        click.echo(err=True)
        for at, key in enumerate(keys, 1):
            for line in wrapped(printable(f"{key} {proposed.answers[key]}"), first=f"  {at}  ", rest="     "):
                click.echo(line, err=True)
        chosen = _number("Is this right? 0 if it is, or the number of an answer to take back", len(keys))
        return keys[chosen - 1] if chosen else None


def _number(words: str, most: int) -> int:
    def number_of(text: str) -> int:
        if not text.strip().isdecimal() or int(text) > most:
            raise click.UsageError(f"type a number from 0 to {most}")
        return int(text)

    return int(click.prompt(words, default="0", show_default=False, err=True, value_proc=number_of))


def _print(proposed: Proposed) -> None:
    _line(f"{proposed.file}: {'' if proposed.is_whole else 'the first '}{row_count(proposed.rows)} examined")
    for column in proposed.columns:
        if column.targets or column.why:
            _line(
                f"{column_name(column.name)}: {', '.join(column.targets) or 'left out'}",
                f"({column.why.removeprefix('left out: ')})" if column.why else "",
            )
    carried = [column for column in proposed.columns if not (column.targets or column.why)]
    said = [f"{column_name(column.name)} ({column.evidence})" for column in carried if column.evidence]
    if said:
        _line(f"NOT USED, though it says something about payments: {', '.join(said)}")
    if silent := [column_name(column.name) for column in carried if not column.evidence]:
        _line(f"not used, carried into the results: {', '.join(silent)}")
    for entry in proposed.draft.entries:
        if entry.table not in ("columns", "split"):
            _line(f"[{entry.table}] {entry.line}", f"({entry.why})" if entry.why else "")
    for question in proposed.draft.questions:
        choices = f" {' / '.join(choice.text for choice in question.choices)}" if question.choices else ""
        _line(f"{'open' if question.is_needed else 'optional'}: {question.about}: {question.text}{choices}")
    if proposed.preview:
        click.echo("as they would be sent:")
        names = dict.fromkeys(name for row in proposed.preview for name in row)
        header = ["", *(f"row {number}" for number in range(1, len(proposed.preview) + 1))]
        output.print_table(header, [[name, *(_cell(row.get(name)) for row in proposed.preview)] for name in names])
    if proposed.totals:
        click.echo("all rows examined, by direction, currency, status and day:")
        rows = [
            [one.by, one.value or "blank", f"{one.totals.rows:,}", money(one.totals.cents)] for one in proposed.totals
        ]
        output.print_table(["", "", "rows", "amount"], rows, frozenset({"rows", "amount"}))


def _cell(text: str | None) -> str:
    return printable(text or "", characters_max=_CELL_CHARACTERS_MAX)


def _line(text: str, why: str = "") -> None:
    output.print_wrapped(f"{text} {why}".rstrip())
