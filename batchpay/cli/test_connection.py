"""`batchpay test-connection`: ask the gateway whether it knows us."""

from __future__ import annotations

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context
from batchpay.errors import RunStopped
from batchpay.text import printable


@click.command(cls=Command, name="test-connection", short_help="Check that the gateway answers and accepts the key.")
@click.pass_obj
def test_connection(context: Context) -> int:
    """Send an empty request to the gateway's connection test and show the answer.

    Example: batchpay test-connection
    """
    from batchpay.workflows.connection import test_gateway

    report = test_gateway(context.settings)
    if context.json:
        output.print_json(
            context,
            {
                "ok": report.ok,
                "origin": report.origin,
                "http_status": report.http_status,
                "elapsed_s": round(report.elapsed_s, 3),
                "tls": report.tls,
                "message": report.message,
                "problem": report.problem,
            },
        )
        return 0 if report.ok else RunStopped.exit_code
    answer = "no answer" if report.http_status is None else f"HTTP {report.http_status}"
    message = f", {printable(report.message)}" if report.message else ""
    click.echo(f"{report.origin}: {answer}{message} ({report.elapsed_s * 1000:.0f} ms, {report.tls or 'no TLS'})")
    if not report.ok:
        raise RunStopped(report.problem or "the gateway did not answer as expected")
    return 0
