"""The text of samples/README.md, with tables from the plan that the files are generated from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.support.sample_plan import (
    ODD_CELLS,
    ODDITIES,
    PLANTED,
    SMALL,
    SPECIAL_ACCOUNTS,
    SPREADSHEET_ROWS,
    SPREADSHEET_SHEET,
)


def readme_text(rows: int) -> str:
    """Return the whole page; `rows` is the number of rows of payments.csv."""
    outcomes = Counter(special.outcome for special in SPECIAL_ACCOUNTS)
    special = "; ".join(f"{count} x {outcome}" for outcome, count in outcomes.items())
    small_rows = SMALL.good + len(SMALL.faults)
    misfit = next(change for change in PLANTED if not change.in_parquet)
    return f"""# Sample payment files

Everything here is made up: people, companies, addresses, accounts, phones (555-01xx) and mailboxes (example.com).
Routing numbers pass the check digit and were computed, not copied. `python -m tests.support.sample_files`, run in the
root of the repository with the locked dependencies, generates these files and this page, byte for byte.

| File | What it shows |
|---|---|
| `payments.csv` | {rows} rows, which `batchpay demo` submits; {len(PLANTED)} of them are invalid |
| `payments.parquet` | the same rows, `amount` as a decimal, the rest as text |
| `spreadsheet.xlsx` | {SPREADSHEET_ROWS} rows as a spreadsheet stores them, and what it does to identifiers |
| `small.csv` | {small_rows} rows in few columns, {SMALL.good} of them valid |

`payments.csv` has debits and credits, one-time and recurring payments, business and personal accounts, US and Canadian
addresses, names such as José, Zoë, O'Brien and Nguyễn, every optional column, a `paymentId` in most rows, and
`costCenter`, the sender's own column, which is carried through to results and rejects.

In `payments.parquet` row {misfit.row} is valid: a decimal can't hold `{misfit.cells["amount"]}`.

`spreadsheet.xlsx` has the sheet `{SPREADSHEET_SHEET}` with a title above the header, identifiers in text cells, amounts
and dates in typed cells.

In `small.csv` row 4 has the amount `12.5`; row 7 has `debit` in lower case and a routing number whose check digit is
wrong.

Try them:

    batchpay validate samples/small.csv
    batchpay validate --rejects rejects.csv samples/payments.csv
    batchpay demo

For valid rows whose account number ends in `9900` and two digits, the sandbox's answer is not simply a success:
{special}.

## Invalid rows of payments.csv

| Row | Rule | Why |
|---|---|---|
{_rows((change.row, change.finding, change.why) for change in PLANTED)}

## Valid rows of payments.csv with a warning

Business accounts get one as well: they use CCD, and the gateway documents only PPD.

| Row | Rule | Why |
|---|---|---|
{_rows((change.row, change.finding, change.why) for change in ODDITIES if change.finding)}

## Accounts of payments.csv that the sandbox treats specially

| Row | Account ends in | Outcome |
|---|---|---|
{_rows((special.row, special.ending, special.outcome) for special in SPECIAL_ACCOUNTS)}

## Unusual cells of spreadsheet.xlsx

| Row | Column or rule | What the cell contains |
|---|---|---|
{_rows((odd.row, odd.finding or odd.column + ", read as intended", odd.why) for odd in ODD_CELLS)}
"""


def _rows(rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
