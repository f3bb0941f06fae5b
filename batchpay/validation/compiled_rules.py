"""The rules, compiled: one cheap look at every row of a chunk, the full rules for the few rows that may break one.

The cheap look is one select of every rule's screen. Only rules with a hit in the chunk go on, and only for the rows
that were hit: there the rules keep the order that their pandera checks have (batchpay.schemas.rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import polars as pl

from batchpay.schemas.catalogue import ROW_RAGGED, RuleFacts, typed_cell_message
from batchpay.schemas.columns import COLUMNS, PLAIN
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.payment import payment_rules
from batchpay.schemas.rule import breaks_text_rules

FAULT, SUGGEST, RAGGED = "_fault.", "_suggest.", "_ragged"
"""How a reader of files marks a typed cell that is no faithful text, and a row that is ragged."""

_RULES_A_COLUMN_MAX = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """One rule that rows of a chunk break."""

    order: int
    """Place in the table of rules."""
    column: str
    code: str
    is_error: bool
    message: str | pl.Series
    """What the person is told; a series where each row has words of its own."""
    suggestion: pl.Expr | None
    flag: pl.Series
    """True for each row of `Findings.rows` that breaks it."""

    @property
    def name(self) -> str:
        """The rule's public name."""
        return f"{self.column}.{self.code}"


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What is wrong with a chunk."""

    mask: pl.Series
    """True for each row of the chunk that is among `rows`."""
    rows: pl.DataFrame
    """The rows that may break a rule."""
    hits: Sequence[Hit]
    """In the order of the table."""

    def broken(self, *, errors: bool) -> pl.Series:
        """Tell for each row of `rows` whether it breaks a rule of that severity."""
        return _any([hit.flag for hit in self.hits if hit.is_error is errors], self.rows.height)

    def with_hits(self, more: Sequence[Hit]) -> Findings:
        """Add what was found elsewhere."""
        return Findings(self.mask, self.rows, sorted([*self.hits, *more], key=lambda hit: hit.order))


def alike(height: int, *, value: bool) -> pl.Series:
    """Make so many flags that are all the same."""
    return pl.Series([value]).new_from_index(0, height)


def _any(flags: Sequence[pl.Series], height: int) -> pl.Series:
    """Join flags by `or`; null counts as false. Series by series: a query would wait for the threads that read."""
    return reduce(or_, flags, alike(height, value=False)).fill_null(value=False)


class RuleBook:
    """The rules of one call, ready to be asked chunk by chunk."""

    def __init__(self, options: RuleOptions) -> None:
        self.rules = payment_rules(options)
        self._order = {id(rule): _order(rule.column, index) for index, rule in enumerate(self.rules)}
        self._index = {id(rule): index for index, rule in enumerate(self.rules)}
        text_screens, self._texts = self._plan_text_rules()
        own = [index for index, rule in enumerate(self.rules) if index not in self._all_text_rules()]
        self._sharing = {index: self._leader(index) for index in own if self.rules[index].screen_shared}
        looks = {index: self.rules[index].look.alias(str(index)) for index in own if index not in self._sharing}
        self._screens = {
            plain: [look for index, look in looks.items() if not (plain and self.rules[index].plain_keeps)]
            + text_screens[plain]
            for plain in (False, True)
        }

    def _leader(self, index: int) -> int:
        """Find the rule whose look a rule shares."""
        return next(before for before in range(index - 1, -1, -1) if not self.rules[before].screen_shared)

    def _plan_text_rules(self) -> tuple[dict[bool, list[pl.Expr]], dict[str, tuple[list[int], pl.Expr]]]:
        """Make the looks at the columns whose texts need one, not plain and plain; and each column's rules for texts.

        Where another rule of the column proves the cell clean, a broken text rule can't go unnoticed without one.
        """
        screens: dict[bool, list[pl.Expr]] = {False: [], True: []}
        texts: dict[str, tuple[list[int], pl.Expr]] = {}
        for column in COLUMNS:
            rules = [rule for rule in self.rules if rule.column == column]
            for plain, kept in screens.items():
                screen = breaks_text_rules(rules, plain=plain)
                if screen is None:
                    continue
                if not plain:
                    texts[column] = ([self._index[id(rule)] for rule in rules if rule.is_for_every_text], screen)
                if not any(rule.proves_clean for rule in rules):
                    kept.append(screen.alias(column))
        return screens, texts

    def _all_text_rules(self) -> set[int]:
        return {index for indices, _ in self._texts.values() for index in indices}

    def keeps_all(self, column: str) -> pl.Expr:
        """Tell whether a cell breaks no rule of its column."""
        failed = [rule.failed for rule in self.rules if rule.column == column]
        return ~pl.any_horizontal(failed) if failed else pl.lit(value=True)

    def evaluate(self, frame: pl.DataFrame, *, every_row: bool = False) -> Findings | None:
        """Find every broken rule of a chunk that has all known columns, or None where there is none.

        With `every_row` all rows are among the findings', broken or not.
        """
        plain = PLAIN in frame.columns and bool(frame[PLAIN].all(ignore_nulls=False))
        screened = frame.select(self._screens[plain])
        hit = [screen.name for screen in screened.iter_columns() if screen.any()]
        marks = [name for name in frame.columns if name == RAGGED or name.startswith(FAULT)]
        marks = [name for name in marks if frame[name].null_count() < frame.height]
        if not hit and not marks and not every_row:
            return None
        flagged = [screened[name] for name in hit] + [frame[name].is_not_null() for name in marks]
        mask = alike(frame.height, value=True) if every_row else _any(flagged, frame.height)
        rows = frame.filter(mask)
        flags = pl.DataFrame([screened[name].filter(mask) for name in hit if name.isdecimal()])
        raw = self._raw(rows, flags, {name for name in hit if not name.isdecimal()})
        hits = self._judge(rows, raw, marks)
        if every_row:
            return Findings(mask, rows, hits)
        return _narrowed(Findings(mask, rows, hits)) if hits else None

    def _raw(self, rows: pl.DataFrame, flags: pl.DataFrame, unclean: set[str]) -> pl.DataFrame:
        """Ask the rules that were hit, each alone, of the rows that were hit."""
        indices = [int(name) for name in flags.columns]
        ask = [index for index in indices if self.rules[index].screen is not None]
        ask += [index for index, first in self._sharing.items() if first in indices]
        for column in unclean | self._unclean_after_all(rows, indices):
            ask += self._texts[column][0]
        exact = flags.select(pl.col(str(index)).fill_null(value=False) for index in indices if index not in ask)
        asked = rows.select(self.rules[index].fails.fill_null(value=False).alias(str(index)) for index in ask)
        return exact.hstack(asked) if exact.width else asked

    def _unclean_after_all(self, rows: pl.DataFrame, indices: Sequence[int]) -> set[str]:
        """Find the columns without a look of their own of which a cell breaks a rule for every text."""
        columns = {self.rules[index].column for index in indices if self.rules[index].proves_clean}
        looks = {column: self._texts[column][1] for column in columns if column in self._texts}
        if not looks:
            return set()
        found = rows.select(look.any().alias(column) for column, look in looks.items()).row(0, named=True)
        return {column for column, unclean in found.items() if unclean}

    def _judge(self, rows: pl.DataFrame, raw: pl.DataFrame, marks: Sequence[str]) -> list[Hit]:
        """Let the rules that stand alone silence the others, then add what the reader of the file found."""
        faults = {name.removeprefix(FAULT): rows[name] for name in marks if name != RAGGED}
        ragged = rows[RAGGED] if RAGGED in marks else None
        even = ragged.is_null() if ragged is not None else None
        effective = raw.select(self._silenced(int(name), raw.columns) for name in raw.columns)
        hits = []
        for flag in effective.iter_columns():
            rule = self.rules[int(flag.name)]
            for column in (rule.column, *rule.reads):
                if column in faults:
                    flag &= faults[column].is_null()
            if even is not None:
                flag &= even
            if flag.any():
                hits.append(
                    Hit(
                        self._order[id(rule)],
                        rule.column,
                        rule.code,
                        rule.is_error,
                        rule.message,
                        rule.suggestion,
                        flag,
                    )
                )
        hits += _fault_hits(faults, even)
        if ragged is not None:
            hits.append(row_hit(ROW_RAGGED, ragged.is_not_null(), ragged))
        return sorted(hits, key=lambda hit: hit.order)

    def _silenced(self, index: int, active: Sequence[str]) -> pl.Expr:
        prerequisites = [str(self._index[id(guard)]) for guard in self.rules[index].prerequisites]
        prerequisites = [name for name in prerequisites if name in active]
        flag = pl.col(str(index))
        return flag & ~pl.any_horizontal(prerequisites) if prerequisites else flag


def _narrowed(findings: Findings) -> Findings:
    """Leave out the rows that were asked and break nothing: texts and suggestions are made for each row of it."""
    broken = _any([hit.flag for hit in findings.hits], findings.rows.height)
    if broken.all():
        return findings
    kept = findings.mask.arg_true().filter(broken)
    hits = [
        replace(
            hit,
            flag=hit.flag.filter(broken),
            message=hit.message if isinstance(hit.message, str) else hit.message.filter(broken),
        )
        for hit in findings.hits
    ]
    mask = alike(len(findings.mask), value=False).scatter(kept, values=True)
    return Findings(mask, findings.rows.filter(broken), hits)


def _order(column: str, index: int) -> int:
    place = COLUMNS.index(column) if column in COLUMNS else len(COLUMNS)
    return place * _RULES_A_COLUMN_MAX + index


def row_hit(facts: RuleFacts, flag: pl.Series, message: pl.Series | None = None) -> Hit:
    """Make the hit of a rule that looks at more than a row's own cells."""
    place = _order(facts.column, _RULES_A_COLUMN_MAX - 1)
    return Hit(place, facts.column, facts.code, True, facts.message if message is None else message, None, flag)


def _fault_hits(faults: dict[str, pl.Series], even: pl.Series | None) -> list[Hit]:
    hits = []
    for column, codes in faults.items():
        for code in codes.drop_nulls().unique().sort().to_list():
            flag = (codes == code).fill_null(value=False)
            if even is not None:
                flag &= even
            message = typed_cell_message(column, code)
            if flag.any():
                hits.append(Hit(_order(column, 0), column, code, True, message, pl.col(SUGGEST + column), flag))
    return hits


# PackedTexts for people


def messages(findings: Findings, *, errors: bool) -> pl.Series:
    """`column: code: message; column: code: message` for each row of the findings, null where nothing is wrong."""
    hits = [hit for hit in findings.hits if hit.is_error is errors]
    texts = [pl.concat_str(pl.lit(f"{hit.column}: {hit.code}: "), pl.lit(hit.message)) for hit in hits]
    return _joined(findings, [_where(hit, text) for hit, text in zip(hits, texts, strict=True)], "; ")


def reasons(findings: Findings) -> pl.Series:
    """`column.code column.code` of the errors of each row of the findings."""
    return _joined(findings, [_where(hit, pl.lit(hit.name)) for hit in findings.hits if hit.is_error], " ")


def suggestions(findings: Findings) -> pl.Series:
    """`column: value; column: value` for each row of the findings where the right value is certain, else null."""
    values = [(hit.column, suggested(findings, hit)) for hit in findings.hits]
    texts = [pl.concat_str(pl.lit(f"{name}: "), pl.lit(value)) for name, value in values if value is not None]
    return _joined(findings, texts, "; ")


def suggested(findings: Findings, hit: Hit) -> pl.Series | None:
    """Give the right value for each row that breaks the rule, null where it is not certain; None where it never is."""
    reads = set() if hit.suggestion is None else set(hit.suggestion.meta.root_names())
    if hit.suggestion is None or not reads <= set(findings.rows.columns):
        return None
    broken = hit.flag.arg_true()  # of a file in which every row is bad, each rule is broken by few
    values = findings.rows.select(reads)[broken].select(hit.suggestion).to_series()
    return pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height).scatter(broken, values)


def _where(hit: Hit, text: pl.Expr) -> pl.Expr:
    return pl.when(pl.lit(hit.flag)).then(text)


def _joined(findings: Findings, texts: Sequence[pl.Expr], separator: str) -> pl.Series:
    """Join the texts of each row, null where it has none: all in one look at the rows."""
    if not texts:
        return pl.Series([None], dtype=pl.String).new_from_index(0, findings.rows.height)
    text = findings.rows.select(pl.concat_str(texts, separator=separator, ignore_nulls=True)).to_series()
    return text.set(text == "", None)
