"""A PostgreSQL server for the demo: made of the programs that are found, in a temporary folder, thrown away after.

It listens on a socket in that folder alone, which nobody else can enter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from batchpay.errors import SettingsNotUsable

PAYER = "payer"
"""The login that sends; it owns nothing."""
_OWNER, _DATABASE = "owner", "demo"


class Database:
    """A running server with one database."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._data = folder / "data"

    def url(self, login: str = _OWNER) -> str:
        """Give its address, for ledger.url."""
        return f"postgresql://{login}@/{_DATABASE}?host={quote(str(self._folder), safe='')}"

    def let_in(self) -> None:
        """Give the login that sends what it needs, once there is a ledger."""
        self._run("psql", *self._reached, "-d", _DATABASE, "-c", f"GRANT batchpay_app TO {PAYER}")

    def start(self) -> None:
        """Make and start the server, and its database."""
        self._run(
            "initdb", "-D", self._data, "-U", _OWNER, "-E", "UTF8", "--auth=trust", "--data-checksums", "--no-sync"
        )
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._folder / "log", "-o", options, "start")
        self._run("createdb", *self._reached, _DATABASE)
        self._run("createuser", *self._reached, PAYER)

    def stop(self) -> None:
        """Stop the server; what it holds is thrown away."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop", check=False)

    @property
    def _reached(self) -> tuple[str, ...]:
        return ("-h", str(self._folder), "-U", _OWNER)

    def _run(self, program: str, *arguments: str | Path, check: bool = True) -> None:
        # No PostgreSQL runs as root.
        as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*as_nobody, str(self._programs / program), *map(str, arguments)]
        quiet = subprocess.DEVNULL
        done = subprocess.run(command, cwd=self._folder, stdout=quiet, stderr=quiet, check=False)  # noqa: S603 - installed
        if check and done.returncode:
            raise SettingsNotUsable(f"PostgreSQL could not be started for the demo: {program} failed")


@contextmanager
def running_database() -> Iterator[Database]:
    """Run a server; raises SettingsNotUsable where none is installed."""
    programs = _programs()
    if programs is None or (os.geteuid() == 0 and shutil.which("setpriv") is None):
        raise SettingsNotUsable(
            "no PostgreSQL server is installed on this machine (initdb was not found): batchpay demo shows the same "
            "with a ledger in a file"
        )
    with tempfile.TemporaryDirectory(prefix="batchpay-demo-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        database = Database(programs, folder)
        try:
            database.start()
            yield database
        finally:
            database.stop()


def _programs() -> Path | None:
    """Find a server's programs: those on the PATH, else the newest where Debian has them."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)
