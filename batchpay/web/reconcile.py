"""Reconcile: the bank's export compared with a batch, what agrees and what differs; settle what it proves.

The export is kept sealed, and matched by a child: a broken workbook ends that child and nothing else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import NotUsable, WrongUse
from batchpay.ledger.records import BatchSummary
from batchpay.reconciliation.resolution import rows_in_doubt
from batchpay.web import papers, spool
from batchpay.web.acts import NOT_NOW, Refusal
from batchpay.web.files import RECONCILED, begin_upload, in_pieces, refused_upload
from batchpay.web.people import Person
from batchpay.web.runs import file_of
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, download, given_file, given_words, name_of, site

blueprint = Blueprint("reconcile", __name__)

ENDINGS = (".csv", ".txt", ".tsv", ".xlsx", ".xlsm")
EXPORT_BYTES_MAX = 128 << 20
_NAME_MAX = 120
_CHANGED = (
    "This batch was compared again in the meantime, or a payment in doubt was settled: what is now true follows. "
    "Nothing was done; check it first."
)


@blueprint.get("/batches/<batch>/reconcile")
def page(batch: str) -> ResponseReturnValue:
    """Show the result for the latest export, and accept another one."""
    return _page(site().ledger().find(batch))


def _page(found: BatchSummary, wrong: Refusal | None = None) -> ResponseReturnValue:
    here = site()
    kept = _kept(here, found.batch, "compared")
    result: dict[str, Any] | None = json.loads(kept) if kept else None
    doubts = _in_doubt(here, found.batch)
    listed = result["reconciliation"]["found_doubts"] if result else []
    there = [one for one in listed if (one["row"], one["attempts"]) in doubts]
    answer = render_template(
        "reconcile.html",
        batch=found,
        file_id=file_of(here, found.batch),
        result=result,
        doubts=there,
        not_there=len(doubts) - len(there),
        proven=[one for one in there if one["becomes"]],
        settled=[one for one in listed if one["row"] in result["reconciliation"]["settled"]] if result else [],
        mark=_mark(kept, doubts),
        reason=request.form.get("reason", "in the bank's export"),
        wrong=wrong,
    )
    return answer, wrong.code if wrong else 200


def _in_doubt(here: Site, batch: str) -> list[tuple[int, int]]:
    """Return the rows that are in doubt now, each with the number of its attempt: a comparison may be older."""
    found = rows_in_doubt(here.ledger(), batch, here.settings.gateway.timeout)
    return [(doubt.row, doubt.attempts) for doubt in found]


@blueprint.post("/batches/<batch>/export")
@needs("prepare", "settle")
def begin(batch: str) -> ResponseReturnValue:
    """Start the upload of an export in pieces, by the page's script; `take` compares it when all of it is here."""
    here = site()
    found, name = here.ledger().find(batch), name_of(request.form.get("name"))
    try:
        if not name.lower().endswith(ENDINGS):
            raise WrongUse("an export is a CSV file or a workbook")
        file_id = begin_upload(here, name, request.form.get("size", 0, int), "export", EXPORT_BYTES_MAX)
    except WrongUse as error:
        return refused_upload(error, by_form=False)
    return in_pieces(file_id, url_for("reconcile.page", batch=found.batch))


@blueprint.post("/batches/<batch>/reconcile")
@needs("prepare", "settle")
def take(batch: str) -> ResponseReturnValue:
    """Accept an export, whole by a plain form or uploaded in pieces before, and match it."""
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    uploaded = here.store.file(request.form.get("upload", ""))
    if uploaded is not None:
        pieces = uploaded["pieces"]
        whole = pieces == -(-uploaded["bytes"] // spool.PIECE_BYTES)
        if uploaded["uploaded_by"] != person.name or uploaded["state"] != "export" or not whole:
            abort(NOT_NOW)
        blocks: Iterable[bytes] = spool.pieces(here.ledger(), here.home, uploaded["id"], pieces)
        name = uploaded["name"]
    else:
        data, name = given_file("export")
        blocks = [data]
        if not data or not name.lower().endswith(ENDINGS):
            return _page(found, Refusal("Choose the bank's export, a CSV file or a workbook.", 400))
    with spool.memory_file(blocks) as (export, digest):
        if uploaded is not None:
            with here.store.write() as db:
                db.execute("DELETE FROM file WHERE id = ?", (uploaded["id"],))
            spool.remove(here.home, uploaded["id"])
        return _compare(here, person, found, name[-_NAME_MAX:], export, digest)


def _compare(
    here: Site, person: Person, found: BatchSummary, name: str, export: int, digest: str
) -> ResponseReturnValue:
    """Match an export, keep it sealed, and show the result."""
    try:
        compared = papers.read_json(here, "compare", found.batch, name, given=export)
    except NotUsable as error:
        return _page(found, Refusal(f"This export can't be used: {error}", 400))
    place = spool.export_place(found.batch)
    dated = json.dumps(compared | _signed(here, person, digest, name)).encode()
    spool.place(here.home, place).mkdir(parents=True, exist_ok=True, mode=0o700)
    spool.keep(here.ledger(), here.home, place, "export", spool.blocks_of(export))
    spool.keep(here.ledger(), here.home, place, "compared", [dated])
    here.note(person, file_of(here, found.batch), f"compared {found.batch} with {name}")
    _note_if_reconciled(here, found.batch, compared)
    return redirect(url_for("reconcile.page", batch=found.batch), 303)


@blueprint.get("/batches/<batch>/reconciled")
def rows(batch: str) -> ResponseReturnValue:
    """Download every row and every line with its verdict."""
    here = site()
    found = here.ledger().find(batch)
    target = f"{found.batch}.reconciled.xlsx"
    with _export(here, found.batch) as (export, name, _):
        return download(papers.make(here, "reconcile", found.batch, target, name, given=export), target)


@blueprint.post("/batches/<batch>/settle")
@needs("settle")
def settle(batch: str) -> ResponseReturnValue:
    """Settle the rows in doubt whose outcome the export shows."""
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    with _export(here, found.batch) as (export, name, digest):
        seen, reason = _kept(here, found.batch, "compared"), given_words("reason")
        if seen is None or request.form.get("seen") != _mark(seen, _in_doubt(here, found.batch)):
            return _page(found, Refusal(_CHANGED, NOT_NOW))
        if not reason:
            return _page(found, Refusal("Say how you know. Nothing was done.", 400))
        if (wrong := prove_again()) is not None:
            return _page(found, Refusal(wrong, 401))
        shown = json.loads(seen)["reconciliation"]["found_doubts"]
        by = dataclasses.asdict(person.actor())
        signed = {"name": person.shown, "reason": reason, "by": by, "shown": shown}
        try:
            compared = papers.read_json(here, "compare", found.batch, name, signed, given=export)
        except NotUsable as error:
            return _page(found, Refusal(f"Nothing was settled: {error}", NOT_NOW))
    result = compared["reconciliation"]
    settled = [f"{one['place']} {one['becomes']}" for one in result["found_doubts"] if one["row"] in result["settled"]]
    said = ", ".join(settled) or "nothing, which was no longer in doubt,"
    here.note(person, file_of(here, found.batch), f"settled {said} by what {name} proves: {reason}")
    dated = json.dumps(compared | _signed(here, person, digest, name) | {"was_settled": True}).encode()
    spool.keep(here.ledger(), here.home, spool.export_place(found.batch), "compared", [dated])
    _note_if_reconciled(here, found.batch, compared)
    return redirect(url_for("reconcile.page", batch=found.batch), 303)


def _signed(here: Site, person: Person, digest: str, name: str) -> dict[str, Any]:
    """Return who compared a batch, when, and with which export."""
    return {"by": person.shown, "at": here.clock(), "export": digest, "name": name}


def _note_if_reconciled(here: Site, batch: str, compared: dict[str, Any]) -> None:
    """Record that a batch is reconciled, once nothing differs and nothing is in doubt.

    It is not by a file that may be their own: that agrees in any case.
    """
    if compared["exit_code"] == 0 and not compared["reconciliation"]["caution"]:
        with here.store.write() as db:
            here.store.note(db, "batchpay", file_of(here, batch), RECONCILED)


def _mark(compared: bytes | None, doubts: Sequence[tuple[int, int]]) -> str:
    """Return a mark of what a page showed, so that nothing else is settled by its form."""
    return hashlib.sha256((compared or b"") + repr(doubts).encode()).hexdigest()[:16]


def _kept(here: Site, batch: str, name: str) -> bytes | None:
    blocks = spool.kept(here.ledger(), here.home, spool.export_place(batch), name)
    return None if blocks is None else b"".join(blocks)


@contextmanager
def _export(here: Site, batch: str) -> Iterator[tuple[int, str, str]]:
    """Yield the export that the page shows, its name and digest; of two that came at once neither may be kept whole."""
    blocks = spool.kept(here.ledger(), here.home, spool.export_place(batch), "export")
    kept = json.loads(_kept(here, batch, "compared") or b"{}")
    if blocks is None or "name" not in kept:
        abort(404)
    with spool.memory_file(blocks) as (export, digest):
        if kept["export"] != digest:
            abort(NOT_NOW)
        yield export, kept["name"], digest
