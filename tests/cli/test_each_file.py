"""How a call over several files ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
import pytest

from batchpay.cli.context import Context
from batchpay.cli.each_file import work_through
from batchpay.cli.operations import CallLog
from batchpay.cli.output import exit_code_of
from batchpay.errors import (
    BatchpayError,
    CheckFailed,
    FileRefused,
    LedgerNotUsable,
    LossNotSettled,
    WaitingForPerson,
)
from batchpay.payment import Totals
from batchpay.sending.limits import StopRequest

DOUBTS = {"3f2a91c0d7e1": {"DEBIT": Totals(), "CREDIT": Totals(2, 50_000)}}


def refused(path: str) -> tuple[int, dict[str, Any]]:
    raise FileRefused(f"{path} is not there")


@pytest.mark.parametrize("paths", [(), ("gone.csv",), ("gone.csv", "lost.csv")], ids=["empty", "one", "two"])
def test_a_doubt_ends_a_call_with_7_though_no_file_came_far(
    paths: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty inbox ended with 0 every night while a payment of last week was in doubt."""
    codes: list[int] = []
    work_through(Context(json=True), paths, refused, codes, in_doubt=lambda: DOUBTS)
    printed = capsys.readouterr()
    assert exit_code_of(codes) == 7
    assert json.loads(printed.out)["exit_code"] == 7
    assert "batchpay resolve 3f2a91c0d7e1 (2 rows, 500.00)" in printed.err


def test_a_ledger_that_cannot_be_asked_is_no_good_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Whether a row is in doubt is not known then: 5, not 0."""

    def unusable() -> dict[str, dict[str, Totals]]:
        raise LedgerNotUsable("the ledger is locked")

    codes: list[int] = []
    work_through(Context(), (), refused, codes, in_doubt=unusable)
    assert (codes, "the ledger is locked" in capsys.readouterr().err) == ([5], True)


def test_a_ledger_that_is_lost_after_rows_were_sent_ends_with_no_5(capsys: pytest.CaptureFixture[str]) -> None:
    """All rows had gone, and a database that was away at the end made of it: exit code 5, "nothing was sent"."""

    def lost() -> dict[str, dict[str, Totals]]:
        raise LedgerNotUsable("nobody answers at that address; nothing was sent")

    codes: list[int] = []
    work_through(Context(), ("a.csv",), lambda path: (0, {"file": path}), codes, in_doubt=lost)
    assert exit_code_of(codes) == 6
    said = capsys.readouterr().err
    assert "nobody answers at that address" in said
    assert "nothing was sent" not in said


@pytest.mark.parametrize(("error", "sent"), [
    (WaitingForPerson("a.csv: 900.00 in all needs approval by another person"), ["b.csv"]),
    (LossNotSettled("the ledger was restored"), []),
])  # fmt: skip
def test_a_file_that_waits_for_approval_does_not_hold_up_the_next(
    error: BatchpayError, sent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One file above policy.approve_above ended the nightly call, and no file after it was paid, night after night.

    A restored ledger is another matter: it says the same of every new file.
    """
    worked: list[str] = []

    def work(path: str) -> tuple[int, dict[str, Any]]:
        if path == "a.csv":
            raise error
        worked.append(path)
        return 0, {"file": path}

    codes: list[int] = []
    work_through(Context(), ("a.csv", "b.csv"), work, codes)
    assert (worked, exit_code_of(codes)) == (sent, 8)
    assert ("not started: 1 file" in capsys.readouterr().err) is not bool(sent)


def test_a_check_that_failed_delays_no_other_file(capsys: pytest.CaptureFixture[str]) -> None:
    """One such file ended the nightly call, and none after it was paid, night after night."""
    worked: list[str] = []

    def work(path: str) -> tuple[int, dict[str, Any]]:
        if path == "a.csv":
            raise CheckFailed(path, ZeroDivisionError("account 123456789"))
        worked.append(path)
        return 0, {"file": path}

    codes, account = list[int](), CallLog(datetime.now(UTC))
    work_through(Context(), ("a.csv", "b.csv"), work, codes, stop=StopRequest(), account=account)
    assert (worked, exit_code_of(codes), account.ended) == (["b.csv"], 1, {"a.csv": 1})
    said = capsys.readouterr().err
    assert said.startswith("batchpay: a.csv: could not be checked, nothing of it was sent now: internal error: Zero")


def test_a_fault_of_the_program_stands_among_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    """--json left the file out that broke the call off, and told the exit code of those before it."""

    def broken(path: str) -> tuple[int, dict[str, Any]]:
        if path == "b.csv":
            raise ZeroDivisionError
        return 6, {"file": path, "exit_code": 6}

    codes: list[int] = []
    with pytest.raises(ZeroDivisionError):
        work_through(Context(json=True), ("a.csv", "b.csv", "c.csv"), broken, codes)
    told = json.loads(capsys.readouterr().out)
    assert [(one["file"], one["exit_code"]) for one in told["files"]] == [("a.csv", 6), ("b.csv", 1), ("c.csv", 6)]
    assert "internal error: ZeroDivisionError" in told["files"][1]["error"]
    assert (told["exit_code"], exit_code_of(codes)) == (1, 1)


def test_no_at_the_prompt_is_no_fault_of_the_program() -> None:
    """The monitor was told 1 where the call ended with 2: a person did not want to send."""

    def refuse(path: str) -> tuple[int, dict[str, Any]]:
        raise click.Abort

    codes: list[int] = []
    with pytest.raises(click.Abort):
        work_through(Context(), ("a.csv", "b.csv"), refuse, codes)
    assert codes == []
