"""A whole file through the rules, as the use cases drive it: for tests that need only the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol

import polars as pl

from batchpay.schemas.rule import RuleOptions
from batchpay.validation.check import ChunkSource, RowCheck
from batchpay.validation.duplicates import FrameSpool, Late, merged
from batchpay.validation.verdict import FAILURES_MAX, Verdict


class RejectsSink(Protocol):
    """Accepts the rows that failed, as read, with `_errors`, `_warnings` and `_suggestions`."""

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of one chunk, in row order."""

    def late(self, frame: pl.DataFrame) -> None:
        """Add rows in row order that only the whole file showed to fail; one that was added before is replaced."""


def check(
    source: ChunkSource,
    options: RuleOptions,
    *,
    rejects: RejectsSink | None = None,
    late: Callable[[Verdict], Mapping[int, Late]] = lambda verdict: {},
    rejected: list[pl.DataFrame] | None = None,
    max_failures: int = FAILURES_MAX,
) -> Verdict:
    """Apply every rule to every row; `rejected` gets, in row order, what the ledger would know of each rejected row."""
    verdict = Verdict(failures_max=max_failures)
    with ExitStack() as storage:
        asked = RowCheck(source, options, storage, line_word="line")
        early, came_late = FrameSpool(storage), FrameSpool(storage)
        for result in asked.results():
            verdict.add(result)
            if result.as_read is not None:
                early.append(result.rejected())
                if rejects is not None:
                    rejects.add(result.rejects())
        verdict.end(asked.late)
        elsewhere = late(verdict)
        verdict.end(elsewhere)
        for result in asked.finish(elsewhere):
            verdict.add_late(result)
            came_late.append(result.rejected())
            if rejects is not None:
                rejects.late(result.rejects())
        if rejected is not None:
            rejected.extend(merged(early, came_late))
    return verdict
