"""Counts what would be sent, chunk by chunk, into a ToSend. Apart from it: whoever reads a plan needs no polars."""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict

import polars as pl

from batchpay.approval.to_send import Origin, ToSend
from batchpay.payment import Totals
from batchpay.schemas import checks


def with_cents(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows that pass every rule their `_cents`, by which ToSendCount and Schedule count."""
    return rows.with_columns(_cents=checks.cents_of_plain(pl.col("amount")))


class ToSendCount:
    """Counts rows chunk by chunk into a ToSend; memory grows with gateway accounts, never with rows."""

    def __init__(self) -> None:
        self._totals: defaultdict[Origin, Totals] = defaultdict(Totals)
        self._held_back = Totals()
        self._directions: defaultdict[str, Totals] = defaultdict(Totals)
        self._released: defaultdict[str, Totals] = defaultdict(Totals)
        self._accounts: defaultdict[str, Totals] = defaultdict(Totals)
        self._rows = {origin: hashlib.sha256() for origin in Origin}

    def add(self, origin: Origin, rows: pl.DataFrame) -> None:
        """Count rows of one origin that pass every rule, in file order, with `_cents`."""
        counted = (
            rows.group_by("gatewayId", "transactionType")
            .agg(pl.len(), pl.col("_cents").sum())
            .with_columns(pl.col("gatewayId").str.strip_chars_start("0"))
        )
        for gateway_id, direction, count, cents in counted.iter_rows():
            totals = Totals(count, cents)
            self._totals[origin] += totals
            self._directions[direction] += totals
            if origin is Origin.RELEASED:
                self._released[direction] += totals
            self._accounts[gateway_id] += totals
        self._rows[origin].update(array("I", rows["_row"].to_list()).tobytes())

    def hold_back(self, totals: Totals) -> None:
        """Count pending rows that fail today's rules, by the cents that the ledger has for them."""
        self._held_back += totals

    def finish(self) -> ToSend:
        """Give what was counted."""
        return ToSend(
            new=self._totals[Origin.NEW],
            pending=self._totals[Origin.PENDING],
            released=self._totals[Origin.RELEASED],
            held_back=self._held_back,
            by_direction=dict(self._directions),
            released_by_direction=dict(self._released),
            by_account=dict(self._accounts),
            rows_digest=hashlib.sha256(b"".join(rows.digest() for rows in self._rows.values())).hexdigest(),
        )
