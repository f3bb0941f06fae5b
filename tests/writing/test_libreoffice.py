"""What a person does with our workbooks in a spreadsheet program: type, correct, decide, save, print."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from batchpay.intake.template import write_blank
from batchpay.payment import State
from batchpay.reconciliation.resolution import Doubt, read_decisions, write_sheet
from batchpay.settings import LedgerSettings, Settings
from batchpay.workflows import check as flow
from batchpay.workflows.requests import CheckOptions, file_request
from tests.support.office import converted, needs_libreoffice
from tests.support.payment_files import HEADER, VALID, csv_text, line, write

pytestmark = needs_libreoffice
AMOUNTS = ("1381.12", "0.10", "99999999.99")
CENTS = 10_000_138_121
BATCH = "3f2a91c0d7e1"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DOUBT = Doubt(7, 8, "0012", 138_112, "USD", "CREDIT", "Ada Byron", "****5678", NOON, NOON, "no answer")


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each workbook as LibreOffice saved it after a person had worked in it, and the pages that it prints."""
    folder = tmp_path_factory.mktemp("office")
    made = [folder / f"{name}.xlsx" for name in ("template", "rejects", "doubts")]
    template, rejects, doubts = made
    write_blank(template)
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


@pytest.mark.parametrize("name", ["template", "rejects", "doubts"])
def test_each_prints(office: dict[str, Path], name: str) -> None:
    """It makes pages."""
    assert office[f"{name} pdf"].read_bytes().startswith(b"%PDF-")
