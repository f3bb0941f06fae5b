"""What is suggested for a cell that breaks a rule, where the right value is certain.

A rule knows what would keep it alone: white space taken away, a dollar sign left out. `--accept-suggestions` goes so,
rule by rule. What a person is offered is the end of that way: it keeps every rule of its cell, or it is not offered.
"""

from __future__ import annotations

import polars as pl

from batchpay.schemas.rule import Rule
from batchpay.validation.compiled_rules import Findings, Hit, joined

PASSES = 3
"""A cell may be wrong in several ways, of which one is told at a time: white space first, then how it is written."""


def suggested(findings: Findings, hit: Hit) -> pl.Series | None:
    """Give what keeps this rule for each row that breaks it, null where that is not certain; None where it never is."""
    reads = set() if hit.suggestion is None else set(hit.suggestion.meta.root_names())
    if hit.suggestion is None or not reads <= set(findings.rows.columns):
        return None
    broken = hit.flag.arg_true()  # of a file in which every row is bad, each rule is broken by few
    values = findings.rows.select(reads)[broken].select(hit.suggestion).to_series()
    return pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height).scatter(broken, values)


def offered(findings: Findings, hit: Hit) -> pl.Series | None:
    """Give the right value for each row that breaks the rule, null where it is not certain; None where it never is."""
    values = suggested(findings, hit)
    if values is None or values.null_count() == len(values):
        return values
    places = values.is_not_null().arg_true()
    looks = [look for rule in hit.of_cell for look in (rule.fails, rule.suggestion) if look is not None]
    reads = {hit.column}.union(*(look.meta.root_names() for look in looks))
    rows = findings.rows.select(reads)[places].with_columns(values[places].alias(hit.column))
    for _ in range(PASSES - 1):
        step = pl.coalesce([_next(rule) for rule in hit.of_cell if rule.suggestion is not None] + [pl.col(hit.column)])
        rows = rows.with_columns(step.alias(hit.column))
    right = rows.select(pl.when(~pl.any_horizontal(pl.lit(False), *map(_fails, hit.of_cell))).then(pl.col(hit.column)))
    return values.scatter(places, right.to_series())


def suggestions(findings: Findings) -> pl.Series:
    """`column: value; column: value` for each row of the findings where the right value is certain, else null."""
    values = [(hit.column, offered(findings, hit)) for hit in findings.hits]
    texts = [pl.concat_str(pl.lit(f"{name}: "), pl.lit(value)) for name, value in values if value is not None]
    return joined(findings, texts, "; ")


def _next(rule: Rule) -> pl.Expr:
    """Give what keeps a rule, where the cell breaks it and that is certain."""
    return pl.when(_fails(rule)).then(rule.suggestion)


def _fails(rule: Rule) -> pl.Expr:
    return rule.fails.fill_null(value=False)
