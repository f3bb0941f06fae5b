"""The header: known, carried, mistyped, missing and doubled columns; and rows whose cells need no escape."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.csv import reader as csv_reader
from batchpay.intake.csv.reader import Octets
from batchpay.intake.header import near_miss, ours_as_meant, read_header
from batchpay.intake.maps.loading import mapping_of
from batchpay.intake.source import open_source
from batchpay.intake.template import write_template
from batchpay.intake.xlsx.pieces import PIECE_ROWS
from batchpay.schemas.columns import BARE_ROW, COLUMNS, REQUIRED
from tests.support.payment_files import HEADER, VALID, csv_text, line, read, workbook, write


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("achRoutingNumer", "achRoutingNumber"), ("Amount", "amount"), ("ach_routing_number", "achRoutingNumber"),
        (" amount", "amount"), ("amuont", "amount"), ("billingFristName", "billingFirstName"),
        ("GATEWAYID", "gatewayId"), ("shippingZpi", None), ("achAcountNumber", "achAccountNumber"),
        ("invoice number", "invoiceNumber"),
    ],
)  # fmt: skip
def test_near_misses(name: str, meant: str | None) -> None:
    """A name that looks mistyped names the column it was meant to be."""
    assert near_miss(name) == meant


@pytest.mark.parametrize(
    "name",
    [
        "memo", "notes", "account", "count", "costCenter", "billingStatus", "billingAddressLine3", "batchId", "date",
        "shippingEmail", "customerReference", "effectiveDate", "id", "état", "#",
    ],
)  # fmt: skip
def test_other_words_are_carried(name: str) -> None:
    """Another word is not a slip."""
    assert near_miss(name) is None


def test_no_known_column_looks_like_a_slip_of_another() -> None:
    """Names that are right are never taken for slips."""
    assert read_header(COLUMNS).columns == COLUMNS


@pytest.mark.parametrize("name", ["payOn", "Pay on", "PAYON"])
def test_days_of_payment_are_known_however_they_are_spaced(name: str) -> None:
    """A column that says when each row is to be paid was carried along, and every row was sent today."""
    assert read_header([*REQUIRED, name]).columns[-1] == "payOn"


@pytest.mark.parametrize("name", ["PAY_ON", "pay-on", "payOm", "pay0n", "PayOnn"])
def test_a_mistyped_day_of_payment_is_refused(name: str) -> None:
    """Carried along, its days would count for nothing."""
    with pytest.raises(FileRefused, match="did you mean payOn"):
        read_header([*REQUIRED, name])


@pytest.mark.parametrize("name", ["Payor", "Pay No.", "pay in", "Pay To", "Payout", "Paying", "Pay Day"])
def test_other_words_are_no_day_of_payment(name: str) -> None:
    """A file's own column of payers is a letter from payOn, and is carried."""
    assert read_header([*REQUIRED, name]).carried == (name,)


def test_all_wrong_columns_are_named(tmp_path: Path) -> None:
    """Every missing, doubled or mistyped column is named at once."""
    with pytest.raises(FileRefused, match=r"twice: amount, x$"):
        read_header([*HEADER, "amount", "x", "x"])
    with pytest.raises(FileRefused, match=r"Amuont \(did you mean amount\?\), gateway_Id \(did you mean gatewayId\?\)"):
        read_header([*HEADER, "Amuont", "gateway_Id"])
    with pytest.raises(FileRefused, match="lacks required columns: gatewayId, achAgreementFlag"):
        read_header(HEADER[1:-1])
    with pytest.raises(FileRefused, match=r"payments.csv: the header lacks"):
        read(write(tmp_path, "a,b\n1,2\n"), HEADER)


def test_a_file_without_a_header(tmp_path: Path) -> None:
    """It was said to have two columns of one name, those of the first payee; or a map was to name its columns."""
    path = write(tmp_path, csv_text(2).split("\n", 1)[1])
    with pytest.raises(FileRefused, match=r"payments.csv: the file has no header, its first row is a payment: add"):
        read(path, HEADER)


def test_a_mistyped_name_is_no_other_system() -> None:
    """A map was offered for a slip in one name, and said that the file has no column with routing numbers."""
    slip = ["achRoutingNumer" if name == "achRoutingNumber" else name for name in COLUMNS]
    assert ours_as_meant(slip).issuperset(COLUMNS)
    assert "gatewayId" not in ours_as_meant([name.replace("Id", "_id") for name in COLUMNS])


def test_carried_and_ours(tmp_path: Path) -> None:
    """Unknown columns are carried in file order; ours from an earlier rejects file are ignored."""
    text = "_row,zone,_errors," + csv_text(1).replace("\n", ",memo\n", 1).replace("\nX", "\nX")
    text = text.replace("\n1001", "\n7,north,amount: format: x,1001").replace(",1\n", ",1,hello\n")
    with open_source(write(tmp_path, text)) as source:
        assert source.carried == ("zone", "memo")
        assert source.own_columns == ("zone", *HEADER, "memo")
        frame = next(source.chunks())
    assert frame.select("_row", "zone", "memo").rows() == [(1, "north", "hello")]
    assert "_errors" not in frame.columns


def test_columns_without_a_name(tmp_path: Path) -> None:
    """Trailing columns without a name are blank, or the cell there is named; once it hid the row's other errors."""
    text = (
        csv_text(0).rstrip("\n") + ",,\n" + csv_text(1).split("\n")[1] + ",,\n" + csv_text(1).split("\n")[1] + ",,x\n"
    )
    with open_source(write(tmp_path, text)) as source:
        frame = next(source.chunks())
        assert source.carried == ()
        assert source.own_header == (*HEADER, "", "")
    assert frame["_stray"].to_list() == [None, "cell 16 of the row is in a column without a name"]


@pytest.mark.parametrize("name", ["*", "^.*$", "^cost$"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_whose_names_polars_takes_for_patterns(tmp_path: Path, kind: str, name: str) -> None:
    """They stood for other columns, or for none: an internal error. A map can rename them, or leave them out."""
    frame = pl.DataFrame({**{column: [text] for column, text in VALID.items()}, name: ["x"]})
    path = str(tmp_path / f"payments.{kind}")
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    with pytest.raises(FileRefused, match=r"names can't be used, give them others: [*^]"):
        open_source(path)
    tables: tuple[dict[str, Any], ...] = (
        {"columns": {name: "billingCity"}}, {"columns": {name: ""}}, {"templates": {"invoiceNumber": f"{{{name}}}-7"}},
    )  # fmt: skip
    for at, table in enumerate(tables[:2]):
        read_so = read(path, REQUIRED, mapping=mapping_of(table, "a.toml"))
        assert read_so.select(HEADER).rows() == [tuple(VALID.values())]
        assert ("billingCity" in read_so.columns) is (at == 0)
    made = mapping_of({"columns": {name: ""}, **tables[2]}, "a.toml")
    assert read(path, REQUIRED, mapping=made)["invoiceNumber"].to_list() == ["x-7"]


def test_columns_whose_names_are_blanks(tmp_path: Path) -> None:
    """They have no name either: two of them were refused as the same column twice, which nobody could see."""
    names, row = csv_text(1).splitlines()
    mapping = mapping_of({"columns": {"amount": "amount"}}, "a.toml")
    for given in (None, mapping):
        with open_source(write(tmp_path, f"{names}, , \n{row},,\n"), mapping=given) as source:
            assert (source.carried, source.own_header) == ((), (*HEADER, " ", " "))


def test_example_rows_are_no_payments(tmp_path: Path) -> None:
    """A row whose _note says example is skipped and not counted."""
    lines = csv_text(2).splitlines()
    text = "\n".join([f"_note,{lines[0]}", f"example,{lines[1]}", f"paid late,{lines[2]}"]) + "\n"
    with open_source(write(tmp_path, text)) as source:
        for _ in range(2):  # as often as it is read
            (frame,) = source.chunks()
            assert frame.select("_row", "_line").rows() == [(1, 3)]
            assert source.examples.count == 1


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_examples_far_above_the_first_payment(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the file without a payment began their count anew: a payment typed over one was not told."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", (1, 1))
    monkeypatch.setattr("batchpay.intake.streams.BLOCK_BYTES", 1000)
    monkeypatch.setattr("batchpay.intake.parquet.CHUNK_ROWS", 2)
    blank = [[None] * (len(HEADER) + 1)] * (PIECE_ROWS if kind == "xlsx" else 20)
    rows = [["example", *VALID.values()]] * 2 + blank + [[None, *VALID.values()]]
    if kind == "xlsx":
        path = workbook(tmp_path, [("_note", *HEADER), *rows])
    else:
        frame = pl.DataFrame(rows, schema=dict.fromkeys(["_note", *HEADER], pl.String), orient="row")
        path = str(tmp_path / f"payments.{kind}")
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    with open_source(path) as source:
        for _ in range(2):  # as often as it is read
            assert sum(chunk.height for chunk in source.chunks()) == 1
            assert (source.examples.count, source.examples.with_account) == (2, 2)


def test_a_payment_typed_over_the_example_is_told(tmp_path: Path) -> None:
    """The mark stayed in `_note`: the first payment was passed over, with the note that any template gets."""
    lines = csv_text(3).splitlines()
    text = "\n".join([f"_note,{lines[0]}", *(f"example,{line}" for line in lines[1:3]), f",{lines[3]}"]) + "\n"
    with open_source(write(tmp_path, text)) as source:
        for _ in range(2):  # as often as it is read
            list(source.chunks())
            told = source.examples.notes()
    assert told[0] == "rows marked as an example, which are not payments: 2"
    assert told[1].startswith(
        "rows marked as an example that have an account number: 2; a payment typed over the example is not sent"
    )
    write_template(tmp_path / "blank.csv")
    with open_source(str(tmp_path / "blank.csv")) as source:
        list(source.chunks())
        assert source.examples.notes() == ["rows marked as an example, which are not payments: 1"]


def test_a_sheet_is_not_looked_for_in_a_file_without_sheets(tmp_path: Path) -> None:
    """A CSV was read for a sheet of any name without a word; a preset may name one for the workbooks of an inbox."""
    with open_source(write(tmp_path, csv_text(1)), sheet="May") as source:
        assert source.notes == ("the sheet May was not looked for: only a workbook has sheets",)


def test_names_in_other_letters_and_blanks(tmp_path: Path) -> None:
    """A name that differs from ours only in case, blanks or line breaks is ours, and the person is told."""
    text = csv_text(1).replace("amount,", '"Amount ",').replace("achRoutingNumber", '"ACH\nRouting Number"')
    with open_source(write(tmp_path, text)) as source:
        frame = next(source.chunks())
        assert (source.columns, source.carried) == (HEADER, ())
        assert "Amount " in source.own_header
        assert source.notes == (
            "columns whose names differ only in case or blanks are read: Amount  as amount, "
            "ACH\\nRouting Number as achRoutingNumber",
        )
    assert frame["amount"].to_list() == ["12.50"]
    with pytest.raises(FileRefused, match="twice"):
        read(write(tmp_path, text.replace("\n1001", ",amount\n1001").replace(",1\n", ",1,2.00\n")), HEADER)


def test_an_example_is_marked_in_any_letters(tmp_path: Path) -> None:
    """Example, EXAMPLE and what has blanks around it: typed by people, none of them a payment."""
    lines = csv_text(3).splitlines()
    text = "\n".join([f"_note,{lines[0]}", f"Example,{lines[1]}", f" EXAMPLE ,{lines[2]}", f",{lines[3]}"]) + "\n"
    assert read(write(tmp_path, text), HEADER)["_line"].to_list() == [4]


@pytest.mark.parametrize("count", [500, 501, 100_000])
def test_more_columns_than_a_payment_file_has_are_refused(tmp_path: Path, count: int) -> None:
    """Each cost 2.5 ms before anything was said: a file of a million held the page's only check for hours."""
    header, row = csv_text(1).splitlines()
    path = write(tmp_path, header + "".join(f",x{at}" for at in range(count)) + "\n" + row + "," * count + "\n")
    if count == 500:
        with open_source(path) as source:
            assert len(source.carried) == 500
        return
    with pytest.raises(FileRefused, match=f"{count:,} unknown columns; more than 500 are not read"):
        open_source(path)


WAYS = [(separator, end, quoted) for separator in ",;|" for end in ("\n", "\r\n") for quoted in (False, True)]
PIECES = ("a", "Bc", "é", "ễ", "’", " ", "  ", '"', '""', ",", ", ", ";", "; ", " |", "Ä", "Ã©", "\u202e", "\u00a0",
          "\u2028", "\u2011", "\x7f", "\x85", "\t", "\x01", "李", "\U0001f3e6", "x" * 120, "é" * 130)  # fmt: skip


def _written(rows: Sequence[Sequence[str]], separator: str, end: str, quoted: bool) -> Octets:
    text = io.StringIO()
    csv.writer(
        text, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    ).writerows(rows)
    return Octets(text.getvalue().encode(), separator)


def test_a_block_is_told_bare_if_no_cell_needs_an_escape() -> None:
    """Cells of any characters, one or a few rows at a time, in every dialect: exactly those without are told."""
    random, pieces = Random(11), (*PIECES, "\\", '","', "\x1f")
    told_blocks = 0
    for _ in range(150):
        for way in WAYS:
            some = pieces if random.random() < 0.3 else PIECES[:7]
            rows = [["".join(random.choices(some, k=random.randrange(4))) for _ in range(3)] for _ in range(2)]
            is_bare = not any(
                character in '"\\' or character < " " for row in rows for cell in row for character in cell
            )
            # An empty cell in marks is two marks side by side: it may be told so, and is not.
            is_doubled = way[2] and any(not cell for row in rows for cell in row)
            assert _written(rows, *way).cells_are_bare() == (is_bare and not is_doubled), (rows, way)
            told_blocks += is_bare
    assert told_blocks > 500


ODD_NAMES = ('"say ""no"""', "a\\b", '"a\nb"', "a\x01b", 'a"b', '"a"b', "a\x1fb")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("odd", [None, *ODD_NAMES])
def test_a_second_reading_tells_what_needs_no_escape(tmp_path: Path, odd: str | None, end: str) -> None:
    """Cells in quotation marks, blank ones and accents do not; one odd cell, and nothing is told of its block."""
    names = ["Ada", '"Byron, Ada"', "", "Zoë", *([] if odd is None else [odd])]
    rows = [line(billingFirstName=name, end="") for name in names]
    with open_source(write(tmp_path, end.join([",".join(HEADER), *rows, ""]))) as source:
        first, again = (pl.concat(source.chunks(), how="diagonal") for _ in range(2))
    assert BARE_ROW not in first.columns
    assert (BARE_ROW in again.columns) == (odd is None)
    assert odd is not None or again[BARE_ROW].to_list() == [True] * 4


def test_with_tabs_nothing_is_told_to_need_no_escape(tmp_path: Path) -> None:
    """A tab that separates looks like one in a cell."""
    with open_source(write(tmp_path, csv_text(3, "\t"))) as source:
        assert all(BARE_ROW not in chunk.columns for _ in range(2) for chunk in source.chunks())
