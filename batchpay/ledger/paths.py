"""Where a ledger's files are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from batchpay.errors import LedgerNotUsable, SettingsNotUsable
from batchpay.settings import LedgerSettings, config_directory


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """Where a ledger's files are."""

    ledger: Path
    """The ledger; if a database server holds it, the path next to which this machine keeps its own files for it."""
    key: Path
    witness: Path
    url: str | None = None
    """The database that holds it, without user and password; None if `ledger` is its file."""

    def __post_init__(self) -> None:
        """Raise SettingsNotUsable if two of them are one file: whoever accepts the witness replaces it."""
        settings = {"ledger.url": self.ledger, "ledger.key_file": self.key, "ledger.witness": self.witness}
        named: dict[str, str] = {}
        for setting, path in settings.items():
            other = named.setdefault(os.path.realpath(path), setting)
            if other != setting:
                raise SettingsNotUsable(f"{other} and {setting} name the same file, {path}; each needs its own")

    @property
    def name(self) -> str:
        """Return where the ledger is, as shown to a person."""
        return self.url or str(self.ledger)


def own_path(setting: str, default: Path) -> Path:
    """Return the path that a setting names, or where the file is by default; raises SettingsNotUsable."""
    path = Path(setting).expanduser().absolute() if setting else default
    if not path.name:
        raise SettingsNotUsable(f"the ledger, its key and its witness are files; {path} is a folder")
    return path


def key_path(settings: LedgerSettings) -> Path:
    """Return the path of the ledger's key."""
    return own_path(settings.key_file, config_directory() / "ledger.key")


def make_private_directory(directory: Path) -> None:
    """Create a directory, and missing ones above it, for the owner only; raises LedgerNotUsable."""
    try:
        for missing in reversed([d for d in (directory, *directory.parents) if not d.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LedgerNotUsable(f"the folder {directory} can't be created: {error.strerror}") from None
