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
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

from batchpay.errors import LedgerNotUsable
from batchpay.payment import Answer, Outcome, State, Totals


@dataclass(frozen=True, slots=True)
class PackedTexts:
    """PackedTexts of rows, end to end: a Python object for each of a million would cost more than building them."""

    joined: bytes | memoryview = field(repr=False)
    """UTF-8."""
    lengths: Sequence[int]
    """Bytes of each row's text."""

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> PackedTexts:
        """Put texts end to end."""
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        return cls(b"".join(encoded), [len(text) for text in encoded])

    def each(self) -> list[bytes]:
        """Take them apart again."""
        places = accumulate(self.lengths, initial=0)
        return [bytes(self.joined[start:end]) for start, end in pairwise(places)]

    def parts(self, rows: int) -> Iterator[PackedTexts]:
        """Give so many rows at a time, without a copy."""
        joined, start = memoryview(self.joined), 0
        for first in range(0, len(self.lengths), rows):
            lengths = self.lengths[first : first + rows]
            end = start + sum(lengths)
            yield PackedTexts(joined[start:end], lengths)
            start = end


@dataclass(frozen=True, slots=True)
class PaymentColumns:
    """Rows that passed every rule, by column (all sequences of one length, in file order)."""

    rows: Sequence[int]
    lines: Sequence[int | None]
    amounts_cents: Sequence[int]
    directions: Sequence[str]
    """DEBIT or CREDIT."""
    fingerprints: Sequence[bytes]
    """16 bytes, keyed: account, routing, amount, direction, invoice (as in the file)."""
    payment_ids: Sequence[bytes | None]
    """16 bytes, keyed: the caller's paymentId; None where not given."""
    payees: Sequence[bytes]
    """8 bytes, keyed: the payee's name, for the look at changed accounts."""
    accounts: Sequence[bytes]
    """8 bytes, keyed: routing and account number, for the same look."""
    details: PackedTexts
    """A JSON object a row: what results and reports show of it (see registration/request_body.py)."""
    bodies: PackedTexts
    """The exact request body as JSON text."""


@dataclass(frozen=True, slots=True)
class RejectedColumns:
    """Rows that failed a rule, by column."""

    rows: Sequence[int]
    lines: Sequence[int | None]
    amounts_cents: Sequence[int]
    """0 where the amount can't be read."""
    reasons: Sequence[str]
    """`column.code` of every failed rule, separated by blanks; no text of the row."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows to hold against earlier batches, by column."""

    rows: Sequence[int]
    fingerprints: Sequence[bytes]
    payment_ids: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A row of this file that an earlier batch holds already."""

    row: int
    by_payment_id: bool
    earlier_batch: str
    earlier_row: int


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What is known of a batch before its rows are written."""

    digest: bytes
    """32 bytes, keyed, over the canonical rows."""
    file: str
    """The name the person gave."""
    columns: Sequence[str]
    """Names of the file's unknown columns, carried into the results."""
    rows: int
    options: dict[str, Any]
    """JSON values: the rules it was checked under, and `gateway_ids`, the accounts that its valid rows name."""
    origin: str
    """The gateway's origin it is meant for."""
    batch_count_seen: int
    """`Ledger.batch_count()` at the time of the look-up; a batch registered since then makes the writing fail."""
    again_reason: str | None = None
    """Why the same content is paid once more, or None."""


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One batch: rows and cents by state. The states add up to `total`, or the ledger is damaged."""

    batch: str
    """Its short name, shown and accepted everywhere: 12 hex digits of the digest, with `-2` and on for a repeat."""
    digest: bytes
    file: str
    origin: str
    registered_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    stopped: str | None
    """Why the last run ended early, or None."""
    columns: tuple[str, ...]
    total: Totals
    by_state: dict[State, Totals]
    by_direction: dict[str, Totals]
    """Totals of the rows that passed the rules, by DEBIT and CREDIT."""
    again_reason: str | None = None
    """Why this batch pays the same content once more; None for the first."""
    options: dict[str, Any] = field(default_factory=dict)
    """As in NewBatch."""


@dataclass(frozen=True, slots=True)
class PendingPayment:
    """A row to send: its body is byte for byte what was validated."""

    row: int
    attempts: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row that passed the rules, as results, resolve and reports show it."""

    row: int
    line: int | None
    state: State
    amount_cents: int
    direction: str
    last_four: str
    attempts: int
    sent_at: datetime | None
    finished_at: datetime | None
    answer: Answer
    reason: str | None
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Many a LedgerRow, by column (all sequences of one length, in file order)."""

    rows: Sequence[int]
    lines: Sequence[int | None]
    states: Sequence[State]
    amounts_cents: Sequence[int]
    directions: Sequence[str]
    attempts: Sequence[int]
    sent_at: Sequence[datetime | None]
    finished_at: Sequence[datetime | None]
    http_statuses: Sequence[int | None]
    response_codes: Sequence[str | None]
    messages: Sequence[str | None]
    gateway_references: Sequence[str | None]
    reasons: Sequence[str | None]
    details: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that failed a rule."""

    row: int
    line: int | None
    amount_cents: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a named person found out about a row in doubt; `state` is ACCEPTED, DECLINED or PENDING (send again)."""

    row: int
    state: State
    gateway_reference: str | None = None


@dataclass(frozen=True, slots=True)
class PayeeFacts:
    """What the ledger knows of a payee from accepted payments of other batches."""

    usual_cents: int
    """The mean of their amounts, rounded down."""
    accounts: frozenset[bytes]
    """Keyed digests of the accounts that they went to."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the append-only history."""

    number: int
    at: datetime
    batch: str | None
    kind: str
    who: str
    why: str | None
    detail: str


class RegisteredMeanwhile(LedgerNotUsable):
    """Another batch was registered since the look for earlier payments: look again (NewBatch.batch_count_seen)."""


class Registering(Protocol):
    """A batch being written: nothing of it stands before `finish` has returned; leaving early undoes it all."""

    def add_payments(self, payments: PaymentColumns) -> None:
        """Write rows as pending, their bodies encrypted."""

    def add_rejected(self, rejected: RejectedColumns) -> None:
        """Write rows as rejected."""

    def finish(self) -> str:
        """Commit; returns the batch's name. Raises RegisteredMeanwhile (see NewBatch.batch_count_seen)."""


class Run(Protocol):
    """One run's hold on one batch. Its token goes into every write, so a run that lost its hold can't send."""

    recovered: int
    """Rows found in `sending` at the start, which are in doubt now."""

    def pending(self, after_row: int, limit: int) -> list[PendingPayment]:
        """Give the next pending rows in file order, after `after_row`, at most `limit`; decrypts their bodies."""

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        """Record intents (pending -> sending) and outcomes (sending -> ...) in one durable transaction.

        Returns the rows whose intent was granted: those, and only those, may be sent. Raises LedgerNotUsable when
        nothing was recorded; then nothing may be sent any more, and outcomes go to `spill`.
        """

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """Write outcomes that the ledger could not take to the spill file, which the next start merges."""

    def reject(self, rows: Sequence[int], reason: str) -> None:
        """Reject pending rows before anything of them was sent (an unknown gatewayId); `reason` is column.code."""

    def finish(self, stopped: str | None) -> None:
        """Record the run's end; `stopped` names why it ended early. Closes the run."""

    def close(self) -> None:
        """Give back what the run holds, without a word in the ledger; harmless after `finish`."""


class Ledger(Protocol):
    """The durable record of batches, rows and events."""

    def close(self) -> None:
        """Give back files and locks."""

    # Keyed digests: the key never leaves the ledger package.

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        """Keyed digests of texts, `size` bytes each, apart for each purpose; None stays None."""

    def digest_stream(self, purpose: str) -> Any:
        """Return a keyed digest to feed with `update(bytes)` and end with `digest()` (32 bytes)."""

    # Registering

    def batch_count(self) -> int:
        """How many batches were ever registered; compared by NewBatch.batch_count_seen."""

    def find_digest(self, digest: bytes, again_reason: str | None = None) -> BatchSummary | None:
        """Find the latest batch with this content, or of those the latest that pays it again for that reason."""

    def earlier(
        self, lookup: Lookup, *, days: int, now: datetime, exclude_digest: bytes | None = None
    ) -> list[Earlier]:
        """Find rows that an earlier batch holds as sent, pending or in doubt.

        The same paymentId ever; or, where either row has no paymentId, the same fingerprint within `days`. Rejected
        rows and declined ones don't count. Batches with the digest `exclude_digest` are left out.
        """

    def register(self, batch: NewBatch, who: str) -> AbstractContextManager[Registering]:
        """Begin to write a batch."""

    def release(self, batch: str, payments: Sequence[PaymentColumns], who: str, why: str) -> int:
        """Turn rejected rows of a batch to pending, with their bodies; rows in another state stay. Returns how many."""

    # Running

    def lock(self, digest: bytes) -> AbstractContextManager[None]:
        """Hold a batch's content for one run; raises BatchHeld at once if another process does."""

    def start(self, batch: str, who: str) -> Run:
        """Begin a run on a held batch: merge the spill file, make rows found in `sending` in doubt."""

    # Reading

    def find(self, reference: str | None) -> BatchSummary:
        """Find a batch by name or unique beginning; None is the latest. Raises WrongUse."""

    def batches(self) -> list[BatchSummary]:
        """All batches, the latest first."""

    def rows(self, batch: str, states: Sequence[State] | None = None) -> Iterator[LedgerRow]:
        """Rows that passed the rules, in file order, in constant memory."""

    def row_columns(self, batch: str, states: Sequence[State] | None = None) -> Iterator[RowColumns]:
        """Give the same rows some hundred at a time, by column: several times faster where there are very many."""

    def rejected(self, batch: str) -> Iterator[RejectedRow]:
        """Rows that failed, in file order."""

    def events(self, batch: str | None = None) -> Iterator[Event]:
        """History, the oldest first."""

    def payee_facts(self, payees: Sequence[bytes], exclude_digest: bytes | None = None) -> Mapping[bytes, PayeeFacts]:
        """Look payees up by keyed digest; those without an accepted payment are left out.

        Batches with the digest `exclude_digest` don't count: submitting a file again must not find itself.
        """

    # Persons

    def resolve(self, batch: str, decisions: Sequence[Decision], who: str, why: str) -> int:
        """Settle rows in doubt, all or none, as one event; raises WrongUse if one isn't in doubt."""

    # Care

    def check(self) -> list[str]:
        """Look over the whole ledger: what is wrong with it, a line each; empty when all is well."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy, mode 0600, through the database's own means."""
