"""A loopback gateway that is faster than every sender measured: one thread, one core, epoll, no framework.

It answers each payment after a fixed time, and may keep a limit of any kind (429 with `Retry-After: 1`, nothing else
said).

Run as `python -m tests.benchmarks.server [--latency-ms N] [--limit N --limit-kind KIND]`; prints its origin.
`GET /statistics` answers when each payment arrived.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.benchmarks.process import OWN_PYTHON, ROOT, SERVER_CORE
from tests.support.pace_world import LIMITERS, Concurrent, Limiter, Noise

IN_FLIGHT_S = 0.02
"""How long a request is busy where the limit is on those at once."""

_BODY = b'{"status":"success","successMessage":{"response_code":200,"message":"accepted"}}'
_ACCOUNT_BODY = (
    b'{"status":"success","successMessage":{"response_code":305,"message":{"gateway":{"id":1001,"gateway_type_id":2,'
    b'"gateway_name":"processorA_ach","gateway_display_name":"Processor A (eCheck)",'
    b'"date_updated":"2026-11-20 08:00:00","date_created":"2026-11-20 08:00:00"}}}}'
)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_ACCEPTED = _HEAD % (len(_BODY), _BODY)
_ACCOUNT = _HEAD % (len(_ACCOUNT_BODY), _ACCOUNT_BODY)
"""What it tells of any gateway account: one for bank payments."""
_REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class BenchmarkServer:
    """A running server."""

    origin: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.origin.rsplit(":", 1)[1])

    def arrived(self) -> list[float]:
        """When each payment arrived."""
        with urllib.request.urlopen(f"{self.origin}/statistics", timeout=30) as answer:  # noqa: S310 - loopback
            found: list[float] = json.loads(answer.read())
        return found


@contextmanager
def running_server(
    *, port: int = 0, latency_ms: float = 0, limit: float | None = None, kind: str = "any second"
) -> Iterator[BenchmarkServer]:
    """Run a server on the first core for as long as the block lasts; `port` 0 is any free one."""
    command = [
        "taskset", "--cpu-list", str(SERVER_CORE), OWN_PYTHON, "-m", "tests.benchmarks.server",
        "--port", str(port), "--latency-ms", str(latency_ms),
        *([] if limit is None else ["--limit", str(limit), "--limit-kind", kind]),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield BenchmarkServer(process.stdout.readline().strip())
        finally:
            process.kill()


KINDS: Mapping[str, Callable[[float], Limiter]] = {
    **{kind: limiter for kind, (limiter, _) in LIMITERS.items()},
    "so many at once": lambda most: Concurrent(int(most), IN_FLIGHT_S),
    "at random": lambda percent: Noise(percent / 100),
}
"""Kinds of refusals: limits a second, in flight, or a share of everything."""


class Server:
    """Connections, the answers that wait for their moment, and what arrived."""

    def __init__(self, port: int, latency_s: float, limit: Limiter | None) -> None:
        self._latency_s = latency_s
        self._limit = limit
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        self._waiting: deque[tuple[float, socket.socket, bytes]] = deque()
        self._arrived: list[float] = []

    @property
    def origin(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Go on until killed."""
        while True:
            wait_s = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else -1
            for descriptor, _ in self._epoll.poll(wait_s):
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._read(descriptor)
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, connection, answer = self._waiting.popleft()
                _send(connection, answer)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            self._connections[connection.fileno()] = connection
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, descriptor: int) -> None:
        connection = self._connections[descriptor]
        try:
            data = connection.recv(262_144)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._epoll.unregister(descriptor)
            del self._connections[descriptor]
            self._unread.pop(descriptor, None)
            connection.close()
            return
        data = self._unread.pop(descriptor, b"") + data
        while data:
            head_end = data.find(b"\r\n\r\n") + 4
            length = _content_length(data[:head_end]) if head_end >= 4 else 0
            if head_end < 4 or len(data) < head_end + length:
                self._unread[descriptor] = data
                return
            self._answer(connection, data[:head_end])
            data = data[head_end + length :]

    def _answer(self, connection: socket.socket, head: bytes) -> None:
        if head.startswith(b"GET /statistics "):
            text = json.dumps(self._arrived).encode()
            connection.setblocking(True)
            connection.sendall(_HEAD % (len(text), text))
            connection.setblocking(False)
            return
        if b"/payment" not in head[:64]:
            _send(connection, _ACCOUNT if head.startswith(b"GET ") else _ACCEPTED)
            return
        self._arrived.append(time.time())
        now = time.monotonic()
        answer = _ACCEPTED if self._limit is None or self._limit.allows(now) else _REFUSED
        if self._latency_s:
            self._waiting.append((now + self._latency_s, connection, answer))
        else:
            _send(connection, answer)


def _send(connection: socket.socket, answer: bytes) -> None:
    try:
        connection.send(answer)
    except OSError:
        return  # the sender is gone


def _content_length(head: bytes) -> int:
    at = head.find(b"Content-Length: ")
    if at < 0:
        at = head.lower().find(b"content-length: ")
    return int(head[at + 16 : head.index(b"\r", at)]) if at >= 0 else 0


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--limit", type=float, help="payments a second, or what else the kind counts; none without")
    parser.add_argument("--limit-kind", choices=KINDS, default="any second")
    arguments = parser.parse_args()
    limit = None if arguments.limit is None else KINDS[arguments.limit_kind](arguments.limit)
    server = Server(arguments.port, arguments.latency_ms / 1000, limit)
    print(server.origin, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
