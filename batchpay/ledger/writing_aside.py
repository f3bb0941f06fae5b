"""A second thread that writes rows of a new batch while the first one builds the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

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
