"""Programs under strace, which watches their system calls, makes them fail, or kills before one."""

from __future__ import annotations

import shutil
import subprocess

from tests.support.warm import Process

STRACE = shutil.which("strace")


def strace(*options: str) -> list[str]:
    """Return the command that runs another one, with its threads and children, under strace.

    A filter in the kernel stops the program only at the calls that are requested; otherwise each of the thousands of
    calls of a start stops it twice, which takes as much time as the start itself. Signals are not injected with it:
    strace does that the slow way.
    """
    signals = any(":signal=" in option for option in options)
    return [str(STRACE), "-f", *([] if signals else ["--seccomp-bpf"]), "-qq", *options]


def traced(process: Process, *options: str) -> None:
    """Watch a process that waits to begin, with its threads and children, until its end.

    Its start is not seen, which makes more calls than most commands after it, and stops at each of them.
    """
    command = [str(STRACE), "-f", *options, "-p", str(process.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        told = tracing.stderr.readline()
        if "attached" not in told:
            process.kill()
            raise RuntimeError(told)
        process.begin()
        tracing.communicate()
