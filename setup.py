"""What pyproject.toml can't say of a build: the date of the commit goes with it, and the two links of a checkout.

The date is SOURCE_DATE_EPOCH's, which `make wheel` sets, else git's; built from an sdist it is the sdist's.
"""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

DATE = Path("batchpay", "commit_date.txt")
LINKS = {"samples": "../samples", "schemas": "../schemas"}


def write_date(folder: str) -> None:
    """Write the date of the commit into a folder that is built, unless it is there or nobody knows it."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None and Path(".git").exists():
        git = ["git", "log", "-1", "--format=%ct"]
        epoch = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    if epoch and not DATE.exists():
        (Path(folder) / DATE).write_text(f"{datetime.fromtimestamp(int(epoch), UTC):%Y-%m-%d}\n", "utf-8")


class BuildPy(build_py):
    """Builds the package with the date; a checkout that is installed as it stands asks git."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            write_date(self.build_lib)


class Sdist(sdist):
    """Packs what can be tested: the links as links, since the tests look into the folders that they lead to."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Lay out what is packed."""
        super().make_release_tree(base_dir, files)
        write_date(base_dir)
        if DATE.exists():
            shutil.copy(DATE, Path(base_dir) / DATE)
        for name, target in LINKS.items():
            link = Path(base_dir, "batchpay", name)
            shutil.rmtree(link, ignore_errors=True)
            link.symlink_to(target)


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
