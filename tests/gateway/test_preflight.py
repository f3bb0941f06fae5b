"""Before any payment is claimed: does the gateway know us, and can payments go through the accounts of the file."""

from __future__ import annotations

from typing import Any

import pytest

from batchpay.errors import BatchpayError, CredentialsRefused, GatewayUnreachable
from batchpay.gateway import accounts
from batchpay.gateway.accounts import NOT_ECHECK, UNKNOWN, AccountRefused, GatewayAccount, Preflight
from batchpay.gateway.payments import ConnectionReport
from batchpay.settings import GatewaySettings
from tests.support.fault_client import CREDENTIALS


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


@pytest.mark.parametrize(
    ("http_status", "problem", "error"),
    [
        (200, None, None),
        (401, "refused", CredentialsRefused),
        (403, "refused", CredentialsRefused),
        (404, "no such path", GatewayUnreachable),
        (500, "not recognized", GatewayUnreachable),
        (None, "no answer in time", GatewayUnreachable),
    ],
)
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
