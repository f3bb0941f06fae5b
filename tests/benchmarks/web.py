"""What the page costs: its own processor time for each answer, its memory, its weight, and a run that it started.

A real server over a real check of rows that are all wrong. Only the page's process is counted, not its children and not
who asks; the longest frame is a real browser's, where one is found.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from batchpay.web.runs import ENDS_POLLING
from tests.benchmarks.process import OWN_PYTHON, ROOT, BenchmarkFailed, run
from tests.benchmarks.results import Results
from tests.benchmarks.server import running_server
from tests.benchmarks.validate import File
from tests.support.command import Home
from tests.support.page import Browser, added, serving, until
from tests.support.real_browser import real_browser

_PEOPLE = (("maria", "prepare"), ("daniel", "approve"), ("nina", "look"))
_SESSIONS, _WATCHERS, _WATCH_S = 21, 50, 6
_SLOW, _FAST = "40", "20000"
_FRAMES = """() => new Promise(done => {
  const sheet = document.getElementById("sheet"), times = [], began = performance.now();
  const step = now => {
    times.push(now);
    sheet.scrollTop += 90;
    if (now - began < 4000) requestAnimationFrame(step);
    else done(times.slice(1).map((time, at) => time - times[at]));
  };
  requestAnimationFrame(step);
})"""


class Page:
    """A running page, and what it has used."""

    def __init__(self, process: int, url: str, home: Path) -> None:
        self._process, self._home = process, home
        self.url = url

    def cpu_s(self) -> float:
        """Processor time of the server alone."""
        fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def cpu_ms(self, times: int, ask: Callable[[int], object]) -> float:
        """What one answer costs; the first ones, which load and compile, are not counted."""
        for number in range(3):
            ask(number)
        before = self.cpu_s()
        for number in range(times):
            ask(number)
        return (self.cpu_s() - before) / times * 1000

    @property
    def memory_mib(self) -> tuple[float, float]:
        """What the server has of memory now, and the most that it ever had."""
        status = Path(f"/proc/{self._process}/status").read_text()
        now, peak = (int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) for name in ("VmRSS", "VmHWM"))
        return now / 1024, peak / 1024

    def known(self, person: str) -> Browser:
        """Give the browser of somebody who is signed in, without half a second for the password."""
        token, now = secrets.token_urlsafe(32), time.time()
        with sqlite3.connect(self._home / "web.db", timeout=30) as db:
            db.execute(
                "INSERT INTO session (mark, person, made_at, seen_at, how) VALUES (?, ?, ?, ?, 'password')",
                (hashlib.sha256(token.encode()).digest(), person, now, now),
            )
        return Browser(self.url, cookie=f"batchpay={token}")

    def run_s(self, file: str) -> float:
        """How long a file's latest run took, from the click to its end."""
        with sqlite3.connect(self._home / "web.db", timeout=30) as db:
            found = db.execute(
                "SELECT ended_at - made_at FROM job WHERE file = ? ORDER BY id DESC", (file.rpartition("/")[2],)
            ).fetchone()
        return float(found[0])


def measure_web(results: Results, folder: Path, *, quick: bool) -> None:
    """Make the table about the page."""
    folder.mkdir(parents=True)
    wrong, few = File(100_000, 100).make(folder), File(4_000 if quick else 20_000, 0).make(folder)
    with running_server(latency_ms=2) as gateway:
        home = Home(folder / "home", gateway.origin, {"BATCHPAY_RATE": _SLOW})
        home.path.mkdir()
        passwords = {name: added(home, name, role) for name, role in _PEOPLE}
        with serving(home, is_forked=False) as (server, url):
            page = Page(server.pid, url, home.path / "page")
            _measure_page(results, page, passwords, wrong, File(2_000, 0).make(folder))
    _measure_runs(results, folder, few, 1 if quick else 3)


def _measure_page(results: Results, page: Page, passwords: dict[str, str], wrong: Path, slow: Path) -> None:
    """Measure what answers cost, with one file of wrong rows and one that is being sent."""
    maria, daniel = (Browser(page.url, name, passwords[name]) for name in ("maria", "daniel"))
    file, running = maria.upload_in_pieces(wrong), maria.upload_in_pieces(slow)
    for one in (file, running):
        maria.checked(one)
    maria.request_approval(running)
    daniel.approve(running)
    until(lambda: "answered" in daniel.get(f"{running}/run"))
    check = maria.get(f"{file}/check")
    starts = re.findall(r'data-from="(\d+)"', check)
    costs = {
        "check page": page.cpu_ms(40, lambda _: maria.get(f"{file}/check")),
        "block": page.cpu_ms(100, lambda number: maria.get(f"{file}/rows?from={starts[number % len(starts)]}")),
        "poll": page.cpu_ms(200, lambda _: daniel.get(f"{running}/run/now")),
    }
    share = _watched(page, running)
    everybody = [page.known(name) for name, _ in _PEOPLE for _ in range(_SESSIONS // len(_PEOPLE))]
    with ThreadPoolExecutor(_SESSIONS) as pool:
        asked = ("/", f"{file}/check", f"{file}/check?columns=all", "/history", "/doubts", "/to-approve", "/audit")
        for address in asked:
            list(pool.map(lambda one, address=address: one.get(address), everybody))
    memory, peak = page.memory_mib
    weight = _weight_kb(page, check)
    frame = _longest_frame_ms(page, maria.cookie, file)
    figures = {
        "web.check_page_ms": costs["check page"], "web.block_ms": costs["block"], "web.poll_ms": costs["poll"],
        "web.watchers_share": share, "web.memory_mib": memory, "web.weight_kb": weight,
    }  # fmt: skip
    results.figures |= figures | ({} if frame is None else {"web.longest_frame_ms": frame})
    results.add_table(
        "The page",
        "Processor time of the server alone for an answer, with 100,000 rows to correct. *Watchers* ask once a second "
        "each. *Memory* is what twenty people leave who open every page at once, in brackets the most ever: a password "
        "takes 32 MiB for half a second, one at a time. *Weight* is a page without its sheet, with all that it loads, "
        "not compressed. *Longest frame* is Chromium's, scrolling the sheet for four seconds.",
        ("check page", "block of 100 rows", "poll", f"{_WATCHERS} watchers", "memory", "weight", "longest frame"),
        [(
            f"{costs['check page']:.1f} ms", f"{costs['block']:.1f} ms", f"{costs['poll']:.2f} ms",
            f"{share:.1%} of a core", f"{memory:.0f} MiB ({peak:.0f})", f"{weight:.0f} KB",
            "no browser was found" if frame is None else f"{frame:.0f} ms",
        )],
    )  # fmt: skip


def _watched(page: Page, running: str) -> float:
    """Tell which part of a core it takes to answer so many who watch a run."""
    watchers = [page.known("nina") for _ in range(_WATCHERS)]
    before, began = page.cpu_s(), time.monotonic()
    for turn in range(_WATCH_S * _WATCHERS):
        time.sleep(max(0.0, began + turn / _WATCHERS - time.monotonic()))
        watchers[turn % _WATCHERS].get(f"{running}/run/now")
    return (page.cpu_s() - before) / (time.monotonic() - began)


def _weight_kb(page: Page, check: str) -> float:
    """Add up a page without its rows, and everything that it loads."""
    loaded = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', check))
    if not loaded:
        raise BenchmarkFailed("the page loads nothing")
    bare = re.sub(r'<div class="sheet".*?</table>', "", check, flags=re.DOTALL)
    browser = page.known("nina")
    return (len(bare.encode()) + sum(len(browser.get(one).encode()) for one in loaded)) / 1000


def _longest_frame_ms(page: Page, cookie: str, file: str) -> float | None:
    """Scroll the sheet in a real browser, three times; the longest frame of the best time. None without a browser."""
    name, _, token = cookie.partition("=")
    with real_browser() as browser:
        if browser is None:
            return None
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        context.add_cookies([{"name": name, "value": token, "url": page.url}])
        tab = context.new_page()
        tab.goto(f"{page.url.rstrip('/')}{file}/check")
        found = [max(tab.evaluate(_FRAMES)) for _ in range(3)]
    return float(min(found))


def _watch(person: Browser, file: str) -> None:
    """Watch a run to its end as a browser does, once a second: who asks more often takes its processor."""
    while person.ask("GET", f"{file}/run/now")[0] != ENDS_POLLING:
        time.sleep(1)
    person.ended(file)


def _measure_runs(results: Results, folder: Path, file: Path, times: int) -> None:
    """Send one file by the page and by the command line, in turns."""
    by_page, by_command = [], []
    with running_server(latency_ms=2) as gateway:
        for turn in range(times):
            home = Home(folder / f"page-{turn}", gateway.origin, {"BATCHPAY_RATE": _FAST})
            home.path.mkdir()
            passwords = {name: added(home, name, role) for name, role in _PEOPLE}
            with serving(home, is_forked=False) as (server, url):
                page = Page(server.pid, url, home.path / "page")
                maria, daniel = (Browser(url, name, passwords[name]) for name in ("maria", "daniel"))
                sent = maria.upload_in_pieces(file)
                maria.checked(sent)
                maria.request_approval(sent)
                daniel.approve(sent)
                _watch(daniel, sent)
                by_page.append(page.run_s(sent))
            home = Home(folder / f"command-{turn}", gateway.origin, {"BATCHPAY_RATE": _FAST})
            home.path.mkdir()
            environment = {**home.environment, "PYTHONPATH": str(ROOT)}
            command = [OWN_PYTHON, "-m", "batchpay", "submit", str(file), "--out", str(home.path), "--json", "-q"]
            by_command.append(run(command, environment=environment).wall_s)
    ratio = min(by_page) / min(by_command)
    results.figures["web.run_of_submit"] = ratio
    results.add_table(
        "A run that the page started",
        "From the click to its end, beside `batchpay submit` of the same file: wall time, the least of all turns. The "
        "page is asked once a second how far it is, as a browser asks.",
        ("", "page", "command", "x"),
        [("a file of valid rows", f"{min(by_page):.2f} s", f"{min(by_command):.2f} s", f"{ratio:.2f}")],
    )
