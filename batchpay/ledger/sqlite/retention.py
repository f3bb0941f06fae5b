"""What a purge leaves in the files of the SQLite ledger: not a byte of what it erased.

SQLite overwrites what it deletes, but a page that was once split keeps copies in its gap, and the write-ahead log is a
copy of all that is written. So the ledger is rewritten, its log is emptied, and the files are searched byte by byte for
pieces of what was erased. Only then does the history say that the purge is completed; a crash before that leaves a
consistent ledger, and the next purge continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from batchpay.errors import LedgerNotUsable, RunStopped
from batchpay.ledger.event_chain import id_range
from batchpay.ledger.records import PURGE_COMPLETED, PURGED
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.sqlite.store import SqliteStore, SqliteTransaction, translated

_ROWS_AT_ONCE = 4096
_PIECE_LENGTH = 64
_TEXT_LENGTH_LEAST = 12
"""Shorter messages appear in many places by chance."""
_TEXTS_KEPT_MAX = 10_000
_PIECES_MAX = 64
"""This many pieces of each kind are searched for, evenly chosen: each is searched for in every byte of the files."""
_BLOCK_BYTES = 1 << 20
_Piece = TypeVar("_Piece", str, bytes)


@dataclass(slots=True)
class Pieces:
    """Pieces of what was erased, to search the files for."""

    sealed: list[bytes] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)

    def erase_texts(self, transaction: SqliteTransaction, batch: int) -> int:
        """Erase details and messages of a batch, keeping pieces of them; return the number of messages."""
        sealed = [piece for (one,) in transaction.execute(sql.DETAILS_OF_BATCH, (batch,)) for piece in _parts(one)]
        transaction.execute(sql.ERASE_DETAILS, (batch,))
        texts, messages = _erase_messages(transaction, batch)
        self.sealed += _chosen(sealed)
        self.texts.update(_chosen(sorted(texts)))
        return messages


def _parts(sealed: bytes) -> list[bytes]:
    """Take pieces of an encrypted payload; it is on many pages, and a single piece could span two."""
    return [sealed[len(sealed) * part // 4 :][:_PIECE_LENGTH] for part in range(4)]


def _chosen(pieces: Sequence[_Piece]) -> Sequence[_Piece]:
    return pieces[:: max(1, len(pieces) // _PIECES_MAX)][:_PIECES_MAX]


def _erase_messages(transaction: SqliteTransaction, batch: int) -> tuple[set[str], int]:
    """Remove the gateway's and our own texts from the attempts, and reauthenticate those; return them, and how many.

    What a person decided is still in the history.
    """
    texts: set[str] = set()
    erased = 0
    at, end = id_range(batch)
    while found := transaction.execute(sql.TEXTS_OF_ATTEMPTS, (at, end, _ROWS_AT_ONCE)).fetchall():
        changes = []
        for message, reason, identity, sent_at, state, finished_at, status, code, reference in found:
            if len(texts) < _TEXTS_KEPT_MAX:
                texts |= {text[:_PIECE_LENGTH] for text in (message, reason) if text}
            kept = (identity, sent_at, state, finished_at, status, code, None, reference, None)
            changes.append((transaction.keys.seal_values("attempt", kept), identity))
        transaction.connection.executemany(sql.ERASE_TEXTS, changes)
        erased += len(found)
        at = found[-1][2] + 1
    return texts, erased


def unfinished(store: SqliteStore) -> bool:
    """See contract.Ledger.unfinished_purge."""
    with store.reading() as connection:
        begun, completed = (
            connection.execute(sql.LAST_NUMBER_OF_KIND, (kind,)).fetchone()[0] for kind in (PURGED, PURGE_COMPLETED)
        )
    return bool(begun > completed)


def complete(store: SqliteStore, pieces: Pieces, who: str) -> tuple[int, int]:
    """Rewrite the ledger, search its files for what was erased, and record it; return pieces and bytes searched.

    Raises RunStopped if another process reads from the ledger all the time, LedgerNotUsable if a piece is found.
    """
    if not store.write_anew():
        raise RunStopped(
            "names, details and messages are deleted, but another program reads from the ledger, so its files still "
            "hold them; run batchpay ledger purge again"
        )
    with store.reading() as connection:
        texts = [
            text.encode()
            for text in _chosen(sorted(pieces.texts))
            if len(text) >= _TEXT_LENGTH_LEAST and not connection.execute(sql.TEXT_STANDS, (text,)).fetchone()[0]
        ]
    wanted = [*_chosen(pieces.sealed), *texts]
    with store.files_alone() as files, translated(store.place.ledger):
        sizes = [_search(path, wanted) for path in files]
    with store.transaction() as transaction:
        detail = {"pieces searched": len(wanted), "bytes searched": sum(sizes)}
        transaction.event(PURGE_COMPLETED, None, who, None, detail)
    store.checkpoint()
    return len(wanted), sum(sizes)


def _search(path: Path, wanted: Sequence[bytes]) -> int:
    """Search a whole file; return its size. Raises LedgerNotUsable if a piece is in it."""
    size, before = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            size += len(block)
            read = before + block
            if any(piece in read for piece in wanted):
                raise LedgerNotUsable(f"{path} still contains what was erased; run batchpay ledger purge again")
            before = read[-4 * _PIECE_LENGTH :]
    return size
