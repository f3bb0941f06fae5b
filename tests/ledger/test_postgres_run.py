"""A run on PostgreSQL whose connection, server or commit goes away: what it may send, and what it knows afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest

from batchpay.errors import BatchHeld, LedgerNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept, create_ledger
from batchpay.ledger.postgres import connection, deadline
from batchpay.ledger.postgres import run as of_run
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.store import PostgresTransaction
from batchpay.outcome import Answer
from batchpay.payment import State
from batchpay.settings import GatewaySettings, Settings
from batchpay.workflows.health import HealthLimits, health
from tests.ledger.batches import ACCEPTED, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.ledger_factory import ORIGIN
from tests.support.postgres import own_cluster

pytestmark = pytest.mark.ledgers(
    "postgres", why="a file has no connection that can be lost; see test_writing.py and test_processes.py"
)


@pytest.fixture
def factory(ledger_factory: LedgerFactory) -> PostgresFactory:
    assert isinstance(ledger_factory, PostgresFactory)
    return ledger_factory


@contextmanager
def through_proxy(factory: PostgresFactory, options: str = "") -> Iterator[CuttingProxy]:
    """Let the factory's ledgers be opened through a proxy: another address of the same database."""
    factory.create()
    factory.close()
    with CuttingProxy(factory.server.host, factory.server.port) as proxy:
        url = factory.settings.url.replace(f":{factory.server.port}/", f":{proxy.port}/")
        factory.settings = replace(factory.settings, url=url + options)
        accept(factory.settings, "ada", "the same server, by a proxy")
        yield proxy
        factory.close()


@contextmanager
def cut_once(proxy: CuttingProxy, cut: Cut) -> Iterator[None]:
    """Cut the connection that reaches the byte first; those that are made afterwards stay."""

    def look() -> None:
        cut.struck.wait()
        proxy.release()

    proxy.count_from_now(cut)
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    yield
    assert cut.struck.is_set()
    looking.join()


def run_of(ledger: Ledger, name: str) -> of_run.PostgresRun:
    run = ledger.start(name, "ada")
    assert isinstance(run, of_run.PostgresRun)
    return run


def test_what_a_connection_has_prepared_outlasts_a_reading(factory: PostgresFactory) -> None:
    """Each reading ended with a rollback, after which psycopg had every statement parsed and prepared anew."""
    ledger = factory.create()
    assert isinstance(ledger, PostgresLedger)
    ledger.batches()
    with ledger.store.reading() as connection:
        found = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert any("batchpay.batch" in text for (text,) in found)


@pytest.mark.parametrize("to_server", [True, False], ids=["asked", "answered"])
@pytest.mark.parametrize("options", ["", "?sslmode=require"], ids=["plain", "encrypted"])
def test_a_connection_that_is_cut_costs_no_row(
    factory: PostgresFactory, request: pytest.FixtureRequest, options: str, to_server: bool
) -> None:
    """Cut within the question nothing stands, cut within the answer all does; either way the run finds out and goes on.

    A few bytes of a group's; tests.campaign.servers cuts at every one.
    """
    if options:
        request.getfixturevalue("encrypting_server")
    with through_proxy(factory, options) as proxy:
        ledger = factory.open()
        name = register(ledger, columns(ledger, range(1, 31)))
        with ledger.lock(ledger.find(name).digest):
            run = run_of(ledger, name)
            assert run.commit([1, 30], []) == {1, 30}
            for row in range(2, 8):
                cut = Cut(after_bytes=row * (40 if to_server else 12), to_server=to_server, reset=row % 2 == 0)
                with cut_once(proxy, cut):
                    assert run.commit([row], [(row - 1, ACCEPTED)]) == {row}
                if row == 2:  # the ledger's own chain has an event of this number as well
                    latest = run._store.witness.read()
                    assert latest is not None
                    assert factory.run("SELECT max(seq) FROM batchpay.event") == [(latest.number,)]
            proxy.count_from_now()
            run.commit([], [(7, ACCEPTED), (30, ACCEPTED)])
            run.finish(None)
        sent = [*range(1, 8), 30]
        assert states(ledger, name) == {row: State.ACCEPTED if row in sent else State.PENDING for row in range(1, 31)}
        assert [row.attempts for row in ledger.rows(name)] == [1] * 7 + [0] * 22 + [1]
        assert ledger.check() == []


def test_a_connection_that_is_cut_again_while_it_is_made_costs_no_row(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the campaign: the new connection was lost while its server was looked at, and the run gave up at once.

    Its rows stayed in sending, and the batch was held.
    """
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    look, cut = connection._refuse_unsafe, [psycopg.OperationalError("cut again"), psycopg.errors.AdminShutdown()]

    def look_or_lose(*arguments: object) -> str:
        if cut:
            raise cut.pop()
        return look(*arguments)  # type: ignore[arg-type]

    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        run.commit([1], [])
        monkeypatch.setattr(connection, "_refuse_unsafe", look_or_lose)
        run._store.writer.get().close()
        assert run.commit([2], [(1, ACCEPTED)]) == {2}
        run.finish(None)


def test_a_lost_commit_that_arrives_late_changes_nothing(factory: PostgresFactory) -> None:
    """Its bytes may lie in a buffer for minutes: after the run has raised its generation they are refused."""
    with through_proxy(factory) as proxy:
        ledger = factory.open()
        name = register(ledger, columns(ledger, [1, 2, 3]))
        with ledger.lock(ledger.find(name).digest):
            run = run_of(ledger, name)
            held = Cut(after_bytes=10, to_server=True, hold=True)
            assert run.commit([1], []) == {1}
            lost = run._store.writer
            lost_one = lost.get()
            proxy.count_from_now(held)
            late: list[BaseException] = []

            def ask() -> None:
                try:
                    lost_one.execute(sql.COMMIT_GROUP, of_group(run, [2]), binary=True)
                except BaseException as error:
                    late.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            held.struck.wait()
            proxy.cut = None
            lost._connection = None  # the run takes it for lost; its bytes are still under way
            assert run._settle_unknown([2], 2, b"") is None
            proxy.release()
            asking.join()
            assert run.commit([3], []) == {3}
            lost_one.close()
        assert [getattr(error, "sqlstate", None) for error in late] == ["BP003"]
        assert states(ledger, name) == {1: State.SENDING, 2: State.PENDING, 3: State.SENDING}


def test_a_group_is_one_runs_next_one(factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a database that was brought back a run gets the number of one that still sends: its token tells them apart.

    Nor is a group granted twice, or out of its turn.
    """
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1]))
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        for place, other in (("token", bytes(16)), ("generation", 2), ("number", 2)):
            group = list(of_group(run, [1]))
            group[{"token": 1, "generation": 2, "number": 14}[place]] = other
            with pytest.raises(psycopg.Error) as refused:
                run._store.writer.run_group(run._commits, group)
            assert refused.value.sqlstate == "BP003", place
        for whose, other in (("_token", bytes(16)), ("_generation", 2)):
            with monkeypatch.context() as patch:
                patch.setattr(run, whose, other)
                patch.setattr(run, "_dead", None)
                acts: list[Callable[[], object]] = [run.beat, lambda: run.reject([1], "memo.length")]
                if whose == "_token":
                    acts.append(lambda: run._settle_unknown([], 0, b""))
                for act in acts:
                    with pytest.raises(LedgerNotUsable, match="taken over the batch"):
                        act()
        run._is_fenced = False
        run.finish(None)
    assert states(ledger, name) == {1: State.PENDING}


def test_a_run_is_not_shut_out_while_it_commits(factory: PostgresFactory) -> None:
    """Its commit would stand after it was shut out, and its rows would be sent: whoever shuts it out waits for it."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1]))
    with (
        ledger.lock(ledger.find(name).digest),
        psycopg.connect(factory.server.owner_url(factory.database)) as holding,
    ):
        run = run_of(ledger, name)
        holding.execute("SELECT FROM batchpay.payment FOR UPDATE")
        committing = threading.Thread(target=run.commit, args=([1], []))
        committing.start()
        until(lambda: factory.run("SELECT 1 FROM pg_locks WHERE NOT granted"))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            factory.run("SELECT FROM batchpay.run FOR UPDATE NOWAIT")
        holding.rollback()
        committing.join()
    assert states(ledger, name) == {1: State.SENDING}


def of_group(run: of_run.PostgresRun, intents: Sequence[int]) -> tuple[object, ...]:
    """What the run would ask with now, for these rows."""
    head = (run._id, run._token, run._generation, run._batch, list(intents))
    event = (0, run._number + 1, "ada", '{"sending":"2"}', bytes(32))
    of_day: tuple[object, ...] = (run._id, run._batch, list(intents), [], [], None, None)
    return (*head, *[[] for _ in range(8)], *event, *of_day)


def test_a_database_that_stays_away_stops_the_run_and_keeps_the_answers(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is sent; what the gateway answered is in the spill file, and the next start merges it."""
    monkeypatch.setattr(deadline, "RECONNECT_S", 0.3)
    with through_proxy(factory) as proxy:
        ledger = factory.open()
        name = register(ledger, columns(ledger, [1, 2, 3]))
        with ledger.lock(ledger.find(name).digest):
            run = run_of(ledger, name)
            run.commit([1, 2], [])
            proxy.refuses = True
            proxy.drop_all()
            with pytest.raises(LedgerNotUsable, match="did not come back"):
                run.commit([3], [(1, ACCEPTED)])
            run.spill([(1, ACCEPTED)])
            with pytest.raises(LedgerNotUsable):
                run.commit([3], [])
            run.close()
        proxy.refuses = False
        with ledger.lock(ledger.find(name).digest):
            again = run_of(ledger, name)
            assert again.recovered == 1
            again.finish(None)
        assert states(ledger, name) == {1: State.ACCEPTED, 2: State.IN_DOUBT, 3: State.PENDING}
        assert ledger.check() == []


def test_whoever_reads_after_a_run_lost_its_database_connects_anew(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection to a server that hangs answers nothing, and has no time limit: the summary waited for it forever."""
    monkeypatch.setattr(deadline, "RECONNECT_S", 0.1)
    with through_proxy(factory) as proxy:
        ledger = factory.open()
        assert isinstance(ledger, PostgresLedger)
        name = register(ledger, columns(ledger, [1]))
        with ledger.lock(ledger.find(name).digest):
            run = run_of(ledger, name)
            proxy.refuses = True
            factory.run(f"SELECT pg_terminate_backend({ledger.store.writer.get().info.backend_pid})")
            with pytest.raises(LedgerNotUsable, match="did not come back"):
                run.commit([1], [])
            run.close()
        with pytest.raises(connection.LedgerUnreachable):
            ledger.find(name)
        proxy.refuses = False
        assert states(ledger, name) == {1: State.PENDING}


def test_a_server_that_is_stopped_at_once_and_started_again_costs_no_row(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut of the database's machine: the run waits for it, finds out what stands, and goes on."""
    monkeypatch.setattr(deadline, "RECONNECT_S", 300.0)  # however busy this machine is
    with own_cluster() as cluster:
        server = cluster.server()
        factory.settings = replace(factory.settings, url=server.url("payments"))
        server.run("CREATE DATABASE payments")
        server.run("CREATE ROLE payer LOGIN")
        create_ledger(factory.settings, "tester", owner_url=server.owner_url("payments"))
        server.run("GRANT batchpay_app TO payer")
        ledger = factory.open()
        rows = range(1, 41)
        name = register(ledger, columns(ledger, rows))
        under_way, failed = threading.Event(), list[BaseException]()

        def send() -> None:
            try:
                for row in rows:
                    assert run.commit([row], [(row - 1, ACCEPTED)] if row > 1 else []) == {row}
                    if row == 10:
                        under_way.set()
                run.commit([], [(rows[-1], ACCEPTED)])
            except BaseException as error:
                failed.append(error)

        with ledger.lock(ledger.find(name).digest):
            run = run_of(ledger, name)
            sending = threading.Thread(target=send)
            sending.start()
            under_way.wait()
            cluster.stop()
            cluster.start()
            sending.join()
            assert failed == []
            run.finish(None)
        assert set(states(ledger, name).values()) == {State.ACCEPTED}
        assert ledger.check() == []
        factory.close()


def test_a_commit_that_would_not_be_durable_grants_nothing(factory: PostgresFactory) -> None:
    """Asked within the transaction: a pooler's session may be set to anything, whatever it was set to before."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1]))
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        for level in ("off", "local", "remote_write"):
            run._store.writer.get().execute(f"SET synchronous_commit = {level}".encode())
            with pytest.raises(LedgerNotUsable, match="commits are not durable"):
                run.commit([1], [])
            run._dead = None
    assert states(ledger, name) == {1: State.PENDING}


def test_claims_go_on_over_a_cut_connection(factory: PostgresFactory) -> None:
    """Each row is claimed once, in order, whatever became of the answer that gave it.

    Chunks whose rows were being read were given back, and their rows claimed twice in one run.
    """
    with through_proxy(factory) as proxy:
        ledger = factory.open()
        name = register(ledger, columns(ledger, range(1, 1501)))
        with ledger.lock(ledger.find(name).digest):
            run, found = run_of(ledger, name), []
            # The answer to a claim, its rows, their bodies.
            for size, after_bytes in ((512, 60), (512, 4_000), (476, 15_500)):
                with cut_once(proxy, Cut(after_bytes=after_bytes, to_server=False)):
                    found += [payment.row for payment in run.claim(size)]
            proxy.count_from_now()
            run.finish(None)
        assert found == list(range(1, 1501))


@pytest.mark.parametrize("ends", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_that_warns_is_not_taken_for_done(factory: PostgresFactory, ends: str) -> None:
    """A wait for a standby that is cancelled ends with COMMIT and a warning: visible to all, and not replicated.

    What was asked for is granted only when a later commit of the run came back clean.
    """
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    granted: list[set[int]] = []
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        assert run.commit([1], []) == {1}
        factory.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        factory.run("SELECT pg_reload_conf()")
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        try:
            wait_until_commits_wait(factory, waiting)
            committing = threading.Thread(target=lambda: granted.append(run.commit([2], [(1, ACCEPTED)])))
            committing.start()
            first = until(lambda: factory.run(waiting))[0][0]
            factory.run(f"SELECT {ends}({first})")
            until(lambda: [pid for pid in factory.run(waiting) if pid != (first,)])
            assert granted == []
        finally:
            factory.run("ALTER SYSTEM RESET synchronous_standby_names")
            factory.run("SELECT pg_reload_conf()")
        committing.join()
        run.commit([], [(2, ACCEPTED)])
        run.finish(None)
    assert granted == [{2}]
    assert states(ledger, name) == {1: State.ACCEPTED, 2: State.ACCEPTED}
    assert ledger.check() == []


def test_a_wait_for_a_standby_that_does_not_come_ends(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover whose new primary has no standby yet: no server's timeout ends that, and no run hangs in it.

    Nobody knows whether the commit stands, so nothing is sent by it; all of it goes on when a standby is there.
    """
    monkeypatch.setattr(deadline, "DEADLINE_S", 0.3)
    monkeypatch.setattr(deadline, "_LOOK_S", 0.05)
    monkeypatch.setattr(deadline, "RECONNECT_S", 0.1)
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        assert run.commit([1], []) == {1}
        factory.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        factory.run("SELECT pg_reload_conf()")
        try:
            wait_until_commits_wait(factory, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            assert [payment.row for payment in run.claim(2)] == [2]
            with pytest.raises(LedgerNotUsable, match="was lost, and did not come back"):
                run.commit([2], [(1, ACCEPTED)])
            run.spill([(1, ACCEPTED)])
            run.close()
            with pytest.raises(LedgerNotUsable, match="not known whether it took effect"):
                register(ledger, columns(ledger, [3], salt="x"), content=b"two")
        finally:
            factory.run("ALTER SYSTEM RESET synchronous_standby_names")
            factory.run("SELECT pg_reload_conf()")
    ledger.close()
    again = factory.open()
    with again.lock(again.find(name).digest):
        run_of(again, name).finish(None)
    assert states(again, name)[2] in (State.PENDING, State.IN_DOUBT), "whether its commit stood or not: it was not sent"
    assert again.check() == []


def wait_until_commits_wait(factory: PostgresFactory, waiting: str) -> None:
    """Write until a write waits for the standby that is not there: the server takes its time to hear of it."""
    seen = threading.Event()

    def write() -> None:
        while not seen.is_set():
            factory.run("COMMENT ON SCHEMA batchpay IS 'written'")

    writing = threading.Thread(target=write)
    writing.start()
    pid = until(lambda: factory.run(waiting))[0][0]
    seen.set()
    factory.run(f"SELECT pg_cancel_backend({pid})")
    writing.join()


def until(look: Callable[[], list[tuple[object, ...]]]) -> list[tuple[object, ...]]:
    """Look again until something is seen."""
    for _ in range(2000):
        if found := look():
            return found
        threading.Event().wait(0.01)
    raise AssertionError("it never came")


def test_a_decision_whose_commit_was_lost_is_not_called_undone(factory: PostgresFactory) -> None:
    """It stood, and "the connection was lost" let a person take it for not made."""
    with through_proxy(factory) as proxy:
        ledger = factory.open()
        assert isinstance(ledger, PostgresLedger)
        transaction = ledger.store.begin()
        transaction.event("person", None, "ada", None, {})
        with (
            cut_once(proxy, Cut(after_bytes=1, to_server=False)),
            pytest.raises(LedgerNotUsable, match="not known whether it took effect"),
        ):
            transaction.commit()
        assert ledger.store.is_unsure


def test_a_transaction_that_may_not_begin_leaves_none_open(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within it the next group would be granted, and sent, and never committed."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1]))
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)

        def begins_and_refuses() -> PostgresTransaction:
            PostgresTransaction(run._store)
            raise LedgerNotUsable("restored meanwhile")

        with monkeypatch.context() as patch, pytest.raises(LedgerNotUsable, match="restored"):
            patch.setattr(run._store, "begun", begins_and_refuses)
            run._store.begin()
        assert run.commit([1], []) == {1}
        assert states(factory.open(read_only=True), name) == {1: State.SENDING}
        run.commit([], [(1, ACCEPTED)])
        run.finish(None)


def test_of_two_machines_one_holds_the_batch(factory: PostgresFactory) -> None:
    """The other is told at once which machine it is; when that run has ended it may go on."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    other = factory.on_another_machine(factory.folder / "other")
    of_other = other.join()
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        assert not of_other.is_held(digest), "this machine has only begun to look"
        run = run_of(ledger, name)
        run.commit([1], [])
        assert of_other.is_held(digest)
        with pytest.raises(BatchHeld, match="a run on "), of_other.lock(digest):
            pass
        run.commit([], [(1, ACCEPTED)])
        run.finish(None)
    with of_other.lock(digest):
        run_of(of_other, name).finish(None)
    other.close()
    assert ledger.check() == []


def test_health_tells_how_old_the_heartbeats_of_machines_are(factory: PostgresFactory) -> None:
    """One was switched off in the middle, and on every other machine its batch was called under way."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    other = factory.on_another_machine(factory.folder / "other")
    other.join()
    settings = Settings(gateway=GatewaySettings(base_url=ORIGIN), ledger=other.settings)

    def told() -> dict[str, tuple[int, str]]:
        found = health(settings, HealthLimits(), datetime.now(UTC)).findings
        return {one.check: (one.exit_code, one.message) for one in found}

    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        run.commit([1], [])
        code, message = told()["machines"]
        assert (code, told()["batches"][0], told()["doubts"][0]) == (0, 0, 0)
        assert f"has batch {name}, its heartbeat is " in message
        factory.run("UPDATE batchpay.run SET seen_at = seen_at - 720000")
        code, message = told()["machines"]
        assert (code, told()["batches"][0], told()["doubts"][0]) == (6, 6, 7)
        assert message.endswith(f"has batch {name}, its heartbeat is 12 min old; to take over: batchpay resume {name}")
        run.finish(None)
        assert "machines" not in told()
    other.close()


def test_two_machines_that_start_at_once_make_one_run(factory: PostgresFactory) -> None:
    """Both looked before either had begun: the database lets one of them in."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1]))
    other = factory.on_another_machine(factory.folder / "other")
    of_other = other.join()
    digest = ledger.find(name).digest
    with ledger.lock(digest), of_other.lock(digest):
        run = run_of(ledger, name)
        with pytest.raises(BatchHeld):
            of_other.start(name, "ben")
        assert run.commit([1], []) == {1}
    other.close()
    assert list(factory.folder.rglob("*.run.*")) == list(factory.witness.parent.glob("witness.run.*")), "one mark"


def test_a_killed_run_is_dead_at_once_on_its_own_machine_alone(factory: PostgresFactory) -> None:
    """Its mark lies here: whoever holds the batch here takes over without waiting, and another machine does not."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    digest = ledger.find(name).digest
    with ledger.lock(digest):
        run_of(ledger, name).commit([1], [])
    factory.close()  # and the process is gone
    ledger = factory.open()
    other = factory.on_another_machine(factory.folder / "other")
    of_other = other.join()
    with pytest.raises(BatchHeld), of_other.lock(digest):
        pass
    with ledger.lock(digest):
        run = run_of(ledger, name)
        assert run.recovered == 1
        run.finish(None)
    assert not list(factory.witness.parent.glob("witness.run.*"))
    other.close()
    assert ledger.check() == []


def test_every_update_of_a_payment_stays_in_its_page(factory: PostgresFactory) -> None:
    """No index is touched by a change of state, and no group reads more than its own rows: no statistics needed."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, range(1, 1201)))
    rows = list(range(1, 1201))
    with ledger.lock(ledger.find(name).digest):
        run = run_of(ledger, name)
        before: list[int] = []
        for start in range(0, 1200, 16):
            group = rows[start : start + 16]
            run.commit(group, [(row, ACCEPTED) for row in before])
            before = group
        run.commit([], [(row, ACCEPTED) for row in before])
        run._store.writer.close()  # which hands its counts in
        counts = "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
        found = until(lambda: [row for row in factory.run(counts) if row[:2] == ("payment", 2400)])
        reads = "SELECT relname, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables"
        scans = {str(name): (int(str(whole)), int(str(by_key))) for name, whole, by_key in factory.run(reads)}
        run.finish(None)
    assert found[0][2] == 2400
    assert scans["payment"][0] <= 3 * 1200, "the check before the run may read the batch, and nothing else"
    assert scans["attempt"][0] <= 3 * 1200
    assert scans["attempt"][1] <= 1200, "as a join, the look at a row's attempts read all of the batch's"
    assert ledger.check() == []


def test_texts_that_a_database_can_not_hold_do_not_stop_a_run(ledger: Ledger) -> None:
    """A gateway's message may hold a NUL, or half a character: PostgreSQL has no place for either."""
    name = register(ledger, columns(ledger, [1]))
    with held_run(ledger, name) as run:
        run.commit([1], [])
        answer = Answer(200, "1", "all\0 well \ud800", "TX\0")
        run.commit([], [(1, ACCEPTED._replace(answer=answer))])
        run.finish(None)
    assert next(iter(ledger.rows(name))).answer == Answer(200, "1", "all\ufffd well ?", "TX\ufffd")
    assert ledger.check() == []
