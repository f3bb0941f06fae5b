"""Runs the program's command line: in this process, or in one forked from a server that has it loaded.

In this process it costs about 40 ms; the forked one is for kills, and for commands that run while another one runs.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import pwd
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.model import clock

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE)
_WAIT_S = 60
_KEY = "key-of-"


def key_of(command: str) -> str:
    """Return the API key that a command's requests carry: by it the gateway knows which one they come from."""
    return _KEY + command


def command_of(key: str) -> str:
    """Return the name of the command whose requests carry an API key."""
    return key.removeprefix(_KEY)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the command line."""

    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    person: str = "ada"
    """The account that runs it, as the operating system names it."""

    @property
    def name(self) -> str:
        """The name of the command."""
        return command_of(self.environment["BATCHPAY_API_KEY"])


@dataclass(frozen=True, slots=True)
class Done:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the object on standard output; empty if there is none."""
        try:
            value = json.loads(self.out)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def run_here(call: Call, moment: str = "", acts: Sequence[Callable[[], object]] = ()) -> Done:
    """Run a command in this process; `acts` are called one by one, the last one first, when it comes to a moment.

    `lock`: it is about to take a batch's lock.
    """
    clock.exchange()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    environment, folder, arguments, umask = dict(os.environ), Path.cwd(), sys.argv, os.umask(0o077)
    streams, excepthook = (sys.stdin, sys.stdout, sys.stderr), sys.excepthook
    descriptors = [os.dup(number) for number in range(3)]
    getpwuid = pwd.getpwuid
    cores = os.sched_getaffinity(0)
    try:
        with _pause_at_lock(acts if moment == "lock" else ()):
            code = _main(call)
    finally:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        (sys.stdin, sys.stdout, sys.stderr), sys.excepthook = streams, excepthook
        sys.argv = arguments
        setattr(pwd, "getpwuid", getpwuid)  # noqa: B010
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        os.umask(umask)
        os.sched_setaffinity(0, cores)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return _read(call, code)


def _main(call: Call) -> int:
    """Call the program as a process starts it: with descriptors, arguments and environment of its own."""
    from batchpay.cli.main import main

    out, err = _streams(call)
    places = (os.devnull, out, err)
    flags = (os.O_RDONLY, *(2 * [os.O_WRONLY | os.O_CREAT | os.O_TRUNC]))
    for number, (place, flag) in enumerate(zip(places, flags, strict=True)):
        descriptor = os.open(place, flag, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    sys.argv = ["batchpay", *call.arguments]
    setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=call.person))  # noqa: B010 - the system's own word
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # a traceback is what a person would see
        sys.stderr.write(f"Traceback: {error!r}")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what the interpreter does with it at its end
            code = 120
    return code


def _streams(call: Call) -> tuple[str, str]:
    return f"{call.environment['HOME']}/{call.name}.out", f"{call.environment['HOME']}/{call.name}.err"


def _read(call: Call, code: int) -> Done:
    out, err = (Path(name) for name in _streams(call))
    texts = [path.read_text("utf-8", "replace") if path.exists() else "" for path in (out, err)]
    for path in (out, err):
        path.unlink(missing_ok=True)
    return Done(code, *texts)


@contextmanager
def _pause_at_lock(acts: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Stop between what was checked and what is registered: when the batch's lock is taken."""
    if not acts:
        yield
        return
    real, left = fcntl.flock, list(acts)

    def flock(descriptor: int, operation: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        if left and place.parent.suffix == ".d":
            left.pop()()
        real(descriptor, operation)

    setattr(fcntl, "flock", flock)  # noqa: B010 - a function of the library, exchanged for a while
    try:
        yield
    finally:
        setattr(fcntl, "flock", real)  # noqa: B010


def start_fork(call: Call, prepare: Callable[[], None] | None = None) -> int:
    """Run a command in a fork of this process, which has the program loaded and runs no thread; return its id."""
    process = os.fork()
    if not process:
        code = 1
        try:
            clock.exchange()
            if prepare is not None:
                prepare()
            code = _main(call)
        finally:
            os._exit(code)
    return process


def wait_for_fork(process: int, call: Call) -> tuple[Done, resource.struct_rusage]:
    """Wait for it; return how it ended (minus the signal, if one killed it), and the resources it used."""
    _, status, usage = os.wait4(process, 0)
    return _read(call, os.waitstatus_to_exitcode(status)), usage


class Forks:
    """Processes forked from one that has the whole program loaded."""

    def __init__(self) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.model.preload"])
        forkserver.ensure_running()  # now: from a command's folder it would not find what it must load

    def start(self, call: Call) -> ForkServerProcess:
        process = self._context.Process(target=_forked, args=(call, clock.offset_s, clock.wrong_s), daemon=True)
        process.start()
        return process

    def start_caller(self, target: Callable[..., None], *arguments: object) -> ForkServerProcess:
        """Call a function in such a process, which may start others."""
        process = self._context.Process(target=target, args=arguments)
        process.start()
        return process

    def wait(self, process: ForkServerProcess, call: Call) -> Done:
        process.join(_WAIT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            return Done(1, "", "it never ended")
        return _read(call, process.exitcode)

    def run(self, call: Call) -> Done:
        return self.wait(self.start(call), call)


def _forked(call: Call, offset_s: float, wrong_s: float) -> None:
    clock.load_program()
    clock.offset_s, clock.wrong_s = offset_s, wrong_s
    clock.exchange()
    os._exit(_main(call))
