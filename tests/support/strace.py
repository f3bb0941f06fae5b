"""Programs under strace, which watches their system calls, makes them fail, or kills before one."""

from __future__ import annotations

import shutil

STRACE = shutil.which("strace")


def strace(*options: str) -> list[str]:
    """Return the command that runs another one, with its threads and children, under strace.

    A filter in the kernel stops the program only at the calls that are requested; otherwise each of the thousands of
    calls of a start stops it twice, which takes as much time as the start itself. Signals are not injected with it:
    strace does that the slow way.
    """
    signals = any(":signal=" in option for option in options)
    return [str(STRACE), "-f", *([] if signals else ["--seccomp-bpf"]), "-qq", *options]
