"""Ask the bank to reverse payments: a sheet of what it needs, recorded as asked for. The gateway has no void."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchpay.errors import WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.facts import FactKind
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import LedgerRow
from batchpay.payment import Actor, Direction, State, Totals, format_cents
from batchpay.returns.codes import banking_days_after
from batchpay.settings import Settings
from batchpay.text import instant, totals_json
from batchpay.writing.atomic import Stream
from batchpay.writing.table import table_format, write_table
from batchpay.writing.xlsx import Kind, columns

_BANKING_DAYS = 5
"""A reversal reaches the other bank within five banking days after settlement, which is not before the day of sending
(Nacha Operating Rules, 2.9)."""
HEADER = (
    "batch", "row", "line", "paymentId", "invoiceNumber", "gateway_reference", "transactionType", "reversal", "amount",
    "currencyCode", "name", "account", "sent_at", "reason", "deadline",
)  # fmt: skip
_KINDS = {"row": Kind.INTEGER, "line": Kind.INTEGER, "amount": Kind.AMOUNT, "sent_at": Kind.INSTANT}


class RecallReason(StrEnum):
    """Why a payment may be reversed; there is no other reason."""

    DUPLICATE = "duplicate"
    AMOUNT = "amount"
    RECEIVER = "receiver"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Recall:
    """What was asked for, and where the sheet is."""

    batch: str
    totals: Totals
    deadline: date
    """The earliest of all rows."""
    path: Path

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` tells."""
        told = {"batch": self.batch, "recalled": totals_json(self.totals), "deadline": self.deadline.isoformat()}
        return {**told, "written": str(self.path), "exit_code": 0}


def recall(
    reference: str, rows: Collection[int], reason: RecallReason, out: str | Stream, settings: Settings, actor: Actor
) -> Recall:
    """Write the sheet for some accepted rows of a batch, and record that it was asked for.

    Raises WrongUse, and writes nothing, where a row was not accepted, came back already, is paid again and again, or
    was sent too long ago.
    """
    table_format(out)
    with closing(open_ledger(settings.ledger)) as ledger:
        batch = ledger.find(reference, environment_of(settings.gateway))
        found = {row.row: row for row in ledger.rows(batch.batch, [State.ACCEPTED]) if row.row in rows}
        back = {fact.row: fact for fact in ledger.facts(batch.environment, batch=batch.batch) if not fact.withdrawn}
        deadlines = {}
        for number in sorted(rows):
            place = f"row {number} of batch {batch.batch}"
            if (row := found.get(number)) is None or row.sent_at is None:
                raise WrongUse(f"{place} was not accepted: only an accepted payment can be recalled")
            if row.details.get("recurringIndicator") == "TRUE":
                raise WrongUse(f"{place} is paid again and again: end its schedule in the gateway's portal")
            if number in back and back[number].kind is FactKind.RETURNED:
                told = f"came back on {back[number].day} ({back[number].code})"
                raise WrongUse(f"{place} {told}: nothing is to be recalled")
            deadlines[number] = banking_days_after(row.sent_at.astimezone(ledger.zone()).date(), _BANKING_DAYS)
            if deadlines[number] < ledger.today():
                raise WrongUse(
                    f"{place} could be recalled until {deadlines[number]}, five banking days after it was sent: ask the"
                    " payee to send the money back, or our bank to ask theirs for a return (R06)"
                )
        lines = [_line(batch.batch, row, reason, deadlines[row.row]) for row in found.values()]
        path = write_table(out, columns(HEADER, _KINDS), ([line[name] for name in HEADER] for line in lines))
        ledger.note_recall(batch.batch, list(found), str(actor), reason)
    totals = Totals(len(found), sum(row.amount_cents for row in found.values()))
    return Recall(batch.batch, totals, min(deadlines.values()), path)


def _line(batch: str, row: LedgerRow, reason: RecallReason, deadline: date) -> Mapping[str, str | None]:
    details = {name: row.details.get(name) for name in ("paymentId", "invoiceNumber", "currencyCode", "name")}
    is_debit = row.direction == Direction.DEBIT
    return {
        **details,
        "batch": batch,
        "row": str(row.row),
        "line": None if row.line is None else str(row.line),
        "gateway_reference": row.answer.gateway_reference,
        "transactionType": row.direction,
        "reversal": Direction.CREDIT if is_debit else Direction.DEBIT,
        "amount": format_cents(row.amount_cents),
        "account": row.account,
        "sent_at": instant(row.sent_at),
        "reason": reason,
        "deadline": deadline.isoformat(),
    }
