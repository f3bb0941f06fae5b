"""The account API: list, get, create, update, delete and default of gateway accounts."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Blueprint, Response, request

from batchpay.sandbox.checks import account_problems
from batchpay.sandbox.dialects import Problem, Reply, success
from batchpay.sandbox.exchange import Refused, Sandbox, SandboxExchange, no_body
from batchpay.sandbox.faults import table
from batchpay.sandbox.store import Account

HEADERS = ("svs-api-id", "svs-api-key")
_KINDS = {line["gateway_name"]: line for line in table("processors.csv")}
"""Type ids and display names are made up; the interface says only that there are some."""
_SECRETS = ("pin", "password")


def account_api(sandbox: Sandbox) -> Blueprint:
    """Create the routes under /demoapi."""
    blueprint = Blueprint("accounts", __name__, url_prefix="/demoapi")
    for method, path, operation in (
        ("GET", "/gateways.json", "account_list"),
        ("POST", "/gateway.json", "account_create"),
        ("GET", "/gateway.json/<number>", "account_get"),
        ("POST", "/gateway.json/<number>/update", "account_update"),
        ("POST", "/gateway.json/<number>/delete", "account_delete"),
        ("POST", "/gateway.json/<number>/default", "account_default"),
    ):
        view = partial(_view, sandbox, operation)
        blueprint.add_url_rule(path, operation, view, methods=[method], provide_automatic_options=False)
    return blueprint


def _view(sandbox: Sandbox, operation: str, number: str = "") -> Response:
    def reply(exchange: SandboxExchange) -> Reply:
        return Reply.of_json(200, success(*_done(sandbox, exchange, operation, number)))

    return sandbox.exchange(operation, HEADERS, request, reply)


def _done(sandbox: Sandbox, exchange: SandboxExchange, operation: str, number: str) -> tuple[int, Any]:
    """Do what is asked for; return the response_code and the message of a success."""
    store = sandbox.store
    if operation == "account_list":
        deleted = request.args.get("deleted")
        if deleted not in (None, "0", "1"):
            raise Refused("fields", Problem("deleted", "must be 0 or 1"))
        accounts = store.accounts(None if deleted is None else deleted == "1")
        return 404, {"gateways": [_shown(account) for account in accounts]}
    if operation == "account_get":
        return 305, {"gateway": _shown(_found(sandbox, number))}
    if operation == "account_create":
        return 400, {"gateway": {"gateway_id": store.create_account(_submitted(exchange, update=False))}}
    if operation == "account_update":
        account = _standing(sandbox, number)
        store.update_account(account.id, _submitted(exchange, update=True))
        return 401, "Updated"
    no_body(exchange)
    if operation == "account_delete":
        store.delete_account(_standing(sandbox, number).id)
        return 402, "Deleted"
    store.make_default(_standing(sandbox, number))
    return 401, "Default Gateway Account Success"


def _found(sandbox: Sandbox, number: str) -> Account:
    account = sandbox.store.account(int(number)) if number.isascii() and number.isdigit() else None
    if account is None:
        raise Refused("no_account", Problem("id", "no such gateway account"))
    return account


def _standing(sandbox: Sandbox, number: str) -> Account:
    """Find an account that can be changed: a deleted one can't be, we assume."""
    account = _found(sandbox, number)
    if account.deleted:
        raise Refused("state", Problem("id", "the gateway account is deleted"))
    return account


def _submitted(exchange: SandboxExchange, *, update: bool) -> dict[str, Any]:
    """Check the submitted node and return its attributes, secrets masked."""
    body = exchange.json_object()
    problems = account_problems(body, update=update)
    if problems:
        raise Refused("fields", *problems)
    return {name: "****" if name in _SECRETS else value for name, value in body["gateway"].items()}


def _shown(account: Account) -> dict[str, Any]:
    kind = _KINDS[account.gateway_name]
    return {
        "id": account.id,
        "gateway_type_id": int(kind["type_id"]),
        "gateway_name": account.gateway_name,
        "gateway_display_name": kind["display_name"],
        "date_updated": account.date_updated,
        "date_created": account.date_created,
    }
