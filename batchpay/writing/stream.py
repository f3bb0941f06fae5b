"""A file that the caller has opened, in place of a path: what is read or written then never touches a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Stream:
    """An open file, at its start, that its owner closes. The name determines the format, and is shown to the user."""

    name: str
    file: BinaryIO

    def __str__(self) -> str:
        """Return the name, as a path does."""
        return self.name
