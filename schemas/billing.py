"""The rules of the billing node: who pays or is paid, and how to reach them."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.address import address_rules
from batchpay.schemas.columns import BILLING
from batchpay.schemas.forms import EMAILS
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.rule import columns_of, error, schema_of


def billing_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the billing node."""
    return schema_of("billing", billing_columns(options))


def billing_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the billing node, with its rules."""
    email = pl.col("billingEmail")
    own = address_rules("billing")
    own["billingEmail"] = [
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
    return columns_of(BILLING, own, options)
