"""Keyed digests by which the ledger knows a file again, and in its rows earlier bills, payments and payees.

The last step before the ledger: what it keeps of checked rows, by column.
"""

from __future__ import annotations

import io
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from math import ceil
from typing import cast

import polars as pl
from nanoarrow.c_array_stream import c_array_stream

from batchpay.approval.anomalies import PayeeColumns
from batchpay.approval.cash_flow import pay_days, with_cents
from batchpay.ledger.columns import CHUNK_ROWS, Lookup, PackedTexts, PaymentColumns, RejectedColumns
from batchpay.ledger.contract import Ledger
from batchpay.registration.request_body import RequestForm, texts_of
from batchpay.schemas import identity
from batchpay.schemas.columns import GATEWAY_COLUMNS, PAY_ON, PAYMENT_ID
from batchpay.text import folded

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
    """Write a chunk's rows in the one form that the batch digest covers: every known column, whatever the file's.

    payOn stands at the end, where no row had anything before there was such a column: without one, nothing differs.
    """
    text = io.BytesIO()
    known = (PAYMENT_ID, *GATEWAY_COLUMNS)
    cells = [pl.col(name) if name in chunk.columns else pl.lit(None, pl.String).alias(name) for name in known]
    day = pl.col(PAY_ON).fill_null("") if PAY_ON in chunk.columns else pl.lit("")
    # A line is written as CSV without quotation: twice as fast as concatenating the columns.
    chunk.select(*cells, _end=day).write_csv(
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
        pay_on=pay_days(frame),
        accounts=lambda: account_digests(ledger, frame),
        older=lambda: (
            _digests(ledger, "fingerprint", _older_fingerprint_texts(frame), 16),
            ledger.digest("payment id", frame[PAYMENT_ID].to_list(), 16),
        ),
    )


def identity_digests(ledger: Ledger, found: pl.DataFrame) -> tuple[list[bytes], list[bytes | None]]:
    """Return digests of 16 bytes: of the bill, and of the paymentId where there is one; of `identity.identities`."""
    bills = _digests(ledger, "bill", found["bill"].fill_null("").to_list(), 16)
    return bills, ledger.digest("payment id", found["payment_id"].to_list(), 16)


def payee_columns(ledger: Ledger, frame: pl.DataFrame) -> PayeeColumns:
    """Return who is paid what, as keyed digests, for the check for changed accounts."""
    payees, accounts = payee_digests(ledger, frame)
    cents = with_cents(frame)["_cents"].to_list()
    has_ids = frame["billingInternalId"].null_count() < frame.height
    by_name = partial(_of_payees, ledger, frame, pl.lit(None, pl.String)) if has_ids else tuple
    return PayeeColumns(frame["_row"].to_list(), payees, accounts, cents, by_name)


def payee_digests(ledger: Ledger, frame: pl.DataFrame) -> tuple[list[bytes], list[bytes]]:
    """Return digests of 8 bytes: of who is paid, and of routing and account number."""
    return _of_payees(ledger, frame, pl.col("billingInternalId")), account_digests(ledger, frame)


def _of_payees(ledger: Ledger, frame: pl.DataFrame, internal_id: pl.Expr) -> list[bytes]:
    # The payer's own id distinguishes two people with one name. Neither can contain a line break.
    names = frame.select(pl.coalesce(pl.concat_str(pl.lit("id\n"), internal_id), "achNameOnCheck")).to_series()
    found = names.unique().to_list()  # many rows of a file may be of one payee
    texts = [name if name.startswith("id\n") else folded(name) for name in found]
    of_name = dict(zip(found, _digests(ledger, "payee", texts, 8), strict=True))
    return [of_name[name] for name in names]


def account_digests(ledger: Ledger, frame: pl.DataFrame) -> list[bytes]:
    """Return digests of 8 bytes of routing and account number."""
    texts = frame.select(pl.concat_str("achRoutingNumber", "achAccountNumber", separator=_FIELD_END))
    return _digests(ledger, "account", texts.to_series().to_list(), 8)


def _digests(ledger: Ledger, purpose: str, texts: Sequence[str], size: int) -> list[bytes]:
    return cast("list[bytes]", ledger.digest(purpose, texts, size))  # None only for a missing text


def _older_fingerprint_texts(frame: pl.DataFrame) -> list[str]:
    """Return what ledgers before version 3 compared: account, routing, amount, direction, invoice, unfolded."""
    names = ("achAccountNumber", "achRoutingNumber", "amount", "transactionType", "invoiceNumber")
    cells = [pl.col(name).fill_null(_NOT_GIVEN) for name in names]
    return frame.select(pl.concat_str(cells, separator=_FIELD_END)).to_series().to_list()


_ROWS_AT_ONCE = 8704
"""About so many: chunks of the ledger that fit the processor's cache, and a third of what is read at once."""


def payment_columns(
    ledger: Ledger, frame: pl.DataFrame, carried: Sequence[str], form: RequestForm
) -> Iterator[PaymentColumns]:
    """Turn rows that passed every rule (`_row`, `_line`, all known columns as text) into what the ledger keeps.

    Some thousand rows at a time: what is built from them stays in the processor's cache, and little memory is needed.
    As many each time: a set of few rows takes a third of the time of a whole one.
    """
    sets = max(1, round(frame.height / _ROWS_AT_ONCE))
    chunks = ceil(max(1, frame.height) / sets / CHUNK_ROWS)
    for part in frame.iter_slices(chunks * CHUNK_ROWS):
        yield _payment_columns(ledger, part, carried, form)


def _payment_columns(ledger: Ledger, frame: pl.DataFrame, carried: Sequence[str], form: RequestForm) -> PaymentColumns:
    cents = with_cents(frame)["_cents"]
    fingerprints, payment_ids = identity_digests(ledger, identity.identities(frame, cents))
    texts = texts_of(frame, carried, form)
    payees, accounts = payee_digests(ledger, frame)
    return PaymentColumns(
        rows=frame["_row"].to_list(),
        lines=frame["_line"].to_list(),
        amounts_cents=cents.to_list(),
        directions=frame["transactionType"].to_list(),
        fingerprints=fingerprints,
        payment_ids=payment_ids,
        payees=payees,
        accounts=accounts,
        details=packed_texts(texts["details"]),
        bodies=packed_texts(texts["body"]),
        pay_on=pay_days(frame),
    )


def rejected_columns(rows: pl.DataFrame) -> RejectedColumns:
    """Turn rows that failed (`_row`, `_line`, `_cents`, `_reasons`) into what the ledger keeps."""
    return RejectedColumns(*(rows[name].to_list() for name in ("_row", "_line", "_cents", "_reasons")))


def packed_texts(texts: pl.Series) -> PackedTexts:
    """Return PackedTexts for the ledger: not a Python object for each text, and none of their megabytes is copied.

    What polars builds lies in pieces, one text after the other. Arrow says of each text how long it is and where: where
    one does not follow the other, which no version of polars promises, the texts are put together anew.
    """
    (built,) = c_array_stream(texts.rechunk())
    view = built.view()
    words = array("I", bytes(view.buffer(1)))
    lengths, piece_of, starts = words[0::4], words[2::4], words[3::4]
    pieces = [memoryview(view.buffer(number)) for number in range(2, view.n_buffers - 1)]
    first = 0
    for number, piece in enumerate(pieces):
        end = bisect_right(piece_of, number)
        ends = array("I", accumulate(lengths[first:end], initial=0))
        in_order = piece_of[first:end] == array("I", [number]) * (end - first) and starts[first:end] == ends[:-1]
        if not in_order or ends[-1] != len(piece):
            break
        first = end
    if first == len(lengths) == len(texts):
        return PackedTexts(pieces, lengths)
    return PackedTexts.of(texts.to_list())
