"""What other systems call our columns, and the words that they use for closed lists.

Only letters and digits count, in any case.
"""

from __future__ import annotations

import difflib
import re

from batchpay.intake.header import letters_of
from batchpay.schemas import tables
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.tables import COUNTRY_NAMES, STATE_NAMES, STATES

HEADERS: dict[str, str] = {
    "paymentId": "payment id|payment reference|unique id|transaction id|external id",
    "gatewayId": "gateway|gateway account|merchant account id",
    "transactionType": "transaction type|debit credit|dr cr|cr dr|direction|debit or credit",
    "invoiceNumber": "invoice|invoice number|invoice ref|invoice reference|invoice id|inv no|"
    "bill number|document number|voucher|voucher number",
    "currencyCode": "currency|ccy|currency iso",
    "amount": "amount|payment amount|net amount|net pay|net due|amount due|amount paid|invoice amount|check amount|"
    "transaction amount|pay amount|payout amount|settlement amount|total|total amount|amt|net payout|amount usd|sum|"
    "gross amount|gross pay",
    "taxAmount": "tax|tax amount|sales tax|vat",
    "billingInternalId": "vendor id|vendor number|vendor code|supplier id|supplier number|employee id|"
    "employee number|payee id|customer id|customer number|individual id|owner id",
    "billingFirstName": "first name|first|given name|contact first name|contact first|employee first name",
    "billingLastName": "last name|last|surname|family name|contact last name|contact last|employee last name",
    "billingCompany": "company|company name|business name|organization",
    "billingAddressLine1": "address|address 1|address line 1|street|street address|mailing address|ach address",
    "billingAddressLine2": "address 2|address line 2|suite|unit",
    "billingCity": "city|town|ach city",
    "billingState": "state|state province|province|ach state",
    "billingZip": "zip|zip code|postal code|postcode|zip postal code|ach zip code",
    "billingCountry": "country|country code",
    "billingPhone": "phone|phone number|telephone|mobile|contact phone|ach phone",
    "billingEmail": "email|email address|remittance email|contact email",
    "achBankName": "bank|bank name|financial institution|receiving bank",
    "achNameOnCheck": "name|payee|payee name|vendor|vendor name|recipient|recipient name|beneficiary|beneficiary name|"
    "employee|employee name|account name|account holder|account holder name|customer name|supplier|supplier name|"
    "owner name|receiver|receiver name|individual name|name on account|owner",
    "achAccountNumber": "account|account number|acct|acct number|bank account|"
    "bank account number|dfi account number|deposit account|payee account number|checking account",
    "achRoutingNumber": "routing|routing number|routing transit number|rtn|aba|"
    "aba number|aba routing number|aba routing|bank routing|bank routing number|transit number|transit routing|"
    "routing transit",
    "achCheckNumber": "check number|cheque number",
    "achAccountType": "account holder type|holder type|entity type|payee type|customer type|owner type",
    "achDepositType": "account type|acct type|type of account|bank account type|ach account type|checking savings",
    "achSecCode": "sec|entry class|entry class code|standard entry class",
    "recurringStartDate": "start date|first payment date|recurring start",
}
"""Names of columns by ours; a name stands once."""

_LISTS = ("transactionType", "achAccountType", "achDepositType", "currencyCode", "billingCountry", "achSecCode")
CHOICES = {name: tables.CHOICES[name] for name in _LISTS} | {"billingState": (*STATES["US"], *STATES["CA"])}
"""Closed lists of ours that files of others have words for."""

_WORDS: dict[str, dict[str, str]] = {
    "transactionType": {"DEBIT": "debit dr collect collection", "CREDIT": "credit cr pay payment payout disbursement"},
    "achDepositType": {
        "CHECKING": "checking chk checkingaccount check dda demanddeposit personalchecking businesschecking "
        "consumerchecking corporatechecking",
        "SAVINGS": "savings sav saving savingsaccount personalsavings businesssavings consumersavings corporatesavings",
    },
    "achAccountType": {
        "BUSINESS": "business corporate commercial company organization businesschecking businesssavings "
        "corporatechecking corporatesavings",
        "PERSONAL": "personal individual consumer person personalchecking personalsavings consumerchecking "
        "consumersavings",
    },
    "currencyCode": {"USD": "us$ usdollar usdollars dollar dollars"},
    "billingCountry": {"US": "usa unitedstates unitedstatesofamerica", "CA": "can"},
}
_FUZZY = 0.86
"""How similar two names are that differ by a slip: difflib's ratio."""
COMBINED = "achAccountType"
"""What a column with `Personal Checking` and `Business Checking` also says, besides achDepositType."""


def name_key(text: str) -> str:
    """Return a name or a word without case, blanks and punctuation; a final number sign, however written, is `no`."""
    return re.sub("(?:number|num|nbr|nr)$", "no", letters_of(text.replace("#", " no ")))


_BY_NAME = {name_key(name): target for target, names in HEADERS.items() for name in names.split("|")}
_BY_NAME |= {name_key(name): name for name in COLUMNS}
NAMES = tuple(dict.fromkeys(letters_of(name) for names in HEADERS.values() for name in names.split("|")))
"""All known column names: by them a header is found below title rows."""
_OURS_BY_WORD = {
    target: {word: ours for ours, words in lists.items() for word in words.split()} for target, lists in _WORDS.items()
}
_OURS_BY_WORD["billingState"] = {name_key(name): code for code, name in STATE_NAMES.items()}
_OURS_BY_WORD["billingCountry"] |= {name_key(name): code for code, name in COUNTRY_NAMES.items()}


def column_called(name: str) -> tuple[str, bool] | None:
    """Return our column that a name means, and whether exactly; None for a name that resembles none."""
    key = name_key(name)
    if key in _BY_NAME:
        return _BY_NAME[key], True
    close = difflib.get_close_matches(key, _BY_NAME, n=1, cutoff=_FUZZY) if len(key) > 3 else []
    return (_BY_NAME[close[0]], False) if close else None


def ours_for(target: str, word: str) -> str | None:
    """Return the member of a closed list that a word certainly means; None where it might be anything."""
    if word in CHOICES[target]:
        return word
    capitals = word.strip().upper()
    return capitals if capitals in CHOICES[target] else _OURS_BY_WORD.get(target, {}).get(name_key(word))
