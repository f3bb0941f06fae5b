"""An office with an empty ledger, one where other people must approve, and a desk that needs no gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.oracle import Oracle, running_oracle
from tests.workflows.desk import Desk, make_desk
from tests.workflows.office import Office


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with running_oracle(tmp_path_factory.mktemp("oracle") / "log") as running:
        yield running


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
