"""What is written of every row and line, and what a person is told of a row in doubt that an export does not settle."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest

from batchpay.errors import FileRefused
from batchpay.payment import State, Totals
from batchpay.reconciliation.matching import match
from batchpay.reconciliation.statement import ExportMap, read_export
from batchpay.reconciliation.verdicts import MatchStatus, found_doubts, reconcile
from batchpay.schemas.columns import REQUIRED
from batchpay.workflows.reconcile import caution_about, refuse_own_file
from tests.reconciliation.test_reconciliation import DOUBT, HEADER, export, held_against, today
from tests.support.ledger_factory import Planned, add_batch, ledger_in


def told(
    tmp_path: Path, lines: Sequence[str], *, header: str = HEADER, caution: str | None = None
) -> list[tuple[State | None, str | None, str]]:
    """What an export concludes of a row in doubt: its state and reference, and why."""
    tmp_path.mkdir(exist_ok=True)
    read = read_export(export(tmp_path / "export.csv", lines, header), ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [DOUBT]))
        found = list(found_doubts(ledger, batch, match(ledger, batch, read.lines, 5), caution))
    nothing = (None, None)
    decided = [(one.decision.state, one.decision.gateway_reference) if one.decision else nothing for one in found]
    return [(*decision, one.why) for decision, one in zip(decided, found, strict=True)]


@pytest.mark.parametrize(("lines", "why"), [
    (["R9,INV-1,12.50,TODAY,x6789,Pending"], "the status there, Pending, is neither accepted nor declined"),
    (["R9,INV-1,12.50,TODAY,x6789,"], "the export has no status for it"),
    (["R9,INV-1,12.50,TODAY,x6789,Settled", "R9,INV-1,-12.50,TODAY,x6789,Settled"],
     "paid there, and a further line says that it came back"),
    (["R9,INV-1,12.51,TODAY,x6789,Settled"], "the amounts differ: 12.50 here, 12.51 there"),
])  # fmt: skip
def test_why_a_line_settles_nothing_is_said(tmp_path: Path, lines: list[str], why: str) -> None:
    """Each reason sends a person elsewhere: to the portal, to their map, to their bank."""
    ((state, _, said),) = told(tmp_path, lines)
    assert state is None
    assert said.startswith(why)


def test_what_another_column_says_is_said_as_it_stands(tmp_path: Path) -> None:
    """`the opposite direction` sent people to look for a refund where the bank had named a return code."""
    header = "Transaction ID,Invoice Number,Amount,Date,Status,Return Code"
    lines = ["R9,INV-1,12.50,TODAY,Settled,R01"]
    assert told(tmp_path, lines, header=header) == [(None, None, "Settled; Return Code: R01 there")]


def test_a_payment_that_only_came_back_is_said_to(tmp_path: Path) -> None:
    """With no line of its payment."""
    lines = ["R9,INV-1,-12.50,TODAY,x6789,Settled", "R7,INV-7,12.50,TODAY,x1111,Settled"]
    assert [one[::2] for one in told(tmp_path, lines)] == [
        (None, "the line has the opposite direction: the money came back")
    ]


def test_a_refusal_stays_one_whatever_words_its_return_has(tmp_path: Path) -> None:
    """A further line that says the same in the bank's own words takes nothing from it."""
    lines = ["R9,INV-1,12.50,TODAY,x6789,Declined", "R9,INV-1,12.50,TODAY,x6789,Returned - R01"]
    assert [one[0] for one in told(tmp_path, lines)] == [State.DECLINED]


def test_caution_is_told_where_a_person_agrees_to_something(tmp_path: Path) -> None:
    """And a line without a reference gives the row none: a blank one would be a reference that many rows share."""
    assert told(tmp_path, [",INV-1,12.50,TODAY,x6789,Settled"], caution="look twice") == [
        (State.ACCEPTED, None, "Settled there; look twice")
    ]
    ((_, _, why),) = told(tmp_path / "second", ["R9,INV-1,12.50,TODAY,x6789,"], caution="look twice")
    assert why.endswith("status.missing)")


def test_lines_say_of_which_batch_they_are_and_how_much_differs(tmp_path: Path) -> None:
    """Blank where there is nothing to say; every line has all columns."""
    others = [Planned(1, reference="Z1", invoice="OLD-1")]
    rows = [Planned(1, reference="R1"), Planned(2, State.DECLINED), Planned(3, reference="R3")]
    result, _, _ = held_against(
        tmp_path, rows,
        ["R1,INV-1,12.75,TODAY,x6789,Settled", "R2,INV-2,12.50,TODAY,x6789,Pending", "Z1,,12.50,TODAY,x6789,Settled",
         "R8,INV-8,1.00,46319,x1111,Settled"],
        others=others,
    )  # fmt: skip
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert all(len(line) == len(lines[0]) and None not in line for line in lines)
    here, there = (
        {line[key]: line for line in lines if line[key] and bool(line["row"]) is mine}
        for key, mine in (("row", True), ("reference_there", False))
    )
    assert [(one["verdict"], one["difference"]) for one in here.values()] == [
        ("amount differs", "0.25"),
        ("status differs", "declined here, Pending there"),
        ("missing there", ""),
    ]
    assert len({one["batch"] for one in here.values()}) == 1
    assert there["Z1"]["batch"] not in ("", here["1"]["batch"])
    assert there["R8"]["batch"] == ""
    assert (here["2"]["status_there"], here["2"]["date_there"]) == ("Pending", str(today()))
    assert there["R8"]["date_there"] == "46319", "what can't be read is shown as it stands there"
    assert result.pending_there == Totals()
    assert result.there[MatchStatus.STATUS_DIFFERS] == Totals(1, 1250)


def amounts_in(path: Path) -> list[Decimal]:
    """Add up both columns of amounts, as a person does in a spreadsheet: a cell of text counts nothing."""
    cells: Iterable[tuple[object, ...]]
    if path.suffix == ".xlsx":
        sheet = openpyxl.load_workbook(path).active
        assert sheet is not None
        cells = sheet.iter_rows(values_only=True)
    else:
        with path.open(encoding="utf-8", newline="") as file:
            cells = [
                tuple(float(cell) if re.fullmatch(r"-?[0-9]+\.[0-9]{2}", cell) else cell for cell in line)
                for line in csv.reader(file)
            ]
    header, *lines = cells
    columns = [[line[header.index(name)] for line in lines] for name in ("amount", "amount_there")]
    return [sum((Decimal(str(cell)) for cell in column if not isinstance(cell, str | None)), Decimal(0))
            for column in columns]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_the_list_adds_up_to_what_is_said(tmp_path: Path, ending: str) -> None:
    """A row with two lines had its amount twice, and amounts with a minus were text, which no sum counts."""
    lines = ["R1,INV-1,12.50,TODAY,x6789,Settled", "R1,INV-1,-12.50,TODAY,x6789,Settled", "R8,,-7.25,TODAY,x1,Settled"]
    read = read_export(export(tmp_path / "export.csv", lines), ExportMap())
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1, reference="R1"), Planned(2, amount_cents=3125)]))
        result = reconcile(ledger, batch, read, match(ledger, batch, read.lines, 5), tmp_path / f"out.{ending}")
    assert (result.total_here.cents, result.total_there.cents) == (4375, -725)
    assert amounts_in(tmp_path / f"out.{ending}") == [Decimal("43.75"), Decimal("-7.25")]


RESULTS = "state,http_status,response_code,gateway_reference,attempts,environment"


@pytest.mark.parametrize(("header", "refused", "caution"), [
    (f"{RESULTS},amount,Checked by", True, ""),
    ("gateway_reference,amount,status", False, "has its columns too (gateway_reference, status)"),
    ("gateway_reference,invoiceNumber,amount,fee,status", False, "has its columns too (gateway_reference, status)"),
    (f"{','.join(REQUIRED)},invoiceNumber,result", False, "it has every column of a payment file"),
    ("gateway_reference,amount,result", False, ""),
    ("invoiceNumber,amount", False, "has its columns too (amount, invoiceNumber)"),
])  # fmt: skip
def test_what_only_ours_have_is_refused(tmp_path: Path, header: str, refused: bool, caution: str) -> None:
    """A column of a person's own makes results no export; a gateway may well name its columns as we do."""
    read = read_export(
        export(tmp_path / "export.csv", [",".join("12" for _ in header.split(","))], header), ExportMap()
    )
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, [Planned(1)], carried=["status"]))
    if refused:
        with pytest.raises(FileRefused, match="is a results file of batchpay"):
            refuse_own_file(read, batch)
        return
    refuse_own_file(read, batch)
    found = caution_about(read, batch)
    assert caution in (found or "") and bool(caution) is bool(found)


def test_a_line_may_end_before_its_status_or_batch(tmp_path: Path) -> None:
    """Blank cells at the end are left out by some programs."""
    lines = ["R1,12.50,TODAY,Settled,may", "R2,12.50,TODAY,Settled", "R3,12.50,TODAY"]
    read = read_export(export(tmp_path / "export.csv", lines, "Reference,Amount,Date,Status,batch"), ExportMap())
    assert ([line.status_text for line in read.lines], read.batches) == (["Settled", "Settled", ""], {"may"})


def test_the_date_of_a_line_without_an_amount_misleads_nobody(tmp_path: Path) -> None:
    """It is matched with nothing: a person would look for the format of a date that is in the right one."""
    read = read_export(export(tmp_path / "export.csv", ["R1,INV-1,see below,page 2,x6789,Settled"]), ExportMap())
    with ledger_in(tmp_path) as ledger:
        assert caution_about(read, ledger.find(add_batch(ledger, [Planned(1)]))) is None
