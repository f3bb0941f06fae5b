"""Keyed digests by which the ledger knows a file again, and in its rows earlier bills, payments and payees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import polars as pl

from batchpay.approval.anomalies import PayeeColumns
from batchpay.approval.cash_flow import with_cents
from batchpay.ledger.columns import Lookup
from batchpay.ledger.contract import Ledger
from batchpay.schemas import identity
from batchpay.schemas.columns import COLUMNS, PAYMENT_ID

_FIELD_END = "\x1f"
_ROW_END = "\x1e"
_NOT_GIVEN = "\x00"


class Content:
    """A file's chunks on their way to the rules: content that was read whole has a digest, which identifies its batch.

    It covers cells as they were read, before any repair: with or without --normalize, the content is one batch.
    """

    def __init__(self, chunks: Callable[[], Iterator[pl.DataFrame]], ledger: Ledger) -> None:
        self._chunks, self._ledger = chunks, ledger
        self.digest = b""
        """32 bytes, keyed; of the last complete reading."""

    def chunks(self) -> Iterator[pl.DataFrame]:
        """Read the file from its beginning."""
        digest = self._ledger.digest_stream("batch")
        for chunk in self._chunks():
            digest.update(canonical_bytes(chunk))
            yield chunk
            del chunk  # free some megabytes while waiting for the next one
        self.digest = digest.digest()


def canonical_bytes(chunk: pl.DataFrame) -> bytes:
    """Write a chunk's rows in the one form that the batch digest covers: every known column, whatever the file's."""
    text = io.BytesIO()
    cells = [pl.col(name) if name in chunk.columns else pl.lit(None, pl.String).alias(name) for name in COLUMNS]
    # A line is written as CSV without quotation: twice as fast as concatenating the columns.
    chunk.select(*cells, _end=pl.lit("")).write_csv(
        text, include_header=False, separator=_FIELD_END, line_terminator=_ROW_END, null_value=_NOT_GIVEN,
        quote_style="never",
    )  # fmt: skip
    return text.getvalue()


def lookup_columns(ledger: Ledger, frame: pl.DataFrame) -> Lookup:
    """Keyed digests under which earlier batches know the same payments."""
    found = identity.identities(frame)
    fingerprints, payment_ids = identity_digests(ledger, found)
    return Lookup(
        rows=frame["_row"].to_list(),
        fingerprints=fingerprints,
        payment_ids=payment_ids,
        with_invoice=found["invoice"].is_not_null().to_list(),
        older_fingerprints=_digests(ledger, "fingerprint", _older_fingerprint_texts(frame), 16),
        older_payment_ids=ledger.digest("payment id", frame[PAYMENT_ID].to_list(), 16),
    )


def identity_digests(ledger: Ledger, found: pl.DataFrame) -> tuple[list[bytes], list[bytes | None]]:
    """Return digests of 16 bytes: of the bill, and of the paymentId where there is one; of `identity.identities`."""
    bills = _digests(ledger, "bill", found["bill"].fill_null("").to_list(), 16)
    return bills, ledger.digest("payment id", found["payment_id"].to_list(), 16)


def payee_columns(ledger: Ledger, frame: pl.DataFrame) -> PayeeColumns:
    """Return who is paid what, as keyed digests, for the check for changed accounts."""
    payees, accounts = payee_digests(ledger, frame)
    return PayeeColumns(frame["_row"].to_list(), payees, accounts, with_cents(frame)["_cents"].to_list())


def payee_digests(ledger: Ledger, frame: pl.DataFrame) -> tuple[list[bytes], list[bytes]]:
    """Return digests of 8 bytes: of who is paid, and of routing and account number."""
    internal_id = pl.col("billingInternalId")
    texts = frame.select(
        # The payer's own id distinguishes two people with one name. Neither can contain a line break.
        payee=pl.when(internal_id.is_not_null())
        .then(pl.concat_str(pl.lit("id\n"), internal_id))
        .otherwise(pl.col("achNameOnCheck").str.to_lowercase()),
        account=pl.concat_str("achRoutingNumber", "achAccountNumber", separator=_FIELD_END),
    )
    payees = _digests(ledger, "payee", texts["payee"].to_list(), 8)
    return payees, _digests(ledger, "account", texts["account"].to_list(), 8)


def _digests(ledger: Ledger, purpose: str, texts: Sequence[str], size: int) -> list[bytes]:
    return cast("list[bytes]", ledger.digest(purpose, texts, size))  # None only for a missing text


def _older_fingerprint_texts(frame: pl.DataFrame) -> list[str]:
    """Return what ledgers before version 3 compared: account, routing, amount, direction, invoice, unfolded."""
    names = ("achAccountNumber", "achRoutingNumber", "amount", "transactionType", "invoiceNumber")
    cells = [pl.col(name).fill_null(_NOT_GIVEN) for name in names]
    return frame.select(pl.concat_str(cells, separator=_FIELD_END)).to_series().to_list()
