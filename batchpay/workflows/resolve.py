"""Rows in doubt: list them, and settle what a named person decides about them, all or nothing; cancel pending ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from batchpay.errors import BatchHeld, FileRefused, WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, Decision, LedgerRow
from batchpay.payment import Actor, State, Totals
from batchpay.reconciliation.resolution import (
    DECISIONS,
    Doubt,
    FilledSheet,
    decide,
    effect_of,
    read_decisions,
    reason_with_notes,
    refuse_account_numbers,
    rows_in_doubt,
    take_over,
    write_sheet,
)
from batchpay.reconciliation.statement import refused_reference
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.writing.atomic import Stream

Shown = TypeVar("Shown", contravariant=True)


@dataclass(frozen=True, slots=True)
class RowDecision:
    """What a person decides for one row; `decision` is a word of DECISIONS."""

    row: int
    decision: str
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class ProposedDecisions:
    """What would be recorded, before a person confirms it."""

    file: str
    decisions: Sequence[Decision]
    doubts: Mapping[int, Doubt]
    """Every row in doubt of the batch, by number."""
    effect: Mapping[State, Totals]
    """Rows and cents by the resulting state."""
    blank: int = 0
    """Rows of the sheet without a decision."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Who decides, and how they know."""

    name: str
    reason: str

    def recorded(self, actor: Actor, rows: Callable[[], Iterable[Doubt | LedgerRow]]) -> str:
        """Return who decides, with the account that acts, as the ledger records it.

        Raises WrongUse if the name or the reason contains an account number of the rows decided about, which are read
        one by one, and only where a text has a number that long.
        """
        refuse_account_numbers("the reason", self.reason, rows())
        refuse_account_numbers("the name", self.name, rows())
        return f"{self.name} ({actor})"


class Decider(Protocol[Shown]):
    """The person who settles, wherever they sit. Whatever it raises leaves every row as it was."""

    def show(self, found: Shown) -> None:
        """Show what is about to be recorded: a proposal, or a row in doubt with its line of an export."""

    def sign(self) -> Signature:
        """Return who decides, and why."""

    def confirm(self, sent_again: int) -> None:
        """Agree, or raise; `sent_again` rows will be sent once more (none by an export)."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A batch and its rows in doubt, credits first."""

    summary: Summary
    doubts: list[Doubt]
    run_under_way: bool = False
    """Whether another process is sending: its rows are not listed."""
    settled: dict[str, Totals] | None = None
    """What was settled, by the word of the decision; None if nothing was to be settled."""


def list_in_doubt(reference: str, settings: Settings, actor: Actor, *, sheet: str | Stream | None = None) -> InDoubt:
    """List a batch's rows in doubt, including those a killed run left in `sending`; write them to a sheet if asked."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = ledger.find(reference)
    run_under_way = False
    if found.by_state[State.SENDING].rows:
        with closing(open_ledger(settings.ledger)) as ledger:
            try:
                with ledger.lock(found.digest):
                    take_over(ledger, found.batch, str(actor), reference_is_unique=settings.gateway.reference_is_unique)
            except BatchHeld:
                run_under_way = ledger.is_held(found.digest)
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = ledger.find(found.batch)
        doubts = rows_in_doubt(ledger, found.batch, settings.gateway.timeout)
        if sheet:
            write_sheet(sheet, found.batch, doubts)
    return InDoubt(summary_of_batch(found), doubts, run_under_way)


def settle(
    reference: str,
    chosen: Sequence[RowDecision] | str | Stream,
    decider: Decider[ProposedDecisions],
    settings: Settings,
    actor: Actor,
    *,
    hosts_are_gone: bool = False,
) -> InDoubt:
    """Settle some rows, or what the filled-in sheet at a path decides; return what was settled and what is left.

    `hosts_are_gone` is the person's word that machines whose runs were fenced are off for good: only then, or once they
    have been heard from again, are rows that they were sending sent again.
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference)
        with ledger.lock(found.digest):
            take_over(ledger, found.batch, str(actor), reference_is_unique=settings.gateway.reference_is_unique)
            doubts = rows_in_doubt(ledger, found.batch, settings.gateway.timeout)
            proposal, notes = _proposal(chosen, found, {doubt.row: doubt for doubt in doubts})
            if settings.gateway.reference_is_unique:
                _refuse_known_references(ledger, found, proposal.decisions, chosen)
            decider.show(proposal)
            if proposal.decisions:
                _record(ledger, found.batch, proposal, notes, decider, actor, hosts_are_gone=hosts_are_gone)
        found = ledger.find(found.batch)
        left = rows_in_doubt(ledger, found.batch, settings.gateway.timeout)
    settled = {word: proposal.effect.get(state, Totals()) for word, state in DECISIONS.items()}
    return InDoubt(summary_of_batch(found), left, settled=settled)


def _proposal(
    chosen: Sequence[RowDecision] | str | Stream, batch: BatchSummary, doubts: Mapping[int, Doubt]
) -> tuple[ProposedDecisions, Sequence[tuple[int, str]]]:
    """Read the decisions, and the notes with them."""
    if isinstance(chosen, str | Stream):
        given = read_decisions(chosen, batch.batch, doubts)
    else:
        given = FilledSheet([decide(one.row, one.decision, one.reference, doubts) for one in chosen])
    effect = effect_of(given.decisions, doubts)
    return ProposedDecisions(batch.file, given.decisions, doubts, effect, given.blank), given.notes


def _refuse_known_references(
    ledger: Ledger,
    batch: BatchSummary,
    decisions: Sequence[Decision],
    chosen: Sequence[RowDecision] | str | Stream,
) -> None:
    """Refuse all decisions if one names a payment that the ledger, or another decision, has for another row."""
    named = {one.row: one.gateway_reference for one in decisions if one.gateway_reference}
    problem = refused_reference(ledger, batch, named)
    if problem and isinstance(chosen, str | Stream):
        raise FileRefused(f"{chosen}: {problem}; nothing was changed")
    if problem:
        raise WrongUse(f"{problem}; nothing was changed")


def _record(
    ledger: Ledger,
    batch: str,
    proposal: ProposedDecisions,
    notes: Sequence[tuple[int, str]],
    decider: Decider[ProposedDecisions],
    actor: Actor,
    *,
    hosts_are_gone: bool,
) -> None:
    signature = decider.sign()
    who = signature.recorded(actor, proposal.doubts.values)
    decider.confirm(proposal.effect.get(State.PENDING, Totals()).rows)
    if hosts_are_gone:
        ledger.say_hosts_gone(batch, who, signature.reason)
    ledger.resolve(batch, proposal.decisions, who, reason_with_notes(signature.reason, notes))


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a call cancelled, and what the batch is now."""

    totals: Totals
    summary: Summary


def cancel(
    reference: str, rows: Sequence[int] | None, signature: Signature, settings: Settings, actor: Actor
) -> Cancelled:
    """Reject pending rows, all of a batch without `rows`, all or none of them; `submit --release` reverts it.

    Raises WrongUse if one of the rows is not pending, or none is, and BatchHeld while a run holds the batch.
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference, environment_of(settings.gateway))
        with ledger.lock(found.digest):
            before = ledger.find(found.batch).by_state[State.PENDING]
            if rows is None and not before.rows:
                raise WrongUse(f"batch {found.batch} has no pending rows; nothing was cancelled")
            who = signature.recorded(actor, partial(ledger.rows, found.batch, [State.PENDING]))
            ledger.cancel(found.batch, rows, who, signature.reason)
        found = ledger.find(found.batch)
        after = found.by_state[State.PENDING]
    return Cancelled(Totals(before.rows - after.rows, before.cents - after.cents), summary_of_batch(found))
