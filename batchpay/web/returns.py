"""Returns: a bank's file of what came back, taken in; what a person says of it; what is to be corrected.

The latest file is kept sealed, so that a person can say which payment one of its lines is about. No account number is
shown, not even the one that a bank corrects: it is in the rejects file of the next check alone.
"""

from __future__ import annotations

import dataclasses

from flask import Blueprint, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import NotUsable
from batchpay.web import papers
from batchpay.web.acts import NOT_NOW, RETURN_ACTS, Refusal
from batchpay.web.files import begin_export, given_export, in_sight, people_by_name
from batchpay.web.reconcile import keep_export, keep_result, kept_export, kept_result
from batchpay.web.runs import file_of
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import given_words, site

blueprint = Blueprint("returns", __name__)

_KEPT_AS = "returns"
LISTED = 200
_SAYINGS = {
    "match": "said which payment came back",
    "confirm": "confirmed a return",
    "withdraw": "withdrew a return",
}


@blueprint.get("/returns")
def page() -> ResponseReturnValue:
    """Show what the latest file says, what needs a look, and what came back, of one batch if that is asked for."""
    return _page()


def _page(wrong: Refusal | None = None) -> ResponseReturnValue:
    here, asked = site(), request.args.get("batch")
    batch = here.ledger().find(asked).batch if asked else None
    own = in_sight().batches
    told = papers.read_json(here, "returns", batch, LISTED, None if own is None else sorted(own))
    batches = {one["batch"] for one in (*told["unseen"], *told["facts"])}
    taken = kept_result(here, _KEPT_AS) if own is None else {}  # its lines are about everybody's payments
    lines = [one for one in taken.get("list", []) if one["verdict"] not in ("recorded", "known")]
    answer = render_template(
        "returns.html",
        **told,
        taken=taken,
        lines=lines,
        batch=batch,
        files={name: here.ledger().find(name).file for name in batches},
        file_of={name: file_of(here, name) for name in batches},
        names=people_by_name(here),
        may_settle=any(map(current_person().may, RETURN_ACTS["take in"])),
        wrong=wrong,
    )
    return answer, wrong.code if wrong else 200


@blueprint.post("/returns/upload")
@needs(*RETURN_ACTS["take in"])
def begin() -> ResponseReturnValue:
    """Start the upload of a file in pieces, by the page's script; `take` takes it in when all of it is here."""
    return begin_export(url_for("returns.page"))


@blueprint.post("/returns")
@needs(*RETURN_ACTS["take in"])
def take() -> ResponseReturnValue:
    """Take a file in: what is certain is recorded, and nothing else happens."""
    here, person = site(), current_person()
    with given_export() as (export, digest, name):
        if not name:
            return _page(Refusal("Choose the bank's file: a table, or a NACHA return file.", 400))
        try:
            taken = papers.read_json(here, "take returns", name, dataclasses.asdict(person.actor()), given=export)
        except NotUsable as error:
            return _page(Refusal(f"This file can't be used, and nothing was recorded: {error}", 400))
        taken |= {"by": person.shown, "at": here.clock(), "export": digest, "name": name}
        keep_export(here, _KEPT_AS, export, taken)
    here.note(person, None, f"took in the return file {name}")
    return redirect(url_for("returns.page"), 303)


@blueprint.post("/returns/say")
@needs(*RETURN_ACTS["confirm"])
def say() -> ResponseReturnValue:
    """Record that a return is right, that it was wrong, or which payment a line of the latest file is about."""
    here, person, what, reason = site(), current_person(), request.form.get("what", ""), given_words("reason")
    batch, _, row = request.form.get("payment", "").partition(" ")
    if not (reason and row.isdecimal() and what in _SAYINGS):
        return _page(Refusal("Choose the payment and say how you know. Nothing was recorded.", 400))
    if (wrong := prove_again()) is not None:
        return _page(Refusal(wrong, 401))
    asked, by = (batch, int(row[:9]), reason), dataclasses.asdict(person.actor())
    try:
        if what == "match":
            with kept_export(here, _KEPT_AS) as (export, name, digest):
                if request.form.get("seen") != digest:
                    return _page(Refusal("Another file was taken in since. Nothing was recorded.", NOT_NOW))
                found = papers.read_json(here, "take returns", name, by, asked, given=export)
            keep_result(here, _KEPT_AS, kept_result(here, _KEPT_AS) | found)
            place = found["place"]
        else:
            place = papers.read_json(here, "say of return", *asked, by, what == "withdraw", request.form.get("code"))
    except NotUsable as error:
        return _page(Refusal(f"Nothing was recorded: {error}", NOT_NOW))
    here.note(person, file_of(here, batch), f"{_SAYINGS[what]}, {place} of {batch}: {reason}")
    return redirect(url_for("returns.page", batch=request.args.get("batch")), 303)
