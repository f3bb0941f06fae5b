"""The sample files are what their generator makes, and show what their README says."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from batchpay.intake.source import open_source
from batchpay.sandbox.faults import ending_of
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.rule import RuleOptions
from tests.support import sample_files
from tests.support.independent_checker import ERROR, check_rows
from tests.support.sample_plan import BUSY_ONCE, DECLINED, ODD_CELLS, ODDITIES, PLANTED, SILENT, SPECIAL_ACCOUNTS
from tests.support.whole_check import check


def _rows() -> list[dict[str, str]]:
    with (sample_files.SAMPLES / "payments.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _found_by_the_program(name: str) -> set[tuple[int, str]]:
    with open_source(str(sample_files.SAMPLES / name)) as source:
        verdict = check(source, RuleOptions(as_of=date(2026, 11, 20)))
    return {(failure.row, f"{failure.column}.{failure.code}") for failure in verdict.failures}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the generator wrote all samples."""
    folder = tmp_path_factory.mktemp("samples")
    sample_files.main(folder)
    return folder


@pytest.mark.parametrize("name", ["payments.csv", "payments.parquet", "spreadsheet.xlsx", "small.csv", "README.md"])
def test_regenerated_byte_for_byte(generated: Path, name: str) -> None:
    """The generator writes the very bytes of the committed sample."""
    assert (generated / name).read_bytes() == (sample_files.SAMPLES / name).read_bytes()


def test_plain_text() -> None:
    """The CSV samples are UTF-8 without a byte order mark, with line feeds and a final one."""
    for name in ("payments.csv", "small.csv"):
        content = (sample_files.SAMPLES / name).read_bytes()
        assert not content.startswith(b"\xef\xbb\xbf")
        assert b"\r" not in content
        assert content.decode("utf-8").endswith("\n")


def test_every_column_is_used() -> None:
    """Every known column of payments.csv has values, and one column is the sender's own."""
    rows = _rows()
    assert set(rows[0]) == {*COLUMNS, "costCenter"}
    assert all(any(row[column] for row in rows) for column in rows[0])


def test_variety() -> None:
    """payments.csv has debits and credits, one-time and recurring, business and personal, US and Canadian rows."""
    rows = _rows()
    assert len(rows) >= 1000
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


def test_about_three_percent_wrong_in_twenty_ways() -> None:
    """Some 3 % of payments.csv are wrong, in more than twenty ways, and no two plans share a row."""
    assert 0.025 < len(PLANTED) / sample_files.ROWS < 0.035
    assert len({change.finding for change in PLANTED}) >= 20
    planned = [change.row for change in (*PLANTED, *ODDITIES)] + [special.row for special in SPECIAL_ACCOUNTS]
    assert len(set(planned)) == len(planned)
    assert min(planned) > 20


@pytest.mark.parametrize("year", [2026, 2034])
def test_faults_are_the_planned_ones(year: int) -> None:
    """Every planned fault or warning is one, no other row is wrong, and years from now it is still so."""
    found = check_rows(_rows(), as_of=date(year, 11, 20))
    wrong = {
        (number, f"{column}.{code}")
        for number, findings in enumerate(found, start=1)
        for column, code, severity in findings
        if severity == ERROR
    }
    assert wrong == {(change.row, change.finding) for change in PLANTED}
    for oddity in ODDITIES:
        draws = {f"{column}.{code}" for column, code, _ in found[oddity.row - 1]}
        assert oddity.finding in draws or not oddity.finding


@pytest.mark.parametrize("name", ["payments.csv", "payments.parquet"])
def test_program_finds_the_planned_faults(name: str) -> None:
    """Read and checked by the program, a sample has the planned faults, as far as its kind can hold them."""
    planned = {(change.row, change.finding) for change in PLANTED if change.in_parquet or name.endswith(".csv")}
    assert _found_by_the_program(name) == planned


def test_program_finds_the_odd_cells_of_the_spreadsheet() -> None:
    """Of the odd cells of spreadsheet.xlsx, the program refuses those that its README says, and nothing else."""
    warned = {"billingZip.zip"}
    planned = {(odd.row, odd.finding) for odd in ODD_CELLS if odd.finding and odd.finding not in warned}
    assert _found_by_the_program("spreadsheet.xlsx") == planned


def test_small_has_six_good_rows() -> None:
    """In small.csv the two rows that its README names are wrong, the others draw not even a warning."""
    with (sample_files.SAMPLES / "small.csv").open(encoding="utf-8", newline="") as file:
        found = check_rows(csv.DictReader(file), as_of=date(2026, 11, 20))
    assert {number: findings for number, findings in enumerate(found, start=1) if findings} == {
        4: {("amount", "format", ERROR)},
        7: {("transactionType", "choice", ERROR), ("achRoutingNumber", "checksum", ERROR)},
    }


def test_only_planned_accounts_are_special() -> None:
    """No account number ends as the sandbox's special ones do, but for the planned ones."""
    special = {number for number, row in enumerate(_rows(), start=1) if row["achAccountNumber"][-6:-2] == "9900"}
    assert special == {plan.row for plan in SPECIAL_ACCOUNTS}


def test_special_accounts_do_what_the_plan_says() -> None:
    """The sandbox declines, keeps silent or is busy once for exactly the accounts planned for it."""
    faults = {DECLINED: "decline", SILENT: "silent", BUSY_ONCE: "busy"}
    rows = _rows()
    for plan in SPECIAL_ACCOUNTS:
        ending = ending_of(rows[plan.row - 1]["achAccountNumber"])
        assert ending is not None
        assert ending.fault == faults[plan.outcome]


def test_parquet_holds_the_same_rows() -> None:
    """payments.parquet holds the text of payments.csv, and its amounts as decimals."""
    frame = pl.read_parquet(sample_files.SAMPLES / "payments.parquet")
    assert frame.schema["amount"] == pl.Decimal(12, 2)
    inexpressible = {change.row for change in PLANTED if not change.in_parquet}
    typed = frame.with_columns(pl.col("amount").cast(pl.String)).fill_null("").to_dicts()
    different = {number for number, (a, b) in enumerate(zip(typed, _rows(), strict=True), start=1) if a != b}
    assert different == inexpressible
