"""What must hold after every command, whatever people did before.

Nothing twice without a decision that names it; nothing lost; nothing sent that a rule or a missing decision forbids;
and what the program says of it, in summary, results, rejects and exit code, is true.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.model import clock
from tests.model.business import UNCLEAR_H, Batch, Row, day_of, is_duplicate, repeats_in_file, same
from tests.model.files import number_of, read_table
from tests.model.gateway import Arrival

if TYPE_CHECKING:
    from tests.model.command import Done
    from tests.model.world import Command, World

_NOTHING_SENT = (2, 4, 5, 8, 9)
_STATES = ("rejected", "pending", "sending", "accepted", "declined", "in_doubt")
_YES = ("success", "twice", "repeated")


def fail(world: World, text: str) -> None:
    """End the walk."""
    from tests.model.world import Violation

    raise Violation(text)


def hold_all(world: World, ended: Sequence[tuple[Command, Done]], registered: Sequence[tuple[Command, Done]]) -> None:
    """Check every invariant after a command, or after several that ran at the same time, in the order they ended.

    `registered` has the same ones in the order of their batches, which shows what the later one could know.
    """
    batches = {command.name: _take_in(world, command, done) for command, done in registered}
    for command, done in ended:
        _hold(world, command, done, batches[command.name])


def _hold(world: World, command: Command, done: Done, batch: Batch | None) -> None:
    _its_end(world, command, done)
    _nothing_forbidden(world, command)
    _nothing_twice(world, command)
    _nothing_early(world, command)
    _no_day_above_its_limit(world, command)
    if batch is not None and done.json.get("results") and not command.killed:
        _results_are_true(world, command, batch, done.json)
    if batch is not None and not command.killed:
        _code_is_true(world, command, done)


def _its_end(world: World, command: Command, done: Done) -> None:
    """No internal error, no account number on any stream, and nothing sent if the exit code says so."""
    if done.code in (1, 120) or "Traceback" in done.err:
        fail(world, f"internal error, exit code {done.code}: {done.err.strip()[-300:]}")
    if any(one in done.out + done.err for one in ("\x07", "\x1b")):
        fail(world, "a name from outside steers the terminal")
    for row in command.rows:
        if row.account in done.out or row.account in done.err:
            fail(world, f"the account number of E{row.number} was printed")
    sent = world.gateway.of(command.name)
    if done.code in _NOTHING_SENT and sent and "limits.max_per_day" not in (done.json.get("stopped") or ""):
        fail(world, f"exit code {done.code} says that nothing was sent, and {len(sent)} payments arrived")
    if command.forbidden and sent:
        fail(world, f"{len(sent)} payments arrived although {command.forbidden}")


def _take_in(world: World, command: Command, done: Done) -> Batch | None:
    """Learn which batch the command was about, and what the program says of its rows."""
    name = done.json.get("batch")
    if not done.json and command.rows and (command.killed or world.gateway.of(command.name)):
        name = _left_without_a_word(world, command)
    if not isinstance(name, str) or command.has("--dry-run") or not command.rows:
        return command.known
    batch = world.batches.get(name)
    if batch is None or batch.lost:
        rows = command.rows
        batch = world.batches[name] = Batch(name, list(rows), command.at_h, command.live)
        batch.again = command.value("--reason") if command.has("--again") else ""
        batch.allows_duplicates = command.has("--allow-duplicates")
        batch.pay_on = datetime.date.fromisoformat(day) if (day := command.value("--pay-on")) else None
    command.batch = batch
    batch.unheard |= command.killed
    return batch


def _left_without_a_word(world: World, command: Command) -> str | None:
    """Find the batch of a command that ended before it could name it."""
    if command.known is not None:
        return command.known.name
    listed = world.ask("status", "--json").json.get("batches", [])
    return next((one["batch"] for one in listed if one["batch"] not in world.batches), None)


def _nothing_forbidden(world: World, command: Command) -> None:
    """Nothing is sent that fails today's rules, was rejected and not released, or is in no file of the command."""
    for arrival in world.gateway.of(command.name):
        row = next((row for row in command.rows if row.number == arrival.payment), None)
        if row is None:
            fail(world, f"E{arrival.payment} arrived, which is not in the content that was checked")
            continue
        if arrival.live != command.live:
            fail(world, f"E{arrival.payment} arrived at the other gateway")
        today = clock.today()
        faults = row.faults(command.max_cents, today, normalize=True)
        if command.known is None and not command.has("--normalize"):  # a known batch may have been repaired before
            faults |= row.faults(command.max_cents, today, normalize=False)
        if faults:
            fail(world, f"E{row.number} was sent although {', '.join(sorted(faults))}")
        if row.waits and row.number not in world.released:
            fail(world, f"E{row.number} waits for a person, and was sent")
        was = command.before.get(row.number)
        if was == "rejected" and command.approvals and not command.has("--from-plan"):
            fail(world, f"E{row.number} was released and sent, and nobody approved it")
        if was == "rejected" and not command.has("--release"):
            fail(world, f"E{row.number} had been rejected and was sent without --release")
        if was in ("accepted", "declined", "in_doubt") and not _reopened(command, row.number):
            fail(world, f"E{row.number} was {was} and was sent again")


def _nothing_early(world: World, command: Command) -> None:
    """Nothing is sent before its day, which is that on which the run began, whatever the clock shows later."""
    for arrival in world.gateway.of(command.name):
        batch, row = command.batch or command.known, _row_of(command, arrival)
        day = batch.day_of(row.number) if batch else day_of(row.pay_on)
        if day is not None and day > command.day:
            fail(world, f"E{row.number} is to be paid on {day}, and was sent on {command.day}")
        if batch is not command.known and day is not None and day < command.day:
            fail(world, f"E{row.number} was registered and sent after its day, {day}")


def _no_day_above_its_limit(world: World, command: Command) -> None:
    """What was sent on a day, as far as it may have been paid, is within the limit; debits and credits count apart."""
    if command.day_cents is None or command.approvals or any(one.lost for one in world.batches.values()):
        return
    sums: dict[str, int] = {}
    for arrival in world.gateway.arrivals:
        by = world.commands[arrival.command]
        if by.day == command.day and by.live == command.live and not arrival.void:
            row = _row_of(by, arrival).repaired
            sums[row.direction] = sums.get(row.direction, 0) + (row.cents or 0)
    for direction, cents in sums.items():
        if world.gateway.of(command.name) and cents > command.day_cents:
            fail(world, f"{cents} cents of {direction} were sent on {command.day}, at most {command.day_cents} may be")


def _reopened(command: Command, number: int) -> bool:
    """Return whether someone decided that a paid row is paid again: by this command, or by one that came in between."""
    batch = command.batch
    again_meanwhile = batch is not None and batch is not command.known and bool(batch.again)
    sent_again = command.known is not None and command.known.settled.get(number) == "send again"
    return command.has("--again") or again_meanwhile or sent_again


def _nothing_twice(world: World, command: Command) -> None:
    """Each arrival of a payment that arrived before needs a rule or a recorded decision that lets it through."""
    everything = world.gateway.arrivals
    for place, new in enumerate(everything):
        if new.command != command.name:
            continue
        for old in everything[:place]:
            if old.payment == new.payment and old.live == new.live and not old.void:
                _allowed(world, new, old)


def _allowed(world: World, new: Arrival, old: Arrival) -> None:
    ours, theirs = world.commands[new.command], world.commands[old.command]
    mine, other = ours.batch or ours.known, theirs.batch or theirs.known
    row, before = _row_of(ours, new), _row_of(theirs, old)
    story = f"E{new.payment} arrived twice, by {theirs.name} and by {ours.name}"
    if mine is None or other is None or mine is other:
        fail(world, f"{story}, in one batch" if mine is other and mine else story)
        return
    if mine.again or (other.lost and not world.window_open):
        return
    code, _ = other.return_codes.get(old.payment, ("", None))
    if other.returned.get(old.payment) == "seen" and (row.account != before.account or code in ("R01", "R09")):
        return  # it came back: paid to another account, or tried again
    by_id = bool(row.payment_id) and is_duplicate(row, before, 1e9) is True and not _same_bill_only(row, before)
    names = list(world.batches)  # in the order of registration
    earlier, later = sorted((mine, other), key=lambda one: (one.registered_h, names.index(one.name)))
    if (mine.allows_duplicates or later.allows_duplicates) and not by_id:
        lets_through = mine.allows_duplicates or ours.has("--allow-duplicates")
        is_known = later is other and not (lets_through or other.lost or theirs.name in ours.besides)
        if is_known and is_duplicate(row, before, later.registered_h - earlier.registered_h) is True:
            fail(world, f"{story}, which a person had let through elsewhere while it waited")
        return  # the later one was let through while the earlier one waited
    if ours.before.get(row.number) == "rejected":
        fail(world, f"{story}: released although it was paid meanwhile")
    sent_h = theirs.at_h if earlier is other else ours.at_h
    # What was not sent by then was still to come.
    began = min(max(earlier.registered_h, sent_h), later.registered_h)
    has_days = any(one.day_of(new.payment) for one in (earlier, later))
    apart_h = abs(_day_h(world, later, new.payment, later.registered_h) - _day_h(world, earlier, old.payment, began))
    if is_duplicate(row, before, apart_h, unclear_h=36 if has_days else UNCLEAR_H) is True:
        fail(world, f"{story}, {apart_h:.0f} hours apart, and no decision names it")


def _day_h(world: World, batch: Batch, number: int, otherwise_h: float) -> float:
    """Return when a payment of a batch is to be sent, in hours of the walk."""
    day = batch.day_of(number)
    return otherwise_h if day is None else world.hours + 24 * (day - clock.today()).days


def _row_of(command: Command, arrival: Arrival) -> Row:
    return next(row for row in command.rows if row.number == arrival.payment)


def _same_bill_only(row: Row, before: Row) -> bool:
    return not (row.payment_id and same(row.payment_id) == same(before.payment_id))


def _results_are_true(world: World, command: Command, batch: Batch, summary: dict[str, Any]) -> None:
    """Every row is in results or rejects, in the state that the gateway's log confirms."""
    if len({row.number for row in batch.rows}) != len(batch.rows):
        return  # a payment that is in one file twice has two states
    results = read_table(world.home / summary["results"])
    before = world.results.get(summary["results"], batch.name)
    if before != batch.name and not batch.lost:
        fail(world, f"results of batch {before} were replaced by those of batch {batch.name}")
    if results:  # a header alone is nothing to lose
        world.results[summary["results"]] = before
    states = {number_of(line): line["state"] for line in results}
    rejects = read_table(world.home / summary["rejects"]) if summary.get("rejects") else []
    for line in rejects:
        _rejected_for_a_reason(world, batch, line)
    numbers = {number_of(line) for line in rejects}
    if command.disturbed:
        numbers -= states.keys()  # two commands wrote one after the other
    if both := numbers & states.keys():
        fail(world, f"E{min(both)} stands in results and in rejects")
    wanted = {row.number for row in batch.rows}
    left = wanted - states.keys() - numbers
    if len(numbers) + len(left) == summary["rejected"] or command.disturbed:
        numbers |= left  # rejected earlier, and valid by today's rules: a release would add it
    if states.keys() | numbers != wanted:
        fail(world, f"rows of the file {sorted(wanted)}, in results and rejects {sorted(states.keys() | numbers)}")
    for number, state in states.items():
        _state_is_true(world, command, batch, number, state)
    _references_are_of_one_row(world, batch, states)
    batch.states, batch.unheard = {**dict.fromkeys(numbers, "rejected"), **states}, False
    counts = {state: sum(found == state for found in batch.states.values()) for state in _STATES}
    said = {state: summary[state] for state in _STATES}
    if counts != said and not command.disturbed:
        fail(world, f"the summary says {said}, the files {counts}")
    if sum(said.values()) != summary["rows"] or summary["rows"] != len(batch.rows):
        fail(world, f"the states add up to {sum(said.values())}, the file has {len(batch.rows)} rows")


def _rejected_for_a_reason(world: World, batch: Batch, line: dict[str, str]) -> None:
    """A valid row that nobody paid before is not rejected: it would be lost.

    It was valid if it was so on the day of every command, by the clock of that day: one that was ahead rejects a row
    for which that day is too late, until somebody releases it.
    """
    row = batch.row(number_of(line))
    if not line["_errors"].strip():
        fail(world, f"a line of the rejects names no error: {line.get('walk')}")
    if row is None:
        fail(world, f"the rejects hold {line['walk']}, which is not in the file")
        return
    earlier = [
        one for one in world.batches.values() if one is not batch and one.row(row.number) and one.live == batch.live
    ]
    day, commands = day_of(row.pay_on), world.commands.values()
    is_late = day is not None and any(day < one.day for one in commands)
    is_right = not (row.waits or row.number in batch.cancelled or is_late)
    if "duplicate" in line["_errors"]:
        if not earlier and row.number not in repeats_in_file(batch.rows):
            fail(world, f"E{row.number} is refused as a duplicate, and was never seen before")
    elif "returned" in line["_errors"] or "changed_by_bank" in line["_errors"]:
        if row.account not in world.accounts_told:
            fail(world, f"E{row.number} is refused for its account, of which no bank said anything")
    elif is_right and not any(row.faults(one.max_cents, one.day, normalize=False) for one in commands):
        fail(world, f"E{row.number} is refused for nothing: {line['_errors']}")


def _state_is_true(world: World, command: Command, batch: Batch, number: int, state: str) -> None:
    """Compare a row's state with what arrived for its batch: before the command ended, if the row waited then."""
    everything = world.gateway.arrivals
    arrived = [
        (place, one)
        for place, one in enumerate(everything)
        if one.payment == number and (world.commands[one.command].batch or world.commands[one.command].known) is batch
    ]
    ended = len(everything) if command.arrivals_then is None else command.arrivals_then
    alive = [one for place, one in arrived if not one.void and place < ended]
    answers = [one.answer for _, one in arrived]
    settled = batch.settled.get(number)
    if state == "accepted" and settled != "accepted" and not any(answer in _YES for answer in answers):
        fail(world, f"E{number} is called accepted, and the gateway answered {answers}")
    if state == "declined" and settled != "declined" and "error" not in answers:
        fail(world, f"E{number} is called declined, and the gateway never said so")
    if state in ("pending", "declined") and alive and settled != "declined":
        fail(world, f"E{number} is called {state}, and arrived {len(alive)} times")
    if state == "sending":
        fail(world, f"E{number} is left in sending")


def _references_are_of_one_row(world: World, batch: Batch, states: Mapping[int, str]) -> None:
    """Of rows that the gateway answered with one reference, one alone is accepted unless a person said so."""
    said = [number for number, state in states.items() if state == "accepted" and number not in batch.settled]
    answers = {number: {one.answer for one in world.gateway.arrivals if one.payment == number} for number in said}
    if len(repeated := [number for number, found in answers.items() if found == {"repeated"}]) > 1:
        fail(world, f"E{repeated[0]} and E{repeated[1]} are accepted with one reference")


def _code_is_true(world: World, command: Command, done: Done) -> None:
    """The exit code follows from the summary, by CONTRACT's table."""
    summary = done.json
    if "accepted" not in summary or "error" in summary:
        return
    if summary["exit_code"] != done.code:
        fail(world, f"the summary says exit code {summary['exit_code']}, the process ended with {done.code}")
    if command.has("--dry-run") or command.arguments[0] not in ("submit", "resume"):
        return
    elsewhere = any(one.doubts for one in world.batches.values() if not one.lost and one.live == command.live)
    scheduled = _scheduled(command)
    if not command.disturbed and not command.killed and summary["scheduled"]["rows"] != scheduled:
        fail(world, f"{summary['scheduled']['rows']} rows are called scheduled, {scheduled} are")
    waiting = summary["pending"] + summary["sending"] - scheduled
    if summary["in_doubt"] or elsewhere:
        wanted: tuple[int, ...] = (7,)
    elif summary["stopped"]:
        wanted = (8,) if "limits.max_per_day" in summary["stopped"] else (6,)
    elif waiting:
        wanted = (3,) if _all_held_back(command, done) else (6, 3)
    else:
        wanted = (3,) if summary["rejected"] + summary["declined"] else (0,)
    if any(one.unheard and not one.lost and one.live == command.live for one in world.batches.values()):
        wanted += (7,)  # an answer that proves nothing may have come before the kill
    if done.code not in wanted and not command.disturbed:
        fail(world, f"exit code {done.code}, by the summary it is {wanted[0]}")


def _scheduled(command: Command) -> int:
    """Count the rows that wait for a day after the one on which the run began."""
    batch = command.batch or command.known
    waiting = [number for number, state in batch.states.items() if state == "pending"] if batch else []
    return sum((batch.day_of(number) or command.day) > command.day for number in waiting) if batch else 0


def _all_held_back(command: Command, done: Done) -> bool:
    """Return whether every row that waits fails today's rules."""
    batch = command.batch
    if batch is None:
        return False
    pending = [number for number, state in batch.states.items() if state == "pending"]
    waiting = [batch.row(number) for number in pending if (batch.day_of(number) or command.day) <= command.day]
    return all(row and row.faults(command.max_cents, clock.today(), normalize=True) for row in waiting)
