"""The wheel, built through the sdist, works from another folder in an environment without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel from what git would clone."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)],
        check=True,
        capture_output=True,
    )
    return next((folder / "dist").glob("*.whl"))


def test_the_wheel_has_rules_samples_and_statements(wheel: Path) -> None:
    """What is at the top level of the repository ships inside the package, and links are real files there."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "batchpay/py.typed",
        "batchpay/schemas/payment.py",
        "batchpay/schemas/gateway.openapi.yaml",
        "batchpay/samples/payments.csv",
        "batchpay/ledger/sqlite/0001.sql",
        "batchpay/reports/page.html",
    } <= names
    assert not any(name.startswith(("tests", "schemas", "samples")) for name in names)


def test_the_wheel_works_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into an empty folder it validates a file, without the checkout on its path."""
    installed = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(installed)
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
