"""The rules, compiled: one cheap look at every row of a chunk, the full rules for the few rows that may break one.

The cheap look is one select of every rule's screen. Only rules with a hit in the chunk go on, and only for the rows
that were hit: there the rules keep the order that their pandera checks have (batchpay.schemas.rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import polars as pl

from batchpay.schemas.catalogue import ROW_RAGGED, RuleFacts, typed_cell_message
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.options import RuleOptions
from batchpay.schemas.payment import payment_rules
from batchpay.schemas.rule import breaks_text_rules

FAULT, SUGGEST, RAGGED = "_fault.", "_suggest.", "_ragged"
"""How a reader of files marks a typed cell that is no faithful text, and a row that is ragged."""

_RULES_A_COLUMN_MAX = 1000
_SAMPLE_ROWS = 400
_HANDFUL = 64
_VALUES_MAX = 4096
"""Asking so many values is cheaper than asking the rows of a chunk."""


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


class FewValues:
    """Finds the columns that hold few different values, and those values: most columns of a payment file do."""

    def __init__(self) -> None:
        self._promising: list[str] | None = None

    def of(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        """Give the different values of such columns of a chunk."""
        if self._promising is None:
            sample = frame.select(COLUMNS).gather_every(max(1, frame.height // _SAMPLE_ROWS))
            self._promising = [cell.name for cell in sample.iter_columns() if cell.n_unique() <= sample.height // 2]
        chosen = frame.select(self._promising)
        uniform = chosen.select(pl.all() == pl.all().first()).select(pl.all().all(ignore_nulls=False))
        few: dict[str, pl.Series] = {}
        for column in chosen.iter_columns():
            if uniform[column.name][0] or column.null_count() == frame.height:
                few[column.name] = column.head(1)
        various = [name for name in self._promising if name not in few]
        if various:
            values = frame.select(pl.col(various).unique().implode())
            for name in various:
                few[name] = values[name].explode()
        self._promising = [name for name in self._promising if len(few[name]) <= _VALUES_MAX]
        return {name: few[name] for name in self._promising}


def _crossed(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right, how="cross")


def _any(flags: Sequence[pl.Series], height: int) -> pl.Series:
    """Join flags by `or`; null counts as false."""
    if not flags:
        return pl.repeat(value=False, n=height, dtype=pl.Boolean, eager=True)
    frame = pl.DataFrame([flag.alias(str(index)) for index, flag in enumerate(flags)])
    return frame.select(pl.any_horizontal(pl.all()).fill_null(value=False)).to_series()


class RuleBook:
    """The rules of one call, ready to be asked chunk by chunk."""

    def __init__(self, options: RuleOptions) -> None:
        self.rules = payment_rules(options)
        self._order = {id(rule): _order(rule.column, index) for index, rule in enumerate(self.rules)}
        self._index = {id(rule): index for index, rule in enumerate(self.rules)}
        self._text_screens, self._texts = self._plan_text_rules()
        self._own = [index for index, rule in enumerate(self.rules) if index not in self._all_text_rules()]
        looks = [rule.fails if rule.screen is None else rule.screen for rule in self.rules]
        own = [index for index in self._own if not self.rules[index].screen_shared]
        self._screens = [looks[index].alias(str(index)) for index in own]
        self._screens += [screen.alias(column) for column, screen in self._text_screens.items()]
        self._few_values = FewValues()
        self._sharing = {index: index - 1 for index in self._own if self.rules[index].screen_shared}
        self._screens_by_columns: dict[tuple[str, ...], list[int]] = {}
        for place, screen in enumerate(self._screens):
            columns = tuple(sorted(set(screen.meta.root_names())))
            self._screens_by_columns.setdefault(columns, []).append(place)

    def _plan_text_rules(self) -> tuple[dict[str, pl.Expr], dict[str, tuple[list[int], pl.Expr]]]:
        """Find the columns whose texts need a look of their own, and each column's rules for every text.

        Where another rule of the column proves the cell clean, a broken text rule can't go unnoticed without one.
        """
        screens: dict[str, pl.Expr] = {}
        texts: dict[str, tuple[list[int], pl.Expr]] = {}
        for column in COLUMNS:
            rules = [rule for rule in self.rules if rule.column == column]
            screen = breaks_text_rules(rules)
            if screen is None:
                continue
            texts[column] = ([self._index[id(rule)] for rule in rules if rule.is_for_every_text], screen)
            if not any(rule.proves_clean for rule in rules):
                screens[column] = screen
        return screens, texts

    def _screens_of_use(self, frame: pl.DataFrame) -> list[pl.Expr]:
        """Leave out the screens that no value of the chunk can trip: most columns hold few different values.

        What a column holds few of is asked value by value, or pair by pair of two columns, instead of row by row.
        """
        few = self._few_values.of(frame)
        idle: set[int] = set()
        for values, places in self._tables(few):
            tripped = values.select(self._screens[place].any() for place in places).row(0)
            idle.update(place for place, trips in zip(places, tripped, strict=True) if not trips)
        return [screen for place, screen in enumerate(self._screens) if place not in idle]

    def _tables(self, few: dict[str, pl.Series]) -> Iterator[tuple[pl.DataFrame, list[int]]]:
        """Pair the values to ask with the screens that ask them; what has a handful of values is asked at once."""
        handful = {name: values for name, values in few.items() if len(values) <= _HANDFUL}
        if handful:
            longest = max(len(values) for values in handful.values())
            # Screens compare nothing across values, so shorter columns repeat their own.
            places = pl.int_range(longest, eager=True)
            table = pl.DataFrame([values.gather(places % len(values)) for values in handful.values()])
            singles = [columns for columns in self._screens_by_columns if len(columns) == 1 and columns[0] in handful]
            yield table, [place for columns in singles for place in self._screens_by_columns[columns]]
        for columns, own in self._screens_by_columns.items():
            if not all(column in few for column in columns) or (len(columns) == 1 and columns[0] in handful):
                continue
            if prod(len(few[column]) for column in columns) <= _VALUES_MAX:
                yield reduce(_crossed, [few[column].to_frame() for column in columns]), own

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
        screened = frame.select(self._screens_of_use(frame))
        hit = [screen.name for screen in screened.iter_columns() if screen.any()]
        marks = [name for name in frame.columns if name == RAGGED or name.startswith(FAULT)]
        marks = [name for name in marks if frame[name].null_count() < frame.height]
        if not hit and not marks and not every_row:
            return None
        flagged = [screened[name] for name in hit] + [frame[name].is_not_null() for name in marks]
        mask = _any(flagged, frame.height) if not every_row else _any([], frame.height).not_()
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
        guards = [str(self._index[id(guard)]) for guard in self.rules[index].guards]
        guards = [name for name in guards if name in active]
        flag = pl.col(str(index))
        return flag & ~pl.any_horizontal(guards) if guards else flag


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
    mask = pl.repeat(value=False, n=len(findings.mask), dtype=pl.Boolean, eager=True).scatter(kept, values=True)
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


# Texts for people


def messages(findings: Findings, *, errors: bool) -> pl.Series:
    """`column: code: message; column: code: message` for each row of the findings, null where nothing is wrong."""
    cells = []
    for hit in findings.hits:
        if hit.is_error is errors:
            message = pl.lit(hit.message)
            text = pl.concat_str(pl.lit(f"{hit.column}: {hit.code}: "), message)
            cells.append(pl.select(pl.when(hit.flag).then(text)).to_series())
    return _joined(findings, cells, "; ")


def reasons(findings: Findings) -> pl.Series:
    """`column.code column.code` of the errors of each row of the findings."""
    cells = [pl.select(pl.when(hit.flag).then(pl.lit(hit.name))).to_series() for hit in findings.hits if hit.is_error]
    return _joined(findings, cells, " ")


def suggestions(findings: Findings) -> pl.Series:
    """`column: value; column: value` for each row of the findings where the right value is certain, else null."""
    cells = [
        pl.select(pl.concat_str(pl.lit(f"{hit.column}: "), value)).to_series()
        for hit in findings.hits
        if (value := suggested(findings, hit)) is not None
    ]
    return _joined(findings, cells, "; ")


def suggested(findings: Findings, hit: Hit) -> pl.Series | None:
    """Give the right value for each row that breaks the rule, null where it is not certain; None where it never is."""
    if hit.suggestion is None or not set(hit.suggestion.meta.root_names()) <= set(findings.rows.columns):
        return None
    value = findings.rows.select(pl.when(pl.lit(hit.flag)).then(hit.suggestion)).to_series()
    return value if value.null_count() < len(value) else None


def _joined(findings: Findings, cells: Sequence[pl.Series], separator: str) -> pl.Series:
    if not cells:
        return pl.repeat(None, findings.rows.height, dtype=pl.String, eager=True)
    frame = pl.DataFrame([cell.alias(str(index)) for index, cell in enumerate(cells)])
    text = pl.concat_str(pl.all(), separator=separator, ignore_nulls=True)
    return frame.select(pl.when(text != "").then(text)).to_series()
