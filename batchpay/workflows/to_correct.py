"""Payments of a batch that were declined or came back, as rows to correct: those that the rules let be paid again.

What is decided here is advice: the corrected file is checked, compared and approved like any other.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from batchpay.approval.cash_flow import with_cents
from batchpay.errors import FileRefused
from batchpay.ledger.columns import Earlier
from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import Fact, FactKind
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.payment import Direction, SamePayment, State
from batchpay.registration.digests import lookup_columns
from batchpay.returns.codes import return_codes
from batchpay.schemas.columns import ACCOUNT, BARE_ROW, PAYMENT_ID, REJECTS_OWN
from batchpay.settings import Settings
from batchpay.text import folded, place_of, place_word, printable
from batchpay.validation.check import prepared
from batchpay.validation.rejects import Begin, open_rejects
from batchpay.validation.verdict import without_marks
from batchpay.workflows.earlier_payments import windows_end
from batchpay.workflows.file_check import open_file
from batchpay.workflows.requests import FileRequest
from batchpay.workflows.returned_accounts import AGAIN_DAYS, NAME, TIMES, ReturnedAccounts, may_follow

_STANDING = (State.PENDING, State.SENDING, State.ACCEPTED, State.IN_DOUBT)


def to_correct(request: FileRequest, batch: str, settings: Settings, target: Path, begin: Begin) -> dict[str, Any]:
    """Read the file that a batch was sent from, and write the rows to correct, if there are any, as rejects.

    Returns their `count`, and of those `left` out, by place: name, cents, and why they may not be paid again. Raises
    FileRefused if it is another file.
    """
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger, open_file(request, ledger) as source:
        of, days, now = ledger.find(batch), settings.policy.duplicate_days, windows_end(ledger, settings.policy)
        facts = (one for one in ledger.facts(of.environment, batch=batch) if not one.withdrawn)
        back = {one.row: one for one in facts if one.kind is FactKind.RETURNED}
        accepted = ledger.rows(batch, [State.ACCEPTED], {one.amount_cents for one in back.values()})
        unpaid = {one.row: one for one in ledger.rows(batch, [State.DECLINED])}
        unpaid |= {one.row: one for one in accepted if one.row in back}
        wanted = pl.col("_row").is_in(list(unpaid))
        read = pl.concat([chunk.filter(wanted) for chunk in source.chunks()], how="diagonal")
        frame = with_cents(without_marks(prepared(read, request.rules).rows, keep=BARE_ROW))
        lookup, accounts = lookup_columns(ledger, frame), ReturnedAccounts(ledger, of.environment, None)
        earlier = {one.row: one for one in ledger.earlier(lookup, of.environment, days=days, apart=days, now=now)}
        errors, left = dict[int, str](), dict[str, tuple[str, int, str]]()
        elsewhere = _paid_to_another(ledger, of, frame)
        accounts.failures(frame)  # it also finds what the bank corrected
        for row, line, name, cents in frame.select("_row", "_line", NAME, "_cents").iter_rows():
            if cents != unpaid[row].amount_cents:
                raise FileRefused(f"{of.file} is not the file that batch {batch} was sent from")
            mark, why, change, barred = _said(unpaid[row], back.get(row), earlier.get(row), elsewhere.get(row), now)
            told = printable(f"{why}: {barred or change}").replace(";", ",")
            if barred:
                left[place_of(place_word(of.file), row, line)] = name, cents, told
            else:
                errors[row] = f"{mark}: {told}"
        rows, file = read.filter(pl.col("_row").is_in(list(errors))), open_rejects(target, source, begin)
        texts = zip(REJECTS_OWN[2:], (errors, {}, accounts.corrected), strict=True)
        given = [pl.Series(name, [some.get(row) for row in rows["_row"]], pl.String) for name, some in texts]
        file.add(rows.with_columns(given))
        file.commit()
    return {"count": len(errors), "left": left}


def _said(
    payment: LedgerRow, fact: Fact | None, earlier: Earlier | None, elsewhere: str | None, now: datetime
) -> tuple[str, str, str, str | None]:
    """Return column and code, what became of a payment, what must change, and what bars it from being paid again."""
    returned, barred = earlier and earlier.returned, elsewhere and f"it is a payment again in {elsewhere}"
    by_person = earlier.declined if earlier and earlier.same is SamePayment.DECLINED else None
    if earlier and not returned and not by_person and earlier.same is not SamePayment.ANOTHER_ID:
        barred = f"it is a payment again in {earlier.earlier_place} of batch {earlier.earlier_batch}"
    if fact is None:
        reason = payment.answer.message or payment.reason or "no reason was given"
        if by_person:  # it counts as earlier, since it may have been paid after all
            reason = f"{by_person.why}, look it up at the gateway before it is paid again"
            return "row: declined", f"{by_person.who} recorded that it was declined", reason, barred
        return "row: declined", "the gateway declined it", reason, barred
    code = return_codes()[fact.code]
    mark, change = "row: returned", code.todo
    if fact.is_recurring or fact.is_unattended:
        barred = "the gateway pays it again and again" if fact.is_recurring else "nobody has confirmed this yet"
    elif payment.direction == Direction.DEBIT and code.blocks.startswith("debits"):
        barred = code.todo  # whatever the account: it takes the payer's word
    elif returned and may_follow(returned, payment.amount_cents, payment.direction, now):
        change = f"it passes as it is, try {returned.count + 1} of {TIMES}, within {AGAIN_DAYS} days of the first"
    elif returned:
        mark, change = f"{ACCOUNT}: returned", f"{code.todo}, it passes with another routing or account number alone"
    return mark, f"it came back with {code.code} of {fact.day:%m/%d/%Y} ({code.meaning})", change, barred


def _paid_to_another(ledger: Ledger, batch: BatchSummary, frame: pl.DataFrame) -> dict[int, str]:
    """Return where rows without a paymentId are payments to another account by now: same bill, name and amount."""
    rows = frame.filter(pl.col(PAYMENT_ID).is_null() & pl.col("invoiceNumber").is_not_null())
    cells, found = rows.select("_row", "invoiceNumber", NAME, "_cents", "transactionType"), dict[int, str]()
    invoices, since = rows["invoiceNumber"].to_list(), batch.registered_at
    paid = ledger.sent_rows("invoice", invoices, batch.environment, since) if invoices else {}
    for row, invoice, name, *moved in cells.iter_rows():
        for one in paid.get(invoice, ()):
            is_back = any(fact.kind is FactKind.RETURNED and not fact.is_unattended for fact in one.facts)
            if [one.amount_cents, one.direction] != moved or one.batch == batch.batch or is_back:
                continue
            for each in ledger.rows(one.batch, _STANDING, {one.amount_cents}):
                if each.row == one.row and folded(each.details.get("name") or "") == folded(name):
                    found[row] = f"row {one.row} of batch {one.batch}"
    return found
