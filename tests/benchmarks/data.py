"""Payment files from a seed, of any size, with a stated share of bad rows: 45 columns, text as in samples/.

Every cell is a function of its row's number and of the seed, so a shorter file is the beginning of a longer one. A bad
row holds one fault; 15 of the 20 kinds break one of the fifteen shared rules (rules.py) and nothing beside it.

Run as `python -m tests.benchmarks.data --rows N --bad PERCENT [--twice-every N] PATH`; the kind follows from PATH's
ending.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import openpyxl
import polars as pl

from batchpay.schemas.columns import COLUMNS

AS_OF = date(2026, 11, 20)
"""The day for which the files are made: recurring payments start long after it."""
BLOCK_ROWS = 100_000
KINDS = 20
"""Kinds of faults, equally frequent."""
KINDS_SHARED = 15
BANKS = 3000
"""Different routing numbers: few beside the rows, as in any file of payments."""

_FIRST = ("Dwayne", "Grace", "Samuel", "Yusuf", "Siobhán", "José", "Nguyễn", "Anne-Marie", "Łukasz", "Ada", "Priya")
_LAST = ("Mbeki", "Quigley", "Lefèvre", "Tremblay", "O'Brien", "D'Angelo", "Castellanos", "Zhao", "Novak", "Lind")
_COMPANIES = (None, None, None, "Foundry & Sons", "Alder Way Supplies", "Example Holdings, Inc.", "Quill Partners LLC")
_STREETS = ("Foundry Road", "Cedar Avenue", "Granite Court", "Alder Way", "Birch Street", "Rue Sainte-Catherine")
_UNITS = (None, None, None, "Suite 4", "Unit 12, East", "2nd floor")
_PLACES = (
    ("Austin", "TX", "78701", "US"), ("Fairbanks", "AK", "99701", "US"), ("Greenville", "SC", "29601-1234", "US"),
    ("Boston", "MA", "02108", "US"), ("Holtsville", "NY", "00501", "US"), ("Toronto", "ON", "M5V 2T6", "CA"),
    ("Trois-Rivières", "QC", "G9A 5C5", "CA"), ("San Juan", "PR", "00901", "US"),
)  # fmt: skip
_PHONE_FORMS = ("1-{}-555-01{}", "{}-555-01{}", "{}.555.01{}", "{} 555 01{}", "({}) 555-01{}")
_BANKS = (None, "First Bank of Example", "Banque d'Exemple", "Example Credit Union")
FIRST_START, LARGEST_CENTS = date(2035, 3, 6), 401_999
"""The first day on which a payment of such a file starts, and more than any of them moves."""
_BANKING_DAYS = ("03/06/2035", "04/10/2035", "06/12/2035", "09/18/2035", "10/16/2035", "12/04/2035", "02/05/2036")
_DISTRICTS = (*range(1, 13), *range(21, 33), *range(61, 73), 80)
_SEC_CODES = ("PPD", "PPD", None)


def _mix(salt: int) -> pl.Expr:
    """Spread row numbers over 0..2^31-1, differently for each salt, the same in every version of polars."""
    state = pl.col("_n") * 0x9E3779B97F4A7C15 + (salt * 0xBF58476D1CE4E5B9) % 2**64
    state = (state ^ (state // 2**31)) * 0x94D049BB133111EB
    state = (state ^ (state // 2**29)) * 0xBF58476D1CE4E5B9
    return state // 2**33


def _below(salt: int, bound: int) -> pl.Expr:
    return _mix(salt) % bound


def _pick(values: Sequence[str | None], salt: int) -> pl.Expr:
    return pl.lit(pl.Series(values, dtype=pl.String)).gather(_below(salt, len(values)))


def _digits(value: pl.Expr, width: int) -> pl.Expr:
    return value.cast(pl.String).str.zfill(width)


def _phone(salt: int) -> pl.Expr:
    area, end = _digits(200 + _below(salt, 700), 3), _digits(_below(salt + 1, 100), 2)
    chosen = _below(salt + 2, len(_PHONE_FORMS))
    forms = [pl.when(chosen == index).then(pl.format(form, area, end)) for index, form in enumerate(_PHONE_FORMS)]
    return pl.coalesce(forms)


def _routing_number() -> pl.Expr:
    """Routing numbers of so many banks: eight digits and the check digit of the American Bankers Association."""
    bank = _below(40, BANKS)
    base = pl.lit(pl.Series(_DISTRICTS)).gather(bank % len(_DISTRICTS)) * 1_000_000 + 1 + bank * 7919 % 999_999
    weights = (3, 7, 1, 3, 7, 1, 3, 7)
    total = sum((base // 10 ** (7 - place) % 10 * weight for place, weight in enumerate(weights)), pl.lit(0))
    return _digits(base * 10 + (10 - total % 10) % 10, 9)


def _address(node: str, salt: int) -> dict[str, pl.Expr]:
    place = _below(salt, len(_PLACES))
    cells = {
        f"{node}{name}": pl.lit(pl.Series([each[index] for each in _PLACES])).gather(place)
        for index, name in enumerate(("City", "State", "Zip", "Country"))
    }
    number = (1 + _below(salt + 1, 999)).cast(pl.String)
    return cells | {
        f"{node}Company": _pick(_COMPANIES, salt + 2),
        f"{node}AddressLine1": pl.concat_str(number, pl.lit(" "), _pick(_STREETS, salt + 3)),
        f"{node}AddressLine2": _pick(_UNITS, salt + 4),
        f"{node}Phone": _phone(salt + 5),
    }


def _cells(twice_every: int) -> dict[str, pl.Expr]:
    """Give every column of a row that breaks no rule; `_recurring` tells whether it is to be a recurring one.

    One in `twice_every` rows shares its paymentId with the row before; none with 0.
    """
    first, last = _pick(_FIRST, 1), _pick(_LAST, 2)
    recurring = pl.col("_recurring")
    number = pl.col("_n")
    if twice_every:
        number -= (number % twice_every == 1).cast(pl.UInt64)
    cents = _digits(_below(10, 100), 2)
    cells = {
        "paymentId": pl.concat_str(pl.lit("P-"), _digits(number, 8)),
        "gatewayId": (1001 + _below(3, 3)).cast(pl.String),
        "transactionType": pl.when(_below(4, 10) < 6).then(pl.lit("DEBIT")).otherwise(pl.lit("CREDIT")),
        "recurringIndicator": pl.when(recurring).then(pl.lit("TRUE")).otherwise(pl.lit("FALSE")),
        "invoiceNumber": pl.concat_str(pl.lit("INV-"), pl.col("_n").cast(pl.String)),
        "currencyCode": _pick(("USD", "USD", None), 5),
        "amount": pl.concat_str((20 + _below(6, 4000)).cast(pl.String), pl.lit("."), cents),
        "taxAmount": pl.when(_below(7, 3) == 0).then(pl.concat_str(_below(8, 20).cast(pl.String), pl.lit(".50"))),
        "billingInternalId": pl.concat_str(pl.lit("C"), _below(9, 10_000).cast(pl.String)),
        "billingFirstName": first,
        "billingLastName": last,
        "shippingFirstName": first,
        "shippingLastName": last,
        **_address("billing", 50),
        **_address("shipping", 60),
        "billingEmail": pl.concat_str(pl.lit("customer"), _below(11, 10_000).cast(pl.String), pl.lit("@example.com")),
        "shippingTax": pl.when(_below(12, 4) == 0).then(pl.lit("13.75")),
        "achBankName": _pick(_BANKS, 13),
        "achNameOnCheck": pl.concat_str(first, pl.lit(" "), last).str.head(22),
        "achAccountNumber": (10_000_000 + _mix(14)).cast(pl.String),
        "achRoutingNumber": _routing_number(),
        "achCheckNumber": pl.when(_below(15, 3) == 0).then((1000 + _below(16, 9000)).cast(pl.String)),
        "achAccountType": pl.lit("PERSONAL"),
        "achDepositType": pl.when(_below(17, 10) < 7).then(pl.lit("CHECKING")).otherwise(pl.lit("SAVINGS")),
        "achSecCode": _pick(_SEC_CODES, 18),
        "achAgreementFlag": pl.lit("1"),
        "recurringStartDate": pl.when(recurring).then(_pick(_BANKING_DAYS, 19)),
        "recurringBillingCycle": pl.when(recurring).then(pl.lit("MONTHLY")),
        "recurringEndOfMonth": pl.when(recurring).then(pl.lit("N")),
        "recurringNumOfPayments": pl.when(recurring).then((1 + _below(20, 60)).cast(pl.String)),
        "recurringAgreementFlag": pl.when(recurring).then(pl.lit("1")),
    }
    assert cells.keys() == set(COLUMNS), "every column once"
    return cells


_WRONG: tuple[tuple[str, str | None], ...] = (
    ("gatewayId", None), ("gatewayId", "10-01"), ("transactionType", "debit"), ("recurringIndicator", "yes"),
    ("amount", None), ("amount", "1,250.00"), ("billingFirstName", None), ("billingFirstName", "Ada " + "x" * 252),
    ("billingPhone", "555-0134"), ("billingEmail", "books@example"), ("billingCountry", "USA"),
    ("achAccountNumber", "48-2210-77"), ("achRoutingNumber", "21000995"), ("achRoutingNumber", "011000198"),
    ("recurringStartDate", None), ("taxAmount", "1.5"), ("billingState", "ZZ"), ("shippingCity", "Toronto "),
    ("achAgreementFlag", "0"), ("shippingPhone", "+1 202 555 0143 9"),
)  # fmt: skip
"""The fault of each kind: what stands in which column. The first fifteen are those of the shared rules, in order."""
_KIND_RECURRING = 14


def block(first: int, rows: int, bad_percent: int, twice_every: int = 0) -> pl.DataFrame:
    """Rows `first` to `first + rows - 1` of the endless file with that share of bad rows."""
    frame = pl.select(_n=pl.int_range(first, first + rows, dtype=pl.UInt64))
    frame = frame.select("_n", _kind=pl.when(_below(30, 100) < bad_percent).then(_below(31, KINDS)).cast(pl.UInt8))
    frame = frame.with_columns(_recurring=(_below(32, 5) == 0) | pl.col("_kind").eq_missing(_KIND_RECURRING))
    cells = _cells(twice_every)
    for kind, (column, value) in enumerate(_WRONG):
        wrong = pl.col("_kind").eq_missing(kind)
        cells[column] = pl.when(wrong).then(pl.lit(value, dtype=pl.String)).otherwise(cells[column])
    return frame.select(cells[name].alias(name) for name in COLUMNS)


def write(path: Path, rows: int, bad_percent: int, twice_every: int = 0) -> None:
    """Write a payment file of the kind that the name's ending says, under a temporary name first."""
    temporary = path.with_name(f"{path.stem}.part{path.suffix}")
    if path.suffix == ".parquet":
        csv = path.with_suffix(".csv")
        if not csv.exists():
            write(csv, rows, bad_percent, twice_every)
        pl.scan_csv(csv, infer_schema=False).sink_parquet(temporary, row_group_size=BLOCK_ROWS)
    elif path.suffix == ".xlsx":
        workbook = openpyxl.Workbook(write_only=True)
        sheet = workbook.create_sheet("Payments")
        sheet.append(COLUMNS)
        for row in block(1, rows, bad_percent, twice_every).iter_rows():
            sheet.append(row)
        workbook.save(temporary)
    else:
        with temporary.open("wb") as file:
            for first in range(1, rows + 1, BLOCK_ROWS):
                frame = block(first, min(BLOCK_ROWS, rows + 1 - first), bad_percent, twice_every)
                frame.write_csv(file, include_header=first == 1)
    temporary.replace(path)


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--bad", type=int, default=0, help="percent of the rows")
    parser.add_argument("--twice-every", type=int, default=0, help="one in so many shares the paymentId before it")
    given = parser.parse_args()
    write(given.path, given.rows, given.bad, given.twice_every)


if __name__ == "__main__":
    main()
