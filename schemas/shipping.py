"""The rules of the shipping node: where the goods go."""

from __future__ import annotations

import pandera.polars as pa

from batchpay.schemas.address import address_rules
from batchpay.schemas.columns import SHIPPING
from batchpay.schemas.forms import MONEY
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.rule import columns_of, money_format, schema_of


def shipping_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the shipping node."""
    return schema_of("shipping", shipping_columns(options))


def shipping_columns(options: RuleOptions) -> dict[str, pa.Column]:
    """Columns of the shipping node, with its rules."""
    own = address_rules("shipping")
    own["shippingTax"] = [money_format("shippingTax", MONEY)]
    return columns_of(SHIPPING, own, options)
