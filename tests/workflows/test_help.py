"""Which batches a helper resumes: one that can't be helped with delays no other, and a signal ends all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from batchpay.errors import BatchHeld, LedgerNotUsable, RunStopped, SettingsNotUsable, WaitingForPerson
from batchpay.gateway.credentials import Credentials
from batchpay.ledger.open import open_ledger
from batchpay.sending.limits import StopRequest
from batchpay.settings import Secret
from batchpay.workflows import work as helping
from batchpay.workflows.run import LibraryProcess, RunRequest
from tests.workflows.desk import ANN, Desk, Quiet

CREDENTIALS = Credentials("desk", Secret("desk-key"))
Help = Callable[[str, RunRequest], Any]


@pytest.fixture
def at_work(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[Help], list[str]]:
    """Let three batches be worked on for three checks, each helped with as given; return those that were begun."""
    desk.submit(desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "1.00"}))
    monkeypatch.setattr(helping, "CHECK_EVERY_S", 0.0)

    def look(help_one: Help, started: dict[str, int] | None = None) -> list[str]:
        started = {} if started is None else started
        begun: list[str] = []
        looks = iter("abc")
        request = RunRequest(None, owner=Signalled())

        def found(*_: object) -> list[Any]:
            if next(looks, None) is None:
                request.stop.ask("enough")
            return [SimpleNamespace(batch=name, started_at=started.get(name)) for name in "abc"]

        def help_with(_: object, batch: Any, own: RunRequest, *__: object) -> Any:
            begun.append(batch.batch)
            return help_one(batch.batch, own)

        monkeypatch.setattr(helping, "_at_work", found)
        monkeypatch.setattr(helping, "help_with", help_with)
        list(helping.work_forever(request, desk.settings, CREDENTIALS, ANN, Quiet()))
        return begun

    return look


class Signalled(LibraryProcess):
    """A process that receives a signal: what started running last is asked to stop."""

    asked: StopRequest

    def running(self, stop: StopRequest) -> AbstractContextManager[None]:
        """Keep what a signal would stop."""
        self.asked = stop
        return nullcontext()


def test_what_can_not_be_helped_with_is_left_and_the_others_are_not(
    at_work: Callable[[Help], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One belongs to another gateway, one stops for a wrong key: neither is begun every few seconds forever."""
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda _, text: said.append(text))

    def help_one(name: str, own: RunRequest) -> Any:
        if name == "a":
            raise SettingsNotUsable("intended for another gateway")
        return ended("the gateway refused the key" if name == "b" else None)

    assert at_work(help_one) == ["a", "b", "c", "c", "c"]
    assert said == ["batch a: intended for another gateway"]


def ended(stopped: str | None, *, ledger_failed: bool = False) -> Any:
    """Return how a run ended."""
    return SimpleNamespace(stopped=stopped, ledger_failed=ledger_failed)


def test_a_batch_is_helped_with_as_soon_as_nothing_is_in_the_way(at_work: Callable[..., list[str]]) -> None:
    """One was held by a second helper, one lost its ledger for a minute, one stopped and is led anew.

    All three were left alone for as long as any machine worked on them: the answers set aside were never merged, and
    nobody noticed if the leader died.
    """
    started, tries = {"c": 1}, Counter[str]()

    def help_one(name: str, own: RunRequest) -> Any:
        tries[name] += 1
        if name == "a" and tries["a"] == 1:
            raise BatchHeld("another run has it")
        if name == "a" and tries["a"] == 2:
            raise WaitingForPerson("needs approval by another person")
        started["c"] = 2
        return ended(None if name == "a" else "stopped", ledger_failed=name == "b" and tries["b"] == 1)

    assert at_work(help_one, started) == ["a", "b", "c", "a", "b", "c", "a"]


def test_a_ledger_that_is_lost_after_a_batch_does_not_say_that_nothing_was_sent(
    at_work: Callable[[Help], list[str]],
) -> None:
    """A machine that had helped for days ended with 5, "nothing was sent", when its database was switched off."""

    def help_one(name: str, own: RunRequest) -> Any:
        if name != "a":
            raise LedgerNotUsable("the database can't be connected to; nothing was sent")
        return ended(None)

    with pytest.raises(RunStopped, match=r"^the database can't be connected to$"):
        at_work(help_one)


def test_a_signal_to_one_batch_ends_the_call(at_work: Callable[[Help], list[str]]) -> None:
    """The rows under way end, and no other batch is begun; a stop of the batch alone is the batch's own."""
    reasons: list[str | None] = []

    def help_one(name: str, own: RunRequest) -> Any:
        if name == "a":
            own.stop.ask("too many rows in doubt")
        else:
            with own.owner.running(own.stop):
                own.owner.owner.asked.ask("stopped by SIGTERM")  # type: ignore[attr-defined]
        reasons.append(own.stop.reason)
        return ended(own.stop.reason)

    assert at_work(help_one) == ["a", "b"]
    assert reasons == ["too many rows in doubt", "stopped by SIGTERM"]


def test_a_batch_that_another_process_holds_is_reported_and_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever started a second helper by mistake reads why it does nothing."""
    monkeypatch.setattr(Quiet, "say", lambda _, text: print(text))
    desk.submit(desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "1.00"}))
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        batch = ledger.find(None)
        monkeypatch.setattr(type(ledger), "lock", held)
    assert helping.work(batch.batch, RunRequest(None), desk.settings, CREDENTIALS, ANN, Quiet()) == []
    assert capsys.readouterr().out == f"batch {batch.batch}: another run has it\n"


def held(*_: object, **__: object) -> AbstractContextManager[None]:
    """Find a batch held by another process."""
    raise BatchHeld("another run has it")
