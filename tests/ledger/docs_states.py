"""Writes the table of docs/states.md from the table of legal moves: `python -m tests.ledger.docs_states`."""

from __future__ import annotations

from pathlib import Path

from batchpay.ledger.states import MOVES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "states.md"
MARK = "<!-- Below: written by `python -m tests.ledger.docs_states` from batchpay/ledger/states.py. -->\n"


def written_page() -> str:
    """The page as it should be: its own text up to the mark, then the table."""
    own, mark, _ = PAGE.read_text("utf-8").partition(MARK)
    assert mark, "the page has lost the mark behind which its table stands"
    lines = ["", "| From | To | Event in the history | Needs |", "|---|---|---|---|"]
    lines += [f"| `{move.before or 'new'}` | `{move.after}` | {move.event} | {move.need} |" for move in MOVES]
    return own + MARK + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written_page(), "utf-8")
