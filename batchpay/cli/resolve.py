"""`batchpay resolve` and `cancel`: what a named person decides about rows in doubt and pending ones, with a reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from batchpay.cli import output
from batchpay.cli.context import Command, Context, Whole, option
from batchpay.cli.options import row_numbers
from batchpay.cli.paths import outputs_of
from batchpay.cli.process import actor
from batchpay.payment import State, Totals
from batchpay.text import (
    amounts_apart,
    instant,
    local_time,
    money,
    place_of,
    place_word,
    printable,
    row_count,
    totals_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from batchpay.reconciliation.resolution import Doubt
    from batchpay.summary import Summary
    from batchpay.workflows.resolve import InDoubt, ProposedDecisions, Signature

_WORDS = ("accepted", "declined", "send again")


class _Words(click.Choice[str]):
    """A choice of words, some with a blank: bash inserts what it is given, and other shells quote it themselves."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Name the words that begin so."""
        found = super().shell_complete(ctx, param, incomplete)
        is_bash = os.environ.get("_BATCHPAY_COMPLETE") == "bash_complete"
        return [CompletionItem(f'"{one.value}"') if is_bash and " " in one.value else one for one in found]


_EFFECTS = {
    State.ACCEPTED: "will be accepted: paid, never sent again",
    State.DECLINED: "will be declined: not paid, never sent again",
    State.PENDING: "WILL BE SENT AGAIN by the next run. What the gateway has after all is paid TWICE",
}
"""What follows from a decision, the loudest last."""
_SHOWN_MAX = 100
_EXIT_IN_DOUBT = 7


@click.command(cls=Command, short_help="List rows in doubt, or settle them.")
@click.argument("batch")
@option("--export", metavar="SHEET", help="Write the rows in doubt as a sheet to fill in (.csv or .xlsx).")
@option("--from", "from_", metavar="SHEET", help="Settle rows as decided in a filled-in sheet.")
@option("--row", type=Whole(1), metavar="N", help="Settle this row.")
@option("--decision", type=_Words(_WORDS, case_sensitive=False), help="What happened to the payment.")
@option("--reference", metavar="TEXT", help="The gateway's own id of the payment, if you found it.")
@option("--reason", metavar="TEXT", help="How you know; it is recorded. No account numbers.")
@option("--name", metavar="NAME", help="Name of the person deciding; it is recorded.")
@option(
    "--host-is-gone",
    is_flag=True,
    help="Confirm that machines whose batch was taken over are off for good; say why in --reason.",
)
@option("--yes", is_flag=True, help="Do not ask before settling.")
@click.pass_obj
def resolve(context: Context, /, batch: str, **options: Any) -> int:
    """List the rows of a batch that are in doubt, with what to look for in the gateway's portal; or settle them.

    A row is in doubt when its request left this machine and no recognized answer came back. It is never resent
    automatically: look it up, then record what happened, row by row or in a sheet. Either all decisions are recorded,
    or none.

    Example: batchpay resolve 3f2a91c0d7e1 --export doubts.xlsx
    """
    single = options["row"] is not None
    if single != (options["decision"] is not None):
        raise click.UsageError("--row and --decision go together")
    if options["reference"] and not single:
        raise click.UsageError("--reference goes with --row and --decision")
    if sum((single, bool(options["from_"]), bool(options["export"]))) > 1:
        raise click.UsageError("--export, --from and --row can't be combined")
    if options["host_is_gone"] and not (single or options["from_"]):
        raise click.UsageError("--host-is-gone goes with --row or --from: it lets rows be sent again")
    if not (single or options["from_"]):
        return _list(context, batch, options["export"])
    from batchpay.workflows.resolve import RowDecision, settle

    check_signature(options)
    chosen = options["from_"]
    if single:
        chosen = [RowDecision(options["row"], options["decision"].lower(), _stripped(options["reference"]))]
    decider, gone = _DoubtDecider(context, options), options["host_is_gone"]
    return _finish(context, settle(batch, chosen, decider, context.settings, actor(), hosts_are_gone=gone))


@click.command(cls=Command, short_help="Cancel pending rows of a batch that must not be sent.")
@click.argument("batch")
@option("--rows", metavar="N,N...", help="Cancel only these pending rows; all of the batch by default.")
@option("--reason", metavar="TEXT", help="Why; it is recorded. No account numbers.")
@option("--name", metavar="NAME", help="Name of the person deciding; it is recorded.")
@option("--yes", is_flag=True, help="Do not ask before cancelling.")
@click.pass_obj
def cancel(context: Context, /, batch: str, **options: Any) -> int:
    """Cancel pending rows of a batch: they become rejected and are not sent.

    A row that was sent, or may have been, is not pending and can't be cancelled. While a run is sending the batch, the
    exit code is 9. Rows cancelled by mistake are sent by `batchpay submit FILE --release --reason TEXT`.

    Example: batchpay cancel 3f2a91c0d7e1 --rows 3,7 --reason "billed twice" --name "Ann Lee"
    """
    from batchpay.workflows.resolve import cancel as workflow

    check_signature(options, "cancelling")
    rows = None if options["rows"] is None else row_numbers(options["rows"])
    decider = TerminalDecider(context, options)
    signature = decider.sign()
    if not options["yes"]:
        which = "all pending rows" if rows is None else row_count(len(rows))
        click.confirm(f"Cancel {which} of batch {batch}?", abort=True, err=True)
    done = workflow(batch, rows, signature, context.settings, actor())
    if context.json:
        cancelled = totals_json(done.totals)
        output.print_json(context, {**done.summary.as_json(), "cancelled": cancelled, "exit_code": 0})
    else:
        click.echo(f"cancelled: {row_count(done.totals.rows)}, {money(done.totals.cents)}")
        output.print_summary(context, done.summary, sent=True, looks=True)
    return 0


def check_signature(options: dict[str, Any], deed: str = "settling") -> None:
    """Refuse, where nobody can be asked, to decide without a name, a reason and --yes."""
    if not output.is_terminal():
        missing = [f"--{name}" for name in ("reason", "name", "yes") if not _stripped(options[name])]
        if missing:
            raise click.UsageError(f"without a terminal, {deed} needs {', '.join(missing)}")


class TerminalDecider:
    """A person who settles on a terminal, or by options; what they are shown is each command's own."""

    def __init__(self, context: Context, options: dict[str, Any]) -> None:
        self._context = context
        self._options = options

    def sign(self) -> Signature:
        """Take who decides and why from the options, or ask for it."""
        from batchpay.workflows.resolve import Signature

        reason = str(_stripped(self._options["reason"]) or click.prompt("Reason", err=True, value_proc=_filled))
        name = str(_stripped(self._options["name"]) or click.prompt("Your name", err=True, value_proc=_filled))
        return Signature(name, reason)

    def confirm(self, sent_again: int) -> None:
        """Ask, unless --yes; rows that may be paid twice need more than a key."""
        if self._options["yes"]:
            return
        if sent_again:
            answer = click.prompt('Type "send again" to continue', default="", show_default=False, err=True)
            if answer.strip().lower() != "send again":
                raise click.Abort
        else:
            click.confirm("Settle these rows?", abort=True, err=True)


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _filled(text: str) -> str:
    if not text.strip():
        raise click.UsageError("it must not be blank")
    return text.strip()


def _list(context: Context, batch: str, export: str | None) -> int:
    from batchpay.workflows.resolve import list_in_doubt

    if export:
        outputs_of(context).guard(export)
    found = list_in_doubt(batch, context.settings, actor(), sheet=export)
    if found.run_under_way:
        output.say(context, "a run is under way: the rows that it is sending now are not listed")
    return _finish(context, found, exported=export)


class _DoubtDecider(TerminalDecider):
    """See workflows.resolve.Decider."""

    def show(self, proposal: ProposedDecisions) -> None:
        """Say on standard error what is about to be recorded, rows that will be sent again last and loudest."""
        if proposal.blank:
            rows = row_count(proposal.blank)
            output.say(self._context, f"the sheet has no decision for {rows}: nothing changes there")
        for state, text in _EFFECTS.items():
            chosen = [decision for decision in proposal.decisions if decision.state is state]
            if not chosen:
                continue
            totals = proposal.effect[state]
            line = f"{row_count(totals.rows)}, {_amount(proposal.doubts[one.row] for one in chosen)}: {text}"
            click.echo(_loud(self._context, line, state), err=True)
            for decision in chosen[:_SHOWN_MAX]:
                found = f"   reference {decision.gateway_reference}" if decision.gateway_reference else ""
                click.echo(printable(f"  {_headline(proposal.doubts[decision.row], proposal.file)}{found}"), err=True)
            if len(chosen) > _SHOWN_MAX:
                click.echo(f"  and {len(chosen) - _SHOWN_MAX:,} more", err=True)


def _loud(context: Context, text: str, state: State) -> str:
    color = {State.PENDING: "red", State.ACCEPTED: "green"}.get(state, "yellow")
    return click.style(text, fg=color, bold=state is State.PENDING) if context.color else text


def _finish(context: Context, found: InDoubt, *, exported: str | None = None) -> int:
    """Print where the batch stands and give the exit code: 7 while a row is in doubt."""
    summary, doubts, settled = found.summary, found.doubts, found.settled
    code = _EXIT_IN_DOUBT if doubts else 0
    if context.json:
        answer = {**summary.as_json(), "exit_code": code}
        answer["rows_in_doubt"] = [doubt.as_json() for doubt in doubts]
        answer["exported"] = exported
        if settled is not None:
            answer["settled"] = {word: totals_json(totals) for word, totals in settled.items()}
        output.print_json(context, answer)
        return code
    if settled is None:
        _print_doubts(context, summary, doubts, exported)
        return code
    total = sum(settled.values(), Totals())
    click.echo(f"settled: {row_count(total.rows)}")
    if settled["send again"].rows:
        click.echo(f"to send what was put back: batchpay resume {summary.batch}")
    click.echo(f"still in doubt: {row_count(len(doubts))}, {_amount(doubts)}")
    return code


def _print_doubts(context: Context, batch: Summary, doubts: Sequence[Doubt], exported: str | None) -> None:
    click.echo(f"{printable(batch.file)}   batch {batch.batch}")
    if batch.outdated:
        output.print_wrapped(batch.outdated, first="  note: ")
    if not doubts:
        click.echo("  no row is in doubt")
        return
    click.echo(_loud(context, f"  in doubt: {row_count(len(doubts))}, {_amount(doubts)}", State.PENDING))
    click.echo("  Each may or may not have been paid. Look for it in the gateway's portal.")
    for doubt in [] if exported else doubts[:_SHOWN_MAX]:
        click.echo()
        click.echo(printable(f"  {_headline(doubt, batch.file)}"))
        if doubt.money_leaves:
            click.echo("    first        money leaves our account: check this one before the others")
        click.echo(printable(f"    look for     {doubt.reference or 'no invoiceNumber was sent'}"))
        click.echo(f"    sent from    {_moment(doubt.sent_from)}")
        click.echo(f"    until        {_moment(doubt.sent_until)}")
        click.echo(printable(f"    in doubt as  {doubt.why}"))
    if not exported and len(doubts) > _SHOWN_MAX:
        click.echo(f"\n  and {len(doubts) - _SHOWN_MAX:,} more: --export SHEET has all of them")
    click.echo()
    if exported:
        click.echo(f"  written: {printable(exported)}; in its decision column: {', '.join(_WORDS)}, or blank")
        click.echo(f"  then: batchpay resolve {batch.batch} --from {printable(exported)}")
        return
    row = doubts[0].row
    click.echo(f"  found:      batchpay resolve {batch.batch} --row {row} --decision accepted --reference ID")
    click.echo(f"  refused:    batchpay resolve {batch.batch} --row {row} --decision declined")
    click.echo(f"  never came: batchpay resolve {batch.batch} --row {row} --decision 'send again'")
    click.echo(f"  many:       batchpay resolve {batch.batch} --export doubts.xlsx")


def _amount(doubts: Iterable[Doubt]) -> str:
    return amounts_apart([(doubt.direction, doubt.amount_cents) for doubt in doubts])


def _moment(moment: datetime | None) -> str:
    """Write a time for people, in UTC and in this machine's zone."""
    if moment is None:
        return "an unknown time"
    local = moment.astimezone()
    utc = (instant(moment) or "")[:19].replace("T", " ")
    if not local.utcoffset():
        return f"{utc} UTC"
    return f"{utc} UTC ({local_time(moment)})"


def _headline(doubt: Doubt, file: str) -> str:
    amount = f"{money(doubt.amount_cents)} {doubt.currency or ''}".rstrip()
    place = f"{place_of(place_word(file), doubt.row, doubt.line)} (--row {doubt.row})"
    return f"{place}   {doubt.direction} {amount}   {doubt.name or 'no name'}   account {doubt.account}"
