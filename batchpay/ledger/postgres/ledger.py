"""The ledger on PostgreSQL: contract.Ledger, put together from the parts beside this file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from batchpay.errors import BatchpayError, HeldElsewhere, WrongUse
from batchpay.ledger.contract import Registering
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.keys import BESIDE
from batchpay.ledger.locks import BatchLocks
from batchpay.ledger.postgres import audit, batch_writer, decisions, fences, lookup, reading, restoring
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.company_statements import BATCHES_AT_WORK, LIVE_RUNS_OF_DIGEST, SENT
from batchpay.ledger.postgres.marks import RunMarks
from batchpay.ledger.postgres.run import PostgresRun
from batchpay.ledger.postgres.shared_pace import SharedPace
from batchpay.ledger.postgres.store import Store
from batchpay.ledger.records import (
    BACKED_UP,
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
from batchpay.payment import Environment, State

_NOT_BACKED_UP = (
    "a ledger on PostgreSQL is backed up by the database's own means (pg_dump, base backups with archived WAL); "
    "its key is not in such a copy"
)
_NOT_PURGED = (
    "a ledger on PostgreSQL is not purged yet: what is deleted there stays in the server's files, its logs and its "
    "backups, where batchpay can't look for it"
)


class PostgresLedger:
    """The ledger in a PostgreSQL database; see contract.Ledger."""

    def __init__(self, store: Store, opened_after_s: float) -> None:
        self.opened_after_s = opened_after_s
        self.store = store
        self._locks = BatchLocks(store.paths.witness.with_name(f"{store.paths.witness.name}.d"))
        self._runs: list[PostgresRun] = []

    def __enter__(self) -> PostgresLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self.store.close()

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        return self.store.keys.digest(purpose, texts, size)

    def digest_stream(self, purpose: str) -> Any:
        return self.store.keys.digest_stream(purpose)

    def seal(self, plain: bytes, place: str) -> bytes:
        return self.store.keys.seal(plain, BESIDE + place)

    def unseal(self, sealed: bytes, place: str) -> bytes:
        return self.store.keys.unseal(sealed, BESIDE + place)

    def registration_count(self) -> int:
        return self._number(sql.REGISTRATIONS, ())

    def batch_count(self, environment: Environment) -> int:
        return self._number(sql.COUNT_BATCHES, (environment.value,))

    def _number(self, statement: str, parameters: Sequence[Any]) -> int:
        with self.store.reading() as connection:
            found = connection.execute(statement, parameters).fetchone()
            return int(found[0]) if found else 0

    def _batch(self, name: str) -> int:
        return reading.batch_number(self.store, name)[0]

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> BatchSummary | None:
        return reading.find_digest(self.store, digest, environment, again_reason)

    def earlier(
        self,
        lookup_: Lookup,
        environment: Environment,
        *,
        days: int,
        now: datetime,
        exclude_digest: bytes | None = None,
    ) -> list[Earlier]:
        return lookup.earlier(self.store, lookup_, environment, days, now, exclude_digest)

    def register(self, batch: NewBatch, who: str) -> AbstractContextManager[Registering]:
        return batch_writer.registering(self.store, batch, who)

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
        return batch_writer.release(
            self.store, self._batch(batch), payments, who, why, registration_count_seen, sign_off
        )

    def use_plan(self, batch: str, who: str, sign_off: SignOff) -> None:
        decisions.use_plan_alone(self.store, self._batch(batch), who, sign_off)

    def batch_of_plan(self, plan: str) -> str | None:
        return decisions.batch_of_plan(self.store, plan)

    def approvers(self, batch: str) -> int:
        return decisions.approvers(self.store, self._batch(batch))

    @contextmanager
    def lock(self, digest: bytes, *, helps: bool = False) -> Iterator[None]:
        """See contract.Ledger: against this machine's processes by a file, against other machines by their runs."""
        self.store.check_process()
        with self._locks.hold(digest):
            held = None if helps else self._held_elsewhere(digest)
            if held is not None:
                raise HeldElsewhere(held)
            yield

    def is_held(self, digest: bytes) -> bool:
        return self._locks.is_held(digest) or self._held_elsewhere(digest) is not None

    def _held_elsewhere(self, digest: bytes) -> str | None:
        """Say which machine works on this content, how far it is; what was begun here is held by the lock alone."""
        marks = RunMarks(self.store.paths.witness)
        with self.store.reading() as connection:
            for host, token, batch, name in connection.execute(LIVE_RUNS_OF_DIGEST, (digest,)).fetchall():
                if not marks.exists(token):
                    sent, sendable = connection.execute(SENT, (batch,)).fetchone() or (0, 0)
                    return f"a run on {host} has sent {sent:,} of {sendable:,}; help with: batchpay work {name}"
        return None

    def at_work(self, environment: Environment) -> list[BatchSummary]:
        with self.store.reading() as connection:
            found = connection.execute(BATCHES_AT_WORK, (environment.value,)).fetchall()
        return [reading.find(self.store, name, environment) for (name,) in found]

    def start(self, batch: str, who: str, why: str | None = None, *, helps: bool = False) -> PostgresRun:
        number, digest = reading.batch_number(self.store, batch)
        if digest not in self._locks.held:
            raise BatchpayError("a run was started on a batch that is not held")
        audit.check_batch(self.store, number)
        run = PostgresRun(self.store, number, batch, who, why, helps=helps)
        self._runs.append(run)
        return run

    def shared_rate(self, gateway: str) -> SharedPace:
        return SharedPace(self.store, gateway)

    def find(self, reference: str | None, environment: Environment | None = None) -> BatchSummary:
        return reading.find(self.store, reference, environment)

    def batches(self) -> list[BatchSummary]:
        return reading.batches(self.store)

    def last_event_at(self, batch: str) -> datetime:
        return reading.last_event_at(self.store, self._batch(batch))

    def rows(self, batch: str, states: Sequence[State] | None = None) -> Iterator[LedgerRow]:
        return reading.rows(self.store, batch, states)

    def row_columns(self, batch: str, states: Sequence[State] | None = None) -> Iterator[RowColumns]:
        return reading.row_columns(self.store, batch, states)

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        return reading.rejected(self.store, batch)

    def events(self, batch: str | None = None) -> Iterator[Event]:
        return reading.events(self.store, batch)

    def latest_event(self, kind: str) -> Event | None:
        return reading.latest_event(self.store, kind)

    def origins(self, environment: Environment) -> list[str]:
        return reading.origins(self.store, environment)

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        return reading.gateway_references(self.store, environment)

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, PayeeFacts]:
        return lookup.payee_facts(self.store, payees, environment, exclude_digest)

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> dict[bytes, str]:
        return reading.last_accounts(self.store, payees, environment, exclude_digest)

    def resolve(self, batch: str, decisions_: Sequence[Decision], who: str, why: str) -> int:
        return decisions.resolve(self.store, self._batch(batch), decisions_, who, why)

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        return fences.say_hosts_gone(self.store, self._batch(batch), who, why)

    def runs(self, batch: str) -> list[HostRun]:
        return reading.runs(self.store, self._batch(batch))

    def lost_window(self) -> LostWindow | None:
        with self.store.reading() as connection:
            return restoring.open_lost_window(connection)

    def move_gateway(self, batches: Sequence[str], origin: str, who: str, why: str) -> None:
        decisions.move_gateway(self.store, batches, origin, who, why)

    def check(self) -> list[str]:
        return audit.check(self.store)

    def backup(self, target: Path) -> None:
        """Refuse: see contract.Ledger, and the database's own manual."""
        raise WrongUse(_NOT_BACKED_UP)

    def note_backup(self, who: str, name: str) -> None:
        with self.store.transaction() as transaction:
            transaction.event(BACKED_UP, None, who, None, {"file": name})

    def note_person(self, who: str, what: str) -> None:
        with self.store.transaction() as transaction:
            transaction.event(PERSON_CHANGED, None, who, what, {})

    def old_batches(self, before: datetime) -> list[OldBatch]:
        """Refuse: nothing of a ledger on PostgreSQL is purged yet."""
        raise WrongUse(_NOT_PURGED)

    def unfinished_purge(self) -> bool:
        return False

    def purge(self, before: datetime, who: str, why: str) -> Purge:
        """Refuse: nothing of a ledger on PostgreSQL is purged yet."""
        raise WrongUse(_NOT_PURGED)
