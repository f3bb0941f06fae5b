"""What is refused before any page handles it, and the headers that every answer sends to the browser.

No form contains a token: a request that changes something must come from our own pages, by Sec-Fetch-Site or, if a
browser does not send it, by Origin; and the session's cookie is SameSite=Strict.
"""

from __future__ import annotations

from flask import Response, abort, request

from batchpay.web.site import site

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


def known_host() -> None:
    """Refuse a Host that is not ours: another name that leads here may belong to someone else's page."""
    if request.host.lower() not in site().access.hosts:
        abort(421)


def own_pages_only() -> None:
    """Refuse what another site's page sends here."""
    if request.method in _HARMLESS:
        return
    sent_from, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if sent_from is not None:
        if sent_from != "same-origin":
            abort(403)
    elif origin is None or origin.partition("://")[2].lower() != request.host.lower():
        abort(403)


def say_headers(answer: Response) -> Response:
    """Tell the browser what it may do with an answer: nothing is cached, framed or run from elsewhere."""
    for name, value in _HEADERS.items():
        answer.headers[name] = value
    if site().access.behind_tls:
        answer.headers["Strict-Transport-Security"] = "max-age=31536000"
    if request.endpoint != "static_file":
        answer.headers["Cache-Control"] = "no-store"
    return answer
