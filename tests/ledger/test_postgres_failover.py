"""A database that is not the one it was: a standby took over, a copy was brought back; what each machine does then.

One server for all of these, which is stopped, copied and started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import LedgerBehind, LedgerElsewhere, LedgerNotUsable, WrongUse
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept, confirm, create_ledger
from batchpay.ledger.postgres import deadline
from batchpay.ledger.postgres import run as of_run
from batchpay.payment import State
from batchpay.workflows import ledger_care
from tests.ledger.batches import ACCEPTED, columns, held_run, register, states
from tests.ledger.factories import LedgerFactory
from tests.support.postgres import Cluster, Server, own_cluster

pytestmark = pytest.mark.ledgers("postgres", why="a file has no standby that takes over")
NAME = "payments"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server whose one database has the schema, and a login that may use it."""
    with own_cluster() as made:
        server = made.server()
        database = server.new_database()
        server.run(f"ALTER DATABASE {database} RENAME TO {NAME}")
        made.stop()
        yield made


class Office:
    """Two machines, `ada` and `ben`, that work with one ledger; a server that can fail."""

    def __init__(self, folder: LedgerFactory, cluster: Cluster) -> None:
        self.primary = cluster.copy(f"of_{folder.folder.name}")
        self.other: Cluster | None = None
        self.primary.start()
        self.ada = folder
        self.ada.settings = replace(self.ada.settings, url=self.primary.server().url(NAME))
        create_ledger(self.ada.settings, "tester", owner_url=self.primary.server().owner_url(NAME))
        self.ben = LedgerFactory(folder.folder / "ben", self.ada.settings.url)
        self.ben.key.parent.mkdir(mode=0o700, parents=True)
        self.ben.key.write_bytes(self.ada.key.read_bytes())
        self.ben.key.chmod(0o600)
        self.ben.settings = replace(self.ben.settings, key_file=str(self.ben.key))
        self.ben.join()
        self.ben.close()
        ledger = self.ada.open()
        self.batch = register(ledger, columns(ledger, range(1, 9)))
        self.ada.close()

    def standby(self) -> Cluster:
        """Copy the server's files; both machines look at either address from now on, whichever server writes."""
        self.primary.stop()
        self.other = self.primary.copy("copy")
        self.primary.start()
        ports = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.other.port}"
        for machine in (self.ada, self.ben):
            url = f"postgresql://payer@{ports}/{NAME}"
            machine.settings = replace(machine.settings, url=url)
        return self.other

    def copied(self, *, base_backup: bool = False) -> Cluster:
        """Copy the server's files at this moment, to put them back in its place later."""
        if base_backup:
            self.other = self.primary.copy("copy", base_backup=True, in_place=True)
        else:
            self.primary.stop()
            self.other = self.primary.copy("copy", in_place=True)
            self.primary.start()
        return self.other

    def load(self, dump: str) -> None:
        """Load a dump into the same server, in the place of what is there."""
        self.primary.server().run("DROP SCHEMA batchpay CASCADE", NAME)
        self.primary.server().load(dump, NAME)

    @contextmanager
    def run(self, ledger: Ledger) -> Iterator[of_run.PostgresRun]:
        """Begin a run of the batch."""
        with held_run(ledger, self.batch) as run:
            assert isinstance(run, of_run.PostgresRun)
            yield run

    def close(self) -> None:
        """End all of it."""
        self.ada.close()
        self.ben.close()
        self.primary.stop()
        if self.other is not None:
            self.other.stop()


@pytest.fixture
def office(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """Two machines, one ledger with eight rows to send."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(deadline, "RECONNECT_S", 300.0)  # however busy this machine is
    made = Office(LedgerFactory(tmp_path), cluster)
    yield made
    made.close()


def until(look: Callable[[], list[tuple[object, ...]]]) -> None:
    """Look again until something is seen."""
    while not look():
        threading.Event().wait(0.01)


def promote(standby: Cluster) -> None:
    """Let a standby take over."""
    standby.server().run("SELECT pg_promote(true, 300)")


def test_a_standby_that_knew_all_takes_over_in_the_middle_of_a_run(office: Office) -> None:
    """The run stops; as soon as a person has said that the standby was in step, no row is in doubt on any machine."""
    standby = office.standby()
    standby.follows(office.primary, "second")
    standby.start()
    until(lambda: office.primary.server().run("SELECT 1 FROM pg_stat_replication"))
    with pytest.raises(LedgerNotUsable, match="it has standbys, but synchronous_standby_names is empty"):
        office.ada.open()
    office.primary.server().run("ALTER SYSTEM SET synchronous_standby_names = 'second'")
    office.primary.server().run("SELECT pg_reload_conf()")
    until(lambda: office.primary.server().run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
    with office.run(office.ada.open()) as run:
        assert run.commit([1, 2], []) == {1, 2}
        office.primary.stop()
        promote(standby)
        with pytest.raises(LedgerElsewhere, match="a standby took over"):
            run.commit([3], [(1, ACCEPTED), (2, ACCEPTED)])
        run.spill([(1, ACCEPTED), (2, ACCEPTED)])
        run.close()
    office.ada.close()
    for machine in (office.ada, office.ben):
        with pytest.raises(LedgerElsewhere, match="a standby took over"):
            machine.open()
    accept(office.ben.settings, "ben", "the standby was in step, and the primary is off")
    ledger = office.ada.open()
    with office.run(ledger) as run:
        assert run.commit([3], []) == {3}
        run.commit([], [(3, ACCEPTED)])
        run.finish(None)
    assert [row for row, state in states(ledger, office.batch).items() if state is State.ACCEPTED] == [1, 2, 3]
    assert set(states(ledger, office.batch).values()) == {State.ACCEPTED, State.PENDING}
    assert ledger.check() == []
    with pytest.raises(WrongUse, match="nothing to accept"):
        accept(office.ada.settings, "ada", "once more")


def test_a_standby_that_took_over_too_late_sends_nothing_anywhere(office: Office) -> None:
    """It lost what was granted last: not in the run, not on the other machine, which had seen nothing of it.

    One person's word is enough, for all machines, and nothing that any of them sent is sent again.
    """
    standby = office.standby()
    standby.follows(office.primary, "second")
    ledger = office.ada.open()
    with office.run(ledger) as run:
        run.commit([1], [])
        run.commit([2], [(1, ACCEPTED)])
        office.primary.stop()
        standby.start()
        promote(standby)
        with pytest.raises(LedgerElsewhere, match="a standby took over"):
            office.ben.open()  # nobody but ada knows
        with pytest.raises(LedgerBehind, match="older than this machine's witness"):
            run.commit([3], [(2, ACCEPTED)])
        run.spill([(2, ACCEPTED)])
        run.close()
    office.ada.close()
    for machine, words in ((office.ada, "this machine's witness"), (office.ben, "what the machine .* knows of it")):
        with pytest.raises(LedgerBehind, match=words):
            machine.open()
    assert accept(office.ada.settings, "ada", "failover without a synchronous standby").marked_in_doubt == 8
    confirm(office.ada.settings, "ada", "compared with the gateway's list")
    assert office.ada.open().check() == []
    of_ben = office.ben.open()
    assert set(states(of_ben, office.batch).values()) == {State.IN_DOUBT}
    assert of_ben.check() == []


def send_one(office: Office) -> None:
    """Let ada send a row, which ben does not hear of."""
    with office.run(office.ada.open()) as run:
        run.commit([1], [])
        run.commit([], [(1, ACCEPTED)])
        run.finish(None)
    office.ada.close()


@pytest.mark.parametrize("base_backup", [False, True], ids=["snapshot", "base backup"])
def test_files_that_were_put_back_send_nothing_once_a_machine_looks_that_knows(
    office: Office, base_backup: bool
) -> None:
    """Nothing in them shows that they are old: only a witness does, and from then on no machine sends anything."""
    copy = office.copied(base_backup=base_backup)
    send_one(office)
    office.primary.stop()
    copy.start()
    of_ben = office.ben.open()  # which can't know, as docs/several-machines.md says
    with of_ben.lock(of_ben.find(office.batch).digest):
        run = of_ben.start(office.batch, "ben")
        assert run.commit([5], []) == {5}
        office.ada.open(read_only=True)
        with pytest.raises(LedgerBehind, match=r"what the machine .* knows of it"):
            run.commit([1], [(5, ACCEPTED)])
        run.spill([(5, ACCEPTED)])
        run.close()
    office.ben.close()
    for machine in (office.ada, office.ben):
        with pytest.raises(LedgerBehind):
            machine.open()
    accept(office.ben.settings, "ben", "a snapshot was put back", rows_in_doubt=True)
    assert set(states(office.ada.open(), office.batch).values()) == {State.IN_DOUBT}


def test_files_that_were_put_back_under_a_command_send_nothing_if_its_machine_knows(office: Office) -> None:
    """It had compared them with its witness when it began to read its file, and by then they were not put back yet."""
    copy = office.copied()
    send_one(office)
    before = office.ada.open()
    office.primary.stop()
    copy.start()
    with before.lock(before.find(office.batch).digest), pytest.raises(LedgerBehind, match="older than this machine's"):
        before.start(office.batch, "ada")
    with pytest.raises(LedgerBehind, match="what the machine"):
        office.ben.open()


def test_a_run_does_not_end_in_a_dump_that_was_loaded_under_it(office: Office) -> None:
    """The run was in it as well, and its end would have been one of the witness's two records."""
    ledger = office.ada.open()
    with office.run(ledger) as run:
        run.commit([1], [])
        dump = office.primary.dump(NAME)
        run.commit([2], [(1, ACCEPTED)])
        run.commit([], [(2, ACCEPTED)])
        office.load(dump)
        with pytest.raises(LedgerBehind, match="older than this machine's"):
            run.finish(None)
    with pytest.raises(LedgerBehind, match="what the machine"):
        office.ben.open()


def test_a_machine_that_only_looks_remembers_what_came_after_a_restore_was_accepted(office: Office) -> None:
    """What it had seen of the lost part had higher numbers, so it took no note of anything new until these came up."""
    dump = office.primary.dump(NAME)
    send_one(office)
    office.ben.open(read_only=True)
    office.load(dump)
    accept(office.ada.settings, "ann", "a dump was loaded", rows_in_doubt=True)
    dump = office.primary.dump(NAME)
    confirm(office.ada.settings, "ann", "compared with the gateway's list")
    office.ben.open(read_only=True)
    office.ben.close()
    office.load(dump)
    with pytest.raises(LedgerBehind, match="older than this machine's"):
        office.ben.open()


def test_a_dump_that_was_loaded_elsewhere_sends_nothing_on_any_machine(office: Office, postgres_server: Server) -> None:
    """It lies in another server; a machine that knows more is not talked into it, and any may see what is in it."""
    postgres_server.drop(postgres_server.new_database())  # so that the roles are there: no dump has them
    dump = office.primary.dump(NAME)
    send_one(office)
    elsewhere = postgres_server.empty_database()
    postgres_server.load(dump, elsewhere)
    for machine in (office.ben, office.ada):
        machine.settings = replace(machine.settings, url=postgres_server.url(elsewhere))
        with pytest.raises(
            LedgerBehind, match="older than this machine's" if machine is office.ada else "loaded from a dump"
        ):
            machine.open()
    assert states(office.ben.open(read_only=True), office.batch)[1] is State.PENDING
    office.ben.close()
    assert accept(office.ben.settings, "ben", "moved to a new server").marked_in_doubt == 8
    office.ben.close()
    postgres_server.drop(elsewhere)


def test_a_copy_of_a_servers_files_sends_nothing_beside_the_first(office: Office) -> None:
    """The same server, timeline, database and tables, at another address, while the first goes on: both paid."""
    copy = office.primary.copy("beside", base_backup=True)
    first, office.other = office.ada.settings, copy
    copy.start()
    elsewhere = replace(first, url=copy.server().url(NAME))
    for machine in (office.ada, office.ben):
        machine.settings = replace(machine.settings, url=elsewhere.url)
        with pytest.raises(LedgerElsewhere, match=f":{copy.port}.* than before .*:{office.primary.port}"):
            machine.open()
        assert set(states(machine.open(read_only=True), office.batch).values()) == {State.PENDING}
        machine.close()
        (meaning,) = ledger_care.check_ledger(machine.settings).accepting
        assert meaning.startswith("accepting it changes no row and holds up no file: where it was, nothing more may be")
    office.ada.settings = first
    send_one(office)
    office.ada.settings = elsewhere
    with pytest.raises(LedgerBehind, match="older than this machine's"):
        office.ada.open()


def test_a_server_of_two_addresses_is_accepted_at_each_once(office: Office) -> None:
    """Which of them a name leads to may change with every connection: neither then stops anything."""
    by_number = office.ada.settings
    by_other = replace(by_number, url=by_number.url.replace("127.0.0.1", "127.0.0.2"))
    office.ada.settings = by_other
    with pytest.raises(LedgerElsewhere, match="another address"):
        office.ada.open()
    accept(office.ada.settings, "ada", "the same server, by its second card")
    for settings in (by_number, by_other):
        office.ada.settings = settings
        send_one(office) if settings is by_number else office.ada.open()
        office.ada.close()
