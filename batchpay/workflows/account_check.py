"""Whether the gateway takes bank payments for the accounts that a file names: asked once, after the file was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from batchpay.errors import RunStopped

if TYPE_CHECKING:  # a check and a dry run do not even load what can open a socket
    from batchpay.gateway.accounts import Preflight

_REFUSED = {
    "unknown": "the gateway has no account with this id, look the id up (batchpay gateway list)",
    "not_echeck": "this gateway account is for cards, name one for bank payments (batchpay gateway list)",
}
"""What a person is shown for a row whose gatewayId the gateway refuses, by code."""


@dataclass(frozen=True, slots=True)
class AccountsAnswer:
    """Whether the gateway was asked about a file's accounts, and what was found."""

    asked: bool = False
    """Whether the gateway answered for every account named in rows that passed the rules."""
    failures: Mapping[int, tuple[str, str, str]] = field(default_factory=dict)
    """Rows whose account does not exist or takes no bank payments: column, code, message."""
    problem: RunStopped | None = None
    """Why the gateway could not be asked, if it was to be."""


def ask_gateway(gateway_ids: Iterable[str], rows: Iterable[pl.DataFrame], preflight: Preflight) -> AccountsAnswer:
    """Find rows whose gateway account does not exist or takes no bank payments; `rows` are those that passed.

    If the gateway can't be asked, nothing is refused here: a run asks again, and sends nothing without an answer.
    """
    try:
        codes = preflight.refused(sorted(gateway_ids))
    except RunStopped as error:
        return AccountsAnswer(problem=error)
    failures: dict[int, tuple[str, str, str]] = {}
    for frame in rows if codes else ():
        wrong = frame.filter(pl.col("gatewayId").is_in(list(codes)))
        for row, gateway_id in wrong.select("_row", "gatewayId").iter_rows():
            failures[row] = ("gatewayId", codes[gateway_id], _REFUSED[codes[gateway_id]])
    return AccountsAnswer(True, failures)
