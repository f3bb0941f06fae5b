"""Folders of a ledger's files: its own, its key's and its witness's."""

from __future__ import annotations

from pathlib import Path

from batchpay.errors import LedgerNotUsable


def make_private_directory(directory: Path) -> None:
    """Create a directory, and missing ones above it, for the owner only; raises LedgerNotUsable."""
    try:
        for missing in reversed([d for d in (directory, *directory.parents) if not d.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LedgerNotUsable(f"the folder {directory} can't be created: {error.strerror}") from None
