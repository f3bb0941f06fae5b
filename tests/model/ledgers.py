"""Where a walk's ledger is, and what happens to it behind the program's back: a file, or a server's database."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.support.postgres import Server

if TYPE_CHECKING:
    from tests.model.world import World

LEDGER = Path(".local/state/batchpay/ledger.db")
_PENDING, _FINAL = 3, (5, 6)
"""Codes of states in the ledger's table of rows: what a person sees who opens it by hand."""


class Ledger(Protocol):
    """A walk's ledger."""

    environment: dict[str, str]
    """What tells the program where it is."""
    init: tuple[str, ...]
    """Options by which it is created."""
    is_in_home: bool
    """Whether a copy of the home is a second ledger."""

    def back_up(self, world: World) -> str:
        """Keep a copy; return its name, or nothing if none could be made."""

    def bring_back(self, copy: str, *, in_use: bool = False) -> None:
        """Put a copy in its place; `in_use` does so while a command has the ledger open."""

    def copied(self, world: World) -> AbstractContextManager[tuple[Path, dict[str, str]]]:
        """Copy it and the home that knows it for a while; yields that home, and what tells where the copy is."""

    def edited(self, world: World) -> AbstractContextManager[Path | None]:
        """Make paid rows pending with a database tool for a while; yields the home that has it so, or None."""

    def texts_of(self, batch: str) -> tuple[int, int]:
        """Count the details and the messages that the tables have of a batch."""

    def close(self) -> None:
        """Remove what is not in the walk's folder."""


class LedgerFile:
    """The file in a home."""

    init: tuple[str, ...] = ()
    is_in_home = True

    def __init__(self, home: Path) -> None:
        self.environment: dict[str, str] = {}
        self._path = home / LEDGER

    def back_up(self, world: World) -> str:
        path = str(world.folder / f"backup-{len(world.commands)}.db")
        return "" if world.run("ledger", "backup", path).code else path

    def bring_back(self, copy: str, *, in_use: bool = False) -> None:
        if in_use:  # by another process: closing the file in this one would drop the locks of its connections
            subprocess.run(["cp", copy, str(self._path)], check=True)
            return
        for left in ("-wal", "-shm"):
            Path(f"{self._path}{left}").unlink(missing_ok=True)
        shutil.copyfile(copy, self._path)

    @contextmanager
    def copied(self, world: World) -> Iterator[tuple[Path, dict[str, str]]]:
        with world.another_home("copy") as home:
            yield home, {}

    @contextmanager
    def edited(self, world: World) -> Iterator[Path | None]:
        with world.another_home("edited") as before, world.as_it_was(before):
            with closing(sqlite3.connect(self._path)) as connection:
                statement = "UPDATE row SET state = ? WHERE state IN (?, ?)"
                changed = connection.execute(statement, (_PENDING, *_FINAL)).rowcount
                connection.execute("DELETE FROM attempt")
                connection.commit()
            yield world.home if changed else None

    def texts_of(self, batch: str) -> tuple[int, int]:
        with closing(sqlite3.connect(self._path)) as connection:
            ((number,),) = connection.execute("SELECT id FROM batch WHERE name = ?", (batch,))
            ((details,),) = connection.execute(
                "SELECT count(*) FROM detail JOIN chunk ON chunk.id = detail.chunk WHERE chunk.batch = ?", (number,)
            )
            ((texts,),) = connection.execute(
                "SELECT count(*) FROM attempt WHERE id >> 32 = ? AND (message IS NOT NULL OR reason IS NOT NULL)",
                (number,),
            )
            return details, texts

    def close(self) -> None:
        pass


class LedgerDatabase:
    """A database of its own; it is copied and restored by the server's means."""

    is_in_home = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self._name = server.new_database()
        self._copies: list[str] = []
        self.environment = {"BATCHPAY_LEDGER": server.url(self._name)}
        self.init: tuple[str, ...] = ("--owner-url", server.owner_url(self._name))

    def back_up(self, world: World) -> str:
        self._copies.append(f"{self._name}_{len(self._copies)}")
        self._copy(self._name, self._copies[-1])
        return self._copies[-1]

    def bring_back(self, copy: str, *, in_use: bool = False) -> None:
        self._server.put_back(copy, self._name)

    @contextmanager
    def copied(self, world: World) -> Iterator[tuple[Path, dict[str, str]]]:
        name = f"{self._name}_beside"
        self._copy(self._name, name)
        try:
            with world.another_home("copy") as home:
                yield home, {"BATCHPAY_LEDGER": self._server.url(name)}
        finally:
            self._server.drop(name)

    @contextmanager
    def edited(self, world: World) -> Iterator[Path | None]:
        copy = self.back_up(world)
        statement = f"UPDATE batchpay.payment SET state = {_PENDING} WHERE state IN {_FINAL} RETURNING row"  # noqa: S608
        changed = self._server.run(statement, self._name)
        self._server.run("SET session_replication_role = replica; DELETE FROM batchpay.attempt", self._name)
        try:
            with world.another_home("edited") as home:  # the machine's own memory of the ledger is a copy too
                yield home if changed else None
        finally:
            self.bring_back(copy)

    def texts_of(self, batch: str) -> tuple[int, int]:
        ((number,),) = self._server.run(f"SELECT id FROM batchpay.batch WHERE name = '{batch}'", self._name)  # noqa: S608
        statement = f"SELECT count(*) FROM batchpay.{{}} WHERE batch = {number} AND {{}}"  # noqa: S608
        ((details,),) = self._server.run(statement.format("detail", "true"), self._name)
        texts = statement.format("attempt", "(message IS NOT NULL OR reason IS NOT NULL)")
        return int(str(details)), int(str(self._server.run(texts, self._name)[0][0]))

    def close(self) -> None:
        for name in (self._name, *self._copies):
            self._server.drop(name)

    def _copy(self, name: str, other: str) -> None:
        self._server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
        self._server.run(f"CREATE DATABASE {other} TEMPLATE {name} STRATEGY file_copy")
