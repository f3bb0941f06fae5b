"""`batchpay returns`: what came back of accepted payments, from a bank's files; what a night takes of it first."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Command, Context, Whole, option
from batchpay.cli.operations import CallLog, files_of_returns, log_event
from batchpay.cli.options import row_numbers
from batchpay.cli.paths import expand, outputs_of
from batchpay.cli.process import actor
from batchpay.errors import BatchpayError, CheckFailed, LedgerMissing, NotUsable
from batchpay.text import amount, amounts_apart, counted, money, printable, row_count
from batchpay.workflows.marks import RECALL

if TYPE_CHECKING:
    from batchpay.returns.matching import Match
    from batchpay.settings import Settings
    from batchpay.workflows.returns import TakenReturns

_SHOWN_MAX = 100


@click.command(cls=Command, short_help="Take in what banks sent back, and list it.")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@option("--map", "map_", metavar="FILE", help="A TOML file that names the columns of a file of returns.")
@option("--dry-run", is_flag=True, help="Match, and record nothing.")
@option("--list", "list_", is_flag=True, help="List what came back: code, meaning, deadline, what to do.")
@option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="With --list: from this day on (2026-11-30)."
)
@option(
    "--confirm", metavar="BATCH", help="With --row: what is said of the row is right; with FILE, a line is about it."
)
@option("--withdraw", metavar="BATCH", help="With --row: it was wrong, or the bank undid it.")
@option("--row", type=Whole(1), metavar="N", help="The row that --confirm or --withdraw is about.")
@option("--code", metavar="CODE", help="Of several codes of the row, only this one (R01).")
@option("--reason", metavar="TEXT", help="With --confirm, --withdraw: how you know; recorded. No account numbers.")
@click.pass_obj
def returns(context: Context, /, files: tuple[str, ...], **options: Any) -> int:
    """Match returns (R01) and notifications of change (C01) with all batches, and record what is certain.

    FILE is a table (CSV, XLSX, Parquet) or a bank's ACH file. Payments are found by paymentId, gateway reference,
    invoice number, or account and amount. A return never sends anything and puts no row back: the row stays accepted.
    What a line leaves open is listed, with exit code 3; a row in doubt that came back, with 7.

    Example: batchpay returns returns.csv
    """
    _check_usage(files, options)
    if options["list_"]:
        return _list(context, options["since"])
    if options["confirm"] or options["withdraw"]:
        return _say(context, files, options)
    from batchpay.workflows.returns import take_returns

    codes, told = list[int](), list[dict[str, Any]]()
    for path in expand(files):
        try:
            taken = take_returns(path, context.settings, actor(), map_file=options["map_"], dry_run=options["dry_run"])
        except BatchpayError as error:
            if len(files) == 1:
                raise
            click.echo(f"batchpay: {printable(str(error))}", err=True)
            told.append({"file": path, "error": str(error), "exit_code": error.exit_code})
        else:
            told.append(taken.as_json())
            if not context.json:
                _print(context, taken)
        codes.append(told[-1]["exit_code"])
    code = output.exit_code_of(codes)
    if context.json:
        output.print_json(context, {"files": told, "exit_code": code})
    return code


@click.command(cls=Command, short_help="Write a sheet for the bank: payments to be reversed.")
@click.argument("batch")
@option("--rows", required=True, metavar="N,N...", help="The accepted rows that the bank is to reverse.")
@option("--reason", type=click.Choice(["duplicate", "amount", "receiver", "date"]), required=True,
        help="Which of them was wrong; a bank reverses for no other reason.")  # fmt: skip
@option("--out", required=True, metavar="FILE", help="The sheet (.csv, .parquet or .xlsx).")
@click.pass_obj
def recall(context: Context, /, batch: str, **options: Any) -> int:
    """Write what a bank needs to reverse payments, and record that it was asked for; the gateway can't take one back.

    A bank can reverse a payment within five banking days after it was sent. The sheet has the last four characters of
    each account. What should have been paid instead is paid by `batchpay submit FILE --again --reason TEXT`.

    Example: batchpay recall 3f2a91c0d7e1 --rows 3,7 --reason amount --out recall.xlsx
    """
    from batchpay.workflows.recall import RecallReason
    from batchpay.workflows.recall import recall as workflow

    outputs_of(context).claim(options["out"], RECALL)
    rows = row_numbers(options["rows"])
    done = workflow(batch, rows, RecallReason(options["reason"]), options["out"], context.settings, actor())
    told = f"{row_count(done.totals.rows)} of batch {done.batch}, {money(done.totals.cents)}, for the bank to reverse"
    output.tell(context, done.as_json(), printable(f"{told} until {done.deadline}: {done.path}"))
    return 0


def _check_usage(files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse options that don't go together."""
    said = options["confirm"] or options["withdraw"]
    wrong = {
        "name a file of returns, or use --list, --confirm or --withdraw": not (files or options["list_"] or said),
        "--list, --confirm and --withdraw can't be combined": sum(map(bool, (
            options["list_"], options["confirm"], options["withdraw"]))) > 1,
        "--list and --withdraw take no FILE": files and (options["list_"] or options["withdraw"]),
        "--since goes with --list": options["since"] and not options["list_"],
        "--confirm and --withdraw need --row N and --reason TEXT": said
        and not (options["row"] and (options["reason"] or "").strip()),
        "--row, --code and --reason go with --confirm or --withdraw": not said
        and (options["row"] or options["code"] or options["reason"]),
        "--confirm takes one FILE": options["confirm"] and len(files) > 1,
        "--dry-run goes with FILE alone": options["dry_run"] and (said or options["list_"]),
    }  # fmt: skip
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise click.UsageError(message)


def _say(context: Context, files: tuple[str, ...], options: dict[str, Any]) -> int:
    from batchpay.workflows.returns import confirm_match, say_of_return

    reason, row = options["reason"], options["row"]
    place = (options["confirm"] or options["withdraw"], row)
    if files:
        one = confirm_match(files[0], place, reason, context.settings, actor(), map_file=options["map_"])
        assert one.payment is not None
        batch, count, what = one.payment.batch, 1, "recorded"
    else:
        is_withdrawn = bool(options["withdraw"])
        batch, count = say_of_return(
            place, reason, context.settings, actor(), withdraw=is_withdrawn, code=options["code"]
        )
        what = "withdrawn" if is_withdrawn else "confirmed"
    told = f"{what}: {counted(count, 'return')} of row {row} of batch {batch}"
    output.tell(context, {"batch": batch, "row": row, "returns": count, "what": what, "exit_code": 0}, told)
    return 0


def _list(context: Context, since: datetime | None) -> int:
    from batchpay.workflows.returns import fact_json, list_returns

    found = [fact_json(one) for one in list_returns(context.settings, since=since.date() if since else None)]
    if context.json:
        output.print_json(context, {"returns": found, "exit_code": 0})
        return 0
    if not found:
        click.echo("nothing came back")
    for one in found:
        place = f"batch {one['batch']}, row {one['row']} ({one['place']})"
        money_text = "" if one["kind"] == "changed" else f"  {amount(one['amount'])}"
        click.echo(printable(f"{one['code']}  {one['date']}  {place}  {one['direction']}{money_text}"))
        by = f" (until {one['deadline']})" if one["deadline"] else ""
        output.print_wrapped(f"{one['meaning']}: {one['todo']}{by}", first="     ")
        if not one["seen"]:
            confirm = f"batchpay returns --confirm {one['batch']} --row {one['row']} --reason TEXT"
            output.print_wrapped(f"taken in by a night, and not seen by a person yet: {confirm}", first="     ")
    return 0


def _print(context: Context, taken: TakenReturns) -> None:
    """Print what a file said; lines for a person are named, with their payments but without account numbers."""
    click.echo(printable(f"{taken.file.name}   {counted(len(taken.file.lines), 'line')} of returns"))
    if taken.note:
        output.print_wrapped(taken.note, first="  note: ")
    for verdict, some in taken.by_verdict.items():
        word = "would be recorded" if taken.is_dry_run and verdict == "recorded" else verdict.replace("_", " ")
        sides = [(one.payment.direction if one.payment else "", one.line.cents or 0) for one in some]
        click.echo(f"  {word}: {counted(len(some), 'line')}, {amounts_apart(sides)}")
        for one in some[: 0 if verdict == "known" else _SHOWN_MAX]:
            output.print_wrapped(_line(one, taken.file.name), first="    ")
        if len(some) > _SHOWN_MAX and verdict != "known":
            click.echo(f"    and {len(some) - _SHOWN_MAX:,} more: --json")


def _line(one: Match, file: str) -> str:
    line, payment = one.line, one.payment
    cents = f", {money(line.cents)}" if line.cents is not None else ""
    place = f", batch {payment.batch}, row {payment.row}" if payment else ""
    text = f"line {line.line}: {line.code or 'no code'}{cents}{place}{f': {one.why}' if one.why else ''}"
    if one.verdict == "recorded":
        return f"{text}: {one.code.meaning}: {one.code.todo}"
    told = f"{payment.batch} --row {payment.row}" if payment else ""
    if one.verdict == "proposed":
        return f"{text}; if so: batchpay returns {file} --confirm {told} --reason TEXT"
    if one.verdict == "in_doubt":
        return f"{text}: it was made after all: batchpay resolve {told}, then this again"
    return text


def take_returns_first(
    context: Context, options: dict[str, Any], settings: Settings, account: CallLog, codes: list[int]
) -> None:
    """Take in the files of returns of a night before its payments, which none of them delays, whatever is in it."""
    from batchpay.workflows.returns import take_and_archive, take_returns

    try:
        paths = files_of_returns(options["returns"])
    except NotUsable:  # the folder: said below, as of a file
        paths = [options["returns"]]
    for path in paths:
        try:
            if options["dry_run"]:
                taken = take_returns(path, settings, actor(), dry_run=True)
            else:
                taken = take_and_archive(path, settings, actor(), options["archive"])
        except LedgerMissing:  # nothing was ever paid: the next night takes it
            return
        except Exception as fault:
            error = fault if isinstance(fault, BatchpayError) else CheckFailed(path, fault)
            log_event("refused", level=logging.WARNING, file=path, reason=str(error), exit_code=error.exit_code)
            click.echo(f"batchpay: {printable(str(error))}; payments are not delayed by it", err=True)
            one: dict[str, Any] = {"file": path, "error": str(error), "exit_code": error.exit_code}
            account.ended[path] = error.exit_code
        else:
            one = taken.as_json()
            log_event("returns taken in", file=path, rows=one["lines"], exit_code=taken.exit_code)
            if not context.json and not (taken.is_known and context.quiet):
                _print(context, taken)
        account.returns.append(one)
        codes.append(one["exit_code"])
