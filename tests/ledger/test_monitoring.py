"""The queries of docs/several-machines.md for the company's own monitoring, on a real ledger."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.ledger.batches import ACCEPTED, IN_DOUBT, columns, register, rejected
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.test_docs import blocks

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
