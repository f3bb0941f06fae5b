"""What the history says of every kind of deed, and which rows count as payments that were made before."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import accept
from batchpay.ledger.records import Decision
from batchpay.payment import Environment, State
from tests.ledger.batches import ACCEPTED, IN_DOUBT, columns, held_run, register, rejected
from tests.ledger.factories import LedgerFactory


def test_who_and_why_stand_each_in_its_place(ledger_factory: LedgerFactory) -> None:
    """Who and why of an event changed places and no test saw it: the evidence would name a reason."""
    ledger = ledger_factory.create()
    register(ledger, columns(ledger, [1]))
    name = register(ledger, columns(ledger, range(1, 6)), rejected([6]), again="the bank lost it")
    with ledger.lock(ledger.find(name).digest):
        run = ledger.start(name, "ben")
        run.commit([1, 2], [])
        run.commit([], [(1, ACCEPTED), (2, IN_DOUBT)])
        run.reject([4], "gatewayId.unknown")
        run.finish("stopped by SIGTERM")
        ledger.start(name, "cleo").commit([3], [])  # and is killed
        ledger.start(name, "dora").finish(None)
    seen = ledger.registration_count()
    ledger.release(name, [columns(ledger, [6])], "eve", "corrected the routing number", registration_count_seen=seen)
    ledger.resolve(name, [Decision(2, State.ACCEPTED)], "finn", "stands in the portal")
    ledger_factory.close()
    ledger_factory.witness.unlink()
    accept(ledger_factory.settings, "gus", "moved to a new disk", rows_in_doubt=True)

    ledger = ledger_factory.open()
    found = {event.kind: (event.who, event.why) for event in ledger.events() if event.why}
    assert (found.pop("recovered")[0], found.pop("doubted")[0]) == ("dora", "gus")  # their why is the program's own
    assert {kind: (who.split(" ")[0], why) for kind, (who, why) in found.items()} == {
        "registered": ("ada", "the bank lost it"),
        "rejected": ("ben", "gatewayId.unknown"),
        "finished": ("ben", "stopped by SIGTERM"),
        "released": ("eve", "corrected the routing number"),
        "resolved": ("finn", "stands in the portal"),
        "witness accepted": ("gus", "moved to a new disk"),
    }
    assert ledger.check() == []


def test_where_results_of_runs_went_is_known_by_batch(ledger_factory: LedgerFactory) -> None:
    """Also after the ledger was opened again, and where a path is not UTF-8; a run without results says nothing."""
    ledger = ledger_factory.create()
    first, other = register(ledger, columns(ledger, [1])), register(ledger, columns(ledger, [1, 2]), again="owed")
    for name, path in ((first, "/a/x.csv"), (other, "/b/y.csv"), (first, "/a/\udcff.csv"), (first, None)):
        with ledger.lock(ledger.find(name).digest):
            ledger.start(name, "ben", results=path).finish("stopped")
    ledger_factory.close()
    ledger = ledger_factory.open()
    assert ledger.results_of_runs(first) == {"/a/x.csv", "/a/\udcff.csv"}
    assert ledger.check() == []


def test_the_account_that_a_batch_is_paid_from_is_the_last_one_named_for_it(ledger_factory: LedgerFactory) -> None:
    """By its runs, or by whoever moved its gateway; never written in clear, and unknown of runs of earlier versions."""
    ledger = ledger_factory.create()
    first, other = register(ledger, columns(ledger, [1])), register(ledger, columns(ledger, [1, 2]), again="owed")
    told = []
    for name, api_id in ((first, None), (first, "acme"), (other, "beta"), (first, None), (first, "caf\udce9")):
        with ledger.lock(ledger.find(name).digest):
            ledger.start(name, "ben", api_id=api_id).finish("stopped")
        told.append([ledger.pays_from_another_account(first, one) for one in ("acme", "caf\udce9")])
    assert told == [[False, False], [False, True], [False, True], [False, True], [True, False]]
    ledger.move_gateway([first, other], "https://new.example", "", "ben", "new address")
    assert ledger.pays_from_another_account(first, "acme")
    ledger.move_gateway([first], "https://new.example", "acme", "ben", "a new API ID")
    assert not ledger.pays_from_another_account(first, "acme")
    assert not ledger.pays_from_another_account(first, ""), "no account is named"
    assert "acme" not in "".join(event.detail for event in ledger.events())
    assert ledger.check() == []


@pytest.mark.parametrize(("state", "counts"), [
    (State.PENDING, True), (State.SENDING, True), (State.ACCEPTED, True), (State.IN_DOUBT, True),
    (State.DECLINED, False), (State.REJECTED, False),
])  # fmt: skip
@pytest.mark.parametrize("named", [True, False])
def test_every_state_that_may_mean_a_payment_counts_as_earlier(
    ledger: Ledger, state: State, counts: bool, named: bool
) -> None:
    """A row in `sending` may be paid this moment: it could be left out of the look, and no test saw it."""
    name = register(ledger, columns(ledger, [1], named=[1] if named else []))
    with held_run(ledger, name) as run:
        if state is State.REJECTED:
            run.reject([1], "gatewayId.unknown")
        elif state is not State.PENDING:
            run.commit([1], [])
            if state is not State.SENDING:
                run.commit([], [(1, ACCEPTED._replace(state=state))])
        later = columns(ledger, [1], named=[1] if named else [])
        lookup = Lookup([7], later.fingerprints, later.payment_ids)
        found = ledger.earlier(lookup, Environment.TEST, days=5, now=datetime.now(UTC))
    assert [one.row for one in found] == ([7] if counts else [])
