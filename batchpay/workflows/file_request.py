"""What a look at one payment file is asked for: which file, how it is read, and who takes what was rejected."""

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
    """One payment file, how it is read, and what it is held against."""

    path: str
    rules: RuleOptions
    rejects: Path | None = None
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    include_hidden: bool = False
    map_file: str | None = None
    mapping: Mapping | None = None
    """A map that was read already, in the place of one in a file."""
    expect_rows: int | None = None
    expect_cents: int | None = None
    max_errors: int = 1000
    name: str | None = None
    """What a person calls the file, where its path is another: it is shown, recorded, and tells the format."""
    sinks: tuple[Callable[[Source], Rejects], ...] = ()
    """Who takes the rejected rows beside the rejects file; each is begun anew where the reading is."""
    watch: Callable[[int], None] | None = None
    """Told every now and then how many rows were read; what it raises ends the check."""
