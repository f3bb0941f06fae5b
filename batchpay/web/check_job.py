"""Checking an uploaded file, in a child: the same functions as `batchpay submit --dry-run`, and nothing is sent.

What a new version of a file changed is found as well: counts and masked values, changed accounts first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from batchpay.errors import FileRefused, ForeignColumns, NotUsable, WaitingForPerson, WrongUse
from batchpay.intake.source import Source, open_source
from batchpay.intake.xlsx.archive import list_sheets, open_archive
from batchpay.ledger.columns import RELEASED_BY_NAME
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import batch_name
from batchpay.payment import State, Totals
from batchpay.schemas.columns import ACCOUNT, COLUMNS, PAYMENT_ID, ROUTING
from batchpay.text import place_of, totals_json
from batchpay.validation.rejects import Rejects, open_rejects
from batchpay.validation.verdict import FIRST_MAX
from batchpay.web import spool
from batchpay.web.grid import GridWriter, grid_path
from batchpay.web.payments_table import known_of, table_path, write_payments
from batchpay.web.spool import MARKED, Row
from batchpay.web.task import SealedFile, Task, mapping_for, options_of, reading_of, request_of
from batchpay.web.words import ASKS, as_sentence, rejects_name, without_options
from batchpay.workflows import check as workflow
from batchpay.workflows.check import Preview
from batchpay.workflows.map_file import FileToMap, propose_map
from batchpay.workflows.policy import policy_in_force
from batchpay.workflows.requests import Decisions, preflight_of

_CHANGED_SHOWN = 50
_KEY = "_key"
_NUMBERS = (ACCOUNT, ROUTING)
_KNOWN_BY = (PAYMENT_ID, "invoiceNumber")
_UNASKED = (
    "The gateway accounts could not be checked. If the gateway does not know one of them, a run sends nothing, since "
    "that is not what was approved: check the file again before anyone approves it."
)
_TOTALS = ("rows", "valid", "rejected", "amount", "debit", "credit", "currencies", "exit_code", "would_send")
_GONE = (State.ACCEPTED, State.DECLINED, State.IN_DOUBT, State.SENDING)
"""States of rows whose request left this machine, or was about to."""


def check(task: Task) -> int:
    """Check a file: problems go into a grid and a sealed file, what would be sent into the file's row."""
    name, kept = task.file["name"], dict[str, str | bytes | None](sheets=None, proposal=None)
    try:
        with task.upload() as path, closing(open_ledger(task.settings.ledger, read_only=True)) as ledger:
            kept["sheets"] = json.dumps(_sheets(path))
            preview = _mapped(task, path, ledger, kept)
            kept |= _to_keep(task, path, ledger, preview)
    except (FileRefused, WrongUse) as error:
        return _end(task, "refused", error.exit_code, told=_plainly(str(error), name), **kept)
    except (NotUsable, WaitingForPerson) as error:
        return _end(task, "refused", error.exit_code, told=str(error), **kept)
    return _end(task, "checked", preview.summary.exit_code, told=None, **kept)


def _mapped(task: Task, path: str, ledger: Ledger, kept: dict[str, str | bytes | None]) -> Preview:
    """Check the file, through a map if its columns are not ours; raises FileRefused while the map is open."""
    try:
        return _dry_run(task, path, ledger)
    except ForeignColumns:
        found, is_ready = _find_map(task, path)
        if is_ready:
            return _dry_run(task.with_map(found), path, ledger)
        kept["proposal"] = spool.seal_json(ledger, task.file["id"], "proposal", found)
        open_needed = (one for one in found["questions"] if one["needed"] and not one["typed"])
        lacking = [one["question"] for one in open_needed if not one["choices"]]
        raise FileRefused(as_sentence("; ".join(lacking)) if lacking else ASKS) from None


def _to_keep(task: Task, path: str, ledger: Ledger, preview: Preview) -> dict[str, str | bytes | None]:
    """Return what the file's row keeps of a check: the parts that name payees are sealed."""
    file_id, facts, changed = task.file["id"], facts_of(preview), _difference(task, path)
    facts["waits_for"] = facts["waits_for"] or _lost(task, ledger, preview)
    by_name = RELEASED_BY_NAME | policy_in_force(ledger, task.settings).hold
    facts["only_held"] = facts["batch"] is None and not facts["would_send"] and not by_name.isdisjoint(facts["counts"])
    return {
        "facts": spool.seal_json(ledger, file_id, "facts", facts),
        "difference": None if changed is None else spool.seal_json(ledger, file_id, "difference", changed),
        "totals": json.dumps({name: facts[name] for name in _TOTALS}),
        "plan": preview.plan.text() if preview.plan else None,
        "seal": preview.summary.seal,
        "batch": preview.known.batch if preview.known else None,
    }


def _lost(task: Task, ledger: Ledger, preview: Preview) -> str | None:
    """Report that the page knows this content as a batch that a restored ledger lost: it may have been paid."""
    batch = batch_name(preview.proposal.digest)
    if preview.known is not None or task.store.one("SELECT 1 FROM file WHERE batch = ?", batch) is None:
        return None
    try:
        ledger.find(batch)  # it may be of the other environment
    except WrongUse:
        return (
            f"this file was sent as batch {batch}, which the ledger no longer knows: it was restored. Compare the "
            "bank's export with this file; if no row of it was paid: batchpay submit --paid-elsewhere-checked"
        )
    return None


def _dry_run(task: Task, path: str, ledger: Ledger) -> Preview:
    """Check the file as the command line would, sealing its rejected rows.

    The gateway is asked about the accounts, so that a run finds what the check found; not without its key.
    """
    file, writer, preflight = task.file, task.progress_writer(), None
    writer.write(now=True, step="reading")
    with suppress(NotUsable):
        preflight = preflight_of(task.settings)
    task.folder.joinpath(f"{MARKED}.0").unlink(missing_ok=True)

    def marked(source: Source) -> Rejects:
        return open_rejects(
            task.folder / f"{MARKED}{Path(rejects_name(file['name'])).suffix}",
            source,
            partial(SealedFile, task, ledger),
        )

    request = replace(
        request_of(file, path, task.settings),
        sinks=(marked, partial(GridWriter, task.folder, file["id"], ledger)),
        watch=lambda rows: writer.write(step="reading", rows=rows),
    )
    preview = workflow.dry_run(
        request,
        task.settings,
        task.actor(file["uploaded_by"]),
        Decisions(),
        requests_max=0,
        results=None,
        with_plan=True,
        take_rows=partial(_keep_payments, task, ledger),
        preflight=preflight,
    )
    if preview.accounts_unasked:
        preview.summary.notes.append(_UNASKED)
    return preview


def _keep_payments(task: Task, ledger: Ledger, frames: Iterator[pl.DataFrame], seal: str) -> None:
    """Keep every payment that would be sent, masked and sealed, for whoever decides."""
    path, facts = table_path(task.store.home, task.file["id"]), {"at": task.store.clock(), **known_of(ledger)}
    write_payments(path, task.file["id"], ledger, seal, frames, **facts)


def _sheets(path: str) -> list[str]:
    """Return the sheets of a workbook that a person may choose from; none where there is no choice."""
    try:
        with open(path, "rb") as file, open_archive(file) as archive:  # noqa: PTH123 - a descriptor's path
            names = [sheet.name for sheet in list_sheets(archive) if sheet.path and sheet.state == "visible"]
    except FileRefused:
        return []
    return names if len(names) > 1 else []


def _difference(task: Task, path: str) -> dict[str, Any] | None:
    """Compare a new version with the one that it replaces; None if there is none, or it is no longer kept."""
    before = task.store.file(task.file["before"]) if task.file["before"] else None
    if before is None or not before["totals"]:
        return None
    try:
        with replace(task, file=before).upload() as path_before:
            found = difference((before, path_before), (task.file, path))
    except (NotUsable, FileRefused):
        return None
    totals = json.loads(before["totals"])
    found["is_other"] = (
        not found["same"] and before["name"] != task.file["name"] and not options_of(task.file).get("is_version")
    )
    if found["is_other"]:  # a payroll dropped on another one's page: it would vanish, and be paid by nobody
        with task.store.write() as db:
            if task.store.move(db, before["id"], "replaced", "checked"):
                what = f"restored it: {task.file['name']} has none of its payments"
                task.store.note(db, "batchpay", before["id"], what)
    return {**found, "before": {"file": before["name"], "rows": totals["rows"], "amount": totals["amount"]["total"]}}


def facts_of(preview: Preview) -> dict[str, Any]:
    """Return what a page shows of a check: the command line's own JSON, and what it prints as well."""
    found = preview.as_the_ledger_has_it().as_json()
    del found["errors"]  # the grid has them all
    told, places = dict[str, str](), dict[str, list[str]]()
    for one in preview.verdict.warning_failures:
        told.setdefault(one.name, one.message)
        places.setdefault(one.name, []).append(place_of(preview.line_word, one.row, one.line))
    del found["warning_list"]
    apart = tuple(filter(None, (*found["over_limits"], preview.not_used)))  # shown above all other notes
    return {
        **found,
        "told": told,
        "places": {name: ", ".join(some[:FIRST_MAX]) for name, some in places.items()},
        "notes": [note for note in found["notes"] if not note.endswith(apart)],
        "not_used": preview.not_used,
        "not_checked": preview.proposal.not_checked,
        "would_send": preview.proposal.to_send.total.rows,
        "known": _known(preview),
        "waits_for": preview.waits_for,
        "is_refused": preview.is_refused,
        "line_word": preview.line_word,
    }


def _known(preview: Preview) -> dict[str, Any] | None:
    """Return how much of a registered content was sent earlier, and what a run would leave out; None for a new one."""
    if preview.known is None:
        return None
    summary = preview.as_the_ledger_has_it().summary
    gone = sum((summary.of(state) for state in _GONE), Totals())
    left = summary.total - preview.proposal.to_send.total - gone
    return {"gone": totals_json(gone), "left": totals_json(left)}


def _plainly(sentence: str, name: str) -> str:
    """Reword a sentence: a page names the file above it, and has a choice where the command line has an option."""
    sentence = re.sub("^/proc/self/fd/[0-9]+:? ", "", sentence)
    sentence = sentence.removeprefix(f"{name}: ").removeprefix(f"{name} ")
    sentence = re.sub("^(is|has|can't|changed|contains|must|states) ", r"it \1 ", sentence)
    sentence = sentence.removesuffix("; name one with --sheet")
    sentence = sentence.removesuffix(". If these are due as well: --again --reason TEXT")
    sentence = re.sub(r" \(use --encoding.*\)", ": choose below what it is", without_options(sentence))
    return re.sub(r"state --expect-rows (\S+) --expect-total (\S+)", r"say below that you expect \1 and \2", sentence)


def _end(task: Task, state: str, code: int, **values: Any) -> int:
    """Move the file to its next state; if it was moved meanwhile, what was found is discarded."""
    if state == "refused":
        grid_path(task.folder).unlink(missing_ok=True)
        values |= {"facts": None, "totals": None, "plan": None, "seal": None}
    with task.store.write() as db:
        if task.store.move(db, task.file["id"], "checking", state, **values):
            refused = "asked which column is which" if values["told"] == ASKS else f"refused it: {values['told']}"
            said = "checked it" if state == "checked" else refused
            task.store.note(db, "batchpay", task.file["id"], said)
    return code


def _find_map(task: Task, path: str) -> tuple[dict[str, Any], bool]:
    """Find or propose a map; return what the file's row keeps of it, and whether the file can be read by it now.

    A map is used once its person has confirmed it, for this file or for an earlier one with the same header.
    """
    options = options_of(task.file)
    proposed = propose_map(FileToMap(path, **reading_of(task.file)), None, None, options.get("answers"))
    header = json.dumps([column.name for column in proposed.columns], ensure_ascii=False)
    if options.get("map_agreed") and not proposed.draft.needed:
        with task.store.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO map (header, tables, made_by, made_at) VALUES (?, ?, ?, ?)",
                (header, json.dumps(proposed.draft.tables), task.job["made_by"], task.store.clock()),
            )
        return {"tables": proposed.draft.tables, "made_by": task.job["made_by"]}, True
    known = task.store.one("SELECT * FROM map WHERE header = ?", header)
    if known is not None and not options.get("answers") and not options.get("map_anew"):
        return {"tables": json.loads(known["tables"]), "made_by": known["made_by"], "remembered": True}, True
    return proposed.as_json(), False


def difference(before: tuple[Row, str], after: tuple[Row, str]) -> dict[str, Any]:
    """Compare two versions, each with the path of its content.

    Rows are the same payment if they share a paymentId that no other row has, else such an invoiceNumber, else all
    their cells. If no row has either and both versions have as many rows, rows are matched by position.
    """
    old, new = _read(*before), _read(*after)
    columns = [name for name in COLUMNS if name in old.columns or name in new.columns]
    blank = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    old, new = (pl.concat([blank, one], how="diagonal") for one in (old, new))
    old, new = _keyed(old, new, columns)
    both = old.join(new, on=_KEY, how="inner", suffix="_new")
    changed = {
        name: count
        for name in columns
        if (count := int(both.select(pl.col(name).ne_missing(pl.col(f"{name}_new")).sum()).item()))
    }
    any_changed = pl.any_horizontal(
        pl.lit(value=False), *(pl.col(name).ne_missing(pl.col(f"{name}_new")) for name in changed)
    )
    return {
        "same": both.height,
        "added": new.join(old, on=_KEY, how="anti").height,
        "gone": old.join(new, on=_KEY, how="anti").height,
        "changed": int(both.select(any_changed.sum()).item()),
        "columns": dict(sorted(changed.items(), key=lambda one: (one[0] not in _NUMBERS, -one[1]))),
        "accounts": _accounts(both) if ACCOUNT in changed else [],
    }


def _keyed(old: pl.DataFrame, new: pl.DataFrame, columns: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give each row the key that identifies it in both versions."""
    names = [name for name in _KNOWN_BY if name in columns]
    if old.height == new.height and all(frame[name].is_null().all() for frame in (old, new) for name in names):
        key = pl.format("row {}", pl.int_range(pl.len()) + 1)
    else:
        content = pl.concat_str([pl.col(name).fill_null("\x00") for name in columns], separator="\x1f")
        nth = pl.int_range(pl.len()).over(content)
        key = pl.concat_str(content, nth.cast(pl.String), separator="\x1f")
        for name in reversed(names):
            twice = [frame[name].drop_nulls().filter(frame[name].drop_nulls().is_duplicated()) for frame in (old, new)]
            has_own = pl.col(name).is_not_null() & ~pl.col(name).is_in(pl.concat(twice).unique().implode())
            key = pl.when(has_own).then(pl.col(name)).otherwise(key)
    return old.with_columns(key.alias(_KEY)), new.with_columns(key.alias(_KEY))


def _read(file: Row, path: str) -> pl.DataFrame:
    with open_source(path, mapping=mapping_for(file), required=(), **reading_of(file)) as source:
        frames = [chunk.select(name for name in source.columns if name in chunk.columns) for chunk in source.chunks()]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _accounts(both: pl.DataFrame) -> list[dict[str, str]]:
    """Return the payments whose account changed, with the last four characters."""
    changed = both.filter(pl.col(ACCOUNT).ne_missing(pl.col(f"{ACCOUNT}_new"))).head(_CHANGED_SHOWN)
    name = "achNameOnCheck" if "achNameOnCheck" in both.columns else _KEY

    def masked(number: str | None) -> str:
        return "none" if number is None else f"****{number[-4:]}" if len(number) > 4 else "****"

    return [
        {"payment": key, "name": payee or "", "before": masked(before), "after": masked(after)}
        for key, payee, before, after in changed.select(_KEY, f"{name}_new", ACCOUNT, f"{ACCOUNT}_new").iter_rows()
    ]
