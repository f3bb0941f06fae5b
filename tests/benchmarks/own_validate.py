"""batchpay's check of a payment file with a CSV of rejects, with the fifteen shared rules alone.

Run as `python -m tests.benchmarks.own_validate INPUT REJECTS`; prints one JSON object.
"""

# ruff: noqa: E402 (polars reads when it is imported what the command line sets before)

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from batchpay.writing.process_memory import collect_rarely, keep_freed_memory

collect_rarely()
keep_freed_memory()

import pandera.polars as pa
import polars as pl

from batchpay.intake.source import open_source
from batchpay.schemas import payment
from batchpay.schemas.payment import payment_schema
from batchpay.schemas.rule import RuleOptions
from batchpay.validation import check as validation_check
from batchpay.validation.duplicates import Uniqueness
from batchpay.validation.rejects import open_rejects
from tests.benchmarks.data import AS_OF
from tests.benchmarks.rules import SHARED_RULES
from tests.support.whole_check import check

SHARED = {rule.name for rule in SHARED_RULES}


def only_the_shared(options: RuleOptions) -> pa.DataFrameSchema:
    """Leave out of the schema all checks but those of the shared rules that are errors."""
    schema = payment_schema(options)
    for name, column in schema.columns.items():
        column.checks[:] = [
            check for check in column.checks if f"{name}.{check.name}" in SHARED and not check.raise_warning
        ]
    found = {f"{name}.{check.name}" for name, column in schema.columns.items() for check in column.checks}
    assert found == SHARED, "each is one of ours"
    return schema


class NothingUnique(Uniqueness):
    """In place of the look at several rows, which is none of the shared rules."""

    def add(
        self, frame: pl.DataFrame, plain_cents: pl.Series | None, unfit: tuple[pl.Series, pl.Series] | None
    ) -> None:
        """Remember nothing."""


def main() -> None:
    """Check one file and print what was found and how long it took after the imports."""
    path, target = sys.argv[1], Path(sys.argv[2])
    options = RuleOptions(as_of=AS_OF)
    vars(validation_check)["Uniqueness"] = NothingUnique
    vars(payment)["payment_schema"] = only_the_shared
    started = time.perf_counter()
    with open_source(path) as source:
        rejects = open_rejects(target, source)
        verdict = check(source, options, rejects=rejects)
        rejects.commit()
    elapsed_s = time.perf_counter() - started
    print(json.dumps({"job_s": elapsed_s, "failures": sum(verdict.counts.values())}))


if __name__ == "__main__":
    main()
