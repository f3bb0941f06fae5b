"""A map from another system's columns and words to ours, as its file (loading.py) states it.

All mapped values go through the rules. A map states; it never guesses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from batchpay.errors import FileRefused, did_you_mean
from batchpay.intake.header import OWN, CellForm, Header, canonical_name, internal_name
from batchpay.intake.maps.formats import REFUSED, DateFormat, NumberFormat, Pattern, StatedUnit
from batchpay.schemas.columns import ACCOUNT, COLUMNS, DIGITS_MATTER, DIRECTION, MONEY, PAYMENT_ID, ROUTING
from batchpay.text import column_name

SHIPPING_FROM_BILLING = {"shippingFirstName": "billingFirstName", "shippingLastName": "billingLastName"}
_DIGITS_FIRST = (ROUTING, ACCOUNT, *DIGITS_MATTER)
"""The columns whose rules a number follows if it maps to several columns."""
_ISO = "%Y-%m-%d"


@dataclass(frozen=True)
class RowWords:
    """Which rows of the file are payments, by the exact words of one of its columns; a row with another is an error."""

    column: str
    payments: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Mapping:
    """A loaded map; columns are ours unless said otherwise."""

    name: str
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the file's name; empty where it is left out."""
    defaults: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    shipping_from_billing: bool = False
    split: dict[str, tuple[Pattern, ...]] = field(default_factory=dict)
    """By the file's name; all patterns of a column name the same columns of ours."""
    templates: dict[str, Pattern] = field(default_factory=dict)
    """Their patterns name the file's columns."""
    numbers: dict[str, NumberFormat] = field(default_factory=dict)
    dates: dict[str, DateFormat] = field(default_factory=dict)
    rows: RowWords | None = None
    sides: dict[str, str] = field(default_factory=dict)
    """The file's columns of amounts, by the direction of what is in them."""
    is_turned: bool = False
    """Whether its file is written the older way: `theirs = ours`."""

    @property
    def digest(self) -> str:
        """SHA-256 of what the map does, whatever its file is called and however it is laid out."""
        content = asdict(self)
        del content["name"], content["is_turned"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def sources(self) -> tuple[str, ...]:
        """The file's columns that the map names."""
        in_templates = (name for pattern in self.templates.values() for name in pattern.names)
        of_rows = () if self.rows is None else (self.rows.column,)
        return tuple(dict.fromkeys((*self.columns, *self.sides.values(), *self.split, *in_templates, *of_rows)))

    @property
    def header_names(self) -> tuple[str, ...]:
        """The names, besides ours, by which the header of a sheet is recognized."""
        return self.sources

    @property
    def signed(self) -> NumberFormat | None:
        """The format of amounts whose sign determines the direction, if there is one."""
        found = self.numbers.get("amount")
        return None if found is None or found.negative == REFUSED else found

    def with_unit(self, unit: str) -> Mapping:
        """Return the map that also says what amounts without decimals are in; raises FileRefused if it says another."""
        number = self.numbers.get("amount")
        if number is not None and number.unit not in ("", unit):
            raise FileRefused(f"the map {self.name} says that amounts are in {number.unit}, not in {unit}")
        stated = StatedUnit(unit=unit) if number is None else replace(number, unit=unit)
        return replace(self, numbers={**self.numbers, "amount": stated})

    def own_header(self, names: Sequence[str], place: str) -> Header:
        """Return the file's own columns; raises FileRefused if one that the map names is missing, or one is twice."""
        twice = sorted({name for name in names if name.strip() and names.count(name) > 1})
        if twice:
            raise FileRefused(f"{place}the header has the same column twice: {', '.join(map(column_name, twice))}")
        absent = [name for name in self.sources if name not in names]
        if absent:
            told = ", ".join(column_name(name) + did_you_mean(name, names) for name in absent)
            in_id = self.templates[PAYMENT_ID].names if PAYMENT_ID in self.templates else ()
            if set(absent) & set(in_id):
                told += (
                    ". A paymentId can be made of the file's cells alone: the position of a row changes when another "
                    "is inserted before it, and the same payment would be sent again under another paymentId"
                )
            raise FileRefused(f"{place}{self.name} maps columns that the file does not have: {told}")
        internal = tuple(internal_name(name, at, OWN) for at, name in enumerate(names))
        note_at = names.index("_note") if "_note" in names else None
        return Header(tuple(names), internal, (), (), note_at)

    def mapped_names(self, own: Header) -> list[str]:
        """Return the header as the rules see it: renamed, and with the columns that the map itself adds."""
        names: list[str] = []
        for name in own.names:
            names += self.columns.get(name, (name,)) or (f"_{name}",)
        names += [target for patterns in self.split.values() for target in patterns[0].names]
        names += self.templates
        names += ["amount"] if self.sides else []
        names += [DIRECTION] if (self.signed or self.sides) and DIRECTION not in names else []
        added = [*self.defaults, *self.fixed, *(SHIPPING_FROM_BILLING if self.shipping_from_billing else ())]
        return [*names, *(name for name in dict.fromkeys(added) if name not in map(canonical_name, names))]

    def targets_of(self, name: str) -> tuple[str, ...]:
        """Return the columns that one of the file's maps to directly: its own name where the map does not name it."""
        return self.columns[name] if name in self.columns else (canonical_name(name),)

    def own_of(self, own: Header) -> dict[str, str]:
        """Return which own column, by its name in a chunk, each mapped column comes from: the first of several."""
        inner = {name: inner for name, inner in zip(own.names, own.internal, strict=True) if inner is not None}
        found = {target: inner[pattern.names[0]] for target, pattern in self.templates.items()}
        found |= {target: inner[name] for name, patterns in self.split.items() for target in patterns[0].names}
        found |= {target: place for name, place in inner.items() for target in self.targets_of(name)}
        return found | {target: inner[name] for name in self.sides.values() for target in ("amount", DIRECTION)}

    def reported_for(self, name: str) -> tuple[str, ...]:
        """Return the columns for which a fault of one of the file's cells is reported; if it is split, the first."""
        split = tuple(patterns[0].names[0] for source, patterns in self.split.items() if source == name)
        made = tuple(target for target, pattern in self.templates.items() if name in pattern.names)
        made += ("amount",) if name in self.sides.values() else ()
        return tuple(target for target in (*self.targets_of(name), *split, *made) if target not in self.fixed)

    def cell_forms(self, names: Sequence[str]) -> dict[str, CellForm]:
        """Return what the typed cells of the file's columns are to become, by the file's names."""
        return {name: self._cell_form(name) for name in names}

    def _cell_form(self, name: str) -> CellForm:
        targets = self.targets_of(name) if self.columns.get(name, name) else ()
        targets = ("amount",) if name in self.sides.values() else targets
        targets += tuple(target for pattern in self.split.get(name, ())[:1] for target in pattern.names)
        known = [target for target in targets if target in COLUMNS]
        if not known and any(name in pattern.names for pattern in self.templates.values()):
            return CellForm(PAYMENT_ID, date=_ISO)
        target = next((target for target in _DIGITS_FIRST if target in known), [*known, *targets, name][0])
        number, day = self.numbers.get(target), self.dates.get(target)
        return CellForm(target, number.decimal if number else ".", day.pattern if day else None)

    def own_amounts(self, own: Header) -> frozenset[str]:
        """Return the own columns, by their names in a chunk, that have amounts in our form.

        Elsewhere a text that looks like one of ours, written as a number, would be read back as another amount.
        """
        own_of = self.own_of(own)
        sides = () if "amount" in self.numbers else tuple(OWN + name for name in self.sides.values())
        return frozenset((*sides, *(own_of[name] for name in MONEY if name in own_of and name not in self.numbers)))
