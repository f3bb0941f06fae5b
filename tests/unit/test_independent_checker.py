"""The independent checker knows every rule, and the schemas find exactly what it finds."""

from __future__ import annotations

from datetime import date
from random import Random

import pytest

from tests.support.banking_days import is_banking_day
from tests.support.independent_checker import ALL_COLUMNS, Finding, check_rows
from tests.support.row_factory import AS_OF, MUTATIONS, mutated_rows, valid_row, valid_rows


def test_valid_rows_are_clean() -> None:
    """The factory's valid rows draw no error and no warning."""
    assert not any(check_rows(valid_rows(seed=11, count=3000), as_of=AS_OF))


@pytest.mark.parametrize("finding", MUTATIONS, ids=":".join)
def test_every_mutation_breaks_its_rule(finding: Finding) -> None:
    """Whatever a mutation draws, the checker finds the rule that it is meant to break."""
    for seed in range(25):
        random = Random(seed)
        previous, row = valid_row(random, 0), valid_row(random, 1)
        MUTATIONS[finding](row, previous, random)
        assert finding in check_rows([previous, row], as_of=AS_OF)[1]


def test_mutated_rows_break_every_rule() -> None:
    """A few thousand mutated rows break every rule that has a mutation, and no other."""
    found = set().union(*check_rows(mutated_rows(seed=12, count=20_000), as_of=AS_OF))
    assert found == set(MUTATIONS)


def test_columns() -> None:
    """There are the gateway's 44 columns and paymentId."""
    assert len(ALL_COLUMNS) == len(set(ALL_COLUMNS)) == 45


def test_published_holidays() -> None:
    """The Federal Reserve's published holidays of 2026 to 2028 are no banking days, and no other weekday is."""
    published = {
        *("2026-01-01", "2026-01-19", "2026-02-16", "2026-05-25", "2026-06-19", "2026-09-07", "2026-10-12"),
        *("2026-11-11", "2026-11-26", "2026-12-25"),
        *("2027-01-01", "2027-01-18", "2027-02-15", "2027-05-31", "2027-07-05", "2027-09-06", "2027-10-11"),
        *("2027-11-11", "2027-11-25"),
        *("2028-01-17", "2028-02-21", "2028-05-29", "2028-06-19", "2028-07-04", "2028-09-04", "2028-10-09"),
        *("2028-11-23", "2028-12-25"),
    }
    days = (date.fromordinal(number) for number in range(date(2026, 1, 1).toordinal(), date(2029, 1, 1).toordinal()))
    closed = {day.isoformat() for day in days if day.weekday() < 5 and not is_banking_day(day)}
    assert closed == published
