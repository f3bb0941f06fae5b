"""A loopback gateway that is faster than every sender measured: one thread, one core, epoll, no framework.

It answers each payment after a fixed time, may keep a limit a second (429 with `Retry-After: 1`, nothing else said),
and remembers what arrived: when, how much was refused, and which invoices came twice.

Run as `python -m tests.benchmarks.server [--latency-ms N] [--limit N] [--limit-kind window|bucket]`; prints its origin.
`GET /statistics` answers what arrived so far and forgets it.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import subprocess
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.process import OWN_PYTHON, ROOT, SERVER_CORE

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

    def statistics(self) -> dict[str, Any]:
        """What arrived since the last call: `taken` (times), `refused` (times), `twice` (invoices).

        `late_s` is the most by which an answer left late.
        """
        with urllib.request.urlopen(f"{self.origin}/statistics", timeout=30) as answer:  # noqa: S310 - loopback
            found: dict[str, Any] = json.loads(answer.read())
        return found


@contextmanager
def running_server(
    *, port: int = 0, latency_ms: float = 0, limit: float = 0, kind: str = "window"
) -> Iterator[BenchmarkServer]:
    """Run a server on the first core for as long as the block lasts; `port` 0 is any free one."""
    command = [
        "taskset", "--cpu-list", str(SERVER_CORE), OWN_PYTHON, "-m", "tests.benchmarks.server",
        "--port", str(port), "--latency-ms", str(latency_ms), "--limit", str(limit), "--limit-kind", kind,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield BenchmarkServer(process.stdout.readline().strip())
        finally:
            process.kill()


class Limit:
    """A limit a second: so many in any one second, or a bucket that refills evenly and holds one second's worth."""

    def __init__(self, rate: float, kind: str) -> None:
        self._rate, self._is_window = rate, kind == "window"
        self._taken: deque[float] = deque()
        self._tokens, self._filled_at = rate, time.monotonic()

    def allows(self, now: float) -> bool:
        """Tell whether one more is taken at this moment."""
        if not self._rate:
            return True
        if self._is_window:
            while self._taken and self._taken[0] <= now - 1:
                self._taken.popleft()
            if len(self._taken) >= self._rate:
                return False
            self._taken.append(now)
            return True
        self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Server:
    """Connections, the answers that wait for their moment, and what arrived."""

    def __init__(self, port: int, latency_s: float, limit: Limit) -> None:
        self._latency_s = latency_s
        self._limit = limit
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        self._waiting: deque[tuple[float, socket.socket, bytes]] = deque()
        self._taken: list[float] = []
        self._refused: list[float] = []
        self._invoices: Counter[bytes] = Counter()
        self._late_s = 0.0
        """How late the latest answer left: as long as this process, or the machine, stood still."""

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
                due, connection, answer = self._waiting.popleft()
                self._late_s = max(self._late_s, now - due)
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
            self._answer(connection, data[:head_end], data[head_end : head_end + length])
            data = data[head_end + length :]

    def _answer(self, connection: socket.socket, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /statistics "):
            self._tell(connection)
            return
        if b"/payment" not in head[:64]:
            _send(connection, _ACCOUNT if head.startswith(b"GET ") else _ACCEPTED)
            return
        now = time.monotonic()
        if self._limit.allows(now):
            self._taken.append(time.time())
            at = body.find(b'"invoiceNumber":') + 16
            self._invoices[body[at : at + 24].split(b'"')[1]] += 1
            answer = _ACCEPTED
        else:
            self._refused.append(time.time())
            answer = _REFUSED
        if self._latency_s:
            self._waiting.append((now + self._latency_s, connection, answer))
        else:
            _send(connection, answer)

    def _tell(self, connection: socket.socket) -> None:
        twice = [invoice.decode() for invoice, times in self._invoices.items() if times > 1]
        found = {"taken": self._taken, "refused": self._refused, "twice": twice, "late_s": self._late_s}
        text = json.dumps(found).encode()
        self._taken, self._refused, self._invoices, self._late_s = [], [], Counter(), 0.0
        connection.setblocking(True)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        connection.setblocking(False)


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
    parser.add_argument("--limit", type=float, default=0, help="payments a second; 0 is none")
    parser.add_argument("--limit-kind", choices=("window", "bucket"), default="window")
    arguments = parser.parse_args()
    server = Server(arguments.port, arguments.latency_ms / 1000, Limit(arguments.limit, arguments.limit_kind))
    print(server.origin, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
