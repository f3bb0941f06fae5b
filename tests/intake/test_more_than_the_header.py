"""Cells and columns beyond what a payment needs: a comma at the end of every row, a name that two columns have."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.maps.loading import load_mapping
from batchpay.intake.source import open_source
from batchpay.validation.rejects import open_rejects
from batchpay.validation.verdict import Verdict
from tests.intake.test_foreign_files import TODAY
from tests.support.payment_files import DATA, HEADER, cells, csv_text, line, workbook, write
from tests.support.whole_check import check


def judged(path: str, rejects: Path | None = None) -> tuple[Verdict, tuple[str, ...]]:
    """What the rules say of a file, and the notes on its reading."""
    with open_source(path) as source:
        sink = open_rejects(rejects, source) if rejects else None
        verdict = check(source, TODAY, rejects=sink)
        if sink is not None:
            sink.commit()
        return verdict, source.notes


@pytest.mark.parametrize(("more", "count"), [(",", "1 empty cell"), (",,,", "3 empty cells")])
@pytest.mark.parametrize("names", [{}, {"achNameOnCheck": '"Byron, Ada"'}])
def test_every_row_ends_with_commas(tmp_path: Path, more: str, count: str, names: dict[str, str]) -> None:
    """A program ends each row, and not the header, with a comma: every row of such an export was rejected."""
    text = csv_text(0) + "".join(line(amount=f"{at}.00", end=f"{more}\n", **names) for at in range(1, 4)) + "\n"
    verdict, notes = judged(write(tmp_path, text))
    assert (verdict.valid.rows, verdict.valid.cents, verdict.counts) == (3, 600, {})
    assert notes == (f"every row has {count} more than the header: read as if the header had as many",)


@pytest.mark.parametrize(("ends", "rejected"), [
    ((",", "", ","), 2), (("", ",", ""), 1), ((",", ",,", ","), 3), ((",x", ",", ","), 3), ((", ", ", ", ", "), 3),
])  # fmt: skip
def test_rows_that_do_not_agree_are_no_such_export(tmp_path: Path, ends: tuple[str, ...], rejected: int) -> None:
    """A cell that is too many in some rows, or holds something, may be what moved the others: rejected as before."""
    rows = [line(amount=f"{at}.00", end=f"{end}\n") for at, end in enumerate(ends, 1)]
    verdict, notes = judged(write(tmp_path, csv_text(0) + "".join(rows)))
    assert verdict.counts == {"row.ragged": rejected}
    assert notes == ()


def test_a_row_far_below_that_does_not_agree_is_rejected(tmp_path: Path) -> None:
    """The header is widened by the first rows; one that lacks the comma, or has a cell there, is not sent."""
    rows = [line(end=",\n", amount=f"{at}.00") for at in range(1, 2_000)]
    text = csv_text(0) + "".join(rows) + line(amount="1.00") + line(amount="2.00", end=",x\n")
    verdict, _ = judged(write(tmp_path, text), tmp_path / "rejects.csv")
    assert verdict.rejected.rows == 2
    again, _ = judged(str(tmp_path / "rejects.csv"))
    assert again.rejected.rows == 2


def test_a_name_that_two_columns_have_and_nothing_needs(tmp_path: Path) -> None:
    """Two columns Memo refused a whole file that was right."""
    text = csv_text(0).strip() + ",Memo,Memo\n" + line(end=",a,b\n")
    sheet = workbook(tmp_path, [[*HEADER, "Memo", "Memo"], [*line().strip().split(","), "a", "b"]])
    for path in (write(tmp_path, text), sheet):
        verdict, notes = judged(path)
        assert verdict.valid.rows == 1
        assert notes == ("columns that are in the header twice, and that nothing needs: Memo",)
        with open_source(path) as source:
            assert source.carried == ("Memo", "Memo (2)")
        assert cells(path)[0][-2:] == ("a", "b")
    again = text.replace("Memo,Memo", "Memo,Memo (2),Memo").replace(",a,b", ",a,c,b").replace(",1\n", ",1,x\n")
    with open_source(write(tmp_path, again)) as source:
        assert source.carried == ("Memo", "Memo (2)", "Memo (3)")


@pytest.mark.parametrize("name", ["amount", "Status", "Pay Date", "Currency", "D/C"])
def test_a_name_that_says_something_of_the_payment_is_there_once(tmp_path: Path, name: str) -> None:
    """Which of two statuses, dates or amounts counts is not for the program to choose."""
    text = csv_text(0).strip() + f",{name},{name}\n" + line(end=",a,b\n")
    with pytest.raises(FileRefused, match=f"the header has the same column twice: {name}"):
        judged(write(tmp_path, text))


@pytest.mark.parametrize("used", ['billingCity = "Memo"', 'billingCity = "Memo (2)"', '"Memo" = "billingCity"'])
def test_a_name_that_a_map_uses_is_there_once(tmp_path: Path, used: str) -> None:
    """The map's author meant one of them."""
    path = write(tmp_path, csv_text(0).strip() + ",Memo,Memo\n" + line(end=",a,b\n"))
    mapping = load_mapping(write(tmp_path, f"[columns]\n{used}\n", "map.toml"))
    with pytest.raises(FileRefused, match="twice: Memo"):
        open_source(path, mapping=mapping)


@pytest.mark.skipif(not (DATA / "field").is_dir(), reason="the field's files are not here")
@pytest.mark.parametrize("rejects", [None, "rejects.csv", "rejects.xlsx", "rejects.parquet"])
def test_files_of_the_field(tmp_path: Path, rejects: str | None) -> None:
    """CASES.md: trail_rows.csv is read; ragged_and_quoted_crlf.csv has five good rows, with and without rejects."""
    verdict, notes = judged(str(DATA / "field" / "trail_rows.csv"))
    assert (verdict.valid.rows, verdict.valid.cents, len(notes)) == (3, 365037, 1)
    verdict, _ = judged(str(DATA / "field" / "ragged_and_quoted_crlf.csv"), tmp_path / rejects if rejects else None)
    assert (verdict.valid.rows, verdict.valid.cents, verdict.rejected.rows) == (5, 11000, 4)
