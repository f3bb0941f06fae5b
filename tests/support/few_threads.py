"""The command `batchpay` under a limit on memory that lets only a few of its workers' threads start.

`python -m tests.support.few_threads COUNT ARGUMENTS…`: from when a run begins to send there is room for the stacks of
that many threads, and for half of another one.
"""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

from batchpay.cli.main import main
from batchpay.sending.sender import Sender

STACK_BYTES = 1 << 30

if __name__ == "__main__":
    _, count, *arguments = sys.argv
    sys.argv[1:] = arguments
    start_workers = Sender._start_workers

    def start_few(sender: Sender, *how: Any) -> list[threading.Thread]:
        """Start workers whose stacks take so much address space that no other need of theirs matters."""
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        room = pages * resource.getpagesize() + int((int(count) + 0.5) * STACK_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        threading.stack_size(STACK_BYTES)
        return start_workers(sender, *how)

    with mock.patch.object(Sender, "_start_workers", start_few):
        main()
