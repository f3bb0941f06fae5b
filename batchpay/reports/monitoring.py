"""The record of monitoring: what was flagged since a day, who decided about it, how fast, and what banks sent back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any

from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import CONFIRMED, WITHDRAWN
from batchpay.ledger.records import PLAN_USED, POLICY, BatchSummary, Event
from batchpay.payment import Environment, State, Totals, added_up, format_cents
from batchpay.reports.page_parts import made_now, write
from batchpay.schemas.words import called
from batchpay.text import amount, counted, instant, local_time
from batchpay.writing.atomic import FileOrPath

_DECISIONS = ("released", "resolved", "cancelled", CONFIRMED, WITHDRAWN)
"""Events by which a person decides about rows."""
_UNAUTHORIZED = ("R05", "R07", "R10", "R11", "R29", "R51")
_SECTIONS = {
    "flags": (
        "What was flagged",
        "Rows by rule: a warning that went on, or held or rejected until now, or released by a person.",
    ),
    "decisions": (
        "Who decided",
        "Releases, approvals, settlements, cancellations, with the time since registration.",
    ),
    "returns": ("What banks sent back or changed", "Payments by the bank's code."),
    "unauthorized": ("Returned as not authorized", f"Each payment with one of {', '.join(_UNAUTHORIZED)}."),
    "policy": ("Changes of the policy", "What the ledger has on approvals and holding, by whom and why."),
}
_NAMES = {"went_on": "went on", "rejected": "held or rejected", "after_s": "after"}


def monitoring(ledger: Ledger, environment: Environment, since: date) -> dict[str, Any]:
    """Read the record since a day, from the ledger alone, as JSON shows it."""
    begin = datetime(since.year, since.month, since.day).astimezone(ledger.zone())
    batches = {one.batch: one for one in ledger.batches() if one.environment is environment}
    new = [one for one in batches.values() if one.registered_at >= begin]
    events = [one for one in ledger.events() if one.at >= begin and (one.batch is None or one.batch in batches)]
    approved = {one.batch for one in events if one.kind == PLAN_USED and json.loads(one.detail)["approvals"]}
    facts = [one for one in ledger.facts(environment, since=since) if not one.withdrawn]
    by_code = added_up({one.code: Totals(1, one.amount_cents)} for one in facts)
    accepted = added_up(one.apart.get(State.ACCEPTED, {}) for one in new)
    policies = [(one, json.loads(one.detail).get(environment.value)) for one in events if one.kind == POLICY]
    return {
        "since": since.isoformat(),
        "until": instant(ledger.now()),
        "environment": environment.value,
        "batches": len(new),
        "approved_by_others": sum(one.batch in approved for one in new),
        "rows": sum(one.total.rows for one in new),
        "accepted": {side: format_cents(one.cents) for side, one in sorted(accepted.items())},
        "flags": _flags(ledger, new, events),
        "decisions": [line for event in events for line in _decided(event, batches)],
        "returns": [
            {"code": code, "rows": one.rows, "amount": format_cents(one.cents)} for code, one in sorted(by_code.items())
        ],
        "unauthorized": [
            {"day": one.day.isoformat(), "code": one.code, "batch": one.batch, "row": one.row,
             "direction": one.direction, "amount": format_cents(one.amount_cents)}
            for one in facts if one.code in _UNAUTHORIZED
        ],
        "policy": [
            {"at": instant(one.at), "who": one.who, "policy": _written(now or {}), "note": one.why or ""}
            for one, now in policies
        ],
    }  # fmt: skip


def _written(policy: Mapping[str, Any]) -> str:
    said = {name: ", ".join(one) if isinstance(one, list) else str(one) for name, one in policy.items()}
    return "; ".join(f"{name} {text}" for name, text in said.items() if text)


def _flags(ledger: Ledger, batches: list[BatchSummary], events: list[Event]) -> list[dict[str, Any]]:
    went_on, rejected, released = Counter[str](), Counter[str](), Counter[str]()
    for event in events:
        if event.kind == "released":
            released.update(json.loads(event.detail).get("flags", {}))  # an earlier version kept none
    for batch in batches:
        went_on.update(batch.options.get("warning_counts", {}))
        if batch.by_state[State.REJECTED].rows:
            rejected.update(reason for row in ledger.rejected(batch.batch) for reason in row.reasons)
    return [
        {"rule": rule, "went_on": went_on[rule], "rejected": rejected[rule], "released": released[rule]}
        for rule in sorted(went_on | rejected | released)
    ]


def _decided(event: Event, batches: Mapping[str, BatchSummary]) -> Iterator[dict[str, Any]]:
    """Yield what people decided by an event, and how long after the batch was registered."""
    acts: list[tuple[datetime, str, str]] = []
    detail = json.loads(event.detail) if event.kind in (*_DECISIONS, PLAN_USED) else {}
    if event.kind == PLAN_USED:
        acts = [(datetime.fromisoformat(one["at"]), one["who"], "approved") for one in detail["approvals"]]
    elif event.kind in _DECISIONS:
        acts = [(event.at, event.who, called("event")[event.kind])]
    elif event.kind == "registered" and event.why:
        acts = [(event.at, event.who, "paid the same content once more")]
    batch = batches.get(event.batch or "")
    rows = "; ".join(str(detail[name]) for name in (*State, "row") if detail.get(name))
    for at, who, what in acts:
        after_s = None if batch is None else max(0, round((at - batch.registered_at).total_seconds()))
        yield {"at": instant(at), "who": who, "what": what, "batch": event.batch, "rows": rows, "after_s": after_s,
               "note": event.why or ""}  # fmt: skip


def write_monitoring(found: Mapping[str, Any], path: FileOrPath) -> None:
    """Write the record as a page: whole or not at all, mode 0600."""
    batches = counted(found["batches"], "batch", "batches")
    facts = {
        "since": found["since"],
        "until": _cell("at", found["until"]),
        "environment": found["environment"],
        "registered": f"{batches}, {counted(found['rows'], 'row')}",
        "approved by others": f"{found['approved_by_others']} of {batches}",
        "accepted": "; ".join(f"{side} {amount(total)}" for side, total in found["accepted"].items()) or "nothing",
    }
    tables = [
        {
            "title": title,
            "about": about,
            "columns": [_NAMES.get(name, name) for name in found[section][0]] if found[section] else [],
            "rows": [[_cell(name, value) for name, value in line.items()] for line in found[section]],
        }
        for section, (title, about) in _SECTIONS.items()
    ]
    write({"facts": facts, "tables": tables, "made": made_now()}, path, "monitoring.html")


def _cell(name: str, value: Any) -> str:
    """Return a value as the page shows it."""
    if value is None or name not in ("at", "after_s", "amount"):
        return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    if name == "at":
        return local_time(datetime.fromisoformat(value))
    return amount(value) if name == "amount" else f"{value // 3600} h {value // 60 % 60} min"
