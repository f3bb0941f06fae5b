"""What the ledger's history finds odd about the payees of a file's rows, and what a person is told of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from batchpay.approval.anomalies import Anomalies, Variance, variances
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, State
from batchpay.registration import request_body

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


@dataclass(frozen=True, slots=True)
class PayeeLook:
    """Earlier payments of an environment, to hold payees, accounts and amounts against."""

    history: Ledger
    environment: Environment
    exclude_digest: bytes | None
    """A content whose own payments don't count: going on with a batch must not find itself.

    None where it is paid once more: whoever was paid by it before is no new payee.
    """

    def odd(self, frame: pl.DataFrame, but: Collection[int]) -> list[Variance]:
        """Find what is odd about rows that passed, those of `but` left out."""
        columns = request_body.payee_columns(self.history, frame)
        found = variances(self.history, columns, self.environment, exclude_digest=self.exclude_digest)
        return [one for one in found if one.row not in but]


def payee_look(
    history: Ledger | None, environment: Environment, digest: bytes, again: BatchSummary | None, *, others: bool
) -> PayeeLook | None:
    """Say against whose payments payees are held; None where there are none, for then everybody would be new.

    `again` is the batch of this content that is paid once more, `others` whether there are batches of other contents.
    """
    if history is None or not (others or (again is not None and again.by_state[State.ACCEPTED].rows)):
        return None
    return PayeeLook(history, environment, None if again else digest)


def with_names(anomalies: Anomalies, odd: list[Variance], frame: pl.DataFrame) -> list[Variance]:
    """Count what is odd about a chunk of rows, and say of the first ones whom and what they are about."""
    for code in {one.code for one in odd}:
        anomalies.add_up(code, request_body.flow_of(frame, [one.row for one in odd if one.code == code]))
    named = anomalies.to_name(odd)
    return anomalies.add(odd, request_body.payments_named(frame, [one.row for one in named]))
