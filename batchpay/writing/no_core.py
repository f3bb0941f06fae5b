"""What is never written: the memory of a process that knows the key and account numbers."""

from __future__ import annotations

import contextlib
import ctypes
import resource

_PR_SET_DUMPABLE = 4
"""<sys/prctl.h>"""


def keep_memory_private() -> None:
    """Leave no core file and let no other process of the user read the memory.

    The limit alone is not enough: it is ignored where cores are piped to a program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError, OSError):  # a system other than Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
