"""`batchpay web`: the page for finance people, and the people who may sign in to it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Group, option
from batchpay.cli.options import Cents
from batchpay.cli.process import actor
from batchpay.text import amount, printable

if TYPE_CHECKING:
    from batchpay.ledger.contract import Ledger
    from batchpay.web.people import NewSecrets
    from batchpay.web.spool import WebStore

_ROLES = ("prepare", "approve", "settle", "look")
_option = partial(option, own="WEB_")
_home = _option(
    "--home", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Folder for the page's own files."
)


@click.group(cls=Group, invoke_without_command=True, short_help="Serve the web page for finance people.")
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
@click.option("--demo", "is_demo", is_flag=True, help="Try the page: sandbox, made-up files and three people.")
@click.pass_context
def web(
    click_context: click.Context,
    listen: str,
    home: Path | None,
    hosts: tuple[str, ...],
    behind_tls: bool,
    proxy: str | None,
    proxy_header: str | None,
    is_demo: bool,
) -> int | None:
    """Serve the web page for finance people: upload a file, see each mistake in its cell, approve, send, settle.

    It listens only on this machine unless it is behind something that speaks TLS. People sign in with a name and a
    password; those who approve or settle also need an authenticator. Add them with batchpay web user add.

    Example: batchpay web --listen 127.0.0.1:8790
    """
    context = click_context.ensure_object(Context)
    if click_context.invoked_subcommand is not None:
        click_context.meta["batchpay.web.home"] = home
        return None
    if is_demo:
        from batchpay.cli.web_demo import demo

        demo(listen, _stop_on_signals)
        return 0
    from batchpay.web.server import Listen, serve
    from batchpay.web.spool import default_home

    listening = Listen(listen, hosts, behind_tls, proxy_header, proxy)
    serve(
        context.settings,
        home or default_home(),
        listening,
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


@user.command(short_help="Add a person.")
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
@click.option("--limit", type=Cents(), metavar="AMOUNT", help="Highest total this person may approve.")
@click.option(
    "--code/--no-code", "with_code", default=None, help="Require an authenticator; by default for approve and settle."
)
@_home
@click.pass_obj
def add(
    context: Context,
    /,
    name: str,
    roles: tuple[str, ...],
    shown: str | None,
    limit: int | None,
    with_code: bool | None,
    home: Path | None,
) -> int:
    """Add a person, and print the password and the authenticator secret once: nobody can read them again.

    prepare uploads, checks and requests approval; approve approves what others prepared; settle decides on payments in
    doubt; look sees everything except full account numbers. Nobody approves what they uploaded or requested, whatever
    their roles.

    Example: batchpay web user add maria --role prepare --shown "Maria Lindqvist"
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        made = people.add(store, ledger, actor(), name, shown or name, roles, limit, with_code=with_code)
    return _hand_over(context, name, made)


@user.command("list", short_help="List the people.")
@_home
@click.pass_obj
def list_people(context: Context, /, home: Path | None) -> int:
    """List the people who may sign in, with their roles.

    Example: batchpay web user list
    """
    from batchpay.web import people

    with _opened(context, home) as (store, _):
        found = [people.as_json(one) for one in people.everybody(store)]
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
            "off" if one["off"] else "on",
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
    """Stop a person from signing in, effective immediately. What they did stays recorded; reset lets them in again.

    Example: batchpay web user off maria
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        people.switch_off(store, ledger, actor(), name)
    output.tell(context, {"name": name, "off": True, "exit_code": 0}, f"off      {printable(name)}")
    return 0


@user.command(short_help="Give a person a new password and authenticator.")
@click.argument("name")
@_home
@click.pass_obj
def reset(context: Context, /, name: str, home: Path | None) -> int:
    """Give a person a new password and, if they had one, a new authenticator; all their sessions end.

    Example: batchpay web user reset maria
    """
    from batchpay.web import people

    with _opened(context, home) as (store, ledger):
        made = people.reset(store, ledger, actor(), name)
    return _hand_over(context, name, made)


def _opened(context: Context, home: Path | None) -> AbstractContextManager[tuple[WebStore, Ledger]]:
    """Open the page's own database and the ledger, which records the change."""
    from batchpay.web.people import opened

    chosen = home or click.get_current_context().meta.get("batchpay.web.home")
    return opened(context.settings, chosen, actor())


def _hand_over(context: Context, name: str, made: NewSecrets) -> int:
    from batchpay.web import people

    secret = made.code_secret
    if context.json:
        told: dict[str, Any] = {"name": name, "password": made.password, "exit_code": 0}
        told["code_secret"] = None if secret is None else people.secret_shown(secret)
        told["code_address"] = None if secret is None else people.secret_address(secret, name)
        output.print_json(context, told)
        return 0
    click.echo(f"name     {printable(name)}")
    click.echo(f"password {made.password}")
    if secret is not None:
        click.echo(f"code     {people.secret_shown(secret)}")
        click.echo(f"         {people.secret_address(secret, name)}")
    click.echo("Hand these over in person: they are shown only once.")
    return 0
