"""One step of a pipeline beside its caller: the same items, the same errors, and no thread left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from polars.exceptions import PanicException

from batchpay.errors import FileRefused, NotUsable
from batchpay.intake.streams import ahead
from batchpay.writing.process_memory import in_plain_words


def _numbers(until: int) -> Iterator[int]:
    yield from range(until)
    raise FileRefused("line 7 is cut")


def test_items_come_in_order_and_errors_after_them() -> None:
    """All that was made before an error is given before it, through several steps as well."""
    found = []
    with pytest.raises(FileRefused, match="line 7 is cut"):
        for number in ahead(number * 2 for number in ahead(_numbers(50))):
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

    items = ahead(noted())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert [number for number, _ in made] == [0, 1]
    assert not {name for _, name in made} & {thread.name for thread in threading.enumerate()}


def test_without_threads_items_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a limit on processes a check of any file was an internal error, and a good workbook was "broken"."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(FileRefused, match="line 7 is cut"):
        list(ahead(_numbers(3)))
    assert list(ahead(iter(range(3)))) == [0, 1, 2]


@pytest.mark.parametrize(
    "fault",
    [
        PanicException('ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "x" }) }'),
        RuntimeError("can't start new thread"),
        BlockingIOError(11, "Resource temporarily unavailable"),
    ],
)
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
