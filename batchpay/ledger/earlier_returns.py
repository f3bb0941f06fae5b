"""Earlier payments that a row repeats, and whether all of them came back: then there is nothing that it would repeat.

Only a return that a person has seen counts, of a payment that is made once. Its seal is checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import cache
from typing import Any, NamedTuple

from batchpay.ledger.columns import Earlier, EarlierReturn, Lookup
from batchpay.ledger.database import Store, View
from batchpay.ledger.event_chain import DIRECTIONS, to_datetime
from batchpay.ledger.stored_facts import counted_returns
from batchpay.payment import SamePayment
from batchpay.text import place_of, place_word


class Match(NamedTuple):
    """An earlier payment that a row repeats."""

    row: int
    same: int
    batch: int
    earlier_row: int
    line: int | None
    at: int
    was_cancelled: bool


def told(
    store: Store,
    view: View,
    names: Mapping[int, tuple[str, str]],
    lookup: Lookup,
    found: dict[int, Match],
    every: Callable[[set[int]], Iterable[Match]],
) -> list[Earlier]:
    """Return what was found, the closest match of each row; `every` finds all matches of some rows.

    Where that came back and another one stands, the other one is told. `names` has name and file of the batches.
    """
    returns_of = cache(lambda batch: counted_returns(store, view, batch))

    def came_back(match: Match) -> Any:
        return returns_of(match.batch).get(match.earlier_row)

    matches: defaultdict[int, set[Match]] = defaultdict(set)
    asked = {row for row, match in found.items() if match.same >= SamePayment.BILL and came_back(match)}
    for match in every(asked) if asked else ():
        if match.same >= SamePayment.BILL:
            matches[match.row].add(match)
    accounts = dict(zip(lookup.rows, lookup.accounts(), strict=False)) if asked else {}
    returned: dict[int, EarlierReturn] = {}
    for row, some in matches.items():
        if standing := [match for match in some if not came_back(match)]:
            found[row] = max(standing, key=lambda one: (one.same, not one.was_cancelled, one.batch, one.earlier_row))
            continue
        returns = sorted((came_back(match) for match in some), key=lambda one: one["day"])
        latest, own = returns[-1], accounts.get(row, b"").hex().upper()
        returned[row] = EarlierReturn(
            latest["code"], date.fromordinal(latest["day"]), latest["amount_cents"], DIRECTIONS[latest["direction"]],
            own in {one["account"] for one in returns}, len({(one.batch, one.earlier_row) for one in some}),
            to_datetime(min(one.at for one in some)),
        )  # fmt: skip
    earlier: list[Earlier] = []
    for row, (_, same, batch, earlier_row, line, at, was_cancelled) in sorted(found.items()):
        name, file = names[batch]
        place, when = place_of(place_word(file), earlier_row, line), to_datetime(at)
        earlier.append(
            Earlier(row, SamePayment(same), name, earlier_row, place, when, was_cancelled, returned.get(row))
        )
    return earlier
