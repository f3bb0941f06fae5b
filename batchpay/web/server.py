"""Serves the page with waitress: on loopback, behind something that does TLS, or over a proxy's Unix socket."""

from __future__ import annotations

import fcntl
import gc
import io
import logging
import os
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from waitress import wasyncore  # type: ignore[import-untyped]
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.parser import HTTPRequestParser  # type: ignore[import-untyped]
from waitress.server import create_server  # type: ignore[import-untyped]

from batchpay.errors import BatchHeld, WrongUse
from batchpay.gateway.origin import is_loopback, is_rehearsal
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import Settings
from batchpay.web.app import FORM_BYTES_MAX, create_app
from batchpay.web.jobs import Supervisor
from batchpay.web.sign_in import is_known
from batchpay.web.site import Listen, Reader, Site
from batchpay.web.spool import PIECE_BYTES, WebStore
from batchpay.writing.process_memory import limit_freed_memory

_THREADS = 8
_KEPT_BYTES = 256 << 10
_GARBAGE_OBJECTS = 5_000
_BODY_BYTES_MAX = max(PIECE_BYTES, FORM_BYTES_MAX) + 131_072
_STRANGERS_BYTES_MAX = 16 << 10
_READ_PAST_BYTES_MAX = 1 << 28
_HEADER_BYTES_MAX = 32 << 10
_STRANGER = "Sign in first. Without it, batchpay accepts short forms only."
_FORM = (
    f"A file has at most {FORM_BYTES_MAX >> 20} MiB in this form. With JavaScript, larger files are uploaded in pieces."
)


class _TooLarge(Exception):
    """Answers a body that is too large in the page's own words."""

    def to_response(self, ident: object = None) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status, headers and body, as waitress asks for them."""
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        return "413 Content Too Large", headers, str(self).encode()


class _Nowhere(io.BytesIO):
    """A buffer of waitress that keeps nothing."""

    def append(self, data: bytes) -> None:
        """Forget what came."""

    def getfile(self) -> io.BytesIO:
        """Return what was kept."""
        return self

    def __len__(self) -> int:
        return 0


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    """Accepts a short body from a stranger, and a form from somebody who is signed in.

    What is larger is read to its end, so that the browser shows the answer and not a broken connection.
    """

    def __init__(self, adj: object, is_known: Callable[[dict[str, str]], bool]) -> None:
        super().__init__(adj)
        self._is_known = is_known
        self._is_accepted: bool | None = None
        """Whether the body is kept; None before there is one."""
        self._bytes_max, self._too_large = 0, ""

    def received(self, data: bytes) -> int:
        """See HTTPRequestParser."""
        consumed = int(super().received(data))
        if self.body_rcv is None:
            return consumed
        if self._is_accepted is None:
            known = self._is_known(self.headers)
            self._bytes_max, self._too_large = (_BODY_BYTES_MAX, _FORM) if known else (_STRANGERS_BYTES_MAX, _STRANGER)
            self._is_accepted = True
        size = max(self.content_length, self.body_bytes_received)
        if self._is_accepted and size > self._bytes_max:
            self._is_accepted, self.error = False, _TooLarge(self._too_large)
            self.body_rcv.getbuf().close()
            self.body_rcv.buf = _Nowhere()
        if size > _READ_PAST_BYTES_MAX:
            self.completed = True
        return consumed


class WebServer:
    """A page that listens; `run` serves until `stop` is called from anywhere."""

    def __init__(self, settings: Settings, home: Path, listen: Listen, actor: Actor) -> None:
        logging.getLogger("waitress").setLevel(logging.CRITICAL)
        logging.getLogger("waitress.queue").setLevel(logging.CRITICAL)
        _require_safe(listen)
        open_ledger(settings.ledger, create_as=str(actor) if is_rehearsal(settings.gateway) else None).close()
        self._store = WebStore(home)
        self._home_lock = _hold(self._store.home)
        listening = _listen(listen)
        self.url = _url(listen, listening)
        self._store.keep_address(self.url)
        is_plain = listen.socket_path is None and not listen.behind_tls
        port = listening.getsockname()[1] if is_plain else None
        access = replace(listen, hosts=_hosts(listen, listening), port=port)
        self._jobs = Supervisor(self._store, settings)
        self._site = Site(settings, self._store, self._jobs, Reader(settings.ledger), access)
        self._map: dict[int, Any] = {}
        self._is_stopping = False
        self._server = create_server(
            create_app(self._site),
            map=self._map,
            sockets=[listening],
            threads=_THREADS,
            asyncore_use_poll=True,
            # A body stays in memory: by default waitress writes what is over 512 KiB to a temporary file, unencrypted.
            inbuf_overflow=2 * _BODY_BYTES_MAX,
            max_request_header_size=_HEADER_BYTES_MAX,
            max_request_body_size=sys.maxsize,  # the parser below decides
            clear_untrusted_proxy_headers=True,
            ident=None,
            **_trusted(listen),
        )
        parser = partial(_Parser, is_known=self._is_known)
        self._server.channel_class = type("Channel", (HTTPChannel,), {"parser_class": parser})

    def _is_known(self, headers: dict[str, str]) -> bool:
        """Return whether a request comes from somebody who is signed in."""
        name = self._site.access.proxy_header
        named = headers.get(name.upper().replace("-", "_")) if name else None
        try:
            return is_known(self._site, headers.get("COOKIE", ""), named)
        except sqlite3.Error:
            return False

    def run(self) -> None:
        """Serve until stopped; children continue."""
        self._jobs.start()
        try:
            while not self._is_stopping:
                wasyncore.loop(timeout=1, use_poll=True, map=self._map, count=1)
        finally:
            self._jobs.stop()
            self._server.task_dispatcher.shutdown()
            wasyncore.close_all(self._map)
            self._site.reader.close()
            self._store.close()
            os.close(self._home_lock)

    def stop(self) -> None:
        """Let `run` return."""
        self._is_stopping = True
        self._server.pull_trigger()


def serve(
    settings: Settings,
    home: Path,
    listen: Listen,
    actor: Actor,
    ready: Callable[[str], None],
    on_stop: Callable[[Callable[[], None]], None],
) -> None:
    """Serve until a signal; `ready` is called with the address. Raises WrongUse, NotUsable, BatchHeld.

    `on_stop` is given the function that ends the serving: the owner of the process lets its signals call it. Python is
    asked to look for cycles rarely in a command, which ends soon: every answer leaves some, and by then they took as
    much memory as the whole page. What pieces of uploads, and eight threads once, needed is given back.
    """
    gc.freeze()  # what imports made stays
    gc.set_threshold(_GARBAGE_OBJECTS)
    limit_freed_memory(stores=2, kept_bytes=_KEPT_BYTES, mapped_from_bytes=_KEPT_BYTES)
    server = WebServer(settings, home, listen, actor)
    on_stop(server.stop)
    ready(server.url)
    server.run()


def _require_safe(listen: Listen) -> None:
    """Refuse ways in by which someone else could act as the person, or read along."""
    if listen.proxy_header and listen.socket_path is None:
        raise WrongUse("--proxy-header needs --listen unix:PATH: on a network address anyone could send that header")
    if listen.socket_path is not None:
        if not (listen.proxy_header or listen.behind_tls):
            raise WrongUse("--listen unix:PATH is for a proxy: give --behind-tls, or --proxy-header NAME")
        if not listen.hosts:
            raise WrongUse("--host NAME is needed: the name under which people reach the page")
        return
    host = _host_port(listen.address)[0]
    if not is_loopback(host) and not listen.behind_tls:
        raise WrongUse(
            f"{host} is open to other machines: passwords would travel in the clear. Put something that speaks TLS in "
            "front of it, and give --behind-tls and --host NAME"
        )
    if listen.proxy and not listen.behind_tls:
        raise WrongUse("--proxy is for a proxy that speaks TLS: give --behind-tls as well")
    if listen.behind_tls and not listen.hosts:
        raise WrongUse("--behind-tls needs --host NAME: the name under which people reach the page")


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise WrongUse("--listen must be HOST:PORT or unix:PATH")
    return host.strip("[]"), int(port)


def _trusted(listen: Listen) -> dict[str, Any]:
    """Say whose X-Forwarded-For is believed: people behind a proxy are told apart by it."""
    if listen.socket_path is not None:
        proxy: str | None = "localhost"  # waitress' word for whatever comes over a Unix socket
    else:
        host = _host_port(listen.address)[0]
        proxy = listen.proxy or ("127.0.0.1" if host == "localhost" else host if is_loopback(host) else None)
    if proxy is None or not (listen.behind_tls or listen.proxy_header):
        return {}
    return {"trusted_proxy": proxy, "trusted_proxy_headers": {"x-forwarded-for"}}


def _listen(listen: Listen) -> socket.socket:
    path = listen.socket_path
    try:
        if path is not None:
            return _listen_on_path(path)
        host, port = _host_port(listen.address)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError, UnicodeError):
        raise WrongUse(f"can't listen on {listen.address}") from None
    return listening


def _listen_on_path(path: Path) -> socket.socket:
    """Bind a Unix socket that owner and group may use; one that a dead server left is removed."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        listening.bind(str(path))
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
    return listening


def _url(listen: Listen, listening: socket.socket) -> str:
    if listen.hosts:
        return f"https://{next(iter(listen.hosts))}/"
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _hosts(listen: Listen, listening: socket.socket) -> frozenset[str]:
    """Return what a Host header may say."""
    named = {name.lower() for name in listen.hosts}
    if listen.socket_path is None and not listen.behind_tls:
        port = listening.getsockname()[1]
        named |= {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(named)


def _hold(home: Path) -> int:
    """Keep other servers off this home for the life of the process."""
    descriptor = os.open(home / "web.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BatchHeld(f"another batchpay web is running in {home}") from None
    return descriptor
