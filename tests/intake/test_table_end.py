"""What stands under the payments, and above their header: totals, notes, titles, a last line that may be cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.control_totals import ControlTotals, require_whole
from batchpay.intake.csv import reader as csv_reader
from batchpay.intake.source import open_source
from batchpay.payment import Totals
from batchpay.settings import LedgerSettings, Settings
from batchpay.workflows import check as flow
from batchpay.workflows.requests import CheckOptions, file_request
from tests.support.payment_files import HEADER, VALID, csv_text, line, workbook, write

ROW = tuple(VALID.values())
NOTHING = dict.fromkeys(HEADER, "")
TOTAL_ROW = line(**{**NOTHING, "amount": "25.00"})


def check(path: str, **stated: Any) -> flow.Preview:
    """`validate`, where no ledger is."""
    settings = Settings(ledger=LedgerSettings(url=f"{path}.no-ledger", key_file=f"{path}.no-key"))
    options = CheckOptions(allow_duplicates=True, **stated)
    return flow.validate(file_request(path, None, options, settings), settings)


def total_of(**cells: str) -> str:
    return line(**{**NOTHING, **cells})


@pytest.mark.parametrize("end", [
    total_of(amount="25.00"), total_of(gatewayId="Total", amount="25.00"),
    total_of(gatewayId="GRAND TOTAL:", amount='"$25.00"'), total_of(billingLastName="Sum", amount="25"),
    total_of(amount="25.00") + "\n\n" + total_of(gatewayId="Prepared by Jane"), ",,,25.00\n",
])  # fmt: skip
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_last_row_that_is_the_total(tmp_path: Path, end: str, is_finished: bool) -> None:
    """It is no payment: left out of rows and sums, told once, and held against the rows, which are all there then."""
    path = write(tmp_path, csv_text(2) + (end if is_finished else end.rstrip("\n")))
    if not is_finished and end == ",,,25.00\n":  # a row without its last cells at a file's end: it was cut off
        with pytest.raises(FileRefused, match="not all its cells"):
            check(path)
        return
    preview = check(path)
    notes = end.count("Jane")
    assert (preview.verdict.total, preview.verdict.counts.get("row.no_payment", 0)) == (Totals(2 + notes, 2500), notes)
    told = "line 4 is the total of the rows before it, 25.00, and no payment"
    assert preview.summary.notes.count(told) == 1


def test_a_total_that_does_not_fit(tmp_path: Path) -> None:
    """A row was lost on the way, or changed: a file of which nobody knows what it should be is refused whole."""
    path = write(tmp_path, csv_text(2) + total_of(gatewayId="Total", amount="37.50"))
    with pytest.raises(FileRefused, match=r"line 4 has only an amount, a total of 37.50, and the 2 rows .* to 25.00"):
        check(path)


@pytest.mark.parametrize(
    "odd",
    [
        total_of(gatewayId="1001", amount="25.00"),  # a payment that lost its cells: rejected
        total_of(achAccountNumber="0012345678", amount="25.00"),
        total_of(gatewayId="Total", amount="n/a"),
        total_of(gatewayId="Total", billingLastName="Total", amount="25.00"),
        line(billingLastName="Total", achNameOnCheck="Total"),  # a payment to the Total company
    ],
)
def test_what_is_no_total(tmp_path: Path, odd: str) -> None:
    """A row with anything else that a payment needs is a payment, right or wrong."""
    with open_source(write(tmp_path, csv_text(2) + odd)) as source:
        assert sum(chunk.height for chunk in source.chunks()) == 3
        assert source.end.total_cents is None


def test_a_total_above_payments_is_a_row(tmp_path: Path) -> None:
    """Payments under a total are not swallowed: the total is a wrong row, and so is a file of a total alone."""
    with open_source(write(tmp_path, csv_text(2) + TOTAL_ROW + line())) as source:
        assert sum(chunk.height for chunk in source.chunks()) == 4
    with open_source(write(tmp_path, csv_text(0) + TOTAL_ROW)) as source:
        assert sum(chunk.height for chunk in source.chunks()) == 1
        assert source.end.total_cents is None


@pytest.mark.parametrize("rows", range(1, 9))
def test_a_total_at_the_border_of_two_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Wherever blocks end, the total is left out, in every reading, and rows are numbered without a gap."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", (300, 300))
    text = csv_text(rows) + TOTAL_ROW + "\n" + total_of(gatewayId="a note") + total_of(billingZip="") + total_of()
    with open_source(write(tmp_path, text)) as source:
        for _ in range(2):
            chunks = list(source.chunks())
            numbers = [number for chunk in chunks for number in chunk["_row"].to_list()]
            assert numbers == list(range(1, rows + 2))
            assert (source.end.total_cents, source.end.total_line) == (2500, rows + 2)


def test_a_total_that_a_spreadsheet_added_up(tmp_path: Path) -> None:
    """A formula is how totals are made: its value is held against the rows, to the cent whatever binary leaves."""
    rows = [[0.1 if name == "amount" else cell for name, cell in VALID.items()] for _ in range(3)]
    total = [{"gatewayId": "Total", "amount": 0.1 + 0.1 + 0.1}.get(name) for name in HEADER]
    path = workbook(tmp_path, [["Payments of May"], [], HEADER, *rows, [], total, ["Jane Doe"]])
    preview = check(path)
    assert preview.verdict.total == Totals(4, 30)
    assert preview.verdict.counts == {"row.no_payment": 1}
    total[3] = 0.4
    with pytest.raises(FileRefused, match=r"row 8 has only an amount, a total of 0.40, and the 3 rows"):
        check(workbook(tmp_path, [["Payments of May"], [], HEADER, *rows, [], total]))


def test_a_last_line_that_may_be_cut_off(tmp_path: Path) -> None:
    """Refused with what was found, ready to be stated; once the person had to count and add up by hand."""
    path = write(tmp_path, csv_text(2)[:-1])
    told = r"the last line \(3\) has no line break .* --expect-rows 2 --expect-total 25.00$"
    with pytest.raises(FileRefused, match=told):
        check(path)
    assert check(path, expect_rows=2, expect_cents=2500).verdict.valid.rows == 2
    with pytest.raises(FileRefused, match="found 2 rows, expected 3"):
        check(path, expect_rows=3)


def test_a_lone_header_that_may_be_cut_off(tmp_path: Path) -> None:
    """The message names the header's own line; once it was line 0."""
    for titles in (0, 2):
        path = write(tmp_path, "Payments of May\n" * titles + csv_text(0).rstrip("\n"))
        with pytest.raises(FileRefused, match=rf"the last line \({titles + 1}\) has no line break .*: 0 rows, 0\.00"):
            check(path)


def test_a_last_line_without_all_its_cells(tmp_path: Path) -> None:
    """Totals that were stated do not make a row whole: its amount is there, and what is missing may matter."""
    path = write(tmp_path, csv_text(2)[:-3])
    with pytest.raises(FileRefused, match=r"not all its cells, so the file is cut off: 2 rows, 25\.00 in total$"):
        check(path, expect_rows=2, expect_cents=2500)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("above", "number", "told"),
    [("Payments of May\n\nAll amounts in EUR\nDRAFT\n", 5, "Payments of May / All amounts in EUR / DRAFT"),
     ("Prepared by,Jane\n", 2, "Prepared by Jane"), ("From account 7000123456\n", 2, "From account ****3456"),
     ('"Amounts in thousands"\n', 2, "Amounts in thousands"),
     ('a "title" not well quoted\n', 2, 'a "title" not well quoted'),
     ("x\n" * 30, 31, "x / x / x / x / x / and 25 more"), ("sep={separator}\ntitle\n", 3, "title")],
)  # fmt: skip
def test_titles_above_the_header(tmp_path: Path, separator: str, above: str, number: int, told: str) -> None:
    """A CSV has titles as a workbook has: they are passed over, and told. Once the title was taken for the header.

    Amounts under `All amounts in EUR` and `DRAFT` were paid in dollars, and nothing said what the titles were.
    """
    path = write(tmp_path, above.replace(",", separator).format(separator=separator) + csv_text(2, separator))
    with open_source(path) as source:
        assert source.notes == (f"the header was found in line {number}; not read: {told}",)
        frame = next(source.chunks())
    assert frame.select(HEADER).rows() == [ROW, ROW]
    assert frame["_line"].to_list() == [number + 1, number + 2]


def test_too_many_titles(tmp_path: Path) -> None:
    """What is looked through has an end; the message is about the first line."""
    with (
        pytest.raises(FileRefused, match="the header lacks required columns"),
        open_source(write(tmp_path, "x\n" * 31 + csv_text(1))),
    ):
        pass


def test_payments_above_the_header(tmp_path: Path) -> None:
    """Who sorts a sheet with its header gets payments above it: they must not be lost as titles."""
    text = line() + line() + csv_text(1)
    with pytest.raises(FileRefused, match="line 1 is above the header, which is in line 3, and has 14 cells"):
        check(write(tmp_path, text))
    with pytest.raises(FileRefused, match="'Sheet': row 2 is above the header, which is in row 3, and has 14 cells"):
        check(workbook(tmp_path, [["May"], ROW, HEADER, ROW]))


def test_rows_that_are_no_payments(tmp_path: Path) -> None:
    """Blanks, a lone note or the header again are told in one message each. Once a note had fourteen."""
    blanks = total_of(amount=" ", gatewayId="  ", achAccountNumber="\t")
    text = csv_text(1) + blanks + csv_text(1) + total_of(achNameOnCheck="Approved:", achAccountNumber="JD")
    preview = check(write(tmp_path, text))
    assert preview.verdict.counts == {"row.no_payment": 3}
    assert [(failure.line, failure.message) for failure in preview.verdict.failures] == [
        (3, "has nothing but blanks, delete the row, or fill it in if it is a payment"),
        (4, "is the header again, delete the row"),
        (6, "has two cells and no payment, delete the row, or fill it in if it is a payment"),
    ]


def test_a_second_table_in_another_order(tmp_path: Path) -> None:
    """Under another order of columns every name and account would be another's: nothing of such a file is paid."""
    turned = dict(reversed(VALID.items()))
    second = ",".join(turned) + "\n" + ",".join(turned.values()) + "\n"
    with pytest.raises(FileRefused, match="line 3: another header, in another order"):
        check(write(tmp_path, csv_text(1) + second))


def test_a_stray_cell_hides_nothing(tmp_path: Path) -> None:
    """A cell beside the table is named by its address, with the row's other errors; alone in its row it is one."""
    wrong = ["x" if name == "amount" else cell for name, cell in VALID.items()]
    path = workbook(tmp_path, [HEADER, [*wrong, None, "see mail"], ROW, [None] * 15 + ["checked"]])
    found = check(path).verdict.failures
    assert [(failure.line, failure.column, failure.code) for failure in found] == [
        (2, "amount", "format"), (2, "row", "ragged"), (4, "row", "no_payment"),
    ]  # fmt: skip
    assert found[1].message.startswith("cell P2 is in a column without a name")
    assert found[2].message.startswith("cell P4 is in a column without a name and the row has no payment")


def test_totals_that_a_person_and_the_file_state(tmp_path: Path) -> None:
    """Both must be met."""
    path = write(tmp_path, csv_text(2) + TOTAL_ROW)
    with open_source(path) as source:
        list(source.chunks())
        with pytest.raises(FileRefused, match="found 2 rows, expected 3"):
            require_whole(ControlTotals(rows=3), source, Totals(2, 2500))
