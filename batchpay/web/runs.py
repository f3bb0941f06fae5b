"""Running and finished: how far a run is, read from the ledger; stop, continue, cancel what waits; files about it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from flask import Blueprint, abort, make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import BatchHeld, BatchpayError, NotUsable, WrongUse
from batchpay.ledger.columns import CANCELLED
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State, Totals
from batchpay.summary import Summary
from batchpay.text import counted, money, place_of, place_word, read_ranges
from batchpay.web import papers, spool
from batchpay.web.acts import NOT_NOW, Refusal, over_limit, refused
from batchpay.web.approval import approvers_of, plan_view
from batchpay.web.checked import page_context
from batchpay.web.files import SENT, WENT_ON, batch_of, facts_of, file_or_404, left_of, people_by_name
from batchpay.web.people import Person
from batchpay.web.releases import held_rows
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, download, given_words, refusal, site
from batchpay.web.spool import Row
from batchpay.web.words import as_sentence, person_named, rejects_name, unknown_batch
from batchpay.workflows.resolve import Signature
from batchpay.workflows.resolve import cancel as cancel_rows

blueprint = Blueprint("runs", __name__)

ENDS_POLLING = 286
"""The status code by which htmx stops polling."""
_OTHERS_WAIT = "Other payments are waiting now than your page showed. Nothing was done; look at what waits now."
UNDER_WAY = ("approved", "sending")
SHOWN_MAX = 200
"""A page lists this many rows of a batch to decide about."""
_BUSY = "A run is sending this batch, so nothing can be cancelled now. Stop the run, or wait until it has ended."
_FRESH_S = 0.5
_PROGRESS_COLUMNS = "id, state, told, stop_by, seal, batch, asked_at"
"""Columns of a file that a run's progress depends on; the others hold what its check found, which may be large."""
_ORDER = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.SENDING, State.PENDING, State.REJECTED)
_NAMES = {
    State.ACCEPTED: "accepted",
    State.DECLINED: "declined",
    State.IN_DOUBT: "in doubt",
    State.SENDING: "being sent",
    State.PENDING: "waiting",
    State.REJECTED: "left out",
}
_ANSWERED = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT)
_SHOWN_ALWAYS = (State.ACCEPTED, State.PENDING)
_BAR = 1000.0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run is: by the ledger, and by the child that is at work."""

    summary: Summary | None
    lines: list[dict[str, Any]]
    is_alive: bool
    told: dict[str, Any]
    is_unknown: bool = False
    """Whether the ledger does not know the batch that the file was sent as."""

    @property
    def to_send(self) -> Totals:
        """All that passed the rules."""
        return self.summary.valid if self.summary else Totals()

    @property
    def answered(self) -> int:
        """Payments that no longer wait."""
        return sum(self.summary.of(state).rows for state in _ANSWERED) if self.summary else 0

    @property
    def in_doubt(self) -> Totals:
        """What a person must look up."""
        return self.summary.of(State.IN_DOUBT) if self.summary else Totals()

    @property
    def waiting(self) -> Totals:
        """What a run would still send, without what is held back."""
        if self.summary is None:
            return Totals()
        return self.summary.due

    @property
    def waits(self) -> str:
        """Name what waits, for the form that continues it: a person signs for what their page showed."""
        return f"{self.waiting.rows} {self.waiting.cents}"

    @property
    def is_left(self) -> bool:
        """Whether a run has something to do: rows that wait, or that a dead run left in sending."""
        return bool(self.summary and self.summary.waiting)

    @property
    def is_over(self) -> bool:
        """Whether the batch has nothing left for a run, whoever sent the rest: the command line may have."""
        return self.summary is not None and not self.is_left

    @property
    def minutes_left(self) -> int | None:
        """About how long it still takes at the present pace; None if unknown."""
        rate, left = self.told.get("rate"), self.to_send.rows - self.answered
        return None if not rate or left <= 0 else int(left / rate // 60) + 1


def run_status(here: Site, file: Row) -> RunStatus:
    """Read how far a file's run is."""
    is_alive = here.jobs.is_under_way(file["id"])
    said = spool.read_progress(spool.place(here.home, file["id"]))
    summary, is_unknown = batch_of(here, file)
    return RunStatus(summary, lines_of(summary) if summary else [], is_alive, said, is_unknown)


def lines_of(summary: Summary) -> list[dict[str, Any]]:
    """Return a batch's states in the order in which people ask about them, each with its part of the bar.

    They add up to the file.
    """
    lines, at = list[dict[str, Any]](), 0.0
    rows = summary.valid.rows or 1
    for state in _ORDER:
        totals = summary.of(state)
        width = _BAR * totals.rows / rows if state not in (State.PENDING, State.REJECTED) else 0.0
        if totals.rows or state in _SHOWN_ALWAYS:
            lines.append({"state": str(state), "name": _NAMES[state], "totals": totals, "starts": at, "width": width})
        at += width
    return lines


def _context(file: Row) -> dict[str, Any]:
    here, person = site(), current_person()
    run = run_status(here, file)
    rows = here.ledger().rows(file["batch"], [State.DECLINED]) if run.summary and file["state"] not in UNDER_WAY else ()
    word = place_word(file["name"])
    return {
        **page_context(file, facts_of(file)),
        "run": run,
        "approvers": approvers_of(here, file),
        "under_way": file["state"] in UNDER_WAY,
        "may_stop": refused("stop", person, file) is None and not file["stop_by"],
        "is_left": _is_left(file, run),
        "go_on_refused": _go_on_refused(here, person, file, run),
        "held": held_rows(here, file) if run.summary and run.summary.of(State.REJECTED).rows else [],
        "declined": [(place_of(word, row.row, row.line), row) for row in islice(rows, SHOWN_MAX)],
        "shown_max": SHOWN_MAX,
        "cancelled": cancellations(here, here.ledger().find(file["batch"])) if run.summary else [],
        "may_archive": _archive_refused(here, person, file) is None,
    }


def _archive_refused(here: Site, person: Person, file: Row) -> Refusal | None:
    """Return why a person can't put a file away: one that still needs somebody stays in the list."""
    problem, left = refused("archive", person, file), left_of(here, file)
    if problem is None and (left.is_open or not left.is_over):
        problem = Refusal("This file is not finished, so it stays in the list. Nothing was done.", NOT_NOW)
    return problem


@blueprint.post("/files/<file_id>/archive")
def archive(file_id: str) -> ResponseReturnValue:
    """Put a finished file away from the list of files, or back into it; nothing of it is deleted."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    back = request.form.get("back") == "yes"
    problem = refused("archive", person, file) if back else _archive_refused(here, person, file)
    if problem is not None:
        return refusal(problem)
    held = held_rows(here, file) if file["batch"] else []
    unpaid = f"; {counted(len(held), 'held payment')}, {money(sum(one.cents for one in held))}, not paid"
    with here.store.write() as db:
        if db.execute(
            "UPDATE file SET archived_at = ? WHERE id = ? AND state = ? AND (archived_at IS NOT NULL) = ?",
            (None if back else here.clock(), file_id, file["state"], back),
        ).rowcount:
            said = "put it back into the list of files" if back else f"archived it{unpaid if held else ''}"
            here.store.note(db, person.name, file_id, said, person.proof)
    return redirect(url_for("files.home"), 303)


def _is_left(file: Row, run: RunStatus) -> bool:
    """Return whether anything is left to send: in the ledger, or all of it if nothing was registered yet."""
    return run.is_left if run.summary else file["state"] in ("stopped", "failed") and not run.is_unknown


def _go_on_refused(here: Site, person: Person, file: Row, run: RunStatus) -> Refusal | None:
    """Return why a person can't resume a run; what would be sent must be within their limit."""
    problem = refused("go_on", person, file, approvers_of(here, file))
    if problem is None and run.is_unknown:
        problem = Refusal(f"{unknown_batch(file['batch'])}. Nothing was done.", NOT_NOW)
    if problem is None and person.limit_cents is not None:
        cents = run.waiting.cents if run.summary else plan_view(here, file).plan.batch_cents
        problem = over_limit(person, cents)
    if problem is None and not _is_left(file, run):
        problem = Refusal("Nothing in this file is waiting to be sent. Nothing was done.", NOT_NOW)
    return problem


@blueprint.get("/files/<file_id>/run")
def page(file_id: str) -> ResponseReturnValue:
    """Show how a run goes, or how it ended."""
    file = file_or_404(file_id)
    if file["state"] not in SENT:
        return redirect(url_for("files.file", file_id=file_id))
    return _page(file)


def _page(file: Row, wrong: Refusal | None = None) -> ResponseReturnValue:
    return render_template("run.html", **_context(file), wrong=wrong), wrong.code if wrong else 200


@blueprint.get("/files/<file_id>/run/now")
def now(file_id: str) -> ResponseReturnValue:
    """Report how far it is; at the end the polling ends as well."""
    here = site()
    file = here.store.one(f"SELECT {_PROGRESS_COLUMNS} FROM file WHERE id = ?", file_id)  # noqa: S608 - our own names
    if file is None:
        abort(404)
    answer = make_response(_fragment(here, file))
    if file["state"] not in UNDER_WAY:
        answer.status_code = ENDS_POLLING
        answer.headers["HX-Refresh"] = "true"  # the page around the numbers says what can be done next
    return answer


def _fragment(here: Site, file: Row) -> str:
    """Render a run's progress; it is reused for half a second, so that fifty viewers cost as much as one."""
    moment, row = time.monotonic(), tuple(file)
    kept = here.fragments.get(file["id"])
    if kept is not None and kept[1] == row and moment - kept[0] < _FRESH_S:
        return kept[2]
    text = render_template(
        "_run.html",
        file=file,
        run=run_status(here, file),
        approvers=approvers_of(here, file),
        names=people_by_name(here),
        under_way=file["state"] in UNDER_WAY,
    )
    if file["state"] in UNDER_WAY:
        here.fragments[file["id"]] = moment, row, text
    else:
        here.fragments.pop(file["id"], None)
    return text


@blueprint.post("/files/<file_id>/stop")
def stop(file_id: str) -> ResponseReturnValue:
    """Ask a run to stop: rows in flight are answered, nothing new begins."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    problem = refused("stop", person, file)
    if problem is not None:
        return refusal(problem)
    with here.store.write() as db:
        changed = db.execute(
            "UPDATE file SET stop_by = ? WHERE id = ? AND state IN ('approved', 'sending') AND stop_by IS NULL",
            (person.shown, file_id),
        ).rowcount
        if changed:
            here.store.note(db, person.name, file_id, "requested a stop", person.proof)
    return redirect(url_for("runs.page", file_id=file_id), 303)


@blueprint.post("/files/<file_id>/resume")
def go_on(file_id: str) -> ResponseReturnValue:
    """Resume a stopped run, with password and code."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    run = run_status(here, file)
    problem = _go_on_refused(here, person, file, run)
    if problem is not None:
        return refusal(problem)
    if request.form.get("seen") != run.waits:
        return _page(file, Refusal(_OTHERS_WAIT, NOT_NOW))
    if (wrong := prove_again()) is not None:
        return _page(file, Refusal(wrong, 401))
    if not _begin_again(here, person, file):
        abort(NOT_NOW)
    return redirect(url_for("runs.page", file_id=file_id), 303)


def _begin_again(here: Site, person: Person, file: Row) -> bool:
    """Resume a run; False if the file has moved on meanwhile."""
    with here.store.write() as db:
        if not here.store.move(db, file["id"], file["state"], "approved", told=None, stop_by=None, ended_at=None):
            return False
        here.jobs.want(db, file["id"], "resume", person.name)
        here.store.note(db, person.name, file["id"], WENT_ON, person.proof)
    here.jobs.wake()
    return True


def send_agreed(here: Site, person: Person, batch: str, agreed: Totals) -> None:
    """Send what two people have just agreed to send again, if nothing else waits and the second one may resume the run.

    Otherwise the batch's page says what is still needed.
    """
    file_id = file_of(here, batch)
    file = here.store.file(file_id) if file_id else None
    if file is None or (run := run_status(here, file)).waiting != agreed:
        return
    if _go_on_refused(here, person, file, run) is None:
        _begin_again(here, person, file)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Payments that somebody cancelled at once, without those that were released since."""

    at: datetime
    who: str
    why: str
    places: list[str]
    totals: Totals


def cancellations(here: Site, batch: BatchSummary) -> list[Cancellation]:
    """Return which payments of a batch are cancelled, by whom and why, on the page or on the command line."""
    events = [event for event in here.ledger().events(batch.batch) if event.kind == "cancelled"]
    rejected = here.ledger().rejected(batch.batch) if events else ()
    left = {row.row: row for row in rejected if CANCELLED in row.reasons}
    found, names, word = list[Cancellation](), people_by_name(here), place_word(batch.file)
    for event in reversed(events):  # a row that was released and cancelled again is in two events
        ranges = read_ranges(json.loads(event.detail)[State.REJECTED])
        rows = [left.pop(row) for first, last in ranges for row in range(first, last + 1) if row in left]
        if rows:
            places = [place_of(word, row.row, row.line) for row in rows]
            who, totals = person_named(event.who, names), Totals(len(rows), sum(row.amount_cents for row in rows))
            found.append(Cancellation(event.at, who, event.why or "", places, totals))
    return found[::-1]


@blueprint.get("/batches/<batch>/cancel")
@needs("settle")
def to_cancel(batch: str) -> ResponseReturnValue:
    """List a batch's payments that wait, to be cancelled."""
    return _to_cancel(batch)


def _to_cancel(batch: str, wrong: Refusal | None = None) -> ResponseReturnValue:
    here = site()
    found = here.ledger().find(batch)
    word = place_word(found.file)
    pending = here.ledger().rows(found.batch, [State.PENDING])
    listed = [(row, place_of(word, row.row, row.line)) for row in islice(pending, SHOWN_MAX)]
    is_busy = _is_busy(here, found)
    answer = render_template(
        "cancel.html",
        batch=found,
        listed=listed,
        waiting=found.by_state[State.PENDING],
        busy=_BUSY if is_busy and wrong is None else None,
        is_busy=is_busy,
        wrong=wrong,
    )
    return answer, wrong.code if wrong else 200


def _is_busy(here: Site, batch: BatchSummary) -> bool:
    """Return whether a run holds a batch, or is about to."""
    file_id = file_of(here, batch.batch)
    file = here.store.file(file_id) if file_id else None
    return (file is not None and file["state"] in UNDER_WAY) or here.ledger().is_held(batch.digest)


@blueprint.post("/batches/<batch>/cancel")
@needs("settle")
def cancel(batch: str) -> ResponseReturnValue:
    """Cancel payments that wait: those that are chosen, or all that the page showed."""
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    chunks = here.ledger().row_columns(found.batch, [State.PENDING])
    waiting = {row: cents for one in chunks for row, cents in zip(one.rows, one.amounts_cents, strict=True)}
    numbers = [*request.form.getlist("row"), *request.form.get("rows", "").replace(",", " ").split()]
    is_readable = all(re.fullmatch("[0-9]{1,9}", number) for number in numbers)
    chosen = {int(number) for number in numbers} if is_readable else set()
    rows, reason, problem = sorted(waiting if "all" in request.form else chosen), given_words("reason"), None
    if _is_busy(here, found):
        problem = Refusal(f"{_BUSY} Nothing was done.", NOT_NOW)
    elif request.form.get("seen") != f"{len(waiting)} {sum(waiting.values())}":
        problem = Refusal(_OTHERS_WAIT, NOT_NOW)
    elif not rows:
        problem = Refusal("Choose at least one payment, or write row numbers like 3, 7. Nothing was done.", 400)
    elif not reason:
        problem = Refusal("Say why. Nothing was done.", 400)
    elif (wrong := prove_again()) is not None:
        problem = Refusal(wrong, 401)
    if problem is None:
        try:
            cancel_rows(found.batch, rows, Signature(person.shown, reason), here.settings, person.actor())
        except BatchHeld:
            problem = Refusal(f"{_BUSY} Nothing was done.", NOT_NOW)
        except WrongUse as error:
            sentence = as_sentence(str(error).removesuffix("; nothing was cancelled"))
            problem = Refusal(f"{sentence} Nothing was done.", NOT_NOW)
        except BatchpayError as error:
            problem = Refusal(as_sentence(str(error)), 503)
    if problem is not None:
        return _to_cancel(batch, problem)
    total = f"{counted(len(rows), 'payment')}, {money(sum(waiting[row] for row in rows))}"
    here.note(person, file_of(here, found.batch), f"cancelled {total}, of {found.batch}: {reason}")
    return redirect(url_for("history.batch", batch=found.batch), 303)


@blueprint.get("/files/<file_id>/unpaid")
@needs("prepare")
def unpaid(file_id: str) -> ResponseReturnValue:
    """Show how many payments that were declined or came back can be corrected, and why others can't; or the file."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    if file["state"] not in SENT or file["state"] in UNDER_WAY or not file["batch"]:
        abort(NOT_NOW)
    asked, name = (str(here.home), file_id), rejects_name(file["name"])
    if request.args.get("as") == "file":
        made = papers.make(here, "to correct", *asked, name)
        here.note(person, file_id, "downloaded the declined and returned payments to correct")
        return download(made, name)
    try:
        return render_template("unpaid.html", file=file, **papers.read_json(here, "unpaid", *asked))
    except NotUsable as error:
        return render_template("unpaid.html", file=file, gone=as_sentence(str(error)))


@blueprint.get("/batches/<batch>/results")
def results(batch: str) -> ResponseReturnValue:
    """Download what became of every payment, as a workbook or as CSV."""
    ending = "csv" if request.args.get("as") == "csv" else "xlsx"
    return _paper(batch, "results", f"results.{ending}")


@blueprint.get("/batches/<batch>/report")
def report(batch: str) -> ResponseReturnValue:
    """Download the page about a batch: self-contained, to keep or to print."""
    return _paper(batch, "report", "report.html")


def _paper(batch: str, kind: str, ending: str) -> ResponseReturnValue:
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    name = f"{found.file.rpartition('/')[2].rpartition('.')[0] or found.batch}.{ending}"
    made = papers.make(here, kind, found.batch, name)
    here.note(person, file_of(here, found.batch), f"downloaded the {kind} of {found.batch}")
    return download(made, name)


def file_of(here: Site, batch: str) -> str | None:
    """Return the uploaded file that a batch was sent from; None if there is none, or it was only checked."""
    marks = ", ".join("?" * len(SENT))
    found = here.store.one(
        f"SELECT id FROM file WHERE batch = ? AND state IN ({marks}) ORDER BY uploaded_at DESC LIMIT 1",  # noqa: S608
        batch, *SENT,
    )  # fmt: skip
    return found["id"] if found else None
