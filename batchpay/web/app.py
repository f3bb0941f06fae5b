"""Assembles the page as a Flask application: what is refused before any page, the pages, what every answer says.

Light on purpose: heavy work is done by a child (jobs.py). No form contains a token: a request that changes something
must come from our own pages, by Sec-Fetch-Site or, if a browser does not send it, by Origin; and the session's cookie
is SameSite=Strict.
"""

from __future__ import annotations

import hashlib
import io
import ipaddress
import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from flask import Flask, Request, Response, abort, g, render_template, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from batchpay.errors import BatchpayError, WrongUse, place_of
from batchpay.operations.logs import log
from batchpay.web import (
    approval,
    checked,
    doubts,
    enrollment,
    files,
    history,
    payments,
    reconcile,
    releases,
    returns,
    runs,
    sign_in,
    words,
)
from batchpay.web.people import Person
from batchpay.web.site import EXTENSION, Site, site
from batchpay.web.spool import PIECE_BYTES

_STATIC = Path(__file__).parent / "static"
FORM_BYTES_MAX = 8 << 20
"""The largest file that can be uploaded by a plain form."""
BLUEPRINTS = tuple(
    part.blueprint
    for part in (
        sign_in,
        enrollment,
        files,
        checked,
        approval,
        payments,
        runs,
        releases,
        doubts,
        reconcile,
        returns,
        history,
    )
)

_SAID = {
    400: "This request can't be carried out.",
    401: "You are signed out, and nothing was done. Please sign in first.",
    403: "You may not do that.",
    404: "This page does not exist.",
    405: "This page doesn't accept that kind of request.",
    409: "This has changed since your page was loaded. Nothing was done; check again.",
    413: "That is too large.",
    421: "This address is not known to batchpay (web --host).",
}

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
_HARMLESS = ("GET", "HEAD", "OPTIONS")


class _Upload(Request):
    """A request whose files stay in memory: werkzeug would write larger ones to disk unencrypted."""

    def _get_file_stream(self, *_: Any, **__: Any) -> IO[bytes]:
        return io.BytesIO()


class _Page(Flask):
    request_class = _Upload


def create_app(here: Site) -> Flask:
    """Add the pages for a site."""
    app = _Page("batchpay.web", static_folder=None, template_folder=str(Path(__file__).parent / "templates"))
    app.config["MAX_CONTENT_LENGTH"] = max(PIECE_BYTES, FORM_BYTES_MAX) + 65_536
    app.config["MAX_FORM_MEMORY_SIZE"] = FORM_BYTES_MAX + 65_536
    app.extensions[EXTENSION] = here
    for before in (_known_host, _own_pages_only, sign_in.identify_person, _only_in_sight):
        app.before_request(before)
    app.after_request(_say_headers)
    app.context_processor(_shared_context)
    app.jinja_env.filters.update(words.FILTERS)
    app.jinja_env.globals.update(static=static_url, states=words.STATES)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    app.add_url_rule("/static/<mark>/<name>", "static_file", _static_file)
    app.add_url_rule("/healthz", "healthz", lambda: Response("ok\n", mimetype="text/plain"))
    app.register_error_handler(HTTPException, _refuse)
    app.register_error_handler(BatchpayError, _stopped)
    app.register_error_handler(sqlite3.OperationalError, _not_kept)
    app.register_error_handler(Exception, _fault)
    return app


def _known_host() -> None:
    """Refuse a Host that is not ours: another name that leads here may belong to someone else's page."""
    if request.host.lower() not in site().access.hosts:
        abort(421)


def _own_pages_only() -> None:
    """Refuse what another site's page sends here."""
    if request.method in _HARMLESS:
        return
    sent_from, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if sent_from is not None:
        if sent_from != "same-origin":
            abort(403)
    elif origin is None or origin.partition("://")[2].lower() != request.host.lower():
        abort(403)


def _only_in_sight() -> None:
    """Answer about a file or batch that a person may not see as if there were none, whichever page is asked."""
    if g.get("person") is None:
        return
    sight, named = files.in_sight(), {**request.args, **(request.view_args or {})}
    if "file_id" in named and not sight.file(named["file_id"]):
        abort(404)
    if named.get("batch") and sight.batches is not None:
        with suppress(WrongUse):  # it may be the beginning of one's name
            named["batch"] = site().ledger().find(named["batch"]).batch
        if not sight.batch(named["batch"]):
            abort(404)


def _say_headers(answer: Response) -> Response:
    """Tell the browser what it may do with an answer: nothing is cached, framed or run from elsewhere."""
    for name, value in _HEADERS.items():
        answer.headers[name] = value
    if site().access.behind_tls:
        answer.headers["Strict-Transport-Security"] = "max-age=31536000"
    person, file_id = g.get("person"), (request.view_args or {}).get("file_id", "")
    log(
        "request",
        method=request.method[:10],
        path=request.url_rule.rule if request.url_rule is not None else "unknown",  # no address: it may name anything
        file=file_id if re.fullmatch("[0-9a-f]{16}", file_id) else None,
        http_status=answer.status_code,
        who=person.name if person else None,
        address=request.remote_addr,
    )
    if request.endpoint != "static_file":
        answer.headers["Cache-Control"] = "no-store"
    return answer


def _menu(
    here: Site, person: Person, asked_again: Callable[[], list[doubts.Batch]], to_sign: Callable[[], list[Any]]
) -> list[tuple[str, str, tuple[str, ...], int, str, str]]:
    """Return the links at the top of every page: name, endpoint, blueprints, how much waits there, of what, tone."""
    try:
        waiting, doubtful = len(approval.waiting_for(here, person)), doubts.rows_in_doubt(here)
        waiting += sum(len(batch.mine) for batch in asked_again()) if person.may("approve") else 0
        waiting += len(to_sign())
    except BatchpayError:  # the page itself says what is wrong with the ledger
        waiting = doubtful = 0
    return [
        ("Files", "files.home", ("files", "checked", "runs"), 0, "", ""),
        ("To approve", "approval.waiting", ("approval",), waiting, "waiting for you", "wait"),
        ("In doubt", "doubts.page", ("doubts",), doubtful, "in doubt", "bad"),
        ("Returns", "returns.page", ("returns",), 0, "", ""),
        ("History", "history.page", ("history", "reconcile"), 0, "", ""),
    ]


def _shared_context() -> dict[str, Any]:
    """Return what every page shows around its content."""
    here, person = site(), g.get("person")
    to_sign = cache(lambda: releases.to_sign(here, person) if person else [])
    asked_again = cache(partial(doubts.asked_again, here))  # the menu and To approve show the same
    return {
        "menu": lambda: _menu(here, person, asked_again, to_sign) if person else [],  # a fragment has none
        "asked_again": asked_again,
        "to_sign": to_sign,
        "me": person,
        "to_confirm": lambda: len(enrollment.to_confirm(here, person)) if person else 0,
        "gateway": here.gateway_host,
        "is_live": here.environment == "live",
        "page_asks_for_codes": here.asks_for_codes,
        "is_elsewhere": _is_elsewhere(request.remote_addr),
        "by_proxy": here.access.proxy_header is not None,
    }


def _is_elsewhere(address: str | None) -> bool:
    """Return whether a person certainly looks from another machine than the one that sends."""
    try:
        return address is not None and not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a Unix socket's
        return False


@cache
def _static_files() -> dict[str, tuple[str, bytes]]:
    """Everything a page may load, with its type: few and small."""
    names = {"app.css": "text/css", "app.js": "text/javascript", "mark.svg": "image/svg+xml"}
    names["htmx.min.js"] = names["app.js"]
    return {name: (kind, (_STATIC / name).read_bytes()) for name, kind in names.items()}


@cache
def _mark(name: str) -> str:
    return hashlib.sha256(_static_files()[name][1]).hexdigest()[:12]


def static_url(name: str) -> str:
    """Return a static file's address with a mark of its content: what is at an address never changes."""
    return url_for("static_file", mark=_mark(name), name=name)


def _static_file(mark: str, name: str) -> ResponseReturnValue:
    if name not in _static_files() or mark != _mark(name):
        abort(404)
    kind, content = _static_files()[name]
    return Response(content, mimetype=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _refuse(error: HTTPException) -> ResponseReturnValue:
    code = error.code or 500
    if error.response is not None:
        return error.response
    return _say(_SAID.get(code, "Something went wrong."), code)


def _stopped(error: BatchpayError) -> ResponseReturnValue:
    """Say what prevents the page: the ledger, a setting, another run."""
    return _say(str(error), 409 if error.exit_code in (2, 4, 8, 9) else 503)


def _not_kept(error: sqlite3.OperationalError) -> ResponseReturnValue:
    """Say that the page's own database can't be used; its error names a place, and no row."""
    log("page's database failed", reason=place_of(error), path=request.path)
    said = "The page can't use its own database, web.db: its disk may be full. Tell your batchpay administrator."
    return _say(f"{said}{_uncertain()}", 503)


def _fault(error: Exception) -> ResponseReturnValue:
    """Show nothing of an error whose text may hold a row; its kind and place are logged."""
    log("page failed", reason=place_of(error), path=request.path)
    return _say(f"Something went wrong on this page.{_uncertain()}", 500)


def _uncertain() -> str:
    """Add, where somebody did something, that nobody knows how far it came."""
    if request.method in ("GET", "HEAD"):
        return ""
    return " What you did may or may not have been recorded: check before you repeat it."


def _say(sentence: str, code: int) -> ResponseReturnValue:
    if request.headers.get("HX-Request") or request.accept_mimetypes.best == "application/json":
        return Response(sentence, code, mimetype="text/plain")
    return render_template("said.html", sentence=sentence, code=code), code
