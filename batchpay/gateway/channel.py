"""Exchanges with the gateway as values: what both of its interfaces, payments and accounts, are built on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from requests.structures import CaseInsensitiveDict

from batchpay import __version__
from batchpay.errors import SettingsNotUsable
from batchpay.gateway.connection import ExchangeFailed, problem_of
from batchpay.gateway.origin import Origin
from batchpay.gateway.transport import SendProof, Transport, WitnessedRequest
from batchpay.gateway.wire import header_block
from batchpay.settings import GatewaySettings, Secret

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"batchpay/{__version__}",
}
_HEADS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of one request; `http_status` is None where no complete answer came, and `problem` says why."""

    http_status: int | None
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes = field(repr=False)
    bytes_sent: int
    """0 is proof that no byte of the request left."""
    elapsed_s: float
    tls_version: str | None
    problem: str | None = None
    certificate: bool = False
    """The gateway's certificate is not to be trusted."""


class Channel:
    """Sends requests to the gateway; safe to share between threads."""

    def __init__(
        self, settings: GatewaySettings, headers: Mapping[str, str], secret_headers: Mapping[str, Secret]
    ) -> None:
        """Check settings and headers, open nothing; raises SettingsNotUsable."""
        self._transport = Transport(settings, secret_headers)
        self._headers: CaseInsensitiveDict[str] = CaseInsensitiveDict({**_HEADERS, **headers})
        # One payment's head is like the next one's, and making it takes as long as reading an answer.
        self._head = lru_cache(_HEADS_KEPT)(self._make_head)
        try:
            header_block(self._headers.items())
            header_block([(name, "") for name in secret_headers])
        except ValueError:
            raise SettingsNotUsable(
                "gateway.api_id or gateway.service_header holds characters that can't stand in a header"
            ) from None

    @property
    def origin(self) -> Origin:
        """Where all requests go."""
        return self._transport.origin

    def exchange(
        self, method: str, path: str, body: bytes = b"", before_first_byte: Callable[[], None] | None = None
    ) -> Exchange:
        """Send one request, once. Raises nothing that the network does, and everything that `before_first_byte` does.

        `path` begins with / and may hold a query.
        """
        witness = SendProof() if before_first_byte is None else SendProof(before_first_byte)
        url, head = self._head(method, path)
        request = WitnessedRequest(method, url, self._headers, body, witness, head)
        started = time.monotonic()
        try:
            response = self._transport.send(request)
        except ExchangeFailed as failed:
            return Exchange(
                http_status=None,
                headers={},
                body=b"",
                bytes_sent=witness.bytes_sent,
                elapsed_s=time.monotonic() - started,
                tls_version=witness.tls_version,
                problem=problem_of(failed),
                certificate=failed.certificate,
            )
        return Exchange(
            http_status=response.status_code,
            headers=dict(response.headers.lower_items()),
            body=response.content,
            bytes_sent=witness.bytes_sent,
            elapsed_s=response.elapsed.total_seconds(),
            tls_version=witness.tls_version,
        )

    def _make_head(self, method: str, path: str) -> tuple[str, memoryview]:
        url = f"{self._transport.origin}{path}"
        return url, self._transport.head(method, url, self._headers)

    def drop_connection(self) -> None:
        """Begin the next request of this thread on a new connection: what came over this one is not to be trusted."""
        self._transport.drop_connection()

    def close(self) -> None:
        """End all connections."""
        self._transport.close()
