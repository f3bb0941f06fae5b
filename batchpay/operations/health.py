"""One check for monitoring: whether anything is in doubt, stopped, waiting, overdue or about to fail.

Every finding has what was checked, whether it is good, one sentence for a person, and its exit code. A check that
can't be made is a finding that is not good: monitoring must not stay green because nothing could be checked.

The ledger records runs, and a night without a file has none: so every call that sends writes its end into a small file
beside the ledger. What in the ledger needs attention is read once, for `health`, the metrics and the end of every call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

from batchpay.errors import NotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, HostRun, LedgerRow, OldBatch
from batchpay.operations.inbox import is_named_as_ours, waiting_files
from batchpay.operations.return_rates import ReturnRates, return_rates
from batchpay.payment import Environment, State, Totals, added_up
from batchpay.schemas.calendar import is_banking_day
from batchpay.text import counted, instant, local_time, money, row_count, sum_word, totals_apart, totals_json
from batchpay.writing.atomic import atomic_writer


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch with rows in doubt, or with rows that wait to be sent."""

    batch: str
    file: str
    apart: Mapping[str, Totals]
    """These rows by DEBIT and CREDIT."""
    since: datetime
    """When the oldest of the doubts was sent; for rows that wait, when the batch last made progress."""
    stopped: str | None = None
    """Why the last run ended early."""
    overdue_since: date | None = None
    """The first day on which rows that wait were due, if they have days."""

    @property
    def totals(self) -> Totals:
        """All of these rows."""
        return sum(self.apart.values(), Totals())


@dataclass(frozen=True, slots=True)
class LedgerState:
    """All batches of one environment."""

    environment: Environment
    batches: int
    by_state: dict[State, Totals]
    """What a killed run was sending counts as in doubt."""
    in_doubt: Sequence[OpenBatch]
    """Batches with rows in doubt, the oldest doubt first."""
    waiting: Sequence[OpenBatch]
    """Batches with rows to be sent, the one that has waited longest first; rows with a day count once overdue."""
    scheduled: Mapping[str, Totals]
    """Rows whose day has not come, by DEBIT and CREDIT."""
    next_pay_on: date | None
    """The first day on which some of them are due."""
    last_registered: datetime | None = None
    """When a file was last registered."""
    returned: Mapping[str, Totals] = field(default_factory=dict)
    """Accepted rows that came back, by DEBIT and CREDIT."""
    rates: ReturnRates = ReturnRates()

    @property
    def oldest_doubt(self) -> datetime | None:
        """When the oldest row in doubt was sent."""
        return self.in_doubt[0].since if self.in_doubt else None


@dataclass(frozen=True, slots=True)
class BatchDoubts:
    """What of a batch may or may not have been paid."""

    apart: Mapping[str, Totals]
    """These rows by DEBIT and CREDIT; without any there is nothing."""
    abandoned: Sequence[LedgerRow]
    """Those of them that a run was sending when it was killed: whatever takes over the batch puts them in doubt."""

    @classmethod
    def of(cls, ledger: Ledger, batch: BatchSummary) -> BatchDoubts:
        """Read what is in doubt, also where nobody has taken over the batch: its file may be gone, and nobody may."""
        abandoned = ledger.abandoned(batch)
        killed = [{row.direction: Totals(1, row.amount_cents)} for row in abandoned]
        recorded = batch.apart[State.IN_DOUBT] if batch.by_state[State.IN_DOUBT].rows else {}
        return cls(added_up([recorded, *killed]), abandoned)


def read_ledger_state(ledger: Ledger, environment: Environment) -> LedgerState:
    """Read the state from the ledger's totals; only batches with doubts are read row by row."""
    by_state = dict.fromkeys(State, Totals())
    in_doubt: list[OpenBatch] = []
    waiting: list[OpenBatch] = []
    batches = [batch for batch in ledger.batches() if batch.environment is environment]
    for batch in batches:
        for state, totals in batch.by_state.items():
            by_state[state] += totals
        doubts = BatchDoubts.of(ledger, batch)
        for row in doubts.abandoned:
            by_state[State.SENDING] -= Totals(1, row.amount_cents)
            by_state[State.IN_DOUBT] += Totals(1, row.amount_cents)
        if doubts.apart:
            recorded = ledger.row_columns(batch.batch, [State.IN_DOUBT]) if batch.by_state[State.IN_DOUBT].rows else ()
            times = {*(time for some in recorded for time in some.sent_at), *(row.sent_at for row in doubts.abandoned)}
            # Rows whose sending a restored ledger forgot have no time.
            since = min((time for time in times if time is not None), default=batch.registered_at)
            in_doubt.append(OpenBatch(batch.batch, batch.file, doubts.apart, since))
        # A row with a day is overdue, and an alarm, once a banking day has passed on which any call would have sent it.
        last_days = (batch.today - timedelta(days=days) for days in count())
        overdue_by = next(filter(is_banking_day, last_days)) - timedelta(days=1)
        if apart := batch.due_apart_by(overdue_by):
            since = ledger.last_progress_at(batch.batch)
            first = min((day for day in batch.by_day if day <= overdue_by), default=None)
            waiting.append(OpenBatch(batch.batch, batch.file, apart, since, batch.stopped, first))
    in_doubt.sort(key=lambda one: one.since)
    waiting.sort(key=lambda one: one.since)
    scheduled = added_up(batch.scheduled_apart for batch in batches)
    next_pay_on = min((day for batch in batches if (day := batch.next_pay_on)), default=None)
    registered = max((batch.registered_at for batch in batches), default=None)
    returned, rates = added_up(batch.returned_apart for batch in batches), return_rates(ledger, batches, environment)
    return LedgerState(
        environment, len(batches), by_state, in_doubt, waiting, scheduled, next_pay_on, registered, returned, rates
    )


_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class LastCall:
    """How the last call ended, and when one last completed."""

    ended_at: datetime
    exit_code: int
    completed_at: datetime | None


def last_call_path(ledger: Path) -> Path:
    """Return the path of the file that belongs to a ledger."""
    return ledger.with_name(f"{ledger.name}.last-call")


def write_last_call(path: Path, ended_at: datetime, exit_code: int, *, completed: bool) -> None:
    """Record the end of a call, and whether it did all its work; raises NotUsable."""
    before = read_last_call(path)
    completed_at = ended_at if completed else before.completed_at if before else None
    content = {"ended_at": instant(ended_at), "exit_code": exit_code, "completed_at": instant(completed_at)}
    with atomic_writer(path) as file:
        file.write(json.dumps(content).encode() + b"\n")


def read_last_call(path: Path) -> LastCall | None:
    """Read it; None if there is none, or none that can be read: then nothing is known to have run."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_BYTES_MAX))
        completed_at = content["completed_at"]
        return LastCall(
            datetime.fromisoformat(content["ended_at"]),
            int(content["exit_code"]),
            datetime.fromisoformat(completed_at) if completed_at else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


DISK_FREE_BYTES_MIN = 128 << 20
"""Below this a run may find no room for its outcomes: 500,000 rows of a ledger."""
RETURNED_WITHIN_DAYS = 95
"""Until then a bank's file may name a payment by what its details alone have: the invoice number, the name."""
PURGE_LATE = timedelta(days=31)
"""A purge is overdue this long after it is due: once a month is often enough."""
_CLOCK_BACK_S = 3600.0
"""A time further ahead than this was written while the clock was wrong: until that time nothing would be overdue."""
_AHEAD = "ahead of this machine's clock"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """What one check found."""

    check: str
    message: str
    exit_code: int = 0
    """0 if all is well, otherwise the exit code that this finding alone would cause."""
    details: dict[str, Any] = field(default_factory=dict)
    warns: bool = False
    """Whether a person should know of it anyway."""

    @property
    def word(self) -> str:
        """Return the result as one word."""
        return "FAIL" if self.exit_code else "warn" if self.warns else "ok"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {"check": self.check, "ok": not self.exit_code, "message": self.message, **self.details}


def doubts(state: LedgerState, now: datetime) -> HealthFinding:
    """Check whether any row is in doubt, in any batch."""
    if not state.in_doubt:
        return HealthFinding("doubts", "no row is in doubt")
    total = state.by_state[State.IN_DOUBT]
    age = _age(now - state.in_doubt[0].since)
    amount = totals_apart(one.apart for one in state.in_doubt)
    text = f"{row_count(total.rows)} in doubt, {amount}, the oldest for {age}"
    details = _batches(state.in_doubt, now) | totals_json(total)
    return HealthFinding("doubts", f"{text}: {_commands('batchpay resolve', state.in_doubt)}", 7, details)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A batch with rows that wait, and what `resume` would do with them."""

    batch: OpenBatch
    is_running: bool = False
    """Whether a run is sending it now."""
    held_back: Totals = Totals()
    """What `resume` would not send: rows that fail today's rules."""
    paid_elsewhere: Totals = Totals()
    """What another file has paid since: it stays pending, and nothing is to be done about it."""
    is_stale: bool = False
    """Whether `resume` asks a person first, since the batch has not been touched for a long time."""

    @property
    def is_stopped(self) -> bool:
        """Whether rows are to be sent, and nobody sends them."""
        return not self.is_running and self.paid_elsewhere.rows < self.batch.totals.rows


def waiting_batches(waiting: Sequence[Waiting], now: datetime) -> HealthFinding:
    """Check whether a batch has rows that wait while no run is sending them."""
    stopped = [one.batch for one in waiting if one.is_stopped]
    if not stopped:
        running = sorted(one.batch.batch for one in waiting if one.is_running)
        text = "no batch is stopped with rows to send"
        if paid := [one for one in waiting if not one.is_running]:
            text += f", {row_count(sum(one.paid_elsewhere.rows for one in paid))} that another file has paid "
            text += f"will not be sent (batch {_named([one.batch for one in paid])})"
        return HealthFinding("batches", text, details={"running": running})
    rows, amount = sum(one.totals.rows for one in stopped), totals_apart(one.apart for one in stopped)
    why = f" ({stopped[0].stopped})" if stopped[0].stopped else ""
    text = f"{row_count(rows)} to be sent, {amount}, the oldest for {_age(now - stopped[0].since)}{why}"
    if overdue := [one.overdue_since for one in stopped if one.overdue_since]:
        text += f", overdue since {min(overdue):%m/%d/%Y}"
    ways = "; ".join(_ways([one for one in waiting if one.is_stopped]))
    return HealthFinding("batches", f"{text}: {ways}", 6, _batches(stopped, now))


def scheduled(state: LedgerState) -> HealthFinding:
    """Tell what is scheduled: rows whose day has not come are no alarm."""
    assert state.next_pay_on is not None, "rows are scheduled"
    totals = sum(state.scheduled.values(), Totals())
    text = (
        f"{row_count(totals.rows)} scheduled, {totals_apart([state.scheduled])}, next on {state.next_pay_on:%m/%d/%Y}"
    )
    details = totals_json(totals) | {"next_pay_on": state.next_pay_on.isoformat()}
    return HealthFinding("scheduled", text, details=details)


def _ways(stopped: Sequence[Waiting]) -> Iterator[str]:
    """Describe what would send rows that wait; `resume` sends none that is held back."""
    sent = [one for one in stopped if one.held_back.rows < one.batch.totals.rows]
    for is_stale, options in ((False, ""), (True, " --stale --reason TEXT")):
        if batches := [one.batch for one in sent if one.is_stale is is_stale]:
            yield _commands("batchpay resume", batches, options)
    if held_back := [one for one in stopped if one.held_back.rows]:
        rows, cents = sum(one.held_back.rows for one in held_back), sum(one.held_back.cents for one in held_back)
        amount = f"{sum_word('', *(one.batch.apart for one in held_back))} {money(cents)}".lstrip()
        of_them = f"{row_count(rows)}, {amount}, " if sent else ""  # else they are all that were counted already
        yield (
            f"{of_them}held back by today's rules (batch "
            f"{_named([one.batch for one in held_back])}), sent only where limits.max_amount and policy.past_start let "
            "them pass and no other file pays them"
        )


def returns(rates: ReturnRates, *, fails: bool) -> HealthFinding:
    """Warn where more debits came back than the network lets pass; one of twenty is 5 %, so it seldom `fails`."""
    over = rates.exceeded
    text = f"{rates}; over the limit: {', '.join(over)}" if over else str(rates)
    details = {"debits": rates.debits, **rates.percent}
    return HealthFinding("returns", text, 6 if over and fails else 0, details, warns=bool(over))


def machines(runs: Sequence[tuple[str, HostRun]]) -> HealthFinding:
    """Report which machines send which batches, with the age of their heartbeats; one that is dead needs another."""
    dead = [(batch, run) for batch, run in runs if not run.has_heartbeat]
    told = [f"{run.host} has batch {batch}, its heartbeat is {_age_s(run.heartbeat_age_s)} old" for batch, run in runs]
    if dead:
        told.append(f"to take over: {'; '.join(f'batchpay resume {batch}' for batch, _ in dead)}")
    details = {
        "runs": [{"batch": batch, "host": run.host, "heartbeat_age_s": run.heartbeat_age_s} for batch, run in runs]
    }
    return HealthFinding("machines", "; ".join(told), 6 if dead else 0, details)


def set_aside(batches: Mapping[str, int]) -> HealthFinding:
    """Report batches with answers that the ledger could not take, and which no run has taken in since."""
    told = [f"{row_count(rows)} of batch {batch}: batchpay resume {batch}" for batch, rows in batches.items()]
    return HealthFinding("answers", f"answers that were set aside are not recorded yet, to {'; '.join(told)}", 6)


def inbox(folder: Path, inbox_age: timedelta, now: datetime) -> HealthFinding:
    """Check whether a payment file, complete or not, has been in the inbox longer than it should."""
    try:
        files = waiting_files(folder, now_s=now.timestamp())
    except NotUsable as error:
        return HealthFinding("inbox", str(error), 5)
    ages_s = {path: now.timestamp() - since for path, since in files}
    old = [path for path, age_s in ages_s.items() if age_s > inbox_age.total_seconds() or age_s < -_CLOCK_BACK_S]
    details = {"files": [{"file": str(path), "age_s": round(age_s)} for path, age_s in ages_s.items()]}
    waits = ("file waits", "files wait")
    if not old:
        return HealthFinding("inbox", f"{counted(len(files), *waits)} in the inbox", 0, details)
    age_s = ages_s[old[0]]
    since = f" for {_age(timedelta(seconds=age_s))}" if age_s >= 0 else f", dated {_AHEAD}: touch it"
    text = f"{counted(len(old), *waits)} in the inbox, {old[0].name}{since}"
    if ours := next((path.name for path in old if is_named_as_ours(path.name)), None):  # with -q no call names it
        text += f"; {ours} has a name of results or rejects: to pay a corrected one, rename it or add a control file"
    return HealthFinding("inbox", text, 6, details)


def last_call(last: LastCall | None, expect_every: timedelta | None, now: datetime) -> HealthFinding:
    """Check whether a call completed within the time expected, on banking days."""
    if last is None:
        nothing, code = {"ended_at": None, "completed_at": None}, 0 if expect_every is None else 6
        return HealthFinding("last call", "no call that sends has ended yet", code, nothing)
    details = {"ended_at": instant(last.ended_at), "exit_code_of_call": last.exit_code,
               "completed_at": instant(last.completed_at)}  # fmt: skip
    completed = "no call has completed yet"
    if last.completed_at is not None:
        completed = f"the last completed call ended {local_time(last.completed_at)}"
    if last.completed_at != last.ended_at:
        completed += f" (one ended {local_time(last.ended_at)} with exit code {last.exit_code})"
    if expect_every is None:
        return HealthFinding("last call", completed, 0, details)
    if last.completed_at is not None and (last.completed_at - now).total_seconds() > _CLOCK_BACK_S:
        return HealthFinding("last call", f"{completed}, which is {_AHEAD}: a later one is unknown", 6, details)
    waited = None if last.completed_at is None else banking_time(last.completed_at.astimezone(), now.astimezone())
    if waited is None or waited > expect_every:
        text = f"{completed}, expected every {_age(expect_every)} of banking days"
        return HealthFinding("last call", text, 6, details)
    return HealthFinding("last call", completed, 0, details)


def last_file(last: datetime | None, expect_file: timedelta, now: datetime, *, on_banking_days: bool) -> HealthFinding:
    """Check whether a file was registered within the time expected: one that never comes fails no call."""
    text = "no file was ever registered" if last is None else f"the last file was registered {local_time(last)}"
    details = {"registered_at": instant(last)}
    begin, end = (last or now).astimezone(), now.astimezone()
    waited = banking_time(begin, end) if on_banking_days else end - begin
    if last is not None and waited <= expect_file and (last - now).total_seconds() <= _CLOCK_BACK_S:
        return HealthFinding("last file", text, 0, details)
    of_days = " of banking days" if on_banking_days else ""
    return HealthFinding("last file", f"{text}, expected every {_age(expect_file)}{of_days}", 6, details)


def disk(ledger: Path | None, witness: Path) -> HealthFinding:
    """Check whether the disks of the ledger and of its witness have room: a run writes to both. The fuller counts.

    A ledger in a database server has no disk here: None.
    """
    found = []
    for word, folder in [*([("ledger", ledger.parent)] if ledger else []), ("witness", witness.parent)]:
        try:
            status = os.statvfs(folder)
        except OSError as error:
            return HealthFinding("disk", f"the {word}'s folder {folder} can't be checked: {error.strerror}", 5)
        found.append((status.f_bavail * status.f_frsize, word))
    free, word = min(found, key=itemgetter(0))  # the ledger's, if there is one disk
    text = f"{free >> 20:,} MiB free on the {word}'s disk"
    return HealthFinding("disk", text, 5 if free < DISK_FREE_BYTES_MIN else 0, {"free_bytes": free})


def backup(last: datetime | None, backup_every: timedelta | None, now: datetime) -> HealthFinding:
    """Check whether the ledger was backed up within the time expected."""
    details = {"backed_up_at": instant(last)}
    text = "the ledger was never backed up" if last is None else f"the ledger was backed up {local_time(last)}"
    if backup_every is not None and (last is None or now - last > backup_every):
        return HealthFinding("backup", f"{text}, expected every {_age(backup_every)}", 6, details)
    return HealthFinding("backup", text, 0, details)


def backup_of_database(backup_every: timedelta | None) -> HealthFinding:
    """Report that batchpay knows nothing about a database server's backups; to expect one here is a mistake."""
    text, details = "the database's own backups can't be seen from here", {"backed_up_at": None}
    if backup_every is not None:
        return HealthFinding("backup", f"{text}: leave --backup-every out", 6, details)
    return HealthFinding("backup", text, 0, details)


def retention(old: Sequence[OldBatch], details_days: int, *, unfinished: bool, now: datetime) -> HealthFinding:
    """Check whether names, details and messages are due to be purged; a month late, or half done, it needs a person."""
    if unfinished:
        how = f"batchpay ledger purge{'' if details_days else ' --older-than DAYS'} --reason TEXT"
        return HealthFinding("retention", f"a purge was started and not completed: {how}", 6)
    due = [one for one in old if one.stays is None]
    days = counted(details_days, "day")
    short = f"; payments may come back for {RETURNED_WITHIN_DAYS} days" if details_days < RETURNED_WITHIN_DAYS else ""
    if not due:
        text = f"no batch has names and details older than {days}{short}"
        return HealthFinding("retention", text, warns=bool(short))
    late = now - due[0].last_event_at - timedelta(days=details_days)
    number = counted(len(due), "batch has", "batches have")
    text = f"{number} names and details older than {days}: batchpay ledger purge --dry-run{short}"
    details = {"due": [one.batch for one in due], "late_days": late.days}
    return HealthFinding("retention", text, 6 if late > PURGE_LATE else 0, details, warns=bool(short))


def banking_time(begin: datetime, end: datetime) -> timedelta:
    """Return how much of a period falls on banking days, by the calendar in the time zone of its ends."""
    total = timedelta()
    while begin < end:
        midnight = (begin + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        if is_banking_day(begin.date()):
            total += min(midnight, end) - begin
        begin = midnight
    return total


def _batches(batches: Sequence[OpenBatch], now: datetime) -> dict[str, Any]:
    return {
        "batches": [
            {"batch": one.batch, "file": one.file, **totals_json(one.totals), "since": instant(one.since),
             "age_s": round((now - one.since).total_seconds()), "stopped": one.stopped}
            for one in batches
        ]
    }  # fmt: skip


def _named(batches: Sequence[OpenBatch]) -> str:
    more = f" and {len(batches) - 3} more" if len(batches) > 3 else ""
    return ", ".join(one.batch for one in batches[:3]) + more


def _commands(command: str, batches: Sequence[OpenBatch], options: str = "") -> str:
    """Write a command for each of the first batches: one with several names is none."""
    more = f"; and {len(batches) - 3} more" if len(batches) > 3 else ""
    return "; ".join(f"{command} {one.batch}{options}" for one in batches[:3]) + more


def _age_s(seconds: int) -> str:
    return _age(timedelta(seconds=seconds)) if seconds >= 120 else f"{seconds} s"


def _age(age: timedelta) -> str:
    """Write a length of time for people: 3 d 4 h, 26 h, 12 min."""
    minutes = max(0, int(age.total_seconds() // 60))
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    days, rest = divmod(hours, 24)
    return f"{hours} h" if hours < 72 else f"{days} d {rest} h" if rest else f"{days} d"
