"""What others do between a command's check and the moment when it holds its batch: nothing relies on what was before.

A large file is checked for minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import RunStopped, SettingsNotUsable, WaitingForPerson, WrongUse
from batchpay.intake import streams
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import Decision
from batchpay.payment import Environment, State, Totals
from batchpay.sending.limits import Limits
from batchpay.settings import PolicySettings
from batchpay.summary import Summary
from batchpay.workflows import submit as submitting
from batchpay.workflows.file_check import check_file
from batchpay.workflows.move_gateway import move_gateway
from batchpay.workflows.reconcile import ReconcileRequest, reconcile
from tests.workflows.desk import ANN, IN_DOUBT, Desk, Quiet
from tests.workflows.test_settling import Reader

ONE = {"invoiceNumber": "A-1", "amount": "10.00"}
TWO = {"invoiceNumber": "A-2", "amount": "20.00"}


@pytest.fixture
def waiting(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Summary:
    """A batch of which nothing was sent yet."""
    with monkeypatch.context() as patched:
        patched.setattr(Limits, "allow_row", lambda self: False)
        return desk.submit(desk.file("may.csv", ONE, TWO))


@pytest.fixture
def before_lock(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let something happen once, at the last moment before a command holds its batch."""

    def let(act: Callable[[], object]) -> None:
        with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
            kind: Any = type(ledger)
        lock = kind.lock

        def first(*args: Any, **named: Any) -> Any:
            monkeypatch.setattr(kind, "lock", lock)
            act()
            return lock(*args, **named)

        monkeypatch.setattr(kind, "lock", first)

    return let


BeforeLock = Callable[[Callable[[], object]], None]


@pytest.mark.usefixtures("on_both")
def test_a_twin_that_registers_during_the_look_up_is_no_other_reading(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several starts at once one was refused, as if the file had been read with another map before."""
    path = desk.file("may.csv", ONE)
    with closing(open_ledger(desk.settings.ledger, create_as="ann")) as ledger:
        kind: Any = type(ledger)
    find_digest = kind.find_digest

    def and_then_the_twin(*args: Any) -> Any:
        monkeypatch.setattr(kind, "find_digest", find_digest)
        found = find_digest(*args)
        desk.submit(path)
        return found

    monkeypatch.setattr(kind, "find_digest", and_then_the_twin)
    assert (desk.submit(path).exit_code, desk.arrived) == (0, {"A-1": 1})


@pytest.mark.usefixtures("waiting")
def test_what_was_let_through_elsewhere_while_a_known_file_is_checked_is_not_sent_as_well(
    desk: Desk, before_lock: BeforeLock
) -> None:
    """A colleague paid a bill that waited with another file, on purpose: the file under check paid it once more."""
    before_lock(lambda: desk.submit(desk.file("other.csv", ONE), allow_duplicates=True))
    done = desk.submit(desk.folder / "may.csv")
    assert (done.exit_code, done.held_back, desk.arrived) == (3, Totals(1, 10_00), {"A-1": 1, "A-2": 1})


def test_what_was_let_through_elsewhere_before_a_resume_holds_its_batch_is_not_sent_as_well(
    desk: Desk, waiting: Summary, before_lock: BeforeLock
) -> None:
    """The same, with the bills of a batch that is read for seconds before it is held."""
    before_lock(lambda: desk.submit(desk.file("other.csv", ONE), allow_duplicates=True))
    done = desk.resume(waiting.batch)
    assert (done.exit_code, done.held_back, desk.arrived) == (3, Totals(1, 10_00), {"A-1": 1, "A-2": 1})


def test_rows_put_back_before_a_resume_holds_its_batch_need_todays_approvals(
    desk: Desk, before_lock: BeforeLock
) -> None:
    """Nothing waited when it looked, so it asked for no approval; what a person put back then was sent without."""
    desk.answer = lambda reference: IN_DOUBT
    batch = str(desk.submit(desk.file("may.csv", ONE)).batch)
    desk.settings = replace(desk.settings, policy=PolicySettings(variance=False, approvals=1, approve_above="0.00"))

    def put_back() -> None:
        with closing(open_ledger(desk.settings.ledger)) as ledger:
            ledger.resolve(batch, [Decision(1, State.PENDING)], "ann", "not in the portal")

    before_lock(put_back)
    with pytest.raises(WaitingForPerson, match="needs approval by another person"):
        desk.resume(batch)
    assert desk.arrived == {"A-1": 1}


def test_a_batch_whose_gateway_moves_before_a_resume_holds_it_is_not_sent_to_the_old_address(
    desk: Desk, waiting: Summary, before_lock: BeforeLock
) -> None:
    """The address that it had when it was looked up was the one in the settings."""
    old, new = "http://127.0.0.1:9", "http://127.0.0.1:10"
    before_lock(lambda: move_gateway(old, new, "their letter of May", desk.settings, ANN))
    with pytest.raises(SettingsNotUsable, match=f"is intended for the gateway {new}, the settings name {old}"):
        desk.resume(waiting.batch)
    assert not desk.arrived


def test_a_row_that_a_run_left_in_doubt_before_a_reconciliation_held_its_batch_is_compared_whole(
    desk: Desk, waiting: Summary, before_lock: BeforeLock
) -> None:
    """Nothing was in doubt when it looked, so accounts were not compared: another account's payment settled the row."""
    export, today = desk.folder / "export.csv", datetime.now(UTC).date().isoformat()
    export.write_text(f"Transaction ID,Invoice,Amount,Date,Account,Status\nTX-1,A-1,10.00,{today},x1111,Settled\n")
    desk.answer = lambda reference: IN_DOUBT
    before_lock(lambda: desk.resume(waiting.batch))
    request = ReconcileRequest(str(export), output=str(desk.folder / "out.csv"))
    done = reconcile(str(waiting.batch), request, desk.settings, ANN, Reader())
    assert (done.settled, done.summary.of(State.IN_DOUBT).rows) == ([], 1)


def test_one_gateway_becomes_no_other_environment_while_a_file_is_checked(desk: Desk, before_lock: BeforeLock) -> None:
    """Both were the first for this gateway when they began: each environment paid the whole file."""
    open_ledger(desk.settings.ledger, create_as="ann").close()
    path = desk.file("may.csv", ONE)
    mine = desk.settings
    mistyped = replace(mine, gateway=replace(mine.gateway, environment="live"))

    def pay() -> None:
        desk.settings = mistyped
        desk.submit(path)
        desk.settings = mine

    before_lock(pay)
    with pytest.raises(SettingsNotUsable, match="as a live gateway, and is now set to be a test one"):
        desk.submit(path)
    assert desk.arrived == {"A-1": 1}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let standard input hold a file, which can be read once."""

    def let(path: Path) -> None:
        blocks = [path.read_bytes()]
        path.unlink()
        monkeypatch.setattr(streams, "given_blocks", lambda _: (blocks.pop() for _ in blocks[:]))

    return let


@pytest.mark.usefixtures("on_both")
def test_standard_input_is_read_once_whatever_is_registered_during_its_check(
    desk: Desk, before_lock: BeforeLock, given: Callable[[Path], None]
) -> None:
    """Another file had one of its bills: it had to be checked again, and was reported to be empty."""
    given(desk.file("may.csv", ONE, TWO))
    before_lock(lambda: desk.submit(desk.file("other.csv", ONE)))
    done = desk.submit(Path("-"), rejects=desk.folder / "rejects.csv", format="csv")
    assert (done.exit_code, done.total, desk.arrived) == (3, Totals(2, 30_00), {"A-1": 1, "A-2": 1})


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("shares", [False, True])
def test_a_file_is_checked_again_only_for_its_own_payments(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    """Small files that are registered again and again starved a large one: three checks of an hour, then code 5."""
    checks: list[int] = []
    check = check_file

    def checked(*args: Any) -> Any:
        found = check(*args)
        checks.append(1)
        row = {"invoiceNumber": f"B-{len(checks)}", "amount": "1.00"}
        if shares:
            row = ONE | {"invoiceNumber": f"A-{len(checks)}"}
        with monkeypatch.context() as patch:
            patch.setattr(submitting, "check_file", check)
            desk.submit(desk.file("small.csv", row))
        return found

    monkeypatch.setattr(submitting, "check_file", checked)
    rows = [ONE | {"invoiceNumber": f"A-{number}"} for number in range(1, 5)]
    if shares:
        with pytest.raises(RunStopped, match=r"large.csv: .*run the command again"):
            desk.submit(desk.file("large.csv", *rows))
        assert len(checks) == 3
    else:
        assert desk.submit(desk.file("large.csv", *rows)).exit_code == 0
        assert len(checks) == 1


NAMED = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
ALSO_NAMED = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00"}


def test_the_latest_batch_is_the_latest_of_its_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test run was left halfway after the live file: `resume` for the live gateway continues the live one.

    By its name a batch is found in whatever environment it is, and the run itself refuses the wrong one.
    """
    open_ledger(desk.settings.ledger, create_as="ann").close()  # a live gateway gets none by itself
    gateway = desk.settings.gateway
    live, test = (
        replace(desk.settings, gateway=replace(gateway, environment=name, base_url=f"http://127.0.0.1:{port}"))
        for name, port in (("live", 8), ("test", 9))
    )
    with monkeypatch.context() as patched:
        patched.setattr(Limits, "allow_row", lambda self: False)
        for settings, file, row in ((live, "may.csv", NAMED), (test, "rehearsal.csv", ALSO_NAMED)):
            desk.settings = settings
            assert desk.submit(desk.file(file, row)).exit_code == 6
    desk.settings = live
    assert desk.resume().exit_code == 0
    assert desk.arrived == {"A-1": 1}


def test_who_names_no_batch_is_told_of_the_others_that_wait(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two files of a night the first had stopped: `resume` took the second, said that nothing was left, and ended.

    One that waits for long is resumed by its name: without it, the command that was advised took the latest as well.
    """
    with monkeypatch.context() as patched:
        patched.setattr(Limits, "allow_row", lambda self: False)
        stopped = desk.submit(desk.file("may.csv", NAMED)).batch or ""
    latest = desk.submit(desk.file("june.csv", ALSO_NAMED))
    told = f"batch {stopped} of {desk.folder}/may.csv has 1 row to be sent as well, 10.00: batchpay resume {stopped}"
    assert told in desk.resume().notes
    assert not any(stopped in note for note in desk.resume(latest.batch).notes)
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, stale_days=0))
    assert f"{told} --stale --reason TEXT" in desk.resume(stale_reason="the latest").notes, (
        "as advised, it ended with 2"
    )
    with pytest.raises(WrongUse, match=f"still to be paid: batchpay resume {stopped} --stale"):
        desk.resume(stopped)
    assert not desk.resume(stopped, stale_reason="the suppliers still wait").notes
    assert not desk.resume().notes
    assert desk.arrived == {"A-1": 1, "A-2": 1}


@pytest.mark.usefixtures("on_both")
def test_a_pause_that_another_run_was_asked_for_is_said_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that began while the gateway had asked an earlier one to wait seemed to do nothing, without a word."""
    said: list[str] = []
    monkeypatch.setattr(Quiet, "say", lambda _, text: said.append(text))
    desk.settings = replace(desk.settings, submit=replace(desk.settings.submit, wait_s_max=0.0))  # said, not waited
    first, second = (desk.file(f"{at}.csv", {"invoiceNumber": at, "amount": f"{at}.00"}) for at in ("1", "2"))
    desk.submit(first)
    assert said == []
    origin = desk.settings.gateway.base_url
    with (
        closing(open_ledger(desk.settings.ledger)) as ledger,
        closing(ledger.shared_pace(Environment.TEST, origin)) as pace,
    ):
        pace.pause(300.0)
    assert desk.submit(second).of(State.ACCEPTED).rows == 1
    (told,) = said
    assert told.startswith("the gateway asked another run to wait: sending begins in ")
