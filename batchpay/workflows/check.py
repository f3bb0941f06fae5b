"""Checking without submitting: what a file contains, and what a submission of it would do. Nothing is recorded.

What a submission shares is here as well: which batch it continues, what would be sent now (so that a page, a plan and
what is sent can't differ), and the alarm that another ledger paid the file: results where ours would go, of a batch
that this ledger does not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from batchpay.approval.anomalies import Variance
from batchpay.approval.approvals import FileLimits
from batchpay.approval.cash_flow import Schedule, ToSendCount, grouped, with_cents
from batchpay.approval.proposal import Proposal, SendReason, ToSend, rules_json
from batchpay.approval.sign_off import sign_off_lines
from batchpay.errors import (
    FileRefused,
    LedgerMissing,
    LedgerNotUsable,
    SettingsNotUsable,
    WaitingForPerson,
    WrongUse,
)
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.intake.own_output import first_row
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import ledger_if_any
from batchpay.payment import Actor, Environment, State, Totals, added_up
from batchpay.settings import GatewaySettings, Settings
from batchpay.summary import Summary, note_if_outdated, summary_of_batch
from batchpay.text import row_count, totals_json
from batchpay.validation.check import valid_rows
from batchpay.validation.verdict import Verdict
from batchpay.workflows.day_limits import over_days
from batchpay.workflows.file_check import CheckContext, FileCheck, check_file, open_file
from batchpay.workflows.move_gateway import notes_on_gateway, refuse_other_gateway
from batchpay.workflows.policy import note_without_zone, of_maker, policy_in_force
from batchpay.workflows.requests import Decisions, FileRequest
from batchpay.workflows.sent_rows import masked_rows, pending_rows, released_rows, rows_to_send
from batchpay.workflows.series import require_in_turn
from batchpay.writing.atomic import FileIdentity, standing

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.approval.plan import Plan
    from batchpay.gateway.accounts import Preflight
    from batchpay.ledger.records import BatchSummary


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
    is_refused: bool = False
    """Whether the file exceeds a limit that nobody can lift, since no approvals are required."""
    not_used: str | None = None
    """What columns of the file say that nothing uses; among the notes as well."""
    compared: bool = False
    """Whether there were earlier payments to compare payees, accounts and amounts with."""
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

    @property
    def exit_codes(self) -> list[int]:
        """Return the exit code of the check, and that of a submission which would be refused."""
        codes = [self.summary.exit_code]
        if self.waits_for is not None:
            codes.append(WaitingForPerson.exit_code)
        if self.is_refused:
            codes.append(FileRefused.exit_code)
        if self.summary.outdated is not None:
            codes.append(LedgerNotUsable.exit_code)
        return codes

    def page(self) -> list[str]:
        """Return the sign-off page."""
        return sign_off_lines(self.proposal, self.schedule, self.verdict.counts, self.summary.seal)

    def as_json(self) -> dict[str, Any]:
        """Return the summary with every error found, as CONTRACT.md says, and what the file would move."""
        verdict = self.verdict
        return {
            **self.summary.as_json(),
            "errors": [failure.as_json() for failure in verdict.failures],
            "counts": verdict.counts,
            "warning_list": [failure.as_json() for failure in verdict.warning_failures],
            "warning_counts": verdict.warning_counts,
            "compared": self.compared,
            "variances": [dataclasses.asdict(found) for found in self.variances],
            "unreadable_amounts": verdict.unreadable_amounts,
            "over_limits": list(self.proposal.over_limits),
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
        request = request.on_day_of(ledger)
        context = CheckContext(settings, ledger, wants_schedule=True, sends=False)
        checked = check_file(open_file(request, ledger), request, context)
        preview = _preview(ledger, checked, settings, Decisions())
        if checked.has_days and (note := note_without_zone(ledger, settings, checked.source.name)) is not None:
            preview.summary.notes.append(note)
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
    take_rows: Callable[[Iterator[pl.DataFrame], str], object] | None = None,
    preflight: Preflight | None = None,
    insists: bool = False,
) -> Preview:
    """Do all that `submit` does before it registers: nothing is written to the ledger and no socket is opened.

    With a `preflight` the gateway is asked about the accounts, as in a submission; one that `insists` also tests the
    connection, and raises RunStopped if there is no answer. With a plan, the preview has one that `actor` prepared.
    `take_rows` gets every row that would be sent, masked (sent_rows.py), and the seal.
    `results` is where a submission would write its results: if results of a batch that the ledger does not know are
    already there, the file is refused here as well.
    """
    if settings.gateway.base_url:  # it is shown: one that has a password in it is refused
        check_origin(settings.gateway.base_url)
    if preflight is not None and insists:
        preflight.check_connection()
    with ledger_if_any(settings.ledger) as ledger:
        context = CheckContext(
            settings, ledger, preflight, decisions, wants_schedule=True, keeps_warnings=take_rows is not None
        )
        if ledger is not None and not decisions.paid_elsewhere_checked:
            refuse_other_environment(ledger, settings)
        request = request.on_day_of(ledger)
        checked = check_file(open_file(request, ledger), request, context)
        if insists and checked.accounts.problem is not None:
            raise checked.accounts.problem
        refuse_release_of_nothing(ledger, checked.known, decisions, checked.source.name)
        preview = _preview(ledger, checked, settings, decisions)
        if ledger is not None and preview.known is not None and settings.gateway.base_url:  # a check needs no gateway
            refuse_other_gateway(ledger, preview.known, settings)
        releases = decisions.release and checked.releasable.totals.rows > 0
        if ledger is not None and must_check_elsewhere(preview.known, decisions, releases=releases):
            refuse_paid_elsewhere(ledger, results, environment_of(settings.gateway))
        _note_if_outdated(preview.summary, ledger)
        preview.summary.notes += [*_note_on_set_aside(ledger, preview.known), *notes_on_gateway(ledger, settings)]
        if ledger is None:
            preview.summary.notes.append("there is no ledger yet: payments of earlier batches are not known")
        else:
            preview.summary.notes += policy_in_force(ledger, settings).notes
        if with_plan:
            if ledger is None:
                raise LedgerMissing("a plan belongs to a ledger, and there is none yet: batchpay ledger init")
            from batchpay.approval.plan import Plan  # few calls create one

            plan = Plan.make(preview.proposal, ledger, prepared_by=actor, created_at=datetime.now(UTC))
            preview = replace(preview, plan=plan)
        if (with_plan or policy_in_force(ledger, settings).approvals.asks) and preview.proposal.to_send.total.rows:
            missing = _approvals_missing(ledger, settings, preview, actor)
            preview = replace(preview, accounts_unasked=not checked.accounts.asked, approvals_missing=missing)
        to_send = rows_to_send(ledger, checked, decisions, preview.known)
        preview.requests.extend(_first_requests(to_send, settings.gateway, requests_max))
        if take_rows is not None:
            take_rows(masked_rows(ledger, checked, decisions, preview.known), preview.summary.seal or "")
    return preview


def _approvals_missing(ledger: Ledger | None, settings: Settings, preview: Preview, actor: Actor) -> int:
    """Count the approvals that what would be sent does not have: rows that are pending may have them."""
    to_send, known = preview.proposal.to_send, preview.known
    given = 0
    if ledger is not None and known is not None and not (to_send.new.rows or to_send.released.rows):
        given = ledger.approvers(known.batch)
    proposal, policy = preview.proposal, policy_in_force(ledger, settings).approvals
    adds, cents = to_send.new + to_send.released, {side: totals.cents for side, totals in to_send.by_direction.items()}
    of = of_maker(ledger, policy, actor, proposal.environment, cents, adds.cents)
    return max(0, policy.needed(proposal.batch_total.cents, over_limit=bool(proposal.over_limits), of_maker=of) - given)


def refuse_release_of_nothing(
    ledger: Ledger | None, batch: BatchSummary | None, decisions: Decisions, name: str
) -> None:
    """Raise WrongUse for a release of a content that nobody has submitted, of a purged batch, or of other rows.

    `name` is the file's, `batch` what is known of its content.
    """
    if not decisions.release:
        return
    if ledger is None or batch is None:
        raise WrongUse(f"{name}: this content has not been submitted yet, so there is nothing to release")
    if batch.purged_at is not None:
        raise WrongUse(
            f"{name}: batch {batch.batch} was purged, so none of its rows can be released; submit the rows in a file "
            "of their own"
        )
    if others := set(decisions.rows or ()).difference(row.row for row in ledger.rejected(batch.batch)):
        raise WrongUse(
            f"{name}: row {min(others)} is not among the rejected rows of batch {batch.batch} (column _row of its "
            "rejects), so nothing was released"
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
    from batchpay.workflows.held_back import rows_set_aside  # a check without a ledger does not need it

    if not (rows := rows_set_aside(ledger, batch)):
        return []
    return [
        f"the answers to {row_count(rows)} of batch {batch.batch} were set aside and are not recorded yet: the run "
        "records them first and sends rows that they prove unpaid, which are not counted here"
    ]


def _preview(ledger: Ledger | None, checked: FileCheck, settings: Settings, decisions: Decisions) -> Preview:
    summary = checked.summary()
    batch = None if ledger is None else batch_to_continue(ledger, checked, settings, decisions)
    summary.batch = batch.batch if batch else None
    summary.environment = environment_of(settings.gateway)
    proposal, schedule = propose(ledger, checked, settings, decisions, batch)
    summary.seal = proposal.seal(ledger) if ledger else None
    is_refused = bool(proposal.over_limits) and not policy_in_force(ledger, settings).approvals.asks
    what = "a submission would be refused" if is_refused else "above a limit"
    summary.notes += [f"{what}: {told}" for told in proposal.over_limits]
    summary.held_back, summary.released = proposal.to_send.held_back, proposal.to_send.released
    preview = Preview(summary, checked.verdict, proposal, schedule, checked.variances, batch)
    registers = batch is None or decisions.release
    lost = ledger.lost_window() if ledger is not None and registers else None
    waits = str(lost) if lost else None
    if ledger is not None and batch is None:
        try:
            environment = environment_of(settings.gateway)
            require_in_turn(ledger, summary.file, checked.series, checked.digest, environment, gap=decisions.gap)
        except WaitingForPerson as error:
            waits = waits or str(error)
    return replace(
        preview,
        releasable=checked.releasable.totals,
        line_word=checked.source.line_word,
        waits_for=waits,
        is_refused=is_refused,
        compared=checked.anomalies.compared,
        not_used=checked.not_used,
        unusual=_unusual_lines(checked, settings),
    )


def _unusual_lines(checked: FileCheck, settings: Settings) -> list[str]:
    """Describe what is unusual about payees, accounts and amounts, by earlier payments."""
    if checked.nothing_to_send:
        return []
    return checked.anomalies.lines(checked.place) if settings.policy.variance else []


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


def refuse_paid_elsewhere(ledger: Ledger, results: Path | None, environment: Environment) -> None:
    """Raise FileRefused if results are there that name, for this environment, a batch that this ledger does not know.

    Results of an earlier version name no environment: they count for each. Those with a number count as well: results
    of a rehearsal, or last month's of the same name, may have the name without one.
    """
    known: set[str] | None = None
    for path in standing(results) if results is not None else ():
        found = first_row(path, saved_anew=True) or {}
        batch = found.get("batch")
        if not batch or (found.get("environment") or environment) != environment:
            continue
        known = {one.batch for one in ledger.batches()} if known is None else known
        if batch not in known:
            raise FileRefused(
                f"{path} has the results of batch {batch}, which this ledger does not know: another ledger may have "
                "paid this file, or this one before it was restored from a backup. Check there first; if no row of it "
                "was paid, submit with --paid-elsewhere-checked --reason TEXT"
            )


def must_check_elsewhere(known: BatchSummary | None, decisions: Decisions, *, releases: bool) -> bool:
    """Return whether a submission checks who else may have paid: not if nothing is left to send or a person checked.

    A batch that this ledger knows is checked as well: another ledger may have paid it since this one was stopped.
    """
    if decisions.paid_elsewhere_checked:
        return False
    if known is None:
        return True
    waits = known.by_state[State.PENDING].rows or releases
    return bool(waits) and "paid_elsewhere_checked" not in known.options


def refuse_moved(path: str, read: FileIdentity | None) -> None:
    """Raise FileRefused if the file that was read is no longer at its path.

    A run with another ledger may have paid and archived it meanwhile, and moved its results too.
    """
    if read is None:  # a stream
        return
    try:
        found = Path(path).stat()
    except OSError:
        found = None
    if found is None or (found.st_dev, found.st_ino) != (read.device, read.inode):
        raise FileRefused(
            f"{path} was moved or replaced while it was read: another run may have paid and archived it. If not, run "
            "the command again"
        )


def refuse_other_environment(ledger: Ledger, settings: Settings) -> None:
    """Raise SettingsNotUsable if the latest batch for this same gateway belongs to the other environment.

    What was sent there as test is not a duplicate for live, nor the reverse: a mistyped `gateway.environment` would pay
    everything once more.
    """
    if not settings.gateway.base_url:  # checking a file needs no gateway
        return
    named, environment = check_origin(settings.gateway.base_url), environment_of(settings.gateway)
    others = [origin for other in Environment if other is not environment for origin in ledger.origins(other)]
    if named not in map(check_origin, others):
        return
    latest = next(batch for batch in ledger.batches() if check_origin(batch.origin) == named)
    if latest.environment is not environment:
        raise SettingsNotUsable(
            f"batch {latest.batch} was for {named} as a {latest.environment} gateway, and is now set to be a "
            f"{environment} one (gateway.environment, BATCHPAY_ENVIRONMENT): what was paid there would be paid again. "
            "If the gateway has changed and nothing in this file was paid: submit with --paid-elsewhere-checked "
            "--reason TEXT"
        )


def propose(
    ledger: Ledger | None,
    checked: FileCheck,
    settings: Settings,
    decisions: Decisions,
    batch: BatchSummary | None,
) -> tuple[Proposal, Schedule]:
    """Count what would be sent now, and when it would move; `batch` is the one that would be continued, or None.

    Of a batch, a row is rejected only if the ledger has it so: today's rules may fail one that was paid.
    """
    to_send, schedule = _to_send(ledger, checked, decisions, batch)
    summary = checked.summary()
    adds, verdict = to_send.new + to_send.released, checked.verdict
    batch_total = adds + (batch.sendable if batch else Totals())
    over_limits: tuple[str, ...] = ()
    if batch is None or adds.rows:
        limits = FileLimits.from_settings(settings.limits)
        over_limits = limits.exceeded(adds, verdict.rows, verdict.rejected.rows - checked.no_mistakes)
        if limits.of_day.are_set:
            released = None if batch is None or ledger is None else released_rows(ledger, batch, decisions)
            over_limits += over_days(ledger, checked, settings, limits.of_day, released)
    proposal = Proposal(
        digest=checked.digest,
        file=summary.file,
        sheet=checked.source.sheet,
        column_map=checked.source.column_map,
        origin=settings.gateway.base_url,
        environment=str(environment_of(settings.gateway)),
        total=summary.in_file,
        left_out=sum(summary.left_out.values(), Totals()),
        currencies=summary.currencies,
        valid=batch_total if batch else summary.valid,
        rejected=batch.by_state[State.REJECTED] - to_send.released if batch else summary.of(State.REJECTED),
        unreadable_amounts=checked.verdict.unreadable_amounts,
        to_send=to_send,
        warnings=dict(checked.verdict.warning_counts),
        accepted_suggestions=dict(checked.verdict.accepted),
        notes=tuple(checked.notes()),
        not_checked=_not_checked(checked, settings) if to_send.total.rows else (),
        rules=rules_json(checked.request.rules),
        again=decisions.again,
        release=decisions.release,
        reason=decisions.reason,
        changed_accounts=tuple(checked.anomalies.lines_of("changed_account", checked.place)),
        over_limits=over_limits,
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
    checked: FileCheck,
    decisions: Decisions,
    batch: BatchSummary | None,
) -> tuple[ToSend, Schedule]:
    if ledger is None or batch is None:
        return checked.valid_to_send()
    counted, schedule = ToSendCount(), Schedule(checked.request.rules.as_of)
    pending, _ = pending_rows(ledger, batch)
    due, due_amounts = pending_rows(ledger, batch, due=batch.today)
    released = released_rows(ledger, batch, decisions)
    for frame in map(with_cents, valid_rows(checked.source, checked.request.rules, checked.verdict)):
        for origin, rows in ((SendReason.PENDING, pending), (SendReason.RELEASED, released)):
            some = frame.filter(pl.col("_row").is_in(rows.implode()))
            groups = grouped(some)
            schedule.add(groups)
            counted.add(origin, groups)
            counted.note(origin, some["_row"])
    held_back = due_amounts.filter(checked.verdict.rejected_mask(due))
    counted.hold_back(Totals(len(held_back), sum(held_back.to_list())))
    return counted.finish(), schedule
