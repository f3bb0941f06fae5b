"""Requesting and giving approval: one person submits a checked file to others, who see its seal and sign by password.

Whether an approval counts is decided by acts.py for the page and by approval/ for every entrance; the child that sends
compares the plan with the file once more.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.approval.plan import Plan, PlanText
from batchpay.errors import FileRefused, WaitingForPerson, WrongUse
from batchpay.operations.notify import Notice, notify_plan
from batchpay.payment import Direction
from batchpay.web.acts import NOT_NOW, Refusal, over_limit, page_settings, refused, signed
from batchpay.web.checked import page_context
from batchpay.web.files import SENT, facts_of, file_or_404, in_sight, people_by_name
from batchpay.web.payments import table_of
from batchpay.web.people import Person
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, given_decision, given_words, refusal, site
from batchpay.web.spool import Row
from batchpay.web.words import as_sentence, left_out, moves, seal
from batchpay.workflows.approve import PlanView, add_approval, view_plan
from batchpay.workflows.policy import decide_lowering, policy_in_force

blueprint = Blueprint("approval", __name__)

_DAY_S = 86_400


def lapse(here: Site) -> None:
    """Return requests that nobody answered within `policy.approval_days` to their files' preparers."""
    days = policy_in_force(here.ledger(), here.settings).settings.approval_days
    before = here.clock() - days * _DAY_S
    for file in here.store.all("SELECT id FROM file WHERE state = 'asked' AND asked_at < ?", before):
        with here.store.write() as db:
            if here.store.move(db, file["id"], "asked", "checked", told=f"Nobody approved this within {days} days."):
                here.store.note(db, "batchpay", file["id"], f"the request ended: nobody approved it within {days} days")


def approvers_of(here: Site, file: Row) -> list[str]:
    """Return those who approved the present request, or what was sent, in the order in which they did."""
    found = here.store.all(
        "SELECT who FROM decision WHERE file = ? AND what = 'approved' AND at >= ? AND seal = ? ORDER BY at",
        file["id"], file["asked_at"] or 0, file["seal"] or "",
    )  # fmt: skip
    return [decision["who"] for decision in found]


def waiting_for(here: Site, person: Person) -> list[Row]:
    """Return the files that this person could approve or turn down now."""
    asked = here.store.all("SELECT * FROM file WHERE state = 'asked' ORDER BY asked_at")
    return [file for file in asked if _may_not(here, person, file) is None]


def _may_not(here: Site, person: Person, file: Row) -> Refusal | None:
    """Return why a person can't approve a request: by their role or identity, above their limit, or nobody can.

    A plan that can't be read concerns its own file: the other requests, and every page's menu, are still shown.
    """
    problem = refused("approve", person, file, approvers_of(here, file))
    if problem is None and person.limit_cents is not None:
        try:
            problem = _over_own_limit(here, person, file, plan_view(here, file).plan)
        except FileRefused as error:
            problem = Refusal(f"{error}. The request can only be withdrawn.", NOT_NOW)
    return problem


def _over_own_limit(here: Site, person: Person, file: Row, plan: Plan) -> Refusal | None:
    """Refuse a batch above a person's limit, or that takes what they signed in 24 hours above it in a direction."""
    problem = over_limit(person, plan.batch_cents)
    return problem or over_day(here, person, {side: plan.totals(side).cents for side in Direction}, file["id"])


def over_day(here: Site, person: Person, sums: Mapping[Direction, int], asked: str = "") -> Refusal | None:
    """Refuse what takes a person's 24 hours above their limit in a direction; the file `asked` is in the sums already.

    The direction of what they released, or agreed to send again, is not kept: it counts in both.
    """
    if person.limit_cents is None:
        return None
    earlier = here.store.all(
        "SELECT DISTINCT decision.file, name, plan, what, decision.seal"
        " FROM decision LEFT JOIN file ON file.id = decision.file"
        " WHERE who = ? AND at >= ? AND (what IN ('released', 'agreed') OR what = 'approved' AND file.id != ?"
        " AND decision.seal = file.seal AND state NOT IN ('checking', 'checked', 'refused', 'replaced'))",
        person.name, here.clock() - _DAY_S, asked,
    )  # fmt: skip
    for one in earlier:
        try:  # whoever writes web.db must not lower the sum: both carry a keyed code
            if one["what"] != "approved":
                cents = signed(here.ledger(), one["file"], person.name, one["seal"]).cents
                sums = {side: before + cents for side, before in sums.items()}
                continue
            plan = Plan.parse(PlanText(one["name"], one["plan"] or ""), here.ledger())
            if (person.name, one["seal"]) not in {(given.who.name, given.seal) for given in plan.approvals}:
                raise FileRefused(f"{one['name']} has the plan of another approval")
        except FileRefused as error:
            return Refusal(
                f"Your limit counts what you approved in the last 24 hours, and {error}. Another person must approve.",
                NOT_NOW,
            )
        sums = {side: cents + plan.totals(side).cents for side, cents in sums.items()}
    side = max(sums, key=lambda one: sums[one])
    of = f" of {side.lower()}s" if len({*sums.values()}) > 1 else ""
    return over_limit(person, sums[side], f"{of} with what you approved in the last 24 hours")


@blueprint.get("/to-approve")
def waiting() -> ResponseReturnValue:
    """List what waits for approval: what this person can decide first, then what others must, and the policy."""
    return _waiting()


def _waiting(wrong: Refusal | None = None) -> ResponseReturnValue:
    here, person = site(), current_person()
    lapse(here)
    mine = waiting_for(here, person)
    numbers = {file["id"] for file in mine}
    asked = here.store.all("SELECT * FROM file WHERE state = 'asked' ORDER BY asked_at")
    sight = in_sight()
    others = [file for file in asked if file["id"] not in numbers and sight.file(file["id"])]
    told = {file["id"]: _may_not(here, person, file) for file in others}
    return render_template(
        "to_approve.html",
        mine=[(file, facts_of(file)) for file in mine],
        others=[(file, facts_of(file), told[file["id"]]) for file in others],
        names=people_by_name(here),
        policy=policy_in_force(here.ledger(), here.settings) if person.may("approve") else None,
        wrong=wrong,
    ), wrong.code if wrong else 200


@blueprint.post("/policy")
@needs("approve")
def lowering() -> ResponseReturnValue:
    """Approve a request for a less strict policy with password and code, or refuse it with a reason."""
    here, person, is_no = site(), current_person(), given_decision("approve", "refuse") == "refuse"
    why = given_words("why") if is_no else None
    if why == "":
        return _waiting(Refusal("Say why. Nothing was done.", 400))
    if (wrong := prove_again()) is not None:
        return _waiting(Refusal(wrong, 401))
    try:
        decide_lowering(here.settings, person.actor(), why, asked_at=request.form.get("asked_at", ""))
    except WaitingForPerson as error:
        return _waiting(Refusal(f"{error}. Nothing was approved.", 403))
    except WrongUse as error:
        return _waiting(Refusal(f"{as_sentence(str(error))} Nothing was done.", NOT_NOW))
    with here.store.write() as db:
        done = f"refused to lower the policy: {why}" if is_no else "approved that the policy is lowered"
        here.store.note(db, person.name, None, done, person.proof)
    return redirect(url_for("approval.waiting"), 303)


@blueprint.get("/files/<file_id>/approve")
def page(file_id: str) -> ResponseReturnValue:
    """Show what is to be approved."""
    lapse(site())
    file = file_or_404(file_id)
    if file["state"] != "asked":
        return redirect(url_for("files.file", file_id=file_id))
    try:
        return _page(file)
    except FileRefused as error:  # a newer version's start, say: nobody has to wait until the request lapses
        sentence = f"{error}. The request can only be withdrawn; then check the file again."
        may_withdraw = refused("withdraw", current_person(), file) is None
        return render_template("said.html", sentence=sentence, code=NOT_NOW, may_withdraw=may_withdraw), NOT_NOW


def _page(file: Row, wrong: Refusal | None = None) -> ResponseReturnValue:
    here, person = site(), current_person()
    approvers = approvers_of(here, file)
    view = plan_view(here, file)
    # The button's total is read from the plan, which carries a keyed code: no other total can be put there.
    may_not = refused("approve", person, file, approvers) or _over_own_limit(here, person, file, view.plan)
    may_not = may_not or _spent(view, "Turn it down or withdraw it")
    context: dict[str, Any] = page_context(file, facts_of(file))
    return (
        render_template(
            "approve.html",
            **context,
            view=view,
            table=table_of(file),
            to_send=view.plan.content["to_send"],
            counted=[name for name in approvers if name in {one.who.name for one in view.counted}],
            missing=view.needed - len(view.counted),
            may_not=may_not,
            may_turn_down=refused("turn_down", person, file) is None,
            may_withdraw=refused("withdraw", person, file) is None,
            wrong=wrong,
        ),
        wrong.code if wrong else 200,
    )


def _spent(view: PlanView, way_out: str) -> Refusal | None:
    """Report that a plan lets nothing through anymore: a password typed for it would be refused."""
    if view.spent is None:
        return None
    return Refusal(f"{as_sentence(view.spent)} {way_out}.", NOT_NOW)


@blueprint.post("/files/<file_id>/ask")
@needs("prepare")
def ask(file_id: str) -> ResponseReturnValue:
    """Submit a checked file for approval; one of which every row is held needs none, since nothing of it is sent."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    facts = facts_of(file)
    problem = refused("ask", person, file) or _not_to_ask(here, file, facts)
    only_held, is_partial = bool(facts and facts.get("only_held")), request.form.get("partial") == "yes"
    if problem is None and facts and left_out(facts)["rows"] and not (only_held or is_partial):
        problem = Refusal("First confirm that the rows to correct are left out.", 400)
    if problem is not None:
        return refusal(problem)
    if request.form.get("seal") != file["seal"]:  # checked again in another tab, with another result
        abort(NOT_NOW)
    assert facts is not None, "a file without facts is refused above"
    plan = dataclasses.replace(plan_view(here, file).plan, approvals=())  # those of an earlier request no longer count
    with here.store.write() as db:
        if not here.store.move(
            db, file_id, "checked", "approved" if only_held else "asked",
            asked_by=person.name, asked_at=here.clock(), note=given_words("note") or None, plan=plan.text(), told=None,
            stop_by=None,
        ):  # fmt: skip
            abort(NOT_NOW)
        what = f"requested approval: {moves(facts['to_send'], facts)}, seal {seal(file['seal'])}"
        if only_held:
            what = "recorded it, so that its held payments can be released"
            here.jobs.want(db, file_id, "submit", person.name)
        here.store.note(db, person.name, file_id, what, person.proof)
    if only_held:
        here.jobs.wake()
        return redirect(url_for("runs.page", file_id=file_id), 303)
    _notify(Notice.APPROVAL_REQUESTED, plan)
    return redirect(url_for("approval.page", file_id=file_id), 303)


def _notify(notice: Notice | None, plan: Plan, *, is_decided: bool = True) -> None:
    """Tell of a decision while the page goes on."""
    say = partial(notify_plan, site().settings, notice, plan, is_decided=is_decided)
    threading.Thread(target=say, name="notice", daemon=True).start()


def _not_to_ask(here: Site, file: Row, facts: dict[str, Any] | None) -> Refusal | None:
    """Return why a checked file can't be submitted for approval."""
    if facts is None or file["plan"] is None:
        return Refusal("Check the file again first.", NOT_NOW)
    if not facts["to_send"]["total"]["rows"] and not facts.get("only_held"):
        return Refusal("Nothing in this file would be sent.", NOT_NOW)
    if facts.get("is_refused"):  # a file that was checked before there were limits has no such fact
        return Refusal(f"This file is above a limit: {'; '.join(facts['over_limits'])}. Nothing was done.", NOT_NOW)
    if facts["waits_for"]:
        return Refusal(f"Nothing new can be sent now: {facts['waits_for']}.", NOT_NOW)
    return _spent(plan_view(here, file), "Check the file again first")


@blueprint.post("/files/<file_id>/withdraw")
@needs("prepare")
def withdraw(file_id: str) -> ResponseReturnValue:
    """Withdraw a request."""
    person, file = current_person(), file_or_404(file_id)
    problem = refused("withdraw", person, file)
    if problem is not None:
        return refusal(problem)
    _send_back(file, person, "withdrew the request", None)
    with suppress(FileRefused):
        _notify(None, plan_view(site(), file).plan)
    return redirect(url_for("files.file", file_id=file_id), 303)


@blueprint.post("/files/<file_id>/decide")
@needs("approve")
def decide(file_id: str) -> ResponseReturnValue:
    """Approve with password and code, or turn down with a reason."""
    here, person = site(), current_person()
    lapse(here)
    file = file_or_404(file_id)
    is_no, approvers = given_decision("approve", "turn down") == "turn down", approvers_of(here, file)
    if not is_no and file["state"] in SENT and person.name in approvers:  # sent twice: "nothing was done" is untrue
        return redirect(url_for("runs.page", file_id=file_id), 303)
    problem = refused("turn_down" if is_no else "approve", person, file, approvers)
    if problem is not None:
        return refusal(problem)
    plan = plan_view(here, file).plan
    if request.form.get("plan") != plan.id:  # a plan of the same seal may have other warnings
        abort(NOT_NOW)
    if is_no:
        return _turn_down(file, person, plan)
    if request.form.get("seal") != file["seal"]:
        abort(NOT_NOW)
    problem = _over_own_limit(here, person, file, plan)
    if problem is None and (wrong := prove_again()) is not None:
        problem = Refusal(wrong, 401)
    if problem is not None:
        return _page(file, problem)
    try:
        kept = PlanText(file["name"], file["plan"])
        view = add_approval(kept, file["seal"], here.ledger(), page_settings(here.settings), person.actor())
    except WaitingForPerson as error:
        return _page(file, Refusal(f"{error}. Nothing was approved.", 403))
    except FileRefused as error:
        return _page(file, Refusal(f"{error}. Nothing was approved.", NOT_NOW))
    is_enough = len(view.counted) >= view.needed
    _record(here, file, person, view.plan, is_enough=is_enough)
    _notify(Notice.APPROVAL_GIVEN, view.plan, is_decided=is_enough)
    return redirect(url_for("runs.page" if is_enough else "approval.page", file_id=file_id), 303)


def _record(here: Site, file: Row, person: Person, plan: Plan, *, is_enough: bool) -> None:
    """Record an approval, and with the last one request the run; all of it or nothing."""
    with here.store.write() as db:
        (stands,) = db.execute("SELECT plan FROM file WHERE id = ?", (file["id"],)).fetchone()
        if _over_own_limit(here, person, file, plan) is not None:  # they approved another one in the same moment
            abort(NOT_NOW)
        after = "approved" if is_enough else "asked"
        if stands != file["plan"] or not here.store.move(db, file["id"], "asked", after, plan=plan.text(), told=None):
            abort(NOT_NOW)
        db.execute(
            "INSERT INTO decision (file, who, what, at, seal) VALUES (?, ?, 'approved', ?, ?)",
            (file["id"], person.name, here.clock(), file["seal"]),
        )
        what = f"approved: {moves(plan.content['to_send'], facts_of(file))}, seal {seal(file['seal'])}"
        here.store.note(db, person.name, file["id"], what, person.proof)
        if is_enough:
            here.jobs.want(db, file["id"], "submit", person.name)
    here.jobs.wake()


def _turn_down(file: Row, person: Person, plan: Plan) -> ResponseReturnValue:
    why = given_words("why")
    if not why:
        return _page(file, Refusal("Say why, so that it can be corrected. Nothing was done.", 400))
    _send_back(file, person, f"turned it down: {why}", f"{person.shown} turned this down: {why}")
    _notify(Notice.APPROVAL_TURNED_DOWN, plan)
    return redirect(url_for("approval.waiting"), 303)


def _send_back(file: Row, person: Person, what: str, told: str | None) -> None:
    here = site()
    with here.store.write() as db:
        if not here.store.move(db, file["id"], "asked", "checked", told=told):
            abort(NOT_NOW)
        here.store.note(db, person.name, file["id"], what, person.proof)


def plan_view(here: Site, file: Row) -> PlanView:
    """Read a file's plan, and which approvals count; raises FileRefused if it was changed."""
    return view_plan(PlanText(file["name"], file["plan"]), here.ledger(), page_settings(here.settings))
