"""The client of the account API against the sandbox: every operation, every dialect, every way to lose an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tenacity

from batchpay.errors import CredentialsRefused, RunStopped
from batchpay.gateway.accounts import ATTEMPTS_MAX, AccountInDoubt, AccountRefused, AccountsClient, account_id
from batchpay.gateway.credentials import Credentials
from batchpay.sandbox.dialects import DIALECTS
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from batchpay.settings import GatewaySettings, Secret
from tests.support.openapi import Description
from tests.support.sandbox_requests import account_node, control


@contextmanager
def client_of(url: str, key: str = "sandbox-key", **settings: Any) -> Iterator[AccountsClient]:
    client = AccountsClient(
        GatewaySettings(base_url=url, timeout=5, **settings),
        Credentials("sandbox", Secret(key)),
        wait=tenacity.wait_none(),
    )
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def client(url: str) -> Iterator[AccountsClient]:
    with client_of(url) as opened:
        yield opened


def arrived(url: str, operation: str) -> int:
    counted: int = control(url, "GET", "journal")["counts"][operation]["arrived"]
    return counted


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_operation_in_every_dialect(dialect: str) -> None:
    """List, get, create, update, default and delete do what they say, however the gateway words its errors."""
    profile = dict(DIALECTS[dialect].profile)
    with running(Options(port=0, dialect=dialect)) as url, client_of(url, profile=profile) as client:
        assert [account.id for account in client.accounts()] == [1001, 1002, 1003, 1004]
        number = client.create(account_node("processorA_ach"))
        account = client.get(number)
        assert (account.id, account.gateway_name, account.is_echeck) == (number, "processorA_ach", True)
        assert client.update(number, account_node("processorC_cc")) == "Updated"
        assert client.get(number).gateway_name == "processorC_cc"
        assert client.make_default(number) == "Default Gateway Account Success"
        assert client.delete(number) == "Deleted"
        assert number in {account.id for account in client.accounts(deleted=True)}
        assert number not in {account.id for account in client.accounts(deleted=False)}
        for refused in (lambda: client.get(4711), lambda: client.delete(number), lambda: client.make_default(4711)):
            with pytest.raises(AccountRefused, match="account"):
                refused()
        with pytest.raises(AccountRefused, match="mode"):
            client.create(account_node(mode="prod"))


def test_every_request_is_as_described(url: str, client: AccountsClient) -> None:
    """What the client sends keeps to the description of the interface, path, query and body."""
    client.accounts()
    client.accounts(deleted=True)
    client.accounts(deleted=False)
    client.get(1001)
    for name in ("processorA_cc", "processorA_ach", "processorB_ach", "processorC_cc"):
        client.create(account_node(name))
    client.update(1005, account_node("processorA_cc"))
    client.make_default(1005)
    client.delete(1005)
    description = Description()
    requests = control(url, "GET", "journal")["requests"]
    assert len(requests) == 11
    for request in requests:
        assert description.request_problems(request["method"], request["path"], request["body"]) == []


@pytest.mark.parametrize(
    "fault", ["silent", "reset_after", "reset_before", "truncated", "garbage", "empty", "error_500"]
)
def test_a_create_without_an_answer_is_in_doubt(url: str, client: AccountsClient, fault: str) -> None:
    """Bytes left and nothing recognisable came back: sent once, said to be in doubt, with how to look."""
    control(url, "POST", "faults", [{"fault": fault, "operation": "account_create"}])
    with pytest.raises(AccountInDoubt, match="batchpay gateway list"):
        client.create(account_node())
    assert arrived(url, "account_create") == 1


@pytest.mark.parametrize("operation", ["update", "delete", "make_default"])
def test_other_changes_without_an_answer_are_in_doubt(url: str, client: AccountsClient, operation: str) -> None:
    """Update, delete and default are not repeated either."""
    control(url, "POST", "faults", [{"fault": "silent", "operation": "accounts"}])
    arguments = (1001, account_node()) if operation == "update" else (1001,)
    with pytest.raises(AccountInDoubt, match="in doubt"):
        getattr(client, operation)(*arguments)
    name = {"make_default": "account_default"}.get(operation, f"account_{operation}")
    assert arrived(url, name) == 1


@pytest.mark.parametrize("fault", ["busy", "unavailable", "error_500", "silent", "truncated", "garbage"])
def test_a_read_is_repeated(url: str, client: AccountsClient, fault: str) -> None:
    """A list that got no usable answer is asked for again."""
    control(url, "POST", "faults", [{"fault": fault, "operation": "account_list", "times": 2}])
    assert len(client.accounts()) == 4
    assert arrived(url, "account_list") == 3


@pytest.mark.parametrize(
    ("fault", "told"),
    [("error_500", "not recognized"), ("silent", "the connection was closed"), ("garbage", "not recognized")],
)
def test_a_read_is_not_repeated_for_ever(url: str, client: AccountsClient, fault: str, told: str) -> None:
    """After some attempts the read gives up, and running again is safe; no answer is not told as a strange one."""
    control(url, "POST", "faults", [{"fault": fault, "operation": "account_get"}])
    with pytest.raises(RunStopped) as stopped:
        client.get(1001)
    assert told in str(stopped.value)
    assert ("not recognized" in str(stopped.value)) is (told == "not recognized")
    assert arrived(url, "account_get") == ATTEMPTS_MAX


def test_a_busy_gateway_changes_nothing(url: str, client: AccountsClient) -> None:
    """429 to a change is not repeated, and is no doubt."""
    control(url, "POST", "faults", [{"fault": "busy", "operation": "account_create"}])
    with pytest.raises(RunStopped, match="nothing was changed"):
        client.create(account_node())
    assert arrived(url, "account_create") == 1


def test_refused_credentials_stop_at_once(url: str) -> None:
    """Reads and changes say that the id or key is refused, and the key is not shown."""
    with client_of(url, key="wrong-key") as client:
        for call in (client.accounts, lambda: client.create(account_node())):
            with pytest.raises(CredentialsRefused) as refused:
                call()
            assert "wrong-key" not in str(refused.value)
    assert arrived(url, "account_list") == 1


@pytest.mark.parametrize(("texts", "is_id"), [
    (["1001", "1", str(2**63 - 1)], True),
    (["", "0", "-1", "1.0", "abc", "1 ", "٣", str(2**63), "9" * 5000], False),
])  # fmt: skip
def test_an_id_is_a_positive_whole_number(texts: list[str], is_id: bool) -> None:
    """Digits, from 1 on: no signs, blanks, other scripts' digits, nor numbers beyond any database."""
    assert [account_id(text) for text in texts] == [int(text) if is_id else None for text in texts]


@pytest.mark.parametrize("status", [400, 404, 405, 409, 410, 413, 422])
def test_a_refusal_without_a_word_says_nothing_of_an_account(url: str, client: AccountsClient, status: int) -> None:
    """A proxy's empty 404 rejected every row of the night's files, which were archived, with the quiet exit code 3."""
    control(url, "POST", "faults", [{"fault": "status", "status": status, "operation": "account_get", "every": 1}])
    with pytest.raises(RunStopped, match=f"not recognized .HTTP {status}"):
        client.get(1001)
