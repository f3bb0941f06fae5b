"""A TCP proxy that cuts, delays or holds a connection after an exact number of bytes, in either direction.

For tests of what is known when a connection ends in the middle of a commit: any byte of a protocol can be the last.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType

_READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, with zero time: closing sends a reset."""


@dataclass
class Cut:
    """What happens to the connections that are made while it is set."""

    after_bytes: int
    """This many bytes pass in that direction, counted from `CuttingProxy.count_from_now`."""
    to_server: bool = True
    """Whether bytes to the server are counted and stopped, instead of those from it."""
    reset: bool = False
    """Whether both ends get a reset, instead of a close."""
    hold: bool = False
    """Whether nothing is closed: what comes after waits for `release`."""
    struck: threading.Event = field(default_factory=threading.Event)
    """Set when the byte was reached."""


class CuttingProxy:
    """Listens on loopback and relays to one server; as a context manager it ends all of it."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut: Cut | None = None
        self.refuses = False
        """Whether new connections are closed immediately: a server that is away."""
        self.passed = {True: 0, False: 0}
        """Bytes passed since `count_from_now`, to the server and from it."""
        self._held = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread("accept", self._accept)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._listener.close()
        self.drop_all()

    def count_from_now(self, cut: Cut | None = None) -> None:
        """Count bytes from here, and make this cut when they have passed."""
        with self._lock:
            self.passed = {True: 0, False: 0}
            self._held.clear()
            self.cut = cut

    def release(self) -> None:
        """Let through what was held, and everything after it."""
        with self._lock:
            self.cut = None
        self._held.set()

    def drop_all(self) -> None:
        """End every connection that is open now."""
        with self._lock:
            ended = tuple(self._open)
        self._end(*ended)

    def _end(self, *sockets: socket.socket, reset: bool = False) -> None:
        """End sockets that are still open; a thread that reads one of them wakes up."""
        with self._lock:
            ended = self._open.intersection(sockets)
            self._open -= ended
        for one in ended:
            with contextlib.suppress(OSError):
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            one.close()

    def _thread(self, name: str, target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name=f"proxy {name}", daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {client, server}
                self._thread("to server", self._pump, client, server, True)
                self._thread("from server", self._pump, server, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_READ_BYTES):
                if not self._pass(data, source, target, to_server):
                    return
        self._end(source, target)

    def _pass(self, data: bytes, source: socket.socket, target: socket.socket, to_server: bool) -> bool:
        """Pass data on up to the cut; False when the connection was ended there."""
        with self._lock:
            cut, before = self.cut, self.passed[to_server]
            here = cut is not None and cut.to_server is to_server and before + len(data) >= cut.after_bytes
            now = data[: max(0, cut.after_bytes - before)] if cut is not None and here else data
            self.passed[to_server] += len(now)
        target.sendall(now)
        if cut is None or not here:
            return True
        cut.struck.set()
        if not cut.hold:
            self._end(source, target, reset=cut.reset)
            return False
        self._held.wait()
        target.sendall(data[len(now) :])
        return True
