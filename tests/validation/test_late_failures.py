"""Rows that fail for a second reason, found only at the end of the file."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

import polars as pl
import pytest

from batchpay.intake.source import open_source
from batchpay.payment import State
from batchpay.schemas.columns import REJECTS_OWN
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.rejects import open_rejects
from batchpay.workflows.file_check import CheckContext, check_file, open_file
from batchpay.workflows.requests import FileRequest
from tests.support.command import small_file
from tests.support.whole_check import check

AS_OF = datetime.date(2026, 11, 21)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_row_that_fails_twice_stands_once(tmp_path: Path, ending: str) -> None:
    """A row with a wrong amount that is also a duplicate stands once, with both reasons: it used to stand twice."""
    file = small_file(tmp_path / "a.csv", 4)
    lines = file.read_text("utf-8").splitlines()
    lines[2] = lines[2].replace("2.25", "2.2")
    lines[3] = lines[3].replace("P-3", "P-2")
    file.write_text("\n".join(lines) + "\n", "utf-8")
    target = tmp_path / f"wrong.{ending}"
    request = FileRequest(str(file), RuleOptions(AS_OF), rejects=target)
    summary = check_file(open_file(request), request, CheckContext()).summary()
    assert summary.of(State.REJECTED).rows == 2
    frame = pl.read_csv(target, infer_schema=False) if ending == "csv" else pl.read_parquet(target)
    assert frame["_row"].to_list() == ["2", "3"]
    assert "amount: format" in frame["_errors"][0]
    assert "paymentId: duplicate" in frame["_errors"][0]


@pytest.mark.parametrize("late", [False, True])
def test_a_row_that_is_too_long_comes_back_with_all_its_cells(tmp_path: Path, late: bool) -> None:
    """Cells beyond the header's reach the rejects file through the check, also where a row beside it fails late."""
    file = small_file(tmp_path / "a.csv", 4)
    lines = file.read_text("utf-8").splitlines()
    lines[2] += ',surplus,"and, more"'
    if late:
        lines[3] = lines[3].replace("P-3", "P-1")
    file.write_text("\n".join(lines) + "\n", "utf-8")
    target = tmp_path / "wrong.csv"
    with open_source(str(file)) as source:
        rejects = open_rejects(target, source)
        verdict = check(source, RuleOptions(AS_OF), rejects=rejects)
        rejects.commit()
    assert verdict.rejected.rows == (3 if late else 1)
    returned = [row for row in csv.reader(target.read_text("utf-8").splitlines()) if row[0] == "2"]
    assert returned[0][len(REJECTS_OWN) :] == next(csv.reader([lines[2]]))


def test_a_row_that_comes_late_keeps_its_warnings(tmp_path: Path) -> None:
    """Rows that share a paymentId come back with all that is said of them: a warning, an error, or nothing more."""
    file = small_file(tmp_path / "a.csv", 6)
    rows = list(csv.DictReader(file.read_text("utf-8").splitlines()))
    for row in rows[:5]:
        row["paymentId"] = "P-0"
    rows[1]["achAccountType"] = rows[5]["achAccountType"] = "BUSINESS"
    rows[2]["amount"] = "2.2"
    with file.open("w", encoding="utf-8", newline="") as opened:
        out = csv.DictWriter(opened, rows[0], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    target = tmp_path / "wrong.csv"
    request = FileRequest(str(file), RuleOptions(AS_OF), rejects=target)
    checked = check_file(open_file(request), request, CheckContext())
    frame = pl.read_csv(target, infer_schema=False)
    assert frame["_row"].to_list() == ["1", "2", "3", "4", "5"]
    assert frame["_errors"].str.contains("paymentId: duplicate").all()
    assert frame["_errors"].str.contains("amount: format").to_list() == [False, False, True, False, False]
    warned = frame["_warnings"].fill_null("").str.contains("achSecCode: sec_account")
    assert warned.to_list() == [False, True, False, False, False]
    assert checked.verdict.warning_counts == {"achSecCode.sec_account": 2}
    assert (checked.verdict.rejected.rows, checked.verdict.valid.rows) == (5, 1)


def test_a_rejected_row_with_a_carriage_return_comes_back_beside_a_ragged_and_a_late_one(tmp_path: Path) -> None:
    """It was an internal error: its line is in quotation marks whole, and its number was read out of the line."""
    file = small_file(tmp_path / "a.csv", 6)
    lines = file.read_text("utf-8").splitlines()
    lines[2] += ",surplus"
    lines[3] = lines[3].replace("3.25", "3.2")
    lines[3] = lines[3].replace("P-3", '"P-3\r\nsecond line"')
    lines[5] = lines[5].replace("P-5", "P-1")
    file.write_bytes("\n".join([*lines, ""]).encode())
    target = tmp_path / "wrong.csv"
    request = FileRequest(str(file), RuleOptions(AS_OF), rejects=target)
    assert check_file(open_file(request), request, CheckContext()).verdict.rejected.rows == 4
    with target.open(encoding="utf-8", newline="") as written:
        rows = list(csv.reader(written))[1:]
    assert [row[0] for row in rows] == ["1", "2", "3", "5"]
    assert "P-3\r\nsecond line" in rows[2]
