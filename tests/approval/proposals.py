"""A proposal for the tests of plans, seals, approvals and pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from batchpay.approval.proposal import Proposal, ToSend, rules_json
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor, Totals
from batchpay.schemas.rule import RuleOptions
from tests.support.ledger_factory import ledger_settings

ANN, BEN, EVE = Actor("ann", "pc1"), Actor("ben", "pc2"), Actor("eve", "pc3")
RULES = RuleOptions(date(2026, 11, 23), rules_off=frozenset({"amount.range", "row.ragged"}))
REJECTED, VALID = Totals(1, 500), Totals(2, 2_500)
TO_SEND = ToSend(
    new=VALID,
    by_direction={"DEBIT": Totals(1, 500), "CREDIT": Totals(1, 2_000)},
    by_account={"7": Totals(1, 500), "12": Totals(1, 2_000)},
    rows_digest="ab" * 32,
)
PROPOSAL = Proposal(
    digest=bytes(range(32)),
    file="pay.csv",
    sheet="November",
    column_map=None,
    origin="https://gateway.example",
    environment="live",
    total=Totals(3, 3_000),
    valid=VALID,
    rejected=REJECTED,
    unreadable_amounts=1,
    to_send=TO_SEND,
    warnings={"achNameOnCheck.new_payee": 7, "achAccountNumber.changed_account": 1},
    accepted_suggestions={},
    notes=("1 hidden row is read as well",),
    not_checked=("gateway accounts: the gateway was not asked about them",),
    rules=rules_json(RULES),
    batch_total=VALID,
)


def proposal(**changes: Any) -> Proposal:
    """The same file, with something else about it."""
    return replace(PROPOSAL, **changes)


@contextmanager
def ledger_in_folder(folder: Path) -> Iterator[Ledger]:
    """A new ledger with a key of its own."""
    with closing(open_ledger(ledger_settings(folder), create_as="tester")) as ledger:
        yield ledger
