"""A template is a file of its own: nobody's filled-in file is written over by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import WrongUse
from batchpay.workflows.template import make_template


def test_a_file_that_is_there_is_replaced_only_by_a_persons_word(tmp_path: Path) -> None:
    """Somebody typed a month of payments into it."""
    path = tmp_path / "payments.csv"
    make_template(path, replace=False)
    made = path.read_bytes()
    path.write_text("typed by hand")
    with pytest.raises(WrongUse, match="already exists"):
        make_template(path, replace=False)
    assert path.read_text() == "typed by hand"
    make_template(path, replace=True)
    assert path.read_bytes() == made
