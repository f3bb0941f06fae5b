"""The rows that need someone, stored for paging: written once by a check, read by pages a hundred rows at a time.

A small SQLite file next to the upload. A row's own cells are sealed; what is wrong with it (column, code, message) is
not: messages never hold an account number. The rows of one rule are found without opening any cell.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batchpay.ledger.contract import Ledger
from batchpay.schemas.columns import REJECTS_OWN
from batchpay.text import printable

if TYPE_CHECKING:  # pages read a grid, and never load what checks a file
    import polars as pl

    from batchpay.intake.source import Source
    from batchpay.writing.atomic import MayReplace

BLOCK = 100
"""Rows are fetched this many at a time."""
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE row (n INTEGER PRIMARY KEY, line INTEGER, wrong TEXT NOT NULL, sealed BLOB NOT NULL) STRICT;
    CREATE TABLE hit (rule TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (rule, n)) STRICT, WITHOUT ROWID;
    CREATE TABLE block (rule TEXT NOT NULL, at INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (rule, at))
        STRICT, WITHOUT ROWID;
    CREATE TABLE total (rule TEXT PRIMARY KEY, rows INTEGER NOT NULL) STRICT, WITHOUT ROWID
"""
_STARTS = (
    "INSERT INTO block SELECT '', (at - 1) / :block, n FROM (SELECT n, row_number() OVER (ORDER BY n) AS at FROM row)"
    " WHERE (at - 1) % :block = 0",
    "INSERT INTO block SELECT rule, (at - 1) / :block, n FROM (SELECT rule, n, row_number() OVER"
    " (PARTITION BY rule ORDER BY n) AS at FROM hit) WHERE (at - 1) % :block = 0",
)
_COUNTS = (
    "INSERT INTO total SELECT '', count(*) FROM row",
    "INSERT INTO total SELECT rule, count(*) FROM hit GROUP BY rule",
)


class Wrong(NamedTuple):
    """One thing that is wrong with a row."""

    place: int
    """Which of the person's own columns; -1 for the row as a whole."""
    column: str
    code: str
    message: str
    is_error: bool
    suggestion: str | None

    @property
    def rule(self) -> str:
        """Its rule, `amount.format`."""
        return f"{self.column}.{self.code}"


@dataclass(frozen=True, slots=True)
class GridRow:
    """One row to correct."""

    number: int
    line: int | None
    wrong: list[Wrong]
    cells: list[str | None]
    """The person's own, in their own order, as they can be shown."""

    def marks(self) -> dict[int, str]:
        """Return which cells are wrong, by position: `error`, or `warning`."""
        found = {one.place: "warning" for one in self.wrong if not one.is_error}
        return found | {one.place: "error" for one in self.wrong if one.is_error}


def grid_path(folder: Path) -> Path:
    """Return the path of a file's grid."""
    return folder / "grid.db"


class GridWriter:
    """Accepts rejected rows as validation.rejects.Rejects does, and writes a grid."""

    def __init__(self, folder: Path, file_id: str, ledger: Ledger, source: Source) -> None:
        self._path = grid_path(folder)
        self._new = self._path.with_name("grid.new")
        self._file_id, self._ledger, self._source = file_id, ledger, source
        self._told: dict[str, str] = {}
        self._suggested: dict[str, int] = {}
        self._used: set[int] = set()
        self._own = list(source.own_columns)
        self._places = {name: self._own.index(at) for name, at in source.own_of.items() if at in self._own}
        self._new.unlink(missing_ok=True)
        os.close(os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(self._new, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF").fetchone()
        self._db.execute("PRAGMA synchronous = OFF")
        for statement in _TABLES.split(";"):
            self._db.execute(statement)
        self._db.execute("BEGIN")

    def late(self, frame: pl.DataFrame) -> None:
        """Add rows found wrong at the end; such a row replaces what was recorded of it before."""
        self._db.executemany("DELETE FROM hit WHERE n = ?", [(number,) for number in frame["_row"]])
        self.add(frame)

    def commit(self, may_replace: MayReplace | None = None) -> Path:
        """Put the grid in its place."""
        meta = {
            "columns": list(self._source.own_header),
            "places": self._places,
            "suggested": self._suggested,
            "used": sorted(self._used - {-1}),
            "told": self._told,
            "line_word": self._source.line_word,
        }
        self._db.executemany("INSERT INTO meta VALUES (?, ?)", [(name, json.dumps(meta[name])) for name in meta])
        for statement in (*_STARTS, *_COUNTS):
            self._db.execute(statement, {"block": BLOCK})
        self._db.execute("COMMIT")
        self._db.close()
        self._new.replace(self._path)
        return self._path

    def abandon(self) -> None:
        """Write nothing."""
        self._db.close()
        self._new.unlink(missing_ok=True)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows of a chunk."""
        for number, line, errors, warnings, suggestions, *cells in frame.select(*REJECTS_OWN, *self._own).iter_rows():
            certain = dict(_parts(suggestions))
            wrong = [
                Wrong(self._places.get(column, -1), column, code, message, is_error, certain.get(column))
                for is_error, texts in ((True, errors), (False, warnings))
                for column, rest in _parts(texts)
                for code, _, message in [rest.partition(": ")]
            ]
            for one in wrong:
                self._told.setdefault(one.rule, one.message)
                if one.is_error and one.suggestion is not None:
                    self._suggested[one.rule] = self._suggested.get(one.rule, 0) + 1
            self._used.update(one.place for one in wrong if one.is_error)
            texts = json.dumps([None if cell is None else str(cell) for cell in cells], ensure_ascii=False)
            sealed = self._ledger.seal(texts.encode(), _row_place(self._file_id, number))
            listed = json.dumps(wrong, ensure_ascii=False)
            self._db.execute("INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?)", (number, line, listed, sealed))
            rules = {one.rule for one in wrong if one.is_error}
            self._db.executemany("INSERT INTO hit VALUES (?, ?)", [(rule, number) for rule in rules])


class Grid:
    """A grid to read; cheap to open for every request. Raises sqlite3.DatabaseError if there is none, or not whole."""

    def __init__(self, folder: Path, file_id: str, ledger: Ledger) -> None:
        self._db = sqlite3.connect(f"file:{grid_path(folder)}?mode=ro&immutable=1", uri=True)
        self._file_id, self._ledger = file_id, ledger
        try:
            meta = {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM meta")}
            self.count()  # the first versions wrote no totals
        except sqlite3.Error:
            self._db.close()
            raise
        self.columns: list[str] = meta["columns"]
        """What the file itself calls its columns."""
        self.places: dict[str, int] = meta["places"]
        """Positions of the columns that the program knows among them."""
        self.suggested: dict[str, int] = meta["suggested"]
        """How many cells of each rule have a certain suggestion."""
        self.used: list[int] = meta["used"]
        """Positions of the columns in which something is wrong."""
        self.told: dict[str, str] = meta["told"]
        """A message of each rule."""
        self.line_word: str = meta["line_word"]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def count(self, rule: str = "") -> int:
        """Return how many rows there are, or how many break a rule."""
        found = self._db.execute("SELECT rows FROM total WHERE rule = ?", (rule,)).fetchone()
        return int(found[0]) if found else 0

    def starts(self, rule: str = "", first: int = 0, most: int = 1 << 31) -> list[int]:
        """Return the first row number of blocks: they are found by key, not by counting."""
        found = self._db.execute(
            "SELECT n FROM block WHERE rule = ? AND at >= ? ORDER BY at LIMIT ?", (rule, first, most)
        )
        return [number for (number,) in found]

    def block(self, rule: str, start: int) -> Iterator[GridRow]:
        """Yield up to a hundred rows from a row number on."""
        columns = "n, line, wrong, sealed"
        statement = (
            f"SELECT {columns} FROM hit JOIN row USING (n) WHERE rule = :rule AND n >= :start"  # noqa: S608
            if rule
            else f"SELECT {columns} FROM row WHERE n >= :start"  # noqa: S608
        )
        found = self._db.execute(f"{statement} ORDER BY n LIMIT {BLOCK}", {"rule": rule, "start": start})
        for number, line, wrong, sealed in found:
            cells = json.loads(self._ledger.unseal(sealed, _row_place(self._file_id, number)))
            shown = [cell if cell is None or cell.isprintable() else printable(cell) for cell in cells]
            yield GridRow(number, line, [Wrong(*one) for one in json.loads(wrong)], shown)


def _row_place(file_id: str, number: int) -> str:
    return f"web {file_id} row {number}"


def _parts(text: str | None) -> Iterable[tuple[str, str]]:
    """Split `column: …; column: …`."""
    for entry in (text or "").split("; "):
        column, found, rest = entry.partition(": ")
        if found:
            yield column, rest
