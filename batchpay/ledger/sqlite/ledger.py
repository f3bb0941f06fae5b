"""The ledger on SQLite: contract.Ledger, assembled from the modules next to this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from pathlib import Path

from batchpay.errors import BatchHeld, WrongUse
from batchpay.ledger import machine
from batchpay.ledger import reading as common
from batchpay.ledger.event_chain import DAY_MS
from batchpay.ledger.machine import OwnClock, is_synchronized
from batchpay.ledger.records import HostRun, Purge
from batchpay.ledger.sqlite import audit, retention
from batchpay.ledger.sqlite.audit import check_batch
from batchpay.ledger.sqlite.backup import back_up
from batchpay.ledger.sqlite.batch_writer import SqliteWriting
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.reading import SqliteReading
from batchpay.ledger.sqlite.run import SqlitePace, SqliteRun
from batchpay.ledger.sqlite.store import SqliteStore
from batchpay.ledger.stored import StoredLedger
from batchpay.payment import Environment


class SqliteLedger(SqliteReading, SqliteWriting, StoredLedger[SqliteStore, SqliteRun]):
    """The ledger in an SQLite file; see contract.Ledger."""

    _new_run = SqliteRun
    _mover = SqliteMover

    def __init__(self, store: SqliteStore, opened_after_s: float) -> None:
        super().__init__(store, opened_after_s, store.place.ledger)

    def lock(self, digest: bytes) -> AbstractContextManager[None]:
        """See contract.Ledger. The kernel releases the lock when its holder dies."""
        self.store.check_process()
        return self._locks.hold(digest)

    def is_clock_sure(self) -> bool:
        clock, last_ms = OwnClock.compare(self.store.clock_mark), self.store.now_ms() - int(self.opened_after_s * 1000)
        return (clock.is_known and clock.began_ms <= last_ms) or is_synchronized()

    def certain_today(self) -> date:
        now_ms = self.store.now_ms() - self.store.ahead_ms
        if not is_synchronized():
            now_ms = min(now_ms, self.store.last_before_boot_ms + machine.since_boot_ms() + DAY_MS)
        with self.store.reading() as view:
            return common.today(self.store, view, now_ms)

    def take_over(self, digest: bytes, who: str, say: Callable[[str], None]) -> None:
        """Do nothing: no other machine has a file."""

    def left_behind(self, environment: Environment) -> list[str]:
        return []

    def is_held(self, digest: bytes) -> bool:
        return self._locks.is_held(digest)

    def _check_before_run(self, number: int) -> None:
        check_batch(self.store, number)

    def runs(self, batch: str) -> list[HostRun]:
        return []

    def shared_pace(self, environment: Environment, origin: str) -> SqlitePace:
        return SqlitePace(self.store, self._locks, environment.value, origin)

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        """Refuse: a file belongs to one machine."""
        raise WrongUse(
            "a ledger in a file belongs to one machine; several share one in a database: docs/several-machines.md"
        )

    def check(self) -> list[str]:
        return audit.check(self.store)

    def backup(self, target: Path) -> None:
        back_up(self.store, target)

    def unfinished_purge(self) -> bool:
        return retention.unfinished(self.store)

    def purge(self, before: datetime, who: str, why: str) -> Purge:
        self.refuse_while_held("a purge")
        pieces = retention.Pieces()
        erased, held = self._erase_old(before, who, why, pieces.erase_texts)
        searched = retention.complete(self.store, pieces, who) if retention.unfinished(self.store) else (0, 0)
        return Purge(erased, held, *searched)

    def refuse_while_held(self, what: str) -> None:
        """Raise BatchHeld while any process holds any batch: a ledger that is being rewritten keeps a run waiting."""
        if self._locks.any_is_held():
            raise BatchHeld(f"another run is working on a batch; {what} waits until none does")
