"""A gateway's limit that a run found: reported to people and machines, and where the next run begins."""

from __future__ import annotations

import json

from batchpay.sandbox.options import Options
from batchpay.sandbox.server import running
from tests.support.command import Home, small_file


def test_the_limit_a_run_found_is_reported_and_kept(home: Home) -> None:
    """Fourteen rows at 12 a second against a limit of five: the summary names the limit, the next run begins there."""
    with running(Options(port=0, limit=5, limit_kind="bucket")) as home.origin:
        small_file(home.path / "a.csv", 14)
        found = home.json("submit", "a.csv", "--rate", "12", "--no-preflight")
        assert found["accepted"] == 14
        assert 0 < found["rate_found"] < 12
        assert any("a second" in note for note in found["notes"])
        small_file(home.path / "b.csv", 1, first=15)
        small_file(home.path / "c.csv", 1, first=16)
        again = home.run("submit", "b.csv", "--rate", "12", "--no-preflight").stderr
        slower = home.run("submit", "c.csv", "--rate", "1", "--no-preflight").stderr
    assert "a second, the limit that an earlier run met" in again
    assert "earlier run" not in slower, "what the person asks for is less"
    (kept,) = home.path.rglob("limits.json")
    limits = json.loads(kept.read_text())
    assert list(limits) == [f"test {home.origin}"]
    assert limits[f"test {home.origin}"]["rate"] > 0
