"""The page as a service: real server, real children, a gateway that counts; killed at its worst moment."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle

PAYMENTS, WORKERS, HELD_FROM, DEADLINE_S = 60, 4, 15, 90.0


class Browser:
    """One person's browser, without a window: forms, a cookie, no redirect followed."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self._at = urllib.parse.urlsplit(url)
        self._cookie = ""
        self.password = password
        self.post("/sign-in", name=name, password=password)

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, str, str]:
        """Give the status, where it leads, and the page."""
        connection = http.client.HTTPConnection(self._at.netloc, timeout=60)
        headers = {"Sec-Fetch-Site": "same-origin", "Cookie": self._cookie, "Content-Type": kind}
        connection.request(method, path, body, {name: value for name, value in headers.items() if value})
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).partition(";")[0]
        return answer.status, answer.getheader("Location") or "", page

    def get(self, path: str) -> str:
        """Open a page."""
        status, leads, page = self.ask("GET", path)
        assert status in (200, 286), (status, leads, page)
        return page

    def post(self, path: str, **form: str) -> str:
        """Send a form; gives where it leads."""
        data = urllib.parse.urlencode(form).encode()
        status, leads, page = self.ask("POST", path, data, "application/x-www-form-urlencoded")
        assert status == 303, (status, page)
        return leads

    def upload(self, path: Path) -> str:
        """Upload a file by the plain form; gives where its page is."""
        mark = secrets.token_hex(16)
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{path.name}"\r\n\r\n'
        body = head.encode() + path.read_bytes() + f"\r\n--{mark}--\r\n".encode()
        status, leads, page = self.ask("POST", "/files", body, f"multipart/form-data; boundary={mark}")
        assert status == 303, (status, page)
        return leads


def added(home: Home, name: str, role: str) -> str:
    """Add a person; gives the password."""
    done = home.run("web", "--home", "page", "user", "add", name, "--no-code", "--role", role, "--json")
    password: str = json.loads(done.stdout)["password"]
    return password


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    ends = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)


@contextmanager
def serving(home: Home) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the page on a free port; whatever is left of it and its children is killed at the end."""
    command = home.command("web", "--listen", "127.0.0.1:0", "--home", str(home.path / "page"))
    with subprocess.Popen(command, env=home.environment, cwd=home.path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server, server.stdout.readline().rsplit(" ", 1)[1].strip()
        finally:
            server.kill()


def child_of(home: Home) -> int | None:
    """Find the process of the page's child by its folder."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"batchpay.web.job" in words and str(home.path / "page").encode() in words:
                return int(process.name)
    return None


def kill_child(home: Home) -> None:
    child = child_of(home)
    assert child is not None
    os.kill(child, signal.SIGKILL)


def test_no_payment_is_made_twice_whatever_is_killed(home: Home, oracle: Oracle) -> None:
    """Child killed while it sends, then server and child: the rest goes on, what was under way is in doubt, none twice.

    The gateway holds its answers back from some payment on, so that the kills come when payments are under way.
    """
    home.origin = oracle.origin
    home.extra = {"BATCHPAY_WORKERS": str(WORKERS)}
    secret = {name: added(home, name, role) for name, role in (("maria", "prepare"), ("daniel", "approve"))}
    pay = small_file(home.path / "pay.csv", PAYMENTS)
    with serving(home) as (server, url):
        maria, daniel = (Browser(url, name, password) for name, password in secret.items())
        file = maria.upload(pay)
        until(lambda: maria.ask("GET", file)[1].endswith("/check"))
        maria.post(f"{file}/ask")
        page = daniel.get(f"{file}/approve")
        (seal,) = re.findall(r'name="seal" value="([0-9A-F]{12})"', page)
        oracle.plan(held_from=HELD_FROM)
        daniel.post(f"{file}/decide", decision="approve", seal=seal, password=daniel.password)
        until(lambda: len(oracle.entries()) == HELD_FROM - 1 + WORKERS)
        oracle.plan(held_from=HELD_FROM)
        kill_child(home)  # the server starts another one, which goes on
        until(lambda: len(oracle.entries()) == 2 * (HELD_FROM - 1 + WORKERS))
        server.kill()
        server.wait()
        kill_child(home)
    oracle.plan()
    with serving(home) as (_, url):  # another server takes up what the dead one wanted
        daniel = Browser(url, "daniel", secret["daniel"])
        until(lambda: "The run ended. " in daniel.get(f"{file}/run"))
        page = daniel.get(f"{file}/run")
    assert set(oracle.received().values()) == {1}
    assert len(oracle.received()) == PAYMENTS
    (batch,) = home.json("status")["batches"]
    assert (batch["accepted"], batch["in_doubt"]) == (PAYMENTS - 2 * WORKERS, 2 * WORKERS)
    assert f"{2 * WORKERS} payments are in doubt" in " ".join(page.split())
    assert home.run("ledger", "check").returncode == 0


@pytest.mark.parametrize("arguments", [("--listen", "0.0.0.0:0"), ("--proxy-header", "X-Name")])
def test_the_page_does_not_listen_where_others_could_read_along(home: Home, arguments: tuple[str, ...]) -> None:
    """Any address but loopback takes TLS in front, a proxy's header takes a socket that only the proxy reaches."""
    home.origin = "http://127.0.0.1:9"
    done = home.run("web", "--home", "page", *arguments)
    assert done.returncode == 2, done.stderr


def test_the_demo_shows_the_page_with_its_people(home: Home) -> None:
    """One command, no credentials: sandbox, made-up files, three people who can sign in; Ctrl-C ends all of it."""
    command = home.command("web", "--demo", "--listen", "127.0.0.1:0")
    environment = {name: value for name, value in home.environment.items() if not name.startswith("BATCHPAY_")}
    with subprocess.Popen(command, env=environment, cwd=home.path, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C ends everything" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        (url,) = re.findall(r"Open (\S+) in a browser", said)
        passwords = dict(re.findall(r"^  (\w+) +(\w+-\w+-\w+-\w+)", said, re.MULTILINE))
        assert list(passwords) == ["maria", "daniel", "nina"]
        assert "Check a payment file" in Browser(url, "maria", passwords["maria"]).get("/")
        assert (home.path / "demo-web" / "bank-export.csv").exists()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
