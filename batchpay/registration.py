"""From checked rows to what the ledger keeps: the exact request body, keyed fingerprints, and what results show.

The left half's last step. Bodies follow CONTRACT.md, 'On the wire', and are built by polars, a chunk at a time: what
is validated here is, byte for byte, what is sent.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from batchpay.config import GatewaySettings
from batchpay.ledger.contract import Ledger, Lookup, PaymentColumns
from batchpay.payment import parse_cents
from batchpay.schemas.columns import ACH, BILLING, COLUMNS, PAYMENT_ID, RECURRING, SHIPPING, TOP
from batchpay.variance import PayeeColumns

_FIELD_END = "\x1f"
_ROW_END = "\x1e"
_NOT_GIVEN = "\x00"
_STAMP_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # no characters that are misread on a screen or a phone

_SHOWN = (PAYMENT_ID, "invoiceNumber", "gatewayId", "transactionType", "recurringIndicator", "amount", "currencyCode")
"""Columns of the payment file that the results show as they are."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """What the settings say about the shape of a request."""

    stamp: str | None
    """Beginning of the reference that fills a blank invoiceNumber, or None where it stays blank."""
    agreement_as_letter: bool
    emails_node: str


def request_form(gateway: GatewaySettings) -> RequestForm:
    """Read the request's shape from the settings, with a fresh stamp: unique to one registration of one file."""
    token = "".join(secrets.choice(_STAMP_ALPHABET) for _ in range(6))
    return RequestForm(
        stamp=f"BP{token}-" if gateway.stamp_invoice else None,
        agreement_as_letter=gateway.recurring_agreement.upper() == "Y",
        emails_node=gateway.emails_node,
    )


def canonical_bytes(frame: pl.DataFrame) -> bytes:
    """Write a chunk's rows in the one form that the batch digest covers: every known column, whatever the file's."""
    cells = [pl.col(name).fill_null(_NOT_GIVEN) for name in COLUMNS]
    line = pl.concat_str([*cells, pl.lit("")], separator=_FIELD_END)
    # Bytes, not text: a chunk's text would be decoded, copied and encoded again, 30 MB each time.
    return bytes(frame.select(line.str.join(_ROW_END).cast(pl.Binary)).item() or b"") + _ROW_END.encode()


def lookup_columns(ledger: Ledger, frame: pl.DataFrame) -> Lookup:
    """Keyed digests under which earlier batches know the same payments."""
    return Lookup(
        rows=frame["_row"].to_list(),
        fingerprints=_digests(ledger, "fingerprint", _fingerprint_texts(frame), 16),
        payment_ids=ledger.digest("payment id", frame[PAYMENT_ID].to_list(), 16),
    )


def payee_columns(ledger: Ledger, frame: pl.DataFrame) -> PayeeColumns:
    """Who is paid what, under keyed digests, for the look at changed accounts."""
    payees, accounts = _payee_digests(ledger, frame)
    cents = [parse_cents(amount) or 0 for amount in frame["amount"].to_list()]
    return PayeeColumns(frame["_row"].to_list(), payees, accounts, cents)


def _payee_digests(ledger: Ledger, frame: pl.DataFrame) -> tuple[list[bytes], list[bytes]]:
    texts = frame.select(
        payee=pl.col("achNameOnCheck").str.to_lowercase(),
        account=pl.concat_str("achRoutingNumber", "achAccountNumber", separator=_FIELD_END),
    )
    payees = _digests(ledger, "payee", texts["payee"].to_list(), 8)
    return payees, _digests(ledger, "account", texts["account"].to_list(), 8)


def payment_columns(ledger: Ledger, frame: pl.DataFrame, carried: Sequence[str], form: RequestForm) -> PaymentColumns:
    """Turn rows that passed every rule (`_row`, `_line`, all known columns as text) into what the ledger keeps."""
    lookup = lookup_columns(ledger, frame)
    stamped = _stamp_invoices(frame, form)
    texts = stamped.select(body=_body(stamped, form), details=_details(stamped, carried))
    payees, accounts = _payee_digests(ledger, frame)
    return PaymentColumns(
        rows=lookup.rows,
        lines=frame["_line"].to_list(),
        amounts_cents=[parse_cents(amount) or 0 for amount in frame["amount"].to_list()],
        directions=frame["transactionType"].to_list(),
        fingerprints=lookup.fingerprints,
        payment_ids=lookup.payment_ids,
        payees=payees,
        accounts=accounts,
        details=texts["details"].to_list(),
        bodies=texts["body"].to_list(),
    )


def show_requests(frame: pl.DataFrame, form: RequestForm) -> list[str]:
    """Bodies as they would be sent, account and routing number masked: for people to look at."""
    masked = _stamp_invoices(frame, form).with_columns(
        achAccountNumber=_masked(pl.col("achAccountNumber")), achRoutingNumber=_masked(pl.col("achRoutingNumber"))
    )
    return masked.select(_body(masked, form)).to_series().to_list()


def _digests(ledger: Ledger, purpose: str, texts: Sequence[str], size: int) -> list[bytes]:
    return [digest for digest in ledger.digest(purpose, texts, size) if digest is not None]


def _fingerprint_texts(frame: pl.DataFrame) -> list[str]:
    """Give what makes two payments equal: account, routing, amount, direction, and the invoice as the file has it."""
    names = ("achAccountNumber", "achRoutingNumber", "amount", "transactionType", "invoiceNumber")
    cells = [pl.col(name).fill_null(_NOT_GIVEN) for name in names]
    return frame.select(pl.concat_str(cells, separator=_FIELD_END)).to_series().to_list()


def _stamp_invoices(frame: pl.DataFrame, form: RequestForm) -> pl.DataFrame:
    if form.stamp is None:
        return frame
    stamp = pl.concat_str(pl.lit(form.stamp), pl.col("_row").cast(pl.String))
    return frame.with_columns(pl.col("invoiceNumber").fill_null(stamp))


def _masked(cell: pl.Expr) -> pl.Expr:
    """Four stars and the last four characters; a text of four or fewer is not shown at all."""
    return pl.when(cell.str.len_chars() > 4).then(pl.lit("****") + cell.str.tail(4)).otherwise(pl.lit("****"))


def _details(frame: pl.DataFrame, carried: Sequence[str]) -> pl.Expr:
    """JSON object of what results and reports show of a row."""
    members = [_member(frame, name) for name in _SHOWN]
    members.append(_text_member("name", _escaped(frame, "achNameOnCheck")))
    members.append(_text_member("account", _masked(pl.col("achAccountNumber"))))
    if carried:
        cells = [pl.format('"{}"', _escaped(frame, name)).fill_null("null") for name in carried]
        members.append(pl.format('"carried":[{}]', pl.concat_str(cells, separator=",")))
    return _object(members)


def _body(frame: pl.DataFrame, form: RequestForm) -> pl.Expr:
    """JSON text of the request. A field that is not given is left out; so is a node without fields."""
    recurring = pl.col("recurringIndicator") == "TRUE"
    sec_code_again = pl.when(recurring).then(_member(frame, "achSecCode"))
    agreement = _agreement(pl.col("recurringAgreementFlag"), form)
    nodes = [
        pl.format('"billing":{}', _object([_member(frame, name) for name in BILLING[:-1]] + [_emails(frame, form)])),
        pl.format('"shipping":{}', _object([_member(frame, name) for name in SHIPPING])),
        pl.format('"ach":{}', _object([_member(frame, n) for n in ACH[:-1]] + [_number("achAgreementFlag")])),
        pl.when(recurring).then(
            pl.format(
                '"recurring":{}', _object([*(_member(frame, n) for n in RECURRING[:-1]), agreement, sec_code_again])
            )
        ),
    ]
    return _object([_number("gatewayId"), *(_member(frame, name) for name in TOP[1:]), *nodes])


def _object(members: Sequence[pl.Expr]) -> pl.Expr:
    """A JSON object of those members that are given."""
    joined = pl.concat_str(list(members), separator=",", ignore_nulls=True)
    return pl.concat_str(pl.lit("{"), joined, pl.lit("}"))


def _member(frame: pl.DataFrame, name: str) -> pl.Expr:
    return _text_member(name, _escaped(frame, name))


def _text_member(name: str, text: pl.Expr) -> pl.Expr:
    """`"name":"text"`, null where the text is null."""
    return pl.concat_str(pl.lit(f'"{name}":"'), text, pl.lit('"'))


def _number(name: str) -> pl.Expr:
    digits = pl.col(name).str.strip_chars_start("0")
    return pl.concat_str(pl.lit(f'"{name}":'), pl.when(digits == "").then(pl.lit("0")).otherwise(digits))


def _agreement(flag: pl.Expr, form: RequestForm) -> pl.Expr:
    agrees = flag.is_in(["1", "Y"])
    yes, no = ('"Y"', '"N"') if form.agreement_as_letter else ("1", "0")
    value = pl.when(agrees).then(pl.lit(yes)).when(flag.is_not_null()).then(pl.lit(no))
    return pl.concat_str(pl.lit('"recurringAgreementFlag":'), value)


def _emails(frame: pl.DataFrame, form: RequestForm) -> pl.Expr:
    address = _escaped(frame, "billingEmail")
    several = pl.concat_str(
        pl.lit(f'"{form.emails_node}":{{"billingEmail":["'),
        address.str.replace_all(";", '","', literal=True),
        pl.lit('"]}'),
    )
    one = _text_member("billingEmail", address)
    return pl.when(pl.col("billingEmail").str.contains(";", literal=True)).then(several).otherwise(one)


def _escaped(frame: pl.DataFrame, name: str) -> pl.Expr:
    """A cell as the inside of a JSON string: escaped only where the chunk holds something to escape."""
    cell = pl.col(name)
    if not frame[name].str.contains(r'["\\\x00-\x1f]').any():
        return cell
    return cell.map_elements(lambda text: json.dumps(text, ensure_ascii=False)[1:-1], return_dtype=pl.String)
