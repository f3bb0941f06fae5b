"""The rules of the shipping node: where the goods go."""

from __future__ import annotations

import pandera.polars as pa

from batchpay.schemas.address import address_rules
from batchpay.schemas.columns import SHIPPING
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.rule import Rule, column_rules, money_format, node_schema


def shipping_schema(options: RuleOptions) -> pa.DataFrameSchema:
    """Make the pandera schema of the shipping node."""
    return node_schema("shipping", SHIPPING, shipping_rules(options))


def shipping_rules(options: RuleOptions) -> list[Rule]:
    """Rules of the shipping node, in the order of its columns."""
    own = address_rules("shipping")
    own["shippingTax"] = [money_format("shippingTax")]
    return [rule for column in SHIPPING for rule in column_rules(column, own.get(column, []), options)]
