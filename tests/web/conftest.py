"""One house a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.house import House, make_house


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """The page with its people."""
    found = make_house(tmp_path, monkeypatch)
    yield found
    found.site.reader.close()
    found.store.close()
