"""Exchanges with the gateway as values: the basis of both of its interfaces, payments and accounts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import requests
from requests.structures import CaseInsensitiveDict

from batchpay.errors import SettingsNotUsable
from batchpay.gateway.connection import ExchangeFailed
from batchpay.gateway.origin import Origin
from batchpay.gateway.transport import BeforeFirstByte, GatewaySession, ProvenRequest, SendProof, Transport
from batchpay.gateway.wire import header_block
from batchpay.settings import GatewaySettings, Secret
from batchpay.version import __version__

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"batchpay/{__version__}",
}
_REQUESTS_KEPT = 8


@dataclass(slots=True)
class Exchange:
    """The result of one request; `http_status` is None if no complete answer came, and `problem` says why."""

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
    """The gateway's certificate can't be trusted."""


class Channel:
    """Sends requests to the gateway; safe to share between threads."""

    def __init__(
        self, settings: GatewaySettings, headers: Mapping[str, str], secret_headers: Mapping[str, Secret]
    ) -> None:
        """Check settings and headers, open nothing; raises SettingsNotUsable."""
        self._transport = Transport(settings, secret_headers)
        self._session = GatewaySession(self._transport)
        sent = {**_HEADERS, **headers}
        self._session.headers = CaseInsensitiveDict(sent)
        # Each payment's request resembles the next one's, and preparing it takes longer than sending it.
        self._request = lru_cache(_REQUESTS_KEPT)(self._prepare)
        try:
            header_block(sent.items())
        except ValueError:
            raise SettingsNotUsable(
                "gateway.api_id or gateway.service_header contains characters that are not allowed in a header"
            ) from None

    @property
    def origin(self) -> Origin:
        """Return where all requests go."""
        return self._transport.origin

    def exchange(
        self, method: str, path: str, body: bytes = b"", before_first_byte: BeforeFirstByte | None = None
    ) -> Exchange:
        """Send one request, once. No network failure raises; every exception of `before_first_byte` does.

        `path` begins with / and may contain a query.
        """
        proof = SendProof() if before_first_byte is None else SendProof(before_first_byte)
        request = self._request(method, path).copy_for(body, proof)
        started = time.monotonic()
        response, failed = None, None
        try:
            response = self._session.send(request)
        except ExchangeFailed as error:
            failed = error
        return Exchange(
            http_status=response.status_code if response is not None else None,
            headers=response.headers if response is not None else {},
            body=response.content if response is not None else b"",
            bytes_sent=proof.bytes_sent,
            elapsed_s=time.monotonic() - started,
            tls_version=proof.tls_version,
            problem=failed.problem if failed else None,
            certificate=failed is not None and failed.certificate,
        )

    def _prepare(self, method: str, path: str) -> ProvenRequest:
        prepared = self._session.prepare_request(requests.Request(method, f"{self.origin}{path}"))
        url, headers = prepared.url or "", prepared.headers
        return ProvenRequest.prepared(prepared, self._transport.head(method, url, headers))

    def drop_connection(self) -> None:
        """Begin this thread's next request on a new connection: what came over the current one can't be trusted."""
        self._transport.drop_connection()

    def close(self) -> None:
        """Close all connections."""
        self._session.close()
