"""What came back in a walk: files of returns, taken in by a person or a night, withdrawn, and paid again.

A return sends nothing and moves no row. What the model knows of it stands with its batch: whether a person has seen it.
"""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

from tests.model import clock
from tests.model.actions import chosen, here
from tests.model.business import Batch, Row, same
from tests.model.world import Violation, World

CODES = ("R02", "R01", "R10", "C01")
_HEADER = (
    "Return Date", "Return Code", "Individual ID", "Routing Number", "Account Number", "Amount", "Corrected Data",
)  # fmt: skip
_REFUSED = (4, 5, 9)
"""Exit codes of a command that recorded nothing: a ledger that was brought back, for example."""
_COUNTED = ("accepted", "in_doubt", "sending", "pending")


def come_back(world: World, a: int, b: int, c: int) -> None:
    """The bank says what came back of a batch, or what of an account is to be corrected; its file comes twice."""
    batch = chosen([one for one in here(world) if _rows_sent(one)], a)
    if batch is None or len({row.number for row in batch.rows}) != len(batch.rows):
        return
    sent, code = _rows_sent(batch), CODES[b % len(CODES)]
    _take_in(world, sent[c % len(sent)], code, clock.today(), unattended=a % 3 == 0)


def undo(world: World, a: int, b: int, c: int) -> None:
    """A person says of a return that it is right, or that it was wrong: then no later file brings it back."""
    found = [(one, number) for one in here(world) for number, what in one.returned.items() if what != "withdrawn"]
    if not found or world.forbidden:
        return
    batch, number = found[a % len(found)]
    row = next(place for place, one in enumerate(batch.rows, 1) if one.number == number)
    deed = "confirmed" if b % 3 == 0 else "withdrawn"
    option = "--confirm" if deed == "confirmed" else "--withdraw"
    done = world.run("returns", option, batch.name, "--row", str(row), "--reason", "asked the bank", "--json")
    if done.code in _REFUSED:
        return
    if deed == "withdrawn" and done.code:
        raise Violation(f"a return was to be withdrawn, and it ended with {done.code}: {done.err.strip()[:200]}")
    if done.code == 0:
        batch.returned[number] = "withdrawn" if deed == "withdrawn" else "seen"
    _is_told(world)
    if deed == "withdrawn":
        _take_in(world, batch.rows[row - 1], *batch.return_codes[number], unattended=False)


def _rows_sent(batch: Batch) -> list[Row]:
    return [row for row in batch.rows if batch.states.get(row.number) in ("accepted", "in_doubt")]


def _take_in(world: World, row: Row, code: str, day: datetime.date, *, unattended: bool) -> None:
    """Take in a file of the bank's, and once more under another name."""
    folder = world.home / "bank"
    (folder / "inbox").mkdir(parents=True, exist_ok=True)
    for again in (False, True):
        world.names += 1
        path = folder / f"returns{world.names}.csv"
        _write(path, row, code, day)
        world.accounts_told.add(row.account)
        before = _listed(world)
        if unattended:
            done = world.run("submit", "--inbox", str(folder / "inbox"), "--returns", str(folder), "--json")
        else:
            done = world.run("returns", str(path), "--json")
        if _changed_account(row) in done.out + done.err:
            raise Violation(f"the corrected account of E{row.number} was printed")
        path.unlink(missing_ok=True)
        _took_in(world, row, (code, day), before, unattended=unattended, again=again)
        if code.startswith("R") and not again and not world.forbidden and done.code not in _REFUSED:
            _must_be_known(world, row)
        _is_told(world)


def _write(path: Path, row: Row, code: str, day: datetime.date) -> None:
    corrected, amount = (_changed_account(row), "0.00") if code == "C01" else ("", row.repaired.amount)
    key = row.payment_id or row.invoice
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        writer.writerow((day.isoformat(), code, key, "021000021", row.account, amount, corrected))
    path.with_name(f"{path.name}.control.toml").touch()  # it is written: a night need not wait


def _changed_account(row: Row) -> str:
    return f"88{row.number:06d}47"


def _listed(world: World) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what came back of live batches, by batch and row."""
    done = world.ask("returns", "--list", "--json")
    return {(one["batch"], one["row"]): one for one in done.json.get("returns", []) if one["kind"] == "returned"}


def _took_in(
    world: World,
    meant: Row,
    said: tuple[str, datetime.date],
    before: dict[tuple[str, int], Any],
    *,
    unattended: bool,
    again: bool,
) -> None:
    """Compare what is recorded now with what was in the file, and learn of it."""
    after = _listed(world)
    if lost := before.keys() - after.keys():
        raise Violation(f"what came back of {min(lost)} is no longer known")
    for batch_name, number in after.keys() - before.keys():
        batch, fact = world.batches[batch_name], after[batch_name, number]
        row = batch.rows[number - 1]
        if again:
            raise Violation(f"the return of E{row.number} was recorded twice")
        if row.number != meant.number or batch.states.get(row.number) != "accepted":
            raise Violation(f"a return of E{row.number}, which is {batch.states.get(row.number)}, was recorded")
        if batch.returned.get(row.number) == "withdrawn" and batch.return_codes[row.number] == said:
            raise Violation(f"a person had withdrawn the return of E{row.number}, and it was recorded again")
        if fact["seen"] is unattended:
            raise Violation(f"the return of E{row.number} counts as {'' if fact['seen'] else 'not '}seen by a person")
        batch.returned[row.number] = "unseen" if unattended else "seen"
        batch.return_codes[row.number] = said


def _must_be_known(world: World, row: Row) -> None:
    """Require that a return was recorded which only one payment can be meant by."""
    if not row.payment_id or row.start:
        return
    there = [
        (batch, one)
        for batch in here(world)
        for one in batch.rows
        if same(one.payment_id) == same(row.payment_id) and batch.states.get(one.number) in _COUNTED
    ]
    if len(there) == 1 and there[0][0].states[row.number] == "accepted":
        (batch, _) = there[0]
        if row.number not in batch.returned and not batch.unheard:
            raise Violation(f"E{row.number} came back, and nothing knows of it")


def _is_told(world: World) -> None:
    """What was accepted came back or stands, by the model's knowledge; nothing else is counted differently."""
    for said in world.ask("status", "--json").json.get("batches", []):
        batch = world.batches.get(said["batch"])
        if batch is None or batch.lost:
            continue
        recurring = {row.number for row in batch.rows if row.start}
        known = sum(what != "withdrawn" and number not in recurring for number, what in batch.returned.items())
        if said["accepted"] != said["returned"] + said["standing"] or (
            said["returned"] != known and not world.forbidden
        ):
            raise Violation(f"{known} rows of {batch.name} came back, and its status says {said['returned']}")
