"""What a ledger does for the rest of batchpay, whatever database holds it.

The first half (validation/, registration/) writes a batch in one transaction; the sending half (sending/) holds a
batch, claims its pending rows in file order and records, durably, first the intent to send and then the outcome;
reports read. Nothing outside `batchpay.ledger` knows a table's name.

No method stores, returns or raises an account number or a routing number: rows carry the last four characters, a keyed
fingerprint, and the request body, which is encrypted at rest and erased when every row of its chunk is final.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.days import NO_CHECK, NO_LIMITS

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from batchpay.ledger import records
    from batchpay.ledger.columns import Earlier, Lookup, PaidTo, PaymentColumns, RejectedColumns
    from batchpay.ledger.days import DayCheck, DayLimits, MakerCheck, SendingDay, Sums
    from batchpay.ledger.facts import Fact, Key, NewFact, SentPayment
    from batchpay.outcome import Finding, Outcome
    from batchpay.payment import Environment, State, Totals

CLOCK_BEHIND_MAX = timedelta(hours=1)
"""At most this far a ledger's latest event is ahead of the clock of a machine that may write to it."""


class RegisteredMeanwhile(LedgerNotUsable):
    """Rows were registered or released since earlier payments were looked up: look again (registration_count).

    A ledger may find that none of them matches those about to be added, and not raise.
    """


class Registering(Protocol):
    """A batch being written: nothing of it is committed before `finish` has returned; leaving early undoes it all."""

    def add_payments(self, payments: PaymentColumns) -> None:
        """Write rows as pending, their bodies encrypted."""

    def add_rejected(self, rejected: RejectedColumns) -> None:
        """Write rows as rejected."""

    def finish(self) -> str:
        """Commit; returns the batch's name.

        Raises RegisteredMeanwhile (see NewBatch.registration_count_seen), or if a day would have too much.
        """


class Run(Protocol):
    """One run's hold on one batch. Its token is part of every write, so a run that lost its hold can't send."""

    recovered: int
    """Rows found in `sending` at the start, which are in doubt now."""
    late: Sequence[str]
    """Answers found at the start, in words, that contradict the ledger: their rows have moved on without them."""
    refusal: str | None
    """Why no intent is granted anymore, if that is known; outcomes are still recorded."""

    repeated: int
    """Rows that this run's answers accepted, and that are in doubt since another row has their reference."""
    sending: SendingDay
    """The day on which its payments count, and which rows no longer fit the day's limits: they stay pending."""

    def claim(self, limit: int) -> list[records.PendingPayment]:
        """Take the next due pending rows in file order that this run has not claimed yet, at most `limit`.

        Raises LedgerDamaged for a row that the tables have as due, and that was registered for a later day.

        A claim is not permission to send: only `commit` gives that. A row that returns to pending stays claimed by its
        run, whose worker repeats it.
        """

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        """Record intents (pending -> sending) and outcomes (sending -> ...) in one durable transaction.

        Returns the rows whose intent was granted: those, and only those, may be sent. One for which a limit of the day
        leaves no room is not (`sending`). Raises LedgerNotUsable when nothing was recorded; from then on nothing may be
        sent, and outcomes go to `spill`.
        """

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """Write outcomes that the ledger could not take to the spill file, which the next start merges."""

    def reject(self, rows: Sequence[int], reason: str) -> None:
        """Reject pending rows before anything of them was sent (an unknown gatewayId); `reason` is column.code."""

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        """Record the run's end; `stopped` names why it ended early. Closes the run.

        `held_back` are the rows and cents that stay pending because they fail today's rules.
        """

    def close(self) -> None:
        """Release what the run holds, without recording anything in the ledger; harmless after `finish`."""


class SharedPace(Protocol):
    """One gateway's pace, shared by all runs that send to it through one ledger."""

    def found(self) -> Finding | None:
        """Return what an earlier run found of the gateway's limit: the next one begins there, and checks it again."""

    def remember(self, finding: Finding) -> None:
        """Keep what this run found. What can't be stored costs the next run a few refusals."""

    def look(self) -> records.PaceNow | None:
        """Return who sends now and how long nobody may; None if the ledger does not answer: the last answer stands."""

    def pause(self, seconds: float) -> None:
        """Let all runs wait for that long, those that begin meanwhile included: the gateway asks for it."""

    def close(self) -> None:
        """Release what it holds."""


class Ledger(Protocol):
    """The durable record of batches, rows and events."""

    def close(self) -> None:
        """Release files and locks."""

    # Keyed digests: the key never leaves the ledger package.

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        """Return keyed digests of texts, `size` bytes each, different for each purpose; None stays None."""

    def digest_stream(self, purpose: str) -> Any:
        """Return a keyed digest to feed with `update(bytes)` and end with `digest()` (32 bytes)."""

    def seal(self, plain: bytes, place: str) -> bytes:
        """Encrypt what is kept next to the ledger for a while, bound to the place where it will be stored."""

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """Decrypt it; raises LedgerDamaged if a byte was changed, or it was sealed for another place."""

    # Registering

    def registration_count(self) -> int:
        """Return how many registrations and releases there ever were: if this has grown, so has what may be sent."""

    def batch_count(self, environment: Environment) -> int:
        """Return how many batches an environment has."""

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> records.BatchSummary | None:
        """Find an environment's latest batch with this content, or the latest that pays it again for that reason."""

    def find_file(self, file_digest: str, environment: Environment) -> records.BatchSummary | None:
        """Find an environment's latest batch of a file with these bytes of which a row was, or may be, paid."""

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
        """Find rows that an earlier batch of the environment has as sent, pending or in doubt.

        The same paymentId at any age; the same bill at any age if it has an invoice number and either row has no
        paymentId, else within `days` (0: never), and if both have one also later (SamePayment.ANOTHER_ID). A row with a
        day of its own is within if it is sent fewer than `apart` days before or after the other; one that still waits
        for another day is told as well (ANOTHER_ID). One for each row, the latest of the highest SamePayment. Rejected
        and declined rows don't count, nor do batches with `exclude_digest`; one that a person cancelled counts as a
        bill, where no other does as much, and one in doubt that a person recorded as declined as DECLINED. With
        `within`, a batch's name, that batch alone counts, as rows of one file: the same bill if not both have a
        paymentId, nor days at least `apart` apart.
        """

    def paid_to(
        self, accounts: Callable[[], Sequence[bytes]], environment: Environment, since: datetime, exclude_digest: bytes
    ) -> list[PaidTo]:
        """Return an environment's payments to some accounts that were or may have been made: the earliest batch first.

        Of batches registered or sent since then, but those with `exclude_digest`; `accounts`, digests as in
        PaymentColumns, are asked for only if there is one. All rows of these batches are looked through.
        """

    def register(
        self, batch: records.NewBatch, who: str, day_check: DayCheck = NO_CHECK
    ) -> AbstractContextManager[Registering]:
        """Begin writing a batch, which fails if a day would have more than `day_check` allows."""

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
        """Make rejected rows of a batch pending, with their bodies; rows in another state stay. Returns how many.

        What came back from the accounts `lifts` speaks no longer against them, until something comes back again.

        It counts like a registration: raises RegisteredMeanwhile if `registration_count` has grown since earlier
        payments were looked up, or if a day would have more than `day_check` allows. A `sign_off`, and what was let
        through as duplicates, is recorded in the same transaction.
        """

    def numbers_of(self, series: str, environment: Environment) -> records.Numbers:
        """Return the numbers of a series of files that are used: a row of each was or may be paid."""

    # Limits of a day: register and release keep them in their own transaction

    def day_check(self, environment: Environment, limits: DayLimits) -> DayCheck:
        """Return what a registration of today is held against."""

    def known_of_days(self, check: DayCheck, adds: Sums) -> Sums:
        """Return what was sent and is planned by the keys of `adds`."""

    def added_alone(self, environment: Environment, maker: MakerCheck) -> Mapping[str, int]:
        """Return the cents that a person registered or released without approval, by DEBIT and CREDIT."""

    def sent_on(self, environment: Environment, day: date) -> Mapping[str, int]:
        """Return the cents that count as sent on a day, by DEBIT and CREDIT."""

    # Plans: register and release use one up in their own transaction

    def use_plan(self, batch: str, who: str, sign_off: records.SignOff) -> None:
        """Record a plan that lets pending rows of a batch through and adds none; raises FileRefused if it was used."""

    def batch_of_plan(self, plan: str) -> str | None:
        """Return the batch that a plan was used for; None while it was not."""

    def approvers(self, batch: str) -> int:
        """Return how many people approved all that is pending of a batch: the fewest for any part of it."""

    # Running

    def lock(self, digest: bytes) -> AbstractContextManager[None]:
        """Hold a batch's content for one run; raises BatchHeld immediately if another process does.

        HeldElsewhere if another machine does, with the age of its heartbeat.
        """

    def take_over(self, digest: bytes, who: str, say: Callable[[str], None]) -> None:
        """Fence another machine's run of a batch's content if it is dead: `lock` may follow whatever this has found.

        It is dead when its heartbeat stood still for 30 seconds of this machine's time in which this machine could
        commit; `say` is told about the wait. Rows that it was sending become in doubt in the transaction that fences
        it. Returns at once where no other machine has the batch, and as soon as the heartbeat moves.
        """

    def left_behind(self, environment: Environment) -> list[str]:
        """Name the batches whose runs, on other machines, have shown no heartbeat for so long that they may be dead."""

    def is_held(self, digest: bytes) -> bool:
        """Return whether a run holds a batch's content now; checking never keeps one from beginning.

        A run of another machine holds it until its heartbeat, by the ledger's clock, is so old that it may be fenced.
        """

    def abandoned(self, batch: records.BatchSummary) -> list[records.LedgerRow]:
        """Return the rows that a dead run was sending; none while a run holds the batch.

        The next run puts them in doubt. An answer that was set aside is not unknown: its row is not among them.
        """

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
    ) -> Run:
        """Begin a run on a held batch: merge the spill file, mark rows that dead runs left in `sending` in doubt.

        The run's day, today without `day`, is fixed: rows of a later one are not claimed, however long it takes. Its
        payments count on that day, and are granted within its `limits`, except those that other people have lifted for
        the batch.
        `why` is recorded if a person had to say it. `results` is where it will write them, `api_id` says from which
        account at the gateway it pays. With `reference_is_unique`, an accepted row becomes in doubt if another row of
        the environment has its reference, also one whose answer is merged.
        """

    def results_of_runs(self, batch: str) -> set[str]:
        """Return where the runs of a batch were to write their results."""

    def pays_from_another_account(self, batch: str, api_id: str) -> bool:
        """Return whether a batch's latest run, or a person who moved its gateway since, named another `api_id`."""

    def runs(self, batch: str) -> list[records.HostRun]:
        """Return a batch's runs if several machines can work on it, the first one first."""

    def shared_pace(self, environment: Environment, origin: str) -> SharedPace:
        """Return the pace that all runs which send to a gateway through this ledger share."""

    # Reading

    def find(self, reference: str | None, environment: Environment | None = None) -> records.BatchSummary:
        """Find a batch by name or unique beginning; None means the latest. Raises WrongUse.

        Of one environment, if that is given: a batch of the other one is not taken.
        """

    def batches(self) -> list[records.BatchSummary]:
        """Return all batches, the latest first."""

    def last_event_at(self, batch: str) -> datetime:
        """Return when anything was last recorded for a batch: a run, a release, a person's decision."""

    def last_progress_at(self, batch: str) -> datetime:
        """Return when a batch last came further: the gateway answered a row, or somebody registered or decided."""

    def rows(
        self, batch: str, states: Sequence[State] | None = None, cents: Collection[int] | None = None
    ) -> Iterator[records.LedgerRow]:
        """Yield the rows that passed the rules, in file order, in constant memory.

        With `cents`, only those of these amounts: the details of the others are not even decrypted.
        """

    def row_columns(
        self,
        batch: str,
        states: Sequence[State] | None = None,
        cents: Collection[int] | None = None,
        due: date | None = None,
    ) -> Iterator[records.RowColumns]:
        """Yield the same rows a few thousand at a time, by column: several times faster for very many.

        With `due`, only those that may be sent on that day: a later one is not their day.
        """

    def rejected(self, batch: str) -> Iterator[records.RejectedRow]:
        """Yield the rows that failed, in file order."""

    def events(self, batch: str | None = None) -> Iterator[records.Event]:
        """Yield the history, the oldest event first."""

    def latest_event(self, kind: str) -> records.Event | None:
        """Find the latest event of a kind that is written rarely (any but `progress`)."""

    def identity(self) -> str:
        """Which ledger it is, in every copy of it and wherever it moved; others may have the same key."""

    def restored_at(self) -> datetime | None:
        """When a person last accepted a ledger that had been restored; None if nobody ever did."""

    def origins(self, environment: Environment) -> list[str]:
        """Return the gateway addresses that an environment's batches are meant for, the latest batch's last."""

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        """Yield batch, row and reference of every row of an environment whose gateway reference is known."""

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, records.PayeeFacts]:
        """Look payees up by keyed digest; those without an accepted payment in the environment are left out.

        One of whom every payment came back has no `accounts`: it is new, though an account other than those is changed.

        Batches with the digest `exclude_digest` don't count: submitting a file again must not find itself.
        """

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, str]:
        """Return the account, masked, of the latest accepted payment of payees; none if its details were purged.

        It reads the latest batch of each payee: use it for the few that are shown to a person.
        """

    # People

    def resolve(self, batch: str, decisions: Sequence[records.Decision], who: str, why: str) -> int:
        """Settle rows in doubt, all or none, as one event; raises WrongUse if one isn't in doubt.

        Nor is a row sent again while a machine whose run was fenced, and was not heard from since, may still send it.
        """

    def cancel(self, batch: str, rows: Sequence[int] | None, who: str, why: str) -> int:
        """Reject pending rows of a held batch, all of them without `rows`, as one event; return how many.

        Raises WrongUse if one isn't pending. `release` reverts it.
        """

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        """Record a person's word that machines whose runs were fenced are off for good; return their names."""

    # What banks say of accepted payments: facts beside their rows

    def sent_rows(
        self, by: Key, values: Sequence[str | bytes], environment: Environment, since: datetime | None = None
    ) -> Mapping[str | bytes, list[SentPayment]]:
        """Find an environment's payments, in any state but rejected, by what a bank names them with.

        A paymentId or invoice number as a person wrote it, compared as duplicates are, a reference as the gateway wrote
        it, or a digest of routing and account number as in PaymentColumns. Values of no payment are left out. Invoice
        numbers and accounts are found by looking through the batches of which a row may have been sent `since`; an
        invoice number of one whose details were purged is not found.
        """

    def record_facts(
        self,
        facts: Sequence[NewFact],
        environment: Environment,
        file: str,
        file_digest: str,
        who: str,
        *,
        unattended: bool,
    ) -> int:
        """Record what a file says of accepted rows, all or nothing, as one event; return how many facts are new.

        Skipped is what is known: a row comes back once, or if it is paid again and again once a day, a change has
        code and day, and what a person withdrew stays so. Raises WrongUse if a row was not accepted, or came back with
        another amount.
        """

    def confirm_fact(self, batch: str, row: int, who: str, why: str, code: str | None = None) -> int:
        """Record that a person has seen the facts of a row, or the one with a code; return how many, WrongUse if 0."""

    def withdraw_fact(self, batch: str, row: int, who: str, why: str, code: str | None = None) -> int:
        """Record that the facts of a row, or the one with a code, were wrong or undone; return how many, or WrongUse.

        It counts like a release: what repeats the payment is a duplicate again (`registration_count`).
        """

    def facts(self, environment: Environment, *, batch: str | None = None, since: date | None = None) -> Iterator[Fact]:
        """Yield an environment's facts as they were recorded, withdrawn ones too; of a batch, of days `since`."""

    def facts_of_accounts(self, accounts: Sequence[bytes], environment: Environment) -> Mapping[bytes, list[Fact]]:
        """Return the facts that speak against accounts: not withdrawn, and no release has lifted them since."""

    def corrected(self, fact: Fact) -> Mapping[str, str]:
        """Return what a change corrects, by our column, for the rejects file alone; empty after a purge."""

    def note_recall(self, batch: str, rows: Sequence[int], who: str, why: str) -> None:
        """Record that the bank was asked to reverse some accepted rows; nothing else changes."""

    def returned_files(self, environment: Environment) -> set[str]:
        """Return the digests of the files of returns that were taken in."""

    # Maintenance

    opened_after_s: float
    """Seconds between the ledger's last event and this opening: a clock that is far ahead shows here."""

    def now(self) -> datetime:
        """Return the time from which windows are counted back; never later than what is certain.

        It is the server's, or this machine's without what its clock has gone ahead since the machine was started while
        no time passed. Raises LedgerNotUsable.
        """

    def today(self) -> date:
        """Return the day that it is in the zone of the policy, else here, by the clock whose times the ledger records.

        Raises LedgerNotUsable where this machine does not know the zone.
        """

    def certain_today(self) -> date:
        """Return the day that it certainly is by now: an earlier one than today where the clock may be ahead.

        The server's clock is right, and so is one that a time server keeps. Otherwise as much time has certainly passed
        as the machine has been running since the last event before it was started, and at most a day more is believed.
        """

    def zone(self) -> ZoneInfo | None:
        """Return the zone of the policy, in which days begin and end; None if nobody has set one."""

    def policy(self) -> records.Event | None:
        """Return the latest event by which the policy was set, whose detail is all of it (workflows/policy.py)."""

    def set_policy(self, change: Callable[[dict[str, Any]], dict[str, Any]], who: str, why: str) -> None:
        """Set the policy to what `change` makes of it as it is then; takes a person and a reason."""

    @property
    def clock_ahead(self) -> timedelta:
        """How much later the time is that the ledger records, which nothing explains; zero as a rule."""

    def is_clock_sure(self) -> bool:
        """Return whether the time since the last event certainly passed: by the server, a time server, or this boot."""

    @property
    def outdated(self) -> str | None:
        """Why a ledger opened to be read may not know of the latest payments; None if a run could use it."""

    @property
    def differences(self) -> Sequence[LedgerNotUsable]:
        """In what a ledger opened to be read is not the one that this machine knows, where and when it was."""

    def lost_window(self) -> records.LostWindow | None:
        """Return what a restored ledger may not know, until a person has settled it: nothing new is registered then."""

    def move_gateway(self, batches: Sequence[str], origin: str, api_id: str, who: str, why: str) -> None:
        """Reassign batches to another address of their gateway, one event each; requires a person and a reason.

        They are paid from the account of `api_id` from then on, or from the same as before where it is empty.
        """

    def check(self) -> list[str]:
        """Check the whole ledger: return what is wrong with it, one line each; empty if nothing is."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy, mode 0600, with the database's own tools, and read it back."""

    def note_backup(self, who: str, name: str) -> None:
        """Record that a copy was made, and its file's name, for whoever checks when the last one was."""

    def note_person(self, who: str, what: str, name: str = "", *, is_off: bool = False) -> None:
        """Record a change of one of the people who may sign in to the page: who made it, and what it was."""

    def people_off(self) -> frozenset[str]:
        """Return the people of the page who were switched off: what they agreed to before does not count anymore."""

    def old_batches(self, before: datetime) -> list[records.OldBatch]:
        """List the batches with names, details and messages to which nothing has happened since, the oldest first."""

    def purge(self, before: datetime, who: str, why: str) -> records.Purge:
        """Erase the texts of old batches whose rows are all final, then everything of them that the files still hold.

        Rows, amounts, states, references, digests, totals and history stay. A purge that was interrupted is completed,
        even if nothing more is to be erased. In a file: raises BatchHeld while any batch is held, RunStopped if the
        files could not be cleaned of what was erased: the next purge does it. In a database a batch that is held stays,
        and what its files still hold is the server's affair.
        """

    def unfinished_purge(self) -> bool:
        """Return whether the files may still contain what a purge has erased."""
