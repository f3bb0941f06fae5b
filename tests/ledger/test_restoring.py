"""A ledger that was copied, restored or replaced sends nothing new until a named person has said so."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchpay.cli.main import cli
from batchpay.errors import (
    LedgerBehind,
    LedgerBesideAnother,
    LedgerElsewhere,
    LedgerNotUsable,
    WrongUse,
)
from batchpay.gateway.credentials import Credentials
from batchpay.ledger import machine
from batchpay.ledger.open import accept, create_ledger, open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.ledger.sqlite import opening
from batchpay.payment import Actor, Totals
from batchpay.sending.pacing import Throttle
from batchpay.sending.sender import Tally
from batchpay.settings import GatewaySettings, LedgerSettings, Secret, Settings
from batchpay.workflows import ledger_care
from batchpay.workflows.run import RunRequest, run_batch
from tests.ledger.batches import ACCEPTED, columns, register, rejected, send
from tests.ledger.factories import LedgerFactory

pytestmark = pytest.mark.ledgers(
    "sqlite",
    why="how a file is copied and put back; a database's copies are in test_postgres_opening.py",
)

_ACTOR = Actor("ada", "test")


class _Said:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Sending starts."""

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Some rows went."""

    def say(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)


@pytest.fixture
def closed(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A closed ledger of machine `one` with a batch of three pending rows and a rejected one."""
    ledger_factory.settings = as_machine(ledger_factory, "one")
    register(ledger_factory.create(), columns(ledger_factory.open(), [1, 2, 3]), rejected([4]))
    ledger_factory.close()
    return ledger_factory


def as_machine(factory: LedgerFactory, name: str) -> LedgerSettings:
    """The same ledger's settings on another machine."""
    old = factory.settings
    return LedgerSettings(url=old.url, key_file=old.key_file, witness=old.witness, machine=name)


def restored(factory: LedgerFactory, tmp_path: Path) -> int:
    """Copy the ledger, send a row, bring the copy back; gives how many events it lost."""
    ledger = factory.open()
    ledger.backup(tmp_path / "copy.db")
    before = len(list(ledger.events()))
    send(ledger, None, {1: ACCEPTED}, "stopped")
    lost = len(list(ledger.events())) - before
    factory.close()
    (tmp_path / "copy.db").replace(factory.path)
    return lost


# Another machine


def test_a_copy_on_another_machine_is_not_written_to_until_a_person_accepts_it(closed: LedgerFactory) -> None:
    """Ledger, key and witness cloned together agree with each other: only the machine tells them apart."""
    closed.settings = as_machine(closed, "two")
    with pytest.raises(LedgerElsewhere, match=r"another machine; nothing was sent now; if the other .* ledger accept"):
        closed.open()
    looked_at = closed.open(read_only=True)
    assert looked_at.check() == []
    assert "was last used on another machine; if the other sends nothing more" in (looked_at.outdated or "")
    closed.close()
    accept(closed.settings, "ben", "the old server is switched off")
    ledger = closed.open()
    send(ledger, None, {1: ACCEPTED}, "stopped")
    events = [event for event in ledger.events() if event.kind == "machine accepted"]
    assert [(event.who, event.why) for event in events] == [("ben", "the old server is switched off")]
    assert "two" not in events[0].detail
    closed.close()
    closed.settings = as_machine(closed, "one")
    with pytest.raises(LedgerElsewhere):
        closed.open()


def test_a_machine_is_accepted_with_name_and_reason_and_only_where_it_is_another(closed: LedgerFactory) -> None:
    """On its own machine there is nothing to accept, and nobody accepts anonymously."""
    with pytest.raises(WrongUse, match="nothing to accept"):
        accept(closed.settings, "ben", "because")
    closed.settings = as_machine(closed, "two")
    for who, why in (("", "x"), ("ben", " ")):
        with pytest.raises(WrongUse, match="named person"):
            accept(closed.settings, who, why)
    with pytest.raises(LedgerElsewhere):
        closed.open()


def test_a_machine_without_an_identity_compares_nothing_and_forgets_nothing(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a container the check is off; what the witness knows of the machine stays for the next one that has a name."""
    monkeypatch.setattr(machine, "MACHINE_ID", tmp_path / "machine-id")
    closed.settings = as_machine(closed, "")
    for row, content in enumerate((None, "", "uninitialized\n"), start=1):
        if content is not None:
            (tmp_path / "machine-id").write_text(content)
        assert machine.machine_name(closed.settings) is None
        send(closed.open(), None, {row: ACCEPTED}, "stopped")
        closed.close()
    (tmp_path / "machine-id").write_text("0f" * 16 + "\n")
    assert machine.machine_name(closed.settings) == "0f" * 16
    with pytest.raises(LedgerElsewhere):
        closed.open()
    closed.settings = as_machine(closed, "one")
    assert len(closed.open().batches()) == 1


def test_a_machine_without_an_identity_accepts_no_machine(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would make the witness forget the machine that it knows."""
    monkeypatch.setattr(machine, "MACHINE_ID", tmp_path / "none")
    closed.settings = as_machine(closed, "")
    with pytest.raises(WrongUse, match="nothing to accept"):
        accept(closed.settings, "ben", "because")


def test_another_ledgers_witness_says_nothing_of_the_machine(closed: LedgerFactory, tmp_path: Path) -> None:
    """Put in the place of ours and accepted: its machine is not this ledger's, and nothing tells what was lost."""
    other = LedgerFactory(tmp_path / "other")
    other.key.parent.mkdir(parents=True, mode=0o700)
    other.key.write_bytes(closed.key.read_bytes())
    other.key.chmod(0o600)
    other.settings = as_machine(other, "two")
    other.create()
    other.close()
    closed.witness.write_bytes(other.witness.read_bytes())
    with pytest.raises(LedgerBehind, match="belongs to another ledger"):
        closed.open()
    assert closed.accept_loss("the wrong file came back").last_event is None
    assert len(closed.open().batches()) == 1


def test_a_witness_of_an_earlier_version_learns_the_machine(closed: LedgerFactory) -> None:
    """A record without a machine is taken over by the next event."""
    unnamed = LedgerFactory(closed.folder / "second")
    unnamed.settings = as_machine(unnamed, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "MACHINE_ID", closed.folder / "none")
        register(unnamed.create(), columns(unnamed.open(), [1, 2]))
        unnamed.close()
    unnamed.settings = as_machine(unnamed, "one")
    send(unnamed.open(), None, {1: ACCEPTED}, "stopped")
    unnamed.close()
    unnamed.settings = as_machine(unnamed, "two")
    with pytest.raises(LedgerElsewhere):
        unnamed.open()


# A second ledger


def second(closed: LedgerFactory) -> LedgerSettings:
    """Settings that name another place for the ledger, under the same key."""
    return LedgerSettings(url=str(closed.folder / "elsewhere" / "ledger.db"), key_file=str(closed.key), machine="one")


def test_a_ledger_beside_the_witness_of_another_takes_a_reason(closed: LedgerFactory) -> None:
    """A mistyped ledger.url would pay everything again; the reason stands in the new ledger's history."""
    settings = second(closed)
    with pytest.raises(LedgerBesideAnother, match="would not know"):
        create_ledger(settings, "ben")
    assert not Path(settings.url).parent.exists()
    create_ledger(settings, "ben", "a ledger of its own for the subsidiary")
    with closing(open_ledger(settings)) as ledger:
        assert [(event.kind, event.why) for event in ledger.events()] == [
            ("created", "a ledger of its own for the subsidiary")
        ]


def test_a_witness_without_payments_asks_for_nothing(ledger_factory: LedgerFactory) -> None:
    """Two ledgers that never paid may stand side by side."""
    ledger_factory.create()
    create_ledger(second(ledger_factory), "ben")


def test_no_new_key_is_written_where_a_witness_lies(closed: LedgerFactory) -> None:
    """Without its key a witness proves nothing: a new key would make the ledger, wherever it is, unreadable."""
    closed.key.unlink()
    for settings in (second(closed), closed.settings):
        for path in (closed.path, *closed.path.parent.glob("ledger.db-*")):
            path.unlink(missing_ok=True)
        with pytest.raises(LedgerNotUsable):
            create_ledger(settings, "ben")
        assert not closed.key.exists()


def test_init_without_a_terminal_names_the_option(closed: LedgerFactory) -> None:
    """Nothing is asked where nobody answers; with the option and a reason the second ledger is made."""
    settings = second(closed)
    environment = {"BATCHPAY_LEDGER": settings.url, "BATCHPAY_LEDGER_KEY_FILE": settings.key_file}
    asked = CliRunner().invoke(cli, ["ledger", "init"], env=environment)
    assert isinstance(asked.exception, LedgerBesideAnother)
    assert "--beside-another --reason" in str(asked.exception)
    unexplained = CliRunner().invoke(cli, ["ledger", "init", "--beside-another"], env=environment)
    assert isinstance(unexplained.exception, WrongUse)
    by_variable = environment | {"BATCHPAY_BESIDE_ANOTHER": "1", "BATCHPAY_REASON": "x"}
    assert isinstance(CliRunner().invoke(cli, ["ledger", "init"], env=by_variable).exception, LedgerBesideAnother)
    made = CliRunner().invoke(cli, ["ledger", "init", "--beside-another", "--reason", "a subsidiary"], env=environment)
    assert made.exception is None or made.exit_code == 0


@pytest.mark.parametrize(("answer", "is_made"), [("a subsidiary\n", True), ("\n", False)])
def test_init_on_a_terminal_asks(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, answer: str, is_made: bool
) -> None:
    """The answer is the reason; none ends the command with nothing made."""
    settings = second(closed)
    monkeypatch.setenv("BATCHPAY_LEDGER", settings.url)
    monkeypatch.setenv("BATCHPAY_LEDGER_KEY_FILE", settings.key_file)
    monkeypatch.setattr("batchpay.cli.output.is_terminal", lambda: True)
    CliRunner().invoke(cli, ["ledger", "init"], input=answer)
    assert Path(settings.url).exists() is is_made


# A restored ledger


def test_a_copy_that_went_on_elsewhere_is_not_the_latest_however_long(closed: LedgerFactory, tmp_path: Path) -> None:
    """Put in the place of ours it has an event of the number that the witness knows, but another one."""
    clone = LedgerFactory(tmp_path / "clone")
    for place, other in ((closed.path, clone.path), (closed.key, clone.key), (closed.witness, clone.witness)):
        other.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(place, other)
    clone.settings = as_machine(clone, "one")
    send(closed.open(), None, {1: ACCEPTED}, "stopped")
    with pytest.raises(LedgerElsewhere, match="is not the file that was last used"):
        clone.open()
    accept(clone.settings, "ben", "the first is not used any more, he thinks")
    send(clone.open(), None, {2: ACCEPTED}, "stopped")
    send(clone.open(), None, {3: ACCEPTED}, "stopped")
    for factory in (closed, clone):
        factory.close()
    shutil.copyfile(clone.path, closed.path)
    with pytest.raises(LedgerBehind, match="older than its witness"):
        closed.open()


def test_all_that_differs_is_told_and_accepted_at_once(closed: LedgerFactory, tmp_path: Path) -> None:
    """A copy restored on another machine: each difference and what accepting it means, and one word for both."""
    restored(closed, tmp_path)
    closed.settings = as_machine(closed, "two")
    found = ledger_care.check_ledger(closed.settings)
    assert [problem.partition(";")[0].partition(":")[0] for problem in found.problems] == [
        f"the ledger is older than its witness {closed.witness}",
        f"the ledger {closed.path} was last used on another machine",
    ]
    assert found.accepting[0].startswith("accepting it puts 3 rows in doubt that it would send, and no new file")
    assert found.accepting[1].startswith("accepting it changes no row and holds up no file: where it was, nothing more")
    accept(closed.settings, "ben", "the old server died with its disk")
    assert closed.open().lost_window() is not None


def test_check_tells_of_a_restored_ledger_by_its_exit_code(closed: LedgerFactory, tmp_path: Path) -> None:
    """`ledger check` ends with 8 while a person must still look, with 0 afterwards; no variable settles it.

    On another machine it said that all was in order, and the next submission was refused.
    """
    (closed.folder / "batchpay.toml").write_text(
        f"[ledger]\nwitness = {json.dumps(str(closed.witness))}\nmachine = 'one'\n"
    )
    environment = {
        "BATCHPAY_LEDGER": closed.settings.url, "BATCHPAY_LEDGER_KEY_FILE": closed.settings.key_file,
        "BATCHPAY_CONFIG": str(closed.folder / "batchpay.toml"),
    }  # fmt: skip

    def check(*options: str, **more: str) -> int:
        asked = ["ledger", "accept" if options else "check", *options]
        done = CliRunner().invoke(cli, asked, env=environment | more, standalone_mode=False)
        return int(done.return_value) if done.exception is None else int(getattr(done.exception, "exit_code", 1))

    assert check() == 0
    assert check(BATCHPAY_MACHINE="two") == 5
    lost = restored(closed, tmp_path)
    assert lost
    assert check("--reason", " ") == 2
    assert check("--reason", "the disk died") == 0
    assert check("--reason", "the disk died") == 2
    assert check("--rows-in-doubt", BATCHPAY_CONFIRM="1", BATCHPAY_REASON="x") == 2
    assert check() == 8
    assert check("--confirm") == 0
    assert check() == 0


def test_a_restored_ledger_that_is_only_read_says_that_its_numbers_may_be_old(
    closed: LedgerFactory, tmp_path: Path
) -> None:
    """What was paid since stood there as pending, `resolve` said that no row is in doubt, and nothing else was said."""
    assert closed.open(read_only=True).find(None).outdated is None
    restored(closed, tmp_path)
    found = closed.open(read_only=True).find(None)
    assert found.outdated is not None
    assert found.outdated.startswith(f"the ledger is older than its witness {closed.witness}")
    assert "nothing was sent" not in found.outdated
    (tmp_path / "batchpay.toml").write_text(f"[ledger]\nwitness = {json.dumps(str(closed.witness))}\n")
    environment = {
        "BATCHPAY_LEDGER": closed.settings.url, "BATCHPAY_LEDGER_KEY_FILE": closed.settings.key_file,
        "BATCHPAY_CONFIG": str(tmp_path / "batchpay.toml"), "BATCHPAY_MACHINE": "one",
        "BATCHPAY_BASE_URL": "http://127.0.0.1:9", "BATCHPAY_API_ID": "a", "BATCHPAY_API_KEY": "k",
    }  # fmt: skip
    sample = str(files("batchpay") / "samples" / "small.csv")
    commands = (
        ["status"], ["status", found.batch], ["resolve", found.batch], ["validate", sample],
        ["submit", sample, "--dry-run"],
    )  # fmt: skip

    def told() -> tuple[list[bool], int]:
        done = [CliRunner().invoke(cli, command, env=environment, standalone_mode=False) for command in commands]
        shown = ["note: these numbers may be old: the ledger is older" in one.output for one in done]
        return shown, done[-1].return_value

    assert told() == ([True] * 5, 5), "a dry run ends as the submission would, which this ledger refuses"
    accept(closed.settings, "ben", "the disk died")
    assert closed.open(read_only=True).find(None).outdated is None
    assert told() == ([False] * 5, 8)


# The clock


def move_last_event(factory: LedgerFactory, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand so many hours after the ledger's last event."""
    with closing(sqlite3.connect(factory.path)) as connection:
        last = connection.execute("SELECT at FROM event ORDER BY number DESC LIMIT 1").fetchone()[0]
    for module in (opening, machine):
        monkeypatch.setattr(module, "now_ms", lambda: last + int(hours * 3_600_000))
    monkeypatch.setattr(machine, "BOOT_ID", factory.folder / "none")


@pytest.mark.parametrize(("hours", "refused"), [(-1.1, True), (-0.9, False), (0, False), (24 * 900, False)])
def test_a_clock_before_the_last_event_is_refused(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, hours: float, refused: bool
) -> None:
    """More than an hour before it every date would be wrong: nothing is written, reading goes on."""
    move_last_event(closed, hours, monkeypatch)
    closed.open(read_only=True)
    if refused:
        with pytest.raises(LedgerNotUsable, match=r"set the clock, or .* ledger accept"):
            closed.open()
    else:
        assert abs(closed.open().opened_after_s - hours * 3600) < 1


def test_a_clock_that_was_ahead_is_accepted_and_speaks_of_no_loss(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row stays as it is, and new files are registered: nothing was lost, a date was wrong."""
    with monkeypatch.context() as before:
        move_last_event(closed, -30, before)
        found = ledger_care.check_ledger(closed.settings)
        assert found.accepting == ["accepting it changes no row and holds up no file"]
        accepted = accept(closed.settings, "ann", "the clock was ahead on Friday")
    assert (accepted.marked_in_doubt, accepted.lost) == (0, None)
    ledger = closed.open()
    assert [event.why for event in ledger.events() if event.kind == "clock accepted"] == [
        "the clock was ahead on Friday"
    ]
    assert register(ledger, columns(ledger, [1], salt="new"), content=b"new")


@pytest.mark.parametrize(("days", "warned"), [(59, False), (61, True)])
def test_a_run_warns_of_a_clock_far_after_the_last_event(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch, days: int, warned: bool
) -> None:
    """Months without a payment are rare: the date may be wrong. Only a warning."""
    register(ledger_factory.create(), columns(ledger_factory.open(), []), rejected([1]))
    ledger_factory.close()
    move_last_event(ledger_factory, 24 * days + 1, monkeypatch)
    ledger, said = ledger_factory.open(), _Said()
    batch = ledger.find(None)
    settings = Settings(gateway=GatewaySettings(base_url=batch.origin))
    with ledger.lock(batch.digest):
        run_batch(ledger, batch, settings, Credentials("id", Secret("key")), RunRequest(None), _ACTOR, said)
    assert any(f"{days} days after the ledger's last event" in line for line in said.lines) is warned


# Backups


def backup(factory: LedgerFactory, *arguments: str) -> int:
    """Run `ledger backup`; gives its exit code."""
    environment = {"BATCHPAY_LEDGER": factory.settings.url, "BATCHPAY_LEDGER_KEY_FILE": factory.settings.key_file}
    (factory.folder / "batchpay.toml").write_text(
        f"[ledger]\nwitness = {json.dumps(str(factory.witness))}\nmachine = 'one'\n"
    )
    environment["BATCHPAY_CONFIG"] = str(factory.folder / "batchpay.toml")
    done = CliRunner().invoke(cli, ["ledger", "backup", *arguments], env=environment, standalone_mode=False)
    return int(done.return_value) if done.exception is None else int(getattr(done.exception, "exit_code", 1))


def test_a_folder_keeps_the_latest_copies_and_nothing_else_is_removed(closed: LedgerFactory, tmp_path: Path) -> None:
    """Copies are named after the time; that one was made stands in the history, where health looks for it.

    One that this ledger did not make may be another ledger's only one: each night's of the rehearsals' ledger removed
    that of the other.
    """
    folder = tmp_path / "safe"
    folder.mkdir()
    others = ["ledger-20200101T000000Z.db", "ledger-of-2019.db", "notes.txt"]
    for name in others:
        (folder / name).write_text("x")
    assert [backup(closed, str(folder), "--keep", "2") for _ in range(4)] == [0, 0, 0, 0]
    made = [json.loads(event.detail)["file"] for event in closed.open().events() if event.kind == "backed up"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(others + made[2:])
    event = closed.open().latest_event("backed up")
    assert event is not None
    assert json.loads(event.detail) == {"file": made[-1]}
    assert backup(closed, str(tmp_path / "copy.db"), "--keep", "2") == 2
    assert not (tmp_path / "copy.db").exists()


def test_a_copy_of_a_clock_that_was_ahead_does_not_count_as_the_latest(closed: LedgerFactory, tmp_path: Path) -> None:
    """By its name it was: once the clock was right, each new copy was removed as soon as it had been written."""
    names = []
    for now in (datetime(2030, 1, 1, tzinfo=UTC), datetime(2026, 7, 24, tzinfo=UTC)):
        names.append(ledger_care.back_up(closed.settings, tmp_path, 1, now, _ACTOR)[0].name)
        assert [path.name for path in tmp_path.glob("ledger-*Z.db")] == [names[-1]]


def test_copies_of_one_second_stand_beside_one_another(closed: LedgerFactory, tmp_path: Path) -> None:
    """The second ended with 5: a person's copy and the nightly one were made at once. The oldest goes first."""
    now = datetime(2026, 7, 24, 18, tzinfo=UTC)

    def copied(keep: int | None = None) -> str:
        target, problem = ledger_care.back_up(closed.settings, tmp_path, keep, now, _ACTOR)
        assert problem is None
        return target.name

    names = [f"ledger-20260724T180000Z{number}.db" for number in ("", "-2", "-3", "-4")]
    assert [copied(), copied(), copied(2)] == names[:3]
    assert copied(1) == names[3]
    assert [path.name for path in tmp_path.glob("ledger-*")] == names[3:]


def test_a_copy_that_can_not_be_read_back_is_no_backup(closed: LedgerFactory, tmp_path: Path) -> None:
    """What is wrong with the ledger is wrong with its copy: found when it is made, not on the day it is needed."""
    with closing(sqlite3.connect(closed.path)) as connection:
        connection.executescript("UPDATE total SET cents = cents + 1 WHERE state = 3")
    assert backup(closed, str(tmp_path / "copy.db")) == 5
    assert not (tmp_path / "copy.db").exists()


def test_a_copy_for_which_there_is_no_room_leaves_nothing(
    closed: LedgerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is removed; what SQLite keeps next to it stayed, and so each try left less room on the full disk."""

    def fails(store: object, copy: sqlite3.Connection) -> list[str]:
        Path(f"{tmp_path / 'copy.db'}-wal").touch()  # as where SQLite could not remove it
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("batchpay.ledger.sqlite.backup.check_short", fails)
    with pytest.raises(LedgerNotUsable):
        closed.open().backup(tmp_path / "copy.db")
    assert list(tmp_path.glob("copy.db*")) == []


def test_a_copy_of_a_damaged_file_is_no_backup(closed: LedgerFactory, tmp_path: Path) -> None:
    """The file's count of free pages is wrong: the next payments could be written over others.

    Not seen while the schema had views: SQLite then checks the tables one by one, and no list of free pages.
    """
    with closing(sqlite3.connect(closed.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    with closed.path.open("r+b") as file:
        file.seek(36)
        file.write((free + 9).to_bytes(4))
    ledger = closed.open(read_only=True)
    with pytest.raises(LedgerNotUsable, match="could not be read back"):
        ledger.backup(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_damaged_pages_are_the_ledgers_and_told_once(closed: LedgerFactory, tmp_path: Path) -> None:
    """A backup named its own copy as damaged, and an opening said twice that nothing was sent."""
    with closing(sqlite3.connect(closed.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(closed.path.read_bytes())
    content[2 * page_bytes :: 7] = bytes(len(content[2 * page_bytes :: 7]))
    closed.path.write_bytes(content)
    with pytest.raises(LedgerNotUsable, match=f"^the ledger {closed.path} is damaged.*restore its latest backup"):
        closed.open(read_only=True).backup(tmp_path / "copy.db")
    with pytest.raises(LedgerNotUsable) as refused:
        closed.open()
    assert str(refused.value).count("nothing was sent") == 1


def test_a_copy_whose_index_lacks_a_row_is_no_backup(closed: LedgerFactory, tmp_path: Path) -> None:
    """Left by an old log beside a restored file: nobody could accept such a copy on the day it is needed."""
    with closing(sqlite3.connect(closed.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'batch_digest'").fetchone()[0]
    with closed.path.open("r+b") as file:
        file.seek(root * page_bytes - 1)
        (byte,) = file.read(1)
        file.seek(root * page_bytes - 1)
        file.write(bytes([byte ^ 0xFF]))
    with pytest.raises(LedgerNotUsable, match="could not be read back"):
        closed.open(read_only=True).backup(tmp_path / "copy.db")
