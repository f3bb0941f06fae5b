"""What the command line does as the owner of its process: who runs it, its signals, its processor."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from batchpay.payment import Actor

if TYPE_CHECKING:
    from batchpay.sending.limits import StopRequest


def actor() -> Actor:
    """Name the account of the operating system that runs this process."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    return Actor(user, platform.node())


class CommandLine:
    """See workflows.run.ProcessOwner."""

    @contextlib.contextmanager
    def running(self, stop: StopRequest) -> Iterator[None]:
        """Let SIGINT, SIGTERM and SIGHUP ask for an end, however often: rows in flight finish within their deadline."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            stop.ask(f"stopped by {signal.Signals(number).name}")

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # nohup ignores SIGHUP.
        heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, ask) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Keep this process on one core: threads on two fight for the interpreter lock and send half as fast."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(before)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
