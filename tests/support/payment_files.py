"""Small payment files for the tests of readers and writers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from batchpay.intake.source import open_source
from batchpay.schemas.columns import REQUIRED

VALID = {
    "gatewayId": "1001", "transactionType": "DEBIT", "recurringIndicator": "FALSE", "amount": "12.50",
    "billingFirstName": "Ada", "billingLastName": "Byron", "shippingFirstName": "Ada", "shippingLastName": "Byron",
    "achNameOnCheck": "Ada Byron", "achAccountNumber": "0012345678", "achRoutingNumber": "021000021",
    "achAccountType": "PERSONAL", "achDepositType": "CHECKING", "achAgreementFlag": "1",
}  # fmt: skip
HEADER = tuple(REQUIRED)
DATA = Path(os.environ.get("BATCHPAY_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
"""Collections of irregular files gathered by others; tests that need them are skipped if they are not there."""


def line(separator: str = ",", end: str = "\n", **changes: str) -> str:
    """Return a line of a CSV with the required columns."""
    return separator.join({**VALID, **changes}[name] for name in HEADER) + end


def csv_text(rows: int = 3, separator: str = ",", end: str = "\n") -> str:
    """Return a whole CSV with the required columns."""
    return separator.join(HEADER) + end + line(separator, end) * rows


def write(folder: Path, content: str | bytes, name: str = "payments.csv") -> str:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(path: str, required: Iterable[str] = (), **options: Any) -> pl.DataFrame:
    """Return all chunks of a file as one frame; empty if the file has no row."""
    with open_source(path, required=required, **options) as source:
        frames = list(source.chunks())
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def cells(path: str, **options: Any) -> list[tuple[Any, ...]]:
    """Return the person's own cells, row by row, blank ones as ''."""
    with open_source(path, required=(), **options) as source:
        own = source.own_columns
        return [tuple(cell or "" for cell in row) for chunk in source.chunks() for row in chunk.select(own).iter_rows()]


def workbook(folder: Path, rows: Sequence[Sequence[Any]], name: str = "payments.xlsx", **formats: str) -> str:
    """Write an XLSX with openpyxl; `formats` gives cells (`B2`) a number format."""
    from openpyxl import Workbook

    book = Workbook()
    sheet: Any = book.active
    for row in rows:
        sheet.append(list(row))
    for place, number_format in formats.items():
        sheet[place].number_format = number_format
    path = folder / name
    book.save(path)
    return str(path)


def rejected(frame: pl.DataFrame, errors: str = "amount: format: write digits") -> pl.DataFrame:
    """Return rows as the check passes them to a rejects file."""
    blank = pl.lit(None, pl.String)
    return frame.with_columns(pl.lit(errors).alias("_errors"), _warnings=blank, _suggestions=blank)
