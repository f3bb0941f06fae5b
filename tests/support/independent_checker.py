"""The rules of a payment row again, in plain Python, row by row: the oracle that the schemas are checked against.

Written only from the table of rules and its precedence sentences; it imports nothing from the program, so that an error
in the schemas can't hide in a shared table or helper.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from itertools import pairwise

from tests.support.banking_days import is_banking_day
from tests.support.checker_tables import CA_PROVINCES, COUNTRIES, CURRENCIES, NO_DECIMALS, SEC_CODES, TRUTH, US_STATES

Finding = tuple[str, str, str]
"""Column, code, severity."""
ERROR, WARNING = "error", "warning"
WHOLE_ROW = "row"
"""The column that a rule of the whole row is reported under."""

_TOP = ("gatewayId", "transactionType", "recurringIndicator", "invoiceNumber", "currencyCode", "amount", "taxAmount")
_PERSON = (
    "FirstName", "LastName", "Company", "AddressLine1", "AddressLine2", "City", "State", "Zip", "Country", "Phone",
)  # fmt: skip
_ACH = tuple(
    f"ach{name}"
    for name in (
        "BankName", "NameOnCheck", "AccountNumber", "RoutingNumber", "CheckNumber", "AccountType", "DepositType",
        "SecCode", "AgreementFlag",
    )
)  # fmt: skip
RECURRING_COLUMNS = tuple(
    f"recurring{name}" for name in ("StartDate", "BillingCycle", "EndOfMonth", "NumOfPayments", "AgreementFlag")
)
GATEWAY_COLUMNS = (
    *_TOP,
    "billingInternalId",
    *(f"billing{name}" for name in _PERSON),
    "billingEmail",
    *(f"shipping{name}" for name in _PERSON),
    "shippingTax",
    *_ACH,
    *RECURRING_COLUMNS,
)
ALL_COLUMNS = ("paymentId", "payOn", *GATEWAY_COLUMNS)
REQUIRED_COLUMNS = (
    "gatewayId", "transactionType", "recurringIndicator", "amount", "billingFirstName", "billingLastName",
    "shippingFirstName", "shippingLastName", "achNameOnCheck", "achAccountNumber", "achRoutingNumber",
    "achAccountType", "achDepositType", "achAgreementFlag",
)  # fmt: skip

_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")
_IDENTIFIERS = ("paymentId", "invoiceNumber")
_IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of the Unicode Character Database."""
_NO_BREAK = frozenset("\xa0\u2007\u202f")
_COPIED = _NO_BREAK | frozenset("\u200b\u200c\u200d\u2060\ufeff")
"""With those of no width: what copying from a page brings along."""
_CONTINUATIONS = frozenset(
    [chr(code) for code in range(0xA0, 0xC0)]
    + [bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)]
)
"""What the later bytes of a UTF-8 character are in Windows-1252."""
_QUOTES = frozenset("‘’“”–—")
_WHITE_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(point) for point in range(0x2000, 0x200B)
}
_MONEY = re.compile(r"[0-9]+\.[0-9]{2}")
_MOST = Decimal("99999999.99")
_PHONE = re.compile(
    r"1-[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}\.[0-9]{3}\.[0-9]{4}"
    r"|[0-9]{3} [0-9]{3} [0-9]{4}|\([0-9]{3}\) [0-9]{3}-[0-9]{4}"
)
_ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_ZIP = {
    "US": re.compile(r"[0-9]{5}(?:-[0-9]{4})?"),
    "CA": re.compile(r"[A-Z][0-9][A-Z] ?[0-9][A-Z][0-9]"),
}
_STATES = {"US": US_STATES, "CA": CA_PROVINCES, None: US_STATES | CA_PROVINCES}
_DEBIT_ONLY = frozenset({"TEL", "ARC", "BOC", "POP", "RCK"})
_NEEDS_CHECK_NUMBER = frozenset({"ARC", "BOC", "POP", "RCK"})
_FOR_PERSONS = frozenset({"PPD", "WEB", "TEL"})
_FOR_COMPANIES = frozenset({"CCD", "CTX"})


_NULLS = frozenset(["nan", "null", "none", "n/a", "undefined", "<na>", "-", "--", "---", ".", "?", "??"])
_REMNANTS = re.compile(
    r"#(N/A|N/D|NV|.?REF!?|BEZUG!|NAME\?|.NOMBRE\?|NOM\?|.?VALU?E?O?R?!|VALEUR!|WERT!|.?DIV/0!|NULL!|.?NUM!|ZAHL!|NOMBRE!"
    r"|SPILL!|CALC!|ERROR!|FIELD!|GETTING_DATA|#{8})|Loading\.\.\.|\\N|<(null|none|undefined)>|\((null|none|blank)\)"
    r"|\[null\]|\[object Object\]",
    re.IGNORECASE,
)
_MASKED = re.compile(r"[*#•●…?]|\.\.")
_X = re.compile(r"([0-9]{1,6}[ -]?)?(x{2,}[ -]?)+[0-9]{0,6}", re.IGNORECASE)
_NO_ACCOUNT = frozenset({
    "onfile", "seefile", "tbd", "tba", "tbc", "unknown", "pending", "none", "null", "nan", "na", "nil", "missing",
    "same", "dummy", "sample", "example", "test", "xxx", "account", "acct", "check", "cash", "wire", "void", "closed",
    "private", "hidden", "masked", "asbefore", "tofollow", "sameasabove", "folgt", "idem", "pendiente",
})  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What the command's options and the user's settings change about the rules."""

    max_amount: Decimal | None = None
    require_agreement: bool = True
    past_start: bool = True
    allow_open_ended: bool = False
    allow_duplicates: bool = False
    warnings_as_errors: bool = False
    pay_on_days: int | None = 90
    """How far ahead a payment may lie; None where its day was accepted before."""
    duplicate_days: int = 5


@dataclass
class _Row:
    """One row's cells, blank ones as None, and what was found about them."""

    cells: dict[str, str | None]
    as_of: date
    options: Options
    findings: set[Finding] = field(default_factory=set)
    malformed: set[str] = field(default_factory=set)
    """Columns whose cell failed the rules about its own form: rules that look at two columns skip them."""

    def fail(self, column: str, code: str) -> None:
        self.findings.add((column, code, ERROR))

    def malform(self, column: str, code: str) -> None:
        self.fail(column, code)
        self.malformed.add(column)

    def warn(self, column: str, code: str) -> None:
        self.findings.add((column, code, ERROR if self.options.warnings_as_errors else WARNING))

    def well_formed(self, column: str) -> str | None:
        """Return the cell, or None if it is blank or malformed."""
        return None if column in self.malformed else self.cells[column]

    def readable(self, *columns: str) -> bool:
        """Return whether none of the columns failed its own form."""
        return self.malformed.isdisjoint(columns)


def check_rows(
    rows: Iterable[Mapping[str, str | None]], *, as_of: date, options: Options | None = None
) -> list[set[Finding]]:
    """Return the findings of every row, in order; keys other than the known columns are ignored."""
    options = options or Options()
    checked = [_checked_row(row, as_of, options) for row in rows]
    _payees(checked)
    _null_payees(checked)
    _payment_ids(checked)
    _same_bills(checked, options)
    _same_amounts(checked)
    if not options.allow_duplicates:
        _same_invoices(checked)
    _sums(checked)
    return [row.findings for row in checked]


def _checked_row(cells: Mapping[str, str | None], as_of: date, options: Options) -> _Row:
    row = _Row({column: cells.get(column) or None for column in ALL_COLUMNS}, as_of, options)
    for column, value in row.cells.items():
        if value is not None:
            _text(row, column, value)
    _copied(row)
    _placeholders(row)
    for column in REQUIRED_COLUMNS:
        if row.cells[column] is None:
            row.malform(column, "required")
    _top(row)
    _recurring_presence(row)
    for node in ("billing", "shipping"):
        _address(row, node)
    _emails(row)
    _account(row)
    _routing_number(row)
    _ach_choices(row)
    _sec_code(row)
    _start_date(row)
    _pay_on(row)
    _recurring_choices(row)
    _recurring_conflicts(row)
    return row


@cache
def _names_and_addresses() -> tuple[str, ...]:
    parts = ("FirstName", "LastName", "Company", "AddressLine1", "AddressLine2", "City")
    return (*(f"{node}{part}" for node in ("billing", "shipping") for part in parts), "achBankName", "achNameOnCheck")


@cache
def _is_unseen(character: str) -> bool:
    ignorable = any(first <= ord(character) <= last for first, last in _IGNORABLE)
    return ignorable or unicodedata.category(character) == "Cf" or character in _NO_BREAK or character == "\u2011"


def _is_garbled(value: str) -> bool:
    """Return whether two adjacent characters are the two bytes of one when UTF-8 is read as Windows-1252."""
    for first, second in pairwise(value):
        if first in "ÂÃ" and second in _CONTINUATIONS:
            return True
        if first in "ÄÅ" and second in _CONTINUATIONS - _QUOTES:
            return True
        if first + second == "â€":
            return True
    return False


def _copied(row: _Row) -> None:
    for column in _names_and_addresses():
        value = row.cells[column]
        if value is None or value.isascii():
            continue
        text_rules = {(column, code, ERROR) for code in ("characters", "whitespace", "length")}
        if row.findings & text_rules:
            continue
        if not _COPIED.isdisjoint(value) or _is_garbled(value):
            row.warn(column, "characters")


def _placeholders(row: _Row) -> None:
    fields: dict[str, list[str]] = {}
    for column in (*_IDENTIFIERS, *_names_and_addresses()):
        if (row.cells[column] or "").lower() in _NULLS:
            fields.setdefault(re.sub("^(billing|shipping)", "", column), []).append(column)
        elif row.readable(column) and _REMNANTS.fullmatch(row.cells[column] or ""):
            row.fail(column, "placeholder")
    for column in (column for columns in fields.values() for column in columns):
        if row.readable(column):
            (row.fail if len(fields) > 1 else row.warn)(column, "placeholder")


def _null_payees(rows: Sequence[_Row]) -> None:
    called = [row for row in rows if all(severity == WARNING for _, _, severity in row.findings)]
    found = [(row, column) for row in called for column, code, _ in row.findings if code == "placeholder"]
    if len({(row.cells["achRoutingNumber"], row.cells["achAccountNumber"]) for row, _ in found}) > 1:
        for row, column in found:
            row.fail(column, "placeholder")


def _payees(rows: Sequence[_Row]) -> None:
    """Tell once of an account that five names are paid to, and of a payee that is paid to five accounts."""
    of_account: dict[tuple[str | None, ...], list[tuple[_Row, object]]] = {}
    of_payee: dict[tuple[str | None, ...], list[tuple[_Row, object]]] = {}
    for row in rows:
        if row.cells["transactionType"] != "CREDIT" or any(severity == ERROR for _, _, severity in row.findings):
            continue
        account = (row.cells["achRoutingNumber"], row.cells["achAccountNumber"])
        name, identifier = row.cells["achNameOnCheck"], row.cells["billingInternalId"]
        of_account.setdefault(account, []).append((row, name))
        payee = (identifier,) if identifier else (name, row.cells["billingAddressLine1"], row.cells["billingZip"])
        if None not in payee:
            of_payee.setdefault(payee, []).append((row, account))
    for code, groups in (("shared_account", of_account), ("spread_payee", of_payee)):
        for group in groups.values():
            if len({one for _, one in group}) > 4:
                group[0][0].findings.add((WHOLE_ROW, code, WARNING))


def _text(row: _Row, column: str, value: str) -> None:
    if _CHARACTERS.search(value) or (column in _IDENTIFIERS and any(map(_is_unseen, value))):
        row.malform(column, "characters")
    if value[0] in _WHITE_SPACE or value[-1] in _WHITE_SPACE:
        row.malform(column, "whitespace")
    if len(value) > 255:
        row.malform(column, "length")


def _choice(row: _Row, column: str, choices: Iterable[str]) -> None:
    value = row.well_formed(column)
    if value is not None and value not in choices:
        row.malform(column, "choice")


def _top(row: _Row) -> None:
    gateway_id = row.well_formed("gatewayId")
    if gateway_id is not None and (not re.fullmatch("[0-9]+", gateway_id) or int(gateway_id) == 0):
        row.malform("gatewayId", "format")
    _choice(row, "transactionType", ("DEBIT", "CREDIT"))
    _choice(row, "recurringIndicator", ("TRUE", "FALSE"))
    _choice(row, "currencyCode", CURRENCIES)
    if row.well_formed("currencyCode") not in (None, "USD"):
        row.warn("currencyCode", "currency")
    _money(row)


def _money(row: _Row) -> None:
    for column in ("amount", "taxAmount", "shippingTax"):
        value = row.well_formed(column)
        if value is not None and not _MONEY.fullmatch(value):
            is_marked = column == "amount" and _names_other_currency(row, value)
            row.malform(column, "currency_mark" if is_marked else "format")
    written, written_tax = row.well_formed("amount"), row.well_formed("taxAmount")
    if written is None:
        return
    amount = Decimal(written)
    if amount <= 0 or amount > _MOST:
        row.fail("amount", "range")
    if row.options.max_amount is not None and amount > row.options.max_amount:
        row.fail("amount", "limit")
    if written_tax is not None and Decimal(written_tax) > amount:
        row.warn("taxAmount", "range")
    if row.well_formed("currencyCode") in NO_DECIMALS and amount % 1:
        row.fail("amount", "currency_decimals")


def _names_other_currency(row: _Row, value: str) -> bool:
    """Whether a code of three letters or one of three symbols beside a number is none of currencyCode's."""
    if not row.readable("currencyCode"):
        return False
    match = re.fullmatch("([A-Za-z]{3}|[€£¥$])? ?[0-9][0-9.,]*(?<=[0-9]) ?([A-Za-z]{3}|[€£¥$])?", value)
    code = row.well_formed("currencyCode") or "USD"
    symbols = {"€": {"EUR"}, "£": {"GBP", "EGP"}, "¥": {"JPY", "CNY"}}
    if match is None or code not in CURRENCIES:
        return False
    marks = [mark.upper() for mark in match.groups() if mark and mark != "$"]
    return any(mark in CURRENCIES or mark in symbols for mark in marks) and not all(
        code in symbols.get(mark, {mark}) for mark in marks
    )


def _address(row: _Row, node: str) -> None:
    _choice(row, f"{node}Country", COUNTRIES)
    phone = row.well_formed(f"{node}Phone")
    if phone is not None and not _PHONE.fullmatch(phone):
        row.malform(f"{node}Phone", "phone")
    if not row.readable(f"{node}Country"):
        return
    country = row.cells[f"{node}Country"]
    state, postal_code = row.well_formed(f"{node}State"), row.well_formed(f"{node}Zip")
    if state is not None and country in _STATES and state not in _STATES[country]:
        row.fail(f"{node}State", "state")
    if postal_code is not None and country in _ZIP and not _ZIP[country].fullmatch(postal_code):
        row.warn(f"{node}Zip", "zip")


def _emails(row: _Row) -> None:
    value = row.well_formed("billingEmail")
    if value is not None and not all(_is_email(address) for address in value.split(";")):
        row.malform("billingEmail", "email")


def _is_email(address: str) -> bool:
    local, at, domain = address.partition("@")
    labels = domain.split(".")
    return (
        at == "@"
        and len(local) <= 64
        and all(_ATOM.fullmatch(atom) for atom in local.split("."))
        and len(labels) >= 2
        and all(_LABEL.fullmatch(label) for label in labels)
        and re.fullmatch("[A-Za-z]{2,}", labels[-1]) is not None
    )


def _account(row: _Row) -> None:
    name, number = row.well_formed("achNameOnCheck"), row.well_formed("achAccountNumber")
    if name is not None and len(name) > 22:
        row.warn("achNameOnCheck", "length")
    if name is not None and not name.isascii():
        row.findings.add(("achNameOnCheck", "ascii", WARNING))
    if number is None:
        return
    letters = "".join(filter(str.isalnum, number.lower()))
    if _MASKED.search(number) or _X.fullmatch(number) or letters in _NO_ACCOUNT:
        row.malform("achAccountNumber", "masked")
    elif not re.fullmatch("[A-Za-z0-9]{1,17}", number) or set(number) == {"0"} or number.lower() in TRUTH:
        row.malform("achAccountNumber", "account")
    elif len(number) < 4 or re.search("[A-Za-z]", number):
        row.warn("achAccountNumber", "account")


def _routing_number(row: _Row) -> None:
    number = row.well_formed("achRoutingNumber")
    if number is None:
        return
    if not re.fullmatch("[0-9]{9}", number):
        row.malform("achRoutingNumber", "format")
        return
    first_two = int(number[:2])
    known = first_two <= 12 or 21 <= first_two <= 32 or 61 <= first_two <= 72 or first_two == 80
    if not known or number == "000000000":
        row.fail("achRoutingNumber", "prefix")
        return
    d1, d2, d3, d4, d5, d6, d7, d8, d9 = map(int, number)
    if (3 * (d1 + d4 + d7) + 7 * (d2 + d5 + d8) + (d3 + d6 + d9)) % 10:
        row.fail("achRoutingNumber", "checksum")


def _ach_choices(row: _Row) -> None:
    check_number = row.well_formed("achCheckNumber")
    if check_number is not None and not re.fullmatch("[0-9]{1,15}", check_number):
        row.malform("achCheckNumber", "format")
    _choice(row, "achAccountType", ("BUSINESS", "PERSONAL"))
    _choice(row, "achDepositType", ("CHECKING", "SAVINGS"))
    _choice(row, "achSecCode", SEC_CODES)
    _choice(row, "achAgreementFlag", ("1", "0"))
    if row.options.require_agreement and row.well_formed("achAgreementFlag") == "0":
        row.fail("achAgreementFlag", "agreement")


def _sec_code(row: _Row) -> None:
    if not row.readable("achSecCode"):
        return
    code = row.cells["achSecCode"] or "PPD"
    direction, account_type = row.well_formed("transactionType"), row.well_formed("achAccountType")
    if (code in _DEBIT_ONLY and direction == "CREDIT") or (code == "CIE" and direction == "DEBIT"):
        row.fail("achSecCode", "direction")
    if code != "PPD":
        row.warn("achSecCode", "sec_unverified")
    if code in _NEEDS_CHECK_NUMBER and row.cells["achCheckNumber"] is None:
        row.fail("achSecCode", "check_number")
    if (code in _FOR_PERSONS and account_type == "BUSINESS") or (code in _FOR_COMPANIES and account_type == "PERSONAL"):
        row.warn("achSecCode", "sec_account")


def _recurring_presence(row: _Row) -> None:
    indicator = row.well_formed("recurringIndicator")
    for column in RECURRING_COLUMNS:
        given = row.cells[column] is not None
        if indicator == "TRUE" and not given:
            row.malform(column, "required")
        if indicator == "FALSE" and given and row.readable(column):
            row.malform(column, "unexpected")


def _day(value: str) -> date | str:
    """Return the date that a text is, or the code of the rule that it breaks."""
    parts = re.fullmatch("([0-9]{2})/([0-9]{2})/([0-9]{4})", value)
    if parts is None:
        return "format"
    month, day, year = map(int, parts.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return "date"


def _written_day(row: _Row, column: str) -> date | None:
    value = row.well_formed(column)
    found = _day(value) if value is not None else None
    if isinstance(found, str):
        row.malform(column, found)
        return None
    return found


def _pay_on(row: _Row) -> None:
    day = _written_day(row, "payOn")
    if day is None:
        return
    if row.options.pay_on_days is not None:
        if day < row.as_of:
            row.fail("payOn", "past")
        if (day - row.as_of).days > row.options.pay_on_days:
            row.fail("payOn", "range")
    if row.well_formed("recurringIndicator") == "TRUE":
        row.fail("payOn", "conflict")
    if not is_banking_day(day):
        row.warn("payOn", "banking_day")


def _start_date(row: _Row) -> None:
    start = _written_day(row, "recurringStartDate")
    if start is None:
        return
    if row.options.past_start and start < row.as_of:
        row.fail("recurringStartDate", "past")
    if not is_banking_day(start):
        row.warn("recurringStartDate", "banking_day")


def _recurring_choices(row: _Row) -> None:
    _choice(row, "recurringBillingCycle", ("MONTHLY", "DAILY"))
    _choice(row, "recurringEndOfMonth", ("Y", "N"))
    _choice(row, "recurringAgreementFlag", ("1", "0", "Y", "N"))
    if row.options.require_agreement and row.well_formed("recurringAgreementFlag") in ("0", "N"):
        row.fail("recurringAgreementFlag", "agreement")
    count = row.well_formed("recurringNumOfPayments")
    if count is None:
        return
    if not re.fullmatch("[0-9]{1,5}", count):
        row.malform("recurringNumOfPayments", "format")
    elif int(count) == 0 and not row.options.allow_open_ended:
        row.fail("recurringNumOfPayments", "open_ended")


def _recurring_conflicts(row: _Row) -> None:
    start, cycle = row.well_formed("recurringStartDate"), row.well_formed("recurringBillingCycle")
    end_of_month = row.well_formed("recurringEndOfMonth")
    if start is not None and int(start[3:5]) >= 29 and cycle == "MONTHLY" and end_of_month == "N":
        row.warn("recurringStartDate", "month_end")
    if end_of_month == "Y" and cycle == "DAILY":
        row.fail("recurringEndOfMonth", "conflict")


def _same(value: str | None) -> str | None:
    """Return the form in which two texts are compared: NFKC, case folded, trimmed; None if nothing is left."""
    if value is None:
        return None
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold()).strip() or None


def _payment_ids(rows: list[_Row]) -> None:
    """Fail every copy of a paymentId, including the first: nobody can tell which one was meant."""
    times = Counter(_same(row.well_formed("paymentId")) for row in rows)
    for row in rows:
        payment_id = _same(row.well_formed("paymentId"))
        if payment_id is not None and times[payment_id] > 1:
            row.fail("paymentId", "duplicate")


def _bill(row: _Row) -> tuple[str, ...] | None:
    """Return what identifies a bill, or None if it can't be read."""
    routing, account, direction, amount = (
        row.cells[name] for name in ("achRoutingNumber", "achAccountNumber", "transactionType", "amount")
    )
    if not (routing and account and direction and amount) or not re.fullmatch(r"[0-9]+\.[0-9]{2}", amount):
        return None
    cents = amount.replace(".", "").lstrip("0") or "0"
    if len(cents) > 15:
        return None
    invoice = _same(row.cells["invoiceNumber"]) or ""
    if re.fullmatch(r"bp[2-9a-hj-np-z]{6}-[0-9]+", invoice):
        invoice = ""
    return routing, account.replace("-", ""), direction, cents, invoice


def _same_bills(rows: list[_Row], options: Options) -> None:
    """Fail later rows with the bill of an earlier one; warn of them if the paymentIds or the days tell them apart."""
    seen: dict[tuple[str, ...], list[tuple[str | None, date | None]]] = {}
    for row in rows:
        bill = _bill(row)
        if bill is None:
            continue
        found = _day(row.cells["payOn"]) if row.cells["payOn"] else None
        payment_id, day = _same(row.cells["paymentId"]), found if isinstance(found, date) else None
        before = seen.setdefault(bill, [])
        is_same = any(
            payment_id == other or (None in (payment_id, other) and _is_near(day, other_day, options.duplicate_days))
            if payment_id is not None
            else _is_near(day, other_day, options.duplicate_days)
            for other, other_day in before
        )
        if before and not is_same:
            row.warn(WHOLE_ROW, "same_payment")
        elif before and not options.allow_duplicates:
            row.fail(WHOLE_ROW, "duplicate")
        before.append((payment_id, day))


def _is_near(one: date | None, other: date | None, days: int) -> bool:
    return one is None or other is None or abs((one - other).days) < max(1, days)


def _same_amounts(rows: list[_Row]) -> None:
    """Tell, once for an account and amount, that another bill has them; it is never an error."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        bill = _bill(row)
        if bill is None:
            continue
        invoices = seen.setdefault(bill[:4], set())
        if len(invoices) == 1 and bill[4] not in invoices:
            row.findings.add((WHOLE_ROW, "same_amount", WARNING))
        invoices.add(bill[4])


def _same_invoices(rows: list[_Row]) -> None:
    """Warn of rows with the invoice number and account of a first one, and another amount than that."""
    first: dict[tuple[str, ...], str] = {}
    for row in rows:
        bill = _bill(row)
        if bill is not None and bill[4] and first.setdefault((*bill[:3], bill[4]), bill[3]) != bill[3]:
            row.warn(WHOLE_ROW, "same_invoice")


_TOTAL_WORD = re.compile(r"(sub ?|grand )?totals?|sum|summe|suma|somme", re.IGNORECASE)
_CALLED = ("invoiceNumber", "paymentId", "achNameOnCheck")


def _sums(rows: list[_Row]) -> None:
    """Find rows with the sum of the rows above: since the latest total, or all; those called a total are one, too."""
    since: list[int] = []
    whole: list[int] = []
    above: _Row | None = None
    for row in rows:
        written = row.cells["amount"] or ""
        cents = int(written.replace(".", "")) if re.fullmatch(r"[0-9]{1,13}\.[0-9]{2}", written) else 0
        called = any(_TOTAL_WORD.fullmatch(row.cells[name] or "") for name in _CALLED)
        before = since if sum(since) == cents else whole
        bank = [row.cells[name] for name in ("achRoutingNumber", "achAccountNumber")]
        repeats = (
            above is not None
            and None not in bank
            and bank == [above.cells[name] for name in ("achRoutingNumber", "achAccountNumber")]
        )
        is_sum = cents > 0 and sum(before) == cents
        if is_sum and len(before) > 1:
            if called and repeats:
                row.fail(WHOLE_ROW, "total")
            else:
                row.warn(WHOLE_ROW, "total" if called else "sum")
        elif called:
            row.warn(WHOLE_ROW, "total")
        if is_sum and ((len(before) > 1 and (called or repeats)) or (called and repeats)):
            since = []
        elif cents:
            since.append(cents)
            whole.append(cents)
        above = row
