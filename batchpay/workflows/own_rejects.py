"""Rejects of a known batch: no row that may have been paid comes back in them, and no other batch's are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from batchpay.intake.own_output import first_row
from batchpay.ledger.contract import Ledger
from batchpay.payment import State
from batchpay.validation.chunk_result import ChunkResult
from batchpay.validation.verdict import Verdict
from batchpay.writing.table import TABLE_ENDINGS

if TYPE_CHECKING:
    from batchpay.intake.source import Source
    from batchpay.ledger.records import BatchSummary
    from batchpay.validation.rejects import Rejects

SENT = (State.SENDING, State.ACCEPTED, State.DECLINED, State.IN_DOUBT)


def without_payments(
    ledger: Ledger,
    batch: BatchSummary,
    rejects: Rejects | None,
    anew: Callable[[], Rejects | None],
    verdict: Verdict,
    check: Callable[[ExitStack], Iterator[ChunkResult]],
) -> tuple[Rejects | None, bool]:
    """Rewrite the rejects if the ledger has one of their rows as a payment; what was sent is not an error.

    Rules may have changed since (a start date has passed by now): a row that may have been paid must not come back as
    one to correct and send. `verdict` says for each row whether it passes now, `check` applies the rules once more.
    Also returns whether any row came back.
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
    sent = pl.Series([row for some in ledger.row_columns(batch.batch, SENT) for row in some.rows], dtype=pl.UInt32)
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


class OwnRejects:
    """Decides which rejects files of a name belong to the file that a submission has just read.

    Those in which every row is a row of this very file, unchanged: then nothing is lost, since each of them is among
    the new ones, or is a payment by now. A file that somebody corrected has other rows, and stays, as does another's.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left: list[Path] = []

    def __call__(self, path: Path, number: int) -> bool:
        """Return whether the rejects at a path are this file's own, or there are none."""
        row = first_row(path)
        if row is None or "_row" not in row:
            return False
        if row["_row"] is None:  # only a header
            return True
        from batchpay.validation.rejects import holds_only_rows_of  # also loads what writes workbooks

        is_own = holds_only_rows_of(self._source, path)
        if not is_own:
            self._left.append(path)
        return is_own

    @property
    def notes(self) -> list[str]:
        """Report which rejects stay though the batch may have written them: old ones must not be taken for new ones."""
        if not self._left:
            return []
        more = f" (and {len(self._left) - 1} more)" if len(self._left) > 1 else ""
        return [
            f"{self._left[0]}{more} was left as is: not all of its rows are rows of this file, cell for cell, so "
            "someone corrected it, or it belongs to another file; some of its rows may already be paid, so check "
            "before you submit it"
        ]


def is_of_no_submission(path: Path, number: int) -> bool:
    """Return whether the rejects at a path are a check's, or there are none: then no results are next to them."""
    row = first_row(path)
    if row is None or "_row" not in row:
        return False
    beside = [path.with_name(path.stem.replace(".rejects", ".results") + ending) for ending in TABLE_ENDINGS]
    return row["_row"] is None or not any(one != path and first_row(one) for one in beside)
