"""Exceptions prove nothing, bytes do: every class of the libraries, raised in every phase of an exchange."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import socket
import ssl
from typing import Any

import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from batchpay.gateway.connection import Connection, Connector
from batchpay.payment import State
from tests.support.fault_client import (
    ACCOUNT,
    GOOD,
    KEY,
    body,
    client_of,
    nothing,
)
from tests.support.fault_server import FaultServer


def exception_classes() -> list[type[BaseException]]:
    """Every exception class of requests, urllib3, ssl and the network."""
    found = {
        cls
        for module in (requests.exceptions, urllib3.exceptions, ssl, socket, builtins)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Exception) and not issubclass(cls, Warning)
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def make(cls: type[BaseException]) -> BaseException:
    """An instance whose text holds what must not be shown, whatever its constructor wants."""
    if issubclass(cls, BaseExceptionGroup):
        return cls(KEY, [ValueError(ACCOUNT)])
    error = cls.__new__(cls)
    error.args = (f"{ACCOUNT} {KEY}",)
    for name, value in (("reason", KEY), ("verify_message", "expired"), ("_message", KEY), ("msg", KEY)):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, name, value)
    return error


class Raising(Connection):
    """A connection that fails in a chosen phase."""

    error: BaseException
    phase: str

    def send(self, data: memoryview, deadline: float) -> int:
        if self.phase == "write":
            raise self.error
        return super().send(data, deadline)

    def receive(self, deadline: float) -> bytes:
        if self.phase == "read":
            raise self.error
        return super().receive(deadline)


@pytest.mark.parametrize("cls", exception_classes())
def test_every_exception_is_judged_by_bytes_alone(cls: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever class comes up: before the first byte the payment is pending, from then on in doubt; no text is kept."""
    error = make(cls)

    def fail_to_look_up(*_: Any) -> Any:
        raise error

    with FaultServer(GOOD) as server:
        for phase, expected in (("connect", State.PENDING), ("write", State.IN_DOUBT), ("read", State.IN_DOUBT)):
            with client_of(server) as client, monkeypatch.context() as patch:
                if phase == "connect":
                    patch.setattr(Connector, "_connect", fail_to_look_up)
                else:
                    patch.setattr("batchpay.gateway.connection.Connection", Raising)
                    patch.setattr(Raising, "error", error, raising=False)
                    patch.setattr(Raising, "phase", phase, raising=False)
                outcome = client.pay(body(phase), nothing)
            assert outcome.state is expected, (phase, outcome)
            assert (outcome.bytes_sent > 0) is (expected is State.IN_DOUBT)
            assert ACCOUNT not in repr(outcome)
            if not isinstance(error, ssl.SSLError):
                assert KEY not in repr(outcome)
