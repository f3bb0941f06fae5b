"""The rules of the billing node: who pays or is paid, and where to reach them."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.address import address_rules
from batchpay.schemas.columns import BILLING
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.rule import Rule, column_rules, error, node_schema


def billing_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the billing node."""
    return node_schema("billing", BILLING, billing_rules(options))


def billing_rules(options: RuleOptions) -> list[Rule]:
    """Rules of the billing node, in the order of its columns."""
    email = pl.col("billingEmail")
    own = address_rules("billing")
    own["billingEmail"] = [
        error(
            "billingEmail",
            "email",
            "S",
            "a valid address, several separated by `;`, each valid",
            "write an e-mail address like name@example.com, several with a semicolon and no blank between them",
            checks.is_no_email(email),
            screen=checks.may_be_no_email(email),
            suggestion=checks.as_emails(email),
            proves_clean=True,
        )
    ]
    return [rule for column in BILLING for rule in column_rules(column, own.get(column, []), options)]
