"""What a run of the benchmarks found: tables for people, figures for the bars, and how both are written."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.process import ROOT

BARS = Path(__file__).with_name("bars.toml")
RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass
class Results:
    """Tables in the order in which they were measured, and the figures that bars are held against."""

    tables: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add_table(self, title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; the note says how it was measured."""
        lines = [f"### {title}", "", note, "", _row(header), _row(["---", *["---:"] * (len(header) - 1)])]
        self.tables.append("\n".join([*lines, *map(_row, rows)]))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# Bars


@dataclass(frozen=True)
class Bar:
    """The least or the most that a figure may be."""

    name: str
    about: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, figure: float) -> bool:
        """Whether a figure passes."""
        if self.at_least is not None and figure < self.at_least:
            return False
        return self.at_most is None or figure <= self.at_most

    def raised_over(self, figure: float) -> Bar:
        """Give the same bar, raised so that this figure fails."""
        step = abs(figure) * 0.01 + 1e-6
        if self.at_least is not None:
            return Bar(self.name, self.about, at_least=figure + step)
        return Bar(self.name, self.about, at_most=figure - step)

    @property
    def words(self) -> str:
        """The bar for a table."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


def read_bars() -> list[Bar]:
    """Read the bars; each has a text about it and either a least or a most."""
    bars = [Bar(name, **values) for name, values in tomllib.loads(BARS.read_text("utf-8")).items()]
    for bar in bars:
        assert (bar.at_least is None) != (bar.at_most is None), f"{bar.name} needs one of at_least and at_most"
    return bars


def fallen(figures: Mapping[str, float], bars: Sequence[Bar]) -> list[str]:
    """Tell which bars fall, a line each; a bar whose figure was not measured is left out."""
    return [
        f"{bar.name}: {figures[bar.name]:.3g}, {bar.words} ({bar.about})"
        for bar in bars
        if bar.name in figures and not bar.holds(figures[bar.name])
    ]


def toothless(figures: Mapping[str, float], bars: Sequence[Bar]) -> list[str]:
    """Raise every bar over its figure in turn; name those that would not be seen to fail."""
    names = []
    for raised in (bar.raised_over(figures[bar.name]) for bar in bars if bar.name in figures):
        others = [bar for bar in bars if bar.name != raised.name]
        if len(fallen(figures, [*others, raised])) != len(fallen(figures, others)) + 1:
            names.append(raised.name)
    return names


# Writing


def _machine() -> str:
    """Name the machine and what was measured on it; the lock files say which versions of everything."""
    cpu = platform.processor()
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, batchpay at {commit.stdout.strip() or 'no commit'}."
    )


def markdown(results: Results, took_s: float, arguments: str) -> str:
    """Everything measured, as Markdown."""
    rows = []
    for bar in read_bars():
        figure = results.figures.get(bar.name)
        if figure is not None:
            rows.append((bar.about, bar.words, f"{figure:.3g}", "holds" if bar.holds(figure) else "**falls short**"))
    bars = Results()
    bars.add_table("Bars", "`bars.toml` holds them; `make bench-check` fails where one falls.",
                   ("what", "bar", "measured", ""), rows)  # fmt: skip
    head = f"`python -m tests.benchmarks{arguments}` took {took_s / 60:.1f} minutes. {_machine()}"
    return "\n\n".join([head, *results.tables, *bars.tables])


def write_results(text: str, path: Path = RESULTS) -> None:
    """Put the measured part into the file; what stands around it was written by hand and stays."""
    around = path.read_text("utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = around.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def keep(results: Results, path: Path) -> None:
    """Keep what a part of the benchmarks found, so that a later part's failure does not lose it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"tables": results.tables, "figures": results.figures}
    path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def merge(paths: Sequence[Path]) -> Results:
    """Put together what parts of the benchmarks found; a part that was not measured is left out."""
    results = Results()
    for path in paths:
        if path.exists():
            told = json.loads(path.read_text("utf-8"))
            results.tables += told["tables"]
            results.figures |= told["figures"]
    return results
