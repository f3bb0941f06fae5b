"""Payment files in object stores: what polars reads by URL, with polars' own options in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import polars as pl

from batchpay.errors import FileRefused
from batchpay.intake.private_copy import PrivateCopy, memory_file, private_copy, seal
from batchpay.intake.streams import OpenFile

SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "file")


def is_url(path: str) -> bool:
    """Whether a path names an object in a store."""
    return "://" in path


def open_stored(url: str, asked: str | None = None) -> OpenFile:
    """Read an object once into a private copy; raises FileRefused."""
    try:
        parts, name = urlsplit(url), shown_url(url)
    except ValueError:
        raise FileRefused("the URL of a payment file is malformed") from None
    if parts.scheme not in SCHEMES:
        raise FileRefused(f"{name}: {parts.scheme}:// is not a store that can be read")
    if parts.path.lower().endswith((".parquet", ".pq")):
        return OpenFile(name, _parquet(url))
    # A store shows an object only when it is complete, so the line break of its last line, which polars drops, is not
    # needed to know that nothing was cut off.
    return OpenFile(name, private_copy(_lines(url), name, asked))


def shown_url(url: str) -> str:
    """Return a URL without what could contain a key: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _parquet(url: str) -> PrivateCopy:
    """Copy a Parquet file by its columns: polars can't return the bytes of an object."""
    descriptor = memory_file()
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            pl.scan_parquet(url, glob=False).sink_parquet(file, compression="lz4", maintain_order=True)
        seal(descriptor)
    except (Exception, pl.exceptions.PanicException):  # its text may hold a signed URL or a cell of the file
        os.close(descriptor)
        raise FileRefused(f"{shown_url(url)}: can't be read from its store, or is a broken Parquet file") from None
    return PrivateCopy(descriptor, os.fstat(descriptor).st_size)


def _lines(url: str) -> Iterator[bytes]:
    try:
        for frame in pl.scan_lines(url, glob=False).collect_batches(chunk_size=50_000, maintain_order=True):
            yield "".join(f"{line}\n" for line in frame.to_series()).encode()
    except Exception:  # its text may hold a signed URL or a line of the file
        raise FileRefused(f"{shown_url(url)}: can't be read from its store, or is not UTF-8 text") from None
