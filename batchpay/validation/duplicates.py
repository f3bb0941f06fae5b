"""What appears twice in a file of any size, by keyed digests.

Digests are kept in an anonymous temporary file, never the texts themselves, so memory does not grow with the file. Each
call uses new keys. What counts as equal agrees in two digests of 64 bits with different keys: for 10 million rows the
odds that two different texts do so are below 1 in 10^24.

The second half turns what is known only at the end of the file into findings of its rows.
"""

from __future__ import annotations

import io
import secrets
import tempfile
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor

import polars as pl

from batchpay.errors import NotUsable
from batchpay.schemas.catalogue import (
    PAYMENT_ID_DUPLICATE,
    ROW_DUPLICATE,
    ROW_SAME_AMOUNT,
    ROW_SAME_INVOICE,
    ROW_SAME_PAYMENT,
)
from batchpay.schemas.checks import as_date, is_not_date_format
from batchpay.schemas.columns import PAY_ON
from batchpay.schemas.identity import BILL, compared
from batchpay.schemas.rule import RuleFacts, RuleOptions, facts
from batchpay.validation.compiled_rules import Findings, Violation, row_violation

_DIGESTS = ("digest_0", "digest_1")
_DIGESTS_AT_ONCE = 1_000_000
Unfit = tuple[pl.Series, pl.Series]
"""Flags of the rows whose paymentId, and of those whose cells, can't be compared with others'."""


@contextmanager
def _no_room() -> Iterator[None]:
    """Report what a full disk means here: nothing was checked to the end, so nothing is sent."""
    try:
        yield
    except OSError as error:
        raise NotUsable(f"the check's temporary files can't be written: {error.strerror}; nothing was sent") from None


class FrameSpool:
    """Frames kept in the order they came, in an anonymous temporary file that lives as long as `storage`.

    Raises NotUsable where there is no room for it. Nothing is buffered: closing it has nothing left to write.
    """

    def __init__(self, storage: ExitStack) -> None:
        with _no_room():
            opened = tempfile.TemporaryFile(buffering=0, prefix="batchpay-")  # noqa: SIM115 (storage closes it)
            self._file = storage.enter_context(opened)
        self._ends: list[int] = [0]

    def append(self, frame: pl.DataFrame) -> None:
        """Add a frame, if it has a row."""
        if not frame.height:
            return
        piece = io.BytesIO()
        frame.write_ipc_stream(piece)
        left = piece.getbuffer()
        self._ends.append(self._ends[-1] + len(left))
        with _no_room():
            while left:
                left = left[self._file.write(left) :]

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            self._file.seek(start)
            yield pl.read_ipc_stream(io.BytesIO(self._file.read(end - start)))


class Digests:
    """Keyed digests of what may appear twice, with the columns kept of the rows that have it."""

    def __init__(self, storage: ExitStack, **of: Sequence[str]) -> None:
        self._of = sorted({name for names in of.values() for name in names})
        seeds = [{name: secrets.randbits(63) for name in self._of} for _ in of]
        self._digests = [
            reduce(xor, (pl.col(name).hash(keys[name]) for name in names)).alias(digest)
            for (digest, names), keys in zip(of.items(), seeds, strict=True)
        ]
        """Of each column with a key of its own: what differs in any of them differs in the digest."""
        self._spool = FrameSpool(storage)
        self._count = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Record a chunk's rows that have every compared column; of those columns only digests are kept."""
        self.keep(rows.drop_nulls(self._of).select(pl.exclude(self._of), *self._digests))

    def keep(self, digests: pl.DataFrame) -> None:
        """Record rows of which digests were made elsewhere."""
        self._spool.append(digests)
        self._count += digests.height

    def repeated(self, *same: str, where: str | None = None, times: int = 2) -> Iterator[pl.DataFrame]:
        """Yield the rows that share these digests with another row, in row order within each frame.

        If `times` is more than two, there are as many rows with the first of them.

        Only rows where the column `where` is true, if there is one.
        """
        parts = max(1, -(-self._count // _DIGESTS_AT_ONCE))
        wanted = pl.lit(value=True) if where is None else pl.col(where)
        for part in range(parts if self._count else 0):
            frames = (frame.filter(wanted & (pl.col(same[0]) % parts == part)) for frame in self._spool)
            rows = pl.concat(frames, how="vertical_relaxed")  # a column of a chunk may have no value, and so no type
            digests = rows.get_column(same[0]).sort()
            again = digests.filter(digests == digests.shift(times - 1)).unique()
            if again.is_empty():
                continue
            some = rows.filter(pl.col(same[0]).is_in(again.implode())).sort(*same, "_row")
            alike = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in same)
            yield some.filter(alike | alike.shift(-1)).sort("_row")


@dataclass(frozen=True, slots=True)
class Repeats:
    """What appears twice in a file."""

    payment_ids: pl.Series
    """Numbers of all rows that share a paymentId with another."""
    bills: pl.DataFrame
    """`_row` and `_first` of each row that repeats the bill of an earlier one, `named`: whether each of them so far
    has its own paymentId, or a payOn far from theirs, and `_place`: where a person finds the first, such as `line
    5`."""
    amounts: pl.DataFrame
    """`_row`, `_first`, `_place` and `count` of one row for each amount that goes to one account more than once, as
    different bills."""
    invoices: pl.DataFrame
    """`_row`, `_first`, `_place` of each row with an earlier one's invoice number and account, and another amount."""


class Places:
    """Where the rows of a file are in it: `line 5` of a CSV, `row 5` of a sheet.

    Kept only where the difference between a row's number and its line changes: at a blank line, a cell of two lines.
    """

    def __init__(self, line_word: str) -> None:
        self._line_word = line_word
        self._changes = [pl.DataFrame(schema={"_row": pl.UInt32, "ahead": pl.Int64})]

    def add(self, chunk: pl.DataFrame) -> None:
        """Add a chunk of the first pass: `_row`, and `_line`, which is null where the kind of file has none."""
        rows = chunk.select("_row", ahead=pl.col("_line").cast(pl.Int64) - pl.col("_row"))
        changes = pl.col("ahead").ne_missing(pl.col("ahead").shift(1)) | (pl.int_range(pl.len()) == 0)
        # Gathered, and so copied: adjacent filtered rows would be a slice of the whole chunk, and keep it in memory.
        self._changes.append(rows[rows.select(changes.arg_true()).to_series()])

    def of(self, rows: pl.Series) -> pl.DataFrame:
        """Return the places of rows, each once: `_first` in order, `_place`."""
        first = rows.unique().sort().alias("_first").to_frame()
        lines = first.join_asof(pl.concat(self._changes), left_on="_first", right_on="_row", check_sortedness=False)
        line = (pl.col("_first") + pl.col("ahead")).cast(pl.String)
        named = pl.coalesce(pl.lit(f"{self._line_word} ") + line, pl.lit("row ") + pl.col("_first").cast(pl.String))
        return lines.select("_first", _place=named)


class Uniqueness:
    """What several rows must not share: a paymentId, or a bill (batchpay.schemas.identity)."""

    def __init__(self, storage: ExitStack, places: Places, days: int) -> None:
        """Bills whose payOn are this many days apart, at least one, are not the same."""
        self._places, self._days = places, max(1, days)
        ids = ("payment_id",)
        self._ids = Digests(storage, digest_0=ids, digest_1=ids)
        of_invoice = (*(name for name in BILL if name != "cents"), "invoice")
        self._bills = Digests(storage, digest_0=BILL, digest_1=(*BILL, "invoice"), of_invoice=of_invoice)
        self._key = secrets.randbits(63)

    def add(self, frame: pl.DataFrame, plain_cents: pl.Series | None, unfit: Unfit | None) -> None:
        """Add a chunk of the first pass, without the paymentIds and the cells that can't be compared.

        `plain_cents` are the cents of rows whose cells are known to match their form.
        """
        found = compared(frame, plain_cents, is_plain=plain_cents is not None)
        unfit_ids, unfit_rows = unfit or (None, None)
        self._ids.add(_fit(found, unfit_ids).select("_row", "payment_id"))
        named, day = pl.col("payment_id"), pl.lit(None)
        if frame[PAY_ON].null_count() < frame.height:
            written = pl.when(~is_not_date_format(pl.col(PAY_ON))).then(pl.col(PAY_ON))
            found = found.with_columns(frame.select(_day=as_date(written).to_physical()))
            day = pl.col("_day")
        self._bills.add(
            _fit(found, unfit_rows).select(
                "_row",
                *BILL,
                pl.col("invoice").fill_null(""),
                invoiced=pl.col("invoice").is_not_null(),
                payment_id=pl.when(named.is_not_null()).then(named.hash(self._key)),
                day=day,
            )
        )

    def repeats(self) -> Repeats:
        """Return, after the last chunk, what appears twice."""
        no_rows = pl.DataFrame(schema={"_row": pl.UInt32, "_first": pl.UInt32, "named": pl.Boolean})
        ids = [frame["_row"] for frame in self._ids.repeated(*_DIGESTS)]
        of_amounts = [
            (_repeated_bills(frame, self._days), _same_amounts(frame)) for frame in self._bills.repeated(_DIGESTS[0])
        ]
        of_invoices = map(_same_invoices, self._bills.repeated("of_invoice", where="invoiced"))
        bills = pl.concat([no_rows, *(bills for bills, _ in of_amounts)])
        counts = no_rows.drop("named").with_columns(count=pl.lit(0, pl.UInt32))
        amounts = pl.concat([counts, *(amounts for _, amounts in of_amounts)])
        invoices = pl.concat([no_rows.drop("named"), *of_invoices])
        return Repeats(pl.concat([no_rows["_row"], *ids]), *map(self._placed, (bills, amounts, invoices)))

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        if rows.is_empty():
            return rows.with_columns(_place=pl.lit(None, pl.String))
        places = self._places.of(rows["_first"])
        return rows.sort("_row").join(places, on="_first", how="left", maintain_order="left")


def _repeated_bills(rows: pl.DataFrame, days: int) -> pl.DataFrame:
    nameless = pl.col("payment_id").is_null()
    again = pl.int_range(pl.len()).over(*_DIGESTS, "payment_id") > 0
    first = pl.col("_row").first().over(_DIGESTS)
    named = (nameless.cast(pl.UInt32).cum_sum().over(_DIGESTS) == 0) & ~again
    if rows["day"].null_count() < rows.height:
        near = pl.lit(pl.Series(_near(rows, days), dtype=pl.UInt32))
        first, named = pl.coalesce(near, first), near.is_null() & (nameless | ~again)
    return (
        rows.select("_row", first.alias("_first"), named=named, later=pl.int_range(pl.len()).over(_DIGESTS) > 0)
        .filter("later")
        .drop("later")
    )


class _Days:
    """Earlier rows of one bill, by their days."""

    def __init__(self) -> None:
        self._days: list[tuple[int, int]] = []
        self._first: int | None = None
        self._without: int | None = None

    def add(self, row: int, day: int | None) -> None:
        """Add the next row of the file."""
        self._first = self._first or row
        if day is None:
            self._without = self._without or row
        else:
            insort(self._days, (day, row))

    def near(self, day: int | None, days: int) -> int | None:
        """Return a row that is less than `days` away: one without a day is near to all."""
        if day is None or self._without:
            return self._first if day is None else self._without
        at = bisect_left(self._days, (day - days + 1, 0))
        return self._days[at][1] if at < len(self._days) and self._days[at][0] < day + days else None


def _near(rows: pl.DataFrame, days: int) -> Iterator[int | None]:
    """Return for each row an earlier one of the same bill that is near, unless both have a paymentId."""
    seen: defaultdict[tuple[int, int], tuple[_Days, _Days]] = defaultdict(lambda: (_Days(), _Days()))
    for row, payment_id, day, *digests in rows.select("_row", "payment_id", "day", *_DIGESTS).iter_rows():
        of_all, of_nameless = seen[digests[0], digests[1]]
        yield (of_nameless if payment_id is not None else of_all).near(day, days)
        of_all.add(row, day)
        if payment_id is None:
            of_nameless.add(row, day)


def _same_amounts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return of rows of one account and amount the first one that is another bill than the first row."""
    first = pl.col("digest_1").first()
    return (
        rows.group_by("digest_0", maintain_order=True)
        .agg(
            pl.col("_row").filter(pl.col("digest_1") != first).first(),
            pl.col("_row").first().alias("_first"),
            count=pl.len().cast(pl.UInt32),
        )
        .drop_nulls("_row")
        .drop("digest_0")
    )


def _same_invoices(rows: pl.DataFrame) -> pl.DataFrame:
    first = rows.with_columns(
        pl.col("_row").first().over("of_invoice").alias("_first"),
        is_other=pl.col("digest_0") != pl.col("digest_0").first().over("of_invoice"),
    )
    return first.filter("is_other").select("_row", "_first")


def _fit(frame: pl.DataFrame, unfit: pl.Series | None) -> pl.DataFrame:
    return frame.filter(~unfit) if unfit is not None and unfit.any() else frame


def bits_of(rows: int, true: pl.Series) -> pl.Series:
    """Return one bit for each of this many rows, true for the row numbers given."""
    bits = pl.repeat(value=False, n=rows, dtype=pl.Boolean, eager=True)
    return bits.scatter(true - 1, values=True) if len(true) else bits


Late = tuple[str, str, str]
"""Column, code and message of a failure that was found outside the rules."""


@dataclass(frozen=True, slots=True, eq=False)
class InFile:
    """A rule that rows break because they are not unique in their file."""

    facts: RuleFacts
    rows: pl.DataFrame
    """`_row`, and the columns that `message` reads: messages are made for some rows at a time."""
    message: pl.Expr
    held: pl.Series | None = None
    """The rows that `policy.hold` holds, where one row is told for more of them."""


class NullWords:
    """Rows that pass with one null word, which may be a name: payees of two accounts are not both called Null."""

    def __init__(self) -> None:
        self._rows: dict[str, list[pl.Series]] = {}
        self._accounts: set[str] = set()
        """Two accounts that are paid, or the only one."""

    def add(self, findings: Findings, passed: pl.Series) -> None:
        """Note what the rows of a chunk that passed are warned of."""
        for one in findings.violations:
            if one.code == "placeholder" and not one.is_error and (rows := (one.flag & passed).arg_true()).len():
                self._rows.setdefault(one.column, []).append(findings.rows["_row"].gather(rows))
                account = pl.concat_str("achRoutingNumber", "achAccountNumber", separator=" ")
                some = findings.rows[rows].select(account.unique()).to_series().head(2)
                self._accounts = set([*self._accounts, *some][:2])

    def late(self) -> Iterator[InFile]:
        """Yield the failures, by column, where more than one account is paid."""
        for column, rows in self._rows.items() if len(self._accounts) > 1 else ():
            rule = facts("text.placeholder", column)
            yield InFile(rule, pl.concat(rows).to_frame("_row"), pl.lit(rule.message))


class LateRows:
    """Rows that fail, or get a warning, because of something elsewhere: in the same file, or in an earlier batch."""

    def __init__(self, rows: int, in_file: Sequence[InFile], elsewhere: Mapping[int, Late]) -> None:
        self._in_file, self._elsewhere = in_file, elsewhere
        late = pl.Series([*elsewhere], dtype=pl.UInt32)
        self._bits = bits_of(rows, pl.concat([late, *(one.rows["_row"] for one in in_file)]))
        self.any = bool(self._bits.any())

    def among(self, rows: pl.Series) -> pl.Series:
        """Return which of these rows are late."""
        return self._bits.gather(rows - 1)

    def violations(self, rows: pl.Series) -> list[Violation]:
        """Return the violations of these rows."""
        violations = []
        for one in self._in_file:
            found = one.rows.filter(pl.col("_row").is_between(rows.min(), rows.max())).select(
                "_row", message=one.message
            )
            messages = rows.to_frame("_row").join(found, on="_row", how="left", maintain_order="left")["message"]
            violations.append(row_violation(one.facts, messages))
        late = [self._elsewhere.get(row) for row in rows.to_list()] if self._elsewhere else []
        for column, code in sorted({(one[0], one[1]) for one in late if one}):
            texts = [one[2] if one and one[:2] == (column, code) else None for one in late]
            messages = pl.Series(texts, dtype=pl.String)
            violations.append(row_violation(RuleFacts(column, code, "error", "H", "", ""), messages))
        return [violation for violation in violations if violation.flag.any()]


def late_in_file(repeats: Repeats, options: RuleOptions) -> list[InFile]:
    """List the rules that rows break because they are not unique in their file."""
    first = pl.format("is the same bill as {} of this file", "_place")
    rows = repeats.payment_ids.to_frame("_row")
    found = [InFile(PAYMENT_ID_DUPLICATE, rows, pl.lit(PAYMENT_ID_DUPLICATE.message))]
    if not options.allows_repeated_bills:
        # An invoice number always helps; a paymentId no longer does once the first row was sent without one.
        due = "take it out, or if both are due give it an invoice number of its own"
        due += ", or submit it with --allow-duplicates --reason TEXT"
        message = pl.format("{} (account, direction, amount, invoice number), {}", first, pl.lit(due))
        found.append(InFile(ROW_DUPLICATE, repeats.bills.filter(~pl.col("named")), message))
    severity = "error" if options.warnings_as_errors else "warning"
    if ROW_SAME_AMOUNT.name not in options.rules_off:
        told = "the same amount goes to this account {} times in this file, first in {}, make sure that each is due"
        message = pl.format(told, "count", "_place")
        found.append(InFile(ROW_SAME_AMOUNT, repeats.amounts, message))
    if not options.allow_duplicates and ROW_SAME_INVOICE.name not in options.rules_off:
        told = "has the invoice number and account of {} of this file, and another amount, make sure that both are due"
        message = pl.format(told, "_place")
        found.append(InFile(replace(ROW_SAME_INVOICE, severity=severity), repeats.invoices, message))
    if ROW_SAME_PAYMENT.name not in options.rules_off:
        message = pl.format("{} under another paymentId or on another day, make sure that both are due", first)
        found.append(InFile(replace(ROW_SAME_PAYMENT, severity=severity), repeats.bills.filter("named"), message))
    return found


def merged(rejected: FrameSpool, late: FrameSpool) -> Iterator[pl.DataFrame]:
    """Merge rows that were rejected late with the others, in row order; a late one has all reasons of its row."""
    later = _Waiting(late)
    for frame in rejected:
        among = later.up_to(int(frame["_row"].to_list()[-1]))
        yield frame.join(among, on="_row", how="anti").vstack(among).sort("_row") if among.height else frame
    yield from later.rest()


class _Waiting:
    """Frames in row order, taken up to a given row at a time."""

    def __init__(self, frames: FrameSpool) -> None:
        self._frames = iter(frames)
        self._next = next(self._frames, None)

    def up_to(self, row: int) -> pl.DataFrame:
        """Take the rows up to and including this one."""
        taken = pl.DataFrame()
        while self._next is not None:
            within = self._next.filter(pl.col("_row") <= row)
            beyond = self._next.filter(pl.col("_row") > row)
            taken = taken.vstack(within) if taken.width else within
            self._next = beyond if beyond.height else next(self._frames, None)
            if beyond.height:
                break
        return taken

    def rest(self) -> Iterator[pl.DataFrame]:
        """Take what is left."""
        if self._next is not None:
            yield self._next
            yield from self._frames
