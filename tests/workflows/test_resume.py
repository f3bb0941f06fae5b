"""Resuming a batch: which one it is when none is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.sending.limits import Limits
from tests.workflows.desk import Desk

ONE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
TWO = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00"}


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
        for settings, file, row in ((live, "may.csv", ONE), (test, "rehearsal.csv", TWO)):
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
        stopped = desk.submit(desk.file("may.csv", ONE)).batch or ""
    latest = desk.submit(desk.file("june.csv", TWO))
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
