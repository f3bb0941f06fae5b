"""Every rule as plain facts: what `batchpay rules` prints, and the messages for what file readers find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

from batchpay.schemas.columns import ACCOUNT, COLUMNS, DIGITS_MATTER, MAP_FAULT, MONEY, PAYMENT_ID
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.rule import MONEY_MESSAGE, Rule, RuleOptions, rules_of

ROW = "row"
"""Stands for a column where a rule concerns the row as a whole."""


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """One rule for people and for other programs."""

    column: str
    code: str
    severity: str
    source: str
    words: str
    message: str

    @property
    def name(self) -> str:
        """The public name, `column.code`."""
        return f"{self.column}.{self.code}"


PAYMENT_ID_DUPLICATE = RuleFacts(
    PAYMENT_ID,
    "duplicate",
    "error",
    "H",
    "unique in the file",
    "another row of the file has the same paymentId, none of them is sent: different payments need ids of their own, "
    "and one payment of several invoices is one row with the total",
)
ROW_DUPLICATE = RuleFacts(
    ROW,
    "duplicate",
    "error",
    "H",
    "the same bill twice: routing number, account, direction, amount and invoice number (`--allow-duplicates`)",
    "is the same bill as another row, take it out, or give it an invoice number of its own",
)
ROW_INVOICE_PAID = RuleFacts(
    ROW,
    "same_invoice",
    "error",
    "H",
    "the account, direction and invoice number of an earlier payment that is accepted or in doubt, sent within "
    "`policy.duplicate_days` (older batches are not looked at), another amount, and neither has a paymentId "
    "(`--allow-duplicates`)",
    "has the invoice number of an earlier payment to this account, with another amount",
)
ROW_SAME_INVOICE = RuleFacts(
    ROW,
    "same_invoice",
    "warning",
    "H",
    "the same of another row of the file, or where one has a paymentId or is for a day so far off "
    "(`--allow-duplicates`)",
    "has the invoice number of another row to this account, with another amount, make sure that both are due",
)
ROW_SAME_PAYMENT = RuleFacts(
    ROW,
    "same_payment",
    "warning",
    "H",
    "the same bill under another paymentId, long ago or in the same file, or `policy.duplicate_days` or more apart by "
    "payOn in the same file or among rows that still wait",
    "is the same bill as another row under another paymentId or on another day, make sure that both are due",
)
ACCOUNT_RETURNED = RuleFacts(
    ACCOUNT,
    "returned",
    "error",
    "N",
    "a payment to this account came back: R02 R03 R04 R12 R13 R16 R20 R28, for credits R14 R15 R23, for debits R05 R07 "
    "R08 R10 R29 R51 (`--release --rows` ends it until the next return, but for R08)",
    "the bank sent a payment to this account back, ask the payee for another account",
)
CHANGED_BY_BANK = [
    RuleFacts(
        column,
        "changed_by_bank",
        "error",
        "N",
        f"{words} (the corrected value is in the rejects file alone, never accepted as a suggestion)",
        "the bank has changed this, take the new one, which is in the rejects file",
    )
    for column, words in (
        (ACCOUNT, "the bank corrected this account with C01, C03, C06 or C07"),
        ("achRoutingNumber", "the bank corrected this routing number with C02"),
        ("achDepositType", "the bank corrected it with C05, and the row has the other kind"),
        ("achNameOnCheck", "the bank corrected the name with C04, and the row has another one"),
    )
]
"""Of a change of several columns, the first is named."""
ROW_STATUS = RuleFacts(
    ROW,
    "status",
    "error",
    "H",
    "a column headed Status, Payment Status, Check Status or the like, not used otherwise, has a word that says no "
    "(Void, Paid, On hold, Draft, in other languages, too)",
    "its status says that it is no payment, take the row out, or empty that cell",
)
ROW_TOTAL = RuleFacts(
    ROW,
    "total",
    "error",
    "H",
    "called a total (Subtotal, Total Smith, Summe), with the sum of the two or more rows above and their bank details",
    "is called a total and has the sum of the rows above, take it out",
)
ROW_MAYBE_TOTAL = replace(
    ROW_TOTAL,
    severity="warning",
    words="called a total, with bank details of its own or without a sum",
    message="is called a total, make sure that it is a payment",
)
ROW_SUM = RuleFacts(
    ROW,
    "sum",
    "warning",
    "H",
    "the sum of the two or more rows above, up to the latest total or the beginning of the file",
    "is the sum of the rows above, make sure that it is a payment of its own",
)
ROW_SAME_AMOUNT = RuleFacts(
    ROW,
    "same_amount",
    "warning",
    "H",
    "the same amount to one account twice or more in the file (one line an account, no error under "
    "`--warnings-as-errors`)",
    "goes to one account more than once in this file, make sure that each is due",
)
ROW_RAGGED = RuleFacts(
    ROW,
    "ragged",
    "error",
    "H",
    "number of cells differs from the header's",
    "has more or fewer cells than the header, look for a separator too many or a missing quote",
)
ROW_QUOTATION = RuleFacts(
    ROW,
    "quotation",
    "error",
    "H",
    "a CSV cell that does not begin with a quotation mark holds one, or text follows a closing mark: where the cells "
    "end is not certain",
    "has a quotation mark in the wrong place, so where its cells end is not certain",
)
ROW_NO_PAYMENT = RuleFacts(
    ROW,
    "no_payment",
    "error",
    "H",
    "nothing but blanks, a lone note of one or two cells, the header again, or a word that its map does not know",
    "holds no payment, delete the row, or fill it in if it is one",
)

_TYPED = {
    "leading_zero": (
        "a number of 8 digits or fewer in a numeric cell",
        "has lost its leading zero in a numeric cell, format the column as text and write all nine digits",
    ),
    "precision": (
        "a number of more than 15 digits in a numeric cell, or one whose number format hides its digits (`0.00E+00`)",
        "has lost digits in a numeric cell, or its number format hides them, format the column as text and type the "
        "number anew",
    ),
    "format": (
        "a typed cell that is no text of this column",
        "the cell's type does not fit this column, format the column as text and write the value as it should be sent",
    ),
    "formula": (
        "a formula in a spreadsheet's cell",
        "is a formula, paste its value instead",
    ),
    "text_formula": (
        'a formula that is but a text (`="00123"`), as programs write it for spreadsheets',
        'is written as a formula for a spreadsheet (="..."), write the text in the quotation marks alone',
    ),
    "error_cell": (
        "an error value in a spreadsheet's cell (`#N/A`)",
        "the spreadsheet shows an error here (like #N/A), write the value itself",
    ),
    MAP_FAULT: (
        "a cell of which the map (`--map`) can't make a value for certain",
        "can't be read as the map says, write it so",
    ),
}
_NUMERIC_ACCOUNT = (
    "a number in a numeric cell or column that shows no zeros in front; an error where routing numbers of the file "
    "have lost theirs",
    "is a number in the file, so zeros in front may be lost, compare it with the payee's papers and write the column "
    "as text (where it is an error, the rejects have a ? in front)",
)
_TYPED_OTHERWISE = "the cell can't be read, format the column as text and write the value as it should be sent"


def every_rule_on() -> RuleOptions:
    """Return options that enable every rule."""
    return RuleOptions(as_of=date(2026, 1, 1), max_amount_cents=0)


def rules() -> list[RuleFacts]:
    """Return all rules of cells in the order of the columns, then those of the row as a whole."""
    facts = [_facts(rule) for rule in rules_of(payment_schema(every_rule_on()))]
    for one in (PAYMENT_ID_DUPLICATE, ACCOUNT_RETURNED, *CHANGED_BY_BANK):
        columns = [fact.column for fact in facts]
        facts.insert(len(columns) - columns[::-1].index(one.column), one)
    of_rows = [ROW_STATUS, ROW_TOTAL, ROW_MAYBE_TOTAL, ROW_SUM, ROW_SAME_AMOUNT]
    of_rows += [ROW_INVOICE_PAID, ROW_SAME_INVOICE, ROW_DUPLICATE, ROW_SAME_PAYMENT]
    return [*facts, *of_rows, ROW_RAGGED, ROW_QUOTATION, ROW_NO_PAYMENT]


def typed_cell_rules() -> list[RuleFacts]:
    """Return the rules for cells that a Parquet file, a spreadsheet or a map has as something other than our text."""
    facts = []
    for column in COLUMNS:
        for code, (words, _) in _TYPED.items():
            if code == "leading_zero" and column != "achRoutingNumber":
                continue
            if code == "precision" and column not in DIGITS_MATTER:
                continue
            facts.append(RuleFacts(column, code, "error", "H", words, typed_cell_message(column, code)))
    words, message = _NUMERIC_ACCOUNT
    return [*facts, RuleFacts(ACCOUNT, "numeric_account", "warning", "H", words, message)]


def suggesting_rules() -> frozenset[str]:
    """Name the rules that can say what the right value is."""
    names = {rule.name for rule in rules_of(payment_schema(every_rule_on())) if rule.suggestion is not None}
    names |= {f"{column}.text_formula" for column in COLUMNS if column != ACCOUNT}
    return frozenset(names | {"achRoutingNumber.leading_zero"})


def typed_cell_message(column: str, code: str) -> str:
    """Return the message for a typed-cell fault, whatever its code."""
    if code == "format" and column in MONEY:
        return f"has more than two decimals or is not an amount, {MONEY_MESSAGE}"
    if code == "numeric_account":
        return _NUMERIC_ACCOUNT[1]
    return _TYPED[code][1] if code in _TYPED else _TYPED_OTHERWISE


def check_rules_off(names: frozenset[str]) -> list[str]:
    """Return the names that can't be switched off: unknown rules, rules that are not house rules, and some that are.

    Cells of a ragged or malformed row can't be told apart, so no other rule could take the place of those.
    """
    if not names:  # nearly always; otherwise all rules are built once more
        return []
    kept = {ROW_RAGGED.name, ROW_QUOTATION.name, ROW_NO_PAYMENT.name, PAYMENT_ID_DUPLICATE.name}
    house = {fact.name for fact in rules() if fact.source == "H"} - kept
    return sorted(names - house)


def warning_names() -> frozenset[str]:
    """Return the names of all warnings: of the rules, and of the checks against earlier payments."""
    return frozenset(one.name for one in (*rules(), *typed_cell_rules()) if one.severity == "warning") | OF_HISTORY


OF_HISTORY = frozenset(
    {"achAccountNumber.changed_account", "achNameOnCheck.new_payee", "amount.first_payment", "amount.unusual_amount"}
)
"""Warnings of approval/anomalies.py."""


def _facts(rule: Rule) -> RuleFacts:
    return RuleFacts(rule.column, rule.code, rule.severity, rule.source, rule.words, rule.message)
