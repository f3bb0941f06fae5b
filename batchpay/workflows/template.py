"""The template: an empty payment file, which never replaces a filled-in one unless requested."""

from __future__ import annotations

import os
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.intake.template import write_blank


def make_template(path: Path, *, replace: bool) -> None:
    """Write an empty payment file, XLSX or CSV by its ending; raises WrongUse, NotUsable."""
    if os.path.lexists(path) and not replace:
        raise WrongUse(f"{path} already exists; --force replaces it")
    write_blank(path)
