"""The ping: tell a monitor that a run began and how it ended. It never fails a run and never delays it for long.

The address of a ping is often its only secret, so it is in no message.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from batchpay.errors import WrongUse
from batchpay.gateway.connection import tls_context
from batchpay.gateway.origin import is_loopback
from batchpay.settings import GatewaySettings
from batchpay.version import __version__

TIMEOUT_S = 3.0
"""What both pings of a run may hold it up together: the first at most half of it."""


class Ping:
    """One run's pings: `URL/start`, then `URL/EXITCODE`. GET, no body, nothing about payments."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Store the monitor's address; raises WrongUse for anything but https (http only to this machine)."""
        self._address = Address(url, "--ping-url", timeout_s)

    def __repr__(self) -> str:
        return "Ping(****)"

    def start(self) -> str | None:
        """Report that the run begins; return what went wrong, or None."""
        return self._address.send("/start", self._address.left_s / 2)

    def finish(self, exit_code: int) -> str | None:
        """Report how the run ended; return what went wrong, or None."""
        return self._address.send(f"/{exit_code}", self._address.left_s)


class Address:
    """An address that is told something: by TLS, through no proxy, to no other address, and in little time."""

    def __init__(self, url: str, name: str, timeout_s: float, *, with_query: bool = False) -> None:
        """Store the address, which messages call `name`; `timeout_s` is for all requests. Raises WrongUse."""
        self._url, self._name = _checked(url, name, with_query=with_query), name
        self.left_s = timeout_s
        self._opener = _opener()

    def __repr__(self) -> str:
        return "Address(****)"

    def send(
        self, last_part: str, timeout_s: float, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> str | None:
        """Send a request, with a body by POST; return what went wrong, or None.

        It runs in a thread that is abandoned when time is up: a DNS lookup has no time limit of its own.
        """
        problems: list[str | None] = []
        request = urllib.request.Request(  # noqa: S310 - checked
            self._url + last_part, body, {"User-Agent": f"batchpay/{__version__}", **(headers or {})}
        )

        def ask() -> None:
            problems.append(self._ask(request, timeout_s))

        thread = threading.Thread(target=ask, name="address", daemon=True)
        began_s = time.monotonic()
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: the payments need none of this
            return f"{self._name} could not be reached (no thread)"
        thread.join(timeout_s)
        self.left_s -= time.monotonic() - began_s
        return problems[0] if problems else f"no answer from {self._name} in {timeout_s:.1f} s"

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> str | None:
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                status = int(answer.status)
        except Exception as error:  # a monitor is no reason to fail; the text may hold the address
            return f"{self._name} could not be reached ({type(error).__name__})"
        return None if 200 <= status < 300 else f"{self._name} answered HTTP {status}"


def _checked(url: str, name: str, *, with_query: bool) -> str:
    if not all(33 <= ord(character) <= 126 for character in url) or "\\" in url:
        raise WrongUse(f"{name} contains spaces, control or non-ASCII characters")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise WrongUse(f"{name} is not an address") from None
    is_more = "@" in parts.netloc or "#" in url or ("?" in url and not with_query)
    if not host or parts.scheme not in ("http", "https") or is_more:
        without = "user or fragment" if with_query else "user, query or fragment"
        raise WrongUse(f"{name} must be an address like https://host/path, without {without}")
    if parts.scheme == "http" and not is_loopback(host):
        raise WrongUse(f"{name} must be https; http goes to this machine only")
    return url.rstrip("/")


def _opener() -> urllib.request.OpenerDirector:
    """An opener without proxies, redirects, cookies or passwords: it knows http and https, and nothing else."""
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler(context=tls_context(GatewaySettings())))
    return opener
