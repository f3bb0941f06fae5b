"""Writing files: whole or not at all, private, faithful, harmless to a spreadsheet."""

from __future__ import annotations

import csv
import errno
import io
import os
import random
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from batchpay.cli.paths import Outputs
from batchpay.errors import LedgerDamaged, NotUsable, WrongUse
from batchpay.intake.source import Source, open_source
from batchpay.intake.template import write_template
from batchpay.reports.result_frames import write_frames
from batchpay.schemas.columns import COLUMNS, REQUIRED
from batchpay.validation.rejects import open_rejects
from batchpay.writing.atomic import PendingFile, anything, atomic_writer, place
from batchpay.writing.table import write_table
from batchpay.writing.xlsx import column_letters, columns
from tests.support import template_workbook
from tests.support.payment_files import HEADER, csv_text, line, read, rejected, workbook, write

ODD_ROWS = csv_text(0) + "".join(
    (
        line(billingLastName='"By""ron, A"'),
        line(achNameOnCheck='"a\nb"'),
        line(billingFirstName="=1+1"),
        line(billingFirstName=" Zoë "),
        line(shippingLastName="'x"),
    )
)
KINDS = ["csv", "parquet", "xlsx"]


def mode(path: Path) -> int:
    """A file's permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def write_rejects(path: str, target: Path, late: tuple[int, ...] = ()) -> pl.DataFrame:
    """Reject every row of a file, those in `late` late; gives the rows."""
    with open_source(path, required=()) as source:
        rejects = open_rejects(target, source)
        frames = [rejected(chunk) for chunk in source.chunks()]
        for frame in frames:
            rejects.add(frame.filter(~pl.col("_row").is_in(late)))
        for frame in frames:
            rejects.late(frame.filter(pl.col("_row").is_in(late)))
        rejects.commit()
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def test_atomic(tmp_path: Path) -> None:
    """A file is there whole or as it was before, private whatever the umask, and nothing is left beside it."""
    target = tmp_path / "out.csv"
    before = os.umask(0)
    try:
        with atomic_writer(target) as file:
            file.write(b"one")
            assert not target.exists()
    finally:
        os.umask(before)
    assert (target.read_bytes(), mode(target)) == (b"one", 0o600)
    with pytest.raises(RuntimeError), atomic_writer(target) as file:
        file.write(b"two")
        raise RuntimeError
    assert target.read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_atomic_over_a_link(tmp_path: Path) -> None:
    """A symbolic link at the place is replaced, and what it led to stays."""
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "out.csv").symlink_to(tmp_path / "secret")
    with atomic_writer(tmp_path / "out.csv") as file:
        file.write(b"new")
    assert (tmp_path / "secret").read_text() == "kept"
    assert not (tmp_path / "out.csv").is_symlink()


def test_atomic_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A directory that is not there is one clear line."""
    with pytest.raises(NotUsable, match="can't be written"), atomic_writer(tmp_path / "no" / "out.csv"):
        pass


def test_a_disk_without_modes_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory stick's: it was an internal error, and an empty part was left behind."""

    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(NotUsable, match=r"out\.csv can't be written: Operation not permitted"):
        PendingFile(tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_can_not_be_removed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself is in its place: results that were written ended the call as an internal error."""

    def fail(_: object, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "unlink", fail)
    pending = PendingFile(tmp_path / "out.csv")
    pending.file.write(b"one")
    assert place(pending, anything) == tmp_path / "out.csv"
    assert (tmp_path / "out.csv").read_bytes() == b"one"


def test_a_name_that_is_too_long_is_said_in_words(tmp_path: Path) -> None:
    """The file next to a ledger with a long name was one: each call of `submit` ended as an internal error."""
    with pytest.raises(NotUsable, match="File name too long"), atomic_writer(tmp_path / ("x" * 256)):
        pass


def test_a_device_stays_one(tmp_path: Path) -> None:
    """Root's `--metrics-file /dev/full` put a file in the device's place, for every program of the machine."""
    device = tmp_path / "full"
    os.mkfifo(device)
    by_link = tmp_path / "stdout"
    by_link.symlink_to(device)
    for path in (device, by_link):
        with pytest.raises(NotUsable, match="a device or a pipe"):
            Outputs(()).claim(path)
        with pytest.raises(NotUsable, match="a device or a pipe"), atomic_writer(path) as file:
            file.write(b"1")
    assert sorted(tmp_path.iterdir()) == [device, by_link]
    assert stat.S_ISFIFO(device.stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
def test_rejects_fed_back(tmp_path: Path, kind: str) -> None:
    """Rejects of any kind, late rows in their places, are a valid payment file with the same cells."""
    target = tmp_path / f"out.rejects.{kind}"
    rows = write_rejects(write(tmp_path, ODD_ROWS), target, late=(1, 4))
    again = read(str(target), REQUIRED)
    assert again.select(HEADER).equals(rows.select(HEADER))
    assert again["_row"].to_list() == [1, 2, 3, 4, 5]
    assert mode(target) == 0o600


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [(), (1,), (2, 3), (1, 2, 3, 4, 5)])
def test_late_rows_stand_in_row_order(tmp_path: Path, kind: str, late: tuple[int, ...]) -> None:
    """Rows that were found wrong late stand where they stand in the file."""
    target = tmp_path / f"out.{kind}"
    write_rejects(write(tmp_path, ODD_ROWS), target, late)
    if kind == "csv":
        numbers = pl.read_csv(target, infer_schema=False)["_row"].to_list()
    elif kind == "parquet":
        numbers = pl.read_parquet(target)["_row"].to_list()
    else:
        sheet = openpyxl.load_workbook(target).active
        assert sheet is not None
        numbers = [str(row[0]) for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert numbers == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    "late",
    [[[9]], [[1, 2]], [[2], [3, 7]], [[3, 4, 5]], [[1], [2], [8]], [[6, 9], [10]], [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]],
)
def test_late_rows_among_blocks_of_a_csv(tmp_path: Path, late: list[list[int]]) -> None:
    """Whatever late rows fall among, before or behind what was added, the file is as if they had been there at first.

    Row 3 has a line break in a cell, and rows that were added before and came late stand once, with what is new.
    """
    path = write(tmp_path, csv_text(2) + line(achNameOnCheck='"a\n""1,2"') + line() * 7)
    numbers = {row for rows in late for row in rows}
    with open_source(path, required=()) as source:
        [chunk] = source.chunks()
        first, again = rejected(chunk), rejected(chunk, "amount: format: write dollars")
        whole, parted = (open_rejects(tmp_path / name, source) for name in ("whole.csv", "parted.csv"))
        kept = first.filter(~pl.col("_row").is_in(numbers - {2, 7}))
        whole.add(
            pl.concat([first.filter(~pl.col("_row").is_in(numbers)), again.filter(pl.col("_row").is_in(numbers))]).sort(
                "_row"
            )
        )
        for begin in (1, 4, 7, 10):
            parted.add(kept.filter(pl.col("_row").is_between(begin, begin + 2)))
        for rows in late:
            parted.late(again.filter(pl.col("_row").is_in(rows)))
        for rejects in (whole, parted):
            rejects.commit()
    assert (tmp_path / "parted.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_rejects_csv_to_the_letter(tmp_path: Path) -> None:
    """Our columns, then the row's own cells as read, in the file's own separator; surplus cells at the end."""
    target = tmp_path / "out.csv"
    write_rejects(write(tmp_path, csv_text(0, ";") + line(";", ";more\n", billingLastName="a,b")), target)
    assert target.read_text() == (
        "_row;_line;_errors;_warnings;_suggestions;" + ";".join(HEADER) + "\n"
        "1;2;amount: format: write digits;;;" + line(";", ";more\n", billingLastName="a,b")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_rejects(tmp_path: Path, kind: str) -> None:
    """Without rejected rows nothing is written, and a stale file keeps its header alone."""
    target = tmp_path / f"out.{kind}"
    path = write(tmp_path, csv_text(0))
    write_rejects(path, target)
    assert not target.exists()
    write_rejects(write(tmp_path, csv_text(2), "older.csv"), target)
    assert read(str(target), REQUIRED).height == 2
    write_rejects(path, target)
    assert read(str(target), REQUIRED).is_empty()


@pytest.mark.parametrize("kind", KINDS)
def test_abandoned_rejects(tmp_path: Path, kind: str) -> None:
    """Abandoned rejects leave nothing behind."""
    path = write(tmp_path, csv_text(2))
    with open_source(path) as source:
        rejects = open_rejects(tmp_path / f"out.{kind}", source)
        rejects.add(rejected(next(source.chunks())))
        rejects.abandon()
    assert [entry.name for entry in tmp_path.iterdir()] == ["payments.csv"]


def test_wrong_cells_are_red(tmp_path: Path) -> None:
    """In XLSX the wrong cells are red with the message as their comment, and every cell of the person's own is text."""
    target = tmp_path / "out.xlsx"
    with open_source(workbook(tmp_path, [HEADER, line(end="").split(",")])) as source:
        rejects = open_rejects(target, source)
        errors = "amount: format: write digits; amount: range: more than 0.00; achRoutingNumber: checksum: wrong"
        rejects.add(rejected(next(source.chunks()), errors))
        rejects.commit()
    sheet = openpyxl.load_workbook(target).active
    assert sheet is not None
    row = {sheet.cell(1, at).value: sheet.cell(2, at) for at in range(1, sheet.max_column + 1)}
    red = {name for name, cell in row.items() if cell.fill.fgColor.rgb == "FFFFC7CE"}
    assert red == {"amount", "achRoutingNumber"}
    assert row["amount"].comment is not None
    assert row["amount"].comment.text == "format: write digits\nrange: more than 0.00"
    assert row["achAccountNumber"].value == "0012345678"
    assert {cell.number_format for name, cell in row.items() if not str(name).startswith("_")} == {"@"}
    assert row["_errors"].alignment.wrap_text


def test_other_endings(tmp_path: Path) -> None:
    """An ending that says no format is refused before anything is written."""
    with open_source(write(tmp_path, csv_text(1))) as source, pytest.raises(WrongUse, match=r"must end in \.csv"):
        open_rejects(tmp_path / "out.pdf", source)
    with pytest.raises(WrongUse, match="must end in"):
        write_table(tmp_path / "out.pdf", ["a"], [])


DANGEROUS = ["=1+1", "+1", "-1", "@x", "\tx", "\rx"]


def test_results_csv_is_defused(tmp_path: Path) -> None:
    """No cell of a results file is run by a spreadsheet; None is a blank cell."""
    write_table(tmp_path / "out.csv", ["a", "=b"], [[cell, None] for cell in DANGEROUS] + [["5-1", 'x"y']])
    lines = (tmp_path / "out.csv").read_bytes().decode().split("\n")
    assert lines[:3] == ["a,'=b", "'=1+1,", "'+1,"]
    assert lines[-2] == '5-1,"x""y"'


def test_a_formula_among_many_rows_is_defused(tmp_path: Path) -> None:
    """However far down it stands, and whatever harmless rows stand around it."""
    rows = [[str(number), "x, y", None] for number in range(2_000)]
    rows[1_500] = ["1500", "=HYPERLINK(1)", None]
    write_table(tmp_path / "out.csv", ["a", "b", "c"], rows)
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.reader(file))
    rows[1_500][1] = "'=HYPERLINK(1)"
    assert found == [["a", "b", "c"], *([cell or "" for cell in row] for row in rows)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_an_error_between_rows_leaves_the_old_results(tmp_path: Path, kind: str) -> None:
    """What goes wrong while rows are read comes out as it is, and what stood at the place stays."""

    def rows() -> Iterator[list[str | None]]:
        yield from ([str(number), None] for number in range(1_000))
        raise LedgerDamaged("a page of the ledger is damaged")

    target = tmp_path / f"out.{kind}"
    target.write_text("old")
    with pytest.raises(LedgerDamaged, match="a page of the ledger"):
        write_table(target, ["a", "b"], rows())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_parquet_of_many_rows_and_of_none(tmp_path: Path) -> None:
    """Row groups follow each other in order; without a row the columns are there."""
    rows = [[str(number), None if number % 2 else "Ω"] for number in range(120_001)]
    write_table(tmp_path / "many.parquet", ["a", "b"], rows)
    write_table(tmp_path / "none.parquet", ["a", "b"], [])
    many, none = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("many", "none"))
    assert many.rows() == [tuple(row) for row in rows]
    assert none.schema == many.schema == {"a": pl.String, "b": pl.String}
    assert none.height == 0


@pytest.mark.parametrize("kind", ["parquet", "xlsx"])
def test_typed_results_hold_text(tmp_path: Path, kind: str) -> None:
    """In Parquet and XLSX a cell is text and needs no apostrophe."""
    rows = [[cell, None, "\x01 &<>_x0041_"] for cell in DANGEROUS]
    write_table(tmp_path / f"out.{kind}", ["aa", "bb", "cc"], rows)
    frame = read(str(tmp_path / f"out.{kind}"))
    assert frame["aa"].to_list() == DANGEROUS
    assert frame["bb"].to_list() == [None] * len(rows)
    assert mode(tmp_path / f"out.{kind}") == 0o600


HOSTILE = [
    None, "", " ", "'", '"', '""', ",", ";", "a,b", 'a"b', "l\nl", "c\rc", "\r", "\r\n", "\n", *DANGEROUS, "'=1",
    "12.50", "-12.50", "-1.00+1", "-1.00\n", "****6789", "Zoë", "Ω=1", "\x00", "\x1f", "~", "A", "a" * 300, "\u2028",
]  # fmt: skip


def test_frames_are_written_as_rows_are(tmp_path: Path) -> None:
    """By column or by row, a file is the same to the byte: blank, quoted, guarded cells, returns, breaks, numbers."""
    chance = random.Random(17)
    tame = ["12.50", "Ada", None, "2026-11-22T07:49:39.800Z"]
    header = columns(["a", "=b", 'c"', "d", "e", "rows", "amounts"], {})
    frames = []
    for number in range(60):
        cells = [HOSTILE, tame, ["", None], [chance.choice(HOSTILE), "x"]][number % 4]
        rows = chance.choice([1, 2, 50])
        frame = pl.DataFrame([pl.Series(f"c{at}", chance.choices(cells, k=rows), pl.String) for at in range(5)])
        numbers = pl.Series("rows", chance.choices([None, 0, 7, 2**40, *[-5] * (number % 3)], k=rows), pl.Int64)
        frames.append(frame.with_columns(numbers, (numbers.cast(pl.Decimal(38, 2)) / 100).alias("amounts")))
    for kind in KINDS:
        of_frames, of_rows = tmp_path / f"frames.{kind}", tmp_path / f"rows.{kind}"
        write_frames(of_frames, header, iter(frames), anything)
        write_table(of_rows, header, [row for frame in frames for row in frame.cast(pl.String).iter_rows()])
        assert of_frames.read_bytes() == of_rows.read_bytes(), kind
        assert mode(of_frames) == 0o600


def test_csv_tables_need_no_polars(tmp_path: Path) -> None:
    """A small table is written without importing polars."""
    code = (
        "import sys; from batchpay.writing.table import write_table; "
        "write_table(sys.argv[1], ['a'], [['1']]); sys.exit('polars' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.csv")], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_template(tmp_path: Path, kind: str) -> None:
    """The template is a payment file of every column whose example row is not a payment."""
    path = tmp_path / f"template.{kind}"
    write_template(path)
    with open_source(str(path)) as source:
        assert source.columns == COLUMNS
        assert source.notes == ()
        assert list(source.chunks()) == []


def test_template_helps(tmp_path: Path) -> None:
    """Drop-downs for closed lists, text for identifiers, a comment on every column, a formula for the check digit."""
    write_template(tmp_path / "template.xlsx")
    book = openpyxl.load_workbook(tmp_path / "template.xlsx")
    sheet = book["payments"]
    header = [cell.value for cell in sheet[1]]
    assert header == ["_note", *COLUMNS, "_check"]
    assert all(cell.comment for cell in sheet[1])
    letters = {name: column_letters(at) for at, name in enumerate(header)}
    assert sheet[f"{letters['achRoutingNumber']}2"].number_format == "@"
    assert str(sheet[f"{letters['_check']}2"].value).startswith("=IF(")
    with_choices = {str(choice.sqref).split(":")[0] for choice in sheet.data_validations.dataValidation}
    assert f"{letters['achDepositType']}2" in with_choices
    with pytest.raises(WrongUse):
        write_template(tmp_path / "template.pdf")


def test_the_template_is_made_of_the_rules() -> None:
    """It is a file of the package: `python -m tests.support.template_workbook` makes it anew where the rules change."""
    made = io.BytesIO()
    template_workbook.workbook().save(made)
    with zipfile.ZipFile(made) as made_now, zipfile.ZipFile(template_workbook.PATH) as packaged:
        names = [name for name in made_now.namelist() if not name.startswith("docProps/")]
        assert {name for name in packaged.namelist() if not name.startswith("docProps/")} == set(names)
        assert [name for name in names if made_now.read(name) != packaged.read(name)] == []


def test_source_says_what_rejects_need(tmp_path: Path) -> None:
    """A source is enough to write rejects by: own columns, their names, the separator."""
    with open_source(write(tmp_path, csv_text(1, "|"))) as source:
        assert isinstance(source, Source)
        assert (source.own_columns, source.own_header, source.separator) == (HEADER, HEADER, "|")


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_rows_come_back_ragged(tmp_path: Path, kind: str) -> None:
    """Fed back as they are, rows that were too short or too long are still no payments. Once they were filled up."""
    header = ",".join((*HEADER, "billingCity", "billingAddress2")) + "\n"
    rows = [line(end="\n"), line(end=",Paris\n"), line(end=",Paris,x,7\n"), line(end=",Paris,\n")]
    target = tmp_path / f"rejects.{kind}"
    with open_source(write(tmp_path, header + "".join(rows)), required=()) as source:
        rejects = open_rejects(target, source)
        for chunk in source.chunks():
            rejects.add(rejected(chunk))
        rejects.commit()
    again = read(str(target), REQUIRED)
    mark = "_ragged" if kind == "csv" else "_stray"
    assert again[mark].is_not_null().to_list() == [True, True, True, False]
    if kind == "csv":
        assert [text.split(",", 5)[5] for text in target.read_text().splitlines()[1:]] == [row[:-1] for row in rows]


@pytest.mark.parametrize("end", ["\n", "\r\n", ",more\n"])
def test_a_carriage_return_at_a_cells_end_comes_back(tmp_path: Path, end: str) -> None:
    """It is quoted in whatever way the row is written: bare, it would be the line's end, and the cell another."""
    text = csv_text(0) + line(achAgreementFlag='"1\r"') + line(billingLastName='"By\rron"') + line(end=end)
    path = write(tmp_path, text)
    target = tmp_path / "rejects.csv"
    before = write_rejects(path, target)
    after = read(str(target))
    assert after.select(HEADER).rows() == before.select(f"{name}" for name in HEADER).rows()


@pytest.mark.parametrize("cell", ["=1", "@A1", "+A1", "-A1", "=", "@", "\t=1"])
def test_each_beginning_of_a_formula_is_reported(tmp_path: Path, cell: str) -> None:
    """Only cells that may begin one are looked at closely, also in a column that no rule knows: a tab was not."""
    target = tmp_path / "rejects.csv"
    ours = csv_text(0).replace("\n", ",theirs\n") + line(billingFirstName=cell, amount="x", end=f",{cell}\n")
    write_rejects(write(tmp_path, ours), target)
    (row,) = csv.DictReader(target.read_text().splitlines())
    assert "billingFirstName: formula: a spreadsheet may run this cell" in row["_warnings"]
    assert "theirs: formula: a spreadsheet may run this cell" in row["_warnings"]


def test_a_formula_that_comes_back_is_reported(tmp_path: Path) -> None:
    """A cell of the rejects that a spreadsheet would run stays as it was read, and the row's warnings say so."""
    text = csv_text(0) + line(billingFirstName="=cmd|x", amount="-12.50") + line(billingLastName="+1 (212) 555-0100")
    target = tmp_path / "rejects.csv"
    write_rejects(write(tmp_path, text), target)
    first, second = csv.DictReader(target.read_text().splitlines())
    assert (first["billingFirstName"], first["_warnings"]) == (
        "=cmd|x",
        "billingFirstName: formula: a spreadsheet may run this cell, view it as text",
    )
    assert second["_warnings"] == ""
