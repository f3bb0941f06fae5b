"""What the map states, or asks, about a column's cells once its content is known: formats, signs, words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from batchpay.intake.maps.draft import Choice, Entry, Question
from batchpay.intake.maps.evidence import Ways, Written, amounts, dates, negatives, ours
from batchpay.intake.maps.formats import DateFormat, NumberFormat
from batchpay.intake.maps.words import CHOICES, ours_for
from batchpay.text import column_name

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


def money_entries(target: str, name: str, cells: pl.Series) -> Added:
    """State how amounts are written, or ask where two ways read them differently."""
    ways = amounts(cells)
    if not ways.best or ours(target, cells) == len(cells):
        return [], []
    if ways.is_certain:
        return _number_entries(target, ways.best[0]), []
    return [], [_how_written(target, name, ways, cells, _number_entries)]


def amount_entries(name: str, cells: pl.Series, *, has_direction: bool) -> Added:
    """State how the amounts are written, and ask what their signs mean, or which way the money goes."""
    entries, questions = money_entries("amount", name, cells)
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
    if not ways.best or ways.best[0].texts.equals(cells):
        return [], [] if len(ways.best) < 2 else [_how_written(target, name, ways, cells, _date_entries)]
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
    choices = []
    for one in ways.best:
        choices.append(Choice(f"{cells[at]} is {_in_words(one, at)}", tuple(entries(target, one))))
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
    return f"{_MONTHS[int(month) - 1]} {int(day)}, {year}"


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def word_entries(target: str, name: str, cells: pl.Series) -> Added:
    """Translate the words of a closed list, and ask about those that might be anything."""
    entries: list[Entry] = []
    questions: list[Question] = []
    words = sorted(cells.unique())
    for word in words[:_WORDS_MAX]:
        ours = ours_for(target, word)
        if ours == word:
            continue
        if ours is not None:
            entries.append(Entry(f"values.{target}", word, ours))
        elif len(CHOICES[target]) == 2 and not re.search("[0-9]{3}", word) and len(words) <= ASKED_MAX:
            choices = [Choice(one, (Entry(f"values.{target}", word, one, "answered"),)) for one in CHOICES[target]]
            text = f"what is {column_name(word)} in column {column_name(name)}?"
            questions.append(Question(target, text, (*choices, Choice("neither: its rows are errors"))))
    if len(questions) < len(words):  # rows with the other words can be sent
        questions = [replace(question, is_needed=False) for question in questions]
    return entries, questions
