"""In doubt: what was sent and not answered, credits first; a person looks each one up and records what became of it.

Accepted and declined take one person; to send a row again takes a second one, since only that can pay twice. Every
decision, request and agreement is about one attempt of a row: if it was sent again meanwhile, it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import BatchHeld, BatchpayError, LedgerNotUsable, NotUsable, WrongUse
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Direction, Totals
from batchpay.reconciliation.resolution import DECISIONS, Doubt, reason_with_notes
from batchpay.reconciliation.resolution import rows_in_doubt as doubts_of_batch
from batchpay.text import place_of, place_word
from batchpay.web import papers, spool
from batchpay.web.acts import MAY_NOT, NOT_NOW, Refusal, Signed, refused_again
from batchpay.web.approval import over_day
from batchpay.web.files import in_sight, people_by_name
from batchpay.web.papers import SignedOnPage
from batchpay.web.people import Person
from batchpay.web.runs import SHOWN_MAX, file_of, send_agreed
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, download, given_decision, given_file, given_words, site
from batchpay.web.spool import Row
from batchpay.web.words import BECAME, as_sentence
from batchpay.workflows.resolve import ProposedDecisions, RowDecision, Signature, settle
from batchpay.workflows.status import in_doubt

blueprint = Blueprint("doubts", __name__)

SEND_AGAIN = "send again"
_OVER = "One of these requests has ended, or its payment was sent again in the meantime. Nothing was done; check again."
_REFERENCE_MAX = 128
_ENDS = {
    "refuse": ("refused", "did not agree to the request to send again"),
    "withdraw": ("withdrawn", "withdrew the request to send again"),
}
"""How a request ends without being agreed to: its state, and what the history says."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send a row in doubt again; a second person must agree."""

    asked: Row
    doubt: Doubt
    may_not: Refusal | None
    """Why the person viewing it can't be that second person."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with rows in doubt, and who wants which of them sent again."""

    found: BatchSummary
    file: str | None
    doubts: list[Doubt]
    requests: dict[int, Request]
    """Requests that wait, by row."""

    @property
    def mine(self) -> list[Request]:
        """Those that the person viewing it can agree to."""
        return [one for one in self.requests.values() if one.may_not is None]

    @property
    def credits(self) -> int:
        """How many of them would be money given away if they were paid twice."""
        return sum(doubt.money_leaves for doubt in self.doubts)


def rows_in_doubt(here: Site) -> int:
    """Count what a person may see in doubt in this environment; 0 if the ledger can't be read: other pages say so."""
    with suppress(LedgerNotUsable):
        found, sight = in_doubt(here.ledger(), here.environment), in_sight()
        return sum(totals.rows for batch in filter(sight.batch, found) for totals in found[batch].values())
    return 0


def _batches(here: Site) -> list[BatchSummary]:
    found = in_doubt(here.ledger(), here.environment)
    return [here.ledger().find(name) for name in filter(in_sight().batch, found)]


def asked_again(here: Site) -> list[Batch]:
    """Return the batches of which somebody wants payments sent again, for whoever could agree; most often none."""
    found = list[Batch]()
    for one in here.store.all("SELECT DISTINCT batch FROM again WHERE state = 'asked'"):
        with suppress(WrongUse):  # of a ledger that was restored since
            found.append(_batch(here, here.ledger().find(one["batch"])))
    return [batch for batch in found if batch.requests]


@blueprint.get("/doubts")
def page() -> ResponseReturnValue:
    """List every batch with rows in doubt."""
    return _page()


def _page(wrong: Refusal | None = None, about: str | None = None) -> ResponseReturnValue:
    here = site()
    listed = sorted((_batch(here, found) for found in _batches(here)), key=lambda one: not one.credits)
    answer = render_template(
        "doubts.html",
        batches=listed,
        names=people_by_name(here),
        shown_max=SHOWN_MAX,
        wrong=wrong,
        about=about,
        given=request.form if wrong else {},
        ticked=request.form.getlist("request") if wrong else None,
        by_sheet=request.endpoint == "doubts.decide_by_sheet",
        choices=list(DECISIONS),
        place_of=lambda batch, doubt: place_of(place_word(batch.found.file), doubt.row, doubt.line),
    )
    return answer, wrong.code if wrong else 200


def _batch(here: Site, found: BatchSummary) -> Batch:
    doubts = _doubts(here, found.batch)
    file_id = file_of(here, found.batch)
    return Batch(found, file_id, list(doubts.values()), _requests(here, found.batch, doubts, file_id))


def _doubts(here: Site, batch: str) -> dict[int, Doubt]:
    return {doubt.row: doubt for doubt in doubts_of_batch(here.ledger(), batch, here.settings.gateway.timeout)}


def _requests(here: Site, batch: str, doubts: Mapping[int, Doubt], file_id: str | None) -> dict[int, Request]:
    """Return the requests about attempts that are in doubt now; those about an earlier attempt of a row lapse."""
    waiting, stale, person = {}, [], current_person()
    file = here.store.file(file_id) if file_id else None
    asked = "batch = ? AND state = 'asked' AND who NOT IN (SELECT name FROM user WHERE is_off)"
    for one in here.store.all(f"SELECT * FROM again WHERE {asked} ORDER BY row", batch):  # noqa: S608 - no words of others
        doubt = doubts.get(one["row"])
        if doubt is None or doubt.attempt != one["attempt"]:
            stale.append(one)
        else:
            may_not = refused_again(person, one["who"], file, doubt.amount_cents)
            waiting[doubt.row] = Request(one, doubt, may_not)
    if stale:
        _close(
            here, stale, "lapsed", "batchpay", "dropped the request to send again, which was about an earlier attempt"
        )
    return waiting


@blueprint.get("/doubts/<batch>/sheet")
@needs("settle")
def sheet(batch: str) -> ResponseReturnValue:
    """Download a batch's rows in doubt as a workbook for looking them up."""
    here = site()
    found = here.ledger().find(batch)
    name = f"{found.batch}.doubts.xlsx"
    return download(papers.make(here, "doubts", found.batch, name), name)


@blueprint.post("/doubts/<batch>")
@needs("settle")
def decide(batch: str) -> ResponseReturnValue:
    """Record what became of rows: accepted and declined now, those to be sent again for a second person to agree."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    chosen = _chosen()
    reason = given_words("reason")
    problem = None
    if not chosen:
        problem = Refusal("Record what happened for at least one payment. Nothing was done.", 400)
    elif not reason:
        problem = Refusal("Say how you know. Nothing was done.", 400)
    elif (wrong := prove_again()) is not None:
        problem = Refusal(wrong, 401)
    if problem is not None:
        return _page(problem, batch)
    return _record(here, person, batch, chosen, _Signed(Signature(person.shown, reason), _attempts()))


@blueprint.post("/doubts/<batch>/sheet")
@needs("settle")
def decide_by_sheet(batch: str) -> ResponseReturnValue:
    """Record what a filled-in sheet decides, as `decide` does; a child reads it."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    (data, name), reason = given_file("sheet"), given_words("reason")
    if not data or not reason:
        return _page(Refusal("Choose the filled-in sheet, and say how you know. Nothing was done.", 400), batch)
    if (wrong := prove_again()) is not None:
        return _page(Refusal(wrong, 401), batch)
    try:
        with spool.memory_file([data]) as (given, _):
            filled = papers.read_json(here, "decisions", batch, name or "sheet", given=given)
    except NotUsable as error:
        return _page(Refusal(_sentence(error), 400), batch)
    chosen = [RowDecision(one["row"], one["decision"], one["reference"]) for one in filled["decisions"]]
    if not chosen:
        return _page(Refusal("The sheet has no decisions: its decision column is blank. Nothing was done.", 400), batch)
    signature = Signature(person.shown, reason_with_notes(reason, [(row, note) for row, note in filled["notes"]]))
    attempts = {one["row"]: one["attempt"] for one in filled["decisions"]}
    return _record(here, person, batch, chosen, _Signed(signature, attempts))


def _record(
    here: Site, person: Person, batch: str, chosen: Sequence[RowDecision], signed: _Signed
) -> ResponseReturnValue:
    """Settle what one person may, and ask a second one for the rest; all of it, or nothing if a row is refused."""
    now = [one for one in chosen if one.decision != SEND_AGAIN]
    later = [one.row for one in chosen if one.decision == SEND_AGAIN]
    try:
        doubts = _doubts(here, batch)
        signed.signature.recorded(person.actor(), doubts.values)
        for one in chosen:
            signed.require_same(one.row, doubts.get(one.row))
        places = _places(here, batch, doubts)
        if now:
            said = ", ".join(f"{places[one.row]} {BECAME[one.decision]}" for one in now)
            _settle(here, batch, now, signed, person, f"recorded that {said}")
    except BatchpayError as error:
        return _page(_refused(error), batch)
    if later:
        _ask_to_send_again(here, batch, [doubts[row] for row in later], signed.signature.reason, person, places)
    return redirect(url_for("doubts.page", _anchor=f"batch-{batch}"), 303)


@blueprint.post("/doubts/<batch>/second")
@needs("approve", "settle")
def second(batch: str) -> ResponseReturnValue:
    """Agree, as a second person, to send rows again, or refuse. The form names requests, each about one attempt."""
    here, person = site(), current_person()
    batch = here.ledger().find(batch).batch
    ticked = {int(text) for text in request.form.getlist("request") if text.isdecimal()}
    waiting = _requests(here, batch, _doubts(here, batch), file_of(here, batch)).values()
    chosen = [one for one in waiting if one.asked["id"] in ticked]
    asked = [one.asked for one in chosen]
    if not ticked:
        return _page(Refusal("Choose at least one of the payments to be sent again. Nothing was done.", 400), batch)
    if len(chosen) != len(ticked):
        return _page(Refusal(_OVER, NOT_NOW), batch)
    if (decision := given_decision("agree", *_ENDS)) in _ENDS:
        state, what = _ENDS[decision]
        may = person.may("approve") if state == "refused" else all(one["who"] == person.name for one in asked)
        if not may:
            return _page(Refusal("Who requested this can withdraw it, and an approver refuse it.", MAY_NOT), batch)
        if not _close(here, asked, state, person.name, what, person.proof):
            return _page(Refusal(_OVER, NOT_NOW), batch)
        return redirect(url_for("doubts.page", _anchor=f"batch-{batch}"), 303)
    may_not = next((one.may_not for one in chosen if one.may_not), None)
    cents = sum(one.doubt.amount_cents for one in chosen)
    both = dict.fromkeys(Direction, cents)
    may_not = may_not or over_day(here, person, both)
    if may_not is not None:
        return _page(may_not, batch)
    if (wrong := prove_again()) is not None:
        return _page(Refusal(wrong, 401), batch)
    names = people_by_name(here)
    first = " and ".join(sorted({names.get(one["who"], one["who"]) for one in asked}))
    signature = Signature(f"{first}, agreed to by {person.shown}", "; ".join(sorted({one["reason"] for one in asked})))
    signed = _Signed(signature, {one["row"]: one["attempt"] for one in asked})
    seal = Signed([one["row"] for one in asked], cents, signature.reason).seal(here.ledger(), batch, person.name)
    with here.store.write() as db:
        if over_day(here, person, both) is not None or not _end(db, asked, "agreed"):
            return _page(Refusal(_OVER, NOT_NOW), batch)
        db.execute(
            "INSERT INTO decision (file, who, what, at, seal) VALUES (?, ?, 'agreed', ?, ?)",
            (batch, person.name, here.clock(), seal),
        )
    try:
        did = f"agreed that {', '.join(one['place'] for one in asked)} is sent again"
        _settle(here, batch, [RowDecision(one["row"], SEND_AGAIN) for one in asked], signed, person, did)
    except BatchpayError as error:
        with here.store.write() as db:  # it waits again, unless there was a new request meanwhile
            db.executemany("UPDATE OR IGNORE again SET state = 'asked' WHERE id = ?", [(one["id"],) for one in asked])
            db.execute("DELETE FROM decision WHERE seal = ?", (seal,))
        return _page(_refused(error), batch)
    send_agreed(here, person, batch, Totals(len(chosen), cents))
    return redirect(url_for("history.batch", batch=batch), 303)


def _chosen() -> list[RowDecision]:
    """Read the form: `what-ROW` is a decision or blank, `reference-ROW` the gateway's own id."""
    chosen = []
    for name, said in request.form.items():
        kind, _, row = name.partition("-")
        if kind == "what" and row.isdecimal() and said in DECISIONS:
            reference = request.form.get(f"reference-{row}", "").strip()[:_REFERENCE_MAX]
            chosen.append(RowDecision(int(row), said, reference or None))
    return chosen


def _attempts() -> dict[int, str]:
    """Read from the form which attempt of each row the person saw: `attempt-ROW`."""
    fields = ((name.partition("-"), said) for name, said in request.form.items())
    return {int(row): said for (kind, _, row), said in fields if kind == "attempt" and row.isdecimal()}


def _places(here: Site, batch: str, doubts: Mapping[int, Doubt]) -> dict[int, str]:
    """Return rows by their place in the file, `line 5`."""
    word = place_word(here.ledger().find(batch).file)
    return {row: place_of(word, row, doubt.line) for row, doubt in doubts.items()}


def _settle(here: Site, batch: str, chosen: Sequence[RowDecision], signed: _Signed, person: Person, did: str) -> None:
    """Record decisions, all or none; this answers any request to send one of these rows again."""
    settle(batch, chosen, signed, here.settings, person.actor())
    with here.store.write() as db:
        what = f"{did}: {signed.signature.reason}"
        here.store.note(db, person.name, file_of(here, batch), what, person.proof)
        for one in chosen:
            db.execute(
                "UPDATE again SET state = 'settled' WHERE batch = ? AND row = ? AND state = 'asked'", (batch, one.row)
            )


def _ask_to_send_again(
    here: Site, batch: str, doubts: Sequence[Doubt], reason: str, person: Person, places: Mapping[int, str]
) -> None:
    """Ask a second person; whoever asked first about an attempt remains the one who asked, unless switched off."""
    with here.store.write() as db:
        for doubt in doubts:
            db.execute(
                "UPDATE again SET state = 'lapsed' WHERE batch = ? AND row = ? AND state = 'asked'"
                " AND (attempt != ? OR who IN (SELECT name FROM user WHERE is_off))",
                (batch, doubt.row, doubt.attempt),
            )
            db.execute(
                "INSERT OR IGNORE INTO again (batch, row, place, attempt, who, at, reason, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'asked')",
                (batch, doubt.row, places[doubt.row], doubt.attempt, person.name, here.clock(), reason),
            )
        what = f"requested that {', '.join(places[doubt.row] for doubt in doubts)} of {batch} be sent again: {reason}"
        here.store.note(db, person.name, file_of(here, batch), what, person.proof)


def _close(here: Site, asked: Sequence[Row], state: str, who: str, what: str, how: str = "") -> bool:
    """End requests that wait, all or none, and record who did; False if one of them was ended meanwhile."""
    with here.store.write() as db:
        if is_ended := _end(db, asked, state):
            batch, places = asked[0]["batch"], ", ".join(one["place"] for one in asked)
            here.store.note(db, who, file_of(here, batch), f"{what} {places} of {batch}", how)
    return is_ended


def _end(db: Connection, asked: Sequence[Row], state: str) -> bool:
    waiting = {number for (number,) in db.execute("SELECT id FROM again WHERE state = 'asked'")}
    is_waiting = waiting.issuperset(one["id"] for one in asked)
    if is_waiting:
        db.executemany("UPDATE again SET state = ? WHERE id = ?", [(state, one["id"]) for one in asked])
    return is_waiting


def _refused(error: BatchpayError) -> Refusal:
    """Return why decisions were not recorded; where the ledger can't be used it says itself what it did."""
    if isinstance(error, WrongUse | BatchHeld):
        return Refusal(f"{_sentence(error)} Nothing was done.", NOT_NOW)
    return Refusal(_sentence(error), 503)


def _sentence(error: Any) -> str:
    return as_sentence(str(error).removesuffix("; nothing was changed"))


class _Signed(SignedOnPage):
    """The person saw each row in doubt, and which attempt it was."""

    def __init__(self, signature: Signature, attempts: Mapping[int, str]) -> None:
        super().__init__(signature)
        self._attempts = attempts

    def require_same(self, row: int, doubt: Doubt | None) -> None:
        """Raise WrongUse unless what is in doubt is the attempt that the person saw."""
        if doubt is None or self._attempts.get(row) != doubt.attempt:
            what = "one of these payments" if doubt is None or not doubt.reference else doubt.reference
            raise WrongUse(f"{what} is no longer in doubt, or was sent again in the meantime; look it up again")

    def show(self, found: ProposedDecisions) -> None:
        """Compare the attempts they saw with those in doubt, under the batch's lock."""
        for decision in found.decisions:
            self.require_same(decision.row, found.doubts[decision.row])
