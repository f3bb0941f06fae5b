"""One reading decides: a file that is rewritten, replaced or cut while a command reads it is never registered."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.gateway.credentials import Credentials
from batchpay.intake import streams
from batchpay.intake.csv.reader import CsvReader
from batchpay.intake.source import Source, open_source
from batchpay.intake.table_rows import OneContent
from batchpay.intake.xlsx import child, reader
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.schemas.rule import RuleOptions
from batchpay.settings import GatewaySettings, LedgerSettings, Secret, Settings
from batchpay.validation.check import all_rows
from batchpay.workflows import submit as flow
from batchpay.workflows.requests import FileRequest
from batchpay.workflows.run import RunRequest
from tests.support.payment_files import HEADER, csv_text, line, workbook, write

ORIGIN = "http://127.0.0.1:9"
"""Nobody listens there."""


def put(folder: Path, kind: str, amounts: list[str], name: str = "payments") -> str:
    """Write a payment file of a kind; each time in place."""
    text = ",".join(HEADER) + "\n" + "".join(line(amount=amount) for amount in amounts)
    if kind == "csv":
        return write(folder, text, f"{name}.csv")
    rows = [row.split(",") for row in text.splitlines()]
    if kind == "xlsx":
        return workbook(folder, rows, f"{name}.xlsx")
    path = folder / f"{name}.parquet"
    pl.DataFrame(rows[1:], schema=list(HEADER), orient="row").write_parquet(path)
    return str(path)


def amounts_of(source: Source) -> list[str]:
    return [amount for chunk in source.chunks() for amount in chunk["amount"].to_list()]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("amounts", [["1.00", "2.01"], ["2.00", "1.00"], ["1.00"], ["1.00", "2.00", "3.00"]])
def test_a_file_that_was_rewritten_is_refused(tmp_path: Path, kind: str, amounts: list[str]) -> None:
    """Another cent, another order, a row less or more: every later reading is refused."""
    with open_source(put(tmp_path, kind, ["1.00", "2.00"])) as source:
        assert amounts_of(source) == ["1.00", "2.00"]
        put(tmp_path, kind, amounts)
        for _ in range(2):
            with pytest.raises(FileRefused, match="changed while it was being read"):
                amounts_of(source)
        put(tmp_path, kind, ["1.00", "2.00"])
        assert amounts_of(source) == ["1.00", "2.00"]


def test_a_reading_that_ends_early_between_two_chunks_is_refused() -> None:
    """All that it gave is what was read first: only its end tells that the file has lost rows."""
    content = OneContent("pay.csv")
    first, shorter = content.reading(), content.reading()
    for digest in (b"one", b"two"):
        first.add(digest)
    first.end()
    shorter.add(b"one")
    with pytest.raises(FileRefused, match=r"pay\.csv changed while it was being read"):
        shorter.end()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_only_passed_through_counts_too(tmp_path: Path, kind: str) -> None:
    """What stands in the results is what was read first, not only what is paid."""

    def put_memo(memo: str) -> str:
        rows = [{**dict(zip(HEADER, line(end="").split(","), strict=True)), "memo": memo}]
        if kind == "csv":
            return write(tmp_path, pl.DataFrame(rows).write_csv())
        pl.DataFrame(rows).write_parquet(tmp_path / "payments.parquet")
        return str(tmp_path / "payments.parquet")

    with open_source(put_memo("rent")) as source:
        list(source.chunks())
        put_memo("gift")
        with pytest.raises(FileRefused, match="changed"):
            list(source.chunks())


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_another_file_in_its_place_is_not_seen(tmp_path: Path, kind: str) -> None:
    """A file that was renamed over the one that was opened: every reading gives the opened one."""
    path = put(tmp_path, kind, ["1.00", "2.00"])
    with open_source(path) as source:
        assert amounts_of(source) == ["1.00", "2.00"]
        Path(put(tmp_path, kind, ["9.00", "9.00"], "next")).rename(path)
        assert amounts_of(source) == ["1.00", "2.00"]
        assert source.identity is not None
        assert source.identity.inode != Path(path).stat().st_ino


def test_a_workbook_is_what_it_was_when_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewritten before the libraries look into it and between the readings: all give what was opened."""

    class Late(child.Child):
        def __init__(self, *arguments: Any) -> None:
            put(tmp_path, "xlsx", ["9.00"])
            super().__init__(*arguments)

    monkeypatch.setattr(reader, "Child", Late)
    with open_source(put(tmp_path, "xlsx", ["1.00", "2.00"])) as source:
        assert amounts_of(source) == ["1.00", "2.00"]
        put(tmp_path, "xlsx", ["8.00", "8.00", "8.00"])
        assert amounts_of(source) == ["1.00", "2.00"]


def test_a_workbook_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Duplicates, registration and rejects read what the first pass kept: one child process, however many readings."""
    began: list[object] = []

    class Counted(child.Child):
        def __init__(self, *arguments: Any) -> None:
            began.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(reader, "Child", Counted)
    with open_source(put(tmp_path, "xlsx", ["1.00", "2.00"])) as source:
        frames = [pl.concat(source.chunks()) for _ in range(3)]
    assert len(began) == 1
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_a_header_that_changes_before_the_rows_are_read(tmp_path: Path) -> None:
    """Two columns that changed places between the header's reading and the rows': no cell is taken for another."""
    path = write(tmp_path, csv_text(2))
    with open_source(path) as source:
        first, last = HEADER[4:6]
        text = Path(path).read_text("utf-8")
        Path(path).write_text(text.replace(f"{first},{last}", f"{last},{first}"), "utf-8")
        with pytest.raises(FileRefused, match="changed"):
            list(source.chunks())


def test_a_parquet_file_that_changes_its_columns(tmp_path: Path) -> None:
    """A column of another type between opening and reading is a refusal, not internal error."""
    path = put(tmp_path, "parquet", ["1.00"])
    with open_source(path) as source:
        pl.read_parquet(path).with_columns(pl.col("amount").cast(pl.Float64)).write_parquet(path)
        with pytest.raises(FileRefused, match="changed"):
            list(source.chunks())


def test_two_readings_at_once_prove_nothing_false(tmp_path: Path) -> None:
    """A reading that is given up halfway leaves the first complete one to decide."""
    with open_source(put(tmp_path, "csv", ["1.00", "2.00"])) as source:
        next(source.chunks())
        put(tmp_path, "csv", ["1.00", "3.00"])
        assert amounts_of(source) == ["1.00", "3.00"]
        put(tmp_path, "csv", ["1.00", "2.00"])
        with pytest.raises(FileRefused, match="changed"):
            amounts_of(source)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("amounts", [["1.00", "2.01"], ["1.00", "two"], ["1.00", "2.00", "3.00"]])
def test_no_row_is_given_that_was_not_checked(tmp_path: Path, kind: str, amounts: list[str]) -> None:
    """A row more, or one that is wrong, came to those who count on the first reading, as an internal error."""
    with open_source(put(tmp_path, kind, ["1.00", "2.00"])) as source:
        assert amounts_of(source) == ["1.00", "2.00"]
        put(tmp_path, kind, amounts)
        with pytest.raises(FileRefused, match="changed while it was being read"):
            next(source.chunks())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("amounts", [["1.00", "2000.00"], ["1.00", "two"], ["1.00", "2.00", "3.00"]])
def test_nothing_is_registered_of_a_file_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, amounts: list[str]
) -> None:
    """Rewritten after the check, by somebody else, just as it is read to be registered: the ledger stays empty."""
    path = put(tmp_path, kind, ["1.00", "2.00"])

    def rewritten_first(*arguments: Any) -> Iterator[pl.DataFrame]:
        put(tmp_path, kind, amounts)
        return all_rows(*arguments)

    monkeypatch.setattr(flow, "all_rows", rewritten_first)
    ledger = LedgerSettings(
        url=str(tmp_path / "l" / "ledger.db"), key_file=str(tmp_path / "k" / "key"), witness=str(tmp_path / "k" / "w")
    )
    settings = dataclasses.replace(Settings(), gateway=GatewaySettings(base_url=ORIGIN, api_id="a"), ledger=ledger)
    request = FileRequest(path, RuleOptions(as_of=date(2026, 1, 1)))
    submission, credentials = flow.SubmitRequest(RunRequest(None)), Credentials("a", Secret("k"))
    with pytest.raises(FileRefused, match="changed while it was being read; nothing was registered"):
        flow.submit(request, submission, settings, credentials, Actor("a", "b"), _Silent())
    with closing(open_ledger(ledger)) as opened:
        assert opened.registration_count() == 0


class _Silent:
    """Progress that nobody watches."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_a_private_copy_can_not_be_changed() -> None:
    """Sealed: not even this process can write, cut or lengthen it; text is packed, and nothing lies on a disk."""
    text = csv_text(2000).encode()
    copy = streams.private_copy([text[:10], text[10:]], "standard input")
    try:
        assert copy.size == len(text)
        assert os.fstat(copy.descriptor).st_size < len(text) // 5
        for change in (
            lambda: os.pwrite(copy.descriptor, b"x", 0),
            lambda: os.ftruncate(copy.descriptor, 1),
            lambda: os.ftruncate(copy.descriptor, len(text)),
        ):
            with pytest.raises(PermissionError):
                change()
        if hasattr(os, "memfd_create"):
            assert str(Path(f"/proc/self/fd/{copy.descriptor}").readlink()).startswith("/memfd:")
    finally:
        os.close(copy.descriptor)


def test_a_signal_is_heeded_whichever_thread_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread waits for input and another one gets the signal: once nothing happened until data came."""
    reading, writing = os.pipe()

    class Stopped(Exception):
        pass

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    waits = threading.Event()

    def announced(call: Callable[..., Any]) -> Callable[..., Any]:
        def announce(*arguments: Any) -> Any:
            waits.set()  # this thread keeps the interpreter until it sleeps in the call
            return call(*arguments)

        return announce

    def signalled() -> None:
        waits.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    monkeypatch.setattr(select, "select", announced(select.select))
    monkeypatch.setattr(os, "read", announced(os.read))
    before = signal.signal(signal.SIGUSR1, stop)
    end_of_input = threading.Timer(20, lambda: os.close(writing))  # a failing test ends, too
    end_of_input.start()
    thread = threading.Thread(target=signalled)
    try:
        with pytest.raises(Stopped):
            thread.start()
            list(streams.given_blocks(reading))
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
        end_of_input.cancel()
        end_of_input.join()
        os.close(reading)
    os.close(writing)


HARD_CELLS = ('"a, b"', '"say ""no"""', '""', "", " x", "\u202eb")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("odd", [None, '"a\nb"', 'a"b'])
def test_a_reading_again_gives_the_same_without_another_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str | None, end: str
) -> None:
    """The same bytes are split as they were; where a row was odd, what is around it is proven each time."""
    cells = HARD_CELLS if odd is None else (*HARD_CELLS, odd)
    rows = [line(billingFirstName=cell).rstrip("\n") for cell in cells]
    with open_source(write(tmp_path, end.join([",".join(HEADER), *rows, ""]))) as source:
        first = pl.concat(source.chunks(), how="diagonal")
        if odd is None:
            monkeypatch.setattr(CsvReader, "_is_faithful", lambda *_: pytest.fail("this was proven before"))
        again = pl.concat(source.chunks(), how="diagonal")
    assert again.equals(first)
    assert [cell or "" for cell in again["billingFirstName"]][:3] == ["a, b", 'say "no"', ""]
