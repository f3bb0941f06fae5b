"""A map (`--map FILE`, TOML) from somebody else's columns and words to ours. Every mapped value goes through the rules.

`[columns]` renames (`"Routing #" = "achRoutingNumber"`; `""` leaves a column out). `[defaults]` fills blank cells and
missing columns; `shipping = "billing"` there copies the billing names where the shipping names are blank. `[fixed]`
sets a value in every row, whatever the file says. `[values.COLUMN]` translates to the letter (`"Checking" =
"CHECKING"`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import polars as pl

from batchpay.errors import FileRefused, did_you_mean
from batchpay.intake.header import UNNAMED, Header
from batchpay.intake.small_tables import read_toml
from batchpay.schemas.columns import CELL_MARKS, COLUMNS
from batchpay.text import column_name

OWN = "_own."
"""Before the file's own name of a column in a chunk, so that it can't be taken for a mapped one."""
SHIPPING_FROM_BILLING = {"shippingFirstName": "billingFirstName", "shippingLastName": "billingLastName"}


@dataclass(frozen=True)
class Mapping:
    """A loaded map; columns are ours unless said otherwise."""

    name: str
    columns: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    shipping_from_billing: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of what the map does, whatever its file is called and however it is laid out."""
        content = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "name"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def own_header(self, names: Sequence[str], place: str) -> Header:
        """The file's own columns; raises FileRefused where the map names one that is not there, or one is twice."""
        twice = sorted({name for name in names if name.strip() and names.count(name) > 1})
        if twice:
            raise FileRefused(f"{place}the header has the same column twice: {', '.join(map(column_name, twice))}")
        absent = [column_name(name) + did_you_mean(name, names) for name in self.columns if name not in names]
        if absent:
            raise FileRefused(f"{place}{self.name} maps columns that the file does not have: {', '.join(absent)}")
        internal = tuple(self._own_name(name, at) for at, name in enumerate(names))
        note_at = names.index("_note") if "_note" in names else None
        return Header(tuple(names), internal, (), (), note_at)

    def mapped_names(self, own: Header) -> list[str]:
        """The header as the rules see it: renamed, and with the columns that the map itself adds."""
        names = [self.columns.get(name, name) or f"_{name}" for name in own.names]
        added = [*self.defaults, *self.fixed, *(SHIPPING_FROM_BILLING if self.shipping_from_billing else ())]
        return [*names, *(name for name in dict.fromkeys(added) if name not in names)]

    def own_of(self, own: Header) -> dict[str, str]:
        """Which of the file's own columns, by its name in a chunk, each mapped column comes from."""
        return {
            self.columns.get(name, name): inner
            for name, inner in zip(own.names, own.internal, strict=True)
            if inner is not None and self.columns.get(name, name)
        }

    def apply(self, chunk: pl.DataFrame, header: Header, own_of: dict[str, str]) -> pl.DataFrame:
        """Add the mapped columns to a chunk of the file's own cells."""
        wanted = (*header.columns, *header.carried)
        columns = {name: self._mapped(name, own_of.get(name)) for name in wanted}
        if self.shipping_from_billing:
            for ours, theirs in SHIPPING_FROM_BILLING.items():
                if theirs in columns and ours not in self.fixed:
                    columns[ours] = pl.coalesce(columns[ours], columns[theirs])
        faults: list[pl.Expr] = []
        dropped: list[str] = []
        targets = {inner: name for name, inner in own_of.items()}
        for name in chunk.columns:
            for kind in CELL_MARKS:
                if name.startswith(kind):
                    dropped.append(name)
                    target = targets.get(name.removeprefix(kind))
                    if target is not None and target not in self.fixed:
                        faults.append(pl.col(name).alias(kind + target))
        expressions = [expression.alias(name) for name, expression in columns.items()]
        return chunk.with_columns(*expressions, *faults).drop(*dropped)

    def _mapped(self, name: str, own: str | None) -> pl.Expr:
        if name in self.fixed:
            return pl.lit(self.fixed[name] or None, pl.String)  # a blank cell is one that is not given
        cell = pl.lit(None, pl.String) if own is None else pl.col(own)
        if name in self.values and own is not None:
            cell = cell.replace({value: given or None for value, given in self.values[name].items()})
        return cell.fill_null(pl.lit(self.defaults.get(name) or None, pl.String)) if name in self.defaults else cell

    def _own_name(self, name: str, at: int) -> str | None:
        if not name.strip():
            return f"{UNNAMED}{at + 1}"
        return None if name.startswith("_") else OWN + name


def load_mapping(path: str) -> Mapping:
    """Read a map; raises FileRefused naming whatever in it is unknown."""
    tables = read_toml(path, "column map")
    known = ("columns", "defaults", "fixed", "values")
    for name in tables:
        if name not in known:
            raise FileRefused(f"map {path}: [{column_name(name)}] is unknown{did_you_mean(name, known)}")
    columns = _texts(path, "columns", tables.get("columns", {}))
    defaults = _texts(path, "defaults", tables.get("defaults", {}))
    fixed = _texts(path, "fixed", tables.get("fixed", {}))
    copies = defaults.pop("shipping", None)
    if copies not in (None, "billing"):
        raise FileRefused(f'map {path}: [defaults] shipping can only be "billing"')
    values_table = tables.get("values", {})
    if not isinstance(values_table, dict):
        raise FileRefused(f"map {path}: values must be tables: [values.COLUMN]")
    values = {name: _texts(path, f"values.{name}", table) for name, table in values_table.items()}
    _known_columns(path, "columns", [target for target in columns.values() if target])
    ours = [column_name(name) for name in columns if name.startswith("_")]
    if ours:
        raise FileRefused(f"map {path}: columns that begin with _ are never read: {', '.join(ours)}")
    for table, names in (("defaults", defaults), ("fixed", fixed), ("values", values)):
        _known_columns(path, table, names)
    both = [name for name in defaults if name in fixed]
    if both:
        raise FileRefused(f"map {path}: {', '.join(both)} stands in [defaults] and in [fixed]")
    return Mapping(path, columns, defaults, fixed, values, copies == "billing")


def _texts(path: str, table: str, values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise FileRefused(f"map {path}: every value in [{column_name(table)}] must be text in quotation marks")
    return dict(values)


def _known_columns(path: str, table: str, names: Iterable[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise FileRefused(
                f"map {path}: [{table}]: {column_name(name)} is not a column{did_you_mean(name, COLUMNS)}"
            )
