"""What is suggested for a cell that breaks a rule, where the right value is certain.

A rule knows what would satisfy that rule alone: white space removed, a dollar sign left out. `--accept-suggestions`
applies these rule by rule. A user is offered only the end result: it keeps every rule of its cell, or is not offered.
"""

from __future__ import annotations

import polars as pl

from batchpay.schemas.rule import Rule
from batchpay.validation.compiled_rules import Findings, Violation, joined

PASSES = 3
"""A cell may be wrong in several ways, reported one at a time: white space first, then how it is written."""


def suggested(findings: Findings, violation: Violation) -> pl.Series | None:
    """Return what satisfies this rule for each row that breaks it, null where not certain; None where it never is."""
    reads = set() if violation.suggestion is None else set(violation.suggestion.meta.root_names())
    if violation.suggestion is None or not reads <= set(findings.rows.columns):
        return None
    broken = violation.flag.arg_true()  # even in a file where every row is bad, few rows break each rule
    values = findings.rows.select(reads)[broken].select(violation.suggestion).to_series()
    return pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height).scatter(broken, values)


def offered(findings: Findings, violation: Violation) -> pl.Series | None:
    """Return the right value for each row that breaks the rule, null where not certain; None where it never is."""
    values = suggested(findings, violation)
    if values is None or values.null_count() == len(values):
        return values
    places = values.is_not_null().arg_true()
    expressions = [
        expression
        for rule in violation.of_cell
        for expression in (rule.fails, rule.suggestion)
        if expression is not None
    ]
    reads = {violation.column}.union(*(expression.meta.root_names() for expression in expressions))
    rows = findings.rows.select(reads)[places].with_columns(values[places].alias(violation.column))
    for _ in range(PASSES - 1):
        step = pl.coalesce(
            [_next(rule) for rule in violation.of_cell if rule.suggestion is not None] + [pl.col(violation.column)]
        )
        rows = rows.with_columns(step.alias(violation.column))
    right = rows.select(
        pl.when(~pl.any_horizontal(pl.lit(False), *map(_fails, violation.of_cell))).then(pl.col(violation.column))
    )
    return values.scatter(places, right.to_series())


def suggestions(findings: Findings) -> pl.Series:
    """`column: value; column: value` for each row of the findings where the right value is certain, else null."""
    values = [(violation.column, offered(findings, violation)) for violation in findings.violations]
    texts = [pl.concat_str(pl.lit(f"{name}: "), pl.lit(value)) for name, value in values if value is not None]
    return joined(findings, texts, "; ")


def _next(rule: Rule) -> pl.Expr:
    """Return what satisfies a rule, where the cell breaks it and that is certain."""
    return pl.when(_fails(rule)).then(rule.suggestion)


def _fails(rule: Rule) -> pl.Expr:
    return rule.fails.fill_null(value=False)
