"""The policy in force: per setting and environment the strictest of the ledger, the settings file and variables.

The ledger has it from a named person (`batchpay ledger policy`), or from a settings file the first time that the file
is stricter, never from a variable. Raising it takes effect at once. Lowering it is a request that as many other people
as the policy in force must approve; it takes effect without them after LOWERED_AFTER, unless somebody refuses it. What
the ledger keeps is one event's detail: the `zone` of days, the settings by environment, and the requests (`lowering`).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from batchpay.approval.approvals import Approval, OfMaker, Policy, is_off
from batchpay.errors import FileRefused, SettingsNotUsable, WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.operations.logs import log
from batchpay.payment import Actor, Environment, parse_cents
from batchpay.settings import PolicySettings, Settings
from batchpay.text import instant, local_time, printable

LOWERED_AFTER = timedelta(hours=72)
"""After this time a lowering takes effect that nobody has approved or refused."""
_HOW = "batchpay ledger policy set --zone {} --reason TEXT"


def _cents(text: str) -> float:
    """Return the cents of an amount; no amount is the highest."""
    if (cents := parse_cents(text)) is None and text:
        raise SettingsNotUsable(f"policy: {printable(text)} is no amount like 12345.67")
    return math.inf if cents is None else cents


_STRICTEST: dict[str, Callable[[list[Any]], Any]] = {
    "approvals": max,
    "approve_above": lambda texts: min(texts, key=_cents),
    "second_above": lambda texts: min(texts, key=_cents),
    "approval_days": min,
    "approval_window": max,
    "makers_exempt": lambda lists: sorted(set.intersection(*map(set, lists))),
    "hold": lambda lists: sorted(set().union(*lists)),
}
NONE: dict[str, Any] = {name: getattr(PolicySettings(), name) for name in _STRICTEST}
"""The policy that asks nobody and holds nothing: what applies where nothing is said."""


def _strictest(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the strictest of what some say, by setting."""
    said = {name: [part[name] for part in parts if name in part] for name in NONE} if (parts := list(parts)) else {}
    return {name: _STRICTEST[name](said[name]) if said.get(name) else default for name, default in NONE.items()}


@dataclass(frozen=True, slots=True)
class Lowering:
    """A request for a less strict policy that has not taken effect."""

    who: Actor
    why: str
    at: datetime
    to: Mapping[str, Any]
    """All the settings, as they would be."""
    approvals: tuple[Approval, ...] = ()

    @property
    def due(self) -> datetime:
        """When it takes effect without approvals."""
        return self.at + LOWERED_AFTER

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Lowering:
        """Read what the ledger keeps."""
        approvals = [
            Approval(Actor(**one["who"]), datetime.fromisoformat(one["at"]), "", "") for one in kept["approvals"]
        ]
        at = datetime.fromisoformat(kept["at"])
        return cls(Actor(**kept["who"]), kept["why"], at, NONE | kept["to"], tuple(approvals))

    def as_json(self) -> dict[str, Any]:
        """Return what the ledger keeps."""
        approvals = [{"who": asdict(one.who), "at": instant(one.at)} for one in self.approvals]
        kept = {"who": asdict(self.who), "why": self.why, "at": instant(self.at)}
        return {**kept, "to": dict(self.to), "approvals": approvals}


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What applies now in one environment."""

    settings: PolicySettings
    """All of [policy], with what is in force."""
    environment: str
    recorded: Mapping[str, Any] | None
    """What the ledger has; None if nobody has set it."""
    lowering: Lowering | None

    @property
    def approvals(self) -> Policy:
        """How many must approve what; raises SettingsNotUsable."""
        return Policy.from_settings(self.settings)

    @property
    def hold(self) -> frozenset[str]:
        """Warnings, as column.code, with which a row is held for a person."""
        return frozenset(self.settings.hold)

    @property
    def notes(self) -> list[str]:
        """Say that the policy is to be lowered, or that the ledger has none."""
        if self.recorded is None and self.environment == "live":
            return [
                "the ledger has no policy: who must approve is decided by the settings of whoever submits, until "
                "somebody sets it for all (batchpay ledger policy set --reason TEXT, or batchpay ledger policy none "
                "--reason TEXT)"
            ]
        if (asked := self.lowering) is None:
            return []
        now = self.recorded or NONE
        changes = [
            f"{name} {_written(now[name])} to {_written(asked.to[name])}"
            for name in NONE
            if now[name] != asked.to[name]
        ]
        return [
            f"{printable(str(asked.who))} asked to lower the policy ({', '.join(changes)}: {printable(asked.why)}); it "
            f"takes effect on {local_time(asked.due)}, or once other people approve it: batchpay ledger policy "
            "approve, batchpay ledger policy refuse --reason TEXT"
        ]


def _written(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return printable(text) or "none"


def policy_in_force(ledger: Ledger | None, settings: Settings) -> PolicyInForce:
    """Return the policy in force; raises SettingsNotUsable for amounts that are none."""
    Policy.from_settings(settings.policy)
    environment = environment_of(settings.gateway).value
    event = None if ledger is None else ledger.policy()
    kept = json.loads(event.detail) if event else {}
    recorded, lowering = _kept(kept, environment, ledger)
    file, variables = settings.policy.given
    whole = recorded or ({**NONE, **file} if file.keys() & NONE.keys() else {})
    direct = {name: said for name in NONE if (said := getattr(settings.policy, name)) != NONE[name]}
    in_force = _strictest([whole, file, variables, direct])
    return PolicyInForce(replace(settings.policy, **in_force), environment, recorded, lowering)


def _kept(
    kept: Mapping[str, Any], environment: str, ledger: Ledger | None
) -> tuple[dict[str, Any] | None, Lowering | None]:
    """Return what the ledger has for an environment, and what is to be lowered: after LOWERED_AFTER it is."""
    recorded = NONE | kept[environment] if environment in kept else None
    if environment not in kept.get("lowering", {}) or ledger is None:
        return recorded, None
    lowering = Lowering.read(kept["lowering"][environment])
    # Nor by a clock that was set: the day on which it is due must certainly have come.
    is_due = ledger.now() >= lowering.due and ledger.certain_today() >= lowering.due.astimezone(ledger.zone()).date()
    return (dict(lowering.to), None) if is_due else (recorded, lowering)


def of_maker(
    ledger: Ledger | None, policy: Policy, maker: Actor, environment: str, to_send: Mapping[Any, int], adds: int
) -> OfMaker | None:
    """Return what a maker would have added without approval, if `adds` cents of what is sent by direction are new."""
    if ledger is None or not policy.asks:
        return None
    check = policy.maker_check(maker, ledger.now(), 0)
    before = ledger.added_alone(Environment(environment), check) if check.below_cents is not None else {}
    sums = {name: before.get(name, 0) + min(cents, adds) for name, cents in to_send.items() if min(cents, adds)}
    most = max(sums, key=lambda name: sums[name], default="")
    return OfMaker(str(maker), most, sums[most]) if before.get(most) else None


def settle_policy(ledger: Ledger, settings: Settings, actor: Actor, say: Callable[[str], None]) -> None:
    """Write into the ledger what the settings file has and it has not: a zone, and what is stricter.

    `say` is told what a person should know of the policy. Raises SettingsNotUsable if it is another zone than the
    ledger has, or if there is no such zone.
    """
    if wanted := settings.policy.zone:
        if not is_zone(wanted):
            raise SettingsNotUsable(f"policy.zone: {printable(wanted)} is no time zone: write it like America/New_York")
        known = ledger.zone()
        if known is None:
            ledger.set_policy(lambda kept: {**kept, "zone": wanted}, str(actor), "policy.zone of the settings file")
        elif known.key != wanted:
            raise SettingsNotUsable(
                f"policy.zone is {wanted}, and the ledger has {known.key}; to change it for all machines: "
                f"{_HOW.format(wanted)}"
            )
    file = {name: said for name, said in settings.policy.given[0].items() if name in NONE}
    recorded = policy_in_force(ledger, settings).recorded
    if file and recorded != _strictest([recorded or NONE | file, file]):
        _require_warnings(file)

        def raised(recorded: _Values | None, lowering: Lowering | None) -> tuple[_Values, Lowering | None]:
            return _strictest([recorded or NONE | file, file]), None

        _change(ledger, settings, actor, "policy of the settings file", raised)
    for note in policy_in_force(ledger, settings).notes:
        say(note)
        log("policy", level=logging.WARNING, reason=note)


def set_policy(
    settings: Settings, changes: dict[str, Any], zone: str | None, reason: str | None, actor: Actor
) -> dict[str, Any]:
    """Set the zone and settings for all machines; what is less strict is asked for. Returns what `policy_of` does."""
    from batchpay.workflows.ledger_care import require_reason  # a check reads the policy, and sets none

    why = require_reason("ledger policy", reason)
    if zone is not None and not is_zone(zone):
        raise WrongUse(f"--zone: {printable(zone)} is no time zone: write it like America/New_York")
    _require_warnings(changes)
    with closing(open_ledger(settings.ledger)) as ledger:
        asked = policy_in_force(ledger, settings).approvals.most
        file, now = {name: said for name, said in settings.policy.given[0].items() if name in NONE}, ledger.now()

        def changed(recorded: _Values | None, _: Lowering | None) -> tuple[_Values, Lowering | None]:
            wanted = (recorded or NONE | file) | changes
            asks = wanted["approvals"] or wanted["second_above"]  # who asks nobody makes nothing stricter by an amount
            raised = _strictest([recorded or wanted, wanted if asks else {"hold": wanted["hold"]}])
            if raised == _strictest([wanted]) or not asked:
                return wanted, None
            return raised, Lowering(actor, why, now, wanted)

        if zone is not None:
            ledger.set_policy(lambda kept: {**kept, "zone": zone}, str(actor), why)
        if changes:
            _change(ledger, settings, actor, why, changed)
        return _told(ledger, settings)


def _require_warnings(changes: Mapping[str, Any]) -> None:
    """Raise SettingsNotUsable if `hold` names what is no warning: what the ledger has, one person can't take back."""
    if changes.get("hold"):
        from batchpay.workflows.holding import held_names  # a run reads the policy, and knows no rules

        held_names(changes["hold"])


def decide_lowering(
    settings: Settings, actor: Actor, refused_for: str | None = None, *, asked_at: str | None = None
) -> dict[str, Any]:
    """Approve a request for a less strict policy, or refuse it for a reason; return what `policy_of` does.

    Raises WrongUse where there is none, or not the one of `asked_at`, and WaitingForPerson where another person must
    approve.
    """
    with closing(open_ledger(settings.ledger)) as ledger:
        policy, now, off = policy_in_force(ledger, settings).approvals, ledger.now(), ledger.people_off()

        def decided(recorded: _Values | None, lowering: Lowering | None) -> tuple[_Values, Lowering | None]:
            if lowering is None or asked_at not in (None, instant(lowering.at)):
                raise WrongUse("nobody asks to lower the policy" if lowering is None else "another request came since")
            if refused_for is not None:
                return recorded or NONE, None
            given = [one for one in lowering.approvals if not is_off(one.who, off)]
            policy.require_other(actor, given, lowering.who)
            approvals = (*given, Approval(actor, now, "", ""))
            if len(approvals) >= policy.most:
                return dict(lowering.to), None
            return recorded or NONE, replace(lowering, approvals=approvals)

        done = "approved the lowering" if refused_for is None else f"refused the lowering: {refused_for}"
        _change(ledger, settings, actor, done, decided)
        return _told(ledger, settings)


def _told(ledger: Ledger, settings: Settings) -> dict[str, Any]:
    """Notify whoever hears of a lowering, or that nobody has to decide about it anymore."""
    from batchpay.operations.notify import Notice, notify  # a check notifies nobody

    found = policy_in_force(ledger, settings)
    notify(settings, Notice.POLICY_LOWERING if found.lowering else None, about=f"policy of {found.environment}")
    return _policy(ledger, settings)


_Values = dict[str, Any]


def _change(
    ledger: Ledger,
    settings: Settings,
    actor: Actor,
    why: str,
    decide: Callable[[_Values | None, Lowering | None], tuple[_Values, Lowering | None]],
) -> None:
    """Write what is decided about what the ledger has at that moment for the environment, and about its lowering."""
    environment = environment_of(settings.gateway).value

    def changed(kept: _Values) -> _Values:
        values, lowering = decide(*_kept(kept, environment, ledger))
        asked = {name: one for name, one in kept.get("lowering", {}).items() if name != environment}
        asked |= {environment: lowering.as_json()} if lowering else {}
        return {**kept, environment: values, "lowering": asked}

    ledger.set_policy(changed, str(actor), why)


def require_zone(ledger: Ledger | None, settings: Settings, file: str) -> None:
    """Raise FileRefused for a file with days if nobody has said in which zone they begin."""
    if (note := note_without_zone(ledger, settings, file)) is not None:
        raise FileRefused(note)


def note_without_zone(ledger: Ledger | None, settings: Settings, file: str) -> str | None:
    """Say of a file with days that nobody has said in which zone they begin, and what sets it; None if it is set."""
    if settings.policy.zone or (ledger is not None and ledger.zone() is not None):
        return None
    return (
        f"{printable(file)} says on which days to send payments (payOn), and nobody has said in which time zone: "
        f"{_HOW.format('America/New_York')}"
    )


def is_zone(name: str) -> bool:
    """Return whether there is a time zone of this name."""
    try:
        return bool(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def policy_of(settings: Settings) -> dict[str, Any]:
    """Return the policy in force, and who (`who`, `why`, `at`) last changed what the ledger has; None if nobody has."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return _policy(ledger, settings)


def _policy(ledger: Ledger, settings: Settings) -> dict[str, Any]:
    found, event, zone = policy_in_force(ledger, settings), ledger.policy(), ledger.zone()
    return {
        "zone": zone.key if zone else None,
        "environment": found.environment,
        "in_force": {name: getattr(found.settings, name) for name in NONE},
        "recorded": found.recorded,
        "notes": found.notes,
        **(dict.fromkeys(("who", "why", "at")) if event is None else
           {"who": event.who, "why": event.why, "at": instant(event.at)}),
    }  # fmt: skip
