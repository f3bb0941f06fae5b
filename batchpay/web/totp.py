"""Codes of an authenticator (RFC 6238): six digits that change every half minute, and count once."""

from __future__ import annotations

import base64
import hmac
import secrets
import urllib.parse

STEP_S = 30
_DIGITS = 6
_SECRET_BYTES = 20


def new_secret() -> bytes:
    """Create a secret for one person."""
    return secrets.token_bytes(_SECRET_BYTES)


def code_at(secret: bytes, step: int, digits: int = _DIGITS) -> str:
    """Return the code of a time step (RFC 4226, HMAC-SHA-1)."""
    mac = hmac.digest(secret, step.to_bytes(8), "sha1")
    place = mac[-1] & 15
    number = int.from_bytes(mac[place : place + 4]) & 0x7FFFFFFF
    return f"{number % 10**digits:0{digits}d}"


def step_of(secret: bytes, code: str, now: float, used: int) -> int | None:
    """Find the time step that a code belongs to: this one or its neighbors, and none up to the one last used."""
    current = int(now) // STEP_S
    found = None
    for step in (current - 1, current, current + 1):
        if hmac.compare_digest(code_at(secret, step), code) and step > used:
            found = step
    return found


def shown(secret: bytes) -> str:
    """Write a secret as it is typed into an authenticator."""
    text = base64.b32encode(secret).decode("ascii")
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def address(secret: bytes, name: str) -> str:
    """Write a secret as a link that an authenticator accepts."""
    label = urllib.parse.quote(f"batchpay:{name}")
    return f"otpauth://totp/{label}?secret={base64.b32encode(secret).decode('ascii')}&issuer=batchpay"
