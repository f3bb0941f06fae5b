"""The one table of legal moves: from which state a row may go to which, by which event, needing what.

Every ledger asserts it wherever it writes a row's state, the check of a ledger replays the history by it, and a test
keeps docs/states.md equal to it. A move that is not in the table can't be written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from batchpay.errors import LedgerNotUsable
from batchpay.outcome import Outcome
from batchpay.payment import State

NEW = 0
"""In place of a state's code: the row is not in the ledger yet."""
REJECTED, PENDING, SENDING, ACCEPTED, DECLINED, IN_DOUBT = range(2, 8)
"""How a state is written in a ledger's tables, whatever database holds them."""
STATE_CODES = {
    State.REJECTED: REJECTED,
    State.PENDING: PENDING,
    State.SENDING: SENDING,
    State.ACCEPTED: ACCEPTED,
    State.DECLINED: DECLINED,
    State.IN_DOUBT: IN_DOUBT,
}
STATES = {code: state for state, code in STATE_CODES.items()}
OPEN = (PENDING, SENDING, IN_DOUBT)
"""States from which a row may still be sent: its body is kept."""


class IllegalMove(LedgerNotUsable):
    """A row was to make a move that the table does not allow; nothing of the transaction is committed."""


class Need(StrEnum):
    """What is required besides the state before; the ledger checks for it where it writes the move."""

    RULES = "the rules' verdict"
    RUN = "the token of the run that holds the batch"
    PROOF = "no byte of the request left, or an answer that says it was not applied"
    ANSWER = "a complete, recognized answer"
    NOTHING = "nothing: doubt needs no proof"
    PERSON = "a named person, with a reason"
    UNSENT = "no attempt of the row, or only such as proved that nothing was applied"


@dataclass(frozen=True, slots=True)
class Move:
    """One legal move."""

    before: State | None
    """None: the row is new."""
    after: State
    event: str
    """Kind of the event that records it."""
    need: Need


MOVES = (
    Move(None, State.PENDING, "registered", Need.RULES),
    Move(None, State.REJECTED, "registered", Need.RULES),
    Move(State.PENDING, State.SENDING, "progress", Need.RUN),
    *(
        move
        for event in ("progress", "merged")
        for move in (
            Move(State.SENDING, State.ACCEPTED, event, Need.ANSWER),
            Move(State.SENDING, State.DECLINED, event, Need.ANSWER),
            Move(State.SENDING, State.IN_DOUBT, event, Need.NOTHING),
            Move(State.SENDING, State.PENDING, event, Need.PROOF),
        )
    ),
    Move(State.SENDING, State.IN_DOUBT, "recovered", Need.NOTHING),
    Move(State.IN_DOUBT, State.ACCEPTED, "heard", Need.ANSWER),
    Move(State.IN_DOUBT, State.DECLINED, "heard", Need.ANSWER),
    Move(State.IN_DOUBT, State.ACCEPTED, "resolved", Need.PERSON),
    Move(State.IN_DOUBT, State.DECLINED, "resolved", Need.PERSON),
    Move(State.IN_DOUBT, State.PENDING, "resolved", Need.PERSON),
    Move(State.REJECTED, State.PENDING, "released", Need.PERSON),
    Move(State.PENDING, State.REJECTED, "rejected", Need.UNSENT),
    Move(State.PENDING, State.REJECTED, "cancelled", Need.PERSON),
    Move(State.PENDING, State.IN_DOUBT, "doubted", Need.PERSON),
    Move(State.SENDING, State.IN_DOUBT, "doubted", Need.PERSON),
)


def _by_event() -> dict[str, dict[int, frozenset[int]]]:
    found: defaultdict[str, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for move in MOVES:
        found[move.event][STATE_CODES[move.after]].add(STATE_CODES[move.before] if move.before else NEW)
    return {event: {after: frozenset(before) for after, before in afters.items()} for event, afters in found.items()}


_BEFORE = _by_event()
_DECISIONS = {move.event for move in MOVES if move.need is Need.PERSON}
_NEEDS = {(move.before, move.after, move.event): move.need for move in MOVES}


def befores(event: str) -> Mapping[int, frozenset[int]]:
    """Return, for each code that an event may move a row to, the codes it may come from; other events move none."""
    return _BEFORE.get(event, {})


def require(event: str, before: int, after: int) -> None:
    """Raise IllegalMove unless the table has this move (codes)."""
    if before not in befores(event).get(after, ()):
        words = {NEW: "new", **STATES}
        raise IllegalMove(f"a row can't go from {words.get(before)} to {words.get(after)} by '{event}'")


def require_outcome(event: str, outcome: Outcome) -> None:
    """Raise IllegalMove unless a row in `sending` may go where this outcome says, with the proof that it needs."""
    need = _NEEDS.get((State.SENDING, outcome.state, event))
    if need is None:
        require(event, SENDING, STATE_CODES[outcome.state])
    answered = outcome.answer.http_status is not None
    if not answered and (need is Need.ANSWER or (need is Need.PROOF and outcome.bytes_sent)):
        raise IllegalMove(f"a row can't go from sending to {outcome.state} without {need}")


def require_person(event: str, who: str, why: str | None) -> None:
    """Raise IllegalMove if an event moves rows on a person's word, and nobody is named or no reason is given."""
    if event in _DECISIONS and not (who.strip() and (why or "").strip()):
        raise IllegalMove(f"'{event}' needs {Need.PERSON}")
