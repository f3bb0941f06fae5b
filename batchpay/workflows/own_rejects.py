"""Rejects of a known batch: no row that may have been paid comes back in them, and no other batch's are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from batchpay.ledger.contract import Ledger
from batchpay.payment import State
from batchpay.validation.chunk_result import ChunkResult
from batchpay.validation.verdict import Verdict
from batchpay.writing.place import first_row, numbered
from batchpay.writing.table import TABLE_ENDINGS

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary
    from batchpay.validation.rejects import Rejects

_SENT = (State.SENDING, State.ACCEPTED, State.DECLINED, State.IN_DOUBT)


def without_payments(
    ledger: Ledger,
    batch: BatchSummary,
    rejects: Rejects | None,
    anew: Callable[[], Rejects | None],
    verdict: Verdict,
    check: Callable[[ExitStack], Iterator[ChunkResult]],
) -> tuple[Rejects | None, bool]:
    """Write the rejects anew where the ledger holds one of their rows as a payment; what was sent is no error.

    Rules may have changed since (a start date has passed by now): a row that may have been paid must not come back as
    one to correct and send. `verdict` tells of each row whether it passes now, `check` asks the rules once more. Tells
    also whether any row came back.
    """
    registered = pl.Series([row.row for row in ledger.rejected(batch.batch)], dtype=pl.UInt32)
    failed = (~verdict.passed).arg_true().cast(pl.UInt32) + 1
    back = failed.is_in(registered.implode())
    if back.all():
        return rejects, len(failed) > 0
    if rejects is not None:
        rejects.abandon()
    rejects = anew()
    wanted = pl.col("_row").is_in(registered.implode())
    sent = pl.Series([row for some in ledger.row_columns(batch.batch, _SENT) for row in some.rows], dtype=pl.UInt32)
    try:
        with ExitStack() as storage:
            for result in check(storage):
                verdict.leave_out(result, sent)
                if rejects is None:
                    continue
                if result.late:
                    rejects.late(result.rejects().filter(wanted))
                elif result.as_read is not None:
                    rejects.add(result.rejects().filter(wanted))
    except BaseException:
        if rejects is not None:
            rejects.abandon()
        raise
    return rejects, bool(back.any())


def is_own_rejects(path: Path, number: int, results: Path | None, batch: str | None) -> bool:
    """Whether the rejects at a path are of this batch, or of none: by the results of the same number beside them.

    A rejects file does not name its batch. One that only a check wrote has no results beside it.
    """
    row = first_row(path)
    if row is None or "_row" not in row:
        return False
    if row["_row"] is None:  # a header alone
        return True
    if results is not None:
        return batch is not None and (first_row(numbered(results, number)) or {}).get("batch") == batch
    beside = [path.with_name(path.stem.replace(".rejects", ".results") + ending) for ending in TABLE_ENDINGS]
    return not any(one != path and first_row(one) for one in beside)
