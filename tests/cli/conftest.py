"""Commands called in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.in_process import Caller


@contextmanager
def calling(folder: Path, url: str, patch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """Call commands in a folder; what they do to signals is undone."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Caller(folder, url, patch)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def call(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """Calls commands whose gateway is the sandbox."""
    with calling(tmp_path, url, monkeypatch) as caller:
        yield caller
