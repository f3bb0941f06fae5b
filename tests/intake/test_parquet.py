"""Reading Parquet files: typed cells by the table 'Typed cells', or a stated fault."""

from __future__ import annotations

import base64
import os
import zlib
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.parquet import CHUNK_ROWS, _parts_of
from batchpay.intake.source import open_source
from batchpay.schemas.rule import RuleOptions
from tests.support.payment_files import DATA, VALID, read, write
from tests.support.whole_check import check


def parquet(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    """Write a Parquet file of the valid row with these columns in place of its own."""
    rows = max(len(values) for values in columns.values())
    frame = pl.DataFrame({name: [text] * rows for name, text in VALID.items()} | columns)
    path = folder / "payments.parquet"
    frame.write_parquet(path, **options)
    return str(path)


def column(frame: pl.DataFrame, name: str) -> tuple[list[Any], list[Any]]:
    """A column's texts and faults."""
    fault = f"_fault.{name}"
    return frame[name].to_list(), frame[fault].to_list() if fault in frame.columns else [None] * frame.height


FLOAT, INT = pl.Float64, pl.Int64


@pytest.mark.parametrize(
    ("name", "series", "texts", "faults"),
    [
        ("amount", pl.Series([12.5, 12.0, 0.1 + 0.2, 12.345, -1.5]), ["12.50", "12.00", "0.30", "12.345", "-1.50"],
         [None, None, None, "format", None]),
        ("amount", pl.Series([float("nan"), float("inf"), 1e16, None]), ["NaN", "inf", "1e+16", None],
         ["format", "format", "format", None]),
        ("amount", pl.Series([Decimal("12.50"), Decimal("12.505")]), ["12.50", "12.505"], [None, "format"]),
        ("amount", pl.Series([Decimal("12.5000"), Decimal("-3.1")]), ["12.50", "-3.10"], [None, None]),
        ("taxAmount", pl.Series([Decimal("12"), Decimal("7")]), ["12.00", "7.00"], [None, None]),
        ("amount", pl.Series(["12.00", "7"]), ["12.00", "7"], [None, None]),
        ("taxAmount", pl.Series([12, 7]), ["12", "7"], [None, None]),
        ("amount", pl.Series([12.5, 1234.56, 500000.01, 7], dtype=pl.Float32),
         ["12.50", "1234.56", "500000.0", "7.00"], [None, "format", "format", None]),
        ("achAccountNumber", pl.Series([123456, 16777217], dtype=pl.Float32), ["123456", "?16777216.0"],
         [None, "precision"]),
        ("gatewayId", pl.Series([1001, None], dtype=pl.UInt16), ["1001", None], [None, None]),
        ("gatewayId", pl.Series([1001.0, 1.5]), ["1001", "1.5"], [None, "format"]),
        ("achAccountNumber", pl.Series([123456789012345.0, 1234567890123456.0]),
         ["123456789012345", "?1234567890123456.0"], [None, "precision"]),
        ("achAccountNumber", pl.Series([123456789012345, 1234567890123456, None]),
         ["123456789012345", "?1234567890123456", None], [None, "precision", None]),
        ("achAccountNumber", pl.Series([Decimal("12345678.0"), Decimal("1234567890123456.0"), Decimal("1.5")]),
         ["12345678", "?1234567890123456", "1.5"], [None, "precision", "format"]),
        ("achRoutingNumber", pl.Series([21000021, 121000248, 7]), ["21000021", "121000248", "7"],
         ["leading_zero", None, "leading_zero"]),
        ("achAgreementFlag", pl.Series([True, False, None]), ["1", "0", None], [None] * 3),
        ("recurringIndicator", pl.Series([True, False]), ["TRUE", "FALSE"], [None] * 2),
        ("recurringStartDate", pl.Series([date(2026, 12, 1)]), ["12/01/2026"], [None]),
        ("recurringStartDate", pl.Series([datetime(2026, 12, 1), datetime(2026, 12, 1, 8)]),  # noqa: DTZ001
         ["12/01/2026", "2026-12-01 08:00:00.000000"], [None, "format"]),
        ("invoiceNumber", pl.Series([date(2026, 1, 2)]), ["2026-01-02"], ["format"]),
        ("costCenter", pl.Series([0.5, 1e16]), ["0.5", "1e+16"], [None, None]),
        ("transactionType", pl.Series(["DEBIT", ""], dtype=pl.Categorical), ["DEBIT", None], [None, None]),
        ("transactionType", pl.Series(["DEBIT"], dtype=pl.Enum(["DEBIT", "CREDIT"])), ["DEBIT"], [None]),
        ("taxAmount", pl.Series([None], dtype=pl.Null), [None], [None]),
    ],
)  # fmt: skip
def test_typed_cells(tmp_path: Path, name: str, series: pl.Series, texts: list[str], faults: list[str]) -> None:
    """Each type becomes the text of the table, or a stated fault with the cell's own text."""
    assert column(read(parquet(tmp_path, {name: series})), name) == (texts, faults)


@pytest.mark.parametrize("kind", [pl.Int64, pl.UInt64, pl.Float64, pl.Decimal(20, 0), pl.Decimal(20, 2)])
def test_account_numbers_in_a_numeric_column(tmp_path: Path, kind: pl.DataType) -> None:
    """0001234567 was sent as 1234567, without a word: such a column is doubted as a workbook's cells are.

    Where routing numbers of the file have lost their zeros, so have accounts: an error, and no text that can be sent.
    """
    numbers = pl.Series([1234567, None, 12345678901234567], dtype=pl.Int64).cast(kind, strict=False)
    texts = pl.Series(["021000021"] * 3)
    whole = pl.Series([121000248, 121000248, 121000248])
    for routing in (texts, whole, whole.cast(pl.Float64)):
        frame = read(parquet(tmp_path, {"achAccountNumber": numbers, "achRoutingNumber": routing}))
        assert frame["achAccountNumber"][0] == "1234567"
        assert frame["_warn.achAccountNumber"].to_list() == ["numeric_account", None, None]
        assert frame["_fault.achAccountNumber"].to_list() == [None, None, "precision"]
    for routing in (pl.Series([121000248, 121000248, 21000021]), pl.Series([121000248.0, None, 7.0])):
        frame = read(parquet(tmp_path, {"achAccountNumber": numbers, "achRoutingNumber": routing}))
        assert frame["achAccountNumber"][0] == "?1234567"
        assert frame["_fault.achAccountNumber"].to_list() == ["numeric_account", None, "precision"]
        assert "_warn.achAccountNumber" not in frame.columns
    frame = read(parquet(tmp_path, {"achAccountNumber": numbers.cast(pl.String), "achRoutingNumber": whole}))
    assert not [name for name in frame.columns if name.startswith(("_fault", "_warn"))]


def test_zeros_are_known_to_be_lost_before_the_first_account_is_read(tmp_path: Path) -> None:
    """One routing number at the end of a large file, after several parts were read, makes all accounts errors."""
    rows = CHUNK_ROWS + 2
    routing = [121000248] * (rows - 1) + [21000021]
    columns = {"achAccountNumber": pl.Series([1234567] * rows), "achRoutingNumber": pl.Series(routing)}
    frame = read(parquet(tmp_path, columns))
    assert frame["_fault.achAccountNumber"].null_count() == 0


def test_account_numbers_of_a_field_file() -> None:
    """CASES.md: p_floatacct.parquet; its routing numbers have lost zeros, so no row of it is paid."""
    path = DATA / "field" / "p_floatacct.parquet"
    if not path.exists():
        pytest.skip("the field's files are not here")
    with open_source(str(path)) as source:
        verdict = check(source, RuleOptions(as_of=date(2026, 11, 28)))
    assert verdict.valid.rows == 0
    assert verdict.counts == {"achAccountNumber.numeric_account": 4, "achRoutingNumber.leading_zero": 3}


def test_suggestion_for_a_lost_zero(tmp_path: Path) -> None:
    """A zero is suggested only where it makes the check digit right."""
    frame = read(parquet(tmp_path, {"achRoutingNumber": [21000021, 21000022, 7]}))
    assert frame["_suggest.achRoutingNumber"].to_list() == ["021000021", None, None]


def test_a_formula_that_is_but_a_text(tmp_path: Path) -> None:
    """A cell like `="00123"` is marked as in a CSV: a row rejected there passed out of its rejects file."""
    formulas = ['="7"', None, '="7', '="7"8']
    frame = read(parquet(tmp_path, {"invoiceNumber": formulas, "achAccountNumber": formulas, "memo": ['="7"'] * 4}))
    faults = ["text_formula", None, None, None]
    assert column(frame, "invoiceNumber") == column(frame, "achAccountNumber") == (formulas, faults)
    assert frame["_suggest.invoiceNumber"].to_list() == ["7", None, None, None]
    assert not {"_suggest.achAccountNumber", "_fault.memo"} & set(frame.columns)


def test_columns_of_the_files_own_with_names_like_ours_inside(tmp_path: Path) -> None:
    """A file that has a column `_fault.invoiceNumber` had no fault there anymore; and places may be swapped."""
    own = {"_fault.invoiceNumber": ["x"], "_stray": ["x"], "c1": ["one"], "c0": ["nought"]}
    frame = read(parquet(tmp_path, {"invoiceNumber": [date(2026, 1, 2)], **own}))
    assert column(frame, "invoiceNumber") == (["2026-01-02"], ["format"])
    assert frame.select("c0", "c1", "amount").row(0) == ("nought", "one", "12.50")


def test_faults_only_where_they_occur(tmp_path: Path) -> None:
    """A chunk without a fault has no column for it."""
    frame = read(parquet(tmp_path, {"amount": [12.5]}))
    assert not [name for name in frame.columns if name.startswith(("_fault", "_suggest"))]


@pytest.mark.parametrize("group_rows", [7_000, CHUNK_ROWS - 1, CHUNK_ROWS, 1_000_000])
def test_row_groups(tmp_path: Path, group_rows: int) -> None:
    """Several row groups, or one of more rows than are decoded at a time, keep their order and numbers."""
    count = 2 * CHUNK_ROWS + 1
    numbers = [str(at) for at in range(count)]
    frame = read(parquet(tmp_path, {"invoiceNumber": numbers}, row_group_size=group_rows))
    assert frame["invoiceNumber"].to_list() == numbers
    assert frame["_row"].to_list() == list(range(1, count + 1))
    assert frame["_line"].null_count() == frame.height


@pytest.mark.parametrize(("group_rows", "parts"), [
    ([], []), ([0], []), ([7], [7]), ([CHUNK_ROWS], [CHUNK_ROWS]), ([50_000] * 3, [50_000] * 3),
    ([20_000] * 5 + [1], [60_000, 40_001]), ([5, CHUNK_ROWS, 0, 5], [5, CHUNK_ROWS, 5]), ([100_000] * 2, [50_000] * 4),
    ([122_880], [40_960] * 3), ([3, 2 * CHUNK_ROWS + 1, 3], [3, 40_001, 40_000, 40_000 + 3]),
])  # fmt: skip
def test_parts_end_where_row_groups_do(group_rows: list[int], parts: list[int]) -> None:
    """What is decoded at a time is never a piece of two groups, unless the last piece of one is joined to the next."""
    assert list(_parts_of(group_rows)) == parts


def test_replaced_between_the_look_at_its_pages_and_the_reading(tmp_path: Path) -> None:
    """Parts are known from the pages that were looked at: rows that came since would not be read."""
    path = parquet(tmp_path, {"memo": ["a"] * 10})
    with open_source(path) as source:
        parquet(tmp_path, {"memo": ["a"] * 11})
        with pytest.raises(FileRefused, match="changed while it was being read"):
            list(source.chunks())


@pytest.mark.parametrize(
    "series", [pl.Series([[1]]), pl.Series([{"a": 1}]), pl.Series([b"x"]), pl.Series([None], dtype=pl.Time),
     pl.Series([2049.0], dtype=pl.Float16)],
)  # fmt: skip
def test_other_types_are_refused(tmp_path: Path, series: pl.Series) -> None:
    """A nested or binary column is refused by its name, and one of half floats: 2,049 there is 2,048."""
    with pytest.raises(FileRefused, match="column memo contains"):
        read(parquet(tmp_path, {"memo": series}))


def test_broken(tmp_path: Path) -> None:
    """A Parquet file cut off anywhere is refused in one line."""
    whole = Path(parquet(tmp_path, {"memo": ["x"]})).read_bytes()
    for size in range(4, len(whole), 97):
        with pytest.raises(FileRefused, match="broken Parquet"):
            read(write(tmp_path, whole[:size]))


def test_a_day_that_no_calendar_has(tmp_path: Path) -> None:
    """What polars makes of it is no Exception: the command ended as by a fault of its own, and so did the inbox."""
    days = pl.Series([2**31 - 1], dtype=pl.Int32).cast(pl.Date)
    with pytest.raises(FileRefused, match="outside the calendar"):
        read(parquet(tmp_path, {"recurringStartDate": days}))


def test_cut_off_while_it_is_read(tmp_path: Path) -> None:
    """What polars makes of it is no Exception: the command ended with its trace, and with the wrong exit code."""
    path = parquet(tmp_path, {"memo": [str(at) for at in range(2 * CHUNK_ROWS)]})
    with open_source(path) as source:
        chunks = source.chunks()
        next(chunks)
        os.truncate(path, 1000)
        with pytest.raises(FileRefused, match="broken Parquet"):
            list(chunks)


_DECIMAL256 = (
    "eNoLcAwyFGUQ1RPV0xFlAjLYRNlkGBgYmECYkQEVsDwSZZHUMWWQYCtOzkjNTRRlYhDlE1USZZJgS8zNL80rUeUSZREN0IkBkUD1YkySMpIyagwyonySqmwM"
    "kjBlokAZsRCxEDUOTxmglQxAc2w02STVwLYCJZjUOMRCGDQUChKLCktTS3STCwp0E4uK8ssVylKLijPz8xSMzPQM9AwlZUBOnQLEAUBfAACCFCBb"
)
"""A file with the column `amount` of DECIMAL(40, 2), which polars can't write."""


@pytest.mark.parametrize(("how", "told"), [
    ("decimal256", "column amount contains decimals of 40 digits; write it with 38 at most, or as text"),
    ("uuid", "column amount contains binary values, such as UUIDs, .*; write it as text"),
    ("twice", "the header has the same column twice: amount$"),
])  # fmt: skip
def test_what_polars_cannot_read_is_named_as_what_it_is(tmp_path: Path, how: str, told: str) -> None:
    """The first lacked columns, the second held "Binary", the third was "a broken Parquet file, or cut off"."""
    if how == "decimal256":
        path = str(tmp_path / "payments.parquet")
        Path(path).write_bytes(zlib.decompress(base64.b64decode(_DECIMAL256)))
    elif how == "uuid":
        path = parquet(tmp_path, {"amount": [bytes(16)]})
    else:
        path = parquet(tmp_path, {"amounx": ["1.00"]})
        Path(path).write_bytes(Path(path).read_bytes().replace(b"amounx", b"amount"))
    with pytest.raises(FileRefused, match=f"payments.parquet: {told}"):
        open_source(path)
