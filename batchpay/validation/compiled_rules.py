"""The rules, compiled out of the schema: what a cell's form proves is not asked, everything else is asked as it stands.

A row whose cells all have the form of their columns (batchpay.schemas.forms) keeps the rules that the form stands for.
The other rules are asked of it one by one. Where one of them is an error that fails, and of every row with a cell that
has not the form, all that the row breaks is told: there the rules that a form stands for are asked of the cells that
have it not. Warnings alone keep no row from being proven: they are flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import or_

import pandera.polars as pa
import polars as pl

from batchpay.schemas import payment
from batchpay.schemas.catalogue import ROW_NO_PAYMENT, ROW_QUOTATION, ROW_RAGGED, RuleFacts, typed_cell_message
from batchpay.schemas.checks import one_of
from batchpay.schemas.columns import (
    ALONE,
    COLUMNS,
    FAULT,
    NO_PAYMENT,
    PLAIN_ROW,
    QUOTATION,
    RAGGED,
    ROW_MARKS,
    STRAY,
    SUGGEST,
    WARN,
)  # fmt: skip
from batchpay.schemas.forms import PLAIN_KEEPS, Form
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.rule import Rule, form_of, rules_of

ROW_RULES = {RAGGED: ROW_RAGGED, QUOTATION: ROW_QUOTATION, NO_PAYMENT: ROW_NO_PAYMENT, STRAY: ROW_RAGGED}

_RULES_A_COLUMN_MAX = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """One rule that rows of a chunk break."""

    order: int
    """Place in the table of rules."""
    column: str
    code: str
    is_error: bool
    message: str | pl.Series
    """What the person is told; a series where each row has words of its own."""
    suggestion: pl.Expr | None
    flag: pl.Series
    """True for each row that breaks it."""
    of_cell: Sequence[Rule] = ()
    """The column's rules for errors, where there is a suggestion: what is suggested must keep them."""

    @property
    def name(self) -> str:
        """The rule's public name."""
        return f"{self.column}.{self.code}"

    def only(self, kept: pl.Series) -> Hit:
        """Leave out the other rows."""
        message = self.message if isinstance(self.message, str) else self.message.filter(kept)
        return replace(self, flag=self.flag.filter(kept), message=message)

    def spread(self, among: pl.Series) -> Hit:
        """Lay the rows out among others, where `among` is true."""
        places, height = among.arg_true(), len(among)
        message = self.message
        if not isinstance(message, str):
            message = pl.Series([None], dtype=pl.String).new_from_index(0, height).scatter(places, message)
        return replace(self, flag=constant_mask(height, value=False).scatter(places, self.flag), message=message)


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What is wrong with some rows, of which every rule was asked."""

    rows: pl.DataFrame
    hits: Sequence[Hit]
    """In the order of the table."""

    def broken(self, *, errors: bool) -> pl.Series:
        """Tell for each row whether it breaks a rule of that severity."""
        return any_of([hit.flag for hit in self.hits if hit.is_error is errors], self.rows.height)

    def with_hits(self, more: Sequence[Hit]) -> Findings:
        """Add what was found elsewhere."""
        return Findings(self.rows, sorted([*self.hits, *more], key=lambda hit: hit.order))

    def only(self, kept: pl.Series) -> Findings:
        """Leave out the other rows, and the rules that none of the rows left breaks."""
        if kept.all():
            return self
        hits = [hit.only(kept) for hit in self.hits]
        return Findings(self.rows.filter(kept), [hit for hit in hits if hit.flag.any()])


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What is known of the rows of a chunk before all rules are asked of some."""

    unproven: pl.Series
    """True for each row that may break a rule for errors, or has a cell that is not in its column's form."""
    warnings: Sequence[Hit]
    """Every warning of the other rows; flags for all rows of the chunk. In the order of the table."""


def constant_mask(height: int, *, value: bool) -> pl.Series:
    """Make so many flags that are all the same."""
    return pl.Series([value]).new_from_index(0, height)


def nothing_proven(height: int) -> Proof:
    """Give what is known of so many rows where no cell was looked at."""
    return Proof(constant_mask(height, value=True), [])


def any_of(flags: Sequence[pl.Series], height: int) -> pl.Series:
    """Join flags by `or`; null counts as false. Series by series: a query would wait for the threads that read."""
    return reduce(or_, flags, constant_mask(height, value=False)).fill_null(value=False)


class RuleBook:
    """The rules of a schema, ready to be asked chunk by chunk."""

    def __init__(self, schema: pa.DataFrameSchema, *, warnings_as_errors: bool = False) -> None:
        self.rules = rules_of(schema)
        self._warnings_as_errors = warnings_as_errors
        self._order = [_order(rule.column, index) for index, rule in enumerate(self.rules)]
        self._index = {id(rule): index for index, rule in enumerate(self.rules)}
        self._prerequisites = [[self._index[id(other)] for other in rule.prerequisites] for rule in self.rules]
        self.forms = {name: form_of(self._rules_of(name)) for name in schema.columns}
        self._looks: list[pl.Expr] = []
        """By column: whether a cell has not the form; by index of a rule that no form stands for: whether it fails."""
        self._texts: list[pl.Expr] = []
        """The same of columns whose rules a plain cell keeps."""
        self._needed: list[str] = []
        """Those of them that must have a cell."""
        self._some: list[tuple[pl.Expr, list[pl.Expr]]] = []
        """Rules that are asked of some rows only: of which, and whether they fail."""
        self._kept: dict[str, list[int]] = {}
        """By column: the rules that its form stands for, by their indexes."""
        for column, form in self.forms.items():
            kept = [rule for rule in self._rules_of(column) if rule.is_kept_by(form)]
            is_text, look = form in PLAIN_KEEPS, _has_not_form(pl.col(column), form, kept).alias(column)
            (self._texts if is_text else self._looks).extend([look] if kept else [])
            self._needed += [column] if is_text and _is_required(kept) else []
            self._kept[column] = [self._index[id(rule)] for rule in kept]
        for index, rule in enumerate(self.rules):
            if not rule.is_kept_by(self.forms[rule.column]):
                self._group_of(rule).append(self._fails(index))

    def _rules_of(self, column: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.column == column]

    def _group_of(self, rule: Rule) -> list[pl.Expr]:
        """Find the looks among which a rule's is evaluated."""
        if rule.asked_where is None:
            return self._looks
        for where, looks in self._some:
            if where.meta.eq(rule.asked_where):
                return looks
        self._some.append((rule.asked_where, []))
        return self._some[-1][1]

    def keeps_all(self, column: str) -> pl.Expr:
        """Tell whether a cell breaks no rule of its column."""
        failed = [rule.failed for rule in self._rules_of(column)]
        return ~pl.any_horizontal(failed) if failed else pl.lit(value=True)

    def prove(self, frame: pl.DataFrame) -> Proof:
        """Sort the rows of a chunk, which has all known columns: proven to break no rule for errors, or not."""
        marks = [frame[name].is_null() for name in self._needed if frame[name].null_count()]
        marks += [frame[name].is_not_null() for name in marks_of(frame)]
        formless, broken = _told_apart(self._hit_looks(frame))
        warnings = {index: flag for index, flag in broken.items() if not self.rules[index].is_error}
        errors = [flag for index, flag in broken.items() if index not in warnings]
        unproven = any_of([*marks, *formless.values(), *errors], frame.height)
        hits = []
        for index, flag in warnings.items():
            silenced = [warnings[other] for other in self._prerequisites[index] if other in warnings]
            flag = flag & ~any_of([unproven, *silenced], frame.height)
            if flag.any():
                hits.append(self._hit(index, flag))
        return Proof(unproven, sorted(hits, key=lambda hit: hit.order))

    def _hit_looks(self, frame: pl.DataFrame) -> list[pl.Series]:
        """Give the looks that are true of some row, for all rows of the chunk; each is taken at as few as it can be."""
        wheres = [where.alias(f"where {at}") for at, (where, _) in enumerate(self._some)]
        plain = frame[PLAIN_ROW].fill_null(value=False) if PLAIN_ROW in frame.columns else None
        flags = _evaluated(frame, [*self._looks, *wheres, *(self._texts if plain is None else ())])
        hit = [flag for flag in flags.drop(where.meta.output_name() for where in wheres).iter_columns() if flag.any()]
        for where, (_, looks) in zip(wheres, self._some, strict=True):
            hit += _evaluated_of(frame, flags[where.meta.output_name()], looks)
        return hit if plain is None else hit + _evaluated_of(frame, ~plain, self._texts)

    def judge(self, rows: pl.DataFrame) -> Findings:
        """Tell every rule that these rows break, which have all known columns."""
        broken = self._broken(rows)
        marks = marks_of(rows)
        faults = {name.removeprefix(FAULT): rows[name] for name in marks if name.startswith(FAULT)}
        doubts = {name.removeprefix(WARN): rows[name] for name in marks if name.startswith(WARN)}
        uneven = [rows[name].is_not_null() for name in marks if name in ALONE]
        even = ~any_of(uneven, rows.height) if uneven else None
        hits = []
        for index, flag in broken.items():
            rule = self.rules[index]
            before = [broken[other] for other in self._prerequisites[index] if other in broken]
            effective = flag & ~any_of(before, rows.height) if before else flag
            for column in (rule.column, *rule.reads):
                if column in faults:
                    effective &= faults[column].is_null()
            if even is not None:
                effective &= even
            if effective.any():
                hits.append(self._hit(index, effective))
        hits += self._cell_hits(faults, even, is_error=True)
        hits += self._cell_hits(doubts, even, is_error=self._warnings_as_errors)
        hits += [row_hit(ROW_RULES[name], rows[name].is_not_null(), rows[name]) for name in marks if name in ROW_RULES]
        return Findings(rows, sorted(hits, key=lambda hit: hit.order))

    def _broken(self, rows: pl.DataFrame) -> dict[int, pl.Series]:
        """Flag by a rule's index the rows that break it, asked alone.

        Most rules of a row are kept whatever row it is: what a form stands for is asked of cells that have it not.
        """
        some = [look for _, looks in self._some for look in looks]
        flags = _evaluated(rows, [*self._looks, *self._texts, *some])
        formless, broken = _told_apart(flag for flag in flags.iter_columns() if flag.any())
        for column, those in formless.items():
            looks = [self._fails(index) for index in self._kept[column]]
            broken |= _told_apart(_evaluated_of(rows, those, looks))[1]
        return broken

    def _fails(self, index: int) -> pl.Expr:
        return self.rules[index].fails.fill_null(value=False).alias(str(index))

    def _hit(self, index: int, flag: pl.Series) -> Hit:
        rule = self.rules[index]
        of_cell = () if rule.suggestion is None else self._errors_of(rule.column)
        place, is_error = self._order[index], rule.is_error
        return Hit(place, rule.column, rule.code, is_error, rule.message, rule.suggestion, flag, of_cell)

    def _errors_of(self, column: str) -> list[Rule]:
        return [rule for rule in self._rules_of(column) if rule.is_error]

    def _cell_hits(self, marks: dict[str, pl.Series], even: pl.Series | None, *, is_error: bool) -> list[Hit]:
        hits = []
        for column, codes in marks.items():
            for mark in codes.drop_nulls().unique().sort().to_list():
                flag = (codes == mark).fill_null(value=False)
                if even is not None:
                    flag &= even
                code, _, words = mark.partition(": ")
                message = words or typed_cell_message(column, code)
                if flag.any():
                    right, of_cell = pl.col(SUGGEST + column), self._errors_of(column)
                    hits.append(Hit(_order(column, 0), column, code, is_error, message, right, flag, of_cell))
        return hits


def rule_book(options: RuleOptions) -> RuleBook:
    """Compile the schema of a payment row as the options want it."""
    return _compiled(payment.payment_schema, options)


@lru_cache(maxsize=4)
def _compiled(schema: Callable[[RuleOptions], pa.DataFrameSchema], options: RuleOptions) -> RuleBook:
    """Compile a schema once for all files of a process that are checked alike."""
    return RuleBook(schema(options), warnings_as_errors=options.warnings_as_errors)


def _has_not_form(cell: pl.Expr, form: Form, kept: Sequence[Rule]) -> pl.Expr:
    """Tell whether a cell is not written in the form; a blank one has it unless a rule of the column asks for more."""
    has = one_of(cell, form.members) if form.members else cell.str.contains(form.whole)
    if form.bytes_max is not None:
        has &= cell.str.len_bytes() <= form.bytes_max
    return ~has.fill_null(value=not _is_required(kept))


def _told_apart(looks: Iterable[pl.Series]) -> tuple[dict[str, pl.Series], dict[int, pl.Series]]:
    """Part looks into those at a form, by column, and those at a rule, by its index."""
    formless, broken = dict[str, pl.Series](), dict[int, pl.Series]()
    for look in looks:
        if look.name.isdecimal():
            broken[int(look.name)] = look
        else:
            formless[look.name] = look
    return formless, broken


def _is_required(kept: Sequence[Rule]) -> bool:
    return any(rule.code == "required" for rule in kept)


def _evaluated(frame: pl.DataFrame, looks: Sequence[pl.Expr]) -> pl.DataFrame:
    """Evaluate expressions; what several have in common, as a date that was read, once.

    One after the other: the other threads have the next chunk to read and the last one to count.
    """
    return frame.lazy().select_seq(looks).collect(optimizations=_SHARED)


def _evaluated_of(frame: pl.DataFrame, those: pl.Series, looks: Sequence[pl.Expr]) -> list[pl.Series]:
    """Evaluate expressions for some rows; gives those that are true of one, false for all other rows."""
    if not those.any():
        return []
    names = {name for look in looks for name in look.meta.root_names()}
    places, none = those.arg_true(), constant_mask(frame.height, value=False)
    flags = _evaluated(frame.select(names).filter(those), looks)
    return [none.scatter(places, flag).alias(flag.name) for flag in flags.iter_columns() if flag.any()]


_SHARED = pl.QueryOptFlags.none().update(comm_subexpr_elim=True)


def marks_of(frame: pl.DataFrame) -> list[str]:
    """Name the columns in which a reader of files has marked a row of the frame."""
    marks = [name for name in frame.columns if name in ROW_MARKS or name.startswith((FAULT, WARN))]
    return [name for name in marks if frame[name].null_count() < frame.height]


def _order(column: str, index: int) -> int:
    place = COLUMNS.index(column) if column in COLUMNS else len(COLUMNS)
    return place * _RULES_A_COLUMN_MAX + index


def row_hit(facts: RuleFacts, flag: pl.Series, message: pl.Series | None = None) -> Hit:
    """Make the hit of a rule that looks at more than a row's own cells."""
    place = _order(facts.column, _RULES_A_COLUMN_MAX - 1)
    is_error = facts.severity == "error"
    return Hit(place, facts.column, facts.code, is_error, facts.message if message is None else message, None, flag)


# Texts for people


def messages(findings: Findings, *, errors: bool) -> pl.Series:
    """`column: code: message; column: code: message` for each row of the findings, null where nothing is wrong."""
    hits = [hit for hit in findings.hits if hit.is_error is errors]
    texts = [pl.concat_str(pl.lit(f"{hit.column}: {hit.code}: "), pl.lit(hit.message)) for hit in hits]
    return joined(findings, [where(hit, text) for hit, text in zip(hits, texts, strict=True)], "; ")


def reasons(findings: Findings) -> pl.Series:
    """`column.code column.code` of the errors of each row of the findings."""
    return joined(findings, [where(hit, pl.lit(hit.name)) for hit in findings.hits if hit.is_error], " ")


def where(hit: Hit, text: pl.Expr) -> pl.Expr:
    """Give a text to each row that breaks the rule."""
    return pl.when(pl.lit(hit.flag)).then(text)


def joined(findings: Findings, texts: Sequence[pl.Expr], separator: str) -> pl.Series:
    """Join the texts of each row, null where it has none: all in one look at the rows."""
    if not texts:
        return pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height)
    text = findings.rows.select(pl.concat_str(texts, separator=separator, ignore_nulls=True)).to_series()
    return text.set(text == "", None)
