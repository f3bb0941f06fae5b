"""A real browser for tests: playwright's own Chromium if it is installed, else the system's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@contextmanager
def real_browser() -> Iterator[Browser | None]:
    """Run a headless browser; yields None if none is found."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        program = own if Path(own).exists() else next(filter(None, map(shutil.which, _PROGRAMS)), None)
        if program is None:
            yield None
            return
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()
