"""Chunks of a payment file in, results out: every broken rule of every row, and which rows are not unique.

It reads no file and writes none. The caller counts, keeps and writes what a result holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from typing import Protocol

import polars as pl

from batchpay.errors import SettingsNotUsable
from batchpay.intake.streams import ahead
from batchpay.schemas import checks
from batchpay.schemas.amount_text import UNIT_UNKNOWN
from batchpay.schemas.catalogue import check_rules_off
from batchpay.schemas.checks import normalize
from batchpay.schemas.columns import (
    ALONE,
    BARE_ROW,
    CASH_FLOW,
    COLUMNS,
    FAULT,
    MAP_FAULT,
    PAY_ON,
    PAYMENT_ID,
    TEXT_FORMULA,
)
from batchpay.schemas.forms import ACCOUNT, AMOUNT, IDENTIFIER
from batchpay.schemas.identity import COMPARED
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.carried import Carried
from batchpay.validation.compiled_rules import (
    Findings,
    Violation,
    any_of,
    constant_mask,
    marks_of,
    nothing_proven,
    rule_book,
)
from batchpay.validation.duplicates import Late, LateRows, NullWords, Places, Unfit, Uniqueness, late_in_file
from batchpay.validation.payees import PAYEE, Payees
from batchpay.validation.rejects import packed, unpacked
from batchpay.validation.sums import Sums
from batchpay.validation.verdict import ChunkResult, Verdict, correct, without_marks

_ROWS_AT_ONCE = 25_000
"""How many rows are passed on at a time, so that processing them takes little memory."""
_JUDGED_AT_ONCE = 20_000
"""How many rows wait before all rules are evaluated for them: each time costs as much as 5,000 rows do."""
_MANY = 5_000
"""This many rows of one chunk wait for no others, which would only take memory."""
_BAD_TO_GOOD = 20
"""Where this many rows of a chunk fail for each one that passes, the next chunk is judged without proving first."""
_PROVEN_COLUMNS = ("_row", "_line", *(name for name in COLUMNS if name in (*CASH_FLOW, *COMPARED, *PAYEE)))
"""All columns that are counted and compared for a row that keeps every rule."""
_COUNTED_AS_IS = {"amount": AMOUNT, "achAccountNumber": ACCOUNT}
_COMPARED_AS_IS = {**_COUNTED_AS_IS, PAYMENT_ID: IDENTIFIER, "invoiceNumber": IDENTIFIER}
_AMOUNT_FAULT = f"{FAULT}amount"
_NO_DOLLARS = f"^(?:{MAP_FAULT}|currency_mark: |{UNIT_UNKNOWN})"


class ChunkSource(Protocol):
    """A payment file that can be read repeatedly, chunk by chunk, in the same order."""

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read the file from its beginning: `_row`, `_line`, its known columns as text, then its unknown ones.

        Where they can occur: `_fault.<column>` and `_suggest.<column>` for a typed cell that has no faithful text,
        `_warn.<column>` for one that is doubtful, and `_ragged` for a row whose cells can't be told apart.
        """


class RowCheck:
    """One file's pass through the rules: first `results`, to the end, then `finish`.

    `line_word` is what a row's position is called in the file: `line` in a CSV, `row` in a sheet; `used` are
    carried columns that a map uses all the same.
    """

    def __init__(
        self,
        source: ChunkSource,
        options: RuleOptions,
        storage: ExitStack,
        *,
        line_word: str,
        used: Collection[str] = (),
    ) -> None:
        unknown = check_rules_off(options.rules_off)
        if unknown:
            raise SettingsNotUsable(f"not a house rule that can be switched off: {', '.join(unknown)}")
        self._source, self._options = source, options
        self._book = rule_book(options)
        self._is_counted_as_is, self._is_compared_as_is = (
            all(self._book.forms[name] == form for name, form in forms.items())
            for forms in (_COUNTED_AS_IS, _COMPARED_AS_IS)
        )
        """Whether a proven row has an amount, and whether it has identifiers as well, that can be used as is."""
        self._carried, self._sums = Carried(options, used), Sums(options)
        self._places = Places(line_word)
        self._unique = Uniqueness(storage, self._places, options.duplicate_days)
        self._rows = 0
        self._clean: list[pl.Series] = []
        """One bit per row, chunk by chunk: it is proven and has no warning."""
        self._null_words, self._payees = NullWords(), Payees(storage)

    def results(self) -> Iterator[ChunkResult]:
        """Read the file and yield each row once; rows that are not proven come some thousand rows later."""
        for result in ahead(self._results()):
            if result.may_fail:
                self._unique.add(result.findings.rows, None, self._incomparable(result.findings))
            else:
                self._unique.add(result.findings.rows, result.cents if self._is_compared_as_is else None, None)
            self._payees.add(result.findings.rows, result.passed)
            self._null_words.add(result.findings, result.passed)
            yield result
            del result  # do not keep a chunk in memory while waiting for the next one
        self._repeats = self._unique.repeats()
        of_payees = self._payees.late(self._places, self._options)
        self._in_file = [*late_in_file(self._repeats, self._options), *of_payees, *self._null_words.late()]

    @property
    def late(self) -> pl.Series:
        """Numbers of the rows that fail because of others of the file; known once `results` is exhausted."""
        errors = [one.rows["_row"] for one in self._in_file if one.facts.severity == "error"]
        return pl.concat(errors)

    def held(self, names: Collection[str]) -> Iterator[tuple[str, str, pl.Series]]:
        """Yield column, code and rows of warnings with these names that the file as a whole causes, after `results`."""
        for one in self._in_file:
            if one.facts.severity == "warning" and one.facts.name in names:
                yield one.facts.column, one.facts.code, one.rows["_row"] if one.held is None else one.held

    @property
    def allowed(self) -> pl.DataFrame:
        """`_row`, `_first` and its `_place` of each bill that may pass twice; known once `results` is exhausted."""
        repeated = self._repeats.bills.filter(~pl.col("named")).select("_row", "_first", "_place")
        return repeated if self._options.allows_repeated_bills else repeated.clear()

    @property
    def not_used(self) -> str | None:
        """What the file has and nothing uses, for the summary; known once `results` is exhausted."""
        return self._carried.note()

    def finish(self, late: Mapping[int, Late]) -> Iterator[ChunkResult]:
        """Reread the rows that fail because of something elsewhere: in the file, or per `late`, by row number."""
        late_rows = LateRows(self._rows, self._in_file, late)
        clean = pl.concat(self._clean) if self._clean else pl.Series(dtype=pl.Boolean)
        for chunk in self._source.chunks() if late_rows.any else ():
            is_late = late_rows.among(chunk["_row"])
            if not is_late.any():
                continue
            marked = self._sums.marked(self._carried.marked(chunk.filter(is_late)))
            for as_read in marked.iter_slices(_ROWS_AT_ONCE):
                frame = prepared(as_read, self._options).rows
                findings = self._findings(frame, clean.gather(frame["_row"] - 1))
                passed = ~findings.broken(errors=True)
                violations = late_rows.violations(frame["_row"])
                yield ChunkResult(
                    findings.with_violations(violations), passed, _careful_cents(frame), as_read, late=violations
                )

    def _results(self) -> Iterator[ChunkResult]:
        """Evaluate the rules chunk by chunk, all that need no other chunk."""
        waiting: list[bytes] = []
        waiting_rows, are_bad = 0, False
        for chunk in filter(len, self._source.chunks()):
            assert chunk["_row"].first() == self._rows + 1, "rows are numbered without a gap"
            self._rows += chunk.height
            self._places.add(chunk)
            self._carried.add(chunk)
            chunk = self._carried.marked(chunk)
            made = prepared(chunk, self._options)
            cents_of = checks.cents_of_plain if self._is_counted_as_is else checks.cents
            cents = made.rows.select(_cents=cents_of(pl.col("amount"))).to_series()
            self._sums.add(made.rows, cents)
            chunk, frame = self._sums.marked(chunk), self._sums.marked(made.rows)
            proof = nothing_proven(frame.height) if are_bad else self._book.prove(frame)
            self._clean.append(
                ~any_of([proof.unproven, *(violation.flag for violation in proof.warnings)], frame.height)
            )
            if not proof.unproven.any():
                yield self._proven(made, frame, cents, proof.warnings)
                continue
            proven = ~proof.unproven
            unproven = chunk.filter(proof.unproven) if proven.any() else chunk
            frame = frame.select(_PROVEN_COLUMNS).filter(proven)
            if frame.height or made.repairs or made.accepted:
                warnings = [violation.only(proven) for violation in proof.warnings]
                yield self._proven(made, frame, cents.filter(proven), warnings)
            waiting_rows += unproven.height
            if waiting_rows < _JUDGED_AT_ONCE and unproven.height < _MANY:
                waiting.append(packed(unproven))
                continue
            judged = self._judged(pl.concat([*map(unpacked, waiting), unproven], how="diagonal"))
            are_bad = (frame.height + judged.passed.sum()) * _BAD_TO_GOOD < chunk.height
            yield judged
            del judged
            waiting, waiting_rows = [], 0
        if waiting:
            yield self._judged(pl.concat(map(unpacked, waiting), how="diagonal"))

    def _proven(
        self, made: Prepared, frame: pl.DataFrame, cents: pl.Series, warnings: Sequence[Violation]
    ) -> ChunkResult:
        passed = constant_mask(frame.height, value=True)
        return ChunkResult(Findings(frame, warnings), passed, cents, repairs=made.repairs, accepted=made.accepted)

    def _judged(self, chunk: pl.DataFrame) -> ChunkResult:
        frame = prepared(chunk, self._options).rows
        findings = self._book.judge(frame)
        return ChunkResult(findings, ~findings.broken(errors=True), _careful_cents(frame), chunk)

    def _findings(self, frame: pl.DataFrame, clean: pl.Series) -> Findings:
        """Find every rule that rows break; evaluate all rules only for unproven rows, and none for clean ones."""
        rows = frame.filter(~clean)
        proof = self._book.prove(rows)
        judged = self._book.judge(rows.filter(proof.unproven))
        found = Findings(rows, proof.warnings).with_violations(
            [violation.spread(proof.unproven) for violation in judged.violations]
        )
        return Findings(frame, [violation.spread(~clean) for violation in found.violations])

    def _incomparable(self, findings: Findings) -> Unfit:
        """Return for each row whether its paymentId, and whether its cells, can't be compared with other rows'."""
        unfit = findings.rows.select(
            pl.any_horizontal(
                *more, *(pl.col(name).is_not_null() for name in marks_of(findings.rows) if name in marks)
            ).alias(of)
            for of, marks, more in (
                ("id", (*ALONE, FAULT + PAYMENT_ID), [~self._book.is_text(PAYMENT_ID)]),
                ("cells", (*ALONE, *(FAULT + name for name in COMPARED)), [pl.lit(value=False)]),
            )
        )
        return unfit["id"], unfit["cells"]


def all_rows(source: ChunkSource, options: RuleOptions) -> Iterator[pl.DataFrame]:
    """Read the file as the rules see it: `_row`, `_line`, all known columns (repaired on request), then the unknown."""
    for chunk in source.chunks():
        frame = without_marks(prepared(chunk, options).rows, keep=BARE_ROW)
        del chunk
        yield from frame.iter_slices(_ROWS_AT_ONCE)
        del frame


def valid_rows(source: ChunkSource, options: RuleOptions, verdict: Verdict) -> Iterator[pl.DataFrame]:
    """Read the file once more and yield the rows that passed; no rule is evaluated again."""
    for frame in all_rows(source, options):
        passed = frame.filter(~verdict.rejected_mask(frame["_row"]))
        if passed.height:
            yield passed


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A chunk as the rules see it."""

    rows: pl.DataFrame
    """With all known columns, in their order."""
    repairs: Mapping[str, int]
    """Cells that were repaired, by column."""
    accepted: Mapping[str, int]
    """Cells that took the suggested value, by rule."""


def prepared(chunk: pl.DataFrame, options: RuleOptions) -> Prepared:
    """Give a chunk all known columns, repair it, and correct what is certain, both only if requested."""
    as_read = frame = _with_all_columns(chunk, options.pay_on)
    repairs, accepted = dict[str, int](), dict[str, int]()
    if options.normalize or options.accept_suggestions:
        frame = frame.drop(BARE_ROW, strict=False)  # it describes the cells as read
    if options.normalize:
        frame, repairs = normalize(frame)
    if options.accept_suggestions:
        frame, accepted = correct(as_read, frame, rule_book(options), options.accept_suggestions)
    return Prepared(frame, repairs, accepted)


def _with_all_columns(chunk: pl.DataFrame, pay_on: date | None) -> pl.DataFrame:
    known = [pl.col(name) if name in chunk.columns else pl.lit(None, pl.String).alias(name) for name in COLUMNS]
    if pay_on is not None:
        known[COLUMNS.index(PAY_ON)] = pl.lit(f"{pay_on:%m/%d/%Y}").alias(PAY_ON)
    others = [name for name in chunk.columns if name not in COLUMNS and name not in ("_row", "_line")]
    return chunk.select("_row", "_line", *known, *others)


def _careful_cents(frame: pl.DataFrame) -> pl.Series:
    """Return the cents of amounts however they are written, null where one can't be read."""
    amounts = frame["amount"]
    if _AMOUNT_FAULT in frame.columns:  # if the map can't read an amount, or it isn't known to be dollars, nobody can
        amounts = amounts.set(frame[_AMOUNT_FAULT].str.contains(_NO_DOLLARS).fill_null(value=False), None)
    cents = pl.select(checks.cents_of_money(pl.lit(amounts))).to_series()
    unreadable = (cents.is_null() & amounts.is_not_null()).arg_true()
    return cents.scatter(
        unreadable, pl.select(checks.cents(pl.lit(amounts[unreadable]).str.replace(TEXT_FORMULA, "${1}"))).to_series()
    )
