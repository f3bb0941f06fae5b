"""/_sandbox: see what arrived and came back, set faults and the clock. Needs no credentials; no real gateway has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Blueprint, Response, jsonify, request

from batchpay.sandbox.exchange import Sandbox
from batchpay.sandbox.faults import OPERATIONS, BadRule
from batchpay.sandbox.returns import FORMS, return_file
from batchpay.sandbox.schedules import standing

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

    @blueprint.get("/returns")
    def returns() -> Response | tuple[Response, int]:
        """Return what came back until now as a bank's return file: `format` is csv or ach."""
        form = request.args.get("format", "csv")
        return Response(return_file(store, form), mimetype=FORMS[form]) if form in FORMS else _wrong("csv or ach")

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
