"""Rows whose reference the ledger had to mask: which lines of an export may be theirs.

The gateway's own reference contained digits of an account, so no line has the reference that the ledger kept. The row
was paid nevertheless: reported as missing, somebody would pay it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State
from batchpay.reconciliation.references import is_masked, key_of, may_be
from batchpay.reconciliation.statement import ExportLine
from batchpay.reconciliation.windows import DAYS_BEFORE, day_of, in_window

BY_MASK = "part of the reference, amount and date"
"""How a line was matched whose reference fits what is left of its row's."""
_SENT = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.SENDING)


@dataclass(frozen=True, slots=True)
class _MaskedRow:
    batch: str
    row: int
    day: date | None
    invoice: str


class MaskedRows:
    """The rows of an environment with a masked reference that lines of an export may be about."""

    def __init__(
        self, ledger: Ledger, batch: BatchSummary, masked_in: Iterable[str], lines: Sequence[ExportLine]
    ) -> None:
        """Search the batches `masked_in` for rows whose masked reference and amount fit lines."""
        self._batch = batch.batch
        self._of: defaultdict[int, list[_MaskedRow]] = defaultdict(list)
        by_cents: defaultdict[int, list[ExportLine]] = defaultdict(list)
        for line in lines:
            if line.reference and not line.is_owned:
                by_cents[abs(line.cents or 0)].append(line)
        for name in masked_in if by_cents else ():
            for row in ledger.rows(name, _SENT):
                key = key_of(row.answer.gateway_reference)
                if is_masked(key):
                    found = _MaskedRow(name, row.row, day_of(row), key_of(row.details.get("invoiceNumber")))
                    for line in by_cents.get(row.amount_cents, ()):
                        if may_be(key, key_of(line.reference)):
                            self._of[line.line].append(found)

    def may_be_anothers(self, line: ExportLine, row: int) -> bool:
        """Whether a line may be about another row than this one of the batch, whose reference is masked."""
        return any(
            (one.batch, one.row) != (self._batch, row)
            and (line.on is None or one.day is None or (line.on - one.day).days >= -DAYS_BEFORE)
            for one in self._of.get(line.line, ())
        )

    def match(self, lines: Iterable[ExportLine], days: int, kinds: Collection[str]) -> set[int]:
        """Match where one line and one row fit each other; return all rows that some line would fit.

        Lines that may belong to such rows are marked, so that no other row gets them. `kinds` are the kinds of number
        by which lines were matched: where invoice numbers are known, a different one is a different payment.
        """
        lines = list(lines)
        taken = {line.row for line in lines}
        fitting: defaultdict[int, list[ExportLine]] = defaultdict(list)
        claims: dict[int, list[_MaskedRow]] = {}
        for line in lines:
            owners = [
                one
                for one in (self._of.get(line.line, ()) if line.free else ())
                if in_window(line, one.day, days) and not (one.batch == self._batch and one.row in taken)
            ]
            line.is_perhaps = bool(owners)
            claims[line.line] = owners
            for one in owners:
                if one.batch == self._batch:
                    fitting[one.row].append(line)
        for row, found in fitting.items():
            line, owners = found[0], claims[found[0].line]
            other_invoice = "invoice" in kinds and line.invoice and owners[0].invoice not in ("", key_of(line.invoice))
            if len(found) == 1 and len(owners) == 1 and not other_invoice:
                line.row, line.found_by = row, BY_MASK
        return set(fitting)
