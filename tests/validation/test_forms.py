"""A cell in its column's form breaks no rule that the form stands for: shown rule by rule, and of sabotaged forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import polars as pl
import pytest

from batchpay.schemas import forms
from batchpay.schemas.columns import COLUMNS, RECURRING
from batchpay.schemas.forms import Form
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.rule import Rule, RuleOptions, form_of, rules_of
from batchpay.validation.compiled_rules import RuleBook
from tests.support.row_factory import AS_OF, ODD_VALUES, mutated_rows, valid_rows

OPTIONS = {
    "as they are": RuleOptions(as_of=AS_OF),
    "everything": RuleOptions(as_of=AS_OF, warnings_as_errors=True, max_amount_cents=400_000),
    "lenient": RuleOptions(as_of=AS_OF, require_agreement=False, past_start=False, allow_open_ended=True),
}
_HOSTILE = "0123456789Aaz.,;:-/()@ \u00a0\u2003\u200b\u202e\u2019\ufffd\x00\x7f\x85\t\n\r'\"é"
_SHORT = {"amount": "019.", "taxAmount": "09.", "gatewayId": "01a", "achAccountNumber": "01A-", "achCheckNumber": "0a",
          "recurringNumOfPayments": "019", "billingEmail": "a.@;", "recurringStartDate": "0/1",
          "payOn": "0/1"}  # fmt: skip
"""Every text of so few characters, up to six of them, is tried in these columns."""
_STRANGE = ("XX", "202x555.0143", "RenÃ©e", "ÃŒle", "a\u2011b", "donâ€™t", "MÃ¼ller", "a\u00adb", "1" * 18,
          "0" * 17 + "1", "1" * 17, "x" * 255, "x" * 256, "é" * 256, "a" * 65 + "@b.co", "1" * 16 + ".00",
         "99999999.99", "100000000.00", "000000000", "000000001")  # fmt: skip


def _rules(options: RuleOptions) -> dict[str, list[Rule]]:
    rules = rules_of(payment_schema(options))
    return {column: [rule for rule in rules if rule.column == column] for column in COLUMNS}


@cache
def _cells(column: str) -> pl.Series:
    """Cells of a column: right, mutated, strange, and each of them changed at random."""
    random = Random(column)
    rows = [*valid_rows(5, count=150), *mutated_rows(6, count=600)]
    cells = {row[column] for row in rows} | {*ODD_VALUES, *_STRANGE}
    texts = sorted(filter(None, cells))
    for text in list(texts):
        for _ in range(6):
            at, more = random.randrange(len(text) + 1), random.choice(_HOSTILE)
            texts.append(text[:at] + random.choice((more, "", more * 2)) + text[at + random.choice((0, 1)) :])
    if column in _SHORT:
        texts += ["".join(letters) for most in range(7) for letters in product(_SHORT[column], repeat=most)]
    if column == "achRoutingNumber":
        texts += [f"{prefix:03d}{rest}" for prefix in range(1000) for rest in ("000000", "000001", "123456", "12345")]
    return pl.Series(sorted(set(filter(None, texts))), dtype=pl.String)


def _has_form(cells: pl.Series, form: Form) -> pl.Series:
    matches = cells.str.contains(form.whole)
    return matches if form.bytes_max is None else matches & (cells.str.len_bytes() <= form.bytes_max)


def _kept_wrongly(rules: Iterable[Rule], form: Form, cells: pl.Series) -> set[str]:
    """Name the rules that a cell in the form breaks, whatever stands beside it."""
    written = cells.filter(_has_form(cells, form))
    wrong: set[str] = set()
    for rule, beside in product(rules, (None, "DEBIT", "CREDIT", "US", "CA", "TRUE", "FALSE", "1.00")):
        others = [pl.lit(beside, pl.String).alias(name) for name in rule.reads]
        frame = pl.DataFrame({rule.column: written}).with_columns(others)
        if frame.height and frame.select(rule.fails.fill_null(value=False).any()).item():
            wrong.add(rule.name)
    return wrong


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_cell_in_its_form_breaks_a_rule_that_the_form_stands_for(options: RuleOptions) -> None:
    """Of each column's cells those in its form keep each rule that is not asked of them; and there are such cells."""
    book = RuleBook(payment_schema(options))
    for column, rules in _rules(options).items():
        own, cells = book.forms[column], _cells(column)
        kept = [rule for rule in rules if rule.is_kept_by(own)]
        assert _has_form(cells, own).sum() > 0, column
        assert not _kept_wrongly(kept, own, cells), column


def test_no_character_that_a_rule_forbids_is_in_a_text() -> None:
    """Of Unicode's planes with rules, in front, within and behind, what breaks a rule for texts is not in the form."""
    codes = [*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000)]
    every = pl.Series([chr(code) for code in codes])
    rules = _rules(OPTIONS["as they are"])
    for column, form in (
        ("billingInternalId", forms.TEXT),
        ("paymentId", forms.IDENTIFIER),
        ("billingCity", forms.NAME),
    ):
        assert form_of(rules[column]) == form
        for texts in (every, every + "a", "a" + every, "a" + every + "b"):
            assert not _kept_wrongly(rules[column], form, texts), column
        assert _has_form(every, form).sum() == 94 - len("#(-.<?[\\") or form != forms.IDENTIFIER, (
            "what can be seen of ASCII"
        )


def test_no_name_that_was_decoded_twice_is_in_the_form_of_names() -> None:
    """Of all letters whose UTF-8 is two or three bytes, read as Windows-1252, none has the form of a name."""
    letters = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code <= 0xDFFF]
    twice = {letter.encode().decode("cp1252", "ignore") for letter in letters}
    cells = pl.Series(sorted({text + end for text in twice for end in ("", "a", "A b", "Ä")} | {"Ä", "ång", "château"}))
    rules = _rules(OPTIONS["as they are"])["billingCity"]
    assert not _kept_wrongly(rules, forms.NAME, cells)
    assert {"ång", "château"} < set(cells.filter(_has_form(cells, forms.NAME)))


def _sabotaged() -> list[tuple[str, Form]]:
    """Forms that take a cell too many, for a column each."""
    rules = _rules(OPTIONS["as they are"])
    lists = [column for column in COLUMNS if (form := form_of(rules[column])) != forms.TEXT and "[" not in form.pattern]
    wider = [(column, Form(form_of(rules[column]).pattern + "|XX")) for column in lists]
    return [
        *wider,
        ("amount", Form(r"[0-9]{1,8}\.[0-9]{2}")),
        ("amount", Form(r"[1-9][0-9]{0,8}\.[0-9]{2}")),
        ("taxAmount", Form(r"[0-9]{1,8}\.?[0-9]{2}")),
        ("shippingTax", Form(r"[0-9]{1,8}.[0-9]{2}")),
        ("gatewayId", Form(r"[0-9]{1,18}")),
        ("achAccountNumber", Form(r"[0-9]{4,17}")),
        ("achAccountNumber", Form(r"[1-9][0-9]{2,16}")),
        ("achAccountNumber", Form(r"[1-9][0-9]{3,17}")),
        ("achRoutingNumber", Form(r"[0-9]{9}")),
        ("achRoutingNumber", Form(forms.ROUTING.pattern.replace("0(?:[1-9][0-9]|0[1-9])", "0[0-9][0-9]"))),
        ("achCheckNumber", Form(r"[0-9]{1,18}")),
        ("recurringStartDate", Form(r"[0-9]{2}/[0-9]{2}/[0-9]{2,4}")),
        ("recurringNumOfPayments", Form(r"[0-9]{1,5}")),
        ("recurringNumOfPayments", Form(r"[1-9][0-9]{0,5}")),
        ("billingPhone", Form(forms.PHONE.pattern.replace(r"\.", "."))),
        ("billingEmail", replace(forms.EMAILS, bytes_max=None)),
        ("billingEmail", replace(forms.EMAILS, pattern=forms.EMAILS.pattern.replace(r"\.", "."))),
        ("billingInternalId", replace(forms.TEXT, bytes_max=None)),
        ("billingInternalId", replace(forms.TEXT, pattern=rf"[^{forms.FORBIDDEN}]+")),
        ("billingInternalId", replace(forms.TEXT, pattern=r"\S(?:.*\S)?")),
        ("paymentId", forms.TEXT),
        ("billingCity", forms.TEXT),
        ("billingCity", replace(forms.NAME, pattern=forms.NAME.pattern.replace("€", ""))),
    ]


@pytest.mark.parametrize(("column", "form"), _sabotaged(), ids=lambda value: getattr(value, "pattern", value)[:40])
def test_a_form_that_takes_a_cell_too_many_is_noticed(column: str, form: Form) -> None:
    """The property fails of each form that is made wider than its rules."""
    rules = _rules(OPTIONS["as they are"])[column]
    right = form_of(rules)
    assert _kept_wrongly([rule for rule in rules if rule.is_kept_by(right)], form, _cells(column))


def test_a_rule_without_a_form_is_asked_of_every_row() -> None:
    """What no form stands for is never taken as kept: the rules that look at other columns, and any new one."""
    rules = _rules(OPTIONS["everything"])
    asked = {rule.name for column in COLUMNS for rule in rules[column] if not rule.is_kept_by(form_of(rules[column]))}
    assert {"amount.limit", "achRoutingNumber.checksum", "billingState.state", "recurringStartDate.past"} < asked
    new = replace(rules["billingCity"][0], code="new", by_any_form=False)
    assert not new.is_kept_by(forms.NAME)


def _rows_in_form(book: RuleBook) -> pl.DataFrame:
    """Rows of which every cell is blank or has its column's form, in all combinations that rules look at together."""
    some = {
        "payOn": (None, "12/05/2026", "02/30/2027", "01/31/2020"),
        "recurringIndicator": ("TRUE", "FALSE"),
        "recurringStartDate": (None, "01/31/2027", "02/30/2027", "01/31/2020", "01/02/2027"),
        "recurringBillingCycle": (None, "MONTHLY", "DAILY"),
        "recurringEndOfMonth": (None, "Y", "N"),
        "recurringNumOfPayments": (None, "12"),
        "recurringAgreementFlag": (None, "1"),
        "taxAmount": (None, "0.00", "1.00", "00000001.00", "9.99", "10.00", "10.01", "99999999.99", "00.99"),
        "amount": ("0.99", "1.00", "9.99", "10.00", "99999999.99"),
    }
    money = ("taxAmount", "amount")
    rows = [
        *(dict(zip(money, pair, strict=True)) for pair in product(*(some[name] for name in money))),
        *(dict(zip(others, cells, strict=True)) for others in [some.keys() - set(money)]
          for cells in product(*(some[name] for name in others))),
    ]  # fmt: skip
    for name, cells in some.items():
        texts = pl.Series([cell for cell in cells if cell], dtype=pl.String)
        assert _has_form(texts, book.forms[name]).all(), name
    return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String))


def _asked(rule: Rule) -> pl.Expr:
    return rule.applies_where if rule.applies_where is not None else pl.lit(value=True)


def _broken_unasked(rules: Iterable[Rule], rows: pl.DataFrame) -> set[str]:
    """Name the rules that a row breaks of which they are not asked."""
    some = list(rules)
    unasked = [(~_asked(rule) & rule.fails.fill_null(value=False)).any() for rule in some]
    found = rows.select(flag.alias(str(at)) for at, flag in enumerate(unasked)).row(0)
    return {rule.name for rule, is_broken in zip(some, found, strict=True) if is_broken}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_row_breaks_a_rule_of_which_it_is_not_asked(options: RuleOptions) -> None:
    """Rules that are asked of some rows only are kept by all others; each is asked of some row and not of another."""
    book = RuleBook(payment_schema(options))
    rows, some = _rows_in_form(book), [rule for rule in book.rules if rule.applies_where is not None]
    assert {rule.column for rule in some} == {"amount", "taxAmount", "payOn", *RECURRING}
    assert not _broken_unasked(some, rows)
    yen = pl.DataFrame({"currencyCode": ["JPY"]})  # in no form: a row of it is unproven
    rows = pl.concat([rows, yen], how="diagonal")
    for where in (rule.applies_where for rule in some if rule.applies_where is not None):
        asked = rows.select(asked=where)["asked"]
        assert asked.null_count() == 0 and asked.any() and not asked.all()


@pytest.mark.parametrize(("column", "applies_where"), [
    ("taxAmount", (pl.col("taxAmount").str.len_bytes() > pl.col("amount").str.len_bytes()).fill_null(value=False)),
    ("recurringStartDate", pl.col("recurringIndicator") == "TRUE"),
    ("recurringStartDate", pl.col("recurringStartDate").is_not_null()),
])  # fmt: skip
def test_a_rule_that_is_asked_of_too_few_rows_is_noticed(column: str, applies_where: pl.Expr) -> None:
    """The property fails for each predicate that leaves out a row which breaks a rule."""
    book = RuleBook(payment_schema(OPTIONS["as they are"]))
    rules = [replace(rule, applies_where=applies_where) for rule in book.rules if rule.column == column]
    assert _broken_unasked(rules, _rows_in_form(book))
