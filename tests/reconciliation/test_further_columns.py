"""What columns beside the status say of a payment that failed or came back."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.payment import State
from batchpay.reconciliation.statement import ExportMap, read_export
from tests.reconciliation.test_reconciliation import DOUBT, export, held_against
from tests.support.ledger_factory import Planned

PAID = Planned(2, reference="R2")
BACK = [
    ("Return Code", "R01"),
    ("Return Reason", "account closed"),
    ("returned_on", "2026-11-20"),
    ("Type", "ACH Return"),
    ("Type", "Declined"),
    ("ACH Return Code", "R01"),
    ("Return Status", "Completed"),
    ("Return Description", "No account"),
    ("Refunded", "Yes"),
    ("Amount Refunded", "$12.50"),
    ("Is Chargeback", "TRUE"),
    ("Reject Code", "R03"),
    ("Decline Reason", "insufficient funds"),
    ("Failure Code", "R20"),
    ("Payables Return Code", "R01"),
    ("Transaction Type", "Refund"),
    ("Result", "Declined"),
    ("Result", "NSF"),
    ("Transaction Status", "Returned"),
    ("Status", "Failed"),
    ("State", "Voided"),
]
NOT_BACK = [
    ("Return Code", ""),
    ("Return Code", "N/A"),
    ("Returned", "No"),
    ("Type", "DEBIT"),
    ("Transaction Type", "Sale"),
    ("Result", "Approved"),
    ("Result", "Submitted"),
    ("Result", ""),
    ("State", "NY"),
    ("Return Address", "1 Main Street"),
    ("Returned Amount", "$0.00"),
    ("Amount Refunded", "0,00"),
    ("Refundable", "Yes"),
    ("Return Status", "Not returned"),
    ("Return URL", "shop.example"),
    ("Failure Code", "00"),
]


def lines_with(text: str, status: str = ",Settled") -> list[str]:
    """A row in doubt and an accepted row, each with a text in the further column."""
    return [f"R9,INV-1,12.50,TODAY{status},{text}", f"R2,INV-2,12.50,TODAY{status},{text}"]


@pytest.mark.parametrize(("header", "text"), BACK)
def test_a_payment_that_came_back_by_another_column_is_not_matched(tmp_path: Path, header: str, text: str) -> None:
    """Settled, and returned with R01: only the status was read, the accepted row matched and the doubt was settled."""
    columns = f"Transaction ID,Invoice Number,Amount,Date,Status,{header}"
    result, verdicts, settled = held_against(tmp_path, [DOUBT, PAID], lines_with(text), header=columns)
    assert (settled, verdicts) == ({1: None}, {"1": "in doubt, found", "2": "status differs"})
    assert f"accepted here, Settled; {header}: {text} there" in (tmp_path / "out.csv").read_text("utf-8")
    assert result.exit_code == 7


@pytest.mark.parametrize(("header", "text"), BACK[:5])
def test_a_list_of_returns_without_a_status_is_no_list_of_payments(tmp_path: Path, header: str, text: str) -> None:
    """All of a batch came back, and against the bank's list of that every row was matched, with exit code 0."""
    columns = f"Transaction ID,Invoice Number,Amount,Date,{header}"
    result, verdicts, _ = held_against(tmp_path, [PAID], lines_with(text, "")[1:], header=columns)
    assert (verdicts, result.exit_code) == ({"2": "status differs"}, 3)


@pytest.mark.parametrize(("header", "text"), NOT_BACK)
def test_a_column_that_says_nothing_of_a_return_changes_nothing(tmp_path: Path, header: str, text: str) -> None:
    """Blank return codes, kinds of payments, words that mean paid or under way, a state of an address."""
    columns = f"Transaction ID,Invoice Number,Amount,Date,Status,{header}"
    _, verdicts, settled = held_against(tmp_path, [DOUBT, PAID], lines_with(text), header=columns)
    assert (settled, verdicts) == ({1: State.ACCEPTED}, {"1": "in doubt, found", "2": "matched"})


def test_of_columns_with_one_name_each_is_looked_at(tmp_path: Path) -> None:
    """The last one, blank, was read, and not the one with the code."""
    columns = "Transaction ID,Invoice Number,Amount,Date,Status,Return Code,Return Code"
    _, verdicts, settled = held_against(tmp_path, [DOUBT, PAID], lines_with("R01,"), header=columns)
    assert (settled, verdicts) == ({1: None}, {"1": "in doubt, found", "2": "status differs"})
    (tmp_path / "short").mkdir()  # blank cells at the end may be left out
    assert held_against(tmp_path / "short", [DOUBT, PAID], lines_with(""), header=columns)[2] == {1: State.ACCEPTED}


def test_a_payment_that_was_refused_in_both_columns_is_declined(tmp_path: Path) -> None:
    """The return code says no more than the status did."""
    columns = "Transaction ID,Invoice Number,Amount,Date,Status,Return Code"
    _, _, settled = held_against(tmp_path, [DOUBT, PAID], lines_with("R01", ",Returned"), header=columns)
    assert settled == {1: State.DECLINED}


@pytest.mark.parametrize(("columns", "settled"), [({"status": "Status"}, State.ACCEPTED), ({}, None)])
def test_a_map_says_which_column_is_the_status(tmp_path: Path, columns: dict[str, str], settled: State | None) -> None:
    """Of two, the other one is then not looked at."""
    header, mapping = "Transaction ID,Invoice Number,Amount,Date,Status,Result", ExportMap(columns=columns)
    lines = lines_with("waived")
    assert held_against(tmp_path, [DOUBT, PAID], lines, header=header, mapping=mapping)[2] == {1: settled}


def test_columns_that_are_looked_at_are_named(tmp_path: Path) -> None:
    """A person sees what the verdicts rest on; the state of an address is none of it."""
    header = "Transaction ID,Amount,Date,Status,Return Code,Type,State,City"
    read = read_export(export(tmp_path / "export.csv", ["R1,12.50,TODAY,Settled,,Sale,NY,Troy"], header), ExportMap())
    assert read.columns["also"] == "Return Code, Type"
    plain = read_export(export(tmp_path / "plain.csv", ["R1,12.50,TODAY,Settled"], header[:33]), ExportMap())
    assert "also" not in plain.columns
