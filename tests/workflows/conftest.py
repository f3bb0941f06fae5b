"""An office with an empty ledger, one where other people must approve, and a desk that needs no gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.ledger.open import create_ledger
from tests.model import clock
from tests.support.oracle import Oracle, running_oracle
from tests.workflows.desk import Desk, make_desk
from tests.workflows.office import Office


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with running_oracle(tmp_path_factory.mktemp("oracle") / "log") as running:
        yield running


@pytest.fixture(autouse=True)
def own_clock() -> Iterator[None]:
    """Give the program its real clock back, if a test has taken it."""
    yield
    clock.restore()


@pytest.fixture
def office(tmp_path: Path, oracle: Oracle) -> Office:
    return Office(tmp_path / "office", oracle)


@pytest.fixture
def strict(office: Office) -> Office:
    """An office where one other person must approve."""
    office.policy(approvals=1)
    return office


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """An empty ledger and a gateway in this process that counts."""
    return make_desk(tmp_path, monkeypatch)


@pytest.fixture(params=["sqlite", "postgres"])
def on_both(request: pytest.FixtureRequest, desk: Desk) -> None:
    """Put the desk's ledger into a file, then into a database of a server."""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        database = server.new_database()
        desk.settings = replace(desk.settings, ledger=replace(desk.settings.ledger, url=server.url(database)))
        create_ledger(desk.settings.ledger, "tester", owner_url=server.owner_url(database))
    else:
        create_ledger(desk.settings.ledger, "tester")
