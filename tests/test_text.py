"""Lines for people end at words within 80 columns, and count one row as one."""

from __future__ import annotations

import pytest

from batchpay.payment import Totals
from batchpay.text import counted, moved, row_count, wrapped


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


@pytest.mark.parametrize(
    ("credit", "debit", "codes", "told"),
    [
        ((2, 3050), (1, 3025), ("USD",), "Send 2 credits, USD 30.50 · Collect 1 debit, USD 30.25 · net -0.25"),
        ((1, 100), (1, 300), (), "Send 1 credit, USD 1.00 · Collect 1 debit, USD 3.00 · net +2.00"),
        ((1, 100), (0, 0), ("CAD",), "Send 1 credit, CAD 1.00"),
        ((0, 0), (0, 0), (), "Send nothing"),
        ((2, 300), (1, 50), ("CAD", "USD"), "Send 2 credits · Collect 1 debit · control totals CAD 1.75, USD 1.75"),
        ((2, 350), (0, 0), ("CAD", "USD"), "Send 2 credits · CAD 1.75, USD 1.75"),
    ],
)
def test_money_in_is_never_added_to_money_out(
    credit: tuple[int, int], debit: tuple[int, int], codes: tuple[str, ...], told: str
) -> None:
    """Two figures and their difference wherever both directions exist, each with its currency."""
    sides = {"CREDIT": Totals(*credit), "DEBIT": Totals(*debit)}
    assert moved(sides, dict.fromkeys(codes, Totals(1, 175))) == told
