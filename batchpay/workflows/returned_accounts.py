"""What the bank says of the accounts that rows are to pay: errors, until a correction or a person ends them.

A corrected value goes into the rejects file alone: the corrected row is the maker's own file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import RETURNS, Fact, FactKind
from batchpay.payment import Direction, Environment, State
from batchpay.schemas.columns import ACCOUNT, COLUMNS, ROUTING
from batchpay.text import folded

if TYPE_CHECKING:
    import polars as pl

    from batchpay.ledger.columns import EarlierReturn
    from batchpay.ledger.records import BatchSummary, RowColumns
    from batchpay.returns.codes import ReturnCode

DEPOSIT_TYPE, NAME = "achDepositType", "achNameOnCheck"
_NAME_CHARACTERS = 22
"""So many characters of a name reach the bank."""
Failure = tuple[str, str, str]
"""Column, code and message."""


class ReturnedAccounts:
    """Which rows of a file pay accounts that a bank has spoken against."""

    def __init__(self, ledger: Ledger | None, environment: Environment, named: Collection[int] | None) -> None:
        """`named` are the rows that a person releases by name, if any."""
        self._environment, self._named = environment, named or ()
        self._ledger = ledger if ledger is not None and ledger.latest_event(RETURNS) else None
        self.lifts: dict[int, bytes] = {}
        """Accounts of named rows whose returns a release ends, by row."""
        self.corrected: dict[int, str] = {}
        """What the bank corrected, by row, as suggestions are written: for the rejects file alone."""

    @property
    def are_any(self) -> bool:
        """Whether anything came back or was changed, ever."""
        return self._ledger is not None

    def failures(self, frame: pl.DataFrame) -> dict[int, Failure]:
        """Return what is wrong with the accounts of some rows, by row."""
        if self._ledger is None:
            return {}
        from batchpay.registration.digests import account_digests

        accounts = account_digests(self._ledger, frame)
        facts = self._ledger.facts_of_accounts(list(dict.fromkeys(accounts)), self._environment)
        if not facts:
            return {}
        cells = frame.select("_row", "transactionType", DEPOSIT_TYPE, NAME).iter_rows()
        found = {}
        for account, (row, direction, deposit_type, name) in zip(accounts, cells, strict=True):
            if account in facts:
                of_row = {DEPOSIT_TYPE: deposit_type, NAME: name}
                failure = self._changed(row, of_row, facts[account]) or self._returned(row, direction, facts[account])
                if failure is not None:
                    found[row] = failure
        return found

    def _changed(self, row: int, cells: dict[str, str], facts: Sequence[Fact]) -> Failure | None:
        assert self._ledger is not None
        for fact, code in _latest(facts, FactKind.CHANGED):
            columns, right = _corrects(code), self._ledger.corrected(fact)
            if not columns:
                continue
            if not {*columns} & {ACCOUNT, ROUTING}:  # what is not known any more counts as corrected
                own, theirs = folded(cells[columns[0]])[:_NAME_CHARACTERS].strip(), right.get(columns[0])
                if theirs is None or own == folded(theirs):
                    continue
            if right:
                self.corrected[row] = "; ".join(f"{column}: {right[column]}" for column in columns if column in right)
            how = f"{code.todo}, which is in the rejects file" if right else "ask the payee for what is right"
            until = f" by {day:%m/%d/%Y} or" if (day := code.until(fact.day)) else ""
            message = f"{_said(fact, code)}: {how},{until} before the next payment"
            return columns[0], "changed_by_bank", message.replace(";", ",")
        return None

    def _returned(self, row: int, direction: str, facts: Sequence[Fact]) -> Failure | None:
        for fact, code in _latest(facts, FactKind.RETURNED):
            if not code.is_blocking(direction):
                continue
            if row in self._named and not code.is_for_good:
                self.lifts[row] = fact.account
                continue
            end = f", or if it is right after all, release it by name (--release --rows {row} --reason TEXT)"
            message = f"{_said(fact, code)}: {code.todo}{', no release ends this' if code.is_for_good else end}"
            return ACCOUNT, "returned", message.replace(";", ",")
        return None


_AGAIN = ("R01", "R09")
AGAIN_DAYS = 180
TIMES = 3
"""A debit that came back for want of money may be collected so many times in all, within so many days."""


def may_follow(earlier: EarlierReturn, cents: int, direction: str, now: datetime) -> bool:
    """Return whether a row repeats no payment that came back: it has another account, or may be collected again.

    The same amount in the same direction: anything else is another payment, under an id that was used.
    """
    if (earlier.amount_cents, earlier.direction) != (cents, direction):
        return False
    days = (now - earlier.first_sent_at) // timedelta(days=1)
    is_retry = earlier.code in _AGAIN and direction == Direction.DEBIT and earlier.count < TIMES
    return not earlier.same_account or (is_retry and days <= AGAIN_DAYS)


def pays_returned_accounts(ledger: Ledger, batch: BatchSummary) -> Callable[[RowColumns], Sequence[bool]] | None:
    """Return which pending rows of a batch pay accounts that a bank has spoken against; None if none does.

    Without the file, what a bank said of a name or the kind of an account can't be compared.
    """
    if not batch.by_state[State.PENDING].rows or ledger.latest_event(RETURNS) is None:
        return None
    against: defaultdict[bytes, set[str]] = defaultdict(set)
    for fact in ledger.facts(batch.environment):
        if fact.withdrawn or fact.lifted:
            continue
        for _, code in _latest([fact], fact.kind):
            is_changed = not {*_corrects(code)}.isdisjoint((ACCOUNT, ROUTING))
            against[fact.account] |= {one.value for one in Direction if is_changed or code.is_blocking(one)}
    found = ledger.sent_rows("account", list(against), batch.environment, since=batch.registered_at)
    rows = {
        one.row
        for payments in found.values()
        for one in payments
        if one.batch == batch.batch and one.direction in against[one.account]
    }
    return (lambda columns: [row in rows for row in columns.rows]) if rows else None


def _latest(facts: Sequence[Fact], kind: FactKind) -> Iterator[tuple[Fact, ReturnCode]]:
    """Yield the facts of a kind whose codes are known, the latest first; of changes of the same columns one."""
    from batchpay.returns.codes import return_codes

    seen: set[tuple[str, ...]] = set()
    for fact in sorted(facts, key=lambda one: (one.day, one.number), reverse=True):
        code = return_codes().get(fact.code)
        if fact.kind is not kind or code is None or _corrects(code) in seen:
            continue
        if kind is FactKind.CHANGED:
            seen.add(_corrects(code))
        yield fact, code


@cache
def _corrects(code: ReturnCode) -> tuple[str, ...]:
    """Return which of our columns a change corrects."""
    return tuple(sorted(re.compile(code.corrected).groupindex, key=COLUMNS.index))


def _said(fact: Fact, code: ReturnCode) -> str:
    did = "changed this" if fact.kind is FactKind.CHANGED else "sent a payment to this account back"
    return (
        f"the bank {did} with {code.code} of {fact.day:%m/%d/%Y} ({code.meaning}, {fact.place} of batch {fact.batch})"
    )
