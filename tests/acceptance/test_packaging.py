"""The wheel, built through the sdist, works from another folder in an environment without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel from what git would clone, or from an unpacked sdist."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    else:
        shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".venv", "dist", "__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)],
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1775001600"},
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_the_sdist_can_be_tested(built: Path) -> None:
    """It has tests, locks and what they read, and the links by which the tests find the rules."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        members = {member.name.split("/", 1)[-1]: member for member in sdist.getmembers()}
    files = [path for folder in ("tests", "docs", "schemas", "samples", ".ci") for path in (ROOT / folder).rglob("*")]
    tracked = {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and path.suffix != ".pyc"}
    assert not tracked - members.keys()
    assert {"Makefile", "README.md", "requirements.lock", "requirements-web.lock", "tests/build.lock"} <= members.keys()
    assert {members[f"batchpay/{name}"].linkname for name in ("samples", "schemas")} == {"../samples", "../schemas"}


def test_a_wheel_has_the_time_of_its_commit(wheel: Path) -> None:
    """Files have it, so that the same commit gives the same wheel, and the version is shown with it."""
    of_sdist = ROOT / "batchpay" / "commit_date.txt"
    with zipfile.ZipFile(wheel) as files:
        assert {file.date_time[:3] for file in files.infolist()} == {(2026, 4, 1)}
        shown = files.read("batchpay/commit_date.txt")
    assert shown == (of_sdist.read_bytes() if of_sdist.exists() else b"2026-04-01\n")


def test_the_wheel_has_rules_samples_and_statements(wheel: Path) -> None:
    """What is at the top level of the repository ships inside the package, and links are real files there."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "batchpay/py.typed",
        "batchpay/schemas/payment.py",
        "batchpay/schemas/gateway.openapi.yaml",
        "batchpay/samples/payments.csv",
        "batchpay/settings.csv",
        "batchpay/sandbox/endings.csv",
        "batchpay/schemas/tables/rules.csv",
        "batchpay/ledger/sqlite/0001.sql",
        "batchpay/reports/page.html",
    } <= names
    assert not any(name.startswith(("tests", "schemas", "samples")) for name in names)


def test_the_wheel_works_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into an empty folder it validates a file, without the checkout on its path."""
    installed = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(installed)  # noqa: S202 - our own
    file = tmp_path / "payments.csv"
    file.write_bytes((ROOT / "samples" / "small.csv").read_bytes())
    program = (
        f"import sys; sys.path.insert(0, {str(installed)!r});"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in str(f).lower()];"
        "sys.argv = ['batchpay', 'validate', 'payments.csv']; from batchpay.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "total" in done.stdout
