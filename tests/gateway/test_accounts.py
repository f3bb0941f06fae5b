"""The account client: what it tries again, and what it takes from an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tenacity

from batchpay.errors import GatewayUnreachable, RunStopped
from batchpay.gateway.accounts import ATTEMPTS_MAX, AccountRefused, AccountsClient
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
