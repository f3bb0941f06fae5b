"""Accounts to which many payees of a file are paid, and payees that are paid to many accounts.

Both are how money is led astray, and both happen honestly, so a person is asked once for each.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import polars as pl

from batchpay.schemas.catalogue import ROW_SHARED_ACCOUNT, ROW_SPREAD_PAYEE
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.duplicates import Digests, InFile, Places

PAYEE = ("billingInternalId", "achNameOnCheck", "billingAddressLine1", "billingZip")
"""Columns that tell who is paid: namesakes have an id or an address of their own."""
_SEVERAL = 5
"""A family of four may share an account, and a salary may be split over checking, savings and two more."""
_NAMED_MAX = 10
"""Rows of one account or payee that a message names."""


class Payees:
    """Who is paid to which account, by keyed digests."""

    def __init__(self, storage: ExitStack) -> None:
        self._paid = Digests(storage)
        internal_id, name, line, postal_code = (pl.col(name).hash(secrets.randbits(63)) for name in PAYEE)
        account = pl.col("achAccountNumber").hash(secrets.randbits(63))
        by_address = pl.all_horizontal(pl.col(*PAYEE[1:]).is_not_null())
        self._digests = {
            "account": account ^ pl.col("achRoutingNumber").hash(secrets.randbits(63)),
            "name": name,
            "payee": pl.when(pl.col(PAYEE[0]).is_not_null())
            .then(internal_id)
            .when(by_address)
            .then(name ^ line ^ postal_code),
        }

    def add(self, frame: pl.DataFrame, passed: pl.Series) -> None:
        """Add the rows of a chunk of the first pass that passed and pay somebody."""
        digests = frame.select("_row", **self._digests)
        self._paid.keep(digests.filter(passed & (frame["transactionType"] == "CREDIT")))

    def late(self, places: Places, options: RuleOptions) -> Iterator[InFile]:
        """Yield, after the last chunk, one warning for each such account and payee."""
        for facts, of, each, told in (
            (ROW_SHARED_ACCOUNT, "account", "name", "{} payees are paid to this account in this file"),
            (ROW_SPREAD_PAYEE, "payee", "account", "this payee is paid to {} accounts in this file"),
        ):
            kept = []
            for frame in self._paid.repeated(of, times=_SEVERAL) if facts.name not in options.rules_off else ():
                counted = frame.select("_row", pl.col(of).alias("_group"), count=pl.col(each).n_unique().over(of))
                kept.append(counted.filter(pl.col("count") >= _SEVERAL))
            if not kept:
                continue
            rows = pl.concat(kept).sort("_row")
            more = pl.len().over("_group").cast(pl.Int64) - _NAMED_MAX
            first = rows.with_columns(more=more).filter(pl.int_range(pl.len()).over("_group") < _NAMED_MAX)
            placed = first.join(places.of(first["_row"]), left_on="_row", right_on="_first", maintain_order="left")
            groups = placed.group_by("_group", maintain_order=True).agg(
                pl.col("_row", "count", "more").first(), named=pl.col("_place").str.join(", ")
            )
            rest = pl.when(pl.col("more") > 0).then(pl.format(" and {} more", "more")).otherwise(pl.lit(""))
            message = pl.format(told + " ({}{}), make sure that it is right", "count", "named", rest)
            yield InFile(facts, groups, message, rows["_row"])
