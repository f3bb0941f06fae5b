"""The ledger's only door: which database a setting names, and how it is created, opened and accepted.

Whatever needs a ledger opens it here; no other package knows which database holds it (tests/test_architecture.py):
`ledger.url` is the path of an SQLite ledger, or the URL of a PostgreSQL database, whose library is loaded only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from batchpay.errors import BatchpayError, LedgerMissing, SettingsNotUsable, WrongUse, add_on_missing
from batchpay.ledger import paths
from batchpay.ledger.contract import Ledger
from batchpay.ledger.machine import machine_name
from batchpay.ledger.paths import LedgerPaths
from batchpay.ledger.witness import witness_files
from batchpay.settings import LedgerSettings

if TYPE_CHECKING:
    from batchpay.ledger.moving import Contents
    from batchpay.ledger.records import Accepted

_BESIDE = ("-wal", "-shm", "-journal", ".lock", ".new", ".d")
"""Endings of the files next to a ledger that belong to it; the last is a folder."""
_SCHEMES = ("postgresql://", "postgres://")


def _is_postgres(settings: LedgerSettings) -> bool:
    """Return whether a database server holds the ledger; raises SettingsNotUsable for any other address."""
    if settings.url.startswith(_SCHEMES):
        return True
    if "://" in settings.url:
        raise SettingsNotUsable("ledger.url must be the path of an SQLite ledger, or begin with postgresql://")
    return False


def _opening(settings: LedgerSettings) -> ModuleType:
    """Load what works with the database of a ledger; raises SettingsNotUsable if that is not installed."""
    if not _is_postgres(settings):
        from batchpay.ledger.sqlite import opening as of_sqlite

        return of_sqlite
    if find_spec("psycopg") is None:
        raise SettingsNotUsable(f"ledger.url names a PostgreSQL database: {add_on_missing('postgres', 'psycopg')}")
    from batchpay.ledger.postgres import opening as of_postgres

    return of_postgres


def location(settings: LedgerSettings) -> LedgerPaths:
    """Return where the ledger, its key and its witness are; raises SettingsNotUsable."""
    found: LedgerPaths = _opening(settings).location(settings) if _is_postgres(settings) else paths.location(settings)
    return found


def weaknesses(settings: LedgerSettings) -> list[str]:
    """Return what a person should know about where the ledger is, though it can be used; one sentence each."""
    if _is_postgres(settings):
        of_database: list[str] = _opening(settings).weaknesses(settings)
        return of_database
    found = paths.weaknesses(location(settings))
    if machine_name(settings) is None:
        found.append(
            "this machine has no identity (ledger.machine, /etc/machine-id): a copy of the ledger on another machine "
            "would not be noticed"
        )
    return found


def copies_beside(settings: LedgerSettings) -> list[Path]:
    """Find the copies that were left next to the ledger when a later version upgraded it."""
    return [] if _is_postgres(settings) else paths.copies_beside(location(settings))


def file_of(settings: LedgerSettings) -> Path | None:
    """Return the ledger's file; None where a database server holds it: its disk and backups can't be seen here."""
    return None if _is_postgres(settings) else paths.location(settings).ledger


def own_files(settings: LedgerSettings) -> dict[Path, str]:
    """Return the ledger's files, existing or not, with what each is; none if the settings don't name a ledger."""
    try:
        place = location(settings)
    except BatchpayError:
        return {}
    files = {place.key: "the ledger's key", place.witness: "the ledger's witness"}
    with suppress(BatchpayError, OSError):
        files |= dict.fromkeys(witness_files(place), "a ledger's witness")
    for ledger in {place.ledger, place.ledger.resolve()}:
        files[ledger] = "the ledger"
        files |= {ledger.with_name(f"{ledger.name}{ending}"): "the ledger's" for ending in _BESIDE}
    return files


def open_ledger(settings: LedgerSettings, *, create_as: str | None = None, read_only: bool = False) -> Ledger:
    """Open the ledger, or refuse it: missing, damaged, newer, older than its witness, not writable, not private.

    `create_as` names who creates one if there is none (for a test gateway on loopback only; never in a database
    server). A ledger opened `read_only` can be read even if it is older than its witness. Raises LedgerNotUsable.
    """
    if create_as is None and not _is_postgres(settings):
        paths.check_file(paths.location(settings).ledger)  # if there is none, that is reported without loading SQLite
    found: Ledger = _opening(settings).open_ledger(settings, create_as=create_as, read_only=read_only)
    return found


@contextmanager
def ledger_if_any(settings: LedgerSettings) -> Iterator[Ledger | None]:
    """Open the ledger for reading, and close it; None if there is none yet."""
    try:
        ledger = open_ledger(settings, read_only=True)
    except LedgerMissing:
        yield None
        return
    with closing(ledger):
        yield ledger


def bring_up_to_date(settings: LedgerSettings) -> None:
    """Upgrade a ledger of an older version, after a backup; leave any other as is.

    Opening for writing does the same; opening only for reading refuses an older ledger. In a database server only the
    owner of the tables can do it, and no backup is made. Raises LedgerNotUsable.
    """
    _opening(settings).bring_up_to_date(settings)


def create_ledger(
    settings: LedgerSettings, who: str, beside_another: str | None = None, *, owner_url: str | None = None
) -> LedgerPaths:
    """Create a new, empty ledger, its key if there is none yet, and its witness; return where they are.

    Never over an existing ledger, and never if a witness remembers one with payments. If another ledger's witness is
    next to the key, it takes a person's reason, `beside_another`; else it raises LedgerBesideAnother before it has
    written anything. `owner_url` is a login of the same database that may create its tables. Raises LedgerNotUsable.
    """
    made: LedgerPaths = _opening(settings).create_ledger(settings, who, beside_another, owner_url)
    return made


def move(settings: LedgerSettings, to: str, who: str, why: str, *, owner_url: str | None = None) -> LedgerPaths:
    """Move a ledger from its file to a PostgreSQL database, its key staying where it is; return where it is now.

    There are never two ledgers in force: the copy takes effect only after the file has ended. A move that was
    interrupted is completed by the next one. `owner_url` is a login that may create the tables. Raises WrongUse,
    BatchHeld, LedgerNotUsable.
    """
    if _is_postgres(settings):
        raise WrongUse("a ledger in a database server is moved by the database's own means; ledger.url names no file")
    target = replace(settings, url=to, key_file=str(location(settings).key))
    if not _is_postgres(target):
        raise WrongUse("a ledger moves to a PostgreSQL database: --to postgresql://…")
    arriving, place_there = _opening(target), location(target)

    def hand_over(contents: Contents) -> None:
        arriving.receive(target, owner_url, contents, who, why)

    moved = _opening(settings).move(settings, place_there.name, who, why, hand_over)
    arriving.begin(target, owner_url, moved)
    return place_there


def schema_text() -> str:
    """Return the SQL with which an administrator creates a ledger's tables in a PostgreSQL database."""
    text: str = _opening(LedgerSettings(url=_SCHEMES[0])).schema_text()
    return text


def join(settings: LedgerSettings, who: str, why: str) -> LedgerPaths:
    """Let this machine work with a ledger in a database server that it has never worked with; raises WrongUse."""
    if not _is_postgres(settings):
        raise WrongUse("only a ledger in a database server is joined; a file belongs to one machine")
    joined: LedgerPaths = _opening(settings).join(settings, who, why)
    return joined


def accept(settings: LedgerSettings, who: str, why: str, *, rows_in_doubt: bool = False) -> Accepted:
    """Accept a ledger that is not the one that this machine knows, or not where or when it was.

    If it may not know of payments made since, or with `rows_in_doubt`, rows that it would send become in doubt, and
    nothing new is registered until `confirm`. Raises WrongUse if nothing differs, LedgerDamaged.
    """
    accepted: Accepted = _opening(settings).accept(settings, who, why, rows_in_doubt=rows_in_doubt)
    return accepted


def confirm(settings: LedgerSettings, who: str, why: str = "") -> None:
    """Record a person's word that what a restored ledger lost is accounted for; raises WrongUse if nothing is open."""
    _opening(settings).confirm(settings, who, why)
