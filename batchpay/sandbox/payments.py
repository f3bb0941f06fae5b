"""The payment API: connection test and payment."""

from __future__ import annotations

from dataclasses import replace

from flask import Blueprint, Response, request

from batchpay.sandbox.checks import payment_problems
from batchpay.sandbox.dialects import Problem, Reply
from batchpay.sandbox.exchange import Refused, Sandbox, SandboxExchange, no_body
from batchpay.sandbox.faults import CONTRADICTIONS, Fault, ending_of


def payment_api(sandbox: Sandbox) -> Blueprint:
    """Create the routes under /v2/api."""
    blueprint = Blueprint("payments", __name__, url_prefix="/v2/api")
    word = sandbox.options.service_header
    headers = (f"{word}-API-ID", f"{word}-API-KEY")

    @blueprint.post("/connection.json")
    def connection() -> Response:
        def act(exchange: SandboxExchange) -> Reply:
            no_body(exchange)
            return Reply.of_json(200, sandbox.dialect.connected())

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
    if problems:
        raise Refused("fields", *problems)
    account = sandbox.store.account(body["gatewayId"])
    if account is None or account.deleted:
        raise Refused("fields", Problem("gatewayId", "no such gateway account"))
    if account.kind != "ach":
        raise Refused("fields", Problem("gatewayId", "is not an eCheck account"))
    ending = ending_of(str(body["ach"]["achAccountNumber"]))
    if ending and exchange.fault is None and not (ending.once and exchange.times > 1):
        exchange.fault = Fault(ending.fault, code=ending.code or "R01")
        if not exchange.fault.after:
            return sandbox.fault_reply(exchange.fault)
    exchange.made = sandbox.store.make_payment(body, body.get("recurring"))
    fault = exchange.fault.name if exchange.fault else ""
    if exchange.fault and fault == "returned":
        sandbox.store.come_back(exchange.made, exchange.fault.code, body)
        sandbox.keep_returns()
    told = replace(exchange.made, number=1) if fault == "same_reference" else exchange.made
    dialect = sandbox.dialect
    return Reply.of_json(dialect.made_status, {**dialect.made(told), **CONTRADICTIONS.get(fault, {})})
