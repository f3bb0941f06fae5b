"""The ledger on SQLite: contract.Ledger, put together from the parts beside this file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from batchpay.errors import BatchHeld, BatchpayError, WrongUse
from batchpay.ledger.contract import Registering
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.keys import BESIDE
from batchpay.ledger.locks import BatchLocks
from batchpay.ledger.records import (
    PERSON_CHANGED,
    BatchSummary,
    Decision,
    Earlier,
    Event,
    LedgerRow,
    Lookup,
    LostWindow,
    NewBatch,
    OldBatch,
    PayeeFacts,
    PaymentColumns,
    Purge,
    RejectedRow,
    RowColumns,
    SignOff,
)
from batchpay.ledger.sqlite import (
    audit,
    batch_writer,
    duplicate_lookup,
    payee_history,
    plans,
    reading,
    resolution,
    restoring,
    retention,
)
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.backup import back_up, note_backup
from batchpay.ledger.sqlite.batch_replay import check_batch
from batchpay.ledger.sqlite.pace_file import PaceFile, pace_file
from batchpay.ledger.sqlite.run import SqliteRun
from batchpay.ledger.sqlite.store import Store
from batchpay.payment import Environment, State

_ONE_MACHINE = "a ledger in a file belongs to one machine; several share one in a database: docs/several-machines.md"


def _refuse_help(helps: bool) -> None:
    if helps:
        raise WrongUse(_ONE_MACHINE)


class SqliteLedger:
    """The ledger in an SQLite file; see contract.Ledger."""

    def __init__(self, store: Store, opened_after_s: float) -> None:
        self.opened_after_s = opened_after_s
        self._store = store
        self._locks = BatchLocks(store.place.ledger.with_name(f"{store.place.ledger.name}.d"))
        self._runs: list[SqliteRun] = []

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._store.close()

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        return self._store.keys.digest(purpose, texts, size)

    def digest_stream(self, purpose: str) -> Any:
        return self._store.keys.digest_stream(purpose)

    def seal(self, plain: bytes, place: str) -> bytes:
        return self._store.keys.seal(plain, BESIDE + place)

    def unseal(self, sealed: bytes, place: str) -> bytes:
        return self._store.keys.unseal(sealed, BESIDE + place)

    def registration_count(self) -> int:
        with self._store.reading() as connection:
            return batch_writer.registration_count(connection)

    def batch_count(self, environment: Environment) -> int:
        with self._store.reading() as connection:
            found = connection.execute(sql.COUNT_BATCHES, (environment,)).fetchone()
            return int(found[0])

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> BatchSummary | None:
        return reading.find_digest(self._store, digest, environment, again_reason)

    def earlier(
        self,
        lookup: Lookup,
        environment: Environment,
        *,
        days: int,
        now: datetime,
        exclude_digest: bytes | None = None,
    ) -> list[Earlier]:
        return duplicate_lookup.earlier(self._store, lookup, environment, days, now, exclude_digest)

    def register(self, batch: NewBatch, who: str) -> AbstractContextManager[Registering]:
        return batch_writer.registering(self._store, batch, who)

    def release(
        self,
        batch: str,
        payments: Iterable[PaymentColumns],
        who: str,
        why: str,
        *,
        registration_count_seen: int,
        sign_off: SignOff | None = None,
    ) -> int:
        number = reading.batch_number(self._store, batch)[0]
        return batch_writer.release(self._store, number, payments, who, why, registration_count_seen, sign_off)

    def use_plan(self, batch: str, who: str, sign_off: SignOff) -> None:
        plans.record_alone(self._store, reading.batch_number(self._store, batch)[0], who, sign_off)

    def batch_of_plan(self, plan: str) -> str | None:
        return plans.batch_of_plan(self._store, plan)

    def approvers(self, batch: str) -> int:
        return plans.approvers(self._store, reading.batch_number(self._store, batch)[0])

    def lock(self, digest: bytes, *, helps: bool = False) -> AbstractContextManager[None]:
        """See contract.Ledger. The kernel gives the lock back when its holder dies."""
        _refuse_help(helps)
        self._store.check_process()
        return self._locks.hold(digest)

    def is_held(self, digest: bytes) -> bool:
        return self._locks.is_held(digest)

    def start(self, batch: str, who: str, why: str | None = None, *, helps: bool = False) -> SqliteRun:
        _refuse_help(helps)
        number, digest = reading.batch_number(self._store, batch)
        if digest not in self._locks.held:
            raise BatchpayError("a run was started on a batch that is not held")
        check_batch(self._store, number)
        run = SqliteRun(self._store, number, batch, who, why)
        self._runs.append(run)
        return run

    def at_work(self, environment: Environment) -> list[BatchSummary]:
        """Refuse: a file belongs to one machine."""
        raise WrongUse(_ONE_MACHINE)

    def runs(self, batch: str) -> list[HostRun]:
        return []

    def shared_rate(self, gateway: str) -> PaceFile | None:
        """See contract.Ledger."""
        return pace_file(self._locks.folder, gateway)

    def find(self, reference: str | None, environment: Environment | None = None) -> BatchSummary:
        return reading.find(self._store, reference, environment)

    def batches(self) -> list[BatchSummary]:
        return reading.batches(self._store)

    def last_event_at(self, batch: str) -> datetime:
        return reading.last_event_at(self._store, reading.batch_number(self._store, batch)[0])

    def rows(self, batch: str, states: Sequence[State] | None = None) -> Iterator[LedgerRow]:
        return reading.rows(self._store, batch, states)

    def row_columns(self, batch: str, states: Sequence[State] | None = None) -> Iterator[RowColumns]:
        return reading.row_columns(self._store, batch, states)

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        return reading.rejected(self._store, batch)

    def events(self, batch: str | None = None) -> Iterator[Event]:
        return reading.events(self._store, batch)

    def latest_event(self, kind: str) -> Event | None:
        return reading.latest_event(self._store, kind)

    def origins(self, environment: Environment) -> list[str]:
        return reading.origins(self._store, environment)

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        return reading.gateway_references(self._store, environment)

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, PayeeFacts]:
        return payee_history.payee_facts(self._store, payees, environment, exclude_digest)

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, str]:
        return reading.last_accounts(self._store, payees, environment, exclude_digest)

    def resolve(self, batch: str, decisions: Sequence[Decision], who: str, why: str) -> int:
        return resolution.resolve(self._store, reading.batch_number(self._store, batch)[0], decisions, who, why)

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        """Refuse: a file belongs to one machine."""
        raise WrongUse(_ONE_MACHINE)

    def lost_window(self) -> LostWindow | None:
        with self._store.reading() as connection:
            return restoring.open_lost_window(connection)

    def move_gateway(self, batches: Sequence[str], origin: str, who: str, why: str) -> None:
        resolution.move_gateway(self._store, batches, origin, who, why)

    def check(self) -> list[str]:
        return audit.check(self._store)

    def backup(self, target: Path) -> None:
        back_up(self._store, target)

    def note_backup(self, who: str, name: str) -> None:
        note_backup(self._store, who, name)

    def note_person(self, who: str, what: str) -> None:
        with self._store.transaction() as transaction:
            transaction.event(PERSON_CHANGED, None, who, what, {})

    def old_batches(self, before: datetime) -> list[OldBatch]:
        return retention.old_batches(self._store, before)

    def unfinished_purge(self) -> bool:
        return retention.unfinished(self._store)

    def purge(self, before: datetime, who: str, why: str) -> Purge:
        self._refuse_while_held()
        erased, held, pieces = [], [], retention.Pieces()
        for old in retention.old_batches(self._store, before):
            if old.stays is not None:
                continue
            try:
                with self.lock(self.find(old.batch).digest):
                    retention.erase(self._store, old.batch, before, who, why, pieces)
            except BatchHeld:
                held.append(old.batch)
            else:
                erased.append(old)
        searched = retention.complete(self._store, pieces, who) if retention.unfinished(self._store) else (0, 0)
        return Purge(erased, held, *searched)

    def _refuse_while_held(self) -> None:
        """Raise BatchHeld while anybody holds any batch: a ledger that is being written anew keeps a run waiting."""
        if self._locks.any_is_held():
            raise BatchHeld("another run is working on a batch; a purge waits until none does")
