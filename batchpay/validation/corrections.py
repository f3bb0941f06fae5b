"""What `--accept-suggestions` does: cells take the value in `_suggestions`, where the right value is certain.

The rules are evaluated as usual, and their suggestions replace the cells. A corrected row is then judged like any
other, so a correction never lets a row pass that breaks another rule.
"""

from __future__ import annotations

import polars as pl

from batchpay.schemas.columns import COLUMNS, CORRECTED, FAULT, SUGGEST
from batchpay.validation.compiled_rules import RuleBook
from batchpay.validation.suggestions import PASSES, suggested


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
