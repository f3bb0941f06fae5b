"""Every payment that a file would send, stored for paging: written once by a check, read by pages a block at a time.

A small SQLite file next to the upload, apart from its sweep. Rows are masked before they are sealed, in blocks of a
hundred: a list for each filter in each order, so that a page opens one block. A block is bound to the plan's seal, its
list and its place. In clear are the flags with their counts; words to search by are keyed digests.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import RETURNS
from batchpay.text import folded, printable
from batchpay.web.grid import BLOCK
from batchpay.web.spool import KEPT_S, SETTLED, WebStore

if TYPE_CHECKING:  # pages read a table, and never load what checks a file
    import polars as pl

ORDERS = {"": "as in the file", "amount": "largest amount first", "name": "by name", "day": "by day"}
"""The orders of a table, as a person reads them."""
ALL = ""
"""The list without a filter."""
FOUND_MAX = BLOCK
"""A search shows so many rows."""
_SORTED_MAX = 200_000
"""A larger file has its own order and that by amount alone: each order is kept as a list of its own."""
_MARK_BYTES = 8
_AS_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE block (list TEXT NOT NULL, at INTEGER NOT NULL, sealed BLOB NOT NULL, PRIMARY KEY (list, at))
        STRICT, WITHOUT ROWID;
    CREATE TABLE total (flag TEXT PRIMARY KEY, rows INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE word (mark BLOB NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (mark, n)) STRICT, WITHOUT ROWID
"""


class Payment(NamedTuple):
    """A payment as it may be shown; the order of fields is that of workflows/sent_rows.SHOWN."""

    row: int
    line: int | None
    name: str
    invoice: str | None
    payment_id: str | None
    direction: str
    amount: str
    currency: str
    account: str
    first_seen: str | None
    pay_on: str | None
    flags: list[str]
    warnings: str | None


def table_path(home: Path, file_id: str) -> Path:
    """Return the path of a file's table: it outlives the upload, as evidence of what was decided."""
    return home / "payments" / f"{file_id}.db"


def write_payments(
    path: Path, file_id: str, ledger: Ledger, seal: str, frames: Iterator[pl.DataFrame], **facts: Any
) -> None:
    """Write the masked rows of a check, in place of those of an earlier one; `facts` are kept in clear."""
    import polars as pl

    found = list(frames)
    new = path.with_suffix(".new")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(new, isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF").fetchone()
    db.execute("PRAGMA synchronous = OFF")
    for statement in _TABLES.split(";"):
        db.execute(statement)
    db.execute("BEGIN")
    meta = {"seal": seal, **facts}
    db.executemany("INSERT INTO meta VALUES (?, ?)", [(name, json.dumps(value)) for name, value in meta.items()])
    if found:
        rows = pl.concat(found)
        texts, numbered = [_text(row) for row in rows.iter_rows()], rows.with_row_index("_n")
        flags = rows.select(pl.col("flags").explode().value_counts()).unnest("flags").drop_nulls()
        totals = {ALL: rows.height, **dict(flags.iter_rows())}
        db.executemany("INSERT INTO total VALUES (?, ?)", totals.items())
        orders: dict[str, Any] = {
            "": [],
            "amount": [-pl.col("amount").cast(pl.Decimal(18, 2)), pl.col("row")],
            "name": [pl.col("name").str.to_lowercase(), pl.col("row")],
            "day": [pl.col("payOn").str.to_date("%m/%d/%Y", strict=False), pl.col("row")],
        }
        for order, keys in orders.items() if rows.height <= _SORTED_MAX else list(orders.items())[:2]:
            ordered = numbered.sort(keys) if keys else numbered
            for flag in totals:
                some = ordered.filter(pl.col("flags").list.contains(flag)) if flag else ordered
                name, numbers = _list(flag, order), some["_n"].to_list()
                db.executemany(
                    "INSERT INTO block VALUES (?, ?, ?)",
                    (
                        (name, at, ledger.seal(_block(texts, numbers, at), _place(file_id, seal, name, at)))
                        for at in range(-(-len(numbers) // BLOCK))
                    ),
                )
        found_by: defaultdict[str, list[int]] = defaultdict(list)
        words_of = cache(_words)
        sought = rows.select("name", "account", "amount", "invoiceNumber", "paymentId").fill_null("")
        for n, one in enumerate(sought.iter_rows()):
            for word in set().union(*map(words_of, one)):
                found_by[word].append(n)
        marks = ledger.digest("search", list(found_by), _MARK_BYTES)
        pairs = sorted(zip(marks, found_by.values(), strict=True))  # in the order of their index
        db.executemany("INSERT INTO word VALUES (?, ?)", ((mark, n) for mark, some in pairs for n in some))
    db.execute("COMMIT")
    db.close()
    new.replace(path)


class Payments:
    """A table to read; cheap to open for every request. Raises sqlite3.DatabaseError if there is none, or not whole."""

    def __init__(self, path: Path, file_id: str, ledger: Ledger) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        self._file_id, self._ledger = file_id, ledger
        try:
            self.facts = {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM meta")}
            self.totals: dict[str, int] = dict(self._db.execute("SELECT flag, rows FROM total ORDER BY rows"))
            self.orders = {
                order: said for order, said in ORDERS.items() if self._sealed(_list(ALL, order), 0) is not None
            }
        except sqlite3.Error:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def block(self, flag: str, order: str, at: int) -> list[Payment]:
        """Return up to a hundred payments; none past the end."""
        name = _list(flag, order)
        sealed = self._sealed(name, at)
        if sealed is None:
            return []
        plain = self._ledger.unseal(sealed, _place(self._file_id, self.facts["seal"], name, at))
        return [Payment(*one) for one in json.loads(plain)]

    def search(self, text: str) -> list[Payment]:
        """Return the first payments that have every word: of the name, invoice, paymentId, amount, last four."""
        words = _words(text)
        marks = self._ledger.digest("search", sorted(words), _MARK_BYTES)
        if not marks:
            return []
        each = " INTERSECT ".join(["SELECT n FROM word WHERE mark = ?"] * len(marks))
        numbers = [n for (n,) in self._db.execute(f"{each} ORDER BY n LIMIT {FOUND_MAX}", marks)]
        blocks = {at: self.block(ALL, "", at) for at in {n // BLOCK for n in numbers}}
        return [blocks[n // BLOCK][n % BLOCK] for n in numbers]

    def _sealed(self, name: str, at: int) -> bytes | None:
        found = self._db.execute("SELECT sealed FROM block WHERE list = ? AND at = ?", (name, at)).fetchone()
        return found[0] if found else None


def known_of(ledger: Ledger) -> dict[str, Any]:
    """Return what a table keeps of a ledger at its check, to tell later whether it has learned more."""
    latest = ledger.latest_event(RETURNS)
    returned = None if latest is None else latest.at.isoformat()
    return {"registrations": ledger.registration_count(), "returned": returned}


def remove_tables(store: WebStore, unpurged: Collection[str]) -> None:
    """Remove the tables of files long settled that nobody decided on, and of batches whose details were purged."""
    for path in store.home.glob("payments/*.db"):
        file = store.file(path.stem)
        is_evidence = store.one("SELECT 1 FROM decision WHERE file = ?", path.stem) is not None
        if file is not None and file["batch"] and is_evidence:
            goes = file["batch"] not in unpurged
        else:
            goes = file is None or (file["state"] in SETTLED and file["uploaded_at"] < store.clock() - KEPT_S)
        if goes:
            path.unlink(missing_ok=True)


def _text(row: Sequence[Any]) -> str:
    shown = [printable(cell) if isinstance(cell, str) and not cell.isprintable() else cell for cell in row]
    return _AS_JSON(shown)


def _block(texts: Sequence[str], numbers: Sequence[int], at: int) -> bytes:
    return f"[{','.join(texts[n] for n in numbers[at * BLOCK : (at + 1) * BLOCK])}]".encode()


def _words(text: str) -> set[str]:
    plain = text.lower()
    if not text.isascii():  # most are, and nothing of these needs to be folded
        plain = "".join(one for one in unicodedata.normalize("NFD", folded(text)) if not unicodedata.combining(one))
    if "," in plain:
        plain = re.sub(r"(?<=\d),(?=\d{3})", "", plain).replace(",", " ")
    return set(plain.replace("*", "").split())


def _list(flag: str, order: str) -> str:
    return f"{flag}/{order}"


def _place(file_id: str, seal: str, name: str, at: int) -> str:
    return f"web {file_id} payments {seal} {name} {at}"
