"""The figures a manager signs, held against a row-by-row count that uses the sandbox's own idea of a schedule."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import date, timedelta

import polars as pl
import pytest

from batchpay.approval.cash_flow import Schedule, grouped, next_banking_day, with_cents
from batchpay.approval.sign_off import sign_off_lines
from batchpay.payment import Totals, format_cents
from batchpay.sandbox.schedules import due
from tests.approval.proposals import PROPOSAL

AS_OF = date(2026, 11, 23)


def single(cents: int, direction: str = "DEBIT", gateway_id: str = "7") -> dict[str, str | None]:
    return {
        "payOn": None,
        "gatewayId": gateway_id,
        "transactionType": direction,
        "recurringIndicator": "FALSE",
        "amount": format_cents(cents),
        **dict.fromkeys(
            ("recurringStartDate", "recurringBillingCycle", "recurringEndOfMonth", "recurringNumOfPayments")
        ),
    }


def recurring(
    cents: int, start: date, cycle: str, count: int, end_of_month: str = "N", direction: str = "DEBIT"
) -> dict[str, str | None]:
    return {
        **single(cents, direction),
        "recurringIndicator": "TRUE",
        "recurringStartDate": start.strftime("%m/%d/%Y"),
        "recurringBillingCycle": cycle,
        "recurringEndOfMonth": end_of_month,
        "recurringNumOfPayments": str(count),
    }


def schedule_of(rows: list[dict[str, str | None]], as_of: date = AS_OF) -> Schedule:
    schedule = Schedule(as_of)
    schema = dict.fromkeys(single(1), pl.String)
    for start in range(0, len(rows), 50):
        schedule.add(grouped(with_cents(pl.DataFrame(rows[start : start + 50], schema=schema))))
    return schedule


def days_of(schedule: Schedule) -> dict[date, tuple[int, int]]:
    return {
        found.day: (found.flow.rows, found.flow.debit.cents + found.flow.credit.cents) for found in schedule.by_day()
    }


def test_totals_equal_a_count_row_by_row() -> None:
    """Over random rows every total is the one that counting each payment of each row gives."""
    seed = random.Random(20261123)
    rows = [single(seed.randrange(1, 10**10), seed.choice(["DEBIT", "CREDIT"])) for _ in range(100)]
    for _ in range(400):
        monthly = seed.random() < 0.6
        start = AS_OF + timedelta(days=seed.randrange(0, 500))
        rows.append(
            recurring(
                seed.randrange(1, 10**10),
                start,
                "MONTHLY" if monthly else "DAILY",
                seed.choice([0, 1, 2, 13, 40, 99_999]),
                seed.choice(["Y", "N"]) if monthly else "N",
                seed.choice(["DEBIT", "CREDIT"]),
            )
        )
    schedule = schedule_of(rows)
    expected: defaultdict[date, list[int]] = defaultdict(lambda: [0, 0])
    planned_cents, beyond = 0, 0
    for row in rows:
        cents = int(str(row["amount"]).replace(".", ""))
        if row["recurringIndicator"] == "FALSE":
            expected[AS_OF][0] += 1
            expected[AS_OF][1] += cents
            continue
        count, index = int(str(row["recurringNumOfPayments"])), 0
        while (not count or index < count) and (day := due(row, index)) is not None and day <= schedule.horizon:
            expected[day][0] += 1
            expected[day][1] += cents
            index += 1
        planned_cents += cents * count
        beyond += max(0, count - index)
    assert days_of(schedule) == {day: (rows_, cents) for day, (rows_, cents) in expected.items()}
    assert schedule.planned.debit.cents + schedule.planned.credit.cents == planned_cents
    assert schedule.beyond.rows == beyond
    assert schedule.horizon == date(2027, 11, 23)


def test_rows_that_are_taken_out_leave_nothing_behind() -> None:
    """What stands twice is known at the end of a file: it was counted by then, and is taken out again."""
    seed = random.Random(20261124)
    rows = [single(seed.randrange(1, 10**8), seed.choice(["DEBIT", "CREDIT"])) for _ in range(20)]
    for _ in range(200):
        start, count = AS_OF + timedelta(days=seed.randrange(-40, 450)), seed.choice([0, 1, 3, 13, 99_999])
        cycle, direction = seed.choice(["MONTHLY", "DAILY"]), seed.choice(["DEBIT", "CREDIT"])
        rows.append(recurring(seed.randrange(1, 10**8), start, cycle, count, seed.choice(["Y", "N"]), direction))
    for kept in (0, 1, 20, 110):
        seed.shuffle(rows)
        found = schedule_of(rows)
        found.add(grouped(with_cents(pl.DataFrame(rows[kept:])), times=-1))
        alone = schedule_of(rows[:kept])
        assert found.as_json() == alone.as_json()
        assert found.by_gateway() == alone.by_gateway()
        assert (found.single, found.overdue, found.rows) == (alone.single, alone.overdue, alone.rows)


@pytest.mark.parametrize(("end_of_month", "expected"), [
    ("N", [date(2027, 1, 30), date(2027, 2, 28), date(2027, 3, 30)]),
    ("Y", [date(2027, 1, 31), date(2027, 2, 28), date(2027, 3, 31)]),
])  # fmt: skip
def test_month_ends_are_clamped(end_of_month: str, expected: list[date]) -> None:
    """The 30th becomes February's last day and comes back in March; `Y` means every month's last day."""
    schedule = schedule_of([recurring(100, date(2027, 1, 30), "MONTHLY", 3, end_of_month)])
    assert list(days_of(schedule)) == expected


def test_a_day_without_banking_names_the_next_one_with() -> None:
    """Thanksgiving settles on the Friday after, a Saturday on Monday; a holiday on a Saturday closes no Friday."""
    schedule = schedule_of([recurring(100, date(2026, 11, 26), "DAILY", 3)])
    assert [(found.day.day, found.banking_day, found.settles_on.day) for found in schedule.by_day()] == [
        (26, False, 27),
        (27, True, 27),
        (28, False, 30),
    ]
    assert next_banking_day(date(2026, 7, 3)) == date(2026, 7, 3)
    assert next_banking_day(date(2027, 7, 4)) == date(2027, 7, 6)


def test_payments_without_an_end_stop_at_the_horizon_and_are_said() -> None:
    """An open-ended row is laid out for twelve months, counted apart, and named on the page."""
    schedule = schedule_of([recurring(2500, date(2026, 12, 1), "MONTHLY", 0, direction="CREDIT")])
    assert len(schedule.by_day()) == 12
    assert schedule.open_ended.credit == Totals(1, 2500)
    assert schedule.planned.rows == 0
    assert "  Payments without an end date continue after that day until they are stopped." in sign_off_lines(
        PROPOSAL, schedule, {}
    )


def test_what_lies_in_the_past_is_counted_apart() -> None:
    """With the rule on past starts off, payments due before today are totalled, not laid out day by day."""
    schedule = schedule_of(
        [recurring(100, date(1, 1, 1), "DAILY", 0), recurring(7, AS_OF - timedelta(days=40), "MONTHLY", 3)]
    )
    assert min(days_of(schedule)) == AS_OF
    assert schedule.overdue.rows == (AS_OF - date(1, 1, 1)).days + 2


def test_a_payment_that_began_long_ago_goes_on_to_the_last_day_shown() -> None:
    """Thirteen times on the 23rd, the last of them on the horizon itself: those of the years before are used up."""
    schedule = schedule_of([recurring(7, date(2020, 1, 23), "MONTHLY", count) for count in (0, 99_999)])
    assert [day.day for day in days_of(schedule)] == [23] * 13
    assert (list(days_of(schedule))[-1], schedule.overdue.rows) == (schedule.horizon, 2 * 82)
    assert schedule.beyond.rows == 99_999 - 82 - 13


def test_what_is_due_today_moves_today() -> None:
    """A monthly payment of this very day stands on the page's first day, and not among what was due before."""
    schedule = schedule_of([recurring(7, date(2026, 10, 23), "MONTHLY", 3)])
    assert schedule.overdue.rows == 1
    assert days_of(schedule) == {AS_OF: (1, 7), date(2026, 12, 23): (1, 7)}


def test_the_calendar_has_an_end() -> None:
    """Dates at the end of Python's calendar are counted, not crashed on."""
    rows = [recurring(100, date(9999, 12, 31), "MONTHLY", 99_999, "Y"), recurring(1, date(9999, 1, 1), "DAILY", 0)]
    schedule = schedule_of(rows)
    assert schedule.by_day() == []
    assert schedule.beyond.debit == Totals(99_999, 9_999_900)
    assert schedule_of(rows, date(9999, 12, 30)).horizon == date(9998, 12, 31)


def test_rows_that_pay_once_and_rows_that_recur_are_all_counted() -> None:
    """The page's first figure is the file's number of rows that passed."""
    assert schedule_of([single(1), single(2), recurring(3, AS_OF, "MONTHLY", 2)]).rows == 3


def test_gateway_ids_are_one_however_they_are_padded() -> None:
    """`07` and `7` go to the same account, so they stand in one line; ids sort as numbers."""
    schedule = schedule_of([single(100, gateway_id="07"), single(200, "CREDIT", "7"), single(5, gateway_id="12")])
    assert [(found.gateway_id, found.flow.debit, found.flow.credit) for found in schedule.by_gateway()] == [
        ("7", Totals(1, 100), Totals(1, 200)),
        ("12", Totals(1, 5), Totals()),
    ]
