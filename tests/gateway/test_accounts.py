"""A change of an account is made once more only where no byte of it left."""

from __future__ import annotations

import socket

import pytest
import tenacity

from batchpay.errors import GatewayUnreachable
from batchpay.gateway.accounts import ATTEMPTS_MAX, AccountsClient
from batchpay.settings import GatewaySettings
from tests.support.fault_client import CREDENTIALS


def test_a_change_that_never_left_is_tried_again() -> None:
    """A gateway that is restarted for a moment: the person need not call again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    attempts: list[int] = []

    def wait(state: tenacity.RetryCallState) -> float:
        attempts.append(state.attempt_number)
        return 0.0

    client = AccountsClient(GatewaySettings(base_url=f"http://127.0.0.1:{port}"), CREDENTIALS, wait=wait)
    with pytest.raises(GatewayUnreachable):
        client.delete(1001)
    client.close()
    assert attempts[-1] == ATTEMPTS_MAX
