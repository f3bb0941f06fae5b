"""Every SQLite ledger that a run must not build on is refused, in words that say what to do."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import (
    BatchHeld,
    LedgerBehind,
    LedgerDamaged,
    LedgerMissing,
    LedgerNewer,
    LedgerNotUsable,
    SettingsNotUsable,
)
from batchpay.ledger import paths
from batchpay.ledger.keys import create_key_file, load_keys
from batchpay.ledger.open import accept, create_ledger, location, open_ledger, weaknesses
from batchpay.ledger.paths import FileLock, file_system, make_private_directory
from batchpay.ledger.sqlite import opening
from batchpay.ledger.sqlite.store import SqliteStore, lock_path, translate
from tests.ledger.batches import columns, held_run, register, states
from tests.ledger.factories import LedgerFactory

FILE = pytest.mark.ledgers(
    "sqlite", why="a file's place, rights, format and locks; a server's are in test_postgres_opening.py"
)


@pytest.fixture
def closed(ledger_factory: LedgerFactory) -> LedgerFactory:
    """A ledger with one batch that nobody has open."""
    register(ledger_factory.create(), columns(ledger_factory.open(), [1, 2, 3]))
    ledger_factory.close()
    return ledger_factory


def edit(path: Path, statement: str) -> None:
    """Change the ledger behind batchpay's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@FILE
def test_a_missing_ledger_is_not_made_by_opening_it(ledger_factory: LedgerFactory) -> None:
    """A disk that is not mounted must not look like an empty ledger."""
    with pytest.raises(LedgerMissing, match="ledger init"):
        ledger_factory.open()
    assert not ledger_factory.path.exists()


@FILE
def test_a_link_to_nothing_is_a_missing_ledger(closed: LedgerFactory) -> None:
    """A dangling symbolic link is refused."""
    closed.path.rename(closed.path.with_name("moved.db"))
    closed.path.symlink_to("nowhere.db")
    with pytest.raises(LedgerMissing, match="link to a missing file"):
        closed.open()


@FILE
def test_a_symbolic_link_is_followed_to_the_one_canonical_name(closed: LedgerFactory) -> None:
    """Journals are named after the real file, whatever name it was opened by."""
    real = closed.path.with_name("real.db")
    closed.path.rename(real)
    closed.path.symlink_to(real.name)
    accept(closed.settings, "ben", "renamed")
    ledger = closed.open()
    assert ledger.registration_count() == 1
    assert real.with_name("real.db-wal").exists()


@FILE
def test_a_second_name_is_refused(closed: LedgerFactory) -> None:
    """A hard link would hide the journal from whoever opens the other name."""
    closed.path.with_name("second.db").hardlink_to(closed.path)
    with pytest.raises(LedgerNotUsable, match="second name"):
        closed.open()


@FILE
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_ledger_open_to_others_is_refused(closed: LedgerFactory, mode: int) -> None:
    """The ledger is the owner's alone."""
    closed.path.chmod(mode)
    with pytest.raises(LedgerNotUsable, match="0600"):
        closed.open()


@FILE
def test_a_directory_that_others_may_write_is_refused(closed: LedgerFactory) -> None:
    """Whoever may rename files there may put another ledger in place."""
    closed.path.parent.chmod(0o770)
    with pytest.raises(LedgerNotUsable, match="written by others"):
        closed.open()


@FILE
def test_no_ledger_is_made_where_others_may_write(ledger_factory: LedgerFactory) -> None:
    """It is refused before there is a ledger, a key or a witness, and not at the first run."""
    ledger_factory.path.parent.mkdir()
    ledger_factory.path.parent.chmod(0o777)
    with pytest.raises(LedgerNotUsable, match="written by others"):
        ledger_factory.create()
    assert list(ledger_factory.path.parent.iterdir()) == []
    assert not ledger_factory.key.exists()


@FILE
def test_a_directory_in_place_of_the_ledger_is_refused(ledger_factory: LedgerFactory) -> None:
    """Only a regular file is a ledger."""
    ledger_factory.path.mkdir(parents=True, mode=0o700)
    with pytest.raises(LedgerNotUsable, match="not a regular file"):
        ledger_factory.open()


@FILE
@pytest.mark.parametrize("content", [b"", b"x", b"not a ledger " * 1000, b"SQLite format 3\0" + bytes(4080)])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(closed: LedgerFactory, content: bytes) -> None:
    """Empty, foreign and half-written files are damage, never a new ledger."""
    closed.path.write_bytes(content)
    with pytest.raises(LedgerDamaged):
        closed.open()
    assert closed.path.read_bytes() == content


@FILE
def test_another_programs_database_is_refused(closed: LedgerFactory) -> None:
    """A sound SQLite file that batchpay did not make is not a ledger."""
    closed.path.unlink()
    edit(closed.path, "CREATE TABLE t (x)")
    edit(closed.path, "PRAGMA journal_mode = WAL")
    closed.path.chmod(0o600)
    with pytest.raises(LedgerDamaged, match="not a ledger"):
        closed.open()


@FILE
def test_a_ledger_in_another_journal_mode_is_refused(closed: LedgerFactory) -> None:
    """Another program changed it: reports would wait for runs then, and a power cut leaves another file beside it."""
    edit(closed.path, "PRAGMA journal_mode = DELETE")
    with pytest.raises(LedgerDamaged, match="journal mode delete"):
        closed.open()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(LedgerDamaged, match="journal mode delete"):
        closed.open()
    assert os.listdir("/proc/self/fd") == before, "a page that looks again and again"  # noqa: PTH208


@FILE
def test_a_newer_ledger_is_refused(closed: LedgerFactory) -> None:
    """A later version's ledger may mean things that this version does not know."""
    edit(closed.path, f"PRAGMA user_version = {len(opening.scripts()) + 1}")
    with pytest.raises(LedgerNewer):
        closed.open()


@FILE
def test_an_older_ledger_is_migrated_in_one_transaction_after_a_backup(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails leaves the old version; one that works leaves a backup of it."""
    scripts = opening.scripts()
    monkeypatch.setattr(opening, "scripts", lambda: [*scripts, "CREATE TABLE more (x);\nCREATE TABLE more (y);\n"])
    with pytest.raises(LedgerDamaged):
        closed.open()
    with pytest.raises(LedgerNotUsable, match="older version"):
        closed.open(read_only=True)
    monkeypatch.setattr(opening, "scripts", lambda: [*scripts, "CREATE TABLE more (x);\n-- done\n"])
    assert closed.open().registration_count() == 1
    backups = list(closed.path.parent.glob("ledger.db.version-*"))
    assert backups
    assert all(backup.stat().st_mode & 0o777 == 0o600 for backup in backups)
    monkeypatch.setattr(opening, "scripts", lambda: scripts)
    with pytest.raises(LedgerNewer):
        closed.open()


@FILE
def test_a_migration_must_end_with_a_whole_statement() -> None:
    """Half a statement at the end of a script is not passed over in silence."""
    with pytest.raises(ValueError, match="statement"):
        list(opening.statements("CREATE TABLE a (x);\nCREATE TABLE b"))


def test_a_missing_foreign_open_or_linked_key_is_refused(closed: LedgerFactory) -> None:
    """Without its own key, kept private, the ledger is not opened."""
    text = closed.key.read_text()
    closed.key.unlink()
    with pytest.raises(LedgerNotUsable, match=r"can't be read: .*restore it from its backup|exist; copy it"):
        closed.open()
    for content, words in (("ab" * 32, "is not the key"), ("zz" * 32, "no ledger key"), ("ab", "no ledger key")):
        closed.key.write_text(content)
        closed.key.chmod(0o600)
        with pytest.raises(LedgerNotUsable, match=words):
            closed.open()
    closed.key.write_text(text)
    closed.key.chmod(0o644)
    with pytest.raises(LedgerNotUsable, match="0600"):
        closed.open()
    closed.key.chmod(0o600)
    closed.key.rename(closed.key.with_name("moved"))
    closed.key.symlink_to("moved")
    closed.key.parent.chmod(0o777)  # anyone could name another key
    with pytest.raises(LedgerNotUsable):
        closed.open()


def test_the_key_file_is_private_and_random(ledger_factory: LedgerFactory, tmp_path: Path) -> None:
    """32 random bytes, mode 0600, whatever the umask; an existing key is kept."""
    before = os.umask(0)
    try:
        ledger_factory.create()
        other = LedgerFactory(tmp_path / "other")
        other.create()
        other.close()
    finally:
        os.umask(before)
    assert len(bytes.fromhex(ledger_factory.key.read_text())) == 32
    assert ledger_factory.key.read_text() != other.key.read_text()
    files = [path for path in tmp_path.rglob("*") if path != tmp_path]
    assert {oct(path.stat().st_mode & 0o777) for path in files if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in files if path.is_dir()} == {"0o700"}


def test_the_key_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves no key or a whole one: with half of one, nobody could tell what was paid."""
    key, sync, synced = tmp_path / "ledger.key", os.fsync, list[tuple[int, bool]]()

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, key.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    create_key_file(key)
    assert synced[0] == (len(key.read_bytes()), False)


def test_a_folder_that_another_process_makes_at_the_same_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first submissions started together: both find no folder, and both go on."""
    (tmp_path / "keys").mkdir()
    monkeypatch.setattr(Path, "exists", lambda path: path == tmp_path)
    make_private_directory(tmp_path / "keys" / "live")
    monkeypatch.undo()
    assert (tmp_path / "keys" / "live").is_dir()


@FILE
def test_a_ledger_is_never_made_over_another(closed: LedgerFactory) -> None:
    """`ledger init` refuses an existing ledger, and one whose disk is away but whose witness remembers it."""
    with pytest.raises(LedgerNotUsable, match="already"):
        create_ledger(closed.settings, "tester")
    closed.path.unlink()
    with pytest.raises(LedgerNotUsable, match="remembers"):
        create_ledger(closed.settings, "tester")
    with pytest.raises(LedgerNotUsable, match="remembers"):
        open_ledger(closed.settings, create_as="tester")
    assert not closed.path.exists()


@FILE
def test_of_two_that_make_a_ledger_at_once_the_second_leaves_the_firsts_alone(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked and found none; what the first one registers must not go into a file that is replaced."""

    def made_meanwhile(lock: FileLock, wait_s: float) -> None:
        monkeypatch.undo()
        ledger_factory.create()
        lock.acquire(wait_s)

    monkeypatch.setattr(FileLock, "acquire", made_meanwhile)
    with pytest.raises(LedgerNotUsable, match="already exists"):
        create_ledger(ledger_factory.settings, "tester")
    ledger = ledger_factory.open()
    assert register(ledger, columns(ledger, [1]))
    assert ledger.check() == []


@FILE
def test_looking_at_a_ledger_makes_none(ledger_factory: LedgerFactory) -> None:
    """A report of what was sent to a sandbox, before anything was: there is no ledger, and none comes into being."""
    with pytest.raises(LedgerMissing):
        open_ledger(ledger_factory.settings, create_as="tester", read_only=True)
    assert not ledger_factory.path.exists()


@FILE
def test_opening_with_create_makes_a_ledger_once(ledger_factory: LedgerFactory) -> None:
    """For a gateway on loopback a missing ledger comes into being; the next opening finds it."""
    for _ in range(2):
        ledger = open_ledger(ledger_factory.settings, create_as="tester")
        kinds = [event.kind for event in ledger.events()]
        ledger.close()
        assert kinds == ["created"]


@FILE
def test_a_ledger_locked_by_another_program_is_refused(closed: LedgerFactory) -> None:
    """Neither our own lock nor SQLite's is waited for without an end."""
    place = location(closed.settings)
    holder = sqlite3.connect(closed.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerNotUsable, match="locked"):
        opening._open(closed.settings, wait_s=0.05)
    holder.close()
    script = (
        "import fcntl,sys; f=open(sys.argv[1],'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held',flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock_path(place))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(LedgerNotUsable, match="locked"):
            opening._open(closed.settings, wait_s=0.05)
        process.kill()
    assert closed.open().registration_count() == 1


@FILE
def test_one_process_at_a_time_opens_writes_and_checkpoints(closed: LedgerFactory) -> None:
    """Before 3.51.3 SQLite can corrupt its log otherwise. Who only has the ledger open keeps nobody from writing.

    What was refused is over: the page's server had to be started again after one refusal.
    """
    place, keys = location(closed.settings), load_keys(closed.key)
    store, other = SqliteStore(place, keys, read_only=False, wait_s=0.01), FileLock(lock_path(place))
    other.acquire(0)
    for use in (store.begin, store.checkpoint, lambda: SqliteStore(place, keys, read_only=False, wait_s=0.01)):
        with pytest.raises(LedgerNotUsable, match="another program has locked the ledger"):
            use()
    other.release()
    elsewhere = closed.path.rename(closed.path.with_name("elsewhere"))
    with pytest.raises(LedgerNotUsable, match="was moved away or replaced: restore it"):
        store.begin()
    elsewhere.rename(closed.path)
    other.acquire(0)
    other.close()
    store.begin().rollback()
    store.checkpoint()
    store.close()


@FILE
def test_a_ledger_that_failed_or_was_closed_is_left_as_it_is(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even shortened: and what ends a run tells what has failed, and nothing that followed from it."""
    store = SqliteStore(location(closed.settings), load_keys(closed.key), read_only=False)
    monkeypatch.setattr(store, "committed", lambda *_: os.close(1 << 20))
    with pytest.raises(LedgerNotUsable), store.transaction():
        pass
    for told in ("failed in a commit; nothing more is written", "is open for reading only, or closed"):
        for write in (store.begin, store.write_anew, store.files_alone().__enter__):
            with pytest.raises(LedgerNotUsable, match=told):
                write()
        store.checkpoint()
        store.close()
        store._broken = None


@FILE
def test_what_was_committed_is_on_the_disk_and_what_was_deleted_is_gone(closed: LedgerFactory) -> None:
    """SQLite alone promises neither, and may put what it sorts into a file in clear."""
    store = SqliteStore(location(closed.settings), load_keys(closed.key), read_only=False)
    wanted = {"synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1, "secure_delete": 1, "wal_autocheckpoint": 0}
    safe = {"trusted_schema": 0, "cell_size_check": 1, "temp_store": 2, "busy_timeout": 30_000}
    assert store.write_anew()
    store.checkpoint()
    assert closed.path.with_name("ledger.db-wal").stat().st_size == 0
    with store.transaction() as transaction, store.reading() as reader:
        for connection, values in ((transaction, wanted | safe), (reader, safe)):
            found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in values}
            assert found == values
    store.close()


@FILE
def test_network_file_systems_are_known_by_their_mount() -> None:
    """The longest mount point decides, also of names with blanks."""
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/root rw\n"
        "2 1 0:5 / /srv/net rw shared:1 - nfs4 host:/x rw\n"
        "3 2 8:2 / /srv/net/local\\040disk rw - xfs /dev/sdb rw\n"
        "4 1 0:6 / /mnt/ssh rw - fuse.sshfs host: rw\n"
        "5 1 0:7 / /mnt/win rw master:2 - cifs //host/x rw\n"
        "6 4 0:8 / /mnt/win/c/torn rw\n"
        "garbage\n"
    )
    found = {
        folder: file_system(mounts, Path(folder))
        for folder in ("/home/ada", "/srv/net/a", "/srv/network", "/srv/net/local disk/b", "/mnt/ssh",
                       "/mnt/win/c/torn")
    }  # fmt: skip
    assert found == {
        "/home/ada": "ext4", "/srv/net/a": "nfs4", "/srv/network": "ext4", "/srv/net/local disk/b": "xfs",
        "/mnt/ssh": "fuse.sshfs", "/mnt/win/c/torn": "cifs",
    }  # fmt: skip


@FILE
@pytest.mark.parametrize(
    ("kind", "refused", "weak"),
    [("nfs4", True, False), ("fuse.sshfs", True, False), ("tmpfs", False, True), ("overlay", False, True),
     ("ext4", False, False), ("", False, False)],
)  # fmt: skip
def test_a_ledger_lies_on_a_disk_of_its_own_machine(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool, weak: bool
) -> None:
    """A network's locks can't be trusted: refused. Memory and a container's layer are gone one day: a warning."""
    monkeypatch.setattr(paths, "_mounts", lambda: f"1 0 8:1 / / rw - {kind} /dev/root rw\n")
    if refused:
        with pytest.raises(LedgerNotUsable, match=r"use a local disk$"):
            closed.open()
    else:
        assert len(closed.open().batches()) == 1
    assert any("after a restart" in line for line in weaknesses(closed.settings)) is weak


@FILE
def test_a_system_without_mounts_to_read_is_taken_as_it_is(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Linux: there is nothing to ask."""
    read_text = Path.read_text

    def without_mounts(path: Path, *arguments: str) -> str:
        if path == Path("/proc/self/mountinfo"):
            raise FileNotFoundError
        return read_text(path, *arguments)

    monkeypatch.setattr(Path, "read_text", without_mounts)
    assert len(closed.open().batches()) == 1


@FILE
@pytest.mark.parametrize(("error", "kind"), [
    (sqlite3.DatabaseError("x"), LedgerDamaged), (sqlite3.OperationalError("x"), LedgerNotUsable),
    (sqlite3.InterfaceError("x"), LedgerNotUsable),
])  # fmt: skip
def test_an_error_of_the_library_alone_is_told_in_our_words(error: Exception, kind: type[Exception]) -> None:
    """Python's own part of SQLite gives no code: what it can't read is damage, what it can't do is not."""
    assert type(translate(error, Path("ledger.db"))) is kind


@FILE
@pytest.mark.parametrize("read_only", [False, True])
def test_another_user_is_refused_before_a_file_is_left(
    closed: LedgerFactory, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """One call by root once locked the service out: its lock file, and SQLite's, belonged to root."""
    before = sorted(closed.path.parent.iterdir())
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(LedgerNotUsable, match="run batchpay as that user"):
        closed.open(read_only=read_only)
    other = type(closed.settings)(
        url=str(closed.path.with_name("other.db")), key_file=closed.settings.key_file, witness=str(closed.folder / "w")
    )
    with pytest.raises(LedgerNotUsable, match="run batchpay as that user"):
        create_ledger(other, "root", "a second one")
    assert sorted(closed.path.parent.iterdir()) == before


@FILE
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_ledger_of_another_user_is_refused_in_a_folder_of_ones_own(closed: LedgerFactory) -> None:
    """Restored by root into the service's folder: root must not go on with it, nor the service think it its own."""
    os.chown(closed.path, 1, -1)
    with pytest.raises(LedgerNotUsable, match="run batchpay as that user"):
        closed.open()


def test_a_lock_goes_away_with_its_batch(ledger_factory: LedgerFactory) -> None:
    """A folder of locks does not grow by a file a batch."""
    ledger = ledger_factory.create()
    folder = ledger_factory.locks
    with ledger.lock(b"a" * 32):
        assert len(list(folder.iterdir())) == 1
        with pytest.raises(BatchHeld), ledger.lock(b"a" * 32):
            pass
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []


def test_a_lock_on_a_name_that_is_gone_is_not_kept(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it its holder may have ended and removed it: then it is opened anew."""
    ledger = ledger_factory.create()
    folder = ledger_factory.locks
    lock = fcntl.flock
    gone: list[Path] = []

    def late(descriptor: int, operation: int) -> None:
        if folder.exists() and not gone:
            (path,) = folder.iterdir()
            path.unlink()
            gone.append(path)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with ledger.lock(b"a" * 32):
        assert list(folder.iterdir()) == gone
        with pytest.raises(BatchHeld), ledger.lock(b"a" * 32):
            pass


def test_a_look_at_that_instant_keeps_no_run_from_beginning(
    ledger_factory: LedgerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health looks whether a batch is held just as its run begins: the run tries again, and is not refused."""
    ledger = ledger_factory.create()
    folder = ledger_factory.locks
    folder.mkdir(mode=0o700)
    lock, refused = fcntl.flock, 0
    with (folder / f"{'61' * 16}.lock").open("w") as looking:
        lock(looking, fcntl.LOCK_SH)

        def flock(descriptor: int, operation: int) -> None:
            nonlocal refused
            try:
                lock(descriptor, operation)
            except BlockingIOError:
                refused += 1
                lock(looking, fcntl.LOCK_UN)
                raise

        monkeypatch.setattr(fcntl, "flock", flock)
        with ledger.lock(b"a" * 32):
            assert (refused, ledger.is_held(b"a" * 32)) == (1, True)


@FILE
def test_only_paths_are_ledgers_of_this_kind(ledger_factory: LedgerFactory) -> None:
    """An address of a database server is not taken for a file name."""
    with pytest.raises(SettingsNotUsable):
        location(type(ledger_factory.settings)(url="mysql://host/db"))


@FILE
def test_each_place_has_a_witness_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default ledger's witness lies beside the key; another ledger's has another name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings = type(LedgerFactory(tmp_path).settings)
    default, other = location(settings()), location(settings(url=str(tmp_path / "other.db")))
    assert default.ledger == tmp_path / "state" / "batchpay" / "ledger.db"
    assert default.witness == tmp_path / "config" / "batchpay" / "ledger.witness"
    assert default.key == other.key
    assert other.witness.parent == default.witness.parent
    assert other.witness != default.witness


def refused_in_a_fork(*uses: Callable[[], object]) -> int:
    """Fork, and count which uses the child is refused."""
    if (child := os.fork()) == 0:
        refused = 0
        try:
            for use in uses:
                try:
                    use()
                except LedgerNotUsable:
                    refused += 1
        finally:
            os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_can_not_use_the_ledger(ledger_factory: LedgerFactory) -> None:
    """SQLite's locks do not survive a fork, and two processes would talk over one connection to a server."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    with held_run(ledger, name) as run:
        uses = (
            ledger.registration_count,
            lambda: run.claim(1),
            lambda: run.commit([1], []),
            lambda: states(ledger, name),
        )
        assert refused_in_a_fork(*uses) == 4
        assert [payment.row for payment in run.claim(1)] == [1]
        run.finish(None)
    assert ledger.registration_count() == 1


@FILE
def test_a_forked_process_gives_back_no_lock(ledger_factory: LedgerFactory) -> None:
    """Closing its copy of the ledger, or leaving its files as they are: the parent's transaction goes on alone."""
    ledger = ledger_factory.create()
    name = register(ledger, columns(ledger, [1]))
    store = ledger.store  # type: ignore[attr-defined]
    with held_run(ledger, name) as run:
        assert refused_in_a_fork(lambda: run.spill([]), store.checkpoint) == 2
        run.finish(None)
    with store.transaction():
        assert refused_in_a_fork(ledger.close) == 0
        with pytest.raises(LedgerNotUsable, match="another program has locked the ledger"):
            FileLock(lock_path(store.place)).acquire(0)


def test_a_report_is_of_one_moment(closed: LedgerFactory) -> None:
    """What is registered while it is written is in none of its sums: two statements would have counted two ledgers."""
    ledger = closed.open()
    count = f"SELECT count(*) FROM {'row' if closed.kind == 'sqlite' else 'batchpay.payment'}"
    with ledger.store.reading() as reader:  # type: ignore[attr-defined]
        before = reader.execute(count).fetchone()
        register(closed.open(), columns(ledger, [7]), content=b"another")
        assert reader.execute(count).fetchone() == before


@FILE
@pytest.mark.parametrize("content", [None, b"", bytes(1024)])
def test_a_ledger_without_its_witness_is_refused(closed: LedgerFactory, content: bytes | None) -> None:
    """A witness that is gone or unreadable proves nothing; the message says what to do."""
    if content is None:
        closed.witness.unlink()
    else:
        closed.witness.write_bytes(content)
    with pytest.raises(LedgerBehind, match="is not there" if content is None else "has no record of this key"):
        closed.open()


@pytest.mark.parametrize("what", ["folder", "pipe", "file"])
def test_what_can_be_no_witness_is_not_replaced_by_one(closed: LedgerFactory, tmp_path: Path, what: str) -> None:
    """A mistyped ledger.witness named `/dev/null`, and whoever accepted it, as advised, had the device replaced."""
    other = tmp_path / "other"
    if what == "file":
        other.write_text("[gateway]")
    else:
        {"folder": os.mkdir, "pipe": os.mkfifo}[what](other)
    before = other.stat()
    closed.settings = replace(closed.settings, witness=str(other))
    for use in (closed.open, lambda: accept(closed.settings, "ben", "it was moved", rows_in_doubt=True)):
        with pytest.raises(LedgerNotUsable, match=r"not a ledger's witness: is ledger\.witness right"):
            use()
    assert (other.stat().st_ino, other.stat().st_mode) == (before.st_ino, before.st_mode)


@FILE
@pytest.mark.parametrize("same", ["key", "ledger"])
def test_a_witness_in_the_place_of_key_or_ledger_is_refused(closed: LedgerFactory, tmp_path: Path, same: str) -> None:
    """Accepting it, as the message advised, put the witness in the place of the only key, or of the ledger."""
    files = {"key": closed.key, "ledger": closed.path}
    (tmp_path / "link").symlink_to(files[same].parent)
    mistaken = replace(closed.settings, witness=str(tmp_path / "link" / files[same].name))
    before = {path: path.read_bytes() for path in files.values()}
    for use in (
        open_ledger,
        lambda it: accept(it, "ben", "it was moved", rows_in_doubt=True),
        lambda it: create_ledger(it, "ben"),
    ):
        with pytest.raises(SettingsNotUsable, match=r"and ledger\.witness name the same file.*each needs its own"):
            use(mistaken)
    assert {path: path.read_bytes() for path in files.values()} == before


def test_a_link_is_no_witness(closed: LedgerFactory) -> None:
    """Whoever may put a link there could let an older witness speak."""
    closed.witness.rename(closed.witness.with_name("moved"))
    closed.witness.symlink_to("moved")
    with pytest.raises(LedgerNotUsable, match="can't be read"):
        closed.open()


def test_a_torn_witness_record_leaves_the_one_before(closed: LedgerFactory) -> None:
    """Either of the two records may be torn: the other still speaks for the ledger."""
    whole = closed.witness.read_bytes()
    for slot in (0, 512):
        closed.witness.write_bytes(whole[: slot + 20] + b"?" * 60 + whole[slot + 80 :])
        assert closed.open().registration_count() == 1
        closed.close()
        closed.witness.write_bytes(whole)


@FILE
def test_a_witness_of_another_ledger_is_refused(closed: LedgerFactory, tmp_path: Path) -> None:
    """A second ledger under the same key does not pass for the first."""
    other = LedgerFactory(tmp_path / "other")
    other.key.parent.mkdir(parents=True, mode=0o700)
    other.key.write_bytes(closed.key.read_bytes())
    other.key.chmod(0o600)
    other.create()
    other.close()
    closed.witness.write_bytes(other.witness.read_bytes())
    with pytest.raises(LedgerBehind):
        closed.open()
