"""A ledger that version 1 wrote: brought up to date, it still finds the payments that it knew under other digests.

`version_1/` holds what that version made: its tables as SQL, a key of no other use, and the witness. Two batches of the
same two rows, one for a live gateway and one for loopback.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from batchpay.errors import LedgerOlder
from batchpay.ledger.open import bring_up_to_date, move, open_ledger
from batchpay.payment import Environment, SamePayment
from batchpay.registration.digests import lookup_columns
from batchpay.schemas.columns import COLUMNS
from batchpay.settings import LedgerSettings
from tests.support.postgres import Server
from tests.support.version_1 import ledger_of_version_1

pytestmark = pytest.mark.ledgers(
    "sqlite", why="the first ledger in a database is of version 1 of its own tables, which are of version 3's digests"
)

ROW = {
    "amount": "900.00", "transactionType": "DEBIT", "achAccountNumber": "0012345678", "achRoutingNumber": "021000021",
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> LedgerSettings:
    """Where the old ledger lies."""
    return ledger_of_version_1(tmp_path)


def require_known(settings: LedgerSettings) -> None:
    """Look for payments of both worlds that the old ledger has, and for one that it does not have."""
    rows = [
        ROW | {"paymentId": "Pay-1", "amount": "1.00"},
        ROW | {"invoiceNumber": "INV-2"},
        ROW | {"paymentId": "new", "invoiceNumber": "INV-1"},
        ROW | {"invoiceNumber": "INV-3"},
    ]
    cells = {name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in COLUMNS}
    frame = pl.DataFrame({"_row": pl.Series([1, 2, 3, 4], dtype=pl.UInt32), **cells})
    # Its rows still wait to be sent: then the same bill under another paymentId is one however long ago that was.
    expected = [(1, SamePayment.PAYMENT_ID, 1), (2, SamePayment.BILL, 2), (3, SamePayment.BILL, 1)]
    with closing(open_ledger(settings)) as ledger:
        worlds = {batch.environment: batch.batch for batch in ledger.batches()}
        assert worlds == {Environment.LIVE: "0" * 12, Environment.TEST: "01" * 6}
        for world, batch in worlds.items():
            found = ledger.earlier(lookup_columns(ledger, frame), world, days=5, now=datetime.now(UTC))
            assert [(one.row, one.same, one.earlier_row) for one in found] == expected
            assert {one.earlier_batch for one in found} == {batch}
        assert ledger.check() == []


def test_an_old_ledger_still_finds_its_duplicates(settings: LedgerSettings) -> None:
    """Its accounts are gone, so the look goes by the old digests too: of paymentIds and bills as they were written."""
    with pytest.raises(LedgerOlder):
        open_ledger(settings, read_only=True)
    bring_up_to_date(settings)
    open_ledger(settings, read_only=True).close()
    require_known(settings)


def test_an_old_ledger_finds_them_in_a_database_as_well(
    settings: LedgerSettings, postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moved there with the digests that it had; whoever looked by today's alone would pay all of it again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bring_up_to_date(settings)
    name = postgres_server.new_database()
    there = replace(settings, url=postgres_server.url(name))
    move(settings, there.url, "ada", "a second host", owner_url=postgres_server.owner_url(name))
    require_known(there)
    postgres_server.drop(name)
