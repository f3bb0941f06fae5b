"""The rules of the ach node: the bank account, and the kind of entry."""

from __future__ import annotations

from collections.abc import Sequence

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import ACH
from batchpay.schemas.forms import ACCOUNT, CHECK_NUMBER, ROUTING, closed_list
from batchpay.schemas.rule import (
    Rule,
    RuleOptions,
    choice,
    columns_of,
    name_rules,
    required,
    rule,
    schema_of,
    truth_choice,
)
from batchpay.schemas.tables import (
    SEC_BUSINESS,
    SEC_CHECK,
    SEC_CODES,
    SEC_CREDIT_ONLY,
    SEC_DEBIT_ONLY,
    SEC_PERSONAL,
)

SEC_DEFAULT = "PPD"
"""The code that the gateway assumes where none is given, and the only one that it documents."""
_EITHER_WAY = closed_list([code for code in SEC_CODES if code not in (*SEC_DEBIT_ONLY, *SEC_CREDIT_ONLY, *SEC_CHECK)])
"""Codes that allow both debits and credits, and need no paper check."""


def ach_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the ach node; it also reads transactionType."""
    return schema_of("ach", ach_columns(options))


def ach_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the ach node, with its rules."""
    own = {
        "achBankName": name_rules("achBankName"),
        "achNameOnCheck": _name(),
        "achAccountNumber": _account(options),
        "achRoutingNumber": _routing(),
        "achCheckNumber": [_check_number(options)],
        "achAccountType": [
            required("achAccountType"),
            choice("achAccountType"),
        ],
        "achDepositType": [
            required("achDepositType"),
            choice("achDepositType"),
        ],
        "achSecCode": _sec_code(),
        "achAgreementFlag": _agreement(options),
    }
    return columns_of(ACH, own, options)


def _name() -> list[Rule]:
    name = pl.col("achNameOnCheck")
    most = checks.NAME_CHARACTERS_MAX
    return [
        required("achNameOnCheck"),
        rule("achNameOnCheck.length", values={"most": most}, fails=name.str.len_chars() > most),
        rule("achNameOnCheck.ascii", name.str.len_bytes() != name.str.len_chars(), is_only_told=True),
        *name_rules("achNameOnCheck"),
    ]


def _check_number(options: RuleOptions) -> Rule:
    most = checks.CHECK_NUMBER_DIGITS_MAX
    letters = "A-Za-z" if options.check_letters else ""
    meaning = "digits or letters" if options.check_letters else "digits"
    return rule(
        "achCheckNumber.format",
        values={"meaning": meaning, "most": most},
        fails=checks.not_matching(pl.col("achCheckNumber"), rf"^[0-9{letters}]{{1,{most}}}$"),
        form=CHECK_NUMBER,
    )


def _account(options: RuleOptions) -> list[Rule]:
    account = pl.col("achAccountNumber")
    hyphens = ", hyphens inside" if options.account_hyphens else ""
    without = "blanks" if options.account_hyphens else "blanks or hyphens"
    return [
        required("achAccountNumber"),
        rule("achAccountNumber.masked", checks.is_masked(account), form=ACCOUNT),
        rule(
            "achAccountNumber.account",
            values={"hyphens": hyphens, "without": without},
            fails=checks.is_not_account(account, hyphens=options.account_hyphens) & ~checks.is_scientific(account),
            after=("masked",),
            form=ACCOUNT,
        ),
        rule(
            "achAccountNumber.account:truth",
            account.str.contains("^[A-Za-z]{2}") & checks.is_truth_word(account),
            after=("masked",),
            form=ACCOUNT,
        ),
        rule("achAccountNumber.account:scientific", checks.is_scientific(account), form=ACCOUNT),
        rule(
            "achAccountNumber.account:unusual",
            checks.is_unusual_account(account),
            after=("masked", "account"),
            form=ACCOUNT,
        ),
    ]


def _routing() -> list[Rule]:
    routing = pl.col("achRoutingNumber")
    return [
        required("achRoutingNumber"),
        rule(
            "achRoutingNumber.format",
            checks.not_matching(routing, r"^[0-9]{9}$"),
            suggestion=checks.with_leading_zero(routing),
            form=ROUTING,
        ),
        rule("achRoutingNumber.prefix", checks.has_unassigned_prefix(routing), after=("format",), form=ROUTING),
        rule("achRoutingNumber.checksum", checks.has_wrong_check_digit(routing), after=("format", "prefix")),
    ]


def _sec_code() -> list[Rule]:
    code, direction, account = pl.col("achSecCode"), pl.col("transactionType"), pl.col("achAccountType")
    kind = code.fill_null(SEC_DEFAULT)
    wrong_direction = (checks.one_of(code, SEC_DEBIT_ONLY) & (direction == "CREDIT")) | (
        checks.one_of(code, SEC_CREDIT_ONLY) & (direction == "DEBIT")
    )
    wrong_account = (checks.one_of(kind, SEC_PERSONAL) & (account == "BUSINESS")) | (
        checks.one_of(kind, SEC_BUSINESS) & (account == "PERSONAL")
    )
    return [
        choice("achSecCode", _EITHER_WAY, default=SEC_DEFAULT, codes=" ".join(SEC_CODES)),
        rule(
            "achSecCode.direction",
            values=_SEC_WORDS,
            fails=wrong_direction,
            after=("choice",),
            form=_EITHER_WAY,
            reads=("transactionType",),
        ),
        rule("achSecCode.sec_unverified", values=_SEC_WORDS, fails=code != SEC_DEFAULT, after=("choice",)),
        rule(
            "achSecCode.check_number",
            values=_SEC_WORDS,
            fails=checks.one_of(code, SEC_CHECK) & pl.col("achCheckNumber").is_null(),
            after=("choice",),
            form=_EITHER_WAY,
            reads=("achCheckNumber",),
        ),
        rule(
            "achSecCode.sec_account",
            values=_SEC_WORDS,
            fails=wrong_account,
            after=("choice",),
            reads=("achAccountType",),
        ),
    ]


def _agreement(options: RuleOptions) -> list[Rule]:
    agreed = closed_list(["1"])
    rules = [required("achAgreementFlag"), *truth_choice("achAgreementFlag", agreed)]
    if options.require_agreement:
        rules.append(rule("achAgreementFlag.agreement", pl.col("achAgreementFlag") == "0", form=agreed))
    return rules


def _list(word: str, codes: Sequence[str]) -> str:
    return f" {word} ".join(part for part in (", ".join(codes[:-1]), codes[-1]) if part)


_SEC_WORDS = {
    "default": SEC_DEFAULT,
    "debit_only": _list("and", SEC_DEBIT_ONLY),
    "credit_only": _list("and", SEC_CREDIT_ONLY),
    "of_checks": _list("or", SEC_CHECK),
    "personal": _list("or", SEC_PERSONAL),
    "business": _list("or", SEC_BUSINESS),
    "all_personal": _list("and", SEC_PERSONAL),
    "all_business": _list("and", SEC_BUSINESS),
}
"""What the texts of tables/rules.csv say of entry class codes."""
