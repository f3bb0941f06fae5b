"""What makes two payments the same one: the caller's paymentId, or the same bill.

Both are compared after NFKC and case folding, in the same way everywhere: within a file, and with earlier batches.
"""

from __future__ import annotations

import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.columns import PAYMENT_ID
from batchpay.text import compatible

COMPARED = (
    PAYMENT_ID, "transactionType", "invoiceNumber", "amount", "achAccountNumber", "achRoutingNumber",
)  # fmt: skip
"""Columns that `identities` reads."""
STAMP_PREFIX = "BP"
STAMP_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""No characters that are misread on a screen or over the phone."""
STAMP_CHARACTERS = 6
_STAMPED = rf"^{STAMP_PREFIX.lower()}[{STAMP_ALPHABET.lower()}]{{{STAMP_CHARACTERS}}}-[0-9]+$"
BILL = ("achRoutingNumber", "account", "transactionType", "cents")
"""What two payments of one bill have in common, besides the invoice number if they have one."""
_BETWEEN = "\x1f"


def identities(frame: pl.DataFrame, cents: pl.Series | None = None) -> pl.DataFrame:
    """Return each row's `payment_id`, its `bill`, and the bill's `invoice`; null where there is none.

    A row whose amount or account can't be read has no bill. `cents` are the amounts in cents, where known.
    """
    return compared(frame, cents).select(
        "_row", "payment_id", "invoice", bill=pl.concat_str(*BILL, pl.col("invoice").fill_null(""), separator=_BETWEEN)
    )


def compared(frame: pl.DataFrame, cents: pl.Series | None = None, *, is_plain: bool = False) -> pl.DataFrame:
    """Return each row's `payment_id`, the parts of its bill (BILL) and its `invoice`; null where there is none.

    A bill is routing number, account, direction, amount in cents and invoiceNumber. An invoiceNumber that batchpay
    filled in itself counts as blank. `cents` are the amounts in cents, where known; `is_plain` means that cells are
    known to match their form.
    """
    account = pl.col("achAccountNumber")
    return frame.select(
        "_row",
        "achRoutingNumber",
        "transactionType",
        folded(frame[PAYMENT_ID], is_plain=is_plain).alias("payment_id"),
        invoices(frame["invoiceNumber"], is_plain=is_plain).alias("invoice"),
        account=account if is_plain else account.str.replace_all("-", "", literal=True),
        cents=checks.cents_of_money(pl.col("amount")) if cents is None else cents,
    )


def invoices(cells: pl.Series, *, is_plain: bool = False) -> pl.Series:
    """Return invoice numbers as they are compared (`folded`); null for one that batchpay filled in itself."""
    found = folded(cells, is_plain=is_plain)
    return found.set(found.str.contains(_STAMPED), None)


def folded(cells: pl.Series, *, is_plain: bool = False) -> pl.Series:
    """Return texts as they are compared: NFKC, case folded, trimmed; null where nothing is left.

    Plain texts have a character other than white space at both ends.
    """
    non_ascii = (cells.str.len_bytes() != cells.str.len_chars()).arg_true()
    texts = cells.str.to_lowercase()
    if len(non_ascii):
        texts = texts.scatter(non_ascii, [compatible(text) for text in cells.gather(non_ascii)])
    if is_plain:
        return texts
    texts = texts.str.strip_chars()
    return texts.set(texts == "", None)
