"""The metrics file for the textfile collector of Prometheus' node_exporter: what the ledger holds, what a call did.

It is written whenever a call ends, even one that could do nothing: yesterday's good figures are never left in place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from types import MappingProxyType

from batchpay.operations.health import LedgerState
from batchpay.payment import RunWork, State
from batchpay.summary import Summary
from batchpay.text import printable
from batchpay.writing.atomic import atomic_writer

_READABLE = 0o644  # node_exporter runs as another user; the file holds counts and names of files and batches
_COMPLETED = "batchpay_last_completed_timestamp_seconds"
_COMPLETED_LINE = re.compile(rf"^{_COMPLETED} ([0-9]+\.[0-9]+)$", re.MULTILINE)
_EARLIER_BYTES_MAX = 1 << 20


def write_metrics(
    path: str | Path,
    summaries: Sequence[Summary],
    exit_code: int,
    started_at: datetime,
    finished_at: datetime,
    state: LedgerState | None = None,
    *,
    completed: bool,
    ended: Mapping[str, int] = MappingProxyType({}),
    inbox: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Write the metrics of one call, atomically, readable by all; raises NotUsable.

    `state` is what the ledger holds after the call; None means that it could not be read. `ended` has the exit codes of
    files without a summary: refused, or their check failed; `inbox` counts files by state. The time of the last call
    that completed all its work is carried over from the previous file, so that an alert can use its age.
    """
    completed_at_s = finished_at.timestamp() if completed else _completed_before(Path(path))
    lines = (
        *_ledger_lines(state),
        *_metric("inbox_files", "Files in the inbox.", [(f'state="{name}"', count) for name, count in inbox.items()]),
        *_lines(summaries, ended, exit_code, started_at, finished_at, completed_at_s),
    )
    text = "".join(lines)
    with atomic_writer(path) as file:
        os.fchmod(file.fileno(), _READABLE)
        file.write(text.encode("utf-8", "backslashreplace"))


def _ledger_lines(state: LedgerState | None) -> Iterable[str]:
    """What the whole ledger holds for the call's environment; without a ledger, only that there is none to read."""
    yield from _metric("ledger_readable", "Whether the ledger could be read after the call.", [("", int(bool(state)))])
    if state is None:
        return
    where = f'environment="{state.environment}"'
    by_state = [(f'{where},state="{name}"', totals) for name, totals in state.by_state.items()]
    yield from _metric("ledger_rows", "Rows of all batches by state.", [(key, t.rows) for key, t in by_state])
    yield from _metric("ledger_amount_cents", "Cents of these rows.", [(key, t.cents) for key, t in by_state])
    oldest = state.oldest_doubt.timestamp() if state.oldest_doubt else 0.0
    yield from _metric(
        "oldest_doubt_timestamp_seconds", "When the oldest doubt was sent; 0 is none.", [(where, oldest)]
    )
    yield from _metric("waiting_batches", "Batches with rows that wait to be sent.", [(where, len(state.waiting))])
    since = state.waiting[0].since.timestamp() if state.waiting else 0.0
    yield from _metric("oldest_waiting_timestamp_seconds", "Since when the oldest waits; 0 is none.", [(where, since)])
    registered = state.last_registered.timestamp() if state.last_registered else 0.0
    words = "When a file was last registered; 0 is never."
    yield from _metric("last_registered_timestamp_seconds", words, [(where, registered)])
    returned = [(f'{where},direction="{name}"', totals) for name, totals in sorted(state.returned.items())]
    yield from _metric("returned_rows", "Accepted rows that came back.", [(key, t.rows) for key, t in returned])
    yield from _metric("returned_cents", "Cents of these rows.", [(key, t.cents) for key, t in returned])
    rates = [(f'{where},kind="{name}"', percent) for name, percent in state.rates.percent.items()]
    yield from _metric("return_rate", "Percent of the debits of 60 days that came back.", rates)
    rows = sum(totals.rows for totals in state.scheduled.values())
    cents = [(f'{where},direction="{name}"', totals.cents) for name, totals in sorted(state.scheduled.items())]
    next_day = datetime.combine(state.next_pay_on, time(), UTC).timestamp() if state.next_pay_on else 0.0
    yield from _metric("scheduled_rows", "Rows of all batches whose day (payOn) has not come.", [(where, rows)])
    yield from _metric("scheduled_amount_cents", "Cents of these rows.", cents)
    yield from _metric("next_pay_on_timestamp_seconds", "The first of their days; 0 is none.", [(where, next_day)])


def _lines(
    summaries: Sequence[Summary],
    ended: Mapping[str, int],
    exit_code: int,
    started_at: datetime,
    finished_at: datetime,
    completed_at_s: float,
) -> Iterable[str]:
    words = "End of the last call that did all its work; 0 is never."
    yield from _metric(_COMPLETED.removeprefix("batchpay_"), words, [("", completed_at_s)])  # before many files
    # a duplicate spoils the whole file; the same batch under two names in one call stays two lines
    named = list({_place(summary.file, summary.batch or ""): summary for summary in summaries}.items())
    by_state = [(f'{labels},state="{state}"', summary.of(state)) for labels, summary in named for state in State]
    by_direction = [
        (f'{labels},direction="{direction}"', totals)
        for labels, summary in named
        for direction, totals in sorted(summary.by_direction.items())
    ]
    yield from _metric("rows", "Rows of the file or batch by state.", [(key, t.rows) for key, t in by_state])
    yield from _metric("amount_cents", "Cents of these rows by state.", [(key, t.cents) for key, t in by_state])
    yield from _metric("valid_rows", "Rows that passed the rules.", [(key, t.rows) for key, t in by_direction])
    yield from _metric("valid_amount_cents", "Cents of these rows.", [(key, t.cents) for key, t in by_direction])
    yield from _metric("warnings", "Warnings of the check.", [(labels, one.warnings) for labels, one in named])
    yield from _metric(
        "stopped", "Whether the run ended before its work was done.", [(key, int(bool(s.stopped))) for key, s in named]
    )
    yield from _metric(
        "gateway_rate_found",
        "Requests a second that the gateway took, where its limit was met.",
        [(labels, one.rate_found) for labels, one in named if one.rate_found is not None],
    )
    work = sum((one.work for one in summaries), RunWork())
    did = [(f'state="{state}"', work.of(state)) for state in RunWork.STATES]
    yield from _metric("call_rows", "Rows that this call sent, by state.", [(key, t.rows) for key, t in did])
    yield from _metric("call_amount_cents", "Cents of these rows.", [(key, t.cents) for key, t in did])
    seconds = (finished_at - started_at).total_seconds()
    yield from _metric("call_seconds", "How long this call took.", [("", seconds)])
    yield from _metric("call_refusals", "Requests of this call refused as too many.", [("", work.refusals)])
    codes = {key: one.exit_code for key, one in named} | {_place(file, ""): code for file, code in ended.items()}
    yield from _metric("file_exit_code", "Exit code of each file.", list(codes.items()))
    yield from _metric("exit_code", "Exit code of the whole call.", [("", exit_code)])
    yield from _metric("start_timestamp_seconds", "When the call began.", [("", started_at.timestamp())])
    yield from _metric("end_timestamp_seconds", "When the call ended.", [("", finished_at.timestamp())])


def _metric(name: str, help_text: str, samples: Sequence[tuple[str, int | float]]) -> Iterable[str]:
    """Write one metric; one without samples is left out, since a type alone says nothing."""
    if not samples:
        return
    yield f"# HELP batchpay_{name} {help_text}\n# TYPE batchpay_{name} gauge\n"
    for labels, value in samples:
        number = f"{value:.3f}" if isinstance(value, float) else str(value)
        yield f"batchpay_{name}{{{labels}}} {number}\n" if labels else f"batchpay_{name} {number}\n"


def _place(file: str, batch: str) -> str:
    return f'file="{_escaped(file)}",batch="{_escaped(batch)}"'


def _escaped(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")


def _completed_before(path: Path) -> float:
    try:
        with path.open("r", encoding="utf-8", errors="replace") as file:
            found = _COMPLETED_LINE.search(file.read(_EARLIER_BYTES_MAX))
    except OSError:
        return 0.0
    return float(found[1]) if found else 0.0
