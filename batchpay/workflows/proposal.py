"""What a submission of a checked file would do now.

Dry run, plan and submission all use this, so that a page, a plan and what is sent can't differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.cash_flow import Schedule, grouped, with_cents
from batchpay.approval.proposal import Proposal, rules_json
from batchpay.approval.to_send import Origin, ToSend
from batchpay.approval.to_send_count import ToSendCount
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.payment import State, Totals
from batchpay.settings import Settings
from batchpay.validation.check import valid_rows
from batchpay.workflows.checked_file import FileCheck
from batchpay.workflows.decisions import Decisions
from batchpay.workflows.file_request import FileRequest
from batchpay.workflows.rejected_earlier import RejectedEarlier

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


def propose(
    ledger: Ledger | None,
    request: FileRequest,
    checked: FileCheck,
    settings: Settings,
    decisions: Decisions,
    batch: BatchSummary | None,
) -> tuple[Proposal, Schedule]:
    """Count what would be sent now, and when it would move; `batch` is the one that would be continued, or None.

    Of a batch, a row is rejected only if the ledger has it so: today's rules may fail one that was paid.
    """
    to_send, schedule = _to_send(ledger, request, checked, decisions, batch)
    summary = checked.summary(request)
    batch_total = to_send.new + to_send.released + (batch.sendable if batch else Totals())
    proposal = Proposal(
        digest=checked.digest,
        file=summary.file,
        sheet=checked.source.sheet,
        column_map=checked.source.column_map,
        origin=settings.gateway.base_url,
        environment=str(environment_of(settings.gateway)),
        total=summary.total,
        valid=batch_total if batch else summary.valid,
        rejected=batch.by_state[State.REJECTED] - to_send.released if batch else summary.of(State.REJECTED),
        unreadable_amounts=checked.verdict.unreadable_amounts,
        to_send=to_send,
        warnings=dict(checked.verdict.warning_counts),
        accepted_suggestions=dict(checked.verdict.accepted),
        notes=tuple(checked.notes()),
        not_checked=_not_checked(checked, settings) if to_send.total.rows else (),
        rules=rules_json(request.rules),
        again=decisions.again,
        release=decisions.release,
        reason=decisions.reason,
        changed_accounts=tuple(checked.anomalies.lines_of("changed_account", checked.place)),
        batch_total=batch_total,
    )
    return proposal, schedule


def _not_checked(checked: FileCheck, settings: Settings) -> tuple[str, ...]:
    """Name what a person might take for checked because no warning is about it."""
    found = []
    if not settings.policy.variance:
        found.append("payees, accounts and amounts: policy.variance is off")
    elif not checked.anomalies.compared:
        found.append("payees, accounts and amounts: there are no earlier payments to compare them with")
    if not checked.accounts.asked:
        found.append("gateway accounts: the gateway was not asked about them")
    return tuple(found)


def _to_send(
    ledger: Ledger | None,
    request: FileRequest,
    checked: FileCheck,
    decisions: Decisions,
    batch: BatchSummary | None,
) -> tuple[ToSend, Schedule]:
    if ledger is None or batch is None:
        return checked.valid_to_send()
    counted, schedule = ToSendCount(), Schedule(request.rules.as_of)
    pending, amounts = _pending(ledger, batch)
    released = _released(ledger, batch, decisions)
    for frame in map(with_cents, valid_rows(checked.source, request.rules, checked.verdict)):
        for origin, rows in ((Origin.PENDING, pending), (Origin.RELEASED, released)):
            some = frame.filter(pl.col("_row").is_in(rows.implode()))
            groups = grouped(some)
            schedule.add(groups)
            counted.add(origin, groups)
            counted.note(origin, some["_row"])
    held_back = amounts.filter(checked.verdict.rejected_mask(pending))
    counted.hold_back(Totals(len(held_back), sum(held_back.to_list())))
    return counted.finish(), schedule


def rows_to_send(
    ledger: Ledger | None,
    request: FileRequest,
    checked: FileCheck,
    decisions: Decisions,
    batch: BatchSummary | None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows that would be sent now, in file order; arguments as for `propose`."""
    frames = valid_rows(checked.source, request.rules, checked.verdict)
    if ledger is None or batch is None:
        yield from frames
        return
    pending, _ = _pending(ledger, batch)
    waiting = pl.concat([pending, _released(ledger, batch, decisions)])
    for frame in frames:
        some = frame.filter(pl.col("_row").is_in(waiting.implode()))
        if some.height:
            yield some


def _released(ledger: Ledger, batch: BatchSummary, decisions: Decisions) -> pl.Series:
    """Return the numbers of the rejected rows that are to be released."""
    return RejectedEarlier(ledger, batch).rows if decisions.release else pl.Series([], dtype=pl.UInt32)


def _pending(ledger: Ledger, batch: BatchSummary) -> tuple[pl.Series, pl.Series]:
    """Return the numbers and cents of the pending rows."""
    rows: list[int] = []
    amounts: list[int] = []
    for columns in ledger.row_columns(batch.batch, [State.PENDING]):
        rows += columns.rows
        amounts += columns.amounts_cents
    return pl.Series(rows, dtype=pl.UInt32), pl.Series(amounts, dtype=pl.Int64)
