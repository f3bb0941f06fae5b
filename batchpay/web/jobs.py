"""What should be running and what is: jobs are in web.db; a running job is known by a lock that the kernel frees.

The supervisor starts a child for every wanted job whose lock nobody holds. It does so when it starts, too: a restarted
server leaves alone what it finds running, and starts again what it finds dead. One check and one run at a time.

The child does one job in a process of its own (`main`). The settings come over standard input. A fault ends it; the
supervisor logs what it said at last, starts the job again, and gives up after several tries.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import fcntl
import json
import logging
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from batchpay.errors import BatchpayError, place_of
from batchpay.ledger.open import open_ledger
from batchpay.operations.logs import LAST_WORDS_MAX, log
from batchpay.settings import Settings, load_settings
from batchpay.web.payments_table import remove_tables
from batchpay.web.spool import Row, WebStore, sweep
from batchpay.writing.process_memory import collect_rarely, in_plain_words, keep_freed_memory, keep_memory_private

STARTS_MAX = 5
CHECK_S_MAX = 600
"""A check that has not ended by then is ended: the next file waits for it. A run may take days."""
CHECK_EVERY_S, SWEEP_EVERY_S = 1.0, 3600.0
RUNS = ("submit", "resume", "release")
"""Kinds that send; all others check."""
_TOO_LONG = (
    f"The check took longer than {CHECK_S_MAX // 60} minutes and was ended. Does the file have many more columns than "
    "payments need?"
)
_GAVE_UP = (
    "This job ended unexpectedly several times. Ask your batchpay administrator: why is in the log of the page (web "
    "--log-file) under the name {file}, and in its folder as {fault}."
)
_DATA_BYTES_MIN = 4 << 30
"""A check of a million rows takes a tenth of it."""
_LOCK_TRIES, _LOCK_WAIT_S = 20, 0.05


def lock_file(home: Path, number: int) -> Path:
    """Return the path of the lock file that a job's child holds as long as it lives."""
    return home / "jobs" / f"{number}.lock"


def fault_file(home: Path, number: int) -> Path:
    """Return the path of what the latest child of a job said as it died: no cell of a file and no key."""
    return lock_file(home, number).with_suffix(".fault")


def is_alive(home: Path, number: int) -> bool:
    """Return whether a job's child lives: whether anyone holds its lock."""
    try:
        descriptor = os.open(lock_file(home, number), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # so two checkers don't take each other for a child
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class Supervisor:
    """Starts children, and starts them again; knows nothing that is not in web.db or in a lock."""

    def __init__(self, store: WebStore, settings: Settings) -> None:
        self._store = store
        self._ledger = settings.ledger
        self._settings = json.dumps(dataclasses.asdict(settings)).encode()
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)
        (store.home / "jobs").mkdir(exist_ok=True, mode=0o700)

    def want(self, db: sqlite3.Connection, file_id: str, kind: str, who: str) -> None:
        """Request a job, in the transaction that moves its file; call `wake` afterwards."""
        db.execute(
            "INSERT INTO job (file, kind, made_by, made_at) VALUES (?, ?, ?, ?)",
            (file_id, kind, who, self._store.clock()),
        )

    def wake(self) -> None:
        """Check for work now instead of in a second."""
        self._awake.set()

    def start(self) -> None:
        """Start supervising the jobs."""
        self._thread.start()

    def stop(self) -> None:
        """Stop supervising. Children continue: they belong to nobody."""
        self._stopping.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_under_way(self, file_id: str) -> bool:
        """Return whether the child of a file's latest job lives."""
        job = self._store.one("SELECT id FROM job WHERE file = ? ORDER BY id DESC LIMIT 1", file_id)
        return job is not None and is_alive(self._store.home, job["id"])

    def _work(self) -> None:
        sweep_at = 0.0
        while not self._stopping.is_set():
            with suppress(sqlite3.Error, OSError):  # a full disk, a busy database: checked again
                self.start_wanted()
                if time.monotonic() >= sweep_at:
                    sweep_at = time.monotonic() + SWEEP_EVERY_S
                    sweep(self._store)
                    # Without its ledger nothing of it is known to be purged.
                    with suppress(BatchpayError), closing(open_ledger(self._ledger, read_only=True)) as ledger:
                        purged = {one.batch: one.purged_at is not None for one in ledger.batches()}
                        remove_tables(self._store, {batch for batch, is_purged in purged.items() if not is_purged})
                        sweep(self._store, {batch for batch, is_purged in purged.items() if is_purged})
            self._awake.wait(CHECK_EVERY_S)
            self._awake.clear()
        self._store.close()

    def start_wanted(self) -> None:
        """Start the jobs that are wanted and not running."""
        self._children = {number: child for number, child in self._children.items() if child.poll() is None}
        busy: set[bool] = set()
        for job in self._store.all("SELECT * FROM job WHERE wanted = 1 ORDER BY id"):
            number, sends = job["id"], job["kind"] in RUNS
            if number in self._children or is_alive(self._store.home, number):
                busy.add(sends)
                if not sends and self._age_s(number) > CHECK_S_MAX:
                    self._give_up(job, _TOO_LONG, f"ended the check after {CHECK_S_MAX // 60} minutes")
                    self._kill(number)
            elif sends not in busy:
                busy.add(sends)
                self._begin(job)

    def _give_up(self, job: Row, told: str, what: str) -> None:
        with self._store.write() as db:
            db.execute("UPDATE job SET wanted = 0, ended_at = ? WHERE id = ?", (self._store.clock(), job["id"]))
            state = "failed" if job["kind"] in RUNS else "refused"
            db.execute("UPDATE file SET state = ?, told = ? WHERE id = ?", (state, told, job["file"]))
            self._store.note(db, "batchpay", job["file"], what)

    def _age_s(self, number: int) -> float:
        """Return how long a job's child has held its lock."""
        with suppress(FileNotFoundError):  # it has only been started
            return time.time() - lock_file(self._store.home, number).stat().st_mtime
        return 0.0

    def _kill(self, number: int) -> None:
        """End a child, whichever server started it; its lock names its process."""
        with suppress(OSError, ValueError):
            process = int(lock_file(self._store.home, number).read_text("ascii"))
            if is_alive(self._store.home, number):
                os.kill(process, signal.SIGKILL)

    def kill(self, file_id: str) -> None:
        """End the child that checks a file; its job is no longer wanted."""
        for job in self._store.all("SELECT id FROM job WHERE file = ? AND kind = 'check'", file_id):
            self._kill(job["id"])
        self.wake()

    def _begin(self, job: Row) -> None:
        number, fault = job["id"], fault_file(self._store.home, job["id"])
        if job["starts"]:
            said = fault.read_bytes()[-LAST_WORDS_MAX:].decode("utf-8", "replace") if fault.exists() else ""
            log("job ended early", level=logging.WARNING, file=job["file"], attempt=job["starts"], reason=said.strip())
        if job["starts"] >= STARTS_MAX:
            told = _GAVE_UP.format(file=job["file"], fault=f"{fault.parent.name}/{fault.name}")
            self._give_up(job, told, "stopped trying: its process ended several times")
            return
        with self._store.write() as db:
            db.execute("UPDATE job SET starts = starts + 1 WHERE id = ?", (number,))
            if job["starts"]:
                self._store.note(db, "batchpay", job["file"], f"{job['kind']} restarted after its process ended")
        with fault.open("wb") as said_last:  # a pipe would end with this server
            child = subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-P", "-m", "batchpay.web.jobs", str(self._store.home), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said_last,
                start_new_session=True,
            )
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin:
            child.stdin.write(self._settings)
        self._children[number] = child


def main() -> None:
    """Do one job, unless another process is doing it."""
    os.umask(0o077)
    faulthandler.enable(os.dup(2))
    keep_memory_private()
    collect_rarely()  # before most is imported
    keep_freed_memory()
    home, number = Path(sys.argv[1]), int(sys.argv[2])
    settings = load_settings(json.load(sys.stdin), {})
    if _take_lock(lock_file(home, number)):
        # A file that uses up all memory ends this process, and not the machine.
        most = max(_DATA_BYTES_MIN, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        try:
            with in_plain_words():
                do(WebStore(home), settings, number)
        except SystemExit:
            raise
        except BaseException as error:  # its text may hold a row, so only its kind and place are said; a panic as well
            sys.exit(str(error) if isinstance(error, BatchpayError) else place_of(error))


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
    from batchpay.web.task import Task  # most of what a check needs is imported with it

    if job["kind"] in RUNS:
        from batchpay.web.run_job import send as work
    else:
        from batchpay.web.check_job import check as work  # loads little of what sends
    code = work(Task(store, settings, job, file))
    with store.write() as db:
        db.execute("UPDATE job SET wanted = 0, ended_at = ?, exit_code = ? WHERE id = ?", (store.clock(), code, number))


if __name__ == "__main__":
    main()
