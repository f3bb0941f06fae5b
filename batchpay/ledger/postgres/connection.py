"""Connections to the database: where it is, how it is reached, whether it can be trusted; its errors as ours.

libpq's own texts are never passed on: they may contain a record's values, or a password from a connection string.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from batchpay.errors import BatchpayError, LedgerDamaged, LedgerMissing, LedgerNotUsable, SettingsNotUsable
from batchpay.ledger.postgres import statements as sql

SERVER_LEAST = 140_000
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_GIVEN = frozenset(
    ("host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl",
     "passfile", "connect_timeout", "target_session_attrs", "application_name", "gssencmode", "krbsrvname")
)  # fmt: skip
"""What a URL may contain; all else is ours to decide, or does not belong in a setting."""
_SEARCH_PATH = "pg_catalog,pg_temp"
_OPTIONS = (
    "-c synchronous_commit=on -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
    " -c client_min_messages=notice -c jit=off"
    f" -c search_path={_SEARCH_PATH}"
)
"""What an administrator has set for all sessions must not apply to these: no timeout may end one, no message level may
hide that a commit warned, and no function of another schema may replace a system one, as closer types would let it.
"""
_WRITER_OPTIONS = " -c lock_timeout=5s -c plan_cache_mode=force_generic_plan -c enable_seqscan=off"
"""Connections that write use indexes, whatever the statistics say: right after a registration there are none."""


_A_POOLER = "{} is a pooler, which shares connections between sessions: set ledger.pooler = true; nothing was sent"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the database is."""

    parameters: dict[str, Any] = field(repr=False)
    name: str
    """Host, port and database, for people: no user, no password."""
    is_pooled: bool = False
    """Whether a pooler is used, whose server may be a different one for each transaction."""

    @property
    def mark(self) -> str:
        """Return what distinguishes this database's files on this machine from those of another one."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:8]


def place_of(url: str, *, is_pooled: bool = False) -> Place:
    """Read ledger.url; raises SettingsNotUsable. The text of a URL that can't be read is not shown."""
    try:
        given = {key: value for key, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        raise SettingsNotUsable("ledger.url is not the URL of a PostgreSQL database") from None
    if "password" in given or "sslpassword" in given:
        raise SettingsNotUsable(
            "ledger.url contains a password, which process lists and logs would show: put it into a .pgpass file "
            "(passfile=…), or use a client certificate"
        )
    if unknown := sorted(given.keys() - _GIVEN):
        raise SettingsNotUsable(f"ledger.url: {unknown[0]} can't be set there")
    hosts = _names(given.get("host"))
    addresses = _names(given.get("hostaddr") or os.environ.get("PGHOSTADDR"))  # libpq goes there, whatever the name is
    if not hosts or "dbname" not in given:
        raise SettingsNotUsable("ledger.url names host and database: postgresql://batchpay@db.example/payments")
    is_local = all(map(_is_local, [*hosts, *addresses]))
    mode = given.setdefault("sslmode", "disable" if is_local else "verify-full")
    if not is_local and mode not in _ENCRYPTED:
        raise SettingsNotUsable(f"ledger.url: sslmode={mode} would send the ledger in clear; leave it out")
    given.setdefault("target_session_attrs", "read-write")
    given.setdefault("application_name", "batchpay")
    given.setdefault("connect_timeout", "10")
    ports = str(given.get("port", "")).split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    servers = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=True))
    name = f"postgresql://{servers}/{given['dbname']}"
    return Place(given, name, is_pooled)


def _names(value: Any) -> list[str]:
    return [name for name in str(value or "").split(",") if name]


def _is_local(host: str) -> bool:
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class LedgerUnreachable(LedgerNotUsable):
    """No connection to the database could be made this time, or it was lost."""


class LedgerNotPermitted(LedgerNotUsable):
    """The login has no right to what was asked."""


def connect(place: Place, *, writes: bool = False) -> tuple[psycopg.Connection[Any], str]:
    """Open a connection on which every statement is its own transaction, and refuse a server that can't be trusted.

    Also returns where the ledger is, as the server tells it (statements._WHERE).
    """
    # A pooler takes no session options, and prepares nothing: transactions bring their own (sql.BEGIN_POOLED).
    options: dict[str, Any] = {} if place.is_pooled else {"options": _OPTIONS + (_WRITER_OPTIONS if writes else "")}
    try:
        connection = psycopg.connect(
            **place.parameters,
            **options,
            client_encoding="UTF8",  # otherwise texts of a database with another encoding would arrive as bytes
            autocommit=True,
            prepare_threshold=None if place.is_pooled else 0,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
        )
    except psycopg.Error as error:
        if "startup parameter" in str(error):  # as pgbouncer says it
            raise LedgerNotUsable(_A_POOLER.format(place.name)) from None
        # libpq's message has a reason for each server that was tried.
        found = dict.fromkeys(words for text, words in _NOT_CONNECTED.items() if text in str(error))
        why = " / ".join(found) or "it does not answer, or it refuses this login, or its certificate"
        raise LedgerUnreachable(f"the database {place.name} can't be connected to: {why}; nothing was sent") from None
    try:
        with translated(place):
            where = _refuse_unsafe(place, connection)
    except BaseException:
        connection.close()
        raise
    return connection, where


def route_of(connection: psycopg.Connection[Any], machine: str) -> str:
    """Return where a connection leads to, as seen from here: two servers may each think that they have one address.

    A loopback address and a socket are those of one machine, whose mark is added.
    """
    info = connection.info
    address = info.hostaddr or info.host
    return f"{address}:{info.port}" + (f"@{machine}" if machine and _is_local(address) else "")


_NOT_CONNECTED = {
    "no password supplied": "it asks for a password, and .pgpass (passfile=…) has none for it",
    "password authentication failed": "it refuses this login's password",
    "pg_hba.conf": "it lets this login in neither from here nor in this way",
    "root certificate file": "there is no certificate to verify its own by: name one by sslrootcert=…",
    "certificate verify failed": "its certificate is none that sslrootcert, or this system, vouches for",
    "does not match host name": "its certificate is for another name",
    "does not support SSL": "it has no TLS",
    "could not translate host name": "its name is not known here",
    "failed to resolve host": "its name is not known here",
    "Connection refused": "nobody answers at that address",
    "timeout expired": "it did not answer in time",
    "is read-only": "it is a standby, or was set read-only",
    "is in hot standby": "it is a standby",
    'FATAL:  database "': "there is no such database",
    'FATAL:  role "': "there is no such login",
}
"""Parts of libpq's messages, and what they mean: its own texts may contain what was in the connection string."""


def _refuse_unsafe(place: Place, connection: psycopg.Connection[Any]) -> str:
    """Refuse a server whose commits, or whose records, can't be trusted; return where it is. One round trip."""
    found = connection.execute(sql.SERVER).fetchone()
    assert found is not None
    version, in_recovery, commit, encoding, standbys, names, *switches, told_from, path, where = found
    reason = None
    if not place.is_pooled and path != _SEARCH_PATH:  # pgbouncer with ignore_startup_parameters = options
        raise LedgerNotUsable(_A_POOLER.format(place.name))
    if version < SERVER_LEAST:
        reason = f"PostgreSQL {version // 10_000} is too old; {SERVER_LEAST // 10_000} is needed"
    elif in_recovery:
        reason = "it is a standby, which may not know what was sent"
    elif switches != ["on", "on", "off", "off"]:
        words = ("fsync is off", "full_page_writes is off", "zero_damaged_pages is on", "ignore_checksum_failure is on")
        wanted = ("on", "on", "off", "off")
        reason = next(word for word, is_now, want in zip(words, switches, wanted, strict=True) if is_now != want)
    elif commit not in ("on", "remote_apply"):
        reason = f"synchronous_commit is {commit}, so a commit may be lost"
    elif told_from in ("error", "fatal", "panic"):
        reason = f"client_min_messages is {told_from}, so it would not be told of a commit that no standby has"
    elif encoding != "UTF8":
        reason = f"its encoding is {encoding}, not UTF8"
    elif standbys and not names:
        reason = "it has standbys, but synchronous_standby_names is empty: one that took over might not know payments"
    if reason:
        raise LedgerNotUsable(f"the database {place.name} can't keep the ledger: {reason}; nothing was sent")
    return str(where)


_RETRIED = frozenset(("40001", "40P01", "55P03", "53300"))
"""The transaction was certainly rolled back, and may be tried again."""


def is_retried(error: psycopg.Error) -> bool:
    """Return whether a transaction certainly left nothing behind, and may be tried again."""
    return error.sqlstate in _RETRIED


def is_unknown(error: psycopg.Error) -> bool:
    """Return whether it is unknown if a transaction in progress was committed: connection or server went away."""
    state = error.sqlstate
    return state is None or state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05")


_WORDS = {
    "3D000": "there is no such database",
    "28000": "the login is refused",
    "28P01": "the password is refused",
    "53100": "its disk is full",
    "53300": "it has too many connections",
    "55P03": "another program keeps it locked",
    "57014": "the statement was cancelled",
    "25006": "it is read-only",
    "BP002": "commits are not durable there (synchronous_commit)",
    "BP005": "what has happened is never changed",
    "BP006": "another machine knows of payments that it has lost; see batchpay ledger check",
}
_NO_LEDGER = frozenset(("3F000", "42P01", "42883"))
"""Our schema, table or function does not exist."""


def no_ledger(place: Place) -> LedgerMissing:
    """Return the error for a database that holds no ledger: a second one would know nothing of what was paid."""
    return LedgerMissing(
        f"there is no ledger in {place.name}; is it the right database? If one was there, restore its latest backup; "
        "only the first one is made by: batchpay ledger init"
    )


def translate(error: BaseException, place: Place) -> BatchpayError:
    """Return our error for one of psycopg's."""
    if not isinstance(error, psycopg.Error):
        return LedgerDamaged(f"the ledger {place.name} contains what batchpay did not write")
    state = error.sqlstate or ""
    if state in _NO_LEDGER:
        return no_ledger(place)
    if is_unknown(error):
        return LedgerUnreachable(f"the connection to the database {place.name} was lost")
    if state.startswith("23"):
        return LedgerNotUsable(f"the ledger {place.name}: a record was refused by the ledger's own rules ({state})")
    if state == "42501":
        return LedgerNotPermitted(
            f"the ledger {place.name} is not usable: this login has no right to do it; batchpay's login is a member of "
            "batchpay_app, and its owner alone makes or changes tables"
        )
    words = _WORDS.get(state, "the database failed")
    return LedgerNotUsable(f"the ledger {place.name} is not usable: {words} ({state})")


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Turn the database's errors into ours."""
    try:
        yield
    except (psycopg.Error, UnicodeError) as error:
        raise translate(error, place) from None
