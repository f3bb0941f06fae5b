"""What every ledger does alike, whatever database holds it; sqlite/ledger.py and postgres/ledger.py have the rest."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from zoneinfo import ZoneInfo

from batchpay.errors import BatchHeld, BatchpayError, LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger import decisions, event_chain, reading, records, retention
from batchpay.ledger.columns import PaymentColumns
from batchpay.ledger.contract import Run
from batchpay.ledger.database import Parameters
from batchpay.ledger.day_limits import added_alone, known, require_alone, require_within
from batchpay.ledger.days import NO_CHECK, NO_LIMITS, DayCheck, DayLimits, MakerCheck, SendingDay, Sums
from batchpay.ledger.decisions import open_lost_window, require_named, require_settled, settle
from batchpay.ledger.keys import BESIDE
from batchpay.ledger.mover import Mover
from batchpay.ledger.new_batch import ReleaseWriter, numbers_of
from batchpay.ledger.paths import BatchLocks
from batchpay.ledger.reading import StoredReading, StoreT
from batchpay.ledger.spill import read_spill, refuse_unheard_answers, spill_files
from batchpay.ledger.states import PENDING, REJECTED, require, require_person
from batchpay.ledger.stored_facts import StoredFacts, lift
from batchpay.payment import Environment, State, Totals
from batchpay.text import write_ranges

_Run = TypeVar("_Run", bound=Run)


class StoredLedger(StoredFacts[StoreT], StoredReading[StoreT], ABC, Generic[StoreT, _Run]):
    """A ledger over its store; see contract.Ledger."""

    _new_run: Callable[..., _Run]
    """Begins a run, whose start notes what is to be noted."""
    _mover: Callable[..., Mover]
    """Moves rows of a batch in a transaction."""

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
        return event_chain.to_datetime(self.store.now_ms() - self.store.ahead_ms)

    def today(self) -> date:
        with self.store.reading() as view:
            return reading.today(self.store, view)

    def certain_today(self) -> date:
        return self.today()

    def zone(self) -> ZoneInfo | None:
        with self.store.reading() as view:
            return reading.zone(self.store, view)

    def set_policy(self, change: Callable[[dict[str, Any]], dict[str, Any]], who: str, why: str) -> None:
        require_named("the policy is set", who, why)
        with self.store.transaction() as transaction:
            transaction.registrations()  # until the end nobody else changes it
            changed = change(reading.policy(transaction, transaction.statements))
            transaction.event(records.POLICY, None, who, why, changed)

    @property
    def clock_ahead(self) -> timedelta:
        return timedelta(milliseconds=self.store.ahead_ms)

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
        noted, number = event_chain.account_noted(self.store.keys, api_id), self._held_batch(batch)
        if results is not None:
            noted["results"] = json.dumps(results)  # JSON again, for a path that is not UTF-8
        limits = limits.without(event_chain.limits_lifted(self._signed(number)))
        sending = SendingDay(self.find(batch).environment, day or self.today(), limits)
        self._check_before_run(number)
        is_unique = reference_is_unique
        run = self._new_run(self.store, number, batch, who, why, noted, is_unique=is_unique, sending=sending)
        self._runs.append(run)
        return run

    def cancel(self, batch: str, rows: Sequence[int] | None, who: str, why: str) -> int:
        number = self._held_batch(batch)
        require_named("rows are cancelled", who, why)
        with self.store.transaction() as transaction:
            return decisions.cancel(self._mover(transaction, number, "cancelled", who, why), rows)

    def resolve(self, batch: str, decisions: Sequence[records.Decision], who: str, why: str) -> int:
        number = self._batch(batch)
        require_named("rows in doubt are settled", who, why)
        refuse_unheard_answers(self.store.witness.path, self.store.keys, batch, decisions)
        with self.store.transaction() as transaction:
            mover = self._mover(transaction, number, "resolved", who, why)
            again = [one.row for one in decisions if one.state is State.PENDING]
            self._refuse_rows_of_unheard(transaction, number, again)
            return settle(mover, decisions, who, why)

    def _refuse_rows_of_unheard(self, transaction: Any, batch: int, rows: Sequence[int]) -> None:
        """Raise WrongUse for a row to be sent again while a machine whose run was fenced may still send it."""

    @abstractmethod
    def _check_before_run(self, number: int) -> None:
        """Hold a batch against its history."""

    def numbers_of(self, series: str, environment: Environment) -> records.Numbers:
        with self.store.reading() as view:
            return numbers_of(view, self.store.statements, series, environment)

    def release(
        self,
        batch: str,
        payments: Iterable[PaymentColumns],
        who: str,
        why: str,
        *,
        registration_count_seen: int,
        sign_off: records.SignOff | None = None,
        allowed_duplicates: dict[str, Any] | None = None,
        day_check: DayCheck = NO_CHECK,
        lifts: Sequence[bytes] = (),
    ) -> int:
        number, released, changes, adds = self._batch(batch), list[int](), records.TotalsDelta(), Sums()
        require("released", REJECTED, PENDING)
        require_person("released", who, why)
        reasons = {one.row: one.reasons for one in self.rejected(batch)}
        with self.store.transaction() as transaction:
            require_settled(transaction)
            transaction.hold_batch(number)
            if transaction.execute(transaction.statements.PURGED_AT, (number,)).fetchone()[0] is not None:
                told = "the batch was purged, so its rejected rows can't be released; submit them in another file"
                raise WrongUse(told)
            writer = self._release_writer(transaction, number, registration_count_seen)
            if day_check.limits.are_set:
                transaction.registrations()  # until the end no other is planned
            found = known(day_check, transaction, transaction.statements)
            for columns in payments:
                chosen = writer.release(columns, changes)
                released += chosen.rows
                adds.update(day_check.sums(chosen.pay_on, chosen.amounts_cents, chosen.directions, chosen.accounts))
            require_within(day_check, adds, found)
            writer.finish()
            if released:
                transaction.write_totals(changes, number)
                flags = Counter(reason for row in released for reason in reasons.get(row, ()))
                detail: dict[str, Any] = {"pending": write_ranges(released), "flags": flags}
                detail |= {"allowed_duplicates": allowed_duplicates} if allowed_duplicates else {}
                detail |= writer.noted() | lift(self.store, transaction, number, lifts)
                detail |= require_alone(transaction, day_check, changes)
                transaction.event("released", number, who, why, detail)
            if sign_off is not None:
                decisions.use_plan(transaction, number, who, sign_off, changes.of(PENDING))
        return len(released)

    @abstractmethod
    def _release_writer(self, transaction: Any, batch: int, seen: int) -> ReleaseWriter:
        """Return what makes rejected rows of a batch pending; `seen` is as in `release`."""

    def use_plan(self, batch: str, who: str, sign_off: records.SignOff) -> None:
        number = self._batch(batch)
        with self.store.transaction() as transaction:
            decisions.use_plan(transaction, number, who, sign_off, Totals())

    def batch_of_plan(self, plan: str) -> str | None:
        with self.store.reading() as view:
            return decisions.batch_of_plan(view, self.store.statements, plan)

    def day_check(self, environment: Environment, limits: DayLimits) -> DayCheck:
        today = self.today()
        begins = datetime.combine(today, time(), self.zone()).astimezone()
        return DayCheck(limits, environment.value, today.toordinal(), event_chain.to_ms(begins))

    def known_of_days(self, check: DayCheck, adds: Sums) -> Sums:
        with self.store.reading() as view:
            return known(check, view, self.store.statements, keys=adds)

    def added_alone(self, environment: Environment, maker: MakerCheck) -> Mapping[str, int]:
        with self.store.reading() as view:
            found = added_alone(view, self.store.statements, environment.value, maker)
            return {word: found[code] for word, code in event_chain.DIRECTION_CODES.items()}

    def sent_on(self, environment: Environment, day: date) -> Mapping[str, int]:
        with self.store.reading() as view:
            asked = {"environment": environment.value, "day": day.toordinal()}
            found = dict(view.execute(self.store.statements.SENT_BY_DIRECTION, asked).fetchall())
            return {word: found.get(code, 0) for word, code in event_chain.DIRECTION_CODES.items()}

    def approvers(self, batch: str) -> int:
        return event_chain.approvers_of(self._signed(self._batch(batch)))

    def _signed(self, number: int) -> list[tuple[str, str]]:
        """Return kind and detail of the events that say who agreed to what of a batch."""
        kinds = ("registered", "released", records.PLAN_USED)
        with self.store.reading() as view:
            return list(view.execute(self.store.statements.EVENTS_OF_KINDS, (number, *kinds)))

    def abandoned(self, batch: records.BatchSummary) -> list[records.LedgerRow]:
        if not batch.by_state[State.SENDING].rows or self.is_held(batch.digest):
            return []
        spilled = spill_files(self.store.witness.path, batch.batch)
        answered = {one.row for path in spilled for one in read_spill(path, self.store.keys, batch.batch)}
        # Read anew: a run that ended since the summary was read has left no row behind.
        return [row for row in self.rows(batch.batch, [State.SENDING]) if row.row not in answered]

    def identity(self) -> str:
        return self.store.ledger_id

    def restored_at(self) -> datetime | None:
        accepted = self.latest_event(records.WITNESS_ACCEPTED)
        return accepted.at if accepted else None

    def lost_window(self) -> records.LostWindow | None:
        with self.store.reading() as view:
            return open_lost_window(view, self.store.statements)

    def move_gateway(self, batches: Sequence[str], origin: str, api_id: str, who: str, why: str) -> None:
        require_named("a gateway is moved", who, why)
        account = event_chain.account_noted(self.store.keys, api_id)
        with self.store.transaction() as transaction:
            for name in batches:
                found = transaction.one(transaction.statements.ORIGIN_OF_BATCH, (name,))
                if not found:
                    raise WrongUse(f"there is no batch {name}")
                transaction.execute(transaction.statements.MOVE_BATCH, (origin, found[0]))
                transaction.event("gateway moved", found[0], who, why, {"from": found[1], "to": origin, **account})

    def note_backup(self, who: str, name: str) -> None:
        with self.store.transaction() as transaction:
            transaction.event(records.BACKED_UP, None, who, None, {"file": name})

    def note_person(self, who: str, what: str, name: str = "", *, is_off: bool = False) -> None:
        with self.store.transaction() as transaction:
            transaction.registrations()  # until the end no plan is used
            off = decisions.people_off(transaction, transaction.statements) - {name} | ({name} if is_off else set())
            transaction.event(records.PERSON_CHANGED, None, who, what, {"off": sorted(off)} if off else {})

    def people_off(self) -> frozenset[str]:
        with self.store.reading() as view:
            return decisions.people_off(view, self.store.statements)

    def old_batches(self, before: datetime) -> list[records.OldBatch]:
        return retention.old_batches(self.store, self.batches(), before)

    def _erase_old(
        self, before: datetime, who: str, why: str, erase_texts: retention.EraseTexts
    ) -> tuple[list[records.OldBatch], list[str]]:
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
