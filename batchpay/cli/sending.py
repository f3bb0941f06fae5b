"""How a run sends, as options say it: shared by submit, resume and what asks the gateway."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Whole, declared, option
from batchpay.errors import SettingsNotUsable
from batchpay.settings import Settings, parse_rate
from batchpay.workflows.requests import SendOptions, targets


class Until(click.ParamType[float]):
    """A time of day at which no further row is begun: HH:MM, with a time zone's name or offset behind it if need be."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Give the Unix time that is meant: the next HH:MM within twelve hours, otherwise the one that has passed."""
        if isinstance(value, float):
            return value
        time_text, _, zone_text = str(value).strip().partition(" ")
        try:
            time = datetime.time.fromisoformat(time_text)
            zone = zoneinfo.ZoneInfo(zone_text) if zone_text else time.tzinfo
        except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
            self.fail("write the time like 17:30, '17:30 America/New_York' or 17:30-05:00", param, ctx)
        return nearest(time.replace(tzinfo=zone, microsecond=0), datetime.datetime.now(zone).timestamp())


def nearest(time: datetime.time, now_s: float) -> float:
    """Give the Unix time nearest to now at which clocks show this time; without a zone, the clocks of this machine."""
    today = datetime.datetime.fromtimestamp(now_s, time.tzinfo).date()
    days = [today + datetime.timedelta(days=days) for days in (-1, 0, 1)]
    # Clocks may change on one of these days: each moment's offset is looked up by itself.
    moments = [datetime.datetime.combine(day, time).timestamp() for day in days]
    return min(moments, key=lambda moment: abs(moment - now_s))


class Rate(click.ParamType[str]):
    """Requests per second, or `auto`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the rate, and keep it as text."""
        try:
            parse_rate(str(value), "the rate")
        except SettingsNotUsable as error:
            self.fail(str(error), param, ctx)
        return str(value)


pace_options = declared(
    option("--rate", type=Rate(), metavar="N", help="Maximum requests per second, or auto."),
    option("--workers", type=Whole(1, 1024), metavar="N", help="Maximum requests in flight at the same time."),
    option("--max-in-doubt", type=Whole(1), metavar="N", help="Stop after this many rows in doubt."),
)
"""Give a command the options that every way of sending has."""

sending_options = declared(
    pace_options,
    option(
        "--until",
        type=Until(),
        metavar="HH:MM",
        help="Start no row after this time; the nearest one counts, so at most twelve hours ahead (a zone may follow).",
    ),
    option("--limit", type=Whole(1), metavar="N", help="Start at most N rows in this call."),
    option(
        "--preflight/--no-preflight",
        default=None,
        help="Check the connection and the accounts before sending.",
    ),
    option("--yes", is_flag=True, help="Do not ask before sending."),
)
"""Give a command the options that say how a run sends."""


def send_options(options: dict[str, Any]) -> SendOptions:
    """Read how a run sends off the command line; a command need not have all of the options."""
    return SendOptions(**{field.name: options.get(field.name) for field in dataclasses.fields(SendOptions)})


def log_targets(context: Context, settings: Settings) -> None:
    """With -v, say where payments go, how fast, and where they are recorded."""
    for line in targets(settings):
        output.detail(context, line)
