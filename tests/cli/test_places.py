"""Where a person finds a row: one numbering in every message, and what stood there before."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.sandbox_requests import control


def test_a_duplicate_names_the_line_of_the_earlier_file(call: Caller) -> None:
    """It named data row 2, which stands in line 3: people corrected their neighbor's payment."""
    small_file(Path("a.csv"), 3)
    call("submit", "a.csv")
    small_file(Path("b.csv"), 1, first=2)
    Path("b.csv").write_text(Path("b.csv").read_text().replace("P-2", "P-9"))
    (error,) = call("validate", "b.csv")["errors"]
    assert error["message"].startswith("is the same bill as line 3 of batch ")


def test_a_changed_account_names_the_one_before(call: Caller) -> None:
    """Who is asked by telephone is asked about both: the warning had only the new one."""
    small_file(Path("a.csv"), 1)
    call("submit", "a.csv")
    text = Path("a.csv").read_text().replace("P-1", "P-2").replace("INV-1", "INV-2").replace("770000011", "880005678")
    Path("b.csv").write_text(text)
    said = " ".join(call.text("validate", "b.csv").split())
    what = "a new account or routing number of a known payee, the last payment had"
    assert f"account ****5678: {what} ****0011, call" in said
    Path("b.csv").write_text(text.replace("880005678", "770000011").replace("121000332", "021000995"))
    said = " ".join(call.text("validate", "b.csv").split())
    assert f"account ****0011: {what} ****0011, call" in said, "the same account at another bank read like a mistake"


def test_a_row_in_doubt_is_listed_by_its_line(call: Caller, url: str) -> None:
    """The list says where it stands in the file, and what --row takes."""
    small_file(Path("a.csv"), 2)
    control(url, "POST", "faults", [{"fault": "silent", "at": 2}])
    batch = call("submit", "a.csv")["batch"]
    assert "line 3 (--row 2)   CREDIT" in call.text("resolve", batch)
