"""`batchpay web`: the page for finance people, the people who may sign in to it, and its demo.

`--demo` is the whole story in two minutes: sandbox, ledger, page, three people and made-up files.
"""

from __future__ import annotations

import csv
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Group, Preset, option
from batchpay.cli.demo import empty_folder, running_sandbox, sample_file
from batchpay.cli.options import cents_of
from batchpay.cli.process import actor
from batchpay.settings import load_settings
from batchpay.text import amount, instant, printable

if TYPE_CHECKING:
    from batchpay.ledger.contract import Ledger
    from batchpay.settings import Settings
    from batchpay.web.spool import WebStore

_ROLES = ("prepare", "approve", "settle", "look")
_option = partial(option, own="WEB_")
_home = _option(
    "--home", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Folder for the page's own files."
)


class _Page(Preset, Group):
    """The page is served by the group itself, whose options can be preset like a command's."""


@click.group(cls=_Page, invoke_without_command=True, short_help="Serve the web page for finance people.")
@_option("--listen", metavar="ADDRESS", default="127.0.0.1:8790", show_default=True,
        help="HOST:PORT, or unix:PATH for a proxy; port 0 picks a free one.")  # fmt: skip
@_home
@_option("--host", "hosts", multiple=True, metavar="NAME", help="Host name by which people reach the page.")
@_option("--behind-tls", is_flag=True, help="Something in front of the page speaks TLS.")
@_option(
    "--proxy",
    metavar="ADDRESS",
    help="Address of a TLS proxy on another machine: it says who its clients are.",
)
@_option("--proxy-header", metavar="NAME", help="Header in which a proxy names the person (unix:PATH only).")
@_option("--own-files", is_flag=True, help="Whoever only prepares files sees no other person's.")
@_option("--log-file", metavar="PATH", help="Append log lines to this file, one for each request.")
@_option("--log-json", is_flag=True, help="Log as JSON lines (to standard error without --log-file).")
@click.option("--demo", "is_demo", is_flag=True, help="Try the page: sandbox, made-up files and three people.")
@click.pass_context
def web(
    click_context: click.Context,
    /,
    listen: str,
    home: Path | None,
    log_file: str | None,
    log_json: bool,
    is_demo: bool,
    **where: Any,
) -> int | None:
    """Serve the web page for finance people: upload a file, see each mistake in its cell, approve, send, settle.

    It listens only on this machine unless it is behind something that speaks TLS. People sign in with a name and a
    password; those who approve or settle also need an authenticator. Invite them with batchpay web user add.

    Example: batchpay web --listen 127.0.0.1:8790
    """
    context = click_context.ensure_object(Context)
    if click_context.invoked_subcommand is not None:
        click_context.meta["batchpay.web.home"] = home
        return None
    if is_demo:
        demo(listen, _stop_on_signals)
        return 0
    from batchpay.operations.logs import close_log, open_log
    from batchpay.web.server import serve
    from batchpay.web.site import Listen
    from batchpay.web.spool import default_home

    with ExitStack() as ended:
        if log_file or log_json:
            ended.callback(close_log, open_log(path=log_file, as_json=log_json))
        serve(
            context.settings,
            home or default_home(),
            Listen(listen, **where),
            actor(),
            ready=lambda url: output.tell(context, {"url": url}, f"batchpay web ready at {url}"),
            on_stop=_stop_on_signals,
        )
    return 0


def _stop_on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


@web.group(cls=Group, short_help="Who may sign in to the page.")
def user() -> None:
    """Add, list, turn off and reset the people who may sign in. Every change is recorded in the ledger's history.

    Example: batchpay web user list
    """


@user.command(short_help="Add a person, and print a link to enroll by.")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice(_ROLES),
    help="Role of the person; repeat for each role.",
)
@click.option("--shown", metavar="TEXT", help="The person's name as others see it, such as 'Maria Lindqvist'.")
@click.option("--limit", "limit_cents", type=cents_of, metavar="AMOUNT", help="Highest total this person may approve.")
@click.option(
    "--code/--no-code", "with_code", default=None, help="Require an authenticator; by default for approve and settle."
)
@_home
@click.pass_obj
def add(context: Context, /, name: str, home: Path | None, shown: str | None, **options: Any) -> int:
    """Add a person, and print a link that works once, for 24 hours: with it they choose a password.

    Whoever has the link can enroll: approve and settle count once another person has confirmed it on the page.
    prepare uploads, checks and requests approval; approve approves what others prepared; settle decides on payments in
    doubt and cancels waiting ones; look sees everything except full account numbers. Nobody approves what they uploaded
    or requested, whatever their roles.

    Example: batchpay web user add maria --role prepare --shown "Maria Lindqvist"
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        token = people.add(store, ledger, actor(), name, shown or name, **options)
        return _hand_over(context, name, store, token)


@user.command("list", short_help="List the people.")
@_home
@click.pass_obj
def list_people(context: Context, /, home: Path | None) -> int:
    """List the people who may sign in, with their roles.

    Example: batchpay web user list
    """
    from batchpay.web import people

    with _opened(context, home) as (store, _):
        found = people.everybody(store)
    if context.json:
        output.print_json(context, {"people": found, "exit_code": 0})
        return 0
    rows = [
        [
            one["name"],
            printable(one["shown"]),
            ", ".join(one["roles"]),
            amount(one["limit"]),
            "yes" if one["code"] else "no",
            "off"
            if one["off"]
            else "invited"
            if not one["enrolled"]
            else "on"
            if one["confirmed"] or not {"approve", "settle"} & set(one["roles"])
            else "to be confirmed",
        ]
        for one in found
    ]
    output.print_table(["name", "shown", "roles", "limit", "code", "sign-in"], rows, right=frozenset({"limit"}))
    return 0


@user.command(short_help="Stop a person from signing in.")
@click.argument("name")
@_home
@click.pass_obj
def off(context: Context, /, name: str, home: Path | None) -> int:
    """Stop a person from signing in, effective immediately; reset --on lets them in again. What they did stays.

    An approval of theirs that was not used counts no more. What is scheduled with one stays so, and is listed.

    Example: batchpay web user off maria
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        ahead = people.switch_off(store, ledger, actor(), name)
    told = "\n".join(map(printable, [f"off      {name}", *ahead]))
    output.tell(context, {"name": name, "off": True, "scheduled": ahead, "exit_code": 0}, told)
    return 0


@user.command("set", short_help="Change a person's roles, limit or shown name.")
@click.argument("name")
@click.option("--role", "roles", multiple=True, type=click.Choice(_ROLES), help="All the roles from now on.")
@click.option("--shown", metavar="TEXT", help="The person's name as others see it.")
@click.option("--limit", "limit_cents", type=cents_of, metavar="AMOUNT", help="Highest total this person may approve.")
@_home
@click.pass_obj
def set_person(context: Context, /, name: str, home: Path | None, **options: Any) -> int:
    """Change what is named, and leave the rest as it is, effective immediately.

    Who may approve or settle from now on, and has no authenticator, gets a link to enroll anew.

    Example: batchpay web user set maria --role prepare --role look
    """
    from batchpay.web import people

    if all(value in (None, ()) for value in options.values()):
        raise click.UsageError("name what is to be changed")
    with _opened(context, home) as (store, ledger):
        token = people.change(store, ledger, actor(), name, **options)
        if token is not None:
            return _hand_over(context, name, store, token)
    output.tell(context, {"name": name, "exit_code": 0}, f"changed  {printable(name)}")
    return 0


@user.command(short_help="Give a person a new link to enroll by.")
@click.argument("name")
@click.option("--on", is_flag=True, help="Also let in again a person who was switched off.")
@_home
@click.pass_obj
def reset(context: Context, /, name: str, on: bool, home: Path | None) -> int:
    """End a person's password, authenticator and sessions, and print a new link: with it they enroll anew.

    Example: batchpay web user reset maria
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        token = people.reset(store, ledger, actor(), name, on=on)
        return _hand_over(context, name, store, token)


@user.command(short_help="Confirm that a person enrolled.")
@click.argument("name")
@_home
@click.pass_obj
def confirm(context: Context, /, name: str, home: Path | None) -> int:
    """Confirm that it was this person who enrolled by the link: ask them first. approve and settle count from then on.

    Approvers confirm on the page; this is for a house whose only one enrolled anew.

    Example: batchpay web user confirm daniel
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        people.confirm(store, ledger, actor(), name)
    output.tell(context, {"name": name, "confirmed": True, "exit_code": 0}, f"confirmed  {printable(name)}")
    return 0


def _opened(context: Context, home: Path | None) -> AbstractContextManager[tuple[WebStore, Ledger]]:
    """Open the page's own database and the ledger, which records the change."""
    from batchpay.web.people import opened

    chosen = home or click.get_current_context().meta.get("batchpay.web.home")
    return opened(context.settings, chosen, actor())


def _hand_over(context: Context, name: str, store: WebStore, token: str) -> int:
    from batchpay.web.enrollment import LINK_S

    address = store.address()
    link, ends = f"{address}enroll#{token}", datetime.fromtimestamp(store.clock() + LINK_S, UTC)
    told = f"name     {printable(name)}\nlink     {link}\nGive it to this person alone: it works once, until "
    told += f"{ends:%m/%d/%Y %H:%M} UTC."
    if not address:
        told += " The page was never started here: put its address before it."
    output.tell(context, {"name": name, "link": link, "until": instant(ends), "exit_code": 0}, told)
    return 0


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
    from batchpay.web.server import serve
    from batchpay.web.site import Listen

    payments = FOLDER / "payments.csv"
    with running_sandbox("--returns", str(FOLDER / "returns.csv")) as origin:  # first: its add-on may be missing
        empty_folder(FOLDER)
        shutil.copyfile(sample_file(), payments)
        settings = _settings(origin)
        with TemporaryDirectory() as folder:
            rejects = Path(folder) / "rejects.csv"
            with _check(payments, rejects):
                passwords = _add_people(settings)
            _write_export(payments, rejects, FOLDER / "bank-export.csv")

        def ready(url: str) -> None:
            click.echo(f"\nOpen {url} in a browser, in a private window or another browser for each person:\n")
            for name, shown, _, does in _PEOPLE:
                click.echo(f"  {name:<7} {passwords[name]}   {shown} {does}")
            click.echo(
                f"\nAs maria, drop {FOLDER / 'payments.csv'} on the page: some rows have mistakes. Request approval,\n"
                "approve it as daniel, watch it run, look up the two payments that end in doubt, and compare the "
                "batch\n"
                f"with {FOLDER / 'bank-export.csv'}. Then drop {FOLDER / 'returns.csv'} on Returns: some came back.\n"
                "Nothing leaves this machine; Ctrl-C ends everything."
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
    """Add the three people, enrolled and without authenticators: only this machine reaches the page."""
    from batchpay.web import enrollment, people

    passwords: dict[str, str] = {}
    known: dict[str, people.Person] = {}
    with people.opened(settings, FOLDER / "page", actor()) as (store, ledger):
        for name, shown, roles, _ in _PEOPLE:
            token = people.add(store, ledger, actor(), name, shown, roles, None, with_code=False)
            passwords[name] = f"{name}-{secrets.token_hex(4)}"
            found = enrollment.enroll(store, ledger, token, passwords[name])
            known[name] = people.person_of(found, "password", "")
            for other in list(known.values())[-2:-1]:
                enrollment.confirm(store, ledger, other, name, found["enrolled_at"])
    return passwords


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
