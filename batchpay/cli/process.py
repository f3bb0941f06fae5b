"""What the command line does as the owner of its process: who runs it, its signals, its descriptors, its processor."""

from __future__ import annotations

import io
import os
import pwd
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from batchpay.payment import Actor

_LOGIN_UID = Path("/proc/self/loginuid")
"""Who logged in, by the kernel's word: `sudo` and `su` don't change it, and nobody but root can."""
_NO_LOGIN = 2**32 - 1


def actor() -> Actor:
    """Name the person who logged in, else the account that runs this process.

    Two people who share a service account, each through their own login, are two.
    """
    account = _account(os.getuid())
    login = _login_uid()
    if login is None or login == os.getuid():
        return Actor(account, os.uname().nodename)
    return Actor.by_login(_account(login), os.uname().nodename, account)


def _login_uid() -> int | None:
    """Read the kernel's record of the login; None where it keeps none (containers, other systems)."""
    try:
        uid = int(_LOGIN_UID.read_text("ascii"))
    except (OSError, ValueError):
        return None
    return None if uid == _NO_LOGIN else uid


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


STOPPED = "stopped by a signal; safe to run again"
STOPPED_AT_PROMPT = "stopped at the prompt; nothing was done"

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end what is done now, as Ctrl-C does; not those that the caller has ignored."""
    _handle_signals(signal.default_int_handler)


def ignore_signals() -> None:
    """Heed no signal any more: the command has ended and its exit code stands."""
    _handle_signals(signal.SIG_IGN)


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def open_standard_descriptors() -> None:
    """Open descriptors 0 to 2 where the caller closed them: the next file that is opened would take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one


class OutputThatLasts(io.FileIO):
    """A descriptor for output that raises nothing: what can't be written is lost, and the first reason is kept.

    What a run did stands in the ledger and in the results. Who listens, or a full disk, may not decide how it ends.
    """

    problem: str | None = None

    def write(self, data: Any) -> int:
        """Write to the descriptor while that works."""
        while self.problem is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.problem = error.strerror or "unknown error"
            else:
                if written is not None:
                    return written
                select.select([], [self], [])  # the reader is slow, and the pipe doesn't wait for it
        return len(data)


def keep_output() -> OutputThatLasts:
    """Put streams that raise nothing in the place of standard output and error; gives what stands behind output."""
    raw = [OutputThatLasts(number, "w", closefd=False) for number in (1, 2)]
    for name, one in zip(("stdout", "stderr"), raw, strict=True):
        given = getattr(sys, name)
        stream = io.TextIOWrapper(
            io.BufferedWriter(one),
            encoding=getattr(given, "encoding", "utf-8"),
            errors=getattr(given, "errors", "backslashreplace"),
            line_buffering=name == "stderr" or one.isatty(),
        )
        setattr(sys, name, stream)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    return raw[0]
