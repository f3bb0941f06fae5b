"""Plans and the people who approve them: nothing new is sent without as many as the policy requires, and only once."""

from __future__ import annotations

from dataclasses import replace

from tests.model.actions import chosen, options_of, prepare
from tests.model.business import Row
from tests.model.command import Call, Done, key_of, run_here
from tests.model.files import write_file
from tests.model.world import Command, File, Violation, World

_PEOPLE = ("ben", "ben", "cleo", "ada")
"""Who is asked to approve: the same person twice, another one, and whoever prepared the plan."""


def set_policy(world: World, a: int, b: int, c: int) -> None:
    """From now on no, one or two other people must approve: the ledger keeps it, and others agree to fewer."""
    world.approvals = a % 3
    world.write_settings()
    for live in (True, False):
        wanted = "--approvals", str(world.approvals), "--reason", "as the board decided"
        as_person(world, "ada", "ledger", "policy", "set", *wanted, live=live)
        for person in ("ben", "cleo"):
            as_person(world, person, "ledger", "policy", "approve", live=live)


def plan(world: World, a: int, b: int, c: int) -> None:
    """Dry run with a plan, approvals by some people, another file or day meanwhile, then its submission: one or two."""
    file = chosen(world.files, a)
    if file is None or world.forbidden:
        return
    options = [one for one in options_of(b, c) if one not in ("--limit", "1")]
    path = str(world.home / "plan.json")
    made = as_person(world, "ada", "submit", file.name, *options, "--dry-run", "--plan", path, "--json")
    if made.get("exit_code") not in (0, 3, 7) or not isinstance(would_send := made.get("would_send"), int):
        return
    asked = [(who, as_person(world, who, "approve", path, "--yes", "--json")) for who in _PEOPLE[: c % 5]]
    approvers = {who for who, answer in asked if "approvals" in answer}
    if "ada" in approvers:
        raise Violation("whoever prepared a plan approved it")
    meanwhile = b // 10 % 5
    if meanwhile == 1:
        world.pass_hours(24 * 9)
    rows = file.rows
    if meanwhile == 2:
        rows = [*file.rows[1:], Row(900 + c, f"79{c:06d}31", file.rows[0].amount)]
        write_file(world.home / file.name, rows)
    enough = len(approvers) >= world.approvals
    forbidden = "" if enough and meanwhile != 2 else "the plan was not approved by enough others, or is of another file"
    if meanwhile == 1 and world.approvals:
        forbidden = "its approvals are too old"
    if meanwhile != 2 and not would_send:
        forbidden = ""  # if nothing would be sent nobody needs to approve
    odd = world.gateway.odd_answers
    if meanwhile == 4:
        _send_twice(world, file, [*options, "--from-plan", path], forbidden, would_send)
        return
    sent = _send(world, File(file.name, list(rows)), [*options, "--from-plan", path], forbidden)
    if sent and sent != would_send and world.gateway.odd_answers == odd:
        raise Violation(f"the plan says {would_send} rows, {sent} were sent")
    if meanwhile == 3 and sent:
        other = ["--again", "--reason", "once more, by the old plan"]
        _send(world, File(file.name, list(rows)), [*other, "--from-plan", path], "its plan is used up")
    if meanwhile == 2:
        write_file(world.home / file.name, file.rows)


def _send(world: World, file: File, options: list[str], forbidden: str) -> int:
    """Submit as the one who prepared the plan; return how many payments arrived."""
    call, command = prepare(world, file, options, forbidden=forbidden)
    known = command.known
    done = world.end(command, run_here(Call(call.arguments, call.folder, call.environment, person="ada")))
    arrived = sum(one.void != "not applied" for one in world.gateway.of(command.name))
    if forbidden and known is None and done.code not in (2, 4, 5, 7, 8, 9):
        raise Violation(f"exit code {done.code}, although {forbidden}")
    return arrived


def _send_twice(world: World, file: File, options: list[str], forbidden: str, would_send: int) -> None:
    """Submit, and once more by another process when the first one has checked its file."""
    call, command = prepare(world, file, options, forbidden=forbidden)

    def use() -> list[tuple[Command, Done]]:
        inner_call, inner = prepare(world, file, options, forbidden=forbidden)
        inner.disturbed = True
        return [(inner, world.forks.run(replace(inner_call, person="ada")))]

    began = len(world.gateway.arrivals)
    world.run_with_hook(replace(call, person="ada"), command, use, "lock")
    arrived = [one for one in world.gateway.arrivals[began:] if one.void != "not applied"]
    if len(arrived) > would_send:
        raise Violation(f"the plan says {would_send} rows, two processes sent {len(arrived)} by it")


def as_person(world: World, person: str, *arguments: str, live: bool | None = None) -> dict[str, object]:
    """Run a command that sends nothing as some person; return what it prints."""
    call = world.call(*arguments, live=live)
    environment = {**call.environment, "BATCHPAY_API_KEY": key_of("look")}
    done = run_here(Call(call.arguments, call.folder, environment, person=person))
    world.story.append(f"[{world.hours:.0f} h] {person}: batchpay {' '.join(arguments)} -> {done.code}")
    if done.code in (1, 120):
        raise Violation(f"internal error: {done.err.strip()[-300:]}")
    return done.json
