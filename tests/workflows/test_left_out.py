"""Rows that a map leaves out by a word of theirs: counted and summed, in no other figure, and never sent."""

from __future__ import annotations

import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused
from batchpay.ledger.open import open_ledger
from batchpay.payment import State, Totals
from batchpay.reports.results import write_results
from batchpay.summary import summary_of_batch
from tests.support.payment_files import write
from tests.workflows.desk import COLUMNS, PLAIN, Desk

MAP = '[rows]\ncolumn = "Status"\npayments = ["Open"]\nleft_out = ["Voided", "Paid", ""]\n'
ROWS = (("1", "10.00", "Open"), ("2", "20.00", "Voided"), ("3", "30.00", "Paid"), ("4", "40.00", "Open"),
        ("5", "5.00", "Voided"), ("6", "7.00", ""))  # fmt: skip
LEFT_OUT = {"Voided": Totals(2, 2500), "Paid": Totals(1, 3000), "": Totals(1, 700)}


def file(folder: Path, *rows: tuple[str, str, str], end: str = "") -> Path:
    """A file of our own columns with a status."""
    lines = [",".join((*COLUMNS, "Status"))]
    for number, amount, status in rows:
        cells = PLAIN | {"paymentId": f"P{number}", "amount": amount, "invoiceNumber": f"I{number}"}
        lines.append(",".join([*(cells.get(column, "") for column in COLUMNS), status]))
    return Path(write(folder, "\n".join(lines) + "\n" + end, "bills.csv"))


@pytest.mark.usefixtures("on_both")
def test_rows_of_the_file_are_rejected_left_out_and_valid(desk: Desk) -> None:
    """Voided, paid and open bills stand in one export: only the open ones are sent, and no cent disappears."""
    path = file(desk.folder, *ROWS)
    options: dict[str, Any] = {"map_file": write(desk.folder, MAP, "bills.toml")}
    looked = desk.dry_run(path, **options)
    page = "\n".join(looked.page())
    summary = desk.submit(path, **options)
    assert desk.arrived == {"I1": 1, "I4": 1}
    for found in (looked.summary, summary):
        assert (found.left_out, found.valid, found.in_file) == (LEFT_OUT, Totals(2, 5000), Totals(6, 11200))
        said: dict[str, Any] = found.as_json()
        assert said["rows"] == said["valid"] + said["rejected"] + said["left_out"]["rows"] == 6
        assert said["amount"]["total"] == "112.00" and said["left_out"]["amount"] == "62.00"
        assert said["left_out"]["by_word"][0] == {"word": "Voided", "rows": 2, "amount": "25.00"}
        (told,) = [note for note in found.notes if "leaves out" in note]
        assert told.startswith("the map leaves out 4 rows, 62.00, as no payments (Voided: 2 rows, 25.00; Paid: 1 row")
    assert "left out by the map 4 62.00" in " ".join(page.split())
    assert "in the file 6 112.00" in " ".join(page.split())
    assert "Voided: 2 rows, 25.00" in " ".join(page.split())
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        batch = ledger.find(summary.batch)
        assert summary_of_batch(batch).left_out == LEFT_OUT
        results = write_results(ledger, batch, desk.folder / "results.xlsx")
    with zipfile.ZipFile(results) as archive:
        texts = "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".xml"))
    for words in ("left out: Voided", "left out: Paid", "left out: blank", ">112.00<"):
        assert words in texts, words


def test_a_word_that_the_map_does_not_know_is_an_error(desk: Desk) -> None:
    """A status that appeared after the map was made may be a no; rows after it keep their places."""
    path = file(desk.folder, ROWS[1], ("7", "9.00", "Disputed 123456789"), ROWS[0])
    looked = desk.dry_run(path, map_file=write(desk.folder, MAP, "bills.toml"))
    (failure,) = looked.verdict.failures
    assert (failure.line, failure.code) == (3, "no_payment")
    assert "column Status has Disputed ****, and the map does not say" in failure.message
    assert (looked.summary.of(State.REJECTED), looked.summary.valid) == (Totals(1, 900), Totals(1, 1000))
    assert looked.summary.in_file == Totals(3, 3900)


@pytest.mark.parametrize("counted", [(2, 5000), (6, 11200)])
def test_stated_totals_may_count_what_is_left_out(desk: Desk, counted: tuple[int, int]) -> None:
    """The total under an export is of all its rows; who states the payments alone is right too."""
    path = file(desk.folder, *ROWS, end="," * COLUMNS.index("amount") + "112.00" + "," * 16 + "\n")
    options: dict[str, Any] = {"map_file": write(desk.folder, MAP, "bills.toml")}
    rows, cents = counted
    assert desk.dry_run(path, expect_rows=rows, expect_cents=cents, **options).summary.valid.rows == 2
    with pytest.raises(FileRefused, match="expected"):
        desk.dry_run(path, expect_rows=rows + 1, **options)
