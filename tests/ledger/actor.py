"""A process of its own that uses a ledger: `python actor.py FOLDER DEED [ARGUMENT]`; says what it did, line by line."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from batchpay.errors import BatchHeld, LedgerNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.days import DayLimits
from batchpay.ledger.facts import FactKind, NewFact
from batchpay.payment import Environment
from tests.ledger.batches import ACCEPTED, DECLINED, columns, register
from tests.ledger.factories import LedgerFactory


def say(word: str, value: object = None) -> None:
    """One line for the test."""
    print(json.dumps([word, value]), flush=True)


def hold_and_wait(ledger: Ledger, _: str) -> None:
    """Hold the batch, leave rows 1 and 2 in sending, wait to be killed."""
    batch = ledger.find(None)
    with ledger.lock(batch.digest):
        run = ledger.start(batch.batch, "actor")
        run.commit([1, 2], [])
        say("held")
        signal.pause()


def send(ledger: Ledger, _: str) -> None:
    """Send every pending row, a few at a time; say each row before its outcome is recorded."""
    batch = ledger.find(None)
    try:
        with ledger.lock(batch.digest):
            run = ledger.start(batch.batch, "actor")
            while payments := run.claim(3):
                granted = run.commit([payment.row for payment in payments], [])
                for row in sorted(granted):
                    say("sent", row)
                try:
                    run.commit([], [(row, ACCEPTED) for row in granted])
                except LedgerNotUsable:
                    run.spill([(row, ACCEPTED) for row in granted])
                    raise
            run.finish(None)
    except BatchHeld:
        say("held by another")


def send_with_little_room(ledger: Ledger, limit: str) -> None:
    """Send where no file may grow beyond a size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    send(ledger, "")


def register_many(ledger: Ledger, name: str) -> None:
    """Register twenty small batches one after another, each with a run."""
    for number in range(20):
        while True:
            try:
                batch = register(
                    ledger, columns(ledger, [1, 2], salt=f"{name}{number}"), content=f"{name}{number}".encode()
                )
                break
            except LedgerNotUsable as error:
                if type(error) is LedgerNotUsable:
                    raise
        digest = ledger.find(batch).digest
        with ledger.lock(digest):
            run = ledger.start(batch, name)
            run.commit([1, 2], [])
            run.commit([], [(1, ACCEPTED), (2, ACCEPTED)])
            run.finish(None)
    say("registered")


def send_within(ledger: Ledger, batch_and_decliner: str) -> None:
    """Send rows of a batch within 10.00 a day, three at a time; where it is asked for, every other one is declined."""
    name, declines = batch_and_decliner.split()
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "actor", limits=DayLimits(max_per_day=10_00, max_per_payee_day=3_00))
        while payments := run.claim(3):
            granted = run.commit([payment.row for payment in payments], [])
            say("sent", len(granted))
            run.commit([], [(row, DECLINED if declines == "True" and row % 2 else ACCEPTED) for row in granted])
        run.finish(None)


def purge(ledger: Ledger, _: str) -> None:
    """Purge all that is final."""
    ledger.purge(datetime.now(UTC) + timedelta(days=1), "actor", "retention rule 7")
    say("purged")


def take_in_returns(ledger: Ledger, when: str) -> None:
    """Record that row 1 came back, and wait to be killed before or after the event, in one transaction with it."""
    transaction = ledger.store.begin()  # type: ignore[attr-defined]
    transaction.rollback()
    kind = type(transaction)
    real = kind.event

    def wait(self: object, *told: object) -> None:
        if when == "after":
            real(self, *told)
        say("waits")
        signal.pause()

    kind.event = wait
    fact = NewFact(FactKind.RETURNED, ledger.find(None).batch, 1, "R02", date(2026, 11, 27), 101, 2)
    ledger.record_facts([fact], Environment.TEST, "returns.csv", "ab", "actor", unattended=True)


DEEDS: dict[str, Callable[[Ledger, str], None]] = {
    "hold": hold_and_wait,
    "send": send,
    "send with little room": send_with_little_room,
    "send within": send_within,
    "register": register_many,
    "purge": purge,
    "take in returns": take_in_returns,
}


def main() -> None:
    """Do what the command line says; a ledger that refuses is said, not raised."""
    folder, deed, *argument = sys.argv[1:]
    factory = LedgerFactory(Path(folder), os.environ.get("LEDGER"))
    say("ready")
    try:
        ledger = factory.open()
        DEEDS[deed](ledger, *(argument or [""]))
        ledger.close()
    except LedgerNotUsable as error:
        say("refused", [type(error).__name__, str(error)])


if __name__ == "__main__":
    main()
