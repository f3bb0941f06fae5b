"""Writes ACH files for tests, with control totals that are right unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

OURS = "02100002"


def entry(
    code: str, cents: int, account: str, addenda: str = "", *, payment_id: str = "", name: str = "", bank: str = OURS
) -> list[str]:
    """Write an entry and what is added to it."""
    text = f"6{code}{bank}1{account:<17}{cents:010}{payment_id:<15}{name:<22}  1{OURS}0000001"
    return [text, addenda] if addenda else [text]


def returned(code: str, bank: str) -> str:
    """Write the addenda of a return; `bank` is the payee's, eight digits."""
    return f"799{code}{OURS}0000042      {bank}{'':44}{bank}0000007"


def changed(code: str, bank: str, corrected: str) -> str:
    """Write the addenda of a notification of change."""
    return f"798{code}{OURS}0000042      {bank}{corrected:<29}{'':15}{bank}0000007"


def ach_file(
    *batches: Sequence[list[str]],
    day: date = date(2026, 11, 24),
    off_by: int = 0,
    end: str = "\n",
    entry_class: str = "PPD",
    effective: str = "",
) -> bytes:
    """Write a whole file, in blocks of ten; its total of credits is `off_by` cents more than its entries have."""
    records = [f"101 {OURS}1 123456789{day:%y%m%d}0800A094101{'OUR COMPANY':<23}{'BANK':<23}{'':8}"]
    sums = [0, 0, 0, 0]
    for number, entries in enumerate(batches, 1):
        company = f"{'OUR COMPANY':<16}{'':20}1234567890{entry_class}PAYMENTS  "
        records.append(f"5200{company}{'':6}{effective or f'{day:%y%m%d}'}   1{OURS}{number:07}")
        lines = [line for one in entries for line in one]
        payments = [line for line in lines if line[0] == "6"]
        credit = sum(int(line[29:39]) for line in payments if line[2] < "5") + off_by
        debit = sum(int(line[29:39]) for line in payments if line[2] >= "5")
        hashed = sum(int(line[3:11]) for line in payments)
        records += lines
        records.append(
            f"8200{len(lines):06}{hashed % 10**10:010}{debit:012}{credit:012}1234567890{'':25}{OURS}{number:07}"
        )
        sums = [one + more for one, more in zip(sums, (len(lines), hashed, debit, credit), strict=True)]
    blocks = -(-(len(records) + 1) // 10)
    count, hashed, debit, credit = sums
    records.append(f"9{len(batches):06}{blocks:06}{count:08}{hashed % 10**10:010}{debit:012}{credit:012}{'':39}")
    records += ["9" * 94] * (blocks * 10 - len(records))
    assert {len(record) for record in records} == {94}
    return (end.join(records) + end).encode()
