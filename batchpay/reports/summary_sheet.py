"""The first sheet of a results workbook: what a controller signs, with totals by formulas over the sheet of results.

Anyone who changes a row sees the total change; next to it are the ledger's figures, and the difference must be 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Direction, State, Totals, format_cents
from batchpay.reports.page_parts import facts_to_sign, story_of
from batchpay.summary import SENDABLE
from batchpay.writing.xlsx import Formula, Style, Workbook, column_letters

TITLE = "Summary"
_WIDTHS = (30, 14, 20, 14, 20, 14, 20)
_BLANKS = [(None, Style.DEFAULT)] * 4
"""The cells of both directions, in a line that has only the total."""


RowTotals = defaultdict[tuple[str, str], Totals]
"""Rows and cents by state and direction, counted as the rows are written."""


def write_summary_sheet(
    workbook: Workbook, ledger: Ledger, batch: BatchSummary, header: Sequence[str], rows: int, totals: RowTotals
) -> None:
    """Write the sheet after the results, of which `rows` rows were written; it is shown in front of them."""
    page = workbook.sheet(TITLE, widths=_WIDTHS)
    page.line((f"Payments of {batch.file}", Style.TITLE))
    page.line()
    for label, text in facts_to_sign(story_of(ledger, batch.batch), batch):
        page.line((label, Style.LABEL), (text, Style.TEXT))
    page.line()
    directions = [direction.value for direction in Direction]
    sides = (f"{name} {what}" for name in directions for what in ("rows", "amount"))
    heads = ("state", *sides, "all rows", "control total")
    page.line(*((head, Style.HEAD) for head in heads))
    ranges = {
        name: f"results!${letters}$2:${letters}${max(rows, 1) + 1}"
        for name in ("state", "transactionType", "amount")
        for letters in [column_letters(header.index(name))]
    }
    first = page.rows + 1
    for state in SENDABLE:
        each = {name: totals[str(state), name] for name in directions}
        counted = [one for name, of in each.items() for one in _of_direction(ranges, str(state), name, of)]
        line, total = page.rows + 1, sum(each.values(), Totals())
        page.line(
            (state.words, Style.LABEL),
            *counted,
            Formula(f"B{line}+D{line}", str(total.rows), Style.COUNT),
            Formula(f"C{line}+E{line}", format_cents(total.cents), Style.SUM),
        )
    last = page.rows
    rejected = batch.by_state[State.REJECTED]
    page.line((State.REJECTED.words, Style.LABEL), *_BLANKS, *_stated(rejected))
    for word, left_out in batch.left_out.items():
        page.line((f"left out: {word or 'blank'}", Style.LABEL), *_BLANKS, *_stated(left_out))
    in_file = sum(batch.left_out.values(), batch.total)
    columns = [sum((totals[str(state), name] for state in SENDABLE), Totals()) for name in directions]
    columns.append(in_file)
    _add_totals(page.line, columns, first, last + len(batch.left_out))
    if batch.returned.rows:
        page.line(("of the accepted, came back", Style.LABEL), *_BLANKS, *_stated(batch.returned))
        page.line(("of the accepted, standing", Style.LABEL), *_BLANKS, *_stated(batch.standing))
    page.line()
    for label in ("Prepared by", "Approved by", "Date"):
        page.line((label, Style.LABEL), ("_" * 40, Style.TEXT))


def _add_totals(line: Callable[..., None], sums: Sequence[Totals], first: int, last: int) -> None:
    """Add up the states, state the file's totals, and subtract one from the other; `sums` ends with the file's own."""
    at, total = last + 2, sums[-1]
    values = [value for one in sums for value in _stated(one)]
    cells = (
        Formula(f"SUM({column}{first}:{column}{last + 1})", value, style)
        for column, (value, style) in zip("BCDEFG", values, strict=True)
    )
    line(("total", Style.LABEL), *cells)
    line(("the file has", Style.LABEL), *_BLANKS, *_stated(total))
    line(
        ("difference", Style.LABEL),
        *_BLANKS,
        Formula(f"F{at}-F{at + 1}", "0", Style.COUNT),
        Formula(f"G{at}-G{at + 1}", "0.00", Style.SUM),
    )


def _of_direction(ranges: dict[str, str], state: str, direction: str, totals: Totals) -> tuple[Formula, Formula]:
    which = f'{ranges["state"]},"{state}",{ranges["transactionType"]},"{direction}"'
    return (
        Formula(f"COUNTIFS({which})", str(totals.rows), Style.COUNT),
        Formula(f"SUMIFS({ranges['amount']},{which})", format_cents(totals.cents), Style.SUM),
    )


def _stated(totals: Totals) -> tuple[tuple[str, Style], tuple[str, Style]]:
    return (str(totals.rows), Style.COUNT), (format_cents(totals.cents), Style.SUM)
