"""What happens to a ledger and its machine: backups, clones, lost witnesses, wrong clocks, edits in the database."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.model import clock
from tests.model.actions import chosen, make, prepare, send
from tests.model.business import Batch, Row
from tests.model.command import Call, run_here
from tests.model.files import read_table
from tests.model.ledgers import LEDGER, LedgerDatabase
from tests.model.world import File, Violation, World

_CONFIG = Path(".config/batchpay")
REASON = ("--reason", "asked the gateway")


@dataclass
class Backup:
    """What the model knew when a backup was made."""

    copy: str
    states: dict[str, dict[int, str]]
    settled: dict[str, dict[int, str]]
    arrivals: int
    purged: dict[str, bool]
    returned: dict[str, dict[int, str]]
    batches: list[str] = field(default_factory=list)


def back_up(world: World, a: int, b: int, c: int) -> None:
    """Write a copy of the ledger."""
    if world.forbidden or not (copy := world.ledger.back_up(world)):
        return
    alive = {name: batch for name, batch in world.batches.items() if not batch.lost}
    world.backup = Backup(
        copy,
        {name: dict(batch.states) for name, batch in alive.items()},
        {name: dict(batch.settled) for name, batch in alive.items()},
        len(world.gateway.arrivals),
        {name: batch.purged for name, batch in alive.items()},
        {name: dict(batch.returned) for name, batch in alive.items()},
        list(alive),
    )


def bring_back(world: World, a: int, b: int, c: int) -> None:
    """Restore the backup: the ledger does not know what was sent since."""
    if world.backup is not None:
        put_back(world, world.backup)


def put_back(world: World, backup: Backup, *, in_use: bool = False) -> None:
    """Restore a backup, perhaps while a command has the ledger open."""
    world.ledger.bring_back(backup.copy, in_use=in_use)
    world.story.append("bring the backup back")
    for name, batch in world.batches.items():
        batch.lost = batch.lost or name not in backup.batches
        if not batch.lost:
            batch.states, batch.settled = dict(backup.states[name]), dict(backup.settled[name])
            batch.purged = backup.purged[name]
            batch.returned = dict(backup.returned[name])
    if len(world.gateway.arrivals) > backup.arrivals:
        world.forbidden = "the ledger is older than its witness"
        world.window_lost = True


def lose_witness(world: World, a: int, b: int, c: int) -> None:
    """Delete the witness."""
    for path in (world.home / _CONFIG).glob("*.witness"):
        path.unlink()
    world.story.append("delete the witness")
    world.forbidden = world.forbidden or "the ledger has no witness"
    world.window_lost = True


def accept(world: World, a: int, b: int, c: int) -> None:
    """A person accepts the ledger as is: what it would send is in doubt now."""
    if not world.forbidden:
        return
    done = world.run("ledger", "accept", *REASON)
    if done.code == 0:
        world.forbidden = ""
        world.window_open, world.window_lost = world.window_open or world.window_lost, False
        for batch in world.batches.values():
            for number, state in batch.states.items():
                if state == "pending" and not batch.lost:
                    batch.states[number] = "in_doubt"


def settle_window(world: World, a: int, b: int, c: int) -> None:
    """A person says that the period the ledger does not remember is settled."""
    if not world.window_open or world.forbidden:
        return
    if world.run("ledger", "accept", "--confirm", *REASON).code == 0:
        world.window_open = False


def clone(world: World, a: int, b: int, c: int) -> None:
    """Another machine wakes up with the same disk, and continues there."""
    if world.ledger.is_in_home and world.batches and not world.forbidden:
        _try_there(world, world.home, a, world.files, "the machine was cloned", "machine-two")


def copy(world: World, a: int, b: int, c: int) -> None:
    """Copy the ledger, with the home that knows it, and continue with the copy on the same machine."""
    if world.batches and not world.forbidden:
        with world.ledger.copied(world) as (home, environment):
            _try_there(world, home, a, world.files, "the ledger was copied", **environment)


def set_back(world: World, a: int, b: int, c: int) -> None:
    """The whole machine is set back to before a file's last payments; the results of that file were kept elsewhere."""
    if not world.ledger.is_in_home or world.forbidden or world.window_open or world.approvals:
        return
    make(world, a, b, c)
    file = world.files[-1]
    send(world, file, ["--limit", "1"])
    with world.another_home("set-back") as before:
        began = len(world.gateway.arrivals)
        if c % 2:  # the machine dies while it sends, and somebody looks at the results
            call, command = prepare(world, file, [])
            world.run_killed(call, command, 1)
            batch = world.known_batch(file.rows, live=world.live)
            if batch is not None:
                world.ask("results", batch.name)
        else:
            send(world, file, [])
        if all(one.void == "not applied" for one in world.gateway.arrivals[began:]):
            return
        for results in world.home.glob("*.results*.csv"):
            shutil.copy2(results, before)
        tries = [(["submit", file.name, "--json"], file.rows), (["resume", "--json"], file.rows)]
        with world.as_it_was(before):
            _must_send_nothing(world, world.home, tries, "the machine was set back")


def edit_by_hand(world: World, a: int, b: int, c: int) -> None:
    """Make paid rows pending with a database tool, in a copy of the home, and continue there."""
    if not world.batches:
        return
    with world.ledger.edited(world) as home:
        if home is not None:
            # In a database only the batch that is to be sent is compared with its history.
            known = [one for one in world.files if world.known_batch(one.rows, live=world.live)]
            files = world.files if world.ledger.is_in_home else known
            _try_there(world, home, a, files, "somebody edited the ledger by hand")


def second_ledger(world: World, a: int, b: int, c: int) -> None:
    """A colleague with a ledger of their own submits the same file in the same folder."""
    paid = [
        file
        for file in world.files
        if (results := world.home / f"{Path(file.name).stem}.results.csv").exists()
        and (named := {line["batch"] for line in read_table(results)})  # a header alone names none
        and any(
            one.name in named and one.rows == file.rows and one.live == world.live for one in world.batches.values()
        )
    ]
    file = chosen(paid, a)
    if file is None or any(one.name == file.name and one is not file for one in world.files):
        return
    home = world.folder / "colleague"
    (home / _CONFIG).mkdir(parents=True)
    shutil.copyfile(world.home / _CONFIG / "batchpay.toml", home / _CONFIG / "batchpay.toml")
    (home / _CONFIG / "batchpay.toml").chmod(0o600)
    own = str(home / LEDGER)
    init = run_here(world.call("ledger", "init", home=home, BATCHPAY_LEDGER=own))
    call = world.call("submit", file.name, "--json", home=home, BATCHPAY_LEDGER=own)
    command = world.begin(call, rows=list(file.rows), forbidden="another ledger has paid this file")
    command.disturbed = True
    done = run_here(call)
    if init.code == 0:
        world.end(command, done)
    shutil.rmtree(home)


def clock_back(world: World, a: int, b: int, c: int) -> None:
    """The machine's clock is wrong for a while: hours or years behind the ledger's last event."""
    hours = (3, 24 * 400)[a % 2]
    file = chosen(world.files, b)
    if file is None or world.forbidden or world.hours - hours > world.paid_at_hours - 2:
        return
    clock.wrong_s = -hours * 3600
    try:
        call, command = prepare(world, file, [], forbidden="the clock is behind the ledger")
        world.end(command, run_here(call))
    finally:
        clock.wrong_s = 0.0


def clock_ahead(world: World, a: int, b: int, c: int) -> None:
    """The machine's clock is days ahead for a while: by that alone no bill is due again."""
    file = chosen(world.files, b)
    if file is None:
        return
    known = {"forbidden": "the clock is not the server's"} if isinstance(world.ledger, LedgerDatabase) else {}
    clock.wrong_s = (75, 150, 24 * 70)[a % 3] * 3600
    try:
        call, command = prepare(world, file, [], **known)
        world.end(command, run_here(call))
    finally:
        clock.wrong_s = 0.0


def _try_there(
    world: World, home: Path, a: int, files: list[File], why: str, machine: str = "machine-one", **environment: str
) -> None:
    """Submit a file and resume a batch in another home: neither may send anything."""
    file, batch = chosen(files, a), chosen(_alive(world), a)
    tries: list[tuple[list[str], list[Row]]] = []
    if file is not None:
        tries.append((["submit", file.name, "--json"], file.rows))
    if batch is not None:
        tries.append((["resume", batch.name, "--json"], batch.rows))
    _must_send_nothing(world, home, tries, why, BATCHPAY_MACHINE=machine, **environment)


def _must_send_nothing(
    world: World, home: Path, tries: list[tuple[list[str], list[Row]]], why: str, **environment: str
) -> None:
    for arguments, rows in tries:
        call = world.call(*arguments, home=home)
        call = Call(call.arguments, str(home), {**call.environment, **environment})
        command = world.begin(call, rows=list(rows), forbidden=why)
        command.disturbed = True
        done = run_here(call)
        sent = world.gateway.of(command.name)
        world.story[-1] += f" -> {done.code}   ({why})"
        if sent:
            raise Violation(f"{len(sent)} payments arrived although {why}")


def _alive(world: World) -> list[Batch]:
    return [one for one in world.batches.values() if not one.lost]


def other_environment(world: World, a: int, b: int, c: int) -> None:
    """The setting says that the gateway is the other kind, test or live, while its address stays."""
    file = chosen(world.files, a)
    known = any(one.live == world.live and not one.purged for one in _alive(world))
    if file is None or world.forbidden or not known:
        return
    call, command = prepare(world, file, [], forbidden="its gateway is known as the other one")
    command.disturbed = True
    environment = "test" if world.live else "live"
    mistyped = {**call.environment, "BATCHPAY_ENVIRONMENT": environment}
    world.end(command, run_here(Call(call.arguments, call.folder, mistyped)))


def look_around(world: World, a: int, b: int, c: int) -> None:
    """Display everything: nothing changes, nothing private is shown, and an intact ledger is in order."""
    began = len(world.gateway.arrivals)
    batch = chosen(_alive(world), a)
    looks: list[tuple[str, ...]] = [("status",), ("ledger", "check"), ("health",)]
    if batch is not None:
        looks += [("status", batch.name), ("resolve", batch.name), ("results", batch.name, "--results", "look.csv")]
    if (file := chosen(world.files, a)) is not None:
        looks += [("validate", file.name), ("submit", file.name, "--dry-run")]
    for arguments in looks:
        known = list(file.rows) if file else []
        done = world.run(*arguments, rows=known, forbidden="it only looks")
        wanted = 8 if world.window_open else 0  # what is lost waits for a person
        if arguments == ("ledger", "check") and done.code != wanted and not world.forbidden:
            raise Violation(f"the ledger check ends with {done.code}, not {wanted}: {done.out.strip()[:200]}")
    if len(world.gateway.arrivals) != began:
        raise Violation("looking sent payments")


def go_on_after_a_restore(world: World, a: int, b: int, c: int) -> None:
    """Pay after a backup, restore it, accept it, and submit something new before what was lost is settled."""
    if world.forbidden or world.window_open or world.approvals:
        return
    back_up(world, a, b, c)
    make(world, a, b, c)
    send(world, world.files[-1], [])
    bring_back(world, a, b, c)
    accept(world, a, b, c)
    if b % 2:
        make(world, c, a, b)
    send(world, world.files[-1], [])
