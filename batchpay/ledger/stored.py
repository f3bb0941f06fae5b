"""What every ledger does alike, whatever database holds it; sqlite/ledger.py and postgres/ledger.py have the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from zoneinfo import ZoneInfo

from batchpay.errors import BatchHeld, BatchpayError, LedgerDamaged, LedgerNotUsable
from batchpay.ledger import decisions, reading, retention
from batchpay.ledger.columns import PaidTo
from batchpay.ledger.contract import Run
from batchpay.ledger.database import Parameters
from batchpay.ledger.day_limits import added_alone, known
from batchpay.ledger.days import NO_LIMITS, DayCheck, DayLimits, MakerCheck, SendingDay, Sums
from batchpay.ledger.decisions import open_lost_window
from batchpay.ledger.event_chain import DIRECTION_CODES, noted_at_start, to_datetime, to_ms
from batchpay.ledger.keys import BESIDE
from batchpay.ledger.mover import Mover
from batchpay.ledger.paths import BatchLocks
from batchpay.ledger.records import (
    BACKED_UP,
    PERSON_CHANGED,
    POLICY,
    WITNESS_ACCEPTED,
    BatchSummary,
    Event,
    LedgerRow,
    LostWindow,
    Numbers,
    OldBatch,
    RejectedRow,
    RowColumns,
    SignOff,
)
from batchpay.ledger.series import numbers_of
from batchpay.ledger.spill import read_spill, spill_files
from batchpay.ledger.stored_facts import StoredFacts, StoreT
from batchpay.payment import Environment, State

_Run = TypeVar("_Run", bound=Run)


class StoredLedger(StoredFacts[StoreT], ABC, Generic[StoreT, _Run]):
    """A ledger over its store; see contract.Ledger."""

    _new_run: Callable[..., _Run]
    """Begins a run, whose start notes what is to be noted."""

    def __init__(self, store: StoreT, opened_after_s: float, beside: Path) -> None:
        """`beside` is the file on this machine next to which the batch locks are."""
        self.opened_after_s = opened_after_s
        self.store = store
        self._locks = BatchLocks(beside.with_name(f"{beside.name}.d"))
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self.store.close()

    @property
    def outdated(self) -> str | None:
        return self.store.outdated

    @property
    def differences(self) -> Sequence[LedgerNotUsable]:
        return self.store.differences

    def now(self) -> datetime:
        return to_datetime(self.store.now_ms() - self.store.ahead_ms)

    def today(self) -> date:
        with self.store.reading() as view:
            return reading.today(self.store, view)

    def certain_today(self) -> date:
        return self.today()

    def zone(self) -> ZoneInfo | None:
        with self.store.reading() as view:
            return reading.zone(self.store, view)

    def policy(self) -> Event | None:
        return self.latest_event(POLICY)

    def set_policy(self, change: Callable[[dict[str, Any]], dict[str, Any]], who: str, why: str) -> None:
        decisions.require_named("the policy is set", who, why)
        with self.store.transaction() as transaction:
            transaction.registrations()  # until the end nobody else changes it
            changed = change(reading.policy(transaction, transaction.statements))
            transaction.event(POLICY, None, who, why, changed)

    @property
    def clock_ahead(self) -> timedelta:
        return timedelta(milliseconds=self.store.ahead_ms)

    @abstractmethod
    def is_clock_sure(self) -> bool:
        """See contract.Ledger."""

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        return self.store.keys.digest(purpose, texts, size)

    def digest_stream(self, purpose: str) -> Any:
        return self.store.keys.digest_stream(purpose)

    def seal(self, plain: bytes, place: str) -> bytes:
        return self.store.keys.seal(plain, BESIDE + place)

    def unseal(self, sealed: bytes, place: str) -> bytes:
        try:
            return self.store.keys.unseal(sealed, BESIDE + place)
        except LedgerDamaged:  # the ledger itself is not
            raise LedgerDamaged(
                f"{place} can't be decrypted: it was changed, or was written with another key than ledger.key_file"
            ) from None

    def registration_count(self) -> int:
        return self._number(self.store.statements.REGISTRATION_COUNT)

    def batch_count(self, environment: Environment) -> int:
        return self._number(self.store.statements.COUNT_BATCHES, (environment.value,))

    def _number(self, statement: str, parameters: Parameters = ()) -> int:
        with self.store.reading() as view:
            return int(view.execute(statement, parameters).fetchone()[0])

    def _batch(self, name: str) -> int:
        return reading.batch_number(self.store, name)[0]

    def _held_batch(self, name: str) -> int:
        number, digest = reading.batch_number(self.store, name)
        if digest not in self._locks.held:
            raise BatchpayError("the batch is not held")
        return number

    def start(
        self,
        batch: str,
        who: str,
        why: str | None = None,
        *,
        results: str | None = None,
        api_id: str | None = None,
        reference_is_unique: bool = False,
        day: date | None = None,
        limits: DayLimits = NO_LIMITS,
    ) -> _Run:
        noted, number = noted_at_start(self.store.keys, results, api_id), self._held_batch(batch)
        limits = limits.without(decisions.lifted(self.store, number))
        sending = SendingDay(self.find(batch).environment, day or self.today(), limits)
        self._check_before_run(number)
        is_unique = reference_is_unique
        run = self._new_run(self.store, number, batch, who, why, noted, is_unique=is_unique, sending=sending)
        self._runs.append(run)
        return run

    def cancel(self, batch: str, rows: Sequence[int] | None, who: str, why: str) -> int:
        number = self._held_batch(batch)
        decisions.require_named("rows are cancelled", who, why)
        with self.store.transaction() as transaction:
            return decisions.cancel(self._mover(transaction, number, "cancelled", who, why), rows)

    @abstractmethod
    def _mover(self, transaction: Any, batch: int, event: str, who: str, why: str) -> Mover:
        """Return what moves rows of a batch in a transaction."""

    @abstractmethod
    def lock(self, digest: bytes) -> AbstractContextManager[None]:
        """Hold all batches of a content; see contract.Ledger."""

    @abstractmethod
    def _check_before_run(self, number: int) -> None:
        """Hold a batch against its history."""

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> BatchSummary | None:
        return reading.find_digest(self.store, digest, environment, again_reason)

    def numbers_of(self, series: str, environment: Environment) -> Numbers:
        with self.store.reading() as view:
            return numbers_of(view, self.store.statements, series, environment)

    def find_file(self, file_digest: str, environment: Environment) -> BatchSummary | None:
        return reading.find_file(self.store, file_digest, environment)

    def paid_to(
        self, accounts: Callable[[], Sequence[bytes]], environment: Environment, since: datetime, exclude_digest: bytes
    ) -> list[PaidTo]:
        return reading.paid_to(self.store, accounts, environment, since, exclude_digest)

    def use_plan(self, batch: str, who: str, sign_off: SignOff) -> None:
        decisions.use_plan_alone(self.store, self._batch(batch), who, sign_off)

    def batch_of_plan(self, plan: str) -> str | None:
        return decisions.batch_of_plan(self.store, plan)

    def day_check(self, environment: Environment, limits: DayLimits) -> DayCheck:
        today = self.today()
        begins = datetime.combine(today, time(), self.zone()).astimezone()
        return DayCheck(limits, environment.value, today.toordinal(), to_ms(begins))

    def known_of_days(self, check: DayCheck, adds: Sums) -> Sums:
        with self.store.reading() as view:
            return known(check, view, self.store.statements, keys=adds)

    def added_alone(self, environment: Environment, maker: MakerCheck) -> Mapping[str, int]:
        with self.store.reading() as view:
            found = added_alone(view, self.store.statements, environment.value, maker)
            return {word: found[code] for word, code in DIRECTION_CODES.items()}

    def sent_on(self, environment: Environment, day: date) -> Mapping[str, int]:
        with self.store.reading() as view:
            asked = {"environment": environment.value, "day": day.toordinal()}
            found = dict(view.execute(self.store.statements.SENT_BY_DIRECTION, asked).fetchall())
            return {word: found.get(code, 0) for word, code in DIRECTION_CODES.items()}

    def approvers(self, batch: str) -> int:
        return decisions.approvers(self.store, self._batch(batch))

    def find(self, reference: str | None, environment: Environment | None = None) -> BatchSummary:
        return reading.find(self.store, reference, environment)

    def batches(self) -> list[BatchSummary]:
        return reading.batches(self.store)

    def last_event_at(self, batch: str) -> datetime:
        return reading.last_event_at(self.store, self._batch(batch))

    def last_progress_at(self, batch: str) -> datetime:
        return reading.last_progress_at(self.store, self._batch(batch))

    @abstractmethod
    def row_columns(
        self,
        batch: str,
        states: Sequence[State] | None = None,
        cents: Collection[int] | None = None,
        due: date | None = None,
    ) -> Iterator[RowColumns]:
        """See contract.Ledger."""

    def rows(
        self, batch: str, states: Sequence[State] | None = None, cents: Collection[int] | None = None
    ) -> Iterator[LedgerRow]:
        return reading.rows(self.row_columns(batch, states, cents))

    @abstractmethod
    def is_held(self, digest: bytes) -> bool:
        """See contract.Ledger."""

    def abandoned(self, batch: BatchSummary) -> list[LedgerRow]:
        if not batch.by_state[State.SENDING].rows or self.is_held(batch.digest):
            return []
        spilled = spill_files(self.store.witness.path, batch.batch)
        answered = {one.row for path in spilled for one in read_spill(path, self.store.keys, batch.batch)}
        # Read anew: a run that ended since the summary was read has left no row behind.
        return [row for row in self.rows(batch.batch, [State.SENDING]) if row.row not in answered]

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        return reading.rejected(self.store, batch)

    def events(self, batch: str | None = None) -> Iterator[Event]:
        return reading.events(self.store, batch)

    def results_of_runs(self, batch: str) -> set[str]:
        return reading.results_of_runs(self.store, self._batch(batch))

    def pays_from_another_account(self, batch: str, api_id: str) -> bool:
        return reading.pays_from_another_account(self.store, self._batch(batch), api_id)

    def latest_event(self, kind: str) -> Event | None:
        return reading.latest_event(self.store, kind)

    def identity(self) -> str:
        return self.store.ledger_id

    def restored_at(self) -> datetime | None:
        accepted = self.latest_event(WITNESS_ACCEPTED)
        return accepted.at if accepted else None

    def origins(self, environment: Environment) -> list[str]:
        return reading.origins(self.store, environment)

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        return reading.gateway_references(self.store, environment)

    def lost_window(self) -> LostWindow | None:
        with self.store.reading() as view:
            return open_lost_window(view, self.store.statements)

    def move_gateway(self, batches: Sequence[str], origin: str, api_id: str, who: str, why: str) -> None:
        decisions.move_gateway(self.store, batches, origin, api_id, who, why)

    def note_backup(self, who: str, name: str) -> None:
        with self.store.transaction() as transaction:
            transaction.event(BACKED_UP, None, who, None, {"file": name})

    def note_person(self, who: str, what: str, name: str = "", *, is_off: bool = False) -> None:
        with self.store.transaction() as transaction:
            transaction.registrations()  # until the end no plan is used
            off = decisions.people_off(transaction, transaction.statements) - {name} | ({name} if is_off else set())
            transaction.event(PERSON_CHANGED, None, who, what, {"off": sorted(off)} if off else {})

    def people_off(self) -> frozenset[str]:
        with self.store.reading() as view:
            return decisions.people_off(view, self.store.statements)

    def old_batches(self, before: datetime) -> list[OldBatch]:
        return retention.old_batches(self.store, before)

    def _erase_old(
        self, before: datetime, who: str, why: str, erase_texts: retention.EraseTexts
    ) -> tuple[list[OldBatch], list[str]]:
        """Erase the texts of old batches that are final; return these, and the names of those that are held."""
        erased, held = [], []
        for old in self.old_batches(before):
            if old.stays is None:
                try:
                    with self.lock(self.find(old.batch).digest):
                        retention.erase(self.store, old.batch, before, who, why, erase_texts)
                except BatchHeld:
                    held.append(old.batch)
                else:
                    erased.append(old)
        return erased, held
