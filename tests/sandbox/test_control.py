"""What the sandbox can be told while it runs, what it keeps, and how its command starts and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from batchpay.errors import WrongUse
from batchpay.sandbox.dialects import DIALECTS
from batchpay.sandbox.faults import ENDINGS, NAMES
from batchpay.sandbox.options import Options
from batchpay.sandbox.server import Server, create_app, running
from batchpay.sandbox.store import SandboxStore
from tests.support.output_schemas import require_schema
from tests.support.sandbox_requests import account_request, control, pay, payment_body, recurring_body


def outcome(url: str) -> str:
    """`200` and the like, or what became of the connection."""
    try:
        return str(pay(url, payment_body()).status_code)
    except requests.exceptions.ChunkedEncodingError:
        return "cut"
    except requests.ConnectionError as error:
        return "reset" if "reset" in str(error) else "closed"


FAULTS: list[tuple[dict[str, Any], str, int]] = [
    ({"fault": "decline", "code": "R20"}, "200", 0), ({"fault": "busy"}, "429", 0),
    ({"fault": "error_500"}, "500", 0), ({"fault": "unavailable"}, "503", 0), ({"fault": "error_in_200"}, "200", 0),
    ({"fault": "status", "status": 418}, "418", 0), ({"fault": "reset_before"}, "reset", 0),
    ({"fault": "silent"}, "closed", 1), ({"fault": "reset_after"}, "reset", 1), ({"fault": "truncated"}, "cut", 1),
    ({"fault": "slow", "delay_ms": 1}, "200", 1), ({"fault": "garbage"}, "200", 1), ({"fault": "empty"}, "200", 1),
    *(({"fault": name}, "200", 1) for name in ("declined_inside", "other_amount", "same_reference", "returned")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "expected", "made"), FAULTS)
def test_each_fault_happens(url: str, rule: dict[str, Any], expected: str, made: int) -> None:
    """A rule makes its fault happen, and the journal tells the fault and whether the payment was made."""
    control(url, "POST", "faults", [rule])
    assert outcome(url) == expected
    journal = control(url, "GET", "journal")
    assert journal["counts"]["payment"]["made"] == made
    assert journal["requests"][0]["fault"] == rule["fault"]


def test_every_fault_has_a_test() -> None:
    """The test above knows all faults by name."""
    assert {str(rule["fault"]) for rule, *_ in FAULTS} == set(NAMES)


@pytest.mark.parametrize(("rule", "expected"), [
    ({"at": 3}, [200, 200, 500, 200, 200, 200]), ({"every": 2}, [200, 500, 200, 500, 200, 500]),
    ({"every": 2, "times": 2}, [200, 500, 200, 500, 200, 200]), ({"times": 1}, [500, 200, 200, 200, 200, 200]),
    ({"operation": "connection"}, [200] * 6),
    ({"operation": "any", "at": 1}, [500, 200, 200, 200, 200, 200]),
])  # fmt: skip
def test_a_rule_says_when(url: str, rule: dict[str, Any], expected: list[int]) -> None:
    """`at`, `every`, `times` and `operation` decide which requests are hit."""
    control(url, "POST", "faults", [{"fault": "error_500", **rule}])
    assert [pay(url, payment_body()).status_code for _ in expected] == expected


def test_a_rule_gives_retry_after_to_the_letter(url: str) -> None:
    """Nonsense in Retry-After reaches the client as it was written."""
    control(url, "POST", "faults", [{"fault": "busy", "retry_after": "soon"}])
    assert pay(url, payment_body()).headers["Retry-After"] == "soon"


def test_account_operations_have_faults_too(url: str) -> None:
    """A rule may name one operation of the account API."""
    control(url, "POST", "faults", [{"fault": "error_500", "operation": "account_get"}])
    assert account_request(url, "GET", "gateway.json/1001").status_code == 500
    assert account_request(url, "GET", "gateways.json").status_code == 200


@pytest.mark.parametrize(("rules", "named"), [
    ({}, "list"), ([1], "object"), ([{}], "fault"), ([{"fault": "fire"}], "fault"),
    ([{"fault": "busy", "when": 1}], "when"), ([{"fault": "busy", "at": "1"}], "at"),
    ([{"fault": "busy", "at": 0}], "at"), ([{"fault": "busy", "times": True}], "times"),
    ([{"fault": "busy", "operation": "refund"}], "operation"), ([{"fault": "decline", "code": "R99"}], "code"),
    ([{"fault": "status", "status": 99}], "status"), ([{"fault": "busy", "retry_after": "1\r\nX: y"}], "retry_after"),
])  # fmt: skip
def test_a_wrong_rule_is_named_and_changes_nothing(url: str, rules: Any, named: str) -> None:
    """Rules that can't be followed are refused by the member's name; those in force stay."""
    control(url, "POST", "faults", [{"fault": "busy"}])
    assert named in control(url, "POST", "faults", rules)["error"]
    assert control(url, "GET", "faults")["rules"] == [{"fault": "busy", "seen": 0, "fired": 0}]


def standing(url: str) -> dict[str, Any]:
    (schedule,) = control(url, "GET", "clock")["schedules"]
    return dict(schedule)


@pytest.mark.parametrize(("changes", "day", "made", "following"), [
    ({}, "2030-01-30", 0, "2030-01-31"), ({}, "2030-01-31", 1, "2030-02-28"), ({}, "2030-02-28", 2, "2030-03-31"),
    ({}, "2030-04-30", 4, None), ({}, "2040-01-01", 4, None),
    ({"recurringStartDate": "01/15/2030"}, "2030-03-14", 2, "2030-03-15"),
    ({"recurringStartDate": "02/15/2028", "recurringEndOfMonth": "Y"}, "2028-02-29", 1, "2028-03-31"),
    ({"recurringBillingCycle": "DAILY"}, "2030-02-02", 3, "2030-02-03"),
    ({"recurringBillingCycle": "DAILY", "recurringNumOfPayments": "0"}, "2031-01-31", 366, "2031-02-01"),
])  # fmt: skip
def test_schedules_go_with_the_clock(
    url: str, changes: dict[str, str], day: str, made: int, following: str | None
) -> None:
    """Recurring payments fall due as the clock goes on: by month, at month ends, by day, until their number is met."""
    pay(url, recurring_body(**changes))
    control(url, "POST", "clock", {"now": f"{day}T12:00:00Z"})
    now = standing(url)
    assert (now["made"], now["next"]) == (made, following)


def test_the_clock_can_jump(url: str) -> None:
    """advance_days moves the clock on; wrong orders are refused by name."""
    control(url, "POST", "clock", {"now": "2030-01-01T00:00:00Z"})
    assert control(url, "POST", "clock", {"advance_days": 31})["now"].startswith("2030-02-01")
    wrong: Any
    for wrong in ({}, {"now": "soon"}, {"advance_days": 10**9}, {"advance_days": "1"}, []):
        assert "now" in control(url, "POST", "clock", wrong)["error"]


def test_reset_forgets_all(url: str) -> None:
    """Payments, journal, faults, accounts and clock are as at the start."""
    pay(url, recurring_body())
    control(url, "POST", "faults", [{"fault": "busy"}])
    control(url, "POST", "clock", {"now": "2040-01-01"})
    account_request(url, "POST", "gateway.json/1001/delete")
    control(url, "POST", "reset")
    assert control(url, "GET", "journal")["requests"] == []
    assert control(url, "GET", "faults")["rules"] == []
    assert control(url, "GET", "clock")["schedules"] == []
    assert not control(url, "GET", "clock")["now"].startswith("2040")
    assert not any(account["deleted"] for account in control(url, "GET", "accounts")["accounts"])


def test_a_database_outlives_the_sandbox(tmp_path: Path) -> None:
    """With --db payments, accounts, journal counts and clock are there at the next start; no account number is."""
    options = Options(port=0, db=tmp_path / "sandbox.db")
    with running(options) as url:
        pay(url, recurring_body())
        pay(url, payment_body("9876543210"))
        account_request(url, "POST", "gateway.json/1001/delete")
        control(url, "POST", "clock", {"now": "2030-02-01"})
    with running(options) as url:
        assert (standing(url)["payment"], standing(url)["made"]) == (1, 1)
        assert "gatewayId" in pay(url, payment_body("9876543210")).text
        journal = control(url, "GET", "journal?operation=payment")
        assert [entry["times"] for entry in journal["requests"]] == [1, 2, 2]
    assert all(b"9876543210" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_database_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    """One line: it was an internal error, since only opening the file and looking into it could fail."""
    (tmp_path / "sandbox.db").symlink_to("/dev/full")
    with pytest.raises(WrongUse, match=r"sandbox\.db can't be used as a sandbox's file"):
        SandboxStore(tmp_path / "sandbox.db")


def test_faults_can_stand_at_the_start(tmp_path: Path) -> None:
    """--faults FILE holds the rules that are in force from the first request."""
    file = tmp_path / "faults.json"
    file.write_text(json.dumps([{"fault": "error_500", "at": 1}]))
    with running(Options(port=0, faults=file)) as url:
        assert pay(url, payment_body()).status_code == 500


@pytest.mark.parametrize("text", [None, "{", '[{"fault": "fire"}]'])
def test_unusable_options_are_refused(tmp_path: Path, text: str | None) -> None:
    """A faults file that is missing, no JSON or wrong stops the start, and names the option."""
    file = tmp_path / "faults.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(WrongUse, match="--faults"), running(Options(port=0, faults=file)):
        pass


def test_a_limit_of_nothing_is_refused() -> None:
    """Nobody would be answered."""
    with pytest.raises(WrongUse, match="--limit"), running(Options(port=0, limit=0)):
        pass


def test_a_taken_port_is_refused() -> None:
    """Another process's port is no fault of the program but wrong use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WrongUse, match=str(port)), running(Options(port=port)):
            pass


# The command


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "batchpay", "sandbox", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("BATCHPAY_")},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_one_line_and_ends_on_a_signal(number: signal.Signals) -> None:
    """One line with the URL when it is ready; then it serves; SIGTERM and SIGINT end it with 0 and no further word."""
    with command("--port", "0") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"sandbox ready at (http://127\.0\.0\.1:[0-9]+)\n", line)
        assert match
        assert pay(match[1], payment_body()).status_code == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_with_json_the_line_is_an_object() -> None:
    """It was the line for people."""
    with command("--port", "0", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert pay(told["origin"], payment_body()).status_code == 200
    require_schema(["sandbox"], told)


def test_a_signal_ends_waiting_answers() -> None:
    """A sandbox with a latency of an hour ends at once all the same; the client loses its connection."""
    with command("--port", "0", "--latency", "3600000") as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v2/api/connection.json HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            while control(url, "GET", "journal")["counts"]["connection"]["arrived"] == 0:
                pass
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("option", "names"), [("--list-magic", [item.ending for item in ENDINGS]), ("--list-dialects", list(DIALECTS))]
)
def test_a_list_names_each(option: str, names: list[str]) -> None:
    """One a line: each ending with what it does, each dialect with the client profile that it needs."""
    with command(option) as process:
        out, _ = process.communicate(timeout=60)
    assert [line.split()[0] for line in out.splitlines()] == names
    assert option == "--list-magic" or all("profile" in line for line in out.splitlines())


def test_wrong_options_exit_with_2() -> None:
    """An unknown dialect is wrong use: one line, exit 2."""
    with command("--port", "0", "--dialect", "klingon") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n"), "always_200" in err) == (2, "", 1, True)


def test_the_page_about_it_is_complete() -> None:
    """docs/sandbox.md names every ending and every fault with its meaning, every dialect, and every route."""
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text("utf-8")
    rows = [f"| {item.ending} | {item.meaning} |" for item in ENDINGS]
    rows += [f"| `{name}` | {meaning} |" for name, meaning in NAMES.items()]
    rows += [f"| `{dialect.name}` | {dialect.summary} |" for dialect in DIALECTS.values()]
    routes = [rule.rule for rule in create_app(Options()).url_map.iter_rules() if rule.rule.startswith("/_sandbox")]
    assert [text for text in (*rows, *routes) if text not in page] == []


def test_a_server_that_has_ended_is_not_stopped_again(tmp_path: Path) -> None:
    """It looks once a second, by itself, whether it is to end: its pipe was closed by then, or another file's."""
    server = Server(Options(port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    server.stop()
    thread.join()
    with ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(number)).open("wb", buffering=0)) for number in range(20)]
        server.stop()
        assert [file.tell() for file in files] == [0] * 20
