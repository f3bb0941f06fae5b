"""Warnings in what a person or a script reads on the command line: with the line of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.payment_files import DATA

DAY_31 = DATA / "field" / "day31.csv"


@pytest.mark.skipif(not DAY_31.is_file(), reason="the collection of field files is not here")
def test_the_first_rows_of_each_warning_are_named(call: Caller, tmp_path: Path) -> None:
    """Errors had lines, warnings were counts: of four payments nobody saw which one had no 31st in February."""
    call("ledger", "init")
    told = " ".join(call.text("validate", str(DAY_31), "--as-of", "2026-11-28").split())
    for place, what in (("2", "shorter months"), ("3", "shorter months"), ("2", "is a weekend"), ("5", "is a weekend")):
        assert f"line {place}: recurringStartDate: warning: {what}" in told
    assert "line 4: recurringStartDate: the calendar has no such day" in told


def test_a_submission_names_the_rows_too_and_all_of_them_if_asked(call: Caller, tmp_path: Path) -> None:
    """In words and in its object: who reads it afterward is to look at these rows of the results."""
    call("ledger", "init")
    for name in ("a.csv", "b.csv"):
        file = small_file(tmp_path / name, 8, first=1 if name == "a.csv" else 21)
        first, *rows = file.read_text().splitlines()
        at = first.split(",").index("achAccountNumber")
        cells = [row.split(",") for row in rows]
        for number, row in enumerate(cells):
            row[at] = f"AB{number:06}"
        file.write_text("\n".join([first, *(",".join(row) for row in cells)]) + "\n")
    done = call("submit", "a.csv")
    assert [(one["line"], one["code"]) for one in done["warning_list"]] == [(row + 2, "account") for row in range(8)]
    assert call("status", done["batch"])["warnings"] == 8
    told = " ".join(call.text("submit", "b.csv", "--dry-run").split())
    assert told.count("achAccountNumber: warning: ") == 5
    assert "and 3 more achAccountNumber.account: -v and --json list them" in told
    assert " ".join(call.text("submit", "b.csv", "-v").split()).count("achAccountNumber: warning: ") == 8


@pytest.mark.parametrize(("accounts", "errors"), [(("77000011", "77000011"), 0), (("77000011", "77000021"), 2)])
def test_payees_of_two_accounts_are_not_both_called_null(
    call: Caller, tmp_path: Path, accounts: tuple[str, str], errors: int
) -> None:
    """A database's null words passed as the names of everybody; one person may be called Null, also twice."""
    call("ledger", "init")
    lines = small_file(tmp_path / "a.csv", 2).read_text().splitlines()
    header = lines[0].split(",")
    rows = [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
    for row, account in zip(rows, accounts, strict=True):
        row |= {"achNameOnCheck": "NULL", "achAccountNumber": account}
    text = "\n".join([lines[0], *(",".join(row.values()) for row in rows)])
    (tmp_path / "a.csv").write_text(f"{text}\n")
    done = call("validate", "a.csv")
    counts = {"achNameOnCheck.placeholder": errors} if errors else {}
    assert (done["counts"], done["valid"], done["rejected"]) == (counts, 2 - errors, errors)
    assert done["warning_counts"].get("achNameOnCheck.placeholder", 0) == 2
