"""The sandbox's own checks of what it is sent: the gateway's field tables, strictly, in plain Python.

Deliberately written separately from the rules in `schemas/`: it checks only what the gateway's interface itself says,
not what Nacha or our own caution adds. So are its closed lists, which share nothing with `schemas/tables`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from batchpay.sandbox.dialects import Problem


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


US_STATES = _codes(
    "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK "
    "OR PA RI SC SD TN TX UT VT VA WA WV WI WY DC AS GU MP PR UM VI AA AE AP"
)
"""States, the District of Columbia, the territories, and the addresses of the armed forces."""

CANADIAN_PROVINCES = _codes("AB BC MB NB NL NS NT NU ON PE QC SK YT")

COUNTRIES = _codes(
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY "
    "BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK "
    "FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR "
    "IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK "
    "ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM "
    "PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF "
    "TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW"
)
"""ISO 3166-1 alpha-2."""

CURRENCIES = _codes(
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE "
    "CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF "
    "GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR "
    "LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN "
    "PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS "
    "TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD XAF XAG XAU XBA XBB XBC "
    "XBD XCD XCG XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG"
)
"""ISO 4217, with the codes for funds, metals and testing."""


TEXT_LENGTH_MAX = 255
_MONEY = re.compile(r"[0-9]+\.[0-9]{2}")
_PHONES = tuple(
    re.compile(pattern)
    for pattern in (
        r"1-[0-9]{3}-[0-9]{3}-[0-9]{4}",
        r"[0-9]{3}-[0-9]{3}-[0-9]{4}",
        r"[0-9]{3}\.[0-9]{3}\.[0-9]{4}",
        r"[0-9]{3} [0-9]{3} [0-9]{4}",
        r"\([0-9]{3}\) [0-9]{3}-[0-9]{4}",
    )
)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}")

Check = Callable[[Any], "str | None"]
"""Returns what is wrong with a value, or None."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a node."""

    check: Check
    required: bool = False


def text(value: Any) -> str | None:
    """Check for any text of 1 to 255 characters."""
    if not isinstance(value, str):
        return "must be a string"
    return None if 0 < len(value) <= TEXT_LENGTH_MAX else f"must have 1 to {TEXT_LENGTH_MAX} characters"


def matching(pattern: str, meaning: str) -> Check:
    """Return a check for a text of a certain form."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str | None:
        return text(value) or (None if compiled.fullmatch(value) else f"must be {meaning}")

    return check


def one_of(*choices: str) -> Check:
    """Return a check for a text from a closed list."""
    allowed = frozenset(choices)
    meaning = f"must be one of {', '.join(choices)}" if len(choices) < 12 else "is not on the list of codes"

    def check(value: Any) -> str | None:
        return text(value) or (None if value in allowed else meaning)

    return check


def whole(least: int, most: int | None = None) -> Check:
    """Return a check for a JSON integer; true and false are not integers, nor is 1.0."""

    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return "must be an integer"
        if value < least or (most is not None and value > most):
            return f"must be {least} to {most}" if most is not None else f"must be at least {least}"
        return None

    return check


def agreement(*texts: str) -> Check:
    """Return a check for 1 or 0 as a number, or one of these texts: the interface says one digit, shows both."""

    def check(value: Any) -> str | None:
        if isinstance(value, str):
            return None if value in texts else f"must be one of {', '.join(texts)}"
        return whole(0, 1)(value)

    return check


def phone(value: Any) -> str | None:
    """Check for one of the five ways of writing a phone number."""
    return text(value) or (None if any(form.fullmatch(value) for form in _PHONES) else "is not a phone number")


def email(value: Any) -> str | None:
    """Check for one e-mail address."""
    return text(value) or (None if _ADDRESS.fullmatch(value) else "is not an e-mail address")


def us_date(value: Any) -> str | None:
    """Check for a real date, written MM/DD/YYYY."""
    if problem := matching(r"[0-9]{2}/[0-9]{2}/[0-9]{4}", "MM/DD/YYYY")(value):
        return problem
    month, day, year = (int(part) for part in value.split("/"))
    try:
        date(year, month, day)
    except ValueError:
        return "is not a day of the calendar"
    return None


_FLAG = whole(0, 1)
_money = matching(_MONEY.pattern, "an amount with two decimals")
_country = one_of(*sorted(COUNTRIES))

PAYMENT: Mapping[str, Field] = {
    "gatewayId": Field(whole(1), required=True),
    "transactionType": Field(one_of("DEBIT", "CREDIT"), required=True),
    "recurringIndicator": Field(one_of("TRUE", "FALSE"), required=True),
    "invoiceNumber": Field(text),
    "currencyCode": Field(one_of(*sorted(CURRENCIES))),
    "amount": Field(_money, required=True),
    "taxAmount": Field(_money),
}
_PERSON = {
    "FirstName": Field(text, required=True),
    "LastName": Field(text, required=True),
    "Company": Field(text),
    "AddressLine1": Field(text),
    "AddressLine2": Field(text),
    "City": Field(text),
    "State": Field(text),
    "Zip": Field(text),
    "Country": Field(_country),
    "Phone": Field(phone),
}
NODES: Mapping[str, Mapping[str, Field]] = {
    "billing": {
        "billingInternalId": Field(text),
        **{f"billing{name}": item for name, item in _PERSON.items()},
        "billingEmail": Field(email),
    },
    "shipping": {**{f"shipping{name}": item for name, item in _PERSON.items()}, "shippingTax": Field(_money)},
    "ach": {
        "achBankName": Field(text),
        "achNameOnCheck": Field(text, required=True),
        "achAccountNumber": Field(text, required=True),
        "achRoutingNumber": Field(matching(r"[0-9]{9}", "nine digits"), required=True),
        "achCheckNumber": Field(text),
        "achAccountType": Field(one_of("BUSINESS", "PERSONAL"), required=True),
        "achDepositType": Field(one_of("CHECKING", "SAVINGS"), required=True),
        "achSecCode": Field(text),
        "achAgreementFlag": Field(agreement("1", "0"), required=True),
    },
    "recurring": {
        "recurringStartDate": Field(us_date, required=True),
        "recurringBillingCycle": Field(one_of("MONTHLY", "DAILY"), required=True),
        "recurringEndOfMonth": Field(one_of("Y", "N"), required=True),
        "recurringNumOfPayments": Field(matching(r"[0-9]+", "digits"), required=True),
        "recurringAgreementFlag": Field(agreement("1", "0", "Y", "N"), required=True),
        "achSecCode": Field(text),
    },
}
EMAILS_NODE = "emails"
"""A node in `billing` that holds several addresses as {"billingEmail": [...]}: our assumption."""


def payment_problems(body: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with a payment."""
    recurring = body.get("recurringIndicator") == "TRUE"
    wanted = {"billing", "shipping", "ach"} | ({"recurring"} if recurring else set())
    problems = _node_problems("", body, PAYMENT, set(NODES))
    for name, fields in NODES.items():
        if name in body and name not in wanted:
            problems.append(Problem(name, "is not expected where recurringIndicator is not TRUE"))
        elif name in wanted:
            node = body.get(name)
            if not isinstance(node, dict):
                problems.append(Problem(name, "is required" if node is None else "must be an object"))
                continue
            allowed = {EMAILS_NODE} if name == "billing" else set()
            problems += _node_problems(f"{name}.", node, fields, allowed)
            if name in ("billing", "shipping"):
                problems += _state_problems(name, node)
            if name == "billing" and EMAILS_NODE in node:
                problems += _emails_problems(node[EMAILS_NODE])
    return problems


def _node_problems(
    prefix: str, node: Mapping[str, Any], fields: Mapping[str, Field], allowed: Set[str] = frozenset()
) -> list[Problem]:
    problems = []
    for name, item in fields.items():
        if name not in node:
            if item.required:
                problems.append(Problem(prefix + name, "is required"))
        elif wrong := item.check(node[name]):
            problems.append(Problem(prefix + name, wrong))
    unknown = [name for name in node if name not in fields and name not in allowed]
    return problems + [Problem(prefix + name, "is not a field of this interface") for name in unknown]


def _state_problems(name: str, node: Mapping[str, Any]) -> list[Problem]:
    """Check that a state is in its country; any text passes in a country whose states the interface does not list."""
    country, state = node.get(f"{name}Country"), node.get(f"{name}State")
    if country is None:
        states = US_STATES | CANADIAN_PROVINCES
    elif country in ("US", "CA"):
        states = US_STATES if country == "US" else CANADIAN_PROVINCES
    else:
        return []
    if not isinstance(state, str) or text(state) or state in states:
        return []
    return [Problem(f"{name}.{name}State", "is not a state of that country")]


def _emails_problems(emails: Any) -> list[Problem]:
    name = f"billing.{EMAILS_NODE}.billingEmail"
    addresses = emails.get("billingEmail") if isinstance(emails, dict) and len(emails) == 1 else None
    if not isinstance(addresses, list) or not addresses:
        return [Problem(name, "must be a list of addresses, alone in its node")]
    return [Problem(name, wrong) for address in addresses if (wrong := email(address))]


# Gateway accounts

_LEVELS = {"active_level2": Field(_FLAG, required=True), "active_level3": Field(_FLAG, required=True)}
_OF_PROCESSOR: Mapping[str, Mapping[str, Field]] = {
    "A": {
        "account_id": Field(whole(0), required=True),
        "user_id": Field(text, required=True),
        "pin": Field(text, required=True),
    },
    "B": {
        "login": Field(text, required=True),
        "password": Field(text, required=True),
        "vt_template": Field(text, required=True),
    },
    "C": {},
}
CREATED = ("processorA_cc", "processorA_ach", "processorB_ach", "processorC_cc")
UPDATED = ("processorA_cc", "processorA_ach", "processorC_cc")
"""Processor B's accounts can be created, not updated."""


def account_problems(body: Mapping[str, Any], *, update: bool) -> list[Problem]:
    """Return everything that is wrong with a gateway account to create or update."""
    node = body.get("gateway")
    if not isinstance(node, dict):
        return [Problem("gateway", "is required" if node is None else "must be an object")]
    problems = [Problem(name, "is not a field of this interface") for name in body if name != "gateway"]
    names = UPDATED if update else CREATED
    fields: dict[str, Field] = {
        "enabled": Field(whole(1, 1), required=True),
        "mode": Field(one_of("dev", "test", "live"), required=True),
        "gateway_name": Field(one_of(*names), required=True),
        "accept_amex": Field(_FLAG, required=str(node.get("gateway_name")).endswith("_cc")),
        **_LEVELS,
    }
    processor = str(node.get("gateway_name"))[len("processor") :][:1]
    # What one processor requires, the interface lists as optional for the others.
    fields |= {name: replace(item, required=False) for own in _OF_PROCESSOR.values() for name, item in own.items()}
    fields |= _OF_PROCESSOR.get(processor, {})
    return problems + _node_problems("gateway.", node, fields)
