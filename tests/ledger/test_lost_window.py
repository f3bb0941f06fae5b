"""A ledger that was put back to what it was registers nothing new until a person has settled what it lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import pytest

from batchpay.errors import LedgerBehind, WaitingForPerson, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept, confirm, open_ledger
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.records import SignOff
from batchpay.ledger.sqlite.ledger import SqliteLedger
from batchpay.payment import State, Totals
from tests.ledger.batches import ACCEPTED, columns, register, rejected, send
from tests.ledger.factories import LedgerFactory


@pytest.fixture
def closed(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger with a batch of three pending rows and a rejected one."""
    register(ledger_factory.create(), columns(ledger_factory.open(), [1, 2, 3]), rejected([4]))
    ledger_factory.close()
    return ledger_factory


def restored(factory: LedgerFactory) -> int:
    """Keep a copy, send a row, put the copy back; gives how many events were lost."""
    ledger = factory.open()
    factory.keep()
    before = len(list(ledger.events()))
    send(ledger, None, {1: ACCEPTED}, "stopped")
    lost = len(list(ledger.events())) - before
    factory.close()
    factory.put_back()
    return lost


def test_an_acceptance_by_an_earlier_version_holds_nothing_back(closed: LedgerFactory) -> None:
    """It did not write down what was lost, and its ledgers went on long ago."""
    ledger = closed.open()
    assert isinstance(ledger, SqliteLedger | PostgresLedger)
    with ledger.store.transaction() as transaction:
        transaction.event("witness accepted", None, "ben", "the disk died", {"doubted": 0})
    assert ledger.lost_window() is None


def test_a_ledger_in_which_nothing_differs_is_accepted_only_with_its_rows_in_doubt(closed: LedgerFactory) -> None:
    """To be sure: it was "accepted" in passing, and from then on refused every new file as if something were lost."""
    with pytest.raises(WrongUse, match="there is nothing to accept"):
        accept(closed.settings, "ben", "to be sure")
    assert closed.open().lost_window() is None
    closed.close()
    assert closed.accept_loss("the whole machine was brought back", rows_in_doubt=True).last_event is None


def test_a_restored_ledger_says_what_is_lost_and_registers_nothing_new(closed: LedgerFactory) -> None:
    """New content waits for a person, exit code 8; so does a release. Settled, it goes on."""
    lost = restored(closed)
    with pytest.raises(LedgerBehind, match=r"brought back from a backup.*ledger accept"):
        closed.open()
    assert isinstance(closed.open(read_only=True).differences[0], LedgerBehind)
    closed.close()
    accepted = accept(closed.settings, "ben", "the disk died")
    assert accepted.marked_in_doubt == 3
    assert accepted.lost is not None
    assert (accepted.lost.first_event, accepted.lost.last_event) == (3, 2 + lost)
    assert timedelta() <= datetime.now(UTC) - accepted.lost.since < timedelta(minutes=5)
    assert str(accepted.lost).startswith(f"events 3 to {2 + lost} are lost: what was done since 20")
    ledger = closed.open()
    assert ledger.find(None).by_state[State.IN_DOUBT].rows == 3
    by = [(event.who, event.why) for event in ledger.events() if event.kind == "witness accepted"]
    assert by == [("ben", "the disk died")]
    assert ledger.lost_window() == accepted.lost
    with pytest.raises(WaitingForPerson, match="ledger accept --confirm") as refused:
        register(ledger, columns(ledger, [1], salt="new"), content=b"new")
    assert refused.value.exit_code == 8
    with pytest.raises(WaitingForPerson):
        ledger.release(
            ledger.find(None).batch, [columns(ledger, [4])], "ben", "looked",
            registration_count_seen=ledger.registration_count(),
        )  # fmt: skip
    assert len(ledger.batches()) == 1
    closed.close()
    confirm(closed.settings, "ben", "held against the bank's list of Friday")
    ledger = closed.open()
    assert ledger.lost_window() is None
    register(ledger, columns(ledger, [1], salt="new"), content=b"new")
    event = next(event for event in ledger.events() if event.kind == "lost window settled")
    assert (event.who, event.why) == ("ben", "held against the bank's list of Friday")
    assert ledger.check() == []


def test_what_was_lost_is_confirmed_once(closed: LedgerFactory) -> None:
    """There must be something to confirm; a later restore opens it anew."""
    with pytest.raises(WrongUse, match="nothing that this ledger lost"):
        confirm(closed.settings, "ben", "x")
    for _ in range(2):
        closed.witness.unlink()
        lost = closed.accept_loss("the witness is gone")
        assert lost.last_event is None
        assert "nobody knows" in str(lost)
        confirm(closed.settings, "ben")
        with pytest.raises(WrongUse, match="nothing that this ledger lost"):
            confirm(closed.settings, "ben", "looked again")


def test_a_second_acceptance_forgets_nothing_that_the_first_lost(closed: LedgerFactory) -> None:
    """The command typed twice, and a copy restored again: whoever compares must still begin at the first loss."""
    restored(closed)
    first = closed.accept_loss("the disk died")
    ledger = closed.open()
    closed.keep()
    for _ in range(9):
        ledger.note_backup("cron", "copy.db")
    closed.close()
    closed.put_back()
    second = closed.accept_loss("and once more")
    assert (second.since, second.first_event) == (first.since, first.first_event)
    assert second.last_event is not None
    assert first.last_event is not None
    assert second.last_event > first.last_event
    third = closed.accept_loss("typed again, to be sure", rows_in_doubt=True)
    assert (third.since, third.first_event, third.last_event) == (first.since, first.first_event, None)
    assert closed.open().lost_window() == third
    closed.close()
    confirm(closed.settings, "ben", "the whole week was compared")
    assert closed.accept_loss("brought back", rows_in_doubt=True).since > first.since


def test_a_run_of_a_known_batch_goes_on_in_a_restored_ledger(closed: LedgerFactory) -> None:
    """Only new content waits: what a person has put back to pending is sent."""
    restored(closed)
    accept(closed.settings, "ben", "the disk died")
    ledger = closed.open()
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "ada")
        assert run.claim(9) == []
        run.finish(None)
    assert ledger.find(None).by_state[State.IN_DOUBT].rows == 3


def test_a_ledger_restored_while_a_command_reads_its_payments_sends_nothing(closed: LedgerFactory) -> None:
    """`cp` writes into the same file, which nothing else shows: what was sent since the copy was sent once more."""
    before = open_ledger(closed.settings)
    closed.keep()
    send(closed.open(), None, {1: ACCEPTED}, "stopped")
    closed.close()
    closed.put_back()
    with closing(before), pytest.raises(LedgerBehind, match=r"older than .* witness"):
        send(before, None, {1: ACCEPTED}, "stopped")


WRITES: list[Callable[[Ledger, str, int], object]] = [
    lambda ledger, _, number: register(ledger, columns(ledger, [1], salt=str(number)), content=bytes([number])),
    lambda ledger, batch, number: ledger.use_plan(
        batch, "ann", SignOff(f"p{number}", "5EA15EA15EA1", "ann", (), Totals(), Totals())
    ),
    lambda ledger, batch, number: ledger.move_gateway([batch], f"https://{number}.example", "", "ann", "their letter"),
    lambda ledger, _, number: ledger.note_person("ann", f"added {number}"),
]


@pytest.mark.parametrize("write", WRITES, ids=["file", "plan", "address", "person"])
def test_commands_that_were_under_way_do_not_hide_that_the_ledger_was_restored(
    closed: LedgerFactory, write: Callable[[Ledger, str, int], object]
) -> None:
    """Two that had it open each wrote: the witness then knew nothing else, and whatever was lost was sent.

    Nor does what a person decides in a third of them, and every command after them found nothing wrong.
    """
    with ExitStack() as opened:
        under_way = [opened.enter_context(closing(open_ledger(closed.settings))) for _ in range(3)]
        closed.keep()
        batch = under_way[0].find(None)
        send(closed.open(), None, {1: ACCEPTED}, "stopped")
        closed.close()
        closed.put_back()
        for number, ledger in enumerate(under_way[:2]):
            with pytest.raises(LedgerBehind, match=r"older than .* witness"), ledger.lock(batch.digest):
                write(ledger, batch.batch, number)
        with pytest.raises(LedgerBehind, match=r"older than .* witness"):
            under_way[2].note_person("ann", "may approve")
    with pytest.raises(LedgerBehind, match=r"older than .* witness"):
        closed.open()


def test_what_is_recorded_after_a_restore_was_accepted_meanwhile_is_known_after_the_next(closed: LedgerFactory) -> None:
    """A command that was under way wrote to the witness that was replaced: a second restore went unnoticed."""
    under_way = closed.open()
    under_way.note_person("ann", "added eve")
    accept(closed.settings, "ann", "the disk died", rows_in_doubt=True)
    confirm(closed.settings, "ann", "compared with the gateway's list")
    closed.keep()
    register(under_way, columns(under_way, [1, 2], salt="new"), content=b"new")
    closed.close()
    closed.put_back()
    with pytest.raises(LedgerBehind, match=r"older than .* witness"):
        closed.open()
