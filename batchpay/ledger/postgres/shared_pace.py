"""One rate for all runs on this ledger that send to one gateway, on any machine: a server function, two tables.

The same method as in the file with which runs of one machine share a rate (ledger/sqlite/pace_file.py): a run that is
alone keeps its own pace and checks from time to time whether it still is; as soon as there are two, each leases its
slots, a few at a time. Slots are given as delays by the server's clock, so the machines' own clocks don't matter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.connection import LedgerUnreachable, is_retried, is_unknown, translate
from batchpay.ledger.postgres.deadline import Deadline
from batchpay.ledger.postgres.store import Connection, PostgresStore
from batchpay.ledger.records import Lease
from batchpay.outcome import Finding

LOOK_S = 0.1
"""A run that is alone checks this often whether it still is."""
JOINING_S = 0.15
"""A run that joins others waits this long, until they have all seen it."""
HEARD_S = 2.0
"""A run that has not asked for this long after its last slot sends nothing, or is gone."""
LEASED_S = 0.1
"""All runs together lease their slots at most this far ahead."""
CATCH_UP_S = 0.02
"""At most this much lost time is made up."""
SPREAD = 1.0065
"""Slots are farther apart than the rate requires, by this factor, since a network bunches what leaves evenly."""
_DRIFT = 0.0005
"""Two clocks drift apart by no more than this share of the time: as much as one is adjusted while it runs."""
_ANSWER_S = 5.0
_GIVEN_UP_S = 20.0


class SharedPace:
    """See contract.SharedRate."""

    def __init__(self, store: PostgresStore, gateway: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._asked = {
            "gateway": gateway, "name": os.urandom(16), "look_s": LOOK_S, "joining_s": JOINING_S, "heard_s": HEARD_S,
            "leased_s": LEASED_S, "catch_up_s": CATCH_UP_S, "spread": SPREAD,
        }  # fmt: skip
        self._connection: Connection | None = None
        self._deadline = Deadline(_ANSWER_S)
        self._server_clock = _ServerClock()
        self._lost_at: float | None = None

    def found(self) -> Finding | None:
        """See contract.SharedRate; raises LedgerNotUsable."""
        with self._store.reading() as connection:
            found = connection.execute(sql.KNOWN_LIMIT, (self._asked["gateway"],)).fetchone()
        return Finding(*found) if found else None

    def remember(self, finding: Finding) -> None:
        """See contract.SharedRate. What can't be stored costs the next run a few refusals."""
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error), self._deadline.of(connection):
                connection.execute(sql.REMEMBER_LIMIT, (self._asked["gateway"], finding.rate, finding.window_s))

    def lease(self, rate: float, paused_s: float) -> Lease | None:
        """See contract.SharedRate. Raises LedgerNotUsable if the database stays unreachable: no run waits forever."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._store.reader()
            asked_at = self._clock()
            with self._deadline.of(self._connection):
                asked = {**self._asked, "rate": rate, "paused_s": paused_s}
                found = self._connection.execute(sql.LEASE_PACE, asked, binary=True).fetchone()
            answered_at = self._clock()
        except LedgerUnreachable as error:
            self._ask_again(error)
            return None
        except psycopg.Error as error:
            if is_unknown(error) and self._connection is not None:
                self._connection.close()
            elif not is_retried(error):
                raise translate(error, self._store.place) from None
            self._ask_again(translate(error, self._store.place))
            return None
        assert found is not None
        self._lost_at = None
        (first_s, every_s, slots, sharers), server_s = found
        given_at = self._server_clock.own_time(server_s, asked_at, answered_at)
        if not slots:  # true as of when it was asked, so it holds no longer than counted from then
            return Lease(0.0, max(0.0, every_s - (answered_at - asked_at)), 0, 1)
        return Lease(first_s - (answered_at - given_at), every_s, int(slots), int(sharers))

    def _ask_again(self, error: Exception) -> None:
        now = self._clock()
        if self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at > _GIVEN_UP_S:
            raise LedgerNotUsable(str(error)) from None

    def close(self) -> None:
        """See contract.SharedRate. A pause outlives the run that was told to wait."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error), self._deadline.of(connection):
                connection.execute(sql.LEAVE_PACE, (self._asked["gateway"], self._asked["name"]))
            self._store.done_reading(connection)
        self._deadline.close()


class _ServerClock:
    """What the server's clock shows, by this process's own: as exactly as the quickest of its answers tell.

    An answer that took a tenth of a second tells no better than that when its slots were given, and at 200 a second
    twenty payments of others may leave in this time.
    """

    def __init__(self) -> None:
        self._ahead_s: tuple[float, float] | None = None
        """The least and the most by which the server's clock can be ahead."""
        self._heard_at = 0.0

    def own_time(self, server_s: float, asked_at: float, answered_at: float) -> float:
        """Return when the server's clock showed this, which was between the two moments, by our clock."""
        least, most = server_s - answered_at, server_s - asked_at
        if self._ahead_s is not None:
            may_drift_s = _DRIFT * (answered_at - self._heard_at)
            known_least, known_most = self._ahead_s[0] - may_drift_s, self._ahead_s[1] + may_drift_s
            if known_least <= most and least <= known_most:  # else it was set, or is another server's
                least, most = max(least, known_least), min(most, known_most)
        self._ahead_s, self._heard_at = (least, most), answered_at
        return server_s - (least + most) / 2
