"""Cancel pending rows of a batch: a named person says, with a reason, that they must not be sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from batchpay.errors import WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor, State, Totals
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.workflows.resolve import Signature


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
            who = signature.recorded(actor, list(ledger.rows(found.batch, [State.PENDING])))
            ledger.cancel(found.batch, rows, who, signature.reason)
        found = ledger.find(found.batch)
        after = found.by_state[State.PENDING]
    return Cancelled(Totals(before.rows - after.rows, before.cents - after.cents), summary_of_batch(found))
