"""A look at the ledger's history before paying: new payees, changed accounts, unusual amounts.

Changed bank details are the commonest payment fraud. These findings are warnings: they stop nothing by themselves and
are switched off by the setting `policy.variance`. They work on keyed digests alone and never name an account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from batchpay.ledger.records import PayeeFacts
from batchpay.payment import Environment, format_cents

UNUSUAL_TIMES = 3
"""An amount over so many times the payee's usual one is unusual."""


class PayeeHistory(Protocol):
    """The part of a ledger (ledger/contract.py) that remembers payees."""

    def payee_facts(
        self, payees: Sequence[bytes], environment: Environment, exclude_digest: bytes | None = None
    ) -> Mapping[bytes, PayeeFacts]:
        """See contract.Ledger."""


@dataclass(frozen=True, slots=True)
class Variance:
    """A warning about one row; the message holds no account number and no name."""

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


CODES = {
    "new_payee": ("achNameOnCheck", "the ledger holds no accepted payment of this payee"),
    "changed_account": ("achAccountNumber", "a known payee with an account that the ledger has not seen for it"),
    "unusual_amount": ("amount", f"over {UNUSUAL_TIMES} times the payee's usual amount (the mean of accepted ones)"),
}
"""Column and meaning of every warning of this look."""


def variances(
    history: PayeeHistory, columns: PayeeColumns, environment: Environment, *, exclude_digest: bytes | None = None
) -> list[Variance]:
    """Hold rows against the history, in row order; a new payee gets that warning alone.

    Not to be asked while the ledger holds no other batch: then everybody would be new.
    """
    known = history.payee_facts(list(dict.fromkeys(columns.payees)), environment, exclude_digest)
    found: list[Variance] = []
    for row, payee, account, cents in zip(
        columns.rows, columns.payees, columns.accounts, columns.amounts_cents, strict=True
    ):
        facts = known.get(payee)
        if facts is None:
            found.append(_variance(row, "new_payee", "is paid for the first time, make sure that the payee is real"))
            continue
        if account not in facts.accounts:
            message = "is new for a known payee, ask the payee by a telephone number that you already had"
            found.append(_variance(row, "changed_account", message))
        if cents > UNUSUAL_TIMES * facts.usual_cents > 0:
            times = (cents - 1) // facts.usual_cents
            message = f"is over {times} times the usual {format_cents(facts.usual_cents)} of this payee, look again"
            found.append(_variance(row, "unusual_amount", message))
    return found


def _variance(row: int, code: str, message: str) -> Variance:
    return Variance(row, CODES[code][0], code, message)
