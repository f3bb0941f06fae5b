"""One rate for all who send to a gateway, by a file or a database: who is alone is left alone, a moment goes to one."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from random import Random

import psycopg
import pytest

from batchpay.errors import LedgerNotUsable
from batchpay.ledger.contract import Ledger, SharedRate
from batchpay.ledger.open import schema_text
from batchpay.ledger.postgres import shared_pace
from batchpay.ledger.postgres import statements as sql
from batchpay.ledger.postgres.ledger import PostgresLedger
from batchpay.ledger.postgres.shared_pace import SharedPace
from batchpay.ledger.records import Lease
from batchpay.ledger.sqlite import pace_file
from batchpay.ledger.sqlite.pace_file import PaceFile
from batchpay.outcome import Finding
from tests.ledger.factories import LedgerFactory, PostgresFactory

GATEWAY = "test http://127.0.0.1:1"


class World:
    """Runs that share a rate, and a clock that only the test moves."""

    def __init__(self, make: Callable[[], SharedRate], joining_s: float, set_clock: Callable[[float], object]) -> None:
        self.now = 1000.0
        self._asked_at: float | None = None
        self.joining_s = joining_s
        self.runs: list[SharedRate] = []
        self._make, self._set_clock = make, set_clock

    def run(self) -> SharedRate:
        """One more run."""
        self.runs.append(self._make())
        return self.runs[-1]

    def clock(self) -> float:
        """Tell a run the time: when it asks, then when it has its answer."""
        at, self._asked_at = self._asked_at, None
        return self.now if at is None else at

    def moments(
        self, run: SharedRate, rate: float, paused_s: float = 0.0, *, there_s: float = 0.0, back_s: float = 0.0
    ) -> list[float]:
        """What a run is leased, on the clock; nothing where it is alone. A question and its answer may take a time."""
        self._asked_at = self.now
        self._set_clock(self.now + there_s)
        self.now += there_s + back_s
        lease = run.lease(rate, paused_s)
        assert lease is not None
        return [self.now + lease.first_s + number * lease.every_s for number in range(lease.slots)]

    def close(self, run: SharedRate) -> None:
        """End a run as it should."""
        self.runs.remove(run)
        run.close()


@pytest.fixture
def world(ledger_factory: LedgerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    if isinstance(ledger_factory, PostgresFactory):
        yield from _in_database(ledger_factory, monkeypatch)
    else:
        made = World(
            lambda: PaceFile(tmp_path / "gateway.pace", GATEWAY, lambda: made.clock()),
            pace_file.JOINING_S,
            lambda now: None,
        )
        yield made
        for run in made.runs:
            run.close()


def _in_database(factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The server's function as it stands in the schema, but for its clock."""
    server_clock, at = "extract(epoch FROM clock_timestamp())", "(SELECT at FROM batchpay.clock)"
    ledger = factory.create()
    assert isinstance(ledger, PostgresLedger)
    script = schema_text()
    text = script[script.index("CREATE FUNCTION batchpay.lease_pace") :]
    text = text[: text.index("END $$;") + 7].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    assert text.count(server_clock) == sql.LEASE_PACE.count(server_clock) == 1
    text = text.replace(server_clock, at)
    monkeypatch.setattr(sql, "LEASE_PACE", sql.LEASE_PACE.replace(server_clock, at))
    with psycopg.connect(factory.server.owner_url(factory.database), autocommit=True) as owner:
        owner.execute("CREATE TABLE batchpay.clock (at float8); INSERT INTO batchpay.clock VALUES (0)")
        owner.execute("GRANT SELECT ON batchpay.clock TO batchpay_app")
        owner.execute(text.encode())
        made = World(
            lambda: SharedPace(ledger.store, GATEWAY, lambda: made.clock()), shared_pace.JOINING_S,
            lambda now: owner.execute("UPDATE batchpay.clock SET at = %s", (now,)),
        )  # fmt: skip
        yield made
        for run in made.runs:
            run.close()


def test_a_run_that_is_alone_is_leased_nothing(world: World) -> None:
    """It keeps its own pace, and need not ask for each request."""
    run = world.run()
    for _ in range(100):
        assert world.moments(run, 50) == []
        world.now += 0.01


def test_two_runs_together_keep_the_rate_and_use_it(world: World) -> None:
    """Once each kept its own: two runs of 50 a second were 100 a second for the gateway."""
    one, other = world.run(), world.run()
    assert world.moments(one, 50) == []
    world.now += 0.5
    first = world.moments(other, 50)
    assert first[0] >= world.now + world.joining_s  # until the one that was alone has looked
    leased, asked_until = list(first), {one: 0.0, other: first[-1]}
    end = world.now + 5
    while world.now < end:
        for run in (one, other):
            if asked_until[run] <= world.now:
                moments = world.moments(run, 50)
                leased += moments
                asked_until[run] = moments[-1]
        world.now += 0.001
    leased.sort()
    assert len(leased) == len(set(leased))
    assert max(sum(at <= each < at + 1 for each in leased) for at in leased) == 50
    assert sum(end - 4 <= each < end for each in leased) >= 0.98 * 50 * 4


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_a_slow_answer_tells_as_exactly_as_a_quick_one_when_its_slots_are(world: World) -> None:
    """A database that took 0.1 s to answer moved a run's slots by up to 0.05 s, to where others had theirs.

    Four runs of 200 a second had 212 in one.
    """
    random, runs, leased = Random(1), [world.run() for _ in range(4)], list[float]()
    asking = [(1000.0 + number / 100, number) for number in range(4)]
    while asking[0][0] < 1008:
        world.now, number = heappop(asking)
        slow_s = random.choice((0.0, 0.0, 0.0, 0.08))
        there_s, back_s = random.choice(((slow_s + 0.001, 0.0), (0.0, slow_s + 0.001)))
        slots = world.moments(runs[number], 200, there_s=there_s, back_s=back_s)
        leased += slots
        heappush(asking, (max([world.now, *slots[-1:]]), number))
    leased = sorted(at for at in leased if 1002 < at < 1008)
    assert max(bisect_left(leased, at + 1) - number for number, at in enumerate(leased)) <= 201


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_a_clock_that_was_set_is_believed_from_then_on(world: World) -> None:
    """What was known of the server's clock would place its slots elsewhere; another server has another clock too."""
    one, other = world.run(), world.run()
    for ahead_s in (0, 500, 1000):
        world.now += 1
        for run in (one, other):
            slots = world.moments(run, 10, there_s=ahead_s, back_s=-ahead_s)
            assert all(world.now - 0.1 <= at <= world.now + world.joining_s + 0.3 for at in slots)
    assert slots


def test_the_lowest_rate_holds_for_all_and_a_refusal_is_heard(world: World) -> None:
    one, other = world.run(), world.run()
    world.moments(one, 100)
    assert len(world.moments(other, 10)) == 1
    world.now += 1
    assert world.moments(one, 100, paused_s=3)[0] <= world.now + 0.2
    world.now += 0.1
    assert world.moments(other, 10)[0] == pytest.approx(world.now + 2.9)


def test_a_pause_outlives_the_run_that_was_told_of_it(world: World) -> None:
    """The next run of the night would be refused at once."""
    one = world.run()
    world.moments(one, 10, paused_s=30)
    world.close(one)
    world.now += 10
    other = world.run()
    assert world.moments(other, 10) == [pytest.approx(world.now + 20)]
    world.now += 20.1
    assert world.moments(other, 10) == []


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_who_is_gone_is_forgotten(world: World, how: str) -> None:
    one, other = world.run(), world.run()
    world.moments(one, 50)
    assert world.moments(other, 50)
    if how == "ended":
        world.close(other)
    else:
        world.now += pace_file.HEARD_S + 1
    assert world.moments(one, 50) == []


def test_a_run_that_comes_back_after_a_while_joins_anew(world: World) -> None:
    """Its gateway took seconds to answer; meanwhile the other was alone, and another took its line."""
    one, other = world.run(), world.run()
    world.moments(one, 50)
    world.moments(other, 50)
    world.now += pace_file.HEARD_S + 1
    assert world.moments(one, 50) == []
    third = world.run()
    world.moments(third, 50)
    world.now += 0.001
    assert world.moments(other, 50)[0] >= world.now + world.joining_s
    lease = third.lease(50, 0)
    assert lease is not None and lease.sharers == 3


def test_slow_runs_know_of_each_other_between_their_moments(world: World) -> None:
    """At one request in five seconds each was forgotten before its moment came, and the other sent beside it."""
    one, other = world.run(), world.run()
    world.moments(one, 0.2)
    leased = world.moments(other, 0.2)
    asked_until = {one: world.now, other: leased[-1]}
    for _ in range(60):
        for run in (one, other):
            if asked_until[run] <= world.now:
                leased += (moments := world.moments(run, 0.2))
                assert moments, "nobody is alone"
                asked_until[run] = moments[-1]
        world.now += 1
    leased.sort()
    assert min(later - earlier for earlier, later in pairwise(leased)) >= 5


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_a_server_whose_clock_is_set_back_holds_up_no_run(world: World) -> None:
    """A moment of before would lie weeks ahead."""
    one, other = world.run(), world.run()
    world.now = 1e9
    world.moments(one, 10, paused_s=60)
    world.moments(other, 10)
    world.now = 1000.0
    assert world.moments(one, 10) == []
    assert world.moments(other, 10)[0] <= world.now + 1


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_a_database_that_stays_away_holds_up_the_run_and_then_ends_it(
    ledger: Ledger, ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection costs a moment; nobody sends on his own pace while the others can't be asked."""
    assert isinstance(ledger, PostgresLedger)
    assert isinstance(ledger_factory, PostgresFactory)
    now = 0.0
    run = SharedPace(ledger.store, GATEWAY, lambda: now)
    assert run.lease(10, 0) is not None
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = 'payer' AND datname = current_database()"
    )
    ledger_factory.run(end)
    assert run.lease(10, 0) is None
    assert run.lease(10, 0) is not None
    ledger_factory.run(end)
    monkeypatch.setitem(ledger.store.place.parameters, "port", "1")
    assert run.lease(10, 0) is None
    now = 19.0
    assert run.lease(10, 0) is None
    now = 21.0
    with pytest.raises(LedgerNotUsable, match="can't be connected to"):
        run.lease(10, 0)
    run.close()


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_a_ledger_that_can_not_be_asked_for_good_is_said_at_once(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    assert isinstance(ledger_factory, PostgresFactory)
    ledger_factory.run("REVOKE EXECUTE ON FUNCTION batchpay.lease_pace FROM batchpay_app")
    run = ledger.shared_rate(GATEWAY)
    assert run is not None
    with pytest.raises(LedgerNotUsable, match="no right"):
        run.lease(10, 0)
    run.close()


def test_what_was_found_of_a_limit_is_known_to_the_next_run_wherever_it_is(
    ledger_factory: LedgerFactory, tmp_path: Path
) -> None:
    """Each gateway has its own; the latest finding stands."""
    ledger = ledger_factory.create()
    other = ledger
    if isinstance(ledger_factory, PostgresFactory):
        other = ledger_factory.on_another_machine(tmp_path / "other").join()
    run, later, elsewhere = (one.shared_rate(gateway) for one, gateway in (
        (ledger, GATEWAY), (other, GATEWAY), (other, "live https://pay.example")
    ))  # fmt: skip
    assert run is not None and later is not None and elsewhere is not None
    assert run.lease(10, 0) is not None
    for finding in (Finding(97.5), Finding(5.0, 60.0)):
        run.remember(finding)
        assert later.found() == finding
    assert elsewhere.found() is None
    for one in (run, later, elsewhere):
        one.close()
    other.close()


@pytest.mark.ledgers("postgres", why="a database's clock and connection; the file's are in test_pace_file.py")
def test_no_moment_is_leased_twice_however_many_ask_at_once(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """By the server's own clock: what all were leased lies side by side before the next free moment."""
    assert isinstance(ledger_factory, PostgresFactory) and isinstance(ledger, PostgresLedger)
    runs = [SharedPace(ledger.store, GATEWAY) for _ in range(4)]
    leases: list[Lease] = []

    def ask(run: SharedRate) -> None:
        for _ in range(20):
            leases.append(run.lease(1000, 0) or Lease(0.0, 0.0, 0, 0))

    began_at = time.time()
    threads = [threading.Thread(target=ask, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for run in runs:
        run.close()
    ((free_at,),) = ledger_factory.run("SELECT free_at FROM batchpay.pace")
    assert isinstance(free_at, float)
    assert len(leases) == 80
    assert free_at - began_at >= sum(lease.slots * lease.every_s for lease in leases if lease.slots) - 0.02
