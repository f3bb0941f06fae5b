"""One numbering in every list: the line of a CSV, the row of a sheet."""

from __future__ import annotations

from csv import reader as csv_lines
from pathlib import Path

from tests.support.payment_files import workbook
from tests.workflows.office import Office


def test_warnings_and_errors_name_the_same_place(office: Office) -> None:
    """The first data row is line 2 of a CSV and row 2 of a sheet, for a changed account as for an invalid cell."""
    office.submit(office.file("10.00"))
    path = office.file("10.00", "20.00", name="next.csv", achAccountNumber="9900112233", ids="Q")
    csv = office.dry_run(path)
    assert csv.line_word == "line"
    assert [line.split(":")[0] for line in csv.unusual if "changed_account" in line] == ["line 2", "line 3"]
    with Path(path).open(encoding="utf-8", newline="") as file:
        sheet = workbook(office.folder, list(csv_lines(file)))
    found = office.dry_run(sheet)
    assert found.line_word == "row"
    assert [line.split(":")[0] for line in found.unusual if "changed_account" in line] == ["row 2", "row 3"]
