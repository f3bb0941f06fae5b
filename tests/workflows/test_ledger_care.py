"""Care for the ledger: what a person accepts, and what a check ends with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import LedgerNotUsable, WrongUse
from batchpay.ledger import open as door
from batchpay.ledger.records import LostWindow
from batchpay.settings import LedgerSettings, Settings
from batchpay.workflows.health import HealthLimits, health
from batchpay.workflows.ledger_care import LedgerCheck, accept_ledger, back_up, check_ledger, make_ledger
from tests.support.ledger_factory import ledger_settings
from tests.workflows.desk import ANN

LOST: Any = object()


@pytest.fixture
def settings(tmp_path: Path) -> LedgerSettings:
    """A ledger that was just created."""
    found = ledger_settings(tmp_path)
    make_ledger(found, ANN, None)
    return found


def test_a_ledger_in_order_has_nothing_to_accept(settings: LedgerSettings) -> None:
    """A ledger in order is reported to be in order, and accepting anything needs a reason."""
    found = check_ledger(settings)
    assert (found.problems, found.accepting, found.lost, found.exit_code) == ([], [], None, 0)
    for reason in (None, " "):
        with pytest.raises(WrongUse, match="needs --reason"):
            accept_ledger(settings, reason, ANN, rows_in_doubt=True)


@pytest.mark.parametrize(
    ("problems", "lost", "code"),
    [
        ([], None, 0),
        (["the ledger is damaged"], None, 5),
        (["the ledger is damaged"], LOST, 5),
        ([], LOST, 8),
    ],
)
def test_what_a_check_ends_with(problems: list[str], lost: Any, code: int) -> None:
    """Damage first, then what waits for a person."""
    assert LedgerCheck(problems, [], lost, []).exit_code == code


def test_a_ledger_that_can_not_be_written_is_still_copied(
    settings: LedgerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is needed most on a full disk; that the ledger could not record it is reported: health then alarms."""
    real = door.open_ledger

    def only_to_read(settings: LedgerSettings, **how: Any) -> Any:
        if not how.get("read_only"):
            raise LedgerNotUsable("the disk is full")
        return real(settings, **how)

    monkeypatch.setattr(door, "open_ledger", only_to_read)
    target, problem = back_up(settings, tmp_path / "copy.db", None, datetime.now(UTC), ANN)
    assert (target.is_file(), problem) == (True, "the disk is full")


def test_health_reports_that_a_restored_ledger_waits_for_a_person(
    settings: LedgerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first to find out is the person whose new file is refused at night."""
    lost = LostWindow(datetime(2026, 5, 4, 6, tzinfo=UTC), 7, 9)
    monkeypatch.setattr("batchpay.ledger.sqlite.ledger.SqliteLedger.lost_window", lambda _: lost)
    found = health(Settings(ledger=settings), HealthLimits(), datetime.now(UTC)).findings
    (told,) = [one for one in found if one.check == "restored"]
    assert (told.exit_code, str(lost) in told.message) == (8, True)
