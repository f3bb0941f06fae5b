# mypy: disable-error-code="import-not-found, import-untyped, no-any-return"
"""What sends payments elsewhere: no ledger, no proof, no pace; only requests as fast as they go.

Run as `python -m tests.benchmarks.peers.submit PEER ORIGIN BODIES ROWS WIDTH`: BODIES has one request body a line,
WIDTH is how many requests are in flight. Prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

HEADERS = {"Content-Type": "application/json", "SERVICE-API-ID": "benchmark", "SERVICE-API-KEY": "benchmark-key"}
PATH = "/v2/api/payment.json"
Sender = Callable[[str, Sequence[bytes], int], int]
"""Origin, bodies, width -> how many were answered 200."""


def raw_sockets(origin: str, bodies: Sequence[bytes], width: int) -> int:
    """The floor: a ready text on a kept connection, and just enough reading to find the end of the answer."""
    host, port = origin.removeprefix("http://").split(":")
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\n" + "".join(f"{name}: {HEADERS[name]}\r\n" for name in HEADERS)

    def worker(own: Sequence[bytes]) -> int:
        answered = 0
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for body in own:
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                answer = connection.recv(65_536)
                while not answer.endswith(b"}"):
                    answer += connection.recv(65_536)
                answered += answer.startswith(b"HTTP/1.1 200")
        return answered

    return _in_threads(worker, bodies, width)


def urllib3_threads(origin: str, bodies: Sequence[bytes], width: int) -> int:
    """One pool of connections shared by threads."""
    import urllib3

    pool = urllib3.connection_from_url(origin, maxsize=width, headers=HEADERS)

    def worker(own: Sequence[bytes]) -> int:
        return sum(pool.urlopen("POST", PATH, body=body, headers=HEADERS).status == 200 for body in own)

    return _in_threads(worker, bodies, width)


def requests_session(origin: str, bodies: Sequence[bytes], width: int) -> int:
    """What most programs do: `requests.Session().post(url, json=…)`, a session a thread."""
    import requests

    payments = [json.loads(body) for body in bodies]

    def worker(own: Sequence[Any]) -> int:
        with requests.Session() as session:
            session.headers.update(HEADERS)
            return sum(session.post(origin + PATH, json=payment).status_code == 200 for payment in own)

    return _in_threads(worker, payments, width)


def aiohttp_tasks(origin: str, bodies: Sequence[bytes], width: int) -> int:
    """One session, as many tasks as requests in flight, asyncio's own event loop."""
    import asyncio

    import aiohttp

    async def send_all() -> int:
        connector = aiohttp.TCPConnector(limit=width)
        async with aiohttp.ClientSession(origin, headers=HEADERS, connector=connector) as session:
            waiting = iter(bodies)

            async def task() -> int:
                answered = 0
                for body in waiting:
                    async with session.post(PATH, data=body) as answer:
                        await answer.read()
                        answered += answer.status == 200
                return answered

            return sum(await asyncio.gather(*(task() for _ in range(width))))

    return asyncio.run(send_all())


def _in_threads(worker: Callable[[Sequence[Any]], int], bodies: Sequence[Any], width: int) -> int:
    """Deal the bodies out to so many threads; one is this thread itself."""
    if width == 1:
        return worker(bodies)
    answered = [0] * width

    def part(number: int) -> None:
        answered[number] = worker(bodies[number::width])

    threads = [threading.Thread(target=part, args=(number,)) for number in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answered)


SENDERS: dict[str, tuple[Sender, tuple[str, ...]]] = {
    "raw sockets": (raw_sockets, ()),
    "urllib3": (urllib3_threads, ("urllib3",)),
    "requests Session": (requests_session, ("requests",)),
    "aiohttp": (aiohttp_tasks, ("aiohttp",)),
}
"""Each sender and what it imports before its time is taken."""


def main() -> None:
    """Send so many rows and print how long it took."""
    name, origin, path, rows, width = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    sender, modules = SENDERS[name]
    for module in modules:
        __import__(module)
    with open(path, "rb") as file:  # noqa: PTH123 - no need of a path here
        bodies = [line.rstrip(b"\n") for _, line in zip(range(rows), file, strict=False)]
    started, cpu_before = time.perf_counter(), _cpu_s()
    answered = sender(origin, bodies, width)
    elapsed_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_before
    assert answered == rows, f"{answered} of {rows} were answered"
    print(json.dumps({"job_s": elapsed_s, "rows": rows, "cpu_s": cpu_s}))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
