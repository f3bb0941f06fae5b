"""Rows that fail because of something elsewhere: in the same file, or in an earlier batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from batchpay.schemas.catalogue import PAYMENT_ID_DUPLICATE, ROW_DUPLICATE, ROW_SAME_PAYMENT, RuleFacts
from batchpay.schemas.options import RuleOptions
from batchpay.validation.compiled_rules import Violation, row_violation
from batchpay.validation.duplicates import FrameSpool, Repeats, bits_of

Late = tuple[str, str, str]
"""Column, code and message of a failure that was found outside the rules."""


@dataclass(frozen=True, slots=True, eq=False)
class InFile:
    """A rule that rows break because they are not unique in their file."""

    facts: RuleFacts
    rows: pl.DataFrame
    """`_row`, and the columns that `message` reads: messages are made for some rows at a time."""
    message: pl.Expr


class LateRows:
    """Rows that fail, or get a warning, because of something elsewhere: in the same file, or in an earlier batch."""

    def __init__(self, rows: int, in_file: Sequence[InFile], elsewhere: Mapping[int, Late]) -> None:
        self._in_file, self._elsewhere = in_file, elsewhere
        late = pl.Series([*elsewhere], dtype=pl.UInt32)
        self._bits = bits_of(rows, pl.concat([late, *(one.rows["_row"] for one in in_file)]))
        self.any = bool(self._bits.any())

    def among(self, rows: pl.Series) -> pl.Series:
        """Return which of these rows are late."""
        return self._bits.gather(rows - 1)

    def violations(self, rows: pl.Series) -> list[Violation]:
        """Return the violations of these rows."""
        violations = []
        for one in self._in_file:
            found = one.rows.filter(pl.col("_row").is_between(rows.min(), rows.max())).select(
                "_row", message=one.message
            )
            messages = rows.to_frame("_row").join(found, on="_row", how="left", maintain_order="left")["message"]
            violations.append(row_violation(one.facts, messages))
        late = [self._elsewhere.get(row) for row in rows.to_list()] if self._elsewhere else []
        for column, code in sorted({(one[0], one[1]) for one in late if one}):
            texts = [one[2] if one and one[:2] == (column, code) else None for one in late]
            messages = pl.Series(texts, dtype=pl.String)
            violations.append(row_violation(RuleFacts(column, code, "error", "H", "", ""), messages))
        return [violation for violation in violations if violation.flag.any()]


def late_in_file(repeats: Repeats, options: RuleOptions) -> list[InFile]:
    """List the rules that rows break because they are not unique in their file."""
    first = pl.concat_str(pl.lit("is the same bill as "), "_place", pl.lit(" of this file"))
    rows = repeats.payment_ids.to_frame("_row")
    found = [InFile(PAYMENT_ID_DUPLICATE, rows, pl.lit(PAYMENT_ID_DUPLICATE.message))]
    if not options.allows_repeated_bills:
        # An invoice number always helps; a paymentId no longer does once the first row was sent without one.
        due = "take it out, or if both are due give it an invoice number of its own"
        due += ", or submit it with --allow-duplicates --reason TEXT"
        message = pl.concat_str(first, pl.lit(f" (account, direction, amount, invoice number), {due}"))
        found.append(InFile(ROW_DUPLICATE, repeats.bills.filter(~pl.col("named")), message))
    if ROW_SAME_PAYMENT.name not in options.rules_off:
        message = pl.concat_str(first, pl.lit(" under another paymentId, make sure that both are due"))
        severity = "error" if options.warnings_as_errors else "warning"
        found.append(InFile(replace(ROW_SAME_PAYMENT, severity=severity), repeats.bills.filter("named"), message))
    return found


def merged(rejected: FrameSpool, late: FrameSpool) -> Iterator[pl.DataFrame]:
    """Merge rows that were rejected late with the others, in row order; a late one has all reasons of its row."""
    later = _Waiting(late)
    for frame in rejected:
        among = later.up_to(int(frame["_row"].to_list()[-1]))
        yield frame.join(among, on="_row", how="anti").vstack(among).sort("_row") if among.height else frame
    yield from later.rest()


class _Waiting:
    """Frames in row order, taken up to a given row at a time."""

    def __init__(self, frames: FrameSpool) -> None:
        self._frames = iter(frames)
        self._next = next(self._frames, None)

    def up_to(self, row: int) -> pl.DataFrame:
        """Take the rows up to and including this one."""
        taken = pl.DataFrame()
        while self._next is not None:
            within = self._next.filter(pl.col("_row") <= row)
            beyond = self._next.filter(pl.col("_row") > row)
            taken = taken.vstack(within) if taken.width else within
            self._next = beyond if beyond.height else next(self._frames, None)
            if beyond.height:
                break
        return taken

    def rest(self) -> Iterator[pl.DataFrame]:
        """Take what is left."""
        if self._next is not None:
            yield self._next
            yield from self._frames
