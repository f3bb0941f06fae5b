"""Rows that pass every rule and wait for a person all the same: `policy.hold` names one of their warnings.

They are rejected with the warning's code, and released by name alone, by another person than the one who registered
them where the policy asks for approvals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.approvals import is_note, may_be_one
from batchpay.errors import SettingsNotUsable, WaitingForPerson, WrongUse, did_you_mean
from batchpay.ledger.columns import RELEASED_BY_NAME
from batchpay.ledger.contract import Ledger
from batchpay.payment import Actor
from batchpay.text import printable
from batchpay.workflows.rejected_earlier import RejectedEarlier

if TYPE_CHECKING:
    from batchpay.approval.anomalies import Variance
    from batchpay.ledger.records import BatchSummary
    from batchpay.validation.check import RowCheck
    from batchpay.validation.compiled_rules import Findings
    from batchpay.validation.duplicates import Late
    from batchpay.validation.verdict import Verdict

_HELD = (
    "{}held for a person, who releases it by name once they know that it is right: submit FILE --release --rows {} "
    "--reason TEXT"
)


def held_names(names: Collection[str]) -> frozenset[str]:
    """Return the warnings that `policy.hold` names; raises SettingsNotUsable for what is none."""
    from batchpay.schemas.catalogue import warning_names

    for name in sorted({*names} - (known := warning_names() if names else frozenset())):
        raise SettingsNotUsable(f"policy.hold names {printable(name)}, which is no warning{did_you_mean(name, known)}")
    return frozenset(names)


class Holding:
    """The rows of one file that are held."""

    def __init__(self, names: frozenset[str], released: Collection[int] = ()) -> None:
        """Hold rows with these warnings, but for those that a person has `released` in this call."""
        self._names, self._free = names, set(released)
        self._found: dict[int, tuple[str, str]] = {}

    def note(self, findings: Findings, passed: pl.Series) -> None:
        """Note the rows of a chunk that passed with such a warning."""
        for one in findings.violations if self._names else ():
            if not one.is_error and one.name in self._names:
                self._add(one.column, one.code, findings.rows["_row"].filter(one.flag & passed))

    def failures(self, check: RowCheck, verdict: Verdict, rejected: RejectedEarlier | None) -> dict[int, Late]:
        """Return why rows that passed are held, once the file was read; what an earlier call held is not found anew."""
        for column, code, rows in check.held(self._names):
            self._add(column, code, rows.filter(~verdict.rejected_mask(rows)))
        self._free |= rejected.by_name if rejected is not None else set()
        return {
            row: (column, code, _HELD.format("", row))
            for row, (column, code) in self._found.items()
            if row not in self._free
        }

    def of_history(self, found: Sequence[Variance]) -> dict[int, Late]:
        """Return why rows are held that differ from earlier payments."""
        return {
            one.row: (one.column, one.code, _HELD.format(f"{one.message}, ", one.row))
            for one in reversed(found)
            if f"{one.column}.{one.code}" in self._names and one.row not in self._free
        }

    def _add(self, column: str, code: str, rows: pl.Series) -> None:
        for row in rows.to_list():
            self._found.setdefault(row, (column, code))


def rejected_earlier(ledger: Ledger, batch: BatchSummary, names: frozenset[str]) -> RejectedEarlier:
    """Return what of a batch is rejected, where a release must name the rows that are held."""
    return RejectedEarlier(ledger, batch, RELEASED_BY_NAME | names)


def require_release(
    ledger: Ledger, batch: BatchSummary, names: frozenset[str], rows: Collection[int], note: str
) -> bool:
    """Return whether held rows are released; raises WrongUse without a note of who was called."""
    held = rejected_earlier(ledger, batch, names).by_name.intersection(rows) if rows else ()
    if held and not is_note(note):
        raise WrongUse(
            f"row {min(held)} is held for a person: write as --reason who was called, and by which number that you had "
            "before; nothing was released"
        )
    return bool(held)


def refuse_own_release(ledger: Ledger, batch: BatchSummary, actor: Actor) -> None:
    """Raise WaitingForPerson if whoever registered a batch releases held rows of it."""
    maker = next(event.who for event in ledger.events(batch.batch) if event.kind == "registered")
    if may_be_one(Actor.read(maker), actor):
        raise WaitingForPerson(
            f"{printable(maker)} registered batch {batch.batch}: another person must release the rows that are held; "
            "nothing was released"
        )
