"""A payments client for the fault server, and a body whose account must never show."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

from batchpay.gateway.credentials import Credentials
from batchpay.gateway.payments import PaymentsClient
from batchpay.payment import State
from batchpay.settings import GatewaySettings, Secret
from tests.support.fault_server import Fault, FaultServer

ACCOUNT, ROUTING, KEY = "4111222233334444", "123456780", "api-key-canary"
CREDENTIALS = Credentials("api-id", Secret(KEY))
GOOD = Fault(frozenset({State.ACCEPTED}))
GOOD_TLS = Fault(frozenset({State.ACCEPTED}), tls="good")


def body(invoice: str = "one") -> bytes:
    """Return a payment's JSON."""
    ach = {"achAccountNumber": ACCOUNT, "achRoutingNumber": ROUTING}
    return json.dumps({"invoiceNumber": invoice, "amount": "12.50", "ach": ach}).encode()


def nothing() -> None:
    """A commit that always succeeds."""


def settings_for(server: FaultServer, **changes: Any) -> GatewaySettings:
    """Return settings that point to the server."""
    return GatewaySettings(**{"base_url": server.base_url, "timeout": 2.0, **changes})


@contextlib.contextmanager
def client_of(server: FaultServer, **changes: Any) -> Iterator[PaymentsClient]:
    """Yield a client of the server, closed at the end."""
    client = PaymentsClient(settings_for(server, **changes), CREDENTIALS)
    try:
        yield client
    finally:
        client.close()


def write_bundle(authority: trustme.CA, directory: Path) -> str:
    """Write an authority as a PEM file for gateway.ca_bundle."""
    path = str(directory / "authority.pem")
    authority.cert_pem.write_to_path(path)
    return path
