"""A gateway that only counts: it logs every complete payment body before it answers, in a process of its own.

The tests' proof of 'never twice' is what this process received, never what batchpay says of itself. Each line of the
log is a JSON object: `reference` (invoiceNumber), `amount`, `digest` of the whole body, `n`, the order of arrival, and
`answer`, the kind of answer it will get: success, none, garbage or held. The line is in the file before the first byte
of the answer leaves. `lost` is a body that the gateway never got: a proxy on the way closed the connection.

Run as `python -m tests.support.oracle --log FILE`; prints `oracle ready at http://127.0.0.1:PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.warm import Order, Process, Warm

GARBAGE = b"<html>something went wrong</html>"
ACCOUNT = {
    "status": "success",
    "successMessage": {"response_code": 305, "message": {"gateway": {"id": 1001, "gateway_name": "processorA_ach"}}},
}
SUCCESS = {"status": "success", "successMessage": {"response_code": 200, "message": "accepted"}}


@dataclass(frozen=True)
class Oracle:
    """A running oracle and its log."""

    origin: str
    log: Path

    def received(self) -> Counter[str]:
        """Return how often each reference arrived as a complete body."""
        return Counter(entry["reference"] for entry in self.entries())

    def bodies(self) -> Counter[str]:
        """Return how often each body arrived, by its digest."""
        return Counter(entry["digest"] for entry in self.entries())

    def entries(self, since: int = 0) -> list[dict[str, str]]:
        """Return everything that arrived, in order; `since` is a size of the log, to skip what came before."""
        with self.log.open("rb") as file:
            file.seek(since)
            whole, _, _ = file.read().rpartition(b"\n")  # a line may be read while it is being written
        return [json.loads(line) for line in whole.splitlines()]

    def gets(self, count: int, process: subprocess.Popen[Any] | Process, since: int = 0) -> bool:
        """Wait until this many payments have arrived; False if the process that sends them ended first.

        `since` is a size of the log, to skip what came before. Reading the log again and again would take up a core.
        """
        if process.poll() is None:
            with self.log.open("rb") as file:
                before = file.read(since).count(b"\n")
            with self._asking(f"/arrived?{before + count}") as asked:
                ended = os.pidfd_open(process.pid)
                select.select([asked.fileno(), ended], [], [])
                os.close(ended)
        return len(self.entries(since)) >= count

    def plan(self, *, none: Sequence[int] = (), lost: Sequence[int] = (), held_from: int = 0) -> None:
        """Set which of the payments that follow (1 is the next) get no answer, are lost, or wait for one."""
        query = urllib.parse.urlencode({"plan": json.dumps([list(none), list(lost), held_from])})
        with self._asking(f"/plan?{query}") as asked:
            asked.recv(1)

    def settle(self) -> None:
        """Wait until everything that was sent has arrived: the senders' connections are closed."""
        with self._asking("/idle") as asked:
            asked.recv(1)

    def _asking(self, target: str) -> socket.socket:
        """Ask for something else than a payment; gives the connection, on which the answer comes."""
        address = urllib.parse.urlsplit(self.origin)
        asking = socket.create_connection((address.hostname, address.port), 30)
        asking.sendall(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        return asking


@contextmanager
def running_oracle(log: Path, *options: str, warm: Warm | None = None) -> Iterator[Oracle]:
    """Run an oracle on a free port for the length of the block; forked from a loaded process if one is given."""
    log.touch()
    module, arguments, root = "tests.support.oracle", ("--log", str(log), *options), Path(__file__).resolve().parents[2]
    with (
        warm.start(Order(module, arguments, {}, str(root)), stdout=subprocess.PIPE)
        if warm
        else subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, cwd=root)
    ) as process:
        assert process.stdout is not None
        try:
            yield Oracle(process.stdout.readline().rsplit(" ", 1)[1].strip(), log)
        finally:
            process.kill()


class _Server:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._log = os.open(arguments.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._latency_s = arguments.latency_ms / 1000
        self._silent_every = arguments.silent_every
        self._garbage_every = arguments.garbage_every
        self._one_reference = arguments.one_reference
        self._count = 0
        self._arrival = asyncio.Event()
        self._open = 0
        self._planned = 0
        self._plan: tuple[Sequence[int], Sequence[int], int] = ((), (), 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it closes."""
        self._open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(_content_length(head))
                answer = json.dumps(SUCCESS).encode()
                if head.startswith(b"GET /idle "):
                    await self._wait_until_idle()
                elif head.startswith(b"GET /arrived?"):
                    await self._wait_until_arrived(int(head.split(b" ", 2)[1].partition(b"?")[2]))
                elif head.startswith(b"GET /plan?"):
                    self._take_plan(head)
                elif head.startswith(b"GET /demoapi/"):
                    answer = json.dumps(ACCOUNT).encode()
                elif b"/payment" in head.split(b"\r\n", 1)[0]:
                    kind = self._note(body)
                    await asyncio.sleep(self._latency_s)
                    if kind == "held":
                        await reader.read(1)  # until the sender is gone
                    if kind in ("none", "lost", "held"):
                        break
                    success = {**SUCCESS, "transaction_id": "TX-1"} if self._one_reference else SUCCESS
                    answer = GARBAGE if kind == "garbage" else json.dumps(success).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender is gone: what it sent whole is in the log
        finally:
            self._open -= 1
            writer.close()

    async def _wait_until_idle(self) -> None:
        """Wait until every other connection is closed: then everything that was ever sent whole is in the log."""
        while self._open > 1:
            await asyncio.sleep(0.002)

    async def _wait_until_arrived(self, count: int) -> None:
        """Wait until this many payments are in the log; a waiting connection sends none itself, so it is not open."""
        self._open -= 1
        while self._count < count:
            await self._arrival.wait()
        self._open += 1

    def _take_plan(self, head: bytes) -> None:
        query = urllib.parse.urlsplit(head.split(b" ", 2)[1].decode()).query
        none, lost, held_from = json.loads(urllib.parse.parse_qs(query)["plan"][0])
        self._plan, self._planned = (none, lost, held_from), 0

    def _note(self, body: bytes) -> str:
        """Record a payment, with the kind of answer it will get."""
        self._count += 1
        self._planned += 1
        kind = "success"
        none, lost, held_from = self._plan
        if self._planned in lost:
            kind = "lost"
        elif self._planned in none:
            kind = "none"
        elif held_from and self._planned >= held_from:
            kind = "held"
        elif self._silent_every and self._count % self._silent_every == 0:
            kind = "none"
        elif self._garbage_every and self._count % self._garbage_every == 0:
            kind = "garbage"
        payment = json.loads(body)
        entry = {
            "n": self._count,
            "reference": payment.get("invoiceNumber"),
            "amount": payment["amount"],
            "digest": hashlib.sha256(body).hexdigest(),
            "answer": kind,
        }
        os.write(self._log, json.dumps(entry).encode() + b"\n")
        self._arrival.set()  # wakes everyone who waits; those who wait for more wait for the next one
        self._arrival = asyncio.Event()
        return kind


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1; a free one by default")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--silent-every", type=int, default=0, help="close without an answer after every Nth payment")
    parser.add_argument("--garbage-every", type=int, default=0, help="answer every Nth payment with a page of HTML")
    parser.add_argument("--one-reference", action="store_true", help="give every payment the same reference")
    arguments = parser.parse_args()
    oracle = _Server(arguments)
    server = await asyncio.start_server(oracle.serve, "127.0.0.1", arguments.port, backlog=512)
    print(f"oracle ready at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
