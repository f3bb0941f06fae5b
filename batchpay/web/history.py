"""History: every batch with its totals, and every event of ledger and page in one list, also as CSV."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from flask import Blueprint, Response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.payment import State
from batchpay.schemas.words import called
from batchpay.summary import summary_of_batch
from batchpay.text import guarded, instant
from batchpay.web import papers
from batchpay.web.files import Sight, in_sight, people_by_name
from batchpay.web.runs import cancellations, file_of, lines_of
from batchpay.web.sign_in import current_person, needs
from batchpay.web.site import Site, site
from batchpay.web.words import person_named
from batchpay.writing.table import csv_lines

blueprint = Blueprint("history", __name__)

LISTED = 200
_CSV_ROWS, _PAGES_MAX = 500, 1000
_ID_MAX = 200
_UNTOLD = "progress"
CHECKED = "checked the whole ledger: "
_HEADER = ("at", "who", "what", "why", "batch or file", "recorded in", "details")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Something that was done."""

    at: datetime
    who: str
    what: str
    why: str
    about: str
    is_of_ledger: bool
    detail: str


@blueprint.get("/history")
def page() -> ResponseReturnValue:
    """List the batches, the latest first."""
    here = site()
    sight = in_sight()
    latest = [found for found in here.ledger().batches() if sight.batch(found.batch)][:LISTED]
    listed = [(found, summary_of_batch(found), file_of(here, found.batch)) for found in latest]
    wanted = request.args.get("payment", "").strip()[:_ID_MAX]
    found = papers.read_json(here, "find", wanted) if wanted else None
    found = found if found and sight.batch(found["batch"]) else None
    return render_template(
        "history.html", batches=listed, in_doubt=State.IN_DOUBT, shown_max=LISTED, wanted=wanted, found=found
    )


@blueprint.get("/batches/<batch>")
def batch(batch: str) -> ResponseReturnValue:
    """Show a batch; one that was uploaded here has a page of its own."""
    here = site()
    found = here.ledger().find(batch)
    file_id = file_of(here, found.batch)
    if file_id is not None:
        return redirect(url_for("files.file", file_id=file_id))
    summary = summary_of_batch(found)
    cancelled = cancellations(here, found)
    return render_template("batch.html", batch=found, summary=summary, lines=lines_of(summary), cancelled=cancelled)


@blueprint.get("/audit")
def audit() -> ResponseReturnValue:
    """List what was done, the latest first; by one person if that is requested."""
    here, who = site(), request.args.get("who", "").strip()
    page = min(max(1, request.args.get("page", 1, int)), _PAGES_MAX)
    kept = list(reversed(deque(_acts(here, who), maxlen=LISTED * page + 1)))
    checked = here.store.one(
        "SELECT * FROM event WHERE what >= ? AND what < ? ORDER BY number DESC LIMIT 1", CHECKED, CHECKED[:-1] + "\x7f"
    )
    return render_template(
        "audit.html",
        acts=kept[LISTED * (page - 1) : LISTED * page],
        page=page,
        has_older=len(kept) > LISTED * page,
        who=who,
        names=people_by_name(here),
        checked=checked,
        checked_said=checked["what"].removeprefix(CHECKED) if checked else None,
    )


@blueprint.get("/audit.csv")
def audit_csv() -> ResponseReturnValue:
    """Download all of it, the oldest first."""
    acts = _acts(site(), request.args.get("who", "").strip())

    def blocks() -> Iterator[bytes]:
        yield csv_lines([_HEADER]).encode()
        while some := list(islice(acts, _CSV_ROWS)):
            places = ("page", "ledger")
            lines = [
                (instant(one.at) or "", one.who, one.what, one.why, one.about, places[one.is_of_ledger], one.detail)
                for one in some
            ]
            yield csv_lines([[guarded(cell) for cell in line] for line in lines]).encode()

    answer = Response(b"".join(blocks()), content_type="text/csv; charset=utf-8")
    answer.headers.set("Content-Disposition", "attachment", filename="audit.csv")
    return answer


@blueprint.post("/audit/check")
@needs("look", "settle", "approve")
def check() -> ResponseReturnValue:
    """Verify the whole ledger against its own chain of codes; the result is in the list."""
    here, person = site(), current_person()
    problems = papers.read_json(here, "check")
    said = f"{len(problems)} problems; tell your batchpay administrator" if problems else "nothing was altered"
    here.note(person, None, f"{CHECKED}{said}")
    return redirect(url_for("history.audit"), 303)


def _acts(here: Site, who: str) -> Iterator[HistoryEntry]:
    """Yield the events of ledger and page, the oldest first."""
    wanted = who.casefold()
    names, sight, acts = people_by_name(here), in_sight(), called("event")
    of_ledger = (
        HistoryEntry(
            one.at,
            person_named(one.who, names),
            acts.get(one.kind, one.kind),
            one.why or "",
            one.batch or "",
            True,
            one.detail,
        )
        for one in here.ledger().events()
        if one.kind != _UNTOLD and sight.batch(one.batch)
    )
    for act in heapq.merge(of_ledger, _of_page(here, names, sight), key=lambda one: one.at):
        if wanted in act.who.casefold():
            yield act


def _of_page(here: Site, names: Mapping[str, str], sight: Sight) -> Iterator[HistoryEntry]:
    files = {file["id"]: file["name"] for file in here.store.all("SELECT id, name FROM file")}
    for event in here.store.all("SELECT * FROM event ORDER BY at, number"):
        is_own = event["file"] is None and event["who"] == current_person().name  # signed in, say
        if not is_own and not sight.file(event["file"]):
            continue
        who = person_named(event["who"], names)
        at = datetime.fromtimestamp(event["at"], UTC)
        yield HistoryEntry(at, who, event["what"], "", files.get(event["file"], ""), False, event["how"])
