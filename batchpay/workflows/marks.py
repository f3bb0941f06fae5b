"""How a file shows that this program wrote it: metrics, plan, report and reconciliation replace only their own kind.

Results and rejects are checked where they are written (writing/atomic.py): they get a number instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from batchpay.intake.own_output import first_row

METRICS, LOG, PLAN, REPORT = "metrics file", "log", "plan", "report"
RECONCILIATION, RECALL = "reconciliation", "recall sheet"
_HEAD_BYTES = 512
_LOG_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"


def _begins(pattern: bytes) -> Callable[[Path], bool]:
    """Make a check of a file's first bytes."""

    def look(path: Path) -> bool:
        with path.open("rb") as file:
            return re.match(pattern, file.read(_HEAD_BYTES)) is not None

    return look


def _has_columns(*names: str) -> Callable[[Path], bool]:
    """Make a check of a table's header."""

    def look(path: Path) -> bool:
        row = first_row(path)
        return row is not None and row.keys() >= {*names}

    return look


MARKS: dict[str, Callable[[Path], bool]] = {
    METRICS: _begins(rb"# HELP batchpay_"),
    LOG: _begins(rb'(?:\{"time": "%b", "level": "|%b [A-Z]+ )' % (_LOG_TIME, _LOG_TIME)),
    PLAN: _begins(rb'\{\s*"plan": [0-9]+,\s*"id": "[0-9a-f]+",\s*"seal": "'),
    REPORT: _begins(
        rb'<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
        rb"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"
    ),
    RECONCILIATION: _has_columns("verdict", "found_by", "line_there"),
    RECALL: _has_columns("reversal", "deadline"),
}
"""By the kind of output."""


def may_be_written(path: Path, kind: str) -> bool:
    """Whether an output of a kind may be written at a path: no file is there, an empty one, or one of that kind.

    What is not a regular file is left to the writer.
    """
    try:
        if not path.is_file():
            return True
    except OSError:  # whatever is there is in a folder that can't be entered
        return True
    try:
        return path.stat().st_size == 0 or MARKS[kind](path)
    except OSError:
        return False
