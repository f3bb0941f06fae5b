"""Files of gateway accounts: what is read, what is refused, and what a run leaves behind."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from batchpay.accounts.account_file import (
    BYTES_MAX,
    AccountRow,
    begin_results,
    exit_code,
    read_account_file,
    reject_not_there,
    reject_wrong,
    send_rows,
)
from batchpay.errors import CredentialsNotUsable, FileRefused, GatewayUnreachable, NotUsable, WrongUse
from batchpay.gateway.accounts import AccountInDoubt, AccountRefused, GatewayAccount
from tests.support.sandbox_requests import account_node

NODE = {key: str(value) for key, value in account_node("processorA_ach").items()}


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(mode)
    return path


def csv_text(rows: list[dict[str, str]]) -> str:
    header = list(rows[0])
    return "\n".join([",".join(header), *(",".join(row[name] for name in header) for row in rows)]) + "\n"


TOML = "\n".join(f"{key} = {json.dumps(value)}" for key, value in account_node("processorA_ach").items())


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", csv_text([NODE])), ("a.json", json.dumps(account_node("processorA_ach"))),
    ("a.json", json.dumps([account_node("processorA_ach")])),
    ("a.json", json.dumps({"gateway": account_node("processorA_ach")})),
    ("a.json", json.dumps({"gateways": [account_node("processorA_ach")]})), ("a.toml", TOML),
    ("a.toml", f"[[gateway]]\n{TOML}"), ("a.toml", f"[gateway]\n{TOML}"),
])  # fmt: skip
def test_each_kind_of_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    """JSON, TOML and CSV give the same cells, as text."""
    (row,) = read_account_file(write(tmp_path / name, text), update=False)
    assert row.cells == NODE


def test_ids_are_read_for_updates(tmp_path: Path) -> None:
    """A file of updates names each account by its id."""
    file = write(tmp_path / "a.csv", csv_text([{"id": "1005", **NODE}, {"id": "x", **NODE}, {"id": "", **NODE}]))
    rows = read_account_file(file, update=True)
    assert [row.gateway_id for row in rows] == [1005, None, None]
    reject_wrong(rows, update=True)
    assert [row.state for row in rows] == ["not_sent", "rejected", "rejected"]
    assert rows[1].message.startswith("id: ")


@pytest.mark.parametrize(("name", "text", "said"), [
    ("a.xml", "<a/>", "must end in"), ("a.json", "{", "JSON"), ("a.json", '{"mode": "dev", "mode": "live"}', "JSON"),
    ("a.json", "[]", "no account"), ("a.json", "[1]", "not a table"), ("a.json", '{"mode": true}', "mode must be text"),
    ("a.json", '{"mode": ["dev"]}', "mode must be text"), ("a.json", '{"account_id": 1.5}', "account_id must be text"),
    ("a.json", '{"gatewayname": "x"}', "did you mean gateway_name"), ("a.json", '{"id": 5}', "id is not an attribute"),
    ("a.toml", "mode = ", "TOML"), ("a.csv", "mode,mode\n1,2\n", "twice"), ("a.csv", "mode\n", "no account"),
    ("a.csv", "mode,enabled\nlive\n", "more or fewer"), ("a.csv", "mode\nlive,1\n", "more or fewer"),
    ("a.csv", 'mode\n"live\n', "CSV"),
])  # fmt: skip
def test_what_is_no_file_of_accounts_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    """One clear line, whatever is wrong with the file as a whole."""
    with pytest.raises(FileRefused, match=said):
        read_account_file(write(tmp_path / name, text), update=False)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    """Not there, a folder, not UTF-8, too large, or a pipe, for whose writer the command waited."""
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "latin.csv").write_bytes(b"mode\n\xe9\n")
    (tmp_path / "large.csv").write_bytes(bytes(BYTES_MAX + 1))
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("missing.csv", "folder.csv", "latin.csv", "large.csv", "pipe.csv"):
        with pytest.raises(FileRefused, match=name):
            read_account_file(tmp_path / name, update=False)


def test_a_broken_file_never_shows_its_secrets(tmp_path: Path) -> None:
    """The parser's own words, which may quote the file, are not shown."""
    with pytest.raises(FileRefused) as refused:
        read_account_file(write(tmp_path / "a.toml", 'pin = "8675309'), update=False)
    assert "8675309" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_secrets_in_an_open_file_are_refused(tmp_path: Path) -> None:
    """A file with pins or passwords must be its owner's alone; without any it may be open."""
    with pytest.raises(CredentialsNotUsable, match="0600"):
        read_account_file(write(tmp_path / "a.csv", csv_text([NODE]), mode=0o640), update=False)
    open_node = {key: str(value) for key, value in account_node("processorC_cc").items()}
    assert read_account_file(write(tmp_path / "b.csv", csv_text([open_node]), mode=0o644), update=False)


class Gateway:
    """Answers each request by the next of its scripted outcomes, and keeps what it was sent."""

    def __init__(self, *script: Callable[[], int]) -> None:
        self.script = list(script)
        self.sent: list[str] = []
        self.seen: list[str] = []
        self.results: Path | None = None

    def accounts(self, deleted: bool | None = None) -> list[GatewayAccount]:
        numbers = {False: {5: "processorC_cc", 6: "processorB_ach"}, True: {7: "processorC_cc"}}[bool(deleted)]
        return [GatewayAccount(number, 1, name, None, None, None) for number, name in numbers.items()]

    def create(self, node: Mapping[str, int | str]) -> int:
        self.sent.append(str(node["mode"]))
        if self.results:
            self.seen.append(self.results.read_text("utf-8"))
        return self.script.pop(0)()

    def update(self, number: int, node: Mapping[str, int | str]) -> str:
        self.sent.append(str(number))
        return "Updated"


def rows_of(*modes: str) -> list[AccountRow]:
    node = account_node("processorC_cc")
    return [
        AccountRow(number, {key: str(value) for key, value in {**node, "mode": mode}.items()})
        for number, mode in enumerate(modes, start=1)
    ]


def failing(error: Exception) -> Callable[[], int]:
    def fail() -> int:
        raise error

    return fail


def run(tmp_path: Path, gateway: Gateway, rows: list[AccountRow]) -> tuple[list[str], int]:
    results = tmp_path / "r.csv"
    gateway.results = results
    reject_wrong(rows, update=False)
    begin_results(results)
    stopped = send_rows(gateway, rows, results, update=False)
    with results.open(encoding="utf-8", newline="") as file:
        states = [line["state"] for line in csv.DictReader(file)]
    return states, exit_code(rows, stopped)


def test_right_rows_are_created_and_wrong_ones_are_not_sent(tmp_path: Path) -> None:
    """A rejected row holds up no other."""
    gateway = Gateway(lambda: 11, lambda: 12)
    assert run(tmp_path, gateway, rows_of("dev", "prod", "live")) == (["created", "rejected", "created"], 3)
    assert gateway.sent == ["dev", "live"]


def test_a_refused_row_holds_up_no_other(tmp_path: Path) -> None:
    """The gateway's no is the row's outcome, and the run goes on."""
    gateway = Gateway(failing(AccountRefused("no")), lambda: 12)
    assert run(tmp_path, gateway, rows_of("dev", "live")) == (["refused", "created"], 3)


def test_a_row_in_doubt_stops_the_run(tmp_path: Path) -> None:
    """Nothing is sent after an answer was lost, and the exit code calls for a person."""
    gateway = Gateway(failing(AccountInDoubt("look")), lambda: 12)
    assert run(tmp_path, gateway, rows_of("dev", "live")) == (["in_doubt", "not_sent"], 7)
    assert gateway.sent == ["dev"]


def test_an_unreachable_gateway_stops_the_run(tmp_path: Path) -> None:
    """Rows not sent are said to be; running again is safe."""
    gateway = Gateway(lambda: 11, failing(GatewayUnreachable("gone")))
    assert run(tmp_path, gateway, rows_of("dev", "live", "test")) == (["created", "not_sent", "not_sent"], 6)


def test_a_row_is_in_doubt_on_disk_before_it_is_sent(tmp_path: Path) -> None:
    """What a kill leaves names the row whose request may have left."""
    gateway = Gateway(lambda: 11, lambda: 12)
    run(tmp_path, gateway, rows_of("dev", "live"))
    states = [[line["state"] for line in csv.DictReader(text.splitlines())] for text in gateway.seen]
    assert states == [["in_doubt", "not_sent"], ["created", "in_doubt"]]


def test_results_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    """A results file that is there already ends the run before anything is sent."""
    begin_results(tmp_path / "r.csv")
    with pytest.raises(WrongUse, match=r"r\.csv"):
        begin_results(tmp_path / "r.csv")
    with pytest.raises(NotUsable):
        begin_results(tmp_path / "no" / "r.csv")


def test_updates_need_an_account_that_is_there(tmp_path: Path) -> None:
    """Unknown, deleted and processor B's accounts are rejected before anything is sent."""
    rows = rows_of("dev", "dev", "dev", "dev")
    for row, number in zip(rows, (5, 6, 7, 8), strict=True):
        row.gateway_id = number
    gateway = Gateway()
    reject_not_there(gateway, rows)
    assert [row.state for row in rows] == ["not_sent", "rejected", "rejected", "rejected"]
    assert ["processor B" in rows[1].message, "deleted" in rows[2].message, "is not an account" in rows[3].message] == [
        True
    ] * 3
    results = tmp_path / "r.json"
    begin_results(results)
    assert send_rows(gateway, rows, results, update=True) is None
    assert gateway.sent == ["5"]
    assert json.loads(results.read_text("utf-8"))["accounts"][0]["state"] == "updated"


def test_results_are_private_and_defused(tmp_path: Path) -> None:
    """Mode 0600; what a spreadsheet would run as a formula is defused; no secret is in them."""
    rows = rows_of("dev")
    rows[0].cells["gateway_name"] = "=1+1"
    rows[0].state = "rejected"
    send_rows(Gateway(), rows, tmp_path / "r.csv", update=False)
    assert "'=1+1" in (tmp_path / "r.csv").read_text("utf-8")
    assert (tmp_path / "r.csv").stat().st_mode & 0o777 == 0o600
    assert "cells" not in repr(rows[0])
