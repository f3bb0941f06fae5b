"""The numbers of a series of files, as their control files state them: each is one content's, and none is left out.

A number counts as used while a row of its batch was, or may be, paid. It is kept among the batch's options, `series`,
and so is the reason for which numbers were left out, `gap`.
"""

from __future__ import annotations

import json

from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.database import Statements, View
from batchpay.ledger.records import NewBatch, Numbers
from batchpay.ledger.states import STATES
from batchpay.payment import Environment, State


def numbers_of(
    view: View, statements: Statements, series: str, environment: Environment, *, but: int | None = None
) -> Numbers:
    """Read the numbers of a series; `but` is a batch that does not count."""
    found: dict[int, tuple[str, bytes]] = {}
    text = json.dumps({"series": [series]})[1:-2]  # as options have it, up to the number
    wanted = {"file_digest": text, "environment": environment.value}
    for batch, name, digest, *others in view.execute(statements.BATCHES_OF_FILE, wanted).fetchall():
        states = [STATES[state] for state, _, rows, _ in view.execute(statements.TOTALS, (batch,)) if rows]
        if batch != but and not {*states} <= {State.REJECTED, State.DECLINED}:
            found.setdefault(json.loads(others[8])["series"][1], (name, digest))
    return Numbers(found)


def require_in_turn(view: View, statements: Statements, new: NewBatch, batch: int) -> None:
    """Raise RegisteredMeanwhile if a batch's number is another's by now, or no longer the next one."""
    if "series" in new.options:
        series, number = new.options["series"]
        known = numbers_of(view, statements, series, new.environment, but=batch)
        is_gap = known.first_missing(number) is not None and "gap" not in new.options
        if is_gap or known.used_for(number, new.digest) is not None:
            raise RegisteredMeanwhile("another file of its series was registered meanwhile; look again")
