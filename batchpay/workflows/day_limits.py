"""Which limits of a day a file exceeds, and by how much: its rows by day, with what the ledger knows of the same days.

Only where such a limit is set: then the rows that pass are read once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from batchpay.approval.approvals import OTHERS, over_day
from batchpay.approval.cash_flow import pay_days, with_cents
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.days import DayCheck, DayLimits, Key, Sums
from batchpay.settings import Settings
from batchpay.text import counted, place_of
from batchpay.validation.check import valid_rows
from batchpay.workflows.file_check import FileCheck

_ACCOUNTS_NAMED = 5


def over_days(
    ledger: Ledger | None,
    checked: FileCheck,
    settings: Settings,
    limits: DayLimits,
    released: pl.Series | None,
) -> tuple[str, ...]:
    """Describe the limits that the valid rows exceed; of a known batch only the `released` ones are added."""
    environment = environment_of(settings.gateway)
    if ledger is None:  # nothing is known of any day, and no account has a digest
        check = DayCheck(replace(limits, max_per_payee_day=None), environment, checked.request.rules.as_of.toordinal())
    else:
        check = ledger.day_check(environment, limits)
    adds, places = Sums(), dict[Key, str]()
    for frame in map(with_cents, valid_rows(checked.source, checked.request.rules, checked.verdict)):
        rows = frame if released is None else frame.filter(pl.col("_row").is_in(released.implode()))
        accounts: Sequence[bytes] = ()
        if ledger is not None and limits.max_per_payee_day is not None:
            from batchpay.registration.digests import account_digests

            accounts = account_digests(ledger, rows)
            for account, row, line in zip(accounts, rows["_row"], rows["_line"], strict=True):
                places.setdefault(account, place_of(checked.source.line_word, row, line))
        adds.update(check.sums(pay_days(rows), rows["_cents"].to_list(), rows["transactionType"], accounts))
    known = Sums() if ledger is None else ledger.known_of_days(check, adds)
    found = list(check.exceeded(adds, known))
    told = [over_day(f"{one.key.lower()}s", one) for one in found if isinstance(one.key, str)]
    of_accounts = [one for one in found if isinstance(one.key, bytes)]
    told += [over_day(f"{places[one.key]}: the account's payments", one) for one in of_accounts[:_ACCOUNTS_NAMED]]
    if (more := len(of_accounts) - _ACCOUNTS_NAMED) > 0:
        told.append(f"other accounts exceed limits.max_per_payee_day as well{OTHERS}{counted(more, 'account')}")
    return tuple(told)
