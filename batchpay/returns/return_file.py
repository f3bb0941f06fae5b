"""Reading a file of returns: a table (CSV, XLSX, Parquet) or a bank's ACH file.

Columns of a table mean what their usual names say, or a map, as in an export (reconciliation/statement.py). A line
without a code is a payment that did not come back, unless its status says that it did.

In an ACH file, returns are addenda 99 and notifications of change addenda 98. The routing number of an entry is ours
there: the payee's is in the addenda, eight digits of it.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, partial
from typing import ClassVar

from batchpay.errors import FileRefused
from batchpay.intake.ach_records import AchBatch, check_digit, is_ach, read_ach
from batchpay.payment import Direction
from batchpay.reconciliation import sheet_reader, statement
from batchpay.returns.codes import code_in
from batchpay.schemas.words import header_key, headers
from batchpay.writing.atomic import FileOrPath, Stream


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """One payment that came back, or whose account is to be corrected."""

    line: int
    """Of a table, or the number of the record in an ACH file."""
    code: str
    """R01; blank where the line has none that can be one."""
    day: date | None
    cents: int | None
    """None where the line has no amount, as a notification of change has none."""
    direction: Direction | None = None
    payment_id: str = ""
    reference: str = ""
    invoice: str = ""
    routing: str = field(default="", repr=False)
    account: str = field(default="", repr=False)
    """The whole account number; blank where it is masked."""
    last_four: str = ""
    name: str = field(default="", repr=False)
    corrected: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReturnFile:
    """A file of returns, read whole."""

    name: str
    digest: str
    """SHA-256 of its bytes."""
    lines: Sequence[ReturnLine]
    skipped: int = 0
    """Lines of a table that say nothing of a return."""


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


_KEYS = frozenset({"payment_id", "reference", "invoice", "account"})
_WHOLE_ACCOUNT = re.compile(r"[0-9-]{5,17}", re.ASCII)
"""A shorter one, or one with other characters, may be what a mask has left."""
_HEAD_BYTES = 64
_TEXT_CHARACTERS_MAX = 128


class ReturnsMap(statement.ExportMap):
    """What a map file says of a table of returns."""

    USUAL: ClassVar[Mapping[str, tuple[str, ...]]] = {
        kind: tuple(map(header_key, names)) for kind, names in headers("returns").items()
    }

    @staticmethod
    def is_header(kinds: Collection[str]) -> bool:
        """Whether a line that has these kinds of columns is the header: a code, and what to match by."""
        return not {"code", "change_code"}.isdisjoint(kinds) and not _KEYS.isdisjoint(kinds)

    def unknown_header(self, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        """Say what is not known of a header."""
        asked = 'Which is the code (R01)? Name it in a map (--map): [columns] code = "..."'
        return (
            f"no header is known that names the return code and the payment. {statement.headers_seen(header)} {asked}"
        )


def read_returns(path: FileOrPath, mapping: ReturnsMap | None = None) -> ReturnFile:
    """Read a file of returns; raises FileRefused where it can't be read whole, or its control totals are not met."""
    with sheet_reader.opened(path) as file:
        content = file.read()
    digest, name = hashlib.sha256(content).hexdigest(), str(path)
    if is_ach(content[:_HEAD_BYTES]):
        return ReturnFile(name, digest, list(ach_lines(content, name)))
    return _table(Stream(name, io.BytesIO(content)), digest, mapping or ReturnsMap())


def _table(path: Stream, digest: str, mapping: ReturnsMap) -> ReturnFile:
    with closing(sheet_reader.read_sheet(path, statement.only_sheet(path, mapping))) as lines:
        _, at, rest = statement.find_header(path, lines, mapping)
        cells = [
            (
                line,
                {
                    kind: row[index]
                    for kind, index in at.items()
                    if index < len(row) and row[index] != sheet_reader.LOST_DIGITS
                },
            )
            for line, row in rest
        ]
    day_first = bool(sheet_reader.day_comes_first({row.get("date", "") for _, row in cells}))
    if statement.only_number_lines([row.get("reference", "") for _, row in cells]):
        for _, row in cells:
            row.pop("reference", None)
    found = list(_lines(cells, mapping, day_first=day_first))
    return ReturnFile(str(path), digest, found, len(cells) - len(found))


def _lines(
    cells: Sequence[tuple[int, dict[str, str]]], mapping: ReturnsMap, *, day_first: bool
) -> Iterator[ReturnLine]:
    day_of = cache(partial(sheet_reader.foreign_date, day_first=day_first, pattern=mapping.date_pattern))
    direction_of, code_of = cache(statement.direction_in), cache(code_in)  # few different ones in very many lines
    for line, row in cells:
        cell = row.get
        code = code_of(cell("code", "")) or code_of(cell("change_code", "")) or code_of(cell("status", ""))
        is_return = code or mapping.says_it_came_back(cell("status", "")) or any(map(str.isalnum, cell("code", "")))
        if not is_return or _KEYS.isdisjoint(kind for kind, text in row.items() if text):
            continue
        if cell("amount"):
            cents = sheet_reader.foreign_cents(row["amount"])
        else:
            cents = sheet_reader.side_cents(cell("debit", "")) or sheet_reader.side_cents(cell("credit", ""))
        account = "".join(cell("account", "").split())
        yield ReturnLine(
            line=line,
            code=code,
            day=day_of(cell("date", "")),
            cents=abs(cents) if cents else None,
            direction=direction_of(cell("direction", "")),
            payment_id=cell("payment_id", "")[:_TEXT_CHARACTERS_MAX],
            reference=cell("reference", "")[:_TEXT_CHARACTERS_MAX],
            invoice=cell("invoice", "")[:_TEXT_CHARACTERS_MAX],
            routing=cell("routing", "").zfill(9) if cell("routing") else "",
            account=account if _WHOLE_ACCOUNT.fullmatch(account) else "",
            last_four=sheet_reader.last_four_of(account),
            name=cell("name", ""),
            corrected=cell("corrected", ""),
        )
