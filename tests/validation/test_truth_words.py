"""What programs of other languages write for true and false: an error that says so, in an account too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.intake.source import open_source
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.words import words
from tests.support.payment_files import DATA, HEADER, csv_text, line, workbook, write
from tests.support.payment_files import VALID as CELLS
from tests.support.row_factory import AS_OF
from tests.support.text_chunks import VALID, TextChunks
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=AS_OF)
REASON = "is how another language or program writes true or false (like FALSCH), "


@pytest.mark.parametrize(("column", "members", "other"), [
    ("recurringIndicator", {"true", "false"}, "maybe"), ("achAgreementFlag", {"1", "0"}, "2"),
])  # fmt: skip
def test_each_word_of_the_table_is_told_as_what_it_is(column: str, members: set[str], other: str) -> None:
    """FALSCH and WAHR were only `write TRUE or FALSE`: nobody saw that a spreadsheet in German had written them."""
    told = [word for word in words("truth") if word not in members]
    rows = [dict(VALID) | {"paymentId": f"P{at}", column: cell} for at, cell in enumerate([*told, "Wahr", other])]
    failures = [one for one in check(TextChunks(rows), OPTIONS).failures if one.column == column]
    assert [one.code for one in failures] == ["choice"] * len(rows)
    assert [one.message.startswith(REASON) for one in failures] == [True] * (len(told) + 1) + [False]


@pytest.mark.parametrize("cell", ["TRUE", "false", "Falsch", "VRAI"])
def test_a_boolean_is_no_account_number(tmp_path: Path, cell: str) -> None:
    """TRUE in a cell of an account was a warning, and the row was sent: letters may stand in an account."""
    path = write(tmp_path, csv_text(1) + line(achAccountNumber=cell) + line(achAccountNumber="TRUE1234"))
    with open_source(path) as source:
        verdict = check(source, OPTIONS)
    assert verdict.rejected.rows == 1
    (failure,) = verdict.failures
    assert (failure.row, failure.column, failure.code) == (2, "achAccountNumber", "account")
    assert "a word for true or false" in failure.message


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_a_typed_boolean_is_none_either(tmp_path: Path, kind: str) -> None:
    """A column of booleans, or a cell that became one."""
    rows: list[dict[str, Any]] = [dict(CELLS), {**CELLS, "achAccountNumber": True}]
    if kind == "xlsx":
        path = workbook(tmp_path, [HEADER, *([row[name] for name in HEADER] for row in rows)])
    else:
        path = str(tmp_path / "payments.parquet")
        pl.DataFrame(rows[1:]).write_parquet(path)
    with open_source(path) as source:
        verdict = check(source, OPTIONS)
    assert verdict.rejected.rows == 1
    assert verdict.counts == {"achAccountNumber.account": 1}


def test_a_file_of_the_field() -> None:
    """CASES.md: q_bool.csv; of FALSCH, WAHR, 0, No, false and FALSE the last is paid, and the others are explained."""
    path = DATA / "field" / "q_bool.csv"
    if not path.exists():
        pytest.skip("the field's files are not here")
    with open_source(str(path)) as source:
        verdict = check(source, OPTIONS)
    assert verdict.valid.rows == 1
    assert [one.message.startswith(REASON) for one in verdict.failures] == [True] * 4 + [False]
    assert verdict.failures[-1].suggestion == "FALSE"
