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
    error,
    name_rules,
    required,
    schema_of,
    truth_choice,
    warning,
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
            choice("achAccountType", "`BUSINESS` or `PERSONAL`", "write BUSINESS or PERSONAL, in capitals"),
        ],
        "achDepositType": [
            required("achDepositType"),
            choice("achDepositType", "`CHECKING` or `SAVINGS`", "write CHECKING or SAVINGS, in capitals"),
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
        warning(
            "achNameOnCheck",
            "length",
            "N",
            f"longer than {most} characters (the ACH record cuts it)",
            f"is longer than {most} characters, the bank will see only the first {most}",
            name.str.len_chars() > most,
        ),
        warning(
            "achNameOnCheck",
            "ascii",
            "N",
            "characters outside ASCII: the ACH record has none (no error under `--warnings-as-errors`)",
            "has characters that an ACH record can't have, the bank may show others in their place",
            name.str.len_bytes() != name.str.len_chars(),
            is_only_told=True,
        ),
        *name_rules("achNameOnCheck"),
    ]


def _check_number(options: RuleOptions) -> Rule:
    most = checks.CHECK_NUMBER_DIGITS_MAX
    letters = "A-Za-z" if options.check_letters else ""
    meaning = "digits or letters" if options.check_letters else "digits"
    return error(
        "achCheckNumber",
        "format",
        "H",
        f"{meaning}, at most {most} (setting `rules.check_letters`)",
        f"write the check's number with at most {most} {meaning} and nothing else",
        checks.not_matching(pl.col("achCheckNumber"), rf"^[0-9{letters}]{{1,{most}}}$"),
        form=CHECK_NUMBER,
    )


def _account(options: RuleOptions) -> list[Rule]:
    account = pl.col("achAccountNumber")
    hyphens = ", hyphens inside" if options.account_hyphens else ""
    without = "blanks" if options.account_hyphens else "blanks or hyphens"
    return [
        required("achAccountNumber"),
        error(
            "achAccountNumber",
            "masked",
            "H",
            "masked or a placeholder (`XXXX1234`, `****5678`, `ONFILE`, `TBD`), or in doubt already (`?1234`)",
            "is not the whole account number, write it as on the payee's papers",
            checks.is_masked(account),
            form=ACCOUNT,
        ),
        error(
            "achAccountNumber",
            "account",
            "N",
            f"1 to 17 letters or digits{hyphens}, nothing else, not all zeros (setting `rules.account_hyphens`)",
            f"write 1 to 17 digits or letters without {without}, not all zeros",
            checks.is_not_account(account, hyphens=options.account_hyphens) & ~checks.is_scientific(account),
            after=("masked",),
            form=ACCOUNT,
        ),
        error(
            "achAccountNumber",
            "account",
            "N",
            "a word for true or false (`TRUE`), as a cell or a column of such values has it",
            "is a word for true or false (like TRUE) and no number, take the account from the payee's papers",
            account.str.contains("^[A-Za-z]{2}") & checks.is_truth_word(account),
            after=("masked",),
            form=ACCOUNT,
        ),
        error(
            "achAccountNumber",
            "account",
            "N",
            "a number in scientific notation, as a spreadsheet saves a long one (`1.23457E+11`)",
            "was cut short by a spreadsheet (like 1.23457E+11), its last digits are lost, take it from the papers",
            checks.is_scientific(account),
            form=ACCOUNT,
        ),
        warning(
            "achAccountNumber",
            "account",
            "N",
            "has letters, or under four characters",
            "has letters or fewer than four characters, check it with the bank",
            checks.is_unusual_account(account),
            after=("masked", "account"),
            form=ACCOUNT,
        ),
    ]


def _routing() -> list[Rule]:
    routing = pl.col("achRoutingNumber")
    return [
        required("achRoutingNumber"),
        error(
            "achRoutingNumber",
            "format",
            "S",
            "nine digits",
            "write nine digits, with any leading zero",
            checks.not_matching(routing, r"^[0-9]{9}$"),
            suggestion=checks.with_leading_zero(routing),
            form=ROUTING,
        ),
        error(
            "achRoutingNumber",
            "prefix",
            "N",
            "first two digits 00-12, 21-32, 61-72 or 80, not `000000000`",
            "no bank's routing number begins this way, look it up again",
            checks.has_unassigned_prefix(routing),
            after=("format",),
            form=ROUTING,
        ),
        error(
            "achRoutingNumber",
            "checksum",
            "N",
            "ABA check digit: 3(d1+d4+d7)+7(d2+d5+d8)+(d3+d6+d9) divisible by 10",
            "the check digit does not match, a digit is wrong or two are swapped, look it up again",
            checks.has_wrong_check_digit(routing),
            after=("format", "prefix"),
        ),
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
    known = choice(
        "achSecCode",
        f"not given = `{SEC_DEFAULT}`, one of {' '.join(SEC_CODES)}",
        f"write one of {' '.join(SEC_CODES)}, or leave it empty for {SEC_DEFAULT}",
        source="S+N",
        form=_EITHER_WAY,
    )
    return [
        known,
        error(
            "achSecCode",
            "direction",
            "N",
            f"{_and(SEC_DEBIT_ONLY)} with `CREDIT`, {_and(SEC_CREDIT_ONLY)} with `DEBIT`",
            f"{_and(SEC_DEBIT_ONLY)} only collect money (DEBIT) and {_and(SEC_CREDIT_ONLY)} only pays it (CREDIT), "
            "correct the code or transactionType",
            wrong_direction,
            after=("choice",),
            form=_EITHER_WAY,
            reads=("transactionType",),
        ),
        warning(
            "achSecCode",
            "sec_unverified",
            "S",
            f"other than {SEC_DEFAULT} (the gateway documents only {SEC_DEFAULT})",
            f"the gateway documents only {SEC_DEFAULT}, ask whether your account takes this code",
            code != SEC_DEFAULT,
            after=("choice",),
        ),
        error(
            "achSecCode",
            "check_number",
            "N",
            f"{_or(SEC_CHECK)} without achCheckNumber",
            "this kind of payment is made from a paper check, fill in achCheckNumber",
            checks.one_of(code, SEC_CHECK) & pl.col("achCheckNumber").is_null(),
            after=("choice",),
            form=_EITHER_WAY,
            reads=("achCheckNumber",),
        ),
        warning(
            "achSecCode",
            "sec_account",
            "N",
            f"{_or(SEC_PERSONAL)} with `BUSINESS`, {_or(SEC_BUSINESS)} with `PERSONAL`",
            f"{_and(SEC_PERSONAL)} are meant for PERSONAL accounts, {_and(SEC_BUSINESS)} for BUSINESS ones, "
            "check achAccountType",
            wrong_account,
            after=("choice",),
            reads=("achAccountType",),
        ),
    ]


def _agreement(options: RuleOptions) -> list[Rule]:
    agreed = closed_list(["1"])
    words, message = "one digit, `1` or `0`", "write 1 (the payer agrees) or 0"
    rules = [required("achAgreementFlag"), *truth_choice("achAgreementFlag", words, message, form=agreed)]
    if options.require_agreement:
        rules.append(
            error(
                "achAgreementFlag",
                "agreement",
                "H",
                "`0`: the payer does not agree (setting `policy.require_agreement`, on)",
                "the payer does not agree to this payment, take the row out or get the agreement and write 1",
                pl.col("achAgreementFlag") == "0",
                form=agreed,
            )
        )
    return rules


def _and(codes: Sequence[str]) -> str:
    return _join(codes, "and")


def _or(codes: Sequence[str]) -> str:
    return _join(codes, "or")


def _join(codes: Sequence[str], word: str) -> str:
    return f" {word} ".join(part for part in (", ".join(codes[:-1]), codes[-1]) if part)
