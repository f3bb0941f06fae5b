"""A damaged, cut or edited ledger never sends what it should not, and its check says so."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest

from batchpay.errors import LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept
from batchpay.ledger.postgres import audit as of_database
from batchpay.ledger.records import Decision
from batchpay.ledger.sqlite import audit, reading
from batchpay.ledger.sqlite.store import connect
from batchpay.payment import State
from tests.ledger.batches import (
    ACCEPTED,
    DECLINED,
    IN_DOUBT,
    NOT_SENT,
    body_of,
    columns,
    held_run,
    register,
    rejected,
    release,
    send,
)
from tests.ledger.factories import LedgerFactory

FILE = pytest.mark.ledgers("sqlite", why="what only a file has: its bytes, log, size and lack of logins")
PENDING_ROWS = {5, 6, 7, 8}
UNLOCKED = "DROP TRIGGER event_is_never_changed; DROP TRIGGER event_is_never_deleted; "


@pytest.fixture
def used(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger whose rows stand in every state that stays."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 9), named=[1, 5]), rejected([9]))
    send(ledger, name, {1: ACCEPTED, 2: DECLINED, 3: IN_DOUBT, 4: ACCEPTED})
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


@FILE
def test_a_connection_that_is_read_from_again_hides_nothing(used: LedgerFactory) -> None:
    """It keeps pages, and its file may be another by now: a check reads the disk, and who reads finds the new file."""
    ledger = used.open()
    names = [ledger.find(None).batch, register(ledger, columns(ledger, range(11, 13)), content=b"second")]
    assert sorted(one.batch for one in ledger.batches()) == sorted(names)
    used.close()
    whole, copy = used.path.read_bytes(), used.path.with_suffix(".copy")
    ledger = used.open()
    assert ledger.check() == []
    copy.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    with used.path.open("r+b") as file:
        file.write(copy.read_bytes())
    assert ledger.check() != []
    with used.path.open("r+b") as file:
        file.write(whole)
    assert ledger.check() == []
    copy.replace(used.path)
    with pytest.raises(LedgerDamaged):
        ledger.batches()


@FILE
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


@FILE
def test_no_truncated_ledger_is_used(used: LedgerFactory) -> None:
    """Cut anywhere, it is refused; the zeros that end an empty index, the last page of the file, say nothing."""
    whole, witness = used.path.read_bytes(), used.witness.read_bytes()
    for length in [*range(0, len(whole), 4096), 1, 99, 100, 4097, len(whole.rstrip(b"\0")) - 1]:
        restore(used, whole[:length], witness)
        with pytest.raises(LedgerNotUsable):
            send_all(used.open())


def found_wrong(factory: LedgerFactory) -> list[str]:
    """Return what the check of the whole ledger finds, or why it can't be opened."""
    try:
        return factory.open(read_only=True).check()
    except LedgerNotUsable as refused:
        return [str(refused)]


EDITS = [
    ("UPDATE row SET state = 3 WHERE state = 5", "UPDATE payment SET state = 3 WHERE state = 5"),
    ("UPDATE row SET state = 5 WHERE state = 3", "UPDATE payment SET state = 5 WHERE state = 3"),
    ("UPDATE row SET amount_cents = 5 WHERE id & 63 = 5", "UPDATE payment SET amount_cents = 5 WHERE row = 5"),
    ("UPDATE row SET reasons = 'x' WHERE state = 2", "UPDATE payment SET reasons = 'x' WHERE state = 2"),
    ("UPDATE attempt SET gateway_reference = 'TX-78' WHERE state = 5",) * 2,
    ("UPDATE attempt SET message = 'x' WHERE id & 63 = 1", "UPDATE attempt SET message = 'x' WHERE row = 1"),
    ("UPDATE attempt SET state = 3",) * 2,
    ("UPDATE total SET row_count = row_count + 1 WHERE state = 3", "UPDATE run SET totals[9] = totals[9] + 1"),
    ("UPDATE total SET cents = cents + 1 WHERE state = 5", "UPDATE run SET totals[22] = totals[22] + 1"),
    ("UPDATE batch SET cents = cents + 1",) * 2,
    ("UPDATE batch SET origin = 'https://elsewhere'",) * 2,
    ("UPDATE batch SET file = 'other.csv'",) * 2,
    ("UPDATE run SET who = 'eve'",) * 2,
    ("UPDATE run SET stopped = 'by hand'",) * 2,
    ("UPDATE chunk SET open_rows = 0",) * 2,
    ("DELETE FROM fingerprint",) * 2,
    ("DELETE FROM fingerprint WHERE id & 63 = 1", "DELETE FROM fingerprint WHERE row = 1"),
    ("DELETE FROM fingerprint WHERE id & 63 = 8", "DELETE FROM fingerprint WHERE row = 8"),
    ("DELETE FROM payment_id WHERE id & 63 = 5", "DELETE FROM payment_id WHERE row = 5"),
    ("DELETE FROM body",) * 2,
    ("DELETE FROM detail",) * 2,
    ("UPDATE body SET sealed = (SELECT sealed FROM detail)",) * 2,
    ("DELETE FROM row WHERE state = 5", "DELETE FROM payment WHERE state = 5"),
    ("DELETE FROM attempt WHERE state = 5",) * 2,
    ("DELETE FROM meta", "UPDATE ledger SET number = 9"),
    (
        "INSERT INTO event SELECT number + 9, at, batch, kind, who, why, detail, mac FROM event WHERE number = 3",
        "INSERT INTO event (chain, number, at, batch, kind, who, detail, mac)"
        " SELECT chain, number + 9, at, batch, kind, who, detail, mac FROM event WHERE chain = 0 AND number = 3",
    ),
    (f"{UNLOCKED}UPDATE event SET who = 'eve' WHERE number = 2", "UPDATE event SET who = 'eve' WHERE number = 2"),
    (f"{UNLOCKED}DELETE FROM event WHERE number = 3", "DELETE FROM event WHERE chain = 1 AND number = 2"),
    (f"{UNLOCKED}DELETE FROM event", "DELETE FROM event WHERE kind = 'finished'"),
]


@pytest.mark.parametrize(("sqlite", "postgres"), EDITS)
def test_an_edited_ledger_is_damaged_and_not_accepted(used: LedgerFactory, sqlite: str, postgres: str) -> None:
    """Whoever edits it by hand without its key is found out; a small file's edits before it is opened for writing.

    The witness was moved first and the damage told afterwards: what the witness had known was gone by then.
    """
    used.edit(sqlite=sqlite, postgres=postgres)
    assert found_wrong(used)
    used.close()
    witness = used.witness.read_bytes()
    with pytest.raises((LedgerNotUsable, WrongUse)):
        accept(used.settings, "ben", "the disk died", rows_in_doubt=True)
    assert used.witness.read_bytes() == witness
    if used.kind == "sqlite":
        with pytest.raises(LedgerNotUsable):
            used.open()


@FILE
@pytest.mark.parametrize(
    "statement", ["UPDATE event SET who = 'eve'", "DELETE FROM event", "DELETE FROM event WHERE number = 1"]
)
def test_history_is_append_only(used: LedgerFactory, statement: str) -> None:
    """The database itself refuses to change or delete a line of history."""
    with closing(sqlite3.connect(used.path)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)


def test_a_row_whose_attempt_contradicts_it_is_never_granted(used: LedgerFactory) -> None:
    """One byte that is damaged while a run goes on must not send a payment twice."""
    ledger = used.open()
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        used.edit(
            sqlite="UPDATE row SET state = 3 WHERE id & 63 = 1", postgres="UPDATE payment SET state = 3 WHERE row = 1"
        )
        with pytest.raises(LedgerDamaged, match="row 1 is pending, and its attempt is not"):
            run.commit([1], [])
    assert ledger.check() != []


TOTALS = (
    "; UPDATE total SET row_count = row_count + 1, cents = cents + 101 WHERE state = 3 AND direction = 1;"
    " UPDATE total SET row_count = row_count - 1, cents = cents - 101 WHERE state = 5 AND direction = 1",
    "; UPDATE run SET totals[9] = totals[9] + 1, totals[10] = totals[10] + 101, totals[21] = totals[21] - 1,"
    " totals[22] = totals[22] - 101",
)
"""As if row 1 was pending, not accepted."""
UNSENT = (
    "UPDATE row SET state = 3, attempts = 0 WHERE id & 63 = 1; DELETE FROM attempt WHERE id & 63 = 1" + TOTALS[0],
    "UPDATE payment SET state = 3, attempts = 0 WHERE row = 1; DELETE FROM attempt WHERE row = 1" + TOTALS[1],
)
"""Row 1 as if it had never been sent: state, attempt and totals agree with each other."""
HISTORY_TOO = """UPDATE event SET detail = replace(detail, '"accepted":"1,4"', '"pending":"1","accepted":"4"'); """
"""And as if its history said so."""


@pytest.mark.parametrize(
    ("sqlite", "postgres"),
    [
        (
            "UPDATE row SET state = 3 WHERE id & 63 = 1; UPDATE attempt SET state = 3 WHERE id & 63 = 1" + TOTALS[0],
            "UPDATE payment SET state = 3 WHERE row = 1; UPDATE attempt SET state = 3 WHERE row = 1" + TOTALS[1],
        ),
        UNSENT,
        (UNLOCKED + HISTORY_TOO + UNSENT[0], HISTORY_TOO + UNSENT[1]),
        ("UPDATE row SET state = 5 WHERE id & 63 = 5", "UPDATE payment SET state = 5 WHERE row = 5"),
        ("UPDATE row SET amount_cents = 5 WHERE id & 63 = 5", "UPDATE payment SET amount_cents = 5 WHERE row = 5"),
        ("UPDATE row SET line = 77 WHERE id & 63 = 5", "UPDATE payment SET line = 77 WHERE row = 5"),
        (
            "UPDATE row SET amount_cents = 1302 - amount_cents WHERE id & 63 IN (5, 8)",
            "UPDATE payment SET amount_cents = 1302 - amount_cents WHERE row IN (5, 8)",
        ),
        (
            "UPDATE row SET line = 15 - line WHERE id & 63 IN (5, 8)",
            "UPDATE payment SET line = 15 - line WHERE row IN (5, 8)",
        ),
        ("UPDATE row SET id = id + 4000 WHERE id & 63 = 5", "UPDATE payment SET row = row + 4000 WHERE row = 5"),
        (
            "UPDATE row SET line = 1 << 62 WHERE id & 63 IN (5, 6)",
            "UPDATE payment SET line = 2147483647 WHERE row IN (5, 6)",
        ),
        (
            "UPDATE row SET amount_cents = 1 << 62 WHERE id & 63 IN (5, 6)",
            "UPDATE payment SET amount_cents = 1::bigint << 62 WHERE row IN (5, 6)",
        ),
        (
            "UPDATE row SET reasons = 'amount.minimum' WHERE state = 2",
            "UPDATE payment SET reasons = 'amount.minimum' WHERE state = 2",
        ),
        (
            "UPDATE row SET direction = 3 - direction WHERE id & 63 = 5",
            "UPDATE payment SET direction = 3 - direction WHERE row = 5",
        ),
        ("DELETE FROM row WHERE id & 63 = 5", "DELETE FROM payment WHERE row = 5"),
        (
            "INSERT INTO row SELECT id + 4000, line, amount_cents, direction, state, attempts, chunk, payee, account,"
            " reasons, seal, pay_on FROM row WHERE state = 3",
            "INSERT INTO payment SELECT amount_cents, payee, account, sent_at, batch, row + 4000, line, chunk, run,"
            " state, attempts, direction, reasons, seal, pay_on FROM payment WHERE state = 3",
        ),
        ("UPDATE batch SET origin = 'https://elsewhere'",) * 2,
        (
            "UPDATE total SET cents = cents + 1 WHERE state = 3 AND direction = 1;"
            " UPDATE total SET cents = cents - 1 WHERE state = 5 AND direction = 1",
            "UPDATE run SET totals[10] = totals[10] + 1, totals[22] = totals[22] - 1",
        ),
        ("UPDATE attempt SET state = 3 WHERE state = 5",) * 2,
        ("DELETE FROM attempt WHERE state = 5",) * 2,
        (
            f"{UNLOCKED}UPDATE event SET detail = replace(detail, 'accepted', 'pending')",
            "UPDATE event SET detail = replace(detail, 'accepted', 'pending')",
        ),
        (
            f"{UNLOCKED}UPDATE event SET batch = NULL WHERE kind = 'progress'",
            "UPDATE event SET batch = NULL WHERE kind = 'progress'",
        ),
        (f"{UNLOCKED}DELETE FROM event WHERE number = 4", "DELETE FROM event WHERE chain = 1 AND number = 1"),
        (
            f"{UNLOCKED}DELETE FROM event WHERE kind = 'registered'",
            "DELETE FROM event WHERE kind = 'registered'",
        ),
    ],
)
def test_a_batch_edited_by_hand_is_not_sent_however_large_the_ledger(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, sqlite: str, postgres: str
) -> None:
    """60,000 rows, edited with sqlite3 so that totals and attempts agreed, once paid five of them again: a ledger over
    4 MiB was not looked over. A run now replays its own batch from the history before it sends.
    """  # noqa: D205
    used.edit(sqlite=sqlite, postgres=postgres)
    looks_in_short(monkeypatch)
    require_not_sent(used)


@FILE
@pytest.mark.parametrize("change", ["direction = 11 * direction", "state = 11 * state", "direction = -direction"])
def test_a_row_with_what_its_column_does_not_take_is_not_sent(
    used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """SQLite lets anyone switch its checks off."""
    edit(used, f"PRAGMA ignore_check_constraints = 1; UPDATE row SET {change} WHERE id & 63 = 5")
    looks_in_short(monkeypatch)
    require_not_sent(used)


def looks_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ledger be too large to be looked over at its opening, or to be read at once."""
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    for module in (audit, of_database):
        monkeypatch.setattr(module, "_EVENTS_AT_OPENING", 0)
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(of_database, "_ROWS_AT_ONCE", 3)


def require_not_sent(used: LedgerFactory) -> None:
    with pytest.raises(LedgerDamaged, match="nothing was sent"):
        send_all(used.open())
    assert found_wrong(used)


def edit(factory: LedgerFactory, script: str) -> None:
    """Change what only a file lets anyone change."""
    factory.edit(sqlite=script, postgres="")


@FILE
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


@FILE
@pytest.mark.parametrize(("script", "told"), [
    ("DELETE FROM fingerprint WHERE id & 4294967295 = 4", "1 payment would"),
    ("DELETE FROM fingerprint WHERE id & 4294967295 = 9", "1 payment would"),
    ("DELETE FROM fingerprint", "9 payments would"),
])  # fmt: skip
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
    "change", ["options = '0'", "registered_at = 4611686018427387904", "registered_at = -4611686018427387904"]
)
def test_what_no_batch_can_hold_is_damage(used: LedgerFactory, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A run ended with an internal error: options that are no object, and a time that no calendar has."""
    used.edit(sqlite=f"UPDATE batch SET {change}", postgres=f"UPDATE batch SET {change}")
    monkeypatch.setattr(audit, "SMALL_BYTES", 0)
    with pytest.raises(LedgerDamaged, match="contains what batchpay did not write"):
        used.open().find(None)


@FILE
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
    monkeypatch.setattr(of_database, "_ROWS_AT_ONCE", rows_at_once)
    ledger = used.open()
    assert send_all(ledger) == PENDING_ROWS
    register(ledger, columns(ledger, [2, 3, 17, 40, 41, 42, 44], salt="gaps"), rejected([5, 43]), content=b"gaps")
    assert send_all(ledger) == {2, 3, 17, 40, 41, 42, 44}
    assert ledger.check() == []


@FILE
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
            with held_run(ledger, name) as run:
                payments = run.claim(1)
                run.commit([payment.row for payment in payments], [])
                run.commit([], [(payment.row, ACCEPTED) for payment in payments])
                run.finish("the limit is reached")
    assert all(ledger.find(name).by_state[State.ACCEPTED].rows == 2 for name in names)


@FILE
@pytest.mark.parametrize("statement", [
    "UPDATE total SET row_count = row_count + 1 WHERE state = 3",
    "DROP TRIGGER event_is_never_changed; UPDATE event SET why = 'x' WHERE number = 4",
])  # fmt: skip
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


@FILE
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
    send(ledger, name, {1: ACCEPTED, 2: DECLINED, 3: IN_DOUBT})

    assert ledger_factory.count("body") == 1
    ledger.resolve(name, [Decision(3, State.ACCEPTED)], "ben", "found in the portal")
    assert ledger_factory.count("body") == 0
    assert [row.details["name"] for row in ledger.rows(name)] == ["Zoë 1", "Zoë 2", "Zoë 3"]
    assert ledger.check() == []


def test_a_lost_acceptance_needs_name_and_reason(used: LedgerFactory) -> None:
    """Nobody accepts a ledger anonymously."""
    for who, why in (("", "x"), ("ada", " ")):
        with pytest.raises(WrongUse, match="named person"):
            accept(used.settings, who, why, rows_in_doubt=True)


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


def test_a_body_that_is_lost_under_a_run_ends_it(ledger_factory: LedgerFactory) -> None:
    """Somebody's hand in the database while a run goes on: it stops, and names the row."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        run.commit([1], [])
        ledger_factory.edit(sqlite="DELETE FROM body", postgres="DELETE FROM body")
        with pytest.raises(LedgerDamaged, match="row 2 is pending, and its body is missing"):
            run.claim(10)
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
