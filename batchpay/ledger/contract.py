"""What a ledger does for the rest of batchpay, whatever database holds it.

The left half (validation/, registration/) writes a batch in one transaction; the right half (sending/) holds
a batch, claims its pending rows in file order and records, durably, first the intent to send and then the outcome;
reports read. Nothing outside `batchpay.ledger` knows a table's name.

No method stores, returns or raises an account number or a routing number: rows carry the last four characters, a keyed
fingerprint, and the request body, which is encrypted at rest and erased when every row of its chunk is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from batchpay.errors import LedgerNotUsable

if TYPE_CHECKING:
    from batchpay.ledger.columns import Earlier, Lookup, PaymentColumns, RejectedColumns
    from batchpay.ledger.hosts import HostRun, Shared
    from batchpay.ledger.records import (
        BatchSummary,
        Decision,
        Event,
        Lease,
        LedgerRow,
        LostWindow,
        NewBatch,
        OldBatch,
        PayeeFacts,
        PendingPayment,
        Purge,
        RejectedRow,
        RowColumns,
        SignOff,
    )
    from batchpay.outcome import Finding, Outcome
    from batchpay.payment import Environment, State, Totals


class RegisteredMeanwhile(LedgerNotUsable):
    """Rows were registered or released since the look for earlier payments: look again (registration_count).

    A ledger may tell that none of them is one of those that are to be added, and let them be.
    """


class Registering(Protocol):
    """A batch being written: nothing of it stands before `finish` has returned; leaving early undoes it all."""

    def add_payments(self, payments: PaymentColumns) -> None:
        """Write rows as pending, their bodies encrypted."""

    def add_rejected(self, rejected: RejectedColumns) -> None:
        """Write rows as rejected."""

    def finish(self) -> str:
        """Commit; returns the batch's name. Raises RegisteredMeanwhile (see NewBatch.registration_count_seen)."""


class Run(Protocol):
    """One run's hold on one batch. Its token goes into every write, so a run that lost its hold can't send."""

    recovered: int
    """Rows found in `sending` at the start, which are in doubt now."""
    late: Sequence[str]
    """Answers found at the start, in words, that say other than the ledger: their rows have gone on without them."""

    @property
    def company(self) -> Company | None:
        """The other machines that may work on the batch; None where only one can."""

    def claim(self, limit: int) -> list[PendingPayment]:
        """Take the next pending rows in file order that this run has not claimed yet, at most `limit`.

        A claim is not a permission to send: only `commit` gives that. A row that comes back to pending stays claimed by
        its run, whose worker repeats it; nobody else is given it before the run has ended.
        """

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        """Record intents (pending -> sending) and outcomes (sending -> ...) in one durable transaction.

        Returns the rows whose intent was granted: those, and only those, may be sent. Raises LedgerNotUsable when
        nothing was recorded; then nothing may be sent any more, and outcomes go to `spill`.
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
        """Give back what the run holds, without a word in the ledger; harmless after `finish`."""


class Company(Protocol):
    """The other machines that may work on a run's batch. The run leads, or it helps the one that does.

    Each shows by its beats that it is alive. One that stands still for long is shut out: what it was sending becomes in
    doubt, what it had only claimed is free again.
    """

    leads: bool
    shared: Shared
    beat_every_s: float
    """A run that has nothing to commit beats in this distance."""
    others_busy: bool
    """Whether others had rows in hand at the latest beat, or may be dead: idle, and not seen to move since this is."""

    def share(self) -> None:
        """Let others claim rows, from the next commit or beat on: till then nobody but the leader can."""

    def tell(self, stop: str) -> None:
        """Let all runs of the batch stop, from the next commit or beat on; the first reason stays."""

    def beat(self, *, is_idle: bool = False) -> None:
        """Show that this run is alive, and shut out those that stand still; raises LedgerNotUsable like `commit`.

        `is_idle` says that no row is in hand, up to the next claim.
        """

    def at_work(self) -> bool:
        """Tell whether others have rows in hand, which may come free yet; asked right after an idle beat."""


class SharedRate(Protocol):
    """One gateway's rate, shared by all that send to it over one ledger."""

    def found(self) -> Finding | None:
        """What an earlier run found of the gateway's limit: where the next one begins, to be found out anew."""

    def remember(self, finding: Finding) -> None:
        """Keep what this run found."""

    def lease(self, rate: float, paused_s: float) -> Lease | None:
        """Lease the next moments to send; None where nobody can be asked now.

        `rate` is what this process holds for the gateway's limit, `paused_s` how long the gateway told it to wait; the
        lowest rate and the longest wait of all hold for all.
        """

    def close(self) -> None:
        """Give back what it holds."""


class Ledger(Protocol):
    """The durable record of batches, rows and events."""

    def close(self) -> None:
        """Give back files and locks."""

    # Keyed digests: the key never leaves the ledger package.

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        """Keyed digests of texts, `size` bytes each, apart for each purpose; None stays None."""

    def digest_stream(self, purpose: str) -> Any:
        """Return a keyed digest to feed with `update(bytes)` and end with `digest()` (32 bytes)."""

    def seal(self, plain: bytes, place: str) -> bytes:
        """Encrypt what is kept beside the ledger for a while, bound to the place where it will stand."""

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """Decrypt it; raises LedgerDamaged where a byte was changed, or it was sealed for another place."""

    # Registering

    def registration_count(self) -> int:
        """How many registrations and releases there ever were: what may be sent has grown if this has."""

    def batch_count(self, environment: Environment) -> int:
        """How many batches an environment has."""

    def find_digest(
        self, digest: bytes, environment: Environment, again_reason: str | None = None
    ) -> BatchSummary | None:
        """Find an environment's latest batch with this content, or the latest that pays it again for that reason."""

    def earlier(
        self,
        lookup: Lookup,
        environment: Environment,
        *,
        days: int,
        now: datetime,
        exclude_digest: bytes | None = None,
    ) -> list[Earlier]:
        """Find rows that an earlier batch of the environment holds as sent, pending or in doubt.

        The same paymentId ever; the same bill ever if it has an invoice number and either row no paymentId, else within
        `days` (0: never), and where both have one also later (SamePayment.ANOTHER_ID). One for each row, the latest of
        the highest SamePayment. Rejected rows and declined ones don't count, nor batches with `exclude_digest`.
        """

    def register(self, batch: NewBatch, who: str) -> AbstractContextManager[Registering]:
        """Begin to write a batch."""

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
    ) -> int:
        """Turn rejected rows of a batch to pending, with their bodies; rows in another state stay. Returns how many.

        It counts like a registration: raises RegisteredMeanwhile where `registration_count` has grown since the look
        for earlier payments. A `sign_off` is recorded in the same transaction, and what was let through as duplicates.
        """

    # Plans: register and release use one up in their own transaction

    def use_plan(self, batch: str, who: str, sign_off: SignOff) -> None:
        """Record a plan that lets pending rows of a batch through and adds none; raises FileRefused if it was used."""

    def batch_of_plan(self, plan: str) -> str | None:
        """Name the batch that a plan was used for; None while it was not."""

    def approvers(self, batch: str) -> int:
        """How many people approved all that is pending of a batch: the least over what was registered and released."""

    # Running

    def lock(self, digest: bytes, *, helps: bool = False) -> AbstractContextManager[None]:
        """Hold a batch's content for one run; raises BatchHeld at once if another process does.

        HeldElsewhere if it is another machine's; whoever only `helps` does not mind.
        """

    def is_held(self, digest: bytes) -> bool:
        """Tell whether a run holds a batch's content now; looking never keeps one from beginning."""

    def start(self, batch: str, who: str, why: str | None = None, *, helps: bool = False) -> Run:
        """Begin a run on a held batch: merge the spill file, make rows that dead runs left in `sending` in doubt.

        `why` is recorded where a person had to say it. One that `helps` claims rows only when the run that leads the
        batch has shared it; raises WrongUse where a ledger belongs to one machine.
        """

    def at_work(self, environment: Environment) -> list[BatchSummary]:
        """Give an environment's batches that runs work on, where several machines can."""

    def runs(self, batch: str) -> list[HostRun]:
        """Give a batch's runs where several machines can work on it, the first one first."""

    def shared_rate(self, gateway: str) -> SharedRate | None:
        """Give what spaces requests to a gateway among all that send over this ledger; None where nothing does."""

    # Reading

    def find(self, reference: str | None, environment: Environment | None = None) -> BatchSummary:
        """Find a batch by name or unique beginning; None is the latest (of one environment). Raises WrongUse."""

    def batches(self) -> list[BatchSummary]:
        """All batches, the latest first."""

    def last_event_at(self, batch: str) -> datetime:
        """When anything was last recorded of a batch: a run, a release, a person's decision."""

    def rows(self, batch: str, states: Sequence[State] | None = None) -> Iterator[LedgerRow]:
        """Rows that passed the rules, in file order, in constant memory."""

    def row_columns(self, batch: str, states: Sequence[State] | None = None) -> Iterator[RowColumns]:
        """Give the same rows some thousand at a time, by column: several times faster where there are very many."""

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        """Rows that failed, in file order."""

    def events(self, batch: str | None = None) -> Iterator[Event]:
        """History, the oldest first."""

    def latest_event(self, kind: str) -> Event | None:
        """Find the latest event of a kind that is written seldom (any but `progress`)."""

    def origins(self, environment: Environment) -> list[str]:
        """Give the gateway addresses that an environment's batches are meant for, the latest batch's last."""

    def gateway_references(self, environment: Environment) -> Iterator[tuple[str, int, str]]:
        """Give batch, row and reference of every row of an environment whose gateway's reference is known."""

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, PayeeFacts]:
        """Look payees up by keyed digest; those without an accepted payment in the environment are left out.

        Batches with the digest `exclude_digest` don't count: submitting a file again must not find itself.
        """

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, str]:
        """Give the account, masked, of the latest accepted payment of payees; none where its details were purged.

        It reads the latest batch of each payee: ask for the few that a person is told of.
        """

    # Persons

    def resolve(self, batch: str, decisions: Sequence[Decision], who: str, why: str) -> int:
        """Settle rows in doubt, all or none, as one event; raises WrongUse if one isn't in doubt.

        Nor is a row sent again while a machine that was shut out, and was not heard of since, may still send it.
        """

    def say_hosts_gone(self, batch: str, who: str, why: str) -> Sequence[str]:
        """Record a person's word that machines which were shut out of a batch are off for good; gives their names."""

    # Care

    opened_after_s: float
    """Seconds between the ledger's last event and this opening: a clock that is far ahead shows here."""

    def lost_window(self) -> LostWindow | None:
        """Tell what a restored ledger may not know, while no person has settled it: nothing new is registered then."""

    def move_gateway(self, batches: Sequence[str], origin: str, who: str, why: str) -> None:
        """Let batches be meant for another address of their gateway, an event each; needs a person and a reason."""

    def check(self) -> list[str]:
        """Check the whole ledger: what is wrong with it, a line each; empty when all is well."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy, mode 0600, through the database's own means, and read it back."""

    def note_backup(self, who: str, name: str) -> None:
        """Record that a copy was made, and its file's name, for whoever looks when the last one was."""

    def note_person(self, who: str, what: str) -> None:
        """Record a change of the people who may sign in to the page: who made it, and what it was."""

    def old_batches(self, before: datetime) -> list[OldBatch]:
        """List the batches with names, details and messages to which nothing has happened since, the oldest first."""

    def purge(self, before: datetime, who: str, why: str) -> Purge:
        """Erase the texts of old batches whose rows are all final, then everything of them that the files still hold.

        Rows, amounts, states, references, digests, totals and history stay. A purge that was cut short is completed,
        also where nothing more is to be erased. Raises BatchHeld while any batch is held, RunStopped where the files
        could not be cleaned of what was erased: the next purge does it.
        """

    def unfinished_purge(self) -> bool:
        """Tell whether the files may still hold what a purge has erased."""
