"""An office with an empty ledger, and one where other people must approve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.oracle import Oracle, running_oracle
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
