"""The rules: their list, words, suggestions, closed days, and that pandera finds what the program finds."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from datetime import date

import pandera.errors
import polars as pl
import pytest
from click.testing import CliRunner

from batchpay.cli.main import cli
from batchpay.intake.source import open_source
from batchpay.schemas import catalogue, checks
from batchpay.schemas.ach import ach_schema
from batchpay.schemas.address import billing_schema, shipping_schema
from batchpay.schemas.calendar import federal_reserve_holidays, is_banking_day
from batchpay.schemas.columns import COLUMNS, RECURRING, REQUIRED
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.recurring import recurring_schema
from batchpay.schemas.rule import RuleOptions
from batchpay.schemas.tables import COUNTRIES, CURRENCIES, SEC_CODES, STATES
from tests.support.payment_files import DATA
from tests.support.row_factory import AS_OF, mutated_rows
from tests.support.text_chunks import RECURRING as RECURRING_CELLS
from tests.support.text_chunks import VALID, TextChunks, text_frame
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=date(2026, 11, 21))
EVERYTHING_FAILS = RuleOptions(as_of=AS_OF, warnings_as_errors=True, max_amount_cents=400_000)

OWN_RULES = """
paymentId.duplicate error H
currencyCode.choice error S
currencyCode.currency warning N
gatewayId.format error S
transactionType.choice error S
recurringIndicator.choice error S
recurringIndicator.choice error S
amount.currency_mark error H
amount.format error S
amount.range error H
amount.range error N
amount.currency_decimals error S
amount.limit error H
taxAmount.format error S
taxAmount.range warning H
billingState.state error S
shippingState.state error S
billingCountry.choice error S
shippingCountry.choice error S
billingZip.zip warning H
shippingZip.zip warning H
billingPhone.phone error S
shippingPhone.phone error S
billingEmail.email error S
shippingTax.format error S
achNameOnCheck.length warning N
achNameOnCheck.ascii warning N
achAccountNumber.masked error H
achAccountNumber.account error N
achAccountNumber.account error N
achAccountNumber.account error N
achAccountNumber.account warning N
achRoutingNumber.format error S
achRoutingNumber.prefix error N
achRoutingNumber.checksum error N
achCheckNumber.format error H
achAccountType.choice error S
achDepositType.choice error S
achSecCode.choice error S+N
achSecCode.direction error N
achSecCode.sec_unverified warning S
achSecCode.check_number error N
achSecCode.sec_account warning N
achAgreementFlag.choice error S
achAgreementFlag.choice error S
achAgreementFlag.agreement error H
payOn.format error H
payOn.date error H
payOn.past error H
payOn.range error H
payOn.conflict error H
payOn.banking_day warning N
recurringStartDate.format error S
recurringStartDate.date error S
recurringStartDate.past error H
recurringStartDate.banking_day warning N
recurringStartDate.month_end warning H
recurringBillingCycle.choice error S
recurringEndOfMonth.choice error S
recurringEndOfMonth.choice error S
recurringEndOfMonth.conflict error H
recurringNumOfPayments.format error S
recurringNumOfPayments.format error H
recurringNumOfPayments.open_ended error H
recurringAgreementFlag.choice error S
recurringAgreementFlag.choice error S
recurringAgreementFlag.agreement error H
row.status error H
row.total error H
row.total warning H
row.sum warning H
row.same_amount warning H
row.shared_account warning H
row.spread_payee warning H
achAccountNumber.returned error N
achAccountNumber.changed_by_bank error N
achRoutingNumber.changed_by_bank error N
achDepositType.changed_by_bank error N
achNameOnCheck.changed_by_bank error N
row.same_invoice error H
row.same_invoice warning H
row.duplicate error H
row.same_payment warning H
row.ragged error H
row.quotation error H
row.no_payment error H
"""
"""The table of rules, but for the rules of presence and of texts."""

NAMES_AND_ADDRESSES = (
    "billingFirstName", "billingLastName", "billingCompany", "billingAddressLine1", "billingAddressLine2",
    "billingCity", "shippingFirstName", "shippingLastName", "shippingCompany", "shippingAddressLine1",
    "shippingAddressLine2", "shippingCity", "achBankName", "achNameOnCheck",
)  # fmt: skip


def _expected() -> list[str]:
    lines = OWN_RULES.strip().splitlines()
    lines += [f"{column}.required error S" for column in (*REQUIRED, *RECURRING)]
    lines += [f"{column}.unexpected error S" for column in RECURRING]
    lines += [f"{column}.{code} error H" for column in COLUMNS for code in ("characters", "whitespace", "length")]
    lines += [f"{column}.characters warning H" for column in NAMES_AND_ADDRESSES]
    worded = (*NAMES_AND_ADDRESSES, "paymentId", "invoiceNumber")
    lines += [f"{column}.placeholder {severity} H" for column in worded for severity in ("error", "warning")]
    return sorted(lines)


def test_catalogue_is_the_table_of_rules() -> None:
    """Every line of the table is a rule with its severity and source, and there is no rule beyond it."""
    facts = [f"{fact.name} {fact.severity} {fact.source}" for fact in catalogue.rules()]
    assert sorted(facts) == _expected()


def test_messages_fit_the_rejects_file() -> None:
    """A message has no semicolon, which parts messages, and every rule has one."""
    for fact in catalogue.rules() + catalogue.typed_cell_rules():
        assert fact.message and ";" not in fact.message and "\n" not in fact.message


def test_rules_as_json_are_the_catalogue() -> None:
    """`batchpay rules --json` prints every rule with its message."""
    result = CliRunner().invoke(cli, ["rules", "--json"])
    printed = json.loads(result.stdout)["rules"]
    assert [(rule["column"], rule["code"], rule["message"]) for rule in printed] == [
        (fact.column, fact.code, fact.message) for fact in catalogue.rules() + catalogue.typed_cell_rules()
    ]


def test_rules_as_markdown_and_text_name_every_code() -> None:
    """The table for people has a line for each column's own rule, and one for each rule of every text."""
    table = CliRunner().invoke(cli, ["rules", "--markdown"]).stdout.splitlines()
    assert table[0] == "| Column | Rule | Code | Severity | Source |"
    rules = catalogue.rules()
    every_text = [
        fact
        for fact in rules
        if fact.code in ("characters", "whitespace", "length")
        and (fact.source, fact.severity) == ("H", "error")
        and (fact.code, fact.column) not in (("characters", "paymentId"), ("characters", "invoiceNumber"))
    ]
    shared = [*every_text, *(fact for fact in rules if fact.code == "placeholder")]
    own = [fact for fact in rules if fact not in shared and fact.column != "row"]
    assert [line for line in table if line.startswith(tuple(f"| {column} " for column in COLUMNS))][:-2] == [
        f"| {fact.column} | {fact.words} | {fact.code} | {fact.severity} | {fact.source} |" for fact in own
    ]
    assert sum(line.startswith(("| every text", "| names, ", "| the row")) for line in table) == 19
    text = CliRunner().invoke(cli, ["rules"]).stdout
    assert all(fact.code in text for fact in catalogue.rules())


_OF_SEVERAL_ROWS = (
    "returned",
    "changed_by_bank",
    "duplicate",
    "same_payment",
    "same_amount",
    "same_invoice",
    "shared_account",
    "spread_payee",
    "total",
    "sum",
)
"""What is beyond a schema."""


def _pandera_finds(frame: pl.DataFrame, options: RuleOptions) -> tuple[set[tuple[int, str, str]], set[str]]:
    """Rows, columns and codes of the errors, and names of the warnings, which pandera tells without their rows."""
    schema = payment_schema(options)
    found = set()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", pandera.errors.SchemaWarning)
        try:
            schema.validate(frame, lazy=True)
        except pandera.errors.SchemaErrors as errors:
            cases = errors.failure_cases.select("column", "check_number", "index")
            found = {
                (index + 1, column, str(schema.columns[column].checks[number].name))
                for column, number, index in cases.iter_rows()
            }
    told = [
        re.match(r"Column '(\w+)' failed validator number \d+: <Check (\w+):", str(each.message)) for each in warned
    ]
    return found, {f"{match[1]}.{match[2]}" for match in told if match}


@pytest.mark.parametrize("options", [EVERYTHING_FAILS, RuleOptions(as_of=AS_OF)], ids=["all", "errors"])
def test_pandera_and_the_compiled_rules_agree(options: RuleOptions) -> None:
    """Of generated rows pandera's own validation finds the same rows, columns and codes as the compiled rules.

    Warnings are checks that only warn: pandera names the same, and row by row where options turn them into errors.
    """
    rows = mutated_rows(7, count=3_000)
    cells = [{name: row[name] or None for name in COLUMNS} for row in rows]
    verdict = check(TextChunks(cells, height=700), options, max_failures=10**9)
    found = {
        (failure.row, failure.column, failure.code)
        for failure in verdict.failures
        if failure.code not in _OF_SEVERAL_ROWS
    }
    # A null word that payees of two accounts have: the row's own rule only warns of it.
    found -= {(warned.row, warned.column, warned.code) for warned in verdict.warning_failures}
    assert len(found) > 2_000
    assert (
        bool({*verdict.warning_counts} - {"achNameOnCheck.ascii", "row.same_amount"}) is not options.warnings_as_errors
    )
    of_cells = {name for name in verdict.warning_counts if not name.startswith("row.")}
    assert _pandera_finds(text_frame(cells), options) == (found, of_cells)


@pytest.mark.parametrize(("make", "wrong"), [
    (billing_schema, {"billingCountry": "USA"}), (shipping_schema, {"shippingTax": "1"}),
    (ach_schema, {"achSecCode": "TEL", "transactionType": "CREDIT"}),
    (recurring_schema, {"recurringBillingCycle": "MONTHLY"}),
])  # fmt: skip
def test_each_node_has_a_schema(make: object, wrong: dict[str, str]) -> None:
    """A node's schema passes a valid row and names what is wrong with another."""
    assert callable(make)
    schema = make(OPTIONS)
    assert schema.validate(text_frame([VALID]), lazy=True).height == 1
    with pytest.raises(pandera.errors.SchemaErrors):
        schema.validate(text_frame([VALID | wrong]), lazy=True)


@pytest.mark.parametrize(("column", "cell", "right"), [
    ("amount", "12", "12.00"), ("amount", "12.5", "12.50"), ("amount", "$1,250.00", "1250.00"),
    ("amount", "1,000", None), ("amount", "1.250,00", None), ("amount", " 12.50", "12.50"),
    ("transactionType", "debit", "DEBIT"), ("transactionType", "pay", None), ("billingState", "tx", "TX"),
    ("billingPhone", "5125550100", "512-555-0100"), ("billingPhone", "+1 (512) 555 0100", "512-555-0100"),
    ("billingPhone", "555-0100", None),
    ("billingEmail", "a@example.com; b@example.com;", "a@example.com;b@example.com"),
    ("achRoutingNumber", "21000021", "021000021"), ("achRoutingNumber", "21000022", None),
    ("achAccountNumber", " 12345678", None), ("recurringStartDate", "2026-12-15", "12/15/2026"),
    ("recurringStartDate", "15/12/2026", None),
])  # fmt: skip
def test_suggestions_only_where_certain(column: str, cell: str, right: str | None) -> None:
    """The right value is suggested where there is one, and never for an account number."""
    row = VALID | (RECURRING_CELLS if column in RECURRING else {}) | {column: cell}
    failures = [failure for failure in check(TextChunks([row]), OPTIONS).failures if failure.column == column]
    assert [failure.suggestion for failure in failures] == [right]


def test_tables_hold_the_published_lists() -> None:
    """Countries, currencies, states and entry classes are as many as their publishers name."""
    assert (len(COUNTRIES), len(SEC_CODES), len(STATES["CA"])) == (249, 11, 13)
    assert len(STATES["US"]) == 50 + 1 + 6 + 3
    assert {"USD", "CAD", "EUR", "XCG", "ZWG"} < set(CURRENCIES) and not {"ANG", "HRK", "ZWL"} & set(CURRENCIES)


@pytest.mark.parametrize(("column", "value", "options", "fails"), [
    ("achAccountNumber", "12-345-67", {}, True), ("achAccountNumber", "12-345-67", {"account_hyphens": True}, False),
    ("achAccountNumber", "-1234567", {"account_hyphens": True}, True),
    ("achAccountNumber", "1234567-", {"account_hyphens": True}, True),
    ("achAccountNumber", "0-0-0", {"account_hyphens": True}, True),
    ("achAccountNumber", "123456789-1234567-9", {"account_hyphens": True}, True), ("achCheckNumber", "12A", {}, True),
    ("achCheckNumber", "12A", {"check_letters": True}, False),
    ("achCheckNumber", "12-3", {"check_letters": True}, True),
])  # fmt: skip
def test_house_rules_that_let_more_through(column: str, value: str, options: dict[str, bool], fails: bool) -> None:
    """Hyphens in account numbers and letters in check numbers are refused unless a setting lets them through."""
    chosen = RuleOptions(
        as_of=date(2026, 11, 21),
        account_hyphens=options.get("account_hyphens", False),
        check_letters=options.get("check_letters", False),
    )
    found = check(TextChunks([VALID | {column: value}]), chosen)
    assert [failure.column for failure in found.failures] == ([column] if fails else [])


@pytest.mark.parametrize(
    ("account", "warns"), [("12-345-67", False), ("1-2-3-4", False), ("1-2-3", True), ("12-34A", True)]
)
def test_a_hyphen_that_is_let_through_is_not_a_letter(account: str, warns: bool) -> None:
    """Every hyphenated account was said to have letters, and with --warnings-as-errors the setting let none through."""
    chosen = RuleOptions(as_of=date(2026, 11, 21), account_hyphens=True, warnings_as_errors=True)
    found = check(TextChunks([VALID | {"achAccountNumber": account}]), chosen)
    assert [failure.column for failure in found.failures] == (["achAccountNumber"] if warns else [])


@pytest.mark.parametrize(
    ("cell", "is_cut_short"),
    [("1.23457E+11", True), ("1,2E+15", True), ("6E+16", True), ("1.23457 E+11", False), ("12-345", False)],
)
def test_an_account_that_a_spreadsheet_cut_short_is_told_so(cell: str, is_cut_short: bool) -> None:
    """Nobody can retype 1.23457E+11 as digits: they are lost, and the message says where to take them from."""
    (failure,) = check(TextChunks([VALID | {"achAccountNumber": cell}]), OPTIONS).failures
    assert failure.code == "account"
    assert ("its last digits are lost" in failure.message) is is_cut_short


PUBLISHED = {
    2022: ["01-17", "02-21", "05-30", "06-20", "07-04", "09-05", "10-10", "11-11", "11-24", "12-26"],
    2023: ["01-02", "01-16", "02-20", "05-29", "06-19", "07-04", "09-04", "10-09", "11-23", "12-25"],
    2024: ["01-01", "01-15", "02-19", "05-27", "06-19", "07-04", "09-02", "10-14", "11-11", "11-28", "12-25"],
    2025: ["01-01", "01-20", "02-17", "05-26", "06-19", "07-04", "09-01", "10-13", "11-11", "11-27", "12-25"],
    2026: ["01-01", "01-19", "02-16", "05-25", "06-19", "09-07", "10-12", "11-11", "11-26", "12-25"],
    2027: ["01-01", "01-18", "02-15", "05-31", "07-05", "09-06", "10-11", "11-11", "11-25"],
}
"""Weekdays without settlement: a holiday on a Saturday (2022-01-01, 2023-11-11, 2026-07-04, 2027-06-19) is none."""


@pytest.mark.parametrize("year", PUBLISHED)
def test_holidays_are_the_published_ones(year: int) -> None:
    """The computed closed weekdays are those of the Federal Reserve's published schedule."""
    assert [day.strftime("%m-%d") for day in federal_reserve_holidays(year)] == PUBLISHED[year]


def test_juneteenth_begins_in_2021() -> None:
    """June 19 is an ordinary day before the law of 2021."""
    assert is_banking_day(date(2020, 6, 19))
    assert not is_banking_day(date(2023, 6, 19))


def test_saturday_closes_nothing_and_sunday_the_monday_after() -> None:
    """Friday 2026-07-03 is a banking day, Monday 2027-07-05 is none."""
    assert is_banking_day(date(2026, 7, 3))
    assert not is_banking_day(date(2027, 7, 5))


def test_expression_agrees_with_the_calendar() -> None:
    """The expression behind `banking_day` says of every day of two decades what the calendar says."""
    days = pl.date_range(date(2020, 1, 1), date(2040, 12, 31), eager=True)
    closed = pl.select(checks.is_not_banking_day(pl.lit(days.dt.strftime("%m/%d/%Y")))).to_series()
    assert closed.to_list() == [not is_banking_day(day) for day in days]


@pytest.mark.parametrize(("name", "count"), [("masked", 2), ("nullwords", 8)])
def test_placeholders_as_programs_write_them(name: str, count: int) -> None:
    """Masked accounts and what a database or a spreadsheet writes for nothing were sent as they are."""
    path = DATA / "field" / f"{name}.csv"
    if not path.exists():
        pytest.skip("the collection of irregular files is not here")
    with open_source(str(path)) as source:
        verdict = check(source, OPTIONS)
    assert verdict.rejected.rows == count
    assert {failure.code for failure in verdict.failures} == {"masked" if name == "masked" else "placeholder"}


@pytest.mark.parametrize("cells", [
    {"billingLastName": "Null", "shippingLastName": "Null", "achNameOnCheck": "Jennifer Null"},
    {"billingFirstName": "Nan", "shippingFirstName": "Nan", "achNameOnCheck": "Nan Goldin"},
    {"billingCompany": "N/A"}, {"billingAddressLine1": "#12 Main St"}, {"achNameOnCheck": "Total Energies"},
    {"achAccountNumber": "X1234567"}, {"achAccountNumber": "AXX12B"}, {"achNameOnCheck": "Zoë Núñez"},
])  # fmt: skip
def test_honest_names_are_no_errors(cells: dict[str, str]) -> None:
    """People are called Null and Nan, and live at #12; letters that ACH can't carry stay a warning in any case."""
    verdict = check(TextChunks([VALID | cells]), OPTIONS)
    assert verdict.counts == {}
    if cells.get("achNameOnCheck", "").isascii():
        return
    strict = check(TextChunks([VALID | cells]), replace(OPTIONS, warnings_as_errors=True))
    assert (strict.counts, strict.warning_counts) == ({}, {"achNameOnCheck.ascii": 1})
