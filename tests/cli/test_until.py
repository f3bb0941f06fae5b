"""--until: the time of day that is meant, on the nights when clocks change too."""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Iterator

import pytest

from batchpay.cli.options import nearest
from batchpay.sending.limits import StopRequest

NEW_YORK = zoneinfo.ZoneInfo("America/New_York")


@pytest.fixture(params=[True, False], ids=["of this machine", "named"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[zoneinfo.ZoneInfo | None]:
    """New York's time zone, by its name or as this machine's own."""
    if request.param:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        yield None
        monkeypatch.undo()
        time.tzset()
    else:
        yield NEW_YORK


@pytest.mark.parametrize(
    ("now", "until", "meant"),
    [
        ("2026-06-01 22:00", "04:00", "2026-06-02 04:00"),
        ("2026-06-01 02:00", "23:30", "2026-05-31 23:30"),
        ("2026-06-01 12:00", "17:30", "2026-06-01 17:30"),
        ("2026-03-08 01:30", "04:00", "2026-03-08 04:00"),
        ("2026-11-01 00:30", "04:00", "2026-11-01 04:00"),
    ],
)
def test_until_is_what_clocks_show(zone: zoneinfo.ZoneInfo | None, now: str, until: str, meant: str) -> None:
    """The nearest such time. In the night of a change, without a zone's name, it once was an hour off."""
    now_s = datetime.datetime.fromisoformat(now).replace(tzinfo=NEW_YORK).timestamp()
    expected_s = datetime.datetime.fromisoformat(meant).replace(tzinfo=NEW_YORK).timestamp()
    assert nearest(datetime.time.fromisoformat(until).replace(tzinfo=zone), now_s) == expected_s


def test_a_time_that_is_over_is_told_with_its_day(zone: zoneinfo.ZoneInfo | None) -> None:
    """At 18:00 --until 07:30 is this morning's: the run sent nothing, night after night, and did not say why."""
    now_s = datetime.datetime(2020, 6, 1, 18, tzinfo=NEW_YORK).timestamp()
    stop = StopRequest(until=nearest(datetime.time(7, 30, tzinfo=zone), now_s))
    assert stop
    if zone is None:  # it is told in the machine's own
        assert stop.reason == "the time given by --until, 2020-06-01 07:30:00 EDT, is reached"
