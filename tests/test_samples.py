"""The sample files show what their README says: it lists every fault, warning, special account and unusual cell."""

from __future__ import annotations

import csv
import re
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from batchpay.intake.source import open_source
from batchpay.sandbox.faults import ending_of
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.rule import RuleOptions
from tests.support.independent_checker import ERROR, WARNING, check_rows
from tests.support.whole_check import check

SAMPLES = Path(__file__).parents[1] / "samples"


def _listed(heading: str) -> list[tuple[int, str, str]]:
    """Read a table of the README: the row, what is there, and why."""
    _, _, section = (SAMPLES / "README.md").read_text("utf-8").partition(f"\n## {heading}\n")
    lines = re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    assert lines
    return [(int(row), first, second) for row, first, second in lines]


FAULTS = {(row, finding) for row, finding, _ in _listed("Invalid rows of payments.csv")}
IN_PARQUET = FAULTS - {(25, "amount.format")}
"""A decimal column can't hold a thousands separator."""
ODD_CELLS = {
    (row, finding)
    for row, finding, why in _listed("Unusual cells of spreadsheet.xlsx")
    if "read as intended" not in finding and "a warning" not in why
}


def _rows(name: str = "payments.csv") -> list[dict[str, str]]:
    with (SAMPLES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_plain_text() -> None:
    """The CSV samples are UTF-8 without a byte order mark, with line feeds and a final one."""
    for name in ("payments.csv", "small.csv"):
        content = (SAMPLES / name).read_bytes()
        assert not content.startswith(b"\xef\xbb\xbf")
        assert b"\r" not in content
        assert content.decode("utf-8").endswith("\n")


def test_variety() -> None:
    """payments.csv has every column, every kind of payment, and names that a careless program spoils."""
    rows = _rows()
    assert len(rows) >= 1000
    assert set(rows[0]) == {*COLUMNS, "costCenter"} - {"payOn"}, "all of it is sent at once"
    assert all(any(row[column] for row in rows) for column in rows[0])
    for column, values in {
        "transactionType": {"DEBIT", "CREDIT"},
        "recurringIndicator": {"TRUE", "FALSE"},
        "achAccountType": {"BUSINESS", "PERSONAL"},
        "achDepositType": {"CHECKING", "SAVINGS"},
        "billingCountry": {"US", "CA", ""},
        "recurringBillingCycle": {"MONTHLY", "DAILY"},
    }.items():
        assert values <= {row[column] for row in rows}
    names = {row["billingFirstName"] for row in rows} | {row["billingLastName"] for row in rows}
    assert {"José", "Zoë", "Siobhán", "O'Brien", "D'Angelo", "Nguyễn"} <= names
    assert len({finding for _, finding in FAULTS}) >= 20


@pytest.mark.parametrize("year", [2026, 2034])
def test_faults_are_those_of_the_readme(year: int) -> None:
    """Every listed fault or warning is one, no other row is wrong, and years from now it is still so."""
    found = check_rows(_rows(), as_of=date(year, 11, 20))
    wrong = {
        (number, f"{column}.{code}")
        for number, findings in enumerate(found, start=1)
        for column, code, severity in findings
        if severity == ERROR
    }
    assert wrong == FAULTS
    for row, finding, _ in _listed("Valid rows of payments.csv with a warning"):
        assert finding in {f"{column}.{code}" for column, code, _ in found[row - 1]}


@pytest.mark.parametrize(
    ("name", "listed"), [("payments.csv", FAULTS), ("payments.parquet", IN_PARQUET), ("spreadsheet.xlsx", ODD_CELLS)]
)
def test_program_finds_what_the_readme_lists(name: str, listed: set[tuple[int, str]]) -> None:
    with open_source(str(SAMPLES / name)) as source:
        verdict = check(source, RuleOptions(as_of=date(2026, 11, 20)))
    assert {(failure.row, f"{failure.column}.{failure.code}") for failure in verdict.failures} == listed


def test_small_has_six_good_rows() -> None:
    """In small.csv the two rows that its README names are wrong, the others draw a warning for letters at most."""
    ascii_only = {("achNameOnCheck", "ascii", WARNING)}
    found = [findings - ascii_only for findings in check_rows(_rows("small.csv"), as_of=date(2026, 11, 20))]
    assert {number: findings for number, findings in enumerate(found, start=1) if findings} == {
        4: {("amount", "format", ERROR)},
        7: {("transactionType", "choice", ERROR), ("achRoutingNumber", "checksum", ERROR)},
    }


def test_the_sandbox_treats_specially_only_the_accounts_that_are_listed() -> None:
    """It declines, keeps silent, is busy once or lets come back exactly those."""
    faults = {"declined": "decline", "in doubt: processed, then no answer": "silent", "429 once, then accepted": "busy"}
    faults |= dict.fromkeys(("accepted, returned later", "accepted, changed later"), "returned")
    listed = _listed("Accounts of payments.csv that the sandbox treats specially")
    special = {
        (number, account[-6:]): ending_of(account)
        for number, row in enumerate(_rows(), start=1)
        if (account := row["achAccountNumber"])[-6:-2] == "9900"
    }
    found = {place: ending.fault for place, ending in special.items() if ending is not None}
    assert found == {(row, ending): faults[outcome] for row, ending, outcome in listed}
    assert found.keys() == special.keys()


def test_parquet_holds_the_same_rows() -> None:
    """payments.parquet holds the text of payments.csv, and its amounts as decimals."""
    frame = pl.read_parquet(SAMPLES / "payments.parquet")
    assert frame.schema["amount"] == pl.Decimal(12, 2)
    typed = frame.with_columns(pl.col("amount").cast(pl.String)).fill_null("").to_dicts()
    different = {number for number, (a, b) in enumerate(zip(typed, _rows(), strict=True), start=1) if a != b}
    assert different == {row for row, _ in FAULTS - IN_PARQUET}
