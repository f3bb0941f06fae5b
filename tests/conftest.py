"""What tests of several rooms stand on: files in memory, a sandbox in this process, a certificate authority."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from batchpay.intake.xlsx import child
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.fault_client import write_bundle
from tests.support.postgres import Server, running_server
from tests.support.sandbox_requests import control
from tests.support.xlsx_worker import FORKED

_MEMORY = Path("/dev/shm")  # noqa: S108
_ROOM_BYTES = 2 << 30
"""Many times what the three parts of a whole run have at once; a container's 64 MB would not do."""


def pytest_configure() -> None:
    """Keep the files of tests in memory where it has room: they sync thousands of times, which costs nothing there.

    Not where a place for them is named.
    """
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    # A shell has what it starts in the background ignore SIGINT, and commands keep to that: they would wait for good.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what is loaded to the garbage collector no more: it stays to the end, and each pass would look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def workbooks_are_read_by_forks() -> Iterator[None]:
    """Fork what reads a workbook from a process that has it loaded; a command that is a process starts it as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", FORKED)
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Origin of a sandbox that serves one module's tests."""
    with running(Options(port=0)) as url:
        yield url


@pytest.fixture
def url(server: str) -> str:
    """Origin of a sandbox as fresh as at its start."""
    control(server, "POST", "reset")
    return server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server; the test is skipped where there is none."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """A certificate authority that no machine trusts."""
    return trustme.CA()


@pytest.fixture(scope="session")
def bundle(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of its certificate, for gateway.ca_bundle."""
    return write_bundle(authority, tmp_path_factory.mktemp("authority"))
