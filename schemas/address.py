"""The rules of the billing and shipping nodes: who pays or is paid, how to reach them, where the goods go."""

from __future__ import annotations

from functools import cache

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import BILLING, SHIPPING
from batchpay.schemas.forms import EMAILS, MONEY, PHONE
from batchpay.schemas.rule import (
    Rule,
    RuleOptions,
    choice,
    columns_of,
    error,
    money_format,
    name_rules,
    required,
    schema_of,
    warning,
)
from batchpay.schemas.tables import STATES


@cache
def address_rules(node: str) -> dict[str, list[Rule]]:
    """Rules of a node's names and address, by column; `node` is billing or shipping."""
    state, zip_code, country, phone = (f"{node}{part}" for part in ("State", "Zip", "Country", "Phone"))
    copied = {
        f"{node}{part}": name_rules(f"{node}{part}") for part in ("Company", "AddressLine1", "AddressLine2", "City")
    }
    return {
        **copied,
        f"{node}FirstName": [required(f"{node}FirstName"), *name_rules(f"{node}FirstName")],
        f"{node}LastName": [required(f"{node}LastName"), *name_rules(f"{node}LastName")],
        state: [
            error(
                state,
                "state",
                "S",
                "country `US` or `CA`: the two-letter abbreviation of that country's state, district, territory or "
                "province, country not given: one of either country's",
                "write the two-letter abbreviation of a state or province of the country, like TX or ON",
                checks.is_not_state(pl.col(state), pl.col(country), STATES),
                reads=(country,),
                suggestion=checks.state_in_capitals(pl.col(state), pl.col(country), STATES),
            )
        ],
        zip_code: [
            warning(
                zip_code,
                "zip",
                "H",
                "country `US`: `NNNNN` or `NNNNN-NNNN`, country `CA`: `ANA NAN` (the space optional)",
                "does not fit the country, write it like 75001 or 75001-1234 (US), K1A 0B1 (CA)",
                checks.is_not_zip(pl.col(zip_code), pl.col(country)),
                reads=(country,),
            )
        ],
        country: [
            choice(country, "ISO 3166-1 alpha-2", "write the country's code of two capitals (ISO 3166), like US")
        ],
        phone: [
            error(
                phone,
                "phone",
                "S",
                "one of `1-NNN-NNN-NNNN`, `NNN-NNN-NNNN`, `NNN.NNN.NNNN`, `NNN NNN NNNN`, `(NNN) NNN-NNNN`",
                "write ten digits like 512-555-0100",
                checks.is_not_phone(pl.col(phone)),
                suggestion=checks.as_phone(pl.col(phone)),
                form=PHONE,
            )
        ],
    }


def shipping_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the shipping node."""
    return schema_of("shipping", shipping_columns(options))


def shipping_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the shipping node, with its rules."""
    own = {"shippingTax": [money_format("shippingTax", MONEY)]}
    return columns_of(SHIPPING, address_rules("shipping") | own, options)


def billing_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the billing node."""
    return schema_of("billing", billing_columns(options))


def billing_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the billing node, with its rules."""
    email = pl.col("billingEmail")
    own = [
        error(
            "billingEmail",
            "email",
            "S",
            "a valid address, several separated by `;`, each valid",
            "write an e-mail address like name@example.com, several with a semicolon and no space between them",
            checks.is_not_email(email),
            suggestion=checks.as_emails(email),
            form=EMAILS,
        )
    ]
    return columns_of(BILLING, address_rules("billing") | {"billingEmail": own}, options)
