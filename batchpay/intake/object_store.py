"""Payment files in object stores: what polars reads by URL, with polars' own options in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.streams import OpenFile, memory_file

SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "file")


class StoredParquet:
    """A Parquet file in a store: only the parts that are asked for are fetched."""

    def __init__(self, url: str) -> None:
        self.name = shown_url(url)
        self.path = url

    def close(self) -> None:
        """Nothing is held open."""


def is_url(path: str) -> bool:
    """Whether a path names an object in a store."""
    return "://" in path


def open_stored(url: str) -> OpenFile | StoredParquet:
    """Open a Parquet file where it lies, or take a text file into memory; raises FileRefused."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise FileRefused(f"{shown_url(url)}: {parts.scheme}:// is no store that can be read")
    if parts.path.lower().endswith((".parquet", ".pq")):
        return StoredParquet(url)
    # A store shows an object only when it is whole, so the break of its last line, which polars does not tell, is
    # not needed to know that nothing was cut off.
    descriptor = memory_file()
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            for line in _lines(url):
                file.write(line.encode() + b"\n")
    except BaseException:
        os.close(descriptor)
        raise
    return OpenFile(shown_url(url), descriptor)


def shown_url(url: str) -> str:
    """A URL without what could be a key in it: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _lines(url: str) -> Iterator[str]:
    try:
        for frame in pl.scan_lines(url, glob=False).collect_batches(chunk_size=50_000, maintain_order=True):
            yield from frame.to_series()
    except Exception:  # its text may hold a signed URL or a line of the file
        raise FileRefused(f"{shown_url(url)}: can't be read from its store, or is no UTF-8 text") from None
