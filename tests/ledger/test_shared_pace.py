"""One pace for all who send to a gateway through one ledger: who sends, what is found, what the gateway asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from batchpay.ledger.contract import Ledger, SharedPace
from batchpay.ledger.records import PaceNow
from batchpay.outcome import Finding, Pace
from batchpay.payment import Environment
from batchpay.sending.pacing import LOOK_S, Throttle
from tests.ledger.batches import columns, register
from tests.ledger.factories import LedgerFactory, PostgresFactory


@contextmanager
def sending(factory: LedgerFactory, salt: str, *, ends: bool = True) -> Iterator[tuple[Ledger, SharedPace]]:
    """A run over a batch of its own, with a connection of its own to the ledger."""
    with ExitStack() as stack:
        ledger = factory.open()
        name = register(ledger, columns(ledger, range(1, 4), salt=salt), content=salt.encode())
        batch = ledger.find(name)
        stack.enter_context(ledger.lock(batch.digest))
        run = ledger.start(name, "ada")
        stack.callback(lambda: run.finish(None) if ends else run.close())
        pace = ledger.shared_pace(batch.environment, batch.origin)
        stack.callback(pace.close)
        yield ledger, pace


def test_each_of_the_runs_that_send_takes_its_part(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """Two nightly jobs, each at the ceiling, were twice the ceiling for their gateway. Who has ended takes none."""
    with sending(ledger_factory, "one") as (_, one):
        assert one.look() == PaceNow(1, 0.0)
        with sending(ledger_factory, "two") as (_, two):
            assert one.look() == two.look() == PaceNow(2, 0.0)
        assert one.look() == PaceNow(1, 0.0)


def test_a_run_that_died_takes_no_part(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """On SQLite its lock is gone with it; in a database its heartbeat stands still for half a minute."""
    with sending(ledger_factory, "one") as (_, one):
        with sending(ledger_factory, "two", ends=False):
            pass
        if isinstance(ledger_factory, PostgresFactory):
            assert one.look() == PaceNow(2, 0.0)
            ledger_factory.run("UPDATE batchpay.run SET seen_at = seen_at - 31000 WHERE id = 2")
        assert one.look() == PaceNow(1, 0.0)


def test_gateways_are_apart(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    with sending(ledger_factory, "one") as (own, one):
        elsewhere = own.shared_pace(Environment.LIVE, "https://elsewhere.example")
        one.pause(30)
        one.remember(Finding(9.0))
        assert (elsewhere.look(), elsewhere.found()) == (PaceNow(1, 0.0), None)
        elsewhere.close()


def test_a_pause_is_heard_by_all_and_outlives_the_run_that_was_asked(
    ledger: Ledger, ledger_factory: LedgerFactory
) -> None:
    """The next run of the night would be refused at once. A shorter pause of another changes nothing."""
    with sending(ledger_factory, "one") as (_, one):
        one.pause(30)
    with sending(ledger_factory, "two") as (_, two):
        two.pause(5)
        now = two.look()
        assert now is not None
        assert now.runs == 1
        assert 20 < now.paused_s < 31


def test_a_pause_of_before_the_clock_was_set_back_means_nothing(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    with sending(ledger_factory, "one") as (_, one):
        one.pause(1e6)
        assert one.look() == PaceNow(1, 0.0)
        one.pause(30)
        now = one.look()
        assert now is not None and 20 < now.paused_s < 31


def test_what_was_found_of_a_limit_is_known_to_the_next_run_wherever_it_is(
    ledger: Ledger, ledger_factory: LedgerFactory, tmp_path: Path
) -> None:
    """The latest finding stands; a backup or a copy carries it along."""
    other = ledger
    if isinstance(ledger_factory, PostgresFactory):
        other = ledger_factory.on_another_machine(tmp_path / "other").join()
    run, later = (one.shared_pace(Environment.TEST, "http://127.0.0.1:1") for one in (ledger, other))
    assert run.found() is None
    for finding in (Finding(97.5), Finding(5.0, 60.0)):
        run.remember(finding)
        assert later.found() == finding
    for one in (run, later):
        one.close()
    other.close()


@pytest.mark.ledgers("postgres", why="a file always answers")
def test_a_database_that_does_not_answer_changes_no_pace(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """A file is always there; a lost connection is made anew, and the run's commits say it if that is not possible."""
    assert isinstance(ledger_factory, PostgresFactory)
    pace = ledger.shared_pace(Environment.TEST, "http://127.0.0.1:1")
    assert pace.look() == PaceNow(1, 0.0)
    ledger_factory.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = 'payer' AND datname = current_database()"
    )
    assert pace.look() is None
    assert pace.look() == PaceNow(1, 0.0)
    pace.close()


class Clock:
    """A clock that only the test and whoever sleeps move."""

    now, is_stopping = 100.0, False

    def sleep(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_stopping

    def throttle(self, shared: SharedPace, rate: float) -> Throttle:
        return Throttle(rate, clock=lambda: self.now, sleep=self.sleep, shared=shared)

    def sent(self, throttle: Throttle, seconds: float) -> int:
        """How many leave in this time."""
        until, count = self.now + seconds, 0
        while self.now < until:
            assert throttle.acquire()
            throttle.leave()
            throttle.learn(None, self.now)
            count += 1
        return count


def test_a_throttle_divides_its_rate_while_others_send(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """A run that joins waits until the others have seen it; each then has half, and all of it when one has ended."""
    clock, other_clock = Clock(), Clock()
    with sending(ledger_factory, "one") as (_, one):
        throttle = clock.throttle(one, 50.0)
        assert clock.sent(throttle, 10) == pytest.approx(500, abs=8)
        with sending(ledger_factory, "two") as (_, two):
            other = other_clock.throttle(two, 50.0)
            other_clock.sent(other, 0.01)
            assert other_clock.now >= 100 + LOOK_S
            clock.sent(throttle, LOOK_S)
            assert clock.sent(throttle, 10) == pytest.approx(250, abs=5)
            assert other_clock.sent(other, 10) == pytest.approx(250, abs=5)
        clock.sent(throttle, LOOK_S)
        assert clock.sent(throttle, 10) == pytest.approx(500, abs=8)


def test_a_throttle_tells_a_pause_that_the_gateway_asks_for(ledger: Ledger, ledger_factory: LedgerFactory) -> None:
    """The other run was refused as well before it waited."""
    clock, other_clock = Clock(), Clock()
    with sending(ledger_factory, "one") as (_, one), sending(ledger_factory, "two") as (_, two):
        throttle, other = clock.throttle(one, 50.0), other_clock.throttle(two, 50.0)
        clock.sent(throttle, 5)
        other_clock.sent(other, 5)
        throttle.learn(Pace(retry_after_s=30.0, refused=True), clock.now)
        other_clock.now += LOOK_S
        other_clock.is_stopping = True  # a ledger's pause passes by real time
        assert not other.acquire()
        assert 25 < other.state().paused_s <= 30
