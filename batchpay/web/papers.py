"""Files about a batch, created by a child on request, in memory: results, report, sheets, reconciliations.

The server loads nothing of what creates them, and none of them is on a disk unencrypted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from typing import Any

from flask import Response, send_file

from batchpay.errors import EXIT_CODES, BatchpayError, NotUsable
from batchpay.operations.logs import log
from batchpay.web.site import Site

DEADLINE_S = 600
_AT_ONCE = threading.BoundedSemaphore(2)
_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


def make(here: Site, kind: str, *arguments: Any, given: int | None = None) -> int:
    """Have a file created; return the descriptor of a file in memory, which the caller closes.

    `given` is a descriptor of what the child reads, an uploaded export. Raises NotUsable with the child's sentence if
    it fails.
    """
    into = os.memfd_create(kind, os.MFD_CLOEXEC)
    try:
        command = [sys.executable, "-P", "-m", "batchpay.web.paper_job", kind, "-" if given is None else str(given)]
        asked = {"settings": dataclasses.asdict(here.settings), "arguments": arguments}
        with _AT_ONCE:
            child = subprocess.run(  # noqa: S603 - this program itself
                command,
                input=json.dumps(asked).encode(),
                stdout=into,
                stderr=subprocess.PIPE,
                pass_fds=() if given is None else (given,),
                timeout=DEADLINE_S,
                check=False,
            )
        if child.returncode:
            said = child.stderr.decode("utf-8", "replace").strip()
            if child.returncode not in EXIT_CODES or child.returncode == BatchpayError.exit_code:
                log("paper failed", kind=kind, code=child.returncode)
                said = "this file could not be created; tell your batchpay administrator"
            raise NotUsable(said)
    except BaseException:
        os.close(into)
        raise
    return into


def read_json(here: Site, kind: str, *arguments: Any, given: int | None = None) -> Any:
    """Have a child do something, and return its JSON answer."""
    with os.fdopen(make(here, kind, *arguments, given=given), "rb") as answer:
        answer.seek(0)
        return json.load(answer)


def download(descriptor: int, name: str) -> Response:
    """Answer with a file in memory, as a download under a name in any script."""
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    kind = _TYPES.get(name.rpartition(".")[2], _TYPES["csv"])
    answer = send_file(os.fdopen(descriptor, "rb"), kind, as_attachment=True, download_name=name)
    answer.content_length = size
    return answer
