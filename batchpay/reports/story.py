"""Who did what to a batch, out of the ledger's history: for the summary that a person signs and for the report page."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import PLAN_USED


@dataclass(frozen=True, slots=True)
class Act:
    """One person's act."""

    who: str
    at: datetime
    why: str | None = None


@dataclass(slots=True)
class Story:
    """The acts that a controller asks for, each list the oldest first."""

    submitted: list[Act] = field(default_factory=list)
    """Registrations and releases."""
    prepared_by: list[str] = field(default_factory=list)
    approved: list[Act] = field(default_factory=list)
    seals: list[str] = field(default_factory=list)
    sent: list[Act] = field(default_factory=list)
    """Runs; `why` is what stopped one early."""
    settled: list[Act] = field(default_factory=list)
    """Decisions about rows in doubt."""


_KINDS = {"registered": "submitted", "released": "submitted", "started": "sent", "resolved": "settled"}


def story_of(ledger: Ledger, batch: str) -> Story:
    """Read a batch's history."""
    story = Story()
    for event in ledger.events(batch):
        if event.kind in _KINDS:
            getattr(story, _KINDS[event.kind]).append(Act(event.who, event.at, event.why))
        elif event.kind == PLAN_USED:
            used = json.loads(event.detail)
            story.prepared_by.append(used["prepared by"])
            story.seals.append(used["seal"])
            story.approved += [Act(one["who"], datetime.fromisoformat(one["at"])) for one in used["approvals"]]
    return story
