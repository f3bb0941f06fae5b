"""A damaged, cut or edited ledger never sends what it should not, and its check says so."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest

from batchpay.errors import LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept_witness
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite import audit, reading
from batchpay.ledger.sqlite.store import connect
from batchpay.payment import State
from tests.ledger.batches import ACCEPTED, DECLINED, IN_DOUBT, NOT_SENT, body_of, columns, register, rejected, release
from tests.ledger.factories import LedgerFactory

pytestmark = pytest.mark.ledgers("sqlite", why="bytes and tables of a file; see test_postgres_opening.py")

PENDING_ROWS = {5, 6, 7, 8}


@pytest.fixture
def used(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger whose rows stand in every state that stays."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 9), named=[1, 5]), rejected([9]))
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        run.commit([1, 2, 3, 4], [])
        run.commit([], [(1, ACCEPTED), (2, DECLINED), (3, IN_DOUBT), (4, ACCEPTED)])
        run.finish(None)
    ledger_factory.close()
    return ledger_factory


def what_is_told(ledger: Ledger) -> list[object]:
    """All that a report would say."""
    batch = ledger.find(None)
    return [batch, list(ledger.rows(batch.batch)), list(ledger.rejected(batch.batch)), list(ledger.events())]


def send_all(ledger: Ledger) -> set[int]:
    """Run the batch as a submission does; gives the rows that would have been sent, with their exact bodies."""
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        payments = run.claim(100)
        granted = run.commit([payment.row for payment in payments], [])
        assert all(payment.body == body_of(payment.row).encode() for payment in payments)
        run.finish(None)
    return granted


def restore(factory: LedgerFactory, whole: bytes, witness: bytes) -> None:
    """Put the ledger back as it was before a trial."""
    factory.close()
    for left_over in factory.path.parent.glob("ledger.db-*"):
        left_over.unlink()
    factory.path.write_bytes(whole)
    factory.witness.write_bytes(witness)


def test_no_flipped_byte_makes_anything_else_be_sent_or_told(used: LedgerFactory) -> None:
    """Wherever a byte of the file is flipped: the ledger is refused, or it sends and tells exactly the truth."""
    whole, witness = used.path.read_bytes(), used.witness.read_bytes()
    truth = what_is_told(used.open(read_only=True))
    used.close()
    generator = random.Random(20260724)
    written = [position for position, byte in enumerate(whole) if byte]
    refused = 0
    for position in {*generator.sample(written, 250), *generator.sample(range(len(whole)), 50)}:
        changed = bytearray(whole)
        changed[position] ^= 1 << generator.randrange(8)
        restore(used, bytes(changed), witness)
        try:
            ledger = used.open()
            told = what_is_told(ledger)
            sent = send_all(ledger)
        except LedgerNotUsable:
            refused += 1
            continue
        assert told == truth, position
        assert sent == PENDING_ROWS, position
    assert refused > 150


def test_no_truncated_ledger_is_used(used: LedgerFactory) -> None:
    """Cut anywhere, it is refused."""
    whole, witness = used.path.read_bytes(), used.witness.read_bytes()
    for length in [*range(0, len(whole), 4096), 1, 99, 100, 4097, len(whole) - 1]:
        restore(used, whole[:length], witness)
        with pytest.raises(LedgerNotUsable):
            send_all(used.open())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE row SET state = 3 WHERE state = 5",
        "UPDATE row SET state = 5 WHERE state = 3",
        "UPDATE row SET amount_cents = amount_cents + 1 WHERE id % 10 = 5",
        "UPDATE attempt SET gateway_reference = 'TX-78' WHERE state = 5",
        "UPDATE attempt SET state = 3",
        "UPDATE total SET row_count = row_count + 1 WHERE state = 3",
        "UPDATE total SET cents = cents + 1 WHERE state = 5",
        "UPDATE batch SET cents = cents + 1",
        "UPDATE batch SET origin = 'https://elsewhere'",
        "UPDATE batch SET file = 'other.csv'",
        "UPDATE run SET who = 'eve'",
        "UPDATE run SET stopped = 'by hand'",
        "UPDATE chunk SET open_rows = 0",
        "DELETE FROM fingerprint",
        "DELETE FROM fingerprint WHERE id & 4294967295 = 1",
        "DELETE FROM body",
        "DELETE FROM detail",
        "DELETE FROM row WHERE state = 5",
        "DELETE FROM attempt WHERE state = 5",
        "UPDATE body SET sealed = (SELECT sealed FROM detail)",
        "INSERT INTO event SELECT number + 9, at, batch, kind, who, why, detail, mac FROM event WHERE number = 3",
        "DROP TRIGGER event_is_never_changed; UPDATE event SET who = 'eve' WHERE number = 2",
        "DROP TRIGGER event_is_never_deleted; DELETE FROM event WHERE number = 3",
        "DROP TRIGGER event_is_never_deleted; DELETE FROM event",
        "DELETE FROM meta",
        "DELETE FROM fingerprint WHERE id & 4294967295 = 8",
        "DELETE FROM payment_id WHERE id & 4294967295 = 5",
    ],
)
def test_an_edited_ledger_is_refused(used: LedgerFactory, statement: str) -> None:
    """Whoever edits the ledger by hand without its key is found out before anything is sent."""
    connection = sqlite3.connect(used.path)
    connection.executescript(statement)
    connection.close()
    with pytest.raises(LedgerNotUsable):
        used.open()


@pytest.mark.parametrize(
    "statement", ["UPDATE event SET who = 'eve'", "DELETE FROM event", "DELETE FROM event WHERE number = 1"]
)
def test_history_is_append_only(used: LedgerFactory, statement: str) -> None:
    """The database itself refuses to change or delete a line of history."""
    with closing(sqlite3.connect(used.path)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)


def edit(factory: LedgerFactory, script: str) -> None:
    """Change the ledger behind batchpay's back."""
    with closing(sqlite3.connect(factory.path)) as connection:
        connection.executescript(script)


def test_a_row_whose_attempt_contradicts_it_is_never_granted(used: LedgerFactory) -> None:
    """One byte that is damaged while a run goes on must not send a payment twice."""
    ledger = used.open()
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        edit(used, "UPDATE row SET state = 3 WHERE id & 4294967295 = 1")
        with pytest.raises(LedgerDamaged, match="row 1"):
            run.commit([1], [])
    assert ledger.check() != []


_UNSENT = (
    "UPDATE row SET state = 3, attempts = 0 WHERE id & 4294967295 = 1; DELETE FROM attempt WHERE id & 4294967295 = 1;"
    "UPDATE total SET row_count = row_count + 1, cents = cents + 101 WHERE state = 3 AND direction = 1;"
    "UPDATE total SET row_count = row_count - 1, cents = cents - 101 WHERE state = 5 AND direction = 1"
)
"""Row 1 as if it had never been sent: state, attempt and totals agree with each other."""


_HISTORY_TOO = (
    "DROP TRIGGER event_is_never_changed; UPDATE event SET detail ="
    """ replace(detail, '"accepted":"1,4"', '"pending":"1","accepted":"4"') WHERE kind = 'progress'"""
)
"""And as if its history said so."""


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE row SET state = 3 WHERE id & 4294967295 = 1; UPDATE attempt SET state = 3 WHERE id & 4294967295 = 1;"
        "UPDATE total SET row_count = row_count + 1, cents = cents + 101 WHERE state = 3 AND direction = 1;"
        "UPDATE total SET row_count = row_count - 1, cents = cents - 101 WHERE state = 5 AND direction = 1",
        _UNSENT,
        f"{_HISTORY_TOO}; {_UNSENT}",
        "UPDATE row SET state = 5 WHERE id & 4294967295 = 5; UPDATE attempt SET state = 5 WHERE id & 4294967295 = 5",
        "UPDATE row SET amount_cents = amount_cents + 1 WHERE id & 4294967295 = 5",
        "UPDATE row SET line = 77 WHERE id & 4294967295 = 5",
        "UPDATE row SET amount_cents = 1302 - amount_cents WHERE id & 4294967295 IN (5, 8)",
        "UPDATE row SET line = 15 - line WHERE id & 4294967295 IN (5, 8)",
        "UPDATE row SET id = id + 4000 WHERE id & 4294967295 = 5",
        "PRAGMA ignore_check_constraints = 1; UPDATE row SET direction = 11 * direction WHERE id & 4294967295 = 5",
        "PRAGMA ignore_check_constraints = 1; UPDATE row SET state = 11 * state WHERE id & 4294967295 = 5",
        "PRAGMA ignore_check_constraints = 1; UPDATE row SET direction = -direction WHERE id & 4294967295 = 5",
        "UPDATE row SET line = 1 << 62 WHERE id & 4294967295 IN (5, 6)",
        "UPDATE row SET amount_cents = 1 << 62 WHERE id & 4294967295 IN (5, 6)",
        "UPDATE row SET reasons = 'amount.minimum' WHERE state = 2",
        "UPDATE row SET direction = 3 - direction WHERE id & 4294967295 = 5",
        "DELETE FROM row WHERE id & 4294967295 = 5",
        "INSERT INTO row SELECT id + 4000, line, amount_cents, direction, state, attempts, chunk, payee, account,"
        " reasons, seal FROM row WHERE state = 3",
        "UPDATE batch SET origin = 'https://elsewhere'",
        "UPDATE total SET cents = cents + 1 WHERE state = 3 AND direction = 1;"
        "UPDATE total SET cents = cents - 1 WHERE state = 5 AND direction = 1",
        "UPDATE attempt SET state = 3 WHERE state = 5",
        "DELETE FROM attempt WHERE state = 5",
        "DROP TRIGGER event_is_never_changed; UPDATE event SET detail = replace(detail, 'accepted', 'pending')",
        "DROP TRIGGER event_is_never_changed; UPDATE event SET batch = NULL WHERE kind = 'progress'",
        "DROP TRIGGER event_is_never_deleted; DELETE FROM event WHERE number = 4",
        "DROP TRIGGER event_is_never_deleted; DELETE FROM event WHERE kind = 'registered'",
    ],
)
@pytest.mark.parametrize("rows_at_once", [3, 4096])
def test_a_batch_edited_by_hand_is_not_sent_however_large_the_ledger(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, script: str, rows_at_once: int
) -> None:
    """60,000 rows, edited with sqlite3 so that totals and attempts agreed, once paid five of them again: a ledger over
    4 MiB was not looked over. A run now replays its own batch from the history before it sends.
    """  # noqa: D205
    edit(used, script)
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    monkeypatch.setattr(audit, "_EVENTS_AT_OPENING", 0)
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", rows_at_once)
    ledger = used.open()
    batch = ledger.find(None)
    with ledger.lock(batch.digest), pytest.raises(LedgerDamaged, match="nothing was sent"):
        ledger.start(batch.batch, "ada")
    assert ledger.check() != []


@pytest.mark.parametrize(
    "script",
    [
        "PRAGMA ignore_check_constraints = 1; UPDATE batch SET environment = 'tes'",
        "UPDATE batch SET environment = 'live'",
        "DELETE FROM batch",
        "UPDATE batch SET id = id + 1; UPDATE total SET batch = batch + 1",
        "UPDATE batch SET digest = zeroblob(32); DELETE FROM fingerprint; DELETE FROM payment_id",
        "DROP TRIGGER event_is_never_changed; UPDATE batch SET digest = zeroblob(32); UPDATE event SET detail ="
        " json_set(detail, '$.digest', lower(hex(zeroblob(32)))) WHERE kind = 'registered'",
    ],
)
def test_nothing_is_registered_where_an_earlier_batch_can_not_be_found(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """A file was paid whole once more: in a ledger over 4 MiB its batch had been edited with sqlite3, so that its
    content was not known, and only the batch that is run was held against the history.
    """  # noqa: D205
    edit(used, script)
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    monkeypatch.setattr(audit, "_EVENTS_AT_OPENING", 0)
    ledger = used.open()
    with pytest.raises(LedgerDamaged, match="nothing was sent"):
        register(ledger, columns(ledger, range(1, 9), salt="another"), content=b"another")
    assert ledger.check() != []


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("DELETE FROM fingerprint WHERE id & 4294967295 = 4", "1 payment would"),
        ("DELETE FROM fingerprint WHERE id & 4294967295 = 9", "1 payment would"),
        ("DELETE FROM fingerprint", "9 payments would"),
    ],
)
def test_nothing_is_registered_or_released_where_an_earlier_bill_is_not_there(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    """A bill was paid twice: in a ledger over 4 MiB somebody had deleted digests with sqlite3, so that the bill of an
    earlier batch was no duplicate any more.
    """  # noqa: D205
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    ledger = used.open()
    first = ledger.find(None).batch
    release(ledger, first, [columns(ledger, [9])], "ada", "looked at it")
    other = register(ledger, columns(ledger, []), rejected([1]), content=b"other")
    edit(used, script)
    damaged = pytest.raises(LedgerDamaged, match=f"{told} not be known if it came again; nothing was sent")
    with damaged:
        register(ledger, columns(ledger, range(1, 9), salt="another"), content=b"another")
    with damaged:
        release(ledger, other, [columns(ledger, [1])], "ada", "looked at it")
    assert ledger.check() != []


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE batch SET options = '0'",
        "UPDATE batch SET registered_at = 1 << 62",
        "UPDATE batch SET registered_at = -(1 << 62)",
    ],
)
def test_what_no_batch_can_hold_is_damage(used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A run ended with an internal error: options that are no object, and a time that no calendar has."""
    edit(used, script)
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    with pytest.raises(LedgerDamaged, match="contains what batchpay did not write"):
        used.open().find(None)


def test_rows_whose_direction_has_two_digits_are_damage(used: LedgerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions are read as digits without anything between: those of all later rows would be a row off."""
    edit(used, "PRAGMA ignore_check_constraints = 1; UPDATE row SET direction = 11 * direction WHERE direction = 1")
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    ledger = used.open()
    with pytest.raises(LedgerDamaged, match="contains what batchpay did not write"):
        list(ledger.row_columns(ledger.find(None).batch))


@pytest.mark.parametrize("rows_at_once", [1, 2, 3, 4096])
def test_a_batch_in_order_is_sent_however_many_rows_are_read_at_once(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    """Also where row numbers are left out, for whole pieces too."""
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", rows_at_once)
    ledger = used.open()
    assert send_all(ledger) == PENDING_ROWS
    register(ledger, columns(ledger, [2, 3, 17, 40, 41, 42, 44], salt="gaps"), rejected([5, 43]), content=b"gaps")
    assert send_all(ledger) == {2, 3, 17, 40, 41, 42, 44}
    assert ledger.check() == []


def test_what_seldom_happens_is_found_without_reading_the_history(used: LedgerFactory) -> None:
    """A run's start, and a plan's use, ask for few events of a history with one for every few payments."""
    with closing(connect(used.path, "ro", 1)) as connection:
        for condition in ("kind = 'registered' AND batch = 1", "kind IN ('registered', 'released') AND batch = 1"):
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN SELECT number FROM event WHERE {condition} AND kind <> 'progress'"
            ).fetchall()
            assert all("event_seldom" in step for *_, step in plan), plan


def test_events_of_other_batches_stand_between_those_of_a_batch(ledger_factory: LedgerFactory) -> None:
    """The chain is followed over what happened meanwhile; a batch in order is sent as ever, one of many too."""
    ledger = ledger_factory.create()
    names = [register(ledger, columns(ledger, [1, 2], salt=text), content=text.encode()) for text in "abc"]
    for _ in range(2):
        for name in names:
            with ledger.lock(ledger.find(name).digest):
                run = ledger.start(name, "ada")
                payments = run.claim(1)
                run.commit([payment.row for payment in payments], [])
                run.commit([], [(payment.row, ACCEPTED) for payment in payments])
                run.finish("the limit is reached")
    assert all(ledger.find(name).by_state[State.ACCEPTED].rows == 2 for name in names)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE total SET row_count = row_count + 1 WHERE state = 3",
        "DROP TRIGGER event_is_never_changed; UPDATE event SET why = 'x' WHERE number = 4",
    ],
)
def test_a_large_ledger_is_looked_over_in_short(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Totals and the end of the history are checked at every opening, however large the ledger is."""
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    used.open()
    used.close()
    connection = sqlite3.connect(used.path)
    connection.executescript(statement)
    connection.close()
    with pytest.raises(LedgerDamaged):
        used.open()


def test_an_older_write_ahead_log_is_an_older_ledger(used: LedgerFactory) -> None:
    """A log that was taken away after a crash makes the ledger older than its witness."""
    before = used.path.read_bytes()
    ledger = used.open()
    send_all(ledger)
    used.close()
    used.path.write_bytes(before)
    with pytest.raises(LedgerNotUsable, match="witness"):
        used.open()


def test_bodies_are_erased_once_every_row_of_their_chunk_is_final(ledger_factory: LedgerFactory) -> None:
    """A row in doubt keeps its chunk's bodies, since it may be sent again; its settlement erases them. Details stay."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        run.commit([1, 2, 3], [])
        run.commit([], [(1, ACCEPTED), (2, DECLINED), (3, IN_DOUBT)])
        run.finish(None)

    def bodies() -> int:
        with closing(connect(ledger_factory.path, "ro", 1)) as connection:
            return int(connection.execute("SELECT count(*) FROM body").fetchone()[0])

    assert bodies() == 1
    ledger.resolve(name, [Decision(3, State.ACCEPTED)], "ben", "found in the portal")
    assert bodies() == 0
    assert [row.details["name"] for row in ledger.rows(name)] == ["Zoë 1", "Zoë 2", "Zoë 3"]
    assert ledger.check() == []


def test_a_lost_acceptance_needs_name_and_reason(used: LedgerFactory) -> None:
    """Nobody accepts a ledger anonymously."""
    for who, why in (("", "x"), ("ada", " ")):
        with pytest.raises(WrongUse, match="named person"):
            accept_witness(used.settings, who, why)


def test_a_damaged_ledger_is_not_accepted(used: LedgerFactory) -> None:
    """The witness was moved first and the damage told afterwards: what the witness had known was gone by then."""
    edit(used, "UPDATE row SET state = 3 WHERE id & 4294967295 = 1")
    witness = used.witness.read_bytes()
    with pytest.raises(LedgerDamaged, match="nothing was accepted, and the witness is as it was"):
        accept_witness(used.settings, "ben", "the disk died")
    assert used.witness.read_bytes() == witness
    assert not any(event.kind == "witness accepted" for event in used.open(read_only=True).events())


def test_a_spilled_outcome_counts_for_its_own_attempt_only(ledger_factory: LedgerFactory) -> None:
    """A spill file that comes back, or was not removed in time, can't put a later attempt back to pending.

    Nor because another row is in an attempt of that number.
    """
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        run.commit([1], [])
        run.spill([(1, NOT_SENT)])
    ledger_factory.close()
    (spilled,) = ledger_factory.witness.parent.glob("witness.spill.*")
    content = spilled.read_bytes()
    ledger = ledger_factory.open()
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        assert run.commit([1, 2], []) == {1, 2}
    ledger_factory.close()
    assert not spilled.exists()
    spilled.write_bytes(content)
    ledger = ledger_factory.open()
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        assert run.recovered == 2
        assert run.claim(1) == []
        run.finish(None)
    merged = [json.loads(event.detail) for event in ledger.events(name) if event.kind == "merged"]
    assert merged == [{"pending": "1"}, {"unused": [1]}], "what came back is told"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM body", "row 2 is pending, and its body is missing"),
        ("DELETE FROM attempt", "of rows 1, which were being sent, 1 are, and 0 of their attempts"),
    ],
)
def test_what_is_lost_under_a_run_ends_it(ledger_factory: LedgerFactory, statement: str, told: str) -> None:
    """Somebody's hand in the database while a run goes on: it stops, and names the row."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        run.commit([1], [])
        with closing(sqlite3.connect(ledger_factory.path)) as connection:
            connection.execute(statement)
            connection.commit()
        with pytest.raises(LedgerDamaged, match=told):
            run.commit([], [(1, ACCEPTED)]) if "attempt" in statement else run.claim(10)
        run.close()


def test_a_forged_or_torn_spill_line_is_passed_over(ledger_factory: LedgerFactory) -> None:
    """Without the key nobody can make a row accepted by writing a spill file."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        run.commit([1, 2], [])
        run.spill([(1, ACCEPTED), (2, ACCEPTED)])
    ledger_factory.close()
    (spilled,) = ledger_factory.witness.parent.glob("witness.spill.*")
    first, second, *_ = spilled.read_bytes().split(b"\n")
    spilled.write_bytes(first.replace(b"accepted", b"declined") + b"\n" + second[:-5])
    ledger = ledger_factory.open()
    with ledger.lock(digest):
        run = ledger.start(name, "ada")
        assert run.recovered == 2
        run.finish(None)
