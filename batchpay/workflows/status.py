"""Where batches stand: all of them, or one."""

from __future__ import annotations

from contextlib import closing

from batchpay.errors import LedgerMissing
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.hosts import HostRun
from batchpay.ledger.open import open_ledger
from batchpay.payment import Environment, State, Totals
from batchpay.settings import Settings
from batchpay.summary import Summary, summary_of_batch


def batch_status(reference: str, settings: Settings) -> Summary:
    """Give one batch's summary; `reference` is its name or the unique beginning of it."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return summary_of_batch(ledger.find(reference))


def runs_of_batch(batch: str, settings: Settings) -> list[HostRun]:
    """Give a batch's runs where several machines may work on it, the first one first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return ledger.runs(batch)


def in_doubt(ledger: Ledger, environment: Environment, *, but: str | None = None) -> dict[str, dict[str, Totals]]:
    """Give what is in doubt of every batch of an environment by direction, the latest first; `but` is left out."""
    return {
        found.batch: found.apart[State.IN_DOUBT]
        for found in ledger.batches()
        if found.environment is environment and found.by_state[State.IN_DOUBT].rows and found.batch != but
    }


def all_in_doubt(settings: Settings) -> dict[str, dict[str, Totals]]:
    """Give what is in doubt in the environment of these settings; nothing where there is no ledger yet."""
    try:
        ledger = open_ledger(settings.ledger, read_only=True)
    except LedgerMissing:
        return {}
    with closing(ledger):
        return in_doubt(ledger, environment_of(settings.gateway))


def all_batches(settings: Settings) -> list[Summary]:
    """Give every batch's summary, the latest first."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return [summary_of_batch(found) for found in ledger.batches()]
