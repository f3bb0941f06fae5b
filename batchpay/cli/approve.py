"""`batchpay approve`: add a person's approval to a plan."""

from __future__ import annotations

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, option
from batchpay.cli.process import actor
from batchpay.errors import FileRefused
from batchpay.payment import Direction
from batchpay.text import counted, instant, local_time, printable, totals_apart


@click.command(cls=Command, short_help="Add a person's approval to a plan.")
@click.argument("plan", metavar="PLAN")
@option("--yes", is_flag=True, help="Do not ask; required without a terminal.")
@click.pass_obj
def approve(context: Context, plan: str, yes: bool) -> int:
    """Add your approval to a plan that someone else prepared (batchpay submit FILE --dry-run --plan PLAN).

    It shows what would be sent: totals, debits and credits, changed accounts with payee and amount, warnings, gateway
    accounts, and the seal. Compare the seal with the one on the signed page, then answer. Approving sends nothing. A
    plan whose content has since been submitted is spent, and is refused.

    Example: batchpay approve payments.plan.json
    """
    from batchpay.workflows.approve import approve_plan, open_plan

    view = open_plan(plan, context.settings)
    if not context.json:
        for line in view.page():
            click.echo(printable(line))
    if view.spent is not None:
        raise FileRefused(view.spent)
    if not yes:
        if not output.is_terminal():
            raise click.UsageError("without a terminal, approve needs --yes")
        total = view.plan.totals("total")
        payments = counted(total.rows, "payment")
        amount = totals_apart([{side: view.plan.totals(side) for side in Direction}])
        question = f"Approve {payments}, {amount}, seal {view.plan.seal}?"
        click.confirm(question, abort=True, err=True)
    view = approve_plan(plan, view.plan.seal, context.settings, actor())
    if context.json:
        approvals = [{"who": str(approval.who), "at": instant(approval.at)} for approval in view.counted]
        output.print_json(
            context,
            {"plan": plan, "seal": view.plan.seal, "approvals": approvals, "needed": view.needed, "exit_code": 0},
        )
        return 0
    for approval in view.counted:
        click.echo(f"approved by {printable(str(approval.who))}, {local_time(approval.at)}")
    missing = view.needed - len(view.counted)
    click.echo(f"approvals still needed: {missing}" if missing > 0 else "ready: batchpay submit FILE --from-plan PLAN")
    return 0
