"""Chunks of a payment file in, results out: every broken rule of every row, and which rows are not unique.

It reads no file and writes none. What a result holds is counted, kept and written by whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from batchpay.errors import SettingsNotUsable
from batchpay.intake.prefetch import ahead
from batchpay.schemas import checks
from batchpay.schemas.catalogue import check_rules_off
from batchpay.schemas.columns import (
    ALONE,
    BARE_ROW,
    CASH_FLOW,
    COLUMNS,
    FAULT,
    MAP_FAULT,
    PAYMENT_ID,
    READ_FLAGS,
    TEXT_FORMULA,
    WARN,
)
from batchpay.schemas.forms import ACCOUNT, AMOUNT
from batchpay.schemas.identity import COMPARED
from batchpay.schemas.normal import normalize
from batchpay.schemas.options import RuleOptions
from batchpay.validation.chunk_result import ChunkResult, without_marks
from batchpay.validation.compiled_rules import (
    Findings,
    Hit,
    any_of,
    constant_mask,
    marks_of,
    nothing_proven,
    rule_book,
)
from batchpay.validation.corrections import correct
from batchpay.validation.duplicates import Places, Unfit, Uniqueness
from batchpay.validation.late_failures import Late, LateRows, late_in_file
from batchpay.validation.packed import packed, unpacked
from batchpay.validation.verdict import Verdict

_ROWS_AT_ONCE = 25_000
"""So many rows are handed on: what is made of them takes little memory."""
_JUDGED_AT_ONCE = 5_000
"""So many rows wait before all rules are asked of them: a few at a time cost five times as much a row."""
_BAD_TO_GOOD = 20
"""Where so many rows of a chunk fail for one that passes, the next chunk is judged without looking what is proven."""
_PROVEN_COLUMNS = ("_row", "_line", *(name for name in COLUMNS if name in (*CASH_FLOW, *COMPARED)))
"""All that is counted and compared of a row that keeps every rule."""
_AMOUNT_FAULT = f"{FAULT}amount"


class ChunkSource(Protocol):
    """A payment file that can be read again and again, chunk by chunk, in the same order."""

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read the file from its beginning: `_row`, `_line`, its known columns as text, then its unknown ones.

        Where they can occur: `_fault.<column>` and `_suggest.<column>` for a typed cell that is no faithful text,
        `_warn.<column>` for one that is doubtful, and `_ragged` for a row whose cells can't be told apart.
        """


class Check:
    """One file's way through the rules: first `results`, to the end, then `finish`.

    `line_word` is what the place of a row is called in the file: `line` of a CSV, `row` of a sheet.
    """

    def __init__(self, source: ChunkSource, options: RuleOptions, storage: ExitStack, *, line_word: str) -> None:
        unknown = check_rules_off(options.rules_off)
        if unknown:
            raise SettingsNotUsable(f"not a house rule that can be switched off: {', '.join(unknown)}")
        self._source, self._options = source, options
        self._book = rule_book(options)
        self._is_plain = (self._book.forms["amount"], self._book.forms["achAccountNumber"]) == (AMOUNT, ACCOUNT)
        """Whether a row that is proven has an amount and an account that can be taken as they stand."""
        self._places = Places(line_word)
        self._unique = Uniqueness(storage, self._places)
        self._rows = 0
        self._clean: list[pl.Series] = []
        """One bit a row of the chunks: it is proven, and nothing is to be warned of."""
        self._repeats = self._unique.repeats()
        self._in_file = late_in_file(self._repeats, options)

    def results(self) -> Iterator[ChunkResult]:
        """Read the file and give each row once; those that are not proven at first come some thousand later."""
        for result in ahead(self._results()):
            if result.may_fail:
                self._unique.add(result.findings.rows, None, self._incomparable(result.findings))
            else:
                self._unique.add(result.findings.rows, result.cents if self._is_plain else None, None)
            yield result
            del result  # a chunk, while the next one is waited for
        self._repeats = self._unique.repeats()
        self._in_file = late_in_file(self._repeats, self._options)

    @property
    def duplicates(self) -> pl.Series:
        """Numbers of the rows that fail since the file has them twice; known once `results` came to its end."""
        errors = [one.rows["_row"] for one in self._in_file if one.facts.severity == "error"]
        return pl.concat(errors)

    @property
    def allowed(self) -> pl.DataFrame:
        """`_row`, `_first` and its `_place` of each bill that may pass twice; known once `results` came to its end."""
        repeated = self._repeats.bills.filter(~pl.col("named")).select("_row", "_first", "_place")
        return repeated if self._options.allows_repeated_bills else repeated.clear()

    def finish(self, late: Mapping[int, Late]) -> Iterator[ChunkResult]:
        """Read the rows once more that break something elsewhere: in the file, or as `late` tells by row number."""
        late_rows = LateRows(self._rows, self._in_file, late)
        clean = pl.concat(self._clean) if self._clean else pl.Series(dtype=pl.Boolean)
        for chunk in self._source.chunks() if late_rows.any else ():
            is_late = late_rows.among(chunk["_row"])
            if not is_late.any():
                continue
            for as_read in chunk.filter(is_late).iter_slices(_ROWS_AT_ONCE):
                frame = prepared(as_read, self._options).rows
                findings = self._findings(frame, clean.gather(frame["_row"] - 1))
                passed = ~findings.broken(errors=True)
                hits = late_rows.hits(frame["_row"])
                yield ChunkResult(findings.with_hits(hits), passed, _careful_cents(frame), as_read, late=hits)

    def _results(self) -> Iterator[ChunkResult]:
        """Ask the rules chunk by chunk, all that needs no other chunk."""
        waiting: list[bytes] = []
        waiting_rows, are_bad = 0, False
        for chunk in filter(len, self._source.chunks()):
            assert chunk["_row"].first() == self._rows + 1, "rows are numbered without a gap"
            self._rows += chunk.height
            self._places.add(chunk)
            made = prepared(chunk, self._options)
            frame = made.rows
            proof = nothing_proven(frame.height) if are_bad else self._book.prove(frame)
            self._clean.append(~any_of([proof.unproven, *(hit.flag for hit in proof.warnings)], frame.height))
            if not proof.unproven.any():
                yield self._proven(made, frame, proof.warnings)
                continue
            odd = chunk.filter(proof.unproven)
            proven = ~proof.unproven
            frame = frame.select(_PROVEN_COLUMNS).filter(proven)
            yield self._proven(made, frame, [hit.only(proven) for hit in proof.warnings])
            waiting_rows += odd.height
            if waiting_rows < _JUDGED_AT_ONCE:
                waiting.append(packed(odd))
                continue
            judged = self._judged(pl.concat([*map(unpacked, waiting), odd], how="diagonal"))
            are_bad = (frame.height + judged.passed.sum()) * _BAD_TO_GOOD < chunk.height
            yield judged
            del judged
            waiting, waiting_rows = [], 0
        if waiting:
            yield self._judged(pl.concat(map(unpacked, waiting), how="diagonal"))

    def _proven(self, made: Prepared, frame: pl.DataFrame, warnings: Sequence[Hit]) -> ChunkResult:
        cents_of = checks.cents_of_plain if self._is_plain else checks.cents
        cents = frame.select(_cents=cents_of(pl.col("amount"))).to_series()
        passed = constant_mask(frame.height, value=True)
        return ChunkResult(Findings(frame, warnings), passed, cents, repairs=made.repairs, accepted=made.accepted)

    def _judged(self, chunk: pl.DataFrame) -> ChunkResult:
        frame = prepared(chunk, self._options).rows
        findings = self._book.judge(frame)
        return ChunkResult(findings, ~findings.broken(errors=True), _careful_cents(frame), chunk)

    def _findings(self, frame: pl.DataFrame, clean: pl.Series) -> Findings:
        """Tell all that rows break, asking every rule only of those that are not proven, and none of the clean ones."""
        rows = frame.filter(~clean)
        proof = self._book.prove(rows)
        judged = self._book.judge(rows.filter(proof.unproven))
        found = Findings(rows, proof.warnings).with_hits([hit.spread(proof.unproven) for hit in judged.hits])
        return Findings(frame, [hit.spread(~clean) for hit in found.hits])

    def _incomparable(self, findings: Findings) -> Unfit:
        """Tell for each row of a chunk whether its paymentId, and whether its cells, can't be compared with others'."""
        faults = [name for name in marks_of(findings.rows) if not name.startswith(WARN)]
        of_id = [name for name in faults if name in (*ALONE, FAULT + PAYMENT_ID)]
        unfit = findings.rows.select(
            pl.any_horizontal(*more, *(pl.col(name).is_not_null() for name in marks)).alias(of)
            for of, marks, more in (
                ("id", of_id, [~self._book.keeps_all(PAYMENT_ID)]),
                ("cells", faults, [pl.lit(value=False)]),
            )
        )
        return unfit["id"], unfit["cells"]


def all_rows(source: ChunkSource, options: RuleOptions) -> Iterator[pl.DataFrame]:
    """Read the file as the rules see it: `_row`, `_line`, all known columns, repaired if asked, the carried ones."""
    for chunk in source.chunks():
        frame = without_marks(prepared(chunk, options).rows, but=BARE_ROW)
        del chunk
        yield from frame.iter_slices(_ROWS_AT_ONCE)
        del frame


def valid_rows(source: ChunkSource, options: RuleOptions, verdict: Verdict) -> Iterator[pl.DataFrame]:
    """Read the file once more and give the rows that passed; the rules are not asked again."""
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
    """Cells that became what was suggested, by rule."""


def prepared(chunk: pl.DataFrame, options: RuleOptions) -> Prepared:
    """Give a chunk all known columns, repair it if asked, and correct what is certain if asked."""
    as_read = frame = _with_all_columns(chunk)
    repairs, accepted = dict[str, int](), dict[str, int]()
    if options.normalize or options.accept_suggestions:
        frame = frame.drop(READ_FLAGS, strict=False)  # said of the cells as they were read
    if options.normalize:
        frame, repairs = normalize(frame)
    if options.accept_suggestions:
        frame, accepted = correct(as_read, frame, rule_book(options), options.accept_suggestions)
    return Prepared(frame, repairs, accepted)


def _with_all_columns(chunk: pl.DataFrame) -> pl.DataFrame:
    known = [pl.col(name) if name in chunk.columns else pl.lit(None, pl.String).alias(name) for name in COLUMNS]
    others = [name for name in chunk.columns if name not in COLUMNS and name not in ("_row", "_line")]
    return chunk.select("_row", "_line", *known, *others)


def _careful_cents(frame: pl.DataFrame) -> pl.Series:
    """Give the cents of amounts however they are written, null where one can't be read."""
    amounts = frame["amount"]
    if _AMOUNT_FAULT in frame.columns:  # nobody knows what it means if the map does not
        amounts = amounts.set(frame[_AMOUNT_FAULT].str.starts_with(MAP_FAULT).fill_null(value=False), None)
    cents = pl.select(checks.cents_of_money(pl.lit(amounts))).to_series()
    odd = (cents.is_null() & amounts.is_not_null()).arg_true()
    return cents.scatter(
        odd, pl.select(checks.cents(pl.lit(amounts[odd]).str.replace(TEXT_FORMULA, "${1}"))).to_series()
    )
