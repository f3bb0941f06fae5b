"""Reading an ACH file (NACHA) as a table of payments: what its records say, in our words, without a header to map.

    entry        code, bank, account, amount, name, individual id    our columns, and `Individual ID`
    batch        company, what it pays, class, effective date        our columns, and their own names
    what it is   a payment, or the offset of a balanced file         `Status`: a map says what is left out

What a payment at the gateway needs and no ACH file has (gatewayId, first and last names, agreements) a map adds. A file
whose control records don't add up, or that has anything else than payments, is refused whole, with its record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.ach_records import AchBatch, AchEntry, read_ach
from batchpay.intake.header import Header
from batchpay.intake.streams import OpenFile
from batchpay.intake.table_rows import finish_chunk
from batchpay.payment import Direction, format_cents
from batchpay.schemas.columns import ACCOUNT, DIRECTION, PAYMENT_ID, ROUTING
from batchpay.text import row_count

BYTES_MAX = 64 << 20
"""An ACH file is read as a whole, and a bank takes no larger one."""
_CHUNK_ROWS = 10_000
_DEPOSITS = {"2": "CHECKING", "3": "SAVINGS"}
_PAYS, _PRENOTES = ("22", "27", "32", "37"), ("23", "28", "33", "38")
"""Transaction codes."""
_REFUSED = {"1": "a return", "6": "a return", "4": "no money", "9": "no money"}
"""What else a transaction code of such an account says, by its second digit."""
_ACCOUNT_TYPES = {"PPD": "PERSONAL", "WEB": "PERSONAL", "TEL": "PERSONAL", "CCD": "BUSINESS"}
"""The classes that a payment of the gateway can be, and whose accounts they are for."""
_SOCIAL_SECURITY = re.compile(r"\d{3}-?\d{2}-?\d{4}")
NAMES = (
    "Status", PAYMENT_ID, DIRECTION, "amount", "achNameOnCheck", ROUTING, ACCOUNT, "achDepositType", "achAccountType",
    "achSecCode", "Effective Date", "Individual ID", "Originator", "Description", "Addenda",
)  # fmt: skip
PAYMENT, OFFSET = "payment", "offset entry"
"""What an entry is, by the column Status."""


class Keys(Protocol):
    """A ledger's keys."""

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        """See contract.Ledger."""


class AchReader:
    """The payments of an ACH file. Every reading is of the same bytes: they are read once."""

    def __init__(self, file: OpenFile, keys: Keys | None = None) -> None:
        """Without `keys` nothing is made of a social security number that its payments can be known again by."""
        self._file, self._keys, self._unnamed = file, keys, 0
        if file.size > BYTES_MAX:
            raise FileRefused(f"{file.name}: is an ACH file of more than {BYTES_MAX >> 20} MiB, which is not read")
        self.names = NAMES
        batches = read_ach(file.reader().read(), file.name)
        self._offsets = {*_offsets(batches), *(record for batch in batches for record in _offsets([batch]))}
        self._rows = list(self._read(batches))
        self.notes: tuple[str, ...] = ("is read as an ACH file, whose control totals are right",)
        if left_out := sum(len(batch.entries) for batch in batches) - len(self._rows):
            self.notes += (f"prenotes, which pay nothing, are left out: {row_count(left_out)}",)
        if self._unnamed:
            told = "only a ledger's key makes a paymentId of a social security number, and there is none here"
            self.notes += (f"{told}: {row_count(self._unnamed)} without",)

    def use(self, header: Header) -> None:
        """Set which columns to yield."""
        self._header = header

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Yield the payments in file order; their lines are the numbers of their records."""
        places = [f"c{at}" for at in range(len(NAMES))]
        self._header.examples.restart()
        for first in range(0, len(self._rows), _CHUNK_ROWS):
            columns = zip(*self._rows[first : first + _CHUNK_ROWS], strict=True)
            line = pl.Series("_line", next(columns), dtype=pl.UInt32)
            cells = [pl.Series(place, cells, dtype=pl.String) for place, cells in zip(places, columns, strict=True)]
            yield finish_chunk(self._file.name, pl.DataFrame([line, *cells]), places, self._header, first)

    def _read(self, batches: list[AchBatch]) -> Iterator[tuple[int | str | None, ...]]:
        """Yield each payment's record and cells; raises FileRefused for what is no payment, or can't be one here."""
        times: Counter[tuple[str, str]] = Counter()
        for batch in batches:
            day = self._effective_date(batch)
            for entry in batch.entries:
                if not self._is_payment(entry, batch):
                    continue
                individual, payment_id = entry.cell(40, 54), ""
                who = individual
                if _SOCIAL_SECURITY.fullmatch(individual):  # kept nowhere, but as a digest
                    bare = individual.replace("-", "")
                    digests = self._keys.digest("individual", [bare], 8) if self._keys else []
                    who = "".join(one.hex() for one in digests if one)
                    individual, self._unnamed = "", self._unnamed + (not who)
                if who:
                    times[who, day] += 1
                    payment_id = "-".join(filter(None, (who, day, str(times[who, day]))))
                cells = (
                    OFFSET if entry.record in self._offsets else PAYMENT, payment_id, entry.direction.value,
                    format_cents(entry.cents), entry.cell(55, 76), entry.cell(4, 12), entry.cell(13, 29),
                    _DEPOSITS[entry.text[1]], _ACCOUNT_TYPES[batch.entry_class], batch.entry_class, day, individual,
                    batch.header[4:20].strip(), batch.header[53:63].strip(),
                    " ".join(text[3:83].strip() for text in entry.addenda),
                )  # fmt: skip
                yield entry.record, *(cell or None for cell in cells)

    def _is_payment(self, entry: AchEntry, batch: AchBatch) -> bool:
        """Return whether an entry moves money; False for a prenote."""
        place, code = f"{self._file.name}: record {entry.record}", entry.text[1:3]
        if batch.entry_class not in _ACCOUNT_TYPES:
            raise FileRefused(
                f"{place} is in a batch of class {batch.entry_class}: only PPD, CCD, WEB and TEL are paid"
            )
        if code in _PAYS or (code in _PRENOTES and entry.cents == 0):
            return code in _PAYS
        what = _REFUSED.get(code[1], "unknown") if code[0] in _DEPOSITS else "a loan or the bank's own account"
        told = "is a prenote with an amount" if code in _PRENOTES else f"has transaction code {code} ({what})"
        raise FileRefused(f"{place} {told}: a file with anything else than payments is not paid")

    def _effective_date(self, batch: AchBatch) -> str:
        """Return the day on which a batch is to be paid, as YYYY-MM-DD; empty if it says none."""
        text = batch.header[69:75].strip()
        try:
            return f"{datetime.strptime(text, '%y%m%d'):%Y-%m-%d}" if text else ""  # noqa: DTZ007 - a day has no zone
        except ValueError:
            raise FileRefused(f"{self._file.name}: the header of a batch has no day as its effective date") from None


def _offsets(batches: list[AchBatch]) -> Iterator[int]:
    """Yield the record of the entry that alone moves all that the others move, the other way: the company's own."""
    sides: dict[Direction, list[tuple[AchEntry, str]]] = {way: [] for way in Direction}
    for batch in batches:
        for entry in batch.entries:
            if entry.cents:
                sides[entry.direction].append((entry, batch.header[4:20].strip().upper()))
    sums = [sum(entry.cents for entry, _ in side) for side in sides.values()]
    alone = [side[0] for side in sides.values() if len(side) == 1]
    if sums[0] == sums[1] and alone:
        own = [entry for entry, company in alone if company and entry.cell(55, 76).upper().startswith(company)]
        yield max(own or [entry for entry, _ in alone], key=lambda entry: entry.record).record
