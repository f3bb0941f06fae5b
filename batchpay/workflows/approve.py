"""Dual control: approve a plan, and let a submission through that has the approvals it needs.

Whether an approval counts is decided in approval/, for every entrance.

The web page and the command line do the same: open the plan, show it, and pass back the seal that the person saw.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from batchpay.approval.approvals import Approval, Policy, is_off
from batchpay.approval.plan import Plan, PlanText
from batchpay.approval.proposal import Proposal
from batchpay.errors import FileRefused, WaitingForPerson
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import SignOff
from batchpay.operations.notify import Notice, notify_plan
from batchpay.payment import Actor, Direction, Environment, State
from batchpay.settings import Settings
from batchpay.text import printable
from batchpay.workflows.policy import of_maker, policy_in_force

_LOCK_BYTES = 32


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as it is now: what it would let through, and which approvals count."""

    plan: Plan
    counted: tuple[Approval, ...]
    needed: int
    """How many approvals the policy requires for what the plan shows."""
    spent: str | None
    """Why it no longer lets anything through, as far as the ledger knows, or None."""
    changed_accounts: tuple[str, ...] = ()
    """Payments whose account is new for their payee: payee, amount, last four, one line each."""
    why: str | None = None
    """What more counts than the plan's total, if anything: what its maker registered before."""

    def page(self) -> list[str]:
        """Return what the person is shown on a terminal before they approve."""
        from batchpay.approval.sign_off import plan_lines  # a server reads plans without polars

        return [*plan_lines(self.plan, self.changed_accounts), *filter(None, [self.why])]


def read_plan(path: str) -> PlanText:
    """Read a plan's file, not yet compared with a ledger; raises FileRefused if it can't be read."""
    return PlanText.read(path)


def write_plan(plan: Plan, path: str, settings: Settings, *, asks: bool) -> None:
    """Write a plan to a file, for whoever is to approve it, and tell `notify.url` if it `asks` for an approval."""
    plan.write(path)
    if asks:
        notify_plan(settings, Notice.APPROVAL_REQUESTED, plan)


def view_plan(kept: PlanText, ledger: Ledger, settings: Settings) -> PlanView:
    """Read a plan to be shown; raises FileRefused if it is not a plan, was changed or belongs to another ledger."""
    return _view(Plan.parse(kept, ledger), ledger, settings, ledger.now())


def add_approval(kept: PlanText, seal: str, ledger: Ledger, settings: Settings, actor: Actor) -> PlanView:
    """Return a plan with one more person's approval; the caller stores it. `seal` is the one they were shown.

    Raises WaitingForPerson if another person must approve, and FileRefused if the plan has been replaced since.
    """
    now = ledger.now()
    view = _view(Plan.parse(kept, ledger), ledger, settings, now)
    if view.plan.seal != seal:
        raise FileRefused(f"{printable(kept.name)} is not the plan that was displayed")
    if view.spent is not None:
        raise FileRefused(view.spent)
    policy_in_force(ledger, settings).approvals.require_other(actor, view.counted, view.plan.prepared_by)
    return _view(view.plan.approved_by(actor, now, ledger), ledger, settings, now)


def open_plan(path: str, settings: Settings) -> PlanView:
    """Read a plan's file to be shown; raises as `view_plan` does."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return view_plan(PlanText.read(path), ledger, settings)


def approve_plan(path: str, seal: str, settings: Settings, actor: Actor) -> PlanView:
    """Add a person's approval to a plan's file; raises as `add_approval` does."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        plan = Plan.read(path, ledger)
        (lock,) = ledger.digest("plan lock", [plan.id], _LOCK_BYTES)
        assert lock is not None, "a text has a digest"
        with ledger.lock(lock):  # two people at the same time: neither approval may get lost
            view = add_approval(PlanText.read(path), seal, ledger, settings, actor)
            view.plan.write(path)
    notify_plan(settings, Notice.APPROVAL_GIVEN, view.plan, is_decided=len(view.counted) >= view.needed)
    return view


def made_before_a_restore(ledger: Ledger, plan: Plan) -> str | None:
    """Say that an unused plan may have been used in what a restored ledger lost; None if it can't have been.

    The plan names the restore that it was made after: machines have different clocks, so the order of times tells less.
    """
    if plan.restored_at == ledger.restored_at():
        return None
    return "the plan was prepared before the ledger was restored, which may have lost that it was used"


@dataclass(frozen=True, slots=True)
class LetThrough:
    """What a submission may do."""

    sign_off: SignOff | None = None
    """What the ledger records with it, if there is a plan."""
    used_for: str | None = None
    """The batch that the plan was already used for: it is only continued."""


def let_through(
    ledger: Ledger, plan: Plan | None, proposal: Proposal, policy: Policy, now: datetime, actor: Actor
) -> LetThrough:
    """Compare a submission with its plan and the policy; raises FileRefused or WaitingForPerson if it may not proceed.

    Rows that are already pending are checked where they are sent (`approved`), by resume as well.
    """
    over = bool(proposal.over_limits)
    if over and not policy.asks:
        raise FileRefused(f"{proposal.file}: {'; '.join(proposal.over_limits)}; nothing was registered or sent")
    adds, to_send = proposal.to_send.new + proposal.to_send.released, proposal.to_send.by_direction
    cents = {side: totals.cents for side, totals in to_send.items()}
    maker = plan.prepared_by if plan else actor
    of = of_maker(ledger, policy, maker, proposal.environment, cents, adds.cents)
    if plan is None:
        if adds.rows:
            policy.require(proposal.file, proposal.batch_total.cents, 0, over_limit=over, of_maker=of)
        return LetThrough()
    used_for = ledger.batch_of_plan(plan.id)
    if used_for is not None:
        plan.verify_content(proposal)
        return LetThrough(used_for=used_for)
    if before := made_before_a_restore(ledger, plan):
        raise FileRefused(f"{before}; nothing was sent. Prepare a new plan, and have it approved")
    plan.verify(proposal, ledger)
    off = ledger.people_off()
    if is_off(plan.prepared_by, off):
        name = printable(str(plan.prepared_by))
        raise WaitingForPerson(f"{proposal.file}: {name} prepared this, and is switched off: prepare it again")
    counted = policy.counted(plan.approvals, plan.prepared_by, plan.seal, now, off)
    if proposal.to_send.total.rows:
        policy.require(proposal.file, proposal.batch_total.cents, len(counted), over_limit=over, of_maker=of)
    return LetThrough(plan.sign_off(counted))


def _view(plan: Plan, ledger: Ledger, settings: Settings, now: datetime) -> PlanView:
    policy = policy_in_force(ledger, settings).approvals
    counted = policy.counted(plan.approvals, plan.prepared_by, plan.seal, now, ledger.people_off())
    adds, cents = plan.totals("new") + plan.totals("released"), {side: plan.totals(side).cents for side in Direction}
    of = of_maker(ledger, policy, plan.prepared_by, plan.content["environment"], cents, adds.cents)
    needed = policy.needed(plan.batch_cents, over_limit="over_limits" in plan.content, of_maker=of)
    names = plan.changed_accounts(ledger)
    return PlanView(plan, tuple(counted), needed, _spent(plan, ledger), names, policy.why(of) if of else None)


def _spent(plan: Plan, ledger: Ledger) -> str | None:
    """Describe why a submission from a plan would be refused or only continue, as far as is known without the file.

    Two plans for the same content are both valid until one of them, or a submission without a plan, is carried out.
    """
    used_for = ledger.batch_of_plan(plan.id)
    if used_for is not None:
        return f"this plan was already used, for batch {used_for}"
    if before := made_before_a_restore(ledger, plan):
        return before
    content = plan.content
    reason = content["reason"] if content["again"] else None
    batch = ledger.find_digest(bytes.fromhex(content["digest"]), Environment(content["environment"]), reason)
    if batch is None:
        return None
    adds = plan.totals("new").rows + plan.totals("released").rows
    pending = plan.totals("pending").rows + plan.totals("held_back").rows
    is_left = batch.sendable.rows + adds == plan.batch_rows and batch.by_state[State.PENDING].rows == pending
    if is_left:
        return None
    return f"this plan is spent: since it was prepared, its content was submitted in batch {batch.batch}"
