"""The rules, compiled from the schema: rules that a cell's form proves are skipped, all others are evaluated as is.

A row whose cells all match the form of their columns (batchpay.schemas.forms) keeps the rules that the form covers.
The other rules are evaluated for it one by one. Where one of them is an error that fails, and for every row with a cell
that does not match its form, every rule that the row breaks is reported: there the rules that a form covers are
evaluated for the cells that do not match it. Warnings alone do not leave a row unproven: they are flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from operator import or_
from typing import NamedTuple

import pandera.polars as pa
import polars as pl

from batchpay.schemas import payment
from batchpay.schemas.catalogue import (
    ROW_MAYBE_TOTAL,
    ROW_NO_PAYMENT,
    ROW_QUOTATION,
    ROW_RAGGED,
    ROW_STATUS,
    ROW_SUM,
    ROW_TOTAL,
    typed_cell_message,
)
from batchpay.schemas.checks import one_of
from batchpay.schemas.columns import (
    ALONE,
    COLUMNS,
    FAULT,
    MAYBE_TOTAL,
    NO_PAYMENT,
    QUOTATION,
    RAGGED,
    ROW_MARKS,
    STATUS,
    STRAY,
    SUGGEST,
    SUM,
    TOTAL,
    WARN,
)  # fmt: skip
from batchpay.schemas.forms import Form
from batchpay.schemas.rule import Rule, RuleFacts, RuleOptions, form_of, rules_of

ROW_RULES = {
    RAGGED: ROW_RAGGED, QUOTATION: ROW_QUOTATION, NO_PAYMENT: ROW_NO_PAYMENT, STRAY: ROW_RAGGED, STATUS: ROW_STATUS,
    TOTAL: ROW_TOTAL, MAYBE_TOTAL: ROW_MAYBE_TOTAL, SUM: ROW_SUM,
}  # fmt: skip

_RULES_PER_COLUMN_MAX = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """One rule that rows of a chunk break."""

    order: int
    """Place in the table of rules."""
    column: str
    code: str
    is_error: bool
    message: str | pl.Series
    """The message for the user; a series where each row has its own."""
    suggestion: pl.Expr | None
    flag: pl.Series
    """True for each row that breaks the rule."""
    of_cell: Sequence[Rule] = ()
    """The column's error rules, where there is a suggestion: the suggested value must keep them."""

    @property
    def name(self) -> str:
        """The rule's public name."""
        return f"{self.column}.{self.code}"

    def only(self, kept: pl.Series) -> Violation:
        """Return the violation for the kept rows alone."""
        message = self.message if isinstance(self.message, str) else self.message.filter(kept)
        return replace(self, flag=self.flag.filter(kept), message=message)

    def spread(self, among: pl.Series) -> Violation:
        """Return the violation for more rows: its own are those where `among` is true, in order."""
        places, height = among.arg_true(), len(among)
        message = self.message
        if not isinstance(message, str):
            message = pl.Series([None], dtype=pl.String).new_from_index(0, height).scatter(places, message)
        return replace(self, flag=constant_mask(height, value=False).scatter(places, self.flag), message=message)


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Everything wrong with some rows, for which every rule was evaluated."""

    rows: pl.DataFrame
    violations: Sequence[Violation]
    """In the order of the table of rules."""

    def broken(self, *, errors: bool) -> pl.Series:
        """Return for each row whether it breaks a rule of that severity."""
        return any_of(
            [violation.flag for violation in self.violations if violation.is_error is errors], self.rows.height
        )

    def with_violations(self, more: Sequence[Violation]) -> Findings:
        """Return the findings with more violations, found elsewhere."""
        return Findings(self.rows, sorted([*self.violations, *more], key=lambda violation: violation.order))

    def only(self, kept: pl.Series) -> Findings:
        """Return the findings for the kept rows, without violations of which none is left."""
        if kept.all():
            return self
        violations = [violation.only(kept) for violation in self.violations]
        return Findings(self.rows.filter(kept), [violation for violation in violations if violation.flag.any()])


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What is known about the rows of a chunk before every rule is evaluated for some of them."""

    unproven: pl.Series
    """True for each row that may break an error rule, or has a cell that does not match its column's form."""
    warnings: Sequence[Violation]
    """Every warning of the other rows; flags for all rows of the chunk. In the order of the table of rules."""


def constant_mask(height: int, *, value: bool) -> pl.Series:
    """Make this many flags, all the same."""
    return pl.Series([value]).new_from_index(0, height)


def nothing_proven(height: int) -> Proof:
    """Return the proof of this many rows where no cell was checked."""
    return Proof(constant_mask(height, value=True), [])


def any_of(flags: Sequence[pl.Series], height: int) -> pl.Series:
    """Combine flags with `or`; null counts as false. Series by series: a query would wait for the reading threads."""
    return reduce(or_, flags, constant_mask(height, value=False)).fill_null(value=False)


class RuleBook:
    """The rules of a schema, ready to evaluate chunk by chunk."""

    def __init__(self, schema: pa.DataFrameSchema, *, warnings_as_errors: bool = False) -> None:
        self.rules = rules_of(schema)
        self._warnings_as_errors = warnings_as_errors
        self._order = [_order(rule.column, index) for index, rule in enumerate(self.rules)]
        self._index = {id(rule): index for index, rule in enumerate(self.rules)}
        self._prerequisites = [[self._index[id(other)] for other in rule.prerequisites] for rule in self.rules]
        self._by_column = {name: [rule for rule in self.rules if rule.column == name] for name in schema.columns}
        self.forms = {name: form_of(rules) for name, rules in self._by_column.items()}
        self._predicates: list[pl.Expr] = []
        """Named by column: whether a cell does not match its form; by index of a rule that no form covers: whether it
        fails."""
        self._conditional: list[tuple[pl.Expr, list[pl.Expr]]] = []
        """Rules that apply to some rows only: to which rows, and whether they fail."""
        self._kept: dict[str, list[int]] = {}
        """By column: indexes of the rules that its form covers."""
        for column, form in self.forms.items():
            kept = [rule for rule in self._by_column[column] if rule.is_kept_by(form)]
            if kept:
                is_required = any(rule.code == "required" for rule in kept)
                self._predicates.append(_has_not_form(column, form, is_required=is_required))
            self._kept[column] = [self._index[id(rule)] for rule in kept]
        for index, rule in enumerate(self.rules):
            if not rule.is_kept_by(self.forms[rule.column]):
                self._group_of(rule).append(self._fails(index))

    def _group_of(self, rule: Rule) -> list[pl.Expr]:
        """Return the list of predicates that a rule's predicate belongs to."""
        if rule.applies_where is None:
            return self._predicates
        for where, predicates in self._conditional:
            if where.meta.eq(rule.applies_where):
                return predicates
        self._conditional.append((rule.applies_where, []))
        return self._conditional[-1][1]

    def is_text(self, column: str) -> pl.Expr:
        """Return an expression: whether a cell breaks no rule of every text, and so can be compared with others."""
        failed = [rule.failed for rule in self._by_column.get(column, ()) if rule.is_for_every_text]
        return ~pl.any_horizontal(failed) if failed else pl.lit(value=True)

    def prove(self, frame: pl.DataFrame) -> Proof:
        """Sort the rows of a chunk, which has all known columns, into proven to break no error rule, or not."""
        marks = [frame[name].is_not_null() for name in marks_of(frame)]
        formless, broken = _split(self._true_flags(frame))
        warnings = {index: flag for index, flag in broken.items() if not self.rules[index].is_error}
        errors = [flag for index, flag in broken.items() if index not in warnings]
        unproven = any_of([*marks, *formless.values(), *errors], frame.height)
        violations = []
        for index, flag in warnings.items():
            silenced = [warnings[other] for other in self._prerequisites[index] if other in warnings]
            flag = flag & ~any_of([unproven, *silenced], frame.height)
            if flag.any():
                violations.append(self._violation(index, flag, frame))
        return Proof(unproven, sorted(violations, key=lambda violation: violation.order))

    def _true_flags(self, frame: pl.DataFrame) -> list[pl.Series]:
        """Return the predicates that are true for some row, over all rows; each is evaluated for as few as possible."""
        wheres = [where.alias(f"where {at}") for at, (where, _) in enumerate(self._conditional)]
        flags = _evaluated(frame, [*self._predicates, *wheres])
        violation = [
            flag for flag in flags.drop(where.meta.output_name() for where in wheres).iter_columns() if flag.any()
        ]
        for where, (_, predicates) in zip(wheres, self._conditional, strict=True):
            violation += _evaluated_of(frame, flags[where.meta.output_name()], predicates)
        return violation

    def judge(self, rows: pl.DataFrame) -> Findings:
        """Find every rule that these rows break; they have all known columns."""
        broken = self._broken(rows)
        marks = marks_of(rows)
        faults = {name.removeprefix(FAULT): rows[name] for name in marks if name.startswith(FAULT)}
        doubts = {name.removeprefix(WARN): rows[name] for name in marks if name.startswith(WARN)}
        malformed = [rows[name].is_not_null() for name in marks if name in ALONE]
        well_formed = ~any_of(malformed, rows.height) if malformed else None
        violations = []
        for index, flag in broken.items():
            rule = self.rules[index]
            before = [broken[other] for other in self._prerequisites[index] if other in broken]
            effective = flag & ~any_of(before, rows.height) if before else flag
            for column in (rule.column, *rule.reads):
                if column in faults:
                    effective &= faults[column].is_null()
            if well_formed is not None:
                effective &= well_formed
            if effective.any():
                violations.append(self._violation(index, effective, rows))
        violations += self._cell_violations(faults, well_formed, is_error=True)
        violations += self._cell_violations(doubts, well_formed, is_error=self._warnings_as_errors)
        of_rows = (ROW_RULES[name] for name in marks if name in ROW_RULES)
        severe = [replace(facts, severity="error") if self._warnings_as_errors else facts for facts in of_rows]
        violations += map(row_violation, severe, (rows[name] for name in marks if name in ROW_RULES))
        return Findings(rows, sorted(violations, key=lambda violation: violation.order))

    def _broken(self, rows: pl.DataFrame) -> dict[int, pl.Series]:
        """Flag the rows that break each rule, by its index, regardless of its prerequisites.

        Most rules of any row are kept: those that a form covers are evaluated only for cells that do not match it.
        """
        conditional = [predicate for _, predicates in self._conditional for predicate in predicates]
        flags = _evaluated(rows, [*self._predicates, *conditional])
        formless, broken = _split(flag for flag in flags.iter_columns() if flag.any())
        for column, selected in formless.items():
            predicates = [self._fails(index) for index in self._kept[column]]
            broken |= _split(_evaluated_of(rows, selected, predicates))[1]
        return broken

    def _fails(self, index: int) -> pl.Expr:
        return self.rules[index].fails.fill_null(value=False).alias(str(index))

    def _violation(self, index: int, flag: pl.Series, rows: pl.DataFrame) -> Violation:
        rule = self.rules[index]
        of_cell = () if rule.suggestion is None else self._errors_of(rule.column)
        place, is_error = self._order[index], rule.is_error
        found = Violation(place, rule.column, rule.code, is_error, rule.message, rule.suggestion, flag, of_cell)
        if rule.reason is None:
            return found
        told = rows.filter(flag).select(pl.coalesce(rule.reason, pl.lit(rule.message))).to_series()
        return replace(found, message=told, flag=constant_mask(len(told), value=True)).spread(flag)

    def _errors_of(self, column: str) -> list[Rule]:
        return [rule for rule in self._by_column.get(column, ()) if rule.is_error]

    def _cell_violations(
        self, marks: dict[str, pl.Series], well_formed: pl.Series | None, *, is_error: bool
    ) -> list[Violation]:
        violations = []
        for column, codes in marks.items():
            for mark in codes.drop_nulls().unique().sort().to_list():
                flag = (codes == mark).fill_null(value=False)
                if well_formed is not None:
                    flag &= well_formed
                code, _, words = mark.partition(": ")
                message = words or typed_cell_message(column, code)
                if flag.any():
                    right, of_cell = pl.col(SUGGEST + column), self._errors_of(column)
                    violations.append(
                        Violation(_order(column, 0), column, code, is_error, message, right, flag, of_cell)
                    )
        return violations


def rule_book(options: RuleOptions) -> RuleBook:
    """Compile the schema of a payment row for these options."""
    return _compiled(payment.payment_schema, options)


@lru_cache(maxsize=4)
def _compiled(schema: Callable[[RuleOptions], pa.DataFrameSchema], options: RuleOptions) -> RuleBook:
    """Compile a schema once for all files of a process that are checked with the same options."""
    return RuleBook(schema(options), warnings_as_errors=options.warnings_as_errors)


@cache
def _has_not_form(column: str, form: Form, *, is_required: bool) -> pl.Expr:
    """Return whether a cell does not match the form; a blank cell matches, unless the column is required."""
    cell = pl.col(column)
    has = one_of(cell, form.members) if form.members else cell.str.contains(form.whole)
    if form.bytes_max is not None:
        has &= cell.str.len_bytes() <= form.bytes_max
    return (~has.fill_null(value=not is_required)).alias(column)


def _split(predicates: Iterable[pl.Series]) -> tuple[dict[str, pl.Series], dict[int, pl.Series]]:
    """Split predicates into those on a form, by column, and those on a rule, by its index."""
    formless, broken = dict[str, pl.Series](), dict[int, pl.Series]()
    for predicate in predicates:
        if predicate.name.isdecimal():
            broken[int(predicate.name)] = predicate
        else:
            formless[predicate.name] = predicate
    return formless, broken


def _evaluated(frame: pl.DataFrame, predicates: Sequence[pl.Expr]) -> pl.DataFrame:
    """Evaluate expressions; what several have in common, such as a parsed date, once.

    Sequentially: the other threads read the next chunk and count the last one.
    """
    return frame.lazy().select_seq(predicates).collect(optimizations=_SHARED)


def _evaluated_of(frame: pl.DataFrame, selected: pl.Series, predicates: Sequence[pl.Expr]) -> list[pl.Series]:
    """Evaluate expressions for the selected rows; return those true for any of them, false for all other rows."""
    if not selected.any():
        return []
    names = {name for predicate in predicates for name in predicate.meta.root_names()}
    places, none = selected.arg_true(), constant_mask(frame.height, value=False)
    flags = _evaluated(frame.select(names).filter(selected), predicates)
    return [none.scatter(places, flag).alias(flag.name) for flag in flags.iter_columns() if flag.any()]


_SHARED = pl.QueryOptFlags.none().update(comm_subexpr_elim=True)


def marks_of(frame: pl.DataFrame) -> list[str]:
    """Name the columns in which a file reader has marked a row of the frame."""
    marks = [name for name in frame.columns if name in ROW_MARKS or name.startswith((FAULT, WARN))]
    return [name for name in marks if frame[name].null_count() < frame.height]


def _order(column: str, index: int) -> int:
    place = COLUMNS.index(column) if column in COLUMNS else len(COLUMNS)
    return place * _RULES_PER_COLUMN_MAX + index


def row_violation(facts: RuleFacts, messages: pl.Series) -> Violation:
    """Make the violation of a rule that depends on more than a row's own cells; a row that keeps it has no message."""
    place = _order(facts.column, _RULES_PER_COLUMN_MAX - 1)
    is_error = facts.severity == "error"
    return Violation(place, facts.column, facts.code, is_error, messages, None, messages.is_not_null())


# Texts for people


class Texts(NamedTuple):
    """Texts of some rows: even in a file where every row is bad, few rows break each rule."""

    places: pl.Series
    """Positions of the rows in the findings."""
    texts: pl.Series


def messages(findings: Findings, *, errors: bool) -> pl.Series:
    """`column: code: message; column: code: message` for each row of the findings, null where nothing is wrong."""
    texts = []
    for violation in findings.violations:
        if violation.is_error is errors:
            places, begin = violation.flag.arg_true(), f"{violation.column}: {violation.code}: "
            if isinstance(violation.message, str):
                texts.append(_same_text(begin + violation.message, places))
            else:
                texts.append(Texts(places, begin + violation.message.gather(places)))
    return joined(findings, texts, "; ")


def reasons(findings: Findings) -> pl.Series:
    """`column.code column.code` of the errors of each row of the findings."""
    broken = [violation for violation in findings.violations if violation.is_error]
    return joined(findings, [_same_text(violation.name, violation.flag.arg_true()) for violation in broken], " ")


def _same_text(text: str, places: pl.Series) -> Texts:
    return Texts(places, pl.Series([text]).new_from_index(0, len(places)))


def joined(findings: Findings, several: Sequence[Texts], separator: str) -> pl.Series:
    """Join the texts of each row in the order given, null where it has none.

    Texts of different rows share a column: most rows break one rule, and so there is one column for all rules.
    """
    blank = pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height)
    if not several:
        return blank
    columns: list[tuple[pl.Series, list[Texts]]] = []
    for one in several:
        flags = constant_mask(findings.rows.height, value=False).scatter(one.places, values=True)
        if columns and not (columns[-1][0] & flags).any():
            taken, texts = columns[-1]
            columns[-1] = (taken | flags, [*texts, one])
        else:
            columns.append((flags, [one]))
    cells = [
        blank.clone().scatter(pl.concat([one.places for one in texts]), pl.concat([one.texts for one in texts]))
        for _, texts in columns
    ]
    if len(cells) == 1:
        return cells[0]
    text = pl.select(pl.concat_str(map(pl.lit, cells), separator=separator, ignore_nulls=True)).to_series()
    return text.set(text == "", None)
