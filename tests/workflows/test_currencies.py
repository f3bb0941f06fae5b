"""Several currencies in one file: each has its own totals, wherever there is a sum, and no sum is one of several.

500,000 yen and 12.50 dollars were 500,012.50 on the page that people sign.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import openpyxl
import pytest

from batchpay.approval.sign_off import plan_lines
from batchpay.cli.context import Context
from batchpay.cli.output import grand_total, print_summary
from batchpay.ledger.open import open_ledger
from batchpay.payment import Totals
from batchpay.reports.page import write_batch_page
from batchpay.reports.results import write_results
from batchpay.summary import Summary, summary_of_batch
from tests.workflows.desk import Desk

ROWS = [
    {"amount": "12.50", "paymentId": "P1"},
    {"amount": "500000.00", "paymentId": "P2", "currencyCode": "JPY"},
    {"amount": "45.10", "paymentId": "P3", "currencyCode": "EUR"},
    {"amount": "7.00", "paymentId": "P4", "currencyCode": "USD"},
    {"amount": "3.00", "paymentId": "P5", "currencyCode": "EUR", "gatewayId": "x"},
    {"amount": "9.00", "paymentId": "P6", "currencyCode": "EUR"},
    {"amount": "9.00", "paymentId": "P6", "currencyCode": "EUR"},
]
APART = {"EUR": Totals(1, 4510), "JPY": Totals(1, 50_000_000), "USD": Totals(2, 1950)}
TOLD = "EUR 1 row, 45.10; JPY 1 row, 500,000.00; USD 2 rows, 19.50"
SUMS = ("500,064.60", "500,085.60", "21.00")
"""Of all valid rows, of all rows, of the rejected ones."""


def file(desk: Desk, name: str, rows: list[dict[str, str]]) -> Path:
    """Write a payment file with currencies."""
    path = desk.file(name, *rows)
    header, *lines = path.read_text().splitlines()
    codes = (row.get("currencyCode", "") for row in rows)
    path.write_text("\n".join([f"{header},currencyCode", *map(",".join, zip(lines, codes, strict=True)), ""]))
    return path


def shown(summary: Summary, capsys: pytest.CaptureFixture[str]) -> str:
    """Return a summary as it is printed, in one line."""
    print_summary(Context(), summary, sent=False)
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("on_both")
def test_totals_by_currency_everywhere(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the summary, its JSON, the dry run, the plan, the ledger, the report and the results' summary sheet."""
    path = file(desk, "mixed.csv", ROWS)
    preview = desk.dry_run(path, with_plan=True)
    assert preview.verdict.currencies == APART
    assert preview.plan is not None
    page, plan = "\n".join(preview.page()), "\n".join(plan_lines(preview.plan))
    assert "valid, in JPY" in page and "500,000.00" in page
    summary = desk.submit(path)
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        (batch,) = ledger.batches()
        write_batch_page(ledger, batch, tmp_path / "page.html")
        write_results(ledger, batch, tmp_path / "results.xlsx")
    later = summary_of_batch(batch)
    assert (
        preview.summary.as_json()["currencies"]
        == later.as_json()["currencies"]
        == {
            "EUR": {"rows": 1, "amount": "45.10"},
            "JPY": {"rows": 1, "amount": "500000.00"},
            "USD": {"rows": 2, "amount": "19.50"},
        }
    )
    texts = [page, plan, *(shown(one, capsys) for one in (preview.summary, summary, later, grand_total([later])))]
    for text in texts[:-1]:
        assert TOLD in " ".join(text.split())
    for text in texts:
        assert not [one for one in SUMS if one in text]
    assert TOLD in (tmp_path / "page.html").read_text()
    first = openpyxl.load_workbook(tmp_path / "results.xlsx").worksheets[0]
    assert any(TOLD in str(cell.value) for row in first.iter_rows() for cell in row)


def test_one_currency_is_added_up_as_before(desk: Desk) -> None:
    """A file in dollars, or in euros alone, has its sums."""
    for name, rows in (("usd.csv", [ROWS[0], ROWS[3]]), ("eur.csv", [ROWS[2], ROWS[5]])):
        preview = desk.dry_run(file(desk, name, rows))
        assert not any("currencies" in note for note in preview.summary.notes)
        assert any(line.startswith("would be sent") and line.endswith(("19.50", "54.10")) for line in preview.page())
