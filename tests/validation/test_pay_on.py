"""payOn: a real day, not before today, not far ahead, not of a recurring payment; and bills on different days."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from openpyxl import Workbook

from batchpay.intake.source import open_source
from batchpay.schemas.rule import RuleOptions
from tests.support.payment_files import HEADER
from tests.support.payment_files import VALID as VALID_IN_FILE
from tests.support.text_chunks import RECURRING as RECURRING_CELLS
from tests.support.text_chunks import VALID, TextChunks
from tests.support.whole_check import check

MONDAY = date(2026, 11, 30)
OPTIONS = RuleOptions(as_of=MONDAY)


def found(*rows: dict[str, str], options: RuleOptions = OPTIONS) -> list[tuple[int, str]]:
    """Every finding by its row, errors first."""
    verdict = check(TextChunks([VALID | row for row in rows]), options)
    return [(one.row, f"{one.column}.{one.code}") for one in (*verdict.failures, *verdict.warning_failures)]


@pytest.mark.parametrize(
    ("day", "codes"),
    [
        ("11/30/2026", []),
        ("02/26/2027", []),
        ("11/27/2026", ["payOn.past"]),
        ("03/01/2027", ["payOn.range"]),
        ("12/4/2026", ["payOn.format"]),
        ("12/32/2026", ["payOn.date"]),
        ("12/05/2026", ["payOn.banking_day"]),
        ("02/30/2027 ", ["payOn.whitespace"]),
    ],
)
def test_a_day_is_real_and_near(day: str, codes: list[str]) -> None:
    """From today to 90 days ahead; a weekend is only mentioned."""
    assert found({"payOn": day}) == [(1, code) for code in codes]
    anew = [code for code in codes if code not in ("payOn.past", "payOn.range")]
    registered = RuleOptions(as_of=MONDAY, pay_on_days=None)
    assert found({"payOn": day}, options=registered) == [(1, code) for code in anew], (
        "registered days are asked no more"
    )


@pytest.mark.parametrize(
    ("day", "around"),
    [("12/05/2026", ("12/04/2026", "12/07/2026")), ("12/25/2026", ("12/24/2026", "12/28/2026")),
     ("01/18/2027", ("01/15/2027", "01/19/2027"))],
)  # fmt: skip
def test_the_warning_names_the_banking_days_around(day: str, around: tuple[str, str]) -> None:
    """Saturday, Christmas on a Friday, Martin Luther King's birthday; in a row among others it is its own days."""
    rows = [VALID | {"payOn": "12/08/2026"}, VALID | {"payOn": day, "amount": "2.00"}]
    (warning,) = check(TextChunks(rows), OPTIONS).warning_failures
    assert warning.row == 2
    assert warning.message.endswith("(the banking days around it are {} and {})".format(*around))


def test_one_day_for_a_whole_file() -> None:
    """Its rows are checked as if each had it: the recurring one can't be sent on a day."""
    options = RuleOptions(as_of=MONDAY, pay_on=date(2026, 12, 4))
    recurring = RECURRING_CELLS | {"amount": "2.00"}
    assert found({}, recurring, options=options) == [(2, "payOn.conflict")]
    assert found({"payOn": "12/04/2026"}, recurring | {"payOn": "12/04/2026"}) == [(2, "payOn.conflict")]
    assert found({}, options=RuleOptions(as_of=MONDAY, pay_on=date(2026, 11, 27))) == [(1, "payOn.past")]


FRIDAYS = ("12/04/2026", "12/11/2026", "12/18/2026", "12/24/2026")


@pytest.mark.parametrize("height", [1, 10])
def test_rents_of_several_weeks_in_one_file_are_different_payments(height: int) -> None:
    """Each was the same bill as the first, and all but that were rejected. Now each but the first is mentioned."""
    rows = [VALID | {"payOn": day} for day in FRIDAYS]
    verdict = check(TextChunks(rows, height=height), OPTIONS)
    assert [(one.row, one.code) for one in verdict.warning_failures] == [(row, "same_payment") for row in (2, 3, 4)]
    assert verdict.passed.all()
    without = check(TextChunks(rows, height=height), RuleOptions(as_of=MONDAY, duplicate_days=8))
    assert [(one.row, one.code) for one in without.failures] == [(row, "duplicate") for row in (2, 3, 4)]


@pytest.mark.parametrize(
    ("days", "rejected"),
    [
        (("12/04/2026", "12/08/2026"), [2]),
        (("12/04/2026", "12/09/2026"), []),
        (("12/11/2026", "12/04/2026", "12/11/2026", "12/08/2026"), [3, 4]),
        (("12/04/2026", "12/14/2026", "12/09/2026"), []),
        (("12/04/2026", ""), [2]),
        (("", "12/04/2026", "12/14/2026"), [2, 3]),
        (("", ""), [2]),
    ],
)
def test_near_days_are_the_same_bill(days: tuple[str, ...], rejected: list[int]) -> None:
    """Fewer than policy.duplicate_days from any earlier row; one without a day may be sent beside each."""
    verdict = check(TextChunks([VALID | ({"payOn": day} if day else {}) for day in days]), OPTIONS)
    assert [one.row for one in verdict.failures] == rejected
    assert {one.code for one in verdict.failures} <= {"duplicate"}


def test_the_row_that_is_near_is_named() -> None:
    """Of three rents the third repeats the second, a week after the first: a person is sent there."""
    (failure,) = check(
        TextChunks([VALID | {"payOn": day} for day in ("12/04/2026", "12/11/2026", "12/10/2026")]), OPTIONS
    ).failures
    assert failure.message.startswith("is the same bill as line 3 of this file")


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_real_dates_are_read_as_days(tmp_path: Path, kind: str) -> None:
    """A workbook and a Parquet file hold a date as such; it becomes the text that the rule asks for."""
    path = tmp_path / f"pay.{kind}"
    if kind == "xlsx":
        book: Any = Workbook()
        book.active.append([*HEADER, "payOn"])
        book.active.append([*(VALID_IN_FILE[name] for name in HEADER), date(2026, 12, 4)])
        book.save(path)
    else:
        pl.DataFrame([{**VALID_IN_FILE, "payOn": date(2026, 12, 4)}]).write_parquet(path)
    (chunk,) = open_source(str(path)).chunks()
    assert chunk["payOn"].to_list() == ["12/04/2026"]


def test_an_iso_date_has_its_suggestion() -> None:
    """As for recurringStartDate: the right text is certain."""
    (failure,) = check(TextChunks([VALID | {"payOn": "2026-12-04"}]), OPTIONS).failures
    assert (failure.code, failure.suggestion) == ("format", "12/04/2026")
