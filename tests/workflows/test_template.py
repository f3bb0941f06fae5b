"""A template is a file of its own: nobody's filled-in file is overwritten by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import WrongUse
from batchpay.workflows.rules import make_template


def test_an_existing_file_is_replaced_only_on_a_persons_word(tmp_path: Path) -> None:
    """Someone typed a month of payments into it."""
    path = tmp_path / "payments.csv"
    make_template(path, replace=False)
    made = path.read_bytes()
    path.write_text("typed by hand")
    with pytest.raises(WrongUse, match="already exists"):
        make_template(path, replace=False)
    assert path.read_text() == "typed by hand"
    make_template(path, replace=True)
    assert path.read_bytes() == made
