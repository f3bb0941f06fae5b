"""What the rules find in some rows of a file, and what is passed on: totals, rejects, the ledger's reasons.

A rule knows what would satisfy that rule alone: white space removed, a dollar sign left out. `--accept-suggestions`
applies these rule by rule, and a corrected row is judged like any other. A user is offered only the end result: it
keeps every rule of its cell, or is not offered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from batchpay.schemas.columns import BARE_ROW, CELL_MARKS, COLUMNS, CORRECTED, FAULT, ROW_MARKS, SUGGEST
from batchpay.schemas.rule import Rule
from batchpay.validation.compiled_rules import Findings, RuleBook, Texts, Violation, joined, messages, reasons

PASSES = 3
"""A cell may be wrong in several ways, reported one at a time: white space first, then how it is written."""


def suggested(findings: Findings, violation: Violation) -> Texts:
    """Return what satisfies this rule for each row that breaks it, where that is certain."""
    broken = violation.flag.arg_true()
    reads = set() if violation.suggestion is None else set(violation.suggestion.meta.root_names())
    if violation.suggestion is None or not reads <= set(findings.rows.columns):
        return Texts(broken.clear(), pl.Series(dtype=pl.String))
    return _certain(broken, findings.rows.select(reads)[broken].select(violation.suggestion).to_series())


def offered(findings: Findings, violation: Violation) -> Texts:
    """Return the right value for each row that breaks the rule, where that is certain."""
    places, values = suggested(findings, violation)
    if places.is_empty():
        return Texts(places, values)
    expressions = [
        expression
        for rule in violation.of_cell
        for expression in (rule.fails, rule.suggestion)
        if expression is not None
    ]
    reads = {violation.column}.union(*(expression.meta.root_names() for expression in expressions))
    rows = findings.rows.select(reads)[places].with_columns(values.alias(violation.column))
    step = pl.coalesce(
        [_next(rule) for rule in violation.of_cell if rule.suggestion is not None] + [pl.col(violation.column)]
    )
    fails = pl.any_horizontal(pl.col(violation.column).is_null(), *map(_fails, violation.of_cell))
    is_wrong = rows.select(fails).to_series()
    for _ in range(PASSES - 1):
        if not is_wrong.any():
            break
        rows = rows.with_columns(step.alias(violation.column))
        is_wrong = rows.select(fails).to_series()
    return Texts(places.filter(~is_wrong), rows[violation.column].filter(~is_wrong))


def suggestions(findings: Findings) -> pl.Series:
    """`column: value; column: value` for each row of the findings where the right value is certain, else null."""
    found = [(violation.column, offered(findings, violation)) for violation in findings.violations]
    return joined(findings, [Texts(right.places, f"{name}: " + right.texts) for name, right in found], "; ")


def _certain(places: pl.Series, values: pl.Series) -> Texts:
    is_certain = values.is_not_null()
    return Texts(places.filter(is_certain), values.filter(is_certain))


def _next(rule: Rule) -> pl.Expr:
    """Return what satisfies a rule, where the cell breaks it and that is certain."""
    return pl.when(_fails(rule)).then(rule.suggestion)


def _fails(rule: Rule) -> pl.Expr:
    return rule.fails.fill_null(value=False)


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


def correct(
    as_read: pl.DataFrame, frame: pl.DataFrame, book: RuleBook, accepted: frozenset[str]
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Replace cells that break one of these rules (`column.code`) by suggestions; also return counts by rule.

    `frame` is what was read, with all known columns, repaired on request. Changed rows say so in `CORRECTED`:
    `column: old -> new; column: old -> new`, the old text as read.
    """
    repaired, counts, columns = frame, dict[str, int](), set[str]()
    for _ in range(PASSES):
        unproven = book.prove(frame).unproven
        findings = book.judge(frame.filter(unproven))
        places, changed = unproven.arg_true(), dict[str, pl.Series]()
        for violation in findings.violations:
            if not (violation.is_error and violation.name in accepted) or violation.column in changed:
                continue
            among, values = suggested(findings, violation)
            if len(among):
                where = places.gather(among)
                counts[violation.name] = counts.get(violation.name, 0) + len(where)
                changed[violation.column] = frame[violation.column].scatter(where, values)
                marks = [
                    name for name in (FAULT + violation.column, SUGGEST + violation.column) if name in frame.columns
                ]
                changed |= {name: frame[name].scatter(where, None) for name in marks}
        if not changed:
            break
        columns |= changed.keys() & set(COLUMNS)
        frame = frame.with_columns(column.alias(name) for name, column in changed.items())
    changes = [_changed(as_read[name], repaired[name], frame[name]) for name in COLUMNS if name in columns]
    text = pl.select(pl.concat_str(changes, separator="; ", ignore_nulls=True)).to_series() if changes else None
    noted = pl.lit(None, pl.String) if text is None else pl.lit(text.set(text == "", None))
    return frame.with_columns(noted.alias(CORRECTED)), counts


def _changed(old: pl.Series, repaired: pl.Series, new: pl.Series) -> pl.Expr:
    text = pl.concat_str(pl.lit(f"{old.name}: "), pl.lit(old), pl.lit(" -> "), pl.lit(new))
    return pl.when(pl.lit(repaired.ne_missing(new))).then(text)
