"""What is approved, row by row: the same masked table for whoever prepares, approves or looks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Blueprint, abort, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.text import guarded
from batchpay.web.checked import BLOCKS_A_PAGE, page_context
from batchpay.web.files import facts_of, file_or_404
from batchpay.web.grid import BLOCK
from batchpay.web.payments_table import ALL, Payment, Payments, known_of, table_path
from batchpay.web.sign_in import current_person
from batchpay.web.site import Site, download, site
from batchpay.web.spool import Row
from batchpay.writing.table import csv_lines

blueprint = Blueprint("payments", __name__)

_LOUDEST = ("changed_account", "first_payment", "unusual_amount", "new_payee", "returned", "released")


@blueprint.get("/files/<file_id>/payments")
def page(file_id: str) -> ResponseReturnValue:
    """Show every payment of a checked file that would be sent."""
    file = file_or_404(file_id)
    table = table_of(file)
    if table is None:
        return redirect(url_for("files.file", file_id=file_id))
    return render_template("payments.html", **page_context(file, facts_of(file)), table=table)


@blueprint.get("/files/<file_id>/payments/rows")
def rows(file_id: str) -> ResponseReturnValue:
    """Return a hundred of them."""
    with _payments(file_or_404(file_id)) as payments:
        if payments is None:
            abort(404)
        flag, order = request.args.get("flag", ALL), request.args.get("sort", "")
        return render_template("_payment_rows.html", rows=payments.block(flag, order, request.args.get("from", 0, int)))


@blueprint.get("/files/<file_id>/payments.csv")
def table_csv(file_id: str) -> ResponseReturnValue:
    """Download all of them, masked."""
    here, person, file = site(), current_person(), file_or_404(file_id)
    with _payments(file) as payments:
        if payments is None:
            abort(404)
        here.note(person, file_id, "downloaded the masked payments")
        descriptor = os.memfd_create("payments", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(descriptor), "wb") as into:
            into.write(csv_lines([Payment._fields]).encode())
            for at in range(-(-payments.totals.get(ALL, 0) // BLOCK)):
                some = [(*one[:-2], " ".join(one.flags), one.warnings) for one in payments.block(ALL, "", at)]
                texts = [[guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in some]
                into.write(csv_lines(texts).encode())
    return download(descriptor, f"{file['name'].rpartition('.')[0] or file['name']}.payments.csv")


def table_of(file: Row) -> dict[str, Any] | None:
    """Return the part of a file's table that a page shows, as its address asks; None if nothing is kept."""
    with _payments(file) as payments:
        if payments is None or not payments.totals:
            return None
        flag, order = request.args.get("flag", ALL), request.args.get("sort", "")
        sought, part = request.args.get("find", "").strip(), max(0, request.args.get("part", 1, int) - 1)
        flag, order = flag if flag in payments.totals else ALL, order if order in payments.orders else ""
        count, begin = payments.totals[flag], part * BLOCKS_A_PAGE
        ends = min(begin + BLOCKS_A_PAGE, -(-count // BLOCK))
        found = payments.search(sought) if sought else None
        flags = [one for one in payments.totals if one]
        return {
            "flag": flag,
            "order": order,
            "orders": payments.orders,
            "totals": payments.totals,
            "flags": sorted(flags, key=lambda one: _LOUDEST.index(one) if one in _LOUDEST else len(_LOUDEST)),
            "find": sought,
            "part": part,
            "parts": -(-count // (BLOCK * BLOCKS_A_PAGE)),
            "count": count if found is None else len(found),
            "starts": range(begin, ends) if found is None else [0],
            "first": payments.block(flag, order, begin) if found is None else found,
            "as_of": payments.facts["at"],
            "changed": _changed_since(site(), payments.facts),
            "block": BLOCK,
        }


def _changed_since(here: Site, facts: dict[str, Any]) -> list[str]:
    """Name what the ledger has learned since a check: its flags tell of what was known then."""
    ledger, told = here.ledger(), []
    if (more := ledger.registration_count() - facts["registrations"]) > 0:
        told.append(f"{more} {'file was' if more == 1 else 'files were'} registered or released, or returns withdrawn")
    if known_of(ledger)["returned"] != facts["returned"]:
        told.append("payments came back")
    return told


@contextmanager
def _payments(file: Row) -> Iterator[Payments | None]:
    """Open a file's table; None if it has none that is whole, or one of an earlier check."""
    here = site()
    try:
        found = Payments(table_path(here.home, file["id"]), file["id"], here.ledger())
    except sqlite3.DatabaseError:
        yield None
        return
    try:
        yield found if file["seal"] and found.facts["seal"] == file["seal"] else None
    finally:
        found.close()
