"""Signing in and proving it again: sessions on the server, limits on failures, a proxy's word where there is one."""

from __future__ import annotations

import functools
import hashlib
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, g, make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from batchpay.web import people
from batchpay.web.people import Person
from batchpay.web.site import Site, site
from batchpay.web.store import Row

IDLE_S, LIFE_S = 30 * 60, 12 * 3600
WINDOW_S = 15 * 60
FAILURES_MAX = 8
"""For one name in the window."""
FAILURES_FROM_MAX = 40
"""From one address: generous, since behind a proxy everyone has the same one."""
_SEEN_EVERY_S = 60
_TOKEN_BYTES = 32
_PASSWORD_MAX = 256
TOO_MANY = "Too many attempts. Wait 15 minutes, or ask your batchpay administrator."
WRONG = "That name, password or code is incorrect."
WRONG_AGAIN = "That password or code is incorrect, or the code was already used. Nothing was done."
NO_CODE = (
    "This needs an authenticator, and you don't have one yet. Your batchpay administrator can set one up (batchpay "
    "web user reset). Nothing was done."
)
OPEN = frozenset({"sign_in.page", "sign_in.enter", "static_file", "healthz"})
"""What can be reached without signing in."""

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
blueprint = Blueprint("sign_in", __name__)


def current_person() -> Person:
    """Return the person who is signed in; every page except signing in has one."""
    found: Person | None = g.get("person")
    if found is None:
        abort(401)
    return found


def needs(*roles: str) -> Callable[[Callable[Given, Answer]], Callable[Given, Answer]]:
    """Let only people with one of these roles reach a page."""

    def wrap(view: Callable[Given, Answer]) -> Callable[Given, Answer]:
        @functools.wraps(view)
        def inner(*arguments: Given.args, **named: Given.kwargs) -> Answer:
            if not any(current_person().may(role) for role in roles):
                abort(403)
            return view(*arguments, **named)

        return inner

    return wrap


def identify_person() -> ResponseReturnValue | None:
    """Before each request, find who it is: by their session, and by the proxy's word where there is a proxy."""
    g.person = g.mark = None
    here = site()
    token = request.cookies.get(cookie_name(here))
    if token:
        mark = _mark(token)
        g.person = _session_person(here, mark)
        g.mark = mark if g.person else None
    header = here.access.proxy_header
    if header is not None:
        named = _proxy_name(header)
        if g.person is not None and g.person.name != named:
            _end_session(here, g.mark)
            g.person = g.mark = None
        if g.person is None and named is not None:
            found = here.store.one("SELECT * FROM user WHERE name = ? AND NOT is_off", named)
            if found is None:
                abort(403)
            return _enter(here, found, f"the proxy's {header}", request.full_path.rstrip("?"))
    if g.person is not None or request.endpoint in OPEN:
        return None
    if header is not None:
        abort(403)
    if request.headers.get("HX-Request"):
        then = urlsplit(request.headers.get("HX-Current-URL", "")).path
        return Response(status=204, headers={"HX-Redirect": url_for("sign_in.page", next=then or None)})
    if request.method not in ("GET", "HEAD"):
        abort(401)
    return redirect(url_for("sign_in.page", next=request.full_path.rstrip("?") if request.path != "/" else None))


@blueprint.get("/sign-in")
def page() -> ResponseReturnValue:
    """Ask who it is."""
    if g.get("person") is not None:
        return redirect(url_for("files.home"))
    return render_template("sign_in.html", wrong=None, name="")


@blueprint.post("/sign-in")
def enter() -> ResponseReturnValue:
    """Let a person in, or say that sign-in failed; never what was wrong."""
    here = site()
    if here.access.proxy_header is not None:
        abort(403)
    name = request.form.get("name", "").strip().lower()[:64]
    found = here.store.one("SELECT * FROM user WHERE name = ?", name)
    wrong = _try(here, f"name {name}", found, at_sign_in=True)
    if wrong is not None or found is None:
        return render_template("sign_in.html", wrong=wrong, name=name), 429 if wrong == TOO_MANY else 401
    how = "password" if found["totp"] is None else "password and code"
    return _enter(here, found, how, request.args.get("next", "/"))


@blueprint.post("/sign-out")
def leave() -> ResponseReturnValue:
    """End the session."""
    here = site()
    _end_session(here, g.get("mark"))
    answer = redirect(url_for("sign_in.page"), 303)
    answer.delete_cookie(cookie_name(here), secure=here.access.behind_tls, httponly=True, samesite="Strict")
    return answer


def prove_again() -> str | None:
    """Check the posted password and code against the person who is signed in; None if both are right, else why not.

    Called by every act on money: a session alone, stolen or left open, moves nothing. The code of an authenticator is
    required wherever the page is reached through TLS or a proxy, and from everyone who has one. Behind a proxy that
    knows who it is the code alone is the proof.
    """
    here, person = site(), current_person()
    found = here.store.one("SELECT * FROM user WHERE name = ?", person.name)
    if here.asks_for_codes and not person.has_code:
        return NO_CODE
    return _try(here, f"proof {person.name}", found, at_sign_in=False)


def _try(here: Site, who: str, found: Row | None, *, at_sign_in: bool) -> str | None:
    """Check what was posted; failures are counted, by name and by address, and too many block further tries.

    A try counts as a failure from its beginning until it proves right: many at once are as many failures.
    """
    address = f"from {request.remote_addr or 'a socket'}"
    if not _begin_try(here, who, address):
        return TOO_MANY
    by_proxy = here.access.proxy_header is not None and not at_sign_in
    is_right = by_proxy or people.password_is(found, request.form.get("password", "")[:_PASSWORD_MAX])
    if is_right and found is not None and found["totp"] is not None:
        code = "".join(request.form.get("code", "").split())[:6]
        is_right = people.take_code(here.store, here.ledger(), found, code)
    if not is_right:
        return WRONG if at_sign_in else WRONG_AGAIN
    with here.store.write() as db:
        db.execute("DELETE FROM failure WHERE who = ?", (who,))
        db.execute("DELETE FROM failure WHERE rowid = (SELECT max(rowid) FROM failure WHERE who = ?)", (address,))
    return None


def _begin_try(here: Site, who: str, address: str) -> bool:
    """Count a try, unless there were too many already."""
    after = here.clock() - WINDOW_S
    with here.store.write() as db:
        db.execute("DELETE FROM failure WHERE at <= ?", (after,))
        for one, most in ((who, FAILURES_MAX), (address, FAILURES_FROM_MAX)):
            if db.execute("SELECT count(*) FROM failure WHERE who = ?", (one,)).fetchone()[0] >= most:
                return False
        db.executemany("INSERT INTO failure (who, at) VALUES (?, ?)", [(one, here.clock()) for one in (who, address)])
    return True


def _enter(here: Site, found: Row, how: str, then: str) -> ResponseReturnValue:
    token, now = secrets.token_urlsafe(_TOKEN_BYTES), here.clock()
    with here.store.write() as db:
        db.execute("DELETE FROM session WHERE seen_at < ? OR made_at < ?", (now - IDLE_S, now - LIFE_S))
        db.execute(
            "INSERT INTO session (mark, person, made_at, seen_at, how) VALUES (?, ?, ?, ?, ?)",
            (_mark(token), found["name"], now, now, how),
        )
        here.store.note(db, found["name"], None, "signed in", how)
    is_ours = then.startswith("/") and not then.startswith(("//", "/\\"))
    answer = make_response(redirect(then if is_ours else "/", 303))
    answer.set_cookie(
        cookie_name(here), token, max_age=LIFE_S, secure=here.access.behind_tls, httponly=True, samesite="Strict"
    )
    return answer


def _session_person(here: Site, mark: bytes) -> Person | None:
    found = here.store.one(
        "SELECT user.*, session.made_at AS begun_at, seen_at, how FROM session JOIN user ON user.name = person"
        " WHERE mark = ? AND NOT is_off",
        mark,
    )
    now = here.clock()
    # A page that polls for progress by itself keeps nobody signed in.
    if found is None or now - found["seen_at"] >= IDLE_S or now - found["begun_at"] >= LIFE_S:
        return None
    if now - found["seen_at"] > _SEEN_EVERY_S and not request.headers.get("HX-Request"):
        # On a full disk whoever is signed in still sees every page.
        with suppress(sqlite3.OperationalError), here.store.write() as db:
            db.execute("UPDATE session SET seen_at = ? WHERE mark = ?", (now, mark))
    return people.person_of(found, found["how"], request.remote_addr or "")


def _proxy_name(header: str) -> str | None:
    """Read the name that the proxy sends: one header, once."""
    named = request.headers.getlist(header)
    return named[0].strip().lower() or None if len(named) == 1 else None


def _end_session(here: Site, mark: bytes | None) -> None:
    if mark is not None:
        with here.store.write() as db:
            db.execute("DELETE FROM session WHERE mark = ?", (mark,))


def _mark(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def cookie_name(here: Site) -> str:
    """Return the name of the session's cookie: with TLS one that no other host or path can set."""
    return "__Host-batchpay" if here.access.behind_tls else "batchpay"
