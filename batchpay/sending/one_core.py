"""Keeps the threads of a run on one core, since on two they fight for the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MANY_WORKERS = 16


@contextmanager
def on_one_core(workers: int) -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core.

    With many workers, one that wakes up does not interrupt another (SCHED_BATCH), since it could only wait for that
    lock. A few have to take turns with the recorder instead. Only the owner of a process may request it.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    if workers >= _MANY_WORKERS:
        _set_scheduler(os.SCHED_OTHER, os.SCHED_BATCH)
    try:
        yield
    finally:
        _set_scheduler(os.SCHED_BATCH, os.SCHED_OTHER)
        os.sched_setaffinity(0, before)


def _set_scheduler(before: int, after: int) -> None:
    """Change this thread's scheduling policy from `before` to `after`, if the system allows it."""
    with suppress(OSError):  # not every C library and container has it
        if os.sched_getscheduler(0) == before:
            os.sched_setscheduler(0, after, os.sched_param(0))
