"""One gateway's pace for all runs on a ledger in a database, on any machine, by the server's own clock."""

from __future__ import annotations

import threading
from typing import Any

import psycopg

from batchpay.errors import LedgerNotUsable
from batchpay.ledger import records
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.deadline import Deadline
from batchpay.ledger.postgres.store import Connection, PostgresStore
from batchpay.ledger.records import PAUSE_S_MOST, PaceNow
from batchpay.outcome import Finding

_ANSWER_S = 5.0


class PostgresPace:
    """See contract.SharedPace. No answer is waited for longer than _ANSWER_S."""

    def __init__(self, store: PostgresStore, environment: str, origin: str) -> None:
        self._store = store
        self._asked = {
            "environment": environment, "origin": origin, "gateway": f"{environment} {origin}",
            "lease_ms": records.LEASE_S * 1000, "most_s": PAUSE_S_MOST,
        }  # fmt: skip
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._deadline = Deadline(_ANSWER_S)

    def found(self) -> Finding | None:
        found = self._ask(sql.KNOWN_LIMIT)
        return Finding(*found) if found else None

    def remember(self, finding: Finding) -> None:
        self._ask(sql.REMEMBER_LIMIT, rate=finding.rate, window_s=finding.window_s)

    def look(self) -> PaceNow | None:
        found = self._ask(sql.LOOK_AT_PACE)
        return PaceNow(max(1, found[0]), found[1]) if found else None

    def pause(self, seconds: float) -> None:
        self._ask(sql.PAUSE, seconds=seconds)

    def _ask(self, statement: str, **more: Any) -> tuple[Any, ...] | None:
        """Run a statement of its own transaction; return its first row, None if the server does not answer."""
        with self._turn:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._store.reader()
                with self._deadline.of(self._connection):
                    cursor = self._connection.execute(statement, {**self._asked, **more}, binary=True)
                    return cursor.fetchone() if cursor.description else None
            except (psycopg.Error, LedgerNotUsable):
                if self._connection is not None:
                    self._connection.close()
                return None

    def close(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._store.done_reading(connection)
        self._deadline.close()
