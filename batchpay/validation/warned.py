"""Warnings of rows that go on, on their way to the ledger.

They are kept compressed: a file may have one in every row.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from batchpay.schemas.columns import WARNED
from batchpay.validation.compiled_rules import Findings, messages
from batchpay.validation.rejects import packed, unpacked


class Warned:
    """Warnings by row, added in whatever order they are found."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int, bytes]] = []
        """First and last row of each, and its warnings: `_row`, WARNED."""

    def add(self, rows: pl.Series, texts: pl.Series) -> None:
        """Add `column: code: message; column: code: message` for rows, at least one."""
        piece = pl.DataFrame({"_row": rows.cast(pl.UInt32), WARNED: texts})
        self._pieces.append(
            (*piece.select(first=pl.col("_row").min(), last=pl.col("_row").max()).row(0), packed(piece))
        )

    def add_findings(self, findings: Findings, passed: pl.Series) -> None:
        """Add the warnings of those rows that passed."""
        kept = findings.only(passed & findings.broken(errors=False))
        if kept.rows.height and kept.violations:
            self.add(kept.rows["_row"], messages(kept, errors=False))

    def among(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows that are in row order with their warnings, null where a row has none."""
        first, last = (frame["_row"][0], frame["_row"][-1]) if frame.height else (0, 0)
        pieces = [unpacked(data) for low, high, data in self._pieces if low <= last and first <= high]
        if not pieces:
            return frame
        of_row = pl.concat(pieces).group_by("_row", maintain_order=True).agg(pl.col(WARNED).str.join("; "))
        return frame.join(of_row, on="_row", how="left", maintain_order="left")

    def codes(self) -> Iterator[tuple[int, str]]:
        """Yield rows with the `column.code` of their warnings."""
        for _, _, data in self._pieces:
            for row, text in unpacked(data).iter_rows():
                yield row, " ".join(".".join(one.split(": ", 2)[:2]) for one in text.split("; "))
