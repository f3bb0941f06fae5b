"""A gateway's or a bank's export: its lines, read whole and bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path

from batchpay.errors import FileRefused, did_you_mean
from batchpay.payment import Direction
from batchpay.reconciliation.export_map import (
    DIRECTION_HEADERS,
    KIND_HEADERS,
    UNDER_WAY_WORDS,
    USUAL_HEADERS,
    ExportMap,
    ReportedStatus,
    folded_word,
)
from batchpay.reconciliation.loose_formats import day_comes_first, foreign_cents, foreign_date, last_four_of, side_cents
from batchpay.reconciliation.references import only_number_lines
from batchpay.reconciliation.resolution import BATCH_MARK
from batchpay.reconciliation.sheet_reader import LOST_DIGITS, read_sheet, sheet_names
from batchpay.writing.atomic import Stream

_ADDRESS = frozenset({"city", "zip", "zipcode", "postalcode"})
"""Next to one of these, a column `state` is part of an address (New York), not a status."""
_RETURN_HEADER = re.compile(r"return|chargeback|revers|refund|void|reject|declin|failure")
"""What shows in a header, without blanks, that its column is blank unless the payment failed or came back."""
_OTHER_HEADER = re.compile(r"address|url|(return|refund|void)able|reversible")
"""What shows that it is another column after all: `Return Address`, `Refundable`."""
_NOT_RETURNED = re.compile(r"-*|n|no|none|false|n/?a|null|not (returned|refunded|reversed|voided|rejected)")
_PLUS = re.compile(r"\+|CR\s*$", re.IGNORECASE)
_DIRECTIONS = {
    Direction.DEBIT: re.compile(r"\b(debits?|dr|d|dbit|withdrawals?)\b"),
    Direction.CREDIT: re.compile(r"\b(credits?|cr|c|crdt|deposits?)\b"),
}
_TOTAL = re.compile(r"((sub|grand)[ -]?)?totals?:?", re.IGNORECASE)
_HEADER_LINES = 20
_TEXT_CHARACTERS_MAX = 128


@dataclass(slots=True)
class ExportLine:
    """One payment of the export. `row` and what follows are set by the matching."""

    line: int
    reference: str
    invoice: str
    cents: int | None
    """Signed as in the export; None where the amount can't be read."""
    amount_text: str
    date_text: str
    last_four: str
    status_text: str
    standing: ReportedStatus
    objection: str = ""
    """What another column than the status says of a payment that failed or came back: its header and its text."""
    on: date | None = None
    row: int | None = None
    found_by: str = ""
    other_batch: str = ""
    is_owned: bool = False
    """Whether the ledger knows the line's reference from a row."""
    is_shared: bool = False
    """Whether another row, here or in another batch, has the line's reference too: no proof for a row in doubt."""
    is_perhaps: bool = False
    """Whether the line may be about a row whose reference is masked, and others would fit as well."""
    came_back: bool = False
    """Whether the line says that the money came back."""
    states_direction: bool = False
    """Whether the amount has a sign, or a column for one direction; otherwise it says nothing about the direction."""
    direction: Direction | None = None
    """The direction that a column of types says."""
    opposes: str = ""
    """What says another direction than the row's, where no other row shows that this export writes it so."""
    is_other_account: bool = False
    """Whether the account is not the row's, and no other row shows that this export has other accounts in it."""
    is_ahead: bool = False
    """Whether the line is dated after today: it proves nothing yet."""

    @property
    def said(self) -> str:
        """What the line says became of the payment."""
        return "; ".join(filter(None, (self.status_text, self.objection)))

    @property
    def is_word_unknown(self) -> bool:
        """Whether it has an unknown status: it may say that the payment failed."""
        word = folded_word(self.status_text)
        return bool(word) and self.standing is ReportedStatus.OTHER and word not in UNDER_WAY_WORDS

    @property
    def free(self) -> bool:
        """Whether the line is a readable payment that belongs to nothing yet."""
        known = self.other_batch or self.is_owned or self.is_perhaps
        return self.row is None and not known and self.cents is not None


@dataclass(slots=True)
class Export:
    """An export as read."""

    name: str
    columns: dict[str, str]
    """What each kind of column is called in the export."""
    lines: list[ExportLine]
    skipped: int
    """Lines that name no payment: an amount alone, as in totals."""
    header: list[str] = field(default_factory=list)
    is_mapped: bool = False
    """Whether a map names its columns."""
    batches: set[str] = field(default_factory=set)
    """What its column `batch` says, if it has one: results of batchpay name theirs there."""


def read_export(path: str | Path | Stream, mapping: ExportMap) -> Export:
    """Read an export whole; raises FileRefused where no amount or nothing to match by can be found in it."""
    payments: list[ExportLine] = []
    batches: set[str] = set()
    skipped = 0
    with closing(read_sheet(path, _only_sheet(path, mapping))) as lines:
        header, at = _find_header(path, lines, mapping)
        further = _further_columns(header, at, mapping)
        batch_at = header.index("batch") if "batch" in header else None
        for line, cells in lines:
            if batch_at is not None and batch_at < len(cells):
                batches.add(_text(cells[batch_at]).removeprefix(BATCH_MARK))
            payment = _payment(line, cells, at, mapping)
            if payment is None:
                skipped += 1
                continue
            payment.objection = _objection(cells, further, mapping)
            payment.direction = _direction(cells, further)
            payment.came_back = payment.came_back or bool(payment.objection)
            payments.append(payment)
    if "reference" not in mapping.columns and only_number_lines([one.reference for one in payments]):
        at.pop("reference", None)
        for payment in payments:
            payment.reference = ""
    day_first = day_comes_first(payment.date_text for payment in payments)
    for payment in payments:
        payment.on = foreign_date(payment.date_text, day_first=day_first, pattern=mapping.date_pattern)
    columns = {kind: header[index] for kind, index in at.items()}
    if further:
        columns["also"] = ", ".join(further.values())
    return Export(str(path), columns, payments, skipped, header, bool(mapping.columns), batches)


def _only_sheet(path: str | Path | Stream, mapping: ExportMap) -> str | None:
    """Name the sheet with the payments; raises FileRefused if several have some, as returns may have their own."""
    names = sheet_names(path)
    if len(names) < 2:
        return None
    found = []
    for name in names:
        with closing(read_sheet(path, name)) as lines:
            if any(_columns_of(cells, mapping) for _, cells in islice(lines, _HEADER_LINES)):
                found.append(name)
    if len(found) > 1:
        named = ", ".join(map(repr, found))
        raise FileRefused(f"{path} has several sheets of payments, {named}; reconcile each sheet separately")
    return found[0] if found else None


def _find_header(
    path: str | Path | Stream, lines: Iterable[tuple[int, list[str]]], mapping: ExportMap
) -> tuple[list[str], dict[str, int]]:
    """Find the header among the first lines: banks write their own address above it."""
    best: list[str] = []
    for _, (_, cells) in zip(range(_HEADER_LINES), lines, strict=False):
        at = _columns_of(cells, mapping)
        if at is not None:
            return cells, at
        if not best:
            best = cells
    if mapping.columns:
        absent = [name for name in mapping.columns.values() if name not in best]
        missing = ", ".join(name + did_you_mean(name, best) for name in absent) or "an amount and what to match by"
        raise FileRefused(f"{path} has no line of headers with {missing}")
    raise FileRefused(
        f"{path}: no header says which column is the amount and which the reference, the invoice number or the account;"
        " name them with --map"
    )


def _columns_of(cells: Sequence[str], mapping: ExportMap) -> dict[str, int] | None:
    """Return the position of each kind of column, or None where this line is not a header."""
    if any(name not in cells for name in mapping.columns.values()):
        return None
    at = {kind: cells.index(name) for kind, name in mapping.columns.items()}
    plain = [_plain(cell) for cell in cells]
    for kind, usual in USUAL_HEADERS.items():
        if kind in at or (kind in ("debit", "credit") and "amount" in at):
            continue
        known = [name for name in usual if name in plain and not (name == "state" and _ADDRESS.intersection(plain))]
        found = plain.index(known[0]) if known else None
        if found is not None and found not in at.values():
            at[kind] = found
    has_amount = "amount" in at or {"debit", "credit"} <= at.keys()
    return at if has_amount and at.keys() & {"reference", "invoice", "last_four"} else None


def _plain(header: str) -> str:
    return "".join(character for character in header.lower() if character.isalnum())


def _further_columns(header: Sequence[str], at: dict[str, int], mapping: ExportMap) -> dict[int, str]:
    """Return the header, by position, of each other column that may say that a payment failed or came back.

    A further status counts only where no map names the one that does.
    """
    known = (*KIND_HEADERS, *DIRECTION_HEADERS, *(() if "status" in mapping.columns else USUAL_HEADERS["status"]))
    plain = [_plain(cell) for cell in header]
    is_address = _ADDRESS.intersection(plain)
    return {
        index: header[index]
        for index, name in enumerate(plain)
        if (name in known or _is_of_returns(name)) and index not in at.values() and not (name == "state" and is_address)
    }


def _is_of_returns(name: str) -> bool:
    return _RETURN_HEADER.search(name) is not None and _OTHER_HEADER.search(name) is None


def _objection(cells: Sequence[str], further: dict[int, str], mapping: ExportMap) -> str:
    """Return what another column than the status says of a payment that failed or came back; blank if nothing."""
    for index, header in further.items():
        text, name = _text(cells[index]) if index < len(cells) else "", _plain(header)
        word, standing = folded_word(text), mapping.standing_of(text)
        if _is_of_returns(name):
            objects = not _NOT_RETURNED.fullmatch(word) and foreign_cents(text) != 0
        elif _is_kind(name) or name == "state":
            objects = standing is ReportedStatus.DECLINED or mapping.says_it_came_back(text)
        else:
            objects = standing is not ReportedStatus.ACCEPTED and word not in UNDER_WAY_WORDS
        if word and objects:
            return f"{header}: {text}"
    return ""


def _direction(cells: Sequence[str], further: dict[int, str]) -> Direction | None:
    """Return the direction that a column of types says, None where it says none or both."""
    words = " ".join(folded_word(cells[at]) for at, name in further.items() if at < len(cells) and _is_kind(name))
    found = [direction for direction, pattern in _DIRECTIONS.items() if pattern.search(words)]
    return found[0] if len(found) == 1 else None


def _is_kind(header: str) -> bool:
    return _plain(header) in (*KIND_HEADERS, *DIRECTION_HEADERS)


def _payment(line: int, cells: Sequence[str], at: dict[str, int], mapping: ExportMap) -> ExportLine | None:
    def cell(kind: str) -> str:
        index = at.get(kind)
        return cells[index] if index is not None and index < len(cells) else ""

    reference, invoice = (_text(cell(kind)) for kind in ("reference", "invoice"))
    last_four = last_four_of(cell("last_four"))
    date_text = "" if _TOTAL.fullmatch(cell("date")) else _text(cell("date"))
    is_total = _TOTAL.fullmatch(reference or invoice) is not None
    if not (last_four or date_text) and (is_total or not (reference or invoice)):
        return None
    if "amount" in at:
        amount_text = cell("amount")
        cents = foreign_cents(amount_text)
    else:
        amount_text = next((text for text in map(cell, ("debit", "credit")) if side_cents(text) != 0), "")
        cents = _two_columns(cell("debit"), cell("credit"))
    status = _text(cell("status"))
    return ExportLine(
        line=line,
        reference=reference,
        invoice=invoice,
        cents=cents,
        amount_text=_text(amount_text),
        date_text=date_text,
        last_four=last_four,
        status_text=status,
        standing=mapping.standing_of(status),
        came_back=mapping.says_it_came_back(status),
        states_direction="amount" not in at or (cents or 0) < 0 or bool(_PLUS.search(amount_text)),
    )


def _two_columns(debit: str, credit: str) -> int | None:
    """Return the cents of a line with one column for money out and one for money in, one of them blank or zero."""
    out, into = map(side_cents, (debit, credit))
    if out is None or into is None or bool(out) == bool(into):
        return None
    return into - abs(out)


def _text(cell: str) -> str:
    return "" if cell == LOST_DIGITS else cell[:_TEXT_CHARACTERS_MAX]
