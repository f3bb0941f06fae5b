"""Paths of other people's folders: what can't be entered is said in words, and nothing of theirs is changed.

Root may enter every folder, so these use a name that is too long for any disk: to Python both are the same, its
questions about such a path (`exists`, `is_dir`) raise.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.open import create_ledger, open_ledger
from batchpay.operations.health import last_call_path, read_last_call
from batchpay.settings import LedgerSettings
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.sandbox_requests import control

CLOSED = "x" * 300


@pytest.mark.parametrize(("line", "code"), [
    (("validate", f"{CLOSED}/a.csv"), 4), (("validate", "a.csv", "--rejects", f"{CLOSED}/r.csv"), 5),
    (("submit", f"{CLOSED}/a.csv"), 5), (("submit", "a.csv", "--results", f"{CLOSED}/r.csv"), 5),
    (("submit", "a.csv", "--log-file", f"{CLOSED}/l.log"), 5),
    (("submit", "a.csv", "--metrics-file", f"{CLOSED}/m.prom"), 5),
    (("submit", "a.csv", "--dry-run", "--plan", f"{CLOSED}/p.json"), 5),
    (("map", "a.csv", "--write", f"{CLOSED}/m.toml"), 5), (("template", f"{CLOSED}/t.xlsx"), 5),
    (("results", "--results", f"{CLOSED}/r.csv"), 5), (("report", "--out", f"{CLOSED}/r.html"), 5),
    (("ledger", "backup", f"{CLOSED}/l.db"), 5), (("sandbox", "--port", "0", "--db", f"{CLOSED}/s.db"), 2),
], ids=lambda value: " ".join(value).replace(CLOSED, "closed") if isinstance(value, tuple) else "")  # fmt: skip
def test_a_folder_that_can_not_be_entered(call: Caller, line: tuple[str, ...], code: int) -> None:
    """Each of these was an internal error."""
    small_file(Path("a.csv"), 1)
    call("submit", "a.csv")
    assert call.exit_code(*line) == code


@pytest.mark.parametrize(
    "line", [("submit", "a.csv", "--metrics-file"), ("submit", "a.csv", "--dry-run", "--plan"), ("report", "--out")]
)
def test_a_folder_in_the_place_of_a_single_file(call: Caller, line: tuple[str, ...]) -> None:
    """The metrics' place was the payment file's fault (exit code 4), and `--out` was to move it."""
    small_file(Path("a.csv"), 1)
    call("submit", "a.csv")
    Path("folder").mkdir()
    assert call.exit_code(*line, "folder") == 5


def test_a_ledger_and_a_key_in_a_folder_that_can_not_be_entered(tmp_path: Path) -> None:
    """A service with the wrong HOME was told of an internal error, from `submit` to `ledger init`."""
    closed = tmp_path / CLOSED
    with pytest.raises(LedgerNotUsable, match=r"l\.db can't be reached: File name too long"):
        open_ledger(LedgerSettings(url=str(closed / "l.db"), key_file=str(tmp_path / "key")))
    with pytest.raises(LedgerNotUsable, match="can't be read: File name too long"):
        create_ledger(LedgerSettings(url=str(tmp_path / "l.db"), key_file=str(closed / "key")), "tester")


def test_a_call_by_another_user_leaves_nothing_beside_the_ledger(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's call was refused, and then replaced the record of the last call, which the service could not read."""
    small_file(Path("a.csv"), 1)
    call("submit", "a.csv")
    record = last_call_path(Path("state/ledger.db"))
    before = read_last_call(record)
    assert before is not None
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert call.exit_code("submit", "a.csv") == 5
    assert read_last_call(record) == before


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
