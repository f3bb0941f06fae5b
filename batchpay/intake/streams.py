"""Opening what a path names, a regular file or standard input: read by position, unpacked in a stream.

The kind is recognized by the first bytes. What can be read only once, or must not change while it is read (standard
input, objects of a store, workbooks), is read once into a sealed memory file; text is compressed on the way. Nothing
here writes to a disk: a payment file contains account numbers.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import fcntl
import hashlib
import io
import os
import select
import signal
import stat
import sys
import tempfile
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from batchpay.errors import BatchHeld, FileRefused
from batchpay.intake.ach_records import is_ach
from batchpay.intake.bank_files import HEAD_BYTES, refuse_bank_file
from batchpay.text import is_text_encoding
from batchpay.writing.atomic import FileIdentity

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class FileKind(StrEnum):
    """The kinds of payment files."""

    CSV = "csv"
    PARQUET = "parquet"
    XLSX = "xlsx"
    ACH = "ach"


_NAMES = {
    FileKind.CSV: "a CSV file",
    FileKind.PARQUET: "a Parquet file",
    FileKind.XLSX: "an XLSX file",
    FileKind.ACH: "an ACH file",
}
_MAGIC = (
    (b"PAR1", FileKind.PARQUET),
    (b"PK\x03\x04", FileKind.XLSX),
)
_OTHERS = list(csv.DictReader(Path(__file__).with_name("other_files.csv").read_text("utf-8").splitlines()))
"""How files of other kinds begin: their `bytes`; a `text` in lower case, without blanks and line breaks, which in an
`xml` says more further on."""
_PACKINGS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))


def kind_of(head: bytes, name: str, asked: str | None = None) -> tuple[FileKind, str | None]:
    """Return the kind and the packing; raises FileRefused for any other, or one that was not requested."""
    if not head:
        raise FileRefused(f"{name}: is empty")
    for magic, what in _others("bytes"):
        if head.startswith(magic):
            raise FileRefused(f"{name}: is {what}")
    if is_ach(head):
        return FileKind.ACH, None
    refuse_bank_file(name, head.decode("utf-8", "replace"))
    text = b"".join(head.removeprefix(b"\xef\xbb\xbf").split()).lower()
    for beginning, what in _others("text"):
        if text.startswith(beginning):
            exact = (kind for word, kind in _others("xml") if word in text)
            raise FileRefused(f"{name}: is {next(exact, what)}")
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), FileKind.CSV)
    if asked is not None and kind != asked:
        raise FileRefused(
            f"{name}: is not {_NAMES[FileKind(asked)]}" + ("" if kind is FileKind.CSV else f" but {_NAMES[kind]}")
        )
    packing = next((packing for magic, packing in _PACKINGS if head.startswith(magic)), None)
    return kind, packing


def _others(where: str) -> list[tuple[bytes, str]]:
    found = [(line["what_is_there"], line["what_it_is"]) for line in _OTHERS if line["where"] == where]
    return [(text.encode().decode("unicode_escape").encode("latin-1"), what) for text, what in found]


BLOCK_BYTES = 1 << 20
_ZSTD_LEVEL = 1


@dataclass(frozen=True, slots=True)
class PrivateCopy:
    """A copy that can no longer be changed."""

    descriptor: int
    size: int
    """Bytes that were copied; the copy itself may be smaller."""


def private_copy(blocks: Iterable[bytes], name: str, asked: str | None = None) -> PrivateCopy:
    """Copy a payment file; text is packed with zstd. Raises FileRefused as soon as the first bytes rule one out."""
    incoming = iter(blocks)
    head = b""
    while len(head) < HEAD_BYTES and (block := next(incoming, None)) is not None:
        head += block
    kind, packing = kind_of(head[:HEAD_BYTES], name, asked)
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for block in chain((head,), incoming):
            size += len(block)
            yield block

    descriptor = memory_file()
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(_packed(counted()) if kind is FileKind.CSV and packing is None else counted())
        seal(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return PrivateCopy(descriptor, size)


def memory_file() -> int:
    """Create an anonymous file in memory; it never reaches a disk where the system offers memfd."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("payments", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def seal(descriptor: int) -> None:
    """Seal a memory file against any change, whoever gets hold of its descriptor."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


def given_blocks(descriptor: int) -> Iterator[bytes]:
    """Read a pipe to its end. A signal is handled while nothing comes, whichever thread the system delivers it to."""
    with _woken_by_signals() as woken:
        while True:
            ready = select.select([descriptor, *woken], [], [])[0]
            for alarm in woken:
                if alarm in ready:
                    os.read(alarm, 4096)  # the handlers themselves run between two steps of the interpreter
            if descriptor in ready:
                block = os.read(descriptor, BLOCK_BYTES)
                if not block:
                    return
                yield block


@contextlib.contextmanager
def _woken_by_signals() -> Iterator[list[int]]:
    """Yield descriptors that become readable when a signal comes; only the main thread can be notified."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    alarm, wakeup = os.pipe()
    for end in (alarm, wakeup):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    try:
        yield [alarm]
    finally:
        signal.set_wakeup_fd(before)
        os.close(alarm)
        os.close(wakeup)


def _packed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


UNPACKED_RATIO_MAX = 200
"""A packed file that grows by more than this factor is taken for a bomb (payments grow about ten times)."""
COPIED_BYTES_MAX = 1 << 30
"""A workbook of payments is at most a tenth of this, however many rows it has."""
UNPACKED_BYTES_FREE = 64 << 20
"""Below this many bytes the ratio is not checked."""


class OpenFile:
    """A regular file or a private copy, opened once: a file that replaces it later is not seen."""

    def __init__(
        self, path: str, copy: PrivateCopy | None = None, *, asked: str | None = None, name: str | None = None
    ) -> None:
        # Bytes that are not text become hexadecimal digits: a ledger takes text alone.
        told = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        self.name = name or ("standard input" if path == "-" else told)
        if copy is None and path == "-":
            copy = private_copy(given_blocks(0), self.name, asked)
        self._copy = copy
        self.descriptor = _regular_file(path) if copy is None else copy.descriptor
        self.identity = FileIdentity.of(os.fstat(self.descriptor)) if copy is None else None
        """Which file on a disk it is; None for a private copy."""
        self._original = self.descriptor if copy is None else None
        self._closing = [weakref.finalize(self, os.close, self.descriptor)]

    @property
    def size(self) -> int:
        """Bytes of the file now, or of what was copied."""
        return self._copy.size if self._copy is not None else os.fstat(self.descriptor).st_size

    def keep_copy(self) -> None:
        """Continue with a private copy: later changes of the file are not seen. Raises FileRefused."""
        if self._copy is not None:
            return
        if self.size > COPIED_BYTES_MAX:
            raise FileRefused(f"{self.name}: is larger than {COPIED_BYTES_MAX >> 20} MiB; it is not read")
        self._copy = private_copy(in_blocks(self.reader()), self.name)
        self.descriptor = self._copy.descriptor
        self._closing.append(weakref.finalize(self, os.close, self.descriptor))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the file, whatever its name, against all others on this machine that want to hold it; raises BatchHeld.

        A file system without locks keeps nobody out, and a stream can't be opened by anybody else.
        """
        if self._original is not None:
            _lock(self._original, self.name)
        try:
            yield
        finally:
            if self._original is not None:
                with suppress(OSError):
                    fcntl.flock(self._original, fcntl.LOCK_UN)

    @property
    def path(self) -> str:
        """A path that leads to the opened file itself, for libraries that want one."""
        return f"/proc/self/fd/{self.descriptor}" if sys.platform == "linux" else f"/dev/fd/{self.descriptor}"

    def reader(self) -> BinaryIO:
        """Start reading at the first byte; readers don't disturb one another."""
        return io.BufferedReader(_Positioned(self.descriptor, self.name), BLOCK_BYTES)

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        return _Positioned(self.descriptor, self.name).read(count) or b""

    def close(self) -> None:
        """Close the descriptors; also done when this object is no longer referenced."""
        for close in self._closing:
            close()


class _Positioned(io.RawIOBase):
    """Reads a descriptor by position, so that several readers can share it; raises FileRefused where the disk fails."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            count = os.preadv(self._descriptor, [buffer], self._at)
        except OSError as error:
            raise FileRefused(f"{self._name} can't be read: {error.strerror}") from None
        self._at += count
        return count

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._at, 2: os.fstat(self._descriptor).st_size}[whence]
        self._at = max(0, base + offset)
        return self._at


def _lock(descriptor: int, name: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BatchHeld(
            f"{name}: another run is working on this file, with another ledger or on another sheet of it, or another "
            "program has locked it; run the command again when it has ended"
        ) from None
    except OSError:
        return  # a file system without locks


def _regular_file(path: str) -> int:
    """Open without waiting on a FIFO, and check what was opened, not what the name referred to before."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise FileRefused(f"{path} can't be read: {getattr(error, 'strerror', None) or 'not a usable name'}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise FileRefused(f"{path} is a folder" if stat.S_ISDIR(mode) else f"{path} is not a file")
    return descriptor


class _Gzip:
    """Several members one after another, as gzip allows."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def feed(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
                block = block.lstrip(b"\0")  # padding after the last member
                if not block:
                    return
            yield self._member.decompress(block, BLOCK_BYTES)
            while self._member.unconsumed_tail:
                yield self._member.decompress(self._member.unconsumed_tail, BLOCK_BYTES)
            block = self._member.unused_data

    def finished(self) -> bool:
        return self._member.eof


class _Zstandard:
    """Frames one after another; the window is bounded, so that a header can't request gigabytes."""

    def __init__(self) -> None:
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        self._frame = self._decompressor.decompressobj()

    def feed(self, block: bytes) -> Iterator[bytes]:
        while block:
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            # A small slice at a time bounds what one call can unpack.
            piece, block = block[:4096], block[4096:]
            yield self._frame.decompress(piece)
            if self._frame.eof:
                block = self._frame.unused_data + block

    def finished(self) -> bool:
        return self._frame.eof


def unpacked(blocks: Iterator[bytes], packing: str | None, name: str, size: int) -> Iterator[bytes]:
    """Unpack a stream; raises FileRefused where it is broken, cut off or a bomb."""
    if packing is None:
        yield from blocks
        return
    unpacker: _Gzip | _Zstandard = _Gzip() if packing == "gzip" else _Zstandard()
    most = max(UNPACKED_BYTES_FREE, size * UNPACKED_RATIO_MAX)
    total = 0
    try:
        for block in blocks:
            for piece in unpacker.feed(block):
                total += len(piece)
                if total > most:
                    raise FileRefused(
                        f"{name}: unpacks to more than {UNPACKED_RATIO_MAX} times its size; it is not read"
                    )
                if piece:
                    yield piece
    except FileRefused:
        raise
    except Exception:  # zlib.error, ZstdError, MemoryError: the reader is bounded, the text is not ours to show
        raise FileRefused(f"{name}: the {packing} compression is broken") from None
    if not unpacker.finished():
        raise FileRefused(f"{name}: the {packing} compression is cut off")


def recoded(blocks: Iterator[bytes], encoding: str | None, name: str) -> Iterator[bytes]:
    """Convert a stream in another encoding to UTF-8; raises FileRefused with the line that is not in it."""
    if encoding is None:
        yield from blocks
        return
    if not is_text_encoding(encoding):
        raise FileRefused(f"{name}: unknown encoding {encoding!r}")
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    lines = 0
    ended = False
    while not ended:
        block = next(blocks, None)
        ended = block is None
        try:
            text = decoder.decode(block or b"", final=ended)
        except (UnicodeError, ValueError) as error:
            good = getattr(error, "object", b"")[: getattr(error, "start", 0)].decode(encoding, "ignore")
            raise FileRefused(f"{name}: line {lines + good.count(chr(10)) + 1} is not {encoding}") from None
        lines += text.count("\n")
        yield text.encode()


def in_blocks(reader: BinaryIO) -> Iterator[bytes]:
    """Read to the end, a block at a time."""
    with reader:
        while block := reader.read(BLOCK_BYTES):
            yield block


def sha256_of(blocks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of a stream."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.digest()


Item = TypeVar("Item")


def ahead(items: Iterator[Item], *, quick_s: float = 0.03) -> Iterator[Item]:
    """Produce the next item in a thread while the caller works on this one; its exceptions are raised here.

    While they take less than `quick_s`, or where the system gives no thread, items are produced when asked for: a new
    thread of a small file compiles all patterns anew, which takes longer than checking it.
    """
    while True:
        began_s = time.process_time()  # of the processor: a busy machine makes no file a large one
        if (item := next(items, None)) is None:
            return
        if time.process_time() - began_s >= quick_s:
            break
        yield item
        del item
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        while item is not None:
            try:
                coming = thread.submit(next, items, None)
            except RuntimeError:
                yield item
                yield from items
                return
            yield item
            del item  # free some megabytes while waiting for the next one
            item = coming.result()
