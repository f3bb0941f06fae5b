"""What people do with files, submissions and doubts. Each action takes three numbers and makes sense in any state."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tests.model import clock
from tests.model.business import Batch, Row
from tests.model.command import Call, run_here
from tests.model.files import number_of, read_table, write_file
from tests.model.world import Command, File, Violation, World

Action = Callable[[World, int, int, int], None]
Thing = TypeVar("Thing")

STALE_H = 7 * 24 + 12
"""How long a batch must be untouched to be certainly stale (policy.stale_days)."""
LOW_CENTS = 10_000
"""The limit of a payment, if one is set."""
WRONG_CASE = 5
"""The kind of invalid row that `--normalize` repairs without touching its amount: a release can send it."""
_ANSWERS = ("none", "garbage", "error", "both", "too many", "twice", "success", "repeated")
SHAPES = ("named", "plain", "invoice", "both", "recurring")


def make(world: World, a: int, b: int, c: int) -> None:
    """Write a payment file of two or three new payments; one of them may be invalid."""
    rows = []
    for place in range(2 + a % 2):
        world.numbers += 1
        number = world.numbers
        shape = SHAPES[b % len(SHAPES)]
        start = (clock.today() + datetime.timedelta(days=2)).strftime("%m/%d/%Y") if shape == "recurring" else ""
        rows.append(
            Row(
                number=number,
                account=f"77{number:06d}31",
                amount=f"{number}.25",
                invoice=f"INV-{number}" if shape in ("invoice", "both", "recurring") else "",
                payment_id=f"P-{number}" if shape in ("named", "both") else "",
                start=start,
            )
        )
        if place == 1:
            rows[-1] = _wrong(rows[-1], c)
    world.save(world.new_name("\x07.csv" if c % 4 == 0 else ".csv"), rows)


def _wrong(row: Row, c: int) -> Row:
    kinds = (
        row,
        row,
        replace(row, amount=f"{row.number}"),  # --normalize repairs it
        replace(row, amount=f"{row.number},25"),
        replace(row, amount=f"{LOW_CENTS // 100 + row.number}.00"),  # above the limit, if one is set
        replace(row, direction="debit"),
        replace(row, payment_id=f"P\u200b-{row.number}") if row.payment_id else row,
    )
    return kinds[c % len(kinds)]


def chosen(things: list[Thing], a: int) -> Thing | None:
    """Choose one of several, the latest most often."""
    return things[-1 - a % (2 * len(things) - 1) // 2] if things else None


def alter(world: World, a: int, b: int, c: int) -> None:
    """Make a new file from an old one, as people and programs do without meaning new payments."""
    file = chosen(world.files, a)
    if file is None:
        return
    kinds: tuple[Callable[[Row], Row], ...] = (
        lambda row: row,
        lambda row: replace(row, payment_id=f"N{c % 3}-{row.number}"),
        lambda row: replace(row, payment_id=""),
        lambda row: replace(row, payment_id=row.payment_id.lower(), invoice=row.invoice.lower()),
        lambda row: replace(row, invoice=_full_width(row.invoice), payment_id=_full_width(row.payment_id)),
        lambda row: replace(row, amount=f"0{row.amount}"),
        lambda row: replace(row, invoice=_with_invisible(row.invoice), payment_id=_with_invisible(row.payment_id)),
        corrected,
    )
    rows = [kinds[b % len(kinds)](row) for row in file.rows]
    if b % len(kinds) == 0:
        rows.reverse()
    world.save(world.new_name(".xlsx" if c % 4 == 0 else ".csv"), rows)


def save_as_workbook(world: World, a: int, b: int, c: int) -> None:
    """Save the same content as XLSX: the same batch."""
    if file := chosen(world.files, a):
        world.save(world.new_name(".xlsx"), file.rows)


def _full_width(text: str) -> str:
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text)


def _with_invisible(text: str) -> str:
    return text and f"{text[:1]}\u200b{text[1:]}"


def corrected(row: Row) -> Row:
    """Return the row as its author meant it."""
    amount = row.amount.replace(",", ".")
    if re.fullmatch("[0-9]+", amount):
        amount += ".00"
    return replace(
        row, amount=amount, direction=row.direction.upper(),
        payment_id=row.payment_id.replace("\u200b", ""), invoice=row.invoice.replace("\u200b", ""),
    )  # fmt: skip


def correct_in_place(world: World, a: int, b: int, c: int) -> None:
    """Correct a file under its own name."""
    if file := chosen(world.files, a):
        world.save(file.name, [corrected(row) for row in file.rows])


def correct_rejects(world: World, a: int, b: int, c: int) -> None:
    """Correct the rejects file of an earlier submission and keep it as a payment file."""
    file = chosen(world.files, a)
    if file is None:
        return
    rejects = world.home / f"{Path(file.name).stem}.rejects{Path(file.name).suffix}"
    if rejects.exists():
        numbers = {number_of(line) for line in read_table(rejects)}
        rows = [corrected(row) for row in file.rows if row.number in numbers]
        if rows:
            world.save(world.new_name(), rows)


def options_of(b: int, c: int) -> list[str]:
    """Return the options of a submission: usually none."""
    reason = ["--reason", f"reason {c % 2}"]
    kinds: tuple[list[str], ...] = (
        [], [], [], ["--normalize"], ["--allow-duplicates", *reason], ["--again", *reason], ["--limit", "1"],
        ["--release", *reason], ["--release", *reason, "--normalize"], ["--allow-duplicates", *reason, "--limit", "1"],
    )  # fmt: skip
    return kinds[b % len(kinds)]


def prepare(world: World, file: File, options: list[str], **known: Any) -> tuple[Call, Command]:
    """Put a submission together, with what the model knows of its content."""
    call = world.call("submit", file.name, *options, "--json")
    again = "--again" in options
    found = world.known_batch(file.rows, live=world.live)
    if again:
        reason = options[options.index("--reason") + 1]
        made = [one for one in world.batches.values() if one.rows == file.rows and one.again == reason and not one.lost]
        found = made[-1] if made else None
    return call, world.begin(call, rows=list(file.rows), known=found, **known)


def submit(world: World, a: int, b: int, c: int) -> None:
    """Submit a file."""
    if file := chosen(world.files, a):
        send(world, file, options_of(b, c))


def send(world: World, file: File, options: list[str]) -> None:
    """Submit a file with options, in this process."""
    call, command = prepare(world, file, options)
    world.end(command, run_here(call))


def look_and_submit(world: World, a: int, b: int, c: int) -> None:
    """Dry run, then submit with the same options: what was shown is what is sent."""
    file = chosen(world.files, a)
    if file is None:
        return
    options = [one for one in options_of(b, c) if one != "--limit" and one != "1"]
    look = world.ask("submit", file.name, *options, "--dry-run", "--json")
    world.story.append(
        f"[{world.hours:.0f} h] batchpay submit {file.name} {' '.join(options)} --dry-run -> {look.code}"
    )
    if world.gateway.of("look"):
        raise Violation("a dry run sent payments")
    began = len(world.gateway.arrivals)
    send(world, file, options)
    command = list(world.commands.values())[-1]
    arrived = sum(one.void != "not applied" for one in world.gateway.arrivals[began:])
    batch = command.batch
    if look.json.get("would_send") is not None and batch is not None and not command.forbidden:
        waiting = sum(state == "pending" for state in batch.states.values())
        if arrived > look.json["would_send"] or (arrived + waiting < look.json["would_send"]):
            raise Violation(f"the dry run says {look.json['would_send']} rows would be sent, {arrived} were")


def twice_in_file(world: World, a: int, b: int, c: int) -> None:
    """A file has a bill twice, once as only `--normalize` reads it; then its rejected rows are released."""
    if world.forbidden or world.window_open or world.approvals:
        return
    world.gateway.answers = []
    make(world, a, b, 0)
    first, *others = world.files.pop().rows
    odd = replace(first, direction=first.direction.lower())
    file = world.save(world.new_name(), [first, *others, odd])  # of a payment the model knows the first row
    if c % 2:
        write_file(world.home / file.name, [odd, *others, first])
    normalize = ["--normalize"]
    reads_it, limit = c // 2 % 2, ["--limit", "1"] if c // 4 % 2 else []
    send(world, file, [*(normalize if reads_it else []), *limit])
    send(world, file, [*([] if reads_it else normalize), "--release", "--reason", "right now"])
    send(world, file, normalize if a % 2 else [])
    world.files.remove(file)  # what else is submitted of it has two states for one payment
    (world.home / file.name).unlink()


def set_limit(world: World, a: int, b: int, c: int) -> None:
    """Set, raise or remove the limit of a payment."""
    world.max_cents = None if a % 2 else LOW_CENTS
    world.write_settings()
    world.story.append(f"limit {world.max_cents}")


def days_pass(world: World, a: int, b: int, c: int) -> None:
    """Let time pass: hours, days, weeks."""
    world.pass_hours((3, 27, 75, 200, 700)[a % 5])


def answers(world: World, a: int, b: int, c: int) -> None:
    """The gateway answers the next payments in some unusual way."""
    world.gateway.answers = [_ANSWERS[a % len(_ANSWERS)]]
    if world.gateway.answers == ["repeated"]:
        world.gateway.answers.append("repeated")
    if a % len(_ANSWERS) == _ANSWERS.index("twice"):
        world.gateway.answers.append("none")
    if b % 3 == 0:
        world.gateway.answers.insert(0, "success")
    world.story.append(f"the gateway will answer {world.gateway.answers}")


def other_gateway(world: World, a: int, b: int, c: int) -> None:
    """Switch to the sandbox, or back to the live gateway."""
    world.live = not world.live
    world.story.append("live" if world.live else "sandbox")


def kill(world: World, a: int, b: int, c: int) -> None:
    """Kill a submission when a payment has arrived, before it is answered."""
    file = chosen(world.files, a)
    if file is not None:
        call, command = prepare(world, file, [])
        world.run_killed(call, command, 1 + b % 3)


def resume(world: World, a: int, b: int, c: int) -> None:
    """Resume a batch without its file."""
    batch = chosen(here(world), a)
    if batch is not None:
        go_on(world, batch, stale=b % 3 == 0)


def go_on(world: World, batch: Batch, *, stale: bool) -> None:
    """Resume a batch; one that nobody touched for a week needs a person's decision."""
    options = ["--stale", "--reason", "still due"] if stale else []
    used = [one.at_h for one in world.commands.values() if batch in (one.batch, one.known)]
    untouched_h = world.hours - max(used, default=batch.registered_h)
    forbidden = ""
    if not stale and untouched_h > STALE_H and not any(map(batch.day_of, batch.states)):
        forbidden = "nobody touched the batch for more than a week"
    world.run("resume", batch.name, *options, "--json", rows=list(batch.rows), known=batch, forbidden=forbidden)


def rules_change(world: World, a: int, b: int, c: int) -> None:
    """A submission is cut short; before it resumes, a limit is set, a start date passes, or weeks do."""
    make(world, a, 4 if b % 2 else b, 4 if c % 2 else 0)
    file = world.files[-1]
    send(world, file, ["--limit", "1"])
    if c % 3:
        world.pass_hours((75, 200)[c % 3 - 1])
    else:
        set_limit(world, 0, 0, 0)
    batch = world.known_batch(file.rows, live=world.live)
    if b // 2 % 2 or batch is None:
        send(world, file, [])
    else:
        go_on(world, batch, stale=a % 4 == 0)


def here(world: World) -> list[Batch]:
    """Return the batches of the present ledger and gateway."""
    return [one for one in world.batches.values() if not one.lost and one.live == world.live]


def resolve(world: World, a: int, b: int, c: int) -> None:
    """A person settles the first row in doubt."""
    batch = chosen([one for one in here(world) if one.doubts] or here(world), a)
    if batch is None:
        return
    listed = world.run("resolve", batch.name, "--json").json.get("rows_in_doubt", [])
    if not listed:
        return
    row = listed[0]["row"]
    decision = ("accepted", "declined", "send again")[b % 3]
    done = world.run("resolve", batch.name, "--row", str(row), "--decision", decision, "--reason", "looked it up",
                     "--name", "Grace", "--yes", "--json")  # fmt: skip
    if done.code in (0, 7) and "settled" in done.json:
        settle(world, batch, batch.rows[row - 1].number, decision)


def settle(world: World, batch: Batch, number: int, decision: str) -> None:
    """Record what a person decided about a row in doubt."""
    batch.settled[number] = decision
    batch.states[number] = "pending" if decision == "send again" else decision
    if decision == "accepted":
        return
    for arrival in world.gateway.arrivals:
        command = world.commands[arrival.command]
        if arrival.payment == number and (command.batch or command.known) is batch:
            arrival.void = decision
