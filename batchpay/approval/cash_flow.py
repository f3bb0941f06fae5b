"""What rows will move, when and through which gateway account, and what would be sent, counted chunk by chunk.

Part of the half before the ledger: it counts chunks of rows that passed the rules, and keeps totals only, never a row.
How the gateway executes a recurring payment is not documented. Assumed: the first payment falls on recurringStartDate;
MONTHLY uses the day of the month, in a shorter month its last day; with recurringEndOfMonth `Y` each falls on the last
day of its month; DAILY is every calendar day. A payment on a day that is not a banking day settles on the next one.
"""

from __future__ import annotations

import hashlib
from array import array
from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import polars as pl

from batchpay.approval.proposal import SendReason, ToSend
from batchpay.payment import Direction, Totals
from batchpay.schemas import checks
from batchpay.schemas.calendar import is_banking_day
from batchpay.schemas.columns import PAY_ON, RECURRENCE
from batchpay.text import totals_json

_EPOCH = date(1970, 1, 1).toordinal()
MONTHS = 12
"""How far ahead recurring payments are scheduled, unless a caller says otherwise."""
_LAST_DAY = date(9998, 12, 31)  # a year before Python's calendar ends, so that no step goes past it


@dataclass(slots=True)
class Flow:
    """Rows (or payments) and cents, by direction."""

    debit: Totals = Totals()
    credit: Totals = Totals()

    def add(self, direction: str, totals: Totals) -> None:
        """Add totals of one direction."""
        if direction == Direction.DEBIT:
            self.debit += totals
        else:
            self.credit += totals

    @property
    def rows(self) -> int:
        """Number of rows or payments in both directions."""
        return self.debit.rows + self.credit.rows

    def as_json(self) -> dict[str, Any]:
        """Rows and amounts."""
        return {"rows": self.rows, "debit": totals_json(self.debit), "credit": totals_json(self.credit)}


@dataclass(frozen=True, slots=True)
class GatewayFlow:
    """What goes through one gateway account when the file is sent."""

    gateway_id: str
    flow: Flow


@dataclass(frozen=True, slots=True)
class DayFlow:
    """Payments that fall on one day."""

    day: date
    flow: Flow
    banking_day: bool
    settles_on: date
    """The day itself, or the next banking day."""


_GROUPED_BY = (PAY_ON, "gatewayId", "transactionType", "recurringIndicator", *RECURRENCE)


def with_cents(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `_cents` to rows that pass every rule: they are grouped and counted by it."""
    return rows.with_columns(_cents=checks.cents_of_plain(pl.col("amount")))


def grouped(rows: pl.DataFrame, *, times: int = 1) -> pl.DataFrame:
    """Group rows that passed every rule by all that Schedule and ToSendCount tell apart.

    Rows have the columns of CASH_FLOW as text, and `_cents`. A group has `rows`, their number, and `_cents`, their sum,
    instead of the amount; gatewayIds are without leading zeros. `times=-1` makes groups that subtract rows which were
    counted and fail after all.
    """
    counted = (pl.len().cast(pl.Int64) * times).alias("rows"), (pl.col("_cents").sum() * times)
    gateway_id = pl.col("gatewayId").str.strip_chars_start("0")
    return rows.group_by(_GROUPED_BY).agg(counted).with_columns(gateway_id)


def day_of(pay_on: str) -> date:
    """Return the day of a payOn that passed its rules."""
    month, day, year = map(int, pay_on.split("/"))
    return date(year, month, day)


def pay_days(rows: pl.DataFrame) -> Sequence[int | None]:
    """Return the payOn of each of these rows, which pass every rule, as `date.toordinal()`; none if no row has one."""
    if rows[PAY_ON].null_count() == rows.height:
        return ()
    return rows.select(checks.as_date(pl.col(PAY_ON)).to_physical() + _EPOCH).to_series().to_list()


def flow_of(frame: pl.DataFrame, rows: Sequence[int]) -> Flow:
    """Add up some of these rows, which pass every rule, debits and credits separately."""
    flow = Flow()
    those = with_cents(rows_of(frame, rows))
    for direction, count, total in those.group_by("transactionType").agg(pl.len(), pl.col("_cents").sum()).iter_rows():
        flow.add(direction, Totals(count, total))
    return flow


def rows_of(frame: pl.DataFrame, rows: Sequence[int]) -> pl.DataFrame:
    """Return the rows with these numbers (`_row`)."""
    return frame.filter(pl.col("_row").is_in(pl.Series(rows, dtype=pl.UInt32).implode()))


@dataclass(slots=True)
class Schedule:
    """Totals of a file's valid rows. Memory grows with gateway accounts and with days, never with rows."""

    as_of: date
    """Today: single payments fall on it, or on a later payOn."""
    months: int = MONTHS
    """Recurring payments are scheduled up to this many months after `as_of`."""
    single: Flow = field(default_factory=Flow)
    """Rows that pay once."""
    first: Flow = field(default_factory=Flow)
    """First payments of the recurring rows."""
    planned: Flow = field(default_factory=Flow)
    """All payments of the recurring rows that have an end, including those after the horizon."""
    open_ended: Flow = field(default_factory=Flow)
    """Recurring rows without an end: rows, and the cents of one payment of each."""
    beyond: Flow = field(default_factory=Flow)
    """Payments after the horizon, by recurring rows that have an end."""
    overdue: Flow = field(default_factory=Flow)
    """Payments that fall before `as_of` (only where the setting policy.past_start is off)."""
    _gateways: defaultdict[str, Flow] = field(default_factory=lambda: defaultdict(Flow))
    _days: defaultdict[date, Flow] = field(default_factory=lambda: defaultdict(Flow))
    _daily: defaultdict[date, Flow] = field(default_factory=lambda: defaultdict(Flow))
    """DAILY payments as steps: what is added on one day stays until it is subtracted on a later one."""

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return self.single.rows + self.first.rows

    @property
    def horizon(self) -> date:
        """The last day that is scheduled."""
        return min(_month_later(min(self.as_of, _LAST_DAY), self.months, end_of_month=False), _LAST_DAY)

    def add(self, groups: pl.DataFrame) -> None:
        """Count rows that passed every rule, as `grouped` returns them."""
        totals = (pl.col("rows").sum(), pl.col("_cents").sum())
        is_recurring = pl.col("recurringIndicator") == "TRUE"
        by_gateway = groups.group_by("gatewayId", "transactionType", is_recurring.alias("recurring"), PAY_ON).agg(
            totals
        )
        for gateway_id, direction, recurring, pay_on, count, cents in by_gateway.iter_rows():
            each = Totals(count, cents)
            self._gateways[gateway_id].add(direction, each)
            if recurring:
                self.first.add(direction, each)
            else:
                self.single.add(direction, each)
                self._days[max(self.as_of, day_of(pay_on)) if pay_on else self.as_of].add(direction, each)
        # Parsing a date is slow: each recurrence is parsed once.
        alike = groups.filter(is_recurring).group_by("transactionType", *RECURRENCE).agg(totals)
        self._add_recurring(
            alike.select(
                "transactionType",
                "rows",
                cents="_cents",
                start=checks.as_date(pl.col("recurringStartDate")),
                monthly=pl.col("recurringBillingCycle") == "MONTHLY",
                end_of_month=pl.col("recurringEndOfMonth") == "Y",
                count=pl.col("recurringNumOfPayments").cast(pl.Int64),
            )
        )

    def by_gateway(self) -> list[GatewayFlow]:
        """Totals of the rows by gatewayId (a recurring row with its first payment), in the order of the ids."""
        ids = sorted(self._gateways, key=lambda gateway_id: (len(gateway_id), gateway_id))
        flows = [GatewayFlow(gateway_id, self._gateways[gateway_id]) for gateway_id in ids]
        return [one for one in flows if one.flow.rows]

    def by_day(self) -> list[DayFlow]:
        """Payments by the day on which they fall, up to the horizon, in order."""
        days: defaultdict[date, Flow] = defaultdict(Flow)
        for day, flow in self._days.items():
            merge(days[day], flow)
        running = Flow()
        steps = sorted(self._daily)
        for place, begin in enumerate(steps):
            merge(running, self._daily[begin])
            end = steps[place + 1] if place + 1 < len(steps) else begin
            day = begin
            while running.rows and day < end:
                merge(days[day], running)
                day += timedelta(days=1)
        return [_day_flow(day, days[day]) for day in sorted(days) if days[day].rows]

    def as_json(self) -> dict[str, Any]:
        """What moves when: totals of recurring rows, and payments by day up to the horizon."""
        return {
            "horizon": self.horizon.isoformat(),
            **{name: getattr(self, name).as_json() for name in ("first", "planned", "open_ended", "beyond")},
            "days": [
                {"day": one.day.isoformat(), "settles_on": one.settles_on.isoformat(), **one.flow.as_json()}
                for one in self.by_day()
            ],
        }

    def _add_recurring(self, rows: pl.DataFrame) -> None:
        """Count all payments of recurring rows, and schedule those up to the horizon."""
        totals = (pl.col("rows").sum(), pl.col("cents").sum())
        for direction, count, row_count, cents in rows.group_by("transactionType", "count").agg(totals).iter_rows():
            each = Totals(row_count, cents)
            if count:
                self.planned.add(direction, _times(each, count))
                self.beyond.add(direction, _times(each, count))
            else:
                self.open_ended.add(direction, each)
        start, horizon = pl.col("start"), self.horizon
        months = (horizon.year - start.dt.year()) * 12 + horizon.month - start.dt.month().cast(pl.Int32) + 1
        days = (pl.lit(horizon) - start).dt.total_days() + 1
        # Counts that reach beyond the horizon are the same up to it, which leaves few patterns to schedule.
        patterns = (
            rows.filter(start <= horizon)
            .with_columns(count=pl.min_horizontal("count", pl.when("monthly").then(months).otherwise(days)))
            .group_by("transactionType", "start", "monthly", "end_of_month", "count")
            .agg(totals)
        )
        for direction, first, monthly, end_of_month, count, row_count, cents in patterns.iter_rows():
            each = Totals(row_count, cents)
            laid_out = self._lay_out(_Plan(first, monthly, end_of_month, count), direction, each)
            if count:
                self.beyond.add(direction, _times(each, -laid_out))

    def _lay_out(self, plan: _Plan, direction: str, each: Totals) -> int:
        """Spread recurring rows of one plan over their days up to the horizon; return the payments of each by then."""
        if plan.monthly:
            laid_out = 0
            for day in plan.monthly_days(self.horizon):
                laid_out += 1
                if day < self.as_of:
                    self.overdue.add(direction, each)
                else:
                    self._days[day].add(direction, each)
            return laid_out
        end = plan.daily_end(self.horizon)
        first = min(max(plan.start, self.as_of), end)
        self.overdue.add(direction, _times(each, (first - plan.start).days))
        self._daily[first].add(direction, each)
        self._daily[end].add(direction, _times(each, -1))
        return (end - plan.start).days


@dataclass(frozen=True, slots=True)
class _Plan:
    """When one kind of recurring row pays; it begins by the horizon. `count` 0 has no end."""

    start: date
    monthly: bool
    end_of_month: bool
    count: int

    def daily_end(self, horizon: date) -> date:
        """Return the day after the last due day within the horizon."""
        days = (horizon - self.start).days + 1
        return self.start + timedelta(days=min(days, self.count) if self.count else days)

    def monthly_days(self, horizon: date) -> Iterator[date]:
        """Yield every due day within the horizon."""
        index = 0
        while not self.count or index < self.count:
            day = _month_later(self.start, index, end_of_month=self.end_of_month)
            if day > horizon:
                return
            yield day
            index += 1


def days_of(by_day: Mapping[str, Mapping[str, Totals]]) -> list[DayFlow]:
    """Return what falls on each day (ISO 8601), given by direction."""
    return [
        _day_flow(date.fromisoformat(day), Flow(*(by_day[day].get(side, Totals()) for side in Direction)))
        for day in sorted(by_day)
    ]


def _day_flow(day: date, flow: Flow) -> DayFlow:
    return DayFlow(day, flow, is_banking_day(day), next_banking_day(day))


def next_banking_day(day: date) -> date:
    """Return the day itself if it is a banking day, else the next one."""
    while not is_banking_day(day):
        day += timedelta(days=1)
    return day


def merge(into: Flow, other: Flow) -> None:
    """Add another flow."""
    into.debit += other.debit
    into.credit += other.credit


def _times(totals: Totals, count: int) -> Totals:
    return Totals(totals.rows * count, totals.cents * count)


def _month_later(day: date, months: int, *, end_of_month: bool) -> date:
    """Return the same day this many months later, or the last day of the month if shorter or `end_of_month`."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = monthrange(year, month + 1)[1]
    return date(year, month + 1, last if end_of_month else min(day.day, last))


_NOTED_AT_ONCE = 50_000


class ToSendCount:
    """Counts rows chunk by chunk into a ToSend; memory grows with gateway accounts, never with rows."""

    def __init__(self) -> None:
        self._totals: defaultdict[SendReason, Totals] = defaultdict(Totals)
        self._held_back = Totals()
        self._directions: defaultdict[str, Totals] = defaultdict(Totals)
        self._released: defaultdict[str, Totals] = defaultdict(Totals)
        self._accounts: defaultdict[str, Totals] = defaultdict(Totals)
        self._days: defaultdict[str, defaultdict[str, Totals]] = defaultdict(lambda: defaultdict(Totals))
        self._rows = {origin: hashlib.sha256() for origin in SendReason}

    def add(self, origin: SendReason, groups: pl.DataFrame) -> None:
        """Count rows of one origin that passed every rule, as `cash_flow.grouped` returns them."""
        counted = groups.group_by("gatewayId", "transactionType", PAY_ON).agg(
            pl.col("rows").sum(), pl.col("_cents").sum()
        )
        for gateway_id, direction, pay_on, count, cents in counted.iter_rows():
            totals = Totals(count, cents)
            self._totals[origin] += totals
            self._directions[direction] += totals
            if origin is SendReason.RELEASED:
                self._released[direction] += totals
            self._accounts[gateway_id] += totals
            if pay_on is not None:
                self._days[day_of(pay_on).isoformat()][direction] += totals

    def note(self, origin: SendReason, numbers: pl.Series) -> None:
        """Add the numbers of rows that are counted, in file order, to the digest."""
        for start in range(0, len(numbers), _NOTED_AT_ONCE):
            self._rows[origin].update(array("I", numbers.slice(start, _NOTED_AT_ONCE).to_list()).tobytes())

    def hold_back(self, totals: Totals) -> None:
        """Count pending rows that fail today's rules, by the cents that the ledger has for them."""
        self._held_back += totals

    def finish(self) -> ToSend:
        """Return what was counted."""
        return ToSend(
            new=self._totals[SendReason.NEW],
            pending=self._totals[SendReason.PENDING],
            released=self._totals[SendReason.RELEASED],
            held_back=self._held_back,
            by_direction=_not_empty(self._directions),
            released_by_direction=_not_empty(self._released),
            by_account=_not_empty(self._accounts),
            by_day={day: left for day in sorted(self._days) if (left := _not_empty(self._days[day]))},
            rows_digest=hashlib.sha256(b"".join(rows.digest() for rows in self._rows.values())).hexdigest(),
        )


def _not_empty(totals: Mapping[str, Totals]) -> dict[str, Totals]:
    """Drop totals from which all rows were subtracted."""
    return {name: one for name, one in totals.items() if one.rows}


_GROUPS_AT_ONCE = 50_000
"""How many groups wait to be counted: most chunks of a file have the same ones, and counting takes a step for each."""


class AllNew:
    """Totals, days and digest of rows that come chunk by chunk, with the columns of CASH_FLOW and `_cents`."""

    def __init__(self, as_of: date) -> None:
        self._schedule, self._count = Schedule(as_of), ToSendCount()
        self._waiting: list[pl.DataFrame] = []
        self._waiting_groups = 0

    def add(self, rows: pl.DataFrame, *, times: int = 1) -> None:
        """Add rows that passed every rule evaluated so far; `times=-1` takes out rows that fail after all."""
        groups = grouped(rows, times=times)
        self._waiting.append(groups)
        self._waiting_groups += groups.height
        if self._waiting_groups >= _GROUPS_AT_ONCE:
            self._count_waiting()

    def finish(self, numbers: pl.Series) -> tuple[ToSend, Schedule]:
        """Return what is left; `numbers` are its row numbers in the file. Called once."""
        self._count_waiting()
        assert self._schedule.rows == len(numbers), "what failed later was taken out"
        self._count.note(SendReason.NEW, numbers)
        return self._count.finish(), self._schedule

    def _count_waiting(self) -> None:
        if self._waiting:
            groups = pl.concat(self._waiting)
            self._schedule.add(groups)
            self._count.add(SendReason.NEW, groups)
        self._waiting, self._waiting_groups = [], 0
