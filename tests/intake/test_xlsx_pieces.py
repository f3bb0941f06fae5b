"""A workbook of any size is read in pieces: its cells are those of the whole sheet, and memory stays as it is."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from datetime import date
from itertools import chain, pairwise
from typing import Any

import pytest
from openpyxl import Workbook

from batchpay.errors import FileRefused
from batchpay.intake.xlsx import pieces
from batchpay.intake.xlsx.archive import list_sheets, open_archive
from batchpay.intake.xlsx.pieces import PiecedSheet

ROWS: list[list[Any]] = [
    [f"text {at}", " with blanks ", "a & b < c > d", '"quoted"', "José 李 \U0001f3e6", "_x000D_", "two\nlines", "",
     at, at + 0.5, True, date(2026, 11, at % 28 + 1), f"00{at % 7}", "_x005F_x0041_", "two\r\nlines"]
    for at in range(60)
]  # fmt: skip
INLINE = re.compile(rb' t="inlineStr"><is>(.*?)</is>', re.DOTALL)
Change = Callable[[bytes], bytes]


def made(change: Change = bytes, rows: list[list[Any]] = ROWS, book_change: Change = bytes) -> io.BytesIO:
    """Make a workbook whose table begins at C4, its texts shared, its sheet and shared texts changed."""
    book, written, out = Workbook(), io.BytesIO(), io.BytesIO()
    sheet: Any = book.active
    for row, cells in enumerate(rows, 4):
        for column, cell in enumerate(cells, 3):
            sheet.cell(row, column, cell)
    book.save(written)
    texts: list[bytes] = []

    def share(cell: re.Match[bytes]) -> bytes:
        if cell[1] not in texts:
            texts.append(cell[1])
        return b' t="s"><v>%d</v>' % texts.index(cell[1])

    with zipfile.ZipFile(written) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            part = source.read(name)
            if "sheet1" in name:
                part = change(INLINE.sub(share, part.replace(b"\r", b"&#13;")))
            target.writestr(name, book_change(part) if name == "xl/workbook.xml" else part)
        shared = b"".join(b"<si>%b</si>" % text for text in texts)
        target.writestr("xl/sharedStrings.xml", change(b'<sst xmlns="%b">%b</sst>' % (pieces._MAIN, shared)))
    return out


def read(file: io.BytesIO) -> Iterator[pieces.SheetPiece]:
    """Read its only sheet."""
    archive = open_archive(file)
    return PiecedSheet(archive, list_sheets(archive)[0]).pieces()


def prefixed(part: bytes) -> bytes:
    """Write every tag with a prefix."""
    return re.sub(rb"<(/?)(?=[a-zA-Z])", rb"<\1x:", part).replace(b"xmlns=", b"xmlns:x=")


def placeless(part: bytes) -> bytes:
    """Leave out the positions, except where a count from the first would be wrong."""
    return re.sub(rb'<(c|row) r="(?![A-Z]*4")(?!C)[A-Z0-9]+"', rb"<\1", part)


def rich(part: bytes) -> bytes:
    """Write shared texts as a program does that formats words of them, and spells them for readers of Japanese."""
    runs = rb'<r><rPr><b/></rPr><t>text</t></r><r><t xml:space="preserve"> \1</t></r><rPh sb="0" eb="1"><t>x</t></rPh>'
    return re.sub(rb"<t>text ([0-9]+)</t>", runs, part)


@pytest.mark.parametrize("block_bytes", [700, 5_000, 2 << 20])
@pytest.mark.parametrize(
    "change", [bytes, prefixed, placeless, rich, lambda part: part.replace(b"><v>", b">\n <v>")],
    ids=["common", "prefixed", "placeless", "rich", "on two lines"],
)  # fmt: skip
def test_the_pieces_are_the_sheet(monkeypatch: pytest.MonkeyPatch, change: Change, block_bytes: int) -> None:
    """Cut anywhere, a sheet has the cells that it has as a whole, each in its row. Once 600,000 rows took 2 GB."""
    monkeypatch.setattr(pieces, "_BLOCK_BYTES", block_bytes)
    found = list(read(made(change)))
    assert len(found) > 1 or block_bytes > 10_000
    assert found[0].first_row == 4
    assert all(piece.first_row + len(piece.rows) == after.first_row for piece, after in pairwise(found))
    decoded = {"_x000D_": "\r", "_x005F_x0041_": "_x0041_"}
    expected = [[decoded.get(cell, cell) for cell in row] for row in ROWS]
    assert list(chain.from_iterable(piece.rows for piece in found)) == expected


def test_rows_far_apart_are_not_filled_up() -> None:
    """A cell in row 900,000 made the library allocate every row before it."""
    found = list(read(made(lambda part: re.sub(rb'r="([A-Z]*)63"', rb'r="\g<1>900000"', part))))
    assert [(piece.first_row, len(piece.rows)) for piece in found] == [(4, 59), (900_000, 1)]
    assert found[1].rows[0][0] == "text 59"


def test_more_text_than_is_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of a workbook are kept until its last row: what they may take is bounded, and told."""
    monkeypatch.setattr(pieces, "TEXTS_BYTES_MAX", 1 << 10)
    with pytest.raises(FileRefused, match=r"more than 0 MiB of different texts, the first 200 among .* save it as CSV"):
        list(read(made(rows=[[f"text {at}"] for at in range(200)])))


@pytest.mark.parametrize("change", [
    lambda part: part.replace(b'<row r="9"', b'<row r="8"'), lambda part: part.replace(b'<row r="9"', b'<row r="700"'),
    lambda part: part.replace(b'r="D9"', b'r="D99"'), lambda part: re.sub(rb'r="([A-Z]+)63"', rb'r="\g<1>64"', part),
    lambda part: part.replace(b'r="C', b'r="c'), lambda part: part.replace(b't="s"><v>3<', b't="s"><v>9999<'),
    lambda part: part.replace(b"</sheetData>", b""),
], ids=["twice", "order", "elsewhere", "below the last", "lower case", "no such text", "cut"])  # fmt: skip
def test_a_sheet_that_contradicts_itself_is_broken(change: Change) -> None:
    """A row twice or out of order, a cell in another row, a text that is not there: nobody knows what was meant."""
    with pytest.raises(FileRefused, match="broken XLSX"):
        list(read(made(change)))


@pytest.mark.parametrize("text", [b"#SPILL!", b"#ERROR!", b"Err:502"])
def test_errors_of_every_program(text: bytes) -> None:
    """The library knows the seven old ones: a note that was `#ERROR!` made the workbook a broken one."""
    (piece,) = read(made(lambda part: re.sub(rb'"C9"[^/]*', b'"C9" t="e"><f>X(1)</f><v>%b<' % text, part)))
    assert piece.special.errors == {(9, 3): text.decode()}
    assert piece.rows[5][:2] == ["", " with blanks "]


def test_a_formula_that_gave_a_shared_text() -> None:
    """Some programs share the texts of formulas, too: the workbook was a broken one."""
    (piece,) = read(made(lambda part: part.replace(b't="s"><v>', b't="s"><f t="shared" si="0"/><v>')))
    assert piece.rows[5][:2] == ["text 5", " with blanks "]
    assert piece.special.formulas[9, 3] is False


def test_parts_are_where_the_workbook_says() -> None:
    """A small package keeps its parts elsewhere: its dates were numbers, and account numbers lost their zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(made()) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            part = source.read(name).replace(b'Target="styles.xml"', b'Target="/formats/f.xml"')
            if name.endswith("workbook.xml.rels") and b"sharedStrings" not in part:
                end = b'<Relationship Id="rId9" Type="http://x/sharedStrings" Target="../texts.xml"/></Relationships>'
                part = part.replace(b"</Relationships>", end)
            moved = {"xl/styles.xml": "formats/f.xml", "xl/sharedStrings.xml": "texts.xml"}
            target.writestr(moved.get(name, name), part)
    (piece,) = read(out)
    assert (piece.rows[0][0], piece.rows[0][11]) == ("text 0", date(2026, 11, 1))


def test_dates_that_count_from_1904() -> None:
    """Old workbooks of a Macintosh: their dates are four years later than their numbers say elsewhere."""
    (piece,) = read(made(book_change=lambda part: part.replace(b"<workbookPr ", b'<workbookPr date1904="1" ')))
    assert piece.rows[0][11] == date(2030, 11, 2)
