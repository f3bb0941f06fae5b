"""From checked rows to what the ledger keeps: the exact request body, keyed fingerprints, and what results show.

The last step before the ledger. Bodies follow CONTRACT.md, 'On the wire', and are built by polars, a chunk at a time:
what is validated here is, byte for byte, what is sent.
"""

from __future__ import annotations

import io
import json
import secrets
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import cast

import polars as pl
from nanoarrow.c_array_stream import c_array_stream

from batchpay.approval.anomalies import PayeeColumns, Payment
from batchpay.approval.cash_flow import Flow
from batchpay.ledger.columns import CHUNK_ROWS, Lookup, PackedTexts, PaymentColumns
from batchpay.ledger.contract import Ledger
from batchpay.payment import Totals
from batchpay.schemas import checks, identity
from batchpay.schemas.columns import ACH, BARE_ROW, BILLING, COLUMNS, CORRECTED, PAYMENT_ID, RECURRING, SHIPPING, TOP
from batchpay.settings import GatewaySettings

_FIELD_END = "\x1f"
_ROW_END = "\x1e"
_NOT_GIVEN = "\x00"

_ESCAPES = {character: json.dumps(character)[1:-1] for character in map(chr, (*range(0x20), 0x22, 0x5C))}
"""Characters that must be escaped in a JSON string."""

_ROWS_AT_ONCE = 8704
"""About so many: chunks of the ledger that fit the processor's cache, and a third of what is read at once."""

_SHOWN = (
    PAYMENT_ID, "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "recurringStartDate", "amount",
    "currencyCode",
)  # fmt: skip
"""Columns of the payment file that the ledger keeps as they are, for results and for a later check of the rules."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """What the settings say about the shape of a request."""

    stamp: str | None
    """Prefix of the reference that fills a blank invoiceNumber, or None where it stays blank."""
    agreement_as_letter: bool
    emails_node: str


def request_form(gateway: GatewaySettings) -> RequestForm:
    """Read the request's shape from the settings, with a fresh stamp: unique to one registration of one file."""
    token = "".join(secrets.choice(identity.STAMP_ALPHABET) for _ in range(identity.STAMP_CHARACTERS))
    return RequestForm(
        stamp=f"{identity.STAMP_PREFIX}{token}-" if gateway.stamp_invoice else None,
        agreement_as_letter=gateway.recurring_agreement.upper() == "Y",
        emails_node=gateway.emails_node,
    )


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
    fingerprints, payment_ids = _identity_digests(ledger, found)
    return Lookup(
        rows=frame["_row"].to_list(),
        fingerprints=fingerprints,
        payment_ids=payment_ids,
        with_invoice=found["invoice"].is_not_null().to_list(),
        older_fingerprints=_digests(ledger, "fingerprint", _older_fingerprint_texts(frame), 16),
        older_payment_ids=ledger.digest("payment id", frame[PAYMENT_ID].to_list(), 16),
    )


def _identity_digests(ledger: Ledger, found: pl.DataFrame) -> tuple[list[bytes], list[bytes | None]]:
    bills = _digests(ledger, "bill", found["bill"].fill_null("").to_list(), 16)
    return bills, ledger.digest("payment id", found["payment_id"].to_list(), 16)


def payee_columns(ledger: Ledger, frame: pl.DataFrame) -> PayeeColumns:
    """Return who is paid what, as keyed digests, for the check for changed accounts."""
    payees, accounts = _payee_digests(ledger, frame)
    return PayeeColumns(frame["_row"].to_list(), payees, accounts, cents_of(frame))


def payments_named(frame: pl.DataFrame, rows: Sequence[int]) -> dict[int, Payment]:
    """Return what a warning about some of these rows names: payee, direction, cents and a masked account."""
    those = _of(frame, rows).select(
        "_row", "achNameOnCheck", "transactionType", "amount", _masked(pl.col("achAccountNumber")).alias("account")
    )
    columns = (those["achNameOnCheck"], those["transactionType"], cents_of(those), those["account"])
    payments = (Payment(*values) for values in zip(*columns, strict=True))
    return dict(zip(those["_row"].to_list(), payments, strict=True))


def flow_of(frame: pl.DataFrame, rows: Sequence[int]) -> Flow:
    """Add up some of these rows, debits and credits separately."""
    flow = Flow()
    cents = checks.cents(pl.col("amount")).fill_null(0).sum()
    for direction, count, total in _of(frame, rows).group_by("transactionType").agg(pl.len(), cents).iter_rows():
        flow.add(direction, Totals(count, total))
    return flow


def _of(frame: pl.DataFrame, rows: Sequence[int]) -> pl.DataFrame:
    return frame.filter(pl.col("_row").is_in(pl.Series(rows, dtype=pl.UInt32).implode()))


def cents_of(frame: pl.DataFrame) -> list[int]:
    """Return the cents of each row's amount; 0 where it can't be read."""
    return frame.select(checks.cents(pl.col("amount")).fill_null(0)).to_series().to_list()


def _payee_digests(ledger: Ledger, frame: pl.DataFrame) -> tuple[list[bytes], list[bytes]]:
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
    cents = frame.select(checks.cents_of_plain(pl.col("amount"))).to_series()
    fingerprints, payment_ids = _identity_digests(ledger, identity.identities(frame, cents))
    noted = [CORRECTED] if CORRECTED in frame.columns else []
    escaped = _escape(_stamp_invoices(frame, form), (*COLUMNS, *noted, *carried))
    texts = escaped.select(body=_body(escaped, form), details=_details(_filled(escaped), tuple(carried)))
    payees, accounts = _payee_digests(ledger, frame)
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


def show_requests(frame: pl.DataFrame, form: RequestForm) -> list[str]:
    """Return bodies as they would be sent, account and routing number masked: for people to read."""
    masked = _stamp_invoices(frame, form).with_columns(
        achAccountNumber=_masked(pl.col("achAccountNumber")), achRoutingNumber=_masked(pl.col("achRoutingNumber"))
    )
    escaped = _escape(masked, COLUMNS)
    return escaped.select(_body(escaped, form)).to_series().to_list()


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


def _digests(ledger: Ledger, purpose: str, texts: Sequence[str], size: int) -> list[bytes]:
    return cast("list[bytes]", ledger.digest(purpose, texts, size))  # None only for a missing text


def _older_fingerprint_texts(frame: pl.DataFrame) -> list[str]:
    """Return what ledgers before version 3 compared: account, routing, amount, direction, invoice, unfolded."""
    names = ("achAccountNumber", "achRoutingNumber", "amount", "transactionType", "invoiceNumber")
    cells = [pl.col(name).fill_null(_NOT_GIVEN) for name in names]
    return frame.select(pl.concat_str(cells, separator=_FIELD_END)).to_series().to_list()


def _stamp_invoices(frame: pl.DataFrame, form: RequestForm) -> pl.DataFrame:
    if form.stamp is None:
        return frame
    stamp = pl.concat_str(pl.lit(form.stamp), pl.col("_row").cast(pl.String))
    return frame.with_columns(pl.col("invoiceNumber").fill_null(stamp))


def _masked(cell: pl.Expr) -> pl.Expr:
    """Return four stars and the last four characters; nothing of a text of four or fewer is shown."""
    return pl.when(cell.str.len_chars() > 4).then(pl.lit("****") + cell.str.tail(4)).otherwise(pl.lit("****"))


def _escape(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Escape cells for a JSON string; columns of the chunk in which nothing needs escaping stay as they are."""
    if BARE_ROW in frame.columns and CORRECTED not in frame.columns and frame[BARE_ROW].all(ignore_nulls=False):
        return frame  # known from the bytes of the file
    cells = frame.select(pl.col(list(names)).str.join("").cast(pl.Binary)).row(0, named=True)
    found = [name for name, text in cells.items() if any(character.encode() in text for character in _ESCAPES)]
    return frame.with_columns(pl.col(found).str.replace_many(_ESCAPES))


# JSON objects, assembled from constant texts and cells

_IS_RECURRING = pl.col("recurringIndicator") == "TRUE"
_HAS_SEVERAL_EMAILS = pl.col("billingEmail").str.contains(";", literal=True)

_Piece = str | pl.Expr


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a JSON object; null where one of its cells is."""

    pieces: Sequence[_Piece]
    always: bool
    """Whether every row of the chunk has it."""


_Filled = tuple[tuple[str, bool], ...]
"""Columns of a chunk that have a value, each with whether they do in every row.

Expressions are cached by this, not by the chunk: most of a file's chunks are alike, and building the expressions takes
as long as some hundred rows.
"""


def _filled(frame: pl.DataFrame) -> _Filled:
    missing = zip(frame.columns, frame.null_count().row(0), strict=True)
    return tuple((name, not count) for name, count in missing if count < frame.height)


@lru_cache(16)
def _details(chunk: _Filled, carried: tuple[str, ...]) -> pl.Expr:
    """Return the JSON object of what results and reports show of a row."""
    filled = dict(chunk)
    members = [*_texts(filled, _SHOWN), _Member(('"name":"', pl.col("achNameOnCheck"), '"'), always=True)]
    members.append(_Member(('"account":"', _masked(pl.col("achAccountNumber")), '"'), always=True))
    if CORRECTED in filled:
        members.append(_Member(('"accepted_suggestions":"', pl.col(CORRECTED), '"'), always=False))
    if carried:
        cells = [pl.format('"{}"', pl.col(name)).fill_null("null") for name in carried]
        members.append(_Member(('"carried":[', pl.concat_str(cells, separator=","), "]"), always=True))
    return _joined(_object(members))


def _body(frame: pl.DataFrame, form: RequestForm) -> pl.Expr:
    """Return the JSON text of the request. A field that is not given is left out; so is a node without fields."""
    recurring = frame.select("recurringIndicator", *RECURRING, "achSecCode").filter(_IS_RECURRING)
    several = frame.select(_HAS_SEVERAL_EMAILS.any()).item()
    return _body_of(_filled(frame), _filled(recurring), several, form)


@lru_cache(16)
def _body_of(chunk: _Filled, recurring: _Filled, has_several_emails: bool | None, form: RequestForm) -> pl.Expr:
    filled = dict(chunk)
    emails = [_emails(form)] if has_several_emails else _texts(filled, ["billingEmail"])
    nodes = {
        "billing": [*_texts(filled, BILLING[:-1]), *emails],
        "shipping": [*_texts(filled, SHIPPING)],
        "ach": [*_texts(filled, ACH[:-1]), _number("achAgreementFlag")],
    }
    members = [_number("gatewayId"), *_texts(filled, TOP[1:])]
    members += [_Member((f'"{name}":', *_object(node)), always=True) for name, node in nodes.items()]
    if recurring:
        filled = dict(recurring)
        agreement = _Member(('"recurringAgreementFlag":', _agreement(form)), always=True)
        node = _object([*_texts(filled, RECURRING[:-1]), agreement, *_texts(filled, ["achSecCode"])])
        members.append(_Member(('"recurring":', pl.when(_IS_RECURRING).then(_joined(node))), always=False))
    return _joined(_object(members))


def _object(members: Sequence[_Member]) -> list[_Piece]:
    """Make a JSON object. The first member that every row has needs no comma; those before it end with one.

    There is such a member in every object: a column that is required, and the rows passed every rule.
    """
    first = next(index for index, member in enumerate(members) if member.always)
    pieces: list[_Piece] = ["{"]
    for index, member in enumerate(members):
        whole = ("," if index > first else "", *member.pieces, "," if index < first else "")
        pieces += whole if member.always else [_joined(whole).fill_null("")]
    return [*pieces, "}"]


def _joined(pieces: Iterable[_Piece]) -> pl.Expr:
    """Join pieces into one text, null where any of them is: by a format, where constants cost nothing per row."""
    texts: list[str] = []
    cells: list[pl.Expr] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece.replace("{", "{{").replace("}", "}}"))
        else:
            texts.append("{}")
            cells.append(piece)
    return pl.format("".join(texts), *cells)


def _texts(filled: Mapping[str, bool], names: Iterable[str]) -> Iterator[_Member]:
    """Yield the members `"name":"text"` of those columns that have a value in this chunk."""
    for name in names:
        if name in filled:
            yield _Member((f'"{name}":"', pl.col(name), '"'), always=filled[name])


def _number(name: str) -> _Member:
    digits = pl.col(name).str.strip_chars_start("0")
    return _Member((f'"{name}":', pl.when(digits == "").then(pl.lit("0")).otherwise(digits)), always=True)


def _agreement(form: RequestForm) -> pl.Expr:
    yes, no = ('"Y"', '"N"') if form.agreement_as_letter else ("1", "0")
    return pl.when(pl.col("recurringAgreementFlag").is_in(["1", "Y"])).then(pl.lit(yes)).otherwise(pl.lit(no))


def _emails(form: RequestForm) -> _Member:
    """Return the address, or the node of several."""
    address = pl.col("billingEmail")
    each = address.str.replace_all(";", '","', literal=True)
    several = pl.concat_str(pl.lit(f'"{form.emails_node}":{{"billingEmail":["'), each, pl.lit('"]}'))
    one = pl.concat_str(pl.lit('"billingEmail":"'), address, pl.lit('"'))
    return _Member((pl.when(_HAS_SEVERAL_EMAILS).then(several).otherwise(one),), always=False)
