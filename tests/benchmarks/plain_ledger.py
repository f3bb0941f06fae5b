"""The floor of a ledger: the same rows in an SQLite that proves nothing, in plain Python's own words.

    python -m tests.benchmarks.plain_ledger BODIES FOLDER GROUP

Registering: each body packed with those of its chunk, a keyed digest of it in a unique index, one transaction. Sending:
for each group one synced transaction that notes the rows as being sent and the answers of the group before. No history,
no seals, no totals, no encryption, no look for duplicates. Prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sqlite3
import sys
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

_CHUNK_ROWS = 512
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE row (id INTEGER PRIMARY KEY, chunk INTEGER, state INTEGER);
CREATE TABLE attempt (id INTEGER PRIMARY KEY, state INTEGER, status INTEGER, message TEXT);
CREATE TABLE fingerprint (fingerprint INTEGER PRIMARY KEY, id INTEGER) WITHOUT ROWID;
CREATE TABLE body (chunk INTEGER PRIMARY KEY, packed BLOB);
"""


def _register(connection: sqlite3.Connection, bodies: Path) -> int:
    key, rows = b"k" * 32, 0
    connection.execute("BEGIN IMMEDIATE")
    with bodies.open("rb") as file:
        while lines := list(islice(file, _CHUNK_ROWS)):
            chunk = rows // _CHUNK_ROWS
            numbers = range(rows + 1, rows + len(lines) + 1)
            digests = [hashlib.blake2b(line, key=key, digest_size=8).digest() for line in lines]
            values = [(int.from_bytes(digest, signed=True), row) for digest, row in zip(digests, numbers, strict=True)]
            connection.executemany("INSERT INTO row VALUES (?, ?, 3)", [(row, chunk) for row in numbers])
            connection.executemany("INSERT OR IGNORE INTO fingerprint VALUES (?, ?)", values)
            connection.execute("INSERT INTO body VALUES (?, ?)", (chunk, zlib.compress(b"".join(lines), 1)))
            rows += len(lines)
    connection.execute("COMMIT")
    return rows


def _send(connection: sqlite3.Connection, rows: int, group: int) -> None:
    sent: Sequence[int] = ()
    for first in range(1, rows + group + 1, group):
        begun = range(first, min(first + group, rows + 1))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE row SET state = 5 WHERE id = ?", [(row,) for row in sent])
        answers = [(200, "accepted", row) for row in sent]
        connection.executemany("UPDATE attempt SET state = 5, status = ?, message = ? WHERE id = ?", answers)
        connection.executemany("UPDATE row SET state = 4 WHERE id = ?", [(row,) for row in begun])
        connection.executemany("INSERT INTO attempt VALUES (?, 4, NULL, NULL)", [(row,) for row in begun])
        connection.execute("COMMIT")
        sent = begun


def main() -> None:
    """Register, then send, and tell the CPU time of each."""
    bodies, folder, group = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.executescript(_SCHEMA)
    began = _cpu_s()
    rows = _register(connection, bodies)
    registered = _cpu_s()
    _send(connection, rows, group)
    print(json.dumps({"rows": rows, "register_cpu_s": registered - began, "finish_cpu_s": _cpu_s() - registered}))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
