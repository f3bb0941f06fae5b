"""What a check of one payment file needs: which file, how it is read, and where rejected rows go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.intake.source import Source
from batchpay.schemas.options import RuleOptions

if TYPE_CHECKING:  # few files have a map
    from batchpay.intake.maps.mapping import Mapping
    from batchpay.validation.rejects import Rejects


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One payment file, how it is read, and what it is compared with."""

    path: str
    rules: RuleOptions
    rejects: Path | None = None
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    include_hidden: bool = False
    map_file: str | None = None
    mapping: Mapping | None = None
    """A map that was already read, instead of one in a file."""
    expect_rows: int | None = None
    expect_cents: int | None = None
    max_errors: int = 1000
    name: str | None = None
    """The person's name for the file, if its path differs: it is shown, recorded, and determines the format."""
    sinks: tuple[Callable[[Source], Rejects], ...] = ()
    """What takes the rejected rows besides the rejects file; each is started over if the reading is."""
    watch: Callable[[int], None] | None = None
    """Called from time to time with the number of rows read; what it raises ends the check."""
