"""Writes the files in samples/, byte for byte the same on every machine: `python -m tests.support.sample_files`.

All people, companies, accounts and addresses are made up; the routing numbers pass the check digit and were computed
here. Only `Random.random()` is used, the one method whose sequence Python promises to keep.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from random import Random

import polars as pl

from batchpay.schemas.columns import GATEWAY_COLUMNS, PAYMENT_ID, RECURRING
from tests.support.banking_days import is_banking_day
from tests.support.sample_plan import ODDITIES, PLANTED, SMALL, SPECIAL_ACCOUNTS, SPREADSHEET_ROWS
from tests.support.sample_readme import readme_text
from tests.support.sample_spreadsheet import spreadsheet_bytes

SAMPLES = Path(__file__).parents[2] / "samples"
ROWS = 1040
CARRIED = "costCenter"
HEADER = (PAYMENT_ID, *GATEWAY_COLUMNS, CARRIED)
_SEED = 20350115
_SPREADSHEET_SEED = 20350116

_FIRST_NAMES = (
    "José", "Zoë", "Siobhán", "Renée", "Björn", "Anaïs", "Łukasz", "Maëlle", "Søren", "Núria", "Aiko", "Dwayne",
    "Grace", "Hannah", "Imani", "Jamal", "Katherine", "Liam", "Mei", "Noah", "Olivia", "Priya", "Quentin", "Rosa",
    "Samuel", "Thị", "Uma", "Victor", "Wren", "Yusuf",
)  # fmt: skip
_LAST_NAMES = (
    "O'Brien", "D'Angelo", "Nguyễn", "Muñoz", "Côté", "Lefèvre", "Ångström", "Żak", "Núñez", "O'Neill", "Abernathy",
    "Baker", "Castellanos", "Dubois", "Ekwueme", "Fischer", "Grant", "Hargrove", "Iyer", "Jensen", "Kowalski", "Lam",
    "Mbeki", "Nakamura", "Osei", "Patel", "Quigley", "Rossi", "Santos", "Tremblay",
)  # fmt: skip
_COMPANIES = (
    "Boréal Café Ltée", "Harper & Daughters", "Lone Star Hardware, LLC", "Maple Ridge Dental", "North Fork Farms",
    "Ocean \"Blue\" Pools", "Piñon Roofing", "Quartz Analytics", "Riverside Veterinary", "St. Clair Print Shop",
)  # fmt: skip
_STREETS = ("Alder Way", "Birch Street", "Cedar Avenue", "Dogwood Lane", "Elm Street", "Foundry Road", "Granite Court")
_LINE_TWO = ("Apt 4B", "Suite 210", "Unit 7", "c/o Front Desk", "Floor 3", "Box 12")
_US_PLACES = (
    ("Austin", "TX", "78701"), ("Boise", "ID", "83702"), ("Coeur d'Alene", "ID", "83814-2719"),
    ("Dayton", "OH", "45402"), ("Española", "NM", "87532"), ("Fairbanks", "AK", "99701"),
    ("Greenville", "SC", "29601"), ("Boston", "MA", "02108"), ("Portland", "ME", "04101-5023"),
    ("San Juan", "PR", "00901"), ("Washington", "DC", "20001"),
)  # fmt: skip
_CANADIAN_PLACES = (
    ("Montréal", "QC", "H2Y 1C6"), ("Québec", "QC", "G1R 4S9"), ("Toronto", "ON", "M5V 2T6"),
    ("Halifax", "NS", "B3J1S9"), ("Trois-Rivières", "QC", "G9A 5C5"), ("Whitehorse", "YT", "Y1A 1C4"),
    ("St. John's", "NL", "A1C 5M2"),
)  # fmt: skip
_BANKS = ("First Bank of Example", "Sample Savings", "Example Credit Union", "Banque d'Exemple")
_ROUTING_BASES = ("01100019", "02100099", "03110077", "04400088", "06110044", "09100055", "11100066", "12100033",
                  "21110022", "26707111", "32107055", "72240011")  # fmt: skip
_PHONES = ("1-{0}-555-{1}", "{0}-555-{1}", "{0}.555.{1}", "{0} 555 {1}", "({0}) 555-{1}")
_CENTERS = ("ops-01", "ops-02", "payroll", "field service", "R&D")


@dataclass
class _Source:
    """Draws that depend only on the seed."""

    random: Random = field(default_factory=lambda: Random(_SEED))

    def below(self, limit: int) -> int:
        return int(self.random.random() * limit)

    def pick(self, choices: Sequence[str]) -> str:
        return choices[self.below(len(choices))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def digits(self, count: int) -> str:
        return "".join(str(self.below(10)) for _ in range(count))


def routing_number(base: str) -> str:
    """Return the eight digits with the ABA check digit that makes them a routing number."""
    weighted = sum(int(digit) * weight for digit, weight in zip(base, (3, 7, 1) * 3, strict=False))
    return base + str(-weighted % 10)


def plain_account(source: _Source) -> str:
    """Return a made-up account number that has no special meaning to the sandbox."""
    while True:
        account = source.pick("123456789") + source.digits(7 + source.below(5))
        if account[-6:-2] != "9900":
            return account


def payment_rows() -> list[dict[str, str]]:
    """Return the rows of payments.csv: valid ones, with the planned special accounts, oddities and faults applied."""
    source = _Source()
    rows = [_valid_row(source, number) for number in range(1, ROWS + 1)]
    for special in SPECIAL_ACCOUNTS:
        rows[special.row - 1]["achAccountNumber"] = f"77{special.row:04d}{special.ending}"
    for change in (*ODDITIES, *PLANTED):
        if change.copy_of:
            rows[change.row - 1] = dict(rows[change.copy_of - 1])
        rows[change.row - 1].update(change.cells)
    return rows


def spreadsheet_rows() -> list[dict[str, str]]:
    """Return the rows of spreadsheet.xlsx before irregular cells are applied: all valid."""
    source = _Source(Random(_SPREADSHEET_SEED))
    rows = [_valid_row(source, number) for number in range(1, SPREADSHEET_ROWS + 1)]
    for number, row in enumerate(rows, start=1):
        row[PAYMENT_ID] = f"S-{number:04d}"
    return rows


def small_rows() -> list[dict[str, str]]:
    """Return the rows of small.csv: six valid ones and two invalid ones, in few columns."""
    rows = [dict(row) for row in payment_rows()[: len(SMALL.faults) + SMALL.good]]
    for number, row in enumerate(rows, start=1):
        row.update(dict.fromkeys(RECURRING, ""), recurringIndicator="FALSE", achAccountType="PERSONAL", achSecCode="")
        row.update(SMALL.faults.get(number, {}))
    return rows


def _valid_row(source: _Source, number: int) -> dict[str, str]:
    row = dict.fromkeys(HEADER, "")
    first, last = source.pick(_FIRST_NAMES), source.pick(_LAST_NAMES)
    cents = 500 + source.below(250_000)
    business = source.chance(14)
    row.update(
        gatewayId="1001" if source.chance(80) else "1002",
        transactionType="DEBIT" if source.chance(65) else "CREDIT",
        recurringIndicator="FALSE",
        invoiceNumber=f"INV-{20000 + number}" if source.chance(90) else "",
        currencyCode="USD" if source.chance(60) else "",
        amount=_money(cents),
        taxAmount=_money(cents * 8 // 100) if source.chance(30) else "",
        achBankName=source.pick(_BANKS) if source.chance(70) else "",
        achNameOnCheck=f"{first} {last}"[:22],
        achAccountNumber=plain_account(source),
        achRoutingNumber=routing_number(source.pick(_ROUTING_BASES)),
        achCheckNumber=str(1000 + source.below(9000)) if source.chance(10) else "",
        achAccountType="BUSINESS" if business else "PERSONAL",
        achDepositType="CHECKING" if source.chance(75) else "SAVINGS",
        achSecCode="CCD" if business else source.pick(("PPD", "PPD", "")),
        achAgreementFlag="1",
        costCenter=source.pick(_CENTERS) if source.chance(80) else "",
    )
    if source.chance(92):
        row[PAYMENT_ID] = f"P-{number:05d}"
    _address(source, row, "billing", first, last, business)
    if source.chance(25):
        first, last = source.pick(_FIRST_NAMES), source.pick(_LAST_NAMES)
    _address(source, row, "shipping", first, last, business)
    row["billingInternalId"] = f"C{1000 + source.below(9000)}" if source.chance(50) else ""
    row["shippingTax"] = _money(source.below(2000)) if source.chance(15) else ""
    _email(source, row)
    if source.chance(20):
        _recurring(source, row)
    return row


def _address(source: _Source, row: dict[str, str], node: str, first: str, last: str, business: bool) -> None:
    canadian = source.chance(20)
    places = _CANADIAN_PLACES if canadian else _US_PLACES
    city, state, postal_code = places[source.below(len(places))]
    phone = source.pick(_PHONES).format(200 + source.below(700), f"01{source.digits(2)}")
    row[node + "FirstName"], row[node + "LastName"] = first, last
    row[node + "Company"] = source.pick(_COMPANIES) if business else ""
    if node == "shipping" and source.chance(40):
        return  # only the names, as most files have it
    row[node + "AddressLine1"] = f"{1 + source.below(999)} {source.pick(_STREETS)}"
    row[node + "AddressLine2"] = source.pick(_LINE_TWO) if source.chance(20) else ""
    row[node + "City"], row[node + "State"], row[node + "Zip"] = city, state, postal_code
    row[node + "Country"] = "CA" if canadian else source.pick(("US", "US", ""))
    row[node + "Phone"] = phone if source.chance(80) else ""


def _email(source: _Source, row: dict[str, str]) -> None:
    if not source.chance(80):
        return
    mailbox = f"customer{source.digits(4)}"
    row["billingEmail"] = f"{mailbox}@example.com"
    if source.chance(10):
        row["billingEmail"] += f";{mailbox}+books@example.org"


def _recurring(source: _Source, row: dict[str, str]) -> None:
    monthly = source.chance(70)
    start = date(2035, 1, 2) + timedelta(days=source.below(900))
    while start.day > 28 or not is_banking_day(start):
        start += timedelta(days=1)
    row.update(
        recurringIndicator="TRUE",
        recurringStartDate=start.strftime("%m/%d/%Y"),
        recurringBillingCycle="MONTHLY" if monthly else "DAILY",
        recurringEndOfMonth="Y" if monthly and source.chance(20) else "N",
        recurringNumOfPayments=str(2 + source.below(58)),
        recurringAgreementFlag=source.pick("1Y"),
    )


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def csv_bytes(header: Sequence[str], rows: Sequence[dict[str, str]]) -> bytes:
    """Return the rows as CSV: UTF-8 without a byte order mark, lines ended by a line feed."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet_bytes(rows: Sequence[dict[str, str]]) -> bytes:
    """Return the rows as Parquet: the amount as a decimal, the rest as text, blank cells as nulls.

    A decimal column can't hold an amount with a thousands separator or a symbol: it has the number that was meant, and
    the row is valid.
    """
    columns: dict[str, pl.Series] = {
        name: pl.Series(name, [row[name] or None for row in rows], dtype=pl.String) for name in HEADER
    }
    amounts = [_decimal(row["amount"]) for row in rows]
    columns["amount"] = pl.Series("amount", amounts, dtype=pl.Decimal(12, 2))
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file, compression="zstd")
    return file.getvalue()


def _decimal(amount: str) -> Decimal | None:
    if not amount:
        return None
    try:
        return Decimal(amount.replace(",", "").replace("$", "").strip()).quantize(Decimal("0.01"))
    except InvalidOperation:
        return None


def sample_files() -> dict[str, bytes]:
    """Return the name and content of every file in samples/."""
    rows = payment_rows()
    return {
        "payments.csv": csv_bytes(HEADER, rows),
        "payments.parquet": parquet_bytes(rows),
        "spreadsheet.xlsx": spreadsheet_bytes(HEADER, spreadsheet_rows()),
        "small.csv": csv_bytes(SMALL.columns, small_rows()),
        "README.md": readme_text(ROWS).encode(),
    }


def main(folder: Path = SAMPLES) -> None:
    """Write all files into the folder."""
    folder.mkdir(exist_ok=True)
    for name, content in sample_files().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
