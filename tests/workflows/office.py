"""An office: people who prepare, approve and send, one ledger, and a gateway that only counts; all in this process."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from batchpay.approval.plan import Plan, PlanText
from batchpay.gateway.credentials import Credentials
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.schemas.rule import RuleOptions
from batchpay.sending.limits import Limits
from batchpay.settings import GatewaySettings, Secret, Settings, SubmitSettings
from batchpay.summary import Summary
from batchpay.workflows import check as checking
from batchpay.workflows import submit as flow
from batchpay.workflows.approve import PlanView, approve_plan, open_plan
from batchpay.workflows.requests import Decisions, FileRequest
from batchpay.workflows.run import RunRequest, resume
from tests.support.ledger_factory import ledger_settings
from tests.support.oracle import Oracle
from tests.support.payment_files import HEADER, VALID
from tests.workflows.desk import Quiet

ANN, BEN, EVE, CRON = Actor("ann", "desk"), Actor("ben", "desk"), Actor("eve", "desk"), Actor("cron", "server")
NONE = Decisions()
AGAIN = Decisions(again=True, reason="the bank lost it")
RELEASE = Decisions(release=True, reason="seen by Kim")
CREDENTIALS = Credentials("sandbox", Secret("k"))


@dataclass
class Office:
    """What its people can do."""

    folder: Path
    oracle: Oracle
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._log_begins = self.oracle.log.stat().st_size
        self.settings = Settings(
            gateway=GatewaySettings(base_url=self.oracle.origin, api_id="sandbox"),
            ledger=ledger_settings(self.folder),
            submit=SubmitSettings(rate="5000"),
        )
        self.ledger().close()

    def policy(self, **changes: Any) -> None:
        """Change [policy]."""
        self.settings = replace(self.settings, policy=replace(self.settings.policy, **changes))

    def ledger(self) -> Ledger:
        """Return the ledger; the caller closes it."""
        return open_ledger(self.settings.ledger, create_as="tester")

    def file(self, *amounts: str, name: str = "pay.csv", **changes: str) -> str:
        """Write a payment file; row N has the paymentId `P-N` and the invoice `I-N`, unless `ids` names another."""
        ids = changes.pop("ids", "P")
        columns = ("paymentId", "invoiceNumber", *HEADER)
        lines = [",".join(columns)]
        for number, amount in enumerate(amounts, start=1):
            row = {**VALID, "amount": amount, "paymentId": f"{ids}-{number}", "invoiceNumber": f"I-{number}", **changes}
            lines.append(",".join(row[column] for column in columns))
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def request(self, path: str, map_file: str | None = None, **rules: Any) -> FileRequest:
        """Return how a file is checked."""
        return FileRequest(path, RuleOptions(**{"as_of": date(2026, 11, 23), **rules}), map_file=map_file)

    def dry_run(
        self,
        path: str,
        by: Actor = ANN,
        decisions: Decisions = NONE,
        plan: str | None = None,
        **rules: Any,
    ) -> checking.Preview:
        """Check a file, and prepare a plan if one is named."""
        preview = checking.dry_run(
            self.request(path, **rules),
            self.settings,
            by,
            decisions,
            requests_max=0,
            results=None,
            with_plan=plan is not None,
        )
        if plan is not None and preview.plan is not None:
            preview.plan.write(plan)
        return preview

    def plan(self, path: str, by: Actor = ANN, name: str = "plan.json", **options: Any) -> str:
        """Prepare a plan; return its path."""
        target = str(self.folder / name)
        self.dry_run(path, by, plan=target, **options)
        return target

    def approve(self, plan: str, by: Actor) -> PlanView:
        """View a plan, and approve what was shown."""
        return approve_plan(plan, open_plan(plan, self.settings).plan.seal, self.settings, by)

    def submit(
        self,
        path: str,
        plan: str | None = None,
        decisions: Decisions = NONE,
        limit: int | None = None,
        **rules: Any,
    ) -> Summary:
        """Send a file, as a schedule does."""
        submission = flow.SubmitRequest(
            RunRequest(None, Limits(limit)), decisions, PlanText.read(plan) if plan else None
        )
        summary, _ = flow.submit(self.request(path, **rules), submission, self.settings, CREDENTIALS, CRON, Quiet())
        return summary

    def resume(self, limit: int | None = None) -> Summary:
        """Resume the latest batch."""
        request = RunRequest(None, Limits(limit))
        target = self.folder / "results.csv"
        return resume(None, lambda batch: target, request, self.settings, CREDENTIALS, CRON, Quiet())

    def received(self) -> list[str]:
        """Return references of the payments that arrived, in order."""
        return sorted(entry["reference"] for entry in self.oracle.entries(self._log_begins))

    def batches(self) -> int:
        """Return how many batches the ledger holds."""
        with closing(self.ledger()) as ledger:
            return len(ledger.batches())

    def used_plans(self) -> list[dict[str, Any]]:
        """Return what the history says of plans that were used."""
        with closing(self.ledger()) as ledger:
            assert ledger.check() == []
            return [json.loads(event.detail) for event in ledger.events() if event.kind == "plan used"]

    def read(self, plan: str) -> Plan:
        """Return a plan as its file has it."""
        return open_plan(plan, self.settings).plan
