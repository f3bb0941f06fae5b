"""What is suggested for a cell that breaks a rule, where the right value is certain.

A rule knows what would satisfy that rule alone: white space removed, a dollar sign left out. `--accept-suggestions`
applies these rule by rule. A user is offered only the end result: it keeps every rule of its cell, or is not offered.
"""

from __future__ import annotations

import polars as pl

from batchpay.schemas.rule import Rule
from batchpay.validation.compiled_rules import Findings, Texts, Violation, joined

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
