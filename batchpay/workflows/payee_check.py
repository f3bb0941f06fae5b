"""Comparing a file's payees, accounts and amounts with the ledger's earlier payments, a chunk at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.anomalies import Anomalies, Variance, payments_named, variances
from batchpay.approval.cash_flow import flow_of
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, State

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.ledger.records import BatchSummary


class FirstSeen:
    """On which day the ledger registered the first payment that each row's payee accepted to its account."""

    def __init__(self) -> None:
        self._days: dict[datetime | None, int] = {}
        self._places: list[pl.DataFrame] = []

    def add(self, rows: Sequence[int], moments: Sequence[datetime | None]) -> None:
        """Add rows in their order; None for an account that is new."""
        places = [self._days.setdefault(moment, len(self._days)) for moment in moments]
        self._places.append(pl.DataFrame({"_row": rows, "_place": places}, {"_row": pl.UInt32, "_place": pl.UInt32}))

    def of(self, rows: pl.Series) -> pl.Series:
        """Return days as texts, `new` for a new account, null for rows that nothing was compared with."""
        if not self._places:
            return pl.Series([None] * len(rows), dtype=pl.String)
        found = rows.to_frame("_row").join(pl.concat(self._places), on="_row", how="left", maintain_order="left")
        days = ["new" if moment is None else f"{moment.astimezone():%m/%d/%Y}" for moment in self._days]
        return pl.Series(days).gather(found["_place"])


@dataclass(frozen=True, slots=True)
class PayeeCheck:
    """Earlier payments of an environment, to compare payees, accounts and amounts with."""

    history: Ledger
    environment: Environment
    exclude_digest: bytes | None
    """A content whose own payments don't count: a batch that is continued must not find itself.

    None if it is paid once more: whoever was paid by it before is not a new payee.
    """
    first_above_cents: int | None = None
    """The first payment of a payee above this is a warning of its own."""
    seen: FirstSeen | None = None
    """Gets all rows, if anyone will see it."""

    def unusual(self, frame: pl.DataFrame, but: Collection[int]) -> list[Variance]:
        """Find what is unusual about rows that passed, except those of `but`."""
        from batchpay.registration.digests import payee_columns  # only where there are earlier payments

        columns, since = payee_columns(self.history, frame), None if self.seen is None else list[datetime | None]()
        found = variances(
            self.history,
            columns,
            self.environment,
            exclude_digest=self.exclude_digest,
            first_above_cents=self.first_above_cents,
            since=since,
        )
        if self.seen is not None and since is not None:
            self.seen.add(columns.rows, since)
        return [one for one in found if one.row not in but]


def payee_check(
    history: Ledger | None, environment: Environment, digest: bytes, again: BatchSummary | None, *, others: bool
) -> PayeeCheck | None:
    """Return the payments that payees are compared with; None if there are none: then every payee would be new.

    `again` is the batch of this content that is paid once more, `others` whether there are batches of other contents.
    """
    if history is None or not (others or (again is not None and again.by_state[State.ACCEPTED].rows)):
        return None
    return PayeeCheck(history, environment, None if again else digest)


def with_names(anomalies: Anomalies, unusual: list[Variance], frame: pl.DataFrame) -> list[Variance]:
    """Count what is unusual about a chunk of rows, and for the first ones add which payee and payment it concerns."""
    for code in {one.code for one in unusual}:
        anomalies.add_up(code, flow_of(frame, [one.row for one in unusual if one.code == code]))
    named = anomalies.to_name(unusual)
    return anomalies.add(unusual, payments_named(frame, [one.row for one in named]))
