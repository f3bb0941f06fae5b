"""Runs commands in the test's own process, with a ledger and a sandbox behind them: cheaper than a process each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from batchpay.cli.context import Context
from batchpay.cli.main import cli
from batchpay.errors import BatchpayError
from tests.support.output_schemas import require_schema, schema_of


class Caller:
    """Calls commands with --json and checks what they print against its schema."""

    def __init__(self, folder: Path, origin: str, patch: pytest.MonkeyPatch) -> None:
        self.seen: set[str] = set()
        """Schemas that were checked and matched."""
        self._patch = patch
        patch.chdir(folder)
        self.settings(
            HOME=str(folder),
            BATCHPAY_LEDGER=str(folder / "state" / "ledger.db"),
            BATCHPAY_LEDGER_KEY_FILE=str(folder / "keys" / "ledger.key"),
            BATCHPAY_BASE_URL=origin,
            BATCHPAY_API_ID="sandbox",
            BATCHPAY_RATE="5000",
            BATCHPAY_WORKERS="1",
        )

    def settings(self, **values: str) -> None:
        """Change variables of later calls."""
        for name, value in values.items():
            self._patch.setenv(name, value)

    def __call__(self, *arguments: str) -> Any:
        """Return the object of a call that ends as it should, whatever its exit code, which it must name."""
        done = self._invoke(arguments)
        assert done.exception is None, (arguments, done.exception)
        value = json.loads(done.stdout)
        require_schema(arguments, value)
        code = int(done.return_value or 0)
        assert value.get("exit_code", code) == code, (arguments, "says another code")
        self.seen.add(schema_of(arguments))
        return value

    def text(self, *arguments: str) -> str:
        """Return what a call without --json prints for people."""
        self.settings(BATCHPAY_API_KEY="sandbox-key")
        return CliRunner().invoke(cli, [*arguments], standalone_mode=False, obj=Context()).output

    def fails(self, *arguments: str) -> int:
        """Return the exit code of a call that ends with an error."""
        error = self._invoke(arguments).exception
        assert isinstance(error, (BatchpayError, click.ClickException)), error
        return error.exit_code

    def exit_code(self, *arguments: str) -> int:
        """Return the exit code of a call, whether an error ends it or it counts what was refused."""
        done = self._invoke(arguments)
        if done.exception is None:
            return int(done.return_value or 0)
        assert isinstance(done.exception, (BatchpayError, click.ClickException)), done.exception
        return done.exception.exit_code

    def _invoke(self, arguments: tuple[str, ...]) -> Any:
        self.settings(BATCHPAY_API_KEY="sandbox-key")
        return CliRunner().invoke(cli, [*arguments, "--json"], standalone_mode=False, obj=Context())
