"""Who may sign in, and what they may do. The command line alone adds and changes people; each change is in the ledger.

It gives out links alone (enrollment.py): nobody but the person knows password and authenticator. A role never overrides
identity: whoever uploaded, asked or approved must be a different person from the next approver. Codes of an
authenticator (RFC 6238) are six digits that change every half minute, and count once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Any

from werkzeug.security import check_password_hash, generate_password_hash

from batchpay.approval.approvals import person_key
from batchpay.errors import WrongUse
from batchpay.gateway.origin import is_rehearsal
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import PLAN_USED
from batchpay.payment import ON_THE_WEB, Actor, format_cents
from batchpay.settings import Settings
from batchpay.text import money, printable
from batchpay.web.spool import Row, WebStore, default_home

ROLES = {
    "prepare": "uploads and checks files, and requests approval",
    "approve": "approves what others prepared, and continues stopped runs",
    "settle": "decides on payments in doubt, and cancels waiting ones",
    "look": "sees everything except the account numbers in a file's own rows",
}
"""What a person of each role may do. Nobody edits people on the page."""
PROVES = ("approve", "settle")
"""Roles that act on money, and so have an authenticator, and count once another person confirmed who enrolled."""
_NAME = re.compile(r"[a-z][a-z0-9._@-]{0,63}")
_HASH = "scrypt:32768:8:3"
STEP_S = 30
_DIGITS = 6
_SECRET_BYTES = 20
_TOKEN_BYTES = 32
TOTP_PLACE = "web user {} code"
_scrypt = Lock()
"""One password at a time: a hash takes 32 MiB and half a second, and eight at once would overload the machine."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person who is signed in."""

    name: str
    shown: str
    roles: frozenset[str]
    limit_cents: int | None
    """The highest total that they may approve; None if there is no limit."""
    has_code: bool
    """Whether they have an authenticator."""
    how: str
    """How we know who they are: `password`, `password and code`, or the proxy's name for it."""
    address: str = ""
    """Where their requests come from."""
    waits: bool = False
    """Whether roles that act on money don't count yet: no other person has confirmed that it was they who enrolled."""

    def may(self, role: str) -> bool:
        """Return whether they have a role."""
        return role in self.roles

    @property
    def proof(self) -> str:
        """How we know who they are and where their requests come from, as the page's history records it."""
        return f"{self.how}, from {self.address}" if self.address else self.how

    def actor(self) -> Actor:
        """Return them as the actor that the ledger records."""
        return Actor(self.name, self.address or "page", f"{ON_THE_WEB}, {self.how}")


@contextmanager
def opened(settings: Settings, home: Path | None, by: Actor) -> Iterator[tuple[WebStore, Ledger]]:
    """Open what a change of people needs: the page's own database, and the ledger that records it."""
    create_as = str(by) if is_rehearsal(settings.gateway) else None
    with (
        closing(open_ledger(settings.ledger, create_as=create_as)) as ledger,
        closing(WebStore(home or default_home())) as store,
    ):
        yield store, ledger


def add(
    store: WebStore,
    ledger: Ledger,
    by: Actor,
    name: str,
    shown: str,
    roles: Iterable[str],
    limit_cents: int | None,
    *,
    with_code: bool | None = None,
) -> str:
    """Add a person; returns the token of their link. Raises WrongUse if name or roles are not to be."""
    held = sorted(set(roles), key=list(ROLES).index)
    if not _NAME.fullmatch(name):
        raise WrongUse("a name consists of lowercase letters, digits and . _ - @, and begins with a letter")
    if not held:
        raise WrongUse(f"a person needs at least one role: --role {', --role '.join(ROLES)}")
    wants_code = with_code if with_code is not None else any(role in held for role in PROVES)
    with store.write() as db:
        for (known,) in db.execute("SELECT name FROM user"):
            if _letters(known) == _letters(name):  # people, and approvals, take them for one person
                raise WrongUse(f"there is already a person {known}: batchpay web user reset {known} makes a new link")
        db.execute(
            "INSERT INTO user (name, shown, hash, roles, limit_cents, made_at) VALUES (?, ?, '', ?, ?, ?)",
            (name, printable(shown or name), " ".join(held), limit_cents, store.clock()),
        )
        token = _invite(store, db, name, with_code=wants_code)
        limited = f", approves up to {money(limit_cents)}" if limit_cents is not None else ""
        ledger.note_person(str(by), f"added {name}: {', '.join(held)}{limited}", name)
    return token


def reset(store: WebStore, ledger: Ledger, by: Actor, name: str, *, on: bool = False) -> str:
    """End a person's password, authenticator and sessions; returns the token of a new link, by which they enroll anew.

    Raises WrongUse for someone who is switched off, unless they are to be `on` again.
    """
    found = _found(store, name)
    if found["is_off"] and not on:
        raise WrongUse(f"{name} is switched off; to let them in again: batchpay web user reset {name} --on")
    with store.write() as db:
        proves = any(role in PROVES for role in found["roles"].split())
        pending = db.execute("SELECT 1 FROM invitation WHERE person = ? AND with_code", (name,)).fetchone()
        token = _invite(store, db, name, with_code=proves or found["totp"] is not None or pending is not None)
        db.execute("UPDATE user SET is_off = 0 WHERE name = ?", (name,))
        switched = ", and switched them on" if found["is_off"] else ""
        ledger.note_person(str(by), f"gave {name} a new link to enroll by{switched}", name)
    return token


def _invite(store: WebStore, db: Connection, name: str, *, with_code: bool) -> str:
    """End all by which a person signs in, and make a link; return its token."""
    db.execute(
        "UPDATE user SET hash = '', totp = NULL, totp_used = 0, enrolled_at = NULL, confirmed_by = NULL WHERE name = ?",
        (name,),
    )
    db.execute("DELETE FROM session WHERE person = ?", (name,))
    db.execute(
        "DELETE FROM failure WHERE who IN (?, ?) OR who >= ? AND who < ?",
        (f"of {name}", f"proof {name}", f"name {name}|", f"name {name}}}"),
    )
    return new_link(store, db, name, None, with_code=with_code)


def new_link(store: WebStore, db: Connection, name: str, confirmed_by: str | None, *, with_code: bool) -> str:
    """Make the one link by which a person may enroll; return its token, which is kept nowhere."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    db.execute(
        "INSERT OR REPLACE INTO invitation (person, mark, made_at, with_code, confirmed_by) VALUES (?, ?, ?, ?, ?)",
        (name, mark_of(token), store.clock(), with_code, confirmed_by),
    )
    return token


def mark_of(token: str) -> bytes:
    """Return what is kept of a session's or a link's token: its SHA-256."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def change(
    store: WebStore,
    ledger: Ledger,
    by: Actor,
    name: str,
    roles: Iterable[str],
    limit_cents: int | None,
    shown: str | None,
) -> str | None:
    """Change a person's roles, limit or shown name, as far as given; return a link's token if a role takes a code."""
    found = _found(store, name)
    held = sorted(set(roles), key=list(ROLES).index) or found["roles"].split()
    limit_cents = found["limit_cents"] if limit_cents is None else limit_cents
    new = printable(shown or found["shown"])
    proves = found["totp"] is None and any(role in PROVES and role not in found["roles"].split() for role in held)
    limited = f", approves up to {money(limit_cents)}" if limit_cents is not None else ""
    with store.write() as db:
        token = _invite(store, db, name, with_code=True) if proves else None
        db.execute(
            "UPDATE user SET roles = ?, limit_cents = ?, shown = ? WHERE name = ?",
            (" ".join(held), limit_cents, new, name),
        )
        what = f"changed {name} ({new}): {', '.join(held)}{limited}"
        ledger.note_person(str(by), what, name, is_off=bool(found["is_off"]))
    return token


def confirm(store: WebStore, ledger: Ledger, by: Actor, name: str) -> None:
    """Confirm that it was this person who enrolled, where no approver can; raises WrongUse if there is nothing to."""
    with store.write() as db:
        found = _found(store, name)
        if found["is_off"] or found["enrolled_at"] is None or found["confirmed_by"] is not None:
            raise WrongUse(f"{name} does not wait to be confirmed: batchpay web user list")
        record_confirmation(store, db, ledger, by.name, str(by), name)


def record_confirmation(store: WebStore, db: Connection, ledger: Ledger, by: str, actor: str, name: str) -> None:
    """Record who confirmed that a person enrolled."""
    db.execute("UPDATE user SET confirmed_by = ?, confirmed_at = ? WHERE name = ?", (by, store.clock(), name))
    ledger.note_person(actor, f"confirmed that {name} enrolled", name)


def switch_off(store: WebStore, ledger: Ledger, by: Actor, name: str) -> list[str]:
    """Stop a person from signing in; what they did stays recorded, and the name stays theirs.

    Returns what is scheduled that they approved, a line for each batch: it stays as well.
    """
    _found(store, name)
    with store.write() as db:
        db.execute("UPDATE user SET is_off = 1 WHERE name = ?", (name,))
        db.execute("DELETE FROM session WHERE person = ?", (name,))
        db.execute("DELETE FROM invitation WHERE person = ?", (name,))
        ledger.note_person(str(by), f"switched off {name}", name, is_off=True)
    return [
        f"{name} approved batch {batch.batch} of {batch.file}, {batch.scheduled_told}; if it must not be paid: "
        f"batchpay cancel {batch.batch} --reason TEXT"
        for batch in ledger.batches()
        if batch.scheduled.rows and _approved(ledger, batch.batch, str(Actor(name, "", ON_THE_WEB)))
    ]


def _approved(ledger: Ledger, batch: str, who: str) -> bool:
    used = (json.loads(one.detail) for one in ledger.events(batch) if one.kind == PLAN_USED)
    return any(who == one["who"] for plan in used for one in plan["approvals"])


def everybody(store: WebStore) -> list[dict[str, Any]]:
    """Return what an administrator may see of each person."""
    return [
        {
            "name": found["name"],
            "shown": found["shown"],
            "roles": found["roles"].split(),
            "limit": None if found["limit_cents"] is None else format_cents(found["limit_cents"]),
            "code": found["totp"] is not None,
            "off": bool(found["is_off"]),
            "enrolled": found["enrolled_at"] is not None,
            "confirmed": found["confirmed_by"] is not None,
        }
        for found in store.all("SELECT * FROM user ORDER BY name")
    ]


def password_is(found: Row | None, password: str) -> bool:
    """Compare a password; if there is no such person it takes just as long."""
    known = found["hash"] if found is not None else ""
    with _scrypt:
        is_right = check_password_hash(known or _nobody(), password)
    return is_right and found is not None and not found["is_off"]


def take_code(store: WebStore, ledger: Ledger, found: Row, code: str) -> bool:
    """Use a code up: it counts once, whichever request is faster."""
    secret = ledger.unseal(found["totp"], TOTP_PLACE.format(found["name"]))
    with store.write() as db:
        (used,) = db.execute("SELECT totp_used FROM user WHERE name = ?", (found["name"],)).fetchone()
        step = step_of(secret, code, store.clock(), used)
        if step is not None:
            db.execute("UPDATE user SET totp_used = ? WHERE name = ?", (step, found["name"]))
    return step is not None


def person_of(found: Row, how: str, address: str) -> Person:
    """Create a person from their row."""
    held, has_code = frozenset(found["roles"].split()), found["totp"] is not None
    counted = held - frozenset(PROVES) if found["confirmed_by"] is None else held
    waits = counted != held
    return Person(found["name"], found["shown"], counted, found["limit_cents"], has_code, how, address, waits=waits)


def _found(store: WebStore, name: str) -> Row:
    found = store.one("SELECT * FROM user WHERE name = ?", name)
    if found is None:
        raise WrongUse(f"there is no person {printable(name)}: batchpay web user list")
    return found


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, person_key(Actor(name, ""))))


def hashed(password: str) -> str:
    """Hash a new password; one at a time."""
    with _scrypt:
        return generate_password_hash(password, _HASH)


@cache
def _nobody() -> str:
    return generate_password_hash(secrets.token_hex(16), _HASH)


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


def secret_shown(secret: bytes) -> str:
    """Write a secret as it is typed into an authenticator."""
    text = base64.b32encode(secret).decode("ascii")
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def secret_address(secret: bytes, name: str) -> str:
    """Write a secret as a link that an authenticator accepts."""
    label = urllib.parse.quote(f"batchpay:{name}")
    return f"otpauth://totp/{label}?secret={base64.b32encode(secret).decode('ascii')}&issuer=batchpay"
