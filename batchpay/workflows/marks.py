"""How a file shows that this program wrote it: metrics, plan, report and reconciliation replace only their own kind.

Results and rejects are checked where they are written (writing/atomic.py): they get a number instead.
"""

from __future__ import annotations

import re
from pathlib import Path

from batchpay.intake.own_output import first_row

METRICS, LOG, PLAN, REPORT = "metrics file", "log", "plan", "report"
RECONCILIATION, RECALL = "reconciliation", "recall sheet"
_HEAD_BYTES = 512
_LOG_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"


MARKS: dict[str, bytes | frozenset[str]] = {
    METRICS: rb"# HELP batchpay_",
    LOG: rb'(?:\{"time": "%b", "level": "|%b [A-Z]+ )' % (_LOG_TIME, _LOG_TIME),
    PLAN: rb'\{\s*"plan": [0-9]+,\s*"id": "[0-9a-f]+",\s*"seal": "',
    REPORT: rb'<!doctype html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*'
    rb"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-",
    RECONCILIATION: frozenset({"verdict", "found_by", "line_there"}),
    RECALL: frozenset({"reversal", "deadline"}),
}
"""By the kind of output: a pattern of its first bytes, or columns of its header."""


def may_be_written(path: Path, kind: str) -> bool:
    """Whether an output of a kind may be written at a path: no file is there, an empty one, or one of that kind.

    What is not a regular file is left to the writer.
    """
    try:
        if not path.is_file():
            return True
    except OSError:  # whatever is there is in a folder that can't be entered
        return True
    mark = MARKS[kind]
    try:
        if path.stat().st_size == 0:
            return True
        if isinstance(mark, frozenset):
            return mark <= (first_row(path) or {}).keys()
        with path.open("rb") as file:
            return re.match(mark, file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False
