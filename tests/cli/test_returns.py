"""`batchpay returns`, `recall`, and a night that takes returns first."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from batchpay.ledger.open import open_ledger
from batchpay.payment import Environment
from batchpay.settings import LedgerSettings
from tests.model import clock
from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.sandbox_requests import TIMEOUT_S, control

NIGHT = (
    "submit",
    "--inbox",
    "in",
    "--returns",
    "back",
    "--archive",
    "done",
    "--out",
    "out",
    "--metrics-file",
    "m.prom",
)
HEADER = "Return Date,Return Code,Invoice Number,Amount\n"
SETTINGS = LedgerSettings(url="state/ledger.db", key_file="keys/ledger.key")


@pytest.fixture
def line(call: Caller) -> str:
    """A batch of three, and what a bank says of its second row."""
    call("submit", str(small_file(Path("pay.csv"), 3)), "--out", ".")
    with closing(open_ledger(SETTINGS, read_only=True)) as ledger:
        return f"{ledger.today()},R02,INV-2,2.25\n"


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if not path.name.endswith(".toml"))


def put(path: str, text: str) -> None:
    """Put a file into a folder, marked as complete."""
    Path(path).write_text(text)
    Path(f"{path}.control.toml").write_text("rows = 2\n")


def test_what_came_back_is_listed_with_what_to_do(call: Caller, line: str) -> None:
    """Taken in, shown to people and as JSON, confirmed and withdrawn."""
    Path("r.csv").write_text(HEADER + line + line.replace("INV-2", "INV-9") + line.replace("R02", "R62"))
    (told,) = call("returns", "r.csv", "--dry-run")["files"]
    assert (told["dry_run"], told["counts"]["recorded"]) == (True, {"rows": 1, "amount": "2.25"})
    assert call("returns", "--list")["returns"] == []
    shown = call.text("returns", "r.csv")
    assert "recorded: 1 line, 2.25" in shown and "account closed" in shown and "no such payment" in shown
    (one,) = call("returns", "--list")["returns"]
    assert (one["row"], one["code"], one["deadline"], one["seen"]) == (2, "R02", None, True)
    assert "ask the payee for another account" in call.text("returns", "--list")
    said = ("--row", "2", "--reason", "the bank undid it")
    assert call("returns", "--withdraw", one["batch"], *said)["what"] == "withdrawn"
    assert call.exit_code("returns", "--confirm", one["batch"], *said) == 2
    assert call("returns", "--list", "--since", one["date"])["returns"] == []
    assert call.exit_code("returns", "r.csv", "pay.csv") == 4


@pytest.mark.parametrize("arguments", [
    "", "--list --confirm b", "r.csv --list", "r.csv --withdraw b --row 1 --reason x", "r.csv --since 2026-11-30",
    "--confirm b --row 1", "--confirm b --reason x", "r.csv --row 1", "r.csv s.csv --confirm b --row 1 --reason x",
    "--list --dry-run",
])  # fmt: skip
def test_options_that_do_not_go_together(call: Caller, arguments: str) -> None:
    """Wrong use, before any file or ledger is opened."""
    assert call.fails("returns", *arguments.split()) == 2


def test_a_night_takes_returns_first(call: Caller, line: str) -> None:
    """Unattended; a file that can't be read delays no payment; what has no payment is 3 once; taken files are moved."""
    for folder in ("in", "back", "done", "out"):
        Path(folder).mkdir()
    put("back/a.csv", HEADER + line + line.replace("INV-2", "INV-9"))
    put("back/b.ach", "101 021000021 1234567892611240800A094101BANK\n")
    put("in/next.csv", small_file(Path("next.csv"), 2, first=5).read_text())
    first = call(*NIGHT)
    assert first["exit_code"] == 4
    taken, refused = first["returns"]
    assert (taken["exit_code"], taken["counts"]["recorded"]["rows"], refused["exit_code"]) == (3, 1, 4)
    assert first["accepted"] == 2
    assert (names("back"), names("done")) == (["b.ach"], ["a.csv", "next.csv"])
    assert re.search(r'file_exit_code\{file="back/b.ach",batch=""\} 4', Path("m.prom").read_text())
    (one,) = call("returns", "--list")["returns"]
    assert one["seen"] is False
    Path("back/b.ach").unlink()
    put("back/again.csv", Path("done/a.csv").read_text())
    again = call(*NIGHT)
    assert (again["exit_code"], again["returns"][0]["known"], names("back")) == (0, True, [])
    assert call.exit_code("submit", "in/x.csv", "--returns", "back") == 2
    assert call.exit_code("submit", "--inbox", "in", "--archive", "done", "--returns", "done/") == 2
    put("in/last.csv", small_file(Path("last.csv"), 2, first=9).read_text())
    lost = call(*(word if word != "back" else "gone" for word in NIGHT))
    assert (lost["exit_code"], lost["accepted"], lost["returns"][0]["file"]) == (4, 2, "gone")


def test_the_sandbox_s_own_files_are_understood(call: Caller, url: str) -> None:
    """Its CSV masks accounts and names references, its ACH file has accounts and invoices: both say the same."""
    import requests

    rules = [{"fault": "returned", "code": "R01", "at": 1}, {"fault": "returned", "code": "C03", "at": 3}]
    control(url, "POST", "faults", rules)
    call("submit", str(small_file(Path("pay.csv"), 4)), "--out", ".")
    for name, form in (("r.csv", "csv"), ("r.ach", "ach")):
        answer = requests.get(f"{url}/_sandbox/returns", {"format": form}, timeout=TIMEOUT_S)
        Path(name).write_bytes(answer.content)
    counts = [call("returns", name)["files"][0]["counts"] for name in ("r.csv", "r.ach")]
    assert [{word: one["rows"] for word, one in found.items()} for found in counts] == [{"recorded": 2}, {"known": 2}]
    found = {one["code"]: one for one in call("returns", "--list")["returns"]}
    assert found.keys() == {"R01", "C03"} and found["C03"]["deadline"] > found["C03"]["date"]
    with closing(open_ledger(SETTINGS, read_only=True)) as ledger:
        (change,) = (one for one in ledger.facts(Environment.TEST) if one.code == "C03")
        corrected = ledger.corrected(change)
    assert corrected.keys() == {"achRoutingNumber", "achAccountNumber"}
    for told in (json.dumps(found), call.text("returns", "--list"), call.text("returns", "r.ach")):
        assert not any(value in told for value in corrected.values())


def test_a_sheet_for_the_bank(call: Caller, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted rows alone, masked, its owner's alone, recorded; not what came back, nor after five banking days."""
    (batch,) = call("status")["batches"]
    asked = ("recall", batch["batch"], "--reason", "amount", "--out", "recall.csv", "--rows")
    done = call(*asked, "1,3")
    assert done["recalled"] == {"rows": 2, "amount": "4.50"}
    sheet = Path("recall.csv")
    header, first, _ = sheet.read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    assert (cells["account"], cells["reason"], cells["row"]) == ("****0011", "amount", "1")
    assert {cells["transactionType"], cells["reversal"]} == {"CREDIT", "DEBIT"}
    assert sheet.stat().st_mode & 0o777 == 0o600
    with closing(open_ledger(SETTINGS, read_only=True)) as ledger:
        event = ledger.latest_event("recall requested")
    assert event is not None and (event.why, json.loads(event.detail)) == ("amount", {"rows": "1,3"})
    Path("r.csv").write_text(HEADER + line)
    call("returns", "r.csv")
    assert call.fails(*asked, "2") == call.fails(*asked, "4") == 2
    assert call.fails("recall", batch["batch"], "--reason", "amount", "--out", "pay.csv", "--rows", "1") == 2
    clock.offset_s = 9 * 86_400
    clock.exchange()
    try:
        assert call.fails(*asked, "1") == 2
    finally:
        clock.restore()
