"""What is unusual about the payees of a file's rows by the ledger's history, and how it is reported to a person."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.anomalies import Anomalies, Variance, payments_named, variances
from batchpay.approval.cash_flow import flow_of
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, State

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


@dataclass(frozen=True, slots=True)
class PayeeCheck:
    """Earlier payments of an environment, to compare payees, accounts and amounts with."""

    history: Ledger
    environment: Environment
    exclude_digest: bytes | None
    """A content whose own payments don't count: a batch that is continued must not find itself.

    None if it is paid once more: whoever was paid by it before is not a new payee.
    """

    def unusual(self, frame: pl.DataFrame, but: Collection[int]) -> list[Variance]:
        """Find what is unusual about rows that passed, except those of `but`."""
        from batchpay.registration.digests import payee_columns  # only where there are earlier payments

        columns = payee_columns(self.history, frame)
        found = variances(self.history, columns, self.environment, exclude_digest=self.exclude_digest)
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
