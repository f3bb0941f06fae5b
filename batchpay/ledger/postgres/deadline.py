"""A deadline for statements that must not take forever: then the connection is cut, from outside.

No timeout of the server ends a commit that waits for a standby, and a cancel would make it look like success.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from batchpay.errors import NoThread, start_thread

DEADLINE_S = 60.0
RECONNECT_S = 20.0
"""How long a run tries to reach its database again; less than other machines wait before they consider it dead."""
_LOOK_S = 1.0


class Deadline:
    """Watches one statement at a time, from a thread of its own."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = DEADLINE_S if seconds is None else seconds
        self._watched: tuple[float, int] | None = None
        self._turn = threading.Lock()
        self._ended = threading.Event()
        with suppress(NoThread):  # then a statement takes as long as it takes: a lock must not stay held
            start_thread(threading.Thread(target=self._watch, name="ledger deadline", daemon=True))

    @contextmanager
    def of(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Cut the connection if what is done with it in the block takes too long."""
        descriptor = connection.fileno()
        with self._turn:
            self._watched = (time.monotonic() + self._seconds, descriptor)
        try:
            yield
        finally:
            with self._turn:  # so that the descriptor is never cut when it already belongs to another file
                self._watched = None

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._turn:
                if self._watched is not None and time.monotonic() > self._watched[0]:
                    with suppress(OSError), socket.socket(fileno=os.dup(self._watched[1])) as cut:
                        cut.shutdown(socket.SHUT_RDWR)
                    self._watched = None
