"""`batchpay demo`: sandbox, sample file, submission, report, what came back; one command, no credentials."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.errors import BatchpayError, SettingsNotUsable

_MARK = ".made-by-batchpay-demo"
_SETTINGS = """# What the demo was run with; its sandbox ended with it.
[gateway]
base_url = "{origin}"
api_id = "sandbox"

[submit]
rate = "500"
"""
_LEDGER = """
[ledger]
url = "ledger.db"
key_file = "ledger.key"
"""
"""For whoever calls batchpay in the demo's folder afterwards."""
_EXPECTED_EXIT_CODE = 7  # the sample holds two rows whose answers get lost
_CAME_BACK = ("990051", "990052", "990081")
"""How the account numbers of the sample end that the sandbox returns or changes (sandbox --list-magic)."""


@click.command(cls=Command, short_help="Run the sandbox and submit the sample file; no credentials needed.")
@option("--out", metavar="DIR", default="demo", show_default=True, help="Folder for everything the demo writes.")
@option(
    "--postgres", is_flag=True, help="Keep the ledger in a PostgreSQL server created for the demo and then removed."
)
@click.pass_obj
def demo(context: Context, out: str, postgres: bool) -> int:
    """Start the sandbox on loopback, test the connection, submit the sample file, and write the report on it.

    Then take in what the bank sent back, and check a file that pays the same accounts again.

    With --postgres the ledger is in a PostgreSQL server, started in a temporary folder; it must be
    installed, and so must the add-on postgres.

    Example: batchpay demo
    """
    folder = Path(out)
    with ExitStack() as running:
        database = running.enter_context(running_database()) if postgres else None
        returns = str(folder / "returns.csv")
        sandbox = running_sandbox("--returns", returns, quietly=context.json)
        origin = running.enter_context(sandbox)  # first: its add-on may be missing
        empty_folder(folder)
        shutil.copyfile(sample_file(), folder / "payments.csv")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BATCHPAY_")},
            "BATCHPAY_BASE_URL": origin,
            "BATCHPAY_API_ID": "sandbox",
            "BATCHPAY_API_KEY": "sandbox-key",
            "BATCHPAY_LEDGER": database.url(PAYER) if database else str(folder / "ledger.db"),
            "BATCHPAY_LEDGER_KEY_FILE": str(folder / "ledger.key"),
        }
        settings = folder / "batchpay.toml"
        settings.write_text(_SETTINGS.format(origin=origin) + ("" if database else _LEDGER), "utf-8")
        _show(context, environment, settings, "test-connection", expected=0)
        if database:
            environment["XDG_STATE_HOME"] = str(folder / "state")
            _show(context, environment, settings, "ledger", "init", "--owner-url", database.url(), expected=0)
            database.let_in()
        payments, page = str(folder / "payments.csv"), str(folder / "payments.report.html")
        told = _show(context, environment, settings, "submit", payments, expected=_EXPECTED_EXIT_CODE)
        _show(context, environment, settings, "report", "--out", page, expected=0)
        if database:
            _show(context, environment, settings, "ledger", "check", expected=0)
        _show(context, environment, settings, "returns", returns, expected=0)
        following, rejects = str(_write_next(folder)), str(folder / "next.rejects.csv")
        _show(context, environment, settings, "validate", following, "--rejects", rejects, expected=3)
    if context.json:
        output.print_json(context, {**told, "report": page, "exit_code": 0})
        return 0
    click.echo(
        f"\nThe submission ended with exit code {_EXPECTED_EXIT_CODE}: two answers were lost on purpose, and a\n"
        f"person must check whether those payments were made. Everything is in {folder}/:\n"
        "open the results, the rejects and the report.\n"
        "Later the bank sent two payments back, and had another number for a third account\n"
        "(returns.csv). The last call shows what that means for the next file: the closed account\n"
        "and the old number are errors, the new number is in next.rejects.csv alone, and the\n"
        "payment without funds may be collected again. Nothing was sent again by itself."
    )
    if database:
        click.echo("The database was removed with its server; docs/several-machines.md sets up a permanent one.")
    else:
        click.echo(f"To look further: cd {folder}, then batchpay status, or the resolve above.")
    return 0


def empty_folder(folder: Path) -> None:
    """Make an empty folder. Only what an earlier demo made is removed, never a folder with anything else in it."""
    mark = folder / _MARK
    if folder.exists() and any(folder.iterdir()):
        if not mark.exists():
            raise click.UsageError(f"{folder} is not empty; name an empty folder with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark.touch()


def sample_file() -> Path:
    """Find samples/payments.csv: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "samples", package.parent / "samples"):
        if (candidate / "payments.csv").is_file():
            return candidate / "payments.csv"
    raise BatchpayError("the sample file is not part of this installation")


def _write_next(folder: Path) -> Path:
    """Write the next file: the same payments to the accounts that the bank spoke of, due again."""
    target = folder / "next.csv"
    with (folder / "payments.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        again = [row for row in rows if row["achAccountNumber"].endswith(_CAME_BACK)]
    with target.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows.fieldnames or ()))
        writer.writeheader()
        for row in again:
            writer.writerow(row | {name: f"{row[name]}-2" for name in ("paymentId", "invoiceNumber")})
    return target


def _show(
    context: Context, environment: dict[str, str], settings: Path, *command: str, expected: int
) -> dict[str, Any]:
    """Run a command as a person would, with its output on the terminal; with --json give its object instead."""
    arguments = [sys.executable, "-P", "-m", "batchpay", *command, "--config", str(settings)]
    if not context.json:
        click.echo(f"\n$ batchpay {' '.join(command)}")
        sys.stdout.flush()
    done = subprocess.run(  # noqa: S603 - our own program
        [*arguments, "--json"] if context.json else arguments,
        env=environment,
        stdout=subprocess.PIPE if context.json else None,
        text=True,
        check=False,
    )
    if done.returncode != expected:
        raise BatchpayError(f"batchpay {command[0]} ended with exit code {done.returncode}, not {expected}")
    return dict(json.loads(done.stdout)) if context.json else {}


@contextmanager
def running_sandbox(*options: str, quietly: bool = False) -> Iterator[str]:
    """Run a sandbox in a process of its own on a free port of loopback; says and gives its origin."""
    arguments = [sys.executable, "-P", "-m", "batchpay", "sandbox", "--port", "0", *options, "--json"]
    told: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(arguments, **told) as process:  # noqa: S603 - our own program
        try:
            line = process.stdout.readline() if process.stdout else ""
            answer = json.loads(line or "{}")
            origin = answer.get("origin")
            if origin is None:
                raise SettingsNotUsable(answer.get("error", "the sandbox did not start"))
            if not quietly:
                click.echo(f"sandbox ready at {origin}")
            yield origin
        finally:
            process.terminate()


PAYER = "payer"
"""The login that sends; it owns nothing."""
_OWNER, _DATABASE = "owner", "demo"


class Database:
    """A running server with one database."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._data = folder / "data"

    def url(self, login: str = _OWNER) -> str:
        """Give its address, for ledger.url."""
        return f"postgresql://{login}@/{_DATABASE}?host={quote(str(self._folder), safe='')}"

    def let_in(self) -> None:
        """Give the login that sends what it needs, once there is a ledger."""
        self._run("psql", *self._reached, "-d", _DATABASE, "-c", f"GRANT batchpay_app TO {PAYER}")

    def start(self) -> None:
        """Make and start the server, and its database."""
        self._run(
            "initdb", "-D", self._data, "-U", _OWNER, "-E", "UTF8", "--auth=trust", "--data-checksums", "--no-sync"
        )
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._folder / "log", "-o", options, "start")
        self._run("createdb", *self._reached, _DATABASE)
        self._run("createuser", *self._reached, PAYER)

    def stop(self) -> None:
        """Stop the server; what it holds is thrown away."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop", check=False)

    @property
    def _reached(self) -> tuple[str, ...]:
        return ("-h", str(self._folder), "-U", _OWNER)

    def _run(self, program: str, *arguments: str | Path, check: bool = True) -> None:
        # No PostgreSQL runs as root.
        as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*as_nobody, str(self._programs / program), *map(str, arguments)]
        quiet = subprocess.DEVNULL
        done = subprocess.run(command, cwd=self._folder, stdout=quiet, stderr=quiet, check=False)  # noqa: S603 - installed
        if check and done.returncode:
            raise SettingsNotUsable(f"PostgreSQL could not be started for the demo: {program} failed")


@contextmanager
def running_database() -> Iterator[Database]:
    """Run a server; raises SettingsNotUsable where none is installed."""
    programs = _programs()
    if programs is None or (os.geteuid() == 0 and shutil.which("setpriv") is None):
        raise SettingsNotUsable(
            "no PostgreSQL server is installed on this machine (initdb was not found): batchpay demo shows the same "
            "with a ledger in a file"
        )
    with tempfile.TemporaryDirectory(prefix="batchpay-demo-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        database = Database(programs, folder)
        try:
            database.start()
            yield database
        finally:
            database.stop()


def _programs() -> Path | None:
    """Find a server's programs: those on the PATH, else the newest where Debian has them."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)
