"""Answers that were set aside because the ledger could not take them, and whose rows have moved on since.

A person may have decided about such a row meanwhile, without knowing of the answer. Nothing is changed behind that
person's back, and nothing is sent against such an answer: it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchpay.errors import WaitingForPerson, WrongUse
from batchpay.ledger.keys import Keys
from batchpay.ledger.mover import Mover
from batchpay.ledger.records import Decision
from batchpay.ledger.spill import Spilled, read_spill, spill_files
from batchpay.ledger.states import IN_DOUBT, STATES, IllegalMove, require_outcome
from batchpay.outcome import Outcome
from batchpay.payment import State


@dataclass(slots=True)
class LateAnswers:
    """What a run's start found in spill files and could not merge."""

    unused: list[int] = field(default_factory=list)
    """Rows of all such answers, including those that say nothing new."""
    answers: dict[str, str] = field(default_factory=dict)
    """What those answers say that the ledger does not, by row."""
    told: list[str] = field(default_factory=list)
    """The same in words."""

    def add(self, mover: Mover, spilled: Spilled, path: Path) -> None:
        """Compare an answer with its row as it is now; raises WaitingForPerson if a paid row would be sent again."""
        self.unused.append(spilled.row)
        found, said = mover.standing(spilled.row), spilled.outcome.state
        if found is None or not _proves(spilled.outcome):
            return
        code, attempts = found
        now, is_earlier = STATES[code], attempts > spilled.attempt
        if (said is State.PENDING and is_earlier) or (said is now and not (said is State.ACCEPTED and is_earlier)):
            return
        words = f"row {spilled.row}: an answer to attempt {spilled.attempt} that was kept aside says {_WORDS[said]}"
        if said is State.ACCEPTED and now is State.PENDING:
            raise WaitingForPerson(
                f"{words}, and somebody put the row back to be sent again; nothing of the batch was sent. Look the "
                "payment up. If it was made: batchpay ledger check --accept-witness --reason TEXT puts in doubt what "
                f"would be sent, and batchpay resolve settles it. If it was not: move {path} away"
            )
        if code == IN_DOUBT and not is_earlier:
            mover.note_attempts([spilled.row], IN_DOUBT, f"an answer found later says {_WORDS[said]}", at=None)
        self.answers[str(spilled.row)] = said.value
        self.told.append(f"{words}, and the ledger {now}: hold it against the gateway's list")

    @property
    def detail(self) -> dict[str, Any]:
        """Return what the history says of them."""
        found: dict[str, Any] = {"unused": self.unused} if self.unused else {}
        return found | ({"answers": self.answers} if self.answers else {})


_WORDS = {State.ACCEPTED: "accepted", State.DECLINED: "declined", State.PENDING: "not applied"}


def _proves(outcome: Outcome) -> bool:
    try:
        require_outcome("progress", outcome)
    except IllegalMove:
        return False
    return outcome.state in _WORDS


def refuse_unheard_answers(witness: Path, keys: Keys, batch: str, decisions: Sequence[Decision]) -> None:
    """Raise WrongUse if a decision contradicts an answer that was set aside, and that nobody has seen yet."""
    wanted = {decision.row: decision.state for decision in decisions}
    for path in spill_files(witness, batch):
        for spilled in read_spill(path, keys, batch):
            said = spilled.outcome.state
            if _proves(spilled.outcome) and wanted.get(spilled.row, said) is not said:
                raise WrongUse(
                    f"row {spilled.row}: an answer to it was kept aside, and says {_WORDS[said]}. Let it be taken in "
                    f"first (batchpay resume {batch}), then look again; nothing was changed"
                )
