"""What commands print: summaries, tables, JSON. Results go to standard output, all else to standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from batchpay.cli.context import Context
from batchpay.payment import Direction, State, Totals, added_up, format_cents, parse_cents
from batchpay.summary import Summary
from batchpay.text import counted, money, moved, printable, row_count, sum_word, totals_apart, wrapped

_ORDER = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.PENDING, State.SENDING, State.REJECTED)
_SUMS = ("total", "held_back", "scheduled")
_SUMS_IN_PARTS = ("by_direction", "scheduled_apart", "returned_apart", "left_out", "currencies")
"""What of the summaries of several files is added up."""
_COLORS = {State.ACCEPTED: "green", State.DECLINED: "yellow", State.IN_DOUBT: "red", State.REJECTED: "yellow"}


def say(context: Context, text: str) -> None:
    """One line for a person, on standard error; nothing with -q."""
    if not context.quiet:
        click.echo(printable(text), err=True)


def detail(context: Context, text: str) -> None:
    """One line more for a person who asked for it with -v, on standard error."""
    if context.verbose:
        click.echo(printable(text), err=True)


def print_json(context: Context, value: dict[str, Any]) -> None:
    """One JSON object on standard output: what the call says there, and all of it."""
    context.json_printed = True
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():  # JSON itself escapes only the oldest control characters, and names may hold any
        text = "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
    click.echo(text)


def tell(context: Context, value: dict[str, Any], text: str) -> None:
    """Print a text on standard output, or with --json what it says as an object."""
    if context.json:
        print_json(context, value)
    else:
        click.echo(text)


def print_summary(context: Context, summary: Summary, *, sent: bool, looks: bool = False) -> None:
    """Print the counts of one file or batch: every row and every cent accounted for.

    A command that only `looks` continues nothing, however often it is run.
    """
    name = printable(summary.file)
    batch = f"   batch {summary.batch}" if summary.batch else ""
    click.echo(f"{name}{batch}")
    _print_states(context, summary, sent=sent)
    if summary.valid.rows:
        print_wrapped(moved(summary.by_direction, summary.currencies), first="  of the valid rows: ")
    held, word = summary.held_back, sum_word("", summary.apart.get(State.PENDING, {}))
    following = summary.next_pay_on and f", next on {summary.next_pay_on:%m/%d/%Y}"
    for label, totals, amount in (
        ("accepted rows, came back", summary.returned, totals_apart([summary.returned_apart])),
        ("pending rows, held back by today's rules", held, f"{word} {money(held.cents)}".lstrip()),
        ("pending rows, scheduled", summary.scheduled, f"{totals_apart([summary.scheduled_apart])}{following}"),
    ):
        if totals.rows:
            click.echo(f"  of the {label}: {row_count(totals.rows)}, {amount}")
    if summary.warnings:
        click.echo(f"  warnings: {summary.warnings:,}")
    for note in summary.notes:
        print_wrapped(note, first="  note: ")
    for label, text in (("seal", summary.seal), ("results", summary.results), ("rejects", summary.rejects)):
        if text:
            click.echo(f"  {label}: {printable(text)}")
    if summary.stopped:
        how = f"to continue: batchpay resume {summary.batch}" if looks else "run the same command again to continue"
        only_results = summary.results_missing and not summary.waiting
        print_wrapped(summary.stopped if only_results else f"{summary.stopped}; {how}", first="  stopped: ")
    elif looks and summary.due.rows:
        click.echo(f"  to send the pending rows: batchpay resume {summary.batch}")
    if summary.of(State.IN_DOUBT).rows and summary.batch:
        click.echo(f"  a person must look: batchpay resolve {summary.batch}")
    print_in_doubt_elsewhere(summary.in_doubt_elsewhere)


def _print_states(context: Context, summary: Summary, *, sent: bool) -> None:
    """Print rows and amounts by state; debits and credits apart where there are both: no sum of them is a result."""
    names = {state: state.words for state in State}
    if not sent:
        names[State.PENDING] = "valid"
    shown = [state for state in _ORDER if summary.of(state).rows]
    table = [_cells(names[state], summary.of(state), summary.apart.get(state)) for state in shown]
    if summary.left_out:
        table.append(_cells("left out", summary.in_file - summary.total, None))
    table.append(_cells("total", summary.in_file, None))
    colors = [*(_COLORS.get(state) for state in shown), *[None] * (len(table) - len(shown))]
    if len(summary.currencies) > 1:  # a note has the totals of each: no sum of several is an amount of money
        table = [[label, rows] for label, rows, *_ in table]
    elif word := sum_word("", summary.by_direction):
        table.insert(0, ["", "rows", "DEBIT", "CREDIT", word])
        colors.insert(0, None)
    else:
        table = [[label, rows, amount] for label, rows, _, _, amount in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for color, (label, *cells) in zip(colors, table, strict=True):
        numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        label = label.ljust(widths[0])
        click.echo(f"  {click.style(label, fg=color) if color and context.color else label}{numbers}")


def print_in_doubt_elsewhere(in_doubt: Mapping[str, Mapping[str, Totals]], *, err: bool = False) -> None:
    """Name the other batches that a person must look at; the command comes first, so that no line cuts it."""
    for batch, sides in in_doubt.items():
        rows = row_count(sum(totals.rows for totals in sides.values()))
        amount = totals_apart([sides])
        place = f"batchpay resolve {batch} ({rows}, {amount})"
        print_wrapped(f"a person must look: {place}, in doubt since an earlier call", err=err)


def grand_total(summaries: Sequence[Summary]) -> Summary:
    """Add up several files; a batch that came under several names counts once, as it was last."""
    files, warnings = len(summaries), sum(one.warnings for one in summaries)
    released = sum((one.released for one in summaries), Totals())
    summaries = list({one.batch or number: one for number, one in enumerate(summaries)}.values())
    same = "" if len(summaries) == files else ", the same content counted once"
    sums: dict[str, Any] = {name: sum((getattr(one, name) for one in summaries), Totals()) for name in _SUMS}
    parts: dict[str, Any] = {name: added_up(getattr(one, name) for one in summaries) for name in _SUMS_IN_PARTS}
    names = {one.batch for one in summaries}
    doubts = {name: sides for one in summaries for name, sides in one.in_doubt_elsewhere.items() if name not in names}
    return Summary(
        f"{counted(files, 'file')} in all{same}",
        by_state={state: sum((one.of(state) for one in summaries), Totals()) for state in State},
        apart={state: added for state in State if (added := added_up(one.apart.get(state, {}) for one in summaries))},
        warnings=warnings,
        next_pay_on=min((one.next_pay_on for one in summaries if one.next_pay_on), default=None),
        released=released,
        stopped=next((one.stopped for one in summaries if one.stopped), None),
        in_doubt_elsewhere=doubts,
        # Which rows were let through twice, each file's own list tells.
        allowed_duplicates={
            "rows": sum(one.allowed_duplicates["rows"] for one in summaries),
            "amount": format_cents(sum(parse_cents(one.allowed_duplicates["amount"]) or 0 for one in summaries)),
            "list": [],
        },
        **sums,
        **parts,
    )


def _cells(label: str, totals: Totals, apart: Mapping[str, Totals] | None) -> list[str]:
    """A line of the summary; debits and credits are empty where rows were rejected, of which some have neither."""
    sides = ["" if apart is None else money(apart.get(name, Totals()).cents) for name in Direction]
    return [label, f"{totals.rows:,}", *sides, money(totals.cents)]


def print_wrapped(text: str, *, first: str = "  ", err: bool = False) -> None:
    """Print a sentence of any length in lines of 80 columns, whatever characters a name in it has."""
    for line in wrapped(printable(text), first=first, rest="      "):
        click.echo(line, err=err)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> None:
    """Print aligned columns; those named in `right` hold numbers. On a narrow terminal a row has several lines."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    table = [list(header), *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    for row in table:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        ]
        for line in _folded(cells, columns):
            click.echo(line.rstrip())


def _folded(cells: Sequence[str], columns: int | None) -> Iterator[str]:
    """Yield a row's lines; what would not fit stands below its second cell, in the header as in every row."""
    line, *rest = cells
    margin = " " * len(line)
    for cell in rest:
        if columns is not None and len(line) + 2 + len(cell) > columns and line != margin:
            yield line
            line = margin
        line += f"  {cell}"
    yield line


def exit_code_of(codes: Sequence[int]) -> int:
    """Give one exit code for several files: of those that hold the first of 1, 7, 6, 5, 9, 4, 8, 2, 3."""
    return next((code for code in (1, 7, 6, 5, 9, 4, 8, 2, 3) if code in codes), 0)


def is_terminal() -> bool:
    """Whether a person is there to read and to answer."""
    return sys.stderr.isatty() and sys.stdin.isatty()
