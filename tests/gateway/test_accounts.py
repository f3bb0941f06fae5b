"""The account client; and what is asked before any payment: our access, and whether the accounts take payments."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tenacity

from batchpay.errors import BatchpayError, CredentialsRefused, GatewayUnreachable, RunStopped
from batchpay.gateway import accounts
from batchpay.gateway.accounts import (
    ATTEMPTS_MAX,
    NOT_ECHECK,
    UNKNOWN,
    AccountRefused,
    AccountsClient,
    GatewayAccount,
    Preflight,
)
from batchpay.gateway.payments import ConnectionReport
from batchpay.settings import GatewaySettings
from tests.support.fault_client import CREDENTIALS, KEY, settings_for
from tests.support.fault_server import Fault, FaultServer, answer

PIN = "8675309"


@contextmanager
def answering(status: str, value: dict[str, Any]) -> Iterator[AccountsClient]:
    """A client of a gateway that gives every request this answer."""
    whole = answer(status, json.dumps(value).encode())
    with FaultServer(Fault(frozenset(), on_request=lambda conversation: conversation.write(whole))) as server:
        client = AccountsClient(settings_for(server), CREDENTIALS, wait=lambda _: 0.0)
        yield client
        client.close()


def told(message: Any) -> dict[str, Any]:
    return {"status": "success", "successMessage": {"response_code": 305, "message": message}}


def test_a_change_that_never_left_is_tried_again() -> None:
    """A gateway that is restarted for a moment: the person need not call again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    attempts: list[int] = []

    def wait(state: tenacity.RetryCallState) -> float:
        attempts.append(state.attempt_number)
        return 0.0

    client = AccountsClient(GatewaySettings(base_url=f"http://127.0.0.1:{port}"), CREDENTIALS, wait=wait)
    for call in (client.accounts, lambda: client.delete(1001)):
        with pytest.raises(GatewayUnreachable):
            call()
        assert attempts[-1] == ATTEMPTS_MAX
    client.close()


def test_what_an_answer_repeats_of_our_secrets_is_not_shown() -> None:
    """A gateway that names the caller, or the PIN that it was given: commands print it, and files keep it."""
    words = f"caller {KEY}\x1b[2J, pin {PIN}\r\n"
    shown = "caller ****nary [2J, pin ****5309"
    account = {"id": 1001, "gateway_name": "processorA_ach", "gateway_display_name": words}
    with answering("200 OK", told({"gateways": [account]})) as client:
        assert client.accounts()[0].gateway_display_name == shown.replace("****5309", PIN)  # an answer to no change
    with answering("200 OK", told(words)) as client:
        assert client.update(1001, {"pin": PIN}) == shown
    with answering("400 Bad Request", {"status": "failed", "message": words}) as client:
        with pytest.raises(AccountRefused) as refused:
            client.create({"gateway_name": "processorA_ach", "pin": PIN})
        assert str(refused.value) == f"the gateway refused: {shown}"


def test_the_answer_for_another_account_is_none() -> None:
    """It said that the account takes no bank payments, and all rows of the account asked for were rejected."""
    other: dict[str, Any] = {"gateway": {"id": 1002, "gateway_name": "processorC_cc"}}
    with answering("200 OK", told(other)) as client, pytest.raises(RunStopped, match="not recognized"):
        client.get(1001)
    other["gateway"]["gateway_name"] = "processorA_ach"
    with answering("200 OK", told(other)) as client:
        assert client.get(1001).is_echeck, "nothing is rejected by it, so nothing has to stop"


class Gateway:
    """Stands for both clients: a report of the connection, and accounts by id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.report = ConnectionReport(True, "https://x", 200, 0.1, None, None, None)
        self.kinds: dict[int, str] = {}
        self.asked: list[int] = []
        self.open = 0
        for name in ("PaymentsClient", "AccountsClient"):
            monkeypatch.setattr(accounts, name, self._opened)

    def _opened(self, settings: object, credentials: object) -> Gateway:
        assert isinstance(settings, GatewaySettings)
        assert credentials is CREDENTIALS
        self.open += 1
        return self

    def test_connection(self) -> ConnectionReport:
        return self.report

    def get(self, number: int) -> GatewayAccount:
        self.asked.append(number)
        if number not in self.kinds:
            raise AccountRefused("no such account")
        return GatewayAccount(number, None, self.kinds[number], None, None, None)

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    return Gateway(monkeypatch)


@pytest.mark.parametrize(("http_status", "problem", "error"), [
    (200, None, None), (401, "refused", CredentialsRefused), (403, "refused", CredentialsRefused),
    (404, "no such path", GatewayUnreachable), (500, "not recognized", GatewayUnreachable),
    (None, "no answer in time", GatewayUnreachable),
])  # fmt: skip
def test_a_gateway_that_does_not_know_us_stops_everything(
    gateway: Gateway, http_status: int | None, problem: str | None, error: type[BatchpayError] | None
) -> None:
    """Only 401 and 403 say something of the key."""
    fields: dict[str, Any] = {"ok": problem is None, "http_status": http_status, "problem": problem}
    gateway.report = ConnectionReport(origin="https://x", elapsed_s=0.1, tls=None, message=None, **fields)
    asking = Preflight(GatewaySettings(), CREDENTIALS)
    if error is None:
        asking.check_connection()
    else:
        with pytest.raises(BatchpayError, match=str(problem)) as raised:
            asking.check_connection()
        assert type(raised.value) is error
    assert gateway.open == 0


def test_each_account_is_asked_for_once(gateway: Gateway) -> None:
    """One that is not there and one for cards refuse their rows; another look asks only for what is new."""
    gateway.kinds = {1001: "processorA_ach", 1002: "processorA_cc", 1004: "processorB_ach"}
    asking = Preflight(GatewaySettings(), CREDENTIALS)
    refused = {"1002": NOT_ECHECK, "1003": UNKNOWN, "x": UNKNOWN}
    assert asking.refused(["1001", "1002", "1001", "1003", "x"]) == refused
    assert asking.refused(["1003", "1004", "1001"]) == {"1003": UNKNOWN}
    assert (gateway.asked, gateway.open) == ([1001, 1002, 1003, 1004], 0)
