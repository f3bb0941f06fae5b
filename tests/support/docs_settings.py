"""Writes the tables of docs/settings.md from the settings themselves: `python -m tests.support.docs_settings`."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_type_hints

from batchpay.settings import Settings, settings_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
MARK = "<!-- Below: written by `python -m tests.support.docs_settings` from batchpay/settings.py. -->\n"


def tables() -> str:
    """Return one Markdown table for each table of the settings file."""
    kinds = get_type_hints(Settings)
    return "".join(_table(part.name, kinds[part.name]) for part in fields(Settings))


def written_page() -> str:
    """Return the page as it should be: its own text up to the mark, then the tables."""
    own, mark, _ = PAGE.read_text("utf-8").partition(MARK)
    assert mark, "the page has lost the mark behind which its tables stand"
    return own + MARK + tables()


def _table(name: str, kind: Any) -> str:
    meaning = str(kind.__doc__).removeprefix(f"[{name}]: ")
    lines = [f"\n## [{name}]\n", f"{meaning[0].upper()}{meaning[1:]}\n"]
    lines += ["| Key | Environment | Default | Meaning |", "|---|---|---|---|"]
    lines += [_row(name, item) for item in settings_of(kind)]
    return "\n".join(lines) + "\n"


def _row(table: str, item: Field[Any]) -> str:
    variable = item.metadata["environment"]
    bounds = {"at least": item.metadata["least"], "at most": item.metadata["most"]}
    told = ", ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound)
    meaning = item.metadata["help"] + (f" ({told})" if told else "")
    cells = [f"`{table}.{item.name}`", f"`{variable}`" if variable else "", _default(item), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(item: Field[Any]) -> str:
    value = item.default if item.default_factory is MISSING else item.default_factory()
    if value in ("", [], {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(written_page(), "utf-8")
