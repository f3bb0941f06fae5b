"""The gateway's references: whether two are the same, and whether the ledger knows one from another row.

The ledger keeps a reference masked where it contained five or more digits of the row's account (`SBX****01`): what is
left shows which references it may have been, and proves none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary
from batchpay.outcome import MASK


def key_of(number: str | None) -> str:
    """Normalize a reference or invoice number for comparison: spreadsheets lose letter case and leading zeros."""
    return (number or "").strip().casefold().lstrip("0")


def only_number_lines(references: Sequence[str]) -> bool:
    """Whether a column counts the lines (1, 2, 3): that is no reference, since every export has the same."""
    found, count = {key_of(reference) for reference in references}, len(references)
    return any(found == {str(number or "") for number in range(first, first + count)} for first in (0, 1))


def is_masked(reference: str) -> bool:
    """Whether a part of a reference is not known."""
    return MASK in reference


def may_be(one: str, other: str) -> bool:
    """Whether two keys may be the same reference: they are equal, or what is left of a masked one fits the other."""
    if not (is_masked(one) or is_masked(other)):
        return one == other
    if not is_masked(one):
        one, other = other, one
    head, tail = one.split(MASK)[0], one.split(MASK)[-1]
    if not is_masked(other):
        return len(other) >= len(head) + len(tail) and other.startswith(head) and other.endswith(tail)
    heads, tails = sorted((head, other.split(MASK)[0]), key=len), sorted((tail, other.split(MASK)[-1]), key=len)
    return heads[1].startswith(heads[0]) and tails[1].endswith(tails[0])


def refused_reference(ledger: Ledger, batch: BatchSummary, references: Mapping[int, str]) -> str | None:
    """Return why the references that a person gives for rows of a batch can't all be theirs; None if nothing is known.

    One payment at the gateway proves one row: its reference belongs to no other row in any batch of the environment.
    """
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for row, reference in references.items():
        wanted[key_of(reference)].append(row)
    wanted.pop("", None)
    for rows in wanted.values():
        if len(rows) > 1:
            return f"rows {rows[0]} and {rows[1]} have one gateway_reference: one payment proves one row"
    masked = [key for key in wanted if is_masked(key)]
    for name, row, known in ledger.gateway_references(batch.environment) if wanted else ():
        key = key_of(known)
        fitting = [key] if key in wanted else []
        if is_masked(key):
            fitting += [one for one in wanted if may_be(key, one)]
        elif masked:
            fitting += [one for one in masked if may_be(one, key)]
        for one in fitting:
            if (name, row) != (batch.batch, wanted[one][0]):
                return _told(references[wanted[one][0]], wanted[one][0], f"row {row} of batch {name}", known)
    return None


def _told(reference: str, row: int, owner: str, known: str) -> str:
    if key_of(reference) == key_of(known) and not is_masked(known):
        return f"row {row}: the ledger knows gateway_reference {reference} from {owner}: one payment proves one row"
    return (
        f"row {row}: gateway_reference {reference} may be that of {owner}, of which the ledger knows {known} alone; if"
        " it is not, leave it out and say so in the reason"
    )
