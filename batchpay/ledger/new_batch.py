"""A batch while it is being written: its name and number, its rows' totals, and what the history will say of it.

A second thread writes its rows while the first one builds the next.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, compress, count
from operator import mul
from typing import Any, Protocol

from batchpay.errors import BatchpayError
from batchpay.ledger import decisions
from batchpay.ledger.columns import PaymentColumns, RejectedColumns
from batchpay.ledger.contract import RegisteredMeanwhile
from batchpay.ledger.database import Statements, Transaction, View
from batchpay.ledger.day_limits import known, require_alone, require_within
from batchpay.ledger.days import DayCheck, Sums
from batchpay.ledger.event_chain import DIRECTIONS
from batchpay.ledger.records import NewBatch, Numbers, TotalsDelta, batch_name
from batchpay.ledger.states import NEW, PENDING, REJECTED, STATES, require
from batchpay.payment import Environment, State
from batchpay.text import row_count, write_ranges

_WAITING_MAX = 3
"""How many sets of rows may wait to be written: it bounds the memory."""


class WritingAside:
    """Writes sets of rows in turn; between `write` and `wait` nothing else may use what it writes to."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="register")
        self._writing: deque[Future[None]] = deque()

    def write(self, write: Callable[[], None]) -> None:
        """Queue one more set; raises the error of an earlier one."""
        self._writing.append(self._executor.submit(write))
        self.wait(_WAITING_MAX)

    def wait(self, waiting_max: int = 0) -> None:
        """Wait until at most `waiting_max` sets are unwritten; raises any error of the writing."""
        while len(self._writing) > waiting_max:
            self._writing.popleft().result()

    def close(self) -> None:
        """Drop what has not been begun, and end the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class ReleaseWriter(Protocol):
    """Makes rejected rows pending in a transaction."""

    def release(self, payments: PaymentColumns, changes: TotalsDelta) -> PaymentColumns:
        """Release and return those rows that are rejected and have the same amount; add to what changes."""

    def finish(self) -> None:
        """Write what is left; raises RegisteredMeanwhile if others have added one of the same digests meanwhile."""

    def noted(self) -> dict[str, Any]:
        """Return what the history notes of it besides."""


MEANWHILE = "other rows were registered or released meanwhile; look at earlier payments again"


class BatchInWriting:
    """What is known of a batch so far; the caller that adds rows here writes them."""

    def __init__(self, transaction: Transaction, new: NewBatch, check: DayCheck) -> None:
        for state in (PENDING, REJECTED):
            require("registered", NEW, state)
        self._new = new
        name = batch_name(new.digest)
        taken = {found for (found,) in transaction.execute(transaction.statements.NAMES_LIKE, (name,))}
        self.name = next(free for free in chain((name,), (f"{name}-{n}" for n in count(2))) if free not in taken)
        columns, options = json.dumps(list(new.columns)), json.dumps(new.options)
        self._about = [
            new.file, new.origin, columns, options, transaction.now_ms(), new.again_reason, new.environment.value,
        ]  # fmt: skip
        found = transaction.one(transaction.statements.ADD_BATCH, (self.name, new.digest, *self._about))
        assert found is not None
        self.number = int(found[0])
        self.totals = TotalsDelta()
        self._check, self._sums = check, Sums()
        self._ranges: dict[int, list[str]] = {PENDING: [], REJECTED: []}
        self._weight = self._line_weight = 0

    def add_payments(self, payments: PaymentColumns, directions: Sequence[int]) -> None:
        """Count rows that were written as pending; `directions` are their codes."""
        for code in DIRECTIONS:
            amounts = list(compress(payments.amounts_cents, [direction == code for direction in directions]))
            self.totals.add(PENDING, code, len(amounts), sum(amounts))
        self._count(PENDING, payments)
        cents, accounts = payments.amounts_cents, payments.accounts
        self._sums.update(self._check.sums(payments.pay_on, cents, payments.directions, accounts))

    def add_rejected(self, rejected: RejectedColumns) -> None:
        """Count rows that were written as rejected."""
        self.totals.add(REJECTED, 0, len(rejected.rows), sum(rejected.amounts_cents))
        self._count(REJECTED, rejected)

    def _count(self, state: int, columns: PaymentColumns | RejectedColumns) -> None:
        rows = columns.rows
        self._weight += sum(map(mul, rows, columns.amounts_cents))
        self._line_weight += sum(map(mul, rows, [line or 0 for line in columns.lines]))
        if rows:
            self._ranges[state].append(write_ranges(rows))

    def require_all_rows(self) -> None:
        """Raise BatchpayError unless as many rows were written as the file has."""
        if (rows := self.totals.total().rows) != self._new.rows:
            raise BatchpayError(f"the batch was to have {row_count(self._new.rows)}, not {rows:,}")

    def record(self, transaction: Transaction, who: str, **more: Any) -> None:
        """Write the batch into the history, with `more`, and use up the plan that lets it through.

        Raises RegisteredMeanwhile if it would exceed a limit of a day, take more approvals, or is out of turn in its
        series.
        """
        require_in_turn(transaction, transaction.statements, self._new, self.number)
        found = known(self._check, transaction, transaction.statements, batch=self.number, keys=self._sums)
        require_within(self._check, self._sums, found)
        detail = self._detail() | more | require_alone(transaction, self._check, self.totals)
        transaction.event("registered", self.number, who, self._new.again_reason, detail)
        if self._new.sign_off is not None:
            decisions.use_plan(transaction, self.number, who, self._new.sign_off, self.totals.of(PENDING))

    def _detail(self) -> dict[str, Any]:
        totals = self.totals.total()
        return {
            "name": self.name,
            "digest": self._new.digest.hex(),
            "rows": totals.rows,
            "cents": totals.cents,
            "weight": str(self._weight),
            "line weight": str(self._line_weight),
            "about": self._about,
            "pending": ",".join(self._ranges[PENDING]),
            "rejected": ",".join(self._ranges[REJECTED]),
        }


def numbers_of(
    view: View, statements: Statements, series: str, environment: Environment, *, but: int | None = None
) -> Numbers:
    """Read the numbers of a series of files; `but` is a batch that does not count.

    A number counts as used while a row of its batch was, or may be, paid. It is among the batch's options, `series`,
    and so is the reason for which numbers were left out, `gap`.
    """
    found: dict[int, tuple[str, bytes]] = {}
    text = json.dumps({"series": [series]})[1:-2]  # as options have it, up to the number
    wanted = {"file_digest": text, "environment": environment.value}
    for batch, name, digest, *others in view.execute(statements.BATCHES_OF_FILE, wanted).fetchall():
        states = [STATES[state] for state, _, rows, _ in view.execute(statements.TOTALS, (batch,)) if rows]
        if batch != but and not {*states} <= {State.REJECTED, State.DECLINED}:
            found.setdefault(json.loads(others[8])["series"][1], (name, digest))
    return Numbers(found)


def require_in_turn(view: View, statements: Statements, new: NewBatch, batch: int) -> None:
    """Raise RegisteredMeanwhile if a batch's number is another's by now, or no longer the next one."""
    if "series" in new.options:
        series, number = new.options["series"]
        known = numbers_of(view, statements, series, new.environment, but=batch)
        is_gap = known.first_missing(number) is not None and "gap" not in new.options
        if is_gap or known.used_for(number, new.digest) is not None:
            raise RegisteredMeanwhile("another file of its series was registered meanwhile; look again")
