"""Signing in and proving it again: sessions on the server, pauses after failures, a proxy's word where there is one.

Failures slow tries down and never lock a name: others could lock it. Those of strangers don't slow down whoever is
signed in: proofs are counted apart.
"""

from __future__ import annotations

import functools
import hmac
import math
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, g, make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.http import parse_cookie

from batchpay.text import counted
from batchpay.web import people
from batchpay.web.people import Person
from batchpay.web.site import FAILURES_MAX, Site, site
from batchpay.web.spool import Row

IDLE_S, LIFE_S = 30 * 60, 12 * 3600
WINDOW_S = 15 * 60
FREE, FREE_FROM, FREE_OF = 8, 40, 100
"""Failures in the window before tries slow down: of a name from one address, of one address, of a name anywhere."""
_PAUSE_S_MAX = 60
_SEEN_EVERY_S = 60
_TOKEN_BYTES = 32
_PASSWORD_MAX = 256
TOO_MANY = "Too many attempts. Wait {} and try again, or ask your batchpay administrator."
WRONG = "That name, password or code is incorrect."
WRONG_AGAIN = "That password or code is incorrect, or the code was already used. Nothing was done."
NO_CODE = (
    "This needs an authenticator, and you don't have one yet. Your batchpay administrator can give you a link "
    "to set one up (batchpay web user reset). Nothing was done."
)
OPEN = frozenset(
    {"sign_in.page", "sign_in.enter", "enrollment.page", "enrollment.enroll_by_form", "static_file", "healthz"}
)
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
        mark = people.mark_of(token)
        g.person = _session_person(here, mark)
        g.mark = mark if g.person else None
    header = here.access.proxy_header
    if header is not None:
        sent = request.headers.getlist(header)  # one header, once
        named = sent[0].strip().lower() or None if len(sent) == 1 else None
        if g.person is not None and g.person.name != named:
            _end_session(here, g.mark)
            g.person = g.mark = None
        if g.person is None and named is not None:
            found = here.store.one("SELECT * FROM user WHERE name = ? AND NOT is_off", named)
            if found is None:
                abort(403)
            return let_in(here, found, f"the proxy's {header}", request.full_path.rstrip("?"))
    if g.person is not None or request.endpoint in OPEN:
        return None
    if header is not None:
        abort(403)
    if request.headers.get("HX-Request"):
        then = _own_page("/" + request.headers.get("HX-Current-URL", "").partition("://")[2].partition("/")[2])
        return Response(
            status=204, headers={"HX-Redirect": url_for("sign_in.page", next=then if then != "/" else None)}
        )
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
    address = request.remote_addr or "a socket"
    buckets = {f"name {name}|{address}": FREE, f"from {address}": FREE_FROM, f"of {name}": FREE_OF}
    wrong = _try(here, buckets, found, at_sign_in=True)
    if wrong is not None or found is None:
        return render_template("sign_in.html", wrong=wrong, name=name), 401 if wrong == WRONG else 429
    how = "password" if found["totp"] is None else "password and code"
    return let_in(here, found, how, request.args.get("next", "/"))


@blueprint.post("/sign-out")
def leave() -> ResponseReturnValue:
    """End the session."""
    here = site()
    if g.get("person") is not None:
        here.note(current_person(), None, "signed out")
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
    return _try(here, {f"proof {person.name}": FREE}, found, at_sign_in=False)


def _try(here: Site, buckets: dict[str, int], found: Row | None, *, at_sign_in: bool) -> str | None:
    """Check what was posted; each bucket counts failures, and beyond so many each one more doubles the pause after it.

    A try counts as a failure from its beginning until it proves right: many at once are as many failures.
    """
    if wait_s := _begin_try(here, buckets):
        return TOO_MANY.format(counted(wait_s, "second"))
    by_proxy = here.access.proxy_header is not None and not at_sign_in
    is_right = by_proxy or people.password_is(found, request.form.get("password", "")[:_PASSWORD_MAX])
    if is_right and found is not None and found["totp"] is not None:
        code = "".join(request.form.get("code", "").split())[:6]
        is_right = people.take_code(here.store, here.ledger(), found, code)
    if not is_right:
        did = "failed to sign in" if at_sign_in else "gave a wrong password or code"
        now = here.clock()
        note_failure(here, f"{did}; tries must wait from now on" if _wait_s(here, buckets, now) > 0 else did, found)
        return WRONG if at_sign_in else WRONG_AGAIN
    own, *shared = buckets
    with here.store.write() as db:
        db.execute("DELETE FROM failure WHERE who = ?", (own,))
        for one in shared:
            db.execute("DELETE FROM failure WHERE rowid = (SELECT max(rowid) FROM failure WHERE who = ?)", (one,))
    return None


def _begin_try(here: Site, buckets: dict[str, int]) -> int:
    """Count a try, unless it comes too soon: then return how many seconds are left."""
    now = here.clock()
    with here.store.write() as db:
        db.execute("DELETE FROM failure WHERE at <= ?", (now - WINDOW_S,))
        wait_s = _wait_s(here, buckets, now)
        if wait_s <= 0:
            db.executemany("INSERT INTO failure (who, at) VALUES (?, ?)", [(one, now) for one in buckets])
    return math.ceil(wait_s)


def _wait_s(here: Site, buckets: dict[str, int], now: float) -> float:
    wait_s = 0.0
    for one, free in buckets.items():
        for failures, latest in here.store.all("SELECT count(*), max(at) FROM failure WHERE who = ?", one):
            if failures >= free:
                wait_s = max(wait_s, latest + min(2 ** min(failures - free, 10), _PAUSE_S_MAX) - now)
    return wait_s


def note_failure(here: Site, what: str, found: Row | None) -> None:
    """Record that somebody was not let in, or not believed; not by a name that nobody has: it may be a password."""
    now, latest = here.clock(), here.failures
    if len(latest) == FAILURES_MAX and latest[0] > now - WINDOW_S:
        return
    latest.append(now)
    if len(latest) == FAILURES_MAX and latest[0] > now - WINDOW_S:
        what += f"; more failures within {WINDOW_S // 60} minutes are not recorded"
    with here.store.write() as db:
        who, file_id = found["name"] if found is not None else "unknown", (request.view_args or {}).get("file_id")
        here.store.note(db, who, file_id, what, f"from {request.remote_addr or 'a socket'}")


def let_in(here: Site, found: Row, how: str, then: str) -> ResponseReturnValue:
    """Begin a session, and lead to a page of ours."""
    token, now = secrets.token_urlsafe(_TOKEN_BYTES), here.clock()
    page = None if here.asks_for_codes else request.form.get("page")
    with here.store.write() as db:
        db.execute("DELETE FROM session WHERE seen_at < ? OR made_at < ?", (now - IDLE_S, now - LIFE_S))
        db.execute(
            "INSERT INTO session (mark, person, made_at, seen_at, how, page) VALUES (?, ?, ?, ?, ?, ?)",
            (people.mark_of(token), found["name"], now, now, how, people.mark_of(page) if page else None),
        )
        here.store.note(
            db, found["name"], None, "signed in", people.person_of(found, how, request.remote_addr or "").proof
        )
    answer = make_response(redirect(_own_page(then), 303))
    answer.set_cookie(
        cookie_name(here), token, max_age=LIFE_S, secure=here.access.behind_tls, httponly=True, samesite="Strict"
    )
    return answer


def _own_page(then: str) -> str:
    """Return path and query of an address of this page; the list of files for any other.

    Browsers leave out a tab or a line break, and take a backslash for a slash: `/<tab>/evil.example` leads elsewhere.
    """
    try:
        parts = urlsplit(then)
    except ValueError:
        return "/"
    is_ours = then.isprintable() and "\\" not in then and not (parts.scheme or parts.netloc)
    if not is_ours or not parts.path.startswith("/") or then.startswith("//"):
        return "/"
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def is_known(here: Site, cookies: str, named: str | None) -> bool:
    """Return whether a request comes from somebody who is signed in, or whom the proxy names, by its headers alone."""
    if here.access.proxy_header is not None:
        found = here.store.one("SELECT 1 FROM user WHERE name = ? AND NOT is_off", (named or "").strip().lower())
        return found is not None
    token = parse_cookie(cookies).get(cookie_name(here))
    return bool(token) and _session(here, people.mark_of(str(token))) is not None


def _session(here: Site, mark: bytes) -> Row | None:
    """Return a session that is not over, with its person."""
    now = here.clock()
    return here.store.one(
        "SELECT user.*, session.made_at AS begun_at, seen_at, how, page FROM session JOIN user ON user.name = person"
        " WHERE mark = ? AND NOT is_off AND seen_at > ? AND session.made_at > ?",
        mark, now - IDLE_S, now - LIFE_S,
    )  # fmt: skip


def _session_person(here: Site, mark: bytes) -> Person | None:
    found, now = _session(here, mark), here.clock()
    if found is None:
        return None
    if found["page"] is not None and request.method not in ("GET", "HEAD"):
        # On loopback the cookie went to whatever listens on another port; what the script of our page keeps did not.
        given = request.headers.get("X-Batchpay-Page") or request.form.get("page", "")
        if not hmac.compare_digest(found["page"], people.mark_of(given)):
            return None
    # A page that polls for progress by itself keeps nobody signed in.
    if now - found["seen_at"] > _SEEN_EVERY_S and not request.headers.get("HX-Request"):
        # On a full disk whoever is signed in still sees every page.
        with suppress(sqlite3.OperationalError), here.store.write() as db:
            db.execute("UPDATE session SET seen_at = ? WHERE mark = ?", (now, mark))
    return people.person_of(found, found["how"], request.remote_addr or "")


def _end_session(here: Site, mark: bytes | None) -> None:
    if mark is not None:
        with here.store.write() as db:
            db.execute("DELETE FROM session WHERE mark = ?", (mark,))


def cookie_name(here: Site) -> str:
    """Return the name of the session's cookie: with TLS one that no other host or path can set, else with the port."""
    if here.access.behind_tls:
        return "__Host-batchpay"
    return f"batchpay-{here.access.port}" if here.access.port else "batchpay"
