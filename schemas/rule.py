"""One rule of a cell: its code, its words, its expression, and the pandera check made of it.

The rules of a column keep each other company: some stand alone, some are asked only after another has passed (RULES.md,
'A missing value is `required` alone'). That order is part of each check, so that pandera's own validation and the
compiled rules report the same failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_

import pandera.polars as pa
import polars as pl
from pandera.api.polars.types import PolarsData

from batchpay.schemas import checks
from batchpay.schemas.columns import PAYMENT_ID
from batchpay.schemas.options import RuleOptions

IDENTIFIERS = (PAYMENT_ID, "invoiceNumber")
"""Columns by which a payment is found again: two texts in them that look the same must be the same."""
MONEY_WORDS = "digits, a point, exactly two decimals, no sign, symbol or thousands separator"
MONEY_MESSAGE = "write digits, a point and two decimals and nothing else, like 1250.00"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One line of the table of rules."""

    column: str
    code: str
    severity: str
    """`error` puts the row in the rejects, `warning` is only reported."""
    source: str
    """S the gateway's interface, N Nacha or the ABA, H a house rule that `RuleOptions.rules_off` can switch off."""
    words: str
    """The rule, for the table."""
    message: str
    """What the person is told: what is wrong and what to do; without a semicolon and without the cell's text."""
    fails: pl.Expr
    """True where the rule is broken, asked alone. Null counts as kept."""
    after: tuple[str, ...] = ()
    """Codes of the same column that must be kept before this one is asked."""
    reads: tuple[str, ...] = ()
    """Other columns it looks at: without a readable cell there it is not asked."""
    suggestion: pl.Expr | None = None
    """The right value where it is certain, else null."""
    screen: pl.Expr | None = None
    """A cheaper expression that is true at least wherever `fails` is, or None."""
    screen_shared: bool = False
    """Whether the look of the nearest rule before it that has one of its own is true wherever this rule fails."""
    proves_clean: bool = False
    """Whether a cell on which this rule's screen is not true can't break a rule for every text."""
    plain_keeps: bool = False
    """Whether plain text (batchpay.schemas.columns.PLAIN) can't break it."""
    is_for_every_text: bool = False
    """Whether it is one of RULES.md's 'every text', and not a column's own rule of the same code."""
    prerequisites: tuple[Rule, ...] = ()
    """Rules of the same column that must be kept before this one is asked; set by `column_rules`."""

    @property
    def name(self) -> str:
        """The public name, `column.code`."""
        return f"{self.column}.{self.code}"

    @property
    def is_error(self) -> bool:
        """Whether the row goes to the rejects."""
        return self.severity == "error"

    @property
    def failed(self) -> pl.Expr:
        """True where the rule is broken and none that goes before it: never null."""
        others = [~guard.fails.fill_null(value=False) for guard in self.prerequisites]
        return reduce(and_, others, self.fails.fill_null(value=False))

    @property
    def look(self) -> pl.Expr:
        """The cheapest expression that is true at least wherever the rule is broken."""
        return self.fails if self.screen is None else self.screen

    @property
    def check(self) -> pa.Check:
        """The rule as a check of pandera's, named by its code."""
        kept = ~self.failed

        def keep(data: PolarsData) -> pl.LazyFrame:
            return data.lazyframe.select(kept)

        return pa.Check(keep, name=self.code, error=self.message, ignore_na=False)


def error(column: str, code: str, source: str, words: str, message: str, fails: pl.Expr, **more: object) -> Rule:
    """Make a rule that rejects the row."""
    return Rule(column, code, "error", source, words, message, fails, **more)  # type: ignore[arg-type]


def warning(column: str, code: str, source: str, words: str, message: str, fails: pl.Expr, **more: object) -> Rule:
    """Make a rule that is only reported."""
    return Rule(column, code, "warning", source, words, message, fails, **more)  # type: ignore[arg-type]


def required(column: str) -> Rule:
    """Make the rule of a cell that every payment must have."""
    return error(column, "required", "S", "required", "is missing, fill it in", pl.col(column).is_null())


def choice(column: str, values: Sequence[str], words: str, message: str, source: str = "S") -> Rule:
    """Make the rule of a closed list; another letter case is not a member, and is suggested."""
    return error(
        column,
        "choice",
        source,
        words,
        message,
        checks.not_one_of(pl.col(column), values),
        suggestion=checks.member_in_capitals(pl.col(column), values),
        proves_clean=True,
    )


def money_format(column: str) -> Rule:
    """Make the rule of how an amount of money is written."""
    cell = pl.col(column)
    return error(
        column,
        "format",
        "S",
        MONEY_WORDS,
        MONEY_MESSAGE,
        checks.is_no_money(cell),
        screen=checks.is_no_money(cell) | checks.may_be_too_long(cell),
        suggestion=checks.as_money(cell),
        proves_clean=True,
    )


def text_rules(column: str) -> list[Rule]:
    """Make the rules for every text: RULES.md, 'every text'."""
    cell = pl.col(column)
    # An account number must not stand in a suggestion, which is printed and logged.
    trimmed = None if column == "achAccountNumber" else checks.trimmed(cell)
    words, failed = "control characters, NUL, U+FFFD, bidirectional overrides", checks.has_forbidden_characters(cell)
    if column in IDENTIFIERS:
        words = "every invisible or format character (Unicode Cf, default-ignorable), no-break spaces and hyphens"
        failed = checks.has_unseen_characters(cell)
    rules = [
        error(
            column,
            "characters",
            "H",
            words,
            "holds characters that can't be shown, type it anew instead of pasting it",
            failed,
        ),
        error(
            column,
            "whitespace",
            "H",
            "white space at either end",
            "begins or ends with white space, remove it",
            checks.has_outer_whitespace(cell),
            suggestion=trimmed,
        ),
        error(
            column,
            "length",
            "H",
            f"over {checks.TEXT_CHARACTERS_MAX} characters",
            f"is longer than {checks.TEXT_CHARACTERS_MAX} characters, shorten it",
            checks.is_too_long(cell),
            screen=checks.may_be_too_long(cell),
        ),
    ]
    return [replace(rule, is_for_every_text=True) for rule in rules]


def copied_text(column: str) -> Rule:
    """Make the warning of a name or an address that was copied from elsewhere, or decoded twice."""
    return warning(
        column,
        "characters",
        "H",
        "a no-break space, a zero-width character, or text that looks decoded twice (`RenÃ©e`)",
        "holds a character that can't be seen, or was garbled on its way (like RenÃ©e), type it anew",
        checks.has_copied_characters(pl.col(column)),
        plain_keeps=True,
    )


def column_rules(column: str, own: Iterable[Rule], options: RuleOptions) -> list[Rule]:
    """All rules of a column in the order of the table, as the options want them, each with its prerequisites."""
    first, own = text_rules(column), list(own)
    kept = [rule for rule in first + own if not (rule.source == "H" and rule.name in options.rules_off)]
    if options.warnings_as_errors:
        kept = [replace(rule, severity="error") for rule in kept]
    finished: list[Rule] = []
    for rule in kept:
        before = [other for other in finished if _goes_before(other, rule)]
        finished.append(replace(rule, prerequisites=tuple(before)))
    return finished


def _goes_before(other: Rule, rule: Rule) -> bool:
    """Whether a broken `other` keeps `rule` of the same column from being asked."""
    if rule.code == "required" or rule.is_for_every_text:
        return False
    return other.is_for_every_text or other.code == "unexpected" or other.code in rule.after


def breaks_text_rules(rules: Iterable[Rule], *, plain: bool = False) -> pl.Expr | None:
    """One expression, true at least where a column's rules for every text are broken, or None where all are off.

    In `plain` text (batchpay.schemas.columns.PLAIN) less has to be looked for.
    """
    own = [rule for rule in rules if rule.is_for_every_text]
    if not own:
        return None
    cell, codes = pl.col(own[0].column), {rule.code for rule in own}
    looks = []
    if codes & {"characters", "whitespace"}:
        looks.append(checks.has_outer_blank(cell) if plain else checks.has_unclean_characters(cell))
    if "characters" in codes and own[0].column in IDENTIFIERS:
        looks.append(checks.has_unseen_characters(cell))
    if "length" in codes:
        looks.append(checks.may_be_too_long(cell))
    return reduce(or_, looks)


def node_schema(name: str, columns: Sequence[str], rules: Sequence[Rule]) -> pa.DataFrameSchema:
    """Make the pandera schema of a node: text columns with the checks of their errors.

    Columns that a rule reads outside the node must be in the frame as well. Warnings have no place in a validation
    that passes or fails: they are checks only where the options turn them into errors.
    """
    outside = {read for rule in rules for read in rule.reads if read not in columns}
    made = {
        column: pa.Column(
            pl.String, [rule.check for rule in rules if rule.column == column and rule.is_error], nullable=True
        )
        for column in [*columns, *sorted(outside)]
    }
    return pa.DataFrameSchema(made, name=name, strict=False)
