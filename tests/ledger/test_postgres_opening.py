"""Which databases keep a ledger, who may do what in one, and a ledger that is not the one this machine knows."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trustme

from batchpay.errors import (
    BatchHeld,
    LedgerBehind,
    LedgerBesideAnother,
    LedgerElsewhere,
    LedgerMissing,
    LedgerNewer,
    LedgerNotUsable,
    LedgerOlder,
    LedgerOnAnotherMachine,
    SettingsNotUsable,
    WaitingForPerson,
    WrongUse,
)
from batchpay.ledger.contract import Ledger, RegisteredMeanwhile
from batchpay.ledger.machine import SharedClock
from batchpay.ledger.open import accept, confirm, create_ledger, join, location, open_ledger, weaknesses
from batchpay.ledger.postgres import opening, schema
from batchpay.ledger.postgres.connection import Place, _refuse_unsafe, place_of
from batchpay.payment import State
from batchpay.settings import LedgerSettings
from tests.ledger.batches import (
    ACCEPTED,
    CANARY,
    IN_DOUBT,
    columns,
    held_run,
    new_batch,
    register,
    rejected,
    send,
    states,
)
from tests.ledger.factories import LedgerFactory, PostgresFactory
from tests.ledger.test_postgres_run import until
from tests.support.postgres import Server, programs_found, reload_setting

pytestmark = pytest.mark.ledgers(
    "postgres",
    why="what is asked of a server, a login and an address; a file's questions are in test_refusals.py",
)


@pytest.fixture
def factory(ledger_factory: LedgerFactory) -> PostgresFactory:
    assert isinstance(ledger_factory, PostgresFactory)
    return ledger_factory


@pytest.fixture
def used(factory: PostgresFactory) -> PostgresFactory:
    """A ledger with a row accepted, one in doubt, one rejected and one pending, that nobody has open."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2, 3]), rejected([4]))
    send(ledger, name, {1: ACCEPTED, 2: IN_DOUBT})
    factory.close()
    return factory


@pytest.mark.parametrize(("url", "words"), [
    ("postgresql://pay:secret@db.example/ledger", "contains a password"),
    ("postgresql://pay@db.example/ledger?sslpassword=secret", "contains a password"),
    ("postgresql://pay@db.example/ledger?sslmode=prefer", "in clear"),
    ("postgresql://pay@db.example/ledger?sslmode=disable", "in clear"),
    ("postgresql://pay@127.0.0.1,db.example/ledger?sslmode=allow", "in clear"),
    ("postgresql://pay@db.example/ledger?options=-csynchronous_commit%3Doff", "options can't be set"),
    ("postgresql:///ledger", "names host and database"), ("postgresql://db.example", "names host and database"),
    ("postgresql://db.example/x?secret&=", "is not the URL"), ("mysql://db.example/x", "must be the path"),
])  # fmt: skip
def test_an_address_that_is_not_to_be_used_is_refused(url: str, words: str) -> None:
    """A password is never read out of it, and what is wrong is told without it."""
    with pytest.raises(SettingsNotUsable, match=words) as told:
        location(LedgerSettings(url=url))
    assert "secret" not in str(told.value)


def test_another_machine_is_reached_by_verified_tls_alone() -> None:
    """Libpq's own default would go on in clear; on loopback there is nobody in between."""
    assert place_of("postgresql://pay@db.example/x").parameters["sslmode"] == "verify-full"
    assert place_of("postgresql://pay@db.example/x?sslmode=require").parameters["sslmode"] == "require"
    for host in ("127.0.0.1", "[::1]", "localhost", "%2Frun%2Fpostgresql"):
        assert place_of(f"postgresql://pay@{host}/x").parameters["sslmode"] == "disable"
    assert place_of("postgresql://pay@db.example:6000/x").name == "postgresql://db.example:6000/x"
    assert location(LedgerSettings(url="postgresql://pay@db.example/x")).name == "postgresql://db.example:5432/x"


def test_a_name_of_this_machine_hides_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection goes to `hostaddr`, or PGHOSTADDR: a ledger called localhost went over the network in clear."""
    for more in ("?hostaddr=192.0.2.7", "?hostaddr=127.0.0.1,192.0.2.7"):
        assert place_of(f"postgresql://pay@localhost/x{more}").parameters["sslmode"] == "verify-full"
    assert place_of("postgresql://pay@localhost/x?hostaddr=127.0.0.1").parameters["sslmode"] == "disable"
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.7")
    assert place_of("postgresql://pay@localhost/x").parameters["sslmode"] == "verify-full"


@pytest.mark.usefixtures("encrypting_server")
def test_the_servers_certificate_is_verified(used: PostgresFactory, bundle: str, tmp_path: Path) -> None:
    """By whom it was issued, and for which name: over TLS as without all works, and nothing goes to anybody else."""
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    url = used.settings.url.replace("127.0.0.1", "localhost")
    used.settings = replace(used.settings, url=f"{url}?sslmode=verify-full&sslrootcert={bundle}")
    send(used.open(), None, {3: ACCEPTED})
    assert used.run("SELECT 1 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'payer'")
    used.close()
    by_number = url.replace("localhost", "127.0.0.1")
    for wrong, authority in ((url, stranger), (url, "/nothing"), (by_number, bundle)):
        used.settings = replace(used.settings, url=f"{wrong}?sslmode=verify-full&sslrootcert={authority}")
        with pytest.raises(LedgerNotUsable, match=r"its certificate is|no certificate to verify its own by"):
            used.open()


SAFE = (
    150_000,
    False,
    "on",
    "UTF8",
    0,
    "",
    "on",
    "on",
    "off",
    "off",
    "notice",
    "pg_catalog,pg_temp",
    "7000000000000000001/00000001/16384/16400 127.0.0.1:5432",
)


@pytest.mark.parametrize(("at", "value", "words"), [
    (0, 130_011, "PostgreSQL 13 is too old"), (1, True, "a standby"), (2, "off", "synchronous_commit is off"),
    (2, "local", "synchronous_commit is local"), (2, "remote_write", "synchronous_commit is remote_write"),
    (3, "SQL_ASCII", "its encoding is SQL_ASCII"), (4, 1, "it has standbys"), (6, "off", "fsync is off"),
    (7, "off", "full_page_writes is off"), (8, "on", "zero_damaged_pages is on"),
    (9, "on", "ignore_checksum_failure is on"), (10, "error", "client_min_messages is error"),
    (11, '"$user", public', "a pooler"),
])  # fmt: skip
def test_a_server_that_may_lose_a_commit_is_refused(at: int, value: Any, words: str) -> None:
    """Each alone is enough; nothing was sent."""

    class Answering:
        def __init__(self, answer: tuple[Any, ...]) -> None:
            self.answer = answer

        def execute(self, *_: object) -> Answering:
            return self

        def fetchone(self) -> tuple[Any, ...]:
            return self.answer

    place = Place({}, "postgresql://db.example/x")
    _refuse_unsafe(place, Answering(SAFE))  # type: ignore[arg-type]
    answer = list(SAFE)
    answer[at] = value
    with pytest.raises(LedgerNotUsable, match=f"{words}.*nothing was sent"):
        _refuse_unsafe(place, Answering(tuple(answer)))  # type: ignore[arg-type]


def test_what_a_login_is_set_to_does_not_weaken_a_commit(used: PostgresFactory) -> None:
    """Our own settings go before those of the login; what we can't set is looked at."""
    database = used.database
    used.run(f"ALTER ROLE payer IN DATABASE {database} SET synchronous_commit = off")
    send(used.open(), None, {3: ACCEPTED})
    used.close()
    used.run(f"ALTER ROLE payer IN DATABASE {database} SET zero_damaged_pages = on")
    with pytest.raises(LedgerNotUsable, match="zero_damaged_pages"):
        used.open()


@pytest.mark.parametrize(("of_url", "other", "words"), [
    (":PORT/", ":1/", "nobody answers at that address"), ("payer@", "nobody-known@", "there is no such login"),
    ("DATABASE", "nothing", "there is no such database"),
    ("127.0.0.1", "no-such-host.invalid", "its name is not known here"),
    ("DATABASE", "DATABASE?sslmode=require", "it has no TLS"),
])  # fmt: skip
def test_why_a_server_can_not_be_connected_to_is_said_in_our_words(
    used: PostgresFactory, of_url: str, other: str, words: str
) -> None:
    """A stranger was told three reasons where one was known; libpq's own text may hold what was given to it."""
    given = {"PORT": str(used.server.port), "DATABASE": used.database}
    for word, value in given.items():
        of_url, other = of_url.replace(word, value), other.replace(word, value)
    used.settings = replace(used.settings, url=used.settings.url.replace(of_url, other))
    with pytest.raises(LedgerNotUsable, match=f"can't be connected to: .*{words}.*; nothing was sent"):
        used.open()


def test_a_database_without_a_ledger_is_told_from_one_with(postgres_server: Server, tmp_path: Path) -> None:
    """Opening makes none, and only a login that may makes one; whoever looks after the server may make the tables."""
    database = postgres_server.empty_database()
    factory = LedgerFactory(tmp_path, postgres_server.url(database))
    with pytest.raises(LedgerNotUsable, match=r"may not make the ledger in .*--owner-url"):
        create_ledger(factory.settings, "tester")
    with pytest.raises(LedgerMissing, match="ledger init"):
        factory.open()
    with pytest.raises(WrongUse, match="names another database"):
        create_ledger(factory.settings, "tester", owner_url=postgres_server.owner_url("postgres"))
    create_ledger(factory.settings, "tester", owner_url=postgres_server.owner_url(database))
    assert factory.open().check() == []
    with pytest.raises(LedgerNotUsable, match="remembers a ledger"):
        create_ledger(factory.settings, "tester", owner_url=postgres_server.owner_url(database))
    factory.witness.unlink()
    with pytest.raises(LedgerNotUsable, match="already exists"):
        create_ledger(factory.settings, "tester", owner_url=postgres_server.owner_url(database))
    factory.close()
    postgres_server.drop(database)


def test_a_missing_package_is_named_with_the_python_that_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra under batchpay's own name was advised: no registry is known to have it, and a system's pip refuses."""
    monkeypatch.setattr("batchpay.ledger.open.find_spec", lambda name: None)
    with pytest.raises(SettingsNotUsable, match=f"{sys.executable} -m pip install 'batchpay.postgres.'"):
        open_ledger(LedgerSettings(url="postgresql://payer@db.example/payments"))


def test_a_second_ledger_takes_a_reason(used: PostgresFactory) -> None:
    """Beside the witness of one with payments, whichever kind the new one is."""
    elsewhere = replace(used.settings, url=str(used.folder / "other" / "ledger.db"), witness="")
    with pytest.raises(LedgerBesideAnother):
        create_ledger(elsewhere, "tester")
    database = used.server.new_database()
    second = replace(used.settings, url=used.server.url(database), witness=str(used.folder / "keys" / "second"))
    with pytest.raises(LedgerBesideAnother):
        create_ledger(second, "tester", owner_url=used.server.owner_url(database))
    create_ledger(second, "tester", "a second company", owner_url=used.server.owner_url(database))
    used.server.drop(database)


def test_the_first_schema_is_final() -> None:
    """Databases have it: what changes later is a migration, in another numbered file beside it."""
    digest = "54c1277150230cf045ca5aaf90766897f5b2b5ba5de36916eeb02242323173f1"
    assert hashlib.sha256(schema.scripts()[0].encode()).hexdigest() == digest


def test_the_owner_brings_the_tables_up_to_date(used: PostgresFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of the first version, in use: until then it is refused, and afterwards it is as it was."""
    later = "CREATE TABLE batchpay.later (id integer); GRANT SELECT ON batchpay.later TO batchpay_app"
    before = used.open().batches()
    used.close()
    scripts = [*schema.scripts(), later]
    monkeypatch.setattr(schema, "scripts", lambda: scripts)
    with pytest.raises(LedgerOlder):
        used.open()
    opening.bring_up_to_date(replace(used.settings, url=used.server.owner_url(used.database)))
    ledger = used.open()
    assert (ledger.batches(), ledger.check()) == (before, [])


def test_versions_of_tables_and_key_must_fit(used: PostgresFactory) -> None:
    """A later program's ledger, an earlier one's, another key's: nothing is sent, and it is said which."""
    used.run("UPDATE batchpay.ledger SET version = version + 1")
    with pytest.raises(LedgerNewer):
        used.open()
    used.run("UPDATE batchpay.ledger SET version = 0")
    with pytest.raises(LedgerOlder):
        used.open()
    used.run("UPDATE batchpay.ledger SET version = 2, key_id = 'another'")
    with pytest.raises(LedgerNotUsable, match="is not the key of the ledger"):
        used.open()
    used.key.unlink()
    with pytest.raises(LedgerNotUsable, match="copy it from a machine"):
        used.open()


def test_a_further_machine_joins_once(used: PostgresFactory) -> None:
    """Without a witness nothing is sent from a machine; joining takes a person, a reason and the key."""
    other = used.on_another_machine(used.folder / "other")
    with pytest.raises(LedgerBehind, match="ledger join"):
        other.open()
    for who, why in (("", "x"), ("ada", " ")):
        with pytest.raises(WrongUse, match="named person"):
            join(other.settings, who, why)
    ledger = other.join()
    assert [(event.who, event.why) for event in ledger.events() if event.kind == "joined"] == [
        ("tester", "a second machine")
    ]
    with pytest.raises(WrongUse, match="already knows the ledger"):
        other.join()
    send(ledger, None, {3: ACCEPTED})
    other.close()
    assert used.open().check() == []
    with pytest.raises(WrongUse):
        join(LedgerSettings(url=str(used.folder / "ledger.db")), "ada", "x")


def test_a_cloned_machine_speaks_for_itself_alone(factory: PostgresFactory) -> None:
    """A clone of a home has its witness and the marks of its runs: it took a batch over whose run was alive elsewhere.

    It sends nothing before it has joined, and knows then that the run is not its own.
    """
    factory.settings = replace(factory.settings, machine="one")
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with ledger.lock(ledger.find(name).digest):
        ledger.start(name, "ada").commit([1], [])
        clone = LedgerFactory(factory.folder / "clone", factory.settings.url)
        shutil.copytree(factory.key.parent, clone.key.parent)
        clone.settings = replace(clone.settings, machine="two")
        assert states(clone.open(read_only=True), name)[1] is State.SENDING
        with pytest.raises(LedgerOnAnotherMachine, match="was copied here from another machine"):
            clone.open()
        join(clone.settings, "tester", "a second machine")
        with pytest.raises(LedgerElsewhere, match="another address"):  # its loopback address is not the other machine's
            clone.open()
        accept(clone.settings, "tester", "the same server")
        of_clone = clone.open()
        with pytest.raises(BatchHeld), of_clone.lock(of_clone.find(name).digest):
            pass
        assert len(list(factory.key.parent.glob("witness.run.*"))) == 1
    clone.close()


def test_a_witness_follows_the_ledger_to_another_address(used: PostgresFactory) -> None:
    """A second host in ledger.url, another name of the same server: this machine still knows what it knew.

    The witness was looked for under the name of the address, and a machine that found none was told to join anew, which
    forgets all that it knew.
    """
    used.settings = replace(used.settings, witness="")
    used.witness.rename(location(used.settings).witness)
    used.settings = replace(used.settings, url=used.settings.url.replace("127.0.0.1", "localhost"))
    send(used.open(), None, {3: ACCEPTED})
    used.close()
    with pytest.raises(WrongUse, match="already knows the ledger"):
        used.join()
    used.settings = replace(used.settings, witness=str(used.folder / "keys" / "named"))
    with pytest.raises(LedgerBehind, match="is not there"):
        used.open()


def test_a_restored_database_sends_nothing_on_a_machine_that_knows(used: PostgresFactory) -> None:
    """A copy from before the last payment: the witness knows an event that is not there any more."""
    copy = f"{used.database}_copy"
    used.server.run(f"CREATE DATABASE {copy} TEMPLATE {used.database}")
    send(used.open(), None, {3: ACCEPTED})
    used.close()
    used.server.drop(used.database)
    used.server.run(f"ALTER DATABASE {copy} RENAME TO {used.database}")
    with pytest.raises(LedgerBehind, match="nothing was sent now"):
        used.open()
    looking = used.open(read_only=True)
    for told in (str(looking.differences[0]), str(looking.find(None).outdated)):
        assert told.startswith("the ledger is older than this machine's witness")
    used.close()
    for who, why in (("", "x"), ("ada", " ")):
        with pytest.raises(WrongUse, match="named person"):
            accept(used.settings, who, why)
    assert accept(used.settings, "ada", "restored after the fire").marked_in_doubt == 1
    with pytest.raises(WrongUse, match="there is nothing to accept"):
        accept(used.settings, "ada", "typed twice")
    since = accept(used.settings, "ada", "to be sure", rows_in_doubt=True).lost
    assert since is not None
    assert since.last_event is None
    assert used.open(read_only=True).find(None).outdated is None
    ledger = used.open()
    assert states(ledger, ledger.find(None).batch)[3] is State.IN_DOUBT
    assert ledger.check() == []
    with pytest.raises(WaitingForPerson):
        register(ledger, columns(ledger, [7], salt="x"), content=b"two")
    used.close()
    confirm(used.settings, "ada", "the bank's list was compared")
    with pytest.raises(WrongUse, match="nothing that this ledger lost"):
        confirm(used.settings, "ada", "again")
    ledger = used.open()
    register(ledger, columns(ledger, [7], salt="x"), content=b"two")
    settled = [(event.who, event.why) for event in ledger.events() if event.kind == "lost window settled"]
    assert settled == [("ada", "the bank's list was compared")]


def test_of_two_runs_the_one_that_committed_last_is_known_too(factory: PostgresFactory) -> None:
    """It had drawn its event's number first, so the latest number was there, and its row was sent once more.

    What is brought back stands as the server did between the two commits; so would a standby that took over just then.
    """
    programs = programs_found()
    if programs is None:
        pytest.skip("no programs of PostgreSQL")
    ledgers = [factory.create(), factory.open()]
    names = [
        register(ledger, columns(ledger, [1], salt=one), content=one.encode())
        for ledger, one in zip(ledgers, "ab", strict=True)
    ]
    factory.run(_WAITS)
    granted: list[set[int]] = []
    with (
        ledgers[0].lock(ledgers[0].find(names[0]).digest),
        ledgers[1].lock(ledgers[1].find(names[1]).digest),
        psycopg.connect(factory.server.owner_url(factory.database), autocommit=True) as holding,
    ):
        first, second = (ledger.start(name, "ada") for ledger, name in zip(ledgers, names, strict=True))
        holding.execute("SELECT pg_advisory_lock(7)")
        committing = threading.Thread(target=lambda: granted.append(first.commit([1], [])))
        committing.start()
        until(lambda: factory.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        assert second.commit([1], []) == {1}
        dump = subprocess.run(
            [programs / "pg_dump", factory.server.owner_url(factory.database)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        holding.execute("SELECT pg_advisory_unlock(7)")
        committing.join()
    assert granted == [{1}]
    factory.close()
    factory.server.drop(factory.database)
    factory.server.run(f"CREATE DATABASE {factory.database}")
    factory.server.load(dump, factory.database)
    with pytest.raises(LedgerBehind, match="older than this machine's witness"):
        factory.open()


_WAITS = """
CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(7); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON batchpay.event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.kind = 'progress' AND NEW.batch = 1) EXECUTE FUNCTION public.wait();
"""
"""Commits of the first batch's groups wait, with their numbers drawn, while somebody holds the lock."""


def test_a_look_is_enough_to_know_a_restored_database(used: PostgresFactory) -> None:
    """A machine that only looks, by cron, knows what the others did: a copy from before that is refused there too."""
    other = used.on_another_machine(used.folder / "other")
    other.join()
    other.close()
    copy = f"{used.database}_copy"
    used.server.run(f"CREATE DATABASE {copy} TEMPLATE {used.database}")
    send(used.open(), None, {3: ACCEPTED})
    used.close()
    other.open(read_only=True)
    other.close()
    used.server.put_back(copy, used.database)
    used.server.drop(copy)
    other.open(read_only=True)  # a ledger that is behind can be looked at, and changes nothing of what is known
    other.close()
    with pytest.raises(LedgerBehind, match="older than this machine's"):
        other.open()


def test_a_restored_database_shuts_out_the_runs_that_it_shows(factory: PostgresFactory) -> None:
    """A run that the copy holds for alive, elsewhere or here, is never granted anything any more."""
    ledger = factory.create()
    name = register(ledger, columns(ledger, [1, 2]))
    with held_run(ledger, name) as run:
        run.commit([1], [])
        factory.witness.write_bytes(b"")
        accept(factory.settings, "ada", "tried", rows_in_doubt=True)
        with pytest.raises(LedgerNotUsable, match="taken over the batch"):
            run.commit([2], [])
    factory.close()
    assert factory.open().check() == []


CHANGES = (
    "UPDATE batchpay.payment SET amount_cents = 1",
    "UPDATE batchpay.batch SET digest = digest",
    "UPDATE batchpay.event SET mac = mac",
    "UPDATE batchpay.run SET token = token",
    "DELETE FROM batchpay.payment",
    "DELETE FROM batchpay.attempt",
    "DELETE FROM batchpay.event",
    "UPDATE batchpay.detail SET sealed = sealed",
    "TRUNCATE batchpay.fingerprint",
    "UPDATE batchpay.ledger SET ledger_id = ''",
    "DROP TABLE batchpay.event",
    "ALTER TABLE batchpay.payment DISABLE TRIGGER ALL",
)


def test_batchpays_own_login_can_not_change_what_has_happened(used: PostgresFactory) -> None:
    """No amount, no digest, no past event; and whoever only reads sees no sealed text and no token."""
    with closing(psycopg.connect(used.settings.url, autocommit=True)) as connection:
        for statement in CHANGES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    unchecked = f"{location(used.settings).name} keeps no data checksums: a damaged page may be believed"
    assert weaknesses(used.settings) == [unchecked] * (used.run("SHOW data_checksums") == [("off",)])
    with closing(psycopg.connect(used.server.owner_url(used.database), autocommit=True)) as connection:
        for statement in ("UPDATE batchpay.event SET at = 0", "DELETE FROM batchpay.event",
                          "DELETE FROM batchpay.attempt", "TRUNCATE batchpay.event"):  # fmt: skip
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement.encode())
            assert refused.value.sqlstate == "BP005"
        connection.execute("SET ROLE batchpay_report")
        connection.execute("SELECT * FROM batchpay.control_total")
        for statement in ("SELECT sealed FROM batchpay.body", "SELECT token FROM batchpay.run"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    owner = replace(used.settings, url=used.server.owner_url(used.database))
    assert any("owns the ledger's tables" in one for one in weaknesses(owner))


def test_no_account_number_stands_in_the_database(used: PostgresFactory) -> None:
    """Neither in a table nor in what is sealed there."""
    tables = used.run("SELECT table_name FROM information_schema.tables WHERE table_schema = 'batchpay'")
    assert len(tables) > 10
    for (table,) in tables:
        rows = used.run(f"SELECT t::text FROM batchpay.{table} t")
        assert not any(CANARY in str(row) or CANARY.encode().hex() in str(row) for row in rows), table
    if os.environ.get("BATCHPAY_TEST_POSTGRES"):
        return  # its files are elsewhere
    used.run("CHECKPOINT")
    data = Path(str(used.run("SHOW data_directory")[0][0]))
    (oid,) = used.run("SELECT oid FROM pg_database WHERE datname = current_database()")[0]
    files = [*(data / "base" / str(oid)).iterdir(), *(data / "pg_wal").glob("0*"), data.parent / "log"]
    assert len(files) > 100
    secrets = (CANARY.encode(), "Zoë".encode(), used.key.read_bytes().strip())
    assert [file.name for file in files for secret in secrets if secret in file.read_bytes()] == []


@pytest.mark.parametrize(
    "setting", ["fsync = off", "full_page_writes = off", "zero_damaged_pages = on", "ignore_checksum_failure = on"]
)
def test_a_server_that_is_set_to_lose_records_is_refused(used: PostgresFactory, setting: str) -> None:
    """Looked at with every connection; what the server's other databases need is their affair."""
    name, _, value = setting.split()
    (before,) = used.run(f"SHOW {name}")
    used.run(f"ALTER SYSTEM SET {setting}")
    try:
        reload_setting(used.server, name, value)
        with pytest.raises(LedgerNotUsable, match=f"can't keep the ledger: {name} is {value}; nothing was sent"):
            used.open()
    finally:
        used.run(f"ALTER SYSTEM RESET {name}")
        reload_setting(used.server, name, str(before[0]))


def test_a_database_of_another_encoding_is_refused(postgres_server: Server, tmp_path: Path) -> None:
    """Before anything is made in it."""
    database = postgres_server.empty_database("ENCODING SQL_ASCII TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    factory = LedgerFactory(tmp_path, postgres_server.url(database))
    with pytest.raises(LedgerNotUsable, match="its encoding is SQL_ASCII"):
        create_ledger(factory.settings, "tester", owner_url=postgres_server.owner_url(database))
    postgres_server.drop(database)


def test_sixteen_machines_register_at_once(factory: PostgresFactory) -> None:
    """One file: one batch. Files of their own: all at the first try, though each looked before the others wrote.

    Counted like a file's ledger does, three tries of each were not enough for more than three machines.
    """
    factory.create()
    machines = [factory.open() for _ in range(16)]
    both = threading.Barrier(len(machines))

    def submit(ledger: Ledger, number: int, content: bytes, salt: str) -> str | None:
        batch = new_batch(ledger, 1, content=content)
        both.wait()
        try:
            with ledger.register(batch, f"machine {number}") as registering:
                registering.add_payments(columns(ledger, [number], salt=salt, named=[number], id_salt=salt))
                return registering.finish()
        except RegisteredMeanwhile:
            return None

    def at_once(content: Callable[[int], bytes], row: Callable[[int], int], salt: str) -> list[str | None]:
        with ThreadPoolExecutor(len(machines)) as pool:
            calls = [pool.submit(submit, one, row(at), content(at), salt) for at, one in enumerate(machines)]
            return [call.result() for call in calls]

    names = at_once(lambda _: b"one file", lambda _: 1, "a")
    assert sum(name is not None for name in names) == 1
    assert None not in at_once(lambda at: b"file %d" % at, lambda at: at + 1, "b")
    assert sum(name is not None for name in at_once(lambda at: b"new %d" % at, lambda _: 1, "c")) == 1, "one paymentId"
    ledger = machines[0]
    assert len(ledger.batches()) == 18
    assert ledger.check() == []


def test_what_a_server_can_not_do_is_refused_in_words(used: PostgresFactory) -> None:
    """Backups are the database's own affair; that one was made can be recorded."""
    ledger = used.open()
    with pytest.raises(WrongUse, match="by the database's own means"):
        ledger.backup(used.folder / "copy.db")
    ledger.note_backup("ada", "nightly base backup")
    assert ledger.check() == []


def test_no_file_is_taken_for_a_database(tmp_path: Path) -> None:
    """And the reverse: a path is SQLite's, whatever it is called."""
    settings = LedgerSettings(url=str(tmp_path / "postgresql.db"), key_file=str(tmp_path / "k" / "key"))
    create_ledger(settings, "tester")
    with closing(sqlite3.connect(tmp_path / "postgresql.db")) as connection:
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (1,)
    with pytest.raises(WrongUse, match="owner-url"):
        create_ledger(settings, "tester", owner_url="postgresql://x@127.0.0.1/x")


def test_a_person_brings_a_clock_that_was_ahead_to_an_end(
    factory: PostgresFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose clock was a year ahead wrote one event: no machine could write for a year, not even that word."""
    ledger = factory.create()
    with monkeypatch.context() as ahead:
        ahead.setattr(SharedClock, "now_ms", lambda clock: clock.server_ms + 365 * 86_400_000)
        batch = register(ledger, columns(ledger, [1]))
    factory.close()
    with pytest.raises(LedgerNotUsable, match="hours before the ledger's last event"):
        factory.open()
    accepted = accept(factory.settings, "ann", "the date of host B was wrong")
    assert (accepted.marked_in_doubt, accepted.lost) == (0, None), "a clock speaks of no loss"
    assert states(factory.open(), batch) == {1: State.PENDING}
    assert register(factory.open(), columns(ledger, [2]), content=b"new")
