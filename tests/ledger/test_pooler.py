"""A ledger behind pgbouncer in transaction mode: no two statements need the same session, and a moved server is met."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.open import accept, open_ledger
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.payment import State
from tests.ledger.batches import ACCEPTED, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.support.postgres import PAYER, as_nobody, folder_of_nobody, free_port

pytestmark = pytest.mark.ledgers("postgres", why="nothing stands between a program and its file")


@pytest.fixture
def pooled(ledger_factory: LedgerFactory, request: pytest.FixtureRequest) -> Iterator[PostgresFactory]:
    """A ledger whose address is a pooler's, which has one connection to the server for all.

    Whoever waits for a second one while it holds the first waits forever; the pooler gives up after ten seconds.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer: install it")
    assert isinstance(ledger_factory, PostgresFactory)
    ledger_factory.create()
    ledger_factory.close()
    server, port = ledger_factory.server, free_port()
    with folder_of_nobody() as folder:
        (folder / "users").write_text(f'"{PAYER}" ""\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={server.host} port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
            f"default_pool_size = 1\nquery_wait_timeout = 10\nunix_socket_dir =\n{getattr(request, 'param', '')}\n"
        )
        url = server.url(ledger_factory.database).replace(f":{server.port}/", f":{port}/")
        with subprocess.Popen([*as_nobody(), program, "-q", str(folder / "ini")], stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(url)
                ledger_factory.settings = replace(ledger_factory.settings, url=url, pooler=True)
                accept(ledger_factory.settings, "ada", "by the new pooler")
                yield ledger_factory
            finally:
                ledger_factory.close()
                process.terminate()


def _wait_for(url: str) -> None:
    for _ in range(100):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            threading.Event().wait(0.02)
        else:
            return
    raise AssertionError("pgbouncer did not start")


def test_two_runs_at_once_share_one_session(pooled: PostgresFactory) -> None:
    """Each transaction goes wherever there is room; what a session would have to remember is nowhere needed.

    Two runs that shared two connections waited for each other, when each had begun a transaction and then asked whether
    the database had been restored, on another connection.
    """
    ledger = pooled.open()
    names = [register(ledger, columns(ledger, range(1, 60), salt=salt), content=salt.encode()) for salt in ("a", "b")]
    problems: list[BaseException] = []

    def send(name: str) -> None:
        try:
            with closing(open_ledger(pooled.settings)) as own, own.lock(own.find(name).digest):
                batch = own.find(name)
                run, pace = own.start(name, "ada"), own.shared_pace(batch.environment, batch.origin)
                while payments := run.claim(8):
                    assert pace.look() is not None
                    rows = [payment.row for payment in payments]
                    assert run.commit(rows, []) == set(rows)
                    run.commit([], [(row, ACCEPTED) for row in rows])
                pace.close()
                run.finish(None)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=send, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    for name in names:
        assert set(states(ledger, name).values()) == {State.ACCEPTED}
    assert ledger.check() == []


@pytest.mark.parametrize("pooled", ["", "ignore_startup_parameters = options"], indirect=True)
def test_without_the_setting_a_pooler_is_refused(pooled: PostgresFactory) -> None:
    """It would forget the settings of a session; one that is told to drop them says nothing, and ended runs midway."""
    pooled.settings = replace(pooled.settings, pooler=False)
    with pytest.raises(LedgerNotUsable, match=r"ledger\.pooler"):
        pooled.open()


def test_a_server_that_changes_behind_the_pooler_grants_nothing(pooled: PostgresFactory) -> None:
    """The connection to the pooler stays, so nobody looks at a new one: every group looks itself."""
    ledger = pooled.open()
    assert isinstance(ledger, PostgresLedger)
    name = register(ledger, columns(ledger, [1, 2, 3]))
    with held_run(ledger, name) as run:
        assert run.commit([1], []) == {1}
        ledger.store.where = "another/00000002"
        ledger.store.follow = _not_whole
        with pytest.raises(LedgerNotUsable, match="not whole"):
            run.commit([2], [])
    with pytest.raises(LedgerNotUsable, match="not whole"):
        ledger.note_person("ada", "a password")
    again = pooled.open(read_only=True)
    assert states(again, name) == {1: State.SENDING, 2: State.PENDING, 3: State.PENDING}


def _not_whole() -> None:
    raise LedgerNotUsable("not whole")
