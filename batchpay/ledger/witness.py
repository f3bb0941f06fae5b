"""The witness: a small file apart from the ledger that remembers the last event's number and digest.

A ledger restored from a backup is older than its witness and does not know of later payments, so it sends nothing. Two
fixed-size records are written in turn, each in a sector of its own: a torn write leaves the previous one. The file is
synced only at the start and the end of a run: a power cut can make it older than the ledger, which is harmless.
"""

from __future__ import annotations

import glob
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchpay.errors import LedgerBesideAnother, LedgerNotUsable
from batchpay.ledger.keys import Keys
from batchpay.ledger.paths import LedgerPaths, make_private_directory
from batchpay.writing.atomic import sync_directory

_SLOT_BYTES = 512
_WORD = "batchpay-witness"


@dataclass(frozen=True, slots=True)
class WitnessRecord:
    """What a witness remembers of a ledger."""

    ledger_id: str
    number: int
    mac: bytes
    machine: str | None = None
    """Where the ledger is: keyed digest of the machine that wrote it, None if that machine has no identity; for a
    ledger in a database, the name by which it knows the machine that the witness belongs to."""
    epoch: int | None = None
    """For a ledger in a database: how many restores a person had accepted when this was written."""
    place: str | None = None
    """For a ledger in a file: keyed digest of which file it is, and where."""
    other: WitnessRecord | None = field(default=None, compare=False)
    """What the other record contains, if that is intact too."""


class Witness:
    """The witness file of one ledger."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path = path
        self._keys = keys
        self._descriptor = -1

    def exists(self) -> bool:
        """Return whether there is a witness at all."""
        return os.path.lexists(self.path)

    def read(self) -> WitnessRecord | None:
        """Return the later of the records that are intact; None if none is (or its key is a different one)."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerNotUsable(f"the ledger's witness {self.path} can't be read: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size not in (0, 2 * _SLOT_BYTES):
                raise LedgerNotUsable(
                    f"{self.path} is not a ledger's witness: is ledger.witness right? If it is, move that file away"
                )
            content = os.read(descriptor, 2 * _SLOT_BYTES)
        finally:
            os.close(descriptor)
        parsed = (self._parse(content[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES))
        found = sorted((one for one in parsed if one), key=lambda one: one.number)
        return replace(found[-1], other=found[0] if len(found) > 1 else None) if found else None

    def write(self, testimony: WitnessRecord) -> None:
        """Remember the last event; the caller holds the ledger's write lock."""
        try:
            if self._descriptor < 0:
                self._open()
            os.pwrite(self._descriptor, self._record(testimony), testimony.number % 2 * _SLOT_BYTES)
        except OSError as error:
            raise LedgerNotUsable(f"the ledger's witness {self.path} can't be written: {error.strerror}") from None

    def sync(self) -> None:
        """Make durable what was written."""
        try:
            if self._descriptor >= 0:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise LedgerNotUsable(f"the ledger's witness {self.path} can't be synced: {error.strerror}") from None

    def replace(self, testimony: WitnessRecord) -> None:
        """Forget everything else and remember this: at creation, and when a person accepts a ledger as is."""
        self.close()
        make_private_directory(self.path.parent)
        temporary = self.path.with_name(f"{self.path.name}.new")
        try:
            temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600)
            try:
                os.pwrite(descriptor, bytes(2 * _SLOT_BYTES), 0)
                os.pwrite(descriptor, self._record(testimony), testimony.number % 2 * _SLOT_BYTES)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise LedgerNotUsable(f"the ledger's witness {self.path} can't be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _record(self, testimony: WitnessRecord) -> bytes:
        text = f"{_WORD} {testimony.ledger_id} {testimony.number} {testimony.mac.hex()}"
        told = [testimony.machine, testimony.epoch, testimony.place]
        while told and told[-1] is None:
            told.pop()
        text = " ".join([text, *("-" if word is None else str(word) for word in told)])
        proof = self._keys.mac("witness", text.encode()).hex()
        return f"{text} {proof}\n".encode().ljust(_SLOT_BYTES, b"\0")

    def _parse(self, record: bytes) -> WitnessRecord | None:
        text, _, proof = record.rstrip(b"\0").rstrip(b"\n").rpartition(b" ")
        words = text.decode("ascii", "replace").split(" ")
        if proof != self._keys.mac("witness", text).hex().encode() or not 4 <= len(words) <= 7:
            return None
        machine, epoch, place = (*(None if word == "-" else word for word in words[4:]), None, None, None)[:3]
        mac = bytes.fromhex(words[3])
        return WitnessRecord(words[1], int(words[2]), mac, machine, int(epoch) if epoch else None, place)


def witness_of(ledger_id: str, place: LedgerPaths, keys: Keys) -> Path:
    """Find a ledger's witness if the place has none of its own: the ledger may have been at another address."""
    if os.path.lexists(place.witness):
        return place.witness
    return witness_in_database(ledger_id, place, keys) or place.witness


def witness_in_database(ledger_id: str, place: LedgerPaths, keys: Keys) -> Path | None:
    """Find the latest witness that this machine has of a ledger in a database; None if it has none."""
    found = [(Witness(path, keys).read(), path) for path in _witnesses(place)]
    of_ledger = [
        (record.number, path)
        for record, path in found
        if record is not None and record.ledger_id == ledger_id and record.epoch is not None
    ]
    return max(of_ledger)[1] if of_ledger else None


def refuse_beside_another(place: LedgerPaths, keys: Keys | None, why: str | None) -> None:
    """Raise LedgerBesideAnother if, where key and witness are, another ledger's witness has payments, and no reason.

    Without a key, or under a different one, what a witness remembers can't be known: it counts.
    """
    for path in _witnesses(place) if why is None else ():
        record = Witness(path, keys).read() if keys else None
        if path != place.witness and (record is None or record.number > 1):
            raise LedgerBesideAnother(
                f"{path} is the witness of another ledger with payments, and a new one {'in' if place.url else 'at'} "
                f"{place.name} would not know what that one paid: is ledger.url right?"
            )


def witness_files(place: LedgerPaths) -> list[Path]:
    """Find the witnesses where key and witness are, with what runs have left next to this ledger's own."""
    beside = place.witness.parent.glob(f"{glob.escape(place.witness.name)}.*")
    return [*_witnesses(place), *beside]


def _witnesses(place: LedgerPaths) -> list[Path]:
    folders = sorted({place.key.parent, place.witness.parent})
    try:
        found = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    except OSError as error:
        raise LedgerNotUsable(f"{error.filename} can't be read: {error.strerror}") from None
    return [path for path in found if _is_witness(path)]


def _is_witness(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != 2 * _SLOT_BYTES:
            return False
        with path.open("rb") as file:
            slots = (file.read(_SLOT_BYTES), file.read(_SLOT_BYTES))
    except OSError as error:
        raise LedgerNotUsable(f"{path} can't be read: {error.strerror}") from None
    return any(slot.startswith(_WORD.encode()) for slot in slots)
