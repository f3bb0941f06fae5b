"""A disk that is full where results or rejects go: nothing is lost by it, and the reason is said."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.command import small_file
from tests.support.full_disk import FULL, FullDisk, needs_full
from tests.support.in_process import Caller

pytestmark = needs_full


def waiting(name: str, rows: int, *, first: int, replace: tuple[str, str] = ("", "")) -> Path:
    """Put a complete file into the inbox, something in it replaced; files of later names are younger."""
    path = small_file(Path("inbox") / name, rows, first=first)
    text = path.read_text()
    assert replace[0] in text
    path.write_text(text.replace(*replace) if replace[0] else text)
    os.utime(path, (ord(name[0]), ord(name[0])))
    Path(f"{path}.control.toml").write_text(f"rows = {rows}\n")
    return path


def names(folder: str) -> list[str]:
    """Name what lies in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def line() -> list[str]:
    """The nightly line."""
    for name in ("inbox", "done", "out"):
        Path(name).mkdir()
    return ["submit", "--inbox", "inbox", "--archive", "done", "--out", "out"]


def test_a_file_without_its_results_stays_for_the_call_that_writes_them(
    call: Caller, line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was archived: the same line, run again, found nothing to do, and nobody ever heard of the declined row."""
    path = waiting("b.csv", 2, first=1, replace=("770000021", "770990001"))
    with monkeypatch.context() as patched:
        FullDisk(Path("out"), patched)
        first = call(*line)
    assert (first["exit_code"], first["accepted"], first["declined"], first["notes"]) == (5, 1, 1, [])
    assert "could not be written: out/b.results.csv can't be written: No space left on device; run" in first["stopped"]
    assert (path.exists(), names("out"), names("done")) == (True, [], [])

    again = call(*line)
    assert (again["exit_code"], again["stopped"], again["declined"]) == (3, None, 1)
    assert (names("inbox"), names("done")) == ([], ["b.csv", "b.csv.control.toml"])
    assert "declined" in Path("out/b.results.csv").read_text()


def test_rejects_without_room_refuse_their_file_and_every_code_agrees(
    call: Caller, line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an internal error without a word of the disk; --json left the file out, and told another exit code."""
    waiting("a.csv", 1, first=1)
    waiting("b.csv", 2, first=11, replace=(",12.25,", ",12.2,"))
    waiting("c.csv", 1, first=21)
    full = "b.rejects.csv can't be written: No space left on device"
    with monkeypatch.context() as patched:
        FullDisk(Path("out"), patched)
        told = call(*line)
    assert [(Path(one["file"]).name, one["exit_code"]) for one in told["files"]] == [
        ("a.csv", 5),
        ("b.csv", 5),
        ("c.csv", 6),
    ]
    assert (told["files"][1]["error"], told["exit_code"]) == (f"out/{full}", 6)
    assert (len(names("inbox")), names("out")) == (6, [])
    again = call(*line)
    assert (again["exit_code"], again["accepted"], again["rejected"], names("inbox")) == (3, 3, 1, [])


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
@pytest.mark.parametrize("rows", [1, 400])
def test_a_check_says_what_the_disk_refused(
    call: Caller, monkeypatch: pytest.MonkeyPatch, ending: str, rows: int
) -> None:
    """Few rows fail where the file is put in its place, many where they are written; each kind in its library's way."""
    path = small_file(Path("a.csv"), rows)
    path.write_text(path.read_text().replace(".25,", ".2,"))
    Path("full").mkdir()
    with monkeypatch.context() as patched:
        FullDisk(Path("full"), patched)
        asked = ("validate", "a.csv", "--rejects", f"full/x.{ending}")
        told = call(*asked)
        assert (told["error"], told["exit_code"]) == (
            f"full/x.{ending} can't be written: No space left on device",
            5,
        )
    assert names("full") == []
    assert call(*asked)["exit_code"] == 3


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_results_of_every_kind_may_find_no_room(call: Caller, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Parquet's library has errors of its own for a full disk: the payments were made, the call ended with 1."""
    small_file(Path("a.csv"), 400)
    Path("full").mkdir()
    with monkeypatch.context() as patched:
        FullDisk(Path("full"), patched)
        told = call("submit", "a.csv", "--results", f"full/x.{ending}")
    assert (told["accepted"], told["exit_code"]) == (400, 5)
    assert f"full/x.{ending} can't be written: No space left on device; run" in told["stopped"]
    shutil.rmtree("full")


def test_a_log_without_room_is_said(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with 0 and an empty log; metrics in the same place were 6 and a sentence."""
    small_file(Path("a.csv"), 1)
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.operations.logs._open_file", lambda _: os.open(FULL, os.O_WRONLY))
        said = call.text("submit", "a.csv", "-q", "--log-file", "run.log", "--metrics-file", "night.prom")
    assert "log file run.log can't be written: No space left on device; " in said
    assert "lines of this call lost" in said
    assert call("submit", "a.csv", "--log-file", "run.log")["exit_code"] == 0


@pytest.mark.parametrize("without_room", ["log", "metrics"])
@pytest.mark.parametrize("line", [("submit", "a.csv"), ("submit", "a.csv", "b.csv"), ("resume",)], ids=" ".join)
def test_every_command_ends_with_the_code_that_its_ping_and_object_say(
    call: Caller, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...], without_room: str
) -> None:
    """The object of submit said 0, where the call ended with 6; resume ended with 0, and told its monitor 6."""
    small_file(Path("a.csv"), 2)
    small_file(Path("b.csv"), 2, first=11)
    call("submit", "a.csv", "--limit", "1")
    for name in ("full", "out"):
        Path(name).mkdir()
    told: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.operations.ping.Ping.finish", lambda _, code: told.append(code))
        patched.setattr("batchpay.operations.ping.Ping.start", lambda _: None)
        if without_room == "log":
            patched.setattr("batchpay.operations.logs._open_file", lambda _: os.open(FULL, os.O_WRONLY))
        else:
            FullDisk(Path("full"), patched)
        outputs = ("--log-file", "run.log", "--metrics-file", "full/x.prom", "--ping-url", "http://127.0.0.1:9")
        found = call(*line, *outputs, "--out", "out")
    assert (found["exit_code"], told) == (6, [6])


@pytest.mark.parametrize(
    "line", [("submit", "none*.csv"), ("submit", "a.csv", "--again"), ("resume", "none")], ids=" ".join
)
def test_a_call_that_an_error_ends_has_the_code_that_its_ping_says(
    call: Caller, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    """It ended with 2, or 5, and the monitor was told 6: the log had no room either."""
    call("ledger", "init")
    told: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr("batchpay.operations.ping.Ping.finish", lambda _, code: told.append(code))
        patched.setattr("batchpay.operations.ping.Ping.start", lambda _: None)
        patched.setattr("batchpay.operations.logs._open_file", lambda _: os.open(FULL, os.O_WRONLY))
        code = call.fails(*line, "--log-file", "run.log", "--ping-url", "http://127.0.0.1:9")
    assert (code, told) == (6, [6])
