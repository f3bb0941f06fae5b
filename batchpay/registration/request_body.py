"""JSON texts of checked rows: the exact request body, and what results and reports show.

Bodies follow CONTRACT.md, 'On the wire', and are built by polars, a chunk at a time: what is built here is, byte for
byte, what is sent.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from batchpay.schemas import checks, columns, identity
from batchpay.settings import GatewaySettings

_ESCAPES = {character: json.dumps(character)[1:-1] for character in map(chr, (*range(0x20), 0x22, 0x5C))}
"""Characters that must be escaped in a JSON string."""

_SHOWN = (
    columns.PAYMENT_ID, columns.PAY_ON, "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator",
    "recurringStartDate", "amount", "currencyCode",
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


def texts_of(frame: pl.DataFrame, carried: Sequence[str], form: RequestForm) -> pl.DataFrame:
    """Return `body`, what is sent of each row, and `details`, what results and reports show of it: as JSON texts.

    Rows passed every rule; all known columns are there as text. `carried` are the file's columns that are not known.
    """
    noted = [name for name in (columns.CORRECTED, columns.WARNED) if name in frame.columns]
    stamped = _hide_account(_stamp_invoices(frame, form), carried)
    escaped = _escape(stamped, (*columns.COLUMNS, *noted, *carried))
    return escaped.select(body=_body(escaped, form), details=_details(_filled(escaped), tuple(carried)))


def show_requests(frame: pl.DataFrame, form: RequestForm) -> list[str]:
    """Return bodies as they would be sent, account and routing number masked: for people to read."""
    masked = [checks.masked(pl.col(name)).alias(name) for name in ("achAccountNumber", "achRoutingNumber")]
    escaped = _escape(_stamp_invoices(frame, form).with_columns(masked), columns.COLUMNS)
    return escaped.select(_body(escaped, form)).to_series().to_list()


def _stamp_invoices(frame: pl.DataFrame, form: RequestForm) -> pl.DataFrame:
    if form.stamp is None:
        return frame
    stamp = pl.concat_str(pl.lit(form.stamp), pl.col("_row").cast(pl.String))
    return frame.with_columns(pl.col("invoiceNumber").fill_null(stamp))


def _hide_account(frame: pl.DataFrame, carried: Sequence[str]) -> pl.DataFrame:
    """Mask the row's own account number where a column of the file's own repeats it: results show its last four.

    One of four characters or fewer is left: it may be any number.
    """
    account = pl.col("achAccountNumber")
    found = [name for name in carried if frame.select(pl.col(name).str.contains(account, literal=True).any()).item()]
    if not found:
        return frame
    without = pl.col(found).str.split(account).list.join(checks.masked(account))
    return frame.with_columns(pl.when(account.str.len_chars() > 4).then(without).otherwise(pl.col(found)))


def _escape(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Escape cells for a JSON string; columns of the chunk in which nothing needs escaping stay as they are."""
    if (
        columns.BARE_ROW in frame.columns
        and columns.CORRECTED not in frame.columns
        and frame[columns.BARE_ROW].all(ignore_nulls=False)
    ):
        names = [columns.WARNED] if columns.WARNED in frame.columns else []  # known from the bytes of the file
    if not names:
        return frame
    cells = frame.select(pl.col(names).str.join("").cast(pl.Binary)).row(0, named=True)
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
    members.append(_Member(('"account":"', checks.masked(pl.col("achAccountNumber")), '"'), always=True))
    if columns.CORRECTED in filled:
        members.append(_Member(('"accepted_suggestions":"', pl.col(columns.CORRECTED), '"'), always=False))
    if columns.WARNED in filled:
        members.append(_Member(('"warnings":"', pl.col(columns.WARNED), '"'), always=False))
    if carried:
        cells = [pl.format('"{}"', pl.col(name)).fill_null("null") for name in carried]
        members.append(_Member(('"carried":[', pl.concat_str(cells, separator=","), "]"), always=True))
    return _joined(_object(members))


def _body(frame: pl.DataFrame, form: RequestForm) -> pl.Expr:
    """Return the JSON text of the request. A field that is not given is left out; so is a node without fields."""
    recurring = frame.select("recurringIndicator", *columns.RECURRING, "achSecCode").filter(_IS_RECURRING)
    several = frame.select(_HAS_SEVERAL_EMAILS.any()).item()
    return _body_of(_filled(frame), _filled(recurring), several, form)


@lru_cache(16)
def _body_of(chunk: _Filled, recurring: _Filled, has_several_emails: bool | None, form: RequestForm) -> pl.Expr:
    filled = dict(chunk)
    emails = [_emails(form)] if has_several_emails else _texts(filled, ["billingEmail"])
    nodes = {
        "billing": [*_texts(filled, columns.BILLING[:-1]), *emails],
        "shipping": [*_texts(filled, columns.SHIPPING)],
        "ach": [*_texts(filled, columns.ACH[:-1]), _number("achAgreementFlag")],
    }
    members = [_number("gatewayId"), *_texts(filled, columns.TOP[1:])]
    members += [_Member((f'"{name}":', *_object(node)), always=True) for name, node in nodes.items()]
    if recurring:
        filled = dict(recurring)
        agreement = _Member(('"recurringAgreementFlag":', _agreement(form)), always=True)
        node = _object([*_texts(filled, columns.RECURRING[:-1]), agreement, *_texts(filled, ["achSecCode"])])
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
