"""The independent checker knows every rule, and the program finds exactly what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import product
from random import Random
from string import ascii_uppercase

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpay.schemas.catalogue import CHANGED_BY_BANK, rules
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.tables import CURRENCIES
from tests.support import checker_tables as tables
from tests.support.banking_days import is_banking_day
from tests.support.independent_checker import ALL_COLUMNS, ERROR, WARNING, Finding, Options, check_rows
from tests.support.row_factory import AS_OF, MUTATIONS, ODD_VALUES, Row, mutated_rows, valid_row, valid_rows
from tests.support.text_chunks import VALID
from tests.support.whole_check import check

_BEYOND_A_ROW = {
    ("row", "ragged", ERROR),
    ("row", "quotation", ERROR),
    ("row", "no_payment", ERROR),
    ("row", "status", ERROR),
    ("row", "total", ERROR),
    ("row", "sum", WARNING),
    ("row", "shared_account", WARNING),
    ("row", "spread_payee", WARNING),
    ("row", "same_invoice", ERROR),
    ("amount", "limit", ERROR),
    ("achAccountNumber", "returned", ERROR),
    *((fact.column, fact.code, ERROR) for fact in CHANGED_BY_BANK),
}
"""Rules that no mutation of a row breaks: they are of the file's or the ledger's rows, or have no default."""
_EVERY_FAILURE = 10**9


@dataclass
class _Chunks:
    """Rows as a reader of files hands them on, some at a time."""

    rows: Sequence[Row]
    rows_at_once: int

    def chunks(self) -> Iterator[pl.DataFrame]:
        for start in range(0, len(self.rows), self.rows_at_once):
            part = self.rows[start : start + self.rows_at_once]
            numbers = pl.Series("_row", range(start + 1, start + 1 + len(part)), dtype=pl.UInt32)
            cells = [pl.Series(name, [row[name] or None for row in part], dtype=pl.String) for name in ALL_COLUMNS]
            yield pl.DataFrame([numbers, (numbers + 1).alias("_line"), *cells])


def _program_finds(rows: Sequence[Row], options: RuleOptions, rows_at_once: int) -> list[set[Finding]]:
    """What the program finds, a set a row; nothing is found twice, and a row passes where no error is found."""
    verdict = check(_Chunks(rows, rows_at_once), options, max_failures=_EVERY_FAILURE)
    found: list[set[Finding]] = [set() for _ in rows]
    for failure in (*verdict.failures, *verdict.warning_failures):
        finding = (failure.column, failure.code, failure.severity)
        assert finding not in found[failure.row - 1]
        found[failure.row - 1].add(finding)
    wrong = [any(severity == ERROR for _, _, severity in findings) for findings in found]
    assert verdict.passed.to_list() == [not is_wrong for is_wrong in wrong]
    assert (verdict.rows, verdict.rejected.rows) == (len(rows), sum(wrong))
    return found


def _assert_alike(
    rows: Sequence[Row],
    *,
    options: RuleOptions | None = None,
    checker_options: Options | None = None,
    rows_at_once: int = 7_000,
) -> list[set[Finding]]:
    """Fail where program and checker differ; return what they find."""
    program = _program_finds(rows, options or RuleOptions(as_of=AS_OF), rows_at_once)
    checker = check_rows(rows, as_of=AS_OF, options=checker_options)
    if program == checker:
        return program
    number, row, ours, theirs = next(
        (number, row, ours, theirs)
        for number, (row, ours, theirs) in enumerate(zip(rows, program, checker, strict=True), start=1)
        if ours != theirs
    )
    cells = {column: row.get(column) for column, _, _ in ours ^ theirs}
    pytest.fail(f"row {number}: only the program finds {ours - theirs}, only the checker {theirs - ours}: {cells!r}")


def test_valid_rows_are_clean() -> None:
    """The factory's valid rows draw no error and no warning."""
    assert not any(check_rows(valid_rows(seed=11, count=500), as_of=AS_OF))


@pytest.mark.parametrize("finding", MUTATIONS, ids=":".join)
def test_every_mutation_breaks_its_rule(finding: Finding) -> None:
    """Whatever a mutation draws, the checker finds the rule that it is meant to break."""
    for seed in range(6):
        random = Random(seed)
        previous, row = valid_row(random, 0), valid_row(random, 1)
        MUTATIONS[finding](row, previous, random)
        assert finding in check_rows([previous, row], as_of=AS_OF)[1]


def test_every_rule_has_a_mutation() -> None:
    """The mutations break every rule that the program lists for a row, and the program lists every rule they break."""
    listed = {(rule.column, rule.code, rule.severity) for rule in rules()}
    assert listed == set(MUTATIONS) | _BEYOND_A_ROW


def test_program_and_checker_agree() -> None:
    """Rows break every rule that has a mutation, and no other; the program finds the same codes as the checker."""
    found = _assert_alike(mutated_rows(12, count=6_000), rows_at_once=2_500)
    assert set().union(*found) == set(MUTATIONS)
    _assert_alike(valid_rows(0, count=500))


@pytest.mark.parametrize(("options", "checker_options"), [
    (RuleOptions(as_of=AS_OF, require_agreement=False, past_start=False, allow_open_ended=True),
     Options(require_agreement=False, past_start=False, allow_open_ended=True)),
    (RuleOptions(as_of=AS_OF, warnings_as_errors=True), Options(warnings_as_errors=True)),
    (RuleOptions(as_of=AS_OF, allow_duplicates=True), Options(allow_duplicates=True)),
    (RuleOptions(as_of=AS_OF, pay_on_days=None, duplicate_days=0), Options(pay_on_days=None, duplicate_days=0)),
    (RuleOptions(as_of=AS_OF, max_amount_cents=500_000), Options(max_amount=Decimal("5000.00"))),
], ids=["policies", "warnings-as-errors", "allow-duplicates", "registered-days", "max-amount"])  # fmt: skip
def test_options_agree(options: RuleOptions, checker_options: Options) -> None:
    """Each option changes the program's findings as it changes the checker's."""
    _assert_alike(mutated_rows(seed=21, count=800), options=options, checker_options=checker_options)


def test_closed_lists_agree() -> None:
    """The same capital letters are countries, states and currencies to both: of three, those that begin like one."""
    base = dict.fromkeys(ALL_COLUMNS) | VALID
    pairs = ["".join(letters) for letters in product(ascii_uppercase, repeat=2)]
    rows = [base | {"paymentId": f"c{pair}", "billingCountry": pair, "billingState": None} for pair in pairs]
    for country in ("US", "CA", None, "MX"):
        rows += [
            base | {"paymentId": f"s{country}{pair}", "shippingCountry": country, "shippingState": pair}
            for pair in pairs
        ]
    triples = {code[:2] + letter for code in {*CURRENCIES, *tables.CURRENCIES} for letter in ascii_uppercase}
    rows += [base | {"paymentId": triple, "currencyCode": triple} for triple in triples]
    _assert_alike([row | {"invoiceNumber": row["paymentId"]} for row in rows])  # different bills: no row is compared


def test_calendars_agree() -> None:
    """Of every day from 2024 to 2034, the same ones are no banking days, past days or ends of months to both."""
    monthly = {"recurringIndicator": "TRUE", "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N",
               "recurringNumOfPayments": "12", "recurringAgreementFlag": "1"}  # fmt: skip
    base = dict.fromkeys(ALL_COLUMNS) | VALID | monthly
    days = (date.fromordinal(number) for number in range(date(2024, 1, 1).toordinal(), date(2035, 1, 1).toordinal()))
    _assert_alike(
        [
            base | {"paymentId": str(day), "invoiceNumber": str(day), "recurringStartDate": day.strftime("%m/%d/%Y")}
            for day in days
        ]
    )


_CELLS = st.one_of(
    st.sampled_from(ODD_VALUES),
    st.text(max_size=12),
    st.text(alphabet="0123456789", min_size=1, max_size=18),
    st.text(alphabet="0159.,-$ ", min_size=1, max_size=12),
    st.text(alphabet="aB1.@;-_+ ", min_size=1, max_size=14),
    st.dates(date(2024, 1, 1), date(2100, 12, 31)).map(lambda day: day.strftime("%m/%d/%Y")),
    st.integers(min_value=250, max_value=260).map("é".__mul__),
)


@st.composite
def _some_rows(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    for number in range(draw(st.integers(1, 6))):
        repeated = draw(st.booleans())
        if rows and repeated:
            row = dict(draw(st.sampled_from(rows)))
        else:
            row = valid_row(Random(draw(st.integers(0, 500))), number)
        row.update(draw(st.dictionaries(st.sampled_from(ALL_COLUMNS), _CELLS, max_size=4)))
        mutations = draw(st.lists(st.sampled_from(list(MUTATIONS.values())), max_size=2))
        for mutate in mutations:
            mutate(row, rows[-1] if rows else dict(row), Random(draw(st.integers(0, 500))))
        rows.append(row)
    return rows


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rows=_some_rows(), rows_at_once=st.integers(1, 4))
def test_program_and_checker_agree_on_any_cells(rows: list[Row], rows_at_once: int) -> None:
    """Whatever stands in the cells, and however the rows fall into chunks, the findings are the checker's."""
    _assert_alike(rows, rows_at_once=rows_at_once)


def test_columns() -> None:
    """There are the gateway's 44 columns and two of our own."""
    assert len(ALL_COLUMNS) == len(set(ALL_COLUMNS)) == 46


def test_published_holidays() -> None:
    """The Federal Reserve's published holidays of 2026 to 2028 are no banking days, and no other weekday is."""
    published = {
        *("2026-01-01", "2026-01-19", "2026-02-16", "2026-05-25", "2026-06-19", "2026-09-07", "2026-10-12"),
        *("2026-11-11", "2026-11-26", "2026-12-25"),
        *("2027-01-01", "2027-01-18", "2027-02-15", "2027-05-31", "2027-07-05", "2027-09-06", "2027-10-11"),
        *("2027-11-11", "2027-11-25"),
        *("2028-01-17", "2028-02-21", "2028-05-29", "2028-06-19", "2028-07-04", "2028-09-04", "2028-10-09"),
        *("2028-11-23", "2028-12-25"),
    }
    days = (date.fromordinal(number) for number in range(date(2026, 1, 1).toordinal(), date(2029, 1, 1).toordinal()))
    closed = {day.isoformat() for day in days if day.weekday() < 5 and not is_banking_day(day)}
    assert closed == published
