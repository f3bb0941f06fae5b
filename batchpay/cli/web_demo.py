"""`batchpay web --demo`: sandbox, ledger, page and three people with made-up files; the whole story in two minutes."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli.demo import empty_folder, running_sandbox, sample_file
from batchpay.cli.process import actor
from batchpay.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchpay.settings import Settings

FOLDER = Path("demo-web")
_PEOPLE = (
    ("maria", "Maria Lind", ("prepare",), "uploads files, corrects them and asks for approval"),
    ("daniel", "Daniel Osei", ("approve", "settle"), "approves, and settles what is in doubt"),
    ("nina", "Nina Roth", ("approve", "look"), "looks, and gives the second approval"),
)
_DECLINED = ("990001", "990002", "990003", "990012", "990014", "990016", "990020", "990029")
_NEVER_MADE = ("990005", "990008")
"""How account numbers end of which the sandbox declines the payment, or never makes it (sandbox --list-magic)."""
_EXPORTED = ("invoiceNumber", "amount", "account", "status", "date")


def demo(listen: str, on_stop: Callable[[Callable[[], None]], None]) -> None:
    """Run the page against a sandbox until a signal; prints who may sign in, and what to do first."""
    from batchpay.web.server import Listen, serve

    empty_folder(FOLDER)
    payments = FOLDER / "payments.csv"
    shutil.copyfile(sample_file(), payments)
    with running_sandbox() as origin:
        settings = _settings(origin)
        with TemporaryDirectory() as folder:
            rejects = Path(folder) / "rejects.csv"
            with _check(payments, rejects):
                passwords = _add_people(settings)
            _write_export(payments, rejects, FOLDER / "bank-export.csv")

        def ready(url: str) -> None:
            click.echo(f"\nOpen {url} in a browser, ideally one window per person:\n")
            for name, shown, _, does in _PEOPLE:
                click.echo(f"  {name:<7} {passwords[name]}   {shown} {does}")
            click.echo(
                f"\nAs maria, drop {FOLDER / 'payments.csv'} on the page: some rows have mistakes. Request approval,\n"
                "approve it as daniel, watch it run, look up the two payments that end in doubt, and compare the "
                "batch\n"
                f"with {FOLDER / 'bank-export.csv'}. Nothing leaves this machine; Ctrl-C ends everything."
            )

        serve(settings, FOLDER / "page", Listen(listen), actor(), ready, on_stop)


def _settings(origin: str) -> Settings:
    """Point everything at the sandbox and the demo's own folder; children find the key in the environment."""
    for name in [name for name in os.environ if name.startswith("BATCHPAY_")]:
        del os.environ[name]
    os.environ["BATCHPAY_API_KEY"] = "sandbox-key"
    folder = FOLDER.absolute()
    tables = {
        "gateway": {"base_url": origin, "api_id": "sandbox"},
        "submit": {"rate": "40"},
        "ledger": {"url": str(folder / "ledger.db"), "key_file": str(folder / "ledger.key")},
    }
    return load_settings(tables, {})


def _add_people(settings: Settings) -> dict[str, str]:
    """Add the three people, without authenticators: only this machine reaches the page."""
    from batchpay.web import people

    with people.opened(settings, FOLDER / "page", actor()) as (store, ledger):
        return {
            name: people.add(store, ledger, actor(), name, shown, roles, None, with_code=False).password
            for name, shown, roles, _ in _PEOPLE
        }


def _check(payments: Path, rejects: Path) -> subprocess.Popen[bytes]:
    """Begin to check the file, without anybody's settings; its rows to correct are then in a file."""
    settings = rejects.with_name("batchpay.toml")
    settings.touch()
    command = [sys.executable, "-P", "-m", "batchpay", "validate", str(payments), "--rejects", str(rejects)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*command, "--config", str(settings)], **quiet)  # noqa: S603 - this program itself


def _write_export(payments: Path, rejects: Path, target: Path) -> None:
    """Write what a bank would say of the right rows of these payments once they were sent."""
    with rejects.open(encoding="utf-8", newline="") as file:
        rejected = {int(row["_row"]) for row in csv.DictReader(file)}
    with payments.open(encoding="utf-8", newline="") as file, target.open("w", encoding="utf-8", newline="") as out:
        writer, today = csv.writer(out), datetime.now(UTC).date().isoformat()
        writer.writerow(_EXPORTED)
        for number, row in enumerate(csv.DictReader(file), 1):
            account = row["achAccountNumber"]
            status = "declined" if account.endswith(_DECLINED) else "paid"
            was_made = not account.endswith(_NEVER_MADE) and (row["invoiceNumber"] or status == "paid")
            if number not in rejected and was_made:
                writer.writerow([row["invoiceNumber"], row["amount"], f"****{account[-4:]}", status, today])
