"""Rows that wait for a person, and files that are numbered: the maker does not release, and a gap is asked about."""

from __future__ import annotations

from dataclasses import replace

from tests.model.actions import make, prepare
from tests.model.command import Done, run_here
from tests.model.world import File, Violation, World

_OTHERS_ASKED = {"BATCHPAY_SECOND_ABOVE": "900000.00"}
"""A policy that asks other people for approvals, and for none of what a walk pays."""


def _is_free(world: World) -> bool:
    """Return whether nothing but the rules keeps a new file from being paid."""
    world.gateway.answers = []
    return not (world.forbidden or world.window_open or world.approvals or world.day_cents)


def _submit(
    world: World, file: File, *options: str, person: str = "ada", forbidden: str = "", **variables: str
) -> Done:
    call, command = prepare(world, file, list(options), forbidden=forbidden)
    return world.end(command, run_here(replace(call, person=person, environment={**call.environment, **variables})))


def held(world: World, a: int, b: int, c: int) -> None:
    """A row waits for a person; who submitted it releases it, or the others, or somebody else releases it by name."""
    if not _is_free(world):
        return
    make(world, a, b % 4, 0)
    first, second, *others = world.files.pop().rows
    row = replace(second, account=f"AB{second.number:06d}")
    file = world.save(world.new_name(), [first, row, *others])
    _submit(world, file)
    release = ("--release", "--reason", "called her at the number of 2019")
    _submit(world, file, *(release if c % 2 else ()))
    own = _submit(world, file, *release, "--rows", "2", forbidden="its maker released it", **_OTHERS_ASKED)
    known = world.known_batch(file.rows, live=world.live)
    if own.code not in (5, 7, 8) and known is not None:
        raise Violation(f"exit code {own.code} for a release by the maker")
    if b % 3:
        world.released.add(row.number)
        _submit(world, file, *release, "--rows", "2", person="ben", **_OTHERS_ASKED)
    world.files.remove(file)
    (world.home / file.name).unlink()


def numbered(world: World, a: int, b: int, c: int) -> None:
    """Files of a series: one is missing, one has another's number, and a person says that the missing one is none."""
    if not _is_free(world):
        return
    world.numbers += 1
    series = f"series-{world.numbers}"
    for number, options, forbidden in (
        (1, (), ""),
        (3, (), "number 2 has not come"),
        (1, (), "number 1 was used for other payments"),
        (3, ("--gap", "--reason", "it was cancelled"), ""),
    ):
        make(world, a, b % 4, 0)
        file = world.files[-1]
        control = world.home / f"{file.name}.control.toml"
        control.write_text(f'rows = {len(file.rows)}\nseries = "{series}"\nnumber = {number}\n', "utf-8")
        _submit(world, file, *options, forbidden=forbidden)
        control.unlink()
        if c % 2 and forbidden:
            world.files.remove(file)
