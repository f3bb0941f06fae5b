"""What a process that knows the key and account numbers does with its memory: each entrance begins with these.

And what it says where the system gives it too little.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import resource
from collections.abc import Iterator

from batchpay.errors import NotUsable

_PR_SET_DUMPABLE = 4
"""<sys/prctl.h>"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""<malloc.h>"""


def keep_memory_private() -> None:
    """Leave no core file and let no other process of the user read the memory.

    The limit alone is not enough: it is ignored where cores are piped to a program.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError, OSError):  # a system other than Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def keep_freed_memory() -> None:
    """Use what was freed for the next chunk, in place of giving it back and asking the kernel for it again.

    polars: a check of a large file takes 8 % less CPU time so, and a tenth less memory. It is read when polars is
    imported, so this comes before; who set the variable is not overruled.

    The C library: all threads share one store of freed memory. With one for each, as is its way, a submission of a
    million rows took 40 MiB more, and asked the kernel for a third more.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:5000")
    limit_freed_memory(stores=1, kept_bytes=64 << 20, mapped_from_bytes=32 << 20)


def limit_freed_memory(*, stores: int, kept_bytes: int, mapped_from_bytes: int) -> None:
    """Let the C library have so many stores of freed memory for threads; each gives back what exceeds `kept_bytes`.

    What is as large as `mapped_from_bytes` is given back at once.
    """
    with contextlib.suppress(AttributeError, OSError):  # not every C library has it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, stores)
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, mapped_from_bytes)


def collect_rarely() -> None:
    """Look for garbage in cycles after 200,000 new objects, not after 700, and not once more at the end.

    Little of ours is in cycles, and what imports make stays: looking through it took a fourth of a short command. The
    imports of a submission make 107,000 objects.
    """
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)


@contextlib.contextmanager
def in_plain_words() -> Iterator[None]:
    """Keep off standard error what Rust writes there itself when polars fails, which may hold a cell of a file.

    Raises NotUsable where it failed because the system gave no thread.
    """
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    except BaseException as error:
        # PanicException is not imported: importing polars may be what failed.
        has_no_thread = isinstance(error, BlockingIOError) or (
            isinstance(error, RuntimeError) and "new thread" in str(error)
        )
        if type(error).__name__ == "PanicException":
            has_no_thread = "WouldBlock" in str(error) or "OutOfMemory" in str(error)
        if has_no_thread:
            raise NotUsable(
                "the system gives the check no more threads or processes (ulimit -u, the pids limit of a container) or "
                "no memory for them; nothing was sent"
            ) from None
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)
