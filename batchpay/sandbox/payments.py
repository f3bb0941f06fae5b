"""The payment API: connection test and payment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request

from batchpay.sandbox.checks import payment_problems
from batchpay.sandbox.dialects import Problem, Reply
from batchpay.sandbox.exchange import Refused, Sandbox, SandboxExchange, no_body
from batchpay.sandbox.faults import CONTRADICTIONS, ending_of, fault_of_ending


def payment_api(sandbox: Sandbox) -> Blueprint:
    """Create the routes under /v2/api."""
    blueprint = Blueprint("payments", __name__, url_prefix="/v2/api")
    word = sandbox.options.service_header
    headers = (f"{word}-API-ID", f"{word}-API-KEY")

    @blueprint.post("/connection.json")
    def connection() -> Response:
        def act(exchange: SandboxExchange) -> Reply:
            no_body(exchange)
            return sandbox.dialect.connected_reply()

        return sandbox.exchange("connection", headers, request, act)

    @blueprint.post("/payment.json")
    def payment() -> Response:
        return sandbox.exchange("payment", headers, request, lambda exchange: _pay(sandbox, exchange))

    @blueprint.post("/payment")
    def payment_by_query() -> Response:
        def act(exchange: SandboxExchange) -> Reply:
            if request.args.get("format") != "json":
                raise Refused("fields", Problem("format", "must be json"))
            return _pay(sandbox, exchange)

        return sandbox.exchange("payment", headers, request, act)

    return blueprint


def _pay(sandbox: Sandbox, exchange: SandboxExchange) -> Reply:
    """Check a payment, do what its account asks for, and otherwise make it."""
    body = exchange.json_object()
    problems = payment_problems(body)
    if not problems:
        problems = _account_problems(sandbox, body)
    if problems:
        raise Refused("fields", *problems)
    ending = ending_of(str(body["ach"]["achAccountNumber"]))
    if ending and exchange.fault is None and not (ending.once and exchange.times > 1):
        exchange.fault = fault_of_ending(ending)
        if not exchange.fault.after:
            return sandbox.fault_reply(exchange.fault)
    exchange.made = sandbox.store.make_payment(body, body.get("recurring"))
    fault = exchange.fault.name if exchange.fault else ""
    if exchange.fault and fault == "returned":
        sandbox.store.come_back(exchange.made, exchange.fault.code, body)
        sandbox.keep_returns()
    told = replace(exchange.made, number=1) if fault == "same_reference" else exchange.made
    return sandbox.dialect.made_reply(told, CONTRADICTIONS.get(fault))


def _account_problems(sandbox: Sandbox, body: dict[str, Any]) -> list[Problem]:
    """Check that the gateway account exists, is not deleted, and is one for eChecks."""
    number = body["gatewayId"]
    account = sandbox.store.account(number) if isinstance(number, int) else None
    if account is None or account.deleted:
        return [Problem("gatewayId", "no such gateway account")]
    return [] if account.kind == "ach" else [Problem("gatewayId", "is not an eCheck account")]
