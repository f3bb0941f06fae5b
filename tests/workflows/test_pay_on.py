"""Payments on a day of their own, by a column or for a whole file: registered, kept, and what a person sees of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.ledger.open import bring_up_to_date, move
from batchpay.payment import State
from batchpay.settings import GatewaySettings
from tests.support.version_1 import ledger_of_version_1
from tests.workflows.desk import Desk

SAMPLE = Path(__file__).parents[2] / "samples" / "small.csv"


@pytest.mark.parametrize("ledger", ["sqlite", "postgres"])
@pytest.mark.parametrize("column", ["", ",payOn"])
def test_a_batch_that_version_1_sent_half_goes_on(
    desk: Desk, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ledger: str, column: str
) -> None:
    """The file has the digest that it had, also with a column of days that is blank: nothing of it is paid twice."""
    old = ledger_of_version_1(desk.folder, "half_sent")
    bring_up_to_date(old)
    if ledger == "postgres":
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("XDG_STATE_HOME", str(desk.folder / "state"))
        database = server.new_database()
        new = replace(old, url=server.url(database))
        move(old, new.url, "ada", "a second host", owner_url=server.owner_url(database))
        old = new
    gateway = GatewaySettings(base_url="http://127.0.0.1:8780", api_id="sandbox")
    desk.settings = replace(desk.settings, gateway=gateway, ledger=old)
    lines = SAMPLE.read_text("utf-8").splitlines()[:6]
    path = desk.folder / "again.csv"
    path.write_text("\n".join([lines[0] + column, *(line + column[:1] for line in lines[1:])]) + "\n", "utf-8")
    summary = desk.submit(path)
    assert (summary.batch, summary.of(State.ACCEPTED).rows) == ("326a2d106bfd", 4)
    assert desk.arrived == {"INV-20003": 1, "INV-20005": 1}, "the two that were left"
