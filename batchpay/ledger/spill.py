"""The spill file: outcomes that the ledger could not take, kept next to the witness until the next start merges them.

Its space is reserved and its descriptor held open from the start of a run, so that a full disk or a lack of descriptors
can't keep an answer from being written down. Every line is authenticated and bound to the attempt whose outcome it is.
What can't be merged, because its row has moved on since, is a late answer: it is reported, and nothing is changed
behind the back of whoever decided about the row, nor sent against it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

from batchpay.errors import LedgerNotUsable, WaitingForPerson, WrongUse
from batchpay.ledger.keys import Keys
from batchpay.ledger.mover import Mover
from batchpay.ledger.records import Decision
from batchpay.ledger.states import IN_DOUBT, STATES, IllegalMove, require_outcome
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.writing.atomic import sync_directory

_RESERVED_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Spilled:
    """An outcome found in a spill file."""

    row: int
    attempt: int
    outcome: Outcome


class Spill:
    """The spill file of one run."""

    def __init__(self, path: Path, keys: Keys, batch: str) -> None:
        self._path = path
        self._keys = keys
        self._batch = batch
        self._written_bytes = 0
        self._descriptor = -1
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            os.posix_fallocate(self._descriptor, 0, _RESERVED_BYTES)
            os.fsync(self._descriptor)
            sync_directory(path.parent)
        except OSError as error:
            self.close()
            raise LedgerNotUsable(f"the spill file {path} can't be created: {error.strerror}") from None

    def write(self, outcomes: list[Spilled]) -> None:
        """Write outcomes and make them durable."""
        lines = b"".join(self._line(outcome) for outcome in outcomes)
        try:
            view = memoryview(lines)
            while view:
                count = os.pwrite(self._descriptor, view, self._written_bytes)
                self._written_bytes += count
                view = view[count:]
            os.fsync(self._descriptor)
        except OSError as error:
            raise LedgerNotUsable(f"the spill file {self._path} can't be written: {error.strerror}") from None

    def close(self) -> None:
        """Close the file; without a spilled outcome it is removed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if not self._written_bytes:
                with suppress(OSError):
                    self._path.unlink()

    def _line(self, spilled: Spilled) -> bytes:
        answer = spilled.outcome.answer
        text = json.dumps(
            [self._batch, spilled.row, spilled.attempt, spilled.outcome.state.value, spilled.outcome.reason,
             answer.http_status, answer.response_code, answer.message, answer.gateway_reference,
             spilled.outcome.bytes_sent],
        ).encode()  # fmt: skip
        return text + b" " + self._keys.mac("spill", text).hex().encode() + b"\n"


def spill_path(witness: Path, batch: str, run: int) -> Path:
    """Return the path of a run's spill file."""
    return witness.with_name(f"{witness.name}.spill.{batch}.{run}")


def spill_files(witness: Path, batch: str) -> list[Path]:
    """Find the spill files that earlier runs of a batch left."""
    return sorted(witness.parent.glob(f"{escape(witness.name)}.spill.{batch}.*"))


def read_spill(path: Path, keys: Keys, batch: str) -> Iterator[Spilled]:
    """Read the complete lines of a spill file that are ours; a torn or foreign line is skipped."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read().rstrip(b"\0")
    except OSError as error:
        raise LedgerNotUsable(f"the spill file {path} can't be read: {error.strerror}") from None
    for line in content.split(b"\n"):
        text, _, proof = line.rpartition(b" ")
        if proof != keys.mac("spill", text).hex().encode():
            continue
        # A line of an earlier version ends before the bytes sent, which that version had checked itself.
        name, row, attempt, state, reason, status, code, message, reference, *sent = json.loads(text)
        if name == batch:
            answer = Answer(status, code, message, reference)
            yield Spilled(row, attempt, Outcome(State(state), reason, answer, *sent))


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
                "payment up. If it was made: batchpay ledger accept --rows-in-doubt --reason TEXT puts in doubt what "
                f"would be sent, and batchpay resolve settles it. If it was not: move {path} away"
            )
        if code == IN_DOUBT and not is_earlier:
            mover.note_attempts([spilled.row], IN_DOUBT, f"an answer found later says {_WORDS[said]}", at=None)
        self.answers[str(spilled.row)] = said.value
        self.told.append(f"{words}, and the ledger {now}: compare it with the gateway's list")

    @property
    def detail(self) -> dict[str, Any]:
        """Return what the history says of them."""
        found: dict[str, Any] = {"unused": self.unused} if self.unused else {}
        return found | ({"answers": self.answers} if self.answers else {})


def merge(
    mover: Mover,
    files: Iterable[Path],
    keys: Keys,
    batch: str,
    use: Callable[[Spilled, Outcome], bool],
    *,
    is_unique: bool,
) -> LateAnswers:
    """Take over spilled outcomes as far as `use` can, and return the others.

    What proves nothing is not used: the row becomes in doubt like any other found in sending.
    """
    late = LateAnswers()
    for path in files:
        for spilled in read_spill(path, keys, batch):
            outcome = mover.judged({spilled.row: spilled.outcome}, is_unique=is_unique)[spilled.row]
            try:
                is_used = use(spilled, outcome)
            except IllegalMove:
                is_used = False
            if not is_used:
                late.add(mover, spilled, path)
    return late


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
