"""Several things at the same time: another command, or another file, at a chosen point of a submission under way."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from tests.model import clock
from tests.model.actions import SHAPES, WRONG_CASE, chosen, corrected, go_on, make, options_of, prepare, send, settle
from tests.model.business import Batch, Row
from tests.model.command import Done, run_here
from tests.model.files import read_table, write_file
from tests.model.world import Command, File, Violation, World

_MOMENTS = ("account", "lock", "connection", "payment")
_KINDS = (
    "true", "last month's", "returned", "pending", "another row's", "an earlier attempt's", "one payment's",
    "the other direction's",
)  # fmt: skip
"""Lines of an export."""
_RECURRING = SHAPES.index("recurring")


def replace_file(world: World, a: int, b: int, c: int) -> None:
    """Put a new file of the same name in place while the old one is being read, registered or paid."""
    file = chosen(world.files, a)
    if file is None or world.forbidden:
        return
    make(world, a, b, c)
    new = world.files.pop()
    (world.home / new.name).unlink()
    rows, path = [*file.rows[:1], *new.rows], world.home / file.name
    options = options_of(b // 4, c)
    archive = ["--archive", str(world.home / "archive")] if c % 2 else []
    call, command = prepare(world, file, [*options, *archive])
    moment = _MOMENTS[b % len(_MOMENTS)]
    world.story.append(f"  at its {moment}, {file.name} is replaced by another file")

    def act() -> list[tuple[Command, Done]]:
        new_path = path if a % 2 == 0 else path.with_name(f"new-{path.name}")  # overwritten, or replaced
        write_file(new_path, rows)
        new_path.replace(path)
        replaced.append(True)
        return []

    replaced: list[bool] = []
    world.run_with_hook(call, command, act, moment)
    if replaced:
        if not path.exists():
            raise Violation("a file was archived that nobody read")
        world.files = [one for one in world.files if one is not file]
        world.files.append(File(file.name, rows))
    else:
        _archived(world, file, path)


def _archived(world: World, file: File, path: Path) -> None:
    if not path.exists():
        world.files = [one for one in world.files if one is not file]


def at_once(world: World, a: int, b: int, c: int) -> None:
    """Run another submission, of the same file or of another, at some point of one that is under way."""
    file = chosen(world.files, a)
    other = chosen(world.files, b // 4)
    if file is None or other is None or world.forbidden:
        return
    moment = _MOMENTS[b % len(_MOMENTS)]
    call, command = prepare(world, file, options_of(c, a))

    def act() -> list[tuple[Command, Done]]:
        inner_call, inner = prepare(world, other, options_of(a, b))
        inner.disturbed = True
        return [(inner, world.forks.run(inner_call))]

    world.run_with_hook(call, command, act, moment)


def release_race(world: World, a: int, b: int, c: int) -> None:
    """Release rejected rows while a colleague submits the corrected rejects: one of the two pays."""
    if world.forbidden or world.window_open or world.approvals:
        return
    make(world, a, b, WRONG_CASE)
    file = world.files[-1]
    send(world, file, [])
    numbers = _rejected(world, file)
    rows = [corrected(row) for row in file.rows if row.number in numbers]
    if not rows:
        return
    other = world.save(world.new_name(), rows)
    call, command = prepare(world, file, ["--release", "--normalize", "--reason", "right now"])

    def act() -> list[tuple[Command, Done]]:
        inner_call, inner = prepare(world, other, [])
        inner.disturbed = True
        return [(inner, world.forks.run(inner_call))]

    if a % 3:
        world.run_with_hook(call, command, act, "lock")
    else:
        first_call, first = prepare(world, other, [])
        world.end(first, run_here(first_call))
        world.pass_hours((1, 300)[b % 2])
        world.end(command, run_here(call))


def midnight(world: World, a: int, b: int, c: int) -> None:
    """Let the day end while a file is checked, registered or paid: what was to start that day must not leave after."""
    if world.forbidden:
        return
    make(world, a, _RECURRING, 0)
    first, *others = world.files.pop().rows
    today = clock.today().strftime("%m/%d/%Y")
    file = world.save(world.new_name(), [replace(first, start=""), *(replace(row, start=today) for row in others)])
    call, command = prepare(world, file, [])

    def act() -> list[tuple[Command, Done]]:
        now = clock.now(datetime.UTC).astimezone()
        ends = datetime.datetime.combine(now.date() + datetime.timedelta(days=1), datetime.time()).astimezone()
        world.pass_hours((ends - now).total_seconds() / 3600 + 0.1)
        return []

    moment = _MOMENTS[b % len(_MOMENTS)]
    world.run_with_hook(call, command, act, moment)
    if c % 2:
        send(world, file, [])


def _rejected(world: World, file: File) -> set[int]:
    batch = world.known_batch(file.rows, live=world.live)
    return {number for number, state in batch.states.items() if state == "rejected"} if batch else set()


def archive(world: World, a: int, b: int, c: int) -> None:
    """Submit with an archive: a file moves there once all that is left of it is scheduled."""
    file = chosen(world.files, a)
    if file is None:
        return
    folder = world.home / "archive"
    call, command = prepare(world, file, ["--archive", str(folder)])
    done = world.end(command, run_here(call))
    path = world.home / file.name
    if path.exists():
        return
    world.files = [one for one in world.files if one is not file]
    scheduled = done.json.get("scheduled", {"rows": 0})["rows"]  # rows for a later day don't keep a file in the inbox
    waiting = done.json.get("pending", 0) + done.json.get("sending", 0) - scheduled
    if waiting:
        raise Violation(f"{file.name} was archived with {waiting} rows that wait")
    if not list(folder.glob(f"{Path(file.name).stem}*")):
        raise Violation(f"{file.name} is neither where it was nor in the archive")


def reconcile(world: World, a: int, b: int, c: int) -> None:
    """Settle by an export: a true one, of another month, of returned payments, of others, of the other direction.

    The lines of earlier attempts are refusals of rows that a person had sent again since, those with one reference a
    refusal that is listed several times.
    """
    doubtful = [one for one in world.batches.values() if one.doubts and not one.lost and one.live == world.live]
    if world.forbidden or world.window_open or world.approvals:
        return
    if not doubtful:
        make(world, a, b // 5, 0)
        world.gateway.answers = ["success", "none", "none"]
        send(world, world.files[-1], [])
        found = world.known_batch(world.files[-1].rows, live=world.live)
        doubtful = [found] if found is not None and found.doubts else []
    batch = chosen(doubtful, a)
    if batch is None:
        return
    kind = _KINDS[b % len(_KINDS)]
    if kind == "an earlier attempt's":
        _send_again(world, batch)
    arrived = {one.payment: one for one in world.gateway.arrivals if not one.void and one.live == batch.live}
    answered = [one for one in world.gateway.arrivals if one.answer == "success" and one.live == batch.live]
    accepted = {
        number
        for one in world.batches.values()
        for number, state in one.states.items()
        if state == "accepted" and not one.lost and number not in one.settled
    } - {number for number, state in batch.states.items() if state == "in_doubt"}
    # The program knows the references that it was given: none whose answer was lost, or that a restore removed.
    known = [one.reference for one in answered if one.payment in accepted]
    other = known[0] if known else "S0"
    if other == "S0" and kind == "another row's":
        return
    lines = []
    for row in batch.rows:
        one = arrived.get(row.number)
        if one is not None and batch.states.get(row.number) == "in_doubt":
            lines.append(export_line(row, str(one.invoice), kind, other))
    if kind == "one payment's" and len(lines) < 2:
        return
    settled = settle_by_export(world, batch, kind, lines)
    table = {line["row"]: line for line in read_table(_results_of(world, batch.name))}
    if kind != "true" and any(table[str(number)]["state"] == "accepted" for number in settled):
        raise Violation(f"rows {settled} of batch {batch.name} are accepted by {kind} lines")
    if kind in ("an earlier attempt's", "one payment's") and settled:
        raise Violation(f"rows {settled} of batch {batch.name} are settled by {kind} lines")
    for number in settled:
        settle(world, batch, batch.rows[number - 1].number, table[str(number)]["state"])


def settle_by_export(world: World, batch: Batch, kind: str, lines: list[str]) -> list[int]:
    """Settle a batch by an export with these lines; return the rows that it settles."""
    text = "\n".join(["Transaction ID,Invoice,Amount,Date,Account,Status,Type", *lines])
    (world.home / "export.csv").write_text(f"{text}\n", "utf-8")
    world.story.append(f"export.csv holds {kind} lines: {lines}")
    done = world.run("reconcile", batch.name, "--against", "export.csv", "--settle", "--reason", "export", "--name",
                     "Grace", "--yes", "--json")  # fmt: skip
    return list(done.json.get("reconciliation", {}).get("settled", []))


def _send_again(world: World, batch: Batch) -> None:
    """A person has every row in doubt sent again; the first of them is not answered this time either."""
    for place, row in enumerate(batch.rows, start=1):
        if batch.states.get(row.number) == "in_doubt":
            done = world.run("resolve", batch.name, "--row", str(place), "--decision", "send again", "--reason",
                             "refused", "--name", "Grace", "--yes", "--json")  # fmt: skip
            if done.code in (0, 7) and "settled" in done.json:
                settle(world, batch, row.number, "send again")
    world.gateway.answers = ["none"]
    go_on(world, batch, stale=True)


def _results_of(world: World, name: str) -> Path:
    path = world.home / f"after-{name}.results.csv"  # results of one batch never replace those of another
    world.ask("results", name, "--results", str(path))
    return path


def export_line(row: Row, invoice: str, kind: str, other: str = "") -> str:
    """Write a line of a kind about a row; `other` is the reference of another one."""
    day = clock.now(datetime.UTC).date() - datetime.timedelta(days=30 if kind == "last month's" else 0)
    refused = dict.fromkeys(("an earlier attempt's", "one payment's"), "Declined")
    status = {"returned": "Returned", "pending": "Pending", **refused}.get(kind, "Settled")
    cents = row.repaired.cents or 0
    amount = f"{cents // 100}.{cents % 100:02d}"
    reference = {"another row's": other, "one payment's": "ONE"}.get(kind, f"S{row.number}")
    direction = row.direction.upper()
    if kind == "the other direction's":
        direction = "CREDIT" if direction == "DEBIT" else "DEBIT"
    return f"{reference},{invoice},{amount},{day.isoformat()},x{row.account[-4:]},{status},{direction}"
