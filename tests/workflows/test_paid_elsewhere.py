"""Results of an unknown batch, and a gateway that was known as the other one, say that a file may have been paid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import FileRefused, SettingsNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from batchpay.reports.results import HEADER, write_results
from batchpay.workflows.paid_elsewhere import refuse_paid_elsewhere
from batchpay.writing.table import write_table
from tests.ledger.batches import columns, register
from tests.ledger.conftest import LedgerFactory
from tests.workflows.desk import Desk

LIVE, TEST = Environment.LIVE, Environment.TEST


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with one batch."""
    tmp_path.chmod(0o700)
    ledger = LedgerFactory(tmp_path).create()
    register(ledger, columns(ledger, [1, 2]))
    return ledger


def results(path: Path, batch: str, environment: str | None) -> Path:
    """Results of two rows, as this version writes them, or without an environment as an earlier one did."""
    names = [name for name in HEADER if name != "environment" or environment is not None]
    values = {"row": "1", "batch": batch, "environment": environment, "state": "accepted"}
    write_table(path, names, [[values.get(name) for name in names]] * 2)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize(
    ("named", "environment", "refused"),
    [("live", LIVE, True), ("test", TEST, True), ("test", LIVE, False), ("live", TEST, False), (None, LIVE, True)],
)
def test_results_of_an_unknown_batch_refuse_the_file(
    ledger: Ledger, tmp_path: Path, ending: str, named: str | None, environment: Environment, refused: bool
) -> None:
    """For the same environment alone: a rehearsal's results say nothing of live money."""
    path = results(tmp_path / f"pay.results.{ending}", "0123456789ab", named)
    if refused:
        with pytest.raises(FileRefused, match=r"0123456789ab.*from a backup.*--paid-elsewhere-checked"):
            refuse_paid_elsewhere(ledger, path, environment)
    else:
        refuse_paid_elsewhere(ledger, path, environment)


def test_results_of_a_known_batch_are_no_alarm(ledger: Ledger, tmp_path: Path) -> None:
    """Last month's file of the same name was paid by this very ledger."""
    batch = ledger.find(None)
    write_results(ledger, batch, tmp_path / "pay.results.csv")
    refuse_paid_elsewhere(ledger, tmp_path / "pay.results.csv", batch.environment)


@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,2\n", b"row,batch\n", b"\xff\xfe\x00", b"batch\n,\n"])
def test_what_is_not_results_is_no_alarm(ledger: Ledger, tmp_path: Path, content: bytes | None) -> None:
    """No file, an empty one, another program's, a header alone."""
    path = tmp_path / "pay.results.csv"
    if content is not None:
        path.write_bytes(content)
    refuse_paid_elsewhere(ledger, path, LIVE)
    refuse_paid_elsewhere(ledger, None, LIVE)


def environment(desk: Desk, environment: str, base_url: str = "http://127.0.0.1:9") -> None:
    """Set what kind of gateway payments go to, and where it is."""
    gateway = replace(desk.settings.gateway, base_url=base_url, environment=environment)
    desk.settings = replace(desk.settings, gateway=gateway)


def test_one_gateway_is_not_test_and_live_at_will(desk: Desk) -> None:
    """A mistyped environment would pay a whole file once more: what was sent as test is no duplicate for live.

    A person who looked may say that the gateway has changed; from then on it is the other one.
    """
    paid, late = desk.file("paid.csv", {"invoiceNumber": "A-1", "amount": "10.00"}), desk.folder / "late.csv"
    desk.submit(paid)
    desk.file("late.csv", {"invoiceNumber": "A-2", "amount": "20.00"})
    environment(desk, "live")
    for ask in (desk.submit, desk.dry_run):
        for path in (paid, late):
            with pytest.raises(SettingsNotUsable, match=r"as a test gateway, and now .* a live one .*--paid-elsewhere"):
                ask(path)
    assert desk.arrived == {"A-1": 1}
    desk.submit(late, looked_elsewhere="the gateway went live today")
    desk.submit(desk.file("next.csv", {"invoiceNumber": "A-3", "amount": "30.00"}))
    environment(desk, "test")
    with pytest.raises(SettingsNotUsable, match="as a live gateway, and now it is to be a test one"):
        desk.submit(paid)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_each_gateway_at_its_own_address_is_what_it_is(desk: Desk) -> None:
    """A rehearsal makes no live payment a duplicate, nor the reverse, in whatever turns they come."""
    path = desk.file("pay.csv", {"invoiceNumber": "A-1", "amount": "10.00"})
    for kind, address in (("test", "http://127.0.0.1:9"), ("live", "https://pay.example.com")) * 2:
        environment(desk, kind, address)
        desk.submit(path)
    assert desk.arrived == {"A-1": 2}
