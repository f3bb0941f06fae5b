"""Who did what to a batch, from the ledger's history: for the summary that a person signs and for the report page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import PLAN_USED, BatchSummary, Event
from batchpay.payment import State
from batchpay.text import local_time

_NAMES_SHOWN = 8
_BECAME = {"accepted": "accepted", "declined": "declined", "pending": "to be sent again"}


@dataclass(frozen=True, slots=True)
class Act:
    """One person's act."""

    who: str
    at: datetime
    why: str | None = None
    rows: str = ""
    """For a decision about rows in doubt: which rows became what."""


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
            getattr(story, _KINDS[event.kind]).append(Act(event.who, event.at, event.why, _rows_by_state(event)))
        elif event.kind == PLAN_USED:
            used = json.loads(event.detail)
            story.prepared_by.append(used["prepared by"])
            story.seals.append(used["seal"])
            story.approved += [Act(one["who"], datetime.fromisoformat(one["at"])) for one in used["approvals"]]
    return story


def facts_to_sign(story: Story, batch: BatchSummary) -> list[tuple[str, str]]:
    """Describe which content it is and who was involved: label and text."""
    sheet, accepted = batch.options.get("sheet"), batch.options.get("accepted_suggestions") or {}
    unreadable = batch.options.get("unreadable_amounts") or 0
    in_doubt = batch.by_state[State.IN_DOUBT].rows
    return [
        ("batch", f"{batch.batch}, {batch.environment}"),
        ("content", batch.digest.hex()),
        *([("sheet", str(sheet))] if sheet else []),
        ("gateway", batch.origin),
        ("seal", ", ".join(story.seals) or "none: sent without a plan"),
        ("prepared by", ", ".join(dict.fromkeys(story.prepared_by)) or _acts(story.submitted)),
        ("approved by", _acts(story.approved) or "nobody: no approval was asked for"),
        ("submitted by", _acts(story.submitted)),
        ("sent by", _acts(story.sent) or "not sent yet"),
        ("settled by", _acts(story.settled) or ("nothing yet" if in_doubt else "nothing had to be settled")),
        *([("amounts that can't be read", f"{unreadable:,}; they are in no sum")] if unreadable else []),
        *([("corrected as suggested", ", ".join(f"{name} {n:,}" for name, n in accepted.items()))] if accepted else []),
    ]


def _acts(acts: Sequence[Act]) -> str:
    more = f" and {len(acts) - _NAMES_SHOWN} more" if len(acts) > _NAMES_SHOWN else ""
    return "; ".join(f"{act.who}, {local_time(act.at)}" for act in acts[-_NAMES_SHOWN:]) + more


def _rows_by_state(event: Event) -> str:
    """`accepted 3, 7-9; declined 12` for a decision about rows in doubt, nothing for other acts."""
    if event.kind != "resolved":
        return ""
    moved = json.loads(event.detail)
    return "; ".join(f"{_BECAME[state]}: {rows}" for state, rows in moved.items() if state in _BECAME)
