"""Formats that a map states: amounts against Decimal, dates against datetime, cells put together and taken apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpay.intake.maps.formats import DateFormat, NumberFormat, Pattern, first_that_fits

LIKE_ALWAYS = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FORMATS = [
    NumberFormat(),
    NumberFormat(",", ".", "EUR", "DEBIT"),
    NumberFormat(".", ",", "$"),
    NumberFormat(",", " ", "", "CREDIT"),
    NumberFormat(".", "'", "$", "CREDIT"),
]


def read(form: NumberFormat | DateFormat, texts: Sequence[str | None]) -> list[tuple[str | None, str | None]]:
    """What a format makes of texts: ours, and the words of what is wrong."""
    reading = form.read(pl.Series(texts, dtype=pl.String), "column Sum")
    return list(zip(reading.text.to_list(), reading.wrong.to_list(), strict=True))


def independent(form: NumberFormat, text: str) -> tuple[Decimal, bool] | None:
    """Amount and whether it is negative, read letter by letter; None where the text is none in this format."""
    negative = False
    rest = text.strip(" ")
    before, after = [], []
    marks = ["-", "+", "(", form.currency] if form.currency else ["-", "+", "("]
    while found := next((mark for mark in marks if rest.startswith(mark)), None):
        before.append(found)
        rest = rest.removeprefix(found).strip(" ")
    marks = ["-", ")", form.currency] if form.currency else ["-", ")"]
    while found := next((mark for mark in marks if rest.endswith(mark)), None):
        after.append(found)
        rest = rest.removesuffix(found).strip(" ")
    signs = [mark for mark in (*before, *after) if mark != form.currency]
    if signs not in ([], ["-"], ["+"], ["(", ")"]) or (before + after).count(form.currency) > 1:
        return None
    negative = signs in (["-"], ["(", ")"])
    whole, point, decimals = rest.partition(form.decimal)
    if point and not (1 <= len(decimals) <= 2 and decimals.isdigit()):
        return None
    groups = whole.split(form.thousands) if form.thousands else [whole]
    if not all(group and all(letter in "0123456789" for letter in group) for group in groups):
        return None
    if len(groups) > 1:
        first, *others = groups
        if len(first) > 3 or first.startswith("0") or any(len(group) != 3 for group in others):
            return None
    return Decimal(f"{''.join(groups)}.{decimals or 0}"), negative


LETTERS = st.text("0012345,.,. '-()+$EUR", max_size=12)


@st.composite
def written(draw: st.DrawFn, form: NumberFormat) -> str:
    """An amount in a format, or nearly so."""
    cents = draw(st.integers(0, 10**12))
    whole, rest = divmod(cents, 100)
    digits = f"{whole:,}".replace(",", form.thousands) if draw(st.booleans()) else str(whole)
    tail = draw(st.sampled_from(["", f"{form.decimal}{rest:02d}", f"{form.decimal}{rest % 10}"]))
    shape = draw(
        st.sampled_from(["{}", "-{}", "{}-", "({})", " {} ", "${}", "{} EUR", "-$ {}", "$({})", "(${})", "+{}", "{}$-"])
    )
    text = shape.format(digits + tail)
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from([".", ",", "0", " ", "-", "'", ""])) + text[at + 1 :]
    return text


@pytest.mark.parametrize("form", FORMATS, ids=repr)
def test_amounts_against_decimal(form: NumberFormat) -> None:
    """An amount is read to the cent, or it is an error: never another amount, in any format, sign or grouping."""

    @LIKE_ALWAYS
    @given(st.lists(st.one_of(LETTERS.filter(bool), written(form)), min_size=1, max_size=60))
    def hold(texts: list[str]) -> None:
        for text, (found, wrong) in zip(texts, read(form, texts), strict=True):
            expected = independent(form, text)
            if expected is None or (expected[1] and form.negative == "refused"):
                assert found is None and wrong, text
                continue
            assert found is not None and wrong is None, text
            assert Decimal(found) == expected[0] and found[-3] == "." and found.isascii(), text

    hold()


@pytest.mark.parametrize(("form", "text", "ours"), [
    (NumberFormat(",", "."), "1.234", "1234.00"), (NumberFormat(",", "."), "1.234,5", "1234.50"),
    (NumberFormat(",", "."), "12.34", None), (NumberFormat(",", "."), "0.123", None),
    (NumberFormat(",", "."), "1234.567", None), (NumberFormat(",", "."), "1,234", None),
    (NumberFormat(), "1,234.00", None), (NumberFormat(), "1.234", None),
    (NumberFormat(",", " "), "1\u202f234\u202f567,80", "1234567.80"),
    (NumberFormat(",", " "), "1\u202f234 567,80", None),
    (NumberFormat(".", ",", "$", "CREDIT"), " $1,381.12 ", "1381.12"),
    (NumberFormat(".", ",", "$", "CREDIT"), "($1,381.12)", "1381.12"),
    (NumberFormat(".", ",", "$", "CREDIT"), "\u22125.00", "5.00"),
    (NumberFormat(".", ",", "$", "CREDIT"), "(5.00", None), (NumberFormat(".", ",", "$", "CREDIT"), "--5.00", None),
    (NumberFormat(".", ","), "$5.00", None), (NumberFormat(".", ","), "-5.00", None),
    (NumberFormat(".", ","), "٥.00", None),
])  # fmt: skip
def test_amounts(form: NumberFormat, text: str, ours: str | None) -> None:
    """What is not in the stated format is no amount, however clear it looks."""
    ((found, wrong),) = read(form, [text])
    assert (found, wrong is None) == (ours, ours is not None)


def test_words_and_blanks() -> None:
    """A blank cell is not given; what is wrong is said in the words of the file, without its cell."""
    rows = read(NumberFormat(",", "."), [None, "12.5", "-3,00"])
    assert rows[0] == (None, None)
    assert rows[1][1] == "column Sum is not written as the map says, like 1.234,56"
    assert "negative" in str(rows[2][1])


def test_directions() -> None:
    """The sign tells the direction; where there is no amount it is the positive one's."""
    texts = ["5.00", "-5.00", "5.00-", "(5.00)", "\u22125.00", None]
    cells = pl.Series(texts)
    found = NumberFormat(negative="CREDIT").direction(cells).to_list()
    assert found == ["DEBIT", "CREDIT", "CREDIT", "CREDIT", "CREDIT", "DEBIT"]
    assert NumberFormat(negative="DEBIT").direction(cells)[0] == "CREDIT"


DAYS = st.dates(date(2000, 1, 1), date(2068, 12, 31))
DATES = ["%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d", "%d-%b-%Y", "%B %d, %Y", "%d.%m.%y", "%Y%m%d", "%m/%d/%Y 0:00"]


@pytest.mark.parametrize("pattern", DATES)
def test_dates_against_datetime(pattern: str) -> None:
    """A day is read as strptime reads it; what strptime does not read as a day is an error, or no such day."""

    @LIKE_ALWAYS
    @given(st.lists(st.tuples(DAYS, st.integers(0, 9), st.sampled_from("0159./- x")), min_size=1, max_size=40))
    def hold(changes: list[tuple[date, int, str]]) -> None:
        texts = [day.strftime(pattern) for day, _, _ in changes]
        assert [found for found, _ in read(DateFormat(pattern), texts)] == [f"{day:%m/%d/%Y}" for day, _, _ in changes]
        others = [text[:at] + letter + text[at + 1 :] for text, (_, at, letter) in zip(texts, changes, strict=True)]
        for text, (found, wrong) in zip(others, read(DateFormat(pattern), others), strict=True):
            assert (found is None) == (wrong is not None)
            if found is not None and " " not in text and "y" not in pattern:  # strptime's 90 is 1990
                assert day_of(text, pattern) == day_of(found, "%m/%d/%Y")

    hold()


def day_of(text: str, pattern: str) -> date | None:
    """The day as strptime reads it, or None where there is none."""
    try:
        return datetime.strptime(text, pattern).date()  # noqa: DTZ007
    except ValueError:
        return None


def test_days_and_months_without_anything_between() -> None:
    """With their zero lost they are no date: 1122027, once 01122027, was read as November 2, not as January 12."""
    for pattern, good, bad in (
        ("%m%d%Y", "01122027", "1122027"), ("%d%m%y", "120127", "12127"), ("%Y%m%d", "20270112", "2027112"),
    ):  # fmt: skip
        found = [text for text, _ in read(DateFormat(pattern), [good, bad])]
        assert found == ["01/12/2027", None], pattern
    for pattern, certain in (("%d%b%Y", "1Jan2027"), ("%b%d%Y", "Jan12027")):
        assert read(DateFormat(pattern), [certain])[0][0] == "01/01/2027"


@pytest.mark.parametrize(("pattern", "told"), [
    ("%d.%m", "a day, a month and a year"), ("%d.%m.%m.%Y", "each once"), ("%d.%b.%m.%Y", "each once"),
    ("%H:%d.%m.%Y", "%H is none of"), ("%d.%m.%Y%", "is none of"), ("", "a day, a month"), ("%d.%m.%Y 100%%", None),
])  # fmt: skip
def test_formats_of_dates(pattern: str, told: str | None) -> None:
    """A format that does not say a day is refused before it reads any."""
    problem = DateFormat(pattern).problem
    assert problem is None if told is None else told in str(problem)


def test_a_cell_is_split_in_one_way_or_not_at_all() -> None:
    """Every cell that could be read in two ways is an error: held against all ways of splitting it."""
    pattern = Pattern("{a}, {b} {c}")
    texts = ["".join(letters) for letters in itertools.product(["x", ", ", " ", "y"], repeat=5)]
    parts = pattern.split_cells(pl.Series(texts))
    for text, row in zip(texts, parts.iter_rows(), strict=True):
        ways = {
            (text[:i], text[i + 2 : j], text[j + 1 :])
            for i in range(1, len(text))
            for j in range(i + 3, len(text) - 1)
            if text[i : i + 2] == ", " and text[j] == " "
        }
        assert row == (ways.pop() if len(ways) == 1 else (None, None, None)), text


def test_the_first_pattern_that_fits() -> None:
    """A name of three words is certain where a comma says which is which."""
    patterns = [Pattern("{last}, {first}"), Pattern("{first} {last}")]
    texts = ["Byron, Ada", "Ada Byron", "Lovelace, Ada King", "Ada King Lovelace", "Ada", None]
    frame = first_that_fits(patterns, pl.Series(texts)).select("first", "last")
    ada = ("Ada", "Byron")
    assert frame.rows() == [ada, ada, ("Ada King", "Lovelace"), (None, None), (None, None), (None, None)]


def test_patterns() -> None:
    """What no pattern is is told."""
    assert Pattern("{Date}-{Vendor}").problem is None
    assert Pattern("x").problem and Pattern("{a").problem and Pattern("{ }").problem and Pattern("{{a}}").problem
    assert Pattern("{a}{b}").adjoining and not Pattern("x{a}-{b}").adjoining
