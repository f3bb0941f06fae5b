"""A file that somebody else has opened, where a path could stand: what is read or written then never meets a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Stream:
    """An open file, at its start, that its owner closes. The name tells the format, and is what a person is told."""

    name: str
    file: BinaryIO

    def __str__(self) -> str:
        """Give the name, as a path does."""
        return self.name
