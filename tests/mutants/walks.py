"""Random walks of the model as tests, one each: so that a change meets those that execute it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.walk import Runner

WALKS = 60


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    made = Runner()
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(1, WALKS + 1))
def test_walk(runner: Runner, seed: int) -> None:
    found = runner.walk(seed, shrink=False)
    assert found is None, found
