"""Statements that are run for every database exist in each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchpay.ledger import database


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_database_has_the_statements_that_all_of_them_run(kind: str) -> None:
    """The common code asks for statements by name, and no type says which: a name that one lacks would fail in use."""
    statements = pytest.importorskip(f"batchpay.ledger.{kind}.statements")
    common = Path(database.__file__).parent.glob("*.py")
    asked = {name for path in common for name in re.findall(r"statements\.([A-Z_]+)", path.read_text("utf-8"))}
    assert {"BATCHES", "TOTALS", "PLANS_USED"} <= asked, "the names are found"
    assert not {name for name in asked if not hasattr(statements, name)}
