"""The only writer to the ledger during a run: commits what is queued in groups, and wakes the waiting workers."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

from batchpay.errors import LedgerNotUsable, start_thread
from batchpay.ledger.contract import Run
from batchpay.outcome import Outcome
from batchpay.sending.limits import StopRequest
from batchpay.text import row_count

_OUTCOME_WAITS_S = 0.001
"""How long an outcome waits for the next intent: with few workers each row then costs one commit instead of two."""
_REPEATED_MAX = 2
"""The run stops at the second row whose reference another row has."""
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""Lets threads run that are ready to, and returns immediately if none is."""


class ClaimRefused(Exception):
    """The ledger did not grant this row to this run: it must not be sent. Caught by the sender."""


class _Intent:
    """A worker's wait for the commit of `sending`."""

    __slots__ = ("done", "error", "granted", "row")

    def __init__(self, row: int) -> None:
        self.row = row
        self.done = threading.Lock()  # held until the commit has returned: a third of what an Event costs
        self.done.acquire()
        self.granted = False
        self.error: LedgerNotUsable | None = None


_Item = _Intent | tuple[int, Outcome] | None
"""What the recorder's queue holds: an intent, an outcome, or the end."""


class Recorder:
    """Commits what workers pass to it in groups (group commit), in a thread of its own.

    `on_repeated` is told how many rows of a group are in doubt since other rows have their references.
    """

    def __init__(
        self,
        run: Run,
        stop: StopRequest,
        on_repeated: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._run = run
        self._stop = stop
        self._on_repeated = on_repeated
        self._waiting: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._failed: LedgerNotUsable | None = None
        self._thread = threading.Thread(target=self._loop, name="recorder", daemon=True)
        start_thread(self._thread)

    def mark_sending(self, row: int) -> None:
        """Return once `sending` of the row is durable; raise if the row must not be sent."""
        intent = _Intent(row)
        self._waiting.put(intent)
        intent.done.acquire()
        if intent.error is not None:
            raise intent.error
        if not intent.granted:
            raise ClaimRefused

    def record(self, row: int, outcome: Outcome) -> None:
        """Queue an outcome; it is durable when `close` has returned, or before."""
        self._waiting.put((row, outcome))

    def close(self) -> None:
        """Write what is queued and end; raises LedgerNotUsable if the ledger failed at any point."""
        self._waiting.put(None)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _loop(self) -> None:
        ended = False
        while not ended:
            group = self._next_group()
            ended = None in group
            intents = [item for item in group if isinstance(item, _Intent)]
            outcomes = [item for item in group if isinstance(item, tuple)]
            self._commit(intents, outcomes)

    def _next_group(self) -> list[_Item]:
        """Take everything that is queued.

        No worker waits for an outcome's commit, so a single outcome waits briefly for another item. And workers that
        are ready to add something do so first: otherwise they would have to wait for one more commit, which costs as
        much as ten rows in it.
        """
        group: list[_Item] = [self._waiting.get()]
        try:
            if isinstance(group[0], tuple):
                group.append(self._waiting.get(timeout=_OUTCOME_WAITS_S))
            _give_way()
            take, add = self._waiting.get_nowait, group.append
            while True:
                add(take())
        except queue.Empty:
            return group

    def _commit(self, intents: list[_Intent], outcomes: list[tuple[int, Outcome]]) -> None:
        """Commit one group and wake its workers. After a failure nothing more is granted."""
        granted: set[int] = set()
        if self._failed is None and (intents or outcomes):
            repeated = self._run.repeated
            try:
                granted = self._run.commit([intent.row for intent in intents], outcomes)
            except Exception as error:
                self._fail(error)
            if more := self._run.repeated - repeated:
                self._on_repeated(more)
            if self._run.repeated >= _REPEATED_MAX:
                self._stop.ask(
                    f"{row_count(self._run.repeated)} accepted with references that other rows have; if the gateway "
                    "answers with a batch's reference or a constant, set gateway.reference_is_unique = false"
                )
        if self._failed is not None and outcomes:
            self._spill(outcomes)
        for intent in intents:
            intent.granted = intent.row in granted
            intent.error = self._failed
            intent.done.release()

    def _fail(self, error: Exception) -> None:
        """Grant nothing from now on: whatever the error was, the ledger can't be relied on. Its text may hold a row."""
        if not isinstance(error, LedgerNotUsable):
            error = LedgerNotUsable(f"the ledger failed with {type(error).__name__}")
        self._failed = error
        self._stop.ask(f"the ledger can't be written: {error}")

    def _spill(self, outcomes: list[tuple[int, Outcome]]) -> None:
        try:
            self._run.spill(outcomes)
        except Exception:  # then the rows stay in `sending`, which the next start marks in doubt: safe, but not proved
            self._stop.ask("the ledger and its spill file can't be written")
