"""The order of the steps: check, register, run. Checking is validation's, sending is sending's.

Whatever ends a step early leaves the ledger in a state from which the same command continues. Nothing is registered
before the whole file was checked, and nothing is sent before the whole batch is registered. A payment file leaves the
inbox when nothing of it waits to be sent or written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from batchpay.approval.approvals import FileLimits
from batchpay.approval.plan import Plan, PlanText
from batchpay.approval.proposal import Proposal
from batchpay.errors import BatchpayError, FileOvertaken, FileRefused, NotUsable, WaitingForPerson
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.origin import environment_of, is_rehearsal
from batchpay.intake.source import Source
from batchpay.intake.streams import ahead
from batchpay.ledger.columns import PaymentColumns
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.days import DayCheck
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, NewBatch, SignOff
from batchpay.operations.archive import archive
from batchpay.operations.logs import is_logging, log
from batchpay.operations.notify import Notice, notify
from batchpay.payment import Actor, State, Totals
from batchpay.registration.digests import payment_columns, rejected_columns
from batchpay.registration.request_body import request_form
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import row_count
from batchpay.validation.check import all_rows, valid_rows
from batchpay.validation.verdict import Verdict
from batchpay.workflows.approve import LetThrough, let_through
from batchpay.workflows.check import (
    batch_to_continue,
    must_check_elsewhere,
    propose,
    refuse_moved,
    refuse_other_environment,
    refuse_paid_elsewhere,
    refuse_release_of_nothing,
)
from batchpay.workflows.days import refuse_another_day
from batchpay.workflows.file_check import (
    CheckContext,
    FileCheck,
    check_file,
    one_fault_one_file,
    open_file,
)
from batchpay.workflows.held_back import Fails, repeated
from batchpay.workflows.holding import refuse_own_release, require_release
from batchpay.workflows.move_gateway import notes_on_gateway
from batchpay.workflows.policy import policy_in_force, settle_policy
from batchpay.workflows.rejected_earlier import RejectedEarlier
from batchpay.workflows.requests import Decisions, FileRequest
from batchpay.workflows.series import require_in_turn
from batchpay.workflows.status import add_in_doubt_elsewhere

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.workflows.run import Progress, RunRequest

_REGISTER_TRIES = 3


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What a submission requests beyond checking."""

    run: RunRequest
    decisions: Decisions = field(default_factory=Decisions)
    plan: PlanText | None = None
    """A plan that what is sent is compared with, or None."""


def submit(
    request: FileRequest,
    submission: SubmitRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> tuple[Summary, Verdict]:
    """Check a file, register what is valid, send what is pending, write results and rejects.

    The same content is the same batch: what an earlier call did is not done again. A missing ledger is created only for
    a test gateway on loopback.
    """
    # A plan belongs to a ledger that is there already.
    create_as = str(actor) if is_rehearsal(settings.gateway) and submission.plan is None else None
    with closing(open_ledger(settings.ledger, create_as=create_as)) as ledger:
        if not submission.decisions.paid_elsewhere_checked:
            refuse_other_environment(ledger, settings)
        settle_policy(ledger, settings, actor, progress.say)
        plan = None if submission.plan is None else Plan.parse(submission.plan, ledger)
        for note in notes_on_gateway(ledger, settings):
            progress.say(note)
        request = request.on_day_of(ledger)
        source = open_file(request, ledger)  # once: standard input can't be read again
        for _ in range(_REGISTER_TRIES):
            one = _Submission(ledger, request, source, submission, plan, settings, actor)
            try:
                return one.carry_out(credentials, progress), one.checked.verdict
            except RegisteredMeanwhile:
                continue  # payments of this file were added in between: they must be looked up as well
    raise FileOvertaken(
        f"{source.name}: other files with payments of this one are being registered, nothing was sent now; run the "
        "command again"
    )


class _Submission:
    """One check of an opened file, and the batch that is made or continued by what it found."""

    def __init__(
        self,
        ledger: Ledger,
        request: FileRequest,
        source: Source,
        submission: SubmitRequest,
        plan: Plan | None,
        settings: Settings,
        actor: Actor,
    ) -> None:
        self._ledger, self._request, self._plan = ledger, request, plan
        self._run, self._decisions = submission.run, submission.decisions
        self._settings, self._actor = settings, actor
        self._policy = policy_in_force(ledger, settings).approvals
        self._proposes = plan is not None or self._policy.asks or FileLimits.from_settings(settings.limits).are_set
        context = CheckContext(
            settings, ledger, self._run.preflight, self._decisions, wants_schedule=self._proposes, submits=True
        )
        self.checked = checked = check_file(source, request, context)
        total, rejected = checked.verdict.total, checked.verdict.rejected.rows
        log("checked", file=source.name, rows=total.rows, cents=total.cents, rejected=rejected)
        if plan is None:  # a plan that differs in this is refused with all its differences
            refuse_release_of_nothing(ledger, checked.known, self._decisions, source.name)

    def carry_out(self, credentials: Credentials, progress: Progress) -> Summary:
        """Register what was found, and send it; raises RegisteredMeanwhile if it must be looked up again."""
        from batchpay.workflows.run import run_batch

        ledger, checked, decisions = self._ledger, self.checked, self._decisions
        ledger.take_over(checked.digest, str(self._actor), progress.say)
        with ledger.lock(checked.digest), checked.source.hold():
            with one_fault_one_file(checked.source.name):
                found = self._register()
            if found.is_new:
                log("registered", batch=found.batch.batch, file=found.batch.file, rows=found.batch.total.rows)
                for row, name in checked.warned.codes() if is_logging() else ():
                    log("warning", level=logging.WARNING, batch=found.batch.batch, row=row, reason=name)
            if found.released.rows:
                progress.say(f"rejected before and released now: {row_count(found.released.rows)}")
            fails = None if found.is_new else _fails_today(checked.verdict)
            looked = decisions.reason if decisions.paid_elsewhere_checked and not found.is_new else None
            run = replace(self._run, approvals=found.approvals, fails=fails, why=looked)
            finished = run_batch(ledger, found.batch, self._settings, credentials, run, self._actor, progress)
        summary = self._summary(finished)
        if not (found.is_new or checked.releasable.totals.rows):
            _note_paid_before(summary, ledger, found.batch, decisions)
        summary.seal = self._plan.seal if self._plan else None
        summary.released = found.released
        if found.released.rows:  # the batch itself records what was let through when it was registered
            summary.allowed_duplicates = checked.earlier.allowed_json(decisions.reason)
        add_in_doubt_elsewhere(summary, ledger, finished)
        return summary

    def _register(self) -> _Registered:
        """Write the batch, or find it, and release what an earlier call rejected if a person requests it."""
        ledger, checked, decisions, settings = self._ledger, self.checked, self._decisions, self._settings
        known, allowed = batch_to_continue(ledger, checked, settings, decisions), LetThrough()
        meanwhile = ledger.registration_count() != checked.registration_count_seen
        if known is not None and meanwhile and repeated(ledger, known):
            raise RegisteredMeanwhile("another file that repeats rows of this batch may have been registered meanwhile")
        if known is not None:  # it may be new since the file was read
            refuse_another_day(known, checked.request.rules)
        if self._proposes:
            proposal, _ = propose(ledger, checked, settings, decisions, known)
            try:
                allowed = let_through(ledger, self._plan, proposal, self._policy, ledger.now(), self._actor)
            except FileRefused as error:
                if proposal.over_limits:
                    self._notify(Notice.LIMIT, proposal)
                raise _with_accounts(error, checked) from None
            except WaitingForPerson:
                self._notify(Notice.APPROVAL_REQUESTED, proposal)
                raise
        releases = decisions.release and checked.releasable.totals.rows > 0
        if must_check_elsewhere(known, decisions, releases=releases):
            refuse_other_environment(ledger, settings)  # its first batch may be new since the file was opened
            refuse_moved(self._request.path, checked.source.identity)
            refuse_paid_elsewhere(ledger, self._run.results, environment_of(settings.gateway))
        if allowed.used_for is not None:
            return _Registered(ledger.find(allowed.used_for))
        sign_off = allowed.sign_off
        approvals = len(sign_off.approvals) if sign_off else None
        if known is None:
            return _Registered(self._write_batch(sign_off), approvals, is_new=True)
        if releases:
            return self._release(known, sign_off, approvals)
        if sign_off is not None:
            ledger.use_plan(known.batch, str(self._actor), sign_off)
        return _Registered(ledger.find(known.batch), approvals)

    def _notify(self, notice: Notice, proposal: Proposal) -> None:
        to_send, about = proposal.to_send.by_direction, proposal.digest.hex()
        notify(self._settings, notice, file=proposal.file, apart=to_send, about=about)

    def _write_batch(self, sign_off: SignOff | None) -> BatchSummary:
        checked, decisions, rules = self.checked, self._decisions, self.checked.request.rules
        source, form, results = checked.source, request_form(self._settings.gateway), self._run.results
        verdict, environment = checked.verdict, environment_of(self._settings.gateway)
        always = {
            "normalize": rules.normalize,
            "as_of": rules.as_of.isoformat(),
            "gateway_ids": sorted(checked.gateway_ids),
            "file_digest": checked.file_digest,
            "first_start": checked.first_start and checked.first_start.isoformat(),
            "largest_cents": checked.largest_cents,
        }
        several = verdict.currencies if verdict.currencies.keys() - {"USD"} else {}
        if_any = {
            "accepted_suggestions": verdict.accepted,
            "allowed_duplicates": self._allowed_duplicates(),
            "left_out": {word: astuple(one) for word, one in source.left_out.items()},
            "currencies": {code: astuple(one) for code, one in several.items()},
            "sheet": source.sheet,
            "results": results and str(results.absolute()),
            "warnings": verdict.warnings,
            "warning_counts": verdict.warning_counts,
            "pay_on": rules.pay_on and rules.pay_on.isoformat(),
            "unreadable_amounts": verdict.unreadable_amounts,
            "series": checked.series and list(checked.series),
            "gap": decisions.gap and decisions.reason,
            "paid_elsewhere_checked": decisions.paid_elsewhere_checked and decisions.reason,
        }
        require_in_turn(self._ledger, source.name, checked.series, checked.digest, environment, gap=decisions.gap)
        batch = NewBatch(
            digest=checked.digest,
            file=source.name,
            columns=source.carried,
            rows=checked.verdict.rows,
            options=always | {name: value for name, value in if_any.items() if value},
            origin=self._settings.gateway.base_url,
            environment=environment,
            registration_count_seen=checked.registration_count_seen,
            again_reason=decisions.again_reason,
            sign_off=sign_off,
        )
        with self._ledger.register(batch, str(self._actor), self._day_check(sign_off)) as registering:
            for rows in ahead(all_rows(source, rules)):
                passed = rows.filter(~checked.verdict.rejected_mask(rows["_row"]))
                for columns in payment_columns(self._ledger, checked.warned.among(passed), source.carried, form):
                    registering.add_payments(columns)
            for rejected in checked.rejected:
                registering.add_rejected(rejected_columns(rejected))
            name = registering.finish()
        return self._ledger.find(name)

    def _release(self, known: BatchSummary, sign_off: SignOff | None, approvals: int | None) -> _Registered:
        """Make pending what an earlier call rejected and is valid now: a named person requested it, with a reason."""
        ledger, checked, rejected = self._ledger, self.checked, RejectedEarlier(self._ledger, known)
        form = request_form(self._settings.gateway)
        hold = policy_in_force(ledger, self._settings).hold
        rows, note = self._decisions.rows or (), self._decisions.reason or ""
        if require_release(ledger, known, hold, rows, note) and self._policy.asks and not approvals:
            refuse_own_release(ledger, known, self._actor)

        def payments() -> Iterator[PaymentColumns]:
            for rows in valid_rows(checked.source, checked.request.rules, checked.verdict):
                released = checked.warned.among(rejected.among(rows))
                yield from payment_columns(ledger, released, checked.source.carried, form)

        ledger.release(
            known.batch,
            payments(),
            str(self._actor),
            self._decisions.reason or "",
            registration_count_seen=checked.registration_count_seen,
            sign_off=sign_off,
            allowed_duplicates=self._allowed_duplicates(),
            day_check=self._day_check(sign_off),
            lifts=[one for row, one in checked.returned.lifts.items() if checked.verdict.passed[row - 1]],
        )
        now = ledger.find(known.batch)
        return _Registered(now, approvals, known.by_state[State.REJECTED] - now.by_state[State.REJECTED])

    def _day_check(self, sign_off: SignOff | None) -> DayCheck:
        """Return what is held against what is registered: limits of a day, unless others lifted them, and its maker."""
        limits = FileLimits.from_settings(self._settings.limits).of_day.without(sign_off.lifts if sign_off else ())
        check = self._ledger.day_check(environment_of(self._settings.gateway), limits)
        maker = self._plan.prepared_by if self._plan else self._actor
        approvals = len(sign_off.approvals) if sign_off else 0
        return replace(check, maker=self._policy.maker_check(maker, self._ledger.now(), approvals))

    def _allowed_duplicates(self) -> dict[str, Any] | None:
        """Return what the ledger keeps of bills that were let through a second time; None if none was."""
        earlier = self.checked.earlier
        return earlier.allowed_json(self._decisions.reason) if earlier.allowed.rows else None

    def _summary(self, batch: BatchSummary) -> Summary:
        of_check = self.checked.summary()
        summary = summary_of_batch(batch)
        summary.warnings, summary.file, summary.rejects = of_check.warnings, of_check.file, of_check.rejects
        summary.notes = list(dict.fromkeys([*of_check.notes, *summary.notes]))
        summary.started_at, summary.read = of_check.started_at, of_check.read
        return summary


def _note_paid_before(summary: Summary, ledger: Ledger, batch: BatchSummary, decisions: Decisions) -> None:
    """Report if all of a known batch was paid before: the same wages a month later look as if they were paid again."""
    waiting, paid = (State.PENDING, State.SENDING, State.IN_DOUBT), batch.by_state[State.ACCEPTED]
    if not paid.rows or any(batch.by_state[state].rows for state in waiting):
        return
    rows = f"all {row_count(paid.rows)} were" if paid == batch.total else f"{row_count(paid.rows)} were"
    on = f"{ledger.last_progress_at(batch.batch).astimezone():%m/%d/%Y}"
    summary.paid_before = (
        f"0 sent now; {rows} paid by batch {batch.batch} on {on}; if they must be paid once more: --again with "
        f"{'another reason' if decisions.again else 'a reason'}"
    )
    summary.notes.append(summary.paid_before)
    log("nothing sent", level=logging.WARNING, batch=batch.batch, file=summary.file, rows=paid.rows, cents=paid.cents)


def _fails_today(verdict: Verdict) -> Fails | None:
    """Return which pending rows of a known batch fail today's rules; None if none does."""
    if verdict.passed.all():
        return None
    return lambda columns: verdict.rejected_mask(pl.Series(columns.rows, dtype=pl.UInt32)).to_list()


@dataclass(frozen=True, slots=True)
class _Registered:
    """The batch that is to be sent."""

    batch: BatchSummary
    approvals: int | None = None
    """How many people approved what this call sends of it, if a plan lets it through."""
    released: Totals = Totals()
    """Rows that this call has released."""
    is_new: bool = False


def _with_accounts(refusal: FileRefused, checked: FileCheck) -> BatchpayError:
    """Add how the gateway's accounts bear on a plan's refusal: without an answer it is not known what differs."""
    if checked.accounts.problem is not None:
        return checked.accounts.problem
    if count := len(checked.accounts.failures):
        return FileRefused(
            f"{refusal} (the gateway takes no bank payments for the account of {row_count(count)}: a plan that is made "
            "with --preflight leaves them out)"
        )
    return refusal


def archive_finished(path: str, folder: str, summary: Summary) -> None:
    """Move a file whose rows are all settled, scheduled or wait for a person, and note it: the payments are made.

    A file whose results could not be written stays: the next call writes them, and would not otherwise process it.
    """
    waiting = summary.of(State.PENDING).rows - summary.scheduled.rows + summary.of(State.SENDING).rows
    if summary.read is None or waiting:
        return
    if summary.results_missing:
        return
    try:
        archived = archive(path, folder, summary.read)
        left = f"{path} is not archived: the file there now is not the file that was read"
        summary.notes.append(f"archived as {archived}" if archived else left)
    except NotUsable as error:
        summary.stopped = "; ".join(filter(None, (summary.stopped, str(error))))
