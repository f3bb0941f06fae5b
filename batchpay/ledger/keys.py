"""The ledger's key and what is derived from it: digests, the history's chain, encryption at rest.

The key file contains 32 random bytes as hex digits. Every use has its own subkey (HKDF-SHA-256), so that no digest of
one purpose reveals anything about another. Without the key duplicates are undetectable and pending payments unreadable.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from batchpay.errors import CredentialsNotUsable, LedgerDamaged, LedgerNotUsable
from batchpay.ledger.paths import make_private_directory
from batchpay.settings import read_secret_file
from batchpay.writing.atomic import sync_directory

KEY_BYTES = 32
BESIDE = "beside the ledger: "
"""Prefix of the places of what others store: nothing of the ledger's own can pass as theirs, nor the reverse."""
SEAL_BYTES = 16
_NONCE_BYTES = 12


class Keys:
    """The ledger's key; it leaves this object only as digests and ciphertexts."""

    def __init__(self, key: bytes) -> None:
        # Imported only if there is a key: most checks of a file have no ledger, and answer sooner without it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._key = key
        self._subkey = cache(self._derive)
        self._blank_seal = cache(  # a keyed hash costs more to create than to copy
            lambda kind: hashlib.blake2b(key=self._subkey(f"values {kind}"), digest_size=SEAL_BYTES)
        )
        self._blank_mac = cache(lambda purpose: hmac.new(self._subkey(f"mac {purpose}"), digestmod="sha256"))
        self._cipher = AESGCM(self._subkey("encryption"))

    def __repr__(self) -> str:
        return "Keys(****)"

    def _derive(self, purpose: str) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"batchpay " + purpose.encode()).derive(self._key)

    @property
    def key_id(self) -> str:
        """Return a public name of the key, by which a ledger recognizes its own."""
        return self._subkey("key id").hex()[:16]

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        """Return keyed BLAKE2b digests (twice as fast as HMAC-SHA-256 on short texts), `size` bytes each."""
        copy_of_blank = hashlib.blake2b(key=self._subkey(f"digest {purpose}"), digest_size=size).copy
        digests: list[bytes | None] = []
        for text in texts:
            if text is None:
                digests.append(None)
            else:
                one = copy_of_blank()
                one.update(text.encode())
                digests.append(one.digest())
        return digests

    def digest_stream(self, purpose: str) -> Any:
        """Return a keyed digest to feed."""
        return hashlib.blake2b(key=self._subkey(f"stream {purpose}"), digest_size=32)

    def mac(self, purpose: str, *parts: bytes) -> bytes:
        """Return HMAC-SHA-256 over parts, each preceded by its length so that no two lists of parts look alike."""
        mac = self._blank_mac(purpose).copy()
        mac.update(b"".join(len(part).to_bytes(8) + part for part in parts))
        return mac.digest()

    def machine_mark(self, machine: str) -> str:
        """Return a keyed digest of a machine's identity, which systemd asks not to expose."""
        return self.mac("machine", machine.encode()).hex()[:16]

    def seal_values(self, kind: str, values: tuple[int | str | None, ...]) -> bytes:
        """Authenticate a record's values: 16 bytes of keyed BLAKE2b."""
        seal = self._blank_seal(kind).copy()
        seal.update(repr(values).encode())
        digest: bytes = seal.digest()
        return digest

    def seal(self, plain: bytes, place: str) -> bytes:
        """Encrypt with AES-GCM, bound to the place where it will be stored."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, place.encode())

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """Decrypt; raises LedgerDamaged if a byte was changed or the text was moved from another place."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError):
            raise LedgerDamaged(f"the ledger is damaged: {place} can't be decrypted") from None


def load_keys(path: Path) -> Keys:
    """Read the key file; raises LedgerNotUsable if it is missing, open to others, a link, or not a key."""
    try:
        text = read_secret_file(path, "ledger.key_file").reveal()
    except CredentialsNotUsable as error:
        lost = "" if os.path.lexists(path) else "; is its disk mounted? If it is lost, restore it from its backup"
        raise LedgerNotUsable(f"{error}{lost}") from None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise LedgerNotUsable(f"ledger.key_file: {path} has no ledger key ({2 * KEY_BYTES} hex digits)")
    return Keys(key)


def create_key_file(path: Path) -> None:
    """Write a new random key, unless there already is one."""
    make_private_directory(path.parent)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link never replaces a name: of two processes one wins, and none reads half a key.
            path.hardlink_to(temporary)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise LedgerNotUsable(f"ledger.key_file: {path} can't be created: {error.strerror}") from None
