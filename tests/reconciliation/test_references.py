"""A reference of the gateway is one row's: whole, or as far as the ledger could keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.payment import Environment, State
from batchpay.reconciliation.statement import may_be, refused_reference
from tests.support.ledger_factory import Planned, add_batch, ledger_in


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        ("sbx1", "sbx1", True),
        ("sbx1", "sbx11", False),
        ("sbx****01", "sbx000000001", True),
        ("sbx****01", "sbx000000011", False),
        ("sbx****01", "tbx000000001", False),
        ("sbx****01", "sbx1", False),
        ("sbx****x1", "sbx1", False),
        ("****", "anything", True),
        ("sbx****3924-****7", "sbx64844-39241234567", True),
        ("sbx****01", "sbx00****", True),
        ("sbx****01", "sbx****11", False),
        ("sbx****01", "t****01", False),
    ],
)
def test_what_is_left_of_a_reference_fits_or_does_not(one: str, other: str, fits: bool) -> None:
    """Its beginning and its end are known: whichever of the two was masked."""
    assert (may_be(one, other), may_be(other, one)) == (fits, fits)


@pytest.mark.parametrize(
    ("references", "told"),
    [
        ({3: "R1"}, "row 3: the ledger knows gateway_reference R1 from row 1 of batch BATCH: one payment"),
        ({3: "00r1"}, "row 3: the ledger knows gateway_reference 00r1 from row 1 of batch BATCH"),
        ({3: "R1****"}, "row 3: gateway_reference R1**** may be that of row 1 of batch BATCH"),
        ({4: "R3"}, "from row 3 of batch BATCH"),
        ({3: "OLD"}, "from row 7 of batch OTHER"),
        ({3: "SBX000000001"}, "may be that of row 8 of batch OTHER, of which the ledger knows SBX****01 alone"),
        ({3: "SBX****01"}, "may be that of row 8 of batch OTHER"),
        ({3: "X1", 4: "x1"}, "rows 3 and 4 have one gateway_reference"),
        ({3: "R3", 4: "SBX000000002"}, None),
        ({3: "TRIED"}, None),
        ({3: "0", 4: "0"}, None),
        ({}, None),
    ],
)
def test_a_reference_of_another_row_is_refused(tmp_path: Path, references: dict[int, str], told: str | None) -> None:
    """One payment in the portal proved three rows. A row's own reference is its own, and a rehearsal proves nothing."""
    rows = [Planned(1, reference="R1"), Planned(3, State.IN_DOUBT, reference="R3"), Planned(4, State.IN_DOUBT)]
    old = [Planned(7, State.DECLINED, reference="OLD"), Planned(8, reference="SBX****01")]
    with ledger_in(tmp_path) as ledger:
        other = add_batch(ledger, old, file="old.csv", environment=Environment.LIVE)
        add_batch(ledger, [Planned(1, reference="TRIED")], file="rehearsal.csv", environment=Environment.TEST)
        batch = ledger.find(add_batch(ledger, rows, environment=Environment.LIVE))
        found = refused_reference(ledger, batch, references)
    if told is None:
        assert found is None
    else:
        assert found is not None
        assert told.replace("BATCH", batch.batch).replace("OTHER", other) in found
