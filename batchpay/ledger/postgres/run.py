"""One run of a batch: recovery at its start, durable intents and outcomes, its end.

A group goes to the server as one function, one transaction, one round trip. Nothing is sent before that call has
returned cleanly. If it does not (the connection or the server went away, or the commit came with a warning), it is not
known what was committed: the run reconnects and raises its `generation`, which waits for the lost transaction, or shuts
it out. That commit is the run's own and later than the lost one, so what it sees is as durable as itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from batchpay.errors import ClockDiffers, HeldElsewhere, LedgerDamaged, LedgerNotUsable
from batchpay.ledger.day_limits import DAYS_KEPT, fitting
from batchpay.ledger.days import SendingDay
from batchpay.ledger.event_chain import event_text
from batchpay.ledger.machine import SharedClock
from batchpay.ledger.mover import asked_references, doubt_repeated
from batchpay.ledger.postgres import deadline, restoring
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.claims import PAUSE_S_MAX, Claims
from batchpay.ledger.postgres.connection import LedgerUnreachable, is_retried, is_unknown, translate, translated
from batchpay.ledger.postgres.fences import fence, hear, merge_spilled
from batchpay.ledger.postgres.heartbeat import Heartbeat
from batchpay.ledger.postgres.marks import RunMarks
from batchpay.ledger.postgres.moves import PostgresMover, attempt_seal, storable
from batchpay.ledger.postgres.store import PostgresStore, PostgresTransaction, chained_mac
from batchpay.ledger.records import RECOVERED_REASON, PendingPayment
from batchpay.ledger.spill import Spill, Spilled, spill_files, spill_path
from batchpay.ledger.states import PENDING, SENDING, STATE_CODES, require, require_outcome
from batchpay.outcome import Outcome
from batchpay.payment import State, Totals
from batchpay.text import write_ranges

_TRIES = 3
_TAKEN_OVER = "another run has taken over the batch; this one sends nothing more"


_NOT_PENDING, _OVER_DAY, _REPEATED = "BP001", "BP008", "BP007"
"""A group is tried again: with those of its intents that are pending; with the rows that fit, where more would be sent
on the day than a limit allows; with a row in doubt that has the reference of another."""


class _TryAgain(Exception):
    """A group was refused for one of these, and nothing of it is committed."""


class PostgresRun:
    """See contract.Run. `commit` and `claim` may be called from different threads."""

    def __init__(
        self,
        store: PostgresStore,
        batch: int,
        name: str,
        who: str,
        why: str | None,
        noted: dict[str, Any],
        *,
        is_unique: bool,
        sending: SendingDay,
    ) -> None:
        self._store = store
        self.sending = sending
        self._commits = sql.COMMIT_UNIQUE_GROUP if is_unique else sql.COMMIT_GROUP
        self._is_unique = is_unique
        self.repeated = 0
        self._batch, self._name, self._who = batch, name, who
        self._dead: str | None = None
        self.refusal: str | None = None
        self._is_fenced = False
        self._token = os.urandom(16)
        self._generation, self._number = 1, 0
        self._mac = b""
        self._attempts: dict[int, tuple[int, int]] = {}
        """Number and start of the attempt of each row being sent."""
        self._marks = RunMarks(store.paths.witness)
        files = spill_files(store.paths.witness, name)
        # The mark exists before the run does: a run without one is another machine's.
        self._marks.make(self._token)
        try:
            with store.transaction() as transaction:
                replaced = self._start(transaction, why, noted)
        except BaseException:
            # If it is not known whether the start was committed, the mark must stay; an extra mark does no harm.
            if not store.is_unsure:
                self._marks.remove(self._token)
            raise
        for token in replaced:
            self._marks.remove(token)
        for path in files:
            with suppress(OSError):
                path.unlink()
        self._spilled = spill_path(store.paths.witness, name, self._id)
        self._spill = Spill(self._spilled, store.keys, name)
        store.witness.sync()
        self._claims = Claims(store, batch, sending.date)
        self._deadline = deadline.Deadline()
        self._heartbeat = Heartbeat(self.beat)

    def _start(self, transaction: PostgresTransaction, why: str | None, noted: dict[str, Any]) -> list[bytes]:
        """Fence a dead run, merge what was spilled, mark what it left in sending in doubt: one transaction.

        A run that was begun on this machine is dead: whatever starts one holds the batch here. Returns the tokens of
        runs whose marks are no longer needed.
        """
        at = transaction.now_ms()
        transaction.execute(sql.LOCK_BATCH, (self._batch,))
        ours = []
        for run, host, token in transaction.execute(sql.LIVE_RUN_OF_BATCH, (self._batch,)).fetchall():
            if not self._marks.exists(token):
                raise HeldElsewhere(f"a run on {host} is working on this batch")
            ours.append(token)
            fence(transaction, run, self._batch, self._who, heard_at=at)
        values = (self._batch, self._who, os.uname().nodename, at, self._token, bytes(32), self.sending.day)
        transaction.execute(sql.DROP_DAYS, (self.sending.day - DAYS_KEPT,))
        found = transaction.one(sql.ADD_RUN, values)
        assert found is not None
        self._id = int(found[0])
        fenced = transaction.execute(sql.FENCED, (self._batch,)).fetchall()
        heard = [(run, token) for run, token in fenced if token not in ours and self._marks.exists(token)]
        late: list[str] = []
        for run, _ in heard:
            late += hear(transaction, run, self._batch, self._who, self._name, is_unique=self._is_unique)
        late += merge_spilled(
            transaction, self._batch, self._who, self._name, at, {run for run, _ in heard}, is_unique=self._is_unique
        )
        recovering = PostgresMover(transaction, self._batch, "recovered", self._who, RECOVERED_REASON)
        self.recovered = recovering.doubt_sending()
        self.late: Sequence[str] = late
        detail = {"run": self._id, "at": at, "process": os.getpid(), **noted}
        self._mac = transaction.event("started", self._batch, self._who, why, detail)
        transaction.execute(sql.ENLIVEN_RUN, (self._mac, self._id))
        return ours + [token for _, token in heard]

    def claim(self, limit: int) -> list[PendingPayment]:
        self._store.check_process()
        return self._claims.claim(limit)

    # Intents and outcomes

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        self._refuse_if_dead()
        self._store.require_writable()
        asked, proved = [] if self.refusal else sorted(set(intents)), dict(outcomes)
        judged: Mapping[int, Outcome] = doubt_repeated(self._batch, proved, {}) if self._is_unique else proved
        try:
            granted: list[int] = []
            over: list[int] = []
            """Rows that wait until the outcomes are recorded: these may make room for them."""
            with self._store.alone():
                left = judged
                while asked or left:
                    try:
                        self._commit_group(asked, left)
                    except _TryAgain as refused:
                        if str(refused) == _NOT_PENDING:
                            asked = self._still_pending(asked)
                        elif str(refused) == _OVER_DAY:
                            asked, over = ([], asked) if left else (self._fitting(asked), [])
                        else:
                            judged = left = self._doubt_repeated(proved)
                    else:
                        granted, left = asked, {}
                        asked, over = self._fitting(over) if over else [], []
        except BaseException:
            # Outcomes of this group go to the spill file. A later commit could let a row be sent again, and a spilled
            # outcome of its earlier attempt must never be applied to the new one: so there is no later commit.
            self._die("a commit of this run failed; nothing more is sent by it")
            raise
        self.repeated += sum(judged[row] is not outcome for row, outcome in proved.items())
        return set(granted)

    def _doubt_repeated(self, outcomes: Mapping[int, Outcome]) -> Mapping[int, Outcome]:
        """Put rows in doubt whose references other rows have; raises LedgerDamaged if there are none after all."""
        asked = asked_references(self._batch, outcomes)
        with translated(self._store.place):
            found = self._store.writer.run(sql.ROWS_WITH_REFERENCES, asked).fetchall()
        if not found:
            raise LedgerDamaged("the ledger is damaged: a reference is of another row, and of none")
        return doubt_repeated(self._batch, outcomes, {row: (batch, other) for row, batch, other in found})

    def _commit_group(self, intents: list[int], outcomes: Mapping[int, Outcome]) -> None:
        """Commit one group, once, whatever becomes of the connection.

        Raises _TryAgain, LedgerNotUsable.
        """
        at, number = self._store.now_ms(), self._number + 1
        moved: dict[str, list[int]] = {}
        for row, outcome in outcomes.items():
            require_outcome("progress", outcome)
            moved.setdefault(outcome.state.value, []).append(row)
        if intents:
            require("progress", PENDING, SENDING)
            moved[State.SENDING.value] = intents
        detail = event_text({state: write_ranges(rows) for state, rows in moved.items()})
        event = (at, self._batch, "progress", self._who, None, detail)
        mac = chained_mac(self._store.keys, self._mac, self._id, number, event)
        columns = self._outcome_columns(outcomes, at)

        def arguments() -> tuple[Any, ...]:
            head = (self._id, self._token, self._generation, self._batch, intents)
            limits = self.sending.limits
            of_day = (self._id, self._batch, intents, *columns[:2], limits.max_per_day, limits.max_per_payee_day)
            return (*head, *columns, at, number, self._who, detail, mac, *of_day)

        *attempts, seq = self._call(arguments, intents, number, mac)
        self._number, self._mac = number, mac
        for row in outcomes:
            self._attempts.pop(row, None)
        self._attempts.update(zip(intents, ((attempt, at) for attempt in attempts), strict=True))
        self._store.note(seq, mac)

    def _outcome_columns(self, outcomes: Mapping[int, Outcome], at: int) -> list[list[Any]]:
        """Return outcomes by column, in order of their rows, sealed."""
        lines = []
        for row, outcome in sorted(outcomes.items(), key=lambda one: one[0]):
            known = self._attempts.get(row)
            if known is None:
                raise LedgerDamaged(f"row {row} has an outcome, but the ledger does not show it as being sent")
            attempt, sent_at = known
            state, answer = STATE_CODES[outcome.state], outcome.answer
            texts = map(storable, (answer.response_code, answer.message, answer.gateway_reference, outcome.reason))
            end = (answer.http_status, *texts)
            values = (sent_at, state, at, *end)
            lines.append((row, state, *end, attempt_seal(self._store.keys, self._batch, row, attempt, values)))
        return [list(column) for column in zip(*lines, strict=True)] if lines else [[] for _ in range(8)]

    def _call(self, arguments: Callable[[], tuple[Any, ...]], intents: list[int], number: int, mac: bytes) -> list[int]:
        """Request a group's commit until it is certainly committed, or certainly is not."""
        writer, tries = self._store.writer, 0
        while True:
            try:
                with self._deadline.of(writer.get()):
                    found = writer.run_group(self._commits, arguments())
                if not writer.has_warned:
                    return found
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not is_unknown(error):
                    tries += 1
                    self._refuse(error, tries)
                    continue
            stood = self._settle_unknown(intents, number, mac)
            if stood is not None:
                return stood

    def _refuse(self, error: psycopg.Error, tries: int) -> None:
        """Raise what a server's refusal means, unless the group may be tried again as is."""
        if is_retried(error) and tries < _TRIES:
            return
        if error.sqlstate in (_NOT_PENDING, _OVER_DAY, _REPEATED):
            raise _TryAgain(error.sqlstate) from None
        if error.sqlstate == "BP003":
            raise self._taken_over() from None
        if error.sqlstate == "BP006":
            restoring.follow(self._store)  # which says what is lost
        if error.sqlstate == "BP004":
            raise LedgerDamaged("a row has an outcome, but the ledger does not show it as being sent") from None
        raise translate(error, self._store.place) from None

    def _settle_unknown(self, intents: list[int], number: int, mac: bytes) -> list[int] | None:
        """Find out with another commit of this run what became of one whose answer was lost; None: not committed.

        Raises LedgerNotUsable if the database is not reached in time: then it is not known.
        """
        writer, until, pause_s = self._store.writer, time.monotonic() + deadline.RECONNECT_S, 0.05
        while True:
            try:
                writer.open()
                with self._deadline.of(writer.get()):
                    found = writer.run(sql.RAISE_GENERATION, (self._id, self._token)).fetchone()
                if not writer.has_warned:
                    if found is None:
                        raise self._taken_over()
                    self._generation, stands_at, head = found
                    if stands_at == number - 1:
                        return None
                    if stands_at != number:
                        restoring.follow(self._store)  # which says what is lost
                    if head != mac:
                        raise LedgerNotUsable(_TAKEN_OVER)
                    attempts = writer.run(sql.ATTEMPT_NUMBERS, (self._batch, intents, self._id)).fetchall()
                    seq = writer.run(sql.SEQ_OF_EVENT, (self._id, number)).fetchone() or (0,)
                    return [*(attempt for (attempt,) in attempts), seq[0]]
            except (psycopg.Error, LedgerUnreachable) as error:
                if isinstance(error, psycopg.Error) and not (is_unknown(error) or is_retried(error)):
                    raise translate(error, self._store.place) from None
            if time.monotonic() > until:
                self._store.keep_no_readers()
                raise LedgerNotUsable(
                    f"the connection to the database {self._store.place.name} was lost, and did not come back in "
                    f"{deadline.RECONNECT_S:.0f} seconds"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _still_pending(self, intents: list[int]) -> list[int]:
        """Return those rows that may be requested again; raises LedgerDamaged if a row contradicts its attempt.

        One damaged byte must never send a payment.
        """
        with translated(self._store.place):
            found = self._store.writer.run(sql.STANDING, (self._batch, intents)).fetchall()
        for row, state, attempt in found:
            if state == PENDING and attempt != PENDING:
                raise LedgerDamaged(f"the ledger is damaged: row {row} is pending, and its attempt is not")
        left = sorted(row for row, state, _ in found if state == PENDING)
        if left == intents:
            raise LedgerDamaged("the ledger is damaged: rows are pending, and can't be sent")
        return left

    def _fitting(self, intents: list[int]) -> list[int]:
        """Return those rows that fit the limits of the day, for all that others have committed."""
        with translated(self._store.place):
            return fitting(self.sending, self._store.writer.run, sql, self._batch, intents)

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        self._store.check_process()
        self._die("outcomes of this run were spilled; nothing more is sent by it")
        self._spill.write(
            [Spilled(row, self._attempts[row][0], outcome) for row, outcome in outcomes if row in self._attempts]
        )

    def reject(self, rows: Sequence[int], reason: str) -> None:
        self._refuse_if_dead()
        with self._store.transaction() as transaction:
            self._lock(transaction)
            PostgresMover(transaction, self._batch, "rejected", self._who, reason).reject_all(rows, reason)

    # The heartbeat

    def beat(self) -> None:
        """Show other machines that this run is alive; raises LedgerNotUsable if it can commit nothing more."""
        if self._dead:
            return
        with self._store.alone():
            try:
                while not self._has_beaten():
                    self._settle_unknown([], self._number, self._mac)
            except LedgerNotUsable as error:
                self._die(str(error))
                raise
            except psycopg.Error as error:
                if not is_retried(error):
                    raise translate(error, self._store.place) from None

    def _has_beaten(self) -> bool:
        """Beat; return False if it is not known whether that was committed."""
        writer = self._store.writer
        try:
            with self._deadline.of(writer.get()):
                clock = SharedClock.ask(self._beat)
        except (psycopg.Error, LedgerUnreachable) as error:
            if isinstance(error, psycopg.Error) and not is_unknown(error):
                raise
            return False
        try:
            clock.require_alike()
        except ClockDiffers as error:
            self.refusal = str(error)
        return not writer.has_warned

    def _beat(self) -> int:
        """Count a heartbeat; return when, by the server's clock."""
        found = self._store.writer.run(sql.BEAT, (self._id, self._token, self._generation)).fetchone()
        if found is None:
            raise self._taken_over()
        return int(found[0])

    def _taken_over(self) -> LedgerNotUsable:
        self._is_fenced = True
        return LedgerNotUsable(_TAKEN_OVER)

    # The end

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        self._heartbeat.stop()
        try:
            with self._store.transaction() as transaction:
                number, mac = self._lock(transaction)
                transaction.execute(sql.REMEMBER_PAYEES, (self._batch,))
                at = transaction.now_ms()
                transaction.execute(sql.END_RUN, (at, stopped, self._id))
                detail: dict[str, Any] = {"run": self._id, "at": at, "number": number, "mac": mac.hex()}
                if held_back is not None and held_back.rows:
                    detail["held back"] = [held_back.rows, held_back.cents]
                transaction.event("finished", self._batch, self._who, stopped, detail)
            self._marks.remove(self._token)
            self._store.witness.sync()
        finally:
            self.close()

    def close(self) -> None:
        """Release the spill file and the reading connection; a run that was not finished can do nothing more."""
        self._die("this run has ended")
        self._heartbeat.stop()
        self._spill.close()
        self._deadline.close()
        self._claims.close()
        if self._is_fenced:
            self._is_fenced = False
            with suppress(LedgerNotUsable):  # then the next run on this machine reports it
                self._say_ended()

    def _say_ended(self) -> None:
        """Record that this run, which was fenced, sends nothing more, and which answers it has received since."""
        with self._store.transaction() as transaction:
            transaction.execute(sql.LOCK_BATCH, (self._batch,))
            hear(transaction, self._id, self._batch, self._who, self._name, is_unique=self._is_unique)
        self._marks.remove(self._token)
        with suppress(OSError):
            self._spilled.unlink()

    def _die(self, why: str) -> None:
        self._dead = self._dead or why
        self._claims.stop()

    def _refuse_if_dead(self) -> None:
        if self._dead:
            raise LedgerNotUsable(self._dead)

    def _lock(self, transaction: PostgresTransaction) -> tuple[int, bytes]:
        """Lock batch and run; return the head of the run's chain. Raises LedgerNotUsable if it is not ours."""
        transaction.execute(sql.LOCK_BATCH, (self._batch,))
        found = transaction.one(sql.LOCK_RUN, (self._id, self._token, self._generation))
        if found is None:
            raise self._taken_over()
        return found[0], found[1]
