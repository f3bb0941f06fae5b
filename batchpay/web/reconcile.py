"""Reconcile: the bank's export compared with a batch, what agrees and what differs; settle what it proves.

The export is kept sealed, and matched by a child: a broken workbook ends that child and nothing else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.errors import NotUsable
from batchpay.ledger.records import BatchSummary
from batchpay.reconciliation.resolution import rows_in_doubt
from batchpay.web import papers, spool
from batchpay.web.acts import NOT_NOW, Refusal
from batchpay.web.files import RECONCILED, begin_export, given_export
from batchpay.web.people import Person
from batchpay.web.runs import file_of
from batchpay.web.sign_in import current_person, needs, prove_again
from batchpay.web.site import Site, download, given_words, site
from batchpay.web.words import BECAME

blueprint = Blueprint("reconcile", __name__)

ENDINGS = (".csv", ".txt", ".tsv", ".xlsx", ".xlsm")
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
    kept = _kept(here, found.batch)
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
    return begin_export(url_for("reconcile.page", batch=site().ledger().find(batch).batch), ENDINGS)


@blueprint.post("/batches/<batch>/reconcile")
@needs("prepare", "settle")
def take(batch: str) -> ResponseReturnValue:
    """Accept an export, whole by a plain form or uploaded in pieces before, and match it."""
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    with given_export(ENDINGS) as (export, digest, name):
        if not name:
            return _page(found, Refusal("Choose the bank's export, a CSV file or a workbook.", 400))
        return _compare(here, person, found, name, export, digest)


def _compare(
    here: Site, person: Person, found: BatchSummary, name: str, export: int, digest: str
) -> ResponseReturnValue:
    """Match an export, keep it sealed, and show the result."""
    try:
        compared = papers.read_json(here, "compare", found.batch, name, given=export)
    except NotUsable as error:
        return _page(found, Refusal(f"This export can't be used: {error}", 400))
    keep_export(here, found.batch, export, compared | _signed(here, person, digest, name))
    here.note(person, file_of(here, found.batch), f"compared {found.batch} with {name}")
    _note_if_reconciled(here, found.batch, compared)
    return redirect(url_for("reconcile.page", batch=found.batch), 303)


@blueprint.get("/batches/<batch>/reconciled")
def rows(batch: str) -> ResponseReturnValue:
    """Download every row and every line with its verdict."""
    here = site()
    found = here.ledger().find(batch)
    target = f"{found.batch}.reconciled.xlsx"
    with kept_export(here, found.batch) as (export, name, _):
        return download(papers.make(here, "reconcile", found.batch, target, name, given=export), target)


@blueprint.post("/batches/<batch>/settle")
@needs("settle")
def settle(batch: str) -> ResponseReturnValue:
    """Settle the rows in doubt whose outcome the export shows."""
    here, person = site(), current_person()
    found = here.ledger().find(batch)
    with kept_export(here, found.batch) as (export, name, digest):
        seen, reason = _kept(here, found.batch), given_words("reason")
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
    settled = [
        f"{one['place']} {BECAME.get(one['becomes'], one['becomes'])}"
        for one in result["found_doubts"]
        if one["row"] in result["settled"]
    ]
    said = f"recorded that {', '.join(settled)}" if settled else "recorded nothing: no payment was in doubt anymore"
    here.note(person, file_of(here, found.batch), f"{said}, by the export {name}: {reason}")
    keep_result(here, found.batch, compared | _signed(here, person, digest, name) | {"was_settled": True})
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


def keep_export(here: Site, batch: str, export: int, result: dict[str, Any]) -> None:
    """Keep an export and what was found in it, sealed."""
    place = spool.export_place(batch)
    spool.place(here.home, place).mkdir(parents=True, exist_ok=True, mode=0o700)
    spool.keep(here.ledger(), here.home, place, "export", spool.blocks_of(export))
    keep_result(here, batch, result)


def keep_result(here: Site, batch: str, result: dict[str, Any]) -> None:
    """Keep what was found in an export, sealed."""
    spool.keep(here.ledger(), here.home, spool.export_place(batch), "compared", [json.dumps(result).encode()])


def _kept(here: Site, batch: str) -> bytes | None:
    blocks = spool.kept(here.ledger(), here.home, spool.export_place(batch), "compared")
    return None if blocks is None else b"".join(blocks)


def kept_result(here: Site, batch: str) -> dict[str, Any]:
    """Return what was found in the export that is kept; nothing without one."""
    return dict(json.loads(_kept(here, batch) or b"{}"))


@contextmanager
def kept_export(here: Site, batch: str) -> Iterator[tuple[int, str, str]]:
    """Yield the export that the page shows, its name and digest; of two that came at once neither may be kept whole."""
    blocks = spool.kept(here.ledger(), here.home, spool.export_place(batch), "export")
    kept = kept_result(here, batch)
    if blocks is None or "name" not in kept:
        abort(404)
    with spool.memory_file(blocks) as (export, digest):
        if kept["export"] != digest:
            abort(NOT_NOW)
        yield export, kept["name"], digest
