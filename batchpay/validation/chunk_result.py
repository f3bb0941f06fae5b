"""What the rules say of some rows of a file, and what of it goes on: totals, rejects, the ledger's reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from batchpay.schemas.columns import CELL_MARKS, CORRECTED, READ_FLAGS, ROW_MARKS
from batchpay.validation.compiled_rules import Findings, Hit, messages, reasons
from batchpay.validation.suggestions import suggestions


@dataclass(frozen=True, slots=True, eq=False)
class ChunkResult:
    """Some rows of a file, in row order, with all that the rules say of them."""

    findings: Findings
    """The rows as the rules see them (rows that are proven: the columns that are counted and compared), and what each
    breaks."""
    passed: pl.Series
    """Which of the rows passed; of rows that came back for what stands elsewhere, which had passed before."""
    cents: pl.Series
    """Null where the amount can't be read."""
    as_read: pl.DataFrame | None = None
    """The rows before any repair; None where none of them can have failed."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """Cells that were repaired, by column."""
    accepted: Mapping[str, int] = field(default_factory=dict)
    """Cells that became what was suggested, by rule."""
    late: Sequence[Hit] = ()
    """What the rows break for what stands elsewhere; among the findings, too."""

    @property
    def may_fail(self) -> bool:
        """Whether any of the rows can have failed."""
        return self.as_read is not None

    @property
    def fails_now(self) -> pl.Series:
        """Which of the rows had passed, and fail for what stands elsewhere."""
        return self.passed & self.findings.broken(errors=True)

    @property
    def rows(self) -> pl.DataFrame:
        """The rows as the rules see them, without what a reader of files has marked."""
        return without_marks(self.findings.rows)

    def rejects(self) -> pl.DataFrame:
        """Give the rows that failed, as read, with `_errors`, `_warnings` and `_suggestions`.

        A suggestion that was accepted stands there as `column: old -> new`.
        """
        assert self.as_read is not None, "a row that fails is there as it was read"
        failed = self.findings.broken(errors=True)
        findings = self.findings.only(failed)
        return without_marks(self.as_read.filter(failed)).with_columns(
            messages(findings, errors=True).alias("_errors"),
            messages(findings, errors=False).alias("_warnings"),
            _with_accepted(findings).alias("_suggestions"),
        )

    def rejected(self) -> pl.DataFrame:
        """Give `_row`, `_line`, `_cents` and `_reasons` of the rows that failed."""
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


def without_marks(frame: pl.DataFrame, *, but: str = "") -> pl.DataFrame:
    """Leave out what a reader of files has marked, all `but` one flag."""
    marks = {*ROW_MARKS, *READ_FLAGS} - {but}
    return frame.drop(name for name in frame.columns if name in marks or name.startswith(CELL_MARKS))
