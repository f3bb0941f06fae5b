"""Reading CSV files: every cell faithful, every line known, everything doubtful refused."""

from __future__ import annotations

import csv
import gzip
import io
import threading
from pathlib import Path
from random import Random

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpay.errors import FileRefused
from batchpay.intake.control_totals import ControlTotals, require_whole
from batchpay.intake.csv import reader as csv_reader
from batchpay.intake.csv.grammar import Lines
from batchpay.intake.maps.loading import load_mapping
from batchpay.intake.source import open_source
from batchpay.intake.streams import FileKind
from batchpay.payment import Totals
from batchpay.schemas.columns import BARE_ROW, COLUMNS, REQUIRED
from tests.support.payment_files import HEADER, VALID, cells, csv_text, line, read, write

ODD_CELLS = (
    "", "a", "1.00", " x ", "é", 'a"b', '"q"', "x,y", "l1\nl2", "l1\r\nl2", "\ufeff", "=1", "it's", "\\", ";", "\t",
    '"', ",", "\n", "0012", "NULL", "NA",
)  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of a few hundred bytes, so that small files cross their borders."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", (200, 400))
    monkeypatch.setattr(csv_reader, "CHUNK_ROWS", 3)
    monkeypatch.setattr(csv_reader, "PIECE_BYTES", 64)


def test_rows_are_numbered_and_text(tmp_path: Path) -> None:
    """Rows count from 1, lines from the header, and leading zeros survive."""
    frame = read(write(tmp_path, csv_text(2)), REQUIRED)
    assert frame["_row"].to_list() == [1, 2]
    assert frame["_line"].to_list() == [2, 3]
    assert frame["achAccountNumber"].to_list() == ["0012345678"] * 2
    assert frame.schema["_row"] == frame.schema["_line"] == pl.UInt32


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_dialects(tmp_path: Path, separator: str, end: str, mark: bytes) -> None:
    """Any of the four separators, either line end, with and without a byte order mark, is read as meant."""
    path = write(tmp_path, mark + csv_text(2, separator, end).encode())
    with open_source(path) as source:
        assert source.separator == separator
        assert [row for chunk in source.chunks() for row in chunk.select(HEADER).rows()] == [tuple(VALID.values())] * 2


def test_separator_line(tmp_path: Path) -> None:
    """A first line `sep=^` chooses the separator, and lines are still counted from the file's first."""
    frame = read(write(tmp_path, "sep=^\n" + csv_text(1, "^")), REQUIRED)
    assert frame["_line"].to_list() == [3]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_packed(tmp_path: Path, pack: object) -> None:
    """Files of gzip and zstd are unpacked in a stream."""
    packed = pack(csv_text(500).encode())  # type: ignore[operator]
    assert read(write(tmp_path, packed), REQUIRED).height == 500


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_packed_and_cut(tmp_path: Path, pack: object) -> None:
    """A packed file that was cut off is refused, wherever the cut is."""
    packed: bytes = pack(csv_text(500).encode())  # type: ignore[operator]
    for size in range(20, len(packed), 7):
        with pytest.raises(FileRefused):
            read(write(tmp_path, packed[:size]), REQUIRED)


def test_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to two hundred times its size is refused."""
    monkeypatch.setattr("batchpay.intake.streams.UNPACKED_BYTES_FREE", 1 << 16)
    with pytest.raises(FileRefused, match="more than 200 times its size"):
        read(write(tmp_path, gzip.compress(csv_text(20_000).encode())), REQUIRED)


def test_lines_after_quoted_breaks(tmp_path: Path) -> None:
    """Physical lines are right after quoted line breaks."""
    text = csv_text(1) + line(billingLastName='"A\nB\nC"') + line() + line(achNameOnCheck='"x\r\ny"') + line()
    frame = read(write(tmp_path, text))
    assert frame["_line"].to_list() == [2, 3, 6, 7, 9]
    assert frame["billingLastName"][1] == "A\nB\nC"
    assert frame["achNameOnCheck"][3] == "x\r\ny"


def test_short_and_long_rows(tmp_path: Path) -> None:
    """A row of another length is marked with its cells kept, and the rows around it are not touched."""
    short = ",".join(list(VALID.values())[:-1]) + "\n"
    frame = read(write(tmp_path, csv_text(1) + short + line() + line(end=",more\n") + line()))
    assert frame["_ragged"].to_list() == [
        None, "the row has 13 cells and the header 14", None, "the row has 15 cells and the header 14", None,
    ]  # fmt: skip
    assert frame["_surplus"].to_list() == [None, None, None, ["more"], None]
    assert frame["_line"].to_list() == [2, 3, 4, 5, 6]
    assert frame["achDepositType"].to_list() == ["CHECKING"] * 5


def test_short_rows_hidden_by_quoted_separators(tmp_path: Path) -> None:
    """A short row is found even where another row's quoted separators make the file's count of separators right."""
    short = ",".join(list(VALID.values())[:-1]) + "\n"
    frame = read(write(tmp_path, csv_text(1) + short + line(achNameOnCheck='"Byron, Ada"')))
    assert frame["_ragged"].is_not_null().to_list() == [False, True, False]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    """Blank lines, and lines of separators alone, are no rows; lines keep their numbers."""
    text = "\n\n" + csv_text(1) + "\n" + "," * 13 + "\n\r\n" + line() + "\n\n"
    frame = read(write(tmp_path, text))
    assert frame["_row"].to_list() == [1, 2]
    assert frame["_line"].to_list() == [4, 8]


def test_header_alone(tmp_path: Path) -> None:
    """A header and no rows is a file without chunks."""
    assert read(write(tmp_path, csv_text(0)), REQUIRED).is_empty()


def test_quoted_blank_is_blank(tmp_path: Path) -> None:
    """A quoted empty cell is blank, as an unquoted one is; NA and NULL are text."""
    frame = read(write(tmp_path, 'aaa,bbb,ccc\n"",,x\nNA,NULL,null\n'))
    assert frame.select("aaa", "bbb", "ccc").rows() == [(None, None, "x"), ("NA", "NULL", "null")]


@pytest.mark.parametrize(("content", "told"), [
    (b"", "is empty"), (b"\xef\xbb\xbf", "no header"), (b"\n\n  \n", "no header"),
    (csv_text().encode("utf-16"), "UTF-16"), (csv_text().encode("utf-32"), "UTF-32"),
    (csv_text().replace("\n", "\r").encode(), "line 1: lines end with CR alone"),
    ((csv_text(1) + line(achNameOnCheck='"Byron, Ada"')).replace("\n", "\r").encode(), "CR alone"),
    ((csv_text(1, end="\r") + line(achNameOnCheck='"Byron\nAda"', end="\r")).encode(), "CR alone"),
    (b"Payments of May\r" + csv_text(1, end="\r").encode() + b"\n", "CR alone"),
    (csv_text(2).encode() + line(billingLastName="a\0b").encode(), "line 4 contains a NUL"),
    (csv_text(2).encode() + line(billingLastName="Müller").encode("latin-1"), "line 4 is not UTF-8"),
    (csv_text(2).encode() + line(billingLastName='"Byron').encode(), "line 4: a quotation mark"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a picture"), (b"%PDF-1.7\n", "a PDF"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture"), (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Excel"),
    (b"sep=,\n", "no header"),
])  # fmt: skip
def test_refused_with_the_place(tmp_path: Path, content: bytes, told: str) -> None:
    """What can't be read as meant is refused, in one line that tells where."""
    with pytest.raises(FileRefused, match=told) as refusal:
        read(write(tmp_path, content), REQUIRED)
    assert "\n" not in str(refusal.value)


def test_unfinished_last_line(tmp_path: Path) -> None:
    """That the last line has no line break, and not all cells, is known once the file was read."""
    for text, end in (
        (csv_text(2), (None, False)),
        (csv_text(2)[:-1], (3, False)),
        (csv_text(2)[:-3], (3, True)),
        (csv_text(1) + line(achNameOnCheck='"A\nB"')[:-1], (4, False)),
        (csv_text(2, end="\r\n")[:-2], (3, False)),
        (csv_text(2, end="\r\n")[:-1], (3, False)),
    ):
        with open_source(write(tmp_path, text), required=REQUIRED) as source:
            for _ in range(2):
                assert sum(chunk.height for chunk in source.chunks()) == 2
                assert (source.end.unfinished_line, source.end.is_cut) == end


def test_encoding(tmp_path: Path) -> None:
    """--encoding reads another encoding, and tells the line that is none of it."""
    text = csv_text(1) + line(billingLastName="Müller")
    for encoding in ("cp1252", "utf-16", "utf-16-le", "latin-1"):
        frame = read(write(tmp_path, text.encode(encoding)), REQUIRED, encoding=encoding)
        assert frame["billingLastName"].to_list() == ["Byron", "Müller"]
    with pytest.raises(FileRefused, match="line 3 is not ascii"):
        read(write(tmp_path, text.encode("latin-1")), REQUIRED, encoding="ascii")


@pytest.mark.parametrize(
    "encoding", ["utf-9", "rot13", "zip", "base64", "undefined", "idna", "punycode", "unicode_escape", ""]
)
def test_an_encoding_that_is_none_of_text(tmp_path: Path, encoding: str) -> None:
    """Refused as unknown: `rot13`, which Python knows as a codec too, ended the command with an internal error."""
    with pytest.raises(FileRefused, match="unknown encoding"):
        read(write(tmp_path, csv_text(1)), encoding=encoding)


def test_read_again(tmp_path: Path) -> None:
    """Chunks can be read again, and a file put in the place of the opened one is not seen."""
    path = write(tmp_path, csv_text(3))
    with open_source(path) as source:
        first = list(source.chunks())
        Path(path).rename(tmp_path / "moved.csv")
        write(tmp_path, csv_text(9))
        assert pl.concat(source.chunks()).equals(pl.concat(first).with_columns(pl.lit(value=True).alias(BARE_ROW)))
        assert source.kind is FileKind.CSV


def cuts(whole: bytes) -> list[int]:
    """Every size in the last row, and some before it: at a cut in another row the same is looked at."""
    last = whole.rindex(b"\n", 0, -1)
    return [*range(0, last, 13), *range(last, len(whole))]


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """A file cut at any byte is refused, or ends after a whole row, or is missing nothing but its last line break."""
    whole = (csv_text(1) + line(amount="1234.50") + line(achNameOnCheck='"Byron, ""A""\nda"')).encode()
    every = cells(write(tmp_path, whole))
    for size in cuts(whole):
        path = write(tmp_path, whole[:size])
        try:
            with open_source(path) as source:
                rows = sum(chunk.height for chunk in source.chunks())
                end = source.end
        except FileRefused:
            continue
        if end.unfinished_line is None:
            assert whole[:size].endswith(b"\n")
            assert cells(path) == every[:rows]
        else:
            with pytest.raises(FileRefused, match="cut off"):
                require_whole(ControlTotals(), source, Totals(rows, 0))


def test_cut_at_every_byte_never_meets_totals(tmp_path: Path) -> None:
    """Under stated totals no cut file has as many rows and as many cents as the whole."""
    whole = (csv_text(1) + line(amount="1234.50") + line(amount="7.25")).encode()
    for size in cuts(whole[:-1]):
        try:
            found = read(write(tmp_path, whole[:size]), REQUIRED)
        except FileRefused:
            continue
        sound = found if "_ragged" not in found.columns else found.filter(pl.col("_ragged").is_null())
        amounts = sound["amount"].to_list() if sound.height else []
        flags = sound["achAgreementFlag"].to_list() if sound.height else []
        assert amounts != ["12.50", "1234.50", "7.25"] or None in flags


_TEXT = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(_TEXT, min_size=len(COLUMNS), max_size=len(COLUMNS)), max_size=6))
def test_text_in_is_text_out(tmp_path: Path, rows: list[list[str]]) -> None:
    """Whatever stands in a cell of any column stands in the chunk, character by character."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([COLUMNS, *rows])
    expected = [tuple(row) for row in rows if any(row)]
    assert cells(write(tmp_path, out.getvalue())) == expected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small_blocks")
def test_blocks_agree_with_what_was_written(tmp_path: Path, seed: int) -> None:
    """Small files of odd cells, ragged rows and blank lines come back exactly, with their lines, across blocks."""
    random = Random(seed)
    for _ in range(40):
        width = random.randint(2, 5)
        separator, end = random.choice(",;|\t"), random.choice(["\n", "\r\n"])
        header = [f"zz{at}q" for at in range(width)]
        text, expected = separator.join(header) + end, []
        for _ in range(random.randint(0, 30)):
            if random.random() < 0.05:
                text += end
            row = [random.choice(ODD_CELLS) for _ in range(width)]
            if random.random() < 0.05:
                row = row[:-1] if random.random() < 0.5 else [*row, "more"]
            record = separator.join(_encoded(cell, separator, random) for cell in row)
            if any(row) or (len(row) != width and record):
                expected.append((text.count("\n") + 1, row, len(row) != width))
            text += record + end
        with open_source(write(tmp_path, text), required=()) as source:
            found = [
                (row["_line"], _as_written(row, header), row.get("_ragged") is not None)
                for chunk in source.chunks()
                for row in chunk.iter_rows(named=True)
            ]
        assert found == [(at, (row + [""] * width)[: max(width, len(row))], odd) for at, row, odd in expected]


def _encoded(cell: str, separator: str, random: Random) -> str:
    if any(mark in cell for mark in ('"', separator, "\n", "\r")) or random.random() < 0.2:
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _as_written(row: dict[str, object], header: list[str]) -> list[object]:
    surplus = row.get("_surplus") or []
    assert isinstance(surplus, list)
    return [*(row[name] or "" for name in header), *surplus]


_SCRAPS = ("a", "b", "é", "", "", ",", ",", '"', '""', '"x,y"', '"p""q"', '"s "", t"', "\r", '"\n"', "\ufeff", " ")


@pytest.mark.parametrize("seed", range(2))
def test_scraps_are_split_as_the_grammar_says(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd lines among plain ones: the fast ways give what the slow one gives, or refuse as it does."""
    random = Random(seed)
    for _ in range(120):
        monkeypatch.setattr(csv_reader, "PIECE_BYTES", random.choice([40, 300, 1 << 20]))
        monkeypatch.setattr(csv_reader, "BLOCK_BYTES", random.choice([(100, 200), (1 << 20, 1 << 20)]))
        odd, end = random.choice([0.05, 0.3]), random.choice(["\n", "\n", "\r\n"])
        lines = ['b,,"x,y"a"x,y"'] if random.random() < 0.02 else []
        lines += [
            "".join(random.choice(_SCRAPS) for _ in range(random.randint(0, 9))) if random.random() < odd else "k,l,m"
            for _ in range(random.randint(1, 25))
        ]
        body = "".join(text + end for text in lines)
        try:
            exact = Lines("it", body.encode(), ",", 2, 3).records()
        except FileRefused:
            with pytest.raises(FileRefused):
                read(write(tmp_path, "zz0q,zz1q,zz2q" + end + body))
            continue
        frame = read(write(tmp_path, "zz0q,zz1q,zz2q" + end + body))
        expected = [
            (at, [*row, "", ""][: max(3, len(row))])
            for at, row in zip(exact.lines, exact.cells, strict=True)
            if any(row) or len(row) != 3
        ]
        found = [(row["_line"], _as_written(row, ["zz0q", "zz1q", "zz2q"])) for row in frame.iter_rows(named=True)]
        assert found == expected


def test_a_reader_that_is_left_early_ends(tmp_path: Path) -> None:
    """Who stops in the middle leaves no thread behind that still reads the file."""
    with open_source(write(tmp_path, csv_text(5)), required=()) as source:
        chunks = source.chunks()
        next(chunks)
        del chunks
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize("quoted", [False, True])
def test_texts_written_as_formulas(tmp_path: Path, quoted: bool) -> None:
    """A program that writes `="00123"` keeps zeros in a spreadsheet; the mark is told with the text, no account's.

    Once the row was malformed, or the formula's own characters were taken for a name and would have been sent.
    """
    cells = {"gatewayId": "1001", "billingFirstName": "Ada", "achAccountNumber": "0012345678", "amount": "12.50"}
    formulas = {name: f'="{text}"' for name, text in cells.items()}
    if quoted:
        formulas = {name: '"' + text.replace('"', '""') + '"' for name, text in formulas.items()}
    text = csv_text(1) + line(**formulas) + line()
    frame = read(write(tmp_path, text), REQUIRED)
    assert frame.select(HEADER).rows()[::2] == [tuple(VALID.values())] * 2
    marks = {name: frame[name].to_list() for name in frame.columns if name.startswith(("_fault", "_suggest"))}
    assert marks == {
        **{f"_fault.{name}": [None, "text_formula", None] for name in cells},
        **{f"_suggest.{name}": [None, text, None] for name, text in cells.items() if name != "achAccountNumber"},
    }
    mapping = load_mapping(write(tmp_path, '[columns]\nKonto = "achAccountNumber"\n', "map.toml"))
    frame = read(write(tmp_path, text.replace("achAccountNumber", "Konto", 1)), mapping=mapping)
    assert frame["_fault.achAccountNumber"].to_list() == [None, "text_formula", None]
    assert "_suggest.achAccountNumber" not in frame.columns
    carried = read(write(tmp_path, f"{csv_text(0).strip()},memo\n" + line(end=',="00"\n')), REQUIRED)
    assert carried["memo"].to_list() == ['="00"']
    assert not any(name.startswith("_fault") for name in carried.columns)
