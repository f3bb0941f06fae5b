"""The ledger on PostgreSQL: contract.Ledger, assembled from the modules next to this file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from batchpay.errors import HeldElsewhere, WrongUse
from batchpay.ledger import records
from batchpay.ledger.decisions import require_named
from batchpay.ledger.machine import CLOCK_TIMES
from batchpay.ledger.postgres import audit, take_over
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.batch_writer import PostgresWriting
from batchpay.ledger.postgres.moves import PostgresMover, erase_texts
from batchpay.ledger.postgres.pace import PostgresPace
from batchpay.ledger.postgres.reading import PostgresReading
from batchpay.ledger.postgres.run import PostgresRun
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.ledger.records import Purge
from batchpay.ledger.stored import StoredLedger
from batchpay.payment import Environment

_NOT_BACKED_UP = (
    "a ledger on PostgreSQL is backed up by the database's own means (pg_dump, base backups with archived WAL); "
    "its key is not in such a copy"
)


class PostgresLedger(PostgresReading, PostgresWriting, StoredLedger[PostgresStore, PostgresRun]):
    """The ledger in a PostgreSQL database; see contract.Ledger."""

    _new_run = PostgresRun
    _mover = PostgresMover

    def __init__(self, store: PostgresStore, opened_after_s: float) -> None:
        super().__init__(store, opened_after_s, store.paths.witness)

    @contextmanager
    def lock(self, digest: bytes) -> Iterator[None]:
        """See contract.Ledger: this machine's processes are excluded by a file, other machines by their runs."""
        self.store.check_process()
        with self._locks.hold(digest):
            if runs := take_over.runs_elsewhere(self.store, digest):
                raise HeldElsewhere(runs[0].told(self.store))
            yield

    def is_clock_sure(self) -> bool:
        return True

    def take_over(self, digest: bytes, who: str, say: Callable[[str], None]) -> None:
        take_over.take_over(self.store, digest, who, say)

    def left_behind(self, environment: Environment) -> list[str]:
        return take_over.left_behind(self.store, environment)

    def is_held(self, digest: bytes) -> bool:
        """See contract.Ledger: a run elsewhere holds it until it could be fenced, as far as its heartbeat says."""
        return self._locks.is_held(digest) or any(
            run.age_s < records.LEASE_S for run in take_over.runs_elsewhere(self.store, digest)
        )

    def _check_before_run(self, number: int) -> None:
        self.store.ask_clock(times=CLOCK_TIMES).require_alike()
        audit.check_batch(self.store, number)

    def shared_pace(self, environment: Environment, origin: str) -> PostgresPace:
        return PostgresPace(self.store, environment.value, origin)

    def _refuse_rows_of_unheard(self, transaction: Any, batch: int, rows: Sequence[int]) -> None:
        """It may only be asleep."""
        if (found := transaction.one(sql.SENT_BY_UNHEARD, (batch, list(rows)))) is not None:
            raise WrongUse(
                f"row {found[0]} was being sent by {found[1]}, whose run was fenced and has not been heard of since: "
                "if it resumes, it may still send it. Let it resume, or turn it off for good and confirm it: batchpay "
                "resolve with --host-is-gone; nothing was changed"
            )

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        number = self._batch(batch)
        require_named("a machine is said to be gone", who, why)
        with self.store.transaction() as transaction:
            found = transaction.execute(sql.HOSTS_ARE_GONE, (transaction.now_ms(), number)).fetchall()
            hosts = sorted({host for _, host in found})
            if found:
                detail = {"runs": sorted(run for run, _ in found), "hosts": hosts}
                transaction.event(records.HOSTS_GONE, number, who, why, detail)
        return hosts

    def check(self) -> list[str]:
        return audit.check(self.store)

    def backup(self, target: Path) -> None:
        """Refuse: see contract.Ledger, and the database's own manual."""
        raise WrongUse(_NOT_BACKED_UP)

    def unfinished_purge(self) -> bool:
        return False

    def purge(self, before: datetime, who: str, why: str) -> Purge:
        """See contract.Ledger: the server's own files, logs and backups can't be searched from here."""
        return Purge(*self._erase_old(before, who, why, erase_texts), 0, 0)
