"""Sheets of persons and other programs are read as they are meant, or refused; amounts and dates are not guessed."""

from __future__ import annotations

import datetime
import io
import zipfile
from pathlib import Path

import openpyxl
import pytest

from batchpay.errors import FileRefused
from batchpay.reconciliation import sheet_reader as sheet_module
from batchpay.reconciliation.sheet_reader import (
    LOST_DIGITS,
    day_comes_first,
    foreign_cents,
    foreign_date,
    last_four_of,
    read_sheet,
    sheet_names,
)
from batchpay.writing.atomic import Stream


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        ("12.50", 1250), ("$1,234.50", 123450), ("1.234,50", 123450), ("1 234,50 €", 123450), ("1'234.00", 123400),
        ("(5.00)", -500), ("($5.00)", -500), ("5.00-", -500), ("-$5.00", -500), ("$-5", -500), ("−5.00", -500),
        ("5.00 DR", -500), ("5.00 CR", 500), ("USD 12", 1200), ("12,5", 1250), ("1,234", 123400), (".5", 50),
        ("1,234,567.89", 123456789), ("0", 0), ("+7.10", 710), ("(5.25)", -525), ("5.25DR", -525), (",5", 50),
        ("5.", 500), ("1.234.567", 123456700), ("1.234.567,8", 123456780), ("1,234.567,8", None), ("5.2,3", None),
        ("usd 12", 1200), ("12.50 USD", 1250), ("12.50eur", 1250), ("1" * 18, 111111111111111111 * 100),
        ("(5.00", None), ("5.00)", None), ("-5+", None), ("+5-", None), ("USD", None), ("$", None), ("5.2a", None),
        ("1.234", None), ("12.345", None), ("1,23,456.00", None), ("1..2", None), ("1e5", None), ("", None),
        ("--5", None), ("abc", None), ("١٢", None), ("9" * 19, None), ("NaN", None), ("1,2,3", None),
        ("REF 12", None), ("12 XYZ", None), ("C$ 5", 500), ("$12.00 CAD", 1200),
    ],
)  # fmt: skip
def test_amounts_of_others(text: str, cents: int | None) -> None:
    """An amount is read to the cent however it is written, or not at all."""
    assert foreign_cents(text) == cents


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-11-21T03:00:00Z", (2026, 11, 21)), ("11/21/2026 10:00 PM", (2026, 11, 21)), ("11/21/26", (2026, 11, 21)),
        ("21-Nov-2026", (2026, 11, 21)), ("Nov 21, 2026", (2026, 11, 21)), ("20261121", (2026, 11, 21)),
        ("2026/11/21", (2026, 11, 21)), ("2026/1/5 09:30", (2026, 1, 5)), ("2026.11.21", (2026, 11, 21)),
        ("21 Nov 2026 10:22", (2026, 11, 21)), ("Nov 21, 2026 10:22 PM", (2026, 11, 21)),
        ("Saturday, November 21, 2026", (2026, 11, 21)), ("Sat 21 Nov 2026", (2026, 11, 21)),
        ("13/40/2026", None), ("soon", None), ("", None), ("2026-02-30", None), ("2026/13/01", None), ("46347", None),
        ("2026-11/21", None), ("21 Nov", None), ("202611211030", None), ("Foo 21 Nov 2026", None),
    ],
)  # fmt: skip
def test_dates_of_others(text: str, day: tuple[int, int, int] | None) -> None:
    """A date is read as written in the United States, or from the year on, with or without a day's name and a time."""
    assert foreign_date(text) == (datetime.date(*day) if day else None)


def test_a_column_tells_whether_the_day_comes_first() -> None:
    """One day above 12 settles it for the column; a point between the parts does as well."""
    assert day_comes_first(["03/04/2026", "21/11/2026"])
    assert not day_comes_first(["03/04/2026", "11/21/2026"])
    assert day_comes_first(["03.04.2026"])
    assert day_comes_first(["25/12/2026"]) and day_comes_first(["13/02/2026"])
    assert not day_comes_first(["12/12/2026"])
    assert not day_comes_first(["3/4/26."]), "a point that ends a text"
    assert not day_comes_first(["21/11/2026", "11/13/2026"]), "both ways in one column: nothing is told"
    assert foreign_date("03/04/2026", day_first=True) == datetime.date(2026, 4, 3)
    assert foreign_date("2026#04#03", pattern="%Y#%m#%d") == datetime.date(2026, 4, 3)


@pytest.mark.parametrize(("text", "four"), [
    ("xxxx-1234", "1234"), ("****1234", "1234"), ("123", "0123"), ("12ab", ""), ("ab1", ""), ("", ""),
    ("9876543210", "3210"),
])  # fmt: skip
def test_the_last_four_of_an_account(text: str, four: str) -> None:
    """Only digits count, and zeros that a spreadsheet dropped are put back."""
    assert last_four_of(text) == four


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_csv_in_its_usual_forms(tmp_path: Path, separator: str, encoding: str) -> None:
    """Separator and byte order mark are found; lines keep their numbers over blank ones and quoted breaks."""
    text = separator.join(("a", "b")) + "\r\n\r\n" + separator.join(('"x\r\ny"', "'=1")) + "\r\n" + separator.join("zé")
    (tmp_path / "s.csv").write_bytes(text.encode(encoding))
    assert list(read_sheet(tmp_path / "s.csv")) == [(1, ["a", "b"]), (3, ["x\r\ny", "=1"]), (5, ["z", "é"])]


def test_a_number_that_lost_digits_is_told_from_one_that_did_not(tmp_path: Path) -> None:
    """Beyond 15 digits a spreadsheet invents zeros: such a cell matches nothing."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    moment = datetime.datetime.fromisoformat("2026-11-21 03:04:00")
    day, hour = datetime.date(2026, 11, 21), datetime.time(3, 4)
    computed = 103.07 + 1e-13  # as a formula leaves it: such an amount could not be read
    sheet.append([10**15, 123456789012345, 12.5, True, moment, None, " t ", False, day, hour, computed])
    book.create_sheet("second").append(["other"])
    book.save(tmp_path / "s.xlsx")
    (line,) = read_sheet(tmp_path / "s.xlsx")
    assert line == (1, [
        LOST_DIGITS, "123456789012345", "12.5", "TRUE", "2026-11-21 03:04:00", "", "t", "FALSE",
        "2026-11-21", "03:04:00", "103.07",
    ])  # fmt: skip
    (tmp_path / "s.csv").write_text("1.23457E+17,12E3X\n", "utf-8")
    assert list(read_sheet(tmp_path / "s.csv")) == [(1, [LOST_DIGITS, "12E3X"])]


def test_a_workbook_that_says_it_is_smaller_is_read_whole(tmp_path: Path) -> None:
    """Programs write `A1` as the size of every sheet: of an export of three payments only a heading was seen."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for number in range(4):
        sheet.append([f"R{number}", number])
    book.save(tmp_path / "whole.xlsx")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "s.xlsx", "w") as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name).replace(b'<dimension ref="A1:B4"', b'<dimension ref="A1"'))
    assert [cells for _, cells in read_sheet(tmp_path / "s.xlsx")] == [
        [f"R{number}", str(number)] for number in range(4)
    ]


def test_what_a_formula_gave_is_read(tmp_path: Path) -> None:
    """An amount that a person had computed was the text of its formula, and no amount."""
    book = openpyxl.Workbook()
    book.worksheets[0].append([12.5])
    book.save(tmp_path / "value.xlsx")
    with zipfile.ZipFile(tmp_path / "value.xlsx") as value, zipfile.ZipFile(tmp_path / "s.xlsx", "w") as packed:
        for name in value.namelist():
            packed.writestr(name, value.read(name).replace(b"<v>12.5</v>", b"<f>25/2</f><v>12.5</v>"))
    assert list(read_sheet(tmp_path / "s.xlsx")) == [(1, ["12.5"])]


def test_an_apostrophe_goes_only_where_it_keeps_a_formula_from_running(tmp_path: Path) -> None:
    """What the page wrote as '=1 comes back as =1; an apostrophe that begins a name is a part of it."""
    (tmp_path / "s.csv").write_text("'=1,'-5,'t Hooft,'88\n", "utf-8")
    assert list(read_sheet(tmp_path / "s.csv")) == [(1, ["=1", "-5", "'t Hooft", "'88"])]


@pytest.mark.parametrize(("name", "content", "told"), [
    ("s.csv", b"", "is empty"), ("s.csv", b"a,b\n\xff\xfe\xfd,1\n", "not UTF-8"),
    ("s.csv", b'a,"b\n', "not a line of a CSV"), ("s.xlsx", b"not a workbook", "broken XLSX"),
    ("s.pdf", b"%PDF", "must be .csv or .xlsx"),
])  # fmt: skip
def test_what_is_no_sheet_is_refused(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    """A broken file is refused in our words, which hold none of its cells."""
    (tmp_path / name).write_bytes(content)
    for read in (read_sheet, sheet_names) if name.endswith("x") else (read_sheet,):
        with pytest.raises(FileRefused, match=told) as refused:
            list(read(tmp_path / name))
        assert str(refused.value).startswith(str(tmp_path / name))
    with pytest.raises(FileRefused, match="can't be read"):
        list(read_sheet(tmp_path / "missing.csv"))
    with pytest.raises(FileRefused, match="not a file"):
        list(read_sheet(tmp_path))


def test_sheets_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, bytes and what a workbook unpacks to have limits."""
    (tmp_path / "s.csv").write_text("a\n1\n2\n3\n", "utf-8")
    monkeypatch.setattr(sheet_module, "ROWS_MAX", 3)
    assert len(list(read_sheet(tmp_path / "s.csv"))) == 4
    monkeypatch.setattr(sheet_module, "ROWS_MAX", 2)
    with pytest.raises(FileRefused, match="more than 2 rows"):
        list(read_sheet(tmp_path / "s.csv"))
    with zipfile.ZipFile(tmp_path / "s.xlsx", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("[Content_Types].xml", b"")
        packed.writestr("xl/worksheets/sheet1.xml", b"0" * (40 << 20))
    with pytest.raises(FileRefused, match="unpacks from"):
        list(read_sheet(tmp_path / "s.xlsx"))
    monkeypatch.setattr(sheet_module, "BYTES_MAX", 7)
    with pytest.raises(FileRefused, match="larger"):
        list(read_sheet(tmp_path / "s.csv"))
    with pytest.raises(FileRefused, match="larger"):
        sheet_names(tmp_path / "s.xlsx")
    with pytest.raises(FileRefused, match="is empty"):
        list(read_sheet(Stream("up.csv", io.BytesIO())))
