"""Checking without submitting: what a file contains, and what a submission of it would do. Nothing is recorded.

Two checks that a submission shares are here as well: which batch it continues, and whether there is anything to
release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpay.approval.anomalies import CODES, Payment, Variance, payments_named
from batchpay.approval.approvals import Policy
from batchpay.approval.cash_flow import Schedule, with_cents
from batchpay.approval.proposal import Proposal
from batchpay.approval.sign_off import sign_off_lines
from batchpay.errors import LedgerMissing, WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import ledger_if_any
from batchpay.payment import Actor, State, Totals, added_up
from batchpay.settings import GatewaySettings, Settings
from batchpay.summary import Summary, note_if_outdated, summary_of_batch
from batchpay.text import row_count, totals_json
from batchpay.validation.check import valid_rows
from batchpay.validation.verdict import Failure, Verdict
from batchpay.workflows.checked_file import FileCheck
from batchpay.workflows.decisions import Decisions
from batchpay.workflows.file_check import CheckContext, check_file, open_file
from batchpay.workflows.file_request import FileRequest
from batchpay.workflows.move_gateway import notes_on_gateway, refuse_other_gateway
from batchpay.workflows.paid_elsewhere import must_check_elsewhere, refuse_other_environment, refuse_paid_elsewhere
from batchpay.workflows.proposal import propose, rows_to_send

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    import polars as pl

    from batchpay.approval.plan import Plan
    from batchpay.gateway.accounts import Preflight
    from batchpay.ledger.records import BatchSummary

_PRINTED_MAX = 20


@dataclass(frozen=True, slots=True)
class Preview:
    """What a file contains and what a submission of it would do."""

    summary: Summary
    verdict: Verdict
    proposal: Proposal
    schedule: Schedule
    variances: list[Variance] = field(default_factory=list)
    known: BatchSummary | None = None
    """The batch that a submission would continue, or None."""
    requests: list[str] = field(default_factory=list)
    releasable: Totals = Totals()
    """Rows that an earlier submission rejected and that are valid now: what a release adds."""
    waits_for: str | None = None
    """What a person must say before a submission would register anything, or None."""
    line_word: str = "line"
    """The word that tells a person where a row is."""
    compared: bool = False
    """Whether there were earlier payments to compare payees, accounts and amounts with."""
    largest: list[Payment] = field(default_factory=list)
    """The largest payments of a new content, the largest first; only if requested."""
    plan: Plan | None = None
    """The plan to approve, if one was requested."""
    accounts_unasked: bool = False
    """Whether rows are to be approved though the gateway was not asked, or did not say, if it takes their accounts."""
    approvals_missing: int = 0
    """How many people must approve before a submission without a plan would send anything."""
    unusual: list[str] = field(default_factory=list)
    """Lines on what is unusual by the ledger's history, or that nothing is; none if the check is off."""

    def as_the_ledger_has_it(self) -> Preview:
        """Return the same with the states that the rows of a known batch have, and those to be released as pending.

        The check alone shows every valid row as pending, even those that were paid long ago.
        """
        if self.known is None:
            return self
        to_send, batch = self.proposal.to_send, summary_of_batch(self.known)
        states, released = dict(batch.by_state), to_send.released
        states[State.PENDING] = batch.of(State.PENDING) + released
        rejected = batch.of(State.REJECTED)
        states[State.REJECTED] = rejected - released
        sides = to_send.released_by_direction
        pending = added_up([batch.apart.get(State.PENDING, {}), sides])
        summary = replace(
            self.summary,
            total=batch.total,
            by_state=states,
            by_direction=added_up([batch.by_direction, sides]),
            apart={**batch.apart, State.PENDING: pending},
        )
        return replace(self, summary=summary)

    def page(self) -> list[str]:
        """Return the sign-off page."""
        return sign_off_lines(self.proposal, self.schedule, self.verdict.counts, self.summary.seal)

    def as_json(self) -> dict[str, Any]:
        """Return the summary with every error found, as CONTRACT.md says, and what the file would move."""
        verdict = self.verdict
        return {
            **self.summary.as_json(),
            "errors": [_failure_json(failure) for failure in verdict.failures],
            "counts": verdict.counts,
            "warning_list": [_failure_json(failure) for failure in verdict.warning_failures],
            "warning_counts": verdict.warning_counts,
            "compared": self.compared,
            "variances": [dataclasses.asdict(found) for found in self.variances],
            "unreadable_amounts": verdict.unreadable_amounts,
            "repairs": verdict.repairs,
            "accepted_suggestions": verdict.accepted,
            "to_send": self.proposal.to_send.as_json(),
            "gateways": [
                {
                    "gatewayId": found.gateway_id,
                    "debit": totals_json(found.flow.debit),
                    "credit": totals_json(found.flow.credit),
                }
                for found in self.schedule.by_gateway()
            ],
            "schedule": self.schedule.as_json(),
        }

    def write_page(self, path: Path) -> None:
        """Write the HTML page about the check; raises NotUsable."""
        from batchpay.reports.page import write_check_page

        write_check_page(path, self.summary, self.verdict, self.line_word)


def validate(request: FileRequest, settings: Settings) -> Preview:
    """Check a file; offline. Writes the rejects file if one is requested, and nothing to the ledger.

    Earlier payments are looked up in the ledger, if there is one, so that a check finds what a submission would, and
    what a submission would send is what the ledger does not have yet.
    """
    with ledger_if_any(settings.ledger) as ledger:
        checked = check_file(open_file(request), request, CheckContext(settings, ledger, wants_schedule=True))
        preview = _preview(ledger, request, checked, settings, Decisions())
        _note_if_outdated(preview.summary, ledger)
        return preview


def dry_run(
    request: FileRequest,
    settings: Settings,
    actor: Actor,
    decisions: Decisions,
    *,
    requests_max: int,
    results: Path | None,
    with_plan: bool = False,
    largest_max: int = 0,
    preflight: Preflight | None = None,
    insists: bool = False,
) -> Preview:
    """Do all that `submit` does before it registers: nothing is written to the ledger and no socket is opened.

    With a `preflight` the gateway is asked about the accounts, as in a submission; one that `insists` also tests the
    connection, and raises RunStopped if there is no answer. With a plan, the preview has one that `actor` prepared.
    `results` is where a submission would write its results: if results of a batch that the ledger does not know are
    already there, the file is refused here as well.
    """
    if preflight is not None and insists:
        preflight.check_connection()
    with ledger_if_any(settings.ledger) as ledger:
        context = CheckContext(settings, ledger, preflight, decisions, wants_schedule=True)
        if ledger is not None and not decisions.paid_elsewhere_checked:
            refuse_other_environment(ledger, settings)
        checked = check_file(open_file(request), request, context)
        if insists and checked.accounts.problem is not None:
            raise checked.accounts.problem
        refuse_release_of_nothing(checked, decisions)
        preview = _preview(ledger, request, checked, settings, decisions)
        if ledger is not None and preview.known is not None and settings.gateway.base_url:  # a check needs no gateway
            refuse_other_gateway(ledger, preview.known, settings)
        releases = decisions.release and checked.releasable.rows > 0
        if ledger is not None and must_check_elsewhere(preview.known, decisions, releases=releases):
            refuse_paid_elsewhere(ledger, results, environment_of(settings.gateway))
        _note_if_outdated(preview.summary, ledger)
        preview.summary.notes += [*_note_on_set_aside(ledger, preview.known), *notes_on_gateway(ledger, settings)]
        if ledger is None:
            preview.summary.notes.append("there is no ledger yet: payments of earlier batches are not known")
        if with_plan:
            if ledger is None:
                raise LedgerMissing("a plan belongs to a ledger, and there is none yet: batchpay ledger init")
            from batchpay.approval.plan import Plan  # few calls create one

            plan = Plan.make(preview.proposal, ledger, prepared_by=actor, created_at=datetime.now(UTC))
            preview = replace(preview, plan=plan)
        if (with_plan or Policy.from_settings(settings.policy).asks) and preview.proposal.to_send.total.rows:
            missing = _approvals_missing(ledger, settings, preview)
            preview = replace(preview, accounts_unasked=not checked.accounts.asked, approvals_missing=missing)
        to_send = rows_to_send(ledger, request, checked, decisions, preview.known)
        preview.requests.extend(_first_requests(to_send, settings.gateway, requests_max))
    if largest_max and preview.known is None:
        preview.largest.extend(_largest(request, checked, largest_max))
    return preview


def _approvals_missing(ledger: Ledger | None, settings: Settings, preview: Preview) -> int:
    """Count the approvals that what would be sent does not have: rows that are pending may have them."""
    to_send, known = preview.proposal.to_send, preview.known
    given = 0
    if ledger is not None and known is not None and not (to_send.new.rows or to_send.released.rows):
        given = ledger.approvers(known.batch)
    return max(0, Policy.from_settings(settings.policy).needed(preview.proposal.batch_total.cents) - given)


def refuse_release_of_nothing(checked: FileCheck, decisions: Decisions) -> None:
    """Refuse to release rows of a content that nobody has submitted yet, or of a batch that was purged."""
    if decisions.release and checked.known is None:
        raise WrongUse(
            f"{checked.source.name}: this content has not been submitted yet, so there is nothing to release"
        )
    if decisions.release and checked.known is not None and checked.known.purged_at is not None:
        raise WrongUse(
            f"{checked.source.name}: batch {checked.known.batch} was purged, so none of its rows can be released; "
            "submit the rows in a file of their own"
        )


def batch_to_continue(
    ledger: Ledger, checked: FileCheck, settings: Settings, decisions: Decisions
) -> BatchSummary | None:
    """Find the batch that a submission would continue, as it is now; None if it would register a new one.

    One reason pays once more, however often the command is run.
    """
    find = partial(ledger.find_digest, checked.digest, environment_of(settings.gateway))
    known = find()
    if known is None or not decisions.again:
        return known
    if (made := find(decisions.reason)) is not None:
        return made
    unsettled = [state for state in (State.PENDING, State.SENDING, State.IN_DOUBT) if known.by_state[state].rows]
    if unsettled:
        states = " and ".join(state.words for state in unsettled)
        raise WrongUse(f"batch {known.batch} still has rows {states}: settle it before paying it again")
    return None


def _note_if_outdated(summary: Summary, ledger: Ledger | None) -> None:
    """Put first that what the ledger says of earlier payments may not be the latest: a run would be refused."""
    if ledger is not None and (note := note_if_outdated(ledger.outdated)) is not None:
        summary.outdated = note
        summary.notes.insert(0, note)


def _note_on_set_aside(ledger: Ledger | None, batch: BatchSummary | None) -> list[str]:
    """Say that a submission may send more than is counted here: rows of which an answer says that it wasn't applied."""
    if ledger is None or batch is None:
        return []
    from batchpay.workflows.still_due import rows_set_aside  # a check without a ledger does not need it

    if not (rows := rows_set_aside(ledger, batch)):
        return []
    return [
        f"the answers to {row_count(rows)} of batch {batch.batch} were set aside and are not recorded yet: the run "
        "records them first and sends rows that they prove unpaid, which are not counted here"
    ]


def _preview(
    ledger: Ledger | None, request: FileRequest, checked: FileCheck, settings: Settings, decisions: Decisions
) -> Preview:
    summary = checked.summary(request)
    batch = None if ledger is None else batch_to_continue(ledger, checked, settings, decisions)
    summary.batch = batch.batch if batch else None
    summary.environment = environment_of(settings.gateway)
    proposal, schedule = propose(ledger, request, checked, settings, decisions, batch)
    summary.seal = proposal.seal(ledger) if ledger else None
    summary.held_back, summary.released = proposal.to_send.held_back, proposal.to_send.released
    preview = Preview(summary, checked.verdict, proposal, schedule, checked.variances, batch)
    registers = batch is None or decisions.release
    lost = ledger.lost_window() if ledger is not None and registers else None
    return replace(
        preview,
        releasable=checked.releasable,
        line_word=checked.source.line_word,
        waits_for=str(lost) if lost else None,
        compared=checked.anomalies.compared,
        unusual=_unusual_lines(checked, settings),
    )


def _unusual_lines(checked: FileCheck, settings: Settings) -> list[str]:
    """Describe what is unusual by earlier payments: bills that were paid under another name first, then payees."""
    if checked.nothing_to_send:
        return []
    others = [found for found in checked.variances if found.code not in CODES]
    lines = [
        f"{checked.place(found.row)}: {found.column}: {found.code}: {found.message}" for found in others[:_PRINTED_MAX]
    ]
    if len(others) > _PRINTED_MAX:
        lines.append("and more warnings of that kind: their counts are above, --json lists the first of them")
    return lines + (checked.anomalies.lines(checked.place) if settings.policy.variance else [])


def _largest(request: FileRequest, checked: FileCheck, count: int) -> list[Payment]:
    """Return the largest of the rows that passed, with a masked account; equal amounts in file order."""
    kept: list[Payment] = []
    for rows in map(with_cents, valid_rows(checked.source, request.rules, checked.verdict)):
        largest = rows.sort("_cents", descending=True, maintain_order=True).head(count)
        kept += payments_named(largest, largest["_row"].to_list()).values()
        kept = sorted(kept, key=lambda one: -one.cents)[:count]
    return kept


def _failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "row": failure.row,
        "line": failure.line,
        "column": failure.column,
        "code": failure.code,
        "message": failure.message,
        "suggestion": failure.suggestion,
    }


def _first_requests(to_send: Iterator[pl.DataFrame], settings: GatewaySettings, count: int) -> list[str]:
    """Return the bodies of the first rows that would be sent, masked."""
    if not count:
        return []
    from batchpay.registration.request_body import request_form, show_requests

    form = request_form(settings)
    bodies: list[str] = []
    for rows in to_send:
        bodies += show_requests(rows.head(count - len(bodies)), form)
        if len(bodies) >= count:
            break
    return bodies
