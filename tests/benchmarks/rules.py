"""The fifteen rules that every peer is asked to check: named once here, in terms that all of them can be told.

They are rules of batchpay's own, chosen so that every peer can express them: missing values, closed lists, patterns, a
length, a check digit, and one that looks at two columns. A missing value breaks no rule but `required`, and a check
digit is asked of well-formed numbers only; so each tool must find the very same number of failures.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchpay.schemas.tables import COUNTRIES

MONEY = r"^[0-9]+\.[0-9]{2}$"
DIGITS = r"^[0-9]+$"
NINE_DIGITS = r"^[0-9]{9}$"
ACCOUNT = r"^[0-9A-Za-z]{1,17}$"
PHONE = (
    r"^(?:1-[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}-[0-9]{3}-[0-9]{4}|[0-9]{3}\.[0-9]{3}\.[0-9]{4}"
    r"|[0-9]{3} [0-9]{3} [0-9]{4}|\([0-9]{3}\) [0-9]{3}-[0-9]{4})$"
)
EMAIL = (
    r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}$"
)
DIRECTIONS = ("DEBIT", "CREDIT")
INDICATORS = ("TRUE", "FALSE")
NAME_CHARACTERS_MAX = 255
ABA_WEIGHTS = (3, 7, 1, 3, 7, 1, 3, 7, 1)


@dataclass(frozen=True)
class SharedRule:
    """One rule: the column, batchpay's public code for it, and what kind of rule it is."""

    column: str
    code: str
    kind: str
    """required, pattern, choice, length, checksum or required_if."""
    pattern: str = ""
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As batchpay names it."""
        return f"{self.column}.{self.code}"


SHARED_RULES = (
    SharedRule("gatewayId", "required", "required"),
    SharedRule("gatewayId", "format", "pattern", DIGITS),
    SharedRule("transactionType", "choice", "choice", values=DIRECTIONS),
    SharedRule("recurringIndicator", "choice", "choice", values=INDICATORS),
    SharedRule("amount", "required", "required"),
    SharedRule("amount", "format", "pattern", MONEY),
    SharedRule("billingFirstName", "required", "required"),
    SharedRule("billingFirstName", "length", "length"),
    SharedRule("billingPhone", "phone", "pattern", PHONE),
    SharedRule("billingEmail", "email", "pattern", EMAIL),
    SharedRule("billingCountry", "choice", "choice", values=tuple(COUNTRIES)),
    SharedRule("achAccountNumber", "account", "pattern", ACCOUNT),
    SharedRule("achRoutingNumber", "format", "pattern", NINE_DIGITS),
    SharedRule("achRoutingNumber", "checksum", "checksum"),
    SharedRule("recurringStartDate", "required", "required_if"),
)
assert len(SHARED_RULES) == 15, "fifteen, as the tables say"
