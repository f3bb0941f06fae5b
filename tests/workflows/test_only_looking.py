"""Commands that only read open the ledger read-only: nothing in it changes, and nobody's run is blocked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from batchpay.errors import LedgerMissing, LedgerNotUsable
from batchpay.ledger import open as door
from batchpay.workflows import approve, earlier_payments, health, ledger_care, reconcile, resolve, status
from batchpay.workflows.reconcile import ReconcileRequest
from tests.workflows.desk import ANN, IN_DOUBT, Desk
from tests.workflows.office import BEN, Office
from tests.workflows.test_retention import LATER

ONE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return how the ledger was opened each time: read-only or not."""
    found: list[bool] = []

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def open_ledger(settings: Any, **how: Any) -> Any:
            found.append(how.get("read_only", False))
            return real(settings, **how)

        return open_ledger

    modules: tuple[ModuleType, ...] = (
        approve, door, earlier_payments, health, ledger_care, reconcile, resolve, status
    )  # fmt: skip
    for module in modules:
        monkeypatch.setattr(module, "open_ledger", noting(vars(module)["open_ledger"]))
    return found


def test_lists_pages_and_states_only_read(desk: Desk, opened: list[bool]) -> None:
    """Each of them works during a submission, and on a ledger that its reader may not write."""
    desk.answer = lambda _: IN_DOUBT
    batch = desk.submit(desk.file("may.csv", ONE)).batch or ""
    export = desk.folder / "export.csv"
    export.write_text("Transaction ID,Invoice Number,Amount\n")
    assert [one.batch for one in status.all_batches(desk.settings)] == [batch]
    assert status.batch_status(batch[:6], desk.settings).batch == batch
    assert list(status.all_in_doubt(desk.settings)) == [batch]
    assert status.runs_of_batch(batch, desk.settings) == []
    found = earlier_payments.find_payment("p-1", desk.settings)
    assert found is not None and found.batch == batch
    assert [doubt.row for doubt in resolve.list_in_doubt(batch, desk.settings, ANN).doubts] == [1]
    assert ledger_care.look(desk.settings, 5, LATER).due == []
    assert health.ledger_state(desk.settings).batches == 1
    status.results_again(batch, lambda _: desk.folder / "again.csv", desk.settings)
    status.batch_page(batch, lambda _: desk.folder / "page.html", desk.settings)
    output = str(desk.folder / "out.csv")
    reconcile.reconcile(batch, ReconcileRequest(str(export), output=output), desk.settings, ANN)
    assert opened == [True] * 12


def test_without_a_ledger_a_dry_run_says_what_it_does_not_know(desk: Desk) -> None:
    """Earlier payments; once there is a ledger, nothing is said. Nothing is in doubt if nothing was sent."""
    path, said = desk.file("may.csv", ONE), "payments of earlier batches are not known"
    assert status.all_in_doubt(desk.settings) == {}
    assert any(said in note for note in desk.dry_run(path).summary.notes)
    desk.submit(path)
    assert not any(said in note for note in desk.dry_run(path).summary.notes)


def test_a_ledger_that_is_away_does_not_mean_that_nothing_is_in_doubt(
    on_both: None, desk: Desk, request: pytest.FixtureRequest
) -> None:
    """Its disk was not mounted: every night with an empty inbox ended with 0, while three payments were in doubt."""
    desk.answer = lambda _: IN_DOUBT
    batch = desk.submit(desk.file("may.csv", ONE)).batch or ""
    assert list(status.all_in_doubt(desk.settings)) == [batch]
    if (ledger := door.file_of(desk.settings.ledger)) is not None:
        ledger.rename(ledger.with_name("away"))
    else:
        server, database = request.getfixturevalue("postgres_server"), desk.settings.ledger.url.rpartition("/")[2]
        server.run("DROP SCHEMA batchpay CASCADE", database)
    with pytest.raises(LedgerMissing):
        status.all_in_doubt(desk.settings)


def test_a_restored_ledger_does_not_mean_that_nothing_is_in_doubt(
    on_both: None, desk: Desk, request: pytest.FixtureRequest
) -> None:
    """It had lost the payment in doubt: until a file came, every call ended with 0 and said nothing."""
    url = desk.settings.ledger.url
    desk.submit(desk.file("april.csv", ONE | {"paymentId": "P-0", "invoiceNumber": "A-0"}))
    if (ledger := door.file_of(desk.settings.ledger)) is not None:
        shutil.copy(ledger, copy := ledger.with_name("copy"))
    else:
        server, database = request.getfixturevalue("postgres_server"), url.rpartition("/")[2]
        server.run(f"CREATE DATABASE {database}_copy TEMPLATE {database}")
    desk.answer = lambda _: IN_DOUBT
    batch = desk.submit(desk.file("may.csv", ONE)).batch or ""
    assert list(status.all_in_doubt(desk.settings)) == [batch]
    if ledger is not None:
        copy.replace(ledger)
    else:
        server.put_back(f"{database}_copy", database)
    with pytest.raises(LedgerNotUsable, match="ledger accept"):
        status.all_in_doubt(desk.settings)


def test_without_a_ledger_what_is_in_doubt_at_a_live_gateway_is_not_known(desk: Desk) -> None:
    """Only for a test gateway on this machine is there a time before the first ledger that needs nobody."""
    live = replace(desk.settings, gateway=replace(desk.settings.gateway, environment="live"))
    with pytest.raises(LedgerMissing, match="is its disk mounted"):
        status.all_in_doubt(live)


def test_an_approval_is_written_only_to_the_plan(strict: Office, opened: list[bool]) -> None:
    """An approver needs the ledger's key, and no right to change what the ledger holds."""
    plan = strict.plan(strict.file("10.00"))
    assert len(strict.approve(plan, BEN).counted) == 1
    assert opened == [True] * 3, "the plan's dry run included"
