"""`batchpay sandbox`: the whole gateway interface on loopback."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, Whole, option
from batchpay.cli.paths import outputs_of

_option = partial(option, own="SANDBOX_")


@click.command(cls=Command)
@_option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; anything but loopback lets other machines connect.",
)
@_option(
    "--port", type=Whole(0, 65_535), metavar="N", default=8780, show_default=True, help="Port; 0 picks a free one."
)
@_option("--db", metavar="FILE", help="Keep payments, accounts and the journal in a SQLite file.")
@_option(
    "--dialect",
    metavar="NAME",
    default="envelope",
    show_default=True,
    help="Form of the answers that are not documented.",
)
@_option(
    "--limit",
    metavar="N[:KIND]",
    help="Answer N requests a second, refuse the rest with 429; KIND is how they are counted: "
    "second, strict, clock, bucket, burst, even or minute.",
)
@_option(
    "--latency", type=click.FloatRange(0), default=0.0, metavar="MS", help="Minimum milliseconds before an answer."
)
@_option("--faults", metavar="FILE", help="JSON list of fault rules to start with.")
@_option(
    "--returns",
    metavar="FILE",
    help="Keep a bank's return file of the payments that came back: FILE.csv, or FILE.ach as NACHA.",
)
@_option("--list-magic", is_flag=True, help="List the account number endings that get an answer other than success.")
@_option("--list-dialects", is_flag=True, help="List the dialects and the gateway profile that each needs.")
@_option("--api-id", default="sandbox", show_default=True, help="API id that it accepts.")
@_option("--service-header", default="SERVICE", show_default=True, help="The word for SERVICE in header names.")
@_option("--api-key", default="sandbox-key", show_default=True, help="API key that it accepts.")
@click.pass_obj
def sandbox(context: Context, /, **options: Any) -> None:
    """Run the whole gateway interface on loopback.

    Prints one line when it is ready, and exits on SIGINT or SIGTERM.

    Example: batchpay sandbox --port 8780 --dialect flat --limit 50
    """
    if options.pop("list_magic"):
        from batchpay.sandbox.faults import ENDINGS, listing

        endings = [{"ending": one.ending, "meaning": one.meaning} for one in ENDINGS]
        output.tell(context, {"endings": endings}, listing())
        return
    if options.pop("list_dialects"):
        from batchpay.sandbox.dialects import DIALECTS, listing

        dialects = [{"dialect": one.name, "summary": one.summary, "profile": one.profile} for one in DIALECTS.values()]
        output.tell(context, {"dialects": dialects}, listing())
        return
    outputs = outputs_of(context, [options["faults"]])
    for name in ("db", "returns"):
        if options[name]:
            outputs.guard(options[name])
    _serve(context, options)


def _serve(context: Context, options: dict[str, Any]) -> None:
    from pathlib import Path

    from batchpay.sandbox.options import Options, parse_limit
    from batchpay.sandbox.server import serve

    if options["limit"] is not None:
        options["limit"], options["limit_kind"] = parse_limit(options["limit"])
    for name in ("db", "faults", "returns"):
        options[name] = Path(options[name]) if options[name] else None
    options["latency_ms"] = options.pop("latency")
    serve(Options(**options), ready=lambda url: output.tell(context, {"origin": url}, f"sandbox ready at {url}"))
