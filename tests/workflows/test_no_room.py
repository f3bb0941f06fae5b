"""The disk that holds the check's temporary files is full: this is said in words, and nothing is registered or sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import NotUsable
from tests.workflows.desk import Desk


def test_a_check_without_room_ends_with_what_is_missing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night of 5,000 rows on a full disk ended as an internal error, which tells nobody what to do."""
    path = desk.file("may.csv", {"invoiceNumber": "A-1", "amount": "10.00"}, {"invoiceNumber": "A-2", "amount": "1"})
    with monkeypatch.context() as patched:
        patched.setattr(
            "batchpay.validation.duplicates.tempfile.TemporaryFile",
            lambda **_: Path("/dev/full").open("wb", 0),  # noqa: SIM115 - the check closes it
        )
        with pytest.raises(NotUsable, match="temporary files can't be written: No space left on device; nothing was"):
            desk.submit(path)
    assert (desk.events("registered"), desk.arrived) == ([], {})
    assert desk.submit(path).exit_code == 3
