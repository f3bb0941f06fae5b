"""The ping: tell a monitor that a run began and how it ended. It never fails a run and never delays it for long.

The address of a ping is often its only secret, so it is in no message.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from urllib.parse import urlsplit

from batchpay import __version__
from batchpay.errors import WrongUse
from batchpay.gateway.connection import tls_context
from batchpay.gateway.origin import is_loopback
from batchpay.settings import GatewaySettings

TIMEOUT_S = 3.0
"""What both pings of a run may hold it up together: the first at most half of it."""


class Ping:
    """One run's pings: `URL/start`, then `URL/EXITCODE`. GET, no body, nothing about payments."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Store the monitor's address; raises WrongUse for anything but https (http only to this machine)."""
        self._url = _checked(url)
        self._left_s = timeout_s
        self._opener = _opener()

    def __repr__(self) -> str:
        return "Ping(****)"

    def start(self) -> str | None:
        """Report that the run begins; return what went wrong, or None."""
        return self._get("start", self._left_s / 2)

    def finish(self, exit_code: int) -> str | None:
        """Report how the run ended; return what went wrong, or None."""
        return self._get(str(exit_code), self._left_s)

    def _get(self, last_part: str, timeout_s: float) -> str | None:
        """Send the request in a thread that is abandoned when time is up: a DNS lookup has no time limit of its own."""
        problems: list[str | None] = []

        def ask() -> None:
            problems.append(self._ask(f"{self._url}/{last_part}", timeout_s))

        thread = threading.Thread(target=ask, name="ping", daemon=True)
        began_s = time.monotonic()
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: the payments need none of this
            return "--ping-url could not be reached (no thread)"
        thread.join(timeout_s)
        self._left_s -= time.monotonic() - began_s
        return problems[0] if problems else f"no answer from --ping-url in {timeout_s:.1f} s"

    def _ask(self, url: str, timeout_s: float) -> str | None:
        request = urllib.request.Request(url, headers={"User-Agent": f"batchpay/{__version__}"})  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                status = int(answer.status)
        except Exception as error:  # a monitor is no reason to fail; the text may hold the address
            return f"--ping-url could not be reached ({type(error).__name__})"
        return None if 200 <= status < 300 else f"--ping-url answered HTTP {status}"


def _checked(url: str) -> str:
    if not all(33 <= ord(character) <= 126 for character in url) or "\\" in url:
        raise WrongUse("--ping-url contains spaces, control or non-ASCII characters")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise WrongUse("--ping-url is not an address") from None
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc or "?" in url or "#" in url:
        raise WrongUse("--ping-url must be an address like https://host/path, without user, query or fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise WrongUse("--ping-url must be https; http goes to this machine only")
    return url.rstrip("/")


def _opener() -> urllib.request.OpenerDirector:
    """An opener without proxies, redirects, cookies or passwords: it knows http and https, and nothing else."""
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler(context=tls_context(GatewaySettings())))
    return opener
