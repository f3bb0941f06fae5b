"""What a file's rows have in common with earlier payments, and how it is reported: rows kept back, warnings, totals.

Earlier payments are those of the same environment; `--allow-duplicates` lets a bill pass twice, never a paymentId.
In the rejects of a known batch no row comes back that may have been paid. Where the clock may be wrong, nothing is paid
again because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from batchpay.approval.anomalies import Variance
from batchpay.approval.cash_flow import with_cents
from batchpay.gateway.origin import environment_of
from batchpay.intake.own_output import first_row
from batchpay.ledger.columns import Earlier, Lookup, PaidTo
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Environment, SamePayment, State, Totals, format_cents
from batchpay.schemas.catalogue import ROW_INVOICE_PAID, ROW_SAME_PAYMENT
from batchpay.schemas.checks import as_date
from batchpay.schemas.columns import PAY_ON, PAYMENT_ID
from batchpay.schemas.identity import folded, invoices
from batchpay.schemas.rule import RuleOptions
from batchpay.settings import PolicySettings, Settings
from batchpay.text import counted, money, place_of, place_word, printable, row_count
from batchpay.validation.verdict import ChunkResult, Verdict
from batchpay.workflows.rejected_earlier import RejectedEarlier
from batchpay.workflows.returned_accounts import may_follow
from batchpay.writing.table import TABLE_ENDINGS

if TYPE_CHECKING:
    from batchpay.intake.source import Source
    from batchpay.ledger.records import BatchSummary
    from batchpay.validation.rejects import Rejects
    from batchpay.workflows.held_back import HeldBack

SENT = (State.SENDING, State.ACCEPTED, State.DECLINED, State.IN_DOUBT)


def without_payments(
    ledger: Ledger,
    batch: BatchSummary,
    rejects: Rejects | None,
    anew: Callable[[], Rejects | None],
    verdict: Verdict,
    check: Callable[[ExitStack], Iterator[ChunkResult]],
) -> tuple[Rejects | None, bool]:
    """Rewrite the rejects if the ledger has one of their rows as a payment; what was sent is not an error.

    Rules may have changed since (a start date has passed by now): a row that may have been paid must not come back as
    one to correct and send. `verdict` says for each row whether it passes now, `check` applies the rules once more.
    Also returns whether any row came back.
    """
    registered = pl.Series([row.row for row in ledger.rejected(batch.batch)], dtype=pl.UInt32)
    failed = (~verdict.passed).arg_true().cast(pl.UInt32) + 1
    back = failed.is_in(registered.implode())
    if back.all():
        return rejects, len(failed) > 0
    if rejects is not None:
        rejects.abandon()
    rejects = anew()
    wanted = pl.col("_row").is_in(registered.implode())
    sent = pl.Series([row for some in ledger.row_columns(batch.batch, SENT) for row in some.rows], dtype=pl.UInt32)
    try:
        with ExitStack() as storage:
            for result in check(storage):
                verdict.leave_out(result, sent)
                if rejects is None:
                    continue
                if result.late:
                    rejects.late(result.rejects().filter(wanted))
                elif result.as_read is not None:
                    rejects.add(result.rejects().filter(wanted))
    except BaseException:
        if rejects is not None:
            rejects.abandon()
        raise
    return rejects, bool(back.any())


class OwnRejects:
    """Decides which rejects files of a name belong to the file that a submission has just read.

    Those in which every row is a row of this very file, unchanged: then nothing is lost, since each of them is among
    the new ones, or is a payment by now. A file that somebody corrected has other rows, and stays, as does another's.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left: list[Path] = []

    def __call__(self, path: Path, number: int) -> bool:
        """Return whether the rejects at a path are this file's own, or there are none."""
        row = first_row(path)
        if row is None or "_row" not in row:
            return False
        if row["_row"] is None:  # only a header
            return True
        from batchpay.validation.rejects import holds_only_rows_of  # also loads what writes workbooks

        is_own = holds_only_rows_of(self._source, path)
        if not is_own:
            self._left.append(path)
        return is_own

    @property
    def notes(self) -> list[str]:
        """Report which rejects stay though the batch may have written them: old ones must not be taken for new ones."""
        if not self._left:
            return []
        more = f" (and {len(self._left) - 1} more)" if len(self._left) > 1 else ""
        return [
            f"{self._left[0]}{more} was left as is: not all of its rows are rows of this file, cell for cell, so "
            "someone corrected it, or it belongs to another file; some of its rows may already be paid, so check "
            "before you submit it"
        ]


def is_of_no_submission(path: Path, number: int) -> bool:
    """Return whether the rejects at a path are a check's, or there are none: then no results are next to them."""
    row = first_row(path)
    if row is None or "_row" not in row:
        return False
    beside = [path.with_name(path.stem.replace(".rejects", ".results") + ending) for ending in TABLE_ENDINGS]
    return row["_row"] is None or not any(one != path and first_row(one) for one in beside)


LISTED_MAX = 1000
"""This many of the duplicates that were let through are listed; all are counted."""
_BATCHES_NAMED = 5
_ROWS_NAMED = 3
_REPEATED_LEAST = 2
"""A batch that at least this many rows repeat has a line in the summary."""
_DUE = "if it is due again, give it"
_HELD_BACK = "which is held back there by today's rules"


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """What is not final in an earlier batch; flags by the number of its rows."""

    waiting: Totals
    """What has not been sent yet."""
    held_back: HeldBack
    """Which of these rows fail today's rules: `resume` sends none of them."""
    only_there: bytearray
    """Whether `resume` would send a row and no row of this file repeats it: it may have been corrected here."""
    only_in_doubt: bytearray
    """The same of rows in doubt: what is paid here in their place may have been paid there."""


@dataclass(slots=True)
class EarlierPayments:
    """What the rows of one file have in common with earlier payments."""

    line_word: str = "row"
    """The word for where a row is in the file."""
    settings: Settings = Settings()
    """Those by which waiting rows of an earlier batch are held back."""
    late_failures: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Rows that are kept back: column, code, message."""
    warnings: list[Variance] = field(default_factory=list)
    allowed: Totals = Totals()
    """Duplicates that the options let through."""
    allowed_rows: list[dict[str, Any]] = field(default_factory=list)
    """The first of them: `row`, and the `batch` and `earlier_row` that it repeats (no batch: within the file)."""
    _allowed_places: dict[int, str] = field(default_factory=dict)
    """The very first of these, by row, as a person finds them: `line 5 (line 4 of this file)`."""
    _allowed_cents: dict[int, int] = field(default_factory=dict)
    _repeated: dict[str, tuple[datetime, Totals]] = field(default_factory=dict)
    """Rows that repeat a batch, by its name."""
    _unfinished: dict[str, _Unfinished] = field(default_factory=dict)
    """What is not final in each batch that some row repeats, by its name."""

    def compare(
        self,
        ledger: Ledger,
        frame: pl.DataFrame,
        rules: RuleOptions,
        environment: Environment,
        *,
        days: int,
        exclude_digest: bytes,
    ) -> None:
        """Compare rows that have passed so far with earlier payments."""
        from batchpay.registration.digests import lookup_columns

        lookup = lookup_columns(ledger, frame)
        cents = dict(zip(lookup.rows, with_cents(frame)["_cents"].to_list(), strict=True))
        now = windows_end(ledger, self.settings.policy)
        apart = self.settings.policy.duplicate_days
        found = ledger.earlier(lookup, environment, days=days, apart=apart, now=now, exclude_digest=exclude_digest)
        among = frame.filter(pl.col("_row").is_in([one.row for one in found]))
        lines = dict(among.select("_row", "_line").iter_rows())
        directions = dict(among.select("_row", "transactionType").iter_rows())
        for name in {one.earlier_batch for one in found} - self._unfinished.keys():
            self._unfinished[name] = _unfinished(ledger, name, self.settings)
        for one in found:
            if one.returned is not None and may_follow(one.returned, cents[one.row], directions[one.row], now):
                # Whoever made the file of returns up pays twice: the approver has to see it.
                self._warn(one, f"pays again what was paid in {_place(one)}, make sure that the bank said so", rules)
                continue
            self._take(one, lines[one.row], cents[one.row], rules)
            there = self._unfinished[one.earlier_batch]
            there.only_there[one.earlier_row] = there.only_in_doubt[one.earlier_row] = False
        invoiced = frame.filter(pl.Series(lookup.with_invoice, dtype=pl.Boolean))
        if days and invoiced.height and ROW_INVOICE_PAID.name not in rules.rules_off:
            since = now - timedelta(days=days)
            paid_to = partial(ledger.paid_to, environment=environment, since=since, exclude_digest=exclude_digest)
            self._compare_invoices(ledger, invoiced, rules, paid_to)

    def _compare_invoices(
        self, ledger: Ledger, frame: pl.DataFrame, rules: RuleOptions, paid_to: Callable[..., list[PaidTo]]
    ) -> None:
        """Find rows with an invoice number under which their account was sent another amount not long ago."""
        from batchpay.registration.digests import account_digests

        rows = frame.filter(~pl.col("_row").is_in(list(self.late_failures)))
        accounts = cache(lambda: account_digests(ledger, rows))
        if not (paid := paid_to(accounts)):
            return
        payments = pl.DataFrame(
            {
                "account": [one.account for one in paid],
                "transactionType": [one.direction for one in paid],
                "invoice": invoices(pl.Series([one.invoice for one in paid])),
                "_number": range(len(paid)),
            }
        )
        invoice = invoices(rows["invoiceNumber"]).alias("invoice")
        same = (
            with_cents(rows)
            .with_columns(invoice, account=pl.Series(accounts()), _day=as_date(pl.col(PAY_ON)))
            .join(payments, on=["account", "transactionType", "invoice"])
            .select("_row", "_line", "_cents", PAYMENT_ID, "_day", "_number")
        )
        zone, apart = ledger.zone(), timedelta(max(1, self.settings.policy.duplicate_days))
        found: dict[int, tuple[bool, int, int | None, int]] = {}  # of several payments, the latest is named
        for row, line, cents, payment_id, day, number in same.iter_rows():
            one = paid[number]
            if cents != one.amount_cents:
                is_far = day is not None and abs(day - one.at.astimezone(zone).date()) >= apart
                is_error = not (is_far or payment_id or one.has_payment_id)
                found[row] = max(found.get(row, (False, -1, None, 0)), (is_error, number, line, cents))
        for row, (is_error, number, line, cents) in found.items():
            one = paid[number]
            message = f"has the account, direction and invoice number of {one.place} of batch {one.batch} of "
            message += f"{_day(one.at)}, {money(one.amount_cents)}, and another amount, "
            if rules.allow_duplicates:
                if is_error:
                    self._allow(row, line, one.batch, one.row, one.place, cents)
            elif is_error:
                message += f"{_DUE} an invoice number of its own, or submit it with --allow-duplicates --reason TEXT"
                self.late_failures[row] = ROW_INVOICE_PAID.column, ROW_INVOICE_PAID.code, message
            else:
                message += "make sure that both are due"
                self.warnings.append(Variance(row, ROW_INVOICE_PAID.column, ROW_INVOICE_PAID.code, message))

    def compare_with_own(
        self, rejected: RejectedEarlier, frame: pl.DataFrame, rules: RuleOptions, environment: Environment
    ) -> None:
        """Compare those rows that an earlier call rejected with the payments of their batch, as rows of one file.

        In a call with other options, such as --normalize, the file may not have had the bill twice.
        """
        from batchpay.registration.digests import lookup_columns

        rows = with_cents(rejected.among(frame))
        lookup, apart = lookup_columns(rejected.ledger, rows), max(1, self.settings.policy.duplicate_days)
        now = rejected.ledger.now()
        found = rejected.ledger.earlier(lookup, environment, days=0, apart=apart, now=now, within=rejected.batch)
        places = {row: (line, cents) for row, line, cents in rows.select("_row", "_line", "_cents").iter_rows()}
        for one in found:
            line, cents = places[one.row]
            place = f"{one.earlier_place} of this file"
            if one.same is SamePayment.PAYMENT_ID:
                message = f"was used before in {place}, {_DUE} a paymentId and an invoice number of its own"
                self.late_failures[one.row] = "paymentId", "duplicate", message
            elif one.declined is not None:
                self._take(one, line, cents, rules)
            elif one.same is SamePayment.BILL and not rules.allows_repeated_bills:
                message = f"is the same bill as {place} (account, direction, amount, invoice number), which is a "
                message += "payment already: if both are due, submit it with --allow-duplicates --reason TEXT"
                self.late_failures[one.row] = "row", "duplicate", message
            elif one.same is SamePayment.BILL:
                self._allow(one.row, line, None, one.earlier_row, one.earlier_place, cents)

    def allow_in_file(self, rows: pl.DataFrame) -> None:
        """Record bills that pass though the file has them twice: `_row`, `_first`, its `_place`, `_line`, `_cents`."""
        for row, first, place, line, cents in rows.iter_rows():
            self._allow(row, line, None, first, place, cents)

    def take_back(self, kept_back: Container[int]) -> None:
        """Count as let through only what is: no row that is kept back for another reason, whatever the options let."""
        for row in [row for row in self._allowed_cents if row in kept_back]:
            self.allowed -= Totals(1, self._allowed_cents.pop(row))
            self._allowed_places.pop(row, None)
        self.allowed_rows = [one for one in self.allowed_rows if one["row"] in self._allowed_cents]

    def take_back_sent(self, rejected: RejectedEarlier) -> None:
        """Count for a release only what it sends: no row that its batch has sent before, whatever that repeats."""
        sent = rejected.ledger.row_columns(rejected.batch, SENT) if self._allowed_cents else ()
        self.take_back({row for columns in sent for row in columns.rows if row in self._allowed_cents})

    def notes(self, rows: int) -> list[str]:
        """Return the summary's lines for a file with this many rows."""
        repeated = sorted(self._repeated.items(), key=lambda item: -item[1][1].rows)[:_BATCHES_NAMED]
        lines = [
            f"{found.rows:,} of {rows:,} rows, {money(found.cents)}, are the same bills as batch {batch} of {_day(at)}"
            f"{self._not_sent(batch)}{self._not_known(batch)}"
            for batch, (at, found) in repeated
            if found.rows >= _REPEATED_LEAST
            or (there := self._unfinished[batch]).waiting.rows
            or any(there.only_in_doubt)
        ]
        if self.allowed.rows:
            left, places = self.allowed.rows - len(self._allowed_places), ", ".join(self._allowed_places.values())
            more = f" and {left:,} more" if left else ""
            lines.append(f"duplicates that were allowed: {_counted(self.allowed)}: {places}{more}")
        return lines

    def _not_sent(self, batch: str) -> str:
        """Describe what of a batch waits: the nightly call no longer sends it if this file replaced its own."""
        there = self._unfinished[batch]
        held_back = there.held_back.totals
        waiting = there.waiting - held_back
        told = ""
        if waiting.rows:
            told = f", of which {_counted(waiting)}, wait to be sent: batchpay resume {batch}"
        if others := sum(there.only_there):
            told += f" (which also sends, as it was, what this file corrects or leaves out: {row_count(others)})"
        if held_back.rows:
            verb = "is" if held_back.rows == 1 else "are"
            told += f", of which {_counted(held_back)}, {verb} held back there by today's rules"
        return told

    def _not_known(self, batch: str) -> str:
        """Describe which rows in doubt of a batch this file may have corrected: those may have been paid."""
        if not (rows := sum(self._unfinished[batch].only_in_doubt)):
            return ""
        return (
            f"; {row_count(rows)} in doubt there {'is' if rows == 1 else 'are'} not repeated here: what this file "
            f"corrects of them may be paid twice, look them up first: batchpay resolve {batch}"
        )

    def allowed_json(self, reason: str | None = None) -> dict[str, Any]:
        """Describe what was let through, and why, as in the summary's JSON and the ledger."""
        found = {"rows": self.allowed.rows, "amount": format_cents(self.allowed.cents), "list": self.allowed_rows}
        return found | ({"reason": reason} if reason else {})

    def _warn(self, one: Earlier, message: str, rules: RuleOptions) -> None:
        if ROW_SAME_PAYMENT.name not in rules.rules_off:
            self.warnings.append(Variance(one.row, ROW_SAME_PAYMENT.column, ROW_SAME_PAYMENT.code, message))

    def _take(self, one: Earlier, line: int | None, cents: int, rules: RuleOptions) -> None:
        place = _place(one)
        if (word := one.declined) is not None:
            who, why = (printable(text.replace(";", ","), characters_max=120) for text in (word.who, word.why))
            told = f"which was in doubt, and {who} recorded on {_day(word.at)} that it was declined ({why})"
            told += ": look it up at the gateway before it is paid again"
            self._warn(one, f"is the same payment as {place}, {told}", rules)
            return
        if one.same is SamePayment.ANOTHER_ID:
            told = " under another paymentId or day, make sure that it is due again"
            if one.was_cancelled:
                told = ", which a person cancelled, make sure that it is due after all"
            self._warn(one, f"is the same bill as {place}{told}", rules)
            return
        at, repeated = self._repeated.get(one.earlier_batch, (one.at, Totals()))
        self._repeated[one.earlier_batch] = at, repeated + Totals(1, cents)
        is_held_back = one.earlier_row in self._unfinished[one.earlier_batch].held_back
        if one.same is SamePayment.PAYMENT_ID:
            message = f"was used before in {place}, {_DUE} a paymentId and an invoice number of its own"
            if is_held_back:
                message = f"was used in {place}, {_HELD_BACK}: give it a paymentId of its own"
            elif one.returned is not None:
                message = f"was used before in {place}, the same amount may go to another account under this paymentId"
            self.late_failures[one.row] = "paymentId", "duplicate", message
        elif rules.allows_repeated_bills:
            self._allow(one.row, line, one.earlier_batch, one.earlier_row, one.earlier_place, cents)
        else:
            message = f"is the same bill as {place} (account, direction, amount, invoice number), "
            message += (
                "which a person cancelled: if it is due after all, "
                if one.was_cancelled
                else f"{_HELD_BACK}: "
                if is_held_back
                else f"{_DUE} an invoice number of its own, or "
            )
            message += "submit it with --allow-duplicates --reason TEXT"
            self.late_failures[one.row] = "row", "duplicate", message

    def _allow(
        self, row: int, line: int | None, batch: str | None, earlier_row: int, earlier_place: str, cents: int
    ) -> None:
        """Count a duplicate that may pass, unless it was already counted; without a batch it is one of this file."""
        if row in self._allowed_cents:
            return
        self._allowed_cents[row] = cents
        self.allowed += Totals(1, cents)
        if len(self.allowed_rows) < LISTED_MAX:
            self.allowed_rows.append({"row": row, "batch": batch, "earlier_row": earlier_row})
        if len(self._allowed_places) < _ROWS_NAMED:
            earlier = f"{earlier_place} of {f'batch {batch}' if batch else 'this file'}"
            self._allowed_places[row] = f"{place_of(self.line_word, row, line)} ({earlier})"


def _unfinished(ledger: Ledger, name: str, settings: Settings) -> _Unfinished:
    """Find which rows of an earlier batch wait, are held back, or are in doubt."""
    from batchpay.workflows.held_back import fails_today, find_held_back  # few files repeat an earlier batch

    batch = ledger.find(name)
    waiting, only_there = batch.by_state[State.PENDING], _rows_in(ledger, batch, State.PENDING)
    fails = fails_today(ledger, batch, settings) if waiting.rows else None
    held_back = find_held_back(ledger, name, fails, batch.today)
    for row in held_back:
        only_there[row] = False
    return _Unfinished(waiting, held_back, only_there, _rows_in(ledger, batch, State.IN_DOUBT, State.SENDING))


def _rows_in(ledger: Ledger, batch: BatchSummary, *states: State) -> bytearray:
    """Return, by its number, whether a row of a batch is in one of some states."""
    found = bytearray(batch.total.rows + 1)
    for columns in ledger.row_columns(batch.batch, states) if any(batch.by_state[one].rows for one in states) else ():
        for row in columns.rows:
            found[row] = True
    return found


def _counted(totals: Totals) -> str:
    return f"{row_count(totals.rows)}, {money(totals.cents)}"


def _place(one: Earlier) -> str:
    back = f", which came back with {one.returned.code} of {one.returned.day:%m/%d/%Y}" if one.returned else ""
    return f"{one.earlier_place} of batch {one.earlier_batch} of {_day(one.at)}{back}"


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%m/%d/%Y}"


_DIGEST_BYTES = 16
_NO_BILL = bytes(_DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class FoundPayment:
    """Where a payment is, and why it was declined if it was."""

    batch: str
    row: int
    place: str
    at: datetime
    """When it was registered or, if later, last sent."""
    declined: str | None = None
    """Why the gateway declined it, blank if it gave no reason; None if it did not."""


def find_payment(payment_id: str, settings: Settings) -> FoundPayment | None:
    """Return the latest row of this environment with a paymentId that was sent, waits or is in doubt; None if none.

    Where there is no such row, one that was declined counts, as long as its details are kept.
    """
    (text,), environment = folded(pl.Series([payment_id])), environment_of(settings.gateway)
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        lookup = Lookup(
            rows=[1],
            fingerprints=[_NO_BILL],
            payment_ids=ledger.digest("payment id", [text], _DIGEST_BYTES),
            with_invoice=[False],
            older=lambda: ([_NO_BILL], ledger.digest("payment id", [payment_id], _DIGEST_BYTES)),
        )
        for one in ledger.earlier(lookup, environment, days=0, now=ledger.now()):
            if one.declined is not None:
                break
            return FoundPayment(one.earlier_batch, one.earlier_row, one.earlier_place, one.at)
        for batch in ledger.batches():
            has_declined = batch.environment is environment and batch.by_state[State.DECLINED].rows
            for row in ledger.rows(batch.batch, [State.DECLINED]) if has_declined else ():
                given = row.details.get(PAYMENT_ID)
                if given and folded(pl.Series([given])).item() == text:
                    place, at = place_of(place_word(batch.file), row.row, row.line), row.sent_at or batch.registered_at
                    return FoundPayment(batch.batch, row.row, place, at, row.answer.message or row.reason or "")
    return None


_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


def windows_end(ledger: Ledger, policy: PolicySettings) -> datetime:
    """Return the time from which windows are counted back: the ledger's, less what nothing explains."""
    return ledger.now() - (_since_last_event(ledger) if _is_too_late(ledger, policy) else timedelta())


def clock_note(ledger: Ledger, policy: PolicySettings) -> str | None:
    """Return what a person should know of the clock; None if nothing is odd about it."""
    if (ahead := ledger.clock_ahead) > timedelta():
        time = counted(round(ahead / _DAY), "day") if ahead >= _DAY else counted(round(ahead / _HOUR), "hour")
        return (
            f"the clock went {time} ahead while this machine ran: earlier payments are looked up as if it had not; set "
            "the clock, or let a time server keep it"
        )
    days = _since_last_event(ledger) // _DAY
    if days <= policy.clock_ahead_days:
        return None
    looked_up = "; earlier payments are looked up as of that event" if _is_too_late(ledger, policy) else ""
    return f"the clock was {days} days after the ledger's last event: is the date correct?{looked_up}"


def _is_too_late(ledger: Ledger, policy: PolicySettings) -> bool:
    return _since_last_event(ledger) // _DAY > policy.clock_ahead_days and not ledger.is_clock_sure()


def _since_last_event(ledger: Ledger) -> timedelta:
    return timedelta(seconds=ledger.opened_after_s) - ledger.clock_ahead
