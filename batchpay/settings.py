"""Settings: one frozen object, built once from `batchpay.toml` and the environment, passed down in parts.

An option overrides the environment, the environment overrides the file. Every setting has its type and default below,
and a line in settings.csv: key in the file, environment variable, bounds, meaning. Unknown keys are refused, since a
mistyped limit is no limit. Keys are not settings: gateway/credentials.py and the ledger read theirs with
`read_secret_file` when needed.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from batchpay.errors import CredentialsNotUsable, SettingsNotUsable, did_you_mean
from batchpay.payment import parse_cents
from batchpay.text import printable

AUTO = "auto"
"""The value of submit.rate that finds the pace during the run."""
RATE_LEAST, RATE_MOST = 0.1, 20_000.0
"""Bounds of submit.rate, in requests per second."""

DAYS_MOST = 100_000
"""Bound of every setting and option that counts days: 273 years, so that each leads to a date."""

_GUARDS = ("policy", "limits", "rules", "notify")
"""Tables of settings that prevent payments, or tell of them: one that only seems to be set is noticed too late."""
_KEY_HINT = ": the key is in the file that BATCHPAY_API_KEY_FILE names, or in BATCHPAY_API_KEY"
_BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """[gateway]: where payments go and how an exchange with the gateway is bounded."""

    base_url: str = ""
    api_id: str = ""
    environment: str = ""
    service_header: str = "SERVICE"
    timeout: float = 30.0
    connect_timeout: float = 10.0
    keep_alive: bool = True
    idle_s: float = 4.0
    answer_bytes_max: int = 65_536
    proxy: str = ""
    api_key_command: str = ""
    ca_bundle: str = ""
    client_cert: str = ""
    client_key: str = ""
    payment_path: str = "/v2/api/payment.json"
    resend_after_429: bool = True
    resend_after_503: bool = False
    reference_is_unique: bool = True
    stamp_invoice: bool = True
    recurring_agreement: str = "1"
    emails_node: str = "emails"
    profile: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    """[submit]: pace, concurrency and stops of a run."""

    rate: str = "10"
    workers: int = 8
    max_in_doubt: int = 5
    max_in_doubt_in_a_row: int = 3
    attempts_max: int = 6
    wait_s_max: float = 60.0


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """[ledger]: the durable record, its key and its witness."""

    url: str = ""
    key_file: str = ""
    witness: str = ""
    machine: str = ""
    pooler: bool = False


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """[policy]: house rules that can be changed."""

    require_agreement: bool = True
    past_start: bool = True
    duplicate_days: int = 5
    clock_ahead_days: int = 60
    zone: str = ""
    stale_days: int = 7
    variance: bool = True
    first_payment_above: str = ""
    approvals: int = 0
    approve_above: str = "0.00"
    second_above: str = ""
    approval_days: int = 7
    approval_window: int = 24
    makers_exempt: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    rules_off: list[str] = field(default_factory=list)
    given: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default=({}, {}), repr=False)
    """What the settings file says, and what variables say, each by name: workflows/policy.py obeys the strictest."""
    on_page: bool = False
    """Whether whatever is sent needs one other person, and two where the rest says so: on the web page."""

    @property
    def refuses_past_start(self) -> bool:
        """Whether a recurring payment can't start before today: either setting lets it."""
        return self.past_start and "recurringStartDate.past" not in self.rules_off


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """[limits]: what one payment, one file, and one day may not exceed."""

    max_amount: str = ""
    max_total: str = ""
    max_per_day: str = ""
    max_per_payee_day: str = ""
    max_rejected: str = ""
    pay_on_days: int = 90


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """[rules]: what a rule accepts beyond its default."""

    account_hyphens: bool = False
    check_letters: bool = False


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """[retention]: how long the ledger keeps personal data. No setting erases anything by itself."""

    details_days: int = 0


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """[notify]: whom batchpay tells what a person should hear of (docs/cron.md)."""

    url: str = field(default="", repr=False)
    url_file: str = ""
    key_file: str = ""
    link: str = ""
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one call."""

    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    submit: SubmitSettings = field(default_factory=SubmitSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    limits: LimitsSettings = field(default_factory=LimitsSettings)
    rules: RulesSettings = field(default_factory=RulesSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)

    @property
    def first_above_cents(self) -> int | None:
        """Above what the first payment of a payee is a warning; None if none is. Raises SettingsNotUsable."""
        cents = parse_cents(self.policy.first_payment_above)
        if cents is None and self.policy.first_payment_above:
            raise SettingsNotUsable("policy.first_payment_above must be an amount like 12345.67")
        return cents

    @property
    def max_amount_cents(self) -> int | None:
        """The highest amount of a payment; None if there is no limit. Raises SettingsNotUsable."""
        if not self.limits.max_amount:
            return None
        cents = parse_cents(self.limits.max_amount)
        if cents is None:
            raise SettingsNotUsable("limits.max_amount must be an amount like 12345.67")
        return None if "amount.limit" in self.policy.rules_off else cents


def _add_meanings() -> None:
    """Add to the fields what settings.csv says: meaning, variable, bounds, form (a pattern, and the same in words)."""
    kinds = {table: {item.name: item for item in fields(kind)} for table, kind in get_type_hints(Settings).items()}
    for line in csv.DictReader(Path(__file__).with_name("settings.csv").read_text("utf-8").splitlines()):
        table, _, name = line["key"].partition(".")
        said: dict[str, Any] = {"help": line["help"], "environment": line["environment"] or None}
        said |= {bound: float(line[bound]) if line[bound] else None for bound in ("least", "most")}
        said["form"] = (line["form"], line["form_words"]) if line["form"] else None
        kinds[table][name].metadata = MappingProxyType(said)


_add_meanings()


class Secret:
    """A text that masks itself wherever it is printed; `reveal()` is called only where it goes on the wire."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(****)"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not written anywhere")


def state_directory() -> Path:
    """Return where the ledger is unless a setting says otherwise (XDG_STATE_HOME)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "batchpay"


def config_directory() -> Path:
    """Return where the settings file, the ledger's key and its witness are (XDG_CONFIG_HOME): apart from the ledger."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "batchpay"


def load_settings(tables: dict[str, Any], environment: dict[str, str] | None = None) -> Settings:
    """Build the settings from the file's tables and the environment; raises SettingsNotUsable naming the key."""
    environment = dict(os.environ) if environment is None else environment
    parts = get_type_hints(Settings).items()
    settings = Settings(**{name: _load_part(name, cls, tables.get(name, {}), environment) for name, cls in parts})
    given = tables.get("policy", {}).get("given")  # of a process that was given all the settings of another one
    given = given or (_given(tables.get("policy", {}), {}), _given({}, environment))
    return replace(settings, policy=replace(settings.policy, given=tuple(given)))


def _given(values: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Return what is said of the policy, by name."""
    loaded = _load_part("policy", PolicySettings, values, environment)
    items = settings_of(PolicySettings)
    named = {item.name for item in items if item.name in values or environment.get(item.metadata["environment"] or "")}
    return {name: getattr(loaded, name) for name in sorted(named)}


def settings_of(table: Any) -> list[Field[Any]]:
    """Return the settings of a table's class."""
    return [item for item in fields(table) if item.metadata]


def readable_environment() -> dict[str, str]:
    """Return this program's variables without those that can't become a setting."""
    readable: dict[str, str] = {}
    for name, value in os.environ.items():
        if name.startswith("BATCHPAY_"):
            with contextlib.suppress(SettingsNotUsable):
                load_settings({}, {name: value})
                readable[name] = value
    return readable


def check_tables(tables: dict[str, Any], command_options: dict[str, set[str]]) -> None:
    """Refuse what is not a setting: `command_options` names the options that a command's own table may preset."""
    known_parts = get_type_hints(Settings)
    for table, values in tables.items():
        if table not in known_parts and table not in command_options:
            known = [*known_parts, *command_options]
            raise SettingsNotUsable(f"[{table}] is not a settings table{did_you_mean(table, known)}")
        if not isinstance(values, dict):
            raise SettingsNotUsable(f"{table} must be a table: [{table}]")
        names = {item.name for item in settings_of(known_parts[table])} if table in known_parts else set()
        names |= command_options.get(table, set())
        for name in values:
            if name not in names:
                hint = _KEY_HINT if f"{table}.{name}" == "gateway.api_key" else did_you_mean(name, names)
                raise SettingsNotUsable(f"{table}.{name} is not a setting{hint}")


def parse_rate(text: str, name: str = "submit.rate") -> float | None:
    """Read a rate: requests a second, or None for `auto`; raises SettingsNotUsable that calls it `name`."""
    if text.strip().lower() == AUTO:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not RATE_LEAST <= rate <= RATE_MOST:
        raise SettingsNotUsable(f"{name} must be a number from {RATE_LEAST:g} to {RATE_MOST:,.0f}, or {AUTO}")
    return rate


def _load_part(table: str, cls: Any, values: dict[str, Any], environment: dict[str, str]) -> Any:
    hints = get_type_hints(cls)
    chosen: dict[str, Any] = {}
    for item in settings_of(cls):
        variable = item.metadata["environment"]
        key = f"{table}.{item.name}"
        if not variable and table in _GUARDS:
            _refuse_variables(key, environment)
        if variable and environment.get(variable):
            chosen[item.name] = _convert(variable, hints[item.name], environment[variable])
        elif item.name in values:
            chosen[item.name] = _convert(key, hints[item.name], values[item.name])
        else:
            continue
        least = item.metadata["least"]
        if least is not None and chosen[item.name] < least:
            raise SettingsNotUsable(f"{key} must be at least {least:g}")
        form = item.metadata["form"]
        if form is not None and not re.fullmatch(form[0], chosen[item.name]):
            raise SettingsNotUsable(f"{key} must be {form[1]}")
        most = item.metadata["most"]
        if most is not None and chosen[item.name] > most:
            raise SettingsNotUsable(f"{key} must be at most {most:g}")
    return cls(**chosen)


def _refuse_variables(key: str, environment: dict[str, str]) -> None:
    """Refuse a variable that seems to set what only the file can set: whoever set it relies on a limit."""
    words = key.upper().split(".")
    for variable in ("_".join(("BATCHPAY", *words)), f"BATCHPAY_{words[1]}"):
        if environment.get(variable):
            raise SettingsNotUsable(f"no variable sets {key}, so {variable} would have no effect: use batchpay.toml")


def _convert(key: str, kind: Any, value: Any) -> Any:
    """Convert a TOML or environment value to the setting's type, or refuse it by its key."""
    if kind is bool:
        value = _BOOLEAN_WORDS.get(value.lower()) if isinstance(value, str) else value
        if isinstance(value, bool):
            return value
        raise SettingsNotUsable(f"{key} must be true or false")
    if kind in (int, float):
        if isinstance(value, bool):
            raise SettingsNotUsable(f"{key} must be a number")
        try:
            number = kind(str(value))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise SettingsNotUsable(f"{key} must be a {'whole ' if kind is int else ''}number")
        return number
    if kind is str:
        if isinstance(value, (str, int, float, Decimal)) and not isinstance(value, bool):
            return str(value)
        raise SettingsNotUsable(f"{key} must be text")
    origin = get_origin(kind)
    if origin is list:
        value = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(part, get_args(kind)[0]) for part in value):
            return list(value)
        raise SettingsNotUsable(f"{key} must be a list of text values")
    if isinstance(value, dict):
        return dict(value)
    raise SettingsNotUsable(f"{key} must be a table")


def read_secret_file(path: Path, name: str) -> Secret:
    """Read a secret from a regular file that nobody else can read; raises CredentialsNotUsable.

    Where every part of its path, and of what links in it name, belongs to root or this user, it may be a link and be
    readable by a group of this process: Kubernetes mounts secrets so.
    """
    try:
        is_kept = _is_kept(path)
        opened = os.path.realpath(path) if is_kept else path
        descriptor = os.open(opened, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "not a path"
        raise CredentialsNotUsable(f"{name}: {printable(str(path))} can't be read: {problem}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CredentialsNotUsable(f"{name}: {path} is not a regular file")
        is_of_own_group = is_kept and status.st_gid in {os.getegid(), *os.getgroups()}
        passed_in = os.environ.get("CREDENTIALS_DIRECTORY")  # by systemd: by group, read-only, as root
        is_by_systemd = bool(passed_in) and status.st_uid == 0 and path.parent == Path(str(passed_in))
        if status.st_mode & (0o037 if is_of_own_group or is_by_systemd else 0o077):
            raise CredentialsNotUsable(f"{name}: {path} is readable by other users; set its mode to 0600")
        text = os.read(descriptor, 65_536).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)
    if not text:
        raise CredentialsNotUsable(f"{name}: {path} is empty")
    return Secret(text)


def _is_kept(path: Path) -> bool:
    """Return whether root and this user alone decide what a path names: each folder, link, and the file itself."""
    path.stat()  # raises OSError for a circle of links
    absolute = path.absolute()
    for part in (*reversed(absolute.parents), absolute):
        status = part.lstat()
        if status.st_uid not in (0, os.geteuid()):
            return False
        if stat.S_ISLNK(status.st_mode):
            if not _is_kept(part.parent / part.readlink()):
                return False
        elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:  # in /tmp nobody renames what is another's
            return False
    return True
