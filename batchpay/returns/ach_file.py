"""A bank's ACH file of returns (addenda 99) and of notifications of change (addenda 98).

The routing number of an entry is ours there: the payee's is in the addenda, eight digits of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from batchpay.errors import FileRefused
from batchpay.intake.ach_records import AchBatch, check_digit, read_ach
from batchpay.returns.codes import code_in
from batchpay.returns.lines import ReturnLine

_RETURNED, _CHANGED = "799", "798"


def _day(batch: AchBatch) -> date:
    """Return the day of a batch's settlement, which has no year; that of the file where it is later, or not given."""
    number = batch.header[75:78]
    for year in (batch.created.year, batch.created.year - 1) if number.isdecimal() else ():
        day = date(year, 1, 1) + timedelta(days=int(number) - 1)
        if day.year == year and day <= batch.created + timedelta(days=30):
            return min(day, batch.created)
    return batch.created


def ach_lines(content: bytes, name: str) -> Iterator[ReturnLine]:
    """Yield what came back; raises FileRefused as `read_ach` does, and for a file that has payments alone.

    A payment without such addenda is left out.
    """
    batches = read_ach(content, name)
    entries = [entry for batch in batches for entry in batch.entries]
    if entries and not any(text.startswith((_RETURNED, _CHANGED)) for entry in entries for text in entry.addenda):
        raise FileRefused(f"{name}: is an ACH file of payments, none of which came back")
    for batch in batches:
        day = _day(batch)
        international = batch.entry_class == "IAT"
        for entry in batch.entries:
            for text in entry.addenda:
                if not text.startswith((_RETURNED, _CHANGED)):
                    continue
                bank = text[27:35]
                yield ReturnLine(
                    line=entry.record,
                    code=code_in(text[3:6]),
                    day=day,
                    cents=entry.cents or None,
                    direction=entry.direction,
                    payment_id="" if international else entry.cell(40, 54),
                    routing=bank + check_digit(bank) if bank.isdecimal() else "",
                    account=entry.cell(40, 74) if international else entry.cell(13, 29),
                    name="" if international else entry.cell(55, 76),
                    corrected=text[35:64] if text.startswith(_CHANGED) else "",
                )
