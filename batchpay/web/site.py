"""What every page uses: settings, the page's own database, the ledger to read, the work that children do, its forms."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from flask import Response, abort, current_app, render_template, request, send_file
from flask.typing import ResponseReturnValue

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import location, open_ledger
from batchpay.payment import Environment
from batchpay.settings import LedgerSettings, Settings
from batchpay.text import printable
from batchpay.web.spool import WebStore

if TYPE_CHECKING:
    from batchpay.web.acts import Refusal
    from batchpay.web.jobs import Supervisor
    from batchpay.web.people import Person

EXTENSION = "batchpay"
_TYPES = {
    "csv": "text/csv",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
}
_WORDS_MAX = 500
FAILURES_MAX = 100
"""Failures to sign in, in a quarter of an hour, that are recorded: a stranger can't fill the disk with them."""
KEPT_S = 5.0
"""How long a connection to a ledger in a database server is kept."""


DEFAULT_LISTEN = "127.0.0.1:8790"
_UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the page listens, and who reaches it that way: decided when it is started."""

    address: str = DEFAULT_LISTEN
    """HOST:PORT, or unix:PATH."""
    hosts: Collection[str] = ()
    """Names under which people reach the page; once it listens, all that a Host header may say (DNS rebinding)."""
    behind_tls: bool = False
    """Whether something in front of the page does TLS: then cookies are Secure, and codes are required."""
    proxy_header: str | None = None
    """The header in which a proxy names the person; only over a Unix socket."""
    proxy: str | None = None
    """Where the proxy's connections come from, if that is not this machine: its X-Forwarded-For is believed."""
    port: int | None = None
    """The port, once it listens without TLS on this machine: browsers send a cookie to every port of a host."""
    own_files: bool = False
    """Whether people who only prepare files see their own ones alone (files.in_sight)."""

    @property
    def socket_path(self) -> Path | None:
        """The path of a Unix socket; None for an address."""
        return Path(self.address.removeprefix(_UNIX)) if self.address.startswith(_UNIX) else None


class Reader:
    """Read-only ledgers, one per thread, reopened if another file has replaced the ledger."""

    def __init__(self, settings: LedgerSettings) -> None:
        self._settings = settings
        self._path: Path | None = None
        self._local = threading.local()

    def get(self) -> Ledger:
        """Return this thread's ledger; raises LedgerNotUsable."""
        file, now = self._file(), time.monotonic()
        is_same = getattr(self._local, "file", None) == file
        if file is None:  # in a database server: a broken connection is soon replaced
            is_same = now - getattr(self._local, "opened_at", -KEPT_S) < KEPT_S
        if getattr(self._local, "ledger", None) is None or not is_same:
            self.close()
            self._local.ledger = open_ledger(self._settings, read_only=True)
            self._local.file, self._local.opened_at = file, now
        ledger: Ledger = self._local.ledger
        return ledger

    def close(self) -> None:
        """Close this thread's ledger."""
        ledger: Ledger | None = getattr(self._local, "ledger", None)
        if ledger is not None:
            ledger.close()
        self._local.ledger = self._local.file = None

    def _file(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError, SettingsNotUsable):
            if self._path is None:
                self._path = location(self._settings).ledger
            status = os.stat(self._path)  # noqa: PTH116 - its device and number alone
            return status.st_dev, status.st_ino
        return None


@dataclass(frozen=True)
class Site:
    """One running page."""

    settings: Settings
    store: WebStore
    jobs: Supervisor
    reader: Reader
    access: Listen = field(default_factory=Listen)
    clock: Callable[[], float] = time.time
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=FAILURES_MAX))
    """When the latest failures to sign in that were recorded happened."""
    fragments: dict[str, tuple[float, tuple[object, ...], str]] = field(default_factory=dict)
    """Progress of the runs under way, by file, as it was rendered a moment ago: when, from which values, the text."""

    @property
    def home(self) -> Path:
        """The folder of the page's own files."""
        return self.store.home

    @functools.cached_property
    def environment(self) -> Environment:
        """Whether payments go to a live or a test gateway."""
        return environment_of(self.settings.gateway)

    @functools.cached_property
    def gateway_host(self) -> str:
        """Where payments go, as a person knows it."""
        return check_origin(self.settings.gateway.base_url).host

    @property
    def asks_for_codes(self) -> bool:
        """Whether acts on money need a code of an authenticator: not if only this machine reaches the page."""
        return self.access.behind_tls or self.access.proxy_header is not None

    def note(self, person: Person, file_id: str | None, what: str) -> None:
        """Record what a person did, where nothing else is written with it."""
        with self.store.write() as db:
            self.store.note(db, person.name, file_id, what, person.proof)

    def ledger(self) -> Ledger:
        """Return this thread's ledger to read; a page never closes it."""
        return self.reader.get()


def site() -> Site:
    """Return the site that answers the present request."""
    found: Site = current_app.extensions[EXTENSION]
    return found


def given_words(field: str) -> str:
    """Return a person's own words on one line: a reason, a note."""
    return printable(" ".join(request.form.get(field, "").split()))[:_WORDS_MAX]


def given_decision(*choices: str) -> str:
    """Return which button of a form was pressed: nothing else means any of them, least of all the one that pays."""
    given = request.form.get("decision", "")
    return given if given in choices else abort(400)


def given_file(field: str) -> tuple[bytes, str]:
    """Return a file's content and its name, both empty if none was chosen."""
    given = request.files.get(field)
    return (b"", "") if given is None else (given.read(), name_of(given.filename))


def name_of(path: str | None) -> str:
    """Return a file's name alone: some browsers give its whole path, as the person's machine writes it."""
    return printable(PurePath((path or "").replace("\\", "/")).name)


def refusal(problem: Refusal) -> ResponseReturnValue:
    """Answer with a page that says why something can't be done."""
    return render_template("said.html", sentence=problem.sentence, code=problem.code), problem.code


def download(descriptor: int, name: str) -> Response:
    """Answer with a file in memory, as a download under a name in any script."""
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    kind = _TYPES.get(name.rpartition(".")[2], _TYPES["csv"])
    answer = send_file(os.fdopen(descriptor, "rb"), kind, as_attachment=True, download_name=name)
    answer.content_length = size
    return answer
