"""What a person does with our workbooks in a spreadsheet program: type, correct, decide, save, print."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.intake.template import write_template
from batchpay.payment import State
from batchpay.reconciliation.matching import match
from batchpay.reconciliation.resolution import Doubt, read_decisions, write_sheet
from batchpay.reconciliation.statement import ExportMap, read_export
from batchpay.reconciliation.verdicts import reconcile as write_reconciliation
from batchpay.reports.results import write_results
from batchpay.settings import LedgerSettings, Settings
from batchpay.workflows import check as flow
from batchpay.workflows.requests import CheckOptions, file_request
from tests.support.ledger_factory import Planned, add_batch, ledger_in
from tests.support.office import converted, needs_libreoffice
from tests.support.payment_files import HEADER, VALID, csv_text, line, write

pytestmark = needs_libreoffice
AMOUNTS = ("1381.12", "0.10", "99999999.99")
CENTS = 10_000_138_121
BATCH = "3f2a91c0d7e1"
BOOKS = ("template", "rejects", "doubts", "results", "reconcile")
ROWS = [
    Planned(1, amount_cents=1250, reference="R1"),
    Planned(2, amount_cents=700, direction="CREDIT", reference="R2"),
    Planned(3, State.IN_DOUBT, 99_999, "CREDIT"),
]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DOUBT = Doubt(7, 8, "0012", 138_112, "USD", "CREDIT", "Ada Byron", "****5678", NOON, NOON, "no answer", 1)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each workbook as LibreOffice saved it after a person had worked in it, and the pages that it prints."""
    folder = tmp_path_factory.mktemp("office")
    made = [folder / f"{name}.xlsx" for name in BOOKS]
    template, rejects, doubts, results, reconciled = made
    write_template(template)
    book: Any = openpyxl.load_workbook(template)
    names = [cell.value for cell in book["payments"][1]]
    for row, amount in enumerate(AMOUNTS, 3):
        typed = {**VALID, "amount": float(amount), "achRoutingNumber": "021000021" if row < 5 else "021000022"}
        for name, value in typed.items():
            book["payments"].cell(row, names.index(name) + 1).value = value
    book.save(template)

    wrong = csv_text(0) + "".join(line(amount=amount, gatewayId="x") for amount in AMOUNTS)
    check(write(folder, wrong), rejects)
    _type_in(rejects, {"gatewayId": "1001"})
    write_sheet(doubts, BATCH, [DOUBT])
    _type_in(doubts, {"decision": "accepted", "gateway_reference": "00884213"})
    with ledger_in(folder) as ledger:
        batch = ledger.find(add_batch(ledger, ROWS))
        write_results(ledger, batch, results)
        export = write(folder, "Reference,Amount,Status\nR1,12.50,Settled\nR2,6.00,Settled\n", "export.csv")
        read = read_export(export, ExportMap())
        write_reconciliation(ledger, batch, read, match(ledger, batch, read.lines, days=5), reconciled)
    saved = converted(made, "xlsx", folder)
    return {path.stem: path for path in saved} | {f"{path.stem} pdf": path for path in converted(made, "pdf", folder)}


def check(path: str, rejects: Path | None = None) -> flow.Preview:
    """`validate`, where no ledger is."""
    settings = Settings(ledger=LedgerSettings(url=f"{path}.no-ledger", key_file=f"{path}.no-key"))
    return flow.validate(file_request(path, rejects, CheckOptions(allow_duplicates=True), settings), settings)


def _type_in(path: Path, values: dict[str, str]) -> None:
    book: Any = openpyxl.load_workbook(path)
    sheet = book.worksheets[0]
    names = [cell.value for cell in sheet[1]]
    for row in range(2, sheet.max_row + 1):
        for name, value in values.items():
            sheet.cell(row, names.index(name) + 1).value = value
    book.save(path)


def test_a_typed_template_is_a_payment_file(office: dict[str, Path]) -> None:
    """The example is left out, sums are exact to the cent, and the check digit was tried while one typed."""
    verdict = check(str(office["template"])).verdict
    assert (verdict.total.rows, verdict.total.cents) == (3, CENTS)
    assert verdict.counts == {"achRoutingNumber.checksum": 1}
    sheet: Any = openpyxl.load_workbook(office["template"], data_only=True)["payments"]
    names = [cell.value for cell in sheet[1]]
    at = names.index("_check") + 1
    assert [sheet.cell(row, at).value or "" for row in range(3, 7)] == ["ok", "ok", "wrong", ""]
    assert sheet.cell(3, names.index("amount") + 1).number_format == "#,##0.00"


def test_corrected_rejects_are_a_payment_file(office: dict[str, Path]) -> None:
    """Amounts are numbers that add up to the cent; an account keeps its zeros."""
    verdict = check(str(office["rejects"])).verdict
    assert (verdict.valid.rows, verdict.valid.cents, verdict.rejected.rows) == (3, CENTS, 0)
    sheet: Any = openpyxl.load_workbook(office["rejects"], data_only=True).worksheets[0]
    names = [cell.value for cell in sheet[1]]
    amounts = [sheet.cell(row, names.index("amount") + 1).value for row in range(2, 5)]
    assert amounts == [float(amount) for amount in AMOUNTS]
    assert sheet.cell(2, names.index("achAccountNumber") + 1).value == VALID["achAccountNumber"]
    assert set(HEADER) <= set(names)


def test_settled_doubts_are_read(office: dict[str, Path]) -> None:
    """The decision, the reference with its zeros and the amount come back as they were."""
    (decision,) = read_decisions(office["doubts"], BATCH, {7: DOUBT}).decisions
    assert (decision.row, decision.state, decision.gateway_reference) == (7, State.ACCEPTED, "00884213")


def test_a_reconciliation_adds_up_and_shows_its_differences(office: dict[str, Path]) -> None:
    """Amounts and differences are numbers, also below nothing; matched is green, what differs is red.

    Differences were texts that no sum counted, and the rows that a controller looks for had no color.
    """
    sheet: Any = openpyxl.load_workbook(office["reconcile"], data_only=True).worksheets[0]
    names = [cell.value for cell in sheet[1]]
    rows = [dict(zip(names, row, strict=True)) for row in sheet.iter_rows(min_row=2)]
    shown = [(row["verdict"].value, row["amount"].value, row["amount_there"].value, row["difference"].value)
             for row in rows]  # fmt: skip
    assert shown == [
        ("matched", 12.5, 12.5, None), ("amount differs", 7, 6, -1), ("in doubt, not found", 999.99, None, None),
    ]  # fmt: skip
    assert rows[1]["difference"].number_format == "#,##0.00"
    assert len({row["verdict"].fill.fgColor.rgb for row in rows}) == 3


def test_results_add_up_again(office: dict[str, Path]) -> None:
    """Saved by a spreadsheet program, the summary's sums of both directions are what the rows say."""
    sheet: Any = openpyxl.load_workbook(office["results"], data_only=True)["Summary"]
    found = {row[0]: row[1:7] for row in sheet.iter_rows(values_only=True)}
    assert found["accepted"] == (1, 12.5, 1, 7, 2, 19.5)
    assert found["in doubt"] == (0, 0, 1, 999.99, 1, 999.99)


@pytest.mark.parametrize("name", BOOKS)
def test_each_prints(office: dict[str, Path], name: str) -> None:
    """It makes pages, of the paper that a US office has."""
    page = office[f"{name} pdf"].read_bytes()
    assert page.startswith(b"%PDF-")
    boxes = {tuple(sorted(map(float, box.split()))) for box in re.findall(rb"/MediaBox ?\[0 0 ([0-9. ]+)\]", page)}
    assert boxes == {(612.0, 792.0)}
