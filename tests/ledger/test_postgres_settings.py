"""What an administrator sets for a login or a database, for other programs' sake: none of it weakens or ends a run."""

from __future__ import annotations

import subprocess
import threading

import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.postgres import connection
from batchpay.payment import State
from tests.ledger.batches import ACCEPTED, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.ledger.test_postgres_run import until, wait_until_commits_wait
from tests.support.postgres import as_nobody, folder_of_nobody, programs_found

pytestmark = pytest.mark.ledgers("postgres", why="a file has neither logins nor an administrator's settings")


@pytest.fixture
def factory(ledger_factory: LedgerFactory) -> PostgresFactory:
    assert isinstance(ledger_factory, PostgresFactory)
    return ledger_factory


def for_the_login(factory: PostgresFactory, setting: str) -> None:
    factory.run(f"ALTER ROLE payer IN DATABASE {factory.database} SET {setting}")


@pytest.mark.parametrize("can_not_say", [False, True], ids=["direct", "pooled"])
def test_sessions_that_were_ended_for_being_idle_cost_nothing(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch, can_not_say: bool
) -> None:
    """Found with `idle_session_timeout` set for a login: a slow gateway's run stopped, "the database failed (57P05)".

    Our sessions have no such limit; where they can't say so, one that was ended is opened anew like any lost one.
    """
    factory.create()
    factory.close()
    for_the_login(factory, f"idle_session_timeout = '{150 if can_not_say else 1}ms'")
    if can_not_say:
        monkeypatch.setattr(connection, "_OPTIONS", f"-c search_path={connection._SEARCH_PATH}")
        monkeypatch.setattr(connection, "_WRITER_OPTIONS", "")
    sessions = "SELECT 1 FROM pg_stat_activity WHERE usename = 'payer' AND datname = current_database()"

    def all_ended() -> None:
        if can_not_say:
            until(lambda: [] if factory.run(sessions) else [()])

    ledger = factory.open()
    all_ended()
    name = register(ledger, columns(ledger, range(1, 600)))
    all_ended()
    with ledger.lock(ledger.find(name).digest):
        all_ended()
        run = ledger.start(name, "ada")
        for row in (1, 513):
            all_ended()
            assert row in {payment.row for payment in run.claim(512)}
            all_ended()
            assert run.commit([row], []) == {row}
            all_ended()
            run.commit([], [(row, ACCEPTED)])
        all_ended()
        run.finish(None)
    all_ended()
    assert [row for row, state in states(ledger, name).items() if state is State.ACCEPTED] == [1, 513]


def test_no_level_of_messages_hides_that_a_commit_warned(factory: PostgresFactory) -> None:
    """A cancelled wait for a standby is told by a warning alone: with client_min_messages = error the row was granted.

    The server had not replicated it, and a standby that took over would have had the row as never sent.
    """
    for_the_login(factory, "client_min_messages = error")
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    granted: list[set[int]] = []
    with held_run(ledger, name) as run:
        assert run.commit([1], []) == {1}
        factory.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        factory.run("SELECT pg_reload_conf()")
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        try:
            wait_until_commits_wait(factory, waiting)
            committing = threading.Thread(target=lambda: granted.append(run.commit([2], [(1, ACCEPTED)])))
            committing.start()
            first = until(lambda: factory.run(waiting))[0][0]
            factory.run(f"SELECT pg_cancel_backend({first})")
            until(lambda: [(one,) for one in granted] or [pid for pid in factory.run(waiting) if pid != (first,)])
            assert granted == []
        finally:
            factory.run("ALTER SYSTEM RESET synchronous_standby_names")
            factory.run("SELECT pg_reload_conf()")
        committing.join()
        run.commit([], [(2, ACCEPTED)])
        run.finish(None)
    assert granted == [{2}]


def test_a_commit_that_warned_is_not_known_to_stand(factory: PostgresFactory) -> None:
    """Outside of a run's group too: what a standby may lack is not called registered, and is looked up once more."""
    ledger = factory.create()
    factory.run(
        "CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE WARNING 'not replicated'; RETURN NULL; END $$;"
        " CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON batchpay.event DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION public.warn()"
    )
    with pytest.raises(LedgerNotUsable, match="did not confirm a commit"):
        register(ledger, columns(ledger, [1]))
    factory.run("DROP TRIGGER warn ON batchpay.event")
    factory.close()
    assert [batch.total.rows for batch in factory.open().batches()] == [1]


def test_a_function_of_another_schema_stands_in_for_none_of_the_systems(factory: PostgresFactory) -> None:
    """Of two functions of one name the one with closer types is taken, whatever stands first in the search path.

    With a `public.cardinality(int[])` that knows better, outcomes were not written, and the commit came back clean.
    """
    ledger = factory.create()
    factory.run(
        "CREATE FUNCTION public.cardinality(integer[]) RETURNS integer LANGUAGE sql AS 'SELECT 0';"
        "CREATE FUNCTION public.starts_with(text, varchar) RETURNS boolean LANGUAGE sql AS 'SELECT false'"
    )
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        assert run.commit([1], []) == {1}
        run.commit([2], [(1, ACCEPTED)])
        run.commit([], [(2, ACCEPTED)])
        run.finish(None)
    assert states(ledger, name) == {1: State.ACCEPTED, 2: State.ACCEPTED}
    assert ledger.check() == []


def test_a_base_backup_is_no_standby(factory: PostgresFactory) -> None:
    """A nightly backup stopped the nightly payments: "it has standbys". What writes files takes nothing over."""
    programs = programs_found()
    if programs is None:
        pytest.skip("no programs of PostgreSQL")
    factory.create()
    factory.close()
    server = factory.server
    with folder_of_nobody() as folder:
        command = [*as_nobody(), str(programs / "pg_receivewal"), "-D", str(folder), "-h", server.host]
        command += ["-p", str(server.port), "-U", server.owner]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as backup:
            try:
                until(lambda: factory.run("SELECT pid FROM pg_stat_replication"))
                factory.open()
            finally:
                backup.terminate()
        until(lambda: [] if factory.run("SELECT pid FROM pg_stat_replication") else [()])


def test_a_database_that_was_set_read_only_is_not_called_a_standby_alone(factory: PostgresFactory) -> None:
    """As providers do when its disk is full."""
    factory.create()
    factory.close()
    for_the_login(factory, "default_transaction_read_only = on")
    with pytest.raises(LedgerNotUsable, match="it is a standby, or was set read-only"):
        factory.open()
