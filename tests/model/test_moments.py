"""Moments that only a second action at the right instant brings about: between the check of a file and its batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.actions import prepare, send
from tests.model.business import Row
from tests.model.command import Done
from tests.model.files import write_file
from tests.model.walk import Runner
from tests.model.world import Command, World


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """The gateway and the forks of all these tests."""
    made = Runner()
    yield made
    made.close()


@pytest.fixture
def world(runner: Runner) -> World:
    """A new home with an empty ledger."""
    return runner.world()


def rows(first: int, last: int) -> list[Row]:
    return [Row(number, f"77{number:06d}31", f"{number}.25") for number in range(first, last + 1)]


def test_a_file_that_changes_between_check_and_registration_is_refused_whole(world: World) -> None:
    """The digest of what is registered could be compared with nothing, and no test noticed."""
    file = world.save("a.csv", rows(1, 3))
    call, command = prepare(world, file, [])

    def change() -> list[tuple[Command, Done]]:
        write_file(world.home / "a.csv", [rows(1, 1)[0], *rows(8, 9)])
        return []

    world.run_with_hook(call, command, change, "lock")
    assert world.story[-1].startswith("  c2 -> 4")
    assert world.gateway.arrivals == []
    assert world.ask("status", "--json").json == {"batches": []}
    assert not (world.home / "a.rejects.csv").exists()


@pytest.mark.parametrize(("taken", "asked"), [([10, 20], 1), ([3], 1), ([3, 2], 2)])
def test_payments_that_are_registered_meanwhile_are_looked_up_and_the_run_goes_on(
    world: World, taken: list[int], asked: int
) -> None:
    """Another file comes in between: this one is checked again if they share a payment, as often as that happens."""
    file = world.save("a.csv", rows(1, 3))
    left = [world.save(f"b{number}.csv", rows(number, number)) for number in reversed(taken)]
    call, command = prepare(world, file, [])

    def register_another() -> list[tuple[Command, Done]]:
        inner_call, inner = prepare(world, left.pop(), [])
        inner.disturbed = True
        return [(inner, world.forks.run(inner_call))]

    world.run_with_hook(call, command, register_another, "lock", times=len(taken))
    paid = [number for number in (1, 2, 3) if number not in taken]
    assert [one.payment for one in world.gateway.of(command.name)] == paid
    assert world.story[-1] == f"  {command.name} -> {0 if len(paid) == 3 else 3}; at its lock: {[0] * asked}"


@pytest.mark.parametrize("state", ["pending", "sending", "in_doubt"])
def test_paying_again_waits_until_every_row_is_settled(world: World, state: str) -> None:
    """The check for unsettled rows could name another state: each of the three holds a second payment back."""
    file = world.save("a.csv", rows(1, 2 if state == "pending" else 1))
    if state == "sending":
        call, command = prepare(world, file, [])
        world.run_killed(call, command, 1)
    else:
        world.gateway.answers = ["none"] if state == "in_doubt" else []
        send(world, file, ["--limit", "1"])
    begun = len(world.gateway.arrivals)
    send(world, file, ["--again", "--reason", "the bank lost them"])
    assert len(world.gateway.arrivals) == begun
    assert world.story[-1].endswith("-> 2" if state == "pending" else "-> 7")  # a doubt outranks wrong use


_TWICE_DUE = ["--allow-duplicates", "--reason", "twice due"]


@pytest.mark.parametrize(("options", "arrived"), [([], []), (_TWICE_DUE, [1, 2, 3])])
def test_bills_of_a_batch_under_way_need_a_decision_that_names_them(
    world: World, options: list[str], arrived: list[int]
) -> None:
    """A walk took the batch that ended first for the earlier one, and missed the decision that the second file had."""
    file, same = world.save("a.csv", rows(1, 3)), world.save("b.csv", rows(1, 3)[::-1])
    call, command = prepare(world, file, [])
    told: list[Done] = []

    def submit_the_same() -> list[tuple[Command, Done]]:
        inner_call, inner = prepare(world, same, options)
        inner.disturbed = True
        told.append(world.forks.run(inner_call))
        return [(inner, told[0])]

    world.run_with_hook(call, command, submit_the_same, "payment")
    assert [one.payment for one in world.gateway.of(command.name)] == [1, 2, 3]
    assert sorted(one.payment for one in world.gateway.arrivals if one.command != command.name) == arrived
    listed = told[0].json["allowed_duplicates"]["list"]
    assert [(pair["row"], pair["earlier_row"]) for pair in listed] == [(1, 3), (2, 2), (3, 1)][: len(arrived)]
