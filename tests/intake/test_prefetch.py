"""One step of a pipeline beside its caller: the same items, the same errors, and no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.prefetch import ahead


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
