"""The sandbox's memory: payments, recurring schedules, gateway accounts, and the journal of what arrived.

One SQLite connection behind one lock, in memory or in a file. Account numbers, pins and passwords are masked before
they are stored here; a keyed digest of a request shows how often the very same request arrived. Payments that come back
are kept in memory alone, since a return file names their account numbers.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import string
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from batchpay.errors import WrongUse
from batchpay.sandbox.dialects import Made

_TABLES = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS arrival (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, operation TEXT NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL,
    digest BLOB NOT NULL, bytes INTEGER NOT NULL, body TEXT, http_status INTEGER, fault TEXT, payment INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS arrival_digest ON arrival (digest);
CREATE TABLE IF NOT EXISTS payment (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, gateway_id INTEGER NOT NULL, transaction_type TEXT NOT NULL,
    amount TEXT NOT NULL, invoice TEXT, schedule TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS account (
    id INTEGER PRIMARY KEY, gateway_name TEXT NOT NULL, attributes TEXT NOT NULL, is_default INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0, date_created TEXT NOT NULL, date_updated TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS one_default_a_kind ON account (substr(gateway_name, -3)) WHERE is_default = 1;
"""
FIRST_ACCOUNTS = (
    (1001, "processorA_ach", {"account_id": 70001, "user_id": "sandbox", "pin": "****"}),
    (1002, "processorB_ach", {"login": "sandbox", "password": "****", "vt_template": "default"}),
    (1003, "processorA_cc", {"account_id": 70003, "user_id": "sandbox", "pin": "****", "accept_amex": 1}),
    (1004, "processorC_cc", {"accept_amex": 0}),
)
"""The accounts a fresh sandbox has, so that a first payment needs no setup; 1001 and 1003 are the defaults."""
_FIRST_DEFAULTS = (1001, 1003)
_COMMON_ATTRIBUTES = {"enabled": 1, "mode": "dev", "active_level2": 0, "active_level3": 0}


@dataclass(frozen=True, slots=True)
class Account:
    """A gateway account."""

    id: int
    gateway_name: str
    attributes: Mapping[str, Any]
    is_default: bool
    deleted: bool
    date_created: str
    date_updated: str

    @property
    def kind(self) -> str:
        """`cc` for cards, `ach` for eChecks."""
        return self.gateway_name.rpartition("_")[2]


@dataclass(frozen=True, slots=True)
class CameBack:
    """A payment that was made and comes back, or whose account its bank changes."""

    made: Made
    code: str
    day: date
    body: Mapping[str, Any] = field(repr=False)


class SandboxStore:
    """All state of one sandbox; every method is one step that nothing interrupts."""

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.RLock()
        self._back: list[CameBack] = []
        try:
            self._database = sqlite3.connect(str(path or ":memory:"), check_same_thread=False, isolation_level=None)
            try:
                self._open(path)
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise WrongUse(f"{path} can't be used as a sandbox's file: {error}") from None

    def _open(self, path: Path | None) -> None:
        """Refuse another program's database (raises WrongUse), and make our own ready."""
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and not {"arrival", "payment", "setting"} <= tables:
            raise WrongUse(f"{path} is another program's database; name another file with --db")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        with self._step():
            for statement in _TABLES.split(";\n"):
                self._database.execute(statement)
        if self._setting("key") is None:
            self.reset()
        self._key = bytes.fromhex(self._setting("key") or "")
        self._clock_offset = timedelta(seconds=float(self._setting("clock_offset_s") or 0))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def reset(self) -> None:
        """Forget everything and restore the first accounts."""
        with self._step():
            for table in ("arrival", "payment", "account"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608 (names of our own)
            self._back.clear()
            self._clock_offset = timedelta()
            self._set("clock_offset_s", "0")
            self._set("series", "".join(secrets.choice(string.ascii_uppercase) for _ in range(6)))
            if self._setting("key") is None:
                self._set("key", secrets.token_hex(32))
            for number, name, attributes in FIRST_ACCOUNTS:
                self._insert_account(number, name, {**_COMMON_ATTRIBUTES, **attributes})
            for number in _FIRST_DEFAULTS:
                self._database.execute("UPDATE account SET is_default = 1 WHERE id = ?", (number,))

    # The clock

    def now(self) -> datetime:
        """Return the sandbox's time: the machine's, shifted by what `/_sandbox/clock` was set to."""
        return datetime.now(UTC) + self._clock_offset

    def set_clock(self, now: datetime) -> None:
        """Set the clock running from this time; raises OverflowError beyond the calendar."""
        with self._step():
            self._clock_offset = now - datetime.now(UTC)
            self._set("clock_offset_s", str(self._clock_offset.total_seconds()))

    # The journal

    def arrive(self, operation: str, method: str, path: str, body: bytes, masked: Any) -> tuple[int, int]:
        """Record a request; returns its number and how often the very same one has arrived, this one included."""
        request = b"\0".join((method.encode(), path.encode("utf-8", "replace"), body))
        digest = hashlib.blake2b(request, key=self._key, digest_size=16).digest()
        text = None if masked is None else json.dumps(masked)
        with self._step():
            number = self._database.execute(
                "INSERT INTO arrival (at, operation, method, path, digest, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self._stamp(), operation, method, path, digest, len(body), text),
            ).lastrowid
            times = self._database.execute("SELECT count(*) FROM arrival WHERE digest = ?", (digest,)).fetchone()[0]
        return int(number or 0), int(times)

    def answered(self, number: int, http_status: int | None, fault: str | None, made: Made | None) -> None:
        """Record the outcome of a request; `http_status` is None if it was not answered."""
        with self._step():
            self._database.execute(
                "UPDATE arrival SET http_status = ?, fault = ?, payment = ? WHERE number = ?",
                (http_status, fault, made.number if made else None, number),
            )

    def arrivals(self, operation: str | None, after: int, limit: int) -> list[dict[str, Any]]:
        """Return requests in the order of their arrival, each with how often the very same one arrived in all."""
        rows = self._rows(
            "SELECT number, at, operation, method, path, bytes, body, http_status, fault, payment,"
            " (SELECT count(*) FROM arrival AS same WHERE same.digest = arrival.digest) AS times"
            " FROM arrival WHERE number > ? AND (? IS NULL OR operation = ?) ORDER BY number LIMIT ?",
            (after, operation, operation, limit),
        )
        return [{**row, "body": json.loads(row["body"]) if row["body"] else None} for row in rows]

    def counts(self, operation: str) -> dict[str, int]:
        """Return how many requests arrived, how many distinct ones, and how often the most frequent one."""
        row = self._rows(
            "SELECT coalesce(sum(times), 0) AS arrived, count(*) AS different, coalesce(max(times), 0) AS most_often,"
            " coalesce(sum(times > 1), 0) AS repeated, coalesce(sum(made), 0) AS made,"
            " coalesce(max(made), 0) AS most_often_made"
            " FROM (SELECT count(*) AS times, count(payment) AS made FROM arrival WHERE operation = ? GROUP BY digest)",
            (operation,),
        )[0]
        return {name: int(value) for name, value in row.items()}

    # Payments

    def make_payment(self, body: Mapping[str, Any], schedule: Mapping[str, Any] | None) -> Made:
        """Store a payment, with its schedule if it is a recurring one."""
        invoice = body.get("invoiceNumber")
        values = (self._stamp(), body["gatewayId"], str(body["transactionType"]), str(body["amount"]), invoice)
        with self._step():
            number = self._database.execute(
                "INSERT INTO payment (at, gateway_id, transaction_type, amount, invoice, schedule)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*values, json.dumps(schedule) if schedule else None),
            ).lastrowid
        return Made(int(number or 0), invoice, self._setting("series") or "")

    def come_back(self, made: Made, code: str, body: Mapping[str, Any]) -> None:
        """Note that a payment comes back, on the day on which it was made."""
        with self._lock:
            self._back.append(CameBack(made, code, self.now().date(), body))

    def came_back(self) -> list[CameBack]:
        """Return the payments that come back, in the order in which they were made."""
        with self._lock:
            return sorted(self._back, key=lambda one: one.made.number)

    def schedules(self) -> list[tuple[int, dict[str, Any]]]:
        """Return every recurring payment's number and schedule."""
        rows = self._rows("SELECT number, schedule FROM payment WHERE schedule IS NOT NULL ORDER BY number")
        return [(row["number"], json.loads(row["schedule"])) for row in rows]

    # Gateway accounts

    def accounts(self, deleted: bool | None = None) -> list[Account]:
        """Return accounts by id; only the deleted ones, only the others, or all."""
        rows = self._rows(
            "SELECT * FROM account WHERE ? IS NULL OR deleted = ? ORDER BY id",
            (deleted, deleted),
        )
        return [_account(row) for row in rows]

    def account(self, number: int) -> Account | None:
        """Return one account, deleted or not."""
        rows = self._rows("SELECT * FROM account WHERE id = ?", (number,)) if number < 2**63 else []
        return _account(rows[0]) if rows else None

    def create_account(self, attributes: Mapping[str, Any]) -> int:
        """Store a new account and return its id."""
        with self._step():
            last = self._database.execute("SELECT max(id) FROM account").fetchone()[0]
            number = int(last) + 1
            self._insert_account(number, attributes["gateway_name"], attributes)
        return number

    def update_account(self, number: int, attributes: Mapping[str, Any]) -> None:
        """Replace the old attributes with the submitted ones; one that changes its kind is no longer a default."""
        name = attributes["gateway_name"]
        with self._step():
            self._database.execute(
                "UPDATE account SET is_default = is_default AND substr(gateway_name, -3) = substr(?, -3),"
                " gateway_name = ?, attributes = ?, date_updated = ? WHERE id = ?",
                (name, name, _attributes(attributes), self._stamp(), number),
            )

    def delete_account(self, number: int) -> None:
        """Mark an account as deleted; its record stays. A deleted account is not a default."""
        with self._step():
            self._database.execute(
                "UPDATE account SET deleted = 1, is_default = 0, date_updated = ? WHERE id = ?", (self._stamp(), number)
            )

    def make_default(self, account: Account) -> None:
        """Make an account its kind's default; the other kind's default stays."""
        with self._step():
            self._database.execute(
                "UPDATE account SET is_default = 0 WHERE substr(gateway_name, -3) = ?", (account.gateway_name[-3:],)
            )
            self._database.execute("UPDATE account SET is_default = 1 WHERE id = ?", (account.id,))

    # Inside

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Run one transaction; steps inside a step join it."""
        with self._lock:
            if self._database.in_transaction:
                yield
                return
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self._lock:
            cursor = self._database.execute(statement, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _setting(self, name: str) -> str | None:
        rows = self._rows("SELECT value FROM setting WHERE name = ?", (name,))
        return str(rows[0]["value"]) if rows else None

    def _set(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def _stamp(self) -> str:
        return self.now().isoformat(" ", "seconds")[:19]

    def _insert_account(self, number: int, name: str, attributes: Mapping[str, Any]) -> None:
        now = self._stamp()
        self._database.execute(
            "INSERT INTO account (id, gateway_name, attributes, date_created, date_updated) VALUES (?, ?, ?, ?, ?)",
            (number, name, _attributes(attributes), now, now),
        )


def _attributes(attributes: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in attributes.items() if name != "gateway_name"})


def _account(row: Mapping[str, Any]) -> Account:
    flags = {name: bool(row[name]) for name in ("is_default", "deleted")}
    return Account(**{**row, **flags, "attributes": json.loads(row["attributes"])})
