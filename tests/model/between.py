"""What others do between a look and the act that follows from it: restore the ledger, pay a bill, put a row back.

A large file is checked for minutes, and whoever decides about a row takes as long: by then things may be different.
"""

from __future__ import annotations

from tests.model.actions import SHAPES, chosen, make, options_of, prepare, send, settle
from tests.model.business import Batch
from tests.model.command import Call, Done, run_here
from tests.model.disasters import accept, back_up, put_back
from tests.model.files import read_table, write_table
from tests.model.meanwhile import export_line, settle_by_export
from tests.model.world import Command, File, Violation, World

_LOOKS = ("lock", "account")
"""When a file is checked and not yet registered, and while it is being checked."""
_UNNAMED = (SHAPES.index("plain"), SHAPES.index("invoice"))
_ELSEWHERE = "http://127.0.0.1:9"
_DECIDED = ("--reason", "looked it up", "--name", "Grace", "--yes", "--json")
Ended = list[tuple[Command, Done]]


def one_in_another(world: World, a: int, b: int, c: int) -> None:
    """Anything that people do happens at a moment of a submission, or of a batch that goes on."""
    file = chosen(world.files, a)
    if file is None or world.forbidden:
        return
    act_of = (_submission, _resumption, _settling, _restore)[c % 4]
    moment = _LOOKS[b % 2] if act_of is _restore else (*_LOOKS, "connection", "payment")[b % 4]
    call, command = _continuing(world, file, resumes=c // 4 % 2 == 0)
    world.run_with_hook(call, command, lambda: act_of(world, command, b // 4), moment)


def _submission(world: World, command: Command, number: int) -> Ended:
    file = chosen(world.files, number)
    call, inner = prepare(world, file, options_of(number, number)) if file else (None, None)
    return _forked(world, call, inner)


def _resumption(world: World, command: Command, number: int) -> Ended:
    file = chosen(world.files, number)
    call, inner = _continuing(world, file, resumes=True) if file else (None, None)
    return _forked(world, call, inner)


def _settling(world: World, command: Command, number: int) -> Ended:
    batch = chosen([one for one in world.batches.values() if one.doubts and not one.lost], number)
    if batch is None:
        return []
    call, inner = _decision(world, batch)
    ended = _forked(world, call, inner)
    if "settled" in ended[0][1].json:
        settle(world, batch, _in_doubt(batch), "send again")
    return ended


def _restore(world: World, command: Command, number: int) -> Ended:
    if world.backup is not None:
        put_back(world, world.backup, in_use=True)
        command.forbidden = command.forbidden or world.forbidden
    return []


def _forked(world: World, call: Call | None, command: Command | None) -> Ended:
    if call is None or command is None:
        return []
    command.disturbed = True
    return [(command, world.forks.run(call))]


def restored_in_use(world: World, a: int, b: int, c: int) -> None:
    """The ledger is restored while a submission that has it open checks its file, and perhaps one more or a decision.

    Of what was paid since the backup no results tell: only the witness knows.
    """
    if _is_stopped(world):
        return
    doubtful = _doubtful(world, b, a) if a % 3 == 2 else None
    file = _new_file(world, a, b)
    if b % 2:
        send(world, file, ["--limit", "1"])
    back_up(world, a, b, c)
    backup, began = world.backup, len(world.gateway.arrivals)
    send(world, file, [])
    if backup is None or all(one.void == "not applied" for one in world.gateway.arrivals[began:]):
        return
    _take_results_away(world)
    other = _new_file(world, b, a)
    call, command = _continuing(world, file, resumes=c % 3 == 2)

    def restore() -> Ended:
        put_back(world, backup, in_use=True)
        for one in under_way:
            one.forbidden = "the ledger was restored while it was open"
        return []

    def restore_under_another() -> Ended:
        if doubtful is None:
            inner_call, inner = prepare(world, other, [])
        else:
            inner_call, inner = _decision(world, doubtful)
        inner.disturbed = True
        under_way.append(inner)
        done = run_here(inner_call, "lock", [restore])
        if "settled" in done.json:
            raise Violation("a row in doubt is settled in a ledger that was restored while it was open")
        return [(inner, done)]

    under_way = [command]
    moment = "lock" if c % 3 == 2 else _LOOKS[c % 2]
    world.run_with_hook(call, command, restore_under_another if moment == "lock" and a % 3 else restore, moment)
    send(world, file, [])


def let_through_elsewhere(world: World, a: int, b: int, c: int) -> None:
    """A bill that waits is paid with another file, on purpose, while its own batch is looked up or its file checked."""
    if _is_stopped(world):
        return
    file = _new_file(world, a, _UNNAMED[b % 2])
    send(world, file, ["--limit", "1"])
    other = world.save(world.new_name(), file.rows[1:])
    call, command = _continuing(world, file, resumes=c % 3 == 2)

    def pay() -> Ended:
        inner_call, inner = prepare(world, other, ["--allow-duplicates", "--reason", "overdue"])
        inner.disturbed = True
        return [(inner, world.forks.run(inner_call))]

    world.run_with_hook(call, command, pay, "lock" if c % 3 == 2 else _LOOKS[c % 2])


def put_back_unapproved(world: World, a: int, b: int, c: int) -> None:
    """A row in doubt is put back while its batch, of which nothing waited, is looked up: it needs today's approvals."""
    batch = _doubtful(world, a, b)
    if batch is None:
        return
    world.approvals = 1
    world.write_settings()
    call = world.call("resume", batch.name, "--json")
    command = world.begin(call, rows=list(batch.rows), known=batch, forbidden="nobody approved what was put back")

    def decide() -> Ended:
        inner_call, inner = _decision(world, batch)
        done = world.forks.run(inner_call)
        if "settled" in done.json:
            settle(world, batch, _in_doubt(batch), "send again")
        return [(inner, done)]

    world.run_with_hook(call, command, decide, "lock")
    world.approvals = 0
    world.write_settings()


def gateway_moved(world: World, a: int, b: int, c: int) -> None:
    """The gateway gets another address while a batch is looked up: nothing is sent to the old one."""
    if _is_stopped(world):
        return
    file = _new_file(world, a, b)
    send(world, file, ["--limit", "1"])
    here = world.gateway.origin(live=world.live)
    call, command = _continuing(world, file, resumes=c % 2 == 0)

    def move() -> Ended:
        inner_call = world.call("ledger", "move-gateway", here, _ELSEWHERE, "--reason", "their letter")
        inner = world.begin(inner_call)
        done = world.forks.run(inner_call)
        command.forbidden = command.forbidden or ("" if done.code else "its gateway has moved")
        return [(inner, done)]

    world.run_with_hook(call, command, move, "lock")
    world.run("ledger", "move-gateway", _ELSEWHERE, here, "--reason", "it was a mistake")


def other_company(world: World, a: int, b: int, c: int) -> None:
    """A batch of which something is paid goes on under the settings of another company, in the same ledger."""
    if _is_stopped(world):
        return
    file = _new_file(world, a, b)
    send(world, file, ["--limit", "1"])
    batch = world.known_batch(file.rows, live=world.live)
    if batch is None or not {"accepted", "declined", "in_doubt"}.intersection(batch.states.values()):
        return
    call, command = _continuing(world, file, resumes=c % 2 == 0)
    command.forbidden = command.forbidden or "its account is another company's"
    command.disturbed = True
    environment = {**call.environment, "BATCHPAY_API_ID": "neighbor"}
    world.end(command, run_here(Call(call.arguments, call.folder, environment)))


def other_environment_first(world: World, a: int, b: int, c: int) -> None:
    """Two calls begin together, one of them with a mistyped environment: it is not paid in both."""
    if _is_stopped(world) or any(one.live == world.live for one in world.batches.values()):
        return
    file = _new_file(world, a, b)
    call, command = prepare(world, file, [])
    mistyped = {**call.environment, "BATCHPAY_ENVIRONMENT": "test" if world.live else "live"}

    def pay() -> Ended:
        inner_call, inner = prepare(world, file, [])
        inner.disturbed = True
        done = world.forks.run(inner_call)
        if world.gateway.of(inner.name):
            command.forbidden = "its gateway is known as the other one"
        return [(inner, done)]

    world.run_with_hook(Call(call.arguments, call.folder, mistyped), command, pay, _LOOKS[c % 2])


def old_papers(world: World, a: int, b: int, c: int) -> None:
    """What tells of a row's first attempt settles nothing in a restored ledger that does not know of the second one.

    The row is sent again by a sheet, before or after the backup, and no results tell of it.
    """
    batch = _doubtful(world, a, b)
    if batch is None:
        return
    number = _in_doubt(batch)
    _fill_sheet(world, batch)
    if b % 2:
        back_up(world, a, b, c)
    _by_sheet(world, batch, number)
    if not b % 2:
        back_up(world, a, b, c)
    row = batch.row(number)
    if not _sent_and_restored(world, batch, a, b, c) or row is None or batch.states.get(number) != "in_doubt":
        return
    arrival = next(one for one in world.gateway.arrivals if one.payment == number)
    kind = "an earlier attempt's"
    if settle_by_export(world, batch, kind, [export_line(row, str(arrival.invoice), kind)]):
        raise Violation(f"E{number} is settled by the refusal of an attempt before the restore")
    if _by_sheet(world, batch, number):
        raise Violation(f"E{number} is settled by a sheet from before the restore")


def between_restores(world: World, a: int, b: int, c: int) -> None:
    """A sheet that was written after one restore settles nothing after the next one of the same backup."""
    batch = _doubtful(world, a, b)
    if batch is None:
        return
    number = _in_doubt(batch)
    back_up(world, a, b, c)
    for _ in range(2):
        _fill_sheet(world, batch)
        _by_sheet(world, batch, number)
        if not _sent_and_restored(world, batch, a, b, c) or batch.states.get(number) != "in_doubt":
            return
    if _by_sheet(world, batch, number):
        raise Violation(f"E{number} is settled by a sheet from before the second restore of one backup")


def _sent_and_restored(world: World, batch: Batch, a: int, b: int, c: int) -> bool:
    """Send what waits, and restore the ledger without the results; return whether anything had been sent."""
    world.gateway.answers = ["success" if c % 2 else "none"]
    world.run("resume", batch.name, "--json", rows=list(batch.rows), known=batch)
    if world.backup is None or len(world.gateway.arrivals) == world.backup.arrivals:
        return False
    _take_results_away(world)
    put_back(world, world.backup)
    accept(world, a, b, c)
    return True


def _new_file(world: World, a: int, b: int) -> File:
    """Write a file of new payments, all of them valid."""
    make(world, a, b, 1)
    return world.files[-1]


def _doubtful(world: World, a: int, b: int) -> Batch | None:
    """Submit two payments, of which the second one is not answered; return their batch, or None if nothing is sent."""
    if _is_stopped(world):
        return None
    file = _new_file(world, 2 * a, b)
    world.gateway.answers = ["success", "none"]
    send(world, file, [])
    batch = world.known_batch(file.rows, live=world.live)
    return batch if batch is not None and batch.doubts else None


def _in_doubt(batch: Batch) -> int:
    """Return the payment of its first row in doubt."""
    return next(number for number, state in batch.states.items() if state == "in_doubt")


def _decision(world: World, batch: Batch) -> tuple[Call, Command]:
    """Prepare a person's decision that the first row in doubt be sent again."""
    place = [row.number for row in batch.rows].index(_in_doubt(batch)) + 1
    call = world.call("resolve", batch.name, "--row", str(place), "--decision", "send again", *_DECIDED)
    return call, world.begin(call)


def _continuing(world: World, file: File, *, resumes: bool) -> tuple[Call, Command]:
    """Prepare the submission of a file whose batch is known, or its batch's resumption."""
    batch = world.known_batch(file.rows, live=world.live)
    if not resumes or batch is None:
        return prepare(world, file, [])
    call = world.call("resume", batch.name, "--stale", "--reason", "still due", "--json")
    return call, world.begin(call, rows=list(batch.rows), known=batch)


def _take_results_away(world: World) -> None:
    for path in world.home.glob("*.results*"):
        path.unlink()
    world.results.clear()


def _fill_sheet(world: World, batch: Batch) -> None:
    """Write the sheet of a batch's rows in doubt, and want all of them sent again."""
    sheet = world.home / "doubts.csv"
    sheet.unlink(missing_ok=True)
    world.run("resolve", batch.name, "--export", str(sheet), "--json")
    write_table(sheet, [{**line, "decision": "send again"} for line in read_table(sheet)])


def _by_sheet(world: World, batch: Batch, number: int) -> bool:
    done = world.run("resolve", batch.name, "--from", "doubts.csv", *_DECIDED)
    if done.code in (0, 7) and "settled" in done.json:
        settle(world, batch, number, "send again")
        return True
    return False


def _is_stopped(world: World) -> bool:
    return bool(world.forbidden or world.window_open or world.approvals)
