"""Chunks of a payment file in, a verdict out: every broken rule of every row, control totals, rejects.

The left half's middle: it reads no file and writes none, and nothing of a row leaves it but through the callbacks that
the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from batchpay.errors import SettingsNotUsable
from batchpay.intake.prefetch import ahead
from batchpay.payment import Direction, Totals
from batchpay.schemas import checks
from batchpay.schemas.catalogue import PAYMENT_ID_DUPLICATE, ROW_DUPLICATE, check_rules_off
from batchpay.schemas.columns import COLUMNS, PAYMENT_ID, PLAIN
from batchpay.schemas.normal import normalize
from batchpay.schemas.options import RuleOptions
from batchpay.validation.compiled_rules import (
    FAULT,
    RAGGED,
    SUGGEST,
    Findings,
    Hit,
    RuleBook,
    alike,
    messages,
    reasons,
    suggested,
    suggestions,
)
from batchpay.validation.duplicates import FrameSpool, Uniqueness
from batchpay.validation.late_failures import Late, LateRows, merged

FAILURES_MAX = 1000
_ROWS_AT_ONCE = 25_000
"""So many rows are handed on: what is made of them takes little memory."""


class ChunkSource(Protocol):
    """A payment file that can be read again and again, chunk by chunk, in the same order."""

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read the file from its beginning: `_row`, `_line`, its known columns as text, then its unknown ones.

        Where they can occur: `_fault.<column>` and `_suggest.<column>` for a typed cell that is no faithful text, and
        `_ragged` for a row whose cells can't be told apart. `_plain` is batchpay.schemas.columns.PLAIN.
        """


class RejectsSink(Protocol):
    """Takes the rows that failed, as read, with `_errors`, `_warnings` and `_suggestions`."""

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows of one chunk, in row order."""

    def late(self, frame: pl.DataFrame) -> None:
        """Take rows in row order that only the whole file showed to fail; one that was added before replaces it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One broken rule of one row."""

    row: int
    line: int | None
    column: str
    code: str
    severity: str
    message: str
    suggestion: str | None
    """The right value, where it is certain."""


@dataclass(slots=True)
class Verdict:
    """What a whole file comes to."""

    rows: int = 0
    total: Totals = Totals()
    valid: Totals = Totals()
    rejected: Totals = Totals()
    by_direction: dict[str, Totals] = field(default_factory=lambda: {name.value: Totals() for name in Direction})
    """Totals of the valid rows, by DEBIT and CREDIT."""
    unreadable_amounts: int = 0
    """Rows whose amount counts 0 in the totals, since it can't be read."""
    warnings: int = 0
    warned_rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Errors by `column.code`."""
    warning_counts: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    """The first errors, in row order."""
    warning_failures: list[Failure] = field(default_factory=list)
    """The first warnings, in row order."""
    repairs: dict[str, int] = field(default_factory=dict)
    """Cells that `--normalize` changed, by column."""
    passed: pl.Series = field(default_factory=lambda: pl.Series("passed", dtype=pl.Boolean))
    """One bit a row: whether it passed."""

    def is_rejected(self, row: int) -> bool:
        """Whether a row failed a rule."""
        return not self.passed[row - 1]

    def rejected_mask(self, rows: pl.Series) -> pl.Series:
        """Tell for each of these row numbers whether it failed a rule."""
        return ~self.passed.gather(rows - 1)


def check(
    source: ChunkSource,
    options: RuleOptions,
    *,
    rejects: RejectsSink | None = None,
    watch: Callable[[pl.DataFrame, pl.Series], None] | None = None,
    late: Callable[[Verdict], Mapping[int, Late]] | None = None,
    on_rejected: Callable[[pl.DataFrame], None] | None = None,
    max_failures: int = FAILURES_MAX,
) -> Verdict:
    """Hold a whole file against the rules.

    `watch` gets all rows, some thousand at a time, as the rules see them (`_row`, `_line`, all known columns, the
    carried ones) and which of them passed so far. `late` is asked once all rows are known and names further rows that
    fail. `on_rejected` gets, at the end and in row order, `_row`, `_line`, `_cents` and `_reasons` of every rejected
    row. Reads the source once, and again only where something stands in it twice or `late` names a row.
    """
    with ExitStack() as storage:
        return _Check(source, options, rejects, storage, on_rejected, max_failures).run(watch, late)


def all_rows(source: ChunkSource, options: RuleOptions) -> Iterator[pl.DataFrame]:
    """Read the file as the rules see it: `_row`, `_line`, all known columns, repaired if asked, the carried ones."""
    for chunk in source.chunks():
        frame = _without_marks(_prepared(chunk, options)[0])
        del chunk
        yield from frame.iter_slices(_ROWS_AT_ONCE)
        del frame


def valid_rows(source: ChunkSource, options: RuleOptions, verdict: Verdict) -> Iterator[pl.DataFrame]:
    """Read the file once more and give the rows that passed; the rules are not asked again."""
    for frame in all_rows(source, options):
        passed = frame.filter(~verdict.rejected_mask(frame["_row"]))
        if passed.height:
            yield passed


def _prepared(chunk: pl.DataFrame, options: RuleOptions) -> tuple[pl.DataFrame, dict[str, int]]:
    """Give a chunk all known columns, in their order, and repair it if asked."""
    repairs: dict[str, int] = {}
    if options.normalize:
        chunk, repairs = normalize(chunk)
    known = [pl.col(name) if name in chunk.columns else pl.lit(None, pl.String).alias(name) for name in COLUMNS]
    others = [name for name in chunk.columns if name not in COLUMNS and name not in ("_row", "_line")]
    return chunk.select("_row", "_line", *known, *others), repairs


def _without_marks(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop(name for name in frame.columns if name in (RAGGED, PLAIN) or name.startswith((FAULT, SUGGEST)))


@dataclass(frozen=True, slots=True)
class _Look:
    """What the rules say of a chunk by itself."""

    frame: pl.DataFrame
    """As the rules see it."""
    repairs: dict[str, int]
    cents: pl.Series
    passed: pl.Series
    """Which rows passed."""
    findings: Findings | None
    rejects: pl.DataFrame | None
    """The rows that failed, as read, with what is wrong with them."""


class _Check:
    """One file's way through the rules."""

    def __init__(
        self,
        source: ChunkSource,
        options: RuleOptions,
        rejects: RejectsSink | None,
        storage: ExitStack,
        on_rejected: Callable[[pl.DataFrame], None] | None,
        max_failures: int,
    ) -> None:
        unknown = check_rules_off(options.rules_off)
        if unknown:
            raise SettingsNotUsable(f"no house rule that can be switched off: {', '.join(unknown)}")
        self._source, self._options, self._rejects, self._max_failures = source, options, rejects, max_failures
        self._book = RuleBook(options)
        self._storage, self._on_rejected = storage, on_rejected
        self._unique = Uniqueness(
            storage,
            payment_ids=PAYMENT_ID_DUPLICATE.name not in options.rules_off,
            rows=not options.allow_duplicates and ROW_DUPLICATE.name not in options.rules_off,
        )
        self._rejected = FrameSpool(storage) if on_rejected is not None else None
        self._verdict = Verdict()
        self._passed: list[pl.Series] = []

    def run(
        self,
        watch: Callable[[pl.DataFrame, pl.Series], None] | None,
        late: Callable[[Verdict], Mapping[int, Late]] | None,
    ) -> Verdict:
        verdict = self._verdict
        for look in ahead(self._looks()):
            self._take(look)
            if watch is not None:
                for start in range(0, look.frame.height, _ROWS_AT_ONCE):
                    rows = look.frame.slice(start, _ROWS_AT_ONCE)
                    watch(_without_marks(rows), look.passed.slice(start, _ROWS_AT_ONCE))
            del look  # a chunk, while the next one is waited for
        if self._passed:
            verdict.passed = pl.concat(self._passed)
        self._passed.clear()
        by_id, alike = self._unique.duplicates(verdict.rows, lambda: all_rows(self._source, self._options))
        verdict.passed = _mark_failed(verdict.passed, pl.concat([by_id, alike]))
        elsewhere = late(verdict) if late is not None else {}
        verdict.passed = _mark_failed(verdict.passed, pl.Series(list(elsewhere), dtype=pl.UInt32))
        late_rejected = self._last_look(LateRows(verdict.rows, by_id, alike, elsewhere))
        if self._on_rejected is not None and self._rejected is not None:
            for rejected in merged(self._rejected, late_rejected):
                self._on_rejected(rejected)
        return verdict

    def _looks(self) -> Iterator[_Look]:
        """Ask the rules chunk by chunk, all that needs no other chunk."""
        return map(self._look, filter(len, self._source.chunks()))

    def _look(self, chunk: pl.DataFrame) -> _Look:
        frame, repairs = _prepared(chunk, self._options)
        findings = self._book.evaluate(frame)
        cents, passed, rejects = _cents(frame, findings), alike(frame.height, value=True), None
        if findings is not None:
            failed = findings.broken(errors=True)
            passed = passed.scatter(findings.mask.arg_true().filter(failed), values=False)
            if self._rejects is not None and failed.any():
                rejects = _with_messages(chunk.filter(findings.mask), findings).filter(failed)
        return _Look(frame, repairs, cents, passed.alias("passed"), findings, rejects)

    def _take(self, look: _Look) -> None:
        """Count a chunk in and hand its rejects on."""
        verdict, frame, findings, cents = self._verdict, look.frame, look.findings, look.cents
        assert frame["_row"].first() == verdict.rows + 1, "rows are numbered without a gap"
        _add(verdict.repairs, look.repairs)
        verdict.unreadable_amounts += cents.null_count()
        if findings is not None:
            self._count(findings)
            self._note_failures(findings, findings.hits)
            failed = findings.broken(errors=True)
            if self._rejected is not None and failed.any():
                self._rejected.append(_for_ledger(findings, cents.filter(findings.mask), failed))
        if self._rejects is not None and look.rejects is not None:
            self._rejects.add(look.rejects)
        self._add_totals(frame, cents, look.passed)
        self._unique.add(frame, *((None, None) if findings is None else self._incomparable(findings)))
        self._passed.append(look.passed)

    def _add_totals(self, frame: pl.DataFrame, cents: pl.Series, passed: pl.Series) -> None:
        verdict = self._verdict
        total, valid = _totals(cents), _totals(cents.filter(passed))
        debits = _totals(cents.filter(passed & (frame["transactionType"] == Direction.DEBIT)))
        verdict.rows += frame.height
        verdict.total += total
        verdict.valid += valid
        verdict.rejected += Totals(total.rows - valid.rows, total.cents - valid.cents)
        verdict.by_direction[Direction.DEBIT.value] += debits
        verdict.by_direction[Direction.CREDIT.value] += Totals(valid.rows - debits.rows, valid.cents - debits.cents)

    def _count(self, findings: Findings) -> None:
        self._verdict.warned_rows += int(findings.broken(errors=False).sum())
        for hit in findings.hits:
            count = int(hit.flag.sum())
            _add(self._verdict.counts if hit.is_error else self._verdict.warning_counts, {hit.name: count})
            self._verdict.warnings += 0 if hit.is_error else count

    def _note_failures(self, findings: Findings, hits: Sequence[Hit]) -> None:
        """Keep the first failures, errors and warnings apart."""
        for errors, kept in ((True, self._verdict.failures), (False, self._verdict.warning_failures)):
            room = self._max_failures - len(kept)
            if room > 0:
                kept += _failures(findings, [hit for hit in hits if hit.is_error is errors], room)

    def _incomparable(self, findings: Findings) -> tuple[pl.Series, pl.Series]:
        """Tell for each row of a chunk whether its paymentId, and whether its cells, can't be compared with others'."""
        faults = [name for name in findings.rows.columns if name == RAGGED or name.startswith(FAULT)]
        of_id = [name for name in faults if name in (RAGGED, FAULT + PAYMENT_ID)]
        bad_id = ~self._book.keeps_all(PAYMENT_ID)
        unfit = findings.rows.select(
            pl.any_horizontal(bad_id, *(pl.col(name).is_not_null() for name in marks)).alias(of)
            for of, marks in (("id", of_id), ("cells", faults))
        )
        places = findings.mask.arg_true()
        by_id, by_cells = (alike(len(findings.mask), value=False).scatter(places, rows) for rows in unfit)
        return by_id, by_cells

    def _last_look(self, late: LateRows) -> FrameSpool:
        """Read the rows once more that only the whole file, or an earlier batch, showed to fail."""
        verdict, late_rejected = self._verdict, FrameSpool(self._storage)
        for chunk in self._source.chunks() if late.any else ():
            is_late = late.among(chunk["_row"])
            if not is_late.any():
                continue
            as_read = chunk.filter(is_late)
            frame, _ = _prepared(as_read, self._options)
            findings = self._book.evaluate(frame, every_row=True)
            assert findings is not None, "every row was asked for"
            passed_before = ~findings.broken(errors=True)
            hits = late.hits(frame["_row"])
            findings = findings.with_hits(hits)
            cents = frame.select(_cents=checks.cents(pl.col("amount"))).to_series()
            self._move_to_rejected(frame, cents, passed_before)
            for hit in hits:
                _add(verdict.counts, {hit.name: int(hit.flag.sum())})
            failed = findings.broken(errors=True)
            late_rejected.append(_for_ledger(findings, cents, failed))
            if self._rejects is not None and failed.any():
                self._rejects.late(_with_messages(as_read, findings).filter(failed))
            late_failures = _failures(findings, hits, self._max_failures)
            first = sorted([*verdict.failures, *late_failures], key=lambda failure: failure.row)
            verdict.failures = first[: self._max_failures]
        return late_rejected

    def _move_to_rejected(self, frame: pl.DataFrame, cents: pl.Series, passed_before: pl.Series) -> None:
        verdict = self._verdict
        for direction in Direction:
            moved = _totals(cents.filter(passed_before & (frame["transactionType"] == direction)))
            verdict.rejected += moved
            verdict.valid += Totals(-moved.rows, -moved.cents)
            verdict.by_direction[direction.value] += Totals(-moved.rows, -moved.cents)


def _cents(frame: pl.DataFrame, findings: Findings | None) -> pl.Series:
    """Give every row's cents, null where the amount can't be read. Rows without findings have plain amounts."""
    cents = frame.select(_cents=checks.cents_of_plain(pl.col("amount"))).to_series()
    if findings is None:
        return cents
    amounts = findings.rows["amount"]
    careful = findings.rows.select(checks.cents_of_money(pl.col("amount"))).to_series()
    odd = (careful.is_null() & amounts.is_not_null()).arg_true()
    careful = careful.scatter(odd, pl.select(checks.cents(pl.lit(amounts[odd]))).to_series())
    return cents.scatter(findings.mask.arg_true(), careful)


def _with_messages(as_read: pl.DataFrame, findings: Findings) -> pl.DataFrame:
    """Add to the rows of the findings what is wrong with them."""
    return _without_marks(as_read).with_columns(
        messages(findings, errors=True).alias("_errors"),
        messages(findings, errors=False).alias("_warnings"),
        suggestions(findings).alias("_suggestions"),
    )


def _mark_failed(passed: pl.Series, rows: pl.Series) -> pl.Series:
    return passed.scatter(rows - 1, values=False) if len(rows) else passed


def _totals(cents: pl.Series) -> Totals:
    return Totals(len(cents), int(cents.cast(pl.Int128).sum()))


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _failures(findings: Findings, hits: Sequence[Hit], most: int) -> list[Failure]:
    """Give the first failures of these rules, in row order."""
    found: list[tuple[int, Hit]] = []
    for hit in hits:
        found += [(position, hit) for position in hit.flag.arg_true().head(most).to_list()]
    found = sorted(found, key=lambda pair: (pair[0], pair[1].order))[:most]
    rows, lines = findings.rows["_row"], findings.rows["_line"]
    right = {hit: suggested(findings, hit) for hit in {hit for _, hit in found}}
    failures = []
    for position, hit in found:
        values = right[hit]
        failures.append(
            Failure(
                row=rows[position],
                line=lines[position],
                column=hit.column,
                code=hit.code,
                severity="error" if hit.is_error else "warning",
                message=hit.message if isinstance(hit.message, str) else hit.message[position],
                suggestion=values[position] if values is not None else None,
            )
        )
    return failures


def _for_ledger(findings: Findings, cents: pl.Series, failed: pl.Series) -> pl.DataFrame:
    rows = findings.rows.select("_row", "_line").with_columns(
        cents.fill_null(0).alias("_cents"), reasons(findings).alias("_reasons")
    )
    return rows.filter(failed)
