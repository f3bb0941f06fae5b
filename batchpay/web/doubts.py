"""In doubt: what was sent and not answered, credits first; a person looks each one up and says what became of it.

Accepted and declined take one person; to send a row again takes a second one, since that alone can pay twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import BatchHeld, LedgerNotUsable, NotUsable, WrongUse
from batchpay.ledger.records import BatchSummary
from batchpay.payment import State
from batchpay.reconciliation.resolution import DECISIONS, Doubt, reason_with_notes
from batchpay.reconciliation.resolution import rows_in_doubt as doubts_of_batch
from batchpay.text import instant, place_of, place_word, printable
from batchpay.web import papers
from batchpay.web.acts import MAY_NOT, NOT_NOW, Refused
from batchpay.web.files import people_by_name
from batchpay.web.people import Person
from batchpay.web.runs import file_of
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, site
from batchpay.web.store import Row
from batchpay.workflows.resolve import Proposal, RowDecision, Signature, settle

blueprint = Blueprint("doubts", __name__)

SEND_AGAIN = "send again"
SHOWN_MAX = 200
"""So many rows of a batch stand on the page; the sheet has all of them."""
_WORDS_MAX = 500
_REFERENCE_MAX = 128


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with rows in doubt, and who wants which of them to be sent again."""

    found: BatchSummary
    file: str | None
    doubts: list[Doubt]
    asked: dict[int, Row]
    """Requests to send a row again that wait for a second person, by row."""

    @property
    def credits(self) -> int:
        """How many of them would be money given away, if they were paid twice."""
        return sum(doubt.money_leaves for doubt in self.doubts)


def rows_in_doubt(here: Site) -> int:
    """Count what is in doubt in this environment; 0 where the ledger can't be read, which other pages say."""
    with suppress(LedgerNotUsable):
        return sum(found.by_state[State.IN_DOUBT].rows for found in _batches(here))
    return 0


def _batches(here: Site) -> list[BatchSummary]:
    found = here.ledger().batches()
    return [one for one in found if one.environment is here.environment and one.by_state[State.IN_DOUBT].rows]


@blueprint.get("/doubts")
def page() -> ResponseReturnValue:
    """List every batch with rows in doubt."""
    return _page()


def _page(wrong: Refused | None = None, about: str | None = None) -> ResponseReturnValue:
    here = site()
    listed = sorted((_batch(here, found) for found in _batches(here)), key=lambda one: not one.credits)
    answer = render_template(
        "doubts.html",
        batches=listed,
        names=people_by_name(here),
        shown_max=SHOWN_MAX,
        wrong=wrong,
        about=about,
        choices=list(DECISIONS),
        moment_of=moment_of,
        place_of=lambda batch, doubt: place_of(place_word(batch.found.file), doubt.row, doubt.line),
    )
    return answer, wrong.code if wrong else 200


def _batch(here: Site, found: BatchSummary) -> Batch:
    doubts = doubts_of_batch(here.ledger(), found.batch, here.settings.gateway.timeout)
    asked = {row["row"]: row for row in _asked(here, found.batch, doubts)}
    return Batch(found, file_of(here, found.batch), doubts, asked)


def _asked(here: Site, batch: str, doubts: Sequence[Doubt]) -> list[Row]:
    """Give the requests about attempts that are in doubt now; those about an earlier attempt of a row say nothing."""
    asked = here.store.all("SELECT * FROM again WHERE batch = ? AND state = 'asked' ORDER BY row", batch)
    now = {doubt.row: moment_of(doubt) for doubt in doubts}
    stale = [one for one in asked if now.get(one["row"]) != one["sent_at"]]
    if stale:
        _close(here, stale, "lapsed", "batchpay", "let lapse the request, about an earlier attempt, to send again")
    return [one for one in asked if one not in stale]


def moment_of(doubt: Doubt) -> str:
    """Tell a row's attempts apart: when the one in doubt was sent."""
    return instant(doubt.sent_from) or ""


@blueprint.get("/doubts/<batch>/sheet")
@needs("settle")
def sheet(batch: str) -> ResponseReturnValue:
    """Hand out a batch's rows in doubt as a workbook, to look them up with."""
    here = site()
    found = here.ledger().find(batch)
    name = f"{found.batch}.doubts.xlsx"
    return papers.hand_out(papers.make(here, "doubts", found.batch, name), name)


@blueprint.post("/doubts/<batch>")
@needs("settle")
def decide(batch: str) -> ResponseReturnValue:
    """Record what became of rows: accepted and declined now, those to be sent again for a second person to agree."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    chosen = _chosen()
    reason = _reason()
    problem = None
    if not chosen:
        problem = Refused("Say of at least one payment what became of it. Nothing was done.", 400)
    elif not reason:
        problem = Refused("Say how you know. Nothing was done.", 400)
    elif (wrong := prove_again()) is not None:
        problem = Refused(wrong, 401)
    if problem is not None:
        return _page(problem, batch)
    return _record(here, person, batch, chosen, _Signed(Signature(person.shown, reason), _sent()))


@blueprint.post("/doubts/<batch>/sheet")
@needs("settle")
def decide_by_sheet(batch: str) -> ResponseReturnValue:
    """Record what a filled-in sheet decides, as `decide` does; a child reads it."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    given, reason = request.files.get("sheet"), _reason()
    data = given.read() if given else b""
    if not data or not reason:
        return _page(Refused("Choose the filled-in sheet, and say how you know. Nothing was done.", 400), batch)
    if (wrong := prove_again()) is not None:
        return _page(Refused(wrong, 401), batch)
    name = printable(PurePath(((given.filename if given else None) or "sheet").replace("\\", "/")).name)
    try:
        filled = papers.read_json(here, "decisions", batch, name, given=data)
    except NotUsable as error:
        return _page(Refused(_sentence(error), 400), batch)
    chosen = [RowDecision(one["row"], one["decision"], one["reference"]) for one in filled["decisions"]]
    if not chosen:
        return _page(Refused("The sheet decides nothing: its column decision is blank. Nothing was done.", 400), batch)
    signature = Signature(person.shown, reason_with_notes(reason, [(row, note) for row, note in filled["notes"]]))
    sent = {one["row"]: one["sent"] for one in filled["decisions"]}
    return _record(here, person, batch, chosen, _Signed(signature, sent))


def _record(
    here: Site, person: Person, batch: str, chosen: Sequence[RowDecision], signed: _Signed
) -> ResponseReturnValue:
    """Settle what one person may, and ask a second one for the rest."""
    now = [one for one in chosen if one.decision != SEND_AGAIN]
    later = [one.row for one in chosen if one.decision == SEND_AGAIN]
    try:
        if now:
            _settle(here, batch, now, signed, person)
        if later:
            _ask_to_send_again(here, batch, later, signed, person)
    except (WrongUse, BatchHeld) as error:
        return _page(Refused(f"{_sentence(error)} Nothing was done.", NOT_NOW), batch)
    return redirect(url_for("doubts.page", _anchor=f"batch-{batch}"), 303)


@blueprint.post("/doubts/<batch>/second")
@needs("approve")
def second(batch: str) -> ResponseReturnValue:
    """Agree, as a second person, that rows are sent again; or don't."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    rows = {int(text) for text in request.form.getlist("row") if text.isdecimal()}
    doubts = doubts_of_batch(here.ledger(), batch, here.settings.gateway.timeout)
    asked = [one for one in _asked(here, batch, doubts) if one["row"] in rows]
    if not asked:
        abort(NOT_NOW)
    if any(one["who"] == person.name for one in asked):
        return _page(Refused("You asked for this yourself: a second person must agree.", MAY_NOT), batch)
    if request.form.get("decision") == "refuse":
        _close(here, asked, "refused", person.name, "did not agree to the request to send again", person.how)
        return redirect(url_for("doubts.page", _anchor=f"batch-{batch}"), 303)
    if (wrong := prove_again()) is not None:
        return _page(Refused(wrong, 401), batch)
    names = people_by_name(here)
    first = " and ".join(sorted({names.get(one["who"], one["who"]) for one in asked}))
    signature = Signature(f"{first}, agreed to by {person.shown}", "; ".join(sorted({one["reason"] for one in asked})))
    signed = _Signed(signature, {one["row"]: one["sent_at"] for one in asked})
    try:
        _settle(here, batch, [RowDecision(one["row"], SEND_AGAIN) for one in asked], signed, person)
    except (WrongUse, BatchHeld) as error:
        return _page(Refused(f"{_sentence(error)} Nothing was done.", NOT_NOW), batch)
    _close(here, asked, "agreed")
    file_id = file_of(here, batch)
    if file_id is None:
        return redirect(url_for("doubts.page"), 303)
    with here.store.write() as db:
        told = f"{len(asked)} to be sent again"
        here.store.move(db, file_id, "done", "stopped", told=told)
    return redirect(url_for("runs.page", file_id=file_id), 303)


def _chosen() -> list[RowDecision]:
    """Read the form: `what-ROW` is a decision or blank, `reference-ROW` the gateway's own id."""
    chosen = []
    for name, said in request.form.items():
        kind, _, row = name.partition("-")
        if kind == "what" and row.isdecimal() and said in DECISIONS:
            reference = request.form.get(f"reference-{row}", "").strip()[:_REFERENCE_MAX]
            chosen.append(RowDecision(int(row), said, reference or None))
    return chosen


def _reason() -> str:
    return printable(" ".join(request.form.get("reason", "").split()))[:_WORDS_MAX]


def _sent() -> dict[int, str]:
    """Read from the form which attempt of each row the person saw: `sent-ROW`."""
    fields = ((name.removeprefix("sent-"), said) for name, said in request.form.items() if name.startswith("sent-"))
    return {int(row): said for row, said in fields if row.isdecimal()}


def _settle(here: Site, batch: str, chosen: Sequence[RowDecision], signed: _Signed, person: Person) -> None:
    """Record decisions, all or none; a request to send one of these rows again is answered by it."""
    settle(batch, chosen, signed, here.settings, person.actor())
    said = ", ".join(f"row {one.row} {one.decision}" for one in chosen)
    with here.store.write() as db:
        what = f"settled {said}: {signed.signature.reason}"
        here.store.note(db, person.name, file_of(here, batch), what, person.how)
        for one in chosen:
            db.execute(
                "UPDATE again SET state = 'settled' WHERE batch = ? AND row = ? AND state = 'asked'", (batch, one.row)
            )


def _ask_to_send_again(here: Site, batch: str, rows: Sequence[int], signed: _Signed, person: Person) -> None:
    doubts = {doubt.row: doubt for doubt in doubts_of_batch(here.ledger(), batch, here.settings.gateway.timeout)}
    signed.signature.recorded(person.actor(), list(doubts.values()))
    for row in rows:
        signed.require_same(row, doubts.get(row))
    known = {one["row"] for one in _asked(here, batch, list(doubts.values()))}
    reason = signed.signature.reason
    with here.store.write() as db:
        for row in rows:
            if row not in known:
                db.execute(
                    "INSERT INTO again (batch, row, who, at, reason, state, sent_at)"
                    " VALUES (?, ?, ?, ?, ?, 'asked', ?)",
                    (batch, row, person.name, here.clock(), reason, moment_of(doubts[row])),
                )
        what = f"wants row {', '.join(map(str, rows))} of {batch} to be sent again: {reason}"
        here.store.note(db, person.name, file_of(here, batch), what, person.how)


def _close(here: Site, asked: Sequence[Row], state: str, who: str = "", what: str = "", how: str = "") -> None:
    with here.store.write() as db:
        for one in asked:
            db.execute("UPDATE again SET state = ? WHERE id = ? AND state = 'asked'", (state, one["id"]))
        if what:
            batch = asked[0]["batch"]
            here.store.note(db, who, file_of(here, batch), f"{what} row {_rows(asked)} of {batch}", how)


def _rows(asked: Sequence[Row]) -> str:
    return ", ".join(str(one["row"]) for one in asked)


def _sentence(error: Any) -> str:
    text = str(error).removesuffix("; nothing was changed")
    return f"{text[:1].upper()}{text[1:]}."


class _Signed:
    """See workflows.resolve.Decider: the person saw each row, signed, and proved who they are."""

    def __init__(self, signature: Signature, sent: Mapping[int, str]) -> None:
        self.signature = signature
        self._sent = sent

    def require_same(self, row: int, doubt: Doubt | None) -> None:
        """Raise WrongUse unless what is in doubt is the attempt that the person saw."""
        if doubt is None or self._sent.get(row) != moment_of(doubt):
            raise WrongUse(f"row {row} is not in doubt any more, or was sent again meanwhile: look at it again")

    def show(self, found: Proposal) -> None:
        """They saw it on the page: hold the attempts that they saw against those in doubt, under the batch's lock."""
        for decision in found.decisions:
            self.require_same(decision.row, found.doubts[decision.row])

    def sign(self) -> Signature:
        """Who decides, and how they know."""
        return self.signature

    def confirm(self, sent_again: int) -> None:
        """They pressed the button; a second person did, where rows are sent again."""
