"""How an uploaded file is read: as its person chose on the page, the same for its check and for its run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from batchpay.intake.maps.map_file import mapping_of
from batchpay.intake.maps.mapping import Mapping
from batchpay.settings import Settings
from batchpay.web.store import Row
from batchpay.workflows.file_request import FileRequest
from batchpay.workflows.requests import CheckOptions, file_request

MAP_NAME = "the map made on the page"
ERRORS_LISTED = 200


def request_of(file: Row, path: str, settings: Settings) -> FileRequest:
    """Describe how an uploaded file, unencrypted at `path`, is read and what it is compared with."""
    request = file_request(path, None, check_options(options_of(file)), settings)
    return replace(request, name=file["name"], mapping=mapping_for(file))


def options_of(file: Row) -> dict[str, Any]:
    """Return what the person chose for a file."""
    found: dict[str, Any] = json.loads(file["options"])
    return found


def mapping_for(file: Row) -> Mapping | None:
    """Return the map that a file is read through; None if its columns are ours."""
    return mapping_of(json.loads(file["map"])["tables"], MAP_NAME) if file["map"] else None


def check_options(chosen: dict[str, Any]) -> CheckOptions:
    """Read from its person's choices how a file is checked."""
    return CheckOptions(
        normalize=bool(chosen.get("normalize")),
        accept_suggestions=",".join(chosen["accept"]) if chosen.get("accept") else None,
        encoding=chosen.get("encoding"),
        sheet=chosen.get("sheet"),
        include_hidden=bool(chosen.get("include_hidden")),
        expect_rows=chosen.get("expect_rows"),
        expect_cents=chosen.get("expect_cents"),
        max_errors=ERRORS_LISTED,
    )
