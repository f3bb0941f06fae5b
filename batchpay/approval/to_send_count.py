"""Counts what would be sent, chunk by chunk, into a ToSend. A separate module: reading a plan needs no polars."""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Mapping

import polars as pl

from batchpay.approval.to_send import Origin, ToSend
from batchpay.payment import Totals

_NOTED_AT_ONCE = 50_000


class ToSendCount:
    """Counts rows chunk by chunk into a ToSend; memory grows with gateway accounts, never with rows."""

    def __init__(self) -> None:
        self._totals: defaultdict[Origin, Totals] = defaultdict(Totals)
        self._held_back = Totals()
        self._directions: defaultdict[str, Totals] = defaultdict(Totals)
        self._released: defaultdict[str, Totals] = defaultdict(Totals)
        self._accounts: defaultdict[str, Totals] = defaultdict(Totals)
        self._rows = {origin: hashlib.sha256() for origin in Origin}

    def add(self, origin: Origin, groups: pl.DataFrame) -> None:
        """Count rows of one origin that passed every rule, as `cash_flow.grouped` returns them."""
        counted = groups.group_by("gatewayId", "transactionType").agg(pl.col("rows").sum(), pl.col("_cents").sum())
        for gateway_id, direction, count, cents in counted.iter_rows():
            totals = Totals(count, cents)
            self._totals[origin] += totals
            self._directions[direction] += totals
            if origin is Origin.RELEASED:
                self._released[direction] += totals
            self._accounts[gateway_id] += totals

    def note(self, origin: Origin, numbers: pl.Series) -> None:
        """Add the numbers of rows that are counted, in file order, to the digest."""
        for start in range(0, len(numbers), _NOTED_AT_ONCE):
            self._rows[origin].update(array("I", numbers.slice(start, _NOTED_AT_ONCE).to_list()).tobytes())

    def hold_back(self, totals: Totals) -> None:
        """Count pending rows that fail today's rules, by the cents that the ledger has for them."""
        self._held_back += totals

    def finish(self) -> ToSend:
        """Return what was counted."""
        return ToSend(
            new=self._totals[Origin.NEW],
            pending=self._totals[Origin.PENDING],
            released=self._totals[Origin.RELEASED],
            held_back=self._held_back,
            by_direction=_not_empty(self._directions),
            released_by_direction=_not_empty(self._released),
            by_account=_not_empty(self._accounts),
            rows_digest=hashlib.sha256(b"".join(rows.digest() for rows in self._rows.values())).hexdigest(),
        )


def _not_empty(totals: Mapping[str, Totals]) -> dict[str, Totals]:
    """Drop totals from which all rows were subtracted."""
    return {name: one for name, one in totals.items() if one.rows}
