"""`batchpay gateway`: list, get, create, update, delete accounts, make one the default; `batchpay test-connection`."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, Group, declared, option
from batchpay.errors import RunStopped, WrongUse
from batchpay.text import printable

if TYPE_CHECKING:
    from batchpay.gateway.accounts import AccountsClient, GatewayAccount


_option = partial(option, own="GATEWAY_")

_account_options = declared(
    _option("--gateway-name", metavar="NAME", help="processorA_cc, processorA_ach, processorB_ach or processorC_cc."),
    _option("--enabled", metavar="1", help="1, the default."),
    _option("--mode", metavar="MODE", help="dev (developer), test (live account, test mode active) or live."),
    _option("--accept-amex", metavar="0|1", help="Card accounts: accept American Express."),
    _option("--active-level2", metavar="0|1", help="Send level 2 data."),
    _option("--active-level3", metavar="0|1", help="Send level 3 data."),
    _option("--account-id", metavar="N", help="Processor A: the account's number there."),
    _option("--user-id", metavar="TEXT", help="Processor A: the user there."),
    _option("--login", metavar="TEXT", help="Processor B: the login there."),
    _option("--vt-template", metavar="TEXT", help="Processor B: the virtual terminal's template."),
    _option(
        "--pin-file", metavar="FILE", help="Processor A: file of mode 0600 with the PIN; else BATCHPAY_GATEWAY_PIN."
    ),
    _option("--password-file", metavar="FILE", help="Processor B: file of mode 0600; else BATCHPAY_GATEWAY_PASSWORD."),
    _option("--dry-run", is_flag=True, help="Check and show; send nothing."),
)
_NOT_ATTRIBUTES = ("dry_run", "pin_file", "password_file")


@click.group(cls=Group, short_help="List, get, create, update, delete gateway accounts.")
def gateway() -> None:
    """Manage the gateway accounts that payments go through.

    Example: batchpay gateway list --not-deleted
    """


@gateway.command("list", short_help="List accounts.")
@option("--deleted/--not-deleted", default=None, help="Only the deleted ones, or only the others.")
@click.pass_obj
def list_accounts(context: Context, deleted: bool | None) -> int:
    """List gateway accounts: all, only the deleted ones, or only the others.

    Example: batchpay gateway list --not-deleted
    """
    with _client(context) as client:
        accounts = client.accounts(deleted)
        gone = {account.id for account in (client.accounts(True) if deleted is None else accounts if deleted else ())}
    if context.json:
        listed = [{**account.as_json(), "deleted": account.id in gone} for account in accounts]
        output.print_json(context, {"gateways": listed})
    elif accounts:
        _print_accounts(accounts, gone)
    else:
        output.say(context, "no such accounts")
    return 0


@gateway.command(short_help="Show one account.")
@click.argument("number", metavar="ID")
@click.pass_obj
def get(context: Context, number: str) -> int:
    """Show one gateway account.

    Example: batchpay gateway get 1001
    """
    from batchpay.gateway.accounts import AccountRefused

    found = _number(number)
    with _client(context) as client:
        try:
            account = client.get(found)
        except AccountRefused as refused:
            raise AccountRefused(f"id {found}: {refused}") from None
    if context.json:
        output.print_json(context, {"gateway": account.as_json()})
    else:
        _print_accounts([account])
    return 0


@gateway.command(short_help="Create an account.")
@_account_options
@click.pass_obj
def create(context: Context, /, **options: Any) -> int:
    """Create a gateway account.

    The PIN or password is prompted for on a terminal, or comes from a file or the environment; it is never an option.

    Example: batchpay gateway create --gateway-name processorC_cc --mode test --accept-amex 0
    --active-level2 0 --active-level3 0
    """
    node = _node_of_options(options, update=False)
    if options["dry_run"]:
        return _show_node(context, node)
    with _client(context) as client:
        number = client.create(node)
    output.tell(context, {"gateway_id": number}, f"created gateway account {number}")
    return 0


@gateway.command(short_help="Replace an account's attributes.")
@click.argument("number", metavar="ID")
@_account_options
@click.pass_obj
def update(context: Context, /, number: str, **options: Any) -> int:
    """Replace all attributes of a gateway account with those given; what is not given is not kept.

    Accounts of processor B can't be updated through this interface.

    Example: batchpay gateway update 1004 --gateway-name processorC_cc --mode live --accept-amex 1
    --active-level2 0 --active-level3 0
    """
    found = _number(number)
    node = _node_of_options(options, update=True)
    if options["dry_run"]:
        return _show_node(context, node)
    with _client(context) as client:
        if _standing(client, found).gateway_name.startswith("processorB"):
            raise WrongUse(
                f"gateway_name: {found} is an account of processor B, which can't be updated through this interface"
            )
        message = client.update(found, node)
    output.tell(context, {"message": message}, printable(message))
    return 0


@gateway.command(short_help="Delete an account; its record stays.")
@click.argument("number", metavar="ID")
@option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(context: Context, number: str, yes: bool) -> int:
    """Delete a gateway account. Its record stays and is listed with --deleted; it can no longer be changed.

    Example: batchpay gateway delete 1004 --yes
    """
    return _change(context, number, "Delete", yes, lambda client, found: client.delete(found))


@gateway.command(short_help="Make an account the default of its kind.")
@click.argument("number", metavar="ID")
@option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def default(context: Context, number: str, yes: bool) -> int:
    """Make an account the default card account or the default eCheck account; the other kind's default stays.

    Example: batchpay gateway default 1001 --yes
    """
    what = "Make the default of its kind"
    return _change(context, number, what, yes, lambda client, found: client.make_default(found))


def _client(context: Context) -> closing[AccountsClient]:
    from batchpay.gateway.accounts import AccountsClient
    from batchpay.workflows.requests import credentials_of

    return closing(AccountsClient(context.settings.gateway, credentials_of(context.settings)))


def _number(text: str) -> int:
    from batchpay.gateway.accounts import account_id

    number = account_id(text)
    if number is None:
        raise WrongUse("id: must be an account id, a whole number of 1 or more, digits only")
    return number


def _standing(client: AccountsClient, number: int) -> GatewayAccount:
    """Give an account that is there and not deleted; raises WrongUse before anything is changed."""
    standing = {account.id: account for account in client.accounts(deleted=False)}
    if number not in standing:
        is_deleted = any(account.id == number for account in client.accounts(deleted=True))
        raise WrongUse(f"id: {number} is {'a deleted account' if is_deleted else 'not an account at the gateway'}")
    return standing[number]


def _change(context: Context, number: str, what: str, yes: bool, change: Callable[[AccountsClient, int], str]) -> int:
    """Change an account that is there, once a person has said so."""
    found = _number(number)
    if not yes and not output.is_terminal():
        raise WrongUse("without a terminal this needs --yes")
    with _client(context) as client:
        account = _standing(client, found)
        if not yes:
            described = printable(f"{account.gateway_name} ({account.gateway_display_name or 'no display name'})")
            click.confirm(f"{what}: account {account.id}, {described}?", abort=True, err=True)
        message = change(client, found)
    output.tell(context, {"message": message}, printable(message))
    return 0


def _node_of_options(options: dict[str, Any], *, update: bool) -> dict[str, int | str]:
    """Check the attributes given by options, then fetch the secret that is needed; raises WrongUse."""
    from batchpay.schemas.account import check_accounts, wire_node

    cells: dict[str, str | None] = {name: value for name, value in options.items() if name not in _NOT_ATTRIBUTES}
    cells["enabled"] = cells["enabled"] or "1"
    name = cells["gateway_name"] or ""
    secret = {"processorA": "pin", "processorB": "password"}.get(name.rpartition("_")[0])
    stand_in = {secret: "stand-in"} if secret else {}
    failures = check_accounts([{**cells, **stand_in}], update=update)
    if not failures and secret:
        cells[secret] = _secret(secret, options[f"{secret}_file"])
        failures = check_accounts([cells], update=update)
    if failures:
        raise WrongUse("; ".join(f"{failure.attribute}: {failure.message}" for failure in failures))
    return wire_node(cells)


def _secret(name: str, file: str | None) -> str:
    """Fetch a secret from its file, the environment, or a prompt without echo."""
    from batchpay.settings import read_secret_file

    if file:
        return read_secret_file(Path(file), f"--{name}-file").reveal()
    variable = f"BATCHPAY_GATEWAY_{name.upper()}"
    text = os.environ.pop(variable, "")
    if text:
        return text
    if not output.is_terminal():
        raise WrongUse(f"{name}: is missing; set {variable}, or give --{name}-file")
    entered: str = click.prompt(name, hide_input=True, err=True)
    return entered


def _show_node(context: Context, node: dict[str, int | str]) -> int:
    from batchpay.schemas.columns import ACCOUNT_SECRETS

    shown = {name: "****" if name in ACCOUNT_SECRETS else value for name, value in node.items()}
    text = "\n".join(printable(f"{name:<14} {value}") for name, value in shown.items())
    output.tell(context, {"gateway": shown}, text)
    output.say(context, "dry run: nothing was sent")
    return 0


def _print_accounts(accounts: list[GatewayAccount], deleted: Container[int] = ()) -> None:
    names = ("id", "gateway_name", "gateway_display_name", "date_created", "date_updated")
    rows = [
        [*(str(account.as_json()[name] or "") for name in names), "deleted" if account.id in deleted else ""]
        for account in accounts
    ]
    output.print_table((*names, ""), rows, right=frozenset({"id"}))


@click.command(cls=Command, name="test-connection", short_help="Check that the gateway answers and accepts the key.")
@click.pass_obj
def test_connection(context: Context) -> int:
    """Send an empty request to the gateway's connection test and show the answer.

    Example: batchpay test-connection
    """
    from batchpay.workflows.requests import test_gateway

    report = test_gateway(context.settings)
    if context.json:
        output.print_json(context, asdict(report) | {"elapsed_s": round(report.elapsed_s, 3)})
        return 0 if report.ok else RunStopped.exit_code
    answer = "no answer" if report.http_status is None else f"HTTP {report.http_status}"
    message = f", {printable(report.message)}" if report.message else ""
    click.echo(f"{report.origin}: {answer}{message} ({report.elapsed_s * 1000:.0f} ms, {report.tls or 'no TLS'})")
    if not report.ok:
        raise RunStopped(report.problem or "the gateway did not answer as expected")
    return 0
