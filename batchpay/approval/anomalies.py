"""Checks against the ledger's history before paying: new payees, changed accounts, unusual amounts.

Changed bank details are the most common payment fraud. These findings are warnings: they stop nothing by themselves and
are switched off by the setting `policy.variance`. They are found by keyed digests alone; the message for a person names
payee, amount and the account's last four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import polars as pl

from batchpay.approval.cash_flow import Flow, merge, rows_of, with_cents
from batchpay.payment import Direction, Environment
from batchpay.schemas import checks
from batchpay.text import money, printable

if TYPE_CHECKING:
    from batchpay.ledger.records import PayeeFacts

UNUSUAL_TIMES = 3
"""An amount over this many times the payee's usual one is unusual."""


class PayeeHistory(Protocol):
    """The part of a ledger (ledger/contract.py) that remembers payees."""

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, PayeeFacts]:
        """See contract.Ledger."""

    def last_accounts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, str]:
        """See contract.Ledger."""


@dataclass(frozen=True, slots=True)
class Variance:
    """A warning about one row; the message names payee, amount and at most the last four of an account."""

    row: int
    column: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PayeeColumns:
    """Rows that passed the rules, by column: digests as the ledger keeps them (PaymentColumns.payees, .accounts)."""

    rows: Sequence[int]
    payees: Sequence[bytes]
    accounts: Sequence[bytes]
    amounts_cents: Sequence[int]
    by_name: Callable[[], Sequence[bytes]] = tuple
    """Digests of the payees as if no row had an id, or none if no row has; made where a payee is unknown."""


_CHANGED = (
    "a new account or routing number of a known payee{before}, call the payee at a phone number that you already had"
)
CODES = {
    "new_payee": ("achNameOnCheck", "the ledger has no accepted payment of this payee"),
    "changed_account": (
        "achAccountNumber",
        "a known payee with an account that the ledger has not seen before for this payee",
    ),
    "first_payment": ("amount", "the first payment of a payee, above `policy.first_payment_above`"),
    "unusual_amount": ("amount", f"over {UNUSUAL_TIMES} times the payee's usual amount (the mean of accepted ones)"),
}
"""Column and meaning of every warning of these checks."""
LOUDEST = ("changed_account", "first_payment", "unusual_amount", "new_payee")
"""Which are reported first."""
KEPT_MAX = 1_000
"""How many are kept by name; totals and counts include all."""
SHOWN = {"changed_account": KEPT_MAX, "first_payment": 20, "unusual_amount": 20, "new_payee": 0}
"""How many of each are listed one by one: every changed account, new payees only in total."""


def variances(
    history: PayeeHistory,
    columns: PayeeColumns,
    environment: Environment,
    *,
    exclude_digest: bytes | None = None,
    first_above_cents: int | None = None,
    since: list[datetime | None] | None = None,
) -> list[Variance]:
    """Compare rows with the history, in row order; a new payee gets one warning, a louder one above an amount.

    A payee of whom every payment came back is new, but not unknown: another account than that is a changed one. A
    return file that somebody made up must not turn a changed account into a new payee. Nor must an id that the ledger
    does not know: it was given to whoever was paid under this name without one.

    `since` gets, for each row, when the first payment of its payee to its account was registered; None if it is new.

    Not to be called while the ledger has no other batch: then everybody would be new.
    """
    payees: Sequence[bytes] = columns.payees
    known = {**history.payee_facts(list(dict.fromkeys(payees)), environment, exclude_digest)}
    if unknown := set(payees) - known.keys():
        by_name = columns.by_name() or payees
        payees = [name if payee in unknown else payee for payee, name in zip(payees, by_name, strict=True)]
        if named := set(payees) - unknown - known.keys():
            known |= history.payee_facts(list(named), environment, exclude_digest)
    found: list[Variance] = []
    changed: dict[int, bytes] = {}
    for row, payee, account, cents in zip(columns.rows, payees, columns.accounts, columns.amounts_cents, strict=True):
        facts = known.get(payee)
        if since is not None:
            since.append(None if facts is None else facts.accounts.get(account))
        if facts is not None and account not in (facts.accounts or facts.came_back):
            changed[row] = payee
            found.append(_variance(row, "changed_account", _CHANGED.format(before="")))
        if facts is None or not facts.accounts:
            if first_above_cents is not None and cents > first_above_cents:
                above = f"above {money(first_above_cents)}, make sure that it is right"
                found.append(_variance(row, "first_payment", f"the first payment of this payee is {above}"))
            else:
                found.append(_variance(row, "new_payee", "paid for the first time, make sure that the payee is real"))
            continue
        if cents > UNUSUAL_TIMES * facts.usual_cents > 0:
            times = (cents - 1) // facts.usual_cents
            message = f"over {times} times the usual {money(facts.usual_cents)} of this payee, check it"
            found.append(_variance(row, "unusual_amount", message))
    asked = list(dict.fromkeys(changed.values()))[:KEPT_MAX]
    before = history.last_accounts(asked, environment, exclude_digest) if asked else {}
    return [
        replace(one, message=_CHANGED.format(before=f", the last payment had {before[changed[one.row]]}"))
        if one.code == "changed_account" and changed[one.row] in before
        else one
        for one in found
    ]


@dataclass(frozen=True, slots=True)
class Payment:
    """What a warning about money names."""

    payee: str
    direction: str
    cents: int
    account: str
    """Masked: at most its last four."""


def payments_named(frame: pl.DataFrame, rows: Sequence[int]) -> dict[int, Payment]:
    """Return what a warning about some of these rows names: payee, direction, cents and a masked account."""
    account = checks.masked(pl.col("achAccountNumber"))
    those = with_cents(rows_of(frame, rows)).select("_row", "achNameOnCheck", "transactionType", "_cents", account)
    return {row: Payment(*values) for row, *values in those.iter_rows()}


@dataclass(slots=True)
class Anomalies:
    """What is unusual in a file: all of it counted and totaled, the first ones by name, changed accounts first."""

    compared: bool = False
    """Whether there were earlier payments to compare with."""
    kept: list[Variance] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)
    """Rows and cents by code; debits and credits apart."""

    def add_up(self, code: str, flow: Flow) -> None:
        """Add what the rows with one warning move."""
        merge(self.flows.setdefault(code, Flow()), flow)

    def to_name(self, found: Sequence[Variance]) -> list[Variance]:
        """Return those that are listed one by one: a few new payees, all others while there is room."""
        room = KEPT_MAX - len(self.kept)
        loud = [one for one in found if one.code != "new_payee"]
        return loud[:KEPT_MAX] + [one for one in found if one.code == "new_payee"][: max(0, room - len(loud))]

    def add(self, found: Sequence[Variance], payments: Mapping[int, Payment]) -> list[Variance]:
        """Add warnings, and return them with their messages for people; `payments` has the rows that are named."""
        worded = [
            replace(one, message=_named(one.message, payments[one.row])) if one.row in payments else one
            for one in found
        ]
        ranks = {code: rank for rank, code in enumerate(LOUDEST)}
        named = [one for one in worded if one.row in payments]
        self.kept = sorted(self.kept + named, key=lambda one: ranks[one.code])[:KEPT_MAX]
        return worded

    def lines(self, place: Callable[[int], str]) -> list[str]:
        """Return lines for people: every changed account, some unusual amounts, new payees in one line with totals.

        `place` names a row so that a person finds it.
        """
        if not self.compared:
            return ["no earlier payments to compare payees, accounts and amounts with"]
        if not self.flows:
            return ["compared with earlier payments: nothing unusual"]
        return [line for code in SHOWN for line in self.lines_of(code, place)]

    def lines_of(self, code: str, place: Callable[[int], str]) -> list[str]:
        """Return the lines of one kind: those that are listed one by one, and the total where there are more."""
        those = [one for one in self.kept if one.code == code][: SHOWN[code]]
        lines = [f"{place(one.row)}: {one.column}: {one.code}: {one.message}" for one in those]
        if code in self.flows and self.flows[code].rows > len(those):
            lines.append(f"{code}: {_sums(self.flows[code])}" + (" in all" if those else ""))
        return lines


def _named(message: str, payment: Payment) -> str:
    """Prefix a message with the payment it is about. A semicolon would end the message in a rejects file."""
    payee = printable(payment.payee.replace(";", ","), characters_max=60)
    return f"{payee}, {payment.direction} {money(payment.cents)}, account {payment.account}: {message}"


def _sums(flow: Flow) -> str:
    sides = ((Direction.DEBIT, flow.debit), (Direction.CREDIT, flow.credit))
    return ", ".join(f"{totals.rows:,} {name} {money(totals.cents)}" for name, totals in sides if totals.rows)


def _variance(row: int, code: str, message: str) -> Variance:
    return Variance(row, CODES[code][0], code, message)
