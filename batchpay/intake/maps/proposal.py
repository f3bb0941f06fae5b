"""A map proposed for another system's file: by the names of its columns and by what their cells show.

What both say is certain; whatever else could be true becomes a question for a person. No cell is quoted except words of
short lists, amounts and dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.header import Header, canonical_name, is_pattern, near_miss
from batchpay.intake.maps.draft import (
    ASKED_MAX,
    Choice,
    Draft,
    Entry,
    Question,
    amount_entries,
    date_entries,
    direction,
    money_entries,
    word_entries,
)
from batchpay.intake.maps.evidence import CHOICES, COMBINED, NAMES, agreeing, column_called, has_decimals, ours
from batchpay.intake.maps.formats import Pattern
from batchpay.intake.maps.loading import LEFT_OUT
from batchpay.intake.maps.mapping import Mapping as ColumnMap
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DATES, MONEY, PAYMENT_ID, REQUIRED, ROUTING
from batchpay.text import column_name

NAME, FIRST, LAST = "achNameOnCheck", "billingFirstName", "billingLastName"
_DEPOSIT = "achDepositType"
_ENOUGH = 0.9
"""This share of a column's cells must be what its name says; the others will be errors in their rows."""
_ENOUGH_OF_OURS = 0.5
"""The same where the name is ours, letter for letter: a file made for this program may be full of errors."""
_PROOF_ROWS = 3
"""This many different routing numbers with a right check digit are not a coincidence."""
_MISSING = {
    "amount": "the file can't be paid as it is: no column has the amounts",
    ROUTING: "the file can't be paid by ACH as it is: no column has routing numbers",
    ACCOUNT: "the file can't be paid by ACH as it is: no column has account numbers",
    NAME: "the file can't be paid as it is: no column has the names of the payees",
}
_NO_BANK_DETAILS = "the file can't be paid by ACH: it has no bank details, neither routing nor account numbers"
_FIRST_ASKED = (
    "amount",
    "transactionType",
    "currencyCode",
    ROUTING,
    ACCOUNT,
    NAME,
    FIRST,
    "recurringIndicator",
    *DATES,
)
"""What decides most about the money is asked first; the others follow as our columns do."""


class Unmapped(ColumnMap):
    """A map under which every column is the file's own, and none is ours."""

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names, besides ours, by which the header of a sheet is recognized."""
        return NAMES

    def mapped_names(self, own: Header) -> list[str]:
        """Return every column as left out."""
        return [f"_{name}" for name in own.names]


@dataclass(frozen=True)
class _Candidate:
    """A column of the file that may be one of ours."""

    name: str
    is_exact: bool
    """Whether its name is exactly one that we know."""
    count: int
    """How many of its cells can be what our column holds."""
    filled: int
    words: str
    is_proof: bool = False
    """Whether its cells alone prove it: this many right check digits are not a coincidence."""
    is_list: bool = False
    """Whether it has only a few words, each of which can be asked about."""
    is_named: bool = True
    """Whether its name supports it at all."""
    is_ours: bool = False
    """Whether it has the column's own name."""

    @property
    def is_sure(self) -> bool:
        enough = _ENOUGH_OF_OURS if self.is_ours else _ENOUGH
        return self.is_proof or (self.is_exact and (self.is_list or self.count >= self.filled * enough))

    @property
    def why(self) -> str:
        name = "its name" if self.is_exact else "a name like it"
        cells = f"{self.count:,} of {self.filled:,} cells hold {self.words}" if self.words else ""
        return ", ".join(part for part in (name if self.is_named else "", cells) if part)


def propose(cells: Mapping[str, pl.Series]) -> Draft:
    """Propose a map for the columns of a file, given with their cells, null where blank; raises FileRefused."""
    if not any(column_called(name) for name in cells):
        for name in cells:
            if re.search("[0-9]", name) and not re.search(r"[^\W\d_]", name):
                raise FileRefused("has no header: its first row looks like a payment, put names of columns above it")
    return _Proposer(cells).draft()


def finished(draft: Draft, names: Sequence[str]) -> None:
    """Leave out the columns that the map does not name and that would be taken for ours, or for ours mistyped."""
    targets = draft.targets
    left = {name: canonical_name(name) for name in names if name not in targets and name.strip() and name[0] != "_"}
    tables = draft.tables
    made = {*tables.get("columns", {}), *tables.get("templates", {}), *tables.get("fixed", {})}
    for name, canonical in left.items():
        is_one_of_two = canonical in made or list(left.values()).count(canonical) > 1
        if is_pattern(name) or (is_one_of_two if canonical in COLUMNS else near_miss(name)):
            draft.add(
                Entry(
                    "columns", LEFT_OUT, [name], "left out: batchpay can't use the name, or would take it for its own"
                )
            )


class _Proposer:
    """Goes through our columns one by one."""

    def __init__(self, cells: Mapping[str, pl.Series]) -> None:
        self._all = cells
        self._cells = {name: filled for name, column in cells.items() if len(filled := column.drop_nulls())}
        self._draft = Draft()
        self._decided: dict[str, str] = {}
        """The file's column by ours, where it is certain."""
        self._asked: set[str] = set()
        self._found = self._candidates()

    def draft(self) -> Draft:
        """Return everything that is certain, and the questions."""
        self._by_content()
        for target in COLUMNS:
            self._decide(target, self._found.get(target, []))
        self._names()
        if not {"amount", "transactionType"} & (self._decided.keys() | self._asked):
            self._draft.questions.append(direction())
        self._fixed()
        self._payment_id()
        places = {about: at for at, about in enumerate((*_FIRST_ASKED, *COLUMNS, PAYMENT_ID)[::-1])}
        self._draft.questions.sort(key=lambda question: (not question.is_needed, -places[question.about]))
        if lacking := self._lacking():
            self._draft.questions = lacking  # no answer helps while the file can't be paid
        return self._draft

    def _lacking(self) -> list[Question]:
        """Say what the file needs to have, and no answer can add."""
        missing = [target for target in _MISSING if not self._has(target)]
        missing = [target for target in missing if not any(entry.key == target for entry in self._draft.entries)]
        if ROUTING in missing:
            return [Question(ROUTING, _NO_BANK_DETAILS if ACCOUNT in missing else _MISSING[ROUTING])]
        return [Question(target, _MISSING[target]) for target in missing]

    def _has(self, target: str) -> bool:
        return target in self._decided or target in self._asked

    def _candidates(self) -> dict[str, list[_Candidate]]:
        found: dict[str, list[_Candidate]] = {}
        for name, cells in self._cells.items():
            called = column_called(name)
            if called is None or name.startswith("_"):
                continue
            target, is_exact = called
            if target in (_DEPOSIT, COMBINED):
                target = _kind_of_account(target, cells)
            facts = _cell_facts(target, cells)
            found.setdefault(target, []).append(_Candidate(name, is_exact, **facts, is_ours=name == target))
        return found

    def _by_content(self) -> None:
        """Find by their cells alone what no name shows: routing numbers are proven, the others are asked about."""
        named = {one.name for some in self._found.values() for one in some if one.is_sure}
        for target in (ROUTING, ACCOUNT, "amount"):
            if self._found.get(target):
                continue
            for name, cells in self._cells.items():
                found = _Candidate(name, is_exact=False, **_cell_facts(target, cells), is_named=False)
                if name in named or found.count < found.filled:
                    continue
                may_be = {ROUTING: found.is_proof, "amount": has_decimals(cells), ACCOUNT: cells.n_unique() > 1}
                if may_be[target]:
                    self._found.setdefault(target, []).append(found)
                    named |= {name} if found.is_proof else set()

    def _decide(self, target: str, found: list[_Candidate]) -> None:
        found = [one for one in found if one.name not in self._decided.values()]
        sure = [one for one in found if one.is_sure]
        if target == ACCOUNT and not self._found.get(ROUTING):
            sure = []  # perhaps general ledger accounts, not bank accounts
        if len(sure) == 1 and not (len(found) > 1 and target == "amount" and _is_doubtful(found)):
            entries, questions = self._taken(target, sure[0])
            for entry in entries:
                self._draft.add(entry)
            self._draft.questions += questions
            self._decided[target] = sure[0].name
        elif found:
            choices = [Choice(f"{column_name(one.name)} ({one.why})", *self._taken(target, one)) for one in found]
            choices += _for_all(target) or [Choice("none of them", then=self._without(target))]
            always = [then for then in choices[0].then if all(then in choice.then for choice in choices)]
            choices = [replace(one, then=tuple(then for then in one.then if then not in always)) for one in choices]
            self._draft.questions += always
            text = f"which column is {target}?"
            self._draft.questions.append(Question(target, text, tuple(choices), is_needed=target in REQUIRED))
            self._asked.add(target)

    def _without(self, target: str) -> tuple[Question, ...]:
        """Return what is asked where no column of the file is our target."""
        if target == "amount" and not self._found.get("transactionType"):
            return (direction(),)
        if target in _MISSING:
            return (Question(target, _MISSING[target]),)
        text = f"no column is {target}: enter one for all rows"
        return (Question(target, text, typed="fixed"),) if target in REQUIRED else ()

    def _taken(self, target: str, found: _Candidate) -> tuple[tuple[Entry, ...], tuple[Question, ...]]:
        """Return what the map gains if a column is our target, and what to ask about its cells."""
        name, cells = found.name, self._cells[found.name]
        is_plain = name == target and sum(canonical_name(one) == target for one in self._all) == 1
        columns = [] if is_plain else [Entry("columns", target, name, found.why)]
        entries, questions = self._of_cells(target, name, cells)
        if target == _DEPOSIT and not self._found.get(COMBINED):
            both, open_words = word_entries(COMBINED, name, cells)
            if both and not open_words:
                columns = [Entry("columns", one, name, found.why) for one in (target, COMBINED)]
                entries = [*entries, *both]
                self._asked.add(COMBINED)
        if questions and questions[0].about == target and target in (*MONEY, *DATES):
            # Without an answer the cells could be read as another amount or day: no answer, no column.
            choices = (Choice(one.text, (*columns, *one.entries), one.then) for one in questions[0].choices)
            questions[0], columns = replace(questions[0], choices=tuple(choices)), []
        return (*columns, *entries), tuple(questions)

    def _of_cells(self, target: str, name: str, cells: pl.Series) -> tuple[list[Entry], list[Question]]:
        if name == target and ours(target, cells) >= len(cells) * _ENOUGH:
            # Our own file: a cell that is written differently is an error in its row.
            return [], [direction()] if target == "amount" and not self._found.get("transactionType") else []
        if target == "amount":
            return amount_entries(name, cells, has_direction=bool(self._found.get("transactionType")))
        if target in MONEY:
            return money_entries(target, name, cells)
        if target in DATES:
            return date_entries(target, name, cells)
        if target in CHOICES:
            return word_entries(target, name, cells)
        if target == NAME and not (self._found.get(FIRST) or self._found.get(LAST)):
            return [], [self._how_named(name)]
        return [], []

    def _names(self) -> None:
        """Derive the names of a person or a company from the columns that exist."""
        draft = self._draft
        if FIRST in self._decided and LAST in self._decided and not self._has(NAME):
            made = f"{{{self._decided[FIRST]}}} {{{self._decided[LAST]}}}"
            if Pattern(made).problem is None:
                draft.add(Entry("templates", NAME, made, "no column is the name on the account"))
        elif not self._has(NAME) and not (self._has(FIRST) or self._has(LAST)):
            draft.questions += self._which_names()
        elif self._has(FIRST) != self._has(LAST):
            draft.questions += self._without(LAST if self._has(FIRST) else FIRST)
        if not self._has("shippingFirstName"):
            draft.add(
                Entry("defaults", "shipping", "billing", "every payment needs shipping names, and the file has none")
            )

    def _which_names(self) -> Iterator[Question]:
        """Ask which text column has the names, since none is named that way."""
        found = []
        for name, cells in self._cells.items():
            candidate = _Candidate(name, is_exact=False, **_cell_facts(NAME, cells), is_named=False)
            if candidate.count == candidate.filled and name not in self._decided.values():
                found.append(Choice(column_name(name), *self._taken(NAME, candidate)))
        if found:
            self._asked.add(NAME)
            choices = (*found[:ASKED_MAX], Choice("none of them"))
            yield Question(NAME, "which column has the names of the payees?", choices)

    def _how_named(self, name: str) -> Question:
        """Ask what the column of names contains: a name does not show it."""
        cells, told = self._cells[name], column_name(name)
        choices = []
        for text, words in (
            (f"{{{FIRST}}} {{{LAST}}}", "people, first name first"),
            (f"{{{LAST}}}, {{{FIRST}}}", "people, last name and a comma first"),
        ):
            count = len(cells) - Pattern(text).split_cells(cells)[FIRST].null_count()
            if count:
                words += f" ({count:,} of {len(cells):,} can be split reliably)"
                choices.append(Choice(words, (Entry("split", text, name, words),)))
        words = "companies: the whole name goes into each name field"
        company = [] if self._has("billingCompany") else ["billingCompany"]
        choices.append(
            Choice(words, tuple(Entry("columns", one, name, words) for one in (NAME, *company, FIRST, LAST)))
        )
        return Question(FIRST, f"who is in column {told}, people or companies?", tuple(choices))

    def _fixed(self) -> None:
        """Ask for what every payment needs and no column provides."""
        draft = self._draft
        if not self._has("gatewayId"):
            text = "which gateway account pays or collects? (batchpay gateway list)"
            draft.questions.append(Question("gatewayId", text, (), "fixed"))
        if self._has("recurringStartDate"):
            draft.questions += [] if self._has("recurringIndicator") else [_one_of("recurringIndicator")]
        elif not self._has("recurringIndicator"):
            draft.add(Entry("fixed", "recurringIndicator", "FALSE", "no column has dates of recurring payments"))
        for target in ("achAccountType", "achDepositType", "achAgreementFlag"):
            if not self._has(target):
                draft.questions.append(_one_of(target))

    def _payment_id(self) -> None:
        """Offer to make a paymentId from the bill's own numbers, where they are different in every row."""
        if self._has(PAYMENT_ID):
            return
        names = [self._decided[target] for target in ("billingInternalId", "invoiceNumber") if target in self._decided]
        if "invoiceNumber" not in self._decided or any(set(name) & set("{}") for name in names):
            return
        frame = pl.DataFrame({name: self._all[name] for name in names})
        if frame.null_count().sum_horizontal()[0] or frame.n_unique() < frame.height:
            return
        made = "-".join(f"{{{name}}}" for name in names)
        text = "should each row get a paymentId from these cells, so that no mistake with files pays it twice?"
        choices = (
            Choice("yes", (Entry("templates", PAYMENT_ID, made, "is different in every row"),)),
            Choice("no"),
        )
        self._draft.questions.append(Question(PAYMENT_ID, text, choices, is_needed=False))


_FOR_ALL: dict[str, dict[str, str]] = {
    "recurringIndicator": {"TRUE": "each row is a recurring payment", "FALSE": "each row is paid once"},
    "achAccountType": {
        "PERSONAL": "all accounts are those of people",
        "BUSINESS": "all accounts are those of companies",
    },
    "achDepositType": {"CHECKING": "all are checking accounts", "SAVINGS": "all are savings accounts"},
    "achAgreementFlag": {
        "1": "everyone in the file has agreed to be paid, or charged, this way",
        "0": "they have not",
    },
}


def _for_all(target: str) -> list[Choice]:
    answers = _FOR_ALL.get(target, {})
    return [Choice(f"{value}: {words}", (Entry("fixed", target, value, words),)) for value, words in answers.items()]


def _one_of(target: str) -> Question:
    return Question(target, f"no column is {target}: which one applies to all rows?", tuple(_for_all(target)))


def _kind_of_account(called: str, cells: pl.Series) -> str:
    """Return, by its words, which of the two kinds of account type a column has; with both it is the deposit type."""
    deposit, owner = agreeing(_DEPOSIT, cells)[0], agreeing(COMBINED, cells)[0]
    if not (deposit or owner):
        return called
    return COMBINED if deposit < owner else _DEPOSIT


def _cell_facts(target: str, cells: pl.Series) -> dict[str, Any]:
    """Return what the cells show about a candidate."""
    count, words = agreeing(target, cells)
    return {
        "count": count,
        "filled": len(cells),
        "words": words,
        "is_proof": target == ROUTING and count == len(cells) and cells.n_unique() >= _PROOF_ROWS,
        "is_list": len(CHOICES.get(target, ())) == 2 and cells.n_unique() <= ASKED_MAX,
    }


def _is_doubtful(found: Sequence[_Candidate]) -> bool:
    """Whether another column could be the amount as well, such as net and gross."""
    return sum(one.count >= one.filled * _ENOUGH for one in found) > 1
