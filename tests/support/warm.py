"""Runs commands in processes forked from one that has the whole program loaded: a start costs milliseconds.

Each is still a process of its own, with its own descriptors, environment and end, which signals and kills reach and
strace can watch from its first call on. A test that is about the program's start or its installation runs the command
itself (`Home.command`). Run as `python -m tests.support.warm [PROGRAM]`; orders come from a socket, its standard input.
A changed program is loaded in a process forked from that one, which has all libraries.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

_ORDER_BYTES_MAX = 1 << 20
_ROOT = Path(__file__).resolve().parents[2]
_SENDING = ("batchpay.cli.resume", "batchpay.cli.submit", "batchpay.workflows.run", "batchpay.workflows.submit")
"""What is loaded of a changed program, of which only a few commands are run."""
_BESIDES = ("argparse", "asyncio")
"""What is loaded besides the whole program: the oracle runs on it."""
_MODULE = "tests.support.warm"
_PR_SET_PTRACER = 0x59616D61
_NONE = subprocess.DEVNULL


class Process:
    """A process that the loaded one started, with what subprocess.Popen offers for its own."""

    def __init__(self, pid: int, end: socket.socket, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._end = end

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def begin(self) -> None:
        """Let a process go on that was told to wait."""
        self._end.send(b"go on")

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal; None if it has not ended."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([], timeout or 0)
            self.returncode = int(self._end.recv(32))
            self._end.close()  # until then its number is no other's
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """Return all that it writes until its end."""
        with ThreadPoolExecutor() as pool:
            out, err = pool.map(lambda stream: stream.read() if stream else "", (self.stdout, self.stderr))
        self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class Order:
    """What is to run, as `python -m` would run it."""

    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    waits: bool = False
    """Whether it waits to be told to go on, so that a tracer can be attached."""


class Warm:
    """The loaded process, started with the first order; it ends with this process, or before."""

    def __init__(self, program: Path | None = None, *only: str) -> None:
        self.program = program
        """A folder with a changed batchpay, to be loaded instead of this one."""
        self._only = only
        """The modules that are loaded, in place of the whole program."""
        self._server: tuple[socket.socket, subprocess.Popen[bytes] | Process] | None = None
        self._starting = threading.Lock()

    def run(self, order: Order, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises TimeoutExpired."""
        outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
        try:
            process = self.start(order, _NONE, *outputs)
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            return subprocess.CompletedProcess(order.arguments, code, *map(_text_of, outputs))
        finally:
            for descriptor in outputs:
                os.close(descriptor)

    def start(self, order: Order, stdin: int = _NONE, stdout: int = _NONE, stderr: int = _NONE) -> Process:
        """Start a command; its standard streams are descriptors, DEVNULL, or a PIPE that text is read from."""
        with self._starting:
            if self._server is None:
                self._server = _started(self.program, self._only)
                atexit.register(self.close)
            server, _ = self._server
        streams: list[TextIO | None] = []
        with contextlib.ExitStack() as given:
            descriptors = []
            for wanted in (stdin, stdout, stderr):
                if wanted == subprocess.PIPE:
                    reading, wanted = os.pipe()
                    given.callback(os.close, wanted)
                    streams.append(os.fdopen(reading, encoding="utf-8"))
                else:
                    streams.append(None)
                if wanted == _NONE:
                    wanted = os.open(os.devnull, os.O_RDWR)
                    given.callback(os.close, wanted)
                descriptors.append(wanted)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                order_text = json.dumps(vars(order)).encode()
                socket.send_fds(server, [order_text], [theirs.fileno(), *descriptors])
        return Process(int(ours.recv(32)), ours, *streams[1:])

    def close(self) -> None:
        """End the loaded process."""
        if self._server is not None:
            server, process = self._server
            server.close()
            process.wait()
            self._server = None


WARM = Warm()
"""With the program as it is."""


def _started(program: Path | None, only: Sequence[str]) -> tuple[socket.socket, subprocess.Popen[bytes] | Process]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if program:
            order = Order(_MODULE, (str(program),), dict(os.environ), str(_ROOT))
            return ours, WARM.start(order, stdin=theirs.fileno())
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, *only],
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
        )
    return ours, process


def _text_of(descriptor: int) -> str:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    return os.pread(descriptor, size, 0).decode().replace("\r\n", "\n")


def _load(*names: str) -> None:
    """Load the whole program, or modules by their names, or what sends of a changed program in a folder."""
    program = names[0] if names and names[0].startswith("/") else ""
    if names and not program:
        for name in names:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        return
    if program:
        for name in [name for name in sys.modules if name.partition(".")[0] == "batchpay"]:
            del sys.modules[name]
        sys.path.insert(0, program)
    import batchpay

    every = (module.name for module in pkgutil.walk_packages(batchpay.__path__, "batchpay."))
    for name in _SENDING if program else [*(name for name in every if name != "batchpay.__main__"), *_BESIDES]:
        importlib.import_module(name)
    if not program:
        rules = importlib.import_module("batchpay.validation.compiled_rules")
        rules.rule_book(rules.RuleOptions(as_of=datetime.date.today()))  # noqa: DTZ011 - as the commands read the clock
    gc.collect()
    gc.freeze()


def _serve(orders: socket.socket) -> Order:
    """Fork a process for each order, and report its id and exit code; returns in the process that runs the order."""
    running: dict[int, tuple[int, int]] = {}
    """By the descriptor of a process: its id, and where its end is reported."""
    ended: dict[int, int] = {}
    """Processes whose end was reported and perhaps not read yet; until then they keep their id."""
    waiting = select.poll()
    waiting.register(orders, select.POLLIN)
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor in running:
                process, end = running.pop(descriptor)
                waiting.unregister(descriptor)
                os.close(descriptor)
                _report(process, end)
                ended[end] = process
                waiting.register(end, 0)  # a hang-up alone
            elif descriptor in ended:
                waiting.unregister(descriptor)
                os.close(descriptor)
                os.waitpid(ended.pop(descriptor), 0)
            else:
                text, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 4)
                if not text:
                    sys.exit()
                order = Order(**json.loads(text))
                end, *outputs = descriptors
                process = os.fork()
                if not process:
                    orders.close()
                    for other in (*running, *(other for _, other in running.values()), *ended):
                        os.close(other)
                    _become(order, end, outputs)
                    return order
                for one in outputs:
                    os.close(one)
                os.write(end, str(process).encode())
                descriptor = os.pidfd_open(process)
                running[descriptor] = (process, end)
                waiting.register(descriptor, select.POLLIN)


def _report(process: int, end: int) -> None:
    status = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert status is not None
    code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it
        os.write(end, str(code).encode())


def _become(order: Order, end: int, outputs: list[int]) -> None:
    if order.waits:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # as a child's parent may
        os.read(end, 32)
    os.close(end)
    for number, descriptor in enumerate(outputs):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    time.tzset()
    random.seed()
    sys.argv = ["batchpay", *order.arguments]


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
    _load(*sys.argv[1:])
    with socket.socket(fileno=sys.stdin.fileno()) as _orders:
        _module = _serve(_orders).module
    try:
        runpy.run_module(_module, run_name="__main__")
    except SystemExit as _end:
        if isinstance(_end.code, int):
            _codes.append(_end.code)
        raise
