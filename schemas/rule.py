"""One rule of a cell: its code, its words, its expression, and the pandera check made from it.

The schema holds the rules: each is a check of its column, and `rules_of` reads them back out of a schema, so the
program checks exactly what the schema says. Rules of a column depend on each other: some are reported alone, some are
evaluated only if another has passed (RULES.md, 'A missing value is `required` alone'). That order is part of each
check, so that pandera's own validation and the compiled rules report the same failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, reduce
from operator import and_

import pandera.polars as pa
import polars as pl
from pandera.api.polars.types import PolarsData

from batchpay.schemas import checks
from batchpay.schemas.amount_text import problem
from batchpay.schemas.columns import NAMES_AND_ADDRESSES, PAYMENT_ID
from batchpay.schemas.forms import IDENTIFIER, NAME, TEXT, Form, closed_list
from batchpay.schemas.tables import CHOICES, RULES


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The rules' parameters; the defaults are RULES.md's."""

    as_of: date
    """Today's date, for the rules that depend on it."""
    normalize: bool = False
    """Repair what is unambiguous before the rules are evaluated."""
    accept_suggestions: frozenset[str] = frozenset()
    """Rules, as `column.code`, whose suggestions replace the cells that break them."""
    warnings_as_errors: bool = False
    allow_duplicates: bool = False
    """The same bill may be paid twice."""
    allow_open_ended: bool = False
    """A recurring payment without an end may pass."""
    require_agreement: bool = True
    """A payer who has not agreed is not charged."""
    past_start: bool = True
    """A recurring payment can't start before `as_of`."""
    pay_on: date | None = None
    """The payOn of every row, of a file without such a column."""
    pay_on_days: int | None = 90
    """payOn can't be before `as_of`, nor more than these days after it; None for what was registered with its day."""
    duplicate_days: int = 5
    """The same bills of one file whose payOn are as many days apart may both be due."""
    max_amount_cents: int | None = None
    """An amount above this is rejected; None means no limit."""
    account_hyphens: bool = False
    """An account number may have hyphens inside: some banks print them."""
    check_letters: bool = False
    """A check number may have letters."""
    rules_off: frozenset[str] = frozenset()
    """House rules (source H) switched off, as `column.code`."""

    @property
    def allows_repeated_bills(self) -> bool:
        """Whether the same bill may pass twice: by this call, or because the rule is switched off."""
        return self.allow_duplicates or "row.duplicate" in self.rules_off


IDENTIFIERS = (PAYMENT_ID, "invoiceNumber")
"""Columns used to find a payment again: two texts in them that look the same must be the same."""


@dataclass(frozen=True, slots=True, eq=False)
class RuleFacts:
    """One line of the table of rules, for people and for other programs."""

    column: str
    code: str
    severity: str
    """`error` puts the row in the rejects, `warning` is only reported."""
    source: str
    """S the gateway's interface, N Nacha or the ABA, H a house rule that `RuleOptions.rules_off` can switch off."""
    words: str
    """The rule, for the table."""
    message: str
    """The message for the user: what is wrong and what to do; without a semicolon and without the cell's text."""

    @property
    def name(self) -> str:
        """The public name, `column.code`."""
        return f"{self.column}.{self.code}"

    @property
    def is_error(self) -> bool:
        """Whether the row goes to the rejects."""
        return self.severity == "error"


@dataclass(frozen=True, slots=True, eq=False)
class Rule(RuleFacts):
    """A rule of a cell."""

    fails: pl.Expr
    """True where the rule is broken, regardless of other rules. Null counts as kept."""
    after: tuple[str, ...] = ()
    """Codes of the same column that must be kept before this one is evaluated."""
    reads: tuple[str, ...] = ()
    """Other columns that it reads: without a readable cell there it is not evaluated."""
    suggestion: pl.Expr | None = None
    """The right value where it is certain, else null."""
    reason: pl.Expr | None = None
    """A message that says more of a cell that breaks the rule, in place of `message`; null where there is none."""
    form: Form | None = None
    """Cells in this form keep the rule, whatever else is in the row; a property test proves it for each rule."""
    by_any_form: bool = False
    """Whether a cell in any form of its column keeps this rule."""
    applies_where: pl.Expr | None = None
    """For rows whose cells match their forms: true for each that may break the rule, never null; None where any may."""
    is_only_told: bool = False
    """Whether it stays a warning under `--warnings-as-errors`: it may be true of many honest rows."""
    is_for_every_text: bool = False
    """Whether it is one of RULES.md's 'every text', and not a column's own rule of the same code."""
    prerequisites: tuple[Rule, ...] = ()
    """Rules of the same column that must be kept before this one is evaluated."""

    def __deepcopy__(self, _: object) -> Rule:
        """Return the same rule for every copy of a schema: pandera copies whole columns."""
        return self

    def is_kept_by(self, form: Form) -> bool:
        """Whether a cell in that form, the one of its column, can't break the rule."""
        return self.by_any_form or self.form == form

    @property
    def failed(self) -> pl.Expr:
        """True where the rule is broken and none of its prerequisites is: never null."""
        others = [~guard.fails.fill_null(value=False) for guard in self.prerequisites]
        return reduce(and_, others, self.fails.fill_null(value=False))

    @property
    def check(self) -> pa.Check:
        """The rule as a pandera check, named by its code, which carries the rule; a broken warning only warns."""

        def keep(data: PolarsData) -> pl.LazyFrame:
            return data.lazyframe.select(~self.failed)

        return pa.Check(
            keep,
            name=self.code,
            error=self.message,
            ignore_na=False,
            raise_warning=not self.is_error,
            statistics={_RULE: self},
        )


_RULE = "rule"


def facts(key: str, column: str | None = None, **values: object) -> RuleFacts:
    """Return a line of tables/rules.csv: `column.code`, and after a colon which of several is meant.

    `column` is for a line that stands for several columns, `values` for what its texts have in braces.
    """
    return RuleFacts(*_line(key, column, values))


def rule(
    key: str, fails: pl.Expr, *, column: str | None = None, values: Mapping[str, object] | None = None, **more: object
) -> Rule:
    """Make a rule from such a line and what it takes to break it."""
    return Rule(*_line(key, column, values or {}), fails, **more)  # type: ignore[arg-type]


def _line(key: str, column: str | None, values: Mapping[str, object]) -> tuple[str, str, str, str, str, str]:
    line, (own, _, code) = RULES[key], key.partition(":")[0].partition(".")
    words, message = (line[part].format(**values) if values else line[part] for part in ("words", "message"))
    return column or own, code, line["severity"], line["source"], words, message


def required(column: str) -> Rule:
    """Make the rule for a cell that every payment must have."""
    return rule("text.required", pl.col(column).is_null(), by_any_form=True, column=column)


@cache
def choice(column: str, form: Form | None = None, **values: str) -> Rule:
    """Make the rule for a closed list; a value in another letter case is not a member, and the member is suggested.

    `form` lists fewer members where some members break the column's other rules.
    """
    of_list, cell = CHOICES[column], pl.col(column)
    return rule(
        f"{column}.choice", checks.not_one_of(cell, of_list), values=values,
        suggestion=checks.member_in_capitals(cell, of_list), form=form or closed_list(of_list),
    )  # fmt: skip


def truth_choice(column: str, form: Form | None = None) -> list[Rule]:
    """Make the same rule for an answer of yes or no; a word of another language or program is told as what it is."""
    known = choice(column, form)
    is_word = checks.is_truth_word(pl.col(column), but=CHOICES[column])
    told = facts("truth.choice", message=known.message)
    other = replace(known, words=told.words, message=told.message, fails=is_word)
    return [replace(known, fails=known.fails & ~is_word), other]


def money_format(column: str, form: Form, suggestion: pl.Expr | None = None) -> Rule:
    """Make the rule for how an amount of money is written; `suggestion` in place of the usual one."""
    cell = pl.col(column)
    return rule(
        "money.format",
        checks.is_not_money(cell),
        after=("currency_mark",),
        suggestion=checks.as_money(cell) if suggestion is None else suggestion,
        reason=problem(cell),
        form=form,
        column=column,
    )


@cache
def text_rules(column: str) -> list[Rule]:
    """Make the rules for every text: RULES.md, 'every text'."""
    cell = pl.col(column)
    # An account number must not appear in a suggestion, which is printed and logged.
    trimmed = None if column == "achAccountNumber" else checks.trimmed(cell)
    key, failed = "text.characters", checks.has_forbidden_characters(cell)
    if column in IDENTIFIERS:
        key, failed = "identifier.characters", checks.has_unseen_characters(cell)
    return [
        rule(
            key,
            failed,
            form=IDENTIFIER if column in IDENTIFIERS else None,
            by_any_form=column not in IDENTIFIERS,
            is_for_every_text=True,
            column=column,
        ),
        rule(
            "text.whitespace",
            checks.has_outer_whitespace(cell),
            suggestion=trimmed,
            by_any_form=True,
            is_for_every_text=True,
            column=column,
        ),
        rule(
            "text.length",
            checks.is_too_long(cell),
            values={"most": checks.TEXT_CHARACTERS_MAX},
            by_any_form=True,
            is_for_every_text=True,
            column=column,
        ),
    ]


@cache
def name_rules(column: str) -> list[Rule]:
    """Make the rules for a name or an address: it may be copied from elsewhere, decoded twice, or no value at all."""
    copied = rule("name.characters", checks.has_copied_characters(pl.col(column)), form=NAME, column=column)
    return [copied, *placeholder_rules(column)]


@cache
def placeholder_rules(column: str) -> list[Rule]:
    """Make the rules for what programs write where they have no value: an error, or a warning where it may be a name.

    The same name in billing and shipping counts once.
    """
    cell, form = pl.col(column), IDENTIFIER if column in IDENTIFIERS else NAME
    others = tuple(name for name in (*IDENTIFIERS, *NAMES_AND_ADDRESSES) if name != column)
    return [
        rule(
            "text.placeholder",
            checks.is_remnant(cell) | (checks.is_null_word(cell) & (_null_words() > 1)),
            form=form,
            reads=others,
            column=column,
        ),
        rule("text.placeholder:alone", checks.is_null_word(cell), after=("placeholder",), form=form, column=column),
    ]


@cache
def _null_words() -> pl.Expr:
    """Return how many fields of a row have a null word; made once for all columns."""
    fields: dict[str, list[pl.Expr]] = {}
    for name in (*IDENTIFIERS, *NAMES_AND_ADDRESSES):
        field = name.removeprefix("billing").removeprefix("shipping")
        fields.setdefault(field, []).append(checks.is_null_word(pl.col(name)).fill_null(value=False))
    return pl.sum_horizontal(pl.any_horizontal(cells) for cells in fields.values())


def columns_of(names: Sequence[str], own: Mapping[str, Sequence[Rule]], options: RuleOptions) -> dict[str, pa.Column]:
    """Make the columns of a schema: text, each with its rules in the order of the table, per the options."""
    return {name: _column(name, own.get(name, ()), options) for name in names}


def _column(name: str, own: Sequence[Rule], options: RuleOptions) -> pa.Column:
    kept = [rule for rule in (*text_rules(name), *own) if not (rule.source == "H" and rule.name in options.rules_off)]
    if options.warnings_as_errors:
        kept = [rule if rule.is_only_told else replace(rule, severity="error") for rule in kept]
    return pa.Column(pl.String, [rule.check for rule in _with_prerequisites(kept)], nullable=True)


def schema_of(name: str, columns: dict[str, pa.Column]) -> pa.DataFrameSchema:
    """Make a pandera schema of columns; other columns that a rule reads must be in the frame as well."""
    reads = {read for column in columns.values() for rule in _rules_of_column(column) for read in rule.reads}
    outside = {read: pa.Column(pl.String, nullable=True) for read in sorted(reads - columns.keys())}
    schema = pa.DataFrameSchema(name=name, strict=False)
    # Not passed above: there pandera copies each column with everything its rules hold, which takes 20 ms.
    schema.columns = {of: column.set_name(of) for of, column in {**columns, **outside}.items()}
    return schema


def rules_of(schema: pa.DataFrameSchema) -> list[Rule]:
    """Read the rules out of a schema's columns and checks, in their order.

    A check that carries no rule can't be evaluated chunk by chunk: it is refused rather than silently left out.
    """
    if schema.checks:
        raise TypeError("a check of the whole frame carries no rule: rules are checks of a column")
    return [rule for column in schema.columns.values() for rule in _with_prerequisites(_rules_of_column(column))]


def _rules_of_column(column: pa.Column) -> list[Rule]:
    rules = [check.statistics.get(_RULE) for check in column.checks]
    if not all(isinstance(rule, Rule) for rule in rules):
        raise TypeError(f"a check of {column.name} carries no rule: make it with batchpay.schemas.rule")
    return rules


def _with_prerequisites(rules: Iterable[Rule]) -> list[Rule]:
    """Give each rule of a column its prerequisites: rules that this column actually has, and no others."""
    finished: list[Rule] = []
    for rule in rules:
        before = tuple(other for other in finished if _precedes(other, rule))
        finished.append(rule if rule.prerequisites == before else replace(rule, prerequisites=before))
    return finished


def _precedes(other: Rule, rule: Rule) -> bool:
    """Whether a broken `other` keeps `rule` of the same column from being evaluated."""
    if rule.code == "required" or rule.is_for_every_text:
        return False
    return other.is_for_every_text or other.code == "unexpected" or other.code in rule.after


def form_of(rules: Iterable[Rule]) -> Form:
    """Return the form of a column: that of the first rule which has one, else the form for every text."""
    return next((rule.form for rule in rules if rule.form is not None), TEXT)
