"""A ledger that was copied, or loaded again, pays on neither copy before a person has said which one counts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from batchpay.errors import LedgerBehind, LedgerElsewhere
from batchpay.ledger.open import accept, confirm
from batchpay.payment import State
from batchpay.workflows import ledger_care
from tests.ledger.batches import ACCEPTED, columns, register, send, states
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.support.postgres import programs_found


@pytest.fixture
def used(ledger_factory: LedgerFactory) -> PostgresFactory:
    """A closed ledger with three rows to send."""
    assert isinstance(ledger_factory, PostgresFactory)
    register(ledger_factory.create(), columns(ledger_factory.open(), [1, 2, 3]))
    ledger_factory.close()
    return ledger_factory


def dumped(used: PostgresFactory, *options: str) -> bytes:
    """Return what pg_dump writes of the ledger's database."""
    command = [f"{programs_found()}/pg_dump", *options, used.server.owner_url(used.database)]
    return subprocess.run(command, check=True, capture_output=True).stdout


def by_template(used: PostgresFactory, name: str) -> None:
    used.server.run(f"CREATE DATABASE {name} TEMPLATE {used.database} STRATEGY file_copy")


def by_dump(used: PostgresFactory, name: str) -> None:
    used.server.run(f"CREATE DATABASE {name}")
    used.server.load(dumped(used).decode(), name)


@pytest.mark.ledgers("sqlite", why="a file is copied; a database's copies are below")
def test_a_copy_of_a_home_on_the_same_machine_pays_nothing(ledger_factory: LedgerFactory) -> None:
    """Ledger, key and witness agree with each other, and the machine is the same: both copies paid."""
    register(ledger_factory.create(), columns(ledger_factory.open(), [1, 2, 3]))
    ledger_factory.close()
    copy = LedgerFactory(ledger_factory.folder / "copy")
    for place, other in ((ledger_factory.path.parent, copy.path.parent), (ledger_factory.key.parent, copy.key.parent)):
        shutil.copytree(place, other)
    with pytest.raises(LedgerElsewhere, match="is not the file that was last used, or not where that was"):
        copy.open()
    assert "was copied" in str(copy.open(read_only=True).outdated)
    send(ledger_factory.open(), None, {1: ACCEPTED})
    assert accept(copy.settings, "ada", "moved here; the first went on", rows_in_doubt=True).marked_in_doubt == 3
    copy.close()


@pytest.mark.ledgers("sqlite", why="a file is copied; a database's copies are below")
def test_a_file_that_was_put_back_pays_nothing(ledger_factory: LedgerFactory) -> None:
    """Even with all that the witness knows: whoever made the copy may have gone on with it elsewhere."""
    register(ledger_factory.create(), columns(ledger_factory.open(), [1]))
    ledger_factory.close()
    shutil.copy2(ledger_factory.path, ledger_factory.folder / "copy.db")
    (ledger_factory.folder / "copy.db").replace(ledger_factory.path)
    with pytest.raises(LedgerElsewhere, match="is not the file"):
        ledger_factory.open()
    assert accept(ledger_factory.settings, "ada", "a new disk").lost is None
    send(ledger_factory.open(), None, {1: ACCEPTED})


@pytest.mark.ledgers("postgres", why="the server copies and restores it; a file's copies are above")
@pytest.mark.parametrize("copy", [by_template, by_dump])
def test_a_copy_under_another_name_pays_nothing(
    used: PostgresFactory, copy: Callable[[PostgresFactory, str], None]
) -> None:
    """On the same server: whoever went on with it paid again what the first paid, and neither told."""
    name, first = f"{used.database}_copy", used.settings
    copy(used, name)
    used.settings = replace(first, url=used.server.url(name))
    try:
        for _ in range(2):
            with pytest.raises(LedgerBehind, match="other tables than before"):
                used.open()
        found = ledger_care.check_ledger(used.settings)
        assert (len(found.problems), found.exit_code) == (1, 5)
        (meaning,) = found.accepting
        assert meaning.startswith("accepting it puts 3 rows in doubt that it would send, and no new file is registered")
        used.settings = first
        send(used.open(), None, {1: ACCEPTED})
        used.close()
        used.settings = replace(first, url=used.server.url(name))
        with pytest.raises(LedgerBehind, match="older than this machine's"):
            used.open()
    finally:
        used.close()
        used.server.drop(name)


@pytest.mark.ledgers("postgres", why="the server copies and restores it; a file's copies are in test_restoring.py")
def test_tables_that_were_restored_in_their_place_pay_nothing(used: PostgresFactory) -> None:
    """`pg_restore --clean` into the same database: this machine's witness knows nothing newer, another's might."""
    other = used.on_another_machine(used.folder / "other")
    other.join()
    other.close()
    archive = used.folder / "ledger.dump"
    archive.write_bytes(dumped(used, "-Fc"))
    restore = [f"{programs_found()}/pg_restore", "--clean", "-d", used.server.owner_url(used.database), str(archive)]
    subprocess.run(restore, check=True)
    for machine in (used, other):
        with pytest.raises(LedgerBehind, match="other tables than before"):
            machine.open()
    assert accept(used.settings, "ada", "restored after the fire", rows_in_doubt=True).marked_in_doubt == 3
    confirm(used.settings, "ada", "nothing was paid since")
    for machine in (used, other):
        assert set(states(machine.open(), machine.open().find(None).batch).values()) == {State.IN_DOUBT}
        machine.close()


@pytest.mark.ledgers("postgres", why="the server copies and restores it; a file's copies are in test_restoring.py")
def test_tables_that_were_written_anew_are_the_same(used: PostgresFactory) -> None:
    """A table's number outlives what an administrator does to its files."""
    used.run("VACUUM FULL batchpay.ledger")
    used.run("VACUUM FULL batchpay.payment")
    used.run("ALTER TABLE batchpay.ledger SET TABLESPACE pg_default")
    send(used.open(), None, {1: ACCEPTED})
