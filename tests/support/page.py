"""The page as a service, for tests that act as its users: a headless browser, a server, its children."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from werkzeug.security import generate_password_hash

from batchpay.web.spool import WebStore
from tests.support.command import Home
from tests.support.warm import Process

DEADLINE_S = 90.0
PASSWORD = "right horse battery"
_FOLDER = "page"


class Browser:
    """One person's headless browser: forms, a cookie, no redirect followed."""

    def __init__(self, url: str, name: str = "", password: str = "", *, cookie: str = "") -> None:
        self._at = urllib.parse.urlsplit(url)
        self.cookie = cookie
        self.password = password
        if name:
            self.post("/sign-in", name=name, password=password)

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, str, str]:
        """Return the status, the redirect target, and the page."""
        connection = http.client.HTTPConnection(self._at.netloc, timeout=60)
        headers = {"Sec-Fetch-Site": "same-origin", "Cookie": self.cookie, "Content-Type": kind}
        connection.request(method, path, body, {name: value for name, value in headers.items() if value})
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        self.cookie = (answer.getheader("Set-Cookie") or self.cookie).partition(";")[0]
        return answer.status, answer.getheader("Location") or "", page

    def get(self, path: str) -> str:
        """Open a page."""
        status, leads, page = self.ask("GET", path)
        assert status in (200, 286), (status, leads, page)
        return page

    def post(self, path: str, **form: str) -> str:
        """Send a form; return the redirect target."""
        data = urllib.parse.urlencode(form).encode()
        status, leads, page = self.ask("POST", path, data, "application/x-www-form-urlencoded")
        assert status == 303, (status, page)
        return leads

    def upload(self, path: Path) -> str:
        """Upload a file by the plain form; return the address of its page."""
        mark = secrets.token_hex(16)
        head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{path.name}"\r\n\r\n'
        body = head.encode() + path.read_bytes() + f"\r\n--{mark}--\r\n".encode()
        status, leads, page = self.ask("POST", "/files", body, f"multipart/form-data; boundary={mark}")
        assert status == 303, (status, page)
        return leads

    def upload_in_pieces(self, path: Path) -> str:
        """Upload a file of any size as the page's script does; return the address of its page."""
        content = path.read_bytes()
        about = urllib.parse.urlencode({"name": path.name, "size": len(content)}).encode()
        status, _, page = self.ask("POST", "/files", about, "application/x-www-form-urlencoded")
        assert status == 200, (status, page)
        begun = json.loads(page)
        for number, at in enumerate(range(0, len(content), begun["piece"])):
            status, _, page = self.ask("PUT", f"{begun['to']}/pieces/{number}", content[at : at + begun["piece"]])
            assert status == 200, (status, page)
        return str(begun["to"])

    def checked(self, file: str) -> None:
        """Wait until a file is checked."""
        until(lambda: self.ask("GET", file)[1].endswith("/check"))

    def ended(self, file: str) -> None:
        """Wait until every payment of a file was answered."""
        until(lambda: "Finished." in self.get(f"{file}/run"))

    def request_approval(self, file: str) -> None:
        """Request approval of what the check shows."""
        self.post(f"{file}/ask", **hidden(self.get(f"{file}/check")))

    def approve(self, file: str) -> None:
        """Sign for the request, by the seal that the page shows."""
        form = hidden(self.get(f"{file}/approve"))
        self.post(f"{file}/decide", decision="approve", password=self.password, **form)


def hidden(page: str) -> dict[str, str]:
    """Return what a page's form names of the check or request that it shows."""
    return dict(re.findall(r'type="hidden" name="(seal|plan)" value="(\w+)"', page))


def added(home: Home, name: str, *roles: str, shown: str = "") -> str:
    """Add a person who has enrolled and is confirmed; return the password."""
    asked = [word for role in roles for word in ("--role", role)]
    home.run("web", "--home", _FOLDER, "user", "add", name, "--no-code", "--shown", shown or name, *asked)
    with closing(WebStore(home.path / _FOLDER)) as store:
        enrolled(store, name)
    return PASSWORD


def enrolled(store: WebStore, name: str) -> None:
    """Have a person enrolled and confirmed, with the password that everybody has in tests."""
    with store.write() as db:
        password = generate_password_hash(PASSWORD, "scrypt:1024:8:1")  # a real one takes half a second
        values = "hash = ?, enrolled_at = 0, confirmed_by = 'root', confirmed_at = 0"
        db.execute(f"UPDATE user SET {values} WHERE name = ?", (password, name))  # noqa: S608 - our own words
        db.execute("DELETE FROM invitation WHERE person = ?", (name,))


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    ends = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)


@contextmanager
def serving(home: Home, *, is_forked: bool = True) -> Iterator[tuple[Process | subprocess.Popen[str], str]]:
    """Run the page on a free port; yields its process and address, and kills it at the end.

    One that is forked has the memory of the loaded process: what the page takes is measured without.
    """
    arguments = ("web", "--listen", "127.0.0.1:0", "--home", str(home.path / _FOLDER))
    with (
        home.start(*arguments, stdout=subprocess.PIPE)
        if is_forked
        else subprocess.Popen(
            home.command(*arguments), env=home.environment, cwd=home.path, stdout=subprocess.PIPE, text=True
        )
    ) as server:
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
            if b"batchpay.web.jobs" in words and str(home.path / _FOLDER).encode() in words:
                return int(process.name)
    return None
