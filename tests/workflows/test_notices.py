"""Notices, over real HTTP on loopback: what is told, and that no monitor changes how a call ends."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused, SettingsNotUsable, WaitingForPerson
from batchpay.operations.notify import Notice, kept_path, look, notify
from batchpay.payment import Actor, Totals
from batchpay.sending.limits import Limits
from batchpay.settings import LimitsSettings, NotifySettings, PolicySettings, load_settings
from batchpay.workflows import run
from batchpay.workflows.approve import approve_plan, write_plan
from batchpay.workflows.policy import decide_lowering, set_policy
from batchpay.workflows.returns import take_returns
from batchpay.workflows.run import RunRequest
from tests.support.monitor import Monitor, monitor
from tests.workflows.desk import ANN, DECLINED, IN_DOUBT, Desk, Quiet

SECRETS = ("hook-7f3a", "k3y-for-signing")
ROW = {"paymentId": "A", "invoiceNumber": "A", "amount": "10.00"}
OTHER = {"paymentId": "B", "invoiceNumber": "B", "amount": "20.00", "transactionType": "DEBIT"}


def told(desk: Desk, origin: str, **changed: Any) -> None:
    """Set notices up."""
    key = desk.folder / "notify.key"
    key.write_text(SECRETS[1])
    key.chmod(0o600)
    notices = NotifySettings(url=f"{origin}/{SECRETS[0]}?sig=1", key_file=str(key), **changed)
    desk.settings = replace(desk.settings, notify=notices)


def call(work: Callable[[], Any]) -> Any:
    """Do something as a call of its own."""
    return copy_context().run(work)


def events(kept: Monitor) -> list[dict[str, Any]]:
    return [json.loads(body) for body in kept.bodies]


@contextmanager
def held() -> Iterator[str]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def gone() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


def test_a_run_tells_how_it_ended_signed_with_time_and_id(desk: Desk) -> None:
    """Rows and cents by direction, environment and a link; no payee, no account, and a masked file name."""
    desk.answer = lambda reference: DECLINED if reference == "B" else desk.__class__.answer(reference)
    with monitor() as kept:
        told(desk, kept.origin, link="https://pay.example.test/")
        summary = call(lambda: desk.submit(desk.file("pay 648443924.csv", ROW, OTHER)))
    (found,), (headers,) = events(kept), kept.headers
    assert found | {"id": "", "at": ""} == {
        "id": "", "at": "", "event": "finished", "environment": "test", "batch": summary.batch,
        "file": "pay ****3924.csv", "rows": 1, "cents": {"CREDIT": 1000},
        "link": f"https://pay.example.test/batches/{summary.batch}",
    }  # fmt: skip
    assert kept.requests == [("POST", f"/{SECRETS[0]}?sig=1")]
    signed = f"{headers['Batchpay-Id']}.{headers['Batchpay-Time']}.".encode() + kept.bodies[0]
    expected = hmac.new(SECRETS[1].encode(), signed, hashlib.sha256).hexdigest()
    assert headers["Batchpay-Signature"] == f"sha256={expected}" and headers["Batchpay-Id"] == found["id"]


def test_a_doubt_and_a_stop_are_told_and_a_call_with_nothing_to_do_is_not(desk: Desk) -> None:
    """A run that sent nothing has nothing to tell: cron calls every five minutes."""
    desk.answer = lambda reference: IN_DOUBT
    with monitor() as kept:
        told(desk, kept.origin)
        path = desk.file("pay.csv", ROW, OTHER)
        assert call(lambda: desk.submit(path)).exit_code == 7
        assert [(one["event"], one["rows"]) for one in events(kept)] == [("doubt", 1), ("stopped", 1)]
        desk.answer = desk.__class__.answer
        call(lambda: desk.submit(path))
        call(lambda: desk.submit(path))
    assert [(one["event"], one["cents"]) for one in events(kept)[2:]] == [("finished", {"DEBIT": 2000})]


def test_an_approval_is_asked_for_until_it_has_arrived_and_no_longer_than_it_is_open(desk: Desk) -> None:
    """While nobody answers, the next call sends the same notice again; once it has arrived, none does."""
    desk.settings = replace(desk.settings, policy=PolicySettings(approvals=1, variance=False))
    path = desk.file("pay.csv", ROW)

    def waits() -> None:
        with pytest.raises(WaitingForPerson):
            desk.submit(path)

    with gone() as origin:
        told(desk, origin)
        call(waits)
    assert "1 notice has not arrived" in look(desk.settings).message
    with monitor() as kept:
        told(desk, kept.origin)
        call(lambda: notify(desk.settings, None))
        call(waits)
        (found,) = events(kept)
        assert (found["event"], found["cents"], found["batch"]) == ("approval_requested", {"CREDIT": 1000}, None)
    with gone() as origin:
        told(desk, origin)
        digest = next(iter(json.loads(kept_path(desk.settings).read_text())))
        call(lambda: notify(desk.settings, Notice.POLICY_LOWERING, about="lowering"))
        call(lambda: notify(desk.settings, Notice.APPROVAL_TURNED_DOWN, about=digest))
        call(lambda: notify(desk.settings, None, about="lowering"))
    assert json.loads(kept_path(desk.settings).read_text()) == {}
    assert kept_path(desk.settings).stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("on_both")
def test_a_batch_that_waits_for_an_approval_asks_for_it_once(desk: Desk) -> None:
    """`resume --due` by cron waited every night, and nobody heard of it; once it is sent, nobody is asked anymore."""
    desk.submit(desk.file("pay.csv", ROW, OTHER), run=RunRequest(desk.folder / "r.csv", Limits(rows_max=1)))
    desk.settings = replace(desk.settings, policy=PolicySettings(approvals=1, variance=False))
    with monitor() as kept:
        told(desk, kept.origin)
        for _night in range(2):
            with pytest.raises(WaitingForPerson):
                call(lambda: desk.resume(None))
        (found,) = events(kept)
        assert (found["event"], found["cents"]) == ("approval_requested", {"DEBIT": 2000})
        desk.settings = replace(desk.settings, policy=PolicySettings())
        call(lambda: desk.resume(None))
    assert [one["event"] for one in events(kept)] == ["approval_requested", "finished"]
    assert json.loads(kept_path(desk.settings).read_text()) == {}


@pytest.mark.usefixtures("on_both")
def test_a_plan_and_a_lowering_are_told_with_what_was_decided(desk: Desk) -> None:
    """Prepared, approved; asked for, refused: each decision ends the asking."""
    desk.settings = replace(desk.settings, policy=PolicySettings(approvals=1, variance=False))
    ben, plan = Actor("ben", "desk-4"), str(desk.folder / "plan.json")
    with monitor() as kept:
        told(desk, kept.origin)
        prepared = desk.dry_run(desk.file("pay.csv", ROW), with_plan=True).plan
        assert prepared is not None
        call(lambda: write_plan(prepared, plan, desk.settings, asks=True))
        call(lambda: approve_plan(plan, prepared.seal, desk.settings, ben))
        call(lambda: set_policy(desk.settings, {"approvals": 1}, None, "four eyes", ANN))
        call(lambda: set_policy(desk.settings, {"approvals": 0}, None, "in a hurry", ANN))
        call(lambda: decide_lowering(desk.settings, ben, "no"))
    names = [one["event"] for one in events(kept)]
    assert names == ["approval_requested", "approval_given", "policy_lowering"]
    assert json.loads(kept_path(desk.settings).read_text()) == {}


def test_a_limit_is_told(desk: Desk) -> None:
    """A file that is refused for a limit."""
    desk.settings = replace(desk.settings, limits=LimitsSettings(max_total="5.00"))
    with monitor() as kept:
        told(desk, kept.origin)
        with pytest.raises(FileRefused):
            call(lambda: desk.submit(desk.file("pay.csv", ROW)))
    assert [(one["event"], one["cents"]) for one in events(kept)] == [("limit", {"CREDIT": 1000})]


def test_returns_are_told_once(desk: Desk) -> None:
    """The same file, taken in again by the next night, has nothing new to tell."""
    desk.submit(desk.file("pay.csv", ROW, OTHER))
    path = desk.folder / "returns.csv"
    today = datetime.now(UTC).date()
    path.write_text(f"Return Date,Return Code,Individual ID,Amount\n{today:%m/%d/%Y},R01,B,20.00\n")
    with monitor() as kept:
        told(desk, kept.origin)
        for _ in range(2):
            call(lambda: take_returns(path, desk.settings, ANN))
    assert [(one["event"], one["file"], one["cents"]) for one in events(kept)] == [
        ("returns", "returns.csv", {"DEBIT": 2000})
    ]


@pytest.mark.parametrize("fault", ["gone", "held", "redirect", "refuses", "no key", "plain http"])
def test_no_monitor_changes_how_a_call_ends(desk: Desk, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is gone, hangs, redirects or refuses: payments and exit code are the same, and one line says so."""
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda self, text: said.append(text))
    with monitor() as elsewhere, monitor(302, elsewhere.origin) as redirects, monitor(500) as refuses:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, elsewhere.origin)
        origins = {"redirect": redirects.origin, "refuses": refuses.origin, "plain http": "http://example.test"}
        with gone() as unused, held() as silent:
            origin = origins.get(fault, silent if fault == "held" else unused)
            told(desk, origin, timeout_s=0.1)
            if fault == "no key":
                Path(desk.settings.notify.key_file).chmod(0o644)
            summary = call(lambda: desk.submit(desk.file("pay.csv", ROW, OTHER)))
    assert (summary.exit_code, desk.arrived.total()) == (0, 2)
    assert elsewhere.requests == [], "neither a redirect nor a proxy is followed"
    (line,) = [one for one in said if "no notice was sent" in one]
    assert not any(secret in line for secret in SECRETS)


def test_after_the_first_failure_a_call_is_silent(desk: Desk) -> None:
    """A call that has much to tell is held up by one notice at most."""
    with monitor(500) as kept:
        told(desk, kept.origin)

        def two() -> None:
            assert notify(desk.settings, Notice.STOPPED) == "notify.url answered HTTP 500; no notice was sent"
            assert notify(desk.settings, Notice.DOUBT, apart={"DEBIT": Totals(1, 5)}) is None

        call(two)
        assert len(kept.requests) == 1
        call(two)
    assert len(kept.requests) == 2


def test_the_address_is_a_secret_that_no_variable_sets(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a settings file, or in a file of mode 0600 that a variable names; no text of the settings has it."""
    told(desk, "https://hooks.example.test")
    assert not any(secret in repr(desk.settings) + str(desk.settings) for secret in SECRETS)
    with pytest.raises(SettingsNotUsable, match=r"no variable sets notify\.url"):
        load_settings({}, {"BATCHPAY_NOTIFY_URL": "https://elsewhere.example.test"})
    named = desk.folder / "url"
    with monitor() as kept:
        named.write_text(f"{kept.origin}/{SECRETS[0]}\n")
        named.chmod(0o600)
        variables = {"BATCHPAY_NOTIFY_URL_FILE": str(named)}
        notices = replace(load_settings({}, variables).notify, key_file=desk.settings.notify.key_file)
        desk.settings = replace(desk.settings, notify=notices)
        assert call(lambda: notify(desk.settings, Notice.FINISHED)) is None
        assert kept.requests == [("POST", f"/{SECRETS[0]}")]
    named.chmod(0o644)
    problem = call(lambda: notify(desk.settings, Notice.FINISHED))
    assert "readable by other users" in problem and look(desk.settings).exit_code == 5


@pytest.mark.usefixtures("on_both")
def test_it_is_told_after_the_commit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told can look: the ledger has it by then."""
    seen: list[list[tuple[str, str | None]]] = []
    monkeypatch.setattr(run, "notify_run", lambda *_: seen.append(desk.events("finished")))
    desk.submit(desk.file("pay.csv", ROW))
    assert seen == [[("ann@desk-3", None)]]
