"""Several batches in one ledger: what is asked of one, no other answers; the docs' queries for monitoring."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BACKED_UP
from batchpay.payment import Environment
from tests.ledger.batches import ACCEPTED, IN_DOUBT, columns, held_run, register, rejected, send
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.test_docs import blocks

SOON = datetime.now(UTC) + timedelta(days=400)
"""Whatever happens in a test is long ago by then."""


def earlier_rows(ledger: Ledger, rows: list[int], *, now: datetime, but: str) -> list[tuple[int, str]]:
    """Which rows are the same bills as earlier ones of the last day, and of which batch."""
    asked = columns(ledger, rows)
    lookup = Lookup(asked.rows, asked.fingerprints, asked.payment_ids)
    digest = ledger.find(but).digest
    found = ledger.earlier(lookup, Environment.TEST, days=1, now=now, exclude_digest=digest)
    return [(one.row, one.earlier_batch) for one in found]


def test_content_is_no_duplicate_of_itself_beside_another_batch(ledger: Ledger) -> None:
    """A file that is submitted again is held against the others alone."""
    first = register(ledger, columns(ledger, [1, 2]))
    other = register(ledger, columns(ledger, [2, 3]), content=b"two")
    assert earlier_rows(ledger, [1, 2], now=datetime.now(UTC), but=first) == [(2, other)]


def test_a_payment_is_as_old_as_its_own_last_attempt(ledger_factory: LedgerFactory) -> None:
    """A batch may lie for months before it goes: what was sent today is new, and makes nothing else in it new."""
    ledger = ledger_factory.create()
    first = register(ledger, columns(ledger, [1, 2]))
    other = register(ledger, columns(ledger, [9]), content=b"two")
    send(ledger, first, dict.fromkeys([1, 2], ACCEPTED))
    ledger_factory.close()
    ledger_factory.edit(
        sqlite="UPDATE batch SET registered_at = 0", postgres="UPDATE batchpay.batch SET registered_at = 0"
    )
    ledger_factory.edit(
        sqlite="UPDATE attempt SET sent_at = 0 WHERE id = (SELECT max(id) FROM attempt)",
        postgres="UPDATE batchpay.payment SET sent_at = 0 WHERE batch = 1 AND row = 2",
    )
    assert earlier_rows(ledger_factory.open(read_only=True), [1, 2], now=datetime.now(UTC), but=other) == [(1, first)]


def test_a_batch_that_is_finished_closes_no_other(ledger: Ledger) -> None:
    """Its requests are erased; those of the other are still there to be sent."""
    first = register(ledger, columns(ledger, [1, 2]))
    other = register(ledger, columns(ledger, [3, 4]), content=b"two")
    for name, rows in ((other, [3, 4]), (first, [1, 2])):
        send(ledger, name, dict.fromkeys(rows, ACCEPTED))
        assert ledger.check() == []


def test_a_run_claims_rows_of_its_own_batch_alone(ledger: Ledger) -> None:
    """Behind its last row the next batch begins, which waits as well."""
    first = register(ledger, columns(ledger, [1, 2]))
    register(ledger, columns(ledger, [1, 2, 3], salt="2"), content=b"two")
    with held_run(ledger, first) as run:
        assert [payment.row for payment in run.claim(10)] == [1, 2]
        assert run.claim(10) == []
        run.finish(None)


def test_what_is_known_of_a_payee_is_of_that_one_alone(ledger: Ledger) -> None:
    """Neither of others, nor what a batch that does not count paid to it later."""
    first = register(ledger, columns(ledger, [1, 2]))
    later = register(ledger, columns(ledger, [1], salt="2"), content=b"two")
    send(ledger, first, dict.fromkeys([1, 2], ACCEPTED))
    send(ledger, later, dict.fromkeys([1], ACCEPTED))
    asked, but = columns(ledger, [1]).payees, ledger.find(later).digest
    assert ledger.payee_facts(asked, Environment.TEST).keys() == set(asked)
    assert ledger.last_accounts(asked, Environment.TEST, exclude_digest=but) == {asked[0]: "****6789"}


def test_rejected_rows_are_those_of_one_batch(ledger: Ledger) -> None:
    """The batch before it and the one behind it have some as well."""
    names = [
        register(ledger, columns(ledger, [first]), rejected([first + 1]), content=bytes([first])) for first in (1, 3, 5)
    ]
    assert [[row.row for row in ledger.rejected(name)] for name in names] == [[2], [4], [6]]


def test_a_purge_looks_at_each_batch_alone(ledger: Ledger) -> None:
    """One was purged before, one waits to be sent: neither keeps the third from being purged, nor counts with it."""
    first = register(ledger, columns(ledger, [1, 2]))
    send(ledger, first, dict.fromkeys([1, 2], ACCEPTED))
    assert [one.batch for one in ledger.purge(SOON, "ann", "rule 7").erased] == [first]
    second = register(ledger, columns(ledger, [3, 4], salt="2"), rejected([5]), content=b"two")
    send(ledger, second, dict.fromkeys([3, 4], ACCEPTED))
    waiting = register(ledger, columns(ledger, [6, 7, 8], salt="3"), content=b"three")
    assert ledger.check() == []
    assert [(one.batch, one.rows) for one in ledger.old_batches(SOON)] == [(second, 2), (waiting, 3)]
    assert [one.batch for one in ledger.purge(SOON, "ann", "rule 7").erased] == [second]
    details = [json.loads(event.detail)["rows"] for event in ledger.events() if event.kind == "purged"]
    assert details == [2, 2]
    assert ledger.check() == []


def test_a_purge_erases_the_messages_of_one_batch(ledger: Ledger) -> None:
    """The batches before it and behind it have rows that wait, so the gateway's words about the others stay."""
    names = [
        register(ledger, columns(ledger, [1, 2], salt=salt), content=salt.encode())
        for salt in ("before", "it", "behind")
    ]
    for name, rows in zip(names, ([1], [1, 2], [1]), strict=True):
        send(ledger, name, dict.fromkeys(rows, ACCEPTED))
    assert [one.batch for one in ledger.purge(SOON, "ann", "rule 7").erased] == [names[1]]
    messages = [[row.answer.message for row in ledger.rows(name)] for name in names]
    assert messages == [["Approved", None], [None, None], ["Approved", None]]
    details = [json.loads(event.detail) for event in ledger.events() if event.kind == "purged"]
    assert details == [{"rows": 2, "messages": 2}]
    assert ledger.check() == []


def test_a_gateway_that_moves_makes_no_batch_young(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happened to its payments; what a run did to them did, at its end."""
    name = register(ledger, columns(ledger, [1]))
    send(ledger, name, dict.fromkeys([1], ACCEPTED))
    done = [event for event in ledger.events(name) if event.kind == "finished"]
    (before,) = ledger.old_batches(SOON)
    for clock in ("sqlite.store.now_ms", "machine.SharedClock.now_ms"):
        monkeypatch.setattr(f"batchpay.ledger.{clock}", lambda *_: int(SOON.timestamp() * 1000) - 1)
    with ledger.lock(ledger.find(name).digest):
        ledger.move_gateway([name], "http://127.0.0.1:10", "", "ada", "their letter of May")
    assert [event.at for event in ledger.events(name)][-1] > before.last_event_at
    assert ledger.old_batches(SOON) == [before]
    assert before.last_event_at == done[-1].at


def test_the_latest_of_a_kind_is_the_latest(ledger: Ledger) -> None:
    """Of two backups the second, whatever came after it."""
    for file in ("one.db", "two.db"):
        ledger.note_backup("ann", file)
    register(ledger, columns(ledger, [1]))
    found = ledger.latest_event(BACKED_UP)
    assert found is not None
    assert json.loads(found.detail)["file"] == "two.db"


PAGE = Path(__file__).resolve().parents[2] / "docs" / "several-machines.md"


@pytest.mark.ledgers("postgres", why="they are a database's queries")
def test_the_queries_for_monitoring_say_what_the_ledger_says(ledger_factory: LedgerFactory) -> None:
    """Each runs with the rights of whoever only reads reports, while a run is under way and after it has stopped."""
    assert isinstance(ledger_factory, PostgresFactory)
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, range(1, 6)), rejected([6]))
    file, queries = ledger.find(name).file, blocks(PAGE, "sql")

    def asked() -> list[list[tuple[object, ...]]]:
        url = ledger_factory.server.owner_url(ledger_factory.database)
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute("SET ROLE batchpay_report")
            return [connection.execute(query.encode()).fetchall() for query in queries]

    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ada")
        run.commit([1, 2, 3], [])
        run.commit([], [(1, ACCEPTED), (2, IN_DOUBT)])
        totals, doubts, runs, stopped, standing = asked()
        run.commit([], [(3, ACCEPTED)])
        run.finish("the gateway is away")
    assert [row[1:3] for row in totals if row[2]] == [
        ("rejected", 1), ("pending", 2), ("sending", 1), ("accepted", 1), ("in doubt", 1),
    ]  # fmt: skip
    assert [row[:3] for row in doubts] == [(name, file, 1)]
    assert [(row[0], row[2]) for row in runs] == [(name, "ada")]
    assert 0 <= float(str(runs[0][4])) < 30
    assert stopped == []
    assert standing[0][0] is None
    _, _, runs, stopped, _ = asked()
    assert (runs, [(*row[:3], row[4]) for row in stopped]) == ([], [(name, file, 2, "the gateway is away")])
