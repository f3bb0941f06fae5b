"""Assembles the sandbox as a Flask application, and serves it: in this thread until a signal, or in one of its own."""

from __future__ import annotations

import json
import logging
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from flask import Flask, Response
from waitress import wasyncore  # type: ignore[import-untyped]
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.server import create_server  # type: ignore[import-untyped]
from waitress.task import WSGITask  # type: ignore[import-untyped]
from werkzeug.exceptions import HTTPException

from batchpay.errors import WrongUse
from batchpay.sandbox.accounts import account_api
from batchpay.sandbox.control import control_api
from batchpay.sandbox.dialects import DIALECTS, Problem
from batchpay.sandbox.exchange import BODY_BYTES_MAX, RESET, Sandbox
from batchpay.sandbox.faults import BadRule
from batchpay.sandbox.options import Options
from batchpay.sandbox.payments import payment_api
from batchpay.sandbox.returns import check_own
from batchpay.sandbox.store import SandboxStore


def open_sandbox(options: Options) -> Sandbox:
    """Build the state behind the application; raises WrongUse for an option that can't be used."""
    if options.dialect not in DIALECTS:
        raise WrongUse(f"--dialect {options.dialect} is unknown; there are {', '.join(DIALECTS)}")
    if options.limit is not None and not options.limit > 0:
        raise WrongUse("--limit must be more than 0")
    if options.returns is not None:
        check_own(options.returns)
    sandbox = Sandbox(options, SandboxStore(options.db))
    if options.faults is not None:
        try:
            sandbox.rules.set(json.loads(options.faults.read_text("utf-8")))
        except (OSError, ValueError) as error:
            reason = str(error) if isinstance(error, BadRule) else "it can't be read as JSON"
            raise WrongUse(f"--faults {options.faults}: {reason}") from None
    return sandbox


def create_app(options: Options) -> Flask:
    """Build a sandbox; raises WrongUse."""
    return build_app(open_sandbox(options))


def build_app(sandbox: Sandbox) -> Flask:
    """Add the routes for a sandbox."""
    app = Flask("batchpay.sandbox", static_folder=None)
    app.register_blueprint(payment_api(sandbox))
    app.register_blueprint(account_api(sandbox))
    app.register_blueprint(control_api(sandbox))

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        """Answer a request that no route accepts, in the dialect."""
        kind = {404: "not_found", 405: "method"}.get(error.code or 500, "error")
        reply = sandbox.dialect.refusal(kind, [Problem("", error.name)])
        headers = dict(reply.headers)
        if kind == "method" and (allowed := getattr(error, "valid_methods", None)):
            headers["Allow"] = ", ".join(sorted(allowed))
        return Response(reply.body, reply.status, headers, content_type=reply.content_type)

    return app


_THREADS = 96
"""As many as a client may have requests in flight with a latency set."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Task(WSGITask):  # type: ignore[misc]
    """Gives the application a way to reset its connection."""

    def get_environment(self) -> dict[str, Any]:
        environment: dict[str, Any] = super().get_environment()
        connection: socket.socket = self.channel.socket
        environment[RESET] = lambda: connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return environment


class _Channel(HTTPChannel):  # type: ignore[misc]
    task_class = _Task


class Server:
    """A sandbox that listens; `run` serves until `stop` is called from anywhere."""

    def __init__(self, options: Options) -> None:
        # waitress warns of clients that went away and queues that grew: both are intended here.
        for name in ("waitress", "waitress.queue"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._sandbox = open_sandbox(options)
        self._map: dict[int, Any] = {}
        self._turn = threading.RLock()  # a signal handler may stop the server in the thread that runs it
        self._is_open = True
        try:
            listening = _listen(options.host, options.port)
        except (OSError, OverflowError, UnicodeError):
            self._sandbox.store.close()
            raise WrongUse(f"--host {options.host} --port {options.port} can't be listened on") from None
        self._server = create_server(
            build_app(self._sandbox),
            map=self._map,
            sockets=[listening],
            threads=_THREADS,
            connection_limit=1_000,
            asyncore_use_poll=True,
            max_request_body_size=16 * BODY_BYTES_MAX,
            ident="batchpay sandbox",
        )
        self._server.channel_class = _Channel
        host, port = self._server.effective_host, int(self._server.effective_port)
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Serve until stopped."""
        while not self._sandbox.stopping.is_set():
            wasyncore.loop(timeout=1, use_poll=True, map=self._map, count=1)
        with self._turn:
            self._is_open = False
        self._server.task_dispatcher.shutdown()
        wasyncore.close_all(self._map)
        self._sandbox.store.close()

    def stop(self) -> None:
        """Let `run` return, if it has not; whoever waits for an answer loses the connection."""
        self._sandbox.stopping.set()
        with self._turn:
            if self._is_open:  # otherwise its trigger's descriptor is closed, or is some other file's by now
                self._server.pull_trigger()


def _listen(host: str, port: int) -> socket.socket:
    """Bind an address; raises OSError. Where waitress can't bind, it leaves its threads and its socket open."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except BaseException:
        listening.close()
        raise
    return listening


def serve(options: Options, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called with the URL once connections are taken. Raises WrongUse."""
    server = Server(options)

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    ready(server.url)
    server.run()


@contextmanager
def running(options: Options) -> Iterator[str]:
    """Serve in a thread of this process for the length of the block; yields the URL. Raises WrongUse."""
    server = Server(options)
    thread = threading.Thread(target=server.run, name="sandbox", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()
