"""Requests to a running sandbox as a plain HTTP client makes them: nothing of batchpay's own client is involved."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

import requests

_JSON = {"Content-Type": "application/json"}
PAYMENT_HEADERS = {"SERVICE-API-ID": "sandbox", "SERVICE-API-KEY": "sandbox-key", **_JSON}
ACCOUNT_HEADERS = {"svs-api-id": "sandbox", "svs-api-key": "sandbox-key", **_JSON}
TIMEOUT_S = 20


def payment_body(account_number: str = "1234567890", **changes: Any) -> dict[str, Any]:
    """Return a one-time payment that the sandbox makes; `changes` replace members of the top level."""
    body: dict[str, Any] = {
        "gatewayId": 1001,
        "transactionType": "DEBIT",
        "recurringIndicator": "FALSE",
        "amount": "12.50",
        "billing": {"billingFirstName": "Zoë", "billingLastName": "O'Brien"},
        "shipping": {"shippingFirstName": "Zoë", "shippingLastName": "O'Brien"},
        "ach": {
            "achNameOnCheck": "Zoë O'Brien",
            "achAccountNumber": account_number,
            "achRoutingNumber": "011000190",
            "achAccountType": "PERSONAL",
            "achDepositType": "CHECKING",
            "achAgreementFlag": 1,
        },
    }
    return {**body, **changes}


def recurring_body(**changes: Any) -> dict[str, Any]:
    """Return a recurring payment; `changes` replace members of its `recurring` node."""
    recurring = {
        "recurringStartDate": "01/31/2030",
        "recurringBillingCycle": "MONTHLY",
        "recurringEndOfMonth": "N",
        "recurringNumOfPayments": "4",
        "recurringAgreementFlag": 1,
        "achSecCode": "PPD",
    }
    return payment_body(recurringIndicator="TRUE", recurring={**recurring, **changes})


def account_node(name: str = "processorA_ach", **changes: Any) -> dict[str, Any]:
    """Return a gateway account that the sandbox accepts; a change to None removes the attribute."""
    node: dict[str, Any] = {
        "enabled": 1,
        "mode": "test",
        "gateway_name": name,
        "active_level2": 0,
        "active_level3": 1,
    }
    if name.endswith("_cc"):
        node["accept_amex"] = 1
    if name.startswith("processorA"):
        node |= {"account_id": 5150, "user_id": "clerk", "pin": "8675309"}
    if name.startswith("processorB"):
        node |= {"login": "clerk", "password": "tr0ub4dor", "vt_template": "standard"}
    return {key: value for key, value in {**node, **changes}.items() if value is not None}


def with_cell(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of a body with one member (dotted) replaced, or removed by None."""
    changed = copy.deepcopy(body)
    node = changed
    *parents, name = path.split(".")
    for parent in parents:
        node = node[parent]
    if value is None:
        del node[name]
    else:
        node[name] = value
    return changed


def pay(url: str, body: Any, path: str = "/v2/api/payment.json", **more: Any) -> requests.Response:
    """POST a payment."""
    return requests.post(url + path, json=body, headers=PAYMENT_HEADERS, timeout=TIMEOUT_S, **more)


def account_request(url: str, method: str, path: str, body: Any = None) -> requests.Response:
    """Send a request to the account API."""
    headers = dict(ACCOUNT_HEADERS)
    return requests.request(method, f"{url}/demoapi/{path}", json=body, headers=headers, timeout=TIMEOUT_S)


def control(url: str, method: str, path: str, body: Any = None) -> Any:
    """Send a request to the sandbox itself; return its JSON answer."""
    return requests.request(method, f"{url}/_sandbox/{path}", json=body, timeout=TIMEOUT_S).json()


def payment_bytes() -> bytes:
    """Return a payment as it is on the wire, with an invoice number of its own."""
    return json.dumps(payment_body(invoiceNumber=uuid.uuid4().hex)).encode()
