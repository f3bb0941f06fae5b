"""Payments that came back, as a bank tells of them: a portal's CSV, or a NACHA return file.

A NACHA file has records of 94 characters in blocks of ten. Here each return is a batch of its own: header (5), entry
(6), addenda (7: 99 for a return, 98 for a notice of change), control (8). The entry names the account as it was paid,
and our own bank, to which it goes; the payee's bank stands in the addenda, without its check digit. A notice moves no
money: its amount is zero.

What a bank corrects is made from what it was paid with, so that the same payment always gets the same correction.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from batchpay.errors import WrongUse
from batchpay.sandbox.schedules import due, made_until
from batchpay.sandbox.store import CameBack, SandboxStore

FORMS = {"csv": "text/csv", "ach": "text/plain"}
"""The forms of a return file, and the type that each is sent as."""
_ENDINGS = {".csv": "csv", ".ach": "ach", ".txt": "ach"}
_HEADER = (
    "Return Date,Return Code,Transaction ID,Invoice Number,Transaction Type,Amount,Name,Account Number,Corrected Data"
)
_OUR_BANK = "09100001"
_OUR_BANK_DIGIT = "9"
_COMPANY = "1123456789"


@dataclass(frozen=True, slots=True)
class _Return:
    """One line of a return file."""

    number: int
    day: date
    back: CameBack

    @property
    def is_change(self) -> bool:
        return self.back.code.startswith("C")

    @property
    def is_debit(self) -> bool:
        return bool(self.back.body["transactionType"] == "DEBIT")

    @property
    def is_savings(self) -> bool:
        return self.ach["achDepositType"] == "SAVINGS"

    @property
    def ach(self) -> dict[str, str]:
        return dict(self.back.body["ach"])

    @property
    def cents(self) -> int:
        return 0 if self.is_change else int(str(self.back.body["amount"]).replace(".", ""))

    @property
    def corrected(self) -> str:
        """The field Corrected Data of a notice: what each code corrects has positions of its own."""
        if not self.is_change:
            return ""
        ach = self.ach
        account = f"{ach['achAccountNumber'][:-4]}77{ach['achAccountNumber'][-2:]}"
        routing = "021000021" if ach["achRoutingNumber"] != "021000021" else "011000015"
        kind = ("2" if self.is_savings else "3") + ("7" if self.is_debit else "2")
        return {
            "C01": account,
            "C02": routing,
            "C03": f"{routing}   {account}",
            "C05": kind,
            "C06": f"{account:<17}   {kind}",
            "C07": f"{routing}{account:<17}{kind}",
        }[self.back.code]


def form_of(path: Path) -> str:
    """Return the form of a return file by its name's ending; raises WrongUse for another one."""
    if form := _ENDINGS.get(path.suffix.lower()):
        return form
    raise WrongUse(f"--returns {path}: the name ends in .csv, or in .ach for a NACHA file")


def check_own(path: Path) -> None:
    """Raise WrongUse for a file that is no earlier return file: it would be written over."""
    start = {"csv": _HEADER, "ach": f"101 {_OUR_BANK}"}[form_of(path)]
    try:
        if path.stat().st_size and not path.read_bytes().startswith(start.encode()):
            raise WrongUse(f"--returns {path} is not a return file of a sandbox, and was left as is; name another file")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise WrongUse(f"--returns {path} can't be used: {error.strerror}") from None


def return_file(store: SandboxStore, form: str) -> bytes:
    """Write what came back until now; the same content for the same payments."""
    returns = list(_returns(store))
    return _csv(returns) if form == "csv" else _ach(returns)


def _returns(store: SandboxStore) -> Iterator[_Return]:
    """List one line for each payment, and for each payment of a schedule that was due until today."""
    today, number = store.now().date(), 0
    for back in store.came_back():
        plan = back.body.get("recurring")
        for day in [due(plan, index) for index in range(made_until(plan, today))] if plan else [back.day]:
            number += 1
            yield _Return(number, day or today, back)


def _csv(returns: list[_Return]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_HEADER.split(","))
    for one in returns:
        made, ach = one.back.made, one.ach
        known = (one.day, one.back.code, made.reference, made.invoice or "", one.back.body["transactionType"])
        amount = f"{one.cents // 100}.{one.cents % 100:02}"
        masked = f"****{ach['achAccountNumber'][-4:]}"
        writer.writerow([*known, amount, ach["achNameOnCheck"], masked, one.corrected])
    return text.getvalue().encode()


def _ach(returns: list[_Return]) -> bytes:
    written = max((one.day for one in returns), default=date(2000, 1, 1))
    bank = f"{_OUR_BANK}{_OUR_BANK_DIGIT}"
    records = [f"101 {bank} {bank}{written:%y%m%d}0600A094101{'SANDBOX BANK':<23}{'SANDBOX OPERATOR':<23}{'':8}"]
    debits = credits = 0
    for one in returns:
        back, ach = one.back, one.ach
        debit, credit = (one.cents, 0) if one.is_debit else (0, one.cents)
        debits, credits = debits + debit, credits + credit
        service = "225" if one.is_debit else "220"
        entries = "COR" if one.is_change else ach.get("achSecCode", "PPD")
        kind = ("3" if one.is_savings else "2") + ("6" if one.is_debit else "1")
        payee_bank = ach["achRoutingNumber"][:8]
        trace = f"{payee_bank}{one.number:07}"
        invoice = back.made.invoice or ""  # one that is too long is left out, as no part of it says which payment it is
        who = f"{_plain(invoice if len(invoice) <= 15 else '', 15)}{_plain(ach['achNameOnCheck'], 22)}"
        records += [
            f"5{service}{'YOUR COMPANY':<16}{'':20}{_COMPANY}{_plain(entries, 3)}{'PAYMENT':<10}{'':6}"
            f"{back.day:%y%m%d}{one.day:%j}1{trace}",
            f"6{kind}{bank}{_plain(ach['achAccountNumber'], 17)}{one.cents:010}{who}{'':2}1{trace}",
            f"7{'98' if one.is_change else '99'}{back.code}{_OUR_BANK}{back.made.number:07}{'':6}{payee_bank}"
            f"{one.corrected:<44}{trace}",
            f"8{service}{2:06}{int(_OUR_BANK):010}{debit:012}{credit:012}{_COMPANY}{'':25}{trace}",
        ]
    count = len(returns)
    blocks = -(-(len(records) + 1) // 10)
    banks = count * int(_OUR_BANK) % 10**10
    records.append(f"9{count:06}{blocks:06}{2 * count:08}{banks:010}{debits:012}{credits:012}{'':39}")
    records += ["9" * 94] * (10 * blocks - len(records))
    return "".join(f"{record}\r\n" for record in records).encode("ascii")


def _plain(text: str, width: int) -> str:
    """Return a text in the letters that a NACHA file has, as wide as its field."""
    return f"{unicodedata.normalize('NFKD', text).encode('ascii', 'ignore').decode()[:width]:<{width}}"
