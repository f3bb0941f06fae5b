"""Four eyes that can't be split or lowered: what one person tries alone, and what somebody agreed to who has left."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from batchpay.approval.plan import PlanText
from batchpay.errors import BatchpayError
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import Settings, load_settings
from batchpay.workflows.approve import add_approval, view_plan
from tests.model import clock
from tests.model.actions import make, prepare, send
from tests.model.approvals import as_person
from tests.model.command import run_here
from tests.model.world import File, Violation, World

_ABOVE = "--approve-above"
_ZOE = Actor("zoe", "page", "web, password and code")


def split(world: World, a: int, b: int, c: int) -> None:
    """One person sends what needs approval in parts: in files an hour apart, in one call, the same once more."""
    with _policy(world) as may:
        if not may:
            return
        files = [_new_file(world, a, b) for _ in range(3)]
        sums = [sum(row.cents or 0 for row in file.rows) for file in files]
        most = sum(sums[:1]) * 2 if c % 3 == 2 else sum(sums[:2])
        _set(world, "--approvals", "1", _ABOVE, f"{most // 100}.{most % 100:02d}")
        began = len(world.gateway.arrivals)
        if c % 3 == 0:
            for file in files:
                send(world, file, [])
                world.pass_hours(1)
        elif c % 3 == 1:
            call = world.call("submit", *[file.name for file in files], "--json")
            world.begin(call, rows=[row for file in files for row in file.rows])
            run_here(call)
        else:
            send(world, files[0], [])
            send(world, files[0], ["--again", "--reason", "the bank lost it"])
        sent = _cents(world, files, began)
        if sent >= most:
            raise Violation(f"{sent} cents were sent by one person within hours; from {most} on another must approve")


def lower(world: World, a: int, b: int, c: int) -> None:
    """One person turns four eyes off: by variables, by the settings file, by the command, and waits three hours."""
    with _policy(world) as may:
        if not may:
            return
        _set(world, "--approvals", "1", _ABOVE, "0.00")
        file, began = _new_file(world, a, b), len(world.gateway.arrivals)
        environment: dict[str, str] = {}
        if c % 3 == 0:
            environment = {"BATCHPAY_APPROVALS": "0", "BATCHPAY_APPROVE_ABOVE": "999999.00"}
        elif c % 3 == 1:
            world.write_settings('approvals = 0\napprove_above = "999999.00"\n')
        else:
            _set(world, "--approvals", "0")
            as_person(world, "ada", "ledger", "policy", "approve")
        call, command = prepare(world, file, [])
        world.end(command, run_here(replace(call, environment={**call.environment, **environment})))
        world.pass_hours(65)
        if b % 2:
            as_person(world, "ben", "ledger", "policy", "refuse", "--reason", "not with me")
            world.pass_hours(10)
        send(world, file, [])
        if len(world.gateway.arrivals) > began:
            raise Violation("what one person alone has lowered let a file through")
        if c % 3 == 2 and not b % 2:
            world.pass_hours(10)
            send(world, file, [])
            if len(world.gateway.arrivals) == began and not world.gateway.odd_answers:
                raise Violation("after 72 hours nobody has refused it, and it has not taken effect")


def switch_off(world: World, a: int, b: int, c: int) -> None:
    """Somebody approves a plan on the page, and is switched off before it is used."""
    with _policy(world) as may:
        if not may:
            return
        _set(world, "--approvals", "1", _ABOVE, "0.00")
        file, path = _new_file(world, a, b), str(world.home / "page.json")
        as_person(world, "ada", "submit", file.name, "--dry-run", "--plan", path, "--json")
        with _opened(world) as (ledger, settings):
            kept = PlanText.read(path)
            view = view_plan(kept, ledger, settings)
            add_approval(kept, view.plan.seal, ledger, settings, _ZOE).plan.write(path)
            ledger.note_person("root", "switched off zoe", "zoe", is_off=True)
        began = len(world.gateway.arrivals)
        send(world, file, ["--from-plan", path])
        if len(world.gateway.arrivals) > began:
            raise Violation("what somebody approved who is switched off was sent")
        with _opened(world) as (ledger, _):
            ledger.note_person("root", "switched on zoe", "zoe")
        send(world, file, ["--from-plan", path])


def _new_file(world: World, a: int, b: int) -> File:
    """Write a file that no later step chooses: two or three valid payments of credits."""
    make(world, a, b % 4, 0)
    return world.files.pop()


def _cents(world: World, files: Sequence[File], began: int) -> int:
    cents = {row.number: row.cents or 0 for file in files for row in file.rows}
    return sum(cents.get(one.payment, 0) for one in world.gateway.arrivals[began:] if one.void != "not applied")


def _set(world: World, *options: str) -> None:
    as_person(world, "ada", "ledger", "policy", "set", *options, "--reason", "as the board decided")


@contextmanager
def _policy(world: World) -> Iterator[bool]:
    """Give whether the policy may be changed for a while; afterwards others agree that it is as before."""
    may = not (world.forbidden or world.window_open or world.approvals)
    yield may
    if may:
        world.write_settings()
        _set(world, "--approvals", "0", _ABOVE, "0.00")
        as_person(world, "ben", "ledger", "policy", "approve")


@contextmanager
def _opened(world: World) -> Iterator[tuple[Ledger, Settings]]:
    """Open the ledger as the page does, which runs in a process of its own."""
    clock.exchange()
    call, real = world.call("web"), dict(os.environ)
    os.environ.clear()
    os.environ.update(call.environment)
    try:
        settings = load_settings({}, call.environment)
        with closing(open_ledger(settings.ledger)) as ledger:
            yield ledger, settings
    except BatchpayError as error:
        raise Violation(f"the page can't: {error}") from None
    finally:
        os.environ.clear()
        os.environ.update(real)
