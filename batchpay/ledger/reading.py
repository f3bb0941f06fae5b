"""What reports read: batches, rows, rejected rows, history; each call sees one consistent view. See contract.Ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from batchpay.errors import LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger import event_chain
from batchpay.ledger.columns import PaidTo
from batchpay.ledger.contract import Ledger
from batchpay.ledger.database import Statements, Store, View
from batchpay.ledger.payload import place_of, unseal_bodies
from batchpay.ledger.records import POLICY, BatchSummary, Event, LedgerRow, PayeeFacts, RejectedRow, RowColumns
from batchpay.ledger.states import STATES
from batchpay.outcome import Answer
from batchpay.payment import Direction, Environment, State, Totals
from batchpay.text import folded, place_word
from batchpay.text import place_of as place_in_file

ROWS_AT_ONCE = 16384
"""Working by column costs something for each set of columns; this many rows take about fifty megabytes as columns
and as lines of a file."""
StoreT = TypeVar("StoreT", bound=Store)
_COLUMNS = tuple(field.name for field in fields(RowColumns))
_DETAIL_CHUNKS_KEPT = 8
_MASK = "****"
"""What precedes the last four in a row's details."""


def _summary(store: Store, view: View, found: tuple[Any, ...], day: date | None = None) -> BatchSummary:
    identity, name, digest, file, origin, environment, columns, registered_at, rows, cents, again, options, *run = found
    started, finished, stopped, end, purged = run
    by_state = dict.fromkeys(State, Totals())
    by_direction = {direction.value: Totals() for direction in Direction}
    apart: dict[State, dict[str, Totals]] = {}
    for state, direction, count, sum_cents in view.execute(store.statements.TOTALS, (identity,)):
        by_state[STATES[state]] += Totals(count, sum_cents)
        if STATES[state] is not State.REJECTED:
            by_direction[event_chain.DIRECTIONS[direction]] += Totals(count, sum_cents)
            apart.setdefault(STATES[state], {})[event_chain.DIRECTIONS[direction]] = Totals(count, sum_cents)
    by_day: dict[date, dict[str, Totals]] = {}
    for pay_on, direction, count, sum_cents in (
        view.execute(store.statements.DAYS, (identity,)).fetchall() if by_state[State.PENDING].rows else ()
    ):
        by_day.setdefault(date.fromordinal(pay_on), {})[event_chain.DIRECTIONS[direction]] = Totals(count, sum_cents)
    total = sum(by_state.values(), Totals())
    if total != Totals(rows, cents) or any(totals.rows < 0 for totals in by_state.values()):
        raise LedgerDamaged(f"the ledger is damaged: the states of batch {name} do not add up to its control totals")
    returned = view.execute(store.fact_statements.returned, {"batch": identity}).fetchall()
    came_back = {
        event_chain.DIRECTIONS[direction]: Totals(count, sum_cents) for direction, count, sum_cents in returned
    }
    accepted = apart.get(State.ACCEPTED, {})
    if any(one.rows > accepted.get(word, Totals()).rows for word, one in came_back.items()):
        raise LedgerDamaged(f"the ledger is damaged: more of batch {name} came back than was accepted")
    return BatchSummary(
        batch=name, digest=digest, file=file, origin=origin,
        environment=Environment(environment), registered_at=event_chain.to_datetime(registered_at), stopped=stopped,
        started_at=event_chain.maybe_datetime(started), finished_at=event_chain.maybe_datetime(finished),
        columns=tuple(json.loads(columns)), total=total, by_state=by_state, by_direction=by_direction, apart=apart,
        again_reason=again, options=dict(json.loads(options)),
        held_back=Totals(*json.loads(end or "{}").get("held back", (0, 0))), outdated=store.outdated,
        purged_at=event_chain.maybe_datetime(purged), by_day=by_day, today=day or today(store, view),
        returned_apart=came_back,
    )  # fmt: skip


def policy(view: View, statements: Statements) -> dict[str, Any]:
    """Return what the ledger keeps of the policy; empty if nobody has set one."""
    row = view.execute(statements.LATEST_EVENT, (POLICY,)).fetchone()
    return dict(json.loads(_event(row).detail)) if row else {}


def zone(store: Store, view: View) -> ZoneInfo | None:
    if (name := policy(view, store.statements).get("zone")) is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):
        raise LedgerNotUsable(
            f"days of this ledger are those of {name}, a zone that this machine does not know"
        ) from None


def today(store: Store, view: View, now_ms: int | None = None) -> date:
    """Return the day that it is, or was at a time."""
    return event_chain.to_datetime(store.now_ms() if now_ms is None else now_ms).astimezone(zone(store, view)).date()


NEVER_MS = 1 << 62
"""Later than any payment: with it, age alone makes none a duplicate."""


def windows(now: datetime, days: int, apart: int, *, in_file: bool) -> dict[str, int]:
    """Return what decides which earlier payments are near: numbers, by their names in the statements.

    `now` is in the zone of days.
    """
    offset = now.utcoffset() or timedelta()
    return {
        "in_file": int(in_file),
        "days": days,
        "apart": apart,
        "since": event_chain.to_ms(now - timedelta(days=days)) if days else NEVER_MS,
        "today": now.date().toordinal(),
        "offset": offset // timedelta(milliseconds=1),
    }


def batch_number(store: Store, name: str) -> tuple[int, bytes]:
    """Return a batch's number and digest by its name; raises WrongUse."""
    with store.reading() as view:
        found = view.execute(store.statements.BATCH_BY_NAME, (name,)).fetchone()
    if not found:
        raise WrongUse(f"there is no batch {name}")
    return int(found[0]), found[1]


class Details:
    """What results show of a batch's rows, chunk by chunk."""

    def __init__(self, store: Store, view: View, batch: int) -> None:
        self._store, self._view, self._batch = store, view, batch
        self._kept: dict[int, dict[int, bytes]] = {}
        self._purged = view.execute(store.statements.PURGED_AT, (batch,)).fetchone()[0] is not None

    def read(self, rows: Sequence[int], chunks: Sequence[int]) -> list[bytes]:
        """Return each row's details: a JSON object, empty if the batch was purged."""
        if self._purged:
            return [b"{}"] * len(rows)
        found: list[bytes] = []
        for chunk, some in groupby(chunks):  # rows of a chunk follow each other
            first = len(found)
            found += map(self._chunk(chunk).__getitem__, rows[first : first + len(list(some))])
        return found

    def columns(self, found: Sequence[Sequence[Any]]) -> RowColumns:
        """Convert many rows, given by column as in the tables, to what the rest of batchpay uses."""
        (numbers, lines, codes, cents, directions, attempts, chunks, sent, finished, statuses, response_codes, messages,
         references, reasons) = found  # fmt: skip
        # Rows of one commit share their times.
        moment_of = {time: event_chain.maybe_datetime(time) for time in {*sent, *finished}}.__getitem__
        return RowColumns(
            numbers, lines, list(map(STATES.__getitem__, codes)), cents,
            list(map(event_chain.DIRECTIONS.__getitem__, directions)), attempts, list(map(moment_of, sent)),
            list(map(moment_of, finished)), statuses, response_codes, messages, references, reasons,
            self.read(numbers, chunks),
        )  # fmt: skip

    def _chunk(self, chunk: int) -> dict[int, bytes]:
        if chunk not in self._kept:
            while len(self._kept) >= _DETAIL_CHUNKS_KEPT:
                del self._kept[next(iter(self._kept))]
            wanted = {"batch": self._batch, "chunk": chunk}
            sealed = self._view.execute(self._store.statements.DETAIL, wanted).fetchone()
            if not sealed:
                raise LedgerDamaged(f"the ledger is damaged: the details of chunk {chunk} are missing")
            place = place_of("details", self._batch, chunk)
            self._kept[chunk], _ = unseal_bodies(self._store.keys, place, sealed[0])
        return self._kept[chunk]


def summed_up(paid: Iterable[tuple[bytes, bytes, int, int, int]]) -> dict[bytes, PayeeFacts]:
    """Total by payee what was paid: payee, account, rows and cents, 0 where all came back, and when it was first."""
    counts: dict[bytes, list[int]] = {}
    accounts: dict[bytes, tuple[dict[bytes, datetime], set[bytes]]] = {}
    moment_of = cache(event_chain.to_datetime)
    for payee, account, payments, cents, first in paid:
        count = counts.setdefault(payee, [0, 0])
        count[0] += payments
        count[1] += cents
        standing, came_back = accounts.setdefault(payee, ({}, set()))
        if payments:
            standing[account] = moment_of(first)
        else:
            came_back.add(account)
    return {
        payee: PayeeFacts(cents // max(1, payments), accounts[payee][0], frozenset(accounts[payee][1]))
        for payee, (payments, cents) in counts.items()
    }


def _event(row: tuple[Any, ...]) -> Event:
    number, at, batch, kind, who, why, detail = row
    return Event(number, event_chain.to_datetime(at), batch, kind, who, why, detail)


class StoredReading(Ledger, Generic[StoreT]):
    """The part of a ledger that reads batches, rows and history."""

    store: StoreT

    def _batch(self, name: str) -> int:
        return batch_number(self.store, name)[0]

    def batches(self) -> list[BatchSummary]:
        with self.store.reading() as view:
            day, found = today(self.store, view), view.execute(self.store.statements.BATCHES).fetchall()
            return [_summary(self.store, view, one, day) for one in found]

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> BatchSummary | None:
        sql, wanted = self.store.statements, {"digest": digest, "environment": environment.value}
        with self.store.reading() as view:
            for name, reason in view.execute(sql.BATCHES_OF_DIGEST, wanted).fetchall():
                if again_reason is None or (reason is not None and folded(reason) == folded(again_reason)):
                    return _summary(self.store, view, view.execute(sql.BATCH_NAMED, (name,)).fetchone())
        return None

    def find_file(self, file_digest: str, environment: Environment) -> BatchSummary | None:
        wanted = {"file_digest": file_digest, "environment": environment.value}
        with self.store.reading() as view:
            for found in view.execute(self.store.statements.BATCHES_OF_FILE, wanted).fetchall():
                batch = _summary(self.store, view, found)
                if batch.by_state[State.REJECTED] + batch.by_state[State.DECLINED] != batch.total:
                    return batch
        return None

    def find(self, reference: str | None, environment: Environment | None = None) -> BatchSummary:
        with self.store.reading() as view:
            if reference is None:
                wanted = {"environment": environment and environment.value}
                found = view.execute(self.store.statements.LATEST_BATCH, wanted).fetchall()
                if not found:
                    raise WrongUse(f"the ledger contains no {f'{environment} ' if environment else ''}batch yet")
            else:
                found = view.execute(self.store.statements.BATCH_NAMED, (reference,)).fetchall()
                if not found and reference:
                    found = view.execute(self.store.statements.BATCHES_BEGINNING, (reference,)).fetchall()
                if not found:
                    raise WrongUse(f"there is no batch {reference}; batchpay status lists them")
                if len(found) > 1:
                    raise WrongUse(f"more than one batch begins with {reference}; give more of its name")
            batch = _summary(self.store, view, found[0])
        if environment not in (None, batch.environment):
            raise WrongUse(
                f"batch {batch.batch} is {batch.environment}, and the settings are for {environment} payments"
            )
        return batch

    def last_event_at(self, batch: str) -> datetime:
        # Only rare events are read: a run's progress is between its start and its end.
        return self._latest(self.store.statements.LAST_EVENT_OF_BATCH, batch)

    def last_progress_at(self, batch: str) -> datetime:
        return self._latest(self.store.statements.LAST_PROGRESS_OF_BATCH, batch)

    def _latest(self, statement: str, batch: str) -> datetime:
        number = self._batch(batch)
        with self.store.reading() as view:
            return event_chain.to_datetime(view.execute(statement, (number,)).fetchone()[0])

    def rows(
        self, batch: str, states: Sequence[State] | None = None, cents: Collection[int] | None = None
    ) -> Iterator[LedgerRow]:
        for columns in self.row_columns(batch, states, cents):
            values = (getattr(columns, name) for name in _COLUMNS if name != "details")
            for (row, line, state, amount_cents, direction, attempts, sent_at, finished_at, status, code, message,
                 reference, reason, details) in zip(*values, columns.read_details(), strict=True):  # fmt: skip
                last_four = str(details.get("account") or "").removeprefix(_MASK)
                yield LedgerRow(
                    row=row, line=line, state=state, amount_cents=amount_cents, direction=direction,
                    last_four=last_four, attempts=attempts, sent_at=sent_at, finished_at=finished_at,
                    answer=Answer(status, code, message, reference), reason=reason, details=details,
                )  # fmt: skip

    def paid_to(
        self,
        accounts: Callable[[], Sequence[bytes]],
        environment: Environment,
        since: datetime,
        exclude_digest: bytes,
    ) -> list[PaidTo]:
        asked = {"environment": environment.value, "since": event_chain.to_ms(since), "digest": exclude_digest}
        paid: list[PaidTo] = []
        with self.store.reading() as view:
            if not view.execute(self.store.statements.BATCH_SINCE, asked).fetchone():
                return []
            wanted = json.dumps([account.hex().upper() for account in {*accounts()}])
            found = view.execute(self.store.statements.PAID_TO_ACCOUNTS, asked | {"accounts": wanted})
            for (batch, name, file), some in groupby(found, key=lambda one: one[:3]):
                by_column = list(zip(*some, strict=True))[3:]
                texts = map(json.loads, Details(self.store, view, batch).read(*by_column[:2]))
                for row, _, line, account, direction, cents, at, text in zip(*by_column, texts, strict=True):
                    invoice, place = text.get("invoiceNumber") or "", place_in_file(place_word(file), row, line)
                    which, has_id = event_chain.DIRECTIONS[direction], bool(text.get("paymentId"))
                    paid.append(
                        PaidTo(account, which, invoice, has_id, cents, name, row, place, event_chain.to_datetime(at))
                    )
        return paid

    def origins(self, environment: Environment) -> list[str]:
        with self.store.reading() as view:
            return [origin for (origin,) in view.execute(self.store.statements.ORIGINS, (environment.value,))]

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        with self.store.reading() as view:
            names = dict(view.execute(self.store.statements.BATCH_NAMES, (environment.value,)).fetchall())
            for batch, row, reference in self.store.stream(view, self.store.statements.REFERENCES):
                if batch in names:
                    yield names[batch], row, reference

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        number = self._batch(batch)
        with self.store.reading() as view:
            for row, line, cents, reasons in self.store.stream(view, self.store.statements.REJECTED_ROWS, (number,)):
                yield RejectedRow(row, line, cents, tuple(reasons.split()))

    def events(self, batch: str | None = None) -> Iterator[Event]:
        number = None if batch is None else self._batch(batch)
        with self.store.reading() as view:
            yield from map(_event, self.store.stream(view, self.store.statements.NAMED_EVENTS, {"batch": number}))

    def results_of_runs(self, batch: str) -> set[str]:
        noted = [json.loads(detail).get("results") for detail in self._started_or_moved(batch)]
        return {json.loads(path) for path in noted if path is not None}

    def pays_from_another_account(self, batch: str, api_id: str) -> bool:
        noted = event_chain.account_noted(self.store.keys, api_id)
        known = [found for detail in self._started_or_moved(batch) if (found := json.loads(detail).get("account"))]
        return bool(known and noted) and known[-1] != noted["account"]

    def _started_or_moved(self, batch: str) -> Iterator[str]:
        """Yield the details of a batch's starts and of its gateway's moves, in order."""
        kinds = ("started", "gateway moved", "gateway moved")  # the statement takes three
        number = self._batch(batch)
        with self.store.reading() as view:
            found = view.execute(self.store.statements.EVENTS_OF_KINDS, (number, *kinds))
            yield from (detail for _, detail in found)

    def latest_event(self, kind: str) -> Event | None:
        with self.store.reading() as view:
            row = view.execute(self.store.statements.LATEST_EVENT, (kind,)).fetchone()
        return _event(row) if row else None

    def policy(self) -> Event | None:
        return self.latest_event(POLICY)
