"""The columns of a payment file: the gateway's own field names, by node of the request, in RULES.md's order.

Plain Python, so that readers and writers need not import pandera to know a column's name.
"""

from __future__ import annotations

TOP = ("gatewayId", "transactionType", "recurringIndicator", "invoiceNumber", "currencyCode", "amount", "taxAmount")
BILLING = (
    "billingInternalId", "billingFirstName", "billingLastName", "billingCompany", "billingAddressLine1",
    "billingAddressLine2", "billingCity", "billingState", "billingZip", "billingCountry", "billingPhone",
    "billingEmail",
)  # fmt: skip
SHIPPING = (
    "shippingFirstName", "shippingLastName", "shippingCompany", "shippingAddressLine1", "shippingAddressLine2",
    "shippingCity", "shippingState", "shippingZip", "shippingCountry", "shippingPhone", "shippingTax",
)  # fmt: skip
ACH = (
    "achBankName", "achNameOnCheck", "achAccountNumber", "achRoutingNumber", "achCheckNumber", "achAccountType",
    "achDepositType", "achSecCode", "achAgreementFlag",
)  # fmt: skip
RECURRING = (
    "recurringStartDate", "recurringBillingCycle", "recurringEndOfMonth", "recurringNumOfPayments",
    "recurringAgreementFlag",
)  # fmt: skip

GATEWAY_COLUMNS = TOP + BILLING + SHIPPING + ACH + RECURRING
"""The 44 fields of the gateway."""
PAYMENT_ID = "paymentId"
"""The caller's own unique key for a payment; never sent."""
PAY_ON = "payOn"
"""The day before which a payment is not sent; itself never sent."""
COLUMNS = (PAYMENT_ID, PAY_ON, *GATEWAY_COLUMNS)

REQUIRED = (
    "gatewayId", "transactionType", "recurringIndicator", "amount", "billingFirstName", "billingLastName",
    "shippingFirstName", "shippingLastName", "achNameOnCheck", "achAccountNumber", "achRoutingNumber",
    "achAccountType", "achDepositType", "achAgreementFlag",
)  # fmt: skip
"""Columns that every file must have: their cells are required in every row."""

_WORDED = ("FirstName", "LastName", "Company", "AddressLine1", "AddressLine2", "City", "BankName", "NameOnCheck")
NAMES_AND_ADDRESSES = tuple(name for name in (*BILLING, *SHIPPING, *ACH) if name.endswith(_WORDED))
ACCOUNT, ROUTING = "achAccountNumber", "achRoutingNumber"
DIRECTION = "transactionType"
MONEY = ("amount", "taxAmount", "shippingTax")
DATES = (PAY_ON, "recurringStartDate")
FLAGS = ("achAgreementFlag", "recurringAgreementFlag")
DIGITS_MATTER = (
    PAYMENT_ID, "gatewayId", "invoiceNumber", "billingInternalId", "achAccountNumber", "achCheckNumber",
)  # fmt: skip
"""Columns where a number of more than 15 digits, which a float can't hold faithfully, is a fault."""
NUMBERS_ON_THE_WIRE = ("gatewayId", "achAgreementFlag", "recurringAgreementFlag")
RECURRENCE = ("recurringStartDate", "recurringBillingCycle", "recurringEndOfMonth", "recurringNumOfPayments")
"""Columns that determine when a recurring payment falls due."""
CASH_FLOW = (PAY_ON, "gatewayId", "transactionType", "recurringIndicator", "amount", *RECURRENCE)
"""Columns that determine how much money a row moves, and when."""

RAGGED, QUOTATION, NO_PAYMENT, STRAY = "_ragged", "_quotation", "_no_payment", "_stray"
STATUS, TOTAL, MAYBE_TOTAL, SUM = "_status", "_total", "_maybe_total", "_sum"
ROW_MARKS = (RAGGED, QUOTATION, NO_PAYMENT, STRAY, STATUS, TOTAL, MAYBE_TOTAL, SUM)
"""How a row is marked whose cells are not known (the first two), which is not a payment (a note, the header again),
which has a cell outside the table, of which a carried column says that it is none, or which may be a total."""
ALONE = (RAGGED, QUOTATION, NO_PAYMENT)
"""Marks with which no other rule is reported for the row."""
FAULT, SUGGEST, WARN, CURRENCY = "_fault.", "_suggest.", "_warn.", "_currency."
"""How a file reader marks a cell: no faithful text, what it should be, doubtful, what its format shows beside the
number; a column's name follows.

A mark is the code, followed by `: ` and a message where it has its own.
"""
TEXT_FORMULA = '^="([^"]*)"$'
"""A cell as programs write it so that a spreadsheet keeps its text, such as `="00123"`."""
DECIMALS = "[.,][0-9]{1,2}[^0-9]*$"
"""How an amount with decimals ends."""
CELL_MARKS = (FAULT, SUGGEST, WARN, CURRENCY)
BARE_ROW = "_bare"
"""How a file reader flags a row in which no cell has a quotation mark, a backslash or a control character, if it
knows: such cells need no escaping in JSON. Code that changes a cell drops the flag."""
CORRECTED = "_corrected"
"""What `--accept-suggestions` changed in a row: `column: old -> new; column: old -> new`."""
DOUBTED = "?"
"""Stands before an account number whose zeros in front may be lost: the rejects file has it as text, and once read
back, nothing but this mark would show the doubt. No rule lets it pass, so a person has to change the cell."""
WARNED = "_warned"
"""The warnings of a row that goes on, for the ledger: `column: code: message; column: code: message`."""
MAP_FAULT = "map"
"""The code of a cell that a map can't convert with certainty; its message follows the code."""

REJECTS_OWN = ("_row", "_line", "_errors", "_warnings", "_suggestions")
"""The columns that a rejects file has before those of the payment file."""

ACCOUNT_SECRETS = frozenset({"pin", "password"})
"""Attributes of a gateway account (schemas/account.py) that are shown nowhere."""
