"""Lines for people end at words within 80 columns, and count one row as one."""

from __future__ import annotations

import pytest

from batchpay.text import counted, row_count, wrapped


def test_lines_end_at_words() -> None:
    """Nothing is lost, no line is too long, and only a word longer than a line is cut."""
    text = (
        "row 5: achAccountNumber: changed_account: " + "Ada Byron, CREDIT 1,381.12, account ****5678: " * 4 + "x" * 90
    )
    lines = wrapped(text, first="  ", rest="      ")
    assert max(map(len, lines)) <= 80
    assert lines[0] == "  row 5: achAccountNumber: changed_account: Ada Byron, CREDIT 1,381.12, account"
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith("      ") for line in lines[1:])
    assert wrapped("", first="note      ") == ["note"]


@pytest.mark.parametrize(("count", "told"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1204, "1,204 rows")])
def test_one_row_is_one(count: int, told: str) -> None:
    """Plurals are right."""
    assert row_count(count) == told


def test_words_with_a_plural_of_their_own() -> None:
    """Batches, and whole clauses."""
    assert [counted(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]
    assert [counted(count, "file waits", "files wait") for count in (1, 0)] == ["1 file waits", "0 files wait"]
