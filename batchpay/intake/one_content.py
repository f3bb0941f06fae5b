"""One reading decides: every later reading of a file must yield the same cells as the first complete one."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator

import polars as pl
from nanoarrow.c_array_stream import c_array_stream

from batchpay.errors import FileRefused


class OneContent:
    """What the first complete reading of a file yielded: every later one must yield the same, chunk by chunk.

    A file may change between two readings, or during one. A chunk that differs is not yielded: the caller relies on the
    rows that were checked, and what was checked would not be what is registered.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.digests: list[bytes] | None = None
        """One per chunk, each of everything so far; None until one reading is complete."""

    def reading(self) -> Reading:
        """Begin a reading."""
        return Reading(self)


class Reading:
    """One reading of a file."""

    def __init__(self, content: OneContent) -> None:
        self._content = content
        self._digests: list[bytes] = []
        self.is_again = content.digests is not None
        """Whether the file was read completely before: then this reading yields the same, or is refused."""

    def add(self, digest: bytes) -> None:
        """Add the digest of everything up to the end of a chunk that is about to be yielded; raises FileRefused."""
        place, first = len(self._digests), self._content.digests
        self._digests.append(digest)
        if first is not None and first[place : place + 1] != [digest]:
            raise changed_meanwhile(self._content.name)

    def end(self) -> None:
        """Note the end of the file; raises FileRefused where the first reading had more."""
        if self._content.digests is None:
            self._content.digests = self._digests
        elif len(self._content.digests) != len(self._digests):
            raise changed_meanwhile(self._content.name)


def one_content(name: str, chunks: Callable[[], Iterator[pl.DataFrame]]) -> Callable[[], Iterator[pl.DataFrame]]:
    """Compare the readings of a file by its rows: each counts with its number, its line and every cell."""
    content, seed = OneContent(name), secrets.randbits(63)

    def held_together() -> Iterator[pl.DataFrame]:
        digest, reading = hashlib.blake2b(digest_size=32), content.reading()
        for chunk in chunks():
            counted = [name for name in chunk.columns if not name.startswith("_") or name in ("_row", "_line")]
            for part in c_array_stream(chunk.select(counted).hash_rows(seed)):
                digest.update(part.view().buffer(1))
            reading.add(digest.digest())
            yield chunk
            del chunk  # free some megabytes while waiting for the next one
        reading.end()

    return held_together


def changed_meanwhile(name: str) -> FileRefused:
    """Return the refusal of a file that has changed."""
    return FileRefused(f"{name} changed while it was being read; nothing was registered")
