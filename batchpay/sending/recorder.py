"""The only writer to the ledger during a run: commits what is queued in groups, and wakes the waiting workers."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.contract import Company, Run
from batchpay.outcome import Outcome
from batchpay.sending.limits import StopRequest

_COMPANY_S = 0.001
"""How long an outcome waits for the next intent: with few workers each row then costs one commit instead of two."""
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


class _Rest:
    """A wait until the other machines know that no row is in progress here."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = threading.Event()


_Item = _Intent | tuple[int, Outcome] | _Rest | None
"""What the recorder's queue holds: an intent, an outcome, a notice that no row is in progress, or the end."""


class Recorder:
    """Commits what workers pass to it in groups (group commit), in a thread of its own.

    The heartbeats by which other machines know that this one is alive come from the same thread: a recorder that hangs
    looks dead. `hear` is called after each commit and heartbeat: what all machines share may have changed. `is_spread`
    returns whether requests are to leave one after another (spread.py).
    """

    def __init__(
        self,
        run: Run,
        stop: StopRequest,
        hear: Callable[[], None] = lambda: None,
        is_spread: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run = run
        self._stop = stop
        self._company = run.company
        self._hear = hear
        self._is_spread = is_spread
        self._beat_at_s = 0.0
        self._waiting: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._failed: LedgerNotUsable | None = None
        self._thread = threading.Thread(target=self._loop, name="recorder", daemon=True)
        self._thread.start()

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

    def rest(self) -> None:
        """Return once what was queued is durable, and the other machines know that no row is in progress here."""
        rest = _Rest()
        self._waiting.put(rest)
        rest.done.wait()

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
            if self._company is not None:
                self._beat(self._company, [item for item in group if isinstance(item, _Rest)], last=ended)

    def _next_group(self) -> list[_Item]:
        """Take everything that is queued, or nothing when a heartbeat is due.

        No worker waits for an outcome's commit, so a single outcome waits briefly for another item. And workers that
        are ready to add something do so first: otherwise they would have to wait for one more commit, which costs as
        much as ten rows in it. Not when requests are spread: all would be in one commit, and leave together.
        """
        group: list[_Item] = []
        try:
            group.append(self._waiting.get(timeout=None if self._company is None else self._company.beat_every_s))
            if isinstance(group[0], tuple):
                group.append(self._waiting.get(timeout=_COMPANY_S))
            if not self._is_spread():
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
            try:
                granted = self._run.commit([intent.row for intent in intents], outcomes)
            except Exception as error:
                self._fail(error)
        if self._failed is not None and outcomes:
            self._spill(outcomes)
        for intent in intents:
            intent.granted = intent.row in granted
            intent.error = self._failed
            intent.done.release()

    def _beat(self, company: Company, rests: list[_Rest], *, last: bool) -> None:
        """Send a heartbeat if one is due or there is something to report, and check what the others report."""
        now_s = time.monotonic()
        if self._failed is None and (rests or last or now_s >= self._beat_at_s):
            self._beat_at_s = now_s + company.beat_every_s
            try:
                company.beat(is_idle=bool(rests))
            except Exception as error:
                self._fail(error)
        self._hear()
        for rest in rests:
            rest.done.set()

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
