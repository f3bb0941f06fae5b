"""ACH files as payment files: read exactly, or refused with the record; what is no payment is left out and told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.source import open_source
from batchpay.schemas.columns import ACCOUNT
from tests.support.ach_files import OURS, ach_file, entry
from tests.support.payment_files import write

PAID = entry("22", 253479, "000937672879", payment_id="E0", name="OWEN MENON")
SAVED = entry("37", 131632, "7604-38", payment_id="E1", name="RAVI MARSH")
SECURITY = entry("32", 100, "55501234", payment_id="123-45-6789", name="FARAH STAMM")


def rows_of(path: str) -> list[dict[str, str | None]]:
    """Read every row, with its record."""
    with open_source(path, required=()) as source:
        return [row for chunk in source.chunks() for row in chunk.drop("_row").iter_rows(named=True)]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_what_an_entry_says(tmp_path: Path, end: str) -> None:
    """Zeros of accounts stay; the same person twice has two ids, and no trace number is in them."""
    content = ach_file([PAID, SAVED, PAID], [PAID], end=end, effective="261202")
    first, second, third, fourth = rows_of(write(tmp_path, content, "payroll.ach"))
    assert first == {
        "_line": 3, "Status": "payment", "paymentId": "E0-2026-12-02-1", "transactionType": "CREDIT",
        "amount": "2534.79", "achNameOnCheck": "OWEN MENON", "achRoutingNumber": f"{OURS}1",
        "achAccountNumber": "000937672879", "achDepositType": "CHECKING", "achAccountType": "PERSONAL",
        "achSecCode": "PPD", "Effective Date": "2026-12-02", "Individual ID": "E0", "Originator": "OUR COMPANY",
        "Description": "PAYMENTS", "Addenda": None,
    }  # fmt: skip
    assert [second[name] for name in ("transactionType", "achDepositType", ACCOUNT)] == ["DEBIT", "SAVINGS", "7604-38"]
    assert [third["paymentId"], fourth["paymentId"]] == ["E0-2026-12-02-2", "E0-2026-12-02-3"]


def test_prenotes_are_left_out_and_social_security_numbers_kept_nowhere(tmp_path: Path) -> None:
    """And what an addenda says is carried."""
    told = entry("22", 500, "11112222", f"705{'RENT MAY':<80}00010000001", payment_id="A1", name="ANN")
    path = write(
        tmp_path, ach_file([SECURITY, entry("23", 0, "1234", name="NEW HIRE"), told], entry_class="CCD"), "p.ach"
    )
    rows = rows_of(path)
    assert [(row["paymentId"], row["Individual ID"], row["Addenda"]) for row in rows] == [
        (None, None, None),
        ("A1-2026-11-24-1", "A1", "RENT MAY"),
    ]
    assert {row["achAccountType"] for row in rows} == {"BUSINESS"}
    with open_source(path, required=()) as source:
        assert source.notes[-2] == "prenotes, which pay nothing, are left out: 1 row"
        assert source.notes[-1].endswith("and there is none here: 1 row without")


def test_the_offset_of_a_balanced_file_is_told_apart(tmp_path: Path) -> None:
    """Paid, it doubles the file: one in each batch, or one for the whole file; of two alike, the company's own."""
    own = entry("27", 353479, "99", name="OUR COMPANY INC")
    other = entry("22", 100000, "88888888", name="ANN LEE")
    pair = [entry("27", 700, "99", name="OUR COMPANY"), entry("22", 700, "11112222", name="ANN LEE")]
    cases = {"batch": [[PAID, other, own], pair], "file": [[PAID], [other], [own]], "none": [[PAID, SAVED]]}
    for name, batches in cases.items():
        rows = rows_of(write(tmp_path, ach_file(*batches), f"{name}.ach"))
        offsets = [row["achNameOnCheck"] for row in rows if row["Status"] == "offset entry"]
        assert offsets == {"batch": ["OUR COMPANY INC", "OUR COMPANY"], "file": ["OUR COMPANY INC"], "none": []}[name]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (ach_file([PAID, entry("21", 100, "1234")]), "record 4 has transaction code 21 .a return."),
        (ach_file([entry("52", 100, "1234")]), "record 3 has transaction code 52 .a loan or the bank's own account."),
        (ach_file([entry("42", 100, "1234")]), "record 3 has transaction code 42"),
        (ach_file([entry("24", 0, "1234")]), "record 3 has transaction code 24 .no money."),
        (ach_file([entry("33", 100, "1234")]), "record 3 is a prenote with an amount"),
        (ach_file([PAID], entry_class="CTX"), "record 3 is in a batch of class CTX: only PPD, CCD, WEB and TEL"),
        (ach_file([PAID], entry_class="IAT"), "class IAT"),
        (ach_file([PAID], off_by=1), "the total of credits that it states is not that of the batch"),
        (ach_file([PAID], effective="261340"), "no day as its effective date"),
        (ach_file([PAID])[:380], "cut off"),
    ],
)  # fmt: skip
def test_a_file_with_anything_else_is_refused_whole(tmp_path: Path, content: bytes, told: str) -> None:
    """With the record, and nothing of it."""
    with pytest.raises(FileRefused, match=told) as refusal:
        open_source(write(tmp_path, content, "payroll.ach"), required=())
    assert "000937672879" not in str(refusal.value)


def test_files_that_were_damaged_are_refused_or_exact(tmp_path: Path) -> None:
    """A hundred of them: a digit of a bank or an amount, a lost or repeated record, anything at any place."""
    whole = ach_file([PAID, SAVED], [SECURITY])
    exact = [(row["amount"], row["achRoutingNumber"]) for row in rows_of(write(tmp_path, whole, "whole.ach"))]
    lines = whole.splitlines(keepends=True)
    random.seed(4)
    for number in range(100):
        damaged = bytearray(whole)
        if number % 4 == 0:
            record = random.choice((2, 3, 6))
            at = 95 * record + random.choice([*range(3, 11), *range(29, 39)])
            damaged[at : at + 1] = b"%d" % ((damaged[at] - 48 + random.randint(1, 9)) % 10)
        elif number % 4 == 1:
            damaged = bytearray(b"".join(line for at, line in enumerate(lines) if at != number % 9))
        elif number % 4 == 2:
            damaged = bytearray(whole[: random.randrange(40, 95 * 9)])
        else:
            damaged[random.randrange(len(damaged))] = random.randrange(32, 256)
        try:
            found = rows_of(write(tmp_path, bytes(damaged), "damaged.ach"))
        except FileRefused:
            continue
        assert number % 4 > 1, "its totals differ"
        assert [row["amount"] for row in found] == [amount for amount, _ in exact]
