"""Options that several commands share, declared once."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Whole, declared, option
from batchpay.errors import SettingsNotUsable
from batchpay.payment import typed_cents
from batchpay.settings import Settings, parse_rate
from batchpay.text import is_text_encoding
from batchpay.workflows.requests import EVERY_RULE, CheckOptions, Decisions, SendOptions, targets

ROWS_MOST = 2**32 - 1
"""The number of a row has 32 bits; whoever asks for more rows gets all of them."""
_YEARS = (1970, 2100)
"""Bank holidays are known up to the last one."""


def date_of(text: str) -> datetime.date:
    """Read a calendar date, YYYY-MM-DD; raises ValueError, as all that reads an option here."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError("write the date as YYYY-MM-DD") from None
    if not _YEARS[0] <= date.year <= _YEARS[1]:
        raise ValueError(f"the date must be between {_YEARS[0]} and {_YEARS[1]}")
    return date


def cents_of(text: str) -> int:
    """Read an amount with two decimals."""
    cents = typed_cents(text)
    if cents is None:
        raise ValueError("write the amount as 12345.67 or 12,345.67")
    return cents


def encoding_of(text: str) -> str:
    """Take the name of an encoding in which a file of text may be."""
    if not is_text_encoding(text):
        raise ValueError(f"no file of text is in an encoding {text!r}; use one such as cp1252")
    return text


checking_options = declared(
    option("--rejects", metavar="PATH", help="Path of the rejects file (CSV, Parquet or XLSX by extension)."),
    option("--as-of", type=date_of, metavar="DATE", help="Date to treat as today (YYYY-MM-DD)."),
    option("--pay-on", type=date_of, metavar="DATE", help="Send no row before this day (YYYY-MM-DD)."),
    option("--normalize", is_flag=True, help="Repair what is unambiguous: white space, letter case, decimals."),
    option(
        "--accept-suggestions",
        is_flag=False,
        flag_value=EVERY_RULE,
        metavar="[RULES]",
        help="After the files: apply suggested corrections, all or those of RULES (amount.format,...).",
    ),
    option("--warnings-as-errors", is_flag=True, help="Also reject rows that have only warnings."),
    option("--allow-open-ended", is_flag=True, help="Allow recurring payments that run until stopped."),
    option("--allow-duplicates", is_flag=True, help="Allow duplicate payments (submit: with --reason)."),
    option("--expect-rows", type=Whole(min=0), metavar="N", help="Refuse the file unless it has N rows."),
    option(
        "--expect-total", type=cents_of, metavar="AMOUNT", help="Refuse the file unless its amounts add up to this."
    ),
    option("--encoding", type=encoding_of, metavar="NAME", help="Encoding of a CSV that is not UTF-8."),
    option("--format", "format_", type=click.Choice(["csv", "parquet", "xlsx"]), help="File format (for -)."),
    option("--sheet", metavar="NAME", help="Workbook sheet; required if several contain payments."),
    option("--include-hidden", is_flag=True, help="Also read workbook rows that are hidden or filtered out."),
    option("--map", "map_", metavar="FILE", help="Column map for another system's file (see batchpay map)."),
    option(
        "--amounts-in",
        type=click.Choice(["dollars", "cents", "thousands"]),
        help="Unit of the amounts, where none of the file has decimals.",
    ),
    option("--max-errors", type=Whole(min=0), default=1000, metavar="N", help="List at most N errors with --json."),
)
"""Give a command every option that has to do with reading and checking a file."""


def check_options(options: dict[str, Any]) -> CheckOptions:
    """Read how a file is checked off the command line."""
    typed_as = {"format": "format_", "map_file": "map_", "expect_cents": "expect_total"}
    names = [field.name for field in dataclasses.fields(CheckOptions)]
    taken = {name: options[typed_as.get(name, name)] for name in names}
    return CheckOptions(**taken | {"max_errors": min(options["max_errors"], ROWS_MOST)})


def decisions_of(options: dict[str, Any]) -> Decisions:
    """Read what a person decided off the command line."""
    reason = " ".join((options["reason"] or "").split())
    names = ("again", "release", "paid_elsewhere_checked", "gap")
    rows = None if options["rows"] is None else frozenset(row_numbers(options["rows"]))
    return Decisions(**{name: options[name] for name in names}, reason=reason or None, rows=rows)


def row_numbers(text: str) -> list[int]:
    """Read row numbers; raises UsageError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 0 < len(word) < 10 and int(word) for word in words):
        raise click.UsageError("--rows: write row numbers like 3,7")
    return sorted({int(word) for word in words})


def until_of(text: str) -> float:
    """Give the Unix time that is meant by HH:MM, with a time zone's name or offset behind it if need be.

    It is the next HH:MM within twelve hours, otherwise the one that has passed.
    """
    time_text, _, zone_text = text.strip().partition(" ")
    try:
        time = datetime.time.fromisoformat(time_text)
        zone = zoneinfo.ZoneInfo(zone_text) if zone_text else time.tzinfo
    except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
        raise ValueError("write the time like 17:30, '17:30 America/New_York' or 17:30-05:00") from None
    return nearest(time.replace(tzinfo=zone, microsecond=0), datetime.datetime.now(zone).timestamp())


def nearest(time: datetime.time, now_s: float) -> float:
    """Give the Unix time nearest to now at which clocks show this time; without a zone, the clocks of this machine."""
    today = datetime.datetime.fromtimestamp(now_s, time.tzinfo).date()
    days = [today + datetime.timedelta(days=days) for days in (-1, 0, 1)]
    # Clocks may change on one of these days: each moment's offset is looked up by itself.
    moments = [datetime.datetime.combine(day, time).timestamp() for day in days]
    return min(moments, key=lambda moment: abs(moment - now_s))


def _rate_of(text: str) -> str:
    """Check a rate, requests per second or `auto`, and keep it as text."""
    try:
        parse_rate(text, "the rate")
    except SettingsNotUsable as error:
        raise ValueError(str(error)) from None
    return text


sending_options = declared(
    option("--rate", type=_rate_of, metavar="N", help="Maximum requests per second, or auto."),
    option("--workers", type=Whole(1, 1024), metavar="N", help="Maximum requests in flight at the same time."),
    option("--max-in-doubt", type=Whole(1), metavar="N", help="Stop after this many rows in doubt."),
    option(
        "--until",
        type=until_of,
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
