"""What every ledger must do, whatever database holds it: written against the contract alone."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import BatchHeld, BatchpayError, LedgerDamaged, LedgerNotUsable, WrongUse
from batchpay.ledger import reading
from batchpay.ledger.columns import Lookup, PackedTexts, RejectedColumns
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.open import accept
from batchpay.ledger.records import RECOVERED_REASON, SETTLED_BY, Decision, RejectedRow
from batchpay.outcome import Answer
from batchpay.payment import Environment, SamePayment, State, Totals
from tests.ledger.batches import (
    ACCEPTED,
    CANARY,
    DECLINED,
    IN_DOUBT,
    NOT_SENT,
    body_of,
    columns,
    held_run,
    new_batch,
    register,
    rejected,
    release,
    send,
    states,
)
from tests.ledger.factories import LedgerFactory, PostgresFactory


def test_a_new_ledger_is_empty_and_in_order(ledger: Ledger) -> None:
    """Nothing is registered, nothing is wrong, and the history tells of its creation."""
    assert ledger.registration_count() == 0
    assert ledger.batches() == []
    assert ledger.check() == []
    assert [event.kind for event in ledger.events()] == ["created"]


def test_digests_are_keyed_apart_for_each_purpose_and_stable(ledger_factory: LedgerFactory) -> None:
    """The same text has one digest a purpose, also after opening anew; None stays None."""
    ledger = ledger_factory.create()
    first = ledger.digest("a", ["x", None, "y"], 16)
    assert first[1] is None
    assert [len(digest or b"") for digest in first] == [16, 0, 16]
    assert ledger.digest("b", ["x"], 16) != first[:1]
    stream = ledger.digest_stream("a")
    stream.update(b"x")
    assert len(stream.digest()) == 32
    ledger_factory.close()
    assert ledger_factory.open().digest("a", ["x", None, "y"], 16) == first


def test_a_registered_batch_is_found_with_its_totals(ledger: Ledger) -> None:
    """Every row and every cent is accounted for; the name is the digest's beginning."""
    name = register(ledger, columns(ledger, range(1, 11)), rejected([11, 12]))
    batch = ledger.find(name)
    assert batch == ledger.find(None) == ledger.find(name[:5]) == ledger.find_digest(batch.digest, Environment.TEST)
    assert name == batch.digest.hex()[:12]
    assert ledger.find_digest(bytes(32), Environment.TEST) is None
    assert batch.columns == ("memo", "Größe")
    assert batch.total == Totals(12, sum(row * 100 + 1 for row in range(1, 13)))
    assert batch.by_state[State.PENDING].rows == 10
    assert batch.by_state[State.REJECTED] == Totals(2, 2302)
    assert batch.by_direction == {"DEBIT": Totals(7, 3707), "CREDIT": Totals(3, 1803)}
    assert (batch.started_at, batch.finished_at, batch.stopped) == (None, None, None)
    assert ledger.registration_count() == 1
    assert next(iter(ledger.rejected(name))) == RejectedRow(
        11, 12, 1101, ("amount.format", "achRoutingNumber.checksum")
    )


def test_rows_whose_amount_can_not_be_read_are_counted(ledger: Ledger) -> None:
    """Rows of no cents are rows: the totals hold them, and the ledger is in order."""
    name = register(ledger, columns(ledger, [1]), RejectedColumns([2], [3], [0], ["amount.format"]))
    assert ledger.find(name).by_state[State.REJECTED] == Totals(1, 0)
    assert ledger.check() == []


def test_rows_are_read_in_file_order_with_what_was_registered(ledger: Ledger) -> None:
    """Line, amount, direction, last four and details come back; the account number does not."""
    name = register(ledger, columns(ledger, range(1, 1201)))
    rows = list(ledger.rows(name))
    assert [row.row for row in rows] == list(range(1, 1201))
    assert (rows[6].line, rows[7].line) == (None, 9)
    assert (rows[2].direction, rows[2].amount_cents, rows[2].last_four) == ("CREDIT", 301, CANARY[-4:])
    assert rows[2].details["name"] == "Zoë 3"
    assert CANARY not in repr(rows)


def test_rows_can_be_read_by_state(ledger: Ledger) -> None:
    """Only the states asked for are given."""
    name = register(ledger, columns(ledger, [1, 2, 3]))
    send(ledger, name, {2: ACCEPTED})
    assert [row.row for row in ledger.rows(name, [State.ACCEPTED])] == [2]
    assert [row.row for row in ledger.rows(name, [State.PENDING, State.DECLINED])] == [1, 3]


def test_rows_by_column_are_the_same_rows(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `row_columns` gives of rows in several states, some thousand at a time, is what `rows` gives one by one.

    The results of more than 16,384 rows could not be read from SQLite: the test read all of its rows at once.
    """
    for kind in ("sqlite", "postgres"):
        monkeypatch.setattr(f"batchpay.ledger.{kind}.reading.ROWS_AT_ONCE", 4_096)
    name = register(ledger, columns(ledger, range(1, 8_193)))
    send(ledger, name, {2: ACCEPTED, 700: DECLINED, 8192: IN_DOUBT})
    names = {
        "rows": "row", "lines": "line", "states": "state", "amounts_cents": "amount_cents", "directions": "direction",
        "attempts": "attempts", "sent_at": "sent_at", "finished_at": "finished_at",
        "http_statuses": "answer.http_status", "response_codes": "answer.response_code", "messages": "answer.message",
        "gateway_references": "answer.gateway_reference", "reasons": "reason",
    }  # fmt: skip
    for wanted in (None, [State.PENDING], [State.IN_DOUBT, State.ACCEPTED]):
        parts, rows = list(ledger.row_columns(name, wanted)), list(ledger.rows(name, wanted))
        assert [one for part in parts for one in part.read_details()] == [row.details for row in rows]
        for column, of_row in names.items():
            together = [value for part in parts for value in getattr(part, column)]
            assert together == [attrgetter(of_row)(row) for row in rows], column
    some = {row.amount_cents for row in rows[:2]}
    assert list(ledger.rows(name, wanted, some)) == [row for row in rows if row.amount_cents in some]
    with monkeypatch.context() as patch:
        patch.delattr(reading, "unseal_bodies")  # nothing is decrypted for rows of other amounts
        assert list(ledger.rows(name, cents=[1])) == []
    assert list(ledger.row_columns(name, [State.SENDING])) == []
    assert list(ledger.row_columns(register(ledger, columns(ledger, []), content=b"nothing"))) == []


def test_what_fails_while_writing_ends_the_registration(ledger: Ledger) -> None:
    """Rows are written beside the thread that builds them: what goes wrong there is raised, and nothing stands."""
    for finishes in (True, False):
        with ledger.register(new_batch(ledger, 4), "ada") as registering:
            registering.add_payments(columns(ledger, [1, 2]))
            with pytest.raises(BatchpayError):  # at once, or when it is waited for
                registering.add_payments(columns(ledger, [2, 3]))
                registering.finish() if finishes else registering.add_rejected(rejected([4]))
    assert ledger.batches() == []
    assert ledger.check() == []


def test_leaving_a_registration_early_undoes_all_of_it(ledger: Ledger) -> None:
    """An error, or no finish, leaves nothing behind; the next registration works."""
    with pytest.raises(ZeroDivisionError), ledger.register(new_batch(ledger, 3), "ada") as registering:
        registering.add_payments(columns(ledger, [1, 2, 3]))
        raise ZeroDivisionError
    with ledger.register(new_batch(ledger, 3), "ada") as registering:
        registering.add_payments(columns(ledger, [1, 2, 3]))
    assert ledger.batches() == []
    assert ledger.check() == []
    register(ledger, columns(ledger, [1, 2, 3]))
    assert ledger.registration_count() == 1


def test_a_registration_fails_if_another_came_between(ledger: Ledger) -> None:
    """Who looked up earlier payments before another batch was registered must look again."""
    stale = new_batch(ledger, 1, content=b"two")
    register(ledger, columns(ledger, [1]))
    with pytest.raises(RegisteredMeanwhile), ledger.register(stale, "ada") as registering:
        registering.add_payments(columns(ledger, [1]))
        registering.finish()
    assert ledger.registration_count() == 1


def test_only_news_of_the_same_payment_makes_a_machine_look_again(ledger: Ledger) -> None:
    """A paymentId alone is such news. What the look-up could see is none, nor is what two others repeat."""
    for number in (1, 2):
        register(ledger, columns(ledger, [number], named=[number]), content=bytes([number]))
    seen = new_batch(ledger, 1, content=b"this one")
    register(ledger, columns(ledger, [1], named=[1]), content=b"another")
    with pytest.raises(RegisteredMeanwhile), ledger.register(seen, "ada") as registering:
        registering.add_payments(columns(ledger, [1], named=[1], salt="other bill"))
        registering.finish()
    with ledger.register(seen, "ada") as registering:
        registering.add_payments(columns(ledger, [2], named=[2]))
        registering.finish()
    with pytest.raises(RegisteredMeanwhile), ledger.register(seen, "ada") as registering:
        registering.add_payments(columns(ledger, [2]))
        registering.finish()
    assert len(ledger.batches()) == 4


def test_one_content_that_two_calls_register_is_one_batch(ledger: Ledger) -> None:
    """Also where no row of it passed the rules, so that the two have no digest of a row in common."""
    seen = new_batch(ledger, 1)
    register(ledger, columns(ledger, []), rejected([1]))
    with pytest.raises(RegisteredMeanwhile), ledger.register(seen, "ada") as registering:
        registering.add_rejected(rejected([1]))
        registering.finish()
    assert len(ledger.batches()) == 1


def test_a_batch_is_found_by_the_bytes_of_its_file_while_a_row_of_it_may_be_paid(ledger: Ledger) -> None:
    """The latest of the environment, and none of which every row was rejected or declined, or has no such digest."""
    register(ledger, columns(ledger, [1]))
    register(ledger, columns(ledger, []), rejected([1]), content=b"all wrong", file_digest="f00d")
    assert ledger.find_file("f00d", Environment.TEST) is None
    first = register(ledger, columns(ledger, [1]), rejected([2]), content=b"two", file_digest="f00d")
    assert ledger.find_file("f00d", Environment.TEST) == ledger.find(first)
    assert ledger.find_file("f00d", Environment.LIVE) is ledger.find_file("beef", Environment.TEST) is None
    send(ledger, first, {1: DECLINED})
    assert ledger.find_file("f00d", Environment.TEST) is None
    for content in (b"three", b"four"):
        latest = register(ledger, columns(ledger, [1]), content=content, file_digest="f00d")
        assert ledger.find_file("f00d", Environment.TEST) == ledger.find(latest)


def test_the_same_content_again_has_its_own_name_and_reason(ledger: Ledger) -> None:
    """A repeat is called -2 and says why; the latest is found by digest, each by its own name."""
    first = register(ledger, columns(ledger, [1]))
    second = register(ledger, columns(ledger, [1]), again="the bank lost the file")
    assert second == f"{first}-2"
    latest = ledger.find_digest(ledger.find(first).digest, Environment.TEST)
    assert latest is not None
    assert (latest.batch, latest.again_reason) == (second, "the bank lost the file")
    shouted = ledger.find_digest(latest.digest, Environment.TEST, "The Bank LOST the file")
    assert shouted == latest, "one reason pays once more: with another letter case it paid a third time"
    assert ledger.find_digest(latest.digest, Environment.TEST, "the bank lost it") is None
    assert ledger.find(first).batch == first
    assert [batch.batch for batch in ledger.batches()] == [second, first]
    with pytest.raises(WrongUse):
        ledger.find(first[:6])


@pytest.mark.parametrize("typed", [
    "l\u00f6hne \u00e9t\u00e9", "Lo\u0308hne E\u0301te\u0301", "L\u00d6HNE \u00c9T\u00c9",
    "\ufeffL\u00f6hne \u00c9t\u00e9 \u200b",
])  # fmt: skip
def test_one_reason_pays_once_more_in_whatever_letters(ledger: Ledger, typed: str) -> None:
    """Only the letters of ASCII were folded: typed in other letters, or on another system, one reason paid again.

    So did one that was copied from a page or a file, with characters that nobody sees.
    """
    register(ledger, columns(ledger, [1]))
    again = register(ledger, columns(ledger, [1]), again="L\u00f6hne \u00c9t\u00e9")
    found = ledger.find_digest(ledger.find(again).digest, Environment.TEST, typed)
    assert found is not None
    assert found.batch == again


@pytest.mark.parametrize("reference", ["", "nothing", "%", "*"])
def test_a_reference_that_names_no_batch_is_wrong_use(ledger: Ledger, reference: str) -> None:
    """Wild cards and the empty text name nothing."""
    with pytest.raises(WrongUse):
        ledger.find(None)
    register(ledger, columns(ledger, [1]))
    with pytest.raises(WrongUse):
        ledger.find(reference)


def test_pending_rows_come_in_file_order_with_their_exact_bodies(ledger: Ledger) -> None:
    """What was validated is, byte for byte, what is sent; each row is claimed once."""
    name = register(ledger, columns(ledger, range(1, 1501)))
    with held_run(ledger, name) as run:
        pages = [run.claim(700), run.claim(700), run.claim(700)]
        found = [payment for page in pages for payment in page]
        assert [payment.row for payment in found] == list(range(1, 1501))
        assert all(payment.body == body_of(payment.row).encode() for payment in found)
        assert run.claim(10) == []
        run.finish(None)


def test_a_row_that_came_back_stays_with_the_run_that_claimed_it(ledger: Ledger) -> None:
    """Its worker may repeat it; it is given out anew only by the next run, before the rows that nobody claimed."""
    name = register(ledger, columns(ledger, [1, 2, 3, 4]))
    with held_run(ledger, name) as run:
        assert [payment.row for payment in run.claim(2)] == [1, 2]
        run.commit([1, 2], [])
        run.commit([], [(1, NOT_SENT), (2, ACCEPTED)])
        assert [payment.row for payment in run.claim(1)] == [3]
        assert run.commit([1], []) == {1}
        run.commit([], [(1, NOT_SENT)])
        run.finish("stopped")
        again = ledger.start(name, "ben")
        assert [(payment.row, payment.attempts) for payment in again.claim(9)] == [(1, 2), (3, 0), (4, 0)]
        again.finish(None)


def test_intents_are_granted_once(ledger: Ledger) -> None:
    """A row in sending, or already answered, is granted to nobody."""
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with held_run(ledger, name) as run:
        assert run.commit([1, 2], []) == {1, 2}
        assert run.commit([2, 3, 4], [(1, ACCEPTED)]) == {3}
        assert run.commit([1], [(2, DECLINED), (3, IN_DOUBT)]) == set()
        run.finish(None)
    assert states(ledger, name) == {1: State.ACCEPTED, 2: State.DECLINED, 3: State.IN_DOUBT}
    assert ledger.check() == []


def test_an_answer_is_kept_with_its_times(ledger: Ledger) -> None:
    """Status, code, message, reference, reason, attempts and both times come back."""
    name = register(ledger, columns(ledger, [1]))
    with held_run(ledger, name) as run:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        run.commit([1], [])
        run.commit([1], [(1, NOT_SENT)])
        run.commit([], [(1, ACCEPTED)])
        run.finish("stopped by SIGTERM")
    (row,) = ledger.rows(name)
    assert row.answer == Answer(200, "1", "Approved", "TX-77")
    assert (row.attempts, row.reason, row.state) == (2, "success", State.ACCEPTED)
    assert row.sent_at is not None
    assert row.finished_at is not None
    assert before <= row.sent_at <= row.finished_at <= datetime.now(UTC)
    batch = ledger.find(name)
    assert batch.stopped == "stopped by SIGTERM"
    assert batch.started_at is not None
    assert batch.finished_at is not None


def test_a_commit_with_an_impossible_outcome_records_nothing_and_ends_the_run(ledger: Ledger) -> None:
    """An outcome for a row that is not in sending undoes the group; no further row is granted."""
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        with pytest.raises(LedgerNotUsable):
            run.commit([1], [(2, ACCEPTED)])
        with pytest.raises(LedgerNotUsable):
            run.commit([1], [])
        run.finish("the ledger failed")
    assert states(ledger, name) == {1: State.PENDING, 2: State.PENDING}


def test_rows_left_in_sending_are_in_doubt_at_the_next_start(ledger_factory: LedgerFactory) -> None:
    """Whatever ended the run, what may have been sent is never pending again; recovery is recorded."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3]))
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        ledger.start(name, "ada").commit([1, 2], [])
    ledger_factory.close()
    ledger = ledger_factory.open()
    assert states(ledger, name)[1] is State.SENDING
    with ledger.lock(digest):
        run = ledger.start(name, "ben")
        assert run.recovered == 2
        assert [payment.row for payment in run.claim(9)] == [3]
        run.finish(None)
        run = ledger.start(name, "ben")
        assert run.recovered == 0
        run.finish(None)
    assert states(ledger, name) == {1: State.IN_DOUBT, 2: State.IN_DOUBT, 3: State.PENDING}
    recovered = [(event.who, event.why, event.detail) for event in ledger.events(name) if event.kind == "recovered"]
    assert recovered == [("ben", RECOVERED_REASON, '{"in_doubt":"1-2"}')]
    assert ledger.check() == []


def test_a_row_that_is_being_sent_is_not_granted_again(ledger: Ledger) -> None:
    """A claim is no permission: of a row that was claimed twice nothing is known yet but that it may have left."""
    name = register(ledger, columns(ledger, [1, 2]), rejected([3]))
    with held_run(ledger, name) as run:
        assert run.commit([1], []) == {1}
        assert run.commit([1, 2, 3], []) == {2}
    assert [row.attempts for row in ledger.rows(name)] == [1, 1]


def test_a_run_that_was_replaced_is_granted_nothing(ledger: Ledger) -> None:
    """The token is checked with the write of sending: a run that slept meanwhile can't send or record."""
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as old:
        old.commit([1], [])
        new = ledger.start(name, "ben")
        with pytest.raises(LedgerNotUsable):
            old.commit([2], [])
        with pytest.raises(LedgerNotUsable):
            old.finish(None)
        assert new.commit([2], []) == {2}
        new.finish(None)
    assert states(ledger, name) == {1: State.IN_DOUBT, 2: State.SENDING}


def test_spilled_outcomes_are_merged_at_the_next_start(ledger_factory: LedgerFactory) -> None:
    """What the ledger could not take is not lost; a run that spilled sends nothing more."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3, 4]))
    with held_run(ledger, name) as run:
        run.commit([1, 2, 3], [])
        run.spill([(1, ACCEPTED)])
        run.spill([(2, DECLINED), (4, ACCEPTED)])
        with pytest.raises(LedgerNotUsable):
            run.commit([4], [])
    ledger_factory.close()
    ledger = ledger_factory.open()
    with held_run(ledger, name) as run:
        assert run.recovered == 1
        run.finish(None)
    assert states(ledger, name) == {
        1: State.ACCEPTED, 2: State.DECLINED, 3: State.IN_DOUBT, 4: State.PENDING,
    }  # fmt: skip
    assert next(iter(ledger.rows(name))).answer.gateway_reference == "TX-77"
    assert ledger.check() == []
    assert not list(ledger_factory.witness.parent.glob("witness.spill.*")), "what is taken in is not taken in again"


def test_a_group_may_be_larger_than_a_statement(ledger: Ledger) -> None:
    """A machine that was held up commits more at once than one statement takes: each row ends once."""
    name, numbers = register(ledger, columns(ledger, range(1, 251))), list(range(1, 251))
    with held_run(ledger, name) as run:
        assert run.commit(numbers, []) == set(numbers)
        run.commit([], [(row, ACCEPTED) for row in numbers])
        run.finish(None)
    assert set(states(ledger, name).values()) == {State.ACCEPTED}
    assert ledger.check() == []


def test_a_run_can_reject_rows_before_they_are_sent(ledger: Ledger) -> None:
    """Pending rows become rejected with their reason; a row already sent can't."""
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with held_run(ledger, name) as run:
        run.commit([1], [])
        run.reject([2, 3], "gatewayId.unknown")
        with pytest.raises(LedgerNotUsable):
            run.reject([1], "gatewayId.unknown")
        run.commit([], [(1, ACCEPTED)])
        run.finish(None)
    assert [(row.row, row.reasons) for row in ledger.rejected(name)] == [
        (2, ("gatewayId.unknown",)), (3, ("gatewayId.unknown",)),
    ]  # fmt: skip
    assert ledger.find(name).by_direction == {"DEBIT": Totals(1, 101), "CREDIT": Totals()}
    assert ledger.check() == []


def test_a_person_cancels_pending_rows_and_releases_them(ledger: Ledger) -> None:
    """All or none of the rows named, and nothing that was sent or may have been; the reason is kept."""
    name = register(ledger, columns(ledger, [1, 2, 3, 4]))
    with pytest.raises(BatchpayError, match="not held"):
        ledger.cancel(name, None, "ann", "billed twice")
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        run.commit([1, 2], [])
        run.commit([], [(1, ACCEPTED), (2, NOT_SENT)])
        run.finish("stopped")
        for rows in ([1], [3, 1], [3, 9]):
            with pytest.raises(WrongUse, match=f"row {rows[-1]} is not pending; nothing was cancelled"):
                ledger.cancel(name, rows, "ann", "billed twice")
        with pytest.raises(WrongUse, match="named person"):
            ledger.cancel(name, [3], "ann", " ")
        assert ledger.cancel(name, [3, 3], "ann", "billed twice") == 1
        assert [row.row for row in ledger.rows(name, [State.PENDING])] == [2, 4]
        assert ledger.cancel(name, None, "ben", "all of it") == 2
    assert [(row.row, row.reasons) for row in ledger.rejected(name)] == [(row, ("row.cancelled",)) for row in (2, 3, 4)]
    cancelled = [(one.who, one.why) for one in ledger.events(name) if one.kind == "cancelled"]
    assert (cancelled, ledger.check()) == ([("ann", "billed twice"), ("ben", "all of it")], [])
    assert release(ledger, name, [columns(ledger, [2, 3])], "ben", "they are owed") == 2
    with held_run(ledger, name) as run:
        assert [(one.row, one.body) for one in run.claim(9)] == [(row, body_of(row).encode()) for row in (2, 3)]
        run.finish("stopped")
    assert ledger.check() == []


def test_released_rows_are_pending_with_their_bodies(ledger: Ledger) -> None:
    """Only rejected rows are released, in the place they have in the file, and why is recorded."""
    name = register(ledger, columns(ledger, [1, 3, 5]), rejected([2, 4]))
    assert release(ledger, name, [columns(ledger, [1, 2]), columns(ledger, [4, 9])], "ben", "no duplicates") == 2
    assert release(ledger, name, [columns(ledger, [2])], "ben", "twice") == 0
    with held_run(ledger, name) as run:
        assert [(p.row, p.body) for p in run.claim(9)] == [(r, body_of(r).encode()) for r in range(1, 6)]
        run.commit([1, 2, 3, 4, 5], [])
        run.commit([], [(row, ACCEPTED) for row in range(1, 6)])
        run.finish(None)
    assert list(ledger.rejected(name)) == []
    assert ledger.find(name).by_state[State.ACCEPTED] == ledger.find(name).total
    assert [(event.who, event.why) for event in ledger.events(name) if event.kind == "released"] == [
        ("ben", "no duplicates")
    ]
    assert ledger.check() == []


def test_resolve_settles_rows_in_doubt_all_or_none(ledger: Ledger) -> None:
    """Each decision takes effect, with who and why in the history; one wrong row undoes all."""
    name = register(ledger, columns(ledger, range(1, 6)))
    send(ledger, name, {1: IN_DOUBT, 2: IN_DOUBT, 3: IN_DOUBT, 4: ACCEPTED}, "3 rows in doubt")
    for wrong in (
        [Decision(1, State.ACCEPTED), Decision(4, State.DECLINED)],
        [Decision(1, State.ACCEPTED), Decision(5, State.DECLINED)],
        [Decision(1, State.ACCEPTED), Decision(1, State.PENDING)],
        [Decision(1, State.REJECTED)],
        [Decision(1, State.SENDING)],
        [Decision(1, State.ACCEPTED), Decision(99, State.ACCEPTED)],
    ):
        with pytest.raises(WrongUse):
            ledger.resolve(name, wrong, "ben", "looked")
    for who, why in (("ben", " "), (" ", "looked")):
        with pytest.raises(WrongUse):
            ledger.resolve(name, [Decision(1, State.ACCEPTED)], who, why)
    assert [row.row for row in ledger.rows(name, [State.IN_DOUBT])] == [1, 2, 3]
    decisions = [Decision(1, State.ACCEPTED, "TX-9"), Decision(2, State.DECLINED), Decision(3, State.PENDING)]
    assert ledger.resolve(name, decisions, "ben", "asked the gateway") == 3
    rows = {row.row: row for row in ledger.rows(name)}
    assert [rows[row].state for row in (1, 2, 3)] == [State.ACCEPTED, State.DECLINED, State.PENDING]
    assert rows[1].answer.gateway_reference == "TX-9"
    assert {rows[row].reason for row in (1, 2, 3)} == {f"{SETTLED_BY}ben: asked the gateway"}
    event = list(ledger.events(name))[-1]
    assert (event.kind, event.who, event.why) == ("resolved", "ben", "asked the gateway")
    with held_run(ledger, name) as run:
        assert run.commit([3], []) == {3}
        run.commit([], [(3, ACCEPTED)])
        run.finish(None)
    assert ledger.check() == []


def test_a_row_without_an_answer_ends_when_a_person_settles_it(ledger: Ledger) -> None:
    """Its run was killed, so no answer has a time: what is settled ends at the decision, what is sent again has not."""
    name = register(ledger, columns(ledger, [1, 2]))
    with ledger.lock(ledger.find(name).digest):
        ledger.start(name, "ada").commit([1, 2], [])
        ledger.start(name, "ada").finish(None)
    decisions = [Decision(1, State.ACCEPTED, "TX-9"), Decision(2, State.PENDING)]
    ledger.resolve(name, decisions, "ben", "looked it up")
    settled, again = ledger.rows(name)
    assert settled.finished_at is not None
    assert settled.finished_at - datetime.now(UTC) < timedelta(minutes=5)
    assert again.finished_at is None
    payees = columns(ledger, [1, 2]).payees
    assert list(ledger.payee_facts(payees, Environment.TEST)) == [payees[0]], "a payee like one that was answered for"
    assert [json.loads(event.detail).get("references") for event in ledger.events() if event.kind == "resolved"] == [
        {"1": "TX-9"}
    ]


def test_a_gateway_is_moved_by_a_named_person_with_a_reason(ledger: Ledger) -> None:
    """From then on the batch's payments go somewhere else: that is nobody's decision but a person's."""
    name = register(ledger, columns(ledger, [1]))
    for who, why in (("", "new address"), ("ben", " ")):
        with pytest.raises(WrongUse, match="named person"):
            ledger.move_gateway([name], "https://elsewhere.example", "", who, why)
    assert ledger.find(name).origin == "http://127.0.0.1:9"
    ledger.move_gateway([name], "https://new.example", "", "ben", "new address")
    (moved,) = (event for event in ledger.events() if event.kind == "gateway moved")
    assert (ledger.find(name).origin, moved.who, moved.why) == ("https://new.example", "ben", "new address")
    assert json.loads(moved.detail) == {"from": "http://127.0.0.1:9", "to": "https://new.example"}
    with pytest.raises(WrongUse, match="there is no batch"):
        ledger.move_gateway([name, "0000"], "https://elsewhere.example", "", "ben", "new address")
    assert ledger.find(name).origin == "https://new.example", "all or none"


def test_what_is_usual_is_the_mean_of_what_was_accepted(ledger: Ledger) -> None:
    """Of three payments to one payee, rounded down; what was declined, or is of the same content, does not count."""
    names = {
        cents: register(ledger, columns(ledger, [1], salt=str(cents), amount_cents=cents), content=bytes(cents))
        for cents in (300, 400, 601, 9_000)
    }
    for cents, name in names.items():
        send(ledger, name, {1: DECLINED if cents == 9000 else ACCEPTED})
    payees, accounts = columns(ledger, [1]).payees, columns(ledger, [1]).accounts
    facts = ledger.payee_facts(payees, Environment.TEST)[payees[0]]
    assert facts.usual_cents == 433
    assert facts.accounts == {accounts[0]: ledger.find(names[300]).registered_at}, "known since the first of them"
    same = ledger.find(names[601]).digest
    assert ledger.payee_facts(payees, Environment.TEST, same)[payees[0]].usual_cents == 350


def test_details_without_an_account_have_no_last_four(ledger: Ledger) -> None:
    """Nobody's last four are `None`: it would be held against an export."""
    details = PackedTexts.of(['{"account":null}', "{}"])
    name = register(ledger, replace(columns(ledger, [1, 2]), details=details))
    assert [row.last_four for row in ledger.rows(name)] == ["", ""]


def test_earlier_payments_are_found_by_payment_id_for_ever(ledger: Ledger) -> None:
    """The same paymentId counts whatever else differs; other fingerprints of named rows don't."""
    first = register(ledger, columns(ledger, [1, 2, 3], named=[1, 2]))
    later = columns(ledger, [11, 12], named=[11, 12], salt="other")
    ids = ledger.digest("id", ["P1", "P5"], 16)
    found = ledger.earlier(
        Lookup(later.rows, later.fingerprints, ids),
        Environment.TEST,
        days=5,
        now=datetime.now(UTC) + timedelta(days=900),
    )
    assert [(one.row, one.same, one.earlier_batch, one.earlier_row) for one in found] == [
        (11, SamePayment.PAYMENT_ID, first, 1)
    ]


BILL, ANOTHER_ID = SamePayment.BILL, SamePayment.ANOTHER_ID


@pytest.mark.parametrize("with_invoice", [True, False])
@pytest.mark.parametrize("earlier_has_id", [True, False])
@pytest.mark.parametrize("later_has_id", [True, False])
def test_the_same_bill_counts_for_some_days_or_for_ever(
    ledger: Ledger, earlier_has_id: bool, later_has_id: bool, with_invoice: bool
) -> None:
    """Within the days every equal bill counts: an export may number its payments anew.

    Later it counts where it has an invoice number and a row has no paymentId; under two paymentIds it is told, since
    rents and salaries repeat.
    """
    first = register(ledger, columns(ledger, [1], named=[1] if earlier_has_id else []))
    send(ledger, first, {1: ACCEPTED})
    later = columns(ledger, [1], named=[1] if later_has_id else [], id_salt="x")
    lookup = Lookup([7], later.fingerprints, later.payment_ids, [with_invoice])
    afterwards = ANOTHER_ID if earlier_has_id and later_has_id else BILL if with_invoice else None
    for after_days, days, same in ((4.9, 5, BILL), (5.1, 5, afterwards), (0, 0, afterwards), (-1, 0, afterwards)):
        now = datetime.now(UTC) + timedelta(days=after_days)
        found = ledger.earlier(lookup, Environment.TEST, days=days, now=now)
        assert [(one.row, one.same, one.earlier_batch, one.earlier_row) for one in found] == (
            [(7, same, first, 1)] if same else []
        )
        assert all(abs(one.at - datetime.now(UTC)) < timedelta(minutes=5) for one in found)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("state", [State.PENDING, State.SENDING, State.IN_DOUBT])
def test_a_bill_that_is_not_settled_is_not_days_ago(ledger: Ledger, state: State, named: bool) -> None:
    """It was still to be sent, and counted from its registration: after five days another file paid it as well.

    Only where bills are not compared at all it is none either.
    """
    first = register(ledger, columns(ledger, [1], named=[1] if named else []))
    with held_run(ledger, first) as run:
        run.commit([1] if state is not State.PENDING else [], [])
        run.commit([], [(1, IN_DOUBT)] if state is State.IN_DOUBT else [])
        run.close()
    assert states(ledger, first)[1] is state
    later = columns(ledger, [1], named=[1] if named else [], id_salt="x")
    lookup = Lookup([7], later.fingerprints, later.payment_ids, [False])
    now = datetime.now(UTC) + timedelta(days=40)
    (found,) = ledger.earlier(lookup, Environment.TEST, days=1, now=now)
    assert (found.same, found.earlier_batch) == (BILL, first)
    assert abs(found.at - datetime.now(UTC)) < timedelta(minutes=5), "it is told with its own day"
    never = ledger.earlier(lookup, Environment.TEST, days=0, now=now)
    assert [one.same for one in never] == ([ANOTHER_ID] if named else [])


def test_a_bill_that_waited_is_as_old_as_its_sending(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch waited ten days for an approval and was sent yesterday: by its registration, it would be long ago."""
    first, sent_at = register(ledger, columns(ledger, [1])), datetime.now(UTC) + timedelta(days=10)
    for clock in ("sqlite.run.now_ms", "machine.SharedClock.now_ms"):
        monkeypatch.setattr(f"batchpay.ledger.{clock}", lambda *_: int(sent_at.timestamp() * 1000))
    send(ledger, first, {1: ACCEPTED})
    later = columns(ledger, [1])
    lookup = Lookup([7], later.fingerprints, later.payment_ids, [False])
    for days, same in ((1, [BILL]), (6, [])):
        found = ledger.earlier(lookup, Environment.TEST, days=5, now=sent_at + timedelta(days=days))
        assert [one.same for one in found] == same
        assert all(abs(one.at - sent_at) < timedelta(seconds=1) for one in found)


def test_of_several_earlier_payments_the_nearest_counts(ledger: Ledger) -> None:
    """A paymentId comes before a bill, and of equal ones the latest is named: a person looks there."""
    assert ANOTHER_ID < BILL < SamePayment.PAYMENT_ID
    batches = [
        register(ledger, columns(ledger, [1], named=[1], id_salt=str(number)), content=bytes([number]))
        for number in (1, 2, 3)
    ]
    for id_salt, same, batch in (("2", SamePayment.PAYMENT_ID, batches[1]), ("new", BILL, batches[2])):
        later = columns(ledger, [1], named=[1], id_salt=id_salt)
        lookup = Lookup([7], later.fingerprints, later.payment_ids)
        found = ledger.earlier(lookup, Environment.TEST, days=5, now=datetime.now(UTC))
        assert [(one.same, one.earlier_batch) for one in found] == [(same, batch)]


def test_rejected_and_declined_rows_and_the_same_content_do_not_count_as_earlier(ledger: Ledger) -> None:
    """Pending, sending, sent and in-doubt rows hold an equal payment back; those that were not made don't."""
    name = register(ledger, columns(ledger, range(1, 7), named=range(1, 6)))
    with held_run(ledger, name) as run:
        run.commit([1, 2, 3, 5], [])
        run.commit([], [(1, ACCEPTED), (2, DECLINED), (3, IN_DOUBT)])
        run.reject([4], "gatewayId.unknown")
        run.close()
    assert states(ledger, name)[5] is State.SENDING, "a run was killed while row 5 was under way"
    later = columns(ledger, range(1, 7), named=range(1, 6))
    lookup = Lookup(later.rows, later.fingerprints, later.payment_ids)
    found = ledger.earlier(lookup, Environment.TEST, days=5, now=datetime.now(UTC))
    assert [one.row for one in found] == [1, 3, 5, 6]
    digest = ledger.find(name).digest
    assert ledger.earlier(lookup, Environment.TEST, days=5, now=datetime.now(UTC), exclude_digest=digest) == []


def test_payments_to_accounts_are_those_that_were_or_may_have_been_made_since(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the later of registration and sending: a batch may wait for days. With what tells two payments apart."""
    shown = [{"invoiceNumber": "I-1", "paymentId": "P"}, {"invoiceNumber": "I-2"}, *[{}] * 4]
    payments = replace(columns(ledger, range(1, 7)), details=PackedTexts.of(map(json.dumps, shown)))
    name, registered_at = register(ledger, payments), datetime.now(UTC)
    sent_at = registered_at + timedelta(days=10)
    for clock in ("sqlite.run.now_ms", "machine.SharedClock.now_ms"):
        monkeypatch.setattr(f"batchpay.ledger.{clock}", lambda *_: int(sent_at.timestamp() * 1000))
    with held_run(ledger, name) as run:
        run.commit([1, 2, 3, 4], [])
        run.commit([], [(1, ACCEPTED), (2, IN_DOUBT), (3, DECLINED)])
        run.close()
    digest, day = ledger.find(name).digest, timedelta(days=1)

    def paid(since: datetime, but: bytes = b"", world: Environment = Environment.TEST) -> list[tuple[Any, ...]]:
        found = ledger.paid_to(lambda: [*payments.accounts[:5], b"8 others"], world, since, but)
        return [(one.row, one.direction, one.amount_cents, one.invoice, one.has_payment_id) for one in found]

    expected = [(1, "DEBIT", 101, "I-1", True), (2, "DEBIT", 201, "I-2", False), (4, "DEBIT", 401, "", False)]
    assert paid(registered_at - day) == paid(sent_at - day) == expected
    assert paid(sent_at + day) == paid(sent_at - day, digest) == paid(sent_at - day, world=Environment.LIVE) == []
    first, *_ = ledger.paid_to(lambda: payments.accounts, Environment.TEST, sent_at - day, b"")
    assert (first.account, first.batch, first.place) == (payments.accounts[0], name, "line 2")
    assert abs(first.at - sent_at) < timedelta(seconds=1)


def test_a_batch_alone_can_be_looked_at(ledger: Ledger) -> None:
    """Rows that are to be released are compared with their own batch: not with one that pays its content again."""
    first = register(ledger, columns(ledger, [1, 2], named=[2]))
    again = register(ledger, columns(ledger, [2, 3], named=[2]), again="once more")
    later = columns(ledger, [1, 2, 3], named=[2])
    lookup = Lookup(later.rows, later.fingerprints, later.payment_ids, [True] * 3)
    for batch, rows in ((first, [1, 2]), (again, [2, 3])):
        found = ledger.earlier(lookup, Environment.TEST, days=0, now=datetime.now(UTC), within=batch)
        assert [(one.row, one.earlier_batch, one.earlier_row) for one in found] == [(row, batch, row) for row in rows]


def test_a_batch_is_held_by_one_run_at_a_time(ledger: Ledger) -> None:
    """A second hold fails at once, on another batch it doesn't; afterwards it is free again."""
    with ledger.lock(b"a" * 32):
        with pytest.raises(BatchHeld), ledger.lock(b"a" * 32):
            pass
        with ledger.lock(b"b" * 32):
            pass
    with ledger.lock(b"a" * 32):
        pass


def test_whether_a_batch_is_held_is_seen_without_holding_it(ledger: Ledger) -> None:
    """Health took the lock of each waiting batch to look: a run that began at that instant was told of another one."""
    assert not ledger.is_held(b"a" * 32)
    with ledger.lock(b"a" * 32):
        assert ledger.is_held(b"a" * 32)
        assert not ledger.is_held(b"b" * 32)
    assert not ledger.is_held(b"a" * 32)


def test_what_a_killed_run_was_sending_is_seen_before_anybody_takes_it_over(ledger: Ledger) -> None:
    """Nobody may ever do so: its file may be gone. While a run holds the batch, its rows are its own."""
    name = register(ledger, columns(ledger, range(1, 5)))
    with held_run(ledger, name) as run:
        run.commit([1, 2, 3], [])
        run.commit([], [(1, ACCEPTED)])
        assert ledger.abandoned(ledger.find(name)) == []
        run.spill([(2, ACCEPTED)])
        run.close()
    assert [row.row for row in ledger.abandoned(ledger.find(name))] == [3], "row 2 has an answer, which is merged"
    earlier = ledger.find(name)
    with ledger.lock(earlier.digest):
        ledger.start(name, "ada").finish(None)
    assert ledger.abandoned(earlier) == [], "it was in doubt by the time it was read"


def test_a_run_starts_only_while_its_batch_is_held(ledger: Ledger) -> None:
    """Without the hold two runs would take the batch from each other, and neither would know."""
    name = register(ledger, columns(ledger, [1]))
    digest = ledger.find(name).digest
    for _ in range(2):
        with pytest.raises(BatchpayError, match="not held"):
            ledger.start(name, "ada")
        with ledger.lock(digest):
            ledger.start(name, "ada").finish(None)


def test_a_batch_whose_states_do_not_add_up_is_not_told(ledger_factory: LedgerFactory) -> None:
    """Whatever was edited since the ledger was opened: a sum that nobody can trust is not shown to anybody."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    if isinstance(ledger_factory, PostgresFactory):
        ledger_factory.run("UPDATE batchpay.total SET cents = cents + 1")
    else:
        with closing(sqlite3.connect(ledger_factory.path, isolation_level=None)) as connection:
            connection.execute("UPDATE total SET cents = cents + 1")
    for read in (ledger.batches, lambda: [ledger.find(name)]):
        with pytest.raises(LedgerDamaged, match="do not add up to its control totals"):
            read()


def test_history_tells_who_did_what(ledger: Ledger) -> None:
    """Events are numbered without a gap, oldest first, and can be asked for by batch."""
    first = register(ledger, columns(ledger, [1]))
    second = register(ledger, columns(ledger, [1], salt="x"), content=b"two")
    send(ledger, second, {1: ACCEPTED})
    assert [event.number for event in ledger.events()] == list(range(1, 8))
    assert [event.kind for event in ledger.events(first)] == ["registered"]
    assert [(event.kind, event.who) for event in ledger.events(second)] == [
        (kind, "ada") for kind in ("registered", "started", "progress", "progress", "finished")
    ]


@pytest.mark.ledgers("sqlite", why="a database is backed up by its own means")
def test_a_backup_is_a_whole_ledger(ledger_factory: LedgerFactory, tmp_path: Path) -> None:
    """The copy has mode 0600, is never written over another file, and reads back as the same ledger."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 30)))
    target = tmp_path / "copy.db"
    ledger.backup(target)
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LedgerNotUsable):
        ledger.backup(target)
    before = list(ledger.rows(name))
    ledger_factory.close()
    target.replace(ledger_factory.path)
    accept(ledger_factory.settings, "ben", "the disk died; nothing was paid since")
    assert list(ledger_factory.open().rows(name)) == before


def test_a_ledger_open_for_reading_can_be_read_and_not_written(ledger_factory: LedgerFactory) -> None:
    """Every way to write refuses."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    ledger_factory.close()
    ledger = ledger_factory.open(read_only=True)
    assert states(ledger, name) == {1: State.PENDING}
    assert ledger.check() == []
    digest = ledger.find(name).digest
    with pytest.raises(LedgerNotUsable), ledger.lock(digest):
        ledger.start(name, "ada")
    with pytest.raises(LedgerNotUsable):
        register(ledger, columns(ledger, [2]), content=b"two")


def test_a_payment_that_would_not_be_known_again_is_found(ledger_factory: LedgerFactory) -> None:
    """Somebody emptied the table of bills by hand: the ledger was in order, and paid files could be paid anew."""
    ledger = ledger_factory.create()
    register(ledger, columns(ledger, [1, 2]), rejected([3]))
    assert ledger.check() == []
    if isinstance(ledger_factory, PostgresFactory):
        ledger_factory.run("DELETE FROM batchpay.fingerprint WHERE row = 2")
    else:
        with closing(sqlite3.connect(ledger_factory.path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM fingerprint WHERE id & 4294967295 = 2")
    assert ledger.check() == ["the ledger is damaged: 1 payment would not be known if it came again"]
