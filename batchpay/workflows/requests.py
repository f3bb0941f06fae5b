"""What a call requests, built from its options and the settings: the same for every entrance."""

from __future__ import annotations

import dataclasses
import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import SettingsNotUsable, WrongUse
from batchpay.payment import parse_cents
from batchpay.settings import Settings
from batchpay.text import counted

if TYPE_CHECKING:
    from batchpay.gateway.accounts import Preflight
    from batchpay.gateway.credentials import Credentials
    from batchpay.workflows.file_request import FileRequest
    from batchpay.workflows.run import ProcessOwner, RunRequest

EVERY_RULE = "all"
"""As `CheckOptions.accept_suggestions`: the suggestions of every rule."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a payment file is read and what its rows are checked against, as far as a call may choose."""

    as_of: datetime.date | None = None
    """The day that counts as today; today if None."""
    normalize: bool = False
    accept_suggestions: str | None = None
    """Rules whose suggestions are accepted, `column.code,column.code`, or EVERY_RULE; None means none."""
    warnings_as_errors: bool = False
    allow_duplicates: bool = False
    allow_open_ended: bool = False
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    include_hidden: bool = False
    map_file: str | None = None
    expect_rows: int | None = None
    expect_cents: int | None = None
    max_errors: int = 1000


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How a run sends, as far as a call may choose; None leaves the setting as it is."""

    rate: str | None = None
    workers: int | None = None
    max_in_doubt: int | None = None
    until: float | None = None
    """Unix time after which no further row is begun."""
    limit: int | None = None
    """The most rows begun in all files together."""
    preflight: bool | None = None
    """Whether the gateway's connection and accounts are checked first."""


def max_amount_cents(settings: Settings) -> int | None:
    """Return the highest amount of a payment; None if there is no limit. Raises SettingsNotUsable."""
    if not settings.limits.max_amount:
        return None
    cents = parse_cents(settings.limits.max_amount)
    if cents is None:
        raise SettingsNotUsable("limits.max_amount must be an amount like 12345.67")
    return None if "amount.limit" in settings.policy.rules_off else cents


def file_request(path: str, rejects: Path | None, options: CheckOptions, settings: Settings) -> FileRequest:
    """Return how a file is read and what its rows are checked against; raises SettingsNotUsable, WrongUse."""
    from batchpay.schemas.catalogue import check_rules_off
    from batchpay.schemas.options import RuleOptions
    from batchpay.workflows.file_request import FileRequest

    rules = RuleOptions(
        as_of=options.as_of or datetime.datetime.now().astimezone().date(),
        normalize=options.normalize,
        accept_suggestions=_accepted_rules(options.accept_suggestions),
        warnings_as_errors=options.warnings_as_errors,
        allow_duplicates=options.allow_duplicates,
        allow_open_ended=options.allow_open_ended,
        require_agreement=settings.policy.require_agreement,
        past_start=settings.policy.refuses_past_start,
        max_amount_cents=max_amount_cents(settings),
        account_hyphens=settings.rules.account_hyphens,
        check_letters=settings.rules.check_letters,
        rules_off=frozenset(settings.policy.rules_off),
    )
    not_ours = check_rules_off(rules.rules_off)
    if not_ours:
        raise SettingsNotUsable(
            f"policy.rules_off names {', '.join(not_ours)}, which is not a house rule (batchpay rules)"
        )
    return FileRequest(
        path=path,
        rules=rules,
        rejects=rejects,
        format=options.format,
        encoding=options.encoding,
        sheet=options.sheet,
        include_hidden=options.include_hidden,
        map_file=options.map_file,
        expect_rows=options.expect_rows,
        expect_cents=options.expect_cents,
        max_errors=options.max_errors,
    )


def _accepted_rules(names: str | None) -> frozenset[str]:
    """Return the rules whose suggestions are accepted; raises WrongUse if one makes no suggestions."""
    from batchpay.schemas.catalogue import suggesting_rules

    if names is None:
        return frozenset()
    if names == EVERY_RULE:
        return suggesting_rules()
    accepted = {name for part in names.split(",") if (name := part.strip())}
    if not accepted:
        raise WrongUse(f"--accept-suggestions names no rule; for all of them: --accept-suggestions={EVERY_RULE}")
    unknown = sorted(accepted - suggesting_rules())
    if unknown:
        raise WrongUse(
            f"--accept-suggestions: no rule with suggestions is called {', '.join(unknown)}. Name rules like "
            f"amount.format,billingPhone.phone, or {EVERY_RULE} of them; after the files the option needs no value"
        )
    return frozenset(accepted)


def sending_settings(settings: Settings, options: SendOptions) -> Settings:
    """Apply the options of this call to the settings."""
    names = ("rate", "workers", "max_in_doubt")
    chosen = {name: value for name in names if (value := getattr(options, name)) is not None}
    return dataclasses.replace(settings, submit=dataclasses.replace(settings.submit, **chosen))


def run_request(settings: Settings, options: SendOptions, owner: ProcessOwner) -> tuple[RunRequest, Credentials]:
    """Return how far a run may go, what it checks at the gateway first, and the key; the results' path comes later.

    An origin that money must not be sent to is refused before anything else is done.
    """
    from batchpay.gateway.accounts import Preflight
    from batchpay.sending.limits import Limits
    from batchpay.workflows.run import RunRequest

    credentials = _credentials(settings)
    preflight = None if options.preflight is False else Preflight(settings.gateway, credentials)
    limits = Limits(rows_max=options.limit, until=options.until)
    return RunRequest(None, limits, preflight, owner=owner), credentials


def preflight_of(settings: Settings) -> Preflight:
    """Return the gateway checks for all files of a call; a key in the environment can be read only once."""
    from batchpay.gateway.accounts import Preflight

    return Preflight(settings.gateway, _credentials(settings))


def _credentials(settings: Settings) -> Credentials:
    """Load the key for an origin that money may be sent to, and for no other."""
    from batchpay.gateway.origin import check_origin
    from batchpay.workflows.connection import credentials_of

    check_origin(settings.gateway.base_url)
    return credentials_of(settings)


def targets(settings: Settings) -> list[str]:
    """Describe where payments go, how fast, and where they are recorded; raises SettingsNotUsable."""
    from batchpay.ledger.open import location

    submit, gateway = settings.submit, settings.gateway
    return [
        f"gateway {gateway.base_url}, {counted(submit.workers, 'worker')}, rate {submit.rate} requests per second",
        f"ledger {location(settings.ledger).name}",
    ]


def moves_real_money(settings: Settings) -> bool:
    """Return whether the gateway is anything but this machine itself, so that a person is asked before a run."""
    from batchpay.gateway.origin import check_origin

    return not check_origin(settings.gateway.base_url).is_loopback
