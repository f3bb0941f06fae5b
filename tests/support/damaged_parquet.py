"""A Parquet file with the damage that once ended the process."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = rb"\x15\x00\x15[\x80-\xff]*.\x15[\x80-\xff]*.\x2c\x15([\x02-\x7e])"
"""A data page's header: its kind, two sizes, then the part that begins with a count of values under 64."""


def count_below_zero(path: Path, page: int = 0) -> None:
    """Change one bit of a file: one of its pages then claims a negative number of values."""
    content = bytearray(path.read_bytes())
    counts = [match.start(1) for match in re.finditer(_PAGE, content, re.DOTALL)]
    content[counts[page]] |= 1
    path.write_bytes(content)
