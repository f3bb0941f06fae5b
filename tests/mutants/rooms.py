"""Which modules are changed, which tests may notice, and which changes were looked at and make no difference."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUAL = Path(__file__).with_name("equal.toml")
ROOMS = (
    "ledger", "registration", "approval", "reconciliation", "operations/archive.py", "workflows", "sending", "gateway",
)  # fmt: skip
Stages = tuple[tuple[str, ...], ...]
STAGES: Stages = (
    (*(f"tests/{room.split('/')[0]}" for room in ROOMS), "tests/sandbox/test_account_client.py",
     "tests/sandbox/test_payment_client.py", "tests/model/test_moments.py", "tests/mutants/walks.py"),
    ("tests/cli", "tests/acceptance"),
)  # fmt: skip
"""What may notice a change; of these, each meets the tests that execute it, of the second where the first did not."""


def modules(names: list[str]) -> list[Path]:
    """The modules of rooms, or those named, as paths below `batchpay/`."""
    found: list[Path] = []
    for name in names or ROOMS:
        place = ROOT / "batchpay" / name
        found += [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    return [path.relative_to(ROOT / "batchpay") for path in found if path.name != "__init__.py"]


def equal() -> defaultdict[str, set[str]]:
    """Changes that make no difference, by module."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in tomllib.loads(EQUAL.read_text("utf-8"))["equal"]:
        found[one["module"]].add(one["change"])
    return found
