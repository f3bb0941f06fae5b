"""Files of returns as gateways and banks write them, and what their codes mean."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.payment import Direction
from batchpay.reconciliation.statement import load_export_map
from batchpay.returns.codes import code_in, return_codes
from batchpay.returns.return_file import ReturnLine, ReturnsMap, read_returns
from batchpay.schemas.columns import COLUMNS
from tests.support.ach_files import ach_file, changed, entry, returned
from tests.support.payment_files import DATA, workbook

NUMBER = "648443924"
DAY = date(2026, 11, 24)
HEADER = "Return Date,Return Code,Individual ID,Amount,Account Number,Routing Number,Individual Name,Corrected Data"
LINE = f"11/24/2026,R01 - NSF,P-1,(12.50),{NUMBER},121000332,Grace Quigley,"


def test_tables_of_each_format_say_the_same(tmp_path: Path) -> None:
    """CSV, XLSX and Parquet, with a line of totals below and a payment that did not come back."""
    rows = [HEADER.split(","), LINE.split(","), ["11/24/2026", "", "P-2", "9.00", "77001", "", "", ""],
            ["Total", "", "", "21.50", "", "", "", ""]]  # fmt: skip
    (tmp_path / "r.csv").write_text("\n".join(map(",".join, rows)))
    workbook(tmp_path, rows, "r.xlsx")
    pl.DataFrame(rows[1:], schema=rows[0], orient="row").write_parquet(tmp_path / "r.parquet")
    for name in ("r.csv", "r.xlsx", "r.parquet"):
        read = read_returns(tmp_path / name)
        (line,) = read.lines
        assert line == ReturnLine(
            2, "R01", DAY, 1250, payment_id="P-1", routing="121000332", account=NUMBER, last_four="3924",
            name="Grace Quigley",
        ), name  # fmt: skip
        assert (read.skipped, len(read.digest)) == (2, 64)
        assert NUMBER not in repr(read)


@pytest.mark.parametrize(("header", "line", "found"), [
    ("R-Code,Original Trace Number,Amt", "R3,T9,1", None),  # no code: listed, since the column has something
    ("Status,Code,Transaction ID", "Returned - R02,,G-1", ("R02", "reference", "G-1")),
    ("Change Code,Return Code,Invoice Number", "C01,,I-1", ("C01", "invoice", "I-1")),
    ("Return Reason Code,Masked Account,Type", "R10,xxxxx3924,Debit", ("R10", "last_four", "3924")),
    ("Reason Code,Account Number,Type", "R10,****0007,ACH Credit Return", ("R10", "last_four", "0007")),
])  # fmt: skip
def test_usual_headers_are_known(tmp_path: Path, header: str, line: str, found: tuple[str, str, str] | None) -> None:
    """What programs call their columns; a masked account is no account."""
    (tmp_path / "r.csv").write_text(f"{header}\n{line}\n")
    (one,) = read_returns(tmp_path / "r.csv").lines
    assert one.account == ""
    if found is None:
        assert (one.code, one.reference) == ("", "T9")
    else:
        assert (one.code, getattr(one, found[1])) == (found[0], found[2])
    kinds = {"Debit": Direction.DEBIT, "ACH Credit Return": Direction.CREDIT}
    assert one.direction is kinds.get(line.split(",")[-1])


def test_a_map_names_what_has_another_name(tmp_path: Path) -> None:
    """Without one the file is refused, and asks for it; no cell is quoted."""
    (tmp_path / "r.csv").write_text(f"Grund;Zahlung;Am\nR01;P-1;24.11.2026\n;{NUMBER};\n")
    with pytest.raises(FileRefused, match="Which is the code") as refused:
        read_returns(tmp_path / "r.csv")
    assert NUMBER not in str(refused.value)
    (tmp_path / "m.toml").write_text('[columns]\ncode = "Grund"\npayment_id = "Zahlung"\ndate = "Am"\n')
    (one,) = read_returns(tmp_path / "r.csv", load_export_map(tmp_path / "m.toml", ReturnsMap)).lines
    assert (one.code, one.payment_id, one.day) == ("R01", "P-1", DAY)


def test_an_ach_file_of_returns_and_changes(tmp_path: Path) -> None:
    """The payee's routing number is in the addenda, its check digit computed; a change has no amount."""
    (tmp_path / "r.ach").write_bytes(ach_file(
        [entry("26", 1250, NUMBER, returned("R01", "12100033"), payment_id="P-1", name="GRACE QUIGLEY"),
         entry("22", 700, "1")],
        [entry("21", 0, NUMBER, changed("C03", "12100033", "026009593   0077001"), payment_id="P-2")],
    ))  # fmt: skip
    first, second = read_returns(tmp_path / "r.ach").lines
    assert first == ReturnLine(
        3, "R01", DAY, 1250, Direction.DEBIT, "P-1", routing="121000332", account=NUMBER, name="GRACE QUIGLEY"
    )
    assert (second.code, second.cents, second.direction, second.line) == ("C03", None, Direction.CREDIT, 8)
    assert return_codes()["C03"].corrections(second.corrected) == {
        "achRoutingNumber": "026009593", "achAccountNumber": "0077001",
    }  # fmt: skip


def test_an_ach_file_without_a_return(tmp_path: Path) -> None:
    """On most days a bank's file has nothing; a file of payments in its place is none of returns."""
    (tmp_path / "r.ach").write_bytes(ach_file())
    assert read_returns(tmp_path / "r.ach").lines == []
    (tmp_path / "r.ach").write_bytes(ach_file([entry("22", 700, NUMBER)]))
    with pytest.raises(FileRefused, match="none of which came back"):
        read_returns(tmp_path / "r.ach")


@pytest.mark.parametrize(("settled", "day"), [
    ("328", date(2026, 11, 24)), ("327", date(2026, 11, 23)), ("330", date(2026, 11, 24)), ("   ", date(2026, 11, 24)),
    ("366", date(2026, 11, 24)), ("000", date(2026, 11, 24)),
])  # fmt: skip
def test_a_batch_of_an_ach_file_has_its_own_day(tmp_path: Path, settled: str, day: date) -> None:
    """The day of its settlement, without a year; that of the file where there is none, or it is later."""
    content = ach_file([entry("26", 1250, NUMBER, returned("R01", "12100033"))])
    header = content.splitlines()[1]
    (tmp_path / "r.ach").write_bytes(content.replace(header, header[:75] + settled.encode() + header[78:]))
    assert [line.day for line in read_returns(tmp_path / "r.ach").lines] == [day]


@pytest.mark.parametrize(("code", "text", "found"), [
    ("C01", "0077001", {"achAccountNumber": "0077001"}),
    ("C01", "0077001 27", {}),
    ("C02", "026009593", {"achRoutingNumber": "026009593"}),
    ("C02", "26009593", {}),  # a spreadsheet has lost a zero
    ("C03", "026009593 0077001", {"achRoutingNumber": "026009593", "achAccountNumber": "0077001"}),
    ("C04", "QUIGLEY, GRACE", {"achNameOnCheck": "QUIGLEY, GRACE"}),
    ("C05", "37", {"achDepositType": "SAVINGS"}),
    ("C05", "52", {}),
    ("C06", "0077001             22", {"achAccountNumber": "0077001", "achDepositType": "CHECKING"}),
    ("C07", "026009593007700100000000032",  # an account of 16 digits and a code, or one of 17 cut short
     {}),
    ("C07", "02600959300770010000000001 32",
     {"achRoutingNumber": "026009593", "achAccountNumber": "00770010000000001", "achDepositType": "SAVINGS"}),
    ("C07", f"026009593{'0077001':<17}27",
     {"achRoutingNumber": "026009593", "achAccountNumber": "0077001", "achDepositType": "CHECKING"}),
    ("C07", "02600959300770010000000001" + "22",
     {"achRoutingNumber": "026009593", "achAccountNumber": "00770010000000001", "achDepositType": "CHECKING"}),
    ("C09", "12345", {}), ("R01", "12345", {}),
])  # fmt: skip
def test_corrected_data_is_read_by_the_code(code: str, text: str, found: dict[str, str]) -> None:
    """C03, C06 and C07 hold several fields; what is not as the code says is no value."""
    assert return_codes()[code].corrections(text) == found


def test_the_table_of_codes() -> None:
    """R01 to R53, R80 to R85, C01 to C09, C13 and C14 are recorded; who is told what stands in our own words."""
    codes = return_codes()
    numbers = [*range(1, 48), *range(50, 54), *range(80, 86)]
    recorded = {one for one, code in codes.items() if code.kind != "listed"}
    assert recorded == {f"R{n:02}" for n in numbers} | {f"C{n:02}" for n in (*range(1, 10), 13, 14)}
    assert {f"R{n}" for n in (61, 62, *range(67, 71))} <= codes.keys() - recorded
    for one in codes.values():
        assert one.kind == {"R": "returned", "C": "changed"}[one.code[0]] or one.kind == "listed"
        assert set(re.findall(r"\?P<(\w+)>", one.corrected)) <= set(COLUMNS)
        assert ";" not in one.meaning, one.meaning
    debits = {one for one, code in codes.items() if code.is_blocking("DEBIT")}
    credits_ = {one for one, code in codes.items() if code.is_blocking("CREDIT")}
    assert debits & credits_ == {"R02", "R03", "R04", "R12", "R13", "R16", "R20", "R28"}
    assert credits_ - debits == {"R14", "R15", "R23"}
    assert debits - credits_ == {"R05", "R07", "R08", "R10", "R29", "R51"}
    assert [one for one, code in codes.items() if code.is_for_good] == ["R08"]


@pytest.mark.skipif(not (DATA / "nacha_codes").exists(), reason="no folder of test data")
def test_no_sentence_is_a_copy() -> None:
    """The codes are facts, their descriptions are others' sentences."""
    for name in ("return_codes", "change_codes"):
        for row in pl.read_csv(DATA / "nacha_codes" / f"{name}.csv").iter_rows(named=True):
            if ours := return_codes().get(row["code"]):
                assert ours.meaning.lower() not in (str(row["description"]).lower(), str(row["reason"]).lower()) or (
                    len(ours.meaning.split()) < 4
                )


@pytest.mark.parametrize(("code", "sent", "day", "is_within"), [
    ("R01", date(2026, 11, 20), date(2026, 11, 29), True),  # Friday: Tuesday and five days
    ("R01", date(2026, 11, 20), date(2026, 11, 30), False),
    ("R01", date(2026, 11, 25), date(2026, 12, 5), True),  # the day after is Thanksgiving
    ("R10", date(2026, 11, 20), date(2027, 1, 24), True), ("R10", date(2026, 11, 20), date(2027, 1, 25), False),
    ("R10", date(2026, 11, 20), date(2026, 11, 19), False),
])  # fmt: skip
def test_the_window_of_a_code(code: str, sent: date, day: date, *, is_within: bool) -> None:
    """Two banking days, or sixty days where a payer may say so; and five more."""
    assert return_codes()[code].is_within(sent, day) is is_within


def test_until_when_to_act() -> None:
    """Six banking days for a change, 180 days for another collection, none for a closed account."""
    days = [return_codes()[code].until(date(2026, 11, 24)) for code in ("C01", "R01", "R11", "R02")]
    assert days == [date(2026, 12, 3), date(2027, 5, 23), date(2027, 1, 23), None]


@pytest.mark.parametrize(("text", "code"), [
    ("r01", "R01"), ("R 03 no account", "R03"), ("NSF", ""), ("R01/R09", ""), ("R01, R01", "R01"), ("R012", ""),
])  # fmt: skip
def test_a_code_in_a_cell(text: str, code: str) -> None:
    """A cell that names two codes names none."""
    assert code_in(text) == code
