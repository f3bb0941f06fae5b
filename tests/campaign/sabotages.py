"""Proof that the campaign notices: the program is broken on purpose, one promise at a time, and it must notice each.

A sabotage is a change of text in a copy of the package. If the text is no longer there the campaign fails too: then the
sabotage must be rewritten for the present code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.campaign import durability, kills, races, restores
from tests.campaign.trial import Bench, Findings, bench
from tests.support.broken_program import Change, broken

_RESUME = ("resume",)
_SILENT = ("--silent-every", "5")
_GARBAGE = ("--garbage-every", "5")


def _kills(made: Bench) -> Iterator[Findings]:
    """Kill around the points at which rows are recorded and sent, first where a row waits for its answer.

    Such a row is the one that a broken record pays twice: most sabotages show at the first kill, not at the tenth.
    """
    found = kills.points(made, _RESUME, fresh=False)
    near = [point for point in found if point.call in ("sendto", "recvfrom", "fdatasync", "pwrite64")]
    for point in sorted(kills.chosen(near, 40, seed=7), key=lambda point: point.call != "recvfrom"):
        yield kills.hit(made, point, _RESUME, fresh=False)


def _once(trial: Callable[[Bench], Findings]) -> Callable[[Bench], Iterator[Findings]]:
    def run(made: Bench) -> Iterator[Findings]:
        yield trial(made)

    return run


def _power_cuts(made: Bench) -> Iterator[Findings]:
    yield durability.sending_after_sync(made)
    if durability.can_cut_power():
        for seed in range(5):
            yield durability.power_cut(made, seed)


@dataclass(frozen=True)
class Sabotage:
    """One way to break the program, and the trials that must notice."""

    name: str
    changes: tuple[Change, ...]
    trials: Callable[[Bench], Iterator[Findings]]
    oracle_options: tuple[str, ...] = ()


SABOTAGES = (
    Sabotage(
        "records a row only after it was sent",
        (
            (
                "sending/sender.py",
                "            self._recorder.mark_sending(payment.row)\n            granted = True\n",
                "            granted = True\n",
            ),
            (
                "sending/sender.py",
                "            self._recorder.record(payment.row, outcome)\n",
                "            self._recorder.mark_sending(payment.row)\n"
                "            self._recorder.record(payment.row, outcome)\n",
            ),
        ),
        _kills,
    ),
    Sabotage(
        "puts rows found in sending back to pending",
        (
            (
                "ledger/mover.py",
                "self.rows_in(SENDING), SENDING, IN_DOUBT)",
                "self.rows_in(SENDING), SENDING, PENDING)",
            ),
            ("ledger/mover.py", "self.note_attempts(rows, IN_DOUBT,", "self.note_attempts(rows, PENDING,"),
            ("ledger/states.py", 'State.IN_DOUBT, "recovered"', 'State.PENDING, "recovered"'),
        ),
        _kills,
    ),
    Sabotage(
        "leaves rows found in sending as they are",
        (("ledger/mover.py", "self.move(self.rows_in(SENDING), SENDING, IN_DOUBT)", "list[int]()"),),
        _kills,
    ),
    Sabotage(
        "sends once more when no answer came",
        (
            (
                "gateway/payments.py",
                "        if exchange.http_status is None:\n            return outcome_without_answer(exchange)\n",
                "        if exchange.http_status is None:\n"
                '            exchange = self._channel.exchange("POST", self._payment_path, body)\n',
            ),
        ),
        _once(races.lost_answers),
        _SILENT,
    ),
    Sabotage(
        "trusts that an exception means nothing was sent",
        (("gateway/payments.py", "    if exchange.bytes_sent > 0:\n", "    if exchange.bytes_sent < 0:\n"),),
        _once(races.lost_answers),
        _SILENT,
    ),
    Sabotage(
        "takes any complete answer for a yes",
        (
            (
                "gateway/payments.py",
                "        if outcome.state is _IN_DOUBT:\n",
                "        outcome = Outcome(State.ACCEPTED, outcome.reason, outcome.answer, outcome.bytes_sent)\n"
                "        if outcome.state is _IN_DOUBT:\n",
            ),
        ),
        _once(races.lost_answers),
        _GARBAGE,
    ),
    Sabotage(
        "does not sync the ledger",
        (("ledger/sqlite/store.py", '"synchronous = FULL"', '"synchronous = OFF"'),),
        _power_cuts,
    ),
    Sabotage(
        "sends before the commit has returned",
        (
            ("sending/recorder.py", "        intent.done.acquire()\n", ""),
            ("sending/recorder.py", "        if not intent.granted:\n            raise ClaimRefused\n", ""),
        ),
        _power_cuts,
    ),
    Sabotage(
        "sends with a permission of any age",
        (("gateway/transport.py", "since_boot_s() >= proof.allowed_until", "since_boot_s() < 0"),),
        _once(races.stopped_with_a_permission),
    ),
    Sabotage(
        "forgets an outcome now and then",
        (
            (
                "sending/sender.py",
                "            self._recorder.record(payment.row, outcome)\n",
                "            if payment.row != 5:\n                self._recorder.record(payment.row, outcome)\n",
            ),
        ),
        _once(races.undisturbed),
    ),
    Sabotage(
        "does not hold the ledger against its witness",
        (
            (
                "ledger/sqlite/store.py",
                "    if found is None or found[0] != testimony.mac:",
                "    if found is testimony:",
            ),
        ),
        _once(restores.older_ledger),
    ),
    Sabotage(
        "does not look for payments of earlier batches",
        (("ledger/sqlite/reading.py", "return told(self.store, connection, names, lookup,", "return []  #"),),
        _once(races.paid_under_another_name),
    ),
    Sabotage(
        "takes a file under another name for another batch",
        (
            (
                "registration/digests.py",
                '        digest = self._ledger.digest_stream("batch")\n',
                '        digest = self._ledger.digest_stream("batch")\n'
                "        digest.update(self._chunks.__self__.name.encode())\n",
            ),
            ("ledger/sqlite/reading.py", "return told(self.store, connection, names, lookup,", "return []  #"),
        ),
        _once(races.paid_under_another_name),
    ),
)


def caught(sabotage: Sabotage, folder: Path) -> str | None:
    """Apply a sabotage to a copy of the program; return what the trials found wrong first, or None."""
    program = broken(sabotage.name, sabotage.changes, folder / "program")
    with bench(folder / "bench", program, *sabotage.oracle_options) as made:
        for found in sabotage.trials(made):
            if found.wrong:
                return found.wrong[0]
    return None
