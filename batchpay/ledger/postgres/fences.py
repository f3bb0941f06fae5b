"""Fencing runs of other machines, and what is heard from them afterward.

A run that was fenced can no longer commit anything, but it is not known whether its machine is dead or only slow: a
permission that it holds expires after some seconds, and until it is heard from again, or a person says that its machine
is gone, none of its rows is sent again (decisions.py).
"""

from __future__ import annotations

from collections.abc import Collection

from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.moves import PostgresMover
from batchpay.ledger.postgres.store import PostgresTransaction
from batchpay.ledger.spill import merge, spill_files, spill_path

FENCED_REASON = "its machine was not heard of any more before an answer was recorded"


def fence(
    transaction: PostgresTransaction,
    run: int,
    batch: int,
    who: str,
    *,
    beats: int | None = None,
    heard_at: int | None = None,
) -> bool:
    """Fence a run for good: none of its commits is accepted anymore, and its chain of events has an end.

    `beats` is the count at which its counter was seen to stop: a run that has moved since is left alone. `heard_at` is
    given if its process has certainly ended, or a person has taken that on. Returns whether it was fenced.
    """
    values = {"heard": heard_at, "run": run, "beats": beats}
    found = transaction.one(sql.FENCE, values)
    if found is not None:
        detail = {"run": run, "number": found[0], "mac": found[1].hex()}
        transaction.event("fenced", batch, who, None, detail)
    return found is not None


def take_over(transaction: PostgresTransaction, run: int, batch: int, who: str, beats: int) -> int | None:
    """Fence a run whose heartbeat stands still at `beats`, and put what it was sending in doubt; return how many rows.

    None if it has moved or ended meanwhile: nothing was changed.
    """
    mover = PostgresMover(transaction, batch, "recovered", who, FENCED_REASON)  # it locks the batch, before the run is
    if not fence(transaction, run, batch, who, beats=beats):
        return None
    return mover.doubt_sending()


def hear(transaction: PostgresTransaction, run: int, batch: int, who: str, name: str, *, is_unique: bool) -> list[str]:
    """Record that a run of this machine which was fenced has ended, with the answers that came too late for it.

    They are evidence: a row in doubt to whose very attempt they belong becomes accepted or declined. None becomes
    pending through them: a person may have paid it by other means. Returns what else they say, in words.
    """
    is_news = transaction.execute(sql.SET_HEARD, (transaction.now_ms(), run)).rowcount > 0
    spilled = spill_path(transaction.witness, name, run)
    mover = PostgresMover(transaction, batch, "heard", who)
    late = merge(
        mover, [spilled] if spilled.exists() else [], transaction.keys, name,
        lambda found, outcome: mover.end_late(found.row, found.attempt, outcome, run), is_unique=is_unique,
    )  # fmt: skip
    mover.finish(**({"run": run} if is_news else {}), **({"answers": late.answers} if late.answers else {}))
    return late.told


def merge_spilled(
    transaction: PostgresTransaction,
    batch: int,
    who: str,
    name: str,
    at: int,
    heard: Collection[int],
    *,
    is_unique: bool,
) -> list[str]:
    """Merge outcomes that ended runs of this machine have spilled, except those of runs that were already heard.

    A row must still be in the very attempt that the outcome belongs to. Returns what the others say, in words.
    """
    merging = PostgresMover(transaction, batch, "merged", who)
    known = {spill_path(transaction.witness, name, run) for run in heard}
    late = merge(
        merging, [path for path in spill_files(transaction.witness, name) if path not in known], transaction.keys, name,
        lambda found, outcome: merging.end(found.row, found.attempt, outcome, at), is_unique=is_unique,
    )  # fmt: skip
    merging.finish(**late.detail)
    return late.told
