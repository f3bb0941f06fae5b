"""Held rows: another person than the makers names them, says who was called by which known number, and signs.

The child makes a plan of these rows alone, which this signature approves, and sends it (run_job.py).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from typing import Any, NamedTuple

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.approval.approvals import is_note
from batchpay.errors import WrongUse
from batchpay.ledger.columns import RELEASED_BY_NAME
from batchpay.payment import Direction
from batchpay.text import counted, money, place_of, place_word
from batchpay.web import spool
from batchpay.web.acts import NOT_NOW, Refusal, Signed, refused
from batchpay.web.approval import over_day
from batchpay.web.checked import page_context
from batchpay.web.files import facts_of, file_or_404, left_of
from batchpay.web.grid import Grid
from batchpay.web.people import Person
from batchpay.web.sign_in import current_person, prove_again
from batchpay.web.site import Site, given_words, refusal, site
from batchpay.web.spool import Row
from batchpay.workflows.policy import policy_in_force

blueprint = Blueprint("releases", __name__)

RELEASE = "release"
SHOWN_MAX = 200
"""This many held rows are listed at a time."""


class Held(NamedTuple):
    """A row that only a release by name sends."""

    row: int
    place: str
    cents: int
    rules: tuple[str, ...]


def held_rows(here: Site, file: Row) -> list[Held]:
    """Return the rows of a file's batch that wait for a person's word and for nothing else."""
    ledger = here.ledger()
    batch, by_name = ledger.find(file["batch"]), RELEASED_BY_NAME | policy_in_force(ledger, here.settings).hold
    return [
        Held(one.row, place_of(place_word(batch.file), one.row, one.line), one.amount_cents, one.reasons)
        for one in ledger.rejected(batch.batch)
        if one.reasons and {*one.reasons} <= by_name
    ]


def _told(here: Site, file: Row, listed: list[Held]) -> dict[int, tuple[str, list[str]]]:
    """Return name and reasons of rows as the file's check found them, masked; those that it keeps."""
    found = dict[int, tuple[str, list[str]]]()
    with (
        suppress(sqlite3.DatabaseError),
        closing(Grid(spool.place(here.home, file["id"]), file["id"], here.ledger())) as grid,
    ):
        payee = grid.places.get("achNameOnCheck")
        for one in listed:
            row = next(grid.block("", one.row), None)
            if row is not None and row.number == one.row:
                why = [wrong.message.partition(", held for a person")[0] for wrong in row.wrong if wrong.is_error]
                found[one.row] = (row.cells[payee] or "" if payee is not None else ""), why
    return found


@blueprint.get("/files/<file_id>/release")
def page(file_id: str) -> ResponseReturnValue:
    """List the held rows of a file that was sent."""
    return _page(file_or_404(file_id))


def _page(file: Row, wrong: Refusal | None = None) -> ResponseReturnValue:
    here = site()
    held = held_rows(here, file) if file["batch"] else []
    context: dict[str, Any] = page_context(file, facts_of(file))
    answer = render_template(
        "release.html",
        **context,
        held=held,
        listed=held[:SHOWN_MAX],
        seen=_seen(held),
        signed=_signed(file, held),
        told=_told(here, file, held[:SHOWN_MAX]),
        may_not=refused(RELEASE, current_person(), file),
        wrong=wrong,
    )
    return answer, wrong.code if wrong else 200


def to_sign(here: Site, person: Person) -> list[tuple[Row, dict[str, Any]]]:
    """Return the releases that somebody signed and that this person could sign as well; most often none."""
    if not person.may("approve"):  # each page asks
        return []
    files = here.store.all("SELECT * FROM file WHERE json_extract(options, '$.release') IS NOT NULL")
    found = list[tuple[Row, dict[str, Any]]]()
    for file in files:
        with suppress(WrongUse):  # of a ledger that was restored since
            signed = None if refused(RELEASE, person, file) else _signed(file, held_rows(here, file))
            if signed is not None and person.name not in signed["by"]:
                found.append((file, signed))
    return found


def _signed(file: Row, held: list[Held]) -> dict[str, Any] | None:
    """Return the release of rows that are still held which one person signed, and that needs another's signature."""
    kept = json.loads(file["options"]).get(RELEASE)
    if kept is None:
        return None
    numbers, cents, reason = kept["asked"]
    rows = [one for one in held if one.row in numbers]
    return {"rows": rows, "cents": cents, "reason": reason, "by": kept["by"]} if len(rows) == len(numbers) else None


def _seen(held: list[Held]) -> str:
    return f"{len(held)} {sum(one.cents for one in held)}"


@blueprint.post("/files/<file_id>/release")
def release(file_id: str) -> ResponseReturnValue:
    """Release the rows that a person names, with the note that belongs to it."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    problem = refused(RELEASE, person, file)
    if problem is None and left_of(here, file).waiting:
        problem = Refusal("Other payments of this file wait to be sent. Continue its run first; then release.", NOT_NOW)
    if problem is not None:
        return refusal(problem)
    held, reason = held_rows(here, file), given_words("reason")
    named = set(request.form.getlist("row"))
    rows = [one for one in held if str(one.row) in named]
    cents = sum(one.cents for one in rows)
    both = dict.fromkeys(Direction, cents)  # which of them pay and which collect is not known here
    if request.form.get("seen") != _seen(held):
        problem = Refusal(
            "Other rows are held now than your page showed. Nothing was done; look at them again.", NOT_NOW
        )
    elif not rows or len(rows) != len(named):
        problem = Refusal("Name at least one row that is held. Nothing was done.", 400)
    elif not is_note(reason):
        problem = Refusal("Say who was called, and by which number that you already had. Nothing was done.", 400)
    else:
        problem = over_day(here, person, both)
    if problem is None and (wrong := prove_again()) is not None:
        problem = Refusal(wrong, 401)
    if problem is not None:
        return _page(file, problem)
    asked = Signed([one.row for one in rows], cents, reason)
    with here.store.write() as db:
        if over_day(here, person, both) is not None or not here.store.move(
            db, file_id, file["state"], "approved", told=None, stop_by=None, ended_at=None
        ):
            abort(NOT_NOW)
        db.execute(
            "INSERT INTO decision (file, who, what, at, seal) VALUES (?, ?, 'released', ?, ?)",
            (file_id, person.name, here.clock(), asked.seal(here.ledger(), file_id, person.name)),
        )
        here.jobs.want(db, file_id, RELEASE, person.name)
        said = f"released {', '.join(one.place for one in rows)}: {counted(len(rows), 'held payment')}, {money(cents)}"
        here.store.note(db, person.name, file_id, said, person.proof)
    here.jobs.wake()
    return redirect(url_for("runs.page", file_id=file_id), 303)
