"""Taking over a batch whose run, on another machine, shows no sign of life; nobody has to start or confirm anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from batchpay.ledger import records
from batchpay.ledger.postgres import fences, heartbeat
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable
from batchpay.ledger.postgres.deadline import RECONNECT_S
from batchpay.ledger.postgres.marks import RunMarks
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.payment import Environment
from batchpay.text import row_count


@dataclass(frozen=True, slots=True)
class RunElsewhere:
    """A run of another machine that the ledger considers alive."""

    id: int
    host: str
    age_s: float
    """How old its heartbeat is, by the server's clock."""
    batch: int
    name: str

    def told(self, store: PostgresStore) -> str:
        """Return which machine has the batch, how far it is, and how old its heartbeat is."""
        with store.reading() as connection:
            sent, sendable = connection.execute(sql.SENT, (self.batch,)).fetchone() or (0, 0)
        return (
            f"a run on {self.host} has batch {self.name} and has sent {sent:,} of {sendable:,}; its heartbeat is "
            f"{max(0, int(self.age_s))} s old"
        )


def runs_elsewhere(store: PostgresStore, digest: bytes) -> list[RunElsewhere]:
    """Return the runs of a content on other machines; one begun here is held only by the lock."""
    marks = RunMarks(store.paths.witness)
    with store.reading() as connection:
        found = connection.execute(sql.LIVE_RUNS_OF_DIGEST, (digest,)).fetchall()
    return [
        RunElsewhere(run, host, age_ms / 1000, batch, name)
        for run, host, token, age_ms, batch, name in found
        if not marks.exists(token)
    ]


def take_over(store: PostgresStore, digest: bytes, who: str, say: Callable[[str], None]) -> None:
    for run in runs_elsewhere(store, digest):
        say(f"{run.told(store)}; if that stands still for {records.LEASE_S:.0f} s, this machine takes over")
        beats = _stands_still_at(store, run)
        if beats is None:
            continue  # whoever has the batch now is told by the lock
        with store.transaction() as transaction:
            transaction.execute(sql.WAIT_LONG)  # its machine may sleep with the batch locked: at most for a minute
            doubts = fences.take_over(transaction, run.id, run.batch, who, beats)
        if doubts is not None:
            say(
                f"the run on {run.host} shows no sign of life: this machine goes on with batch {run.name}; "
                f"{row_count(doubts)} that it was sending are in doubt"
            )


def _stands_still_at(store: PostgresStore, run: RunElsewhere) -> int | None:
    """Watch a run's heartbeat for as long as it may stand still; return its count, or None if it moves or has ended."""
    observer, lost_at_s = heartbeat.Observer(), time.monotonic()
    while True:
        try:
            with store.transaction() as transaction:
                transaction.execute(sql.COMMIT_NOTHING)
                found = transaction.one(sql.BEATS_OF_RUN, (run.id,))
        except LedgerUnreachable:
            observer.fail()
            if time.monotonic() - lost_at_s > RECONNECT_S:
                raise
        else:
            lost_at_s = time.monotonic()
            if found is None or observer.look(found[0]):
                return None
            if observer.is_dead:
                return int(found[0])
        time.sleep(heartbeat.LOOK_S)


def left_behind(store: PostgresStore, environment: Environment) -> list[str]:
    with store.reading() as connection:
        found = connection.execute(sql.LIVE_RUNS_OF_ENVIRONMENT, (environment.value,)).fetchall()
    marks = RunMarks(store.paths.witness)
    return [name for name, token, age_ms in found if age_ms >= records.LEASE_S * 1000 and not marks.exists(token)]
