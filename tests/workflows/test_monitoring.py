"""The record of monitoring: flags, who decided about them and how fast, returns, and changes of the policy."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchpay.ledger.facts import FactKind, NewFact
from batchpay.ledger.open import open_ledger
from batchpay.payment import Environment
from batchpay.settings import PolicySettings
from batchpay.workflows.policy import set_policy
from batchpay.workflows.status import monitoring_record
from tests.workflows.desk import ANN, Desk

GRACE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
LONG = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00", "achNameOnCheck": "A name that is far too long"}
CHANGED = {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "30.00", "achAccountNumber": "987654321"}
NOTE = "called <G. Quigley> at the number of 2019"


@pytest.mark.usefixtures("on_both")
def test_what_was_flagged_decided_and_returned(desk: Desk) -> None:
    """Read from the ledger alone, also after names were purged; the page shows no account and runs no markup."""
    desk.settings = replace(desk.settings, policy=PolicySettings())
    first = desk.submit(desk.file("may.csv", GRACE, LONG))
    set_policy(desk.settings, {"hold": ["achAccountNumber.changed_account"]}, None, "fraud in May", ANN)
    june = desk.file("june.csv", GRACE | {"paymentId": "P-9", "invoiceNumber": "A-9"}, CHANGED)
    second = desk.submit(june)
    today = datetime.now(UTC).date()

    def record(days: int = 1) -> dict[str, Any]:
        page = desk.folder / "monitoring.html"
        return monitoring_record(today - timedelta(days=days), lambda: page, desk.settings)

    assert record()["flags"] == [
        {"rule": "achAccountNumber.changed_account", "went_on": 0, "rejected": 1, "released": 0},
        {"rule": "achNameOnCheck.length", "went_on": 1, "rejected": 0, "released": 0},
    ]
    desk.submit(june, release=NOTE, rows=[2])
    with closing(open_ledger(desk.settings.ledger)) as ledger:
        fact = NewFact(FactKind.RETURNED, str(first.batch), 1, "R10", today, 1000, line=1)
        ledger.record_facts([fact], Environment.TEST, "returns.csv", "ab", "ann", unattended=False)
    found = record()
    assert found["flags"][0] == {
        "rule": "achAccountNumber.changed_account",
        "went_on": 0,
        "rejected": 0,
        "released": 1,
    }, "it is what was decided"
    assert (found["batches"], found["rows"], found["approved_by_others"]) == (2, 4, 0)
    assert found["accepted"] == {"CREDIT": "70.00"}
    (decision,) = found["decisions"]
    assert decision | {"at": "", "after_s": 0} == {
        "at": "", "who": "ann@desk-3", "what": "released rejected or held rows", "batch": second.batch, "rows": "2",
        "after_s": 0, "note": NOTE,
    }  # fmt: skip
    assert found["returns"] == [{"code": "R10", "rows": 1, "amount": "10.00"}]
    assert [(one["batch"], one["row"], one["code"]) for one in found["unauthorized"]] == [(first.batch, 1, "R10")]
    (policy,) = found["policy"]
    assert policy["note"] == "fraud in May" and "hold achAccountNumber.changed_account" in policy["policy"]
    page = (desk.folder / "monitoring.html").read_text()
    assert "called &lt;G. Quigley&gt; at the number of 2019" in page and "R10" in page
    assert "987654321" not in page and "Quigley," not in page
    nothing = record(-1)
    assert (nothing["batches"], nothing["flags"], nothing["decisions"], nothing["policy"]) == (0, [], [], [])
