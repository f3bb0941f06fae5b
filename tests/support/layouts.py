"""Six layouts of other programs, how a person answers about them, and what is paid.

The files are made here; others of the same kinds are used where they are (BATCHPAY_TEST_DATA).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.payment_files import DATA

FIELD = DATA / "field"
ROUTING = ("091000019", "071000013", "021000021", "031100775", "026009593", "061000104")
PEOPLE = ("Esme Berg", "Yuki Pell", "Ravi Menon", "Caleb Tanabe", "Farah Quist", "Hugo Vance")
DRAW = random.Random(40)
EVERY = {"gatewayId": "1001", "achAgreementFlag": "1:", "paymentId": "no"}


def account() -> str:
    """An account number that no other row has."""
    return str(DRAW.randrange(10**8, 10**10))


def bills(count: int = 12) -> str:
    """Bill payments: titles above, negative amounts, a total below."""
    cents = [DRAW.randrange(5_000, 400_000) for _ in range(count)]
    lines = ["Harbor Light LLC,,,,,,,", "Bill Payment List,,,,,,,", '"November 1 - 28, 2026",,,,,,,', ""]
    lines.append("Date,Num,Vendor,Amount,Bank Routing Number,Bank Account Number,Account Type,Memo")
    for at, amount in enumerate(cents):
        money = f'"-{amount / 100:,.2f}"'
        lines.append(f"11/20/2026,{at},{PEOPLE[at % 6]} Supply Co,{money},{ROUTING[at % 6]},{account()},Checking,B{at}")
    lines += ["", f'Total,,,"-{sum(cents) / 100:,.2f}",,,,', ""]
    return "\n".join(lines)


def payroll() -> str:
    """Payroll with split deposits: two people have two accounts, gross and net stand in both rows."""
    lines = ["Employee ID,Employee Name,Gross Pay,Net Pay,Deposit Amount,Bank Routing,Bank Account,Acct Type,Pay Date"]
    for at, parts in enumerate([(120_055,), (80_000, 15_050), (210_020,), (99_999, 1_001), (77_010,)]):
        net = sum(parts)
        for part in parts:
            amounts = ",".join(f"{cents / 100:.2f}" for cents in (net * 13 // 10, net, part))
            lines.append(f"E{at},{PEOPLE[at]},{amounts},{ROUTING[at]},{account()},Savings,12/04/2026")
    return "\n".join(lines) + "\n"


def five_columns(header: str = "Name,Routing,Account,Type of Account,Amount") -> str:
    """A bank's five columns with 1 and 2 as kinds of account."""
    rows = [f"{name},{ROUTING[at]},{account()},{at % 2 + 1},{at * 100 + 17.25}" for at, name in enumerate(PEOPLE)]
    return "\n".join([header, *rows] if header else rows) + "\n"


def payouts() -> str:
    """Payouts in cents, of which some failed or are paid already."""
    lines = ["payout_id,recipient_name,routing_number,account_number,account_type,amount_cents,currency,status"]
    for at, status in enumerate(("pending payment", "paid", "failed", "pending payment", "pending payment")):
        lines.append(f"po_{at},{PEOPLE[at]},{ROUTING[at]},{account()},checking,{at * 1000 + 12_345},usd,{status}")
    return "\n".join(lines) + "\n"


def payment_run() -> str:
    """A payment run in the manner of SAP: cp1252, decimal commas, a minus after the number, S and H."""
    lines = ["Kreditor;Name 1;Bankschlüssel;Bankkonto;Betrag in HW;Hauswährung;Belegnummer;S/H;Zahlweg;Fälligkeit"]
    for at, amount in enumerate(("15,40", "3.943,59", "325,65-", "2.609,50", "1.250,50-", "583,92")):
        way = "S" if amount.endswith("-") else "H"
        name = f"{PEOPLE[at].split()[1]} GmbH"
        lines.append(f"7000{at};{name};{ROUTING[at]};{account()};{amount};USD;5100{at};{way};A;0{at + 1}.11.2026")
    return "\n".join(lines) + "\n"


def church() -> str:
    """Gifts: a frequency, dates of the next ones, and a status."""
    lines = [
        "Giver ID,First Name,Last Name,Gift Amount,Frequency,Next Gift Date,Routing #,Account #,Account Type,Status"
    ]
    cycles = ("Monthly", "Weekly", "Monthly", "Annually", "Monthly", "Monthly")
    for at, cycle in enumerate(cycles):
        first, last = PEOPLE[at].split()
        status = "Paused" if at == 5 else "Active"
        due = f"{cycle},12/{at + 11}/2027"
        lines.append(f"{at},{first},{last},${at * 5 + 20}.00,{due},{ROUTING[at]},{account()},Checking,{status}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Layout:
    """A file, how a person answers, and what is paid."""

    make: Callable[[], str]
    answers: Mapping[str, str]
    paid: int
    cents: int | None
    """What is accepted; None where the file draws it."""
    questions: int
    """At most so many are asked."""
    left_out: int = 0
    rejected: int = 0
    like: str | None = None
    """A file of the same kind that others made, and what is paid of it: rows and cents."""
    like_paid: tuple[int, int] = (0, 0)
    encoding: str = "utf-8"
    options: tuple[str, ...] = ()


PAID_OUT = {**EVERY, "transactionType": "CREDIT", "achAccountType": "PERSONAL", "billingFirstName": "people, first"}
LAYOUTS = {
    "bill payments": Layout(
        bills, {**PAID_OUT, "achAccountType": "BUSINESS", "billingFirstName": "companies"}, 12, None, 4,
        like="L1_qbo.csv", like_paid=(30, 5_218_921),
    ),
    "payroll": Layout(
        payroll, {**PAID_OUT, "amount": "Deposit Amount", "payOn": "all today"}, 7, 603_135, 8,
    ),
    "five columns": Layout(
        five_columns, {**PAID_OUT, "achDepositType": "1 is CHECKING"}, 6, 160_350, 6,
        like="L3_at.csv", like_paid=(30, 0),
    ),
    "payouts in cents": Layout(
        payouts, {**PAID_OUT, "amount": "cents", "rows": "left out"}, 3, 44_035, 8, left_out=2,
    ),
    "payment run": Layout(
        payment_run,
        {**PAID_OUT, "transactionType": "CREDIT: H", "achDepositType": "CHECKING", "achAccountType": "BUSINESS",
         "billingFirstName": "companies", "payOn": "all today"},
        6, 872_856, 8, like="L5_sap.csv", like_paid=(30, 0), encoding="cp1252", options=("--encoding", "cp1252"),
    ),
    "church": Layout(
        church,
        {**PAID_OUT, "transactionType": "DEBIT", "rows": "left out", "recurringIndicator": "TRUE",
         "recurringNumOfPayments": "12"},
        3, 9_000, 9, left_out=1, rejected=2, like="L6_church.csv", like_paid=(13, 0),
    ),
}  # fmt: skip
