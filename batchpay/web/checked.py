"""Checked: a file's totals, what would be sent, what deserves a check, and every row to correct in its own columns."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from markupsafe import Markup

from batchpay.errors import WrongUse
from batchpay.intake.csv.encodings import ENCODINGS
from batchpay.web import spool
from batchpay.web.acts import Refusal
from batchpay.web.files import (
    REPLACEABLE,
    expected,
    facts_of,
    file_or_404,
    in_sight,
    is_reconciled,
    left_of,
    people_by_name,
)
from batchpay.web.grid import BLOCK, Grid, GridRow
from batchpay.web.sign_in import current_person, needs
from batchpay.web.site import download, given_words, refusal, site
from batchpay.web.spool import MARKED, Row
from batchpay.web.words import as_sentence, rejects_name
from batchpay.web.words import rule as rule_said

blueprint = Blueprint("checked", __name__)

BLOCKS_A_PAGE = 100
"""Ten thousand rows to correct are one page of the sheet."""
_GONE = ("replaced", "discarded")
_NOT_PAID = ("receiving", "refused", *_GONE)
"""States in which no version of a file is paid besides another."""
_IDENTITY = ("paymentId", "achNameOnCheck", "amount")
"""Columns by which a person recognizes a row."""


@blueprint.get("/files/<file_id>/check")
def page(file_id: str) -> ResponseReturnValue:
    """Show what the check found."""
    file = file_or_404(file_id)
    facts = facts_of(file)
    if file["state"] in ("receiving", "checking"):
        return redirect(url_for("files.file", file_id=file_id))
    with _grid(file) as grid:
        sheet = None if grid is None or facts is None else _sheet(grid)
    return render_template("checked.html", **page_context(file, facts), sheet=sheet, block=BLOCK)


def _other_versions(file: Row) -> list[Row]:
    """Return other versions of a file that may be paid besides it: uploaded at the same time, or not replaced."""
    if file["state"] in _NOT_PAID:
        return []
    found = site().store.all(
        "WITH RECURSIVE earlier(id, before) AS (SELECT id, before FROM file WHERE id = ?"
        " UNION SELECT file.id, file.before FROM file JOIN earlier ON file.id = earlier.before),"
        " version(id) AS (SELECT id FROM earlier UNION SELECT file.id FROM file JOIN version ON before = version.id)"
        " SELECT file.* FROM file JOIN version USING (id) ORDER BY uploaded_at",
        file["id"],
    )
    others = [one for one in found if one["id"] != file["id"] and one["state"] not in _NOT_PAID]
    return [one for one in others if in_sight().file(one["id"])]


def page_context(file: Row, facts: dict[str, Any] | None) -> dict[str, Any]:
    """Return what every page about one file shows."""
    here = site()
    column_map = json.loads(file["map"] or "{}")
    headings = column_map.get("tables", {}).get("columns", {}).items()
    newer = here.store.one("SELECT id FROM file WHERE before = ? AND state != 'receiving'", file["id"])
    return {
        "file": file,
        "facts": facts,
        "options": json.loads(file["options"]),
        "map": column_map or None,
        "proposal": spool.unseal_json(here.ledger(), file["id"], "proposal", file["proposal"]),
        "difference": spool.unseal_json(here.ledger(), file["id"], "difference", file["difference"]),
        "encodings": ENCODINGS,
        "own": {name: heading for name, heading in headings if isinstance(heading, str)},
        "sheets": json.loads(file["sheets"]) if file["sheets"] else [],
        "newer": newer["id"] if newer and in_sight().file(newer["id"]) else None,
        "others": [one for one in _other_versions(file) if newer is None or one["id"] != newer["id"]],
        "replaceable": file["state"] in REPLACEABLE,
        "reconciled": is_reconciled(here, file),
        "left": left_of(here, file),
        "trail": here.store.all("SELECT * FROM event WHERE file = ? ORDER BY number", file["id"]),
        "names": people_by_name(here),
    }


@blueprint.get("/files/<file_id>/rows")
@needs("prepare")
def rows(file_id: str) -> ResponseReturnValue:
    """Return a hundred rows of the sheet."""
    with _grid(file_or_404(file_id)) as grid:
        if grid is None:
            abort(404)
        rule, start = request.args.get("rule", ""), request.args.get("from", 0, int)
        columns = _columns(grid, rule, is_wide=request.args.get("columns") == "all")
        return render_template("_rows.html", rows=list(grid.block(rule, start)), columns=columns, own=grid.columns)


@blueprint.app_template_filter("cells")
def cells(row: GridRow, columns: list[tuple[int, str]]) -> Markup:
    """Render a row's own cells: escaped together, since one by one they are half of what a block costs.

    A cell is a paragraph of its own, in the direction of its text (app.css): a bdi in each takes a browser longer.
    """
    marks = row.marks()
    shown = "\n".join(row.cells[place] or "" for place, _ in columns)  # no cell shown has a line break
    texts = html.escape(shown).split("\n")
    written = []
    for (place, _), text in zip(columns, texts, strict=True):
        mark = marks.get(place)
        inner = text if row.cells[place] is not None else "<i>blank</i>" if mark else ""
        written.append(f'<td class="{mark}">{inner}</td>' if mark else f"<td>{inner}</td>")
    return Markup("".join(written))  # noqa: S704 - every text in it is escaped


@blueprint.get("/files/<file_id>/marked")
@needs("prepare")
def marked(file_id: str) -> ResponseReturnValue:
    """Download the rows to correct: corrected, they are a payment file."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    content = spool.kept(here.ledger(), here.home, file_id, MARKED)
    if content is None:
        abort(404)
    here.note(person, file_id, "downloaded the rows to correct")
    descriptor, _ = spool.in_memory(content)
    return download(descriptor, rejects_name(file["name"]))


@blueprint.post("/files/<file_id>/check")
@needs("prepare")
def again(file_id: str) -> ResponseReturnValue:
    """Check a file again: as before, or as its person chooses now, with another sheet, encoding, or corrections."""
    file = file_or_404(file_id)
    chosen = json.loads(file["options"])
    if request.form.get("corrections") == "chosen":
        chosen["normalize"] = request.form.get("normalize") == "yes"
        chosen["accept"] = sorted(request.form.getlist("accept"))
    if sheet := request.form.get("sheet"):
        chosen["sheet"] = sheet
    if (encoding := request.form.get("encoding")) in ENCODINGS:
        chosen["encoding"] = encoding
    try:
        chosen |= expected()
    except WrongUse as error:
        return refusal(Refusal(as_sentence(str(error)), 400))
    return _check_again(file, REPLACEABLE, chosen, f"checked it again{_said(chosen)}")


@blueprint.post("/files/<file_id>/map")
@needs("prepare")
def answer(file_id: str) -> ResponseReturnValue:
    """Accept answers to a map's open questions, and the confirmation that it is right; take one or all back."""
    file = file_or_404(file_id)
    chosen = json.loads(file["options"])
    answers = chosen.get("answers", {})
    if request.form.get("anew") == "yes" or request.form.get("back") in answers:
        kept = {key: text for key, text in answers.items() if key != request.form.get("back")}
        chosen |= {"answers": {} if request.form.get("anew") else kept, "map_agreed": False, "map_anew": True}
        return _check_again(file, REPLACEABLE, chosen, "took back answers to the column questions", map=None)
    mark = "answer."
    given = {name.removeprefix(mark): text for name, text in request.form.items() if name.startswith(mark) and text}
    chosen["answers"] = {**answers, **given}
    chosen["map_agreed"] = request.form.get("agreed") == "yes"
    return _check_again(file, ("refused",), chosen, "answered the column questions")


@blueprint.post("/files/<file_id>/restore")
@needs("prepare")
def restore(file_id: str) -> ResponseReturnValue:
    """Take back that a file was replaced or discarded, and check it again."""
    file = file_or_404(file_id)
    return _check_again(file, _GONE, json.loads(file["options"]), "restored it")


@blueprint.post("/files/<file_id>/version")
@needs("prepare")
def version(file_id: str) -> ResponseReturnValue:
    """Record whether a file, dropped on another one's page, is a new version of that one, or another file."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    before, is_version = here.store.file(file["before"] or ""), request.form.get("is_version") == "yes"
    if before is None:
        abort(409)
    with here.store.write() as db:
        if is_version:
            if not any(here.store.move(db, before["id"], state, "replaced") for state in REPLACEABLE):
                abort(409)
            here.store.note(db, person.name, before["id"], f"replaced it with {file['name']}", person.proof)
            options = json.dumps({**json.loads(file["options"]), "is_version": True})
            db.execute("UPDATE file SET options = ? WHERE id = ?", (options, file_id))
        else:
            db.execute("UPDATE file SET before = NULL, difference = NULL WHERE id = ?", (file_id,))
        said = f"said that it is {'a new version of' if is_version else 'another file than'} {before['name']}"
        here.store.note(db, person.name, file_id, said, person.proof)
    return redirect(url_for("checked.page", file_id=file_id), 303)


@blueprint.post("/files/<file_id>/note")
def note(file_id: str) -> ResponseReturnValue:
    """Add a person's own words to what was done with a file, in whichever state it is."""
    person, file, text = current_person(), file_or_404(file_id), given_words("note")
    if not text or re.search("[0-9]{8}", text):
        told = "Write the last four digits of an account only." if text else "Write something."
        return refusal(Refusal(f"{told} Nothing was added.", 400))
    site().note(person, file["id"], f"noted: {text}")
    return redirect(url_for("files.file", file_id=file_id), 303)


def _check_again(
    file: Row, states: tuple[str, ...], chosen: dict[str, Any], said: str, **values: Any
) -> ResponseReturnValue:
    """Start a check; whoever changes how the file is read is one of its makers from then on."""
    here, person, options = site(), current_person(), json.dumps(chosen)
    if chosen != json.loads(file["options"]):
        values["edited_by"] = json.dumps(sorted({*json.loads(file["edited_by"]), person.name}))
    with here.store.write() as db:
        if not any(
            here.store.move(db, file["id"], state, "checking", options=options, told=None, **values) for state in states
        ):
            abort(409)
        here.jobs.want(db, file["id"], "check", person.name)
        here.store.note(db, person.name, file["id"], said, person.proof)
    here.jobs.wake()
    return redirect(url_for("files.file", file_id=file["id"]), 303)


def _said(chosen: dict[str, Any]) -> str:
    """Describe, for the history, how a check differs from a plain one."""
    said = []
    if chosen.get("encoding"):
        said.append(f"read as {chosen['encoding']}")
    if chosen.get("sheet"):
        said.append(f"sheet {chosen['sheet']}")
    if chosen.get("normalize"):
        said.append("repairing white space, letter case and decimals")
    if chosen.get("accept"):
        said.append(f"accepting suggestions of {', '.join(map(rule_said, chosen['accept']))}")
    return f": {'; '.join(said)}" if said else ""


@contextmanager
def _grid(file: Row) -> Iterator[Grid | None]:
    """Open a file's grid; None if it has none that is whole, or for people who may not see other people's rows."""
    here = site()
    if not current_person().may("prepare"):
        yield None
        return
    try:
        grid = Grid(spool.place(here.home, file["id"]), file["id"], here.ledger())
    except sqlite3.DatabaseError:
        yield None
        return
    try:
        yield grid
    finally:
        grid.close()


def _sheet(grid: Grid) -> dict[str, Any]:
    """Return the part of a grid that a page shows: which ten thousand rows, and the first hundred of them."""
    rule, is_wide = request.args.get("rule", ""), request.args.get("columns") == "all"
    count = grid.count(rule)
    part = max(0, request.args.get("part", 1, int) - 1)
    starts = grid.starts(rule, part * BLOCKS_A_PAGE, BLOCKS_A_PAGE)
    return {
        "grid": grid,
        "rule": rule,
        "is_wide": is_wide,
        "known": {place: name for name, place in grid.places.items()},
        "part": part,
        "parts": -(-count // (BLOCK * BLOCKS_A_PAGE)),
        "columns": _columns(grid, rule, is_wide=is_wide),
        "count": count,
        "starts": starts,
        "first": list(grid.block(rule, starts[0])) if starts else [],
    }


def _columns(grid: Grid, rule: str, *, is_wide: bool) -> list[tuple[int, str]]:
    """Choose columns: those by which a row is recognized, then those with mistakes; or all."""
    if is_wide:
        return list(enumerate(grid.columns))
    column = rule.partition(".")[0]
    wrong = [grid.places[column]] if column in grid.places else [] if rule else grid.used
    known = [grid.places[name] for name in _IDENTITY if name in grid.places]
    return [(place, grid.columns[place]) for place in dict.fromkeys([*known, *wrong])]
