"""The layout that README and CONTRIBUTING describe, held against the imports as they stand."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEAVES = {"errors", "payment", "config"}
RIGHT_HALF = ["run", "submission", "attempts", "throttle", "gateway", "ledger"]
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "payment": set(),
    "config": {"errors"},
    "throttle": LEAVES,
    "attempts": LEAVES,
    "gateway": LEAVES,
    "ledger": LEAVES,
    "files": {*LEAVES, "schemas"},
    "validation": {*LEAVES, "schemas", "files", "validation"},
    "registration": {*LEAVES, "schemas", "ledger", "variance"},
    "submission": {*LEAVES, "ledger", "throttle", "attempts"},
    "reports": {*LEAVES, "ledger", "files", "schemas"},
    "run": {*LEAVES, "ledger", "gateway", "throttle", "attempts", "submission", "reports"},
    "schedule": {*LEAVES, "schemas", "reports"},
    "variance": {*LEAVES, "ledger"},
    "plan": {*LEAVES, "files", "ledger", "reports", "schemas"},
    "operations": {*LEAVES, "files", "gateway", "reports"},
    "account": {*LEAVES, "files", "gateway", "schemas"},
    "checking": {
        *LEAVES,
        "ledger",
        "files",
        "schemas",
        "validation",
        "registration",
        "reports",
        "gateway",
        "schedule",
        "variance",
    },
    "batch": {
        *LEAVES,
        "checking",
        "files",
        "ledger",
        "validation",
        "registration",
        "reports",
        "run",
        "schedule",
        "variance",
        "plan",
    },
    "sandbox": {"errors"},
}
"""What each part of batchpay may import of batchpay, besides itself; cli and __main__ may import anything."""

ONLY_IN: dict[str, set[str]] = {
    "requests": {"gateway"},
    "httptools": {"gateway"},
    "tenacity": {"attempts", "gateway"},
    "pandera": {"schemas", "validation"},
    "sqlite3": {"ledger", "sandbox"},
    "flask": {"sandbox"},
    "waitress": {"sandbox"},
    "click": {"cli"},
    "rich": {"cli"},
    "cryptography": {"ledger"},
}
"""Libraries, and the only parts that may import them."""

FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 75


def sources() -> list[Path]:
    return sorted(
        path for folder in ("batchpay", "schemas") for path in (ROOT / folder).rglob("*.py") if not linked(path)
    )


def linked(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents)


def part_of(path: Path) -> str:
    """Name the part a file belongs to: its folder, or what its name begins with (validation_plan: validation)."""
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "schemas":
        return "schemas"
    return relative.parts[1].removesuffix(".py").split("_")[0]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("batchpay", *parts) if parts[0] == "schemas" else parts).removesuffix(".__init__")


def imported_names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    """Every part imports only the parts below it, and heavy libraries stay where they belong."""
    part = part_of(path)
    names = imported_names(ast.parse(path.read_text("utf-8")))
    ours = {name.split(".")[1].split("_")[0] for name in names if name.startswith("batchpay.")} - {""}
    if part == "schemas":
        assert ours <= {"schemas"}
    elif part in MAY_IMPORT:
        allowed = MAY_IMPORT[part] | {part}
        assert ours <= allowed, f"{part} must not import {ours - allowed}"
    for library, parts in ONLY_IN.items():
        if any(name == library or name.startswith(f"{library}.") for name in names):
            assert part in parts, f"{library} belongs to {parts}"


def test_no_two_files_need_each_other() -> None:
    """Imports, those inside functions too, form no circle."""
    names = {module_of(path): imported_names(ast.parse(path.read_text("utf-8"))) for path in sources()}
    needs = {module: {other for other in names if other in imported} - {module} for module, imported in names.items()}
    while needs:
        free = {module for module, needed in needs.items() if not needed & needs.keys()}
        assert free, f"a circle among {sorted(needs)}"
        needs = {module: needed for module, needed in needs.items() if module not in free}


def test_the_sandbox_knows_nothing_of_the_client() -> None:
    """The sandbox shares no code with gateway/ or schemas/, so that one mistake can't agree with itself."""
    for path in sources():
        if part_of(path) == "sandbox":
            names = imported_names(ast.parse(path.read_text("utf-8")))
            assert not any(name.startswith(("batchpay.gateway", "batchpay.schemas")) for name in names), path


def test_the_right_half_is_light() -> None:
    """What sends payments imports neither polars nor pandera: it starts fast and can't be killed by them."""
    for path in sources():
        if part_of(path) in RIGHT_HALF:
            names = {name.split(".")[0] for name in imported_names(ast.parse(path.read_text("utf-8")))}
            assert not names & {"polars", "pandera"}, path


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path: Path) -> None:
    """A file fits on a few screens and a function on one."""
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= FILE_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


def test_every_package_ships() -> None:
    """Each folder with Python in it stands in the list of packages, so that the wheel has all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("batchpay", *relative.parts) if relative.parts[0] == "schemas" else relative.parts)
        for relative in {path.parent.relative_to(ROOT) for path in sources()}
    }
    assert found <= listed
