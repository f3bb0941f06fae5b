"""The ledger on PostgreSQL: contract.Ledger, assembled from the modules next to this file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from batchpay.errors import HeldElsewhere, WrongUse
from batchpay.ledger import records
from batchpay.ledger.columns import Earlier, Lookup, PaymentColumns
from batchpay.ledger.contract import Registering
from batchpay.ledger.days import NO_CHECK, DayCheck
from batchpay.ledger.machine import CLOCK_TIMES
from batchpay.ledger.postgres import audit, batch_writer, fences, reading, restoring, take_over
from batchpay.ledger.postgres.moves import PostgresMover, erase_texts
from batchpay.ledger.postgres.pace import PostgresPace
from batchpay.ledger.postgres.run import PostgresRun
from batchpay.ledger.postgres.store import PostgresStore
from batchpay.ledger.records import Decision, HostRun, NewBatch, PayeeFacts, Purge, RowColumns, SignOff
from batchpay.ledger.stored import StoredLedger
from batchpay.payment import Environment, State

_NOT_BACKED_UP = (
    "a ledger on PostgreSQL is backed up by the database's own means (pg_dump, base backups with archived WAL); "
    "its key is not in such a copy"
)


class PostgresLedger(StoredLedger[PostgresStore, PostgresRun]):
    """The ledger in a PostgreSQL database; see contract.Ledger."""

    _new_run = PostgresRun

    def __init__(self, store: PostgresStore, opened_after_s: float) -> None:
        super().__init__(store, opened_after_s, store.paths.witness)

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

    def resolve(self, batch: str, decisions_: Sequence[Decision], who: str, why: str) -> int:
        return restoring.resolve(self.store, batch, self._batch(batch), decisions_, who, why)

    def _mover(self, transaction: Any, batch: int, event: str, who: str, why: str) -> PostgresMover:
        return PostgresMover(transaction, batch, event, who, why)

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        return fences.say_hosts_gone(self.store, self._batch(batch), who, why)

    def runs(self, batch: str) -> list[HostRun]:
        return reading.runs(self.store, self._batch(batch))

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
