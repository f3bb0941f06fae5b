"""The server and what it starts: who may reach it, one at a time on a home, children whose life is a lock."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import http.client
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from batchpay import web
from batchpay.errors import BatchHeld, NotUsable, WrongUse
from batchpay.operations.logs import close_log, open_log
from batchpay.payment import Actor
from batchpay.settings import GatewaySettings, LedgerSettings, Settings, load_settings
from batchpay.web import jobs
from batchpay.web.server import WebServer
from batchpay.web.site import Listen
from batchpay.web.spool import WebStore
from tests.web.house import House

LOOPBACK = Listen("127.0.0.1:0")
ANN = Actor("ann", "host")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        gateway=GatewaySettings(base_url="http://127.0.0.1:9"),
        ledger=LedgerSettings(url=str(tmp_path / "ledger.db"), key_file=str(tmp_path / "keys" / "ledger.key")),
    )


@pytest.mark.parametrize(("listen", "told"), [
    (Listen("0.0.0.0:8790"), "in the clear"), (Listen("192.0.2.1:8790"), "in the clear"),
    (Listen("192.0.2.1:8790", behind_tls=True), "--host NAME"),
    (Listen("127.0.0.1:8790", proxy_header="X-User"), "unix:PATH"),
    (Listen("192.0.2.1:8790", ("pay.example",), behind_tls=True, proxy_header="X-User"), "unix:PATH"),
    (Listen("unix:/run/x.sock"), "for a proxy"), (Listen("unix:/run/x.sock", proxy_header="X-User"), "--host NAME"),
    (Listen("8790"), "HOST:PORT"), (Listen("127.0.0.1:99999"), "HOST:PORT"), (Listen("127.0.0.1:x"), "HOST:PORT"),
], ids=str)  # fmt: skip
def test_no_way_in_by_which_others_read_along(listen: Listen, told: str, settings: Settings, tmp_path: Path) -> None:
    """Passwords never travel in the clear, and a header names nobody where anybody could send it."""
    with pytest.raises(WrongUse, match=told.replace("-", "[-]")):
        WebServer(settings, tmp_path / "web", listen, ANN)
    assert not (tmp_path / "web").exists()


def test_it_serves_until_it_is_stopped_and_alone(settings: Settings, tmp_path: Path) -> None:
    """A second server on one home is refused; names of this machine are known, others are not; then it is free."""
    first = WebServer(settings, tmp_path / "web", LOOPBACK, ANN)
    thread = threading.Thread(target=first.run)
    thread.start()
    try:
        with pytest.raises(BatchHeld):
            WebServer(settings, tmp_path / "web", LOOPBACK, ANN)
        host = first.url.removeprefix("http://").rstrip("/")
        port = host.rpartition(":")[2]
        for name, code in ((host, 200), (f"localhost:{port}", 200), ("evil.example", 421), (f"localhost:{port}0", 421)):
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            connection.request("GET", "/healthz", headers={"Host": name})
            answer = connection.getresponse()
            assert answer.status == code, name
            assert answer.getheader("Server") is None
            connection.close()
    finally:
        first.stop()
        thread.join()
    again = WebServer(settings, tmp_path / "web", LOOPBACK, ANN)
    again.stop()
    again.run()
    assert stat.S_IMODE((tmp_path / "web").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "web" / "web.db").stat().st_mode) == 0o600


def test_a_proxy_comes_over_a_socket_that_its_group_may_open(settings: Settings, tmp_path: Path) -> None:
    """Mode 0660; what a dead server left is taken away, a file that is none is not."""
    path = tmp_path / "web.sock"
    listen = Listen(f"unix:{path}", ("pay.example",), proxy_header="X-User")
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    made = WebServer(settings, tmp_path / "web", listen, ANN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert made.url == "https://pay.example/"
    made.stop()
    made.run()
    path.unlink(missing_ok=True)
    path.write_text("mine")
    with pytest.raises(WrongUse):
        WebServer(settings, tmp_path / "web", listen, ANN)
    assert path.read_text() == "mine"


def test_the_server_is_thin() -> None:
    """It never loads what checks a file, nor what speaks to the gateway."""
    heavy = ("polars", "pandera", "openpyxl", "batchpay.gateway.connection", "batchpay.validation.check")
    code = f"import sys, batchpay.web.server; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Child:
    """A child as the supervisor sees it."""

    started: ClassVar[list[int]] = []
    given: ClassVar[list[bytes]] = []

    def __init__(self, arguments: list[str], **_: Any) -> None:
        self.number = int(arguments[-1])
        self.ended: int | None = None
        Child.started.append(self.number)
        self.stdin = io.BytesIO()
        self.stdin.close = lambda: Child.given.append(self.stdin.getvalue())  # type: ignore[method-assign]

    def poll(self) -> int | None:
        return self.ended


def test_every_python_that_is_started_ignores_the_current_folder() -> None:
    """Everywhere in the program, not in the page alone."""
    commands = [
        (path.name, [ast.unparse(one) for one in node.elts])
        for path in Path(web.__file__).parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
    ]
    assert len(commands) >= 5
    assert not [one for one in commands if one[1][1] not in ("'-P'", "'-I'")]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    Child.started, Child.given = [], []
    monkeypatch.setattr(subprocess, "Popen", Child)
    return Child.started


def want(house: House, *kinds: str) -> None:
    with house.store.write() as db:
        for number, kind in enumerate(kinds):
            db.execute(
                "INSERT INTO file (id, name, bytes, uploaded_by, uploaded_at, state) VALUES (?, 'x', 1, 'm', 0, ?)",
                (f"f{number}", "sending" if kind in jobs.RUNS else "checking"),
            )
            house.site.jobs.want(db, f"f{number}", kind, "maria")


def test_one_check_and_one_run_at_a_time(house: House, children: list[int]) -> None:
    """In the order in which they were asked for; settings go over a pipe, so that no list of processes shows them."""
    want(house, "check", "check", "submit", "resume")
    house.site.jobs.start_wanted()
    house.site.jobs.start_wanted()
    assert children == [1, 3]
    assert load_settings(json.loads(Child.given[0]), {}) == house.site.settings
    with house.store.write() as db:
        db.execute("UPDATE job SET wanted = 0 WHERE id = 1")
    for child in house.site.jobs._children.values():
        child.ended = 0  # type: ignore[attr-defined]
    house.site.jobs.start_wanted()
    assert children == [1, 3, 2, 3], "the run ended without a word, and is restarted"


def test_a_living_child_is_known_by_its_lock(house: House, children: list[int]) -> None:
    """A restarted server leaves alone what another one started, and takes up what is dead."""
    want(house, "submit")
    path = jobs.lock_file(house.site.home, 1)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert jobs.is_alive(house.site.home, 1) and jobs.is_alive(house.site.home, 1)
    house.site.jobs.start_wanted()
    assert children == []
    os.close(descriptor)
    assert not jobs.is_alive(house.site.home, 1)
    house.site.jobs.start_wanted()
    assert children == [1]


def test_work_that_ends_without_a_word_is_given_up(house: House, children: list[int]) -> None:
    """After five starts a person is told; a check may be tried again, a run waits for somebody."""
    want(house, "check", "submit")
    for _ in range(jobs.STARTS_MAX + 1):
        house.site.jobs.start_wanted()
        for child in house.site.jobs._children.values():
            child.ended = 1  # type: ignore[attr-defined]
    assert children == [1, 2] * jobs.STARTS_MAX
    states = [house.file(name)["state"] for name in ("f0", "f1")]
    assert states == ["refused", "failed"]
    assert "ended unexpectedly several times" in str(house.file("f1")["told"])
    house.site.jobs.start_wanted()
    assert len(children) == 2 * jobs.STARTS_MAX


@pytest.mark.parametrize("missing", ["resource", "polars"], ids=["at its start", "at work"])
def test_the_log_says_why_children_died(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """What a child said went nowhere: after five that could not import a library, the log had no line about it."""
    folder = tmp_path / "python"
    folder.mkdir()
    folder.joinpath(f"{missing}.py").write_text("raise ImportError('libgone.so.7 is not there')")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(jobs, "STARTS_MAX", 2)
    want(house, "check")
    handler = open_log(path=tmp_path / "page.log", as_json=True)
    try:
        for _ in range(jobs.STARTS_MAX):
            house.site.jobs.start_wanted()
            house.site.jobs._children[1].wait(60)
        house.site.jobs.start_wanted()
    finally:
        close_log(handler)
    lines = [json.loads(line) for line in (tmp_path / "page.log").read_text().splitlines()]
    assert [(one["event"], one["file"], one["attempt"]) for one in lines] == [
        ("job ended early", "f0", n) for n in (1, 2)
    ]
    assert all("libgone.so.7 is not there" in one["reason"] for one in lines)
    told = str(house.file("f0")["told"])
    assert "web --log-file" in told and "f0" in told and "jobs/1.fault" in told
    assert "libgone" in jobs.fault_file(house.site.home, 1).read_text()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on something without an end."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def hold(house: House, number: int, pid: int) -> int:
    """Hold a job's lock as its child does; gives the descriptor."""
    descriptor = os.open(jobs.lock_file(house.site.home, number), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, str(pid).encode())
    return descriptor


def test_a_check_that_takes_too_long_is_ended_and_not_started_again(
    house: House, sleeper: subprocess.Popen[bytes], children: list[int]
) -> None:
    """One file of a million columns held up all others for half an hour, five times; a run may take days."""
    want(house, "check", "check", "submit")
    held = [hold(house, 1, sleeper.pid), hold(house, 3, 0)]
    house.site.jobs.start_wanted()
    assert house.file("f0")["state"] == "checking" and sleeper.poll() is None
    for number in (1, 3):
        os.utime(jobs.lock_file(house.site.home, number), (0, time.time() - jobs.CHECK_S_MAX - 1))
    house.site.jobs.start_wanted()
    assert sleeper.wait(10) == -signal.SIGKILL
    os.close(held[0])
    house.site.jobs.start_wanted()
    assert children == [2], "the next file has its turn"
    assert [house.file(name)["state"] for name in ("f0", "f1", "f2")] == ["refused", "checking", "sending"]
    assert "took longer than 10 minutes" in str(house.file("f0")["told"])
    os.close(held[1])


def test_a_check_waits_in_line_and_can_be_stopped(
    house: House, sleeper: subprocess.Popen[bytes], children: list[int]
) -> None:
    """The page said that it read the file while another file's check went on, and nothing could end it."""
    want(house, "check", "check", "check", "submit")
    held = hold(house, 1, sleeper.pid)
    page = house.page("lee", "/files/f2")
    assert "Waiting for another file’s check: number 3 in line" in page and "Stop this check" not in page
    assert "in line" not in house.page("maria", "/files/f0")
    house.post("lee", "/files/f0/discard", 403)
    house.post("daniel", "/files/f0/discard", 403)
    house.post("maria", "/files/f3/discard", 409)
    house.post("maria", "/files/f1/discard")
    page = house.page("maria", "/files/f1/check")
    assert "This check was stopped." in page and "Maria Lind stopped the check" in page
    assert "number 2 in line" in house.page("maria", "/files/f2")
    assert "Stop this check" in house.page("maria", "/files/f0")
    house.post("maria", "/files/f0/discard")
    assert sleeper.wait(10) == -signal.SIGKILL
    os.close(held)
    house.site.jobs.start_wanted()
    assert children == [3, 4]
    house.post("maria", "/files/f0/check")
    assert house.file("f0")["state"] == "checking", "it can be checked again"


def ask(server: WebServer, head: str, body: bytes = b"") -> tuple[str, str]:
    """Send a request to a server as it stands here; gives status line and body of the answer."""
    listening = server._server.socket
    host, port = listening.getsockname() if listening.family == socket.AF_INET else ("", 0)
    with socket.socket(listening.family) as connection:
        connection.settimeout(30)
        connection.connect(listening.getsockname())
        connection.sendall(head.format(host=f"{host}:{port}", port=port).encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    first, _, rest = answer.decode().partition("\r\n")
    return first, rest.partition("\r\n\r\n")[2]


@contextmanager
def running(server: WebServer) -> Iterator[WebServer]:
    """Let a page serve."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


POST = "POST {path} HTTP/1.1\r\nHost: {{host}}\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"


def test_a_stranger_sends_little(settings: Settings, tmp_path: Path) -> None:
    """Sixty bodies of 8 MB of nobody took 485 MB: what a stranger sends beyond 16 KiB is read past and kept nowhere."""
    big, form = b"x" * (8 << 20), b"name=maria&password=wrong"
    door, files = POST.format(path="/sign-in"), POST.format(path="/files")
    kind = "Content-Type: application/x-www-form-urlencoded\r\n"
    chunked = b"".join(b"10000\r\n%b\r\n" % big[:65536] for _ in range(4)) + b"0\r\n\r\n"
    with running(WebServer(settings, tmp_path / "web", LOOPBACK, ANN)) as server:
        first, said = ask(server, f"{files}Content-Length: {len(big)}\r\n\r\n", big)
        assert "413" in first and said == "Sign in first. Without it, batchpay accepts short forms only."
        assert "413" in ask(server, f"{files}Transfer-Encoding: chunked\r\n\r\n", chunked)[0]
        assert "413" in ask(server, f"{files}Cookie: batchpay=abc\r\nContent-Length: {len(big)}\r\n\r\n", big)[0]
        assert "401" in ask(server, f"{door}{kind}Content-Length: {len(form)}\r\n\r\n", form)[0]


def test_the_body_of_a_stranger_is_kept_nowhere(settings: Settings, tmp_path: Path) -> None:
    server = WebServer(settings, tmp_path / "web", LOOPBACK, ANN)
    parser = server._server.channel_class.parser_class(server._server.adj)
    parser.received(b"POST /files HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n")
    for _ in range(100):
        assert parser.received(b"x" * 65536) == 65536 and not parser.completed
    assert len(parser.get_body_stream().read()) == 0
    server.stop()
    server.run()


def test_a_form_that_is_too_large_is_answered_in_the_pages_own_words(settings: Settings, tmp_path: Path) -> None:
    """The browser said that the connection was reset."""
    token, now = "t" * 43, time.time()
    mark = hashlib.sha256(token.encode()).digest()
    head = f"{POST.format(path='/files')}Cookie: batchpay-{{port}}={token}\r\nContent-Type: text/plain\r\n"
    with running(WebServer(settings, tmp_path / "web", LOOPBACK, ANN)) as server:
        store = WebStore(tmp_path / "web")
        with store.write() as db:
            db.execute("INSERT INTO user (name, shown, hash, roles, made_at) VALUES ('maria', 'M', '', 'prepare', 0)")
            db.execute(
                "INSERT INTO session (mark, person, made_at, seen_at, how) VALUES (?, 'maria', ?, ?, 'password')",
                (mark, now, now),
            )
        store.close()
        first, said = ask(server, f"{head}Content-Length: {20 << 20}\r\n\r\n", b"x" * (20 << 20))
        assert "413" in first and "at most 8 MiB" in said and "JavaScript" in said
        assert "400" in ask(server, f"{head}Content-Length: {1 << 20}\r\n\r\n", b"x" * (1 << 20))[0]


@pytest.mark.parametrize(("listen", "address"), [
    (LOOPBACK, "127.0.0.1"), (Listen("127.0.0.1:0", ("pay.example",), behind_tls=True), "203.0.113.7"),
    (Listen("127.0.0.1:0", ("pay.example",), behind_tls=True, proxy="192.0.2.1"), "127.0.0.1"),
    (Listen("unix:web.sock", ("pay.example",), behind_tls=True), "203.0.113.7"),
])  # fmt: skip
def test_a_person_behind_a_proxy_has_an_address_of_their_own(
    settings: Settings, tmp_path: Path, listen: Listen, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last address that the proxy added, and only from the proxy: not what a person sent."""
    monkeypatch.chdir(tmp_path)
    host = next(iter(listen.hosts), "{host}")
    head = f"POST /sign-in HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"
    head += "X-Forwarded-For: 198.51.100.1, 203.0.113.7\r\nContent-Length: 0\r\n\r\n"
    with running(WebServer(settings, tmp_path / "web", listen, ANN)) as server:
        assert "401" in ask(server, head)[0]
    store = WebStore(tmp_path / "web")
    assert f"from {address}" in {row["who"] for row in store.all("SELECT who FROM failure")}
    store.close()


def test_web_db_is_ours_and_of_this_version(tmp_path: Path) -> None:
    """A later version's is refused, and so is another program's; making it twice changes nothing."""
    first = WebStore(tmp_path)
    with first.write() as db:
        first.note(db, "maria", None, "was here")
    first.close()
    second = WebStore(tmp_path)
    assert second.count("SELECT count(*) FROM event") == 1
    with second.write() as db:
        db.execute("PRAGMA user_version = 99")
    second.close()
    with pytest.raises(NotUsable, match="later version"):
        WebStore(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "web.db").write_bytes(b"not a database, and long enough to be seen as none" * 40)
    with pytest.raises(NotUsable):
        WebStore(tmp_path / "other")


def test_an_error_undoes_a_transaction(house: House) -> None:
    def both() -> None:
        with house.store.write() as db:
            house.store.note(db, "maria", None, "half")
            raise OSError

    with pytest.raises(OSError):
        both()
    assert house.store.count("SELECT count(*) FROM event") == 0
