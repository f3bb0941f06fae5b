"""Rows of a known batch that an earlier call rejected: they stay rejected until a person releases them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from batchpay.ledger.contract import Ledger
from batchpay.payment import Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.options import RuleOptions

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary

REJECTED_BEFORE = ("row", "rejected_before")
"""Column and code under which such a row stays rejected, though it passes today's rules."""


def how_to_release(rules: RuleOptions) -> str:
    """Return the options that send what is valid now: with those of this check, without which it may fail again."""
    options = ["--release"]
    if rules.allow_duplicates:
        options.append("--allow-duplicates")
    if rules.allow_open_ended:
        options.append("--allow-open-ended")
    if rules.normalize:
        options.append("--normalize")
    if rules.accept_suggestions:
        is_all = rules.accept_suggestions == suggesting_rules()
        options.append("--accept-suggestions" + ("" if is_all else f"={','.join(sorted(rules.accept_suggestions))}"))
    if rules.as_of != datetime.now().astimezone().date():
        options.append(f"--as-of {rules.as_of}")
    return " ".join([*options, "--reason TEXT"])


class RejectedEarlier:
    """The rejected rows of a batch, as in the ledger."""

    def __init__(self, ledger: Ledger, batch: BatchSummary) -> None:
        self.ledger, self.batch = ledger, batch.batch
        self.since = batch.registered_at
        self._was_purged = batch.purged_at is not None
        found = [(row.row, row.amount_cents, ", ".join(row.reasons)) for row in ledger.rejected(batch.batch)]
        schema = {"_row": pl.UInt32, "_rejected_cents": pl.Int64, "_reasons": pl.String}
        self._rows = pl.DataFrame(found, schema=schema, orient="row")

    @property
    def rows(self) -> pl.Series:
        """Return their numbers, in file order."""
        return self._rows["_row"]

    def among(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return those of these rows that were rejected, in their order."""
        return frame.join(self._rows.select("_row"), on="_row", how="semi", maintain_order="left")

    def days_until(self, now: datetime, days: int) -> int:
        """Return how far back earlier payments are looked up: to `days` before the batch was registered."""
        return days + max(0, (now - self.since).days + 1)

    def releasable(self, rows: pl.Series, cents: pl.Series) -> tuple[pl.Series, Totals]:
        """Return which of these rows, all rejected earlier and valid now, could be released, and their totals.

        A row whose amount differs from when it was rejected is another payment: it can't be released. Nor can one of a
        batch that was purged.
        """
        stored = pl.DataFrame({"_row": rows}).join(self._rows, on="_row", how="left", maintain_order="left")
        same = (stored["_rejected_cents"] == cents) & (not self._was_purged)
        return same, Totals(int(same.sum()), int(cents.filter(same).sum()))

    def failures(self, rows: pl.Series) -> dict[int, tuple[str, str, str]]:
        """Return for rows that are not released why they are not sent: column, code and message."""
        reasons = pl.DataFrame({"_row": rows}).join(self._rows, on="_row", how="left", maintain_order="left")
        return {
            row: (*REJECTED_BEFORE, f"an earlier submission rejected this row ({why}), and nobody has released it")
            for row, why in reasons.select("_row", "_reasons").iter_rows()
        }


def days_back(frame: pl.DataFrame, days: int, rejected: RejectedEarlier | None) -> Iterator[tuple[pl.DataFrame, int]]:
    """Yield rows and how far back they are compared: those rejected earlier, to before their registration."""
    if rejected is None:
        yield frame, days
        return
    yield frame.filter(~pl.col("_row").is_in(rejected.rows.implode())), days
    yield rejected.among(frame), rejected.days_until(datetime.now(UTC), days)
