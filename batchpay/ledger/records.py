"""The values that pass between the ledger and the rest of batchpay: batches, rows, runs, decisions, events, ledgers.

Plain dataclasses that name no database. Amounts are cents, times are aware and UTC.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from batchpay.errors import ClockBehind, LedgerBehind, LedgerDamaged, LedgerElsewhere, LedgerNotUsable
from batchpay.outcome import Answer
from batchpay.payment import Environment, RunWork, State, Totals, added_up
from batchpay.text import instant, row_count


@dataclass(frozen=True, slots=True)
class LostWindow:
    """What a restored ledger may not know."""

    since: datetime
    """Time of its last event: what was done later is lost."""
    first_event: int
    last_event: int | None
    """None if it is not known how many events are lost."""

    def __str__(self) -> str:
        since = f"what was done since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        if self.last_event is None:
            return f"{since} may be lost, and nobody knows how many events"
        return f"events {self.first_event} to {self.last_event} are lost: {since}"

    @property
    def waits(self) -> str:
        """Say what waits for a person because of it, and what ends that."""
        return f"new files wait for a person: {self}; when all of it is accounted for: batchpay ledger accept --confirm"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting a ledger that differs from what this machine knows."""

    marked_in_doubt: int = 0
    """Rows that it would have sent, which are in doubt now."""
    lost: LostWindow | None = None
    """What it may not know: no new file is registered before a person confirms that all of it is accounted for."""


def what_accepting_means(found: LedgerNotUsable, rows: int) -> str | None:
    """Say what becomes of rows (so many would be sent now) and files if a difference is accepted; None: it can't be."""
    doubted = f"puts {row_count(rows)} in doubt that it would send, and no new file is registered before --confirm"
    if isinstance(found, LedgerBehind):
        return f"accepting it {doubted}"
    if isinstance(found, LedgerElsewhere):
        return (
            "accepting it changes no row and holds up no file: where it was, nothing more may be sent. If payments may "
            f"have been sent from there since, use --rows-in-doubt, which {doubted}"
        )
    return "accepting it changes no row and holds up no file" if isinstance(found, ClockBehind) else None


POLICY = "policy"
"""Kind of event by which a person sets the policy that all machines share; each has the whole of it."""
BACKED_UP = "backed up"
"""Kind of event for a backup."""
PERSON_CHANGED = "person changed"
"""Kind of event for a change to the people who may sign in to the page."""
PURGED, PURGE_COMPLETED = "purged", "purge completed"
"""Kinds of events of a purge: one per batch when its texts are deleted, one when the files were seen to have none."""
MACHINE_ACCEPTED, CLOCK_ACCEPTED = "machine accepted", "clock accepted"
"""Kinds of events by which a person accepts a ledger that is elsewhere, or a clock that was ahead: nothing is lost."""
WITNESS_ACCEPTED, SETTLED = "witness accepted", "lost window settled"
"""Kinds of events by which a person accepts a restored ledger, and says that what it lost is known."""
HOW_TO_ACCEPT = (
    "batchpay ledger check says what accepting it would mean; a named person who knows why accepts it by: "
    'batchpay ledger accept --reason "…"'
)
HOSTS_GONE = "host gone"
"""Kind of event in which a person says that machines whose runs were fenced are off for good."""
SETTLED_BY = "resolved by "
"""Begins the reason of a row in doubt that a person settled."""
RESTORED_REASON = "the ledger was accepted without its witness: payments made since may be unknown to it"
RECOVERED_REASON = "the run ended before an answer was recorded"
PLAN_USED = "plan used"
"""Kind of event that records a plan's seal, maker and approvers."""


@dataclass(frozen=True, slots=True)
class RecordedApproval:
    """One person's approval of what a plan shows."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SignOff:
    """A plan, used up by what it lets through, and the people who approved it."""

    plan: str
    """The plan's id; a ledger accepts each once."""
    seal: str
    """What maker and approvers saw (approval/proposal.py)."""
    prepared_by: str
    approvals: tuple[RecordedApproval, ...]
    """Those that count: other people than the one who prepared it, each once, none expired."""
    adds: Totals
    """Rows and cents that become pending with it; anything else undoes the transaction."""
    held_back: Totals
    """Pending rows of the batch that the plan does not cover, because they fail the rules of the day."""
    lifts: tuple[str, ...] = ()
    """Limits of a day that the plan names: they stop nothing of the batch, neither now nor when it is sent."""


def batch_name(digest: bytes) -> str:
    """Return the name of a content's first batch; another one of the same content gets a number."""
    return digest.hex()[:12]


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What is known of a batch before its rows are written."""

    digest: bytes
    """32 bytes, keyed, over the canonical rows."""
    file: str
    """The name that the person gave."""
    columns: Sequence[str]
    """Names of the file's unknown columns, carried into the results."""
    rows: int
    options: dict[str, Any]
    """JSON values: the rules it was checked under, `gateway_ids`, the accounts that its valid rows name, and
    `file_digest`, a keyed digest of the file's bytes in hex digits; batches of 0.1.0 have none."""
    origin: str
    """The origin of the gateway that it is meant for."""
    environment: Environment
    registration_count_seen: int
    """`Ledger.registration_count()` at the time of the lookup; if it has grown since then, the write fails."""
    again_reason: str | None = None
    """Why the same content is paid once more, or None."""
    sign_off: SignOff | None = None
    """The plan that lets it through, recorded in the same transaction."""


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One batch: rows and cents by state. The states add up to `total`, or the ledger is damaged."""

    batch: str
    """Its short name, shown and accepted everywhere: 12 hex digits of the digest, plus `-2`, `-3`, … for a repeat."""
    digest: bytes
    file: str
    origin: str
    environment: Environment
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
    apart: dict[State, dict[str, Totals]] = field(default_factory=dict)
    """The same for each of their states."""
    again_reason: str | None = None
    """Why this batch pays the same content once more; None for the first."""
    options: dict[str, Any] = field(default_factory=dict)
    """As in NewBatch."""
    held_back: Totals = Totals()
    """The pending rows that the last run did not send because they failed its rules."""
    results: str | None = None
    """Where a run of this process wrote the results; the ledger does not keep it."""
    results_missing: bool = False
    """Whether a run of this process was to write the results and could not."""
    ledger_failed: bool = False
    """Whether the ledger failed under a run of this process, whose last answers the next run on this machine merges."""
    clock_note: str | None = None
    """What a person should know of the clock by which a run of this process began."""
    late_answers: tuple[str, ...] = ()
    """Answers that a run of this process found too late, and that contradict the ledger, in words."""
    rate_found: float | None = None
    """Requests a second that the gateway took, if a run of this process found its limit."""
    pace_told: str | None = None
    """What the pace of a run of this process was, and what its refusals show, in words."""
    work: RunWork = RunWork()
    """What a run of this process did."""
    purged_at: datetime | None = None
    """When names, details and messages of its rows were erased; None while the ledger has them."""
    outdated: str | None = None
    """Why the ledger, which was only read, may not know of the latest payments; None if a run could use it."""
    by_day: dict[date, dict[str, Totals]] = field(default_factory=dict)
    """Pending rows with a day of their own, by day, each by DEBIT and CREDIT."""
    today: date = date.max
    """The day by which rows are due: of a run that this process made, its own, else the ledger's when it was read."""

    returned_apart: dict[str, Totals] = field(default_factory=dict)
    """Accepted rows that came back, by DEBIT and CREDIT; not those of payments that are made again and again."""

    @property
    def returned(self) -> Totals:
        """Return the accepted rows that came back: with `standing` they add up to all that were accepted."""
        return sum(self.returned_apart.values(), Totals())

    @property
    def standing(self) -> Totals:
        """Return the accepted rows that did not come back."""
        return self.by_state[State.ACCEPTED] - self.returned

    @property
    def scheduled(self) -> Totals:
        """Return the pending rows whose day has not come: nobody waits for them."""
        return sum(self.scheduled_apart.values(), Totals())

    @property
    def scheduled_apart(self) -> dict[str, Totals]:
        """Return the same by DEBIT and CREDIT."""
        return added_up(apart for day, apart in self.by_day.items() if day > self.today)

    @property
    def scheduled_told(self) -> str:
        """Say what is scheduled: `2 rows scheduled, next on 03/01/2027`."""
        return f"{row_count(self.scheduled.rows)} scheduled, next on {self.next_pay_on:%m/%d/%Y}"

    @property
    def due(self) -> Totals:
        """Return the pending rows that may be sent: all that are not scheduled."""
        return self.due_by(self.today)

    def due_by(self, day: date) -> Totals:
        """Return the pending rows that were due by a day; those without a day of their own were."""
        return sum(self.due_apart_by(day).values(), Totals())

    def due_apart_by(self, day: date) -> dict[str, Totals]:
        """Return the same by DEBIT and CREDIT."""
        later = added_up(apart for pay_on, apart in self.by_day.items() if pay_on > day)
        pending = self.apart.get(State.PENDING, {})
        return {name: due for name, totals in pending.items() if (due := totals - later.get(name, Totals())).rows}

    @property
    def overdue(self) -> Totals:
        """Return the pending rows whose day has passed."""
        return sum(added_up(apart for day, apart in self.by_day.items() if day < self.today).values(), Totals())

    @property
    def next_pay_on(self) -> date | None:
        """Return the first day on which scheduled rows are due; None if there are none."""
        return min((day for day in self.by_day if day > self.today), default=None)

    @property
    def left_out(self) -> dict[str, Totals]:
        """Return the rows of the file that its map left out, by the word that says they are no payments."""
        return {word: Totals(*counted) for word, counted in self.options.get("left_out", {}).items()}

    @property
    def currencies(self) -> dict[str, Totals]:
        """Return the rows that were valid at registration, by currency; none where all were in US dollars."""
        return {code: Totals(*counted) for code, counted in self.options.get("currencies", {}).items()}

    @property
    def sendable(self) -> Totals:
        """Return all of the batch that was sent or may be."""
        return sum((totals for state, totals in self.by_state.items() if state is not State.REJECTED), Totals())


PAUSE_S_MOST = 3600.0
"""A pause that would last longer was told by a clock that has been set back since."""


@dataclass(frozen=True, slots=True)
class PaceNow:
    """Who sends to a gateway now, through one ledger."""

    runs: int
    """How many runs, the one that asks included."""
    paused_s: float
    """Seconds for which the gateway asked one of them to wait; 0 or less if none."""


@dataclass(slots=True)
class PendingPayment:
    """A row to send: its body is byte for byte what was validated. Not frozen: that takes twice as long to create."""

    row: int
    attempts: int
    body: bytes = field(repr=False)
    cents: int = 0
    direction: int = 0
    """Its code."""
    account: bytes = field(default=b"", repr=False)
    """Its digest, where there is a limit for one account."""


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

    @property
    def account(self) -> str:
        """Return four stars and the last four characters of the account."""
        return f"****{self.last_four}"

    @property
    def was_settled(self) -> bool:
        """Whether a person decided what became of it: its reference may be of another numbering than the gateway's."""
        return (self.reason or "").startswith(SETTLED_BY)

    def may_lack_last_attempt(self, restored_at: datetime | None) -> bool:
        """Whether a restored ledger may not know the last attempt of this row in doubt."""
        return self.reason == RESTORED_REASON or bool(restored_at and self.sent_at and self.sent_at <= restored_at)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Many LedgerRows, by column (all sequences of one length, in file order)."""

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
    details: Sequence[bytes] = field(repr=False)
    """One JSON object each, as it was registered."""

    def read_details(self) -> list[dict[str, Any]]:
        """Read every row's details, as the function of the same name."""
        return read_details(self.details)


def read_details(texts: Sequence[bytes]) -> list[dict[str, Any]]:
    """Read some rows' details; raises LedgerDamaged if one is not a JSON object."""
    try:
        # One array is read in half the time that its members take one by one.
        found: list[dict[str, Any]] = json.loads(b"[%b]" % b",".join(texts))
    except ValueError:
        found = []
    if len(found) != len(texts):
        raise LedgerDamaged("the ledger is damaged: details that are not one JSON object a row")
    return found


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
    attempts: int | None = None
    """How often the row had been sent when they looked: they know nothing of a later attempt. None asks nothing."""


@dataclass(frozen=True, slots=True)
class PayeeFacts:
    """What the ledger knows of a payee from accepted payments of other batches."""

    usual_cents: int
    """The mean of their amounts, rounded down."""
    accounts: Mapping[bytes, datetime]
    """Keyed digests of the accounts that the payments went to, and when the first to each was registered."""
    came_back: frozenset[bytes] = frozenset()
    """Digests of accounts from which all payments came back: they are in `accounts` only if one of them stands."""


@dataclass(frozen=True, slots=True)
class OldBatch:
    """A batch with no event for a long time that still has names, details and messages."""

    batch: str
    file: str
    environment: Environment
    rows: int
    """Rows that passed the rules: those that the ledger has texts for."""
    last_event_at: datetime
    stays: str | None
    """Why its texts can't be erased yet, or None."""


@dataclass(frozen=True, slots=True)
class Purge:
    """What a purge did."""

    erased: Sequence[OldBatch]
    held: Sequence[str]
    """Batches that another process held: they were left as is."""
    pieces_searched: int
    """Pieces of what was erased that were searched for in the ledger's files, and not found."""
    bytes_searched: int
    """Size of these files."""


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


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a series of files that are used: by number, the name and digest of its batch."""

    batches: Mapping[int, tuple[str, bytes]]

    def used_for(self, number: int, digest: bytes) -> str | None:
        """Return the batch of another content that has a number; None if there is none."""
        name, other = self.batches.get(number, ("", digest))
        return name if other != digest else None

    def first_missing(self, number: int) -> int | None:
        """Return the first number that should have come before this one; None if none is missing."""
        latest = max(self.batches, default=number)
        return latest + 1 if number > latest + 1 else None


class TotalsDelta:
    """What a transaction that moves rows adds to, and takes from, the control totals by state and direction."""

    def __init__(self) -> None:
        self._changes: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])

    def add(self, state: int, direction: int, rows: int, cents: int) -> None:
        """Add rows and cents to a state; negative numbers take away."""
        change = self._changes[state, direction]
        change[0] += rows
        change[1] += cents

    def move(self, before: int, after: int, direction: int, cents: Sequence[int]) -> None:
        """Move rows with these amounts from a state to another."""
        total = sum(cents)
        self.add(before, direction, -len(cents), -total)
        self.add(after, direction, len(cents), total)

    def total(self) -> Totals:
        """Return the total over all states."""
        return Totals(
            sum(rows for rows, _ in self._changes.values()), sum(cents for _, cents in self._changes.values())
        )

    def of(self, state: int) -> Totals:
        """Return the total of one state."""
        changes = [change for (changed, _), change in self._changes.items() if changed == state]
        return Totals(sum(rows for rows, _ in changes), sum(cents for _, cents in changes))

    def changes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield state, direction, rows and cents of everything that changes."""
        for (state, direction), (rows, cents) in self._changes.items():
            if rows or cents:
                yield state, direction, rows, cents


MOVED, ARRIVED = "moved", "arrived"
"""Kinds of events by which a ledger ends in one place, and continues in the other."""

LEASE_S = 30.0
"""A machine whose heartbeat stands still for so long is taken for dead."""


@dataclass(frozen=True, slots=True)
class HostRun:
    """One machine's run of a batch that any of several may send."""

    host: str
    is_live: bool
    started_at: datetime
    finished_at: datetime | None
    seen_at: datetime
    """When it last committed anything, by the ledger's clock."""
    heartbeat_age_s: int
    stopped: str | None
    is_fenced: bool
    """Another machine took over its batch, and it has not been heard of since."""
    rows: int
    """Rows that it finished, or left in doubt."""
    in_doubt: int

    @property
    def has_heartbeat(self) -> bool:
        """Whether it was heard of within the time after which another machine may take over."""
        return self.heartbeat_age_s < LEASE_S

    @property
    def standing(self) -> str:
        """Return the run's status, in words."""
        if self.is_live:
            return f"{'at work' if self.has_heartbeat else 'no sign of life'}, heartbeat {self.heartbeat_age_s} s old"
        if self.is_fenced:
            return "taken over, not heard of since"
        if self.finished_at is None:
            return "taken over"
        return f"stopped: {self.stopped}" if self.stopped else "ended"

    def as_json(self) -> dict[str, Any]:
        """Return the run as `--json` shows it."""
        return {
            "host": self.host,
            "rows": self.rows,
            "in_doubt": self.in_doubt,
            "started_at": instant(self.started_at),
            "last_heard_of": instant(self.seen_at),
            "heartbeat_age_s": self.heartbeat_age_s if self.is_live else None,
            "finished_at": instant(self.finished_at),
            "standing": self.standing,
        }
