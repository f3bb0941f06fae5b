"""What the columns and words of an export mean: as their usual names say, or as a map (TOML) does.

[columns]
reference = "Transaction ID"    # also invoice, amount, debit, credit, date, last_four, status
[status]
accepted = ["Settled"]          # words of the status column; case does not matter
declined = ["Returned"]
missing = "accepted"            # what a line without a status means; nothing by default
[format]
date = "%d/%m/%Y"
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchpay.errors import FileRefused, did_you_mean
from batchpay.intake.small_tables import read_toml

USUAL_HEADERS: dict[str, tuple[str, ...]] = {
    "reference": (
        "gatewayreference", "transactionid", "transid", "txnid", "transactionreference", "transactionnumber",
        "gatewaytransactionid", "referenceid", "referencenumber", "reference", "refno", "ref", "tracenumber", "id",
    ),
    "invoice": (
        "invoicenumber", "invoiceno", "invoiceid", "invoice", "ordernumber", "orderid", "merchantreference",
        "customerreference", "externalid",
    ),
    "amount": ("amount", "transactionamount", "paymentamount", "totalamount", "grossamount", "amt", "total", "value"),
    "debit": ("debit", "debitamount", "debits", "withdrawal", "withdrawals"),
    "credit": ("credit", "creditamount", "credits", "deposit", "deposits"),
    "date": (
        "date", "transactiondate", "postingdate", "posteddate", "bookingdate", "settlementdate", "settleddate",
        "effectivedate", "valuedate", "createdat", "created", "datetime", "timestamp", "submitted", "finishedat",
    ),
    "last_four": (
        "lastfour", "last4", "accountlastfour", "accountlast4", "maskedaccount", "accountnumber", "bankaccount",
        "account",
    ),
    "status": ("status", "transactionstatus", "paymentstatus", "state", "result"),
}  # fmt: skip
"""Headers as others write them, in lower case without anything between letters and digits; the first one found wins."""
KIND_HEADERS = ("type", "transactiontype", "transtype", "txntype", "paymenttype", "entrytype")
"""Headers of what a line is: a payment or, in a word of its own, a refund or a return."""
DIRECTION_HEADERS = ("direction", "debitcredit", "creditdebit", "drcr", "crdr", "debitorcredit", "creditdebitindicator")
"""Headers of the direction alone."""
ACCEPTED_WORDS = frozenset({
    "accepted", "approved", "success", "successful", "succeeded", "settled", "posted", "completed", "complete",
    "cleared", "paid", "originated", "processed", "funded", "captured", "ok",
})  # fmt: skip
DECLINED_WORDS = frozenset({
    "declined", "denied", "failed", "failure", "fail", "error", "rejected", "refused", "returned", "return",
    "reversed", "voided", "void", "cancelled", "canceled", "chargeback", "unpaid",
})  # fmt: skip
RETURNED_WORDS = frozenset({"returned", "return", "reversed", "voided", "void", "chargeback"})
"""A payment that came back counts as declined: in the end no money moved."""
UNDER_WAY_WORDS = frozenset({
    "pending", "processing", "in process", "in progress", "submitted", "sent", "batched", "scheduled", "queued",
    "received", "initiated", "transmitted", "new", "open", "created",
})  # fmt: skip
"""Neither paid nor refused yet, as an accepted payment is for a day or two; they settle nothing."""
_RETURN = re.compile(
    r"\b(r\d\d|return(s|ed)?|refund(s|ed)?|revers(al|ed)|void(ed)?|charge[ -]?backs?|charged back|sent back)\b"
)
"""What shows within longer texts that the money came back: `Returned - R01`, `R03 no account`."""


class ReportedStatus(StrEnum):
    """What the other side says about a payment."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    OTHER = "other"
    """A word that means neither, or no word at all."""


@dataclass(slots=True)
class ExportMap:
    """What a map file says."""

    columns: dict[str, str] = field(default_factory=dict)
    accepted: frozenset[str] = ACCEPTED_WORDS
    declined: frozenset[str] = DECLINED_WORDS
    missing: ReportedStatus = ReportedStatus.OTHER
    date_pattern: str | None = None

    def standing_of(self, word: str) -> ReportedStatus:
        """What a status means."""
        folded = folded_word(word)
        if not folded:
            return self.missing
        if folded in self.accepted:
            return ReportedStatus.ACCEPTED
        return ReportedStatus.DECLINED if folded in self.declined else ReportedStatus.OTHER

    def says_it_came_back(self, word: str) -> bool:
        """Whether a status says that the money came back; longer texts only where the map does not define them."""
        folded = folded_word(word)
        return folded in RETURNED_WORDS or (
            self.standing_of(word) is ReportedStatus.OTHER and _RETURN.search(folded) is not None
        )


def load_export_map(path: str | Path) -> ExportMap:
    """Read a map; raises FileRefused that names whatever is unknown in it."""
    tables = read_toml(str(path), "map of an export")
    known = {
        "columns": tuple(USUAL_HEADERS),
        "status": ("accepted", "declined", "missing"),
        "format": ("date",),
    }
    for table, values in tables.items():
        _refuse_unknown(path, f"[{table}]", table, known)
        if not isinstance(values, dict):
            raise FileRefused(f"{path}: {table} must be a table: [{table}]")
        for name in values:
            _refuse_unknown(path, f"{table}.{name}", name, known[table])
    columns = tables.get("columns", {})
    status = tables.get("status", {})
    if not all(isinstance(name, str) for name in columns.values()):
        raise FileRefused(f"{path}: [columns] must contain text: the headers of the export")
    missing = status.get("missing", ReportedStatus.OTHER)
    if missing not in list(ReportedStatus):
        raise FileRefused(f"{path}: status.missing is accepted, declined or other")
    pattern = tables.get("format", {}).get("date")
    if not (pattern is None or isinstance(pattern, str)):
        raise FileRefused(f"{path}: format.date must be text such as %d/%m/%Y")
    return ExportMap(
        columns=dict(columns),
        accepted=_words(path, "accepted", status, ACCEPTED_WORDS),
        declined=_words(path, "declined", status, DECLINED_WORDS),
        missing=ReportedStatus(missing),
        date_pattern=pattern,
    )


def folded_word(word: str) -> str:
    """A word as it is compared: in lower case, one blank between its parts."""
    return " ".join(word.lower().split())


def _words(path: str | Path, name: str, status: dict[str, Any], usual: frozenset[str]) -> frozenset[str]:
    words = status.get(name)
    if words is None:
        return usual
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FileRefused(f'{path}: status.{name} must be a list of words, such as ["Settled"]')
    return frozenset(map(folded_word, words))


def _refuse_unknown(path: str | Path, shown: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise FileRefused(f"{path}: {shown} is not part of a map of an export{did_you_mean(name, known)}")
