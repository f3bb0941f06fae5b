"""Which gateway and which account there a batch is for, and a gateway whose address or API ID changed.

Its batches follow it if a named person says so and why.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from batchpay.errors import SettingsNotUsable, WrongUse
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor, State
from batchpay.settings import Settings

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary

_FOLLOWS = "nothing of it was sent yet: it follows the settings"
_PAID_OR_MAY_BE = (State.SENDING, State.ACCEPTED, State.DECLINED, State.IN_DOUBT)


def move_gateway(old: str, new: str, reason: str, settings: Settings, actor: Actor) -> list[str]:
    """Reassign the batches of one environment that were meant for `old` to `new`; return their names.

    With one address given twice, what is left of those begun under another API ID follows to that of the settings.
    Raises WrongUse if the two can't be one gateway or there is no such batch, BatchHeld while one is being sent.
    """
    before, after = check_origin(old, "OLD"), check_origin(new, "NEW")
    new_api_id = settings.gateway.api_id if before == after else ""
    if before.is_loopback is not after.is_loopback:
        raise WrongUse("a gateway on this machine is for rehearsals: batches never move from it or to it")
    environment = environment_of(replace(settings.gateway, base_url=old))
    with closing(open_ledger(settings.ledger)) as ledger:
        moved = [
            batch
            for batch in ledger.batches()
            if batch.environment is environment and check_origin(batch.origin) == before
        ]
        if before == after:
            moved = [batch for batch in moved if _is_of_another_account(ledger, batch, settings)]
            if not moved:
                raise WrongUse(f"{before} is the same address, and no batch waits under another gateway.api_id")
        if not moved:
            raise WrongUse(f"no batch of the {environment} environment is intended for {before}; nothing was changed")
        for digest in {batch.digest for batch in moved}:  # one after another: there may be thousands
            with ledger.lock(digest):
                pass
        names = [batch.batch for batch in moved]
        ledger.move_gateway(names, str(after), new_api_id, str(actor), reason)
        return names


def refuse_other_gateway(ledger: Ledger, batch: BatchSummary, settings: Settings) -> None:
    """Refuse a batch of the other environment, of another gateway, or of another account there than in the settings.

    Until the gateway has paid or declined a row of it, the account may still be corrected: one that the gateway does
    not know pays nothing.
    """
    environment = environment_of(settings.gateway)
    if batch.environment is not environment:
        raise SettingsNotUsable(
            f"batch {batch.batch} belongs to the {batch.environment} environment, these settings to the {environment} "
            f"one (gateway.environment); test and live never mix"
        )
    known, named = check_origin(batch.origin), check_origin(settings.gateway.base_url)
    if known != named and not _may_follow(ledger, batch, settings):
        raise SettingsNotUsable(
            f"batch {batch.batch} is intended for the gateway {known}, the settings name {named}; if it is the same "
            f'gateway at a new address: batchpay ledger move-gateway {known} {named} --reason "…"'
        )
    if _has_begun(batch) and _is_of_another_account(ledger, batch, settings):
        raise SettingsNotUsable(
            f"batch {batch.batch} was begun under another gateway.api_id than the settings name: its other payments "
            "would be made from another account; use the settings of the company that pays it. If that company's API "
            f'ID is a new one: batchpay ledger move-gateway {known} {known} --reason "…"'
        )


def follow_settings(ledger: Ledger, batch: BatchSummary, settings: Settings, actor: Actor) -> str | None:
    """Let a held batch of which nothing was to be sent yet go to the settings' address; return what to say of it.

    Its first call may have had a mistyped address; it is bound to one only by the first intent to send, by a plan, or
    by a person who moves its gateway.
    """
    known, named = check_origin(batch.origin), check_origin(settings.gateway.base_url)
    if known == named:
        return None
    ledger.move_gateway([batch.batch], str(named), "", str(actor), _FOLLOWS)
    return f"batch {batch.batch}: nothing of it was sent to {known} yet; it goes to {named}"


def _may_follow(ledger: Ledger, batch: BatchSummary, settings: Settings) -> bool:
    """Return whether nothing binds a batch to its address: no intent to send, no plan used, no person's move."""
    from batchpay.ledger.records import PLAN_USED

    known, named = check_origin(batch.origin), check_origin(settings.gateway.base_url)
    if known.is_loopback is not named.is_loopback or _has_begun(batch):
        return False
    return not any(
        event.kind in ("progress", PLAN_USED) or (event.kind == "gateway moved" and event.why != _FOLLOWS)
        for event in ledger.events(batch.batch)
    )


def notes_on_gateway(ledger: Ledger | None, settings: Settings) -> list[str]:
    """Report if an environment's batches went to other addresses, or the latest to another account, than these do."""
    if ledger is None:
        return []
    try:
        named = check_origin(settings.gateway.base_url)
    except SettingsNotUsable:
        return []
    environment = environment_of(settings.gateway)
    known = ledger.origins(environment)
    if not known:
        return []
    notes = []
    if not named.is_loopback and named not in map(check_origin, known):
        batches = [batch for batch in reversed(ledger.batches()) if batch.environment is environment]
        known = [batch.origin for batch in batches if _has_begun(batch)]
    if known and not named.is_loopback and named not in map(check_origin, known):
        notes.append(
            f"earlier {environment} batches went to {check_origin(known[-1])}, this one goes to {named}; if the "
            f'gateway has moved: batchpay ledger move-gateway {check_origin(known[-1])} {named} --reason "…"; '
            "if it is a test gateway: gateway.environment"
        )
    latest = ledger.find(None, environment)
    if _has_begun(latest) and ledger.pays_from_another_account(latest.batch, settings.gateway.api_id):
        notes.append(
            f"the latest {environment} batch was paid under another gateway.api_id than the settings name; each "
            "company needs a ledger of its own (ledger.url)"
        )
    return notes


def _has_begun(batch: BatchSummary) -> bool:
    """Return whether something of a batch was paid or declined, or may have been."""
    return any(batch.by_state[state].rows for state in _PAID_OR_MAY_BE)


def _is_of_another_account(ledger: Ledger, batch: BatchSummary, settings: Settings) -> bool:
    """Return whether what is left of a batch was begun under another API ID than the settings name."""
    pending = batch.by_state[State.PENDING].rows
    return pending > 0 and ledger.pays_from_another_account(batch.batch, settings.gateway.api_id)
