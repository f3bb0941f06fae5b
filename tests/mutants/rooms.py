"""Which modules are changed, which tests must notice, and which changes were looked at and make no difference."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUAL = Path(__file__).with_name("equal.toml")
_WHOLE = ("tests/model/test_moments.py", "tests/acceptance/test_submit.py", "tests/acceptance/test_stops.py")
TESTS: dict[str, tuple[str, ...]] = {
    "ledger": ("tests/ledger",),
    "workflows": ("tests/workflows", "tests/cli", "tests/acceptance"),
    "approval": ("tests/approval", "tests/acceptance/test_submit.py"),
    "registration": ("tests/registration",),
    "sending": ("tests/sending",),
    "gateway": ("tests/gateway",),
    "reconciliation": ("tests/reconciliation", "tests/acceptance/test_reconcile.py"),
    "operations/archive.py": ("tests/operations", "tests/acceptance/test_operations.py"),
}
"""The tests of each room, the nearest first; what survives them meets those of the whole and a hundred walks."""


def modules(names: list[str]) -> list[Path]:
    """The modules of rooms, or those named, as paths below `batchpay/`."""
    found: list[Path] = []
    for name in names or TESTS:
        place = ROOT / "batchpay" / name
        found += [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    return [path.relative_to(ROOT / "batchpay") for path in found if path.name != "__init__.py"]


def stages(module: Path) -> list[list[str]]:
    """Arguments of the test runs for a module, one stage after another; each is tried where the one before passed."""
    text = str(module)
    room = next(name for name in TESTS if text.startswith(name))
    nearest = [name for name in TESTS[room] if (ROOT / name).exists()]
    own = [f"{nearest[0]}/test_{module.stem}.py"] if (ROOT / nearest[0] / f"test_{module.stem}.py").exists() else []
    pytest = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    runs = [[*pytest, *own]] if own else []
    runs.append([*pytest, *nearest])
    runs.append([*pytest, *(name for name in _WHOLE if name not in nearest)])
    runs.append(["-m", "tests.model", "--walks", "100", "--most", "1", "--no-shrink"])
    return runs


def equal(module: Path) -> dict[str, str]:
    """Changes of a module that make no difference: their text, and why."""
    if not EQUAL.exists():
        return {}
    tables = tomllib.loads(EQUAL.read_text("utf-8"))
    return {str(one["change"]): str(one["why"]) for one in tables.get("equal", []) if one["module"] == str(module)}
