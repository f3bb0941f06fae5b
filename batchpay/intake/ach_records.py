"""ACH files (NACHA): records of 94 characters in blocks of ten, and the control totals that they carry.

    1 file header   5 batch header   6 entry   7 addenda of an entry   8 batch control   9 file control, then fillers

Positions are those of the Nacha Operating Rules, Appendix Three, counted from 1. Lines may end with CR-LF, with LF or
not at all, and may have lost the blanks at their end; a file may be several, one after the other. Nothing of a record
is ever quoted: it has account numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

from batchpay.errors import FileRefused
from batchpay.payment import Direction

RECORD = 94
_HASH_MAX = 10**10
_WEIGHTS = (3, 7, 1, 3, 7, 1, 3, 7)
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?\s*1\d\d.{31}094")


def check_digit(routing: str) -> str:
    """Return the ninth digit of a routing number, given its first eight."""
    return str(-sum(weight * int(digit) for weight, digit in zip(_WEIGHTS, routing, strict=True)) % 10)


@dataclass(slots=True)
class AchEntry:
    """A payment, or one that came back, with its addenda."""

    record: int
    """Its number in the file, counted from 1."""
    text: str = field(repr=False)
    addenda: list[str] = field(default_factory=list, repr=False)

    def cell(self, first: int, last: int) -> str:
        """Return the text between two positions, without the blanks around it."""
        return self.text[first - 1 : last].strip()

    @property
    def cents(self) -> int:
        """Its amount."""
        return int(self.text[29:39])

    @property
    def direction(self) -> Direction:
        """Which way the money goes, by the transaction code: 21 to 24 and the like are credits, 26 to 29 debits."""
        return Direction.CREDIT if self.text[2] < "5" else Direction.DEBIT


@dataclass(slots=True)
class AchBatch:
    """A batch of entries under one header."""

    created: date
    """The day on which its file was made."""
    header: str
    entries: list[AchEntry] = field(default_factory=list)

    @property
    def entry_class(self) -> str:
        """PPD, CCD, ..., or COR for notifications of change."""
        return self.header[50:53]


def is_ach(head: bytes) -> bool:
    """Whether a file that begins so has the header of an ACH file."""
    return _HEADER.match(head) is not None


def read_ach(content: bytes, name: str) -> list[AchBatch]:
    """Read a file's batches; raises FileRefused where a record is out of place or control totals are not met."""
    batches: list[AchBatch] = []
    created, batch, kind, file_batches = date.min, None, "9", 0
    totals, file_totals = _NONE, _NONE
    for number, text in _records(content):
        before, kind = kind, text[0]
        if kind not in _AFTER.get(before, ""):
            raise FileRefused(f"{name}: record {number} is out of place, an ACH file has no such record there")
        if not _DIGITS[kind].match(text):
            raise FileRefused(f"{name}: record {number} has something else where an ACH file has digits")
        if kind == "1":
            created, file_batches, file_totals = _day(text[23:29], f"{name}: record {number}"), 0, _NONE
        elif kind == "5":
            batch, totals = AchBatch(created, text), _NONE
        elif kind == "6" and batch is not None:
            batch.entries.append(one := AchEntry(number, text))
            cents = (one.cents, 0) if one.direction is Direction.DEBIT else (0, one.cents)
            totals = _sum(totals, (1, int(text[3:11]), *cents))
        elif kind == "7" and batch is not None:
            batch.entries[-1].addenda.append(text)
            totals = _sum(totals, (1, 0, 0, 0))
        elif kind == "8" and batch is not None:
            _require(_wrong(totals, text[4:44]), f"{name}: record {number}", "the batch")
            batches.append(batch)
            file_batches += 1
            file_totals = _sum(file_totals, totals)
        elif kind == "9":
            wrong = None if int(text[1:7]) == file_batches else "number of batches"
            _require(wrong or _wrong(file_totals, text[13:55]), f"{name}: record {number}", "the file")
    if kind != "9" or created == date.min:
        raise FileRefused(f"{name}: is an ACH file that is cut off, its last record is missing")
    return batches


_AFTER = {"1": "59", "5": "68", "6": "678", "7": "678", "8": "59", "9": "1"}
"""What may follow each kind of record."""
_DIGITS = {
    "1": re.compile(r".{23}\d{6}"),
    "5": re.compile(""),
    "6": re.compile(r".\d{10}.{18}\d{10}"),
    "7": re.compile(r".\d\d"),
    "8": re.compile(r".{4}\d{40}"),
    "9": re.compile(r".\d{6}.{6}\d{42}"),
}
"""Where each kind of record has digits that are read."""


_Totals = tuple[int, int, int, int]
_NONE: _Totals = (0, 0, 0, 0)
_TOTALS = ("number of entries and addenda", "entry hash", "total of debits", "total of credits")
"""What a control record states; the hash is the sum of the banks' eight digits."""


def _sum(one: _Totals, more: _Totals) -> _Totals:
    return one[0] + more[0], one[1] + more[1], one[2] + more[2], one[3] + more[3]


def _wrong(found: _Totals, stated: str) -> str | None:
    """Return which total a control record states otherwise: count, hash (10 digits), debits and credits (12 each)."""
    numbers = (stated[:-34], stated[-34:-24], stated[-24:-12], stated[-12:])
    totals = (found[0], found[1] % _HASH_MAX, *found[2:])
    return next((name for name, digits, one in zip(_TOTALS, numbers, totals, strict=True) if int(digits) != one), None)


def _require(wrong: str | None, place: str, what: str) -> None:
    if wrong is not None:
        raise FileRefused(f"{place}: the {wrong} that it states is not that of {what}: cut off, or changed on its way")


def _day(text: str, place: str) -> date:
    try:
        return datetime.strptime(text, "%y%m%d").date()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        raise FileRefused(f"{place} has no day on which the file was made") from None


def _records(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the records with their numbers, without fillers."""
    try:
        whole = content.decode("utf-8-sig")  # a name with an accent is one character there
    except UnicodeDecodeError:
        whole = content.decode("latin-1")
    lines = filter(None, map(str.rstrip, re.split(r"[\r\n\x1a]+", whole)))
    records = (line[at : at + RECORD].ljust(RECORD) for line in lines for at in range(0, len(line), RECORD))
    for number, record in enumerate(records, 1):
        if record.strip("9"):  # a filler has nothing else
            yield number, record
