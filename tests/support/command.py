"""Runs the installed command in a process of its own, with an empty home and nothing from the tester's environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.output_schemas import require_schema
from tests.support.warm import WARM, Order, Process, Warm

_TIMEOUT_S = 120.0
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@dataclass
class Home:
    """A folder that is all a run knows: its home, its settings, its ledger, its output."""

    path: Path
    origin: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    warm: Warm = field(default=WARM, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """Return the whole environment of a run."""
        return {
            "PATH": os.defpath,
            "HOME": str(self.path),
            "LANG": "C.UTF-8",
            "BATCHPAY_BASE_URL": self.origin,
            "BATCHPAY_API_ID": "sandbox",
            "BATCHPAY_API_KEY": "sandbox-key",
            "BATCHPAY_RATE": "5000",
            **({"PYTHONPATH": str(self.warm.program)} if self.warm.program else {}),
            **self.extra,
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a run."""
        return [sys.executable, "-m", "batchpay", *arguments]

    def run(self, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        It runs in a process forked from a loaded one, unless the interpreter is given options, or the process is
        prepared.
        """
        if not settings and not any(name.startswith(("PYTHON", "LANG", "LC_")) for name in self.extra):
            return self.warm.run(self._order("batchpay", arguments), _TIMEOUT_S)
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            **settings,
        )

    def start(
        self,
        *arguments: str,
        module: str = "batchpay",
        waits: bool = False,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
    ) -> Process:
        """Start a command, or another module, in such a process; one that waits begins when it is told to."""
        return self.warm.start(self._order(module, arguments, waits=waits), stdin, stdout, stderr)

    def _order(self, module: str, arguments: tuple[str, ...], *, waits: bool = False) -> Order:
        return Order(module, arguments, self.environment, str(self.path), waits)

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command with --json and return its object, which matches docs/schemas/ and names the exit code."""
        done = self.run(*arguments, "--json")
        assert done.stdout.count("\n") == 1, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        require_schema(arguments, value)
        assert value.get("exit_code", done.returncode) == done.returncode, (arguments, "says another code")
        return value


def small_file(path: Path, rows: int, *, first: int = 1) -> Path:
    """Write a payment file of valid rows, each with an invoice number of its own."""
    source = (SAMPLES / "small.csv").read_text("utf-8").splitlines()
    header = source[0].split(",")
    row = source[1].split(",")
    assert len(row) == len(header), "the first sample row has no quoted commas"
    values = dict(zip(header, row, strict=True))
    lines = [",".join(header)]
    for number in range(first, first + rows):
        values |= {"invoiceNumber": f"INV-{number}", "amount": f"{number}.25", "achAccountNumber": f"77{number:06d}1"}
        if "paymentId" in values:
            values["paymentId"] = f"P-{number}"
        lines.append(",".join(values.values()))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
