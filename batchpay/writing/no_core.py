"""What is never written: the memory of a process that knows the key and account numbers."""

from __future__ import annotations

import contextlib
import ctypes
import resource

_PR_SET_DUMPABLE = 4
"""<sys/prctl.h>"""


def keep_memory_private() -> None:
    """Leave no core behind and let no other process of the user look in.

    The limit alone is not enough: where cores are piped to a program it is not heeded.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError, OSError):  # another system than Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
