"""Frames kept for later as compressed bytes.

A filtered frame would keep the whole block that it was taken from in memory.
"""

from __future__ import annotations

import io

import polars as pl


def packed(frame: pl.DataFrame) -> bytes:
    """Compress a frame."""
    out = io.BytesIO()
    frame.write_ipc_stream(out, compression="lz4")
    return out.getvalue()


def unpacked(data: bytes) -> pl.DataFrame:
    """Return the frame again."""
    return pl.read_ipc_stream(io.BytesIO(data))
