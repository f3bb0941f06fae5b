"""A house: the page with its people, a ledger and a gateway that counts, all in this process; children's jobs too."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.security import generate_password_hash
from werkzeug.test import TestResponse

from batchpay.gateway.accounts import Preflight
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import create_ledger, open_ledger
from batchpay.outcome import Outcome
from batchpay.settings import GatewaySettings, LedgerSettings, PolicySettings, Settings, SubmitSettings
from batchpay.web import jobs, papers, run_job, spool
from batchpay.web.app import create_app
from batchpay.web.jobs import Supervisor
from batchpay.web.runs import run_status
from batchpay.web.site import EXTENSION, Listen, Reader, Site
from batchpay.web.spool import Row, WebStore
from batchpay.workflows import run
from batchpay.workflows.resolve import ProposedDecisions, Signature
from tests.support.postgres import Server
from tests.workflows.desk import ACCEPTED, COLUMNS, PLAIN

PASSWORD = "right horse"
HASH = generate_password_hash(PASSWORD, "scrypt:1024:8:1")  # a real one takes half a second
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
PEOPLE = {
    "maria": ("Maria Lind", "prepare"),
    "pia": ("Pia Novak", "prepare approve"),
    "daniel": ("Daniel Osei", "approve"),
    "dora": ("Dora Weiss", "approve"),
    "sam": ("Sam Reyes", "settle"),
    "lee": ("Lee Park", "look"),
}
ROWS = (
    {"paymentId": "A", "invoiceNumber": "INV-A", "amount": "10.00", "achNameOnCheck": "Ann Lee"},
    {"paymentId": "B", "invoiceNumber": "INV-B", "amount": "20.50", "achNameOnCheck": "Bo Hart"},
    {"paymentId": "C", "invoiceNumber": "INV-C", "amount": "30.25", "transactionType": "DEBIT"},
)
WRONG = {"paymentId": "W", "invoiceNumber": "INV-W", "amount": "1,5", "achAccountNumber": "648443925"}


class Yes:
    """A person at a terminal who agrees."""

    def show(self, found: ProposedDecisions) -> None:
        """Looks."""

    def sign(self) -> Signature:
        """Says who and why."""
        return Signature("Ann", "seen")

    def confirm(self, sent_again: int) -> None:
        """Agrees."""


def csv_of(*rows: dict[str, str]) -> bytes:
    """Write a payment file."""
    lines = [",".join(f'"{(PLAIN | row).get(column, "")}"' for column in COLUMNS) for row in rows]
    return ("\n".join([",".join(COLUMNS), *lines]) + "\n").encode()


def words_of(answer: TestResponse) -> str:
    """What a person reads: the page without its tags."""
    text = re.sub(r"<(script|style|svg|title)\b.*?</\1>|<[^>]*>", " ", answer.get_data(as_text=True), flags=re.DOTALL)
    return " ".join(unescape(text).split())


@dataclass
class House:
    """The page and all around it; `arrived` is what the gateway received whole, by invoice."""

    site: Site
    app: Flask
    now: list[float]
    arrived: Counter[str] = field(default_factory=Counter)
    answer: Callable[[str], Outcome] = lambda reference: ACCEPTED
    clients: dict[str, FlaskClient] = field(default_factory=dict)

    @property
    def store(self) -> WebStore:
        return self.site.store

    def add(self, name: str, shown: str, roles: str, limit_cents: int | None = None) -> None:
        """Add a person with the password that everybody has here."""
        with self.store.write() as db:
            db.execute(
                "INSERT INTO user"
                " (name, shown, hash, roles, limit_cents, made_at, enrolled_at, confirmed_by, confirmed_at)"
                " VALUES (?, ?, ?, ?, ?, 0, 0, 'root', 0)",
                (name, shown, HASH, roles, limit_cents),
            )

    def as_(self, name: str) -> FlaskClient:
        """Give the browser of a person who is signed in."""
        if name not in self.clients:
            token = f"token of {name}"
            with self.store.write() as db:
                db.execute(
                    "INSERT INTO session (mark, person, made_at, seen_at, how) VALUES (?, ?, ?, ?, 'password')",
                    (hashlib.sha256(token.encode()).digest(), name, self.now[0], self.now[0]),
                )
            client = self.app.test_client()
            client.set_cookie("batchpay", token)
            self.clients[name] = client
        return self.clients[name]

    def get(self, name: str, path: str, code: int = 200, **headers: str) -> TestResponse:
        """Open a page."""
        answer = self.as_(name).get(path, headers=headers, buffered=True)
        assert answer.status_code == code, words_of(answer)
        return answer

    def page(self, name: str, path: str, code: int = 200) -> str:
        """Open a page; gives what a person reads."""
        return words_of(self.get(name, path, code))

    def said(self, name: str, path: str, code: int = 303, **form: Any) -> str:
        """Send a form; gives what a person reads."""
        return words_of(self.post(name, path, code, **form))

    def post(self, name: str, path: str, code: int = 303, **form: Any) -> TestResponse:
        """Send a form; `password=True` fills in the right one."""
        if form.get("password") is True:
            form["password"] = PASSWORD
        form = self.hidden(path) | form
        answer = self.as_(name).post(path, data=form, headers=SAME_ORIGIN)
        assert answer.status_code == code, words_of(answer)
        return answer

    def hidden(self, path: str) -> dict[str, str]:
        """Give what a form that is opened now names of what it shows."""
        file, act = self.store.file(path.split("/")[2]) if path.count("/") == 3 else None, path.rpartition("/")[2]
        if file is not None and act == "ask" and file["seal"]:
            return {"seal": file["seal"]}
        if file is not None and act == "decide" and file["plan"]:
            return {"plan": json.loads(file["plan"])["id"]}
        return {"seen": run_status(self.site, file).waits} if file is not None and act == "resume" else {}

    def upload(self, *rows: dict[str, str], name: str = "pay.csv", by: str = "maria") -> str:
        """Upload a file by the plain form and have it checked; gives its id."""
        answer = self.post(by, "/files", file=(io.BytesIO(csv_of(*(rows or ROWS))), name))
        self.work()
        return answer.headers["Location"].rsplit("/", 1)[1]

    def ask(self, *rows: dict[str, str], by: str = "maria", **form: Any) -> str:
        """Upload a file and ask for its approval."""
        file_id = self.upload(*rows, by=by)
        self.post(by, f"/files/{file_id}/ask", **form)
        return file_id

    def approve(self, file_id: str, by: str = "daniel", code: int = 303, **changed: Any) -> TestResponse:
        """Approve with the right password and the seal that the page shows."""
        form = {"decision": "approve", "seal": self.file(file_id)["seal"], "password": True, **changed}
        return self.post(by, f"/files/{file_id}/decide", code, **form)

    def sent(self, *rows: dict[str, str], **form: Any) -> str:
        """Take a file through the whole story."""
        file_id = self.ask(*rows, **form)
        self.approve(file_id)
        self.work()
        return file_id

    def work(self) -> None:
        """Do what children would do."""
        for found in self.store.all("SELECT id FROM job WHERE wanted = 1 ORDER BY id"):
            os.environ["BATCHPAY_API_KEY"] = "house-key"  # a process takes it out when it reads it
            jobs.do(self.store, self.site.settings, found["id"])

    def file(self, file_id: str) -> Row:
        """Read a file's row."""
        found = self.store.file(file_id)
        assert found is not None
        return found

    def facts(self, file_id: str) -> Any:
        """What a file's check found, unsealed."""
        return spool.unseal_json(self.site.ledger(), file_id, "facts", self.file(file_id)["facts"])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the ledger's history says of one kind."""
        with closing(self.ledger()) as ledger:
            assert ledger.check() == []
            return [
                {"who": event.who, "why": event.why, **json.loads(event.detail or "{}")}
                for event in ledger.events()
                if event.kind == kind
            ]

    def ledger(self) -> Ledger:
        """A ledger of its own, which the caller closes."""
        return open_ledger(self.site.settings.ledger, read_only=True)

    def policy(self, **changes: Any) -> None:
        """Change [policy]."""
        settings = self.site.settings
        changed = replace(settings, policy=replace(settings.policy, **changes))
        object.__setattr__(self.site, "settings", changed)


_BUILT: list[Flask] = []
"""The application, once a test has built it: it keeps its templates compiled, and knows nothing but its site."""


def app_of(site: Site) -> Flask:
    """Return the application with the pages of a site, and no other's."""
    if not _BUILT:
        _BUILT.append(create_app(site))
        _BUILT[0].testing = True
    _BUILT[0].extensions[EXTENSION] = site
    return _BUILT[0]


def paper_here(
    command: list[str], *, input: bytes, stdout: int, pass_fds: tuple[int, ...], **_: Any
) -> subprocess.CompletedProcess[bytes]:
    """Do in this process what the child of papers.py does: its start takes half a second."""
    kind, source = command[-2:]
    assert source == (str(pass_fds[0]) if pass_fds else "-")
    umask, out = os.umask(0o077), os.dup(1)
    os.dup2(stdout, 1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["papers", kind, source])
            patch.setattr(sys, "stdin", io.StringIO(input.decode()))
            patch.setattr(sys, "stderr", said := io.StringIO())
            patch.setattr(papers, "keep_memory_private", lambda: None)  # the tests' process has nothing to hide
            code = papers.main()
    finally:
        os.dup2(out, 1)
        os.close(out)
        os.umask(umask)
    return subprocess.CompletedProcess(command, code, None, said.getvalue().encode())


FAKE = SimpleNamespace(run=paper_here, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)


def make_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server | None = None) -> House:
    """Build the page with its people over an empty ledger, in a file or in a database of a server."""
    key = tmp_path / "key"
    key.write_text("house-key")
    key.chmod(0o600)
    monkeypatch.setenv("BATCHPAY_API_KEY_FILE", str(key))
    monkeypatch.setattr(run_job, "_SIGNALS", ())
    monkeypatch.setattr(Preflight, "check_connection", lambda self: None)
    monkeypatch.setattr(Preflight, "refused", lambda self, ids: {})
    monkeypatch.setattr("batchpay.web.papers.subprocess", FAKE)
    settings = Settings(
        gateway=GatewaySettings(base_url="http://127.0.0.1:9", api_id="sandbox"),
        submit=SubmitSettings(rate="20000", workers=1),
        ledger=LedgerSettings(url=str(tmp_path / "ledger.db"), key_file=str(tmp_path / "keys" / "ledger.key")),
        policy=PolicySettings(),
    )
    if server is not None:
        database = server.new_database()
        settings = replace(settings, ledger=replace(settings.ledger, url=server.url(database)))
        create_ledger(settings.ledger, "tester", owner_url=server.owner_url(database))
    else:
        create_ledger(settings.ledger, "tester")
    now = [1_795_000_000.0]
    store = WebStore(tmp_path / "web", clock=lambda: now[0])
    site = Site(
        settings, store, Supervisor(store, settings), Reader(settings.ledger),
        Listen(hosts={"localhost"}), clock=lambda: now[0],
    )  # fmt: skip
    found = House(site, app_of(site), now)

    class Gateway:
        def __init__(self, *_: object) -> None:
            pass

        def pay(self, body: bytes, before_first_byte: Callable[[], object]) -> Outcome:
            before_first_byte()
            reference = json.loads(body)["invoiceNumber"]
            found.arrived[reference] += 1
            return found.answer(reference)

        def close(self) -> None:
            pass

    monkeypatch.setattr(run, "PaymentsClient", Gateway)
    for name, (shown, roles) in PEOPLE.items():
        found.add(name, shown, roles)
    return found
