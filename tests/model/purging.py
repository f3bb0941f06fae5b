"""A purge in a walk: what is long finished loses its details, and nothing that keeps money safe."""

from __future__ import annotations

from typing import Any

from tests.model.world import Violation, World

_DAYS = (1, 3, 20)
_UNCLEAR_H = 1.0
_TOTALS = ("rows", "rejected", "pending", "sending", "accepted", "declined", "in_doubt", "amount", "debit", "credit",
           "returned", "standing")  # fmt: skip


def purge(world: World, a: int, b: int, c: int) -> None:
    """Erase names, details and messages of old batches: totals remain, open batches stay, details are gone."""
    days = _DAYS[a % len(_DAYS)]
    before = _totals(world)
    done = world.run("ledger", "purge", "--older-than", str(days), "--reason", "no longer needed", "--json")
    if world.forbidden and done.code == 0:
        raise Violation(f"a ledger was purged although {world.forbidden}")
    if world.forbidden or (world.window_open and done.code):
        return
    if done.code:
        raise Violation(f"nobody holds a batch, and the purge ended with {done.code}: {done.err.strip()[:200]}")
    if _totals(world) != before:
        raise Violation("a purge changed totals")
    purged = set(done.json["purged"])
    for name, said in before.items():
        batch = world.batches.get(name)
        if batch is None:
            continue
        is_open = said["pending"] + said["sending"] + said["in_doubt"] > 0
        touched = [one.at_h for one in world.commands.values() if batch in (one.batch, one.known)]
        if name in purged and (is_open or world.hours - batch.registered_h < days * 24 - _UNCLEAR_H):
            raise Violation(f"batch {name} was purged after {world.hours - batch.registered_h:.0f} hours as {said}")
        is_old = world.hours - max([*touched, batch.registered_h]) > days * 24 + _UNCLEAR_H
        is_listed = name in purged or batch.purged or any(one["batch"] == name for one in done.json["batches"])
        if is_old and not is_open and said["rows"] > said["rejected"] and not is_listed:
            raise Violation(f"batch {name} is old and finished, and was not purged")
        batch.purged = batch.purged or name in purged
        if batch.purged:
            _details_are_gone(world, name)


def _totals(world: World) -> dict[str, dict[str, Any]]:
    listed = world.ask("status", "--json").json.get("batches", [])
    return {one["batch"]: {key: one[key] for key in _TOTALS} for one in listed}


def _details_are_gone(world: World, name: str) -> None:
    """Neither the program nor the tables have them any longer."""
    if (code := world.ask("results", name, "--results", "purged.csv").code) != 2:
        raise Violation(f"batch {name} was purged, and its results end with {code}")
    details, texts = world.ledger.texts_of(name)
    if details or texts:
        raise Violation(f"batch {name} was purged, and the ledger holds {details} details and {texts} messages of it")
