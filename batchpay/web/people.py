"""Who may sign in, and what they may do. The command line alone adds and changes people; each change is in the ledger.

A role never overrides identity: whoever uploaded, asked or approved must be a different person from the next approver.
Codes of an authenticator (RFC 6238) are six digits that change every half minute, and count once.
"""

from __future__ import annotations

import base64
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
"""Roles that act on money, and so have an authenticator."""
_NAME = re.compile(r"[a-z][a-z0-9._@-]{0,63}")
_HASH = "scrypt:32768:8:3"
STEP_S = 30
_DIGITS = 6
_SECRET_BYTES = 20
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_TOTP_PLACE = "web user {} code"
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


@dataclass(frozen=True, slots=True)
class NewSecrets:
    """What a person is given once: nobody can read it again."""

    password: str
    code_secret: bytes | None


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
) -> NewSecrets:
    """Add a person; raises WrongUse if there is one of that name, or the name or a role is invalid."""
    held = sorted(set(roles), key=list(ROLES).index)
    if not _NAME.fullmatch(name):
        raise WrongUse("a name consists of lowercase letters, digits and . _ - @, and begins with a letter")
    if not held:
        raise WrongUse(f"a person needs at least one role: --role {', --role '.join(ROLES)}")
    wants_code = with_code if with_code is not None else any(role in held for role in PROVES)
    made = NewSecrets(_new_password(), new_secret() if wants_code else None)
    with store.write() as db:
        for (known,) in db.execute("SELECT name FROM user"):
            if _letters(known) == _letters(name):  # people, and approvals, take them for one person
                raise WrongUse(
                    f"there is already a person {known}: batchpay web user reset {known} sets a new password"
                )
        db.execute(
            "INSERT INTO user (name, shown, hash, roles, limit_cents, totp, made_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                name,
                printable(shown or name),
                generate_password_hash(made.password, _HASH),
                " ".join(held),
                limit_cents,
                _sealed(ledger, name, made.code_secret),
                store.clock(),
            ),
        )
        limited = f", approves up to {money(limit_cents)}" if limit_cents is not None else ""
        ledger.note_person(str(by), f"added {name}: {', '.join(held)}{limited}", name)
    return made


def reset(store: WebStore, ledger: Ledger, by: Actor, name: str, *, on: bool = False) -> NewSecrets:
    """Give a person a new password and, if they had one, a new authenticator; ends their sessions.

    Raises WrongUse for someone who is switched off, unless they are to be `on` again.
    """
    found = _found(store, name)
    if found["is_off"] and not on:
        raise WrongUse(f"{name} is switched off; to let them in again: batchpay web user reset {name} --on")
    with store.write() as db:
        made = _renew(db, ledger, name, with_code=found["totp"] is not None)
        db.execute("UPDATE user SET is_off = 0 WHERE name = ?", (name,))
        what = f"gave {name} a new password{' and authenticator' if made.code_secret else ''}"
        ledger.note_person(str(by), what + (", and switched them on" if found["is_off"] else ""), name)
    return made


def _renew(db: Connection, ledger: Ledger, name: str, *, with_code: bool) -> NewSecrets:
    made = NewSecrets(_new_password(), new_secret() if with_code else None)
    db.execute(
        "UPDATE user SET hash = ?, totp = ?, totp_used = 0 WHERE name = ?",
        (generate_password_hash(made.password, _HASH), _sealed(ledger, name, made.code_secret), name),
    )
    db.execute("DELETE FROM session WHERE person = ?", (name,))
    db.execute(
        "DELETE FROM failure WHERE who IN (?, ?) OR who >= ? AND who < ?",
        (f"of {name}", f"proof {name}", f"name {name}|", f"name {name}}}"),
    )
    return made


def change(
    store: WebStore,
    ledger: Ledger,
    by: Actor,
    name: str,
    roles: Iterable[str],
    limit_cents: int | None,
    shown: str | None,
) -> NewSecrets | None:
    """Change a person's roles, limit or shown name, as far as given; return new secrets if a role takes them."""
    found = _found(store, name)
    held = sorted(set(roles), key=list(ROLES).index) or found["roles"].split()
    limit_cents = found["limit_cents"] if limit_cents is None else limit_cents
    new = printable(shown or found["shown"])
    proves = found["totp"] is None and any(role in PROVES and role not in found["roles"].split() for role in held)
    limited = f", approves up to {money(limit_cents)}" if limit_cents is not None else ""
    with store.write() as db:
        made = _renew(db, ledger, name, with_code=True) if proves else None
        db.execute(
            "UPDATE user SET roles = ?, limit_cents = ?, shown = ? WHERE name = ?",
            (" ".join(held), limit_cents, new, name),
        )
        what = f"changed {name} ({new}): {', '.join(held)}{limited}"
        ledger.note_person(str(by), what, name, is_off=bool(found["is_off"]))
    return made


def switch_off(store: WebStore, ledger: Ledger, by: Actor, name: str) -> list[str]:
    """Stop a person from signing in; what they did stays recorded, and the name stays theirs.

    Returns what is scheduled that they approved, a line for each batch: it stays as well.
    """
    _found(store, name)
    with store.write() as db:
        db.execute("UPDATE user SET is_off = 1 WHERE name = ?", (name,))
        db.execute("DELETE FROM session WHERE person = ?", (name,))
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
        }
        for found in store.all("SELECT * FROM user ORDER BY name")
    ]


def password_is(found: Row | None, password: str) -> bool:
    """Compare a password; if there is no such person it takes just as long."""
    with _scrypt:
        is_right = check_password_hash(_nobody() if found is None else found["hash"], password)
    return is_right and found is not None and not found["is_off"]


def take_code(store: WebStore, ledger: Ledger, found: Row, code: str) -> bool:
    """Use a code up: it counts once, whichever request is faster."""
    secret = ledger.unseal(found["totp"], _TOTP_PLACE.format(found["name"]))
    with store.write() as db:
        (used,) = db.execute("SELECT totp_used FROM user WHERE name = ?", (found["name"],)).fetchone()
        step = step_of(secret, code, store.clock(), used)
        if step is not None:
            db.execute("UPDATE user SET totp_used = ? WHERE name = ?", (step, found["name"]))
    return step is not None


def person_of(found: Row, how: str, address: str) -> Person:
    """Create a person from their row."""
    roles = frozenset(found["roles"].split())
    return Person(found["name"], found["shown"], roles, found["limit_cents"], found["totp"] is not None, how, address)


def _found(store: WebStore, name: str) -> Row:
    found = store.one("SELECT * FROM user WHERE name = ?", name)
    if found is None:
        raise WrongUse(f"there is no person {printable(name)}: batchpay web user list")
    return found


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, person_key(Actor(name, ""))))


def _sealed(ledger: Ledger, name: str, secret: bytes | None) -> bytes | None:
    return None if secret is None else ledger.seal(secret, _TOTP_PLACE.format(name))


def _new_password() -> str:
    """Return four groups of five letters: 98 bits, readable over a telephone."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(4))


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
