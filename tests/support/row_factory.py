"""Rows of payments from a seed: valid ones, and ones that break a stated rule or are irregular in some other way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from random import Random

from tests.support.banking_days import is_banking_day
from tests.support.checker_tables import CA_PROVINCES, COUNTRIES, CURRENCIES, SEC_CODES, US_STATES
from tests.support.independent_checker import (
    ALL_COLUMNS,
    ERROR,
    GATEWAY_COLUMNS,
    RECURRING_COLUMNS,
    REQUIRED_COLUMNS,
    WARNING,
    WHOLE_ROW,
    Finding,
)

Row = dict[str, str | None]
Mutation = Callable[[Row, Row, Random], None]
"""Changes the first row so that it breaks a rule; the second is the row before it in the file."""

AS_OF = date(2026, 11, 20)
"""The day that the factory's rows are made for: recurring payments start after it."""

_COUNTRIES, _CURRENCIES = sorted(COUNTRIES), sorted(CURRENCIES)
_STATES = {"US": sorted(US_STATES), "CA": sorted(CA_PROVINCES)}
_NAMES = ("José", "Zoë", "O'Brien", "D'Angelo", "Nguyễn", "Siobhán", "Grace", "李", "Łukasz", "Anne-Marie", "Al")
_TEXTS = (
    'Suite 4, "East"',
    "12 Elm Street",
    "Trois-Rivières",
    "x",
    "R&D; second floor",
    "# 7",
    "Zürich",
    "e\u0301",
    "\U0001f3e6",
)
_EMAILS = ("a@example.com", "o'brien+pay@mail.example.org", "x_1@a-b.example;second@example.net", "A.B.C@EXAMPLE.CO")
_PHONES = ("1-202-555-0143", "202-555-0143", "202.555.0143", "202 555 0143", "(202) 555-0143")
_FREE_COLUMNS = (
    "invoiceNumber", "billingInternalId", "billingCompany", "billingAddressLine1", "billingAddressLine2", "billingCity",
    "shippingCompany", "shippingAddressLine1", "shippingAddressLine2", "shippingCity", "achBankName",
)  # fmt: skip
_NAMES_AND_ADDRESSES = (
    "FirstName", "LastName", "Company", "AddressLine1", "AddressLine2", "City", "BankName", "NameOnCheck",
)  # fmt: skip
_WORDED = tuple(name for name in ALL_COLUMNS if name.endswith((*_NAMES_AND_ADDRESSES, "paymentId", "invoiceNumber")))
_NO_VALUES = ("nan", "NULL", "None", "N/A", "#N/A", "#REF!", "#NAME?", "Loading...", "\\N", "<null>")
_MASKED = ("XXXX1234", "****5678", "xx-1234", "ONFILE", "On File", "TBD", "?12345", "12345XXXX", "•••4321", "None")
_BILL = ("achRoutingNumber", "achAccountNumber", "transactionType", "invoiceNumber")
_BANKING_DAYS = tuple(
    day.strftime("%m/%d/%Y")
    for day in (AS_OF + timedelta(days=number) for number in range(1500))
    if day.day <= 28 and is_banking_day(day)
)

_PAY_DAYS = _BANKING_DAYS[:40]


def _routing_number(random: Random) -> str:
    first = random.choice((*range(13), *range(21, 33), *range(61, 73), 80))
    base = f"{first:02d}{random.randrange(1, 1_000_000):06d}"
    total = sum(int(digit) * weight for digit, weight in zip(base, (3, 7, 1, 3, 7, 1, 3, 7), strict=True))
    return base + str(-total % 10)


_ROUTING_NUMBERS = tuple(_routing_number(Random(number)) for number in range(500))


def valid_row(random: Random, number: int) -> Row:
    """Return a row that breaks no rule and draws no warning; `number` makes its paymentId."""
    draw = random.random
    row: Row = dict.fromkeys(ALL_COLUMNS)
    first, last = random.choice(_NAMES), random.choice(_NAMES)
    row.update(
        paymentId=f"P-{number}" if draw() < 0.9 else None,
        gatewayId=str(1 + int(draw() * 9000)),
        transactionType="DEBIT" if draw() < 0.6 else "CREDIT",
        recurringIndicator="FALSE",
        currencyCode="USD" if draw() < 0.5 else None,
        amount=f"{1 + int(draw() ** 3 * 99_999_998)}.{int(draw() * 100):02d}",
        taxAmount=f"0.{int(draw() * 100):02d}" if draw() < 0.3 else None,
        shippingTax=f"{int(draw() * 50)}.00" if draw() < 0.2 else None,
        billingFirstName=first,
        billingLastName=last,
        shippingFirstName=first,
        shippingLastName=last,
        billingEmail=random.choice(_EMAILS) if draw() < 0.6 else None,
        achNameOnCheck=f"{first} {last}".encode("ascii", "ignore").decode()[:22].strip() or "A",
        achAccountNumber=str(1000 + int(draw() ** 4 * 99_999_999_999_998_999)),
        achRoutingNumber=random.choice(_ROUTING_NUMBERS),
        achCheckNumber=str(int(draw() * 10**15)) if draw() < 0.2 else None,
        achAccountType="PERSONAL",
        achDepositType="CHECKING" if draw() < 0.7 else "SAVINGS",
        achSecCode="PPD" if draw() < 0.5 else None,
        achAgreementFlag="1",
    )
    for column in _FREE_COLUMNS:
        if draw() < 0.4:
            row[column] = random.choice(_TEXTS)
    if row["billingInternalId"]:
        row["billingInternalId"] += f" {number}"  # each payee has one account
    for node in ("billing", "shipping"):
        if draw() < 0.6:
            _fill_address(row, node, random)
    if draw() < 0.35:
        _make_recurring(row, random)
    elif draw() < 0.3:
        row["payOn"] = random.choice(_PAY_DAYS)
    return row


def _fill_address(row: Row, node: str, random: Random) -> None:
    country = random.choice(("US", "US", "CA", None, "other"))
    if country == "other":
        country = random.choice(_COUNTRIES)
    row[f"{node}Country"] = country
    state_country = country if country in _STATES else random.choice(("US", "CA"))
    row[f"{node}State"] = random.choice(_STATES[state_country])
    row[f"{node}Zip"] = {"US": "02108-1234", "CA": "K1A 0B1"}.get(country or "", "any 7")
    row[f"{node}Phone"] = random.choice(_PHONES)


def _make_recurring(row: Row, random: Random) -> None:
    monthly = random.random() < 0.6
    row.update(
        recurringIndicator="TRUE",
        recurringStartDate=random.choice(_BANKING_DAYS),
        recurringBillingCycle="MONTHLY" if monthly else "DAILY",
        recurringEndOfMonth="Y" if monthly and random.random() < 0.3 else "N",
        recurringNumOfPayments=str(1 + int(random.random() * 99_998)),
        recurringAgreementFlag=random.choice("1Y"),
    )


def _set(values: Mapping[str, Sequence[str | None]]) -> Mutation:
    def mutate(row: Row, _previous: Row, random: Random) -> None:
        for column, choices in values.items():
            row[column] = random.choice(choices)

    return mutate


def _one(column: str, *choices: str | None) -> Mutation:
    return _set({column: choices})


def _recurring(**cells: Sequence[str | None]) -> Mutation:
    def mutate(row: Row, _previous: Row, random: Random) -> None:
        _make_recurring(row, random)
        for column, choices in cells.items():
            row[f"recurring{column}"] = random.choice(choices)

    return mutate


def _sec(transaction_type: str, account_type: str, *codes: str) -> Mutation:
    return _set({
        "transactionType": [transaction_type], "achAccountType": [account_type], "achSecCode": codes,
        "achCheckNumber": ["1042"],
    })  # fmt: skip


def _broken_text(column: str, make: Callable[[str, Random], str]) -> Mutation:
    def mutate(row: Row, _previous: Row, random: Random) -> None:
        row[column] = make(row[column] or "text", random)

    return mutate


def _with_a_forbidden_character(value: str, random: Random) -> str:
    forbidden = random.choice("\x00\x01\x08\x0b\x1b\x1f\x7f\x80\x85\x9f\ufffd\u202d\u202e\u0007\n\t\r")
    at = random.randrange(len(value)) + 1
    return value[:at] + forbidden + value[at:] + "."


def _with_an_unseen_character(value: str, random: Random) -> str:
    unseen = random.choice(
        "\x1b\ufffd\u202e\xad\u200b\u200d\u2060\ufeff\u034f\u3164\ufe0f\U000e0041\xa0\u202f\u2011\u2007"
    )
    at = random.randrange(len(value)) + 1
    return value[:at] + unseen + value[at:] + "."


def _with_a_copied_character(value: str, random: Random) -> str:
    copied = random.choice(("\xa0", "\u202f", "\u200b", "\u200d", "\ufeff", "Ã©", "Ã¼", "Â·", "Å‚", "Ä™", "â€™"))
    return f"{value[:3]}{copied}x"


def _with_white_space(value: str, random: Random) -> str:
    space = random.choice((" ", "\u00a0", "\u3000", "\u2003", "\u2028"))
    return random.choice((space + value, value + space, space))


def _too_long(_value: str, random: Random) -> str:
    return random.choice(("x", "é", "\U0001f3e6", "1")) * random.choice((256, 257, 300))


def _no_value(column: str) -> Mutation:
    """Two null words of the row, or what a spreadsheet or a database leaves."""
    other = "achBankName" if column == "achNameOnCheck" else "achNameOnCheck"

    def mutate(row: Row, _previous: Row, random: Random) -> None:
        row[column] = random.choice(
            ("nan", "NULL", "None", "N/A", "#N/A", "#REF!", "#NAME?", "Loading...", "\\N", "<null>")
        )
        row[other] = random.choice(("nan", "null", "undefined", "n/a"))

    return mutate


def _null_alone(column: str) -> Mutation:
    def mutate(row: Row, _previous: Row, random: Random) -> None:
        for name in _WORDED:
            if row[name]:
                row[name] = f"X{random.randrange(10**6)}"
        row[column] = random.choice(("NULL", "null", "Null", "None", "Nan"))

    return mutate


def _unexpected(column: str) -> Mutation:
    values = {name: [None] for name in RECURRING_COLUMNS} | {"recurringIndicator": ["FALSE"]}
    return _set({**values, column: ["1", "N", "MONTHLY", "03/01/2035", "nonsense"]})


def _same_payment_id(row: Row, previous: Row, _random: Random) -> None:
    previous["paymentId"] = row["paymentId"] = row["paymentId"] or previous["paymentId"] or "P-same"


def _recurring_with_a_day(row: Row, _previous: Row, random: Random) -> None:
    _make_recurring(row, random)
    row["payOn"] = random.choice(_PAY_DAYS)


def _same_bill(row: Row, previous: Row, random: Random) -> None:
    previous.update(amount="0900.00", invoiceNumber=random.choice((None, "Straße 7", "BP23456Z-1")), payOn=None)
    row.update({name: previous[name] for name in _BILL}, amount="900.00")
    if previous["invoiceNumber"]:
        row["invoiceNumber"] = random.choice(("STRASSE 7", "ｓtrasse 7")) if "7" in previous["invoiceNumber"] else None
    random.choice((row, previous))["paymentId"] = None


def _same_bill_under_another_id(row: Row, previous: Row, _random: Random) -> None:
    for number, one in enumerate((row, previous)):
        one.update({name: previous[name] for name in _BILL}, amount="12.00", paymentId=f"{number}-{id(one)}")
    if _random.random() < 0.5:
        previous["paymentId"] = _random.choice((None, previous["paymentId"]))
        row.update(payOn="12/04/2026", paymentId=None)
        previous["payOn"] = _random.choice(("12/09/2026", "11/27/2026"))


def _same_amount(row: Row, previous: Row, _random: Random) -> None:
    row.update({name: previous[name] for name in _BILL}, amount="77.00", invoiceNumber=f"I{id(row)}")
    previous["amount"] = "77.00"


def _same_invoice(row: Row, previous: Row, _random: Random) -> None:
    previous.update(amount="600.00", invoiceNumber=f"I{id(row)}")
    row.update({name: previous[name] for name in _BILL}, amount="617.00")


_BAD_MONEY = (
    "12",
    "12.5",
    "1,250.00",
    "$5.00",
    "-1.00",
    "+1.00",
    " .50",
    ".50",
    "1.000",
    "1e3",
    "٣.٠٠",
    "12.50 USD",
    "NaN",
)
_BAD_PHONES = (
    "2025550143",
    "+1 202 555 0143",
    "202-555-014",
    "(202)555-0143",
    "1 202 555 0143",
    "202-555.0143",
    "٢02-555-0143",
)
_BAD_EMAILS = (
    "books", "a@b", "a b@example.com", ".a@example.com", "a.@example.com", "a..b@example.com", "a@-b.com", "a@b-.com",
    "a@b..com", "a@example.c", "a@example.c0m", "a@example.com;", "a@example.com; b@example.com", "@example.com",
    "a@@example.com", f"{'l' * 65}@example.com", "jos\u00e9@example.com", "a@ex_ample.com",
    "a@example.com,b@example.com",
)  # fmt: skip


def _own_mutations() -> dict[Finding, Mutation]:
    """Return the mutations for the rules of single columns outside the recurring node."""
    found: dict[Finding, Mutation] = {
        ("gatewayId", "format", ERROR): _one("gatewayId", "0", "000", "-1", "1.0", "12A", "+5", "١٢", "1 0"),
        ("transactionType", "choice", ERROR): _one("transactionType", "debit", "Credit", "XDEBIT", "DEBITS"),
        ("recurringIndicator", "choice", ERROR): _one("recurringIndicator", "true", "YES", "1", "FALSEE"),
        ("amount", "format", ERROR): _one("amount", *_BAD_MONEY[:6], *_BAD_MONEY[7:]),
        ("amount", "currency_mark", ERROR): _one("amount", "€5.00", "CAD 12.00", "12.00 gbp", "¥500,000", "£1,234.50"),
        ("amount", "currency_decimals", ERROR): _set({"currencyCode": ["JPY", "KRW"], "amount": ["10.50", "9.01"]}),
        ("amount", "range", ERROR): _one("amount", "0.00", "000.00", "100000000.00", "99999999999999999999.99"),
        ("taxAmount", "format", ERROR): _one("taxAmount", *_BAD_MONEY[:6]),
        ("taxAmount", "range", WARNING): _set({"amount": ["10.00", "9.99"], "taxAmount": ["10.01", "123456789012.00"]}),
        ("shippingTax", "format", ERROR): _one("shippingTax", *_BAD_MONEY[7:]),
        ("currencyCode", "choice", ERROR): _one("currencyCode", "usd", "US$", "DEM", "EURO", "XYZ"),
        ("currencyCode", "currency", WARNING): _one("currencyCode", *(code for code in _CURRENCIES if code != "USD")),
        ("paymentId", "duplicate", ERROR): _same_payment_id,
        (WHOLE_ROW, "duplicate", ERROR): _same_bill,
        (WHOLE_ROW, "same_payment", WARNING): _same_bill_under_another_id,
        ("payOn", "format", ERROR): _one("payOn", "2026-12-04", "12/4/2026", "12/04/26", "12-04-2026", "Friday"),
        ("payOn", "date", ERROR): _one("payOn", "02/30/2027", "13/01/2026", "11/31/2026"),
        ("payOn", "past", ERROR): _one("payOn", "11/19/2026", "01/04/1999"),
        ("payOn", "range", ERROR): _one("payOn", "02/19/2027", "12/01/2099"),
        ("payOn", "conflict", ERROR): _recurring_with_a_day,
        ("payOn", "banking_day", WARNING): _one("payOn", "11/22/2026", "11/26/2026", "01/01/2027", "12/05/2026"),
        (WHOLE_ROW, "same_amount", WARNING): _same_amount,
        (WHOLE_ROW, "same_invoice", WARNING): _same_invoice,
        (WHOLE_ROW, "total", WARNING): _one("invoiceNumber", "Total", "SUBTOTAL", "Grand total", "Summe"),
        ("billingEmail", "email", ERROR): _one("billingEmail", *_BAD_EMAILS),
    }
    for node in ("billing", "shipping"):
        country, state, postal_code, phone = (f"{node}{name}" for name in ("Country", "State", "Zip", "Phone"))
        found[country, "choice", ERROR] = _one(country, "USA", "us", "XX", "UK", "U")
        found[state, "state", ERROR] = _set({country: ["US", "CA", None], state: ["ZZ", "tx", "Texas", "XK", "T"]})
        found[postal_code, "zip", WARNING] = _set({
            country: ["US", "CA"], postal_code: ["1234", "123456", "12345-", "12345-678", "K1A0B", "k1a 0b1", "K1A  0B"]
        })  # fmt: skip
        found[phone, "phone", ERROR] = _one(phone, *_BAD_PHONES)
    for column in REQUIRED_COLUMNS:
        found[column, "required", ERROR] = _one(column, None)
    for column in (name for name in ALL_COLUMNS if name.endswith(_NAMES_AND_ADDRESSES)):
        found[column, "characters", WARNING] = _broken_text(column, _with_a_copied_character)
    for column in (
        name for name in ALL_COLUMNS if name.endswith((*_NAMES_AND_ADDRESSES, "paymentId", "invoiceNumber"))
    ):
        found[column, "placeholder", ERROR] = _no_value(column)
        found[column, "placeholder", WARNING] = _null_alone(column)
    for column in ALL_COLUMNS:
        unseen = _with_an_unseen_character if column in ("paymentId", "invoiceNumber") else _with_a_forbidden_character
        found[column, "characters", ERROR] = _broken_text(column, unseen)
        found[column, "whitespace", ERROR] = _broken_text(column, _with_white_space)
        found[column, "length", ERROR] = _broken_text(column, _too_long)
    return found


def _ach_mutations() -> dict[Finding, Mutation]:
    account, routing, sec = "achAccountNumber", "achRoutingNumber", "achSecCode"
    return {
        ("achNameOnCheck", "length", WARNING): _one("achNameOnCheck", "x" * 23, "é" * 255),
        ("achNameOnCheck", "ascii", WARNING): _one("achNameOnCheck", "Zoë Ng", "李 明", "O’Brien"),
        (account, "masked", ERROR): _one(account, *_MASKED),
        (account, "account", ERROR): _one(
            account, "0", "0000", "1" * 18, "12-34", "12 34", "12é4", "١٢٣٤", "1.2E+11", "TRUE"
        ),
        (account, "account", WARNING): _one(account, "1", "123", "A1234567", "abc", "000A"),
        (routing, "format", ERROR): _one(routing, "21000995", "0210009950", "02100099X", "021-00099", "٠٢١٠٠٠٩٩٥"),
        (routing, "prefix", ERROR): _one(routing, "000000000", "130000000", "330000009", "600000000", "810000000"),
        (routing, "checksum", ERROR): _one(routing, "011000198", "021000990", "800000000", "123456789"),
        ("achCheckNumber", "format", ERROR): _one("achCheckNumber", "A1", "1" * 16, "1.0", "-1", "No 1"),
        ("achAccountType", "choice", ERROR): _one("achAccountType", "Business", "PERSON", "B"),
        ("achDepositType", "choice", ERROR): _one("achDepositType", "checking", "CURRENT", "SAVING"),
        (sec, "choice", ERROR): _one(sec, "ppd", "PPDX", "XXX", "CC"),
        (sec, "direction", ERROR): _sec("CREDIT", "PERSONAL", "TEL", "ARC", "BOC", "POP", "RCK"),
        (sec, "sec_unverified", WARNING): _one(sec, *sorted(SEC_CODES - {"PPD"})),
        (sec, "check_number", ERROR): _set({sec: ["ARC", "BOC", "POP", "RCK"], "achCheckNumber": [None]}),
        (sec, "sec_account", WARNING): _set({"achAccountType": ["BUSINESS"], sec: ["PPD", "WEB", "TEL", None]}),
        ("achAgreementFlag", "choice", ERROR): _one("achAgreementFlag", "Y", "2", "10", "TRUE"),
        ("achAgreementFlag", "agreement", ERROR): _one("achAgreementFlag", "0"),
    }  # fmt: skip


def _recurring_mutations() -> dict[Finding, Mutation]:
    start, count = "recurringStartDate", "recurringNumOfPayments"
    not_dates = ("02/30/2035", "13/01/2035", "00/10/2035", "04/31/2035", "02/29/2035", "01/00/2035", "99/99/9999")
    closed = ("01/15/2035", "03/03/2035", "03/04/2035", "07/05/2027", "12/25/2028", "11/22/2035", "01/01/2035")
    found: dict[Finding, Mutation] = {
        (start, "format", ERROR): _recurring(
            StartDate=["2035-03-01", "3/1/2035", "03/01/35", "03-01-2035", "٠3/01/2035"]
        ),
        (start, "date", ERROR): _recurring(StartDate=not_dates),
        (start, "past", ERROR): _recurring(StartDate=["11/19/2026", "01/15/2019", "02/29/2024"]),
        (start, "banking_day", WARNING): _recurring(StartDate=closed),
        (start, "month_end", WARNING): _recurring(
            StartDate=["01/29/2035", "01/30/2035", "01/31/2035"], BillingCycle=["MONTHLY"], EndOfMonth=["N"]
        ),
        ("recurringBillingCycle", "choice", ERROR): _recurring(BillingCycle=["WEEKLY", "monthly", "BI-WEEKLY"]),
        ("recurringEndOfMonth", "choice", ERROR): _recurring(EndOfMonth=["y", "YES", "1"]),
        ("recurringEndOfMonth", "conflict", ERROR): _recurring(BillingCycle=["DAILY"], EndOfMonth=["Y"]),
        (count, "format", ERROR): _recurring(NumOfPayments=["100000", "1.0", "-1", "twelve", "1 2"]),
        (count, "open_ended", ERROR): _recurring(NumOfPayments=["0"]),
        ("recurringAgreementFlag", "choice", ERROR): _recurring(AgreementFlag=["y", "TRUE", "2"]),
        ("recurringAgreementFlag", "agreement", ERROR): _recurring(AgreementFlag=["0", "N"]),
    }
    for column in RECURRING_COLUMNS:
        found[column, "required", ERROR] = _recurring(**{column.removeprefix("recurring"): [None]})
        found[column, "unexpected", ERROR] = _unexpected(column)
    return found


MUTATIONS: dict[Finding, Mutation] = {**_own_mutations(), **_ach_mutations(), **_recurring_mutations()}
"""One or more ways to break each rule that a row alone, or with the row before it, can break."""

ODD_VALUES = (
    *_NAMES, *_TEXTS, *_EMAILS, *_PHONES, *_BAD_MONEY, "0", "1", "00", "Y", "N", "TRUE", "FALSE", "US", "CA", "TX",
    "QC", "PPD", "CIE", "CTX", "IAT", "BUSINESS", "DAILY", "USD", "EUR", "12345", "000000000", "12/31/2030", "a;b",
    "null", "NA", "'", "=1+1", "\u200b", "\ufeff", "-", "9" * 17, "9" * 255, None,
)  # fmt: skip
"""Cells that are valid in some columns and invalid or strange in others."""


def valid_rows(seed: int, count: int) -> list[Row]:
    """Return rows without any finding."""
    random = Random(seed)
    return [valid_row(random, number) for number in range(count)]


def mutated_rows(seed: int, count: int) -> list[Row]:
    """Return rows, about a third valid; the others break up to three rules, or hold any value in any column."""
    random = Random(seed)
    mutations = list(MUTATIONS.values())
    rows: list[Row] = []
    for number in range(count):
        row = valid_row(random, number)
        previous = rows[-1] if rows else dict(row)
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            random.choice(mutations)(row, previous, random)
        if random.random() < 0.1:
            row[random.choice(GATEWAY_COLUMNS)] = random.choice(ODD_VALUES)
        rows.append(row)
    return rows
