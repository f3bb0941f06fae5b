"""What is asked about the cells of a column: how amounts and dates are written, what words mean, which rows count."""

from __future__ import annotations

import re
from calendar import month_name
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import polars as pl

from batchpay.intake.maps.draft import Choice, Entry, Question
from batchpay.intake.maps.evidence import CHOICES, Ways, Written, amounts, beside, dates, negatives, ours, ours_for
from batchpay.intake.maps.formats import UNITS, DateFormat, NumberFormat
from batchpay.schemas.amount_text import currencies_of, has_currency
from batchpay.schemas.columns import DECIMALS, DIRECTION
from batchpay.schemas.words import meaning
from batchpay.text import column_name, money, row_count

_WORDS_MAX = 60
ASKED_MAX = 8
"""How many unknown words of a column are asked about; a column with more is not a closed list."""
Added = tuple[list[Entry], list[Question]]


def direction() -> Question:
    """Ask which way the money of all rows goes."""
    answers = {"CREDIT": "money is paid out, to the accounts in the file", "DEBIT": "money is collected from them"}
    choices = (
        Choice(f"{value}: {words}", (Entry("fixed", "transactionType", value, words),))
        for value, words in answers.items()
    )
    return Question("transactionType", "which way does the money move?", tuple(choices))


def direction_entries(
    name: str, cells: pl.Series, negative: frozenset[str], codes: tuple[Entry, ...], *, may_leave_out: bool
) -> Added:
    """Ask which way the money of each word moves; `negative` are the words whose amounts have a sign.

    `codes` also say the kinds of account, where the words are the transaction codes of ACH.
    """
    words = sorted(cells.unique())
    if not negative and all(word in CHOICES[DIRECTION] for word in words):
        return [], []
    guess = {word: (meaning(DIRECTION, word) or "?").rstrip("?") for word in words}
    apart = tuple(_direction_of(name, word, words, may_leave_out=may_leave_out) for word in words)
    if not all(guess.values()):
        return [], list(apart)
    choices = []
    for ways in (guess, {word: _OTHER[way] for word, way in guess.items()}):
        sides = {way: [word for word in words if ways[word] == way] for way in _OTHER}
        told = [f"{way}: {_listed(some)} {_MOVES[way]}" for way, some in sides.items() if some]
        entries = [*_values(DIRECTION, ways)]
        signs = {ways[word] for word in negative}
        if len(signs) == 1 and not any(ways[word] in signs for word in words if word not in negative):
            entries.append(
                Entry("formats.amount", "negative", signs.pop(), f"column {column_name(name)} says the same")
            )
        choices.append(Choice("; ".join(told), (*entries, *(codes if ways is guess else ()))))
    if len(words) > 1:
        choices.append(Choice("each word apart", then=apart))
    text = f"which way does the money move, by the words of column {column_name(name)}?"
    return [], [Question(DIRECTION, text, tuple(choices))]


_OTHER = {"CREDIT": "DEBIT", "DEBIT": "CREDIT"}
_MOVES = {"CREDIT": "is paid out", "DEBIT": "is collected"}


def _values(target: str, ways: Mapping[str, str]) -> tuple[Entry, ...]:
    return tuple(Entry(f"values.{target}", ours, [word]) for word, ours in ways.items())


def _listed(words: Sequence[str]) -> str:
    told = [column_name(word) or "blank" for word in words]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def _direction_of(name: str, word: str, words: Sequence[str], *, may_leave_out: bool) -> Question:
    choices = [
        Choice(f"{way}: it {moves}", (Entry(f"values.{DIRECTION}", way, [word]),)) for way, moves in _MOVES.items()
    ]
    if may_leave_out:
        others = [other for other in words if other != word]
        entries = (*_rows(name, "left_out", [word]), *_rows(name, "payments", others))
        choices.append(Choice("it is no payment: its rows are left out", entries))
    else:
        choices.append(Choice("neither: its rows are errors"))
    text = f"which way does {column_name(word)} in column {column_name(name)} move the money?"
    return Question(DIRECTION, text, tuple(choices))


def _rows(name: str, which: str, words: Sequence[str], why: str = "") -> tuple[Entry, ...]:
    return (Entry("rows", "column", name, "its words say which rows are payments"), Entry("rows", which, [*words], why))


ROWS = "rows"
"""What questions about rows that may be no payments are about."""


def row_entries(name: str, cells: pl.Series) -> Added:
    """Ask which words of a status are payments; `cells` are those of rows that could be payments."""
    rows = Counter(cells.fill_null("").to_list())
    words = [word for word, _ in rows.most_common()]
    if len(words) > _WORDS_MAX // 3:
        return [], []
    told = {word: f"{_listed([word])} ({row_count(rows[word])})" for word in words}
    by = {
        kind: [word for word in words if (meaning("status", word) if word else "no") == kind] for kind in ("yes", "no")
    }
    unknown = [word for word in words if word not in (*by["yes"], *by["no"])]
    apart = {}
    for word in words:
        no = Choice("no: left out, counted and summed", _rows(name, "left_out", [word]))
        yes = Choice("yes: paid", _rows(name, "payments", [word]))
        asked = f"is a row with {told[word]} in column {column_name(name)} a payment?"
        apart[word] = Question(ROWS, asked, (no, yes))
    questions = [apart[word] for word in unknown]
    if not by["no"]:
        return [*_rows(name, "payments", by["yes"], "known words for it")] if by["yes"] else [], questions
    all_of = _rows(name, "left_out", by["no"]) + _rows(name, "payments", by["yes"])
    left = " and ".join(told[word] for word in by["no"])
    paid = f"; {' and '.join(told[word] for word in by['yes'])} is paid" if by["yes"] else ""
    choices = (
        Choice(f"left out: {left}{paid}", all_of),
        Choice("all of them are payments", _rows(name, "payments", [*by["yes"], *by["no"]])),
        Choice("each word apart", then=tuple(apart[word] for word in (*by["no"], *by["yes"]))),
    )
    text = f"which rows are payments, by the words of column {column_name(name)}?"
    return [], [Question(ROWS, text, choices), *questions]


def side_entries(debit: str, credit: str, cells: pl.Series) -> Added:
    """Ask which way the money in two columns moves; `cells` are the amounts in both."""
    entries, questions = money_entries("amount", f"{debit} and {credit}", cells)
    choices = [
        Choice(
            f"{column_name(paid)} is paid out, {column_name(collected)} is collected",
            (Entry("columns", "credit", paid), Entry("columns", "debit", collected), *entries),
            tuple(questions),
        )
        for paid, collected in ((debit, credit), (credit, debit))
    ]
    text = (
        f"amounts are in two columns, {column_name(debit)} and {column_name(credit)}: which way does the money move? "
        "(A bank's own Debit column usually means that you pay.)"
    )
    return [], [Question("amount", text, tuple(choices))]


def currency_questions(name: str, mark: str) -> list[Question]:
    """Ask in which currency amounts are, where their mark or their column's name is of another than US dollars."""
    codes = currencies_of(mark)
    if not codes or "USD" in codes:
        return []
    text = f"the amounts in column {column_name(name)} are marked {mark}: in which currency are they?"
    choices = (Choice(code, (Entry("fixed", "currencyCode", code),)) for code in codes[:ASKED_MAX])
    return [Question("currencyCode", text, tuple(choices))]


def money_entries(target: str, name: str, cells: pl.Series) -> Added:
    """State how amounts are written, or ask where two ways read them differently."""
    ways = amounts(cells)
    if not ways.best or ours(target, cells) == len(cells):
        return [], []
    if ways.is_certain:
        return _number_entries(target, ways.best[0]), []
    return [], [_how_written(target, name, ways, cells, _number_entries)]


def amount_entries(name: str, cells: pl.Series, *, has_direction: bool) -> Added:
    """State how the amounts are written, and ask for their unit and what their signs mean, or which way money goes."""
    entries, questions = money_entries("amount", name, cells)
    questions = [*questions, *_unit_questions(name, cells)]
    if has_direction:
        return entries, questions
    ways = amounts(cells)
    count = negatives(ways.best[0], cells) if ways.best else 0
    if not count:
        return entries, [*questions, direction()]
    text = f"{count:,} of {len(cells):,} amounts in column {column_name(name)} are negative: what does that mean?"
    refused = Choice("they are not payments: their rows are rejected", then=(direction(),))
    choices = (
        _signed("CREDIT", "they are paid out, the others collected"),
        _signed("DEBIT", "they are collected, the others paid out"),
    )
    return entries, [*questions, Question("transactionType", text, (*choices, refused))]


def _unit_questions(name: str, cells: pl.Series) -> list[Question]:
    """Ask what whole amounts are in, or those whose column is named after a unit: it is the first choice."""
    said = beside(name)[1]
    shows = cells.to_frame("cell").select(pl.col("cell").str.contains(DECIMALS) | has_currency(pl.col("cell")))
    ways = amounts(cells)
    if not ways.best or (shows["cell"].any() and said is None):
        return []
    form, largest = ways.best[0].form, cells[cells.str.len_chars().arg_max() or 0]
    assert isinstance(form, NumberFormat)
    choices = []
    for unit in dict.fromkeys((said or UNITS[0], *UNITS)):
        text = replace(form, unit=unit).read(pl.Series([largest]), "").text[0]
        if text is not None:
            told = f"{unit}: {largest} is {money(round(Decimal(text) * 100))} dollars"
            choices.append(Choice(told, (Entry("formats.amount", "unit", unit),)))
    text = f"no amount in column {column_name(name)} has decimals: what are they in?"
    if said:
        text = f"column {column_name(name)} says {said}: what are its amounts in?"
    return [Question("amount", text, tuple(choices))]


def _signed(negative: str, words: str) -> Choice:
    return Choice(f"{negative}: {words}", (Entry("formats.amount", "negative", negative, words),))


def _number_entries(target: str, written: Written) -> list[Entry]:
    form = written.form
    assert isinstance(form, NumberFormat)
    table, why = f"formats.{target}", f"{written.count:,} of {len(written.texts):,} amounts are written so"
    entries = [Entry(table, "decimal", form.decimal, why)]
    entries += [Entry(table, "thousands", form.thousands)] if form.thousands else []
    return entries + ([Entry(table, "currency", form.currency)] if form.currency else [])


def date_entries(target: str, name: str, cells: pl.Series) -> Added:
    """State how dates are written, or ask whether the month or the day comes first."""
    ways = dates(cells)
    if not ways.best or (len(ways.best) == 1 and ways.best[0].texts.equals(cells)):
        return [], []
    if ways.is_certain:
        return _date_entries(target, ways.best[0]), []
    return [], [_how_written(target, name, ways, cells, _date_entries)]


def _date_entries(target: str, written: Written) -> list[Entry]:
    assert isinstance(written.form, DateFormat)
    why = f"{written.count:,} of {len(written.texts):,} dates are written so"
    return [Entry(f"formats.{target}", "date", written.form.pattern, why)]


def _how_written(
    target: str, name: str, ways: Ways, cells: pl.Series, entries: Callable[[str, Written], list[Entry]]
) -> Question:
    """Ask how a column is written, by a cell that the ways read differently."""
    first = ways.best[0].texts
    differs = first.is_null() if len(ways.best) == 1 else ways.best[1].texts.ne_missing(first)
    at = int(differs.arg_true()[0])
    choices = [Choice(f"{cells[at]} is {_in_words(one, at)}", tuple(entries(target, one))) for one in ways.best]
    text = f"how is column {column_name(name)} written?"
    if len(ways.best) == 1:
        text = f"column {column_name(name)} is written in more than one way: is the most common one right?"
    return Question(target, text, tuple(choices))


def _in_words(written: Written, at: int) -> str:
    text = written.texts[at]
    if text is None:
        return f"not read (the others are like {written.form.example})"
    if isinstance(written.form, NumberFormat):
        return str(text)
    month, day, year = text.split("/")
    return f"{month_name[int(month)]} {int(day)}, {year}"


def word_entries(target: str, name: str, cells: pl.Series) -> Added:
    """Translate the words of a closed list, and ask about those that might be anything."""
    entries, questions, unknown = list[Entry](), list[Question](), list[str]()
    words = sorted(cells.unique())
    for word in words[:_WORDS_MAX]:
        ours = ours_for(target, word)
        if ours == word:
            continue
        if ours is not None:
            entries.append(Entry(f"values.{target}", ours, [word]))
        elif len(CHOICES[target]) == 2 and not re.search("[0-9]{3}", word) and len(words) <= ASKED_MAX:
            choices = [Choice(one, (Entry(f"values.{target}", one, [word]),)) for one in CHOICES[target]]
            text = f"what is {column_name(word)} in column {column_name(name)}?"
            questions.append(Question(target, text, (*choices, Choice("neither: its rows are errors"))))
            unknown.append(word)
    guess = {word: (meaning(target, word) or "?").rstrip("?") for word in unknown}
    if len(unknown) > 1 and all(one in CHOICES[target] for one in guess.values()):
        one, other = CHOICES[target]
        ways = (guess, {word: other if ours == one else one for word, ours in guess.items()})
        both = [
            Choice("; ".join(f"{word} is {ours}" for word, ours in way.items()), _values(target, way)) for way in ways
        ]
        text = f"what are {_listed(unknown)} in column {column_name(name)}?"
        questions = [Question(target, text, (*both, Choice("each word apart", then=tuple(questions))))]
    if len(unknown) < len(words):  # rows with the other words can be sent
        questions = [replace(question, is_needed=False) for question in questions]
    return entries, questions
