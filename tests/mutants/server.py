"""The server: `python -m tests.mutants.server IN OUT LINES PATH...` loads every test once, and forks for each change.

Requests and answers are lines of JSON. A fork runs tests in the order asked for until one fails, and tells each
before it begins; with `record` it runs all, and notes what each executes. The server's own state stays as it was
after loading.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import lines
from tests.mutants.exchange import exchange, exchange_texts


class Server:
    """A plugin that answers requests where pytest would run what it found."""

    def __init__(self, requests: int, answers: int, folder: str) -> None:
        self._requests, self._answers, self._folder = requests, answers, folder
        self._failed = False
        self._items: dict[str, pytest.Item] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._tell(tests=list(self._items), can_fork=not _has_pool())
        with os.fdopen(self._requests, "r", encoding="utf-8", closefd=False) as requests:
            for line in requests:
                process = os.fork()
                if process == 0:
                    self._serve(json.loads(line))
                os.waitpid(process, 0)
                with suppress(ProcessLookupError):  # what a test left running
                    os.killpg(process, signal.SIGKILL)
                self._tell(end=process)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def _serve(self, request: dict[str, Any]) -> None:
        """Answer in a fork, and end it."""
        os.setsid()
        self._tell(process=os.getpid())
        try:
            if "file" in request and not self._is_exchanged(request):
                self._tell(not_exchanged=True)
                return
            if request["record"]:
                lines.begin(self._folder)
            self._run([self._items[name] for name in request["tests"]], record=request["record"])
        except BaseException as error:  # whatever a change does to the run of tests is noticed
            self._tell(failed=repr(error))
        finally:
            os._exit(0)

    @staticmethod
    def _is_exchanged(request: dict[str, Any]) -> bool:
        file, before, after = request["file"], request["before"], request["after"]
        return exchange(file, before, after) or (request["texts"] and exchange_texts(file, after))

    def _run(self, items: list[pytest.Item], *, record: bool) -> None:
        for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
            if record:
                lines.next_test(self._folder, number)
            self._tell(test=item.nodeid)
            self._failed = False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                self._tell(failed=item.nodeid)
            if self._failed and not record:
                return

    def _tell(self, **answer: object) -> None:
        os.write(self._answers, f"{json.dumps(answer)}\n".encode())


def _has_pool() -> bool:
    """Whether a test computed with polars while it was loaded: its threads are in no fork, which waits for them."""
    names = (task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir())
    return any(re.fullmatch(r"polars-[0-9]+\n", name) for name in names)


if __name__ == "__main__":
    server = Server(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    pytest.main(["-p", "no:cacheprovider", f"--basetemp={sys.argv[3]}/files", *sys.argv[4:]], plugins=[server])
