"""What is planted in the files of samples/: special accounts, irregularities that only warn, and faults, with reasons.

The rules are those that `batchpay rules` lists; `row` is that of the payment file, counted from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Change:
    """Cells that replace those of one valid row, and what the checker must say about it."""

    row: int
    cells: Mapping[str, str]
    finding: str
    """`column.code`."""
    why: str
    in_parquet: bool = True
    """Whether a decimal column can hold the faulty amount."""
    copy_of: int | None = None
    """The row that this one repeats, before its own cells are applied."""


@dataclass(frozen=True)
class SpecialAccount:
    """A row whose account number makes the sandbox answer with something other than success."""

    row: int
    ending: str
    outcome: str


@dataclass(frozen=True)
class Small:
    """The plan of small.csv."""

    columns: tuple[str, ...]
    good: int
    faults: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


ONCE = dict.fromkeys(
    ("recurringStartDate", "recurringBillingCycle", "recurringEndOfMonth", "recurringNumOfPayments",
     "recurringAgreementFlag"), "") | {"recurringIndicator": "FALSE"}  # fmt: skip
MONTHLY = {
    "recurringIndicator": "TRUE", "recurringStartDate": "03/01/2035", "recurringBillingCycle": "MONTHLY",
    "recurringEndOfMonth": "N", "recurringNumOfPayments": "12", "recurringAgreementFlag": "1",
}  # fmt: skip
_PERSON = {"achAccountType": "PERSONAL", "achSecCode": "PPD"}
_COMPANY = {"achAccountType": "BUSINESS", "achSecCode": "CCD"}

DECLINED, SILENT, BUSY_ONCE = "declined", "in doubt: processed, then no answer", "429 once, then accepted"

SPECIAL_ACCOUNTS = (
    SpecialAccount(60, "990001", DECLINED),
    SpecialAccount(120, "990006", BUSY_ONCE),
    SpecialAccount(150, "990003", DECLINED),
    SpecialAccount(210, "990002", DECLINED),
    SpecialAccount(270, "990004", SILENT),
    SpecialAccount(330, "990001", DECLINED),
    SpecialAccount(390, "990001", DECLINED),
    SpecialAccount(450, "990016", DECLINED),
    SpecialAccount(510, "990020", DECLINED),
    SpecialAccount(570, "990001", DECLINED),
    SpecialAccount(660, "990014", DECLINED),
    SpecialAccount(720, "990001", DECLINED),
    SpecialAccount(780, "990004", SILENT),
    SpecialAccount(840, "990029", DECLINED),
    SpecialAccount(900, "990006", BUSY_ONCE),
    SpecialAccount(960, "990003", DECLINED),
)

_WARNED = (
    ({**MONTHLY, "recurringStartDate": "01/15/2035"}, "recurringStartDate.banking_day", "a federal holiday"),
    ({**MONTHLY, "recurringStartDate": "03/03/2035"}, "recurringStartDate.banking_day", "a Saturday"),
    ({**MONTHLY, "recurringStartDate": "05/31/2035"}, "recurringStartDate.month_end", "shorter months have no 31st"),
    ({"achNameOnCheck": "Siobhán O'Brien-Castellanos"}, "achNameOnCheck.length", "the ACH record cuts it at 22"),
    ({"billingCountry": "US", "billingState": "TX", "billingZip": "7870"}, "billingZip.zip", "four digits"),
    (
        {"shippingCountry": "CA", "shippingState": "ON", "shippingZip": "90210"},
        "shippingZip.zip",
        "not a Canadian postal code",
    ),
    ({"currencyCode": "CAD"}, "currencyCode.currency", "ACH moves US dollars"),
    ({"amount": "10.00", "taxAmount": "80.00"}, "taxAmount.range", "more tax than amount"),
    ({"achAccountNumber": "AB7720451"}, "achAccountNumber.account", "letters"),
    ({"achAccountNumber": "738"}, "achAccountNumber.account", "three digits"),
    ({"achAccountType": "BUSINESS", "achSecCode": "PPD"}, "achSecCode.sec_account", "PPD is for individuals"),
    ({**_PERSON, "achSecCode": "WEB"}, "achSecCode.sec_unverified", "the gateway documents only PPD"),
)
ODDITIES = (
    *(Change(42 + 60 * index, *warned) for index, warned in enumerate(_WARNED)),
    Change(800, {"paymentId": ""}, "", "the row that row 985 repeats"),
)
"""Valid rows with a warning, and one that a later row repeats."""

_FAULTS: tuple[tuple[Mapping[str, str], str, str], ...] = (
    ({"amount": "1,250.00"}, "amount.format", "thousands separator"),
    ({"achRoutingNumber": "21000995"}, "achRoutingNumber.format", "its leading zero is lost"),
    ({"transactionType": "debit"}, "transactionType.choice", "lowercase"),
    ({"billingEmail": "books@example"}, "billingEmail.email", "the domain has one label"),
    ({"achRoutingNumber": "011000198"}, "achRoutingNumber.checksum", "the last digit is wrong"),
    ({"billingCountry": "US", "billingState": "ON"}, "billingState.state", "Ontario is not in the US"),
    ({"amount": "0.00"}, "amount.range", "nothing to pay"),
    ({"billingFirstName": ""}, "billingFirstName.required", "missing"),
    ({**MONTHLY, "recurringStartDate": "2035-03-01"}, "recurringStartDate.format", "the year is first"),
    ({"billingPhone": "555-0134"}, "billingPhone.phone", "no area code"),
    ({"achAgreementFlag": "0"}, "achAgreementFlag.agreement", "the payer does not agree"),
    ({"paymentId": "P-TWICE"}, "paymentId.duplicate", "row 535 has the same paymentId"),
    ({"achAccountNumber": "48-2210-77"}, "achAccountNumber.account", "hyphens"),
    ({"billingCountry": "USA"}, "billingCountry.choice", "three letters"),
    ({**MONTHLY, "recurringNumOfPayments": "0"}, "recurringNumOfPayments.open_ended", "nothing can stop it"),
    ({**ONCE, "recurringBillingCycle": "MONTHLY"}, "recurringBillingCycle.unexpected", "the payment is not recurring"),
    ({"shippingCity": "Toronto "}, "shippingCity.whitespace", "a space at the end"),
    ({"paymentId": "P-TWICE"}, "paymentId.duplicate", "row 355 has the same paymentId"),
    ({"taxAmount": "1.5"}, "taxAmount.format", "one decimal"),
    ({**_PERSON, "transactionType": "CREDIT", "achSecCode": "TEL"}, "achSecCode.direction", "TEL is for debits only"),
    ({"achRoutingNumber": "451000012"}, "achRoutingNumber.prefix", "no routing number begins with 45"),
    ({**MONTHLY, "recurringStartDate": "02/30/2035"}, "recurringStartDate.date", "February has no 30th"),
    ({"currencyCode": "US$"}, "currencyCode.choice", "not an ISO 4217 code"),
    ({"billingAddressLine1": "12\u202egnileW Road"}, "billingAddressLine1.characters", "a bidirectional override"),
    ({"achDepositType": "CURRENT"}, "achDepositType.choice", "neither CHECKING nor SAVINGS"),
    ({**MONTHLY, "recurringStartDate": "01/15/2019"}, "recurringStartDate.past", "long past"),
    ({**_PERSON, "transactionType": "DEBIT", "achSecCode": "ARC", "achCheckNumber": ""}, "achSecCode.check_number",
     "ARC needs a check number"),
    ({**MONTHLY, "recurringBillingCycle": "DAILY", "recurringEndOfMonth": "Y"}, "recurringEndOfMonth.conflict",
     "every day and at the end of the month"),
    ({**MONTHLY, "recurringAgreementFlag": ""}, "recurringAgreementFlag.required", "missing in a recurring payment"),
    ({"amount": "-45.00"}, "amount.format", "a sign: the direction is transactionType"),
    ({**_COMPANY, "achAccountType": "Company"}, "achAccountType.choice", "neither BUSINESS nor PERSONAL"),
    ({"achCheckNumber": "No. 1042"}, "achCheckNumber.format", "not only digits"),
    ({"costCenter": "ops-99"}, "row.duplicate", "repeats row 800, and neither has a paymentId"),
)  # fmt: skip
PLANTED = tuple(
    Change(
        25 + 30 * index,
        *fault,
        in_parquet=fault[0].get("amount") != "1,250.00",
        copy_of=800 if fault[1] == "row.duplicate" else None,
    )
    for index, fault in enumerate(_FAULTS)
)
"""One fault per row, spread through payments.csv."""

SMALL = Small(
    columns=(
        "paymentId", "gatewayId", "transactionType", "recurringIndicator", "invoiceNumber", "amount",
        "billingFirstName", "billingLastName", "shippingFirstName", "shippingLastName", "achNameOnCheck",
        "achAccountNumber", "achRoutingNumber", "achAccountType", "achDepositType", "achAgreementFlag",
    ),
    good=6,
    faults={4: {"amount": "12.5"}, 7: {"transactionType": "debit", "achRoutingNumber": "011000198"}},
)  # fmt: skip

SPREADSHEET_ROWS = 120
SPREADSHEET_SHEET = "Payments"
SPREADSHEET_TITLE = "Supplier payments, first quarter"


@dataclass(frozen=True)
class OddCell:
    """A cell of spreadsheet.xlsx as people make them; `finding` is empty if the program reads it as meant."""

    row: int
    column: str
    value: object
    finding: str
    why: str


ODD_CELLS = (
    OddCell(12, "achRoutingNumber", 11000196, "achRoutingNumber.leading_zero", "a number: its leading zero is lost"),
    OddCell(
        20,
        "achAccountNumber",
        482210775,
        "achAccountNumber.numeric_account",
        "a number, where a routing number has lost its zero",
    ),
    OddCell(31, "achAccountNumber", 48221077500123456, "achAccountNumber.precision", "a number above 15 digits"),
    OddCell(40, "amount", "=125*3", "amount.formula", "a formula instead of an amount"),
    OddCell(52, "amount", "#N/A", "amount.error_cell", "a lookup that found nothing"),
    OddCell(63, "amount", 12.345, "amount.format", "three decimals"),
    OddCell(71, "achAgreementFlag", True, "", "a boolean is read as 1 in a flag column"),
    OddCell(84, "billingFirstName", None, "billingFirstName.required", "missing"),
    OddCell(93, "transactionType", "Debit", "transactionType.choice", "not uppercase"),
    OddCell(104, "shippingCity", "Dayton ", "shippingCity.whitespace", "a space at the end"),
    OddCell(111, "billingZip", 2108, "billingZip.zip", "a number: its leading zero is lost (a warning)"),
)
