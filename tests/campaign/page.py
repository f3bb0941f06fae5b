"""The page's child as a third way to run: killed before any system call, failed, started twice; then started again.

A template home holds a file that was uploaded, submitted and approved on the page, its child wanted and not started.

Run as `python -m tests.campaign.page HOME`, with a run's environment, it creates such a home.
"""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from flask.testing import FlaskClient

from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import load_settings
from batchpay.web import jobs, people
from batchpay.web.app import create_app
from batchpay.web.jobs import Supervisor
from batchpay.web.site import Listen, Reader, Site
from batchpay.web.spool import WebStore
from tests.campaign.kills import Point, chosen, errors_of, points_of
from tests.campaign.trial import Bench, Findings, accepted, finish_and_check
from tests.support.command import Home
from tests.support.page import PASSWORD, enrolled, hidden
from tests.support.strace import strace

_FOLDER, _SETTINGS, _TROUBLE = "page", "settings.json", "stderr"
_SUBMIT = 2
"""The job that sends; the first one checked the file."""
_STARTS_MAX = 6
_OURS = {"Sec-Fetch-Site": "same-origin"}


class Pages:
    """Homes in which the page's child is about to send."""

    def __init__(self, made: Bench) -> None:
        self._made = made
        self._template = made.empty_home().path
        command = [sys.executable, "-m", "tests.campaign.page", str(self._template)]
        subprocess.run(command, env=made.home_at(self._template).environment, check=True)

    def home(self) -> Home:
        """Return a fresh copy."""
        self._made.count += 1
        path = self._made.folder / f"page-{self._made.count}"
        shutil.copytree(self._template, path, symlinks=True)
        return accepted(self._made.home_at(path))

    def points(self) -> list[Point]:
        """Find every point of an undisturbed child."""
        home = self.home()
        found = points_of(home, lambda options: child(home, strace(*options)), codes=(0,))
        shutil.rmtree(home.path)
        return found

    def hit(self, point: Point) -> Findings:
        """Hit a child at a point, and start it again as the server does."""
        home, since = self.home(), self._made.oracle.log.stat().st_size
        done = child(home, point.prefix())
        refused = (home.path / _TROUBLE).read_text()
        assert "strace: " not in refused, refused
        found = self._finish(home, since, f"the page's child, {point}")
        found.fired = int(done.returncode in (-9, 137) if point.error is None else done.returncode != 0)
        return found

    def started_at_once(self, processes: int) -> Findings:
        """Start several children of one job at the same moment."""
        home, since = self.home(), self._made.oracle.log.stat().st_size
        started = [begin(home, []) for _ in range(processes)]
        for one in started:
            one.wait(120)
        return self._finish(home, since, f"{processes} children at once", in_doubt_max=0)

    def _finish(self, home: Home, since: int, story: str, in_doubt_max: int | None = None) -> Findings:
        """Start the child again as long as it is wanted, resume a stopped run, and check the result."""
        for _ in range(_STARTS_MAX):
            if _is_wanted(home):  # also again, if the dead one's lock was not free yet
                child(home, [])
            elif _state(home) == "stopped":
                _let_go_on(home)
            else:
                break
        found = finish_and_check(self._made, home, since, story, ("resume",), in_doubt_max=in_doubt_max)
        if home.path.exists() and (state := _state(home)) != "done":
            found.wrong.append(f"{story}: the page says {state}")
        return found


def kills_and_errors(made: Bench, kills: int | None, errors: int | None, seed: int) -> Iterator[Findings]:
    """Hit the page's child everywhere, or at this many points."""
    pages = Pages(made)
    every = pages.points()
    for point in (*chosen(every, kills, seed), *chosen(errors_of(every), errors, seed)):
        yield pages.hit(point)
    for processes in (2, 4):
        yield pages.started_at_once(processes)


def begin(home: Home, prefix: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the child as the server does: the settings come over standard input."""
    with (home.path / _SETTINGS).open("rb") as settings, (home.path / _TROUBLE).open("wb") as trouble:
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "batchpay.web.jobs", str(home.path / _FOLDER), str(_latest(home))],
            env=home.environment,
            cwd=home.path,
            stdin=settings,
            stdout=subprocess.DEVNULL,
            stderr=trouble,
        )


def child(home: Home, prefix: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run the child to its end, whatever happens to it."""
    with begin(home, prefix) as process:
        return subprocess.CompletedProcess([], process.wait(120))


def _asked(home: Home, statement: str) -> int | str:
    with closing(sqlite3.connect(home.path / _FOLDER / "web.db")) as db:
        found: int | str = db.execute(statement).fetchone()[0]
    return found


def _latest(home: Home) -> int:
    return int(_asked(home, "SELECT max(id) FROM job"))


def _is_wanted(home: Home) -> bool:
    return bool(_asked(home, "SELECT max(wanted) FROM job"))


def _state(home: Home) -> str:
    return str(_asked(home, "SELECT state FROM file"))


def _let_go_on(home: Home) -> None:
    """Do what the button does."""
    with closing(sqlite3.connect(home.path / _FOLDER / "web.db")) as db, db:
        db.execute("UPDATE file SET state = 'approved', told = NULL, stop_by = NULL")
        db.execute("INSERT INTO job (file, kind, made_by, made_at) SELECT id, 'resume', 'daniel', 0 FROM file")


def _prepare(home: Path) -> None:
    """Upload, check, request approval and approve as people do."""
    settings = load_settings({})
    (home / _SETTINGS).write_text(json.dumps(dataclasses.asdict(settings)))
    by = Actor("campaign", "host")
    with (
        closing(open_ledger(settings.ledger, create_as=str(by))) as ledger,
        closing(WebStore(home / _FOLDER)) as store,
    ):
        site = Site(settings, store, Supervisor(store, settings), Reader(settings.ledger), Listen(hosts={"localhost"}))
        app = create_app(site)
        browsers: dict[str, FlaskClient] = {}
        for name, role in (("maria", "prepare"), ("daniel", "approve")):
            people.add(store, ledger, by, name, name, [role], None, with_code=False)
            enrolled(store, name)
            browsers[name] = app.test_client()
            browsers[name].post("/sign-in", data={"name": name, "password": PASSWORD}, headers=_OURS)
        given = {"file": (io.BytesIO((home / "a.csv").read_bytes()), "a.csv")}
        address = browsers["maria"].post("/files", data=given, headers=_OURS).headers["Location"]
        jobs.do(store, settings, _SUBMIT - 1)
        form = hidden(browsers["maria"].get(f"{address}/check").get_data(as_text=True))
        assert browsers["maria"].post(f"{address}/ask", data=form, headers=_OURS).status_code == 303
        form = hidden(browsers["daniel"].get(f"{address}/approve").get_data(as_text=True))
        form |= {"decision": "approve", "password": PASSWORD}
        assert browsers["daniel"].post(f"{address}/decide", data=form, headers=_OURS).status_code == 303
        site.reader.close()


if __name__ == "__main__":
    _prepare(Path(sys.argv[1]))
