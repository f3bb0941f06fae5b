"""One step of a pipeline in its own thread: polars and the operating system work there in parallel with the caller."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Produce the next item in a thread while the caller works on this one; its exceptions are raised here.

    Where the system gives no thread, an item is produced when it is asked for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        try:
            coming = thread.submit(next, items, None)
        except RuntimeError:
            yield from items
            return
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
            del item  # free some megabytes while waiting for the next one
