"""The rows of a known batch that an earlier call rejected: they stay rejected until a person releases them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from batchpay.ledger.columns import CANCELLED, RELEASED_BY_NAME
from batchpay.ledger.contract import Ledger
from batchpay.payment import Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.checks import as_date
from batchpay.schemas.columns import PAY_ON
from batchpay.schemas.rule import RuleOptions
from batchpay.text import money, row_count
from batchpay.workflows.days import OF_REGISTRATION

if TYPE_CHECKING:  # a check does not load what a run records
    from batchpay.ledger.records import BatchSummary

REJECTED_BEFORE = ("row", "rejected_before")
"""Column and code under which such a row stays rejected, though it passes today's rules."""


def how_to_release(rules: RuleOptions, today: date) -> str:
    """Return the options that send what is valid now: with those of this check, without which it may fail again.

    `today` is the ledger's day.
    """
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
    if rules.as_of != today:
        options.append(f"--as-of {rules.as_of}")
    return " ".join([*options, "--reason TEXT"])


@dataclass(slots=True)
class Releasable:
    """Rows that an earlier call rejected and that are valid now, as far as was checked."""

    totals: Totals = Totals()
    """What a release adds."""
    cancelled: int = 0
    """Those of them that a person cancelled."""
    by_name: list[int] = field(default_factory=list)
    """Others that a release must name, and that this call doesn't."""
    day: date | None = None
    """The ledger's today; None if nothing could be released."""

    def notes(self, rules: RuleOptions, *, released: bool, accounts_asked: bool) -> list[str]:
        """Describe what a release would do; without the gateway's answer on the accounts, sending is not certain."""
        notes, how = [], how_to_release(rules, self.day or rules.as_of)
        if self.totals.rows and not released:
            is_one = self.totals.rows == 1
            found = f"{row_count(self.totals.rows)}, {money(self.totals.cents)}, that an earlier submission rejected"
            if self.cancelled:
                found += f" or a person cancelled ({row_count(self.cancelled)})"
            passes = "passes" if is_one else "pass"
            notes.append(
                f"{found} {'is' if is_one else 'are'} valid now: submit {how} sends them"
                if accounts_asked
                else f"{found} {passes} the rules now: submit {how} would check them again, accounts as well"
            )
        if self.by_name:
            how = how.replace("--release", f"--release --rows {','.join(map(str, self.by_name[:_NAMED]))}")
            waits = "waits" if len(self.by_name) == 1 else "wait"
            notes.append(f"{row_count(len(self.by_name))} {waits} for a person, released by name alone: submit {how}")
        return notes


_NAMED = 20
"""This many rows that a release must name are named in a note; the rejects have all of them."""


class RejectedEarlier:
    """The rejected rows of a batch, as in the ledger."""

    def __init__(
        self, ledger: Ledger, batch: BatchSummary, released_by_name: Collection[str] = RELEASED_BY_NAME
    ) -> None:
        self.ledger, self.batch = ledger, batch.batch
        self.since = batch.registered_at
        self._was_purged = batch.purged_at is not None
        rejected = list(ledger.rejected(batch.batch))
        self.by_name = {one.row for one in rejected if one.reasons and {*one.reasons} <= {*released_by_name}}
        found = [(row.row, row.amount_cents, ", ".join(row.reasons)) for row in rejected]
        schema = {"_row": pl.UInt32, "_rejected_cents": pl.Int64, "_reasons": pl.String}
        self._rows = pl.DataFrame(found, schema=schema, orient="row")

    @property
    def rows(self) -> pl.Series:
        """Return their numbers, in file order."""
        return self._rows["_row"]

    def off_days(self, rows: pl.DataFrame, rules: RuleOptions, days: int) -> pl.DataFrame:
        """Return those of these rows that were rejected for their day, and can't be registered today either.

        What is registered keeps its day (`rules.pay_on_days` is None); that lets no other row through.
        """
        if rules.pay_on_days is not None:
            return rows.clear()
        of_day = self._rows.filter(pl.col("_reasons").str.contains("|".join(map(re.escape, OF_REGISTRATION))))["_row"]
        in_time = as_date(pl.col(PAY_ON)).is_between(rules.as_of, rules.as_of + timedelta(days=days))
        return rows.filter(~in_time & pl.col("_row").is_in(of_day.implode()))

    def among(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return those of these rows that were rejected, in their order."""
        return frame.join(self._rows.select("_row"), on="_row", how="semi", maintain_order="left")

    def days_until(self, now: datetime, days: int) -> int:
        """Return how far back earlier payments are looked up: to `days` before the batch was registered."""
        return days + max(0, (now - self.since).days + 1)

    def held(self, rows: pl.Series, cents: pl.Series, named: Collection[int] | None, found: Releasable) -> pl.Series:
        """Return which of these rows, all rejected earlier and valid now, no release frees; count the others.

        `named` are the rows that a release is for, or None for all but those that it must name.

        A row whose amount differs from when it was rejected is another payment: it can't be released. Nor can one of a
        batch that was purged.
        """
        stored = pl.DataFrame({"_row": rows}).join(self._rows, on="_row", how="left", maintain_order="left")
        same = (stored["_rejected_cents"] == cents).fill_null(value=False) & (not self._was_purged)
        by_name = rows.is_in(list(self.by_name))
        is_meant = ~by_name if named is None else rows.is_in(list(named))
        released = same & is_meant
        found.totals += Totals(int(released.sum()), int(cents.filter(released).sum()))
        found.cancelled += int((stored["_reasons"].filter(released) == CANCELLED).sum())
        found.by_name += rows.filter(same & by_name & ~is_meant).to_list()
        found.day = self.ledger.today()
        return rows.filter(~released)

    def failures(self, rows: pl.Series) -> dict[int, tuple[str, str, str]]:
        """Return for rows that are not released why they are not sent: column, code and message."""
        reasons = pl.DataFrame({"_row": rows}).join(self._rows, on="_row", how="left", maintain_order="left")
        return {
            row: (
                *REJECTED_BEFORE,
                f"a person cancelled this row ({why}), submit it again only if it must be paid after all"
                if why == CANCELLED
                else f"this row waits for a person ({why}), who releases it by name: --release --rows {row} "
                "--reason TEXT"
                if row in self.by_name
                else f"an earlier submission rejected this row ({why}), and nobody has released it",
            )
            for row, why in reasons.select("_row", "_reasons").iter_rows()
        }


def days_back(frame: pl.DataFrame, days: int, rejected: RejectedEarlier | None) -> Iterator[tuple[pl.DataFrame, int]]:
    """Yield rows and how far back they are compared: those rejected earlier, to before their registration."""
    if rejected is None:
        yield frame, days
        return
    yield frame.filter(~pl.col("_row").is_in(rejected.rows.implode())), days
    yield rejected.among(frame), rejected.days_until(rejected.ledger.now(), days)
