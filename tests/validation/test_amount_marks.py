"""What stands beside the number of an amount: of any currency of the table nothing is ever paid as dollars.

Marks in amounts had no meaning of their own: 500,000 yen, found beside a `¥`, were paid as dollars through a map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from random import Random

import pytest

from batchpay.schemas.amount_text import AmountText, amount_text
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.tables import AMOUNT_MARKS, CURRENCIES, CURRENCIES_OF, NO_DECIMALS
from batchpay.validation.verdict import Failure
from tests.support.row_factory import AS_OF
from tests.support.text_chunks import VALID, TextChunks
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=AS_OF, normalize=True)


def failures(amounts: Sequence[tuple[str, str | None]]) -> list[Failure]:
    """Return what is wrong with rows of these amounts and currencies."""
    rows = [
        dict[str, str | None](VALID) | {"paymentId": f"P{at}", "amount": amount, "currencyCode": code}
        for at, (amount, code) in enumerate(amounts)
    ]
    parts = (rows[at : at + 900] for at in range(0, len(rows), 900))
    verdicts = [check(TextChunks(some, height=900), OPTIONS) for some in parts]
    return [one for verdict in verdicts for one in verdict.failures if one.column == "amount"]


def written(mark: str, random: Random) -> Iterator[str]:
    """Yield amounts with a mark before and after, apart and adjoining, in several cases."""
    for number in ("1234.50", "1,234.50", "1.234,50", "500000"):
        blank = random.choice(["", " ", "\u00a0", "  "])
        for case in (mark, mark.lower(), mark.upper()):
            yield f"{case}{blank}{number}"
            yield f"{number}{blank}{case}"


def test_every_mark_of_another_currency_is_an_error_that_names_it() -> None:
    """Each symbol, name and code of the table, before or after, whatever its case: never dollars without a word."""
    random = Random(40)
    amounts = [
        (amount, code)
        for (mark, codes), code in zip(CURRENCIES_OF.items(), cycle([None, "USD"]))
        if "USD" not in codes
        for amount in written(mark, random)
    ]
    found = failures(amounts)
    assert {one.code for one in found} == {"currency_mark"} and len(found) == len(amounts)
    assert not [one for one in found if one.suggestion]
    (euros,) = failures([("€1.234,50", None)])
    assert "names € as its currency" in euros.message


@pytest.mark.parametrize("amount", ["$1,234.50", "USD 1234.50", "1,234.50 usd", "US$1234.50", "$ 1234.50"])
def test_dollars_marked_as_dollars_are_offered(amount: str) -> None:
    """A mark that agrees is no contradiction: the amount alone is suggested."""
    (one,) = failures([(amount, "USD")])
    assert (one.code, one.suggestion) == ("format", "1234.50")


def test_a_mark_agrees_with_each_currency_that_it_stands_for() -> None:
    """`$` is also Canadian, `kr` Swedish or Norwegian; `$12.00 CAD` is Canadian alone."""
    agreeing = [("$12.00", "CAD"), ("kr 12.00", "SEK"), ("12.00 kr", "NOK"), ("€12.00", "EUR"), ("$12.00 CAD", "CAD")]
    assert {one.code for one in failures(agreeing)} == {"format"}
    others = [("$12.00", "EUR"), ("€12.00", "GBP"), ("$12.00 CAD", None), ("$12.00 CAD", "AUD"), (" €12.00 ", None)]
    assert [one.code for one in failures(others)] == ["currency_mark"] * len(others)


def test_codes_alone_are_no_error() -> None:
    """Twenty currencies, each stated in currencyCode, are no errors of the amount."""
    assert failures([("12.00", code) for code in CURRENCIES[:20]]) == []


def test_decimals_of_a_currency_without_any() -> None:
    """Half a yen is nothing that can be paid; whole yen are written with 00."""
    assert failures([("1200.00", code) for code in NO_DECIMALS]) == []
    assert {one.code for one in failures([("1200.50", code) for code in NO_DECIMALS])} == {"currency_decimals"}
    assert failures([("1200.50", "USD"), ("1200.50", None)]) == []


REASONS = {
    "1.2K": "thousands",
    "1.2 mio": "thousands",
    "50%": "percentage",
    "7.25 hrs": "text beside",
    "1200.00 VOID": "text beside",
    "45.10*": "text beside",
    "45.10 DR": "direction",
    "CR 45.10": "direction",
    "120000¢": "cents",
    "1,25,000.00": "lakhs",
    "12,34,567.50": "lakhs",
    "'-75.63": "apostrophe",
    "(75.63)": "negative",
    "75.63-": "negative",
    "１２３.00": "another script",
    "012": "begins with a zero",
    "021000021": "begins with a zero",
    "45,10": "comma before its decimals",
    "1,000": "three decimals",
    "1.2E+05": "power of ten",
}


@pytest.mark.parametrize(("amount", "reason"), REASONS.items())
def test_the_reason_is_given(amount: str, reason: str) -> None:
    """An amount that is none is an error that says why, without a suggestion: no mark is dropped."""
    (one,) = failures([(amount, None)])
    assert (one.code, one.suggestion) == ("format", None)
    assert reason in one.message


def test_every_other_mark_has_a_reason() -> None:
    """No word of the table, wherever it is, leaves the amount as it was."""
    marks = [mark for of_kind in AMOUNT_MARKS.values() for mark in of_kind]
    ways = ("12.00{}", None, str), ("12.00 {}", None, str.upper), ("{} 12.00", "USD", str.lower)
    found = failures([(text.format(case(mark)), code) for mark in marks for text, code, case in ways])
    for mark, three in zip(marks, zip(*3 * [iter(found)], strict=True), strict=True):
        assert [one.code for one in three] == ["format"] * 3, mark
        assert len({one.message for one in three}) == 1 and "write digits" not in three[0].message, mark


def test_parts_of_a_text() -> None:
    """The same reading of one text, for maps and statements."""
    assert amount_text("€ 1.234,50-") == AmountText("1.234,50", True, ("EUR",), "", "")
    assert amount_text("$12.00 CAD").currencies == ("CAD",)
    assert amount_text("USD 45.10 CR") == AmountText("45.10", False, ("USD",), "CR", "")
    assert amount_text("1200.00 VOID") == AmountText("1200.00", False, (), "", "VOID")
    assert amount_text("Total") == AmountText("", False, (), "", "Total")
    for mark, codes in CURRENCIES_OF.items():
        assert amount_text(f"{mark.upper()} 7").currencies == amount_text(f"7 {mark}").currencies == codes
