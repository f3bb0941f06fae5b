"""One house a test; what moves money is tested on both ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.in_process import Caller
from tests.web.house import House, make_house

_ON_BOTH = (
    "test_approval",
    "test_doubts",
    "test_payments",
    "test_reconcile",
    "test_releases",
    "test_returns",
    "test_runs",
    "test_unpaid",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give these modules a house with its ledger in a file, and one with it in a database of a server."""
    if "house" in metafunc.fixturenames and metafunc.module.__name__.endswith(_ON_BOTH):
        metafunc.parametrize("house", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The page with its people."""
    in_database = getattr(request, "param", "sqlite") == "postgres"
    found = make_house(tmp_path, monkeypatch, request.getfixturevalue("postgres_server") if in_database else None)
    yield found
    found.site.reader.close()
    found.store.close()


@pytest.fixture
def call(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The command line over the house's ledger and home."""
    found, ledger = Caller(tmp_path, house.site.settings.gateway.base_url, monkeypatch), house.site.settings.ledger
    found.settings(
        BATCHPAY_LEDGER=ledger.url, BATCHPAY_LEDGER_KEY_FILE=ledger.key_file, BATCHPAY_WEB_HOME=str(house.site.home)
    )
    return found
