"""A gateway's or a bank's export: its lines, read whole and bounded, and what its columns and words mean.

They mean what their usual names say, or a map (TOML):

[columns]
reference = "Transaction ID"    # also invoice, text, amount, debit, credit, date, last_four, status
[status]
accepted = ["Settled"]          # words of the status column; case does not matter
declined = ["Returned"]
missing = "accepted"            # what a line without a status means; nothing by default
[format]
date = "%d/%m/%Y"

The ledger keeps a reference masked where it contained five or more digits of the row's account (`SBX****01`): what is
left shows which references it may have been, and proves none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from batchpay.errors import FileRefused, did_you_mean
from batchpay.intake.small_tables import read_toml
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.outcome import MASK
from batchpay.payment import Direction
from batchpay.reconciliation import sheet_reader
from batchpay.reconciliation.resolution import BATCH_MARK
from batchpay.schemas.words import header_key, headers, meaning, words
from batchpay.writing.atomic import FileOrPath


def key_of(number: str | None) -> str:
    """Normalize a reference or invoice number for comparison: spreadsheets lose letter case and leading zeros."""
    return (number or "").strip().casefold().lstrip("0")


def numbers_in(text: str) -> dict[str, str]:
    """Return what may be numbers of payments within a longer text, as written, by what they are compared by."""
    found = (one.rstrip(".-") for one in _NUMBER.findall(text))
    return {key_of(one): one for one in found if len(one) >= _NUMBER_CHARACTERS_MIN}


def only_number_lines(references: Sequence[str]) -> bool:
    """Whether a column counts the lines (1, 2, 3): that is no reference, since every export has the same."""
    found, count = {key_of(reference) for reference in references}, len(references)
    return any(found == {str(number or "") for number in range(first, first + count)} for first in (0, 1))


def is_masked(reference: str) -> bool:
    """Whether a part of a reference is not known."""
    return MASK in reference


def may_be(one: str, other: str) -> bool:
    """Whether two keys may be the same reference: they are equal, or what is left of a masked one fits the other."""
    if not (is_masked(one) or is_masked(other)):
        return one == other
    if not is_masked(one):
        one, other = other, one
    head, tail = one.split(MASK)[0], one.split(MASK)[-1]
    if not is_masked(other):
        return len(other) >= len(head) + len(tail) and other.startswith(head) and other.endswith(tail)
    heads, tails = sorted((head, other.split(MASK)[0]), key=len), sorted((tail, other.split(MASK)[-1]), key=len)
    return heads[1].startswith(heads[0]) and tails[1].endswith(tails[0])


def refused_reference(ledger: Ledger, batch: BatchSummary, references: Mapping[int, str]) -> str | None:
    """Return why the references that a person gives for rows of a batch can't all be theirs; None if nothing is known.

    One payment at the gateway proves one row: its reference belongs to no other row in any batch of the environment.
    """
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for row, reference in references.items():
        wanted[key_of(reference)].append(row)
    wanted.pop("", None)
    for rows in wanted.values():
        if len(rows) > 1:
            return f"rows {rows[0]} and {rows[1]} have one gateway_reference: one payment proves one row"
    masked = [key for key in wanted if is_masked(key)]
    for name, row, known in ledger.gateway_references(batch.environment) if wanted else ():
        key = key_of(known)
        fitting = [key] if key in wanted else []
        if is_masked(key):
            fitting += [one for one in wanted if may_be(key, one)]
        elif masked:
            fitting += [one for one in masked if may_be(one, key)]
        for one in fitting:
            if (name, row) != (batch.batch, wanted[one][0]):
                return _told(references[wanted[one][0]], wanted[one][0], f"row {row} of batch {name}", known)
    return None


def _told(reference: str, row: int, owner: str, known: str) -> str:
    if key_of(reference) == key_of(known) and not is_masked(known):
        return f"row {row}: the ledger knows gateway_reference {reference} from {owner}: one payment proves one row"
    return (
        f"row {row}: gateway_reference {reference} may be that of {owner}, of which the ledger knows {known} alone; if"
        " it is not, leave it out and say so in the reason"
    )


USUAL_HEADERS = {kind: tuple(map(header_key, names)) for kind, names in headers("export").items()}
"""Headers as others write them, by what they are looked up by; the first one found wins."""
KIND_HEADERS = USUAL_HEADERS.pop("kind")
"""Headers of what a line is: a payment or, in a word of its own, a refund or a return."""
DIRECTION_HEADERS = USUAL_HEADERS.pop("direction")
"""Headers of the direction alone."""


def _outcomes(*meanings: str) -> frozenset[str]:
    return frozenset(word for word, means in words("outcome").items() if means in meanings)


ACCEPTED_WORDS, DECLINED_WORDS = _outcomes("accepted"), _outcomes("declined", "returned")
RETURNED_WORDS = _outcomes("returned")
"""A payment that came back counts as declined: in the end no money moved."""
UNDER_WAY_WORDS = _outcomes("under way")
"""Neither paid nor refused yet, as an accepted payment is for a day or two; they settle nothing."""
_RETURN = re.compile(
    r"\b(r\d\d|return(s|ed)?|refund(s|ed)?|revers(al|ed)|void(ed)?|charge[ -]?backs?|charged back|sent back)\b"
)
"""What shows within longer texts that the money came back: `Returned - R01`, `R03 no account`."""


class ReportedStatus(StrEnum):
    """What the other side says about a payment."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    OTHER = "other"
    """A word that means neither, or no word at all."""


@dataclass(slots=True)
class ExportMap:
    """What a map file says."""

    USUAL: ClassVar[Mapping[str, tuple[str, ...]]] = USUAL_HEADERS
    """Headers by kind of column, where the map names none."""
    columns: dict[str, str] = field(default_factory=dict)
    accepted: frozenset[str] = ACCEPTED_WORDS
    declined: frozenset[str] = DECLINED_WORDS
    missing: ReportedStatus = ReportedStatus.OTHER
    date_pattern: str | None = None

    @staticmethod
    def is_header(kinds: Collection[str]) -> bool:
        """Whether a line that has these kinds of columns is the header: an amount, and what to match by."""
        has_amount = "amount" in kinds or {"debit", "credit"} <= set(kinds)
        return has_amount and not {*_NUMBERS, "text"}.isdisjoint(kinds)

    def unknown_header(self, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
        """Say what is not known of a header, and what to choose from."""
        of_money = [
            name
            for index, name in enumerate(header)
            if _may_be_header(name)
            and any(
                "." in one[index] and sheet_reader.foreign_cents(one[index]) is not None
                for one in lines
                if index < len(one)
            )
        ]
        if {header_key(name) for name in header}.intersection(USUAL_HEADERS["amount"]):
            asked = (
                "Which has the invoice number, the reference, or a text with one? Name it in a map (--map):"
                ' [columns] invoice = "..."'
            )
        else:
            choice = f"Which of {', '.join(of_money)} is the amount" if of_money else "Which is the amount"
            asked = f'{choice}? Name it in a map (--map): [columns] amount = "{of_money[0] if of_money else "..."}"'
        return f"no header is known that names the amount and what to match by. {headers_seen(header)} {asked}"

    def standing_of(self, word: str) -> ReportedStatus:
        """What a status means."""
        folded = folded_word(word)
        if not folded:
            return self.missing
        if folded in self.accepted:
            return ReportedStatus.ACCEPTED
        return ReportedStatus.DECLINED if folded in self.declined else ReportedStatus.OTHER

    def says_it_came_back(self, word: str) -> bool:
        """Whether a status says that the money came back; longer texts only where the map does not define them."""
        folded = folded_word(word)
        return folded in RETURNED_WORDS or (
            self.standing_of(word) is ReportedStatus.OTHER and _RETURN.search(folded) is not None
        )


MapOf = TypeVar("MapOf", bound=ExportMap)


def load_export_map(path: str | Path, made: type[MapOf]) -> MapOf:
    """Read a map; raises FileRefused that names whatever is unknown in it."""
    tables = read_toml(str(path), "map of an export")
    known = {
        "columns": tuple(made.USUAL),
        "status": ("accepted", "declined", "missing"),
        "format": ("date",),
    }
    for table, values in tables.items():
        _refuse_unknown(path, f"[{table}]", table, known)
        if not isinstance(values, dict):
            raise FileRefused(f"{path}: {table} must be a table: [{table}]")
        for name in values:
            _refuse_unknown(path, f"{table}.{name}", name, known[table])
    columns = tables.get("columns", {})
    status = tables.get("status", {})
    if not all(isinstance(name, str) for name in columns.values()):
        raise FileRefused(f"{path}: [columns] must contain text: the headers of the export")
    missing = status.get("missing", ReportedStatus.OTHER)
    if missing not in list(ReportedStatus):
        raise FileRefused(f"{path}: status.missing is accepted, declined or other")
    pattern = tables.get("format", {}).get("date")
    if not (pattern is None or isinstance(pattern, str)):
        raise FileRefused(f"{path}: format.date must be text such as %d/%m/%Y")
    return made(
        columns=dict(columns),
        accepted=_words(path, "accepted", status, ACCEPTED_WORDS),
        declined=_words(path, "declined", status, DECLINED_WORDS),
        missing=ReportedStatus(missing),
        date_pattern=pattern,
    )


def folded_word(word: str) -> str:
    """A word as it is compared: in lower case, one blank between its parts."""
    return " ".join(word.lower().split())


def _words(path: str | Path, name: str, status: dict[str, Any], usual: frozenset[str]) -> frozenset[str]:
    given = status.get(name)
    if given is None:
        return usual
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise FileRefused(f'{path}: status.{name} must be a list of words, such as ["Settled"]')
    return frozenset(map(folded_word, given))


def _refuse_unknown(path: str | Path, shown: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise FileRefused(f"{path}: {shown} is not part of a map of an export{did_you_mean(name, known)}")


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
_CHANGE = re.compile(r"c(0[1-9]|1[34])\b.*")
"""A notification of change stands among returns, and is none: the payment went through, with details to correct."""
_NUMBER = re.compile(r"[^\s:;,|*()\"']*[0-9][^\s:;,|*()\"']*")
_NUMBER_CHARACTERS_MIN = 5
"""A shorter number in a text may be anything."""
_NUMBERS = frozenset({"reference", "invoice", "last_four"})
"""What lines are matched by; without any of them, by what their text says."""
_HEADER_LINES = 20
_HEADERS_TOLD_MAX = 30
_LONG_NUMBER = re.compile(r"[0-9]{4}", re.ASCII)
_TEXT_CHARACTERS_MAX = 128
_LONG_TEXT_MAX = 512


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
    text: str = ""
    """What a person would read in it, where the export has no column of invoice numbers."""
    is_by_text: bool = False
    """Whether its invoice number was found in its text."""
    change: str = ""
    """The notification of change that it has: header and text."""
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
    def how(self) -> str:
        """How it was matched, for people."""
        return "invoice number in its text" if self.is_by_text and self.found_by == "invoice" else self.found_by

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
    sheet: str | None = None
    """Which sheet of a workbook was read, if it has several."""
    is_day_first: bool | None = None
    """Whether 02/01 is in January; None where no date of the file shows it: it was read as a month first."""


def read_export(path: FileOrPath, mapping: ExportMap) -> Export:
    """Read an export whole; raises FileRefused where no amount or nothing to match by can be found in it."""
    payments: list[ExportLine] = []
    batches: set[str] = set()
    skipped, dates, sheet = 0, set[str](), only_sheet(path, mapping)
    with closing(sheet_reader.read_sheet(path, sheet)) as lines:
        header, at, rest = find_header(path, lines, mapping)
        dated = {index for index, name in enumerate(header) if header_key(name) in USUAL_HEADERS["date"]}
        dated |= {at["date"]} if "date" in at else set()
        further = _further_columns(header, at, mapping)
        batch_at = header.index("batch") if "batch" in header else None
        for line, cells in rest:
            dates.update(cells[index] for index in dated if index < len(cells))
            if batch_at is not None and batch_at < len(cells):
                batches.add(_text(cells[batch_at]).removeprefix(BATCH_MARK))
            payment = _payment(line, cells, at, mapping)
            if payment is None:
                skipped += 1
                continue
            payment.objection, payment.change = _objection(cells, further, mapping), _change(cells, further)
            kinds = [cells[at] for at, name in further.items() if at < len(cells) and _is_kind(name)]
            payment.direction = direction_in(" ".join(kinds))
            payment.came_back = payment.came_back or bool(payment.objection)
            payments.append(payment)
    if "reference" not in mapping.columns and only_number_lines([one.reference for one in payments]):
        at.pop("reference", None)
        for payment in payments:
            payment.reference = ""
    day_first = sheet_reader.day_comes_first(dates)
    for payment in payments:
        payment.on = sheet_reader.foreign_date(
            payment.date_text, day_first=bool(day_first), pattern=mapping.date_pattern
        )
    columns = {kind: header[index] for kind, index in at.items()}
    if further:
        columns["also"] = ", ".join(further.values())
    return Export(
        str(path), columns, payments, skipped, header, bool(mapping.columns), batches, sheet=sheet,
        is_day_first=mapping.date_pattern is not None or day_first,
    )  # fmt: skip


def only_sheet(path: FileOrPath, mapping: ExportMap) -> str | None:
    """Name the sheet with the payments; raises FileRefused if several have some, as returns may have their own."""
    names = sheet_reader.sheet_names(path)
    if len(names) < 2:
        return None
    with_numbers, with_text = list[str](), list[str]()
    for name in names:
        with closing(sheet_reader.read_sheet(path, name)) as lines:
            known = [at for _, cells in islice(lines, _HEADER_LINES) if (at := _columns_of(cells, mapping))]
        if known:
            (with_numbers if any(_NUMBERS & at.keys() for at in known) else with_text).append(name)
    found = with_numbers or with_text
    if len(found) > 1:
        named = ", ".join(map(repr, found))
        raise FileRefused(f"{path} has several sheets of payments, {named}; put each into a file of its own")
    return found[0] if found else None


def find_header(
    path: FileOrPath, lines: Iterator[tuple[int, list[str]]], mapping: ExportMap
) -> tuple[list[str], dict[str, int], Iterator[tuple[int, list[str]]]]:
    """Find the header among the first lines, above which banks write their own address; also return what follows."""
    first = list(islice(lines, _HEADER_LINES))
    known = [(place, at) for place, (_, cells) in enumerate(first) if (at := _columns_of(cells, mapping))]
    if known:
        place, at = next((one for one in known if _NUMBERS & one[1].keys()), known[0])
        return first[place][1], at, chain(first[place + 1 :], lines)
    header = max((cells for _, cells in first), key=lambda cells: sum(map(_may_be_header, cells)), default=[])
    if mapping.columns:
        absent = [name for name in mapping.columns.values() if name not in header]
        missing = ", ".join(name + did_you_mean(name, header) for name in absent) or "an amount and what to match by"
        raise FileRefused(f"{path} has no line of headers with {missing}")
    raise FileRefused(f"{path}: {mapping.unknown_header(header, [cells for _, cells in first])}")


def _may_be_header(cell: str) -> bool:
    return bool(cell) and not _LONG_NUMBER.search(cell) and sheet_reader.foreign_cents(cell) is None


def headers_seen(header: Sequence[str]) -> str:
    """List the names of a header. What is data after all may be an account number."""
    named = [name if _may_be_header(name) else "****" for name in header if name]
    return f"The headers seen are: {', '.join(named[:_HEADERS_TOLD_MAX])}{', ...' * (len(named) > _HEADERS_TOLD_MAX)}."


def _columns_of(cells: Sequence[str], mapping: ExportMap) -> dict[str, int] | None:
    """Return the position of each kind of column, or None where this line is not a header."""
    if any(name not in cells for name in mapping.columns.values()):
        return None
    at = {kind: cells.index(name) for kind, name in mapping.columns.items()}
    plain = [header_key(cell) for cell in cells]
    for kind, usual in mapping.USUAL.items():
        if kind in at or (kind in ("debit", "credit") and "amount" in at):
            continue
        known = [name for name in usual if name in plain and not (name == "state" and _ADDRESS.intersection(plain))]
        found = plain.index(known[0]) if known else None
        if found is not None and found not in at.values():
            at[kind] = found
    if "invoice" in at and "text" not in mapping.columns:
        at.pop("text", None)
    return at if mapping.is_header(at) else None


def _further_columns(header: Sequence[str], at: dict[str, int], mapping: ExportMap) -> dict[int, str]:
    """Return the header, by position, of each other column that may say that a payment failed or came back.

    A further status counts only where no map names the one that does.
    """
    known = (*KIND_HEADERS, *DIRECTION_HEADERS, *(() if "status" in mapping.columns else USUAL_HEADERS["status"]))
    plain = [header_key(cell) for cell in header]
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
        text, name = _text(cells[index]) if index < len(cells) else "", header_key(header)
        word, standing = folded_word(text), mapping.standing_of(text)
        if _is_of_returns(name):
            objects = (
                not (_NOT_RETURNED.fullmatch(word) or _CHANGE.fullmatch(word)) and sheet_reader.foreign_cents(text) != 0
            )
        elif _is_kind(name) or name == "state":
            objects = standing is ReportedStatus.DECLINED or mapping.says_it_came_back(text)
        else:
            objects = standing is not ReportedStatus.ACCEPTED and word not in UNDER_WAY_WORDS
        if word and objects:
            return f"{header}: {text}"
    return ""


def _change(cells: Sequence[str], further: dict[int, str]) -> str:
    """Return the notification of change that a column of returns has; blank if none."""
    texts = ((header, _text(cells[index])) for index, header in further.items() if index < len(cells))
    return next((f"{header}: {text}" for header, text in texts if _CHANGE.fullmatch(folded_word(text))), "")


def direction_in(text: str) -> Direction | None:
    """Return the direction that a text says, None where it says none or both."""
    found = [direction for direction, pattern in _DIRECTIONS.items() if pattern.search(folded_word(text))]
    return found[0] if len(found) == 1 else None


def _is_kind(header: str) -> bool:
    return header_key(header) in (*KIND_HEADERS, *DIRECTION_HEADERS)


def _payment(line: int, cells: Sequence[str], at: dict[str, int], mapping: ExportMap) -> ExportLine | None:
    def cell(kind: str) -> str:
        index = at.get(kind)
        return cells[index] if index is not None and index < len(cells) else ""

    reference, invoice = (_text(cell(kind)) for kind in ("reference", "invoice"))
    last_four = sheet_reader.last_four_of(cell("last_four"))
    date_text = "" if meaning("total", cell("date")) else _text(cell("date"))
    is_total = meaning("total", reference or invoice) is not None
    if not (last_four or date_text) and (is_total or not (reference or invoice)):
        return None
    if "amount" in at:
        amount_text = cell("amount")
        cents = sheet_reader.foreign_cents(amount_text)
    else:
        amount_text = next((text for text in map(cell, ("debit", "credit")) if sheet_reader.side_cents(text) != 0), "")
        out, into = map(sheet_reader.side_cents, (cell("debit"), cell("credit")))
        # One column for money out and one for money in: one of them is blank or zero.
        cents = None if out is None or into is None or bool(out) == bool(into) else into - abs(out)
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
        text=cell("text")[:_LONG_TEXT_MAX],
        came_back=mapping.says_it_came_back(status),
        states_direction="amount" not in at or (cents or 0) < 0 or bool(_PLUS.search(amount_text)),
    )


def _text(cell: str) -> str:
    return "" if cell == sheet_reader.LOST_DIGITS else cell[:_TEXT_CHARACTERS_MAX]
