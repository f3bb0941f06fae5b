"""What a call requests, built from its options and the settings, and what a person decided: for every entrance.

Commands load it before they know what they need: what reads files or opens a socket is loaded where it is used.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import CredentialsNotUsable, SettingsNotUsable, WrongUse
from batchpay.settings import Settings
from batchpay.text import counted, place_of

if TYPE_CHECKING:  # few files have a map
    from batchpay.gateway.accounts import Preflight
    from batchpay.gateway.credentials import Credentials
    from batchpay.gateway.payments import ConnectionReport
    from batchpay.intake.maps.mapping import Mapping
    from batchpay.intake.source import Source
    from batchpay.ledger.contract import Ledger
    from batchpay.schemas.rule import RuleOptions
    from batchpay.sending.limits import StopRequest
    from batchpay.validation.rejects import Rejects
    from batchpay.workflows.run import RunRequest


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a person decided in this call, and why; no file and no variable can request it."""

    again: bool = False
    """Pay the same content once more, or the same file read in another way."""
    release: bool = False
    """Send rows of this batch that were rejected earlier and are valid now."""
    paid_elsewhere_checked: bool = False
    """A person has checked: neither another ledger nor the other environment paid this file, despite the signs."""
    reason: str | None = None
    rows: frozenset[int] | None = None
    """With `release`: these rows alone, and those that must be named."""
    gap: bool = False
    """The numbers that are missing before the file's own in its series will not come."""

    @property
    def again_reason(self) -> str | None:
        """Return why the same content is paid once more, or None if it is not."""
        return self.reason if self.again else None


def refuse_account_number(reason: str | None, source: Source, rules: RuleOptions) -> None:
    """Raise WrongUse if a reason contains an account number of the file: the ledger keeps it, and nothing erases it."""
    if reason is None:
        return
    import polars as pl  # few calls have a reason

    from batchpay.reconciliation.resolution import long_numbers
    from batchpay.validation.check import all_rows

    numbers = long_numbers(reason)
    digits = pl.col("achAccountNumber").str.replace_all("-", "", literal=True)
    for rows in all_rows(source, rules) if numbers else ():
        for row, line in rows.filter(digits.is_in(numbers)).select("_row", "_line").head(1).iter_rows():
            place = place_of(source.line_word, row, line)
            raise WrongUse(f"the reason contains the account number of {place}; write its last four digits only")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One payment file, how it is read, and what it is compared with."""

    path: str
    rules: RuleOptions
    rejects: Path | None = None
    format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    include_hidden: bool = False
    map_file: str | None = None
    mapping: Mapping | None = None
    """A map that was already read, instead of one in a file."""
    amounts_in: str | None = None
    """What amounts without decimals are in, where a person says so: dollars, cents or thousands."""
    expect_rows: int | None = None
    expect_cents: int | None = None
    max_errors: int = 1000
    name: str | None = None
    """The person's name for the file, if its path differs: it is shown, recorded, and determines the format."""
    sinks: tuple[Callable[[Source], Rejects], ...] = ()
    """What takes the rejected rows besides the rejects file; each is started over if the reading is."""
    watch: Callable[[int], None] | None = None
    """Called from time to time with the number of rows read; what it raises ends the check."""

    def on_day_of(self, ledger: Ledger | None) -> FileRequest:
        """Return the request for the ledger's day, if it is for the day that this machine's clock shows."""
        if ledger is None or self.rules.as_of != datetime.datetime.now().astimezone().date():
            return self
        return dataclasses.replace(self, rules=dataclasses.replace(self.rules, as_of=ledger.today()))


EVERY_RULE = "all"
"""As `CheckOptions.accept_suggestions`: the suggestions of every rule."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a payment file is read and what its rows are checked against, as far as a call may choose."""

    as_of: datetime.date | None = None
    """The day that counts as today; today if None."""
    pay_on: datetime.date | None = None
    """The day before which no row is sent; None leaves it to the file."""
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
    amounts_in: str | None = None
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


_AS_CHOSEN = (
    "format", "encoding", "sheet", "include_hidden", "map_file", "amounts_in", "expect_rows", "expect_cents",
    "max_errors",
)  # fmt: skip
"""What a request takes over as it was chosen."""


def file_request(path: str, rejects: Path | None, options: CheckOptions, settings: Settings) -> FileRequest:
    """Return how a file is read and what its rows are checked against; raises SettingsNotUsable, WrongUse."""
    from batchpay.schemas.catalogue import check_rules_off
    from batchpay.schemas.rule import RuleOptions

    rules = RuleOptions(
        as_of=options.as_of or datetime.datetime.now().astimezone().date(),
        normalize=options.normalize,
        accept_suggestions=_accepted_rules(options.accept_suggestions),
        warnings_as_errors=options.warnings_as_errors,
        allow_duplicates=options.allow_duplicates,
        allow_open_ended=options.allow_open_ended,
        require_agreement=settings.policy.require_agreement,
        past_start=settings.policy.refuses_past_start,
        pay_on=options.pay_on,
        pay_on_days=settings.limits.pay_on_days,
        duplicate_days=settings.policy.duplicate_days,
        max_amount_cents=settings.max_amount_cents,
        account_hyphens=settings.rules.account_hyphens,
        check_letters=settings.rules.check_letters,
        rules_off=frozenset(settings.policy.rules_off),
    )
    not_ours = check_rules_off(rules.rules_off)
    if not_ours:
        raise SettingsNotUsable(
            f"policy.rules_off names {', '.join(not_ours)}, which is not a house rule (batchpay rules)"
        )
    return FileRequest(path, rules, rejects, **{name: getattr(options, name) for name in _AS_CHOSEN})


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


def run_request(
    settings: Settings, options: SendOptions, stop: StopRequest | None = None
) -> tuple[RunRequest, Credentials]:
    """Return how far a run may go, what it checks at the gateway first, and the key; the results' path comes later.

    An origin that money must not be sent to is refused before anything else is done. Without a `stop`, for the owner of
    a process: once a run has begun, signals ask for its end.
    """
    from batchpay.gateway.accounts import Preflight
    from batchpay.sending.limits import Limits, SignalStop
    from batchpay.workflows.run import RunRequest

    credentials = _credentials(settings)
    preflight = None if options.preflight is False else Preflight(settings.gateway, credentials)
    stop = SignalStop(options.until) if stop is None else stop
    return RunRequest(None, Limits(rows_max=options.limit), preflight, stop), credentials


def preflight_of(settings: Settings) -> Preflight:
    """Return the gateway checks for all files of a call; a key in the environment can be read only once."""
    from batchpay.gateway.accounts import Preflight

    return Preflight(settings.gateway, _credentials(settings))


def _credentials(settings: Settings) -> Credentials:
    """Load the key for an origin that money may be sent to, and for no other."""
    from batchpay.gateway.origin import check_origin

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


def credentials_of(settings: Settings) -> Credentials:
    """Find the gateway's id and key; raises CredentialsNotUsable, also if a file of the ledger would be sent as one."""
    from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE, load_credentials
    from batchpay.ledger.open import own_files

    if named := os.environ.get(API_KEY_FILE_VARIABLE):
        for path, what in own_files(settings.ledger).items():
            if os.path.realpath(path) == os.path.realpath(named):
                raise CredentialsNotUsable(
                    f"{API_KEY_FILE_VARIABLE} names {what}, {path}: the gateway would be sent it"
                )
    return load_credentials(settings.gateway)


def test_gateway(settings: Settings) -> ConnectionReport:
    """Send an empty request to the gateway's connection test; raises SettingsNotUsable, CredentialsNotUsable."""
    from batchpay.gateway.origin import check_origin
    from batchpay.gateway.payments import PaymentsClient

    check_origin(settings.gateway.base_url)
    with closing(PaymentsClient(settings.gateway, credentials_of(settings))) as client:
        return client.test_connection()


def protected_files(settings: Settings, settings_file: Path | None) -> dict[Path, str]:
    """Return the files that no output may replace, whether or not they exist yet, with what each is."""
    from batchpay.gateway.credentials import API_KEY_FILE_VARIABLE
    from batchpay.ledger.open import own_files
    from batchpay.operations.health import last_call_path
    from batchpay.operations.notify import kept_path

    files = own_files(settings.ledger)
    for ledger in [path for path, what in files.items() if what == "the ledger"]:
        files[last_call_path(ledger)] = "the record of the last call"
    files[kept_path(settings)] = "the notices that have not arrived"
    for named, what in (
        (os.environ.get(API_KEY_FILE_VARIABLE), "the API key's file"),
        (settings.gateway.ca_bundle, "the certificates"),
        (settings.gateway.client_cert, "the client certificate"),
        (settings.gateway.client_key, "its private key"),
        (settings.notify.url_file, "the file of notify.url"),
        (settings.notify.key_file, "the key of notices"),
    ):
        if named:
            files[Path(named)] = what
    if settings_file is not None:
        files[settings_file] = "the settings file"
    return files
