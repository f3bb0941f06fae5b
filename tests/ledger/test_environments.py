"""Test and live are two worlds: what one environment's batches hold is nothing to the other's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from batchpay.errors import WrongUse
from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from tests.ledger.batches import ACCEPTED, columns, register, send

LIVE, TEST = Environment.LIVE, Environment.TEST


def test_a_rehearsal_makes_no_live_row_a_duplicate(ledger: Ledger) -> None:
    """The same rows, paid in the sandbox first, are neither known content nor earlier payments in the live world."""
    rehearsed = register(ledger, columns(ledger, [1, 2], named=[1]), environment=TEST)
    send(ledger, rehearsed, dict.fromkeys([1, 2], ACCEPTED))
    digest = ledger.find(rehearsed).digest
    later = columns(ledger, [1, 2], named=[1])
    lookup = Lookup(later.rows, later.fingerprints, later.payment_ids)
    found = {world: ledger.earlier(lookup, world, days=5, now=datetime.now(UTC)) for world in (TEST, LIVE)}
    assert ([one.row for one in found[TEST]], found[LIVE]) == ([1, 2], [])
    assert (ledger.find_digest(digest, LIVE), ledger.batch_count(LIVE), ledger.batch_count(TEST)) == (None, 0, 1)
    assert ledger.payee_facts(later.payees, TEST) and not ledger.payee_facts(later.payees, LIVE)

    paid = register(ledger, columns(ledger, [1, 2], named=[1]), environment=LIVE)
    assert (paid, ledger.find(paid).environment) == (f"{rehearsed}-2", LIVE)
    assert [ledger.find(None, world).batch for world in (TEST, LIVE, None)] == [rehearsed, paid, paid]
    send(ledger, paid, dict.fromkeys([1, 2], ACCEPTED))
    assert ledger.payee_facts(later.payees, LIVE)
    found = {world: ledger.earlier(lookup, world, days=5, now=datetime.now(UTC)) for world in (TEST, LIVE)}
    assert {world: {one.earlier_batch for one in some} for world, some in found.items()} == {
        TEST: {rehearsed}, LIVE: {paid},
    }  # fmt: skip
    assert ledger.check() == []


def test_a_batch_of_the_other_world_is_not_found_by_its_name(ledger: Ledger) -> None:
    """`resume NAME` and `cancel NAME` took a batch of tests under the settings of live payments."""
    name = register(ledger, columns(ledger, [1]), environment=TEST)
    assert ledger.find(name[:5], TEST).batch == ledger.find(name).batch == name
    for reference in (name, name[:5]):
        with pytest.raises(WrongUse, match=f"batch {name} is test, and the settings are for live payments"):
            ledger.find(reference, LIVE)


def test_a_world_without_a_batch_says_so(ledger: Ledger) -> None:
    """The latest batch of the live world is never the sandbox's."""
    register(ledger, columns(ledger, [1]), environment=TEST)
    with pytest.raises(WrongUse, match="no live batch"):
        ledger.find(None, LIVE)
