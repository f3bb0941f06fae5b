"""The ledger on SQLite: contract.Ledger, assembled from the modules next to this file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from batchpay.errors import BatchHeld, WrongUse
from batchpay.ledger import machine
from batchpay.ledger import reading as common
from batchpay.ledger.columns import Earlier, Lookup, PaymentColumns
from batchpay.ledger.contract import Registering
from batchpay.ledger.days import NO_CHECK, DayCheck
from batchpay.ledger.decisions import IN_DOUBT_SETTLED, require_named, settle
from batchpay.ledger.event_chain import DAY_MS
from batchpay.ledger.machine import OwnClock, is_synchronized
from batchpay.ledger.records import Decision, HostRun, NewBatch, PayeeFacts, Purge, RowColumns, SignOff
from batchpay.ledger.spill import refuse_unheard_answers
from batchpay.ledger.sqlite import audit, batch_writer, reading, retention
from batchpay.ledger.sqlite.audit import check_batch
from batchpay.ledger.sqlite.backup import back_up
from batchpay.ledger.sqlite.moves import SqliteMover
from batchpay.ledger.sqlite.run import SqlitePace, SqliteRun
from batchpay.ledger.sqlite.store import SqliteStore
from batchpay.ledger.stored import StoredLedger
from batchpay.payment import Environment, State


class SqliteLedger(StoredLedger[SqliteStore, SqliteRun]):
    """The ledger in an SQLite file; see contract.Ledger."""

    _new_run = SqliteRun

    def __init__(self, store: SqliteStore, opened_after_s: float) -> None:
        super().__init__(store, opened_after_s, store.place.ledger)

    def earlier(
        self,
        lookup: Lookup,
        environment: Environment,
        *,
        days: int,
        apart: int = 1,
        now: datetime,
        exclude_digest: bytes | None = None,
        within: str = "",
    ) -> list[Earlier]:
        return reading.earlier(self.store, lookup, environment, days, apart, now, exclude_digest or b"", within)

    def register(
        self, batch: NewBatch, who: str, day_check: DayCheck = NO_CHECK
    ) -> AbstractContextManager[Registering]:
        return batch_writer.registering(self.store, batch, who, day_check)

    def release(
        self,
        batch: str,
        payments: Iterable[PaymentColumns],
        who: str,
        why: str,
        *,
        registration_count_seen: int,
        sign_off: SignOff | None = None,
        allowed_duplicates: dict[str, Any] | None = None,
        day_check: DayCheck = NO_CHECK,
        lifts: Sequence[bytes] = (),
    ) -> int:
        seen, number = registration_count_seen, self._batch(batch)
        return batch_writer.release(
            self.store, number, payments, who, why, seen, sign_off, allowed_duplicates, day_check, lifts
        )

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

    def row_columns(
        self,
        batch: str,
        states: Sequence[State] | None = None,
        cents: Collection[int] | None = None,
        due: date | None = None,
    ) -> Iterator[RowColumns]:
        return reading.row_columns(self.store, batch, states, cents, due)

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, PayeeFacts]:
        return reading.payee_facts(self.store, payees, environment, exclude_digest)

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, str]:
        return reading.last_accounts(self.store, payees, environment, exclude_digest)

    def resolve(self, batch: str, decisions: Sequence[Decision], who: str, why: str) -> int:
        number = self._batch(batch)
        require_named(IN_DOUBT_SETTLED, who, why)
        refuse_unheard_answers(self.store.place.witness, self.store.keys, batch, decisions)
        with self.store.transaction() as transaction:
            return settle(SqliteMover(transaction, number, "resolved", who, why), decisions, who, why)

    def _mover(self, transaction: Any, batch: int, event: str, who: str, why: str) -> SqliteMover:
        return SqliteMover(transaction, batch, event, who, why)

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
