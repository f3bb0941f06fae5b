"""A map proposed for another system's file: by the names of its columns and by what their cells show.

What both say is certain; whatever else could be true becomes a question for a person. No cell is quoted except words of
short lists, amounts and dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.header import Header, canonical_name, is_pattern, near_miss
from batchpay.intake.maps.draft import Choice, Draft, Entry, Question
from batchpay.intake.maps.evidence import (
    CHOICES,
    COMBINED,
    NAMES,
    agreeing,
    amounts,
    beside,
    column_called,
    dates,
    grouping,
    has_decimals,
    ours,
    ours_for,
)
from batchpay.intake.maps.formats import NumberFormat, Pattern
from batchpay.intake.maps.loading import LEFT_OUT, SIDES
from batchpay.intake.maps.mapping import Mapping as ColumnMap
from batchpay.intake.maps.questions import (
    ASKED_MAX,
    ROWS,
    amount_entries,
    currency_questions,
    date_entries,
    direction,
    direction_entries,
    money_entries,
    row_entries,
    side_entries,
    word_entries,
)
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DATES, DIRECTION, MONEY, PAY_ON, PAYMENT_ID, REQUIRED, ROUTING
from batchpay.schemas.words import header_means, meaning
from batchpay.text import column_name

NAME, FIRST, LAST, _DEPOSIT = "achNameOnCheck", "billingFirstName", "billingLastName", "achDepositType"
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
_FIRST_ASKED = ("amount", DIRECTION, ROWS, "currencyCode", ROUTING, ACCOUNT, NAME, FIRST, *DATES, "recurringIndicator")
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
    is_proof: bool
    """Whether its cells alone prove it: this many right check digits are not a coincidence."""
    is_list: bool
    """Whether it has only a few words, each of which can be asked about."""
    is_named: bool
    """Whether its name supports it at all."""
    is_ours: bool
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
    numbers = [name for name in cells if re.search("[0-9]", name) and not re.search(r"[^\W\d_]", name)]
    if numbers and not any(map(column_called, cells)):
        raise FileRefused("has no header: its first row looks like a payment, put names of columns above it")
    return _Proposer(cells).draft()


def finished(draft: Draft, names: Sequence[str]) -> None:
    """Leave out the columns that the map does not name and that would be taken for ours, or for ours mistyped.

    A word whose rows are left out is no payment, whatever else was said of the others of its column.
    """
    gone = draft.tables.get(ROWS, {}).get("left_out", ())
    draft.entries = [
        replace(one, value=[word for word in one.value if word not in gone])
        if (one.table, one.key) == (ROWS, "payments")
        else one
        for one in draft.entries
    ]
    targets = draft.targets
    left = {name: canonical_name(name) for name in names if name not in targets and name.strip() and name[0] != "_"}
    tables = draft.tables
    made = {*tables.get("columns", {}), *tables.get("templates", {}), *tables.get("fixed", {})}
    for name, canonical in left.items():
        is_one_of_two = canonical in made or list(left.values()).count(canonical) > 1
        if is_pattern(name) or (is_one_of_two if canonical in COLUMNS else near_miss(name)):
            why = "left out: batchpay can't use the name, or would take it for its own"
            draft.add(Entry("columns", LEFT_OUT, [name], why))


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
        self._status = next((name for name in self._cells if header_means(name) == "status"), None)
        self._sides = [name for side in SIDES for name in self._cells if header_means(name) == side]

    def draft(self) -> Draft:
        """Return everything that is certain, and the questions."""
        self._by_content()
        self._amounts()
        for target in COLUMNS:
            is_asked_apart = target == PAY_ON or (target in _SCHEDULE and "recurringIndicator" not in self._found)
            if not is_asked_apart:
                self._decide(target, self._found.get(target, []))
        self._names()
        if not {"amount", DIRECTION} & (self._decided.keys() | self._asked):
            self._draft.questions.append(direction())
        self._rows()
        self._pay_on()
        self._schedule()
        self._fixed()
        self._payment_id()
        places = {about: at for at, about in enumerate((*_FIRST_ASKED, *COLUMNS, PAYMENT_ID)[::-1])}
        self._draft.questions.sort(key=lambda question: (not question.is_needed, -places[question.about]))
        if lacking := self._lacking():
            self._draft.questions = lacking  # no answer helps while the file can't be paid
        return self._draft

    def _lacking(self) -> list[Question]:
        """Say what the file needs, and no answer can add."""
        both = [self._all[found[0].name] for target in (NAME, ROUTING) if (found := self._found.get(target))]
        if len(both) > 1 and (text := grouping(*both)):
            return [Question(NAME, text)]
        given = {*self._decided, *self._asked, *(entry.key for entry in self._draft.entries)}
        missing = [target for target in _MISSING if target not in given]
        if ROUTING in missing:
            no_bank = "the file can't be paid by ACH: it has no bank details, neither routing nor account numbers"
            return [Question(ROUTING, no_bank if ACCOUNT in missing else _MISSING[ROUTING])]
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
            one = _candidate(target, name, cells, is_exact=is_exact, is_named=True)
            found.setdefault(target, []).append(one)
        return found

    def _by_content(self) -> None:
        """Find by their cells alone what no name shows: routing numbers are proven, the others are asked about."""
        named = {one.name for some in self._found.values() for one in some if one.is_sure} | {*self._sides}
        for target in (ROUTING, ACCOUNT, "amount", DIRECTION, _DEPOSIT, "currencyCode"):
            if self._found.get(target):
                continue
            for name, cells in self._cells.items():
                found = _candidate(target, name, cells)
                if name in named or found.count < found.filled:
                    continue
                may_be = {ROUTING: found.is_proof, "amount": has_decimals(cells), ACCOUNT: cells.n_unique() > 1}
                is_hinted = header_means(name) == f"{target}?"
                if may_be[target] if target in may_be else is_hinted or _is_closed_list(target, cells):
                    self._found.setdefault(target, []).append(found)
                    named |= {name} if found.is_proof else set()

    def _amounts(self) -> None:
        """Offer every column that may be the amount, the one that fits first; or two, of debits and of credits."""
        found = self._found.get("amount", [])
        if len(self._sides) == 2 and not any(one.is_sure for one in found):
            self._found["amount"] = []
            cells = pl.concat([self._cells[name] for name in self._sides])
            debit, credit = self._sides
            entries, questions = side_entries(debit, credit, cells.filter(cells.str.contains(r"[1-9\p{L}]")))
            self._draft.entries += entries
            self._draft.questions += questions
            self._asked |= {"amount", DIRECTION}
            self._found[DIRECTION] = []
            return
        taken = {one.name for target, some in self._found.items() for one in some if target != "amount" and one.is_sure}
        for name, cells in self._cells.items():
            if (
                name not in {one.name for one in found} | taken
                and has_decimals(cells)
                and not any(one.is_ours for one in found)
            ):
                other = _candidate("amount", name, cells)
                found += [other] if other.count >= other.filled * _ENOUGH else []
        parts = self._adding_up([one.name for one in found])
        found = [replace(one, words=one.words + parts.get(one.name, "")) for one in found]
        found.sort(key=lambda one: (one.name not in parts, _rank(one.name)))
        if found:
            self._found["amount"] = found

    def _adding_up(self, names: Sequence[str]) -> dict[str, str]:
        """Return which columns add up, for each payee with several rows, to what another one repeats in each."""
        of_payee = [one.name for target in ("billingInternalId", NAME) for one in self._found.get(target, [])]
        if not of_payee or len(names) < 2:
            return {}
        columns = {}
        for name in names:
            ways = amounts(self._cells[name])
            form = ways.best[0].form if ways.best else NumberFormat()
            assert isinstance(form, NumberFormat)
            columns[name] = form.read(self._all[name], "").text.cast(pl.Decimal(38, 2), strict=False)
        frame = pl.DataFrame({**columns, "": self._all[of_payee[0]]}).filter(pl.col("").is_not_null())
        groups = frame.group_by("").agg(
            pl.len().alias(" "), *(pl.sum(name).name.suffix("\x00+") for name in names),
            *(pl.max(name).name.suffix("\x00=") for name in names), *(pl.n_unique(name) for name in names),
        ).filter(pl.col(" ") > 1)  # fmt: skip
        found = {}
        for part in names if groups.height else ():
            for whole in names:
                is_one = (groups[whole] == 1).all() and (groups[f"{part}\x00+"] == groups[f"{whole}\x00="]).all()
                if part != whole and is_one:
                    found[part] = f", adding up to {column_name(whole)} for each payee with several rows"
        return found

    def _decide(self, target: str, found: list[_Candidate]) -> None:
        found = [one for one in found if one.name not in self._decided.values()]
        sure = [one for one in found if one.is_sure]
        if target == ACCOUNT and not self._found.get(ROUTING):
            sure = []  # perhaps general ledger accounts, not bank accounts
        could_be = [one for one in found if one.count >= one.filled * _ENOUGH]  # such as net and gross
        if len(sure) == 1 and not (target == "amount" and len(could_be) > 1):
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
            entries, questions = amount_entries(name, cells, has_direction=bool(self._found.get(DIRECTION)))
            if not self._found.get("currencyCode"):
                mark = next((str(one.value) for one in entries if one.key == "currency"), beside(name)[2] or "")
                questions = [*questions, *currency_questions(name, mark)]
            return entries, questions
        if target == DIRECTION:
            return self._of_direction(name, cells)
        if target in MONEY:
            return money_entries(target, name, cells)
        if target in DATES:
            return date_entries(target, name, cells)
        if target in CHOICES:
            return word_entries(target, name, cells)
        if target == NAME and not (self._found.get(FIRST) or self._found.get(LAST)):
            how = self._how_named(name)
            return (list(how.choices[0].entries), []) if len(how.choices) == 1 else ([], [how])
        return [], []

    def _of_direction(self, name: str, cells: pl.Series) -> tuple[list[Entry], list[Question]]:
        """Ask what the words of a direction mean, and whether the signs of the amounts say the same."""
        negative: frozenset[str] = frozenset()
        sure = [one for one in self._found.get("amount", []) if one.is_sure] or self._found.get("amount", [])
        if sure and self._all[name].null_count() == self._all[sure[0].name].null_count():
            frame = pl.DataFrame({"word": self._all[name], "is": self._all[sure[0].name].str.contains(r"[-(\x{2212}]")})
            by = frame.drop_nulls().group_by("word").agg(pl.col("is").any(), pl.col("is").all().alias("all"))
            if (by["is"] == by["all"]).all():
                negative = frozenset(by.filter(pl.col("is"))["word"])
        codes: list[Entry] = []
        if not self._found.get(_DEPOSIT) and {*cells.unique()} <= {*_CODES}:
            codes = [Entry("columns", _DEPOSIT, name, "ACH transaction codes")]
            codes += [Entry(f"values.{_DEPOSIT}", _CODES[word], [word]) for word in sorted(cells.unique())]
            self._asked.add(_DEPOSIT)
        return direction_entries(name, cells, negative, tuple(codes), may_leave_out=self._status is None)

    def _rows(self) -> None:
        """Ask which rows are payments, by a status or by a column that has nothing but words of one."""
        name, cells = self._status, self._cells
        used = {*self._draft.targets, *self._decided.values()}
        if name is None:
            kinds = {one: {meaning("status", word) for word in cells[one].unique()} for one in cells if one not in used}
            name = next((one for one, kind in kinds.items() if kind <= {"yes", "no"} and "no" in kind), None)
        if name is None:
            return
        is_payment = self._all[self._decided[ROUTING]].is_not_null() if ROUTING in self._decided else None
        of_rows = cells[name] if is_payment is None else self._all[name].filter(is_payment)
        entries, questions = row_entries(name, of_rows)
        for entry in entries:
            self._draft.add(entry)
        self._draft.questions += questions

    def _pay_on(self) -> None:
        """Ask whether each payment is sent on the day that a column names, or all of them today."""
        found = [one for one in self._found.get(PAY_ON, []) if one.is_sure]
        if any(one.is_ours for one in found):
            self._decide(PAY_ON, found)
        choices: list[Choice] = []
        for one in found if not self._has(PAY_ON) else ():
            entries, questions = self._taken(PAY_ON, one)
            told, cells = column_name(one.name), self._cells[one.name]
            days: pl.Series = dates(cells).best[0].texts.drop_nulls()
            days = days.str.to_date("%m/%d/%Y").sort().dt.to_string("%m/%d/%Y")
            told = f"on the day in {told} ({days[0]} to {days[-1]})"
            how = next((question for question in questions if question.about == PAY_ON), None)
            choices += (
                [Choice(f"{told}: {way.text}", way.entries) for way in how.choices] if how else [Choice(told, entries)]
            )
        if choices:
            today = Choice("all today: the dates are not used")
            self._draft.questions.append(Question(PAY_ON, "when is each payment sent?", (*choices, today)))
            self._asked.add(PAY_ON)

    def _schedule(self) -> None:
        """Ask whether the rows are recurring payments, where a column has dates or a frequency of such."""
        found = {target: some[0] for target in _SCHEDULE if (some := self._found.get(target))}
        if "recurringIndicator" in self._found or not found:
            return
        entries = [Entry("fixed", "recurringIndicator", "TRUE"), Entry("fixed", "recurringAgreementFlag", "1")]
        questions, refused = list[Question](), list[str]()
        for target in _SCHEDULE:
            if target in found and target != _CYCLE:
                more, asked = self._taken(target, found[target])
                entries, questions = [*entries, *more], [*questions, *asked]
            elif target in found:
                name, words = found[target].name, sorted(self._cells[found[target].name].unique())
                entries.append(Entry("columns", target, name, found[target].why))
                of_ours = {word: ours_for(target, word) for word in words[:_CYCLES_MAX]}
                entries += [Entry(f"values.{target}", one, [word]) for word, one in of_ours.items() if one]
                refused = [column_name(word) for word, one in of_ours.items() if not one]
            elif target == "recurringEndOfMonth":
                start = found.get("recurringStartDate")
                if start is None or self._cells[start.name].str.contains(r"\b(29|30|31)\b").any():
                    questions.append(_one_of(target))
                else:
                    entries.append(Entry("fixed", target, "N", "no start is at the end of a month"))
            elif target in _FOR_ALL:
                questions.append(_one_of(target))
            elif target in _TYPED:
                questions.append(Question(target, _TYPED[target], typed="fixed"))
        told = "TRUE: each row is a recurring payment, to which its payer has agreed"
        if refused:
            told += f" (rows with {', '.join(refused)} are errors: the gateway has only MONTHLY and DAILY)"
        once = Choice("FALSE: each row is paid once", (Entry("fixed", "recurringIndicator", "FALSE"),))
        text = f"are these recurring payments? ({', '.join(column_name(one.name) for one in found.values())})"
        choices = (Choice(told, tuple(entries), tuple(questions)), once)
        self._draft.questions.append(Question("recurringIndicator", text, choices))
        self._asked.add("recurringIndicator")

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
            why = "every payment needs shipping names, and the file has none"
            draft.add(Entry("defaults", "shipping", "billing", why))

    def _which_names(self) -> Iterator[Question]:
        """Ask which text column has the names, since none is named that way."""
        found = []
        for name, cells in self._cells.items():
            candidate = _candidate(NAME, name, cells)
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
        words += "" if choices else ", since no name can be split into first and last"
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
        if not self._has("recurringIndicator"):
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
        told = " and ".join(map(column_name, names))
        text = f"should each row get a paymentId from its {told}, so that no mistake with files pays it twice?"
        choices = (
            Choice("yes", (Entry("templates", PAYMENT_ID, made, "is different in every row"),)),
            Choice("no"),
        )
        self._draft.questions.append(Question(PAYMENT_ID, text, choices, is_needed=False))


_FOR_ALL: dict[str, dict[str, str]] = {
    "recurringBillingCycle": {"MONTHLY": "every month", "DAILY": "every day"},
    "recurringEndOfMonth": {"N": "on the same day of each month", "Y": "on the last day of each month"},
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


_CYCLE = "recurringBillingCycle"
_SCHEDULE = ("recurringStartDate", _CYCLE, "recurringEndOfMonth", "recurringNumOfPayments")
_CYCLES_MAX = 30
_TYPED = {
    "recurringStartDate": "on which day do they begin? (MM/DD/YYYY)",
    "recurringNumOfPayments": "how many payments does each row make? (12 for a year of months)",
}
_CODES = {"22": "CHECKING", "27": "CHECKING", "32": "SAVINGS", "37": "SAVINGS"}
"""The transaction codes of ACH records: 22 and 32 pay, 27 and 37 collect."""


def _is_closed_list(target: str, cells: pl.Series) -> bool:
    """Whether a column of words that are known could be of this list, whatever it is called."""
    words = set(cells.unique())
    if target == DIRECTION:  # the numbers 1 and 2 may count anything
        is_of_letters = all(word[:1].isalpha() for word in words) or words <= {*_CODES}
        return is_of_letters and len({(meaning(target, word) or "").rstrip("?") for word in words} - {""}) == 2
    return all(ours_for(target, word) for word in words)


_FITTING, _UNFITTING = ("deposit", "payment", "pay", "payout", "net", "due"), ("gross", "tax", "balance", "fee", "ytd")


def _rank(name: str) -> int:
    """Return how well a column's name says that it is what is paid: less is better."""
    words = re.findall("[a-z]+", name.lower())
    return any(word in _UNFITTING for word in words) * 2 - any(word in _FITTING for word in words)


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


def _candidate(
    target: str, name: str, cells: pl.Series, *, is_exact: bool = False, is_named: bool = False
) -> _Candidate:
    """Return a column as what may be ours, with what its cells show."""
    count, words = agreeing(target, cells)
    is_proof = target == ROUTING and count == len(cells) and cells.n_unique() >= _PROOF_ROWS
    is_list = len(CHOICES.get(target, ())) == 2 and cells.n_unique() <= ASKED_MAX
    is_ours = is_named and name == target
    return _Candidate(name, is_exact, count, len(cells), words, is_proof, is_list, is_named, is_ours)
