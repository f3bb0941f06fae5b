"""A run without a ledger: it has rows to send, and grants each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from batchpay.ledger.days import NO_LIMITS, SendingDay
from batchpay.ledger.records import PendingPayment
from batchpay.outcome import Outcome
from batchpay.payment import Totals


class PlainRun:
    """See contract.Run."""

    recovered = repeated = 0
    late: Sequence[str] = ()
    refusal: str | None = None
    sending = SendingDay("test", date(2026, 11, 23), NO_LIMITS)

    def __init__(self, rows: int = 0) -> None:
        self._rows = [PendingPayment(row, 0, b"{}") for row in range(1, rows + 1)]

    def claim(self, limit: int) -> list[PendingPayment]:
        claimed, self._rows = self._rows[:limit], self._rows[limit:]
        return claimed

    def commit(self, intents: Sequence[int], outcomes: Sequence[tuple[int, Outcome]]) -> set[int]:
        return set(intents)

    def spill(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        raise AssertionError

    def reject(self, rows: Sequence[int], reason: str) -> None:
        raise AssertionError

    def finish(self, stopped: str | None, held_back: Totals | None = None) -> None:
        pass

    def close(self) -> None:
        pass
