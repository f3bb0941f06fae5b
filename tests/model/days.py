"""Days and limits: pay dates over a fortnight, a machine that is off, what is cancelled, and what a day may be sent."""

from __future__ import annotations

import datetime
from dataclasses import replace

from tests.model import clock
from tests.model.actions import chosen, here, make, send, submit
from tests.model.business import Batch, written
from tests.model.world import Violation, World

_AHEAD = (None, 0, 1, 4, 13)
"""Days from today to a row's payOn; None leaves it blank."""


def schedule(world: World, a: int, b: int, c: int) -> None:
    """Write a payment file whose rows have pay dates over a fortnight."""
    make(world, a, b % 4, c)
    file = world.files.pop()
    days = [_AHEAD[(b + place * (1 + c % 3)) % len(_AHEAD)] for place in range(len(file.rows))]
    world.save(file.name, [
        row if ahead is None else replace(row, pay_on=written(clock.today() + datetime.timedelta(days=ahead)))
        for row, ahead in zip(file.rows, days, strict=True)
    ])  # fmt: skip


def submit_for_a_day(world: World, a: int, b: int, c: int) -> None:
    """Submit a file without dates for a day: today, or one of the next days."""
    file = chosen([one for one in world.files if not any(row.pay_on or row.start for row in one.rows)], a)
    if file is not None:
        day = clock.today() + datetime.timedelta(days=b % 6)
        send(world, file, ["--pay-on", day.isoformat()])


def due(world: World, a: int, b: int, c: int) -> None:
    """The nightly call: due rows of every batch are sent, also of days on which the machine was off."""
    waiting = [one for one in here(world) if "pending" in one.states.values()]
    if len(waiting) > 1 or any(one.unheard for one in here(world)):
        return  # a command is about one batch here
    batch = waiting[0] if waiting else None
    done = world.run("resume", "--due", "--json", rows=list(batch.rows) if batch else [], known=batch)
    if batch is None or done.code or world.forbidden:
        return
    left = [row for row in batch.rows if batch.states.get(row.number) == "pending" and _has_come(batch, row.number)]
    if left:
        raise Violation(f"E{left[0].number} was due on {batch.day_of(left[0].number)}, and still waits: exit code 0")


def _has_come(batch: Batch, number: int) -> bool:
    day = batch.day_of(number)
    return day is not None and day <= clock.today()


def fortnight(world: World, a: int, b: int, c: int) -> None:
    """A file with pay dates is submitted; the nightly calls follow, one of them after days without the machine."""
    schedule(world, a, b, c)
    submit(world, 0, 0, 0)
    for hours in ((26, 80, 260), (130, 26, 200), (340,))[a % 3]:
        world.pass_hours(hours)
        due(world, a, b, c)


def cancel(world: World, a: int, b: int, c: int) -> None:
    """A named person cancels what waits of a batch, or its first row that waits; then somebody submits the file."""
    batch = chosen([one for one in here(world) if "pending" in one.states.values() and not one.unheard], a)
    if batch is None:
        return
    waiting = [row for row, one in enumerate(batch.rows, start=1) if batch.states.get(one.number) == "pending"]
    rows = waiting[:1] if b % 2 else waiting
    named = ["--rows", ",".join(map(str, rows))] if b % 2 else []
    done = world.run("cancel", batch.name, *named, "--reason", "not due", "--name", "Grace", "--yes", "--json")
    if done.code == 0:
        if done.json["cancelled"]["rows"] != len(rows):
            raise Violation(f"{done.json['cancelled']['rows']} of {len(rows)} rows that wait were cancelled")
        cancelled = {batch.rows[row - 1].number for row in rows}
        batch.cancelled |= cancelled
        batch.states |= dict.fromkeys(cancelled, "rejected")


def day_limit(world: World, a: int, b: int, c: int) -> None:
    """Set what one day may be sent to about one and a half payments, or let it be any amount again."""
    world.day_cents = None if a % 3 == 0 else (max(2, world.numbers) * 100 + 25) * 3 // 2
    world.write_settings()
    world.story.append(f"limit of a day {world.day_cents}")


def limit_reached(world: World, a: int, b: int, c: int) -> None:
    """The first row of a file is sent; then a day is limited, and the rest is submitted now or on the next day."""
    make(world, a, b % 4, 0)
    file = world.files[-1]
    send(world, file, ["--limit", "1"])
    day_limit(world, 1, 0, 0)
    if c % 3 == 0:
        world.pass_hours(27)
    send(world, file, [])
