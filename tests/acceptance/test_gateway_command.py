"""`batchpay gateway` as a person or a script runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.support.command import Home
from tests.support.sandbox_requests import control

CREATE_C = ("--gateway-name=processorC_cc", "--mode=test", "--accept-amex=0", "--active-level2=0", "--active-level3=1")
CREATE_A = ("--gateway-name=processorA_ach", "--mode=live", "--active-level2=0", "--active-level3=0", "--user-id=clerk")


@pytest.fixture
def gateway(home: Home, server: str) -> Home:
    """A home whose gateway is a sandbox in its initial state."""
    control(server, "POST", "reset")
    home.origin = server
    return home


def fails(gateway: Home, *arguments: str, code: int, names: str) -> str:
    """Run a command that must fail with one line, naming something, and nothing on standard output."""
    done = gateway.run("gateway", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert names in done.stderr
    return done.stderr


def changes(gateway: Home) -> int:
    """Return how many requests other than reads have arrived."""
    counted = control(gateway.origin, "GET", "journal")["counts"]
    return sum(counted[name]["arrived"] for name in counted if name not in ("account_list", "account_get"))


def test_list_and_get(gateway: Home) -> None:
    """A table for people, the documented JSON for scripts."""
    table = gateway.run("gateway", "list").stdout.splitlines()
    assert table[0].split() == ["id", "gateway_name", "gateway_display_name", "date_created", "date_updated"]
    assert [line.split()[0] for line in table[1:]] == ["1001", "1002", "1003", "1004"]
    assert [account["id"] for account in gateway.json("gateway", "list")["gateways"]] == [1001, 1002, 1003, 1004]
    assert gateway.json("gateway", "list", "--deleted") == {"gateways": []}
    assert gateway.json("gateway", "get", "1003")["gateway"]["gateway_name"] == "processorA_cc"


def test_an_account_from_create_to_delete(gateway: Home) -> None:
    """Create, update, default and delete print the documented JSON, and list distinguishes deleted accounts."""
    number = gateway.json("gateway", "create", *CREATE_C)["gateway_id"]
    assert number == 1005
    update = (
        "--gateway-name=processorC_cc",
        "--mode=live",
        "--accept-amex=1",
        "--active-level2=1",
        "--active-level3=1",
    )
    assert gateway.json("gateway", "update", str(number), *update) == {"message": "Updated"}
    assert gateway.json("gateway", "default", str(number), "--yes") == {"message": "Default Gateway Account Success"}
    assert gateway.json("gateway", "delete", str(number), "--yes") == {"message": "Deleted"}
    assert [account["id"] for account in gateway.json("gateway", "list", "--deleted")["gateways"]] == [number]
    assert number not in [account["id"] for account in gateway.json("gateway", "list", "--not-deleted")["gateways"]]
    whole = gateway.json("gateway", "list")["gateways"]
    assert [account["id"] for account in whole if account["deleted"]] == [number], "it looked like one that can be used"
    table = gateway.run("gateway", "list").stdout.splitlines()
    assert [line.split()[0] for line in table if line.endswith("deleted")] == [str(number)]


def test_secrets_come_from_environment_or_file(gateway: Home) -> None:
    """The pin of an account comes from BATCHPAY_GATEWAY_PIN or a private file, and is shown nowhere."""
    gateway.extra["BATCHPAY_GATEWAY_PIN"] = "8675309"
    shown = gateway.run("gateway", "create", *CREATE_A, "--account-id=5", "--dry-run")
    assert "8675309" not in shown.stdout + shown.stderr
    assert "****" in shown.stdout
    assert changes(gateway) == 0
    assert gateway.json("gateway", "create", *CREATE_A, "--account-id=5") == {"gateway_id": 1005}
    del gateway.extra["BATCHPAY_GATEWAY_PIN"]
    file = gateway.path / "pin"
    file.write_text("8675309\n")
    file.chmod(0o644)
    fails(gateway, "create", *CREATE_A, "--account-id=5", "--pin-file=pin", code=5, names="0600")
    file.chmod(0o600)
    assert gateway.json("gateway", "create", *CREATE_A, "--account-id=5", "--pin-file=pin") == {"gateway_id": 1006}


def test_no_secret_is_an_option(gateway: Home) -> None:
    """A pin on the command line, where every process can read it, is refused without being repeated."""
    done = gateway.run("gateway", "create", *CREATE_A, "--account-id=5", "--pin=8675309")
    assert done.returncode == 2
    assert "8675309" not in done.stdout + done.stderr
    assert "--pin-file" in gateway.run("gateway", "create", "--help").stdout


BAD_INPUT = [
    (("get", "4711"), 3, "id"),
    (("get", "abc"), 2, "id"),
    (("update", "4711", *CREATE_C), 2, "id"),
    (("delete", "4711", "--yes"), 2, "id"),
    (("default", "-1", "--yes"), 2, "-1"),
    (("delete", "1001"), 2, "--yes"),
    (("default", "1001"), 2, "--yes"),
    (("create", *CREATE_C, "--mode=production"), 2, "mode"),
    (("create", *CREATE_C, "--accept-amex=yes"), 2, "accept_amex"),
    (("create", *CREATE_A, "--account-id=letters"), 2, "account_id"),
    (("create", *CREATE_A, "--account-id=5"), 2, "pin"),
    (("create",), 2, "gateway_name"),
    (("update", "1004", *CREATE_C, "--gateway-name=processorB_ach"), 2, "gateway_name"),
    (("update", "1002", *CREATE_C), 2, "gateway_name"),
    (("update",), 2, "ID"),
]


@pytest.mark.parametrize(("arguments", "code", "names"), BAD_INPUT, ids=[" ".join(item[0]) for item in BAD_INPUT])
def test_bad_input_is_named_and_changes_nothing(
    gateway: Home, arguments: tuple[str, ...], code: int, names: str
) -> None:
    """One line that names the field; no change leaves the machine."""
    done = gateway.run("gateway", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert names in done.stderr
    assert changes(gateway) == 0


def test_a_deleted_account_is_named(gateway: Home) -> None:
    """No further request is sent about a deleted account."""
    gateway.json("gateway", "delete", "1004", "--yes")
    for arguments in (("delete", "1004", "--yes"), ("default", "1004", "--yes"), ("update", "1004", *CREATE_C)):
        fails(gateway, *arguments, code=2, names="deleted")
    assert changes(gateway) == 1


def test_a_lost_answer_is_reported_as_in_doubt(gateway: Home) -> None:
    """Exit code 7, one line with how to check; the request was sent once."""
    control(gateway.origin, "POST", "faults", [{"fault": "silent", "operation": "account_create"}])
    line = fails(gateway, "create", *CREATE_C, code=7, names="in doubt")
    assert "batchpay gateway list" in line
    assert changes(gateway) == 1


def test_a_terminal_is_asked(gateway: Home) -> None:
    """On a terminal delete asks first; `n` leaves the account as it was and exits with 2, `y` deletes it."""
    for answer, code in (("n\n", 2), ("y\n", 0)):
        master, slave = pty.openpty()
        with gateway.start("gateway", "delete", "1004", stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            os.write(master, answer.encode())
            asked = b""
            while True:
                try:
                    asked += os.read(master, 4096)
                except OSError:
                    break
            assert process.wait() == code
        os.close(master)
        assert b"1004" in asked
    assert changes(gateway) == 1


def test_help_is_light() -> None:
    """Help of the group imports neither polars nor pandera nor requests."""
    code = "import sys; from batchpay.cli.main import cli; cli.main(['gateway', 'create', '-h'], standalone_mode=False)"
    code += "; sys.exit(any(name in sys.modules for name in ('polars', 'pandera', 'requests', 'flask')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
