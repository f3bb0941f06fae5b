"""Which gateway a batch is for, and a gateway whose address changed.

Its batches follow it if a named person says so and why.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from batchpay.errors import SettingsNotUsable, WrongUse
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.settings import Settings

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


def move_gateway(old: str, new: str, reason: str, settings: Settings, actor: Actor) -> list[str]:
    """Reassign the batches of one environment that were meant for `old` to `new`; return their names.

    Raises WrongUse if the two can't be one gateway or no batch is meant for `old`, BatchHeld while one is being sent.
    """
    before, after = check_origin(old, "OLD"), check_origin(new, "NEW")
    if before == after:
        raise WrongUse(f"{before} is the same address; nothing was changed")
    if before.is_loopback is not after.is_loopback:
        raise WrongUse("a gateway on this machine is for rehearsals: batches never move from it or to it")
    environment = environment_of(replace(settings.gateway, base_url=old))
    with ExitStack() as holds, closing(open_ledger(settings.ledger)) as ledger:
        moved = [
            batch for batch in ledger.batches() if batch.environment is environment and _is_for(batch, str(before))
        ]
        if not moved:
            raise WrongUse(f"no batch of the {environment} environment is intended for {before}; nothing was changed")
        for digest in {batch.digest for batch in moved}:
            holds.enter_context(ledger.lock(digest))
        names = [batch.batch for batch in moved]
        ledger.move_gateway(names, str(after), str(actor), reason)
        return names


def refuse_other_gateway(batch: BatchSummary, settings: Settings) -> None:
    """Refuse a batch of the other environment, or of a gateway other than the one in the settings."""
    environment = environment_of(settings.gateway)
    if batch.environment is not environment:
        raise SettingsNotUsable(
            f"batch {batch.batch} belongs to the {batch.environment} environment, these settings to the {environment} "
            f"one (gateway.environment); test and live never mix"
        )
    known, named = check_origin(batch.origin), check_origin(settings.gateway.base_url)
    if known != named:
        raise SettingsNotUsable(
            f"batch {batch.batch} is intended for the gateway {known}, the settings name {named}; if it is the same "
            f'gateway at a new address: batchpay ledger move-gateway {known} {named} --reason "…"'
        )


def note_on_address(ledger: Ledger | None, settings: Settings) -> list[str]:
    """Report if an environment's batches went to other addresses than the settings name."""
    try:
        named = check_origin(settings.gateway.base_url)
    except SettingsNotUsable:
        return []
    environment = environment_of(settings.gateway)
    known = ledger.origins(environment) if ledger is not None else []
    if not known or named.is_loopback or named in [check_origin(origin) for origin in known]:
        return []
    return [
        f"earlier {environment} batches went to {check_origin(known[-1])}, this one goes to {named}; if the gateway "
        f'has moved: batchpay ledger move-gateway {check_origin(known[-1])} {named} --reason "…"; '
        "if it is a test gateway: gateway.environment"
    ]


def _is_for(batch: BatchSummary, origin: str) -> bool:
    return str(check_origin(batch.origin)) == origin
