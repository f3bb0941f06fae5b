"""Runs commands in processes forked from one that has the whole program loaded: a start costs milliseconds.

Each is still a process of its own, with its own descriptors, environment and end. A test that is about the program's
start, its installation, signals or kills runs the command itself (`Home.command`).
Run as `python -m tests.support.warm DESCRIPTOR`, a socket to take orders from.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

_ORDER_BYTES_MAX = 1 << 20
_NOT_LOADED = ("batchpay.__main__",)


class Warm:
    """The loaded process, started with the first command; ends with this process."""

    def __init__(self) -> None:
        self._server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None
        self._turn = threading.Lock()

    def run(
        self, arguments: tuple[str, ...], environment: dict[str, str], folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str] | None:
        """Run a command to its end; None if another one is running. Raises TimeoutExpired."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if self._server is None:
                self._server = _started()
                atexit.register(self._close)
            server, _ = self._server
            outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
            try:
                order = json.dumps([arguments, environment, str(folder)]).encode()
                socket.send_fds(server, [order], outputs)
                process = int(server.recv(32))
                if not select.select([server], [], [], timeout_s)[0]:
                    os.kill(process, signal.SIGKILL)
                    server.recv(32)
                    raise subprocess.TimeoutExpired(arguments, timeout_s)
                code = int(server.recv(32))
                texts = [_text_of(descriptor) for descriptor in outputs]
            finally:
                for descriptor in outputs:
                    os.close(descriptor)
            return subprocess.CompletedProcess(arguments, code, *texts)
        finally:
            self._turn.release()

    def _close(self) -> None:
        if self._server is not None:
            server, process = self._server
            server.close()
            process.wait()


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return ours, process


def _text_of(descriptor: int) -> str:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    return os.pread(descriptor, size, 0).decode().replace("\r\n", "\n")


def _load_program() -> None:
    import batchpay

    for module in pkgutil.walk_packages(batchpay.__path__, "batchpay."):
        if module.name not in _NOT_LOADED:
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _serve(orders: socket.socket) -> None:
    """Fork a process for each order, and report its id and exit code; returns in the process that runs the order."""
    while True:
        order, outputs, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 2)
        if not order:
            sys.exit()
        process = os.fork()
        if not process:
            orders.close()
            _become(json.loads(order), outputs)
            return
        for descriptor in outputs:
            os.close(descriptor)
        orders.send(str(process).encode())
        _, status = os.waitpid(process, 0)
        orders.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(order: tuple[list[str], dict[str, str], str], outputs: list[int]) -> None:
    arguments, environment, folder = order
    for number, descriptor in enumerate(outputs, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    time.tzset()
    random.seed()
    sys.argv = ["batchpay", *arguments]


_codes: list[int] = []
"""How an order's process ends, once that is known."""


def _leave() -> None:
    """End without taking the loaded program apart: that would copy each page shared with the loaded process.

    The interpreter has joined the threads and called what else was registered for the end.
    """
    with contextlib.suppress(OSError, ValueError):  # the interpreter does it once more, and says so
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for code in _codes:
            os._exit(code)


if __name__ == "__main__":
    atexit.register(_leave)  # the first that is registered is called last
    _load_program()
    with socket.socket(fileno=int(sys.argv[1])) as _orders:
        _serve(_orders)
    from batchpay.cli.main import main

    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int):
            _codes.append(end.code)
        raise
