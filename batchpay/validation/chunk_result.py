"""What the rules find in some rows of a file, and what is passed on: totals, rejects, the ledger's reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from batchpay.schemas.columns import BARE_ROW, CELL_MARKS, CORRECTED, ROW_MARKS
from batchpay.validation.compiled_rules import Findings, Violation, messages, reasons
from batchpay.validation.suggestions import suggestions


@dataclass(frozen=True, slots=True, eq=False)
class ChunkResult:
    """Some rows of a file, in row order, with everything the rules find in them."""

    findings: Findings
    """The rows as the rules see them (for proven rows: the columns that are counted and compared), and what each
    breaks."""
    passed: pl.Series
    """Which of the rows passed; of rows that came back because of something elsewhere, which had passed before."""
    cents: pl.Series
    """Null where the amount can't be read."""
    as_read: pl.DataFrame | None = None
    """The rows before any repair; None where none of them can have failed."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """Cells that were repaired, by column."""
    accepted: Mapping[str, int] = field(default_factory=dict)
    """Cells that took the suggested value, by rule."""
    late: Sequence[Violation] = ()
    """What the rows break because of something elsewhere; included in the findings, too."""

    @property
    def may_fail(self) -> bool:
        """Whether any of the rows can have failed."""
        return self.as_read is not None

    @property
    def fails_now(self) -> pl.Series:
        """Which of the rows had passed, and fail because of something elsewhere."""
        return self.passed & self.findings.broken(errors=True)

    @property
    def rows(self) -> pl.DataFrame:
        """The rows as the rules see them, without the marks of a file reader."""
        return without_marks(self.findings.rows)

    def rejects(self) -> pl.DataFrame:
        """Return the rows that failed, as read, with `_errors`, `_warnings` and `_suggestions`.

        A suggestion that was accepted appears there as `column: old -> new`.
        """
        assert self.as_read is not None, "a row that fails is kept as it was read"
        failed = self.findings.broken(errors=True)
        findings = self.findings.only(failed)
        return without_marks(self.as_read.filter(failed)).with_columns(
            messages(findings, errors=True).alias("_errors"),
            messages(findings, errors=False).alias("_warnings"),
            _with_accepted(findings).alias("_suggestions"),
        )

    def rejected(self) -> pl.DataFrame:
        """Return `_row`, `_line`, `_cents` and `_reasons` of the rows that failed."""
        failed = self.findings.broken(errors=True)
        findings = self.findings.only(failed)
        return findings.rows.select("_row", "_line").with_columns(
            self.cents.filter(failed).fill_null(0).alias("_cents"), reasons(findings).alias("_reasons")
        )


def _with_accepted(findings: Findings) -> pl.Series:
    suggested = suggestions(findings)
    if CORRECTED not in findings.rows.columns:
        return suggested
    both = pl.concat_str(pl.col(CORRECTED), pl.lit(suggested), separator="; ", ignore_nulls=True)
    text = findings.rows.select(both).to_series()
    return text.set(text == "", None)


def without_marks(frame: pl.DataFrame, *, keep: str = "") -> pl.DataFrame:
    """Drop the marks of a file reader, except the flag to `keep`."""
    marks = {*ROW_MARKS, BARE_ROW} - {keep}
    return frame.drop(name for name in frame.columns if name in marks or name.startswith(CELL_MARKS))
