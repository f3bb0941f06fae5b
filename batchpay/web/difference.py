"""What a new version of a file changed, in a child: counts and masked values, changed accounts first."""

from __future__ import annotations

from typing import Any

import polars as pl

from batchpay.intake.source import Source, open_source
from batchpay.schemas.columns import ACCOUNT, COLUMNS, PAYMENT_ID, ROUTING
from batchpay.web.store import Row
from batchpay.web.task import mapping_for, options_of

_SHOWN = 50
_KEY = "_key"
_NUMBERS = (ACCOUNT, ROUTING)
_KNOWN_BY = (PAYMENT_ID, "invoiceNumber")


def difference(before: tuple[Row, str], after: tuple[Row, str]) -> dict[str, Any]:
    """Compare two versions, each with the path of its content.

    Rows are the same payment if they share a paymentId that no other row has, else such an invoiceNumber, else all
    their cells. If no row has either and both versions have as many rows, rows are matched by position.
    """
    old, new = _read(*before), _read(*after)
    columns = [name for name in COLUMNS if name in old.columns or name in new.columns]
    old, new = _filled(old, columns), _filled(new, columns)
    old, new = _keyed(old, new, columns)
    both = old.join(new, on=_KEY, how="inner", suffix="_new")
    changed = {
        name: count
        for name in columns
        if (count := int(both.select(pl.col(name).ne_missing(pl.col(f"{name}_new")).sum()).item()))
    }
    any_changed = pl.any_horizontal(
        pl.lit(value=False), *(pl.col(name).ne_missing(pl.col(f"{name}_new")) for name in changed)
    )
    return {
        "added": new.join(old, on=_KEY, how="anti").height,
        "gone": old.join(new, on=_KEY, how="anti").height,
        "changed": int(both.select(any_changed.sum()).item()),
        "columns": dict(sorted(changed.items(), key=lambda one: (one[0] not in _NUMBERS, -one[1]))),
        "accounts": _accounts(both) if ACCOUNT in changed else [],
    }


def _keyed(old: pl.DataFrame, new: pl.DataFrame, columns: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give each row the key that identifies it in both versions."""
    names = [name for name in _KNOWN_BY if name in columns]
    if old.height == new.height and all(frame[name].is_null().all() for frame in (old, new) for name in names):
        key = pl.format("row {}", pl.int_range(pl.len()) + 1)
    else:
        content = pl.concat_str([pl.col(name).fill_null("\x00") for name in columns], separator="\x1f")
        nth = pl.int_range(pl.len()).over(content)
        key = pl.concat_str(content, nth.cast(pl.String), separator="\x1f")
        for name in reversed(names):
            twice = [frame[name].drop_nulls().filter(frame[name].drop_nulls().is_duplicated()) for frame in (old, new)]
            has_own = pl.col(name).is_not_null() & ~pl.col(name).is_in(pl.concat(twice).unique().implode())
            key = pl.when(has_own).then(pl.col(name)).otherwise(key)
    return old.with_columns(key.alias(_KEY)), new.with_columns(key.alias(_KEY))


def _read(file: Row, path: str) -> pl.DataFrame:
    options = options_of(file)
    with open_source(
        path,
        encoding=options.get("encoding"),
        sheet=options.get("sheet"),
        include_hidden=bool(options.get("include_hidden")),
        mapping=mapping_for(file),
        required=(),
    ) as source:
        frames = [chunk.select(_known(source, chunk)) for chunk in source.chunks()]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _known(source: Source, chunk: pl.DataFrame) -> list[str]:
    return [name for name in source.columns if name in chunk.columns]


def _filled(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Add the columns that one version lacks, blank."""
    missing = [pl.lit(None, pl.String).alias(name) for name in columns if name not in frame.columns]
    return frame.with_columns(missing).select(columns)


def _accounts(both: pl.DataFrame) -> list[dict[str, str]]:
    """Return the payments whose account changed, with the last four characters."""
    changed = both.filter(pl.col(ACCOUNT).ne_missing(pl.col(f"{ACCOUNT}_new"))).head(_SHOWN)
    name = "achNameOnCheck" if "achNameOnCheck" in both.columns else _KEY
    return [
        {"payment": key, "name": payee or "", "before": _last(before), "after": _last(after)}
        for key, payee, before, after in changed.select(_KEY, f"{name}_new", ACCOUNT, f"{ACCOUNT}_new").iter_rows()
    ]


def _last(number: str | None) -> str:
    if number is None:
        return "none"
    return f"****{number[-4:]}" if len(number) > 4 else "****"
