"""One reading decides: every later reading of a file must give the same cells as the first complete one."""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Callable, Iterator

import polars as pl

from batchpay.errors import FileRefused


class OneContent:
    """What the first complete reading of a file gave: every later one must give the same.

    A file may change between two readings, or during one: what was checked would not be what is registered.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: bytes | None = None

    def require(self, digest: bytes) -> None:
        """Take the digest of a reading that came to its end; raises FileRefused where the first one had another."""
        if self._first is None:
            self._first = digest
        elif self._first != digest:
            raise changed_meanwhile(self._name)


def one_content(name: str, chunks: Callable[[], Iterator[pl.DataFrame]]) -> Callable[[], Iterator[pl.DataFrame]]:
    """Hold the readings of a file together by its rows: each counts with its number, its line and every cell."""
    content, seed = OneContent(name), secrets.randbits(63)

    def held_together() -> Iterator[pl.DataFrame]:
        digest = hashlib.blake2b(digest_size=32)
        for chunk in chunks():
            counted = [name for name in chunk.columns if not name.startswith("_") or name in ("_row", "_line")]
            digest.update(array("Q", chunk.select(counted).hash_rows(seed).to_list()).tobytes())
            yield chunk
            del chunk  # some megabytes, while the next one is waited for
        content.require(digest.digest())

    return held_together


def changed_meanwhile(name: str) -> FileRefused:
    """What is said of a file that is not what it was."""
    return FileRefused(f"{name} changed while it was being read; nothing was registered")
