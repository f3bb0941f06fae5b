"""Reading XLSX files: typed cells, errors and formulas, hidden rows, hostile workbooks."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from openpyxl import Workbook, load_workbook

from batchpay.errors import FileRefused
from batchpay.intake.source import open_source
from batchpay.intake.streams import FileKind
from batchpay.intake.xlsx.columns import render
from batchpay.intake.xlsx.pieces import PIECE_ROWS
from batchpay.schemas.columns import REQUIRED
from tests.support.payment_files import HEADER, VALID, read, workbook

ROW = tuple(VALID.values())


def changed(folder: Path, part: str, change: Callable[[bytes], bytes], rows: Any = (HEADER, ROW)) -> str:
    """A workbook with one part rewritten."""
    return rewritten(workbook(folder, rows), part, change)


def rewritten(path: str, part: str, change: Callable[[bytes], bytes]) -> str:
    """The same file with one part rewritten."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, change(content) if name == part else content)
    Path(path).write_bytes(out.getvalue())
    return path


SHEET = "xl/worksheets/sheet1.xml"


def test_text_cells(tmp_path: Path) -> None:
    """Text cells come as they are, and the line is the sheet's row."""
    path = workbook(tmp_path, [HEADER, ROW, ROW])
    with open_source(path) as source:
        assert source.kind is FileKind.XLSX
        frame = next(source.chunks())
        assert pl.concat(source.chunks()).equals(frame), "a second pass parses the sheet again"
    assert frame.select(HEADER).rows() == [ROW, ROW]
    assert frame.select("_row", "_line").rows() == [(1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("column", "value", "number_format", "text", "fault"),
    [
        ("amount", 12.5, "0.00", "12.50", None),
        ("amount", 12, "0.00", "12.00", None),
        ("amount", 12.345, "0.00", "12.345", "format"),
        ("amount", "12.5", "@", "12.5", None),
        ("amount", "=1+1", "0.00", None, "formula"),
        ("achAccountNumber", 123456789012345, "0", "123456789012345", None),
        ("achAccountNumber", 1234567890123456, "0", "1.23456789012346E+15", "precision"),
        ("achAccountNumber", 12345678, "0000000000", "0012345678", None),
        ("achAccountNumber", 123456789012, "0.00E+00", "?123456789012", "precision"),
        ("achRoutingNumber", 21000021, "General", "21000021", "leading_zero"),
        ("achRoutingNumber", 21000021, "000000000", "021000021", None),
        ("gatewayId", 1001.5, "General", "1001.5", "format"),
        ("achAgreementFlag", True, "General", "1", None),
        ("recurringIndicator", False, "General", "FALSE", None),
        ("billingLastName", datetime(2026, 1, 2), "yyyy-mm-dd", "2026-01-02", "format"),  # noqa: DTZ001
        ("billingLastName", '="a"&"b"', "General", None, "formula"),
    ],
)
def test_typed_cells(
    tmp_path: Path, column: str, value: Any, number_format: str, text: str | None, fault: str | None
) -> None:
    """A typed cell becomes the text of the table, with the zeros of its format, or a stated fault."""
    row = [value if name == column else cell for name, cell in VALID.items()]
    place = f"{chr(65 + HEADER.index(column))}2"
    frame = read(workbook(tmp_path, [HEADER, row], **{place: number_format}), REQUIRED)
    faults = frame[f"_fault.{column}"].to_list() if f"_fault.{column}" in frame.columns else [None]
    assert (frame[column].to_list(), faults) == ([text], [fault])


@pytest.mark.parametrize(
    ("value", "column", "cell"),
    [
        (datetime(2026, 12, 1), "recurringStartDate", ("12/01/2026", None)),  # noqa: DTZ001
        (date(2026, 12, 1), "recurringStartDate", ("12/01/2026", None)),
        (datetime(2026, 12, 1, 8), "recurringStartDate", ("2026-12-01 08:00:00", "format")),  # noqa: DTZ001
        (time(8, 0), "invoiceNumber", ("08:00:00", "format")),
        (0.1 + 0.2, "taxAmount", ("0.30", None)),
        (-3.5, "amount", ("-3.50", None)),
        (0.125, "memo", ("0.125", None)),
        (1e15, "invoiceNumber", ("1.00000000000000E+15", "precision")),
        ("", "amount", (None, None)),
    ],
)
def test_cells(value: Any, column: str, cell: tuple[str | None, str | None]) -> None:
    """Single cells by the table."""
    assert render(value, column)[:2] == cell


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("000000000", "021000021"), ("00000-0000", "02100-0021"), ("000-00-0000", "021-00-0021"),
        ('"00"0', "0021000021"), (r"\0\00", "0021000021"), ("[$-409]0000000000", "0021000021"),
        ("[$-F800]0000000000", "0021000021"), ("0000000000_)", "0021000021"), ("_(* 0000000000_)", "0021000021"),
        ("[Red]0000000000;[Blue]-0", "0021000021"), ("[color 12]0000000000", "0021000021"),
        ("[<=99999]00000;00000-0000", "02100-0021"), ("[>99999999]0;[>9]0000000000;0", "0021000021"),
        ("0000000000;;", "0021000021"), ('0000000000;-0;"-";@', "0021000021"), ("0,000,000,000", "0021000021"),
        ("0000000000.00", "0021000021"), ("00########", "0021000021"), ("??0000000000", "0021000021"),
        ("(0000)000000", "(0021)000021"), ("#,##0", "21000021"), ("0", "21000021"), ("@", "21000021"),
        ("General", "21000021"), ('0" days"', "21000021"), ("_-* #,##0.00\\ [$€-407]_-", "21000021"),
        ('0;0;"none"', "21000021"), ("[>99999999]0000000000", None), ("[>99999999]0000000000;0;0", None),
        ("0.00E+00", None), ("0%", None), ("#,##0,", None), ("#,##0,.0", None), ("# ?/?", None),
        ('"A-"000000000', None),
        ("[DBNum1]000000000", None), ('000000000"', None), ("yyyy", None), ("[h]:mm", None),
    ],
)  # fmt: skip
def test_number_formats(code: str, shown: str | None) -> None:
    """An identifier that was typed as a number is what a person sees of it, or nobody knows what a person saw.

    Once `0[0-]*0` alone was understood: under `[$-409]0000000000`, which a locale makes of it, a zero was lost.
    """
    expected = ("21000021", "precision") if shown is None else (shown, None)
    assert render(21000021, "invoiceNumber", number_format=code)[:2] == expected
    assert render(21000021, "memo", number_format=code)[0] == (shown or "21000021")


def test_a_number_that_is_shown_as_no_time(tmp_path: Path) -> None:
    """An account number under a format of hours names its row; once the file was said to need too much memory."""
    row = [123456789012 if name == "achAccountNumber" else cell for name, cell in VALID.items()]
    with pytest.raises(FileRefused, match="'Sheet': row 3 has a number that is shown as a time"):
        read(workbook(tmp_path, [HEADER, ROW, row], J3="[h]:mm"), REQUIRED)
    frame = read(workbook(tmp_path, [HEADER, ROW, row], J3="yyyy-mm-dd"), REQUIRED)
    assert frame["_fault.achAccountNumber"].to_list() == [None, "precision"]


def test_amounts_under_a_format_that_shows_another_amount(tmp_path: Path) -> None:
    """12 % is 0.12, and 12 in thousands is 12,000: a person who signs sees another amount than would be sent."""
    rows = [[value if name == "amount" else cell for name, cell in VALID.items()] for value in (0.12, 12_000, 12, 12)]
    formats = {"D2": "0%", "D3": "#,##0,", "D4": "_($* #,##0.00_);[Red]_($* (#,##0.00)", "D5": "0.00E+00"}
    frame = read(workbook(tmp_path, [HEADER, *rows], **formats), REQUIRED)
    assert frame["_fault.amount"].to_list() == ["format", "format", None, None]


def test_account_numbers_that_are_numbers(tmp_path: Path) -> None:
    """Nobody knows whether an account number that is a number had zeros in front; a format that shows them tells.

    Where a routing number of the sheet has lost its zero, the account numbers have lost theirs: an error, wherever the
    routing number stands.
    """
    rows = [
        [{"achAccountNumber": value, "achRoutingNumber": number}.get(name, cell) for name, cell in VALID.items()]
        for value, number in ((12345678, 121000248), (12345678, 21000021), ("0012345678", "021000021"), (12345678, ""))
    ]
    formats = {"J2": "0000000000", "J5": "@", "K3": "000000000"}
    frame = read(workbook(tmp_path, [HEADER, *rows], **formats), REQUIRED)
    assert frame["achAccountNumber"].to_list() == ["0012345678", "12345678", "0012345678", "12345678"]
    assert frame["_warn.achAccountNumber"].to_list() == [None, "numeric_account", None, "numeric_account"]
    assert not any(name.startswith("_fault") for name in frame.columns)
    del formats["K3"]
    frame = read(workbook(tmp_path, [HEADER, *rows[::-1]], **formats), REQUIRED)
    assert frame["achAccountNumber"].to_list() == ["0012345678", "0012345678", "?12345678", "?12345678"]
    assert frame["_fault.achAccountNumber"].to_list() == [None, None, "numeric_account", "numeric_account"]
    assert frame["_fault.achRoutingNumber"].to_list() == [None, None, "leading_zero", None]
    assert "_warn.achAccountNumber" not in frame.columns


@pytest.mark.parametrize("cell", [b'<c s="%s" r="K2" t="n">', b'<c r="K2" s="%s">', b'<c\nr="K2"\ns="%s">'])
def test_zero_formats_wherever_they_stand(tmp_path: Path, cell: bytes) -> None:
    """A number's format is found whatever the order of the cell's attributes, and a text is not a number."""

    def change(xml: bytes) -> bytes:
        return re.sub(rb'<c r="K2" s="([0-9]+)"[^>]*>', lambda found: cell % found[1], xml)

    row = [21000021 if name == "achRoutingNumber" else text for name, text in VALID.items()]
    path = workbook(tmp_path, [HEADER, row], K2="000000000", J2="000000000")
    frame = read(rewritten(path, SHEET, change), REQUIRED)
    assert frame.select("achRoutingNumber", "achAccountNumber").row(0) == ("021000021", "0012345678")


@pytest.mark.parametrize("how", ["as usual", "placeless"])
def test_a_zero_format_of_cells_that_name_none(tmp_path: Path, how: str) -> None:
    """A cell without a format has the first one, which the workbook's Normal style decides."""
    path = workbook(
        tmp_path, [HEADER, [12345678 if name == "achAccountNumber" else text for name, text in VALID.items()]]
    )
    styles = rb'<numFmts count="1"><numFmt numFmtId="164" formatCode="0000000000"/></numFmts>'
    rewritten(path, "xl/styles.xml", lambda xml: re.sub(rb"<numFmts[^>]*/>", styles, xml).replace(
        b'<cellXfs count="1"><xf numFmtId="0"', b'<cellXfs count="1"><xf numFmtId="164"'))  # fmt: skip
    if how == "placeless":
        rewritten(path, SHEET, lambda xml: re.sub(rb'<(c|row) r="[A-Z0-9]+"', rb"<\1", xml))
    frame = read(path, REQUIRED)
    assert frame["achAccountNumber"].to_list() == ["0012345678"]
    assert not any(name.startswith(("_fault", "_warn")) for name in frame.columns)


def test_error_cells(tmp_path: Path) -> None:
    """An error is never a blank cell, also where a formula made it, and carried ones are carried."""

    def change(xml: bytes) -> bytes:
        for place, formula in ((b"D2", b""), (b"J2", b"<f>VLOOKUP(1,A1:A2,1)</f>"), (b"O2", b"")):
            cell = b'<c r="%s" t="e">%s<v>#N/A</v></c>' % (place, formula)
            xml = re.sub(rb'<c r="%s"[^>]*>.*?</c>' % place, lambda _, cell=cell: cell, xml)  # type: ignore[misc]
        return xml

    frame = read(changed(tmp_path, SHEET, change, [(*HEADER, "memo"), (*ROW, "x")]), REQUIRED)
    assert frame.select("amount", "achAccountNumber", "memo").row(0) == ("#N/A", "#N/A", "#N/A")
    assert frame.select("_fault.amount", "_fault.achAccountNumber").row(0) == ("error_cell", "error_cell")
    assert "_fault.memo" not in frame.columns


def test_cached_formulas(tmp_path: Path) -> None:
    """A formula's cached value is taken where it is not money and no account, and a fault where it is."""

    def change(xml: bytes) -> bytes:
        for place in (b"D2", b"E2"):
            cell = b'<c r="%s" t="str"><f>A1</f><v>12.50</v></c>' % place
            xml = re.sub(rb'<c r="%s"[^>]*>.*?</c>' % place, lambda _, cell=cell: cell, xml)  # type: ignore[misc]
        return xml

    frame = read(changed(tmp_path, SHEET, change), REQUIRED)
    assert frame.select("amount", "billingFirstName").row(0) == ("12.50", "12.50")
    assert frame["_fault.amount"].to_list() == ["formula"]
    assert "_fault.billingFirstName" not in frame.columns


@pytest.mark.parametrize("how", ["common", "prefixed"])
def test_texts_written_as_formulas(tmp_path: Path, how: str) -> None:
    """A formula that is but a text, and a text that looks like one, are told with the text that is meant."""

    def change(xml: bytes) -> bytes:
        for place, formula, value in (
            (b"A2", b'"1001"', b"1001"),
            (b"K2", b"&quot;021&quot;", b"021"),
            (b"D2", b'"1"&amp;"2"', b"12"),
        ):
            cell = b'<c r="%s" t="str"><f>%s</f><v>%s</v></c>' % (place, formula, value)
            xml = re.sub(rb'<c r="%s"[^>]*>.*?</c>' % place, lambda _, cell=cell: cell, xml)  # type: ignore[misc]
        return xml if how == "common" else re.sub(rb"<(/?)(?=[a-zA-Z])", rb"<\1x:", xml).replace(b"xmlns=", b"xmlns:x=")

    row = ['="Ada"' if name == "achNameOnCheck" else cell for name, cell in VALID.items()]
    path = workbook(tmp_path, [HEADER, row], I2="@")
    book: Any = load_workbook(path)
    book.active["I2"].data_type = "s"
    book.save(path)
    frame = read(rewritten(path, SHEET, change), REQUIRED)
    marks = {name: frame[name][0] for name in frame.columns if name.startswith(("_fault", "_suggest"))}
    assert marks == {
        "_fault.gatewayId": "text_formula", "_suggest.gatewayId": "1001", "_fault.amount": "formula",
        "_fault.achRoutingNumber": "text_formula", "_suggest.achRoutingNumber": "021",
        "_fault.achNameOnCheck": "text_formula", "_suggest.achNameOnCheck": "Ada",
    }  # fmt: skip


def test_chunks(tmp_path: Path) -> None:
    """Rows, their numbers, and what was found in them stay together over the borders of chunks."""
    count = 2 * PIECE_ROWS + 1
    first, second = range(0, count, PIECE_ROWS), range(1, count, PIECE_ROWS)
    odd = sorted((*first, *second))
    rows: list[list[Any]] = [[f"P-{at}", "021000021", "x"] for at in range(count)]
    for at in odd:
        rows[at] = ["=A1", 21000021, "#N/A"]
    formats = {f"B{at + 2}": "000000000" for at in second}
    frame = read(workbook(tmp_path, [["paymentId", "achRoutingNumber", "memo"], *rows], **formats))
    assert frame["_line"].to_list() == list(range(2, count + 2))
    assert frame["_row"].to_list() == list(range(1, count + 1))
    assert frame["paymentId"].to_list() == [None if at in odd else f"P-{at}" for at in range(count)]
    found = frame.select(
        pl.col("_fault.paymentId") == "formula", pl.col("achRoutingNumber") == "21000021", pl.col("memo") == "#N/A"
    )
    assert [found[name].fill_null(False).arg_true().to_list() for name in found.columns] == [
        odd, list(first), odd,
    ]  # fmt: skip
    faults = frame.select("_fault.achRoutingNumber", "_suggest.achRoutingNumber")
    assert [at for at, row in enumerate(faults.rows()) if row == ("leading_zero", "021000021")] == list(first)


def test_control_characters(tmp_path: Path) -> None:
    """No character that a cell may hold is taken for the border of two cells."""
    texts = ["_x0000_", "a_x0000__x0001_b", "_x001F_", "x"]
    path = changed(tmp_path, SHEET, lambda xml: xml, [(*HEADER, "memo"), *((*ROW, text) for text in texts)])
    frame = read(path, REQUIRED)
    assert frame["memo"].to_list() == ["\0", "a\0\1b", "\x1f", "x"]
    assert frame.select(HEADER).rows() == [ROW] * len(texts)


@pytest.mark.parametrize("how", ["prefixed", "placeless", "on two lines"])
def test_uncommon_xml(tmp_path: Path, how: str) -> None:
    """Errors and formulas are found in XML with prefixes, or with cells that don't say their place."""

    def change(xml: bytes) -> bytes:
        cell = b'<c r="D2" t="e"><v>#REF!</v></c>'
        xml = re.sub(rb'<c r="D2"[^>]*>.*?</c>', lambda _: cell, xml)
        if how == "placeless":
            return re.sub(rb'<(c|row) r="[A-Z0-9]+"', rb"<\1", xml)
        if how == "on two lines":
            return re.sub(rb'<c r="[A-Z0-9]+"', b"<c\n", xml)
        xml = re.sub(rb"<(/?)(?=[a-zA-Z])", rb"<\1x:", xml)
        return xml.replace(b"xmlns=", b"xmlns:x=")

    frame = read(changed(tmp_path, SHEET, change), REQUIRED)
    assert (frame["amount"].to_list(), frame["_fault.amount"].to_list()) == (["#REF!"], ["error_cell"])


def test_title_rows_and_hidden_rows(tmp_path: Path) -> None:
    """The header is found under a title; hidden rows are read if asked for; blank trailing rows are no payments."""
    path = workbook(tmp_path, [["Payments of May"], [], HEADER, ROW, ROW, [], [], ROW])
    book = load_workbook(path)
    sheet: Any = book.active
    sheet.row_dimensions[5].hidden = True
    sheet.cell(500, 3).number_format = "0.00"
    book.save(path)
    with pytest.raises(FileRefused, match=r"1 row can't be seen, hidden or filtered out \(the first is row 5\)"):
        read(path, REQUIRED)
    with open_source(path, include_hidden=True) as source:
        assert source.notes == (
            "the header was found in row 3; not read: Payments of May",
            "1 row that can't be seen, hidden or filtered out: read as well"
        )  # fmt: skip
        frame = pl.concat(source.chunks())
    assert frame["_line"].to_list() == [4, 5, 8]
    assert frame["_row"].to_list() == [1, 2, 3]


def test_sheets(tmp_path: Path) -> None:
    """The visible sheet with payments is read; where there are several one must be named. Once it was the first."""
    book = Workbook()
    first: Any = book.active
    first.sheet_state = "hidden"
    first.append(["not", "these"])
    for name, amount in (("May", "1.00"), ("June", "2.00")):
        sheet = book.create_sheet(name)
        sheet.append(list(HEADER))
        sheet.append([amount if column == "amount" else cell for column, cell in VALID.items()])
    path = str(tmp_path / "two.xlsx")
    book.save(path)
    with pytest.raises(FileRefused, match="several sheets of payments, 'May', 'June'; name one"):
        read(path, REQUIRED)
    assert read(path, REQUIRED, sheet="June")["amount"].to_list() == ["2.00"]
    with pytest.raises(FileRefused, match="has no sheet 'Juni', but Sheet, May, June"):
        read(path, sheet="Juni")
    first.sheet_state, book["May"].sheet_state = "visible", "hidden"
    book.save(path)
    with open_source(path) as source:
        assert source.notes == ("sheet 'June' is read, not the other 2 sheets",)
    assert read(path, REQUIRED)["amount"].to_list() == ["2.00"]


def test_missing_columns(tmp_path: Path) -> None:
    """A sheet without the required columns is refused by their names."""
    with pytest.raises(FileRefused, match="lacks required columns: gatewayId"):
        read(workbook(tmp_path, [HEADER[1:], ROW[1:]]), REQUIRED)


def far_cell(xml: bytes) -> bytes:
    """Put a cell at the sheet's far corner."""
    return xml.replace(b"</sheetData>", b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>')


def low_cell(xml: bytes) -> bytes:
    """Put a cell in the last row of a wide sheet."""
    return xml.replace(b"</sheetData>", b'<row r="1048576"><c r="ZZ1048576"><v>1</v></c></row></sheetData>')


def entities(xml: bytes) -> bytes:
    """Declare entities that grow."""
    return re.sub(rb"<(?=work)", b'<!DOCTYPE x [<!ENTITY a "aaaa">]><', xml, count=1)


@pytest.mark.parametrize(("part", "change", "told"), [
    (SHEET, far_cell, "has cells up to row 1048576, column 16384"),
    (SHEET, low_cell, "has cells up to row 1048576, column 702"), (SHEET, entities, "document type"),
    (SHEET, lambda xml: xml[: len(xml) // 2], "broken|header"), (SHEET, lambda _: b"", "broken|header"),
    (SHEET, lambda xml: xml.replace(b"<sheetData>", b"<sheetData><!--" + b" " * (40 << 20) + b"-->"), "unpacks"),
    ("xl/workbook.xml", entities, "document type"), ("xl/workbook.xml", lambda _: b"<nothing", "broken"),
], ids=["far", "low", "entities", "half", "empty", "bomb", "workbook", "no workbook"])  # fmt: skip
def test_hostile(tmp_path: Path, part: str, change: Callable[[bytes], bytes], told: str) -> None:
    """A workbook that would take the machine down, or is broken, is one clear line."""
    with pytest.raises(FileRefused, match=told) as refusal:
        read(changed(tmp_path, part, change), REQUIRED)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("xl/vbaProject.bin", "macros"), ("xl/workbook.bin", r"\.xlsb"), ("mimetype", r"\.ods"),
        ("word/document.xml", "Word"),
    ],
)  # fmt: skip
def test_other_kinds(tmp_path: Path, name: str, told: str) -> None:
    """Other spreadsheets are refused by their names."""
    path = workbook(tmp_path, [HEADER, ROW])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(FileRefused, match=told):
        read(path, REQUIRED)


def test_a_zip_that_is_no_workbook(tmp_path: Path) -> None:
    """A zip of something else is not XLSX, and a cut workbook is broken."""
    path = tmp_path / "a.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("payments.csv", b"x")
    with pytest.raises(FileRefused, match="not an XLSX"):
        read(str(path))
    whole = Path(workbook(tmp_path, [HEADER, ROW])).read_bytes()
    for size in range(30, len(whole), len(whole) // 6):
        path.write_bytes(whole[:size])
        with pytest.raises(FileRefused, match="broken"):
            read(str(path))


@pytest.mark.parametrize("place", ["A1", "B1", "A3", "D4"])
def test_the_table_may_begin_anywhere(tmp_path: Path, place: str) -> None:
    """Zeros of a format, formulas and errors are those of their own columns.

    Once, with empty columns before the table, an account number got the zeros of the column beside it, and a formula in
    the amount went unseen.
    """
    book = Workbook()
    sheet: Any = book.active
    names = [*HEADER, "achCheckNumber", "taxAmount", "memo"]
    values = {**VALID, "achAccountNumber": 12345678, "achRoutingNumber": 21000021, "achCheckNumber": 77,
              "amount": "=1+1", "taxAmount": "#N/A", "memo": "keep"}  # fmt: skip
    formats = {"achCheckNumber": "0000000000", "achRoutingNumber": "000000000"}
    first = sheet[place]
    for at, name in enumerate(names):
        sheet.cell(first.row, first.column + at, name)
        cell = sheet.cell(first.row + 1, first.column + at, values[name])
        cell.number_format = formats.get(name, "General")
    path = tmp_path / "payments.xlsx"
    book.save(path)
    (row,) = read(str(path), REQUIRED).iter_rows(named=True)
    assert [row[name] for name in ("achAccountNumber", "achRoutingNumber", "achCheckNumber", "memo")] == [
        "12345678", "021000021", "0000000077", "keep",
    ]  # fmt: skip
    assert {name: row[name] for name in row if name.startswith("_fault") and row[name]} == {
        "_fault.amount": "formula", "_fault.taxAmount": "error_cell",
    }  # fmt: skip


def test_a_row_of_formulas_that_were_never_calculated_is_no_blank_row(tmp_path: Path) -> None:
    """A workbook that a program wrote holds no values for its formulas: such rows are wrong, and they are there."""
    frame = read(workbook(tmp_path, [HEADER, ROW, ["=Data!A1"] * len(HEADER), ROW]), REQUIRED)
    assert frame["_row"].to_list() == [1, 2, 3]
    assert frame["_fault.amount"].to_list() == [None, "formula", None]
