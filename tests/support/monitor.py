"""A monitor on loopback that keeps what it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Monitor:
    """A monitor that keeps what it was asked, and answers with one status."""

    status: int = 200
    location: str | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    origin: str = ""


@contextmanager
def monitor(status: int = 200, location: str | None = None, context: ssl.SSLContext | None = None) -> Iterator[Monitor]:
    kept = Monitor(status, location)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kept.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            kept.requests.append((self.command, self.path))
            kept.headers.append(dict(self.headers))
            self.send_response(kept.status)
            if kept.location:
                self.send_header("Location", kept.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of a client that does not trust the certificate."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    kept.origin = f"http{'s' if context else ''}://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
