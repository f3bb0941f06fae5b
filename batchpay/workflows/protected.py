"""What no output may replace: the ledger's files, the settings, the gateway key."""

from __future__ import annotations

import os
from pathlib import Path

from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE
from batchpay.ledger.open import own_files
from batchpay.operations.health import last_call_path
from batchpay.settings import Settings


def protected_files(settings: Settings, settings_file: Path | None) -> dict[Path, str]:
    """Return the files that a call depends on, whether or not they exist yet, with what each is."""
    files = own_files(settings.ledger)
    for ledger in [path for path, what in files.items() if what == "the ledger"]:
        files[last_call_path(ledger)] = "the record of the last call"
    for named, what in (
        (os.environ.get(API_KEY_FILE_VARIABLE), "the API key's file"),
        (settings.gateway.ca_bundle, "the certificates"),
        (settings.gateway.client_cert, "the client certificate"),
        (settings.gateway.client_key, "its private key"),
    ):
        if named:
            files[Path(named)] = what
    if settings_file is not None:
        files[settings_file] = "the settings file"
    return files
