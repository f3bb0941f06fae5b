"""A PostgreSQL server for tests: the one that BATCHPAY_TEST_POSTGRES names, else one of our own, thrown away after.

Our own is created with whatever `initdb` is found, on loopback, without root rights: as root it runs as `nobody`. Each
test gets a database of its own, cloned from one that has the ledger's schema; batchpay logs in as `payer`, which has
the rights of batchpay_app and no others.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psycopg
import pytest
import trustme

from batchpay.ledger.open import schema_text

PAYER = "payer"
_TEMPLATE = "batchpay_template"
_PREFIX = "batchpay-postgres-"
_LOCKED_WITHIN_S = 60
"""How long after it was made a folder is certainly locked by whoever made it."""
_SAME_PLACE = (
    "UPDATE batchpay.ledger SET place = regexp_replace(place, '^([^/]+/[^/]+)/[0-9]+/',"
    " '\\1/' || (SELECT oid FROM pg_database WHERE datname = current_database()) || '/')"
)
_SETTINGS = {
    "max_connections": "60", "shared_buffers": "16MB", "wal_level": "replica", "max_wal_senders": "2",
    "autovacuum": "off", "listen_addresses": "127.0.0.1, 127.0.0.2", "max_wal_size": "128MB", "min_wal_size": "32MB",
}  # fmt: skip


class Server:
    """A server, and the databases created in it."""

    def __init__(self, host: str, port: int, owner: str) -> None:
        self.host, self.port, self.owner = host, port, owner
        self._numbers = count(1)
        self._has_template = False

    def url(self, database: str, user: str = PAYER) -> str:
        """Return the address of a database, for ledger.url."""
        return f"postgresql://{user}@{self.host}:{self.port}/{database}"

    def owner_url(self, database: str) -> str:
        """Return the address of a database for its owner, who may do everything."""
        return self.url(database, self.owner)

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement, or several without results, as the owner."""
        with psycopg.connect(self.owner_url(database), autocommit=True) as connection:
            found = connection.execute(statement.encode(), prepare=False)
            return found.fetchall() if found.description else []

    def new_database(self) -> str:
        """Create a database that has the ledger's schema, and no ledger yet."""
        if not self._has_template:
            self._make_template()
        name = f"ledger_{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        return name

    def empty_database(self, options: str = "") -> str:
        """Create an empty database."""
        name = f"empty_{os.getpid()}_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} {options}")
        return name

    def load(self, dump: str, database: str) -> None:
        """Load what pg_dump wrote, as a person would."""
        command = ["psql", "-q", "-v", "ON_ERROR_STOP=1", self.owner_url(database)]
        subprocess.run(command, input=dump, text=True, check=True, stdout=subprocess.DEVNULL)

    def put_back(self, copy: str, database: str) -> None:
        """Put a copy in a database's place as a snapshot of the server's files would be: nothing shows that it is."""
        self.drop(database)
        self.run(f"CREATE DATABASE {database} TEMPLATE {copy} STRATEGY file_copy")
        self.run(_SAME_PLACE, database)

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _make_template(self) -> None:
        self.drop(_TEMPLATE)
        self.run(f"CREATE DATABASE {_TEMPLATE}")
        self.run(schema_text(), _TEMPLATE)
        if (PAYER,) not in self.run("SELECT rolname FROM pg_roles"):
            self.run(f"CREATE ROLE {PAYER} LOGIN IN ROLE batchpay_app")
        self._has_template = True


def reload_setting(server: Server, name: str, value: str) -> None:
    """Have the server reload its settings, and wait until new connections have this one."""
    server.run("SELECT pg_reload_conf()")
    while server.run(f"SHOW {name}") != [(value,)]:
        pass


def encrypt(server: Server, authority: trustme.CA) -> bool:
    """Give a server of our own TLS and a certificate for localhost; False if it was built without TLS."""
    (folder,) = server.run("SHOW data_directory")[0]
    own = authority.issue_cert("localhost")
    for name, blob in (("cert", own.cert_chain_pems[0]), ("key", own.private_key_pem)):
        path = Path(str(folder)) / f"server.{name}"
        blob.write_to_path(path)
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, "nobody")
        server.run(f"ALTER SYSTEM SET ssl_{name}_file = '{path}'")
    try:
        server.run("ALTER SYSTEM SET ssl = on")
    except psycopg.Error:
        return False
    reload_setting(server, "ssl", "on")
    return True


@contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server; skips the test, or fails if BATCHPAY_REQUIRE_POSTGRES says that there must be one."""
    named = os.environ.get("BATCHPAY_TEST_POSTGRES")
    if named:
        parameters = psycopg.conninfo.conninfo_to_dict(named)
        yield Server(str(parameters["host"]), int(str(parameters.get("port", 5432))), str(parameters["user"]))
        return
    with own_cluster() as cluster:
        yield cluster.server()


@contextmanager
def own_cluster(settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    """Create and start a server of our own, which the test may stop and start; skips the test if none is installed."""
    programs = programs_found()
    if programs is None:
        words = "no PostgreSQL: install it, or set BATCHPAY_TEST_POSTGRES"
        if os.environ.get("BATCHPAY_REQUIRE_POSTGRES") and not os.environ.get("BATCHPAY_TEST_POSTGRES"):
            pytest.fail(words)
        pytest.skip(words)
    with folder_of_nobody() as folder:
        cluster = Cluster(programs, folder, settings)
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def folder_of_nobody() -> Iterator[Path]:
    """Yield a folder in memory for what runs `as_nobody`, who can't enter the one that TMPDIR may name.

    It is locked as long as it is used, and what killed tests left behind there is removed. Each is 80 MB: a day of
    killed tests left 19 GB, and the machine read its programs from the disk again and again.
    """
    memory = Path("/dev/shm")  # noqa: S108 (a sync of memory costs nothing, so the server can sync as it must)
    place = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left):  # in use, or just removed by another
            if time.time() - left.stat().st_mtime > _LOCKED_WITHIN_S:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place) as name, _locked(Path(name)):
        if os.geteuid() == 0:
            shutil.chown(name, "nobody", "nogroup")
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which ends with this process at the latest. Raises OSError if another one has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def programs_found() -> Path | None:
    """Find a server's programs: those on the PATH, else the newest in Debian's place."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.insert(0, Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Cluster:
    """A server's files and its process."""

    def __init__(self, programs: Path, folder: Path, settings: dict[str, str] | None = None) -> None:
        self._programs, self._folder = programs, folder
        self._settings = _SETTINGS | (settings or {})
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that is the parent of the server's others."""
        assert self._process is not None
        return self._process.pid

    def server(self) -> Server:
        """Return the server to create databases in."""
        return Server("127.0.0.1", self.port, "postgres")

    def make(self) -> None:
        """Write the files of a new server."""
        if os.geteuid() == 0:
            shutil.chown(self._folder, "nobody", "nogroup")
        self._run("initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync")
        self._write_settings()

    def _write_settings(self) -> None:
        lines = [f"{name} = '{value}'\n" for name, value in self._settings.items()]
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines([*lines, f"port = {self.port}\n", f"unix_socket_directories = '{self._folder}'\n"])

    def copy(self, name: str, *, base_backup: bool = False, in_place: bool = False) -> Cluster:
        """Copy this server's files; another server can be started on them, in the state of that time.

        A base backup is taken from the server while it runs; for a plain copy it must be stopped. Where the copy takes
        its place, it has the same address.
        """
        made = Cluster(self._programs, self._folder / name, self._settings)
        made.port = self.port if in_place else made.port
        made._folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(made._folder, "nobody", "nogroup")
        if base_backup:
            reached = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
            made._run("pg_basebackup", *reached, "-D", made.data, "-X", "fetch", "-c", "fast", "--no-sync")
        else:
            subprocess.run(["cp", "-a", self.data, made.data], check=True)
            (made.data / "postmaster.pid").unlink(missing_ok=True)
        made._write_settings()
        return made

    def dump(self, database: str) -> str:
        """Return what pg_dump writes of a database."""
        return self._run("pg_dump", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", database)

    def follows(self, other: Cluster, name: str) -> None:
        """Make this server, before it is started, a standby that follows another, under this name."""
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={other.port} user=postgres application_name={name}'\n")

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = self._folder / "log"
        with log.open("ab") as output:
            command = [*as_nobody(), str(self._programs / "postgres"), "-D", str(self.data)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)
        for _ in range(600):
            try:
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres", connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop the server immediately, as a power cut would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def _run(self, program: str, *arguments: str | Path) -> str:
        command = [*as_nobody(), str(self._programs / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")
        return done.stdout


def as_nobody() -> list[str]:
    """Return the prefix that a start as root needs: no PostgreSQL runs as root. It ends with the tests, in any case."""
    if os.geteuid() == 0:
        return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig", "INT"]
    return ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
