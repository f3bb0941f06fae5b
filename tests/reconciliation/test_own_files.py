"""A header that a gateway's export may have as well is a warning; one that only ours can have is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.reconciliation.statement import ExportMap, read_export
from batchpay.schemas.columns import REQUIRED
from batchpay.workflows.reconcile import caution_about, refuse_own_file
from tests.reconciliation.test_reconciliation import export
from tests.support.ledger_factory import Planned, add_batch, ledger_in

RESULTS = "state,http_status,response_code,gateway_reference,attempts,environment"


@pytest.mark.parametrize(
    ("header", "refused", "caution"),
    [
        (f"{RESULTS},amount,Checked by", True, ""),
        ("gateway_reference,amount,status", False, "has its columns too (gateway_reference, status)"),
        ("gateway_reference,invoiceNumber,amount,fee,status", False, "has its columns too (gateway_reference, status)"),
        (f"{','.join(REQUIRED)},invoiceNumber,result", False, "it has every column of a payment file"),
        ("gateway_reference,amount,result", False, ""),
        ("invoiceNumber,amount", False, "has its columns too (amount, invoiceNumber)"),
    ],
)
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
