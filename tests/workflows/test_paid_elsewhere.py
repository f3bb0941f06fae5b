"""Results of a batch that the ledger does not know say that another ledger may have paid the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from batchpay.reports.results import HEADER, write_results
from batchpay.workflows.paid_elsewhere import refuse_paid_elsewhere
from batchpay.writing.table import write_table
from tests.ledger.batches import columns, register
from tests.ledger.conftest import LedgerFactory

LIVE, TEST = Environment.LIVE, Environment.TEST


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with one batch."""
    tmp_path.chmod(0o700)
    ledger = LedgerFactory(tmp_path).create()
    register(ledger, columns(ledger, [1, 2]))
    return ledger


def results(path: Path, batch: str, environment: str | None) -> Path:
    """Results of two rows, as this version writes them, or without an environment as an earlier one did."""
    names = [name for name in HEADER if name != "environment" or environment is not None]
    values = {"row": "1", "batch": batch, "environment": environment, "state": "accepted"}
    write_table(path, names, [[values.get(name) for name in names]] * 2)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize(
    ("named", "environment", "refused"),
    [("live", LIVE, True), ("test", TEST, True), ("test", LIVE, False), ("live", TEST, False), (None, LIVE, True)],
)
def test_results_of_an_unknown_batch_refuse_the_file(
    ledger: Ledger, tmp_path: Path, ending: str, named: str | None, environment: Environment, refused: bool
) -> None:
    """For the same environment alone: a rehearsal's results say nothing of live money."""
    path = results(tmp_path / f"pay.results.{ending}", "0123456789ab", named)
    if refused:
        with pytest.raises(FileRefused, match=r"0123456789ab.*from a backup.*--paid-elsewhere-checked"):
            refuse_paid_elsewhere(ledger, path, environment)
    else:
        refuse_paid_elsewhere(ledger, path, environment)


def test_results_of_a_known_batch_are_no_alarm(ledger: Ledger, tmp_path: Path) -> None:
    """Last month's file of the same name was paid by this very ledger."""
    batch = ledger.find(None)
    write_results(ledger, batch, tmp_path / "pay.results.csv")
    refuse_paid_elsewhere(ledger, tmp_path / "pay.results.csv", batch.environment)


@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,2\n", b"row,batch\n", b"\xff\xfe\x00", b"batch\n,\n"])
def test_what_is_not_results_is_no_alarm(ledger: Ledger, tmp_path: Path, content: bytes | None) -> None:
    """No file, an empty one, another program's, a header alone."""
    path = tmp_path / "pay.results.csv"
    if content is not None:
        path.write_bytes(content)
    refuse_paid_elsewhere(ledger, path, LIVE)
    refuse_paid_elsewhere(ledger, None, LIVE)
