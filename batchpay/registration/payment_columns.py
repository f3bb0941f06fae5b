"""What the ledger keeps of checked rows, by column: of those that passed every rule some thousand at a time.

The last step before the ledger.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil

import polars as pl
from nanoarrow.c_array_stream import c_array_stream

from batchpay.approval.cash_flow import with_cents
from batchpay.ledger.columns import CHUNK_ROWS, PackedTexts, PaymentColumns, RejectedColumns
from batchpay.ledger.contract import Ledger
from batchpay.registration.digests import identity_digests, payee_digests
from batchpay.registration.request_body import RequestForm, texts_of
from batchpay.schemas import identity

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
    )


def rejected_columns(rows: pl.DataFrame) -> RejectedColumns:
    """Turn rows that failed (`_row`, `_line`, `_cents`, `_reasons`) into what the ledger keeps."""
    return RejectedColumns(
        rows=rows["_row"].to_list(),
        lines=rows["_line"].to_list(),
        amounts_cents=rows["_cents"].to_list(),
        reasons=rows["_reasons"].to_list(),
    )


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
