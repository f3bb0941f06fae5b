"""How many other people must approve, and whose approval counts: the one place that decides it.

The command line and any page call this; `Policy.require` comes before every registration, release and run. A file above
one of the [limits] for whole files or for a day is refused, unless other people approve a plan that names the limit.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from batchpay.errors import SettingsNotUsable, WaitingForPerson
from batchpay.ledger.days import DayLimits, Exceeded, MakerCheck
from batchpay.payment import ON_THE_WEB, Actor, Totals, parse_cents
from batchpay.settings import LimitsSettings, PolicySettings
from batchpay.text import counted, folded, local_time, money, printable, row_count

APPROVALS_MAX = 2
"""No more people than this are ever required."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One person's approval of a plan."""

    who: Actor
    at: datetime
    seal: str
    """What the person saw."""
    code: str
    """Keyed: nobody can approve in another's name without the ledger's key."""


@dataclass(frozen=True, slots=True)
class Policy:
    """[policy] of the settings, as far as it concerns approvals."""

    approvals: int
    above_cents: int
    days: int
    second_above_cents: int | None = None
    """From this total on two people are required; None where there is no such total."""
    window: timedelta = timedelta(days=1)
    """What one maker registered or released in this time without approval counts together."""
    makers_exempt: frozenset[str] = frozenset()
    """The keys of makers of whom each file counts by itself."""

    @classmethod
    def from_settings(cls, settings: PolicySettings) -> Policy:
        """Read the settings; raises SettingsNotUsable."""
        above_cents = parse_cents(settings.approve_above)
        second_cents = parse_cents(settings.second_above)
        if above_cents is None or (settings.second_above and second_cents is None):
            name = "approve_above" if above_cents is None else "second_above"
            raise SettingsNotUsable(f"policy.{name} must be an amount like 12345.67")
        approvals = settings.approvals
        if settings.on_page:
            twice = second_cents, above_cents if approvals > 1 else None
            second_cents = min((cents for cents in twice if cents is not None), default=None)
            approvals, above_cents = 1, 0
        window, exempt = timedelta(hours=settings.approval_window), frozenset(map(_key, settings.makers_exempt))
        return cls(approvals, above_cents, settings.approval_days, second_cents, window, exempt)

    @property
    def most(self) -> int:
        """How many people must approve whatever needs most approvals."""
        return APPROVALS_MAX if self.second_above_cents is not None else self.approvals

    def needed(self, cents: int, *, over_limit: bool = False, of_maker: OfMaker | None = None) -> int:
        """How many people must approve a batch of this total: at least one if it exceeds a limit."""
        cents = max(cents, of_maker.cents if of_maker else 0)
        if self.second_above_cents is not None and cents >= self.second_above_cents:
            return APPROVALS_MAX
        return max(self.approvals if cents >= self.above_cents else 0, int(over_limit))

    @property
    def asks(self) -> bool:
        """Whether any total needs approval."""
        return bool(self.approvals) or self.second_above_cents is not None

    def counted(
        self, approvals: Iterable[Approval], prepared_by: Actor, seal: str, now: datetime, off: Collection[str] = ()
    ) -> list[Approval]:
        """Return those that count: each person once, not the preparer, for this seal, none expired or in the future.

        Nor those of people of the page who are switched `off`.
        People with a login of their own are counted first: an account that they share may be any of them.
        """
        counted: list[Approval] = []
        for approval in sorted(approvals, key=lambda one: not one.who.is_by_login):
            others = (prepared_by, *(one.who for one in counted))
            is_other = person_key(approval.who) and not any(may_be_one(approval.who, other) for other in others)
            is_in_time = approval.at <= now < approval.at + timedelta(days=self.days)
            if is_other and is_in_time and approval.seal == seal and not is_off(approval.who, off):
                counted.append(approval)
        return counted

    def require_other(self, approver: Actor, approvals: Iterable[Approval], prepared_by: Actor) -> None:
        """Raise WaitingForPerson unless this person's approval would count in addition to the counted ones."""
        person = person_key(approver)
        if not person:
            raise WaitingForPerson("an approval needs a person's name")
        if person == person_key(prepared_by):
            raise WaitingForPerson(f"{printable(str(approver))} prepared this; another person must approve it")
        if may_be_one(approver, prepared_by):
            raise WaitingForPerson(
                f"{printable(str(prepared_by))} prepared this, and nothing shows that {printable(str(approver))} is "
                "another person: the preparer and the approver must each log in under their own account"
            )
        for approval in approvals:
            if person in (person_key(approval.who), _key(approval.who.account)):
                raise WaitingForPerson(
                    f"{printable(str(approver))} already approved this, on {local_time(approval.at)}; "
                    "another person must approve it"
                )

    def maker_check(self, maker: Actor, now: datetime, approvals: int) -> MakerCheck:
        """Return what a maker may add with so many approvals."""
        asked = (self.above_cents, self.approvals), (self.second_above_cents, APPROVALS_MAX)
        totals = [cents for cents, people in asked if cents is not None and people > approvals]
        below = None if _key(maker.name) in self.makers_exempt else min(totals, default=None)
        since = round((now - self.window).timestamp() * 1000)
        is_approved = approvals > 0
        return MakerCheck(_key(maker.name), _key(maker.account), since, below, self.makers_exempt, is_approved)

    def require(
        self, file: str, cents: int, approvals: int, *, over_limit: bool = False, of_maker: OfMaker | None = None
    ) -> None:
        """Raise WaitingForPerson where a batch of this total has too few approvals."""
        missing = self.needed(cents, over_limit=over_limit, of_maker=of_maker) - approvals
        if missing > 0:
            others = "another person" if missing == 1 else f"{missing} other people"
            told = f"{money(cents)} in all"
            if of_maker is not None and self.needed(cents) < self.needed(cents, of_maker=of_maker):
                told = f"{told}, {self.why(of_maker)},"
            raise WaitingForPerson(
                f"{printable(file)}: {told} needs approval by {others}; nothing was registered or sent "
                "(batchpay submit FILE --dry-run --plan PLAN, batchpay approve PLAN, batchpay submit FILE "
                "--from-plan "
                "PLAN)"
            )

    def why(self, of_maker: OfMaker) -> str:
        """Say what a maker's files add up to, and which total asks for approval."""
        limits = {"approve_above": self.above_cents, "second_above": self.second_above_cents}
        name = max(
            (name for name, cents in limits.items() if cents is not None and of_maker.cents >= cents), default=""
        )
        return (
            f"{money(of_maker.cents)} with the {of_maker.direction.lower()}s that {printable(of_maker.maker)} "
            f"registered without approval in the last {counted(round(self.window.total_seconds() / 3600), 'hour')}"
            + (f" (policy.{name} is {money(limits[name] or 0)})" if limits.get(name) else "")
        )


@dataclass(frozen=True, slots=True)
class OfMaker:
    """What one maker would have registered or released without approval in the last `policy.approval_window`."""

    maker: str
    direction: str
    cents: int
    """Debits and credits apart: the higher of the two."""


def person_key(actor: Actor) -> str:
    """Return what two spellings of one person share, on any machine: case, width, blanks and domain don't matter."""
    return _key(actor.name)


def is_off(actor: Actor, off: Collection[str]) -> bool:
    """Return whether a person of the page is among those who are switched off."""
    return actor.name in off and actor.authenticated_by.startswith(ON_THE_WEB)


_NOTE_WORDS = 3


def is_note(words: str) -> bool:
    """Return whether this can say who was called, and by which number: "ok" and "n/a" can't."""
    return len(set(words.casefold().split())) >= _NOTE_WORDS


def may_be_one(one: Actor, other: Actor) -> bool:
    """Return whether two actors may be the same person: an account without a login may be anybody who uses it."""
    names = person_key(one), person_key(other)
    return names[0] == names[1] or names[0] == _key(other.account) or names[1] == _key(one.account)


def _key(name: str) -> str:
    account = folded(name).partition("@")[0].rpartition("\\")[2]
    return "".join(character for character in account if unicodedata.category(character)[0] not in "ZC")


_REJECTED = re.compile(r"([0-9]{1,9})|([0-9]{1,2}(?:\.[0-9]{1,4})?|100)%")


OTHERS = ": with what else is sent or planned "
"""What follows changes while others' payments are sent."""


def over_day(what: str, found: Exceeded) -> str:
    """Describe a limit of a day that `what`, an account or a direction, exceeds, and by how much."""
    day, limit = date.fromordinal(found.day), money(found.limit_cents)
    return (
        f"{what} of {day:%m/%d/%Y}, {money(found.adds_cents)}, exceed limits.{found.name} ({limit}){OTHERS}"
        f"{money(found.total_cents)}, {money(found.total_cents - found.limit_cents)} too much"
    )


def lasting(over_limits: Iterable[str]) -> list[str]:
    """Return what of exceeded limits stays as it is while others' payments are sent: that is what people approve."""
    return [told.partition(OTHERS)[0] for told in over_limits]


def lifted_by(over_limits: Iterable[str]) -> tuple[str, ...]:
    """Return the limits of a day that a plan with these lifts."""
    return tuple(sorted({name for told in over_limits for name in _OF_DAY.findall(told)}))


_OF_DAY = re.compile(r"limits\.(max_per_\w+)")


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What one file, and all of a day, may add to the ledger; None where there is no limit."""

    total_cents: int | None
    rejected_rows: int | None
    rejected_percent: Decimal | None
    rejected: str
    """The limit of rejected rows as it is set."""
    of_day: DayLimits

    @classmethod
    def from_settings(cls, settings: LimitsSettings) -> FileLimits:
        """Read the settings; raises SettingsNotUsable."""
        amounts = {name: getattr(settings, name) for name in ("max_total", "max_per_day", "max_per_payee_day")}
        cents, rejected = {name: parse_cents(text) for name, text in amounts.items()}, settings.max_rejected.strip()
        for name, text in amounts.items():
            if text and cents[name] is None:
                raise SettingsNotUsable(f"limits.{name} must be an amount like 12345.67")
        total_cents = cents.pop("max_total")
        found = _REJECTED.fullmatch(rejected)
        if rejected and found is None:
            raise SettingsNotUsable('limits.max_rejected must be a number of rows like "20", or a share like "10%"')
        rows, percent = found.groups() if found else (None, None)
        percent_max = Decimal(percent) if percent else None
        return cls(total_cents, int(rows) if rows else None, percent_max, rejected, DayLimits(**cents))

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return self.total_cents is not None or bool(self.rejected) or self.of_day.are_set

    def exceeded(self, adds: Totals, rows: int, mistakes: int) -> tuple[str, ...]:
        """Describe each limit that is exceeded, and by how much.

        `adds` would be registered or released, debits and credits together. Of the file's `rows`, `mistakes` are
        rejected for what they say: not duplicates, nor what an earlier call rejected.
        """
        told = []
        if self.total_cents is not None and adds.cents > self.total_cents:
            told.append(
                f"the payments add up to {money(adds.cents)}, {money(adds.cents - self.total_cents)} more than "
                f"limits.max_total ({money(self.total_cents)})"
            )
        is_over = self.rejected_rows is not None and mistakes > self.rejected_rows
        if is_over or (self.rejected_percent is not None and mistakes * 100 > self.rejected_percent * rows):
            told.append(
                f"{mistakes:,} of {row_count(rows)} are rejected, more than limits.max_rejected ({self.rejected})"
            )
        return tuple(told)
