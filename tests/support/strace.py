"""Programs under strace, which watches their system calls, fails them, or kills before one."""

from __future__ import annotations

import shutil

STRACE = shutil.which("strace")


def strace(*options: str) -> list[str]:
    """Give the command that runs another one, its threads and its children under strace.

    A filter in the kernel stops the program only at the calls that are asked for; otherwise each of the thousands of
    calls of a start is stopped at twice, which takes as much time as the start itself. Signals are not injected with
    it: there strace does it the slow way.
    """
    signals = any(":signal=" in option for option in options)
    return [str(STRACE), "-f", *([] if signals else ["--seccomp-bpf"]), "-qq", *options]
