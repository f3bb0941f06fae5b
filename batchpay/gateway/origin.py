"""Where requests may go: one origin, https or loopback, live or test, whatever the environment says."""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from batchpay.errors import SettingsNotUsable
from batchpay.payment import Environment
from batchpay.settings import GatewaySettings

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of the gateway."""

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        """Return whether the exchange is encrypted."""
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Return whether the gateway is this machine itself: a sandbox or a test."""
        return is_loopback(self.host)

    @property
    def authority(self) -> str:
        """Return host and port in the form of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An explicit http proxy, used with CONNECT."""

    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself: 127.0.0.0/8, ::1 or `localhost`."""
    return host == "localhost" or (is_literal(host) and ipaddress.ip_address(host).is_loopback)


@lru_cache(16)
def check_origin(base_url: str, name: str = "gateway.base_url") -> Origin:
    """Read gateway.base_url as an origin, or another address, by the name that messages have for it.

    Raises SettingsNotUsable for anything but https (http only to loopback), and for a user, path, query or fragment: a
    base_url that contains a secret or a path is a mistake, and its text must not be shown.
    """
    if not base_url:
        raise SettingsNotUsable("gateway.base_url (BATCHPAY_BASE_URL) is not set")
    scheme, host, port = _split(name, base_url, ("https", "http"))
    if scheme == "http" and not is_loopback(host):
        raise SettingsNotUsable(f"{name} must be https; http goes to this machine only, not to {host}")
    return Origin(scheme, host, port)


def environment_of(gateway: GatewaySettings) -> Environment:
    """Return whether payments go to a live or a test gateway: as the setting says, else test if it is on loopback.

    An address that is missing or can't be read counts as live. Raises SettingsNotUsable for any other word.
    """
    if gateway.environment:
        if gateway.environment not in list(Environment):
            raise SettingsNotUsable("gateway.environment (BATCHPAY_ENVIRONMENT) must be live or test")
        return Environment(gateway.environment)
    try:
        on_loopback = check_origin(gateway.base_url).is_loopback
    except SettingsNotUsable:
        on_loopback = False
    return Environment.TEST if on_loopback else Environment.LIVE


def is_rehearsal(gateway: GatewaySettings) -> bool:
    """Return whether nothing that is sent can move money: a test gateway on this machine. Raises SettingsNotUsable.

    A live gateway may be on loopback as well, behind a tunnel on this machine.
    """
    return check_origin(gateway.base_url).is_loopback and environment_of(gateway) is Environment.TEST


def check_proxy(proxy: str) -> Proxy | None:
    """Read gateway.proxy (`http://[user:password@]host:port`); None if it is not set. Raises SettingsNotUsable."""
    if not proxy:
        return None
    userinfo, at, rest = proxy.removeprefix("http://").rpartition("@")
    _, host, port = _split("gateway.proxy", f"http://{rest}" if proxy.startswith("http://") else proxy, ("http",))
    if not at:
        return Proxy(host, port)
    return Proxy(host, port, "Basic " + base64.b64encode(unquote(userinfo).encode()).decode("ascii"))


def _split(name: str, url: str, schemes: tuple[str, ...]) -> tuple[str, str, int]:
    """Split a URL that contains nothing else into scheme, host and port."""
    if not all(33 <= ord(character) <= 126 for character in url) or "\\" in url:
        raise SettingsNotUsable(f"{name} contains spaces, control or non-ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsNotUsable(f"{name} is not an address: write {schemes[0]}://host[:port]") from None
    if parts.scheme not in schemes:
        raise SettingsNotUsable(f"{name} must begin with {' or '.join(scheme + '://' for scheme in schemes)}")
    if "@" in parts.netloc:
        raise SettingsNotUsable(f"{name} must not contain a user or a password")
    if parts.path not in ("", "/") or "?" in url or "#" in url:
        raise SettingsNotUsable(f"{name} must be an origin only, without path, query or fragment")
    if not (is_literal(host) and "%" not in host if ":" in host else _HOST.fullmatch(host)) or port == 0:
        raise SettingsNotUsable(f"{name} is not an address: write {schemes[0]}://host[:port]")
    return parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme]


def is_literal(host: str) -> bool:
    """Return whether a host is written as an address, so that there is no name to look up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
