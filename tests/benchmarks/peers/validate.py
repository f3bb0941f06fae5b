# mypy: disable-error-code="import-not-found, import-untyped, no-any-return"
# ruff: noqa: S608 - the SQL is made of the benchmarks' own rules and paths
"""What checks payment files elsewhere, asked for the fifteen shared rules and for the same delivery.

Each peer reads all columns as text, finds every failure of every row, and writes the bad rows with `_errors` (names of
the broken rules) and all their cells as CSV. The floor checks nothing: it only decodes.

Run as `python -m tests.benchmarks.peers.validate PEER INPUT REJECTS`; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.rules import ABA_WEIGHTS, NAME_CHARACTERS_MAX, SHARED_RULES, SharedRule

Found = tuple[int, int]
"""Bad rows and failures."""
Peer = Callable[[Path, Path], Found]


def decode(path: Path, _rejects: Path) -> Found:
    """The floor: polars' streaming engine decodes every column as text and keeps nothing."""
    import polars as pl

    rows = 0
    for batch in _scan(pl, path).collect_batches(maintain_order=True):
        rows += batch.height
    assert rows > 0
    return 0, 0


def polars_by_hand(path: Path, rejects: Path) -> Found:
    """Expressions written for the purpose, one streaming plan."""
    import polars as pl

    failed = {rule.name: _polars_fails(pl, rule) for rule in SHARED_RULES}
    texts = [pl.when(fails).then(pl.lit(name)) for name, fails in failed.items()]
    errors = pl.concat_str(texts, separator="; ", ignore_nulls=True)
    _scan(pl, path).with_columns(_errors=errors).filter(pl.col("_errors") != "").sink_csv(rejects, engine="streaming")
    return _count_written(pl, rejects)


def dataframely(path: Path, rejects: Path) -> Found:
    """A schema class; `filter` parts good rows from bad ones, `details` tells what each broke."""
    import dataframely as dy
    import polars as pl

    frame = _read(pl, path)
    members: dict[str, Any] = {name: dy.String(nullable=True) for name in frame.columns}
    for column in {rule.column for rule in SHARED_RULES}:
        rules = {rule.kind: rule for rule in SHARED_RULES if rule.column == column}
        members[column] = dy.String(
            nullable="required" not in rules,
            regex=rules["pattern"].pattern if "pattern" in rules else None,
            max_length=NAME_CHARACTERS_MAX if "length" in rules else None,
            check=_dataframely_choice(rules["choice"]) if "choice" in rules else None,
        )
    for rule in SHARED_RULES:
        if rule.kind in ("checksum", "required_if"):
            kept = ~_polars_fails(pl, rule)
            members[f"{rule.column}_{rule.kind}"] = dy.rule()(lambda cls, kept=kept: kept)
    schema: Any = type("Payments", (dy.Schema,), members)
    _, failure = schema.filter(frame)
    details = failure.details()
    names = [name for name in details.columns if name not in frame.columns]
    texts = [pl.when(pl.col(name) == "invalid").then(pl.lit(name)) for name in names]
    errors = pl.concat_str(texts, separator="; ", ignore_nulls=True)
    details.select(*frame.columns, _errors=errors).write_csv(rejects)
    return details.height, sum(failure.counts().values())


def duckdb(path: Path, rejects: Path) -> Found:
    """One SQL statement."""
    import duckdb

    failed = {rule.name: _sql_fails(rule) for rule in SHARED_RULES}
    errors = ", ".join(f"CASE WHEN {fails} THEN '{name}' END" for name, fails in failed.items())
    source = f"'{path}'" if path.suffix == ".parquet" else f"read_csv('{path}', all_varchar=true, header=true)"
    told = f"SELECT *, concat_ws('; ', {errors}) AS _errors FROM {source}"
    duckdb.execute(f"COPY (SELECT * FROM ({told}) WHERE _errors <> '') TO '{rejects}' (HEADER, DELIMITER ',')")
    counted = duckdb.execute(
        "SELECT count(*), sum(len(string_split(_errors, '; '))) FROM read_csv(?, all_varchar=true, header=true)",
        [str(rejects)],
    ).fetchone()
    return int(counted[0]), int(counted[1] or 0)


def pandera_on_pandas(path: Path, rejects: Path) -> Found:
    """A pandera schema over pandas, `validate(lazy=True)`."""
    import pandas as pd
    import pandera.pandas as pa

    frame = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    columns: dict[str, Any] = {}
    for column in {rule.column for rule in SHARED_RULES}:
        rules = [rule for rule in SHARED_RULES if rule.column == column]
        columns[column] = pa.Column(
            nullable=all(rule.kind != "required" for rule in rules),
            checks=[_pandas_check(pa, rule) for rule in rules if rule.kind not in ("required", "required_if")],
        )
    wanted = next(rule for rule in SHARED_RULES if rule.kind == "required_if")
    given = pa.Check(
        lambda rows: ~((rows["recurringIndicator"] == "TRUE") & rows[wanted.column].isna()), name=wanted.name
    )
    try:
        pa.DataFrameSchema(columns, checks=[given]).validate(frame, lazy=True)
    except pa.errors.SchemaErrors as error:
        cases = error.failure_cases
    else:
        frame.head(0).assign(_errors="").to_csv(rejects, index=False)
        return 0, 0
    # A check of a whole row is told once for every column of the frame.
    whole = cases["schema_context"] == "DataFrameSchema"
    labels = cases["column"].where(~whole, "") + "." + cases["check"].astype(str)
    pairs = pd.DataFrame({"row": cases["index"].astype(int), "label": labels}).drop_duplicates()
    errors = pairs.groupby("row")["label"].agg("; ".join)
    frame.loc[errors.index].assign(_errors=errors).to_csv(rejects, index=False)
    return len(errors), len(pairs)


def _scan(pl: Any, path: Path) -> Any:
    return pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)


def _read(pl: Any, path: Path) -> Any:
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)


def _count_written(pl: Any, rejects: Path) -> Found:
    counted = pl.scan_csv(rejects, infer_schema=False).select(pl.col("_errors").str.count_matches("; ") + 1).collect()
    return counted.height, int(counted["_errors"].sum())


def _polars_fails(pl: Any, rule: SharedRule) -> Any:
    cell = pl.col(rule.column)
    if rule.kind == "required":
        return cell.is_null()
    if rule.kind == "pattern":
        return ~cell.str.contains(rule.pattern).fill_null(value=True)
    if rule.kind == "choice":
        return ~cell.is_in(list(rule.values)).fill_null(value=True)
    if rule.kind == "length":
        return (cell.str.len_chars() > NAME_CHARACTERS_MAX).fill_null(value=False)
    if rule.kind == "required_if":
        return (pl.col("recurringIndicator") == "TRUE").fill_null(value=False) & cell.is_null()
    number = pl.when(cell.str.contains("^[0-9]{9}$")).then(cell).cast(pl.Int32)
    total = sum((number // 10 ** (8 - place) % 10 * weight for place, weight in enumerate(ABA_WEIGHTS)), pl.lit(0))
    return (total % 10 != 0).fill_null(value=False)


def _dataframely_choice(rule: SharedRule) -> Any:
    values = list(rule.values)
    return lambda cell: cell.is_in(values)


def _sql_fails(rule: SharedRule) -> str:
    cell = f'"{rule.column}"'
    if rule.kind == "required":
        return f"{cell} IS NULL"
    if rule.kind == "pattern":
        pattern = rule.pattern.replace("'", "''")
        return f"NOT regexp_matches({cell}, '{pattern}')"
    if rule.kind == "choice":
        values = ", ".join(f"'{value}'" for value in rule.values)
        return f"{cell} NOT IN ({values})"
    if rule.kind == "length":
        return f"length({cell}) > {NAME_CHARACTERS_MAX}"
    if rule.kind == "required_if":
        return f"\"recurringIndicator\" = 'TRUE' AND {cell} IS NULL"
    number = f"TRY_CAST({cell} AS INTEGER)"
    digits = (f"{number} // {10 ** (8 - place)} % 10 * {weight}" for place, weight in enumerate(ABA_WEIGHTS))
    return f"regexp_matches({cell}, '^[0-9]{{9}}$') AND ({' + '.join(digits)}) % 10 <> 0"


def _pandas_check(pa: Any, rule: SharedRule) -> Any:
    if rule.kind == "pattern":
        return pa.Check(lambda cells: cells.str.match(rule.pattern), name=rule.name)
    if rule.kind == "choice":
        return pa.Check(lambda cells: cells.isin(rule.values), name=rule.name)
    if rule.kind == "length":
        return pa.Check(lambda cells: cells.str.len() <= NAME_CHARACTERS_MAX, name=rule.name)
    return pa.Check(_pandas_checksum, name=rule.name)


def _pandas_checksum(cells: Any) -> Any:
    well_formed = cells.str.match("^[0-9]{9}$")
    numbers = cells.where(well_formed, "0").astype("int64")
    total = sum(numbers // 10 ** (8 - place) % 10 * weight for place, weight in enumerate(ABA_WEIGHTS))
    return total % 10 == 0


PEERS: dict[str, tuple[Peer, tuple[str, ...]]] = {
    "polars decodes all columns as text": (decode, ("polars",)),
    "polars by hand": (polars_by_hand, ("polars",)),
    "dataframely": (dataframely, ("dataframely",)),
    "DuckDB": (duckdb, ("duckdb",)),
    "pandera on pandas": (pandera_on_pandas, ("pandera.pandas",)),
}
"""Each peer and what it imports before its time is taken."""


def main() -> None:
    """Run one peer and print what it found and how long it took after its imports."""
    peer, modules = PEERS[sys.argv[1]]
    for module in modules:
        __import__(module)
    started = time.perf_counter()
    rows, failures = peer(Path(sys.argv[2]), Path(sys.argv[3]))
    print(json.dumps({"job_s": time.perf_counter() - started, "rows": rows, "failures": failures}))


if __name__ == "__main__":
    main()
