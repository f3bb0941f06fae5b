"""Find a payment by the caller's own id: the ledger knows it by a keyed digest, not by a name or an account."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import polars as pl

from batchpay.gateway.origin import environment_of
from batchpay.ledger.columns import Earlier, Lookup
from batchpay.ledger.open import open_ledger
from batchpay.schemas.identity import folded
from batchpay.settings import Settings

_DIGEST_BYTES = 16
_NO_BILL = bytes(_DIGEST_BYTES)


def find_payment(payment_id: str, settings: Settings) -> Earlier | None:
    """Return the latest row of this environment with a paymentId that was sent, waits or is in doubt; None if none."""
    (text,) = folded(pl.Series([payment_id]))
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        lookup = Lookup(
            rows=[1],
            fingerprints=[_NO_BILL],
            payment_ids=ledger.digest("payment id", [text], _DIGEST_BYTES),
            with_invoice=[False],
            older_fingerprints=[_NO_BILL],
            older_payment_ids=ledger.digest("payment id", [payment_id], _DIGEST_BYTES),
        )
        found = ledger.earlier(lookup, environment_of(settings.gateway), days=0, now=datetime.now(UTC))
    return found[0] if found else None
