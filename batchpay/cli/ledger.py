"""`batchpay ledger`: make, check, move, back up or purge the ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpay.cli import output
from batchpay.cli.context import Context, Group, Whole, option
from batchpay.cli.paths import outputs_of
from batchpay.cli.process import actor
from batchpay.errors import LedgerBesideAnother
from batchpay.settings import DAYS_MOST
from batchpay.text import counted, local_time, printable, row_count

if TYPE_CHECKING:
    from batchpay.ledger.paths import LedgerPaths
    from batchpay.workflows.ledger_care import Retention


@click.group(cls=Group, short_help="Create, check, accept, back up or purge the ledger.")
def ledger() -> None:
    """Manage the ledger, the only record of what was paid.

    Example: batchpay ledger check
    """


@ledger.command(short_help="Create a new, empty ledger with its key and witness.")
@option("--beside-another", is_flag=True, help="Create it even though another ledger with payments is known here.")
@option("--reason", metavar="TEXT", help="Why a second ledger is intended; required with --beside-another.")
@option("--owner-url", metavar="URL", help="PostgreSQL: the login that creates the tables, if batchpay's own may not.")
@option("--print-sql", is_flag=True, help="PostgreSQL: only print the SQL that creates the tables.")
@click.pass_obj
def init(context: Context, beside_another: bool, reason: str | None, owner_url: str | None, print_sql: bool) -> int:
    """Create a new, empty ledger, its key if there is none yet, and its witness.

    If ledger.url names a PostgreSQL database, this creates the tables there (by --owner-url, a login that may) and the
    roles batchpay_app and batchpay_report, which have no more rights than they need; the administrator makes batchpay's
    own login a member of batchpay_app. Other machines: batchpay ledger join.

    Keep copies of the key apart from the ledger: without it, pending payments can't be read and duplicates can't be
    found. If the witness of another ledger with payments is here, the new ledger would not know what that one paid: you
    are asked on a terminal; without one, it takes --beside-another --reason TEXT.

    Example: batchpay ledger init
    """
    from batchpay.workflows.ledger_care import make_ledger, require_reason, schema_text

    if print_sql:
        click.echo(schema_text(), nl=False)
        return 0
    if beside_another:
        require_reason("--beside-another", reason)
    why = reason if beside_another else None
    try:
        place, weaknesses = make_ledger(context.settings.ledger, actor(), why, owner_url)
    except LedgerBesideAnother as error:
        if not output.is_terminal():
            raise LedgerBesideAnother(
                f"{error} If a second ledger is intended: --beside-another --reason TEXT"
            ) from None
        click.echo(printable(str(error)), err=True)
        why = click.prompt(
            "Why a second ledger is intended (leave blank to stop)", default="", show_default=False, err=True
        )
        if not why.strip():
            raise
        place, weaknesses = make_ledger(context.settings.ledger, actor(), why, owner_url)
    for weakness in weaknesses:
        output.say(context, f"warning: {weakness}")
    return _print_place(context, place)


def _print_place(context: Context, place: LedgerPaths) -> int:
    places = {"ledger": place.name, "key": str(place.key), "witness": str(place.witness)}
    text = "\n".join(f"{label:<8} {printable(path)}" for label, path in places.items())
    output.tell(context, places, text)
    return 0


@ledger.command(short_help="Let this machine use a ledger in a database.")
@option("--reason", metavar="TEXT", help="Why this machine uses it; required, and kept in the ledger's history.")
@click.pass_obj
def join(context: Context, reason: str | None) -> int:
    """Let this machine use a ledger in a PostgreSQL database, and give it its own witness.

    Run it once on each additional machine. Copy the ledger's key there first: it is never in the database. A machine
    that used the ledger before and lost its witness can't tell whether the ledger is the latest: ledger accept.

    Example: batchpay ledger join --reason "second host, ticket 4711"
    """
    from batchpay.workflows.ledger_care import join_ledger

    return _print_place(context, join_ledger(context.settings.ledger, reason, actor()))


@ledger.command(short_help="Move the ledger from its file to a PostgreSQL database.")
@option("--to", metavar="URL", required=True, help="The database, which must not have a ledger yet.")
@option("--owner-url", metavar="URL", help="The login that creates the tables, if batchpay's own may not.")
@option("--reason", metavar="TEXT", help="Why; required, and kept in the ledger's history.")
@click.pass_obj
def move(context: Context, to: str, owner_url: str | None, reason: str | None) -> int:
    """Move the ledger from its file to a PostgreSQL database: batches, rows, history, and known payments.

    No run may be under way meanwhile (exit code 9). The copy is checked before the file is closed for good; from then
    on nothing is sent from it, and only then does the database take over: there are never two ledgers. If a move is
    interrupted, the same command completes it. Key and witness stay on this machine; afterwards set ledger.url to the
    database, everywhere.

    Example: batchpay ledger move --to postgresql://payer@db.example/payments --reason "second host, ticket 4711"
    """
    from batchpay.workflows.ledger_care import move_ledger

    place = move_ledger(context.settings.ledger, to, reason, actor(), owner_url)
    output.say(context, "moved; from now on set ledger.url (BATCHPAY_LEDGER) to the database, on every machine")
    return _print_place(context, place)


@ledger.command(short_help="Check the whole ledger, and what differs in it.")
@click.pass_obj
def check(context: Context) -> int:
    """Check the whole ledger: structure, history, totals, payloads; and whether it is the one that this machine knows.

    Exit code 5 if anything is wrong or differs, 8 if a ledger that was accepted waits for ledger accept --confirm.
    Where something differs, this says what accepting it would mean for rows and files. A ledger written by an older
    version of batchpay is upgraded first; a backup is left next to it.

    Example: batchpay ledger check
    """
    from batchpay.workflows.ledger_care import check_ledger

    found = check_ledger(context.settings.ledger)
    if context.json:
        lost = str(found.lost) if found.lost else None
        document = {"problems": found.problems, "accepting": found.accepting, "lost": lost}
        output.print_json(context, {**document, "exit_code": found.exit_code})
        return found.exit_code
    for weakness in found.weaknesses:
        output.say(context, f"warning: {weakness}")
    waiting = [found.lost.waits] if found.lost else []
    for line in [*found.problems, *found.accepting, *waiting] or ["the ledger is in order"]:
        click.echo(printable(line))
    return found.exit_code


@ledger.command(short_help="Accept a ledger that was restored, copied or moved.")
@option("--reason", metavar="TEXT", help="Why, or how you know; required, and kept in the ledger's history.")
@option("--rows-in-doubt", is_flag=True, help="Also put in doubt what it would send: payments may be unknown to it.")
@option("--confirm", is_flag=True, help="Later: confirm that all that it may not know of is accounted for.")
@click.pass_obj
def accept(context: Context, reason: str | None, rows_in_doubt: bool, confirm: bool) -> int:
    """Accept a ledger that is not the one that this machine knows, or not where it was: batchpay ledger check says why.

    A ledger that may not know of payments made since (restored from a backup, copied, without its witness): every row
    that it would send becomes a row in doubt, for a person to look at, and no new file is registered (exit code 8)
    until --confirm. A ledger that was moved, or whose standby took over, with all that this machine knows of: no row
    changes; if payments may have been sent from where it was, add --rows-in-doubt. A clock that was ahead: no row
    changes. A damaged ledger is not accepted, and a ledger in which nothing differs only with --rows-in-doubt.

    Example: batchpay ledger accept --reason "disk failed on Friday, copy of Thursday night"
    """
    from batchpay.workflows.ledger_care import accept_ledger, confirm_ledger

    if confirm:
        confirm_ledger(context.settings.ledger, reason, actor())
        output.tell(
            context, {"doubted": 0, "lost": None, "exit_code": 0}, "confirmed; new files can be submitted again"
        )
        return 0
    found = accept_ledger(context.settings.ledger, reason, actor(), rows_in_doubt=rows_in_doubt)
    told = f"accepted; rows put in doubt: {found.marked_in_doubt}"
    told += f"\n{found.lost.waits}" if found.lost else "; nothing may be sent from where it was"
    lost = str(found.lost) if found.lost else None
    output.tell(context, {"doubted": found.marked_in_doubt, "lost": lost, "exit_code": 0}, told)
    return 0


@ledger.group(cls=Group, short_help="Who must approve what, for all machines.")
def policy() -> None:
    """Show or set the policy that the ledger keeps for all machines: who must approve, what is held, where days begin.

    A settings file or a variable can only make it stricter.

    Example: batchpay ledger policy show
    """


@policy.command(short_help="Show the policy in force, and who set it.")
@click.pass_obj
def show(context: Context) -> int:
    """Show the policy in force for the environment of the settings, what the ledger keeps, and who set it.

    Example: batchpay ledger policy show
    """
    from batchpay.workflows.policy import policy_of

    return _print_policy(context, policy_of(context.settings))


_REASON = option("--reason", metavar="TEXT", help="Why; required, and kept in the ledger's history.")


@policy.command("set", short_help="Raise the policy, or ask to lower it.")
@option("--approvals", metavar="N", type=Whole(0, 2), help="How many other people must approve what is sent.")
@option("--approve-above", metavar="AMOUNT", help="From this total on.")
@option("--second-above", metavar="AMOUNT", help='Two people from this total on; "" for no such total.')
@option("--approval-days", metavar="N", type=Whole(1, DAYS_MOST), help="Days after which an approval is too old.")
@option("--approval-window", metavar="N", type=Whole(1, 8760), help="Hours in which one person's files count together.")
@option("--makers-exempt", metavar="NAME", multiple=True, help='Accounts whose files each count alone; "" for none.')
@option("--hold", metavar="CODE", multiple=True, help='Warnings that hold a row for a person; "" for none.')
@option("--zone", metavar="ZONE", help="The time zone whose days payOn names, like America/New_York.")
@_REASON
@click.pass_obj
def set_policy(context: Context, /, zone: str | None, reason: str | None, **options: Any) -> int:
    """Set what is named, and leave the rest as it is, for all machines and the environment of the settings.

    What is stricter applies at once. What is less strict is a request: it takes effect when as many other people as the
    policy asks have approved it (ledger policy approve), or after 72 hours, unless somebody refuses it. Until then
    every call tells it. The zone is the same for both environments; a run that has begun keeps its day.

    Example: batchpay ledger policy set --approvals 1 --approve-above 1000.00 --reason "as the board decided"
    """
    from batchpay.workflows.policy import set_policy as set_in_ledger

    said = {name: value for name, value in options.items() if value not in (None, ())}
    changes = {name: sorted({*value} - {""}) if isinstance(value, tuple) else value for name, value in said.items()}
    if not changes and zone is None:
        raise click.UsageError("name what is to be set")
    return _print_policy(context, set_in_ledger(context.settings, changes, zone, reason, actor()))


@policy.command(short_help="Record that nobody must approve, or ask for it.")
@_REASON
@click.pass_obj
def none(context: Context, reason: str | None) -> int:
    """Record that nobody must approve and nothing is held: what a company of one person does.

    Where the policy asks for approvals, this is a request like any other that is less strict.

    Example: batchpay ledger policy none --reason "there is only me"
    """
    from batchpay.workflows.policy import NONE
    from batchpay.workflows.policy import set_policy as set_in_ledger

    return _print_policy(context, set_in_ledger(context.settings, NONE, None, reason, actor()))


@policy.command(short_help="Approve a request to lower the policy.")
@click.pass_obj
def approve(context: Context) -> int:
    """Approve that the policy becomes less strict, as another person asked: ledger policy show says what.

    Example: batchpay ledger policy approve
    """
    from batchpay.workflows.policy import decide_lowering

    return _print_policy(context, decide_lowering(context.settings, actor()))


@policy.command(short_help="Refuse a request to lower the policy.")
@_REASON
@click.pass_obj
def refuse(context: Context, reason: str | None) -> int:
    """Refuse a request to lower the policy, which stays as it is.

    Example: batchpay ledger policy refuse --reason "nobody told me"
    """
    from batchpay.workflows.ledger_care import require_reason
    from batchpay.workflows.policy import decide_lowering

    why = require_reason("ledger policy refuse", reason)
    return _print_policy(context, decide_lowering(context.settings, actor(), why))


def _print_policy(context: Context, found: dict[str, Any]) -> int:
    told = {"zone": found["zone"], **found["in_force"]}
    written = {name: ", ".join(value) if isinstance(value, list) else str(value or "") for name, value in told.items()}
    lines = [f"{name:<16} {text or 'none'}" for name, text in written.items()]
    lines.insert(0, f"in force         {found['environment']}")
    lines += [f"last changed     {found['at']} by {found['who']}: {found['why']}"] if found["who"] else []
    output.tell(context, {**found, "exit_code": 0}, "\n".join(map(printable, [*lines, *found["notes"]])))
    return 0


@ledger.command(short_help="Write a consistent copy of the ledger.")
@click.argument("target", type=click.Path(path_type=Path))
@option(
    "--keep",
    metavar="N",
    type=Whole(1),
    help="With a folder: keep the N latest copies of this ledger and remove its older ones.",
)
@click.pass_obj
def backup(context: Context, target: Path, keep: int | None) -> int:
    """Write a consistent copy of the ledger to TARGET, a new file of mode 0600, even while payments are being sent.

    If TARGET is a folder, the copy is named after the time, ledger-20260724T180000Z.db. Each copy is read back. The
    backup is recorded in the ledger's history, where `batchpay health --backup-every` looks for it.

    The key and the witness are not in it; keep copies of the key apart. A copy is older than the witness as soon as
    anything has been sent, so a ledger restored from it sends nothing until a person has accepted it.

    Example: batchpay ledger backup /mnt/safe/ledger-2026-07-24.db
    """
    from batchpay.workflows.ledger_care import back_up

    outputs_of(context).guard(target)
    target, problem = back_up(context.settings.ledger, target, keep, datetime.now(UTC), actor())
    if problem is not None:
        output.say(context, f"warning: the backup was written, but the ledger could not record it: {problem}")
    output.tell(context, {"backup": str(target)}, f"backup   {printable(str(target))}")
    return 0


@ledger.command("move-gateway", short_help="Let batches follow a gateway to a new address or API ID.")
@click.argument("old")
@click.argument("new")
@option("--reason", metavar="TEXT", help="How you know it is the same gateway; it is recorded.")
@click.pass_obj
def move_gateway(context: Context, old: str, new: str, reason: str | None) -> int:
    """Send the batches intended for the gateway at OLD to NEW, within the environment of the settings.

    Only if the same gateway has a new address. Payments are recognized whatever the address; this is for rows waiting
    to be sent. A gateway on this machine never moves elsewhere. If it has given your company a new API ID, give its
    address twice: the batches begun under another gateway.api_id go on under that of the settings.

    Example: batchpay ledger move-gateway https://old.example.com https://pay.example.com --reason "their letter of May"
    """
    from batchpay.workflows.ledger_care import require_reason
    from batchpay.workflows.move_gateway import move_gateway as move

    moved = move(old, new, require_reason("move-gateway", reason), context.settings, actor())
    text = f"moved    {counted(len(moved), 'batch', 'batches')}: {', '.join(moved)}"
    output.tell(context, {"moved": moved, "exit_code": 0}, text)
    return 0


@ledger.command(short_help="Erase names, details and messages of batches finished long ago.")
@option("--older-than", type=Whole(1, DAYS_MOST), metavar="DAYS",
        help="Batches with no activity for this long; retention.details_days by default.")  # fmt: skip
@option("--reason", metavar="TEXT", help="Why; it is recorded. Required unless --dry-run.")
@option("--dry-run", is_flag=True, help="Show what would be erased, batch by batch; nothing is erased.")
@click.pass_obj
def purge(context: Context, older_than: int | None, reason: str | None, dry_run: bool) -> int:
    """Erase names, details and messages of batches whose rows are final and that have had no activity for DAYS.

    Rows, amounts, states, gateway references, totals and history stay, and so do the digests by which a payment is
    recognized: a bill that was paid is a duplicate at any age. The results and the report of a purged batch can no
    longer be written, and an export is matched with it by reference alone. This can't be undone.

    Afterwards no byte of it is left in the ledger's file, which is searched for it; a database's own files, log and
    backups are its administrator's. Earlier backups, and files written elsewhere, still have it. Exit code 9 while a
    run is under way; an interrupted purge is completed by the next one.

    Example: batchpay ledger purge --older-than 400 --dry-run
    """
    from batchpay.workflows.ledger_care import look
    from batchpay.workflows.ledger_care import purge as erase

    now = datetime.now(UTC)
    if dry_run:
        found = look(context.settings, older_than, now)
    else:
        found = erase(context.settings, older_than, reason, now, actor())
    if context.json:
        output.print_json(context, found.as_json())
    else:
        _print_retention(context, found)
    return found.exit_code


def _print_retention(context: Context, found: Retention) -> None:
    erased = found.due if found.done is None else found.done.erased
    if found.old:
        header = ["batch", "last event", "rows", "", "file"]
        rows = [
            [one.batch, local_time(one.last_event_at), f"{one.rows:,}",
             f"stays: {one.stays}" if one.stays else "held: stays" if one not in erased else "", one.file]
            for one in found.old
        ]  # fmt: skip
        output.print_table(header, rows, right=frozenset({"rows"}))
    rows_erased = row_count(sum(one.rows for one in erased))
    number = counted(len(erased), "batch", "batches")
    if found.done is None:
        click.echo(f"would erase names, details and messages of {rows_erased} of {number}; nothing was erased")
        if found.unfinished:
            click.echo("an earlier purge was not completed: run the command without --dry-run")
        return
    click.echo(f"erased names, details and messages of {rows_erased} of {number}")
    if found.done.bytes_searched:
        size, pieces = found.done.bytes_searched, counted(found.done.pieces_searched, "piece")
        click.echo(f"searched {size:,} bytes of the ledger's files for {pieces} of erased text: none found")
    for copy in found.copies if erased else ():
        output.say(context, f"not erased from: {copy}")
