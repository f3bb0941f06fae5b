"""What the rules find in some rows of a file, and the verdict on all of it: counts, totals, the first failures.

A rule knows what would satisfy that rule alone: white space removed, a dollar sign left out. `--accept-suggestions`
applies these rule by rule, and a corrected row is judged like any other. A user is offered only the end result: it
keeps every rule of its cell, or is not offered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from batchpay.payment import Direction, Totals
from batchpay.schemas.columns import BARE_ROW, CELL_MARKS, COLUMNS, CORRECTED, FAULT, ROW_MARKS, SUGGEST
from batchpay.schemas.rule import Rule
from batchpay.text import row_count
from batchpay.validation.compiled_rules import (
    Findings,
    RuleBook,
    Texts,
    Violation,
    any_of,
    constant_mask,
    joined,
    messages,
    reasons,
)

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


FAILURES_MAX = 1000
FIRST_MAX = 5
"""The first warnings of each kind are kept in any case, so that a common one hides no other."""
_LOST_ZERO = ("achRoutingNumber.format", "achRoutingNumber.leading_zero")
"""Rules broken by a routing number that a spreadsheet took for a number; a suggestion restores the zero."""
_LOST_ZEROS = (
    "{} the routing number has lost its leading zero, as in a spreadsheet: account numbers of the file may have lost "
    "theirs, and nothing shows it; compare them with the papers, or export the file anew with both columns as text"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One broken rule of one row."""

    row: int
    line: int | None
    column: str
    code: str
    severity: str
    message: str
    suggestion: str | None
    """The right value, where it is certain."""

    @property
    def name(self) -> str:
        """`column.code`."""
        return f"{self.column}.{self.code}"

    def as_json(self) -> dict[str, Any]:
        """Return it as CONTRACT.md says; the list in which it stands tells its severity."""
        return {
            "row": self.row,
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "message": self.message,
            "suggestion": self.suggestion,
        }


@dataclass(slots=True)
class Verdict:
    """Counts, totals and first failures of a whole file."""

    rows: int = 0
    total: Totals = Totals()
    valid: Totals = Totals()
    rejected: Totals = Totals()
    by_direction: dict[str, Totals] = field(default_factory=lambda: {name.value: Totals() for name in Direction})
    """Totals of the valid rows, by DEBIT and CREDIT."""
    currencies: dict[str, Totals] = field(default_factory=dict)
    """Totals of the valid rows by currency."""
    unreadable_amounts: int = 0
    """Rows whose amount counts as 0 in the totals because it can't be read."""
    lost_zeros: int = 0
    """Rows whose routing number lacks its leading zero, corrected or not."""
    warnings: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Errors by `column.code`."""
    warning_counts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    """The first errors, in row order."""
    warning_failures: list[Failure] = field(default_factory=list)
    """The first warnings, and the first of each kind, in row order."""
    repairs: dict[str, int] = field(default_factory=dict)
    """Cells that `--normalize` changed, by column."""
    accepted: dict[str, int] = field(default_factory=dict)
    """Cells that `--accept-suggestions` changed, by rule."""
    passed: pl.Series = field(default_factory=lambda: pl.Series("passed", dtype=pl.Boolean))
    """One bit per row: whether it passed; available once the file was read."""
    failures_max: int = FAILURES_MAX
    """How many errors, and how many warnings, are kept."""
    _failed: list[pl.Series] = field(default_factory=list, repr=False)

    def note_on_cells(self) -> str | None:
        """Warn that an amount may be part of another cell: `1,000.00` without quotation marks reads as 1."""
        unsure = sum(self.counts.get(name, 0) for name in ("row.ragged", "row.quotation"))
        if not unsure:
            return None
        return f"in {row_count(unsure)} it is not certain where the cells end: the amount counted may be another"

    def note_on_zeros(self) -> str | None:
        """Warn that accounts may be wrong, where routing numbers have lost their zeros and no account is an error yet.

        No cell of a CSV saved by a spreadsheet shows it; in a workbook such accounts are errors already.
        """
        if not self.lost_zeros or "achAccountNumber.numeric_account" in self.counts:
            return None
        return _LOST_ZEROS.format(f"in {row_count(self.lost_zeros)}")

    def rejected_mask(self, rows: pl.Series) -> pl.Series:
        """Return for each of these row numbers whether it failed a rule."""
        return ~self.passed.gather(rows - 1)

    def add(self, result: ChunkResult) -> None:
        """Count rows as they are read."""
        cents, findings = result.cents, result.findings
        _add(self.repairs, result.repairs)
        _add(self.accepted, result.accepted)
        self.unreadable_amounts += cents.null_count()
        self.lost_zeros += _lost_zeros(result)
        self._count(findings, findings.violations)
        is_debit = findings.rows["transactionType"] == Direction.DEBIT
        total = valid = _totals(cents)
        if result.may_fail:
            valid, is_debit = _totals(cents.filter(result.passed)), is_debit & result.passed
            self._add_currencies(result, result.passed)
        elif valid.rows:  # proven rows have a currencyCode in its form, which is USD
            self.currencies["USD"] = self.currencies.get("USD", Totals()) + valid
        debits = _totals(cents.filter(is_debit))
        self.rows += total.rows
        self.total += total
        self.valid += valid
        self.rejected += total - valid
        self.by_direction[Direction.DEBIT.value] += debits
        self.by_direction[Direction.CREDIT.value] += valid - debits
        if result.may_fail:
            self._failed.append(findings.rows["_row"].filter(~result.passed))

    def end(self, also_failed: pl.Series | Iterable[int] = ()) -> None:
        """Record, once all rows are counted, which of them passed; more rows may fail at any time."""
        if len(self.passed) != self.rows:
            self.passed = constant_mask(self.rows, value=True).alias("passed")
        late = also_failed if isinstance(also_failed, pl.Series) else pl.Series([*also_failed], dtype=pl.UInt32)
        rows = pl.concat([*self._failed, late])
        self._failed.clear()
        if len(rows):
            self.passed = self.passed.scatter(rows - 1, values=False)

    def add_late(self, result: ChunkResult) -> None:
        """Count again the rows that fail because of something elsewhere: those violations, and the rejected rows."""
        self._count(result.findings, result.late)
        directions = result.findings.rows["transactionType"]
        fails_now = result.fails_now
        for direction in Direction:
            moved = _totals(result.cents.filter(fails_now & (directions == direction)))
            self.rejected += moved
            self.valid -= moved
            self.by_direction[direction.value] -= moved
        self._add_currencies(result, fails_now, times=-1)

    def _add_currencies(self, result: ChunkResult, which: pl.Series, *, times: int = 1) -> None:
        """Count these rows by currency, or take them out again."""
        code = result.findings.rows["currencyCode"].fill_null("USD").alias("code")
        found = (
            pl.DataFrame([code, result.cents.alias("cents")])
            .filter(which)
            .group_by("code")
            .agg(pl.len(), pl.sum("cents"))
        )
        for name, rows, cents in found.iter_rows():
            self.currencies[name] = self.currencies.get(name, Totals()) + Totals(times * rows, times * cents)
        self.currencies = {name: totals for name, totals in self.currencies.items() if totals.rows}

    def add_warnings(self, found: Sequence[Failure]) -> None:
        """Count warnings that are not of the rules, and keep the first."""
        self.warnings += len(found)
        _add(self.warning_counts, Counter(one.name for one in found))
        self._keep_warnings(found)

    def leave_out(self, result: ChunkResult, rows: pl.Series) -> None:
        """Remove the errors of these rows, once all were counted: a row that was sent is no longer an error today."""
        left_out = result.findings.rows["_row"].is_in(rows.implode())
        for violation in result.late or result.findings.violations:
            if violation.is_error and violation.name in self.counts:
                self.counts[violation.name] -= int((violation.flag & left_out).sum())
        self.counts = {name: count for name, count in self.counts.items() if count}
        numbers = set(result.findings.rows["_row"].filter(left_out).to_list())
        self.failures = [failure for failure in self.failures if failure.row not in numbers]

    def _count(self, findings: Findings, violations: Sequence[Violation]) -> None:
        """Count violations, and keep the first failures in row order; results come nearly in that order."""
        for violation in violations:
            count = int(violation.flag.sum())
            _add(self.counts if violation.is_error else self.warning_counts, {violation.name: count})
            self.warnings += 0 if violation.is_error else count
        errors = [violation for violation in violations if violation.is_error]
        if errors and not self._is_beyond(findings, self.failures):
            self.failures += _failures(findings, errors, self.failures_max)
            self.failures.sort(key=lambda failure: failure.row)
            del self.failures[self.failures_max :]
        for violation in violations:
            if not violation.is_error:
                most = FIRST_MAX - sum(one.name == violation.name for one in self.warning_failures)
                if not self._is_beyond(findings, self.warning_failures):
                    most = max(self.failures_max, FIRST_MAX)
                if most > 0:
                    self._keep_warnings(_failures(findings, [violation], most))

    def _is_beyond(self, findings: Findings, kept: Sequence[Failure]) -> bool:
        """Return whether enough failures of rows before these are kept."""
        last = kept[: self.failures_max][-1:]
        return len(kept) >= self.failures_max and not (last and findings.rows["_row"][0] <= last[0].row)

    def _keep_warnings(self, found: Iterable[Failure]) -> None:
        kept, of_name = sorted([*self.warning_failures, *found], key=lambda one: one.row), Counter[str]()
        self.warning_failures = []
        for number, one in enumerate(kept):
            of_name[one.name] += 1
            if number < self.failures_max or of_name[one.name] <= FIRST_MAX:
                self.warning_failures.append(one)


def _totals(cents: pl.Series) -> Totals:
    return Totals(len(cents), int(cents.cast(pl.Int128).sum()))


def _lost_zeros(result: ChunkResult) -> int:
    right = [
        suggested(result.findings, violation)
        for violation in result.findings.violations
        if violation.name in _LOST_ZERO
    ]
    corrected = sum(result.accepted.get(name, 0) for name in _LOST_ZERO)
    return corrected + sum(len(one.places) for one in right)


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _failures(findings: Findings, violations: Sequence[Violation], most: int) -> list[Failure]:
    """Return the first failures of these rules, in row order."""
    breaks = any_of([violation.flag for violation in violations], findings.rows.height)
    findings = Findings(findings.rows, violations).only(breaks & (breaks.cum_sum() <= most))
    found: list[tuple[int, Violation]] = []
    for violation in findings.violations:
        found += [(position, violation) for position in violation.flag.arg_true().to_list()]
    found = sorted(found, key=lambda pair: (pair[0], pair[1].order))[:most]
    rows, lines = findings.rows["_row"], findings.rows["_line"]
    broken = {violation for _, violation in found}
    right = {violation: dict(zip(*offered(findings, violation), strict=True)) for violation in broken}
    failures = []
    for position, violation in found:
        failures.append(
            Failure(
                row=rows[position],
                line=lines[position],
                column=violation.column,
                code=violation.code,
                severity="error" if violation.is_error else "warning",
                message=violation.message if isinstance(violation.message, str) else violation.message[position],
                suggestion=right[violation].get(position),
            )
        )
    return failures
