"""The closed lists that the rules use: small CSV files next to this module, read once at import.

The words of other programs (headers.csv, words.csv) are read by schemas/words.py.

- countries.csv: ISO 3166-1 alpha-2.
- currencies.csv: ISO 4217, active codes (with amendments to 2026: XCG for ANG, ZWG for ZWL, XAD; BGN and HRK gone),
  and how many decimals their amounts have.
- amount_marks.csv: what may be beside the number of an amount, besides codes: symbols and names of currencies (with
  each currency that one may mean, the likeliest first), directions, scales, cents, percent.
- states.csv: two-letter abbreviations of the United States and of Canada (USPS Publication 28, Appendix B; Canada Post
  addressing guidelines). The military 'states' AA, AE and AP are in it, since USPS delivers there under country US and
  a soldier's address must not be refused. The freely associated states FM, MH and PW are not: they are countries of
  their own in ISO 3166-1.
- sec_codes.csv: standard entry class codes (Nacha Operating Rules, Appendix Three): which direction is allowed, whose
  account it is meant for (blank: either), whether the entry converts a paper check and so carries its number.
- rules.csv: the words and messages of rules, by `column.code`; a line for several columns has another word before the
  point, and a colon tells lines of one code apart. What is in braces is filled in (schemas/rule.py).
- return_codes.csv: codes of returns and of notifications of change (returns/codes.py says what its columns mean).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files


def rows_of(name: str) -> Iterator[dict[str, str]]:
    """Read a table line by line."""
    text = (files(__name__) / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


RULES = {row["rule"]: row for row in rows_of("rules.csv")}
COUNTRY_NAMES = {row["code"]: row["name"] for row in rows_of("countries.csv")}
COUNTRIES = tuple(COUNTRY_NAMES)
_CURRENCIES = tuple(rows_of("currencies.csv"))
CURRENCY_NAMES = {row["code"]: row["name"] for row in _CURRENCIES}
CURRENCIES = tuple(CURRENCY_NAMES)
NO_DECIMALS = tuple(row["code"] for row in _CURRENCIES if row["decimals"] == "0")
_MARKS = tuple(rows_of("amount_marks.csv"))
CURRENCIES_OF = {row["mark"].lower(): tuple(row["currencies"].split()) for row in _MARKS if row["kind"] == "currency"}
CURRENCIES_OF |= {code.lower(): (code,) for code in CURRENCIES}
"""Which currencies a symbol, a name or a code may mean, by the mark in small letters."""
AMOUNT_MARKS = {
    kind: tuple(row["mark"] for row in _MARKS if row["kind"] == kind)
    for kind in ("direction", "scale", "cents", "percent")
}
"""What else may be beside the number of an amount, by kind."""
_STATES = tuple(rows_of("states.csv"))
STATES = {country: tuple(row["code"] for row in _STATES if row["country"] == country) for country in ("US", "CA")}
"""Abbreviations by country."""
STATE_NAMES = {row["code"]: row["name"] for row in _STATES}

_SEC = tuple(rows_of("sec_codes.csv"))
SEC_CODES = tuple(row["code"] for row in _SEC)
SEC_DEBIT_ONLY = tuple(row["code"] for row in _SEC if row["credit"] == "no")
SEC_CREDIT_ONLY = tuple(row["code"] for row in _SEC if row["debit"] == "no")
SEC_PERSONAL = tuple(row["code"] for row in _SEC if row["account"] == "PERSONAL")
SEC_BUSINESS = tuple(row["code"] for row in _SEC if row["account"] == "BUSINESS")
SEC_CHECK = tuple(row["code"] for row in _SEC if row["check_number"] == "yes")

CHOICES: dict[str, tuple[str, ...]] = {
    "transactionType": ("DEBIT", "CREDIT"),
    "recurringIndicator": ("FALSE", "TRUE"),
    "currencyCode": CURRENCIES,
    "billingCountry": COUNTRIES,
    "shippingCountry": COUNTRIES,
    "achAccountType": ("BUSINESS", "PERSONAL"),
    "achDepositType": ("CHECKING", "SAVINGS"),
    "achSecCode": SEC_CODES,
    "achAgreementFlag": ("1", "0"),
    "recurringBillingCycle": ("MONTHLY", "DAILY"),
    "recurringEndOfMonth": ("N", "Y"),
    "recurringAgreementFlag": ("1", "0", "Y", "N"),
}
"""The closed lists by column; that of a state depends on its country."""
