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
    told = call.text("submit", "a.csv", "b.csv", "--dry-run", "--preflight")
    assert [line.strip() for line in told.splitlines() if "would be rejected" in line] == [
        "note: gatewayId 471 would be rejected: unknown", "note: gatewayId 4710 would be rejected: unknown",
    ]  # fmt: skip
    assert "would be rejected" not in call.text("submit", "a.csv", "--dry-run")


def test_credentials_that_the_payments_refuse_are_told_by_the_dry_run(call: Caller, tmp_path: Path) -> None:
    """Though the accounts take them: the header has another name there. Without the option nothing is asked."""
    call("ledger", "init")
    small_file(tmp_path / "a.csv", 2)
    call.settings(BATCHPAY_SERVICE_HEADER="OTHER")
    assert call("submit", "a.csv", "--dry-run", "--preflight")["exit_code"] == 6
    assert call("submit", "a.csv", "--dry-run")["exit_code"] == 0
