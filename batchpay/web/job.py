"""The child: one job of web.db, in a process of its own that holds the job's lock as long as it lives.

Started by jobs.py, or again by another server after this one died. The settings come over standard input; nothing is
printed. A fault ends the process silently: the supervisor starts the job again, and gives up after several tries.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import place_of
from batchpay.settings import Settings, load_settings
from batchpay.web.jobs import lock_file
from batchpay.web.store import WebStore
from batchpay.writing.process_memory import collect_rarely, keep_freed_memory, keep_memory_private

if TYPE_CHECKING:  # most of what a check needs is imported with it
    from batchpay.web.task import Task


def _check(task: Task) -> int:
    from batchpay.web.check_job import check  # loads little of what sends

    return check(task)


def _send(task: Task) -> int:
    from batchpay.web.run_job import send

    return send(task)


KINDS: dict[str, Callable[[Task], int]] = {"check": _check, "submit": _send, "resume": _send}
"""What a child can do; each returns an exit code as the command line would."""
_DATA_BYTES_MIN = 4 << 30
"""A check of a million rows takes a tenth of it."""
_LOCK_TRIES, _LOCK_WAIT_S = 20, 0.05


def main() -> None:
    """Do one job, unless another process is doing it."""
    os.umask(0o077)
    keep_memory_private()
    collect_rarely()  # before most is imported
    keep_freed_memory()
    home, number = Path(sys.argv[1]), int(sys.argv[2])
    settings = load_settings(json.load(sys.stdin), {})
    if _take_lock(lock_file(home, number)):
        _bound_memory()
        try:
            do(WebStore(home), settings, number)
        except Exception as error:  # its text may hold a row, so only its kind and place are kept
            lock_file(home, number).with_suffix(".fault").write_text(f"{place_of(error)}\n", "utf-8")
            sys.exit(1)


def _bound_memory() -> None:
    """Let a file that uses up all memory end this process, and not the machine."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = max(_DATA_BYTES_MIN, physical // 4 * 3)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _take_lock(path: Path) -> bool:
    """Take the job's lock for the life of this process; False if another child has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):  # a check of the lock takes it for a moment
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_WAIT_S)
        else:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())  # by it a check that takes too long is ended
            return True
    return False


def do(store: WebStore, settings: Settings, number: int) -> None:
    """Do a job that is still wanted, and record its end."""
    job = store.one("SELECT * FROM job WHERE id = ? AND wanted = 1", number)
    file = None if job is None else store.file(job["file"])
    if job is None or file is None:
        return
    from batchpay.web.task import Task

    code = KINDS[job["kind"]](Task(store, settings, job, file))
    with store.write() as db:
        db.execute("UPDATE job SET wanted = 0, ended_at = ?, exit_code = ? WHERE id = ?", (store.clock(), code, number))


if __name__ == "__main__":
    main()
