"""A desk: settings, a ledger and a gateway that counts, in one process; use cases are called as cli/ does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from batchpay.approval.plan import Plan, PlanText
from batchpay.gateway.credentials import Credentials
from batchpay.gateway.transport import BeforeFirstByte
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Actor, State, Totals
from batchpay.settings import (
    GatewaySettings,
    LedgerSettings,
    LimitsSettings,
    PolicySettings,
    Secret,
    Settings,
    SubmitSettings,
)
from batchpay.summary import Summary
from batchpay.validation.verdict import Verdict
from batchpay.workflows import run
from batchpay.workflows import submit as submitting
from batchpay.workflows.check import Preview, dry_run
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from batchpay.workflows.run import RunRequest, resume
from batchpay.workflows.submit import SubmitRequest

ANN = Actor("ann", "desk-3")
ACCEPTED = Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved"), bytes_sent=900)
DECLINED = Outcome(State.DECLINED, "declined", Answer(402, None, "No funds"), bytes_sent=900)
IN_DOUBT = Outcome(State.IN_DOUBT, "connection closed without an answer", bytes_sent=900)
COLUMNS = (
    "paymentId", "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "amount", "billingFirstName",
    "billingLastName", "shippingFirstName", "shippingLastName", "achNameOnCheck", "achAccountNumber",
    "achRoutingNumber", "achAccountType", "achDepositType", "achAgreementFlag", "recurringStartDate",
    "recurringBillingCycle", "recurringEndOfMonth", "recurringNumOfPayments", "recurringAgreementFlag", "payOn",
)  # fmt: skip
PLAIN = {
    "gatewayId": "1001", "transactionType": "CREDIT", "recurringIndicator": "FALSE", "billingFirstName": "Grace",
    "billingLastName": "Quigley", "shippingFirstName": "Grace", "shippingLastName": "Quigley",
    "achNameOnCheck": "Grace Quigley", "achAccountNumber": "648443924", "achRoutingNumber": "121000332",
    "achAccountType": "PERSONAL", "achDepositType": "CHECKING", "achAgreementFlag": "1",
}  # fmt: skip


class Quiet:
    """A progress that reports to nobody."""

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Sending starts."""

    def update(self, tally: Any, throttle: Any) -> None:
        """Some rows were sent."""

    def say(self, text: str) -> None:
        """A line for a person."""


@dataclass
class Desk:
    """All that a call needs; `arrived` is what the gateway received whole, by paymentId or invoice."""

    folder: Path
    settings: Settings
    arrived: Counter[str] = field(default_factory=Counter)
    answer: Callable[[str], Outcome] = lambda reference: ACCEPTED
    verdict: Verdict = field(default_factory=Verdict)
    """From the latest submission."""
    actor: Actor = ANN

    def file(self, name: str, *rows: dict[str, str]) -> Path:
        """Write a payment file; it has days if a row has one."""
        columns = COLUMNS if any("payOn" in row for row in rows) else COLUMNS[:-1]
        lines = [",".join((PLAIN | row).get(column, "") for column in columns) for row in rows]
        path = self.folder / name
        path.write_text("\n".join([",".join(columns), *lines]) + "\n")
        return path

    def limit(self, amount: str) -> None:
        """Set the highest amount of a payment."""
        self.settings = replace(self.settings, limits=LimitsSettings(max_amount=amount))

    def submit(
        self,
        path: Path,
        release: str | None = None,
        again: str | None = None,
        preflight: Any = None,
        looked_elsewhere: str | None = None,
        run: RunRequest | None = None,
        plan: Plan | None = None,
        rejects: Path | None = None,
        rows: Collection[int] | None = None,
        gap: str | None = None,
        **options: Any,
    ) -> Summary:
        """Submit a file; `release`, `again`, `looked_elsewhere`, `gap` are reasons, `preflight` asks the gateway first.

        `rows` are those that a release names.
        """
        reason = release or again or looked_elsewhere or gap
        named = None if rows is None else frozenset(rows)
        decisions = Decisions(bool(again), bool(release), bool(looked_elsewhere), reason, named, bool(gap))
        kept = PlanText("plan.json", plan.text()) if plan else None
        request = SubmitRequest(run or RunRequest(results=None, preflight=preflight), decisions, kept)
        rejects = rejects or path.with_suffix(".rejects.csv")
        asked = file_request(str(path), rejects, CheckOptions(**options), self.settings)
        credentials = Credentials("desk", Secret("desk-key"))
        summary, self.verdict = submitting.submit(asked, request, self.settings, credentials, self.actor, Quiet())
        return summary

    def dry_run(
        self,
        path: Path,
        release: str | None = None,
        preflight: Any = None,
        *,
        again: str | None = None,
        insists: bool = False,
        with_plan: bool = False,
        rows: Collection[int] | None = None,
        **options: Any,
    ) -> Preview:
        """Show what a submission would do."""
        asked = file_request(str(path), None, CheckOptions(**options), self.settings)
        named = None if rows is None else frozenset(rows)
        decisions = Decisions(again=bool(again), release=bool(release), reason=release or again, rows=named)
        return dry_run(
            asked,
            self.settings,
            self.actor,
            decisions,
            requests_max=0,
            results=None,
            with_plan=with_plan,
            preflight=preflight,
            insists=insists,
        )

    def resume(self, batch: str | None = None, stale_reason: str | None = None) -> Summary:
        """Resume a batch."""
        results = self.folder / "results.csv"
        credentials = Credentials("desk", Secret("desk-key"))
        request = RunRequest(results=None)
        return resume(
            batch, lambda _: results, request, self.settings, credentials, ANN, Quiet(), stale_reason=stale_reason
        )

    def options(self, file: str) -> dict[str, Any]:
        """Return the options of the batch of a file."""
        with closing(open_ledger(self.settings.ledger, read_only=True)) as ledger:
            return next(one.options for one in ledger.batches() if Path(one.file).stem == file)

    def events(self, kind: str) -> list[tuple[str, str | None]]:
        """Return who and why for all events of a kind."""
        with closing(open_ledger(self.settings.ledger, read_only=True)) as ledger:
            return [(event.who, event.why) for event in ledger.events() if event.kind == kind]


def make_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Set up a desk with an empty ledger."""
    settings = Settings(
        gateway=GatewaySettings(base_url="http://127.0.0.1:9", api_id="desk"),
        submit=SubmitSettings(rate="20000", workers=1),
        ledger=LedgerSettings(
            url=str(tmp_path / "state" / "ledger.db"), key_file=str(tmp_path / "keys" / "ledger.key")
        ),
        policy=PolicySettings(variance=False),
    )
    found = Desk(tmp_path, settings)

    class Gateway:
        def __init__(self, *_: object) -> None:
            pass

        def pay(self, body: bytes, before_first_byte: BeforeFirstByte) -> Outcome:
            before_first_byte()
            reference = json.loads(body)["invoiceNumber"]
            found.arrived[reference] += 1
            return found.answer(reference)

        def close(self) -> None:
            pass

    monkeypatch.setattr(run, "PaymentsClient", Gateway)
    return found
