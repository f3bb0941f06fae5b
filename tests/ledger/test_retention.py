"""A purge erases names, details and messages to the last byte, and leaves what keeps a payment from being repeated."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from batchpay.errors import BatchHeld, LedgerBehind, LedgerNotUsable, RunStopped, WaitingForPerson, WrongUse
from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.ledger.event_chain import Replay
from batchpay.ledger.open import accept, confirm
from batchpay.ledger.postgres.moves import erase_texts
from batchpay.ledger.postgres.store import PostgresTransaction
from batchpay.ledger.records import Decision, Purge
from batchpay.ledger.sqlite import retention
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import connect
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State
from tests.ledger.batches import IN_DOUBT, columns, held_run, register, rejected, release, send
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.ledger.test_processes import acting, needs_strace, words

FILES = pytest.mark.ledgers("sqlite", why="a server's files, log and backups can't be searched from a client")

SOON = datetime.now(UTC) + timedelta(days=1)
"""Whatever happened until today is old by then."""
WHY = "retention rule 7"


def message_of(row: int) -> str:
    """What the gateway said of a row, of the lengths that a gateway's words have."""
    return f"Approved for Ms Quill, number {row:06d}" + ", thank you" * (row % 11)


def send_out_of_order(ledger: Ledger, batch: str, rows: Sequence[int]) -> None:
    """Send rows in groups whose answers come out of order, so that pages of the ledger are split."""
    with held_run(ledger, batch) as run:
        for first in range(0, len(rows), 20):
            group = rows[first : first + 20]
            run.commit(group, [])
            for part in (group[1::2], group[::2]):
                outcomes = [
                    (row, Outcome(State.ACCEPTED, "success", Answer(200, "1", message_of(row), f"TX-{row}"), 900))
                    for row in part
                ]
                run.commit([], outcomes)
        run.finish(None)


def purge(ledger: Ledger) -> Purge:
    return ledger.purge(SOON, "ann", WHY)


@pytest.fixture
def old(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger with a finished batch of 60 rows and three rejected ones, and one with a row in doubt."""
    ledger = ledger_factory.create()
    batch = register(ledger, columns(ledger, range(1, 61), named=range(1, 30)), rejected([61, 62, 63]))
    send_out_of_order(ledger, batch, range(1, 61))
    other = register(ledger, columns(ledger, [1, 2], salt="other"), content=b"two")
    send(ledger, other, {1: IN_DOUBT}, "stopped")
    ledger_factory.close()
    return ledger_factory


@pytest.fixture
def opened(old: LedgerFactory) -> Ledger:
    return old.open()


def files_of(factory: LedgerFactory) -> bytes:
    """Every byte of the ledger's files."""
    return b"".join(path.read_bytes() for path in sorted(factory.path.parent.glob("ledger.db*")) if path.is_file())


def texts_of(factory: LedgerFactory, batch: int = 1) -> list[bytes]:
    """All that a purge of a batch must leave no byte of: messages as they are, details as they are encrypted."""
    with closing(connect(factory.path, "ro", 1)) as connection:
        sealed = [one for (one,) in connection.execute(sql.DETAILS_OF_BATCH, (batch,))]
    pieces = [one[start : start + 24] for one in sealed for start in range(0, len(one) - 24, 500)]
    assert pieces
    return [*pieces, *(message_of(row)[:40].encode() for row in range(1, 61))]


@FILES
@pytest.mark.parametrize("shift", [1, 32, 63])
def test_a_piece_on_the_border_of_two_blocks_is_found(tmp_path: Path, shift: int) -> None:
    """The files are read a mebibyte at a time: a piece that begins in one block and ends in the next was missed."""
    piece, path = b"erased " + 57 * b"x", tmp_path / "file"
    path.write_bytes(bytes((1 << 20) - shift) + piece + bytes(1000))
    with pytest.raises(LedgerNotUsable, match="still contains"):
        retention._search(path, [b"not there", piece])
    assert retention._search(path, [b"not there"]) == path.stat().st_size


@FILES
def test_no_byte_is_left(old: LedgerFactory) -> None:
    """Neither in the ledger nor beside it; a copy in a page that SQLite had given up long ago is gone as well."""
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE given_up (text TEXT)")
        connection.execute("INSERT INTO given_up VALUES (?)", (message_of(7) * 100,))
        connection.execute("DROP TABLE given_up")
    texts, before = texts_of(old), files_of(old)
    assert all(text in before for text in texts)
    done = purge(old.open())
    assert [(one.rows, one.stays) for one in done.erased] == [(60, None)]
    assert done.pieces_searched > 50
    assert done.bytes_searched > 20_000
    assert [event.kind for event in old.open().events()][-2:] == ["purged", "purge completed"]
    while_open = files_of(old)
    old.close()
    for found in (while_open, files_of(old)):
        assert [text for text in texts if text in found] == []


def test_what_duplicates_totals_and_history_need_is_left(old: LedgerFactory) -> None:
    """Bills and paymentIds are found at any age; rows, references, payees and the events before are what they were."""
    ledger = old.open()
    batch = ledger.batches()[1]
    known = columns(ledger, range(1, 61), named=range(1, 30))
    lookup = Lookup(known.rows, known.fingerprints, known.payment_ids, [True] * 60)
    years_later = SOON + timedelta(days=4000)

    happened = len(list(ledger.events()))

    def remembered() -> list[object]:
        rows = [
            (row.row, row.line, row.state, row.amount_cents, row.direction, row.attempts, row.sent_at, row.finished_at,
             row.answer.http_status, row.answer.response_code, row.answer.gateway_reference)
            for row in ledger.rows(batch.batch)
        ]  # fmt: skip
        return [
            rows, list(ledger.rejected(batch.batch)), ledger.find(batch.batch).by_state,
            list(ledger.events())[:happened],
            ledger.earlier(lookup, Environment.TEST, days=5, now=years_later),
            ledger.payee_facts(known.payees, Environment.TEST), list(ledger.gateway_references(Environment.TEST)),
        ]  # fmt: skip

    before = remembered()
    assert len(ledger.earlier(lookup, Environment.TEST, days=5, now=years_later)) == 60
    purge(ledger)
    assert remembered() == before
    assert ledger.check() == []
    assert ledger.find(batch.batch).purged_at is not None
    assert {(row.reason, row.answer.message, row.last_four, *row.details) for row in ledger.rows(batch.batch)} == {
        (None, None, "")
    }
    events = [(event.kind, event.who, event.why) for event in ledger.events(batch.batch)]
    assert events[-1] == ("purged", "ann", WHY)
    assert not ledger.unfinished_purge()


def test_what_is_not_final_or_not_old_stays(opened: Ledger) -> None:
    """A row in doubt or pending keeps its batch; its decision begins the time anew; nothing is old before its day."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    assert opened.old_batches(yesterday) == []
    assert opened.purge(yesterday, "ann", WHY).erased == []
    doubtful = opened.batches()[0].batch
    assert [one.stays for one in opened.old_batches(SOON)] == [None, "1 row pending, 1 row in doubt"]
    assert [one.batch for one in purge(opened).erased] == [opened.batches()[1].batch]
    send_out_of_order(opened, doubtful, [2])
    before = datetime.now(UTC)
    opened.resolve(doubtful, [Decision(1, State.DECLINED)], "ben", "the portal says R01")
    assert opened.old_batches(before) == []
    assert [one.batch for one in purge(opened).erased] == [doubtful]
    assert purge(opened).erased == []
    assert opened.check() == []


def test_a_run_that_had_nothing_to_do_does_not_make_a_batch_young(opened: Ledger) -> None:
    """A file that stays in its folder is submitted again each night, and would never grow old."""
    batch, before = opened.batches()[1].batch, datetime.now(UTC)
    send_out_of_order(opened, batch, [])
    assert [one.batch for one in opened.purge(before, "ann", WHY).erased] == [batch]


def test_a_purge_takes_a_person_and_a_reason(opened: Ledger) -> None:
    """Nobody erases anonymously, and not without saying why."""
    for who, why in (("", WHY), ("ann", " ")):
        with pytest.raises(WrongUse, match="named person"):
            opened.purge(SOON, who, why)
    assert not opened.unfinished_purge()


def test_a_purge_waits_for_whoever_holds_a_batch(old: LedgerFactory) -> None:
    """A file that is written anew would keep any run waiting; in a database only the batch that is held stays."""
    running, other = old.open(), old.open()
    doubtful, finished = running.batches()
    with running.lock(finished.digest):
        if old.kind == "sqlite":
            with pytest.raises(BatchHeld, match="waits"):
                purge(other)
        else:
            assert purge(other).held == [finished.batch]
    assert [one.batch for one in other.old_batches(SOON)] == [finished.batch, doubtful.batch]
    assert [one.batch for one in purge(other).erased] == [finished.batch]


def test_a_batch_that_changed_meanwhile_is_not_purged(old: LedgerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two purges at once list a batch; another has a row in doubt since: what is listed is looked at again."""
    first, second = old.open(), old.open()
    finished, doubtful = second.old_batches(SOON)
    purge(first)
    for listed in (finished, replace(doubtful, stays=None)):
        with monkeypatch.context() as patched:
            patched.setattr("batchpay.ledger.retention.old_batches", lambda *_, listed=listed: [listed])
            with pytest.raises(WrongUse, match="changed in the meantime"):
                purge(second)
    assert second.check() == []


def test_a_purged_batch_is_closed(opened: Ledger) -> None:
    """A run finds nothing to send, and its rejected rows are not released: their details would be half there."""
    batch = opened.batches()[1].batch
    purge(opened)
    send_out_of_order(opened, batch, [])
    with pytest.raises(WrongUse, match="was purged"):
        release(opened, batch, [columns(opened, [61, 62, 63])], "ben", "they are right")
    assert opened.check() == []


@FILES
def test_a_reader_keeps_the_purge_from_being_completed(old: LedgerFactory) -> None:
    """Whoever reads an earlier view keeps its pages: the purge says so, and the next one is completed."""
    ledger, texts = old.open(), texts_of(old)
    with closing(connect(old.path, "ro", 0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM attempt").fetchone()
        ledger.store._connection.execute("PRAGMA busy_timeout = 0")  # type: ignore[attr-defined]
        with pytest.raises(RunStopped, match="reads from the ledger"):
            purge(ledger)
        assert ledger.unfinished_purge()
        assert any(text in files_of(old) for text in texts)
    again = purge(ledger)
    assert (again.erased, ledger.unfinished_purge()) == ([], False)
    assert [text for text in texts if text in files_of(old)] == []


@FILES
def test_what_was_not_erased_is_found(old: LedgerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The purge's own search has teeth: with details left in the file it does not count as completed."""
    ledger = old.open()
    with monkeypatch.context() as patched:
        patched.setattr(sql, "ERASE_DETAILS", "DELETE FROM detail WHERE chunk = ? AND 0")
        with pytest.raises(LedgerNotUsable, match="still contains"):
            purge(ledger)
    assert ledger.unfinished_purge()
    assert any("of payloads do" in problem for problem in ledger.check())


@pytest.mark.parametrize(("sqlite", "postgres", "problem"), [
    ("UPDATE attempt SET message = 'Approved' WHERE id >> 32 = 1",
     "UPDATE batchpay.attempt SET message = 'Approved' WHERE batch = 1", "60 answers of purged batches have texts"),
    ("INSERT INTO detail SELECT id, x'00' FROM chunk WHERE batch = 1",
     "INSERT INTO batchpay.detail SELECT batch, chunk, '' FROM batchpay.chunk WHERE batch = 1", "of payloads do"),
    ("DELETE FROM detail WHERE chunk IN (SELECT id FROM chunk WHERE batch = 2)",
     "DELETE FROM batchpay.detail WHERE batch = 2", "of payloads do"),
])  # fmt: skip
def test_the_check_knows_what_a_purge_leaves(old: LedgerFactory, sqlite: str, postgres: str, problem: str) -> None:
    """Texts put back into a purged batch, and texts taken from one that was not, are damage."""
    purge(old.open())
    old.close()
    old.edit(sqlite=sqlite, postgres=postgres)
    assert any(problem in found for found in old.open(read_only=True).check())


def test_the_history_of_a_purge_is_checked() -> None:
    """No batch is purged before its rows are final, none twice, and no row of it moves afterwards."""
    replay = Replay()
    registered = {"about": ["f", "o", "[]", "{}", 1, None, "test"], "pending": "1", "rejected": "2"}
    assert replay.apply(1, "registered", "ada", None, registered) is None
    assert "before all its rows are final" in str(replay.apply(1, "purged", "ann", WHY, {"rows": 1}))
    replay.apply(1, "progress", "ada", None, {"sending": "1"})
    replay.apply(1, "progress", "ada", None, {"accepted": "1"})
    assert replay.apply(1, "purged", "ann", WHY, {"rows": 1}) is None
    assert "purged twice" in str(replay.apply(1, "purged", "ann", WHY, {"rows": 1}))
    assert "can't become pending" in str(replay.apply(1, "released", "ben", WHY, {"pending": "2"}))


def test_a_backup_from_before_the_purge(old: LedgerFactory) -> None:
    """Brought back it is refused as any older ledger; accepted and settled, it is purged again like any other."""
    ledger = old.open()
    old.keep()
    purge(ledger)
    old.close()
    old.put_back()
    with pytest.raises(LedgerBehind):
        old.open()
    accept(old.settings, "ben", "the disk failed", rows_in_doubt=True)
    with pytest.raises(WaitingForPerson):
        purge(old.open())
    old.close()
    confirm(old.settings, "ben", "nothing was paid since")
    assert [one.rows for one in purge(old.open()).erased] == [60]
    rows = old.open().rows(old.open().batches()[1].batch)
    assert {(row.answer.message, row.last_four) for row in rows} == {(None, "")}
    assert old.open().check() == []


def killed_purges(old: LedgerFactory) -> Iterator[str]:
    """Purge in a process of its own that is killed before a write, and before a sync; gives where."""
    trace = old.folder / "trace"
    whole = {path: path.read_bytes() for path in (old.path, old.witness)}
    calls = ("pwrite64", "fdatasync")

    def purging(*options: str) -> bool:
        with acting(old, "purge", fault=options) as process:
            return ["purged", None] in words(process)

    assert purging("-o", str(trace), "-e", f"trace={','.join(calls)}")
    counts = Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text("utf-8", "replace"), re.MULTILINE))
    for call, part in (("pwrite64", 1 / 6), ("fdatasync", 1 / 2)):
        for path in old.path.parent.glob("ledger.db-*"):
            path.unlink()
        for path, content in whole.items():
            path.write_bytes(content)
        fault = f"inject={call}:signal=SIGKILL:when={int(counts[call] * part)}"
        assert not purging("-o", "/dev/null", "-e", f"trace={call}", "-e", fault)
        yield fault


@pytest.mark.ledgers("sqlite", why="in a database a purge is one transaction of the server for each batch")
@needs_strace
def test_a_kill_in_the_middle_leaves_a_ledger_that_holds_together(old: LedgerFactory) -> None:
    """Killed at a write or sync: a batch has all its texts or none, the check is clean, the next purge completes it."""
    texts, was_purged = texts_of(old), set()
    for point in killed_purges(old):
        ledger = old.open()
        assert ledger.check() == [], point
        batch = ledger.batches()[1]
        was_purged.add(batch.purged_at is not None)
        with_texts = {bool(row.details and row.answer.message) for row in ledger.rows(batch.batch)}
        assert with_texts == {batch.purged_at is None}, point
        purge(ledger)
        assert not ledger.unfinished_purge()
        old.close()
        assert [text for text in texts if text in files_of(old)] == [], point
    assert was_purged == {True, False}


def test_a_run_that_ended_in_a_kill_is_purged_after_its_recovery(ledger: Ledger) -> None:
    """A row found in sending is open; settled, its batch goes like any other."""
    batch = register(ledger, columns(ledger, [1]))
    with ledger.lock(ledger.find(batch).digest):
        ledger.start(batch, "ada").commit([1], [])
    assert [one.stays for one in ledger.old_batches(SOON)] == ["1 row sending"]
    with ledger.lock(ledger.find(batch).digest):
        ledger.start(batch, "ada").finish(None)
    ledger.resolve(batch, [Decision(1, State.ACCEPTED, "TX-1")], "ben", "seen in the portal by Ms Quill")
    purge(ledger)
    assert [(row.reason, row.answer.gateway_reference) for row in ledger.rows(batch)] == [(None, "TX-1")]
    assert "Quill" not in str(list(ledger.rows(batch)))


@pytest.mark.ledgers("postgres", why="a file has one writer at a time, and one machine")
def test_no_other_machine_releases_rows_of_a_batch_while_it_is_purged(
    old: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected rows would be pending then, with half of their details; and while it has a run, nothing is purged."""
    assert isinstance(old, PostgresFactory)
    other = old.on_another_machine(old.folder / "other")
    ledger, of_other = old.open(), other.join()
    batch, locked = ledger.batches()[1], list[bool]()
    with of_other.lock(batch.digest):
        run = of_other.start(batch.batch, "ben")
        assert purge(ledger).held == [batch.batch]
        run.finish(None)
    other.close()

    def erase_and_look(transaction: PostgresTransaction, number: int) -> int:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            old.run(f"SELECT FROM batchpay.batch WHERE id = {number} FOR UPDATE NOWAIT")
        locked.append(True)
        return erase_texts(transaction, number)

    monkeypatch.setattr("batchpay.ledger.postgres.ledger.erase_texts", erase_and_look)
    assert [one.batch for one in purge(ledger).erased] == [batch.batch]
    assert locked
