"""What reads a workbook, in a process forked from one that has it loaded: `python -m tests.support.xlsx_worker`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from batchpay.intake.xlsx.worker import main
from tests.support.warm import Order, Process, Warm

_WARM = Warm(None, "tests.support.xlsx_worker", "batchpay.intake.xlsx.pieces")


def _start(command: Sequence[str], *, stdin: int, env: dict[str, str], **_: Any) -> Process:
    """Take the place of Popen: the command ends with the place of the package and the job."""
    return _WARM.start(Order("tests.support.xlsx_worker", tuple(command[-2:]), env, os.curdir), stdin, subprocess.PIPE)


FORKED = SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
"""Takes the place of the module subprocess in batchpay.intake.xlsx.child."""

if __name__ == "__main__":
    main()
