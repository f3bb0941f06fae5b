"""Files: the list, uploads, in pieces by the page's script or whole by a plain form, and help for writing a file."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from flask import Blueprint, Response, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import WrongUse
from batchpay.payment import State, typed_cents
from batchpay.summary import Summary, summary_of_batch
from batchpay.web import papers, spool
from batchpay.web.acts import Refusal
from batchpay.web.people import Person
from batchpay.web.sign_in import current_person, needs
from batchpay.web.site import Site, download, given_file, name_of, refusal, site
from batchpay.web.spool import Row
from batchpay.web.words import STATES, as_sentence
from batchpay.workflows.policy import is_zone

blueprint = Blueprint("files", __name__)

ENDINGS = (".xlsx", ".xlsm", ".csv", ".txt", ".tsv", ".parquet", ".pq", ".ach", ".gz", ".zst")
LISTED = 100
_NAME_MAX, _EXPORT_NAME_MAX = 160, 120
EXPORT_BYTES_MAX = 128 << 20
_FILTERS = {
    "all": "state NOT IN ('replaced', 'discarded', 'export') AND archived_at IS NULL",
    "running": "state IN ('receiving', 'checking', 'approved', 'sending')",
    "waiting": "state = 'asked'",
    "archived": "archived_at IS NOT NULL",
    "gone": "state IN ('replaced', 'discarded')",
}
_FOUND = "state NOT IN ('replaced', 'discarded', 'export')"
"""What a search of all files goes through: archived ones as well."""
_ORDERS = {
    "": ("newest first", "uploaded_at DESC"),
    "oldest": ("oldest first", "uploaded_at"),
    "name": ("by name", "name COLLATE NOCASE, uploaded_at DESC"),
    "status": ("by status", f"instr('{' '.join(STATES)}', state), uploaded_at DESC"),
}
REPLACEABLE = ("checked", "refused")
"""States in which a new version of a file may replace it."""
SENT = ("approved", "sending", "stopped", "failed", "done")
"""States of a file that was approved: its batch is the one it was sent as, and not one that it only repeats."""
_SEE_ALL = frozenset({"approve", "settle", "look"})
"""Roles that are about other people's files."""
RECONCILED = "reconciled it: the export has every payment and nothing else"
"""What the history says of a batch that agrees with its export."""
WENT_ON = "continued the run"


def file_or_404(file_id: str) -> Row:
    """Read a file, or answer that there is none."""
    found = site().store.file(file_id)
    if found is None:
        abort(404)
    return found


class Sight(NamedTuple):
    """What a person may see, by id; None is everything."""

    files: frozenset[str] | None = None
    batches: frozenset[str] | None = None

    def file(self, file_id: str | None) -> bool:
        """Return whether they may see a file, and what was done with it."""
        return self.files is None or file_id in self.files

    def batch(self, batch: str | None) -> bool:
        """Return whether they may see a batch: of one from the command line nobody is known to have uploaded it."""
        return self.batches is None or batch in self.batches


def in_sight() -> Sight:
    """Return what whoever is signed in may see: everything, or with `own_files` what they uploaded and was sent of it.

    Every page asks this, and nothing else: app.py before any that is about one file or batch, and each list.
    """
    here, person = site(), current_person()
    if not here.access.own_files or person.roles & _SEE_ALL:
        return Sight()
    own = here.store.all("SELECT id, state, batch FROM file WHERE uploaded_by = ?", person.name)
    return Sight(
        frozenset(file["id"] for file in own), frozenset(file["batch"] for file in own if file["state"] in SENT)
    )


def facts_of(file: Row) -> dict[str, Any] | None:
    """Return what a file's check found; None before it was checked."""
    found: dict[str, Any] | None = spool.unseal_json(site().ledger(), file["id"], "facts", file["facts"])
    return found


def totals_of(file: Row) -> dict[str, Any] | None:
    """Return rows and amounts of a file's check, for lists: they are not sealed."""
    return json.loads(file["totals"]) if file["totals"] else None


def people_by_name(here: Site) -> dict[str, str]:
    """Return the names that people are shown by."""
    return {found["name"]: found["shown"] for found in here.store.all("SELECT name, shown FROM user")}


def is_reconciled(here: Site, file: Row) -> bool:
    """Return whether the latest comparison with an export found no difference, and nothing was sent since."""
    latest = here.store.one(
        "SELECT what FROM event WHERE file = ? AND (what IN (?, ?) OR what LIKE 'compared %')"
        " ORDER BY number DESC LIMIT 1",
        file["id"], RECONCILED, WENT_ON,
    )  # fmt: skip
    return latest is not None and latest["what"] == RECONCILED


@blueprint.get("/")
def home() -> ResponseReturnValue:
    """List files; those looked for by day, by part of their name or person's, or by how their batch begins."""
    here, asked, order = site(), request.args.get("show", "all"), request.args.get("sort", "")
    asked, order = asked if asked in _FILTERS else "all", order if order in _ORDERS else ""
    wanted, names = request.args.get("q", "").strip()[:100], people_by_name(here)
    since, until = (_asked_day(name) for name in ("since", "until"))
    zone = ZoneInfo(key) if is_zone(key := request.args.get("zone", "")) else None
    condition = _FOUND if asked == "all" and (wanted or since or until) else _FILTERS[asked]
    listed = here.store.all(
        f"SELECT id, name, batch, uploaded_by FROM file WHERE {condition}"  # noqa: S608 - our own names
        f" AND uploaded_at >= ? AND uploaded_at < ? ORDER BY {_ORDERS[order][1]}",
        _begin_of(since, zone) if since else 0,
        _begin_of(until + timedelta(days=1), zone) if until else math.inf,
    )
    sight, text = in_sight(), wanted.casefold()
    matching = [
        file["id"]
        for file in listed
        for by in [file["uploaded_by"]]
        if sight.file(file["id"])
        if any(text in shown.casefold() for shown in (file["name"], names.get(by, by), by))
        or (file["batch"] or "").startswith(text)
    ]
    found = [file for file_id in matching[:LISTED] if (file := here.store.file(file_id)) is not None]
    rows = [(file, totals_of(file), left_of(here, file)) for file in found]
    left = max(0, len(matching) - LISTED)
    orders = {name: said for name, (said, _) in _ORDERS.items()}
    asked_for = {"shown": asked, "order": order, "wanted": wanted, "since": since, "until": until, "zone": zone}
    return render_template("home.html", rows=rows, left=left, names=names, orders=orders, **asked_for)


def _asked_day(name: str) -> date | None:
    """Return a day of 1970 to 9998 that a form asks for; None for anything else."""
    day = request.args.get(name, None, date.fromisoformat)
    return day if day is not None and date(1970, 1, 2) <= day < date(9999, 1, 1) else None


def _begin_of(day: date, zone: ZoneInfo | None) -> float:
    """Return when a day begins in the reader's zone, in which the page's script shows times; without it, in ours."""
    return datetime.combine(day, datetime.min.time(), zone).timestamp()


class Left(NamedTuple):
    """What still needs attention in a file that was sent, in payments."""

    doubts: int = 0
    waiting: int = 0
    held_back: int = 0
    is_unknown: bool = False
    is_open: bool = False
    """Whether a payment is in doubt, waits or is being sent: then it is not "sent" yet."""
    is_over: bool = False
    """Whether a run has nothing to do any more, whoever did it: a run that stopped here may have ended elsewhere."""


def left_of(here: Site, file: Row) -> Left:
    """Count what is left of a file; nothing for one that was not sent."""
    found, is_unknown = batch_of(here, file) if file["state"] in SENT else (None, False)
    if found is None:
        return Left(is_unknown=is_unknown)
    held, doubts = found.held_back.rows, found.of(State.IN_DOUBT).rows
    is_open = bool(doubts or found.waiting or found.of(State.PENDING).rows)
    return Left(doubts, found.due.rows, held, is_open=is_open, is_over=not found.waiting)


def batch_of(here: Site, file: Row) -> tuple[Summary | None, bool]:
    """Return what became of a file's batch, None without one, and whether the ledger does not know it.

    Then the ledger was restored, or is a different one by now.
    """
    try:
        return (summary_of_batch(here.ledger().find(file["batch"])) if file["batch"] else None), False
    except WrongUse:
        return None, True


@blueprint.post("/files")
@needs("prepare")
def begin() -> ResponseReturnValue:
    """Start an upload: its name and size, for pieces to follow, or all of it from a plain form."""
    here, whole = site(), request.files.get("file")
    data = whole.read() if whole is not None else b""
    name = name_of(whole.filename if whole is not None else request.form.get("name"))
    size = len(data) if whole is not None else request.form.get("size", 0, int)
    try:
        if not name.lower().endswith(ENDINGS):
            raise WrongUse("only workbooks (.xlsx), CSV, Parquet and ACH files (.ach) are accepted")
        file_id = begin_upload(here, name, size, "receiving", options=json.dumps(expected()), before=_before(here))
    except WrongUse as error:
        return refused_upload(error, by_form=whole is not None)
    if whole is None:
        return in_pieces(file_id, url_for("files.file", file_id=file_id))
    for number, at in enumerate(range(0, size, spool.PIECE_BYTES)):
        _take(here, current_person(), file_or_404(file_id), number, data[at : at + spool.PIECE_BYTES])
    return redirect(url_for("files.file", file_id=file_id), 303)


def begin_upload(
    here: Site,
    name: str,
    size: int,
    state: str,
    most: int = spool.FILE_BYTES_MAX,
    options: str = "{}",
    before: str | None = None,
) -> str:
    """Record that a file is coming, `receiving` or an `export`; return its id. Raises WrongUse if it is refused."""
    who = current_person().name
    if not 0 < size <= most:
        raise WrongUse("the file is empty" if size <= 0 else f"the file has more than {most >> 20} MiB")
    unfinished = here.store.count(
        "SELECT count(*) FROM file WHERE state IN ('receiving', 'export') AND uploaded_by = ? AND uploaded_at > ?",
        who, here.clock() - spool.OPEN_S,
    )  # fmt: skip
    if unfinished >= spool.OPEN_MAX:
        raise WrongUse(
            f"{spool.OPEN_MAX} of your uploads are unfinished; discard one in the list of files, or wait "
            f"{spool.OPEN_S // 60} minutes"
        )
    if not spool.has_room(here.home, size):
        raise WrongUse("this machine's disk has no room for it; tell your batchpay administrator")
    file_id = secrets.token_hex(8)
    with here.store.write() as db:
        db.execute(
            "INSERT INTO file (id, name, bytes, uploaded_by, uploaded_at, state, options, before)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (file_id, name[-_NAME_MAX:], size, who, here.clock(), state, options, before),
        )
    return file_id


def begin_export(to: str, endings: tuple[str, ...] = ("",)) -> ResponseReturnValue:
    """Start the upload of a bank's file in pieces, by the page's script; the form at `to` then names it."""
    name = name_of(request.form.get("name"))
    try:
        if not name.lower().endswith(endings):
            raise WrongUse("an export is a CSV file or a workbook")
        file_id = begin_upload(site(), name, request.form.get("size", 0, int), "export", EXPORT_BYTES_MAX)
    except WrongUse as error:
        return refused_upload(error, by_form=False)
    return in_pieces(file_id, to)


@contextmanager
def given_export(endings: tuple[str, ...] = ("",)) -> Iterator[tuple[int, str, str]]:
    """Yield a bank's file, whole by a plain form or uploaded in pieces before: in memory, its digest and its name.

    The name is empty if none was chosen, or one with another ending.
    """
    here = site()
    uploaded = here.store.file(request.form.get("upload", ""))
    blocks: Iterable[bytes]
    if uploaded is None:
        data, name = given_file("export")
        blocks, name = [data], name if data and name.lower().endswith(endings) else ""
    else:
        name, pieces = uploaded["name"], uploaded["pieces"]
        whole = pieces == -(-uploaded["bytes"] // spool.PIECE_BYTES)
        if uploaded["uploaded_by"] != current_person().name or uploaded["state"] != "export" or not whole:
            abort(409)
        blocks = spool.pieces(here.ledger(), here.home, uploaded["id"], pieces)
    with spool.memory_file(blocks) as (export, digest):
        if uploaded is not None:
            with here.store.write() as db:
                db.execute("DELETE FROM file WHERE id = ?", (uploaded["id"],))
            spool.remove(here.home, uploaded["id"])
        yield export, digest, name[-_EXPORT_NAME_MAX:]


def in_pieces(file_id: str, to: str) -> ResponseReturnValue:
    """Tell the page's script where the pieces go, how large they are, and where it leads afterwards."""
    pieces = url_for("files.piece", file_id=file_id, number=0)[:-1]
    return jsonify(id=file_id, piece=spool.PIECE_BYTES, pieces=pieces, to=to)


def refused_upload(error: WrongUse, *, by_form: bool) -> ResponseReturnValue:
    """Say why a file is not accepted, to a person or to the page's script."""
    if not by_form:
        return jsonify(error=str(error)), 400
    return refusal(Refusal(as_sentence(str(error)), 400))


@blueprint.put("/files/<file_id>/pieces/<int:number>")
@needs("prepare", "settle")
def piece(file_id: str, number: int) -> ResponseReturnValue:
    """Accept a piece; if it is already here, the answer says so, and the upload continues from where it is."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    if file["uploaded_by"] != person.name:
        abort(403)
    if file["state"] not in ("receiving", "export") or file["pieces"] != number:
        return jsonify(next=file["pieces"])
    data = request.get_data(cache=False)
    left = file["bytes"] - number * spool.PIECE_BYTES
    if len(data) != min(left, spool.PIECE_BYTES):
        abort(400)
    _take(here, person, file, number, data)
    return jsonify(next=number + 1)


@blueprint.post("/files/<file_id>/discard")
@needs("prepare")
def discard(file_id: str) -> ResponseReturnValue:
    """Discard one's own unfinished upload, or a file, which can be restored; or stop a check, to be started again."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    if file["state"] == "receiving":
        if file["uploaded_by"] != person.name:
            abort(403)
        with here.store.write() as db:
            db.execute("DELETE FROM file WHERE id = ? AND state = 'receiving'", (file_id,))
            here.store.note(db, person.name, None, f"discarded the unfinished upload {file['name']}", person.proof)
        spool.remove(here.home, file_id)
        return redirect(url_for("files.home"), 303)
    with here.store.write() as db:
        if any(here.store.move(db, file_id, state, "discarded") for state in REPLACEABLE):
            here.store.note(db, person.name, file_id, "discarded it", person.proof)
            return redirect(url_for("files.home"), 303)
        if not here.store.move(db, file_id, "checking", "refused", told=None):
            abort(409)
        db.execute("UPDATE job SET wanted = 0, ended_at = ? WHERE file = ? AND wanted = 1", (here.clock(), file_id))
        here.store.note(db, person.name, file_id, "stopped the check", person.proof)
    here.jobs.kill(file_id)
    return redirect(url_for("files.file", file_id=file_id), 303)


@blueprint.get("/files/<file_id>")
def file(file_id: str) -> ResponseReturnValue:
    """Show a file in its present state: its upload, its check, or what became of it."""
    found = file_or_404(file_id)
    if found["state"] in ("receiving", "checking"):
        return render_template("checking.html", file=found, told=_progress(found))
    if found["state"] == "asked":
        return redirect(url_for("approval.page", file_id=file_id))
    return redirect(url_for("runs.page" if found["state"] in SENT else "checked.page", file_id=file_id))


@blueprint.get("/files/<file_id>/progress")
def progress(file_id: str) -> ResponseReturnValue:
    """Report how far the check is; when it has ended, send the page there."""
    found = file_or_404(file_id)
    if found["state"] in ("receiving", "checking"):
        return render_template("_checking.html", file=found, told=_progress(found))
    return Response(status=286, headers={"HX-Redirect": url_for("files.file", file_id=file_id)})


def _progress(found: Row) -> dict[str, Any]:
    """Return how far the check is, and how many others are before it."""
    here = site()
    before = here.store.count(
        "SELECT count(*) FROM job WHERE wanted = 1 AND kind = 'check'"
        " AND id < (SELECT max(id) FROM job WHERE file = ? AND wanted = 1)",
        found["id"],
    )
    return {**spool.read_progress(spool.place(here.home, found["id"])), "before": before}


def _take(here: Site, person: Person, found: Row, number: int, data: bytes) -> None:
    """Seal a piece; with the last one of a payment file the check begins."""
    spool.put_piece(here.ledger(), here.home, found["id"], number, data)
    is_last = number * spool.PIECE_BYTES + len(data) == found["bytes"] and found["state"] == "receiving"
    with here.store.write() as db:
        counted = db.execute(
            "UPDATE file SET pieces = pieces + 1, state = ?, uploaded_at = ? WHERE id = ? AND pieces = ? AND state = ?",
            ("checking" if is_last else found["state"], here.clock(), found["id"], number, found["state"]),
        ).rowcount
        if is_last and counted:
            here.jobs.want(db, found["id"], "check", person.name)
            here.store.note(db, person.name, found["id"], f"uploaded {found['name']}", person.proof)
            for state in REPLACEABLE if found["before"] else ():
                if here.store.move(db, found["before"], state, "replaced"):
                    here.store.note(db, person.name, found["before"], "replaced it with a new version", person.proof)
    if is_last:
        here.jobs.wake()


def expected() -> dict[str, Any]:
    """Read the control totals that the person expects; raises WrongUse."""
    found: dict[str, Any] = {}
    rows, total = (request.form.get(name, "").strip() for name in ("expect_rows", "expect_total"))
    if rows:
        if not re.fullmatch("[0-9]{1,9}|[0-9]{1,3}(,[0-9]{3}){1,2}", rows):
            raise WrongUse("the number of payments you expect must be a whole number")
        found["expect_rows"] = int(rows.replace(",", ""))
    if total:
        cents = typed_cents(total if "." in total else f"{total}.00")
        if cents is None:
            raise WrongUse("the total you expect must be an amount like 12,345.67")
        found["expect_cents"] = cents
    return found


def _before(here: Site) -> str | None:
    """Read which file this one is a new version of; raises WrongUse."""
    before = request.form.get("before")
    if not before:
        return None
    found = here.store.file(before)
    if found is None or not in_sight().file(before) or found["state"] not in REPLACEABLE:
        raise WrongUse("the file to be replaced has changed in the meantime; open it again")
    return before


@blueprint.get("/template.xlsx")
def template() -> ResponseReturnValue:
    """Download an empty payment file."""
    return download(papers.make(site(), "template"), "payments-template.xlsx")


@blueprint.get("/rules")
def rules() -> ResponseReturnValue:
    """Show every rule of a payment file, column by column."""
    lines = _rules()
    columns = list(dict.fromkeys(line["where"] for line in lines))
    grouped = [(column, [line for line in lines if line["where"] == column]) for column in columns]
    return render_template("rules.html", grouped=grouped)


@cache
def _rules() -> list[dict[str, Any]]:
    """Have a child read the rules from the schemas, once: the server itself does not load them."""
    found: list[dict[str, Any]] = papers.read_json(site(), "rules")
    return found
