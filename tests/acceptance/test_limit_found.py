"""A gateway's limit that a run found: reported to people and machines, and where the next run begins."""

from __future__ import annotations

import json

from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.command import Home, small_file


def test_the_limit_a_run_found_is_reported_and_kept(home: Home) -> None:
    """One refused request may have any reason: it is reported as a limit if one near that pace is refused again.

    The demo plays single refusals, and said that the gateway refuses requests faster than 453 a second. Either way the
    next run begins at that pace.
    """
    rules = home.path / "faults.json"
    rules.write_text(json.dumps([{"fault": "busy", "at": at, "retry_after": "0"} for at in (6, 10)]))
    with running(Options(port=0, faults=rules)) as home.origin:
        for name, rows, first in (("a", 7, 1), ("b", 3, 10), ("c", 1, 20)):
            small_file(home.path / f"{name}.csv", rows, first=first)
        once = home.json("submit", "a.csv", "--rate", "5", "--no-preflight")
        assert (once["accepted"], once["rate_found"], once["notes"]) == (7, None, [])
        again = home.run("submit", "b.csv", "--rate", "5", "--no-preflight")
        told = " ".join(again.stdout.split())
        slower = home.run("submit", "c.csv", "--rate", "1", "--no-preflight").stderr
    assert "a second, the pace at which an earlier run ended" in again.stderr
    assert "note: the gateway asked once for a slower pace" in told
    assert "the gateway refused requests faster than" in told
    assert "earlier run" not in slower, "what the person asks for is less"
