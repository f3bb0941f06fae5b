"""Opening what is not an ordinary file: pipes, devices, directories, standard input; and what a second process sees."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from polars.exceptions import PanicException

from batchpay.errors import FileRefused, NotUsable
from batchpay.intake.streams import ahead
from batchpay.writing.process_memory import in_plain_words
from tests.support.payment_files import HEADER, csv_text, read, workbook, write

READ_STANDARD_INPUT = """
import os, sys
from batchpay.intake.source import open_source
with open_source("-", required=(), format=sys.argv[1] if len(sys.argv) > 1 else None) as source:
    for _ in range(2):
        print(sum(chunk.height for chunk in source.chunks()), source.name)
"""


def piped(content: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Read standard input in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READ_STANDARD_INPUT, *arguments], input=content, capture_output=True, check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_standard_input(tmp_path: Path, kind: str) -> None:
    """A file from a pipe is read as often as it must be, and never stands on the disk."""
    if kind == "csv":
        content = csv_text(3).encode()
    else:
        content = Path(workbook(tmp_path, [line.split(",") for line in csv_text(3).splitlines()])).read_bytes()
    assert piped(content).stdout == "3 standard input\n3 standard input\n"


def test_standard_input_of_another_kind() -> None:
    """What is piped in must be of the kind that was said."""
    assert "is not a Parquet file" in piped(csv_text(1).encode(), "parquet").stderr


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    """A FIFO that nobody writes to does not hold up the run."""
    os.mkfifo(tmp_path / "fifo.csv")
    with pytest.raises(FileRefused, match="is not a file"):
        read(str(tmp_path / "fifo.csv"))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/nowhere/at/all", "a\0b"])
def test_no_regular_file(path: str) -> None:
    """Devices, directories and names that lead nowhere are refused."""
    with pytest.raises(FileRefused):
        read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path: Path) -> None:
    """A file that may not be read is refused with the system's reason."""
    path = write(tmp_path, csv_text(1))
    Path(path).chmod(0)
    with pytest.raises(FileRefused, match="Permission denied"):
        read(path)


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_disk_that_fails_while_it_is_read(tmp_path: Path, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that is gone refuses its file, with the system's reason: it was an internal error."""
    path, left, read_at = write(tmp_path, csv_text(3)), list(range(reads)), os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], at: int) -> int:
        if not left:
            raise OSError(errno.EIO, "Input/output error")
        left.pop()
        return read_at(descriptor, buffers, at)

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(FileRefused, match=r"payments\.csv can't be read: Input/output error"):
        read(path)


def test_names_with_pattern_characters(tmp_path: Path) -> None:
    """Brackets and stars in a name are letters here; patterns are the shell's business."""
    path = write(tmp_path, csv_text(2), "pay[1]*.csv")
    assert read(path).height == 2


def test_a_workbook_leaves_no_child_behind(tmp_path: Path) -> None:
    """A source that is opened and not read ends its child process."""
    path = workbook(tmp_path, [line.split(",") for line in csv_text(3).splitlines()])
    code = (
        "import sys; from batchpay.intake.source import open_source; s = open_source(sys.argv[1]); s.close(); "
        "import os; sys.exit(os.path.exists(f'/proc/self/task/{os.getpid()}/children') and "
        "open(f'/proc/self/task/{os.getpid()}/children').read().strip() or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_by_url(tmp_path: Path, kind: str) -> None:
    """A URL that polars reads gives the same rows as the file."""
    frame = read(write(tmp_path, csv_text(3)))
    if kind == "parquet":
        frame.select(HEADER).write_parquet(tmp_path / "payments.parquet")
    again = read((tmp_path / f"payments.{kind}").as_uri(), HEADER)
    assert again.select(HEADER).equals(frame.select(HEADER))


def test_urls_that_lead_nowhere() -> None:
    """A store that can't be read is one line without the URL's secrets."""
    for url in (
        "file:///nowhere.csv?key=secret", "file:///nowhere.parquet?key=secret", "ftp://me:secret@host/a.csv",
        "s3://me:secret@[bucket/a.csv",
    ):  # fmt: skip
        with pytest.raises(FileRefused) as refusal:
            read(url)
        assert "secret" not in str(refusal.value)


def test_a_broken_parquet_file_in_a_store(tmp_path: Path) -> None:
    """What polars makes of some is no Exception: the command ended with an internal error."""
    path = tmp_path / "payments.parquet"
    pl.DataFrame({"memo": ["x"]}).write_parquet(path, compression="uncompressed", statistics=False)
    whole = path.read_bytes()
    for at in range(4, 60):
        path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        with suppress(FileRefused):
            read(path.as_uri())


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ('<?xml version="1.0"?>\n<office:document xmlns:office="urn:oasis:names:tc:opendocument:">', r"\.fods\); save"),
        ('\ufeff<?xml version="1.0"?><office:document xmlns:o="urn:oasis:names:tc:opendocument:x">', r"\.fods\); save"),
        ('<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>', r"an XML spreadsheet; save it as \.xlsx"),
        ("<?xml version='1.0'?><Document xmlns='urn:iso:std:iso:20022'>", "is XML"),
        ("\n <HTML><BODY>", "web page"), ("<table border=1><tr><td>", "web page"), ("<!doctype html>", "web page"),
        ("MIME-Version: 1.0\nX-Document-Type: Workbook", "web page"), ("ID;PWXL;N;E\r\nB;Y1", "SYLK"),
        ('TABLE\r\n0,1\r\n"EXCEL"\r\n', "DIF"), ('[\n  {\n    "amount": 1', "JSON"), ('{"payments": []}', "JSON"),
    ],
)  # fmt: skip
def test_texts_of_another_kind(tmp_path: Path, head: str, told: str) -> None:
    """What is called .csv or .xls and is none is named, with the way on. Once its columns were said to be missing."""
    with pytest.raises(FileRefused, match=told) as refusal:
        read(write(tmp_path, head.encode()))
    assert "\n" not in str(refusal.value)


def _numbers(until: int) -> Iterator[int]:
    yield from range(until)
    raise FileRefused("line 7 is cut")


@pytest.mark.parametrize("quick_s", [0, 60])
def test_items_come_in_order_and_errors_after_them(quick_s: float) -> None:
    """All that was made before an error is given before it, through several steps as well."""
    found = []
    with pytest.raises(FileRefused, match="line 7 is cut"):
        for number in ahead((number * 2 for number in ahead(_numbers(50), quick_s=quick_s)), quick_s=quick_s):
            found.append(number)
    assert found == [number * 2 for number in range(50)]
    assert list(ahead(iter(()))) == []


def test_one_item_is_made_ahead_and_no_more() -> None:
    """While the caller has an item, the next one is made in another thread, and none after it."""
    made: list[tuple[int, str]] = []

    def noted() -> Iterator[int]:
        for number in range(5):
            made.append((number, threading.current_thread().name))
            yield number

    items = ahead(noted(), quick_s=0)
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert [number for number, _ in made] == [0, 1]
    assert made[1][1] not in {thread.name for thread in threading.enumerate()}


def test_without_threads_items_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit on processes a check of any file was an internal error, and a good workbook was "broken"."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(FileRefused, match="line 7 is cut"):
        list(ahead(_numbers(3), quick_s=0))
    assert list(ahead(iter(range(3)), quick_s=0)) == [0, 1, 2]


@pytest.mark.parametrize("fault", [
    PanicException('ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "x" }) }'),
    RuntimeError("can't start new thread"), BlockingIOError(11, "Resource temporarily unavailable"),
])  # fmt: skip
def test_a_system_without_threads_is_told_in_plain_words(
    fault: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hundred frames of Rust, and "ended by PanicException": nobody is told that a limit is too low."""
    with pytest.raises(NotUsable, match=r"no more threads or processes .*; nothing was sent"), in_plain_words():
        os.write(2, b"thread '<unnamed>' panicked at 123456789")
        raise fault
    os.write(2, b"after it\n")
    assert capfd.readouterr().err == "after it\n"
    with pytest.raises(ZeroDivisionError), in_plain_words():
        raise ZeroDivisionError
