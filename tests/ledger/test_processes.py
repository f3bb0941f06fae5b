"""Real processes on one ledger: contention, a holder that dies, failing system calls, full and cut files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import BatchHeld, LedgerNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.records import Event
from batchpay.payment import Environment, State
from batchpay.text import read_ranges
from tests.ledger.batches import ACCEPTED, CANARY, columns, register, rejected, send, states
from tests.ledger.factories import LedgerFactory
from tests.support.strace import STRACE, strace, traced
from tests.support.warm import WARM, Order, Process

FILE = pytest.mark.ledgers("sqlite", why="a server writes by itself, whatever becomes of a program of ours")

ROOT = Path(__file__).resolve().parents[2]
ACTOR = "tests.ledger.actor"


def can_trace() -> bool:
    """Whether strace may inject faults on this machine."""
    if STRACE is None:
        return False
    return subprocess.run(strace("-o", "/dev/null", "true"), check=False, capture_output=True).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="strace may not trace here")


@contextmanager
def acting(
    factory: LedgerFactory,
    deed: str,
    argument: str = "",
    *,
    fault: Sequence[str] = (),
) -> Iterator[Process]:
    """Run an actor, to its end where strace is to inject a fault; it is killed at the end of the block."""
    environment = {**os.environ, "LEDGER": factory.settings.url}
    order = Order(ACTOR, (str(factory.folder), deed, argument), environment, str(ROOT), waits=bool(fault))
    with WARM.start(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            if fault:
                traced(process, *fault)
            yield process
        finally:
            process.kill()


def words(process: Process) -> list[list[Any]]:
    """All that an actor said until its end."""
    out, _ = process.communicate()
    return [json.loads(line) for line in out.splitlines()]


def wait_for(process: Process, word: str) -> None:
    """Read until the actor says a word."""
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)[0] == word:
            return
    raise AssertionError(f"the actor ended without saying {word}")


@pytest.fixture
def registered(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger with a batch of twelve rows."""
    ledger = ledger_factory.create()
    register(ledger, columns(ledger, range(1, 13)))
    ledger_factory.close()
    return ledger_factory


def recover(factory: LedgerFactory) -> dict[int, State]:
    """Open anew, start a run and end it; gives the states. The ledger must be in order."""
    ledger = factory.open()
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        ledger.start(batch.batch, "after").finish(None)
    assert ledger.check() == []
    return states(ledger, batch.batch)


def test_a_killed_holder_frees_its_batch_at_once(registered: LedgerFactory) -> None:
    """While it lives nobody else gets the batch; after kill -9 the next run starts without waiting."""
    ledger = registered.open()
    batch = ledger.find(None)
    with acting(registered, "hold") as process:
        wait_for(process, "held")
        with pytest.raises(BatchHeld), ledger.lock(batch.digest):
            pass
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(BatchHeld), ledger.lock(batch.digest):
            pass
        process.kill()
        process.wait()
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        assert run.recovered == 2
        run.finish(None)
    assert ledger.check() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_leaves_neither_a_return_nor_the_event_that_tells_of_it(registered: LedgerFactory, when: str) -> None:
    """In between there is none: the next time the file is taken in as if it had never been."""
    ledger = registered.open()
    send(ledger, None, {1: ACCEPTED})
    with acting(registered, "take in returns", when) as process:
        wait_for(process, "waits")
        process.kill()
        process.wait()
    assert (list(ledger.facts(Environment.TEST)), ledger.returned_files(Environment.TEST)) == ([], set())
    fact = NewFact(FactKind.RETURNED, ledger.find(None).batch, 1, "R02", date(2026, 11, 27), 101, 2)
    assert ledger.record_facts([fact], Environment.TEST, "returns.csv", "ab", "ada", unattended=False) == 1
    assert ledger.check() == []


def test_of_runs_started_together_one_sends_each_row_once(registered: LedgerFactory) -> None:
    """Four processes at once: every row is sent exactly once, by whoever holds the batch."""
    with (
        acting(registered, "send") as one,
        acting(registered, "send") as two,
        acting(registered, "send") as three,
        acting(registered, "send") as four,
    ):
        said = [word for process in (one, two, three, four) for word in words(process)]
    assert sorted(value for word, value in said if word == "sent") == list(range(1, 13))
    assert not [value for word, value in said if word == "refused"]
    assert set(recover(registered).values()) == {State.ACCEPTED}


def counted_as_sent(ledger: Ledger) -> Iterator[int]:
    """How many rows counted as sent after each event of the history."""
    count = 0
    for event in ledger.events():
        moved = {state: sum(b - a + 1 for a, b in read_ranges(rows)) for state, rows in rows_of(event).items()}
        count += moved.get("sending", 0) - moved.get("declined", 0)
        yield count


def rows_of(event: Event) -> dict[str, str]:
    """The rows that an event of a run moved, by the state that they have since."""
    return json.loads(event.detail) if event.kind == "progress" else {}


@pytest.mark.parametrize("declines", [False, True])
def test_runs_that_send_at_once_keep_the_limit_of_the_day_to_the_cent(
    ledger_factory: LedgerFactory, declines: bool
) -> None:
    """Four of five processes, each with its batch of rows of 1.00, while one is killed with rows that it was sending.

    By no commit has the day more than 10.00, of all that are ready to be sent; nor has an account more than 3.00.
    """
    ledger = ledger_factory.create()
    rows = [row for row in range(1, 25) if row % 3]
    names = [
        register(ledger, columns(ledger, rows, salt=str(n), amount_cents=1_00), content=str(n).encode())
        for n in range(5)
    ]
    with acting(ledger_factory, "send within", f"{names[0]} {declines}") as killed:
        wait_for(killed, "sent")
        killed.kill()
    with ExitStack() as started:
        processes = [
            started.enter_context(acting(ledger_factory, "send within", f"{name} {declines}")) for name in names[1:]
        ]
        said = [word for process in processes for word in words(process)]
    assert not [value for word, value in said if word == "refused"]
    ledger_factory.close()
    ledger = ledger_factory.open()
    with ledger.lock(ledger.find(names[0]).digest):
        ledger.start(names[0], "after").finish(None)
    found = list(counted_as_sent(ledger))
    assert max(found) == 10
    assert ledger.sent_on(Environment.TEST, ledger.today()) == {"DEBIT": found[-1] * 1_00, "CREDIT": 0}
    by_account = Counter(
        row.row for name in names for row in ledger.rows(name) if row.state not in (State.PENDING, State.DECLINED)
    )
    assert max(by_account.values()) <= 3
    assert sum(by_account.values()) == found[-1]
    assert ledger.check() == []


def test_writers_of_several_processes_take_turns(ledger_factory: LedgerFactory) -> None:
    """Three processes register and run sixty batches between them; nothing is lost, the history is one chain."""
    ledger_factory.create()
    with (
        acting(ledger_factory, "register", "a") as one,
        acting(ledger_factory, "register", "b") as two,
        acting(ledger_factory, "register", "c") as three,
    ):
        said = [words(process)[-1][0] for process in (one, two, three)]
    assert said == ["registered"] * 3
    ledger = ledger_factory.open()
    assert ledger.registration_count() == 60
    assert all(batch.by_state[State.ACCEPTED].rows == 2 for batch in ledger.batches())
    assert ledger.check() == []


@FILE
@needs_strace
@pytest.mark.parametrize("call", [3, 9, 14, 20, 33])
def test_killed_before_any_write_nothing_sent_is_pending(registered: LedgerFactory, call: int) -> None:
    """Killed before the n-th write to disk: what was sent is accepted or in doubt, never pending again."""
    fault = ["-o", "/dev/null", "-e", "trace=pwrite64,fdatasync,fsync"]
    fault += ["-e", f"inject=pwrite64,fdatasync,fsync:signal=SIGKILL:when={call}"]
    with acting(registered, "send", fault=fault) as process:
        sent = {value for word, value in words(process) if word == "sent"}
    assert process.returncode == -signal.SIGKILL
    after = recover(registered)
    assert all(after[row] in (State.ACCEPTED, State.IN_DOUBT) for row in sent)
    assert all(after[row] is not State.ACCEPTED for row in set(after) - sent)


@FILE
@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("calls", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("first", [2, 5, 8])
def test_after_a_failed_write_or_sync_nothing_more_is_sent(
    registered: LedgerFactory, error: str, calls: str, first: int
) -> None:
    """The ledger's disk fails for good: the run ends, and an answer already known is not lost."""
    paths = [f"{registered.path}{ending}" for ending in ("", "-wal")]
    fault = ["-o", "/dev/null", *(word for path in paths for word in ("-P", path))]
    fault += ["-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={first}+"]
    with acting(registered, "send", fault=fault) as process:
        said = words(process)
    sent = {value for word, value in said if word == "sent"}
    assert [word for word, _ in said][-1] == "refused" or sent == set(range(1, 13))
    after = recover(registered)
    assert {row for row, state in after.items() if state is State.ACCEPTED} == sent
    assert not any(CANARY in json.dumps(word) for word in said)


@FILE
def test_a_full_disk_stops_the_run_and_keeps_known_answers(registered: LedgerFactory) -> None:
    """The ledger can't grow (a limit on file sizes): known answers are spilled and merged, the rest is pending."""
    limit = registered.path.stat().st_size + 20_000
    with acting(registered, "send with little room", str(limit)) as process:
        said = words(process)
    sent = {value for word, value in said if word == "sent"}
    assert said[-1][0] == "refused"
    after = recover(registered)
    assert {row for row, state in after.items() if state is State.ACCEPTED} == sent
    assert {row for row, state in after.items() if state is State.PENDING} >= set(after) - sent - {*range(1, 4)}


@FILE
@needs_strace
def test_the_ledger_is_opened_by_sqlite_alone_and_checkpointed_under_the_lock(registered: LedgerFactory) -> None:
    """Every write to the ledger or its log lies between taking and giving back the lock file's lock."""
    log = registered.folder / "trace"
    trace = ["-yy", "-o", str(log), "-e", "trace=pwrite64,flock,openat,ftruncate,unlink"]
    with acting(registered, "send", fault=trace) as process:
        assert words(process)[-1][0] == "sent"
    depth, writes = 0, 0
    for line in log.read_text().splitlines():
        if "flock(" in line and "ledger.db.lock" in line and line.endswith("= 0"):
            depth += -1 if "LOCK_UN" in line else 1
        about_ledger = any(f"{registered.path}{ending}>" in line for ending in ("", "-wal"))
        if about_ledger and ("pwrite64(" in line or "ftruncate(" in line):
            writes += 1
            assert depth == 1, line
    assert writes > 10


@FILE
def test_no_account_number_is_readable_in_any_file(registered: LedgerFactory) -> None:
    """Ledger, log, locks, witness, spill and backup hold at most the last four, also after a kill in mid-run."""
    ledger = registered.open()
    register(ledger, columns(ledger, range(1, 700)), rejected([700]), content=b"large")
    ledger.backup(registered.folder / "copy.db")
    with acting(registered, "hold") as process:
        wait_for(process, "held")
        files = [path for path in registered.folder.rglob("*") if path.is_file()]
        names = {path.name for path in files}
        assert {"ledger.db", "ledger.db-wal", "ledger.db.lock", "witness", "ledger.key", "copy.db"} <= names
        assert any(".spill." in name for name in names)
        for path in files:
            content = path.read_bytes()
            assert CANARY.encode() not in content, path.name
            assert CANARY[4:12].encode() not in content, path.name
            assert b"achAccountNumber" not in content, path.name
    assert registered.path.stat().st_mode & 0o777 == 0o600


@FILE
@pytest.mark.parametrize(("arguments", "code"), [
    (["check"], 0), (["check", "--json"], 0), (["accept"], 2), (["accept", "--reason", "to be sure"], 2), (["init"], 5),
])  # fmt: skip
def test_the_command_line_cares_for_the_ledger(registered: LedgerFactory, arguments: list[str], code: int) -> None:
    """`ledger check` says all is well, so there is nothing to accept; `ledger init` refuses an existing one."""
    settings = registered.settings
    environment = {
        "PATH": os.defpath, "HOME": str(registered.folder), "BATCHPAY_LEDGER": settings.url,
        "BATCHPAY_LEDGER_KEY_FILE": settings.key_file,
    }  # fmt: skip
    (registered.folder / "batchpay.toml").write_text(f"[ledger]\nwitness = {json.dumps(settings.witness)}\n")
    done = subprocess.run(
        [sys.executable, "-m", "batchpay", "ledger", *arguments], env=environment, cwd=registered.folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    if "--json" in arguments:
        assert json.loads(done.stdout) == {"problems": [], "accepting": [], "lost": None, "exit_code": 0}


@FILE
@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_is_moved_away_while_it_is_used_takes_no_row(
    registered: LedgerFactory, *, replaced: bool
) -> None:
    """SQLite went on writing into the file that nobody would find: a run sent 1,300 rows more, and all was lost."""
    ledger, away = registered.open(), registered.path.with_suffix(".away")
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        run.claim(3)
        run.commit([1], [])
        registered.path.rename(away)
        if replaced:
            shutil.copy(away, registered.path)
        with pytest.raises(LedgerNotUsable, match="restore it"):
            run.commit([2], [(1, ACCEPTED)])
        run.spill([(1, ACCEPTED)])
        run.close()
    registered.close()
    away.rename(registered.path)
    again = registered.open()
    with again.lock(batch.digest):
        again.start(batch.batch, "ada").finish(None)
    assert states(again, batch.batch) | {1: State.ACCEPTED, 2: State.PENDING} == states(again, batch.batch)
    assert again.check() == []
