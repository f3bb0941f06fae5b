"""Log lines as they are written, by this process, to real files."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import NotUsable
from batchpay.operations.logs import FIELDS, LineHandler, close_log, log, open_log


@contextmanager
def logging_to(path: Path | None, *, as_json: bool = True) -> Iterator[LineHandler]:
    handler = open_log(path=path, as_json=as_json)
    try:
        yield handler
    finally:
        close_log(handler)


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def test_an_event_is_one_json_object(tmp_path: Path) -> None:
    """Time, level, event, then the fields, in one line; numbers stay numbers."""
    path = tmp_path / "log"
    with logging_to(path):
        log("row finished", batch="3f2a91123456", row=123_456, state="accepted", http_status=200)
    (line,) = logged(path)
    assert line.pop("time").endswith("Z")
    assert re.fullmatch(r"[0-9a-f]{8}", line.pop("call"))
    assert (line.pop("pid"), line.pop("host")) == (os.getpid(), os.uname().nodename)
    assert line == {
        "level": "info",
        "event": "row finished",
        "batch": "3f2a91123456",
        "row": 123_456,
        "state": "accepted",
        "http_status": 200,
    }


def test_long_digits_are_masked(tmp_path: Path) -> None:
    """An account number that got into an event or a reason by mistake is not written; names of ours stay."""
    path = tmp_path / "log"
    with logging_to(path):
        log("account 123456789012 at 021000021", reason="acct 55555", file="pay-20261121.csv")
        logging.getLogger("batchpay.gateway").warning("to %s", "987654321")
    text = path.read_text()
    assert not any(digits in text for digits in ("123456789012", "021000021", "55555", "987654321"))
    assert [line["event"] for line in logged(path)] == ["account **** at ****", "to ****"]
    assert logged(path)[0]["file"] == "pay-20261121.csv"


def test_what_people_look_for_is_not_masked(tmp_path: Path) -> None:
    """Control totals, counts and ports were `****`; an account beside them still is."""
    path = tmp_path / "log"
    kept = "found 1204310.22 in 100000 rows, expected 61256.72: no connection to 127.0.0.1:54321"
    with logging_to(path):
        log("refused", reason=kept)
        log("refused", reason="a:123456 123456789012.50 00001.234 12345.6 12345 x:12345.6 1.12345 77000011rows")
    assert logged(path)[0]["reason"] == kept
    assert logged(path)[1]["reason"] == "a:**** ****.50 ****.234 ****.6 **** x:****.6 1.**** ****rows"


def test_a_call_is_told_from_others(tmp_path: Path) -> None:
    """Lines of calls that run at once can be told apart in one file."""
    path = tmp_path / "log"
    for _ in range(2):
        with logging_to(path):
            log("call began")
            log("call ended")
    calls = [line["call"] for line in logged(path)]
    assert calls[0] == calls[1] != calls[2] == calls[3]


def test_the_journal_gets_priorities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`journalctl -p warning` showed nothing; a terminal or a pipe gets no such prefix."""
    path = tmp_path / "journal"
    with path.open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        status = path.stat()
        for journal in (f"{status.st_dev}:{status.st_ino}", f"{status.st_dev}:{status.st_ino + 1}"):
            monkeypatch.setenv("JOURNAL_STREAM", journal)
            with logging_to(None):
                for level in (logging.ERROR, logging.WARNING, logging.INFO):
                    log("x", level=level)
    assert [line.partition("{")[0] for line in path.read_text().splitlines()] == ["<3>", "<4>", "<6>", "", "", ""]


def test_what_is_no_field_is_not_written(tmp_path: Path) -> None:
    """A field that nobody vetted is left out, so that a careless call can't leak."""
    path = tmp_path / "log"
    with logging_to(path):
        log("x", account="ABC", name="Ann")
    assert set(logged(path)[0]) == {"time", "level", "event", "call", "pid", "host"}
    assert not set(FIELDS) & set(logging.makeLogRecord({}).__dict__)


def test_libraries_are_heard_but_not_quoted(tmp_path: Path) -> None:
    """A library's warning leaves a line with its origin; its text, which may hold a request, does not."""
    path = tmp_path / "log"
    with logging_to(path):
        logging.getLogger("urllib3.connectionpool").warning("POST body %s", "secret-key-text")
        logging.getLogger("urllib3.connectionpool").info("nothing")
    assert [line["event"] for line in logged(path)] == ["message of urllib3.connectionpool withheld"]
    assert "secret" not in path.read_text()


@pytest.mark.parametrize("as_json", [True, False])
def test_no_event_can_forge_a_line_or_steer_a_terminal(tmp_path: Path, as_json: bool) -> None:
    """Line breaks, escapes, bidirectional marks and broken characters are written as escapes."""
    path = tmp_path / "log"
    with logging_to(path, as_json=as_json):
        log("a\nb\x1b[2J\u202e\u2028\udcff\x7f", file='x"\n=y')
    text = path.read_bytes().decode("ascii")
    assert text.count("\n") == 1
    assert text.removesuffix("\n").isprintable()


def test_a_text_line(tmp_path: Path) -> None:
    """Without --log-json a line reads time, level, event, name=value."""
    path = tmp_path / "log"
    with logging_to(path, as_json=False):
        log("stopped", level=logging.WARNING, batch="b1", reason="credentials refused")
    origin = rf"call=[0-9a-f]{{8}} pid={os.getpid()} host={re.escape(os.uname().nodename)}"
    line = path.read_text().split(" ", 1)[1]
    assert re.fullmatch(rf'WARNING stopped batch=b1 reason="credentials refused" {origin}\n', line)


def test_an_exception_shows_nothing_of_itself(tmp_path: Path) -> None:
    """A traceback can hold a row, so it is never written."""
    path = tmp_path / "log"
    with logging_to(path):
        try:
            raise ValueError("account 77")
        except ValueError:
            logging.getLogger("batchpay").exception("failed")
    assert "account 77" not in path.read_text()
    assert path.read_text().count("\n") == 1


def test_the_file_is_ours_alone_and_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened with mode 0600, appended to, never through a link, never anything but a file; else it is said in words."""
    path = tmp_path / "log"
    for _ in range(2):
        with logging_to(path):
            log("x")
    assert len(logged(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(path)
    for bad in (tmp_path / "link", tmp_path, tmp_path / "none" / "log", Path("/dev/null")):
        with pytest.raises(NotUsable, match="log file"):
            open_log(path=bad, as_json=True)

    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.fchmod", fail)
    with pytest.raises(NotUsable, match=r"log file .* can't be opened: Operation not permitted"):
        open_log(path=path, as_json=True)


def test_a_log_that_is_rotated_continues_in_a_new_file(tmp_path: Path) -> None:
    """A run that lasts for weeks wrote to the old one, and from the second rotation on to one that was deleted."""
    path, old = tmp_path / "log", tmp_path / "log.1"
    handler = open_log(path=path, as_json=False)
    try:
        log("run started")
        path.rename(old)
        log("run ended")
        path.rename(old)
        path.symlink_to(old)  # not to be followed: this line goes where the one before did
        log("call ended")
    finally:
        close_log(handler)
    assert handler.lost == 0
    assert [line.split(" ", 2)[2].partition(" call=")[0] for line in old.read_text().splitlines()] == [
        "run ended",
        "call ended",
    ]


def test_a_log_that_fails_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk stops no payment and writes no complaint that quotes the event."""
    with Path("/dev/full").open("wb") as full:
        handler = LineHandler(full.fileno())
        handler.handle(logging.makeLogRecord({"name": "batchpay", "msg": "x"}))
        assert handler.lost == 1
    assert capsys.readouterr().err == ""


def test_without_a_log_nothing_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a log is opened and after it is closed, events go nowhere, not to standard error."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own would take them
    log("x", level=logging.ERROR)
    with logging_to(None):
        log("seen")
    log("y", level=logging.ERROR)
    assert capsys.readouterr().err.count("\n") == 1
