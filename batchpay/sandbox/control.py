"""/_sandbox: see what arrived, set faults and the clock, start over. Needs no credentials; no real gateway has it.

When the payments of a recurring schedule fall due is our assumption, since the interface says only which fields it has:
the first one on the start date; MONTHLY uses the day of the month, or the last day of a shorter month; with end of
month `Y` every payment is due on its month's last day; DAILY is every calendar day; 0 payments means until stopped.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, jsonify, request

from batchpay.sandbox.exchange import Sandbox
from batchpay.sandbox.faults import OPERATIONS, BadRule

_PAGE = 1_000


def control_api(sandbox: Sandbox) -> Blueprint:
    """Create the routes under /_sandbox."""
    blueprint = Blueprint("control", __name__, url_prefix="/_sandbox")
    store = sandbox.store

    @blueprint.get("/journal")
    def journal() -> Response | tuple[Response, int]:
        """List requests in order (`operation`, `after` a number, `limit`), and how often each operation came."""
        after, limit = (request.args.get(name, default, type=int) for name, default in (("after", 0), ("limit", _PAGE)))
        if after is None or limit is None or not 0 <= limit <= _PAGE or not 0 <= after < 2**63:
            return _wrong(f"after is a number, limit at most {_PAGE}")
        arrivals = store.arrivals(request.args.get("operation"), after, limit)
        counts = {operation: store.counts(operation) for operation in OPERATIONS}
        return jsonify({"counts": counts, "requests": arrivals})

    @blueprint.get("/faults")
    def faults() -> Response:
        return jsonify({"rules": sandbox.rules.listing()})

    @blueprint.post("/faults")
    def set_faults() -> Response | tuple[Response, int]:
        """Put the rules of the JSON list in force, replacing the previous ones; an empty list ends all."""
        try:
            sandbox.rules.set(request.get_json(silent=True))
        except BadRule as error:
            return _wrong(str(error))
        return jsonify({"rules": sandbox.rules.listing()})

    @blueprint.post("/reset")
    def reset() -> Response:
        """Forget payments, journal, faults and clock; restore the first accounts."""
        store.reset()
        sandbox.rules.set([])
        return jsonify({"reset": True})

    @blueprint.get("/clock")
    def clock() -> Response:
        """Return the sandbox's time, and how far each recurring payment has come by then."""
        return jsonify(_clock(sandbox))

    @blueprint.post("/clock")
    def set_clock() -> Response | tuple[Response, int]:
        """Set the time by {"now": "2026-12-31T12:00:00Z"} or advance it by {"advance_days": 30}."""
        try:
            store.set_clock(_wanted_time(sandbox, request.get_json(silent=True)))
        except (ValueError, OverflowError):
            return _wrong('now: a time like "2026-12-31T12:00:00Z"; advance_days: a whole number')
        return jsonify(_clock(sandbox))

    @blueprint.get("/accounts")
    def accounts() -> Response:
        """Return the accounts as stored: which is its kind's default, which are deleted; secrets masked."""
        inside = [
            {
                "id": account.id,
                "gateway_name": account.gateway_name,
                "default": account.is_default,
                "deleted": account.deleted,
                "attributes": account.attributes,
            }
            for account in store.accounts()
        ]
        return jsonify({"accounts": inside})

    return blueprint


def _wrong(text: str) -> tuple[Response, int]:
    return jsonify({"error": text}), 400


def _wanted_time(sandbox: Sandbox, given: Any) -> datetime:
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError
    if isinstance(days := given.get("advance_days"), int) and not isinstance(days, bool):
        return sandbox.store.now() + timedelta(days=days)
    if not isinstance(now := given.get("now"), str):
        raise ValueError
    moment = datetime.fromisoformat(now)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _clock(sandbox: Sandbox) -> dict[str, Any]:
    now = sandbox.store.now()
    schedules = [{"payment": number, **standing(plan, now.date())} for number, plan in sandbox.store.schedules()]
    return {"now": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "schedules": schedules}


def due(plan: Mapping[str, Any], index: int) -> date | None:
    """Return the date on which payment `index` (from 0) is due; None beyond the calendar."""
    month, day, year = (int(part) for part in str(plan["recurringStartDate"]).split("/"))
    try:
        if plan["recurringBillingCycle"] == "DAILY":
            return date(year, month, day) + timedelta(days=index)
        months = year * 12 + month - 1 + index
        last = monthrange(months // 12, months % 12 + 1)[1]
        return date(months // 12, months % 12 + 1, last if plan["recurringEndOfMonth"] == "Y" else min(day, last))
    except (ValueError, OverflowError):
        return None


def made_until(plan: Mapping[str, Any], today: date) -> int:
    """Return how many payments were due up to and including this day."""
    wanted = int(plan["recurringNumOfPayments"])
    first = due(plan, 0)
    if first is None or first > today:
        return 0
    if plan["recurringBillingCycle"] == "DAILY":
        count = (today - first).days + 1
    else:
        count = (today.year - first.year) * 12 + today.month - first.month
        this_month = due(plan, count)
        count += 1 if this_month is not None and this_month <= today else 0
    return min(count, wanted) if wanted else count


def standing(plan: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return how far a schedule has come: payments made, left (None: until stopped), and the next due date."""
    made = made_until(plan, today)
    wanted = int(plan["recurringNumOfPayments"])
    following = due(plan, made) if not wanted or made < wanted else None
    return {
        "made": made,
        "left": wanted - made if wanted else None,
        "next": following.isoformat() if following else None,
        "cycle": plan["recurringBillingCycle"],
    }
