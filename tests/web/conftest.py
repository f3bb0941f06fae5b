"""One house a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.in_process import Caller
from tests.web.house import House, make_house


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The page with its people."""
    found = make_house(tmp_path, monkeypatch)
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
