"""Health: every check of operations/health.py on the ledger that the settings name."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from batchpay.errors import BatchpayError
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import file_of, location, open_ledger, weaknesses
from batchpay.ledger.records import BACKED_UP
from batchpay.operations import health as checks
from batchpay.operations import notify
from batchpay.operations.health import (
    HealthFinding,
    LedgerState,
    last_call_path,
    read_last_call,
    read_ledger_state,
    write_last_call,
)
from batchpay.payment import State
from batchpay.settings import Settings
from batchpay.text import counted
from batchpay.workflows.held_back import fails_today, find_held_back, is_stale, paid_elsewhere, rows_set_aside
from batchpay.workflows.policy import policy_in_force


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """What monitoring expects; None is not checked."""

    expect_every: timedelta | None = None
    """A call must have completed within this time, counting banking days only."""
    expect_file: timedelta | None = None
    """A file must have been registered within this time."""
    banking_days: bool = False
    """Whether that time counts banking days only."""
    backup_every: timedelta | None = None
    inbox: Path | None = None
    inbox_age: timedelta = timedelta(hours=1)
    """A file may wait in the inbox for this long."""
    return_rates: bool = False
    """Whether too many debits that came back are a failure."""


@dataclass(frozen=True, slots=True)
class Health:
    """All findings of one health check."""

    findings: list[HealthFinding]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of `health --json`, without the exit code."""
        return {
            "healthy": not any(one.exit_code for one in self.findings),
            "checks": [f.as_json() for f in self.findings],
        }


def health(settings: Settings, limits: HealthLimits, now: datetime) -> Health:
    """Run every check; a ledger that can't be opened, or is the wrong one, is the first finding, not an error."""
    findings: list[HealthFinding] = []
    try:
        paths = location(settings.ledger)
        findings += _ledger_findings(settings, limits, now)
        last = read_last_call(last_call_path(paths.ledger))
        findings.append(checks.last_call(last, limits.expect_every, now))
        findings.append(checks.disk(file_of(settings.ledger), paths.witness))
    except BatchpayError as error:
        findings.append(HealthFinding("ledger", str(error), error.exit_code))
    if limits.inbox is not None:
        findings.append(checks.inbox(limits.inbox, limits.inbox_age, now))
    if notify.is_set(settings):
        findings.append(notify.look(settings))
    return Health(findings)


def ledger_state(settings: Settings) -> LedgerState:
    """Read what the ledger has for the settings' environment; raises LedgerNotUsable, SettingsNotUsable."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return read_ledger_state(ledger, environment_of(settings.gateway))


def record_call(settings: Settings, ended_at: datetime, exit_code: int, *, completed: bool) -> None:
    """Record that a call that sends has ended, for the next health check; raises NotUsable.

    Without a ledger there is nowhere to record it: its absence was the call's own error. So it was if the ledger is
    another user's, whose record stays as it is.
    """
    path = last_call_path(location(settings.ledger).ledger)
    try:
        owner = path.parent.stat().st_uid
    except OSError:
        return
    if owner == os.geteuid():
        write_last_call(path, ended_at, exit_code, completed=completed)


def _ledger_findings(settings: Settings, limits: HealthLimits, now: datetime) -> list[HealthFinding]:
    # Opened as a run opens it: what would keep a run from sending must show here.
    with closing(open_ledger(settings.ledger)) as ledger:
        state = read_ledger_state(ledger, environment_of(settings.gateway))
        open_states = State.PENDING, State.SENDING
        batches = [batch for batch in ledger.batches() if batch.environment is state.environment]
        batches = [batch for batch in batches if any(batch.by_state[one].rows for one in open_states)]
        # To which an answer was set aside, and that no run is sending.
        answered = {batch.batch: rows for batch in batches if (rows := rows_set_aside(ledger, batch))}
        live = [(batch.batch, run) for batch in batches for run in ledger.runs(batch.batch) if run.is_live]
        batches_told = counted(state.batches, "batch", "batches")
        last_backup, lost = ledger.latest_event(BACKED_UP), ledger.lost_window()
        return [
            HealthFinding("ledger", f"the ledger opens and has {batches_told}, {state.environment}"),
            *(HealthFinding("ledger place", weakness, warns=True) for weakness in weaknesses(settings.ledger)),
            *(HealthFinding("policy", note, warns=True) for note in policy_in_force(ledger, settings).notes),
            *([HealthFinding("restored", lost.waits, 8)] if lost else []),
            checks.doubts(state, now),
            checks.waiting_batches(_waiting(ledger, state, settings), now),
            *([checks.scheduled(state)] if state.scheduled else []),
            *([checks.returns(state.rates, fails=limits.return_rates)] if state.rates.percent else []),
            *(
                [checks.last_file(state.last_registered, expected, now, on_banking_days=limits.banking_days)]
                if (expected := limits.expect_file) is not None
                else []
            ),
            *([checks.machines(live)] if live else []),
            *([checks.set_aside(answered)] if answered else []),
            checks.backup_of_database(limits.backup_every)
            if file_of(settings.ledger) is None
            else checks.backup(last_backup.at if last_backup else None, limits.backup_every, now),
            *_retention_findings(ledger, settings.retention.details_days, now),
        ]


def _retention_findings(ledger: Ledger, details_days: int, now: datetime) -> list[HealthFinding]:
    """Check whether a purge is due, if the settings say when, and whether one was interrupted."""
    unfinished = ledger.unfinished_purge()
    if not details_days and not unfinished:
        return []
    old = ledger.old_batches(now - timedelta(days=details_days)) if details_days else []
    return [checks.retention(old, details_days, unfinished=unfinished, now=now)]


def _waiting(ledger: Ledger, state: LedgerState, settings: Settings) -> list[checks.Waiting]:
    """Return for each batch with rows that wait whether a run is sending them now, and what else would."""
    waiting = []
    for one in state.waiting:
        batch = ledger.find(one.batch)
        waiting.append(
            checks.Waiting(
                one,
                is_running=ledger.is_held(batch.digest),
                held_back=find_held_back(ledger, one.batch, fails_today(ledger, batch, settings), batch.today).totals,
                paid_elsewhere=paid_elsewhere(ledger, batch),
                is_stale=is_stale(ledger, batch, settings.policy.stale_days),
            )
        )
    return waiting
