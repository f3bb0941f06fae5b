"""The results file: what stands in it, row by row, held against the ledger's rows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from batchpay.ledger.facts import FactKind, NewFact
from batchpay.payment import Environment, State, format_cents
from batchpay.reports.results import HEADER, write_results
from batchpay.text import guarded, instant
from tests.support.ledger_factory import Planned, add_batch, ledger_in

STATES = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.PENDING, State.SENDING)


def test_results_are_the_rows_of_the_ledger(tmp_path: Path) -> None:
    """Every row that passed, in file order, each cell as the ledger has it; a blank one where there is nothing."""
    planned = [
        Planned(
            row, STATES[row % 5], amount_cents=row * 7 + 1, name=f"Zoë {row}, Ltd", reference=f"TX-{row}",
            message="=1+1" if row == 1_000 else "Approved",
        )
        for row in range(1, 1_201)
    ]  # fmt: skip
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, planned, rejected=[(1_201, 100, "amount.format")])
        day = date(2026, 11, 27)
        facts = [NewFact(FactKind.RETURNED, name, row, "R02", day, row * 7 + 1, row) for row in (5, 10)]
        facts.append(NewFact(FactKind.CHANGED, name, 15, "C01", day, 0, 3))
        ledger.record_facts(facts, Environment.TEST, "returns.csv", "ab", "ada", unattended=True)
        ledger.withdraw_fact(name, 10, "ben", "the bank undid it")
        write_results(ledger, ledger.find(name), tmp_path / "results.csv")
        rows = list(ledger.rows(name))
    with (tmp_path / "results.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert len(found) == len(rows) == 1_200
    assert tuple(found[0]) == HEADER
    for cells, row in zip(found, rows, strict=True):
        answer, message = row.answer, row.answer.message or row.reason or ""
        assert cells == {
            "row": str(row.row), "line": str(row.line), "paymentId": "", "invoiceNumber": f"INV-{row.row}",
            "gatewayId": "1001", "transactionType": "DEBIT", "recurringIndicator": "FALSE",
            "amount": format_cents(row.amount_cents), "currencyCode": "USD", "name": f"Zoë {row.row}, Ltd",
            "account": "****6789", "state": row.state.value, "http_status": str(answer.http_status or ""),
            "response_code": answer.response_code or "", "message": "'=1+1" if message == "=1+1" else message,
            "gateway_reference": answer.gateway_reference or "", "attempts": str(row.attempts),
            "sent_at": instant(row.sent_at) or "", "finished_at": instant(row.finished_at) or "", "batch": name,
            "environment": "test", "warnings": "", "payOn": "", "returned": "2026-11-27" if row.row == 5 else "",
            "return_code": "R02" if row.row == 5 else "",
        }  # fmt: skip
    assert {cells["state"] for cells in found} == {state.value for state in STATES}


ODD = (
    "", " ", "}{", '"}{"', "a,b", 'q"q', "line\nbreak", "re\rturn", "=1+1", "-1", "@x", "\ttab", "'x", "\\u0041\\",
    "Zoë 漢", "null", "1e5", "\x01", "a\x1fb", "a\x00b", '["', "\u2028",
)  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_odd_texts_come_through_as_they_are(tmp_path: Path, ending: str) -> None:
    """Whatever stands in a name, an answer or a column of the file's own; more rows than are read at once."""
    planned = [
        Planned(
            row, STATES[row % 5], amount_cents=row if row % 50 else 2**53 + row, name=ODD[row % len(ODD)],
            invoice=ODD[row * 7 % len(ODD)], reference=ODD[row * 5 % len(ODD)], message=ODD[row * 11 % len(ODD)],
        )
        for row in range(1, 8_300)
    ]  # fmt: skip
    path = tmp_path / f"results.{ending}"
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, planned, carried=ODD)
        written = write_results(ledger, ledger.find(name), path)
        rows = list(ledger.rows(name))
    with written.open(newline="", encoding="utf-8") as file:
        found = list(csv.reader(file))[1:] if ending == "csv" else pl.read_parquet(written).rows()

    def shown(text: str | None) -> str | None:
        return (guarded(text) or "") if ending == "csv" else text

    assert len(found) == len(rows)
    for cells, row in zip(found, rows, strict=True):
        answer = row.answer
        expected = [row.details["invoiceNumber"], row.details["name"], answer.message or row.reason]
        assert [cells[at] for at in (3, 9, 14)] == list(map(shown, expected))
        assert cells[15] == shown(answer.gateway_reference)
        assert cells[7] == format_cents(row.amount_cents)
        assert list(cells[len(HEADER) :]) == list(map(shown, ODD))


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
def test_columns_of_the_file_named_like_ours_are_told_apart(tmp_path: Path, ending: str) -> None:
    """Results fed in as a file of payments have our columns: their Parquet results once failed, after the sending."""
    carried, path = ("state", "name", "state (file)", "costCenter"), tmp_path / f"results.{ending}"
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1), Planned(2)], carried=carried)
        write_results(ledger, ledger.find(name), path)
    read: dict[str, Callable[[Path], pl.DataFrame]] = {
        "csv": partial(pl.read_csv, infer_schema=False), "parquet": pl.read_parquet,
        "xlsx": partial(pl.read_excel, engine="openpyxl", sheet_name="results"),
    }  # fmt: skip
    found = read[ending](path)
    own = ["state (file)", "name (file)", "state (file) (file)", "costCenter"]
    assert found.columns == [*HEADER, *own]
    assert found.select(own).unique().row(0) == carried
