"""One reading decides: every later reading of a file must give the same cells as the first complete one."""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Callable, Iterator

import polars as pl

from batchpay.errors import FileRefused


class OneContent:
    """A file's chunks, to be read as often as need be; called, it reads them from the start.

    Each row counts with its number, its line and every cell. A file may change between two readings, or during one:
    what was checked would not be what is registered.
    """

    def __init__(self, name: str, chunks: Callable[[], Iterator[pl.DataFrame]]) -> None:
        self._name = name
        self._chunks = chunks
        self._seed = secrets.randbits(63)
        self._first: bytes | None = None

    def __call__(self) -> Iterator[pl.DataFrame]:
        """Read the file; raises FileRefused after the last chunk where a row was another one before."""
        digest = hashlib.blake2b(digest_size=32)
        for chunk in self._chunks():
            counted = [name for name in chunk.columns if not name.startswith("_") or name in ("_row", "_line")]
            digest.update(array("Q", chunk.select(counted).hash_rows(self._seed).to_list()).tobytes())
            yield chunk
            del chunk  # some megabytes, while the next one is waited for
        if self._first is None:
            self._first = digest.digest()
        elif self._first != digest.digest():
            raise changed_meanwhile(self._name)


def changed_meanwhile(name: str) -> FileRefused:
    """What is said of a file that is not what it was."""
    return FileRefused(f"{name} changed while it was being read; nothing was registered")
