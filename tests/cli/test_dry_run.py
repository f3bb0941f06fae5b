"""A dry run that asks the gateway: `submit --dry-run --preflight`."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import small_file
from tests.support.in_process import Caller


def test_the_gateway_is_asked_about_the_accounts_of_each_file(call: Caller, tmp_path: Path) -> None:
    """The second file was refused for want of a key: reading it for the first one takes it out of the environment."""
    call("ledger", "init")
    for name, first in (("a.csv", 1), ("b.csv", 10)):
        file = small_file(tmp_path / name, 2, first=first)
        file.write_text(file.read_text().replace(",1001,", f",47{first},", 1))
    found = call("submit", "a.csv", "b.csv", "--dry-run", "--preflight")
    assert [one["counts"] for one in found["files"]] == [{"gatewayId.unknown": 1}] * 2
    assert call("submit", "a.csv", "--dry-run")["counts"] == {}


def test_a_plan_goes_without_the_rows_that_the_gateway_takes_no_payments_for(call: Caller, tmp_path: Path) -> None:
    """One account that the gateway does not know, and one for cards: the good row could never go by any plan."""
    call("ledger", "init")
    file = small_file(tmp_path / "a.csv", 3)
    first, *rows = file.read_text().splitlines()
    changed = [row.replace(",1001,", f",{account},", 1) for row, account in zip(rows, (1001, 9999, 1003), strict=True)]
    file.write_text("\n".join([first, *changed]) + "\n")
    unasked = call("submit", "a.csv", "--dry-run", "--plan", "unasked.json")
    assert (unasked["exit_code"], unasked["would_send"]) == (0, 3)
    assert "--preflight asks" in unasked["notes"][-1]
    told = call("submit", "a.csv", "--dry-run", "--no-preflight", "--plan", "told.json")
    assert not any("--preflight asks" in note for note in told["notes"])
    asked = call("submit", "a.csv", "--dry-run", "--preflight", "--plan", "plan.json")
    assert (asked["exit_code"], asked["would_send"], asked["rejected"]) == (3, 1, 2)
    assert asked["counts"] == {"gatewayId.unknown": 1, "gatewayId.not_echeck": 1}
    assert asked["seal"] != unasked["seal"]
    sent = call("submit", "a.csv", "--from-plan", "plan.json")
    assert (sent["exit_code"], sent["accepted"], sent["rejected"], sent["seal"]) == (3, 1, 2, asked["seal"])


def test_credentials_that_the_payments_refuse_are_told_by_the_dry_run(call: Caller, tmp_path: Path) -> None:
    """Though the accounts take them: the header has another name there. Without the option nothing is asked."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    call.settings(BATCHPAY_SERVICE_HEADER="OTHER")
    assert call("submit", "a.csv", "--dry-run", "--preflight")["exit_code"] == 6
    assert call("submit", "a.csv", "--dry-run")["exit_code"] == 0
