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
    money_format,
    name_rules,
    required,
    rule,
    schema_of,
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
            rule(
                "state.state",
                checks.is_not_state(pl.col(state), pl.col(country), STATES),
                reads=(country,),
                suggestion=checks.state_in_capitals(pl.col(state), pl.col(country), STATES),
                column=state,
            )
        ],
        zip_code: [
            rule("zip.zip", checks.is_not_zip(pl.col(zip_code), pl.col(country)), reads=(country,), column=zip_code)
        ],
        country: [choice(country)],
        phone: [
            rule(
                "phone.phone",
                checks.is_not_phone(pl.col(phone)),
                suggestion=checks.as_phone(pl.col(phone)),
                form=PHONE,
                column=phone,
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
    own = [rule("billingEmail.email", checks.is_not_email(email), suggestion=checks.as_emails(email), form=EMAILS)]
    return columns_of(BILLING, address_rules("billing") | {"billingEmail": own}, options)
