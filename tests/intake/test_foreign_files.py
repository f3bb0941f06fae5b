"""Somebody else's files through a map: formats, signs, split names, templates, and their rejects fed back."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.control_totals import ControlTotals, require_totals, require_whole
from batchpay.intake.maps.loading import load_mapping
from batchpay.intake.maps.mapping import Mapping
from batchpay.intake.source import open_source
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.rejects import open_rejects
from batchpay.validation.verdict import Verdict
from tests.support.payment_files import read, workbook, write
from tests.support.whole_check import check

TODAY = RuleOptions(as_of=datetime.date(2026, 11, 23))
VENDORS = """\
[columns]
"Betrag" = "amount"
"BLZ" = "achRoutingNumber"
"Konto" = "achAccountNumber"
"Firma" = ["achNameOnCheck", "billingCompany"]
"Beleg" = ""
[split]
"Kontakt" = ["{billingLastName}, {billingFirstName}", "{billingFirstName} {billingLastName}"]
[templates]
paymentId = "{Tag}-{Beleg}-{Pos}"
[formats.amount]
decimal = ","
thousands = "."
negative = "CREDIT"
[formats.recurringStartDate]
date = "%d.%m.%Y"
[values.achDepositType]
"Giro" = "CHECKING"
[defaults]
shipping = "billing"
achDepositType = "CHECKING"
[fixed]
gatewayId = "1001"
recurringIndicator = "FALSE"
achAccountType = "BUSINESS"
achSecCode = "CCD"
achAgreementFlag = "1"
"""
HEADER = ["Tag", "Beleg", "Pos", "Betrag", "BLZ", "Konto", "Firma", "Kontakt", "Memo"]
RIGHT = ["2026-11-20", "R7", "1", "1.234,50", "021000021", "0012345678", "Acme GmbH", "Ada Byron", "x"]


def vendors(tmp_path: Path, more: str = "", text: str = VENDORS) -> Mapping:
    """The map of these tests."""
    return load_mapping(write(tmp_path, text + more, "map.toml"))


def csv_file(tmp_path: Path, *rows: dict[str, str], name: str = "vendors.csv") -> str:
    """A CSV with these rows; what a row does not say is right."""
    lines = [[dict(zip(HEADER, RIGHT, strict=True), **row)[column] for column in HEADER] for row in rows]
    return write(tmp_path, "".join(";".join(line) + "\n" for line in [HEADER, *lines]), name)


def judged(path: str, mapping: Mapping) -> tuple[Verdict, list[tuple[str, str]]]:
    """What the rules say of a file: the verdict, and column and message of each error."""
    with open_source(path, mapping=mapping) as source:
        verdict = check(source, TODAY)
    return verdict, [(failure.column, failure.message) for failure in verdict.failures]


def test_a_vendor_file(tmp_path: Path) -> None:
    """Amounts, signs, names and ids of another maker become ours, to the cent."""
    path = csv_file(
        tmp_path,
        {},
        {"Betrag": "-0,07", "Pos": "2", "Kontakt": "Lovelace, Ada King"},
        {"Betrag": "12", "Pos": "3"},
    )
    with open_source(path, mapping=vendors(tmp_path)) as source:
        (frame,) = source.chunks()
        assert source.carried == ("Tag", "Pos", "Kontakt", "Memo")
        verdict = check(source, TODAY)
    assert frame["amount"].to_list() == ["1234.50", "0.07", "12.00"]
    assert frame["transactionType"].to_list() == ["DEBIT", "CREDIT", "DEBIT"]
    assert frame["paymentId"].to_list() == ["2026-11-20-R7-1", "2026-11-20-R7-2", "2026-11-20-R7-3"]
    assert frame["billingCompany"].to_list() == frame["achNameOnCheck"].to_list() == ["Acme GmbH"] * 3
    assert frame.select("shippingFirstName", "billingLastName").row(1) == ("Ada King", "Lovelace")
    assert not [name for name in frame.columns if name.startswith("_fault")]
    assert (verdict.valid.rows, verdict.valid.cents) == (3, 124657)


@pytest.mark.parametrize(("cell", "column", "words"), [
    ({"Betrag": "12.50"}, "amount", "column Betrag is not written as the map says, like 1.234,56"),
    ({"Betrag": "1,234.50"}, "amount", "column Betrag is not written"), ({"Betrag": ""}, "amount", "is missing"),
    ({"Kontakt": "Ada King Byron"}, "billingLastName", "column Kontakt does not split into"),
    ({"Pos": ""}, "paymentId", "is made of Tag, Beleg, Pos, and one of these cells is blank"),
    ({"Beleg": "R7 "}, "paymentId", "blanks at an end"),
    ({"Tag": "", "Beleg": "", "Pos": ""}, "paymentId", "one of these cells is blank"),
])  # fmt: skip
def test_what_is_not_certain_is_an_error(tmp_path: Path, cell: dict[str, str], column: str, words: str) -> None:
    """One cell that the map can't read is one error, in the words of the file; no other rule is told of it."""
    verdict, errors = judged(csv_file(tmp_path, cell), vendors(tmp_path))
    assert [name for name, _ in errors] == [column], errors
    assert words in errors[0][1]
    assert verdict.valid.rows == 0
    assert verdict.rejected.cents == (0 if column == "amount" else 123450)


def test_negative_amounts_are_refused_unless_the_map_says_what_they_mean(tmp_path: Path) -> None:
    """By itself a sign is no direction: nobody is paid for what may be a refund."""
    text = VENDORS.replace('negative = "CREDIT"\n', "").replace("[fixed]", '[fixed]\ntransactionType = "CREDIT"')
    verdict, errors = judged(csv_file(tmp_path, {}, {"Betrag": "(12,00)", "Pos": "2"}), vendors(tmp_path, text=text))
    assert verdict.counts == {"amount.map": 1}
    assert "is negative" in errors[0][1]


@pytest.mark.parametrize(("amounts", "total", "net"), [
    (("1.234,50", "(45,00)", "-0,50"), "1.189,00", True), (("(1.234,50)", "45,00"), "-1.189,50", True),
    (("1.234,50", "45,00"), "1.279,50", True), (("1.234,50", "(45,00)"), "1.279,50", False),
    (("1.234,50", "(45,00)"), "-1.189,50", None), (("1.234,50", "(45,00)"), "1.234,50", None),
])  # fmt: skip
def test_a_last_row_may_be_the_sum_by_the_signs_of_the_file(
    tmp_path: Path, amounts: tuple[str, ...], total: str, net: bool | None
) -> None:
    """A vendor's refunds are negative, and so the last row of every export is less than all amounts together.

    Each such file was refused: "a row is missing or changed".
    """
    rows = [{"Betrag": amount, "Pos": str(at), "Beleg": f"R{at}"} for at, amount in enumerate(amounts)]
    path = csv_file(tmp_path, *rows, {**dict.fromkeys(HEADER, ""), "Firma": "Total", "Betrag": total})
    with open_source(path, mapping=vendors(tmp_path)) as source:
        verdict = check(source, TODAY)
        assert verdict.total.rows == len(amounts)
        assert source.end.is_net == bool(net)
        if net is None:
            with pytest.raises(FileRefused, match=r"a row is missing or changed .* if it is another sum"):
                require_whole(ControlTotals(), source, verdict.total)
            return
        require_whole(ControlTotals(), source, verdict.total)
        assert f" is the {'net total' if net else 'total'} of the rows before it, " in source.end.note("line")


def test_a_total_that_does_not_fit_says_which_amounts_are_not_in_it(tmp_path: Path) -> None:
    """One amount had no decimal comma: "a row is missing or changed", and no list of errors to find it by."""
    rows = [{"Betrag": "12.50", "Pos": "1", "Beleg": "R1"}, {"Betrag": "1,00", "Pos": "2", "Beleg": "R2"}]
    for last in ([], [{**dict.fromkeys(HEADER, ""), "Firma": "Total", "Betrag": "13,50"}]):
        with open_source(csv_file(tmp_path, *rows, *last), mapping=vendors(tmp_path)) as source:
            verdict = check(source, TODAY)
            told = "the amount of 1 row can't be read, and is not in it; .* every error is listed"
            for rows_stated in (None, 2):
                with pytest.raises(FileRefused, match=told):
                    require_whole(ControlTotals(rows_stated, 1350), source, verdict.total, verdict.unreadable_amounts)
    with pytest.raises(FileRefused, match="cut off, or another file"):
        require_totals(ControlTotals(3, 1350), verdict.total, "vendors.csv", 1)


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_rejects_come_back_through_the_same_map(tmp_path: Path, ending: str) -> None:
    """Rejects hold the maker's own columns and cells, in every format; corrected there, each row is what it was.

    An amount that is written as ours are must not become a number there: `13.50`, which in this map is a word for
    99.00, would come back as 13.50.
    """
    mapping = vendors(tmp_path, '[values.amount]\n"13.50" = "99.00"\n')
    path = csv_file(
        tmp_path,
        {"Betrag": "12.50"},
        {"Betrag": "9,9", "Kontakt": "Ada", "Pos": "2"},
        {"Betrag": "13.50", "Kontakt": "Ada", "Pos": "3"},
    )
    target = tmp_path / f"rejects.{ending}"
    with open_source(path, mapping=mapping) as source:
        rejects = open_rejects(target, source)
        verdict = check(source, TODAY, rejects=rejects)
        rejects.commit()
    again, errors = judged(str(target), mapping)
    assert (again.counts, again.rejected) == (verdict.counts, verdict.rejected)
    assert [name for name, _ in errors] == ["amount", "billingLastName", "billingLastName"]
    with open_source(str(target), mapping=mapping) as source:
        (own,) = source.chunks()
        assert source.own_header == tuple(HEADER)
        assert own.select(source.own_columns).row(0) == tuple(
            dict(zip(HEADER, RIGHT, strict=True), Betrag="12.50").values()
        )


def test_typed_cells_are_written_as_the_map_says(tmp_path: Path) -> None:
    """A number or a date of a workbook has no decimal comma: it is read for certain, and text beside it as text."""
    mapping = vendors(tmp_path)
    day = datetime.date(2026, 11, 20)
    rows: list[list[Any]] = [
        HEADER,
        [day, "R7", 1, 1234.5, "021000021", "0012345678", "Acme", "Ada Byron", 1.5],
        ["2026-11-20", "R7", 2, "1.234,5", "021000021", "0012345678", "Acme", "Ada Byron", None],
        [day, "R7", 3, -1234, "021000021", "0012345678", "Acme", "Ada Byron", None],
        [day, "R7", 4, 12.345, "021000021", "0012345678", "Acme", "Ada Byron", None],
        [day, "R7", 4.5, 12, "021000021", "0012345678", "Acme", "Ada Byron", None],
    ]
    frame = read(workbook(tmp_path, rows), mapping=mapping)
    assert frame["amount"].to_list() == ["1234.50", "1234.50", "1234.00", "12,345", "12.00"]
    assert frame["transactionType"].to_list() == ["DEBIT", "DEBIT", "CREDIT", "DEBIT", "DEBIT"]
    assert frame["paymentId"].to_list()[:3] == ["2026-11-20-R7-1", "2026-11-20-R7-2", "2026-11-20-R7-3"]
    assert frame["_fault.amount"].to_list() == [None, None, None, "format", None]
    assert frame["_fault.paymentId"].to_list() == [None] * 4 + ["format"]
    assert frame["_own.Betrag"].to_list()[:2] == ["1234,50", "1.234,5"]


@pytest.mark.parametrize(("cell", "is_total"), [("1.300,00", True), ("1300.00", False)])
def test_a_totals_row_in_a_map(tmp_path: Path, cell: str, is_total: bool) -> None:
    """`Total` in the column of names is no name that can't be split, and the row no payment without an id."""
    last = dict.fromkeys(HEADER, "") | {"Kontakt": "Total", "Betrag": cell}
    path = csv_file(tmp_path, {"Betrag": "1.200,00"}, {"Betrag": "100,00", "Pos": "2"}, last)
    with open_source(path, mapping=vendors(tmp_path)) as source:
        verdict = check(source, TODAY)
        assert source.end.total_cents == (130000 if is_total else None)
    assert (verdict.valid.rows, verdict.rejected.rows) == (2, 0 if is_total else 1)


def test_typed_dates_are_written_as_the_map_says(tmp_path: Path) -> None:
    """A date cell under a map that reads `1.12.2026` is that day, and comes back so."""
    text = VENDORS.replace('"Beleg" = ""', '"Beleg" = ""\n"Memo" = "recurringStartDate"')
    rows: list[list[Any]] = [HEADER, [*RIGHT[:8], datetime.date(2026, 12, 1)], [*RIGHT[:8], "02.12.2026"]]
    frame = read(workbook(tmp_path, rows), mapping=vendors(tmp_path, text=text))
    assert frame["recurringStartDate"].to_list() == ["12/01/2026", "12/02/2026"]
    assert frame["_own.Memo"].to_list() == ["01.12.2026", "02.12.2026"]


def test_columns_of_which_some_or_no_cells_are_there(tmp_path: Path) -> None:
    """A template of another column than the paymentId is blank where all its cells are, and an error where some are."""
    text = VENDORS.replace("[templates]", '[templates]\nbillingAddressLine2 = "{Tag}/{Memo}"')
    path = csv_file(tmp_path, {"Tag": "a"}, {"Tag": "", "Memo": ""}, {"Memo": ""})
    frame = read(path, mapping=vendors(tmp_path, text=text))
    assert frame["billingAddressLine2"].to_list() == ["a/x", None, None]
    assert frame["_fault.billingAddressLine2"].is_null().to_list() == [True, True, False]


def test_a_formula_is_no_part_of_a_payment_id(tmp_path: Path) -> None:
    """A number that the workbook counts anew (=ROW()) would make another paymentId of the same payment."""
    rows: list[list[Any]] = [
        HEADER,
        ["2026-11-20", "R7", "=ROW()", 12.5, "021000021", "0012345678", "Acme", "Ada Byron", None],
    ]
    frame = read(workbook(tmp_path, rows), mapping=vendors(tmp_path))
    assert frame["_fault.paymentId"].to_list() == ["formula"]


def test_a_number_that_stands_for_several_columns(tmp_path: Path) -> None:
    """It keeps the rules of the strictest of them, and its fault is told of each."""
    text = '[columns]\n"No" = ["billingCity", "achRoutingNumber"]\n'
    frame = read(workbook(tmp_path, [["No", "x", "y"], [21000021, 1, 2]]), mapping=vendors(tmp_path, text=text))
    assert frame["_fault.achRoutingNumber"].to_list() == frame["_fault.billingCity"].to_list() == ["leading_zero"]


def test_a_table_that_says_nothing_yet(tmp_path: Path) -> None:
    """A proposed map has tables whose lines are all still open: they change nothing."""
    found = vendors(tmp_path, text="[formats.amount]\n[formats.recurringStartDate]\n[values.billingState]\n[split]\n")
    assert (found.numbers, found.dates) == ({}, {})


def test_parquet_under_a_map(tmp_path: Path) -> None:
    """Decimals, floats and dates of a Parquet file are read for certain as well."""
    text = VENDORS.replace('"Beleg" = ""', '"Beleg" = ""\n"Start" = "recurringStartDate"')
    cells = dict(zip(HEADER, RIGHT, strict=True))
    day = datetime.date(2026, 12, 1)
    frame = pl.DataFrame(
        {**{name: [cell, cell] for name, cell in cells.items()}, "Start": [day, None]}
        | {"Betrag": pl.Series([Decimal("-1234.50"), Decimal("0.07")], dtype=pl.Decimal(12, 2)), "Tag": [day, day]}
    )
    frame.write_parquet(tmp_path / "vendors.parquet")
    found = read(str(tmp_path / "vendors.parquet"), mapping=vendors(tmp_path, text=text))
    assert found["amount"].to_list() == ["1234.50", "0.07"]
    assert found["transactionType"].to_list() == ["CREDIT", "DEBIT"]
    assert found["recurringStartDate"].to_list() == ["12/01/2026", None]
    assert found["_own.Start"].to_list() == ["01.12.2026", None]
    assert found["paymentId"][0] == "2026-12-01-R7-1"


def test_dates_in_another_form(tmp_path: Path) -> None:
    """A day that does not exist is told by the rule that tells it of every file."""
    text = VENDORS.replace('"Beleg" = ""', '"Beleg" = ""\n"Memo" = "recurringStartDate"')
    path = csv_file(tmp_path, {"Memo": "01.12.2026"}, {"Memo": "31.02.2027"}, {"Memo": "12/01/2026"})
    with open_source(path, mapping=vendors(tmp_path, text=text)) as source:
        (frame,) = source.chunks()
        verdict = check(source, TODAY)
    assert frame["recurringStartDate"].to_list() == ["12/01/2026", "02/31/2027", "12/01/2026"]
    assert frame["_fault.recurringStartDate"].is_null().to_list() == [True, True, False]
    assert verdict.counts["recurringStartDate.map"] == 1


def test_a_translated_amount_is_not_read_in_the_format(tmp_path: Path) -> None:
    """What the map gives for a word is ours already."""
    more = '[values.amount]\n"none" = ""\n"flat" = "100.00"\n'
    path = csv_file(tmp_path, {"Betrag": "none"}, {"Betrag": "flat", "Pos": "2"})
    verdict, _ = judged(path, vendors(tmp_path, more))
    assert verdict.counts == {"amount.required": 1}
    assert verdict.valid.cents == 10000


def test_a_template_of_rows_that_are_only_counted_is_noted(tmp_path: Path) -> None:
    """The number of a row shifts when another is put in before it: the same payment would have another paymentId."""
    mapping = vendors(tmp_path)
    total = dict.fromkeys(HEADER, "") | {"Betrag": "3.703,50"}
    counted = csv_file(tmp_path, *({"Pos": f"{at}"} for at in range(1, 4)), total)
    with open_source(counted, mapping=mapping) as source:
        assert source.counting is not None and source.counting.note is None
        list(source.chunks())
        assert "made of Pos, which only counts the rows" in str(source.counting.note)
    other = csv_file(tmp_path, *({"Pos": f"{at}"} for at in (1, 3, 2)))
    with open_source(other, mapping=mapping) as source:
        list(source.chunks())
        assert source.counting is not None and source.counting.note is None


def test_no_template_names_the_place_of_a_row(tmp_path: Path) -> None:
    """`{Line}` is a column of the file or nothing: the refusal says why."""
    mapping = vendors(tmp_path, text=VENDORS.replace("{Pos}", "{Line}"))
    with pytest.raises(FileRefused, match=r"does not have: Line\. A paymentId can be made of the file's cells alone"):
        read(csv_file(tmp_path, {}), mapping=mapping)


CHANGES = {
    "decimal": ('decimal = ","', 'decimal = "."\n#'),
    "thousands": ('thousands = "."', 'thousands = " "'),
    "sign": ('negative = "CREDIT"', 'negative = "DEBIT"'),
    "date": ("%d.%m.%Y", "%m.%d.%Y"),
    "split": ('["{billingLastName}, {billingFirstName}", ', "["),
    "template": ("{Tag}-{Beleg}", "{Beleg}-{Tag}"),
    "columns": ('["achNameOnCheck", "billingCompany"]', '["billingCompany", "achNameOnCheck"]'),
    "values": ('"Giro"', '"Spar"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_part_of_a_map_is_in_its_digest(tmp_path: Path, change: str) -> None:
    """A plan names the map by its digest: one that reads otherwise is another, another name is not."""
    mapping = vendors(tmp_path)
    before, after = CHANGES[change]
    text = VENDORS.replace('thousands = "."\n', "") if change == "decimal" else VENDORS
    assert before in text
    assert vendors(tmp_path, text=text.replace(before, after)).digest != mapping.digest
    assert replace(mapping, name="other.toml").digest == mapping.digest


def test_every_mistake_of_a_map_is_told_at_once(tmp_path: Path) -> None:
    """Nobody corrects a map one refusal at a time."""
    text = """\
[colums]
[columns]
a = "amuont"
b = ["amount", "billingCity"]
c = 7
[split]
d = "{billingFirstName}{billingLastName}"
e = "{billingFristName} {billingLastName}"
f = ["{billingCity}, {billingState}", "{billingCity} {billingZip}"]
[templates]
paymentId = "fixed"
invoiceNumber = "{a"
[values.billingState]
"" = "TX"
[formats.amount]
decimal = "."
thousands = "."
negativ = "CREDIT"
[formats.taxAmount]
negative = "CREDIT"
[formats.recurringStartDate]
date = "%d/%m"
[formats.billingCity]
decimal = ","
[fixed]
gatewayId = 7
"""
    with pytest.raises(FileRefused) as refused:
        load_mapping(write(tmp_path, text, "map.toml"))
    told = str(refused.value)
    for words in (
        "[colums] is unknown (did you mean columns?)", "amuont is not a column (did you mean amount?)",
        "b can't be amount and billingCity", "which batchpay column c is", "d needs two or more",
        "billingFristName is not a column (did you mean billingFirstName?)", "every pattern of f",
        "the text of paymentId names no column", "the text of invoiceNumber has a brace", '"" is not a cell value',
        "decimal and thousands must differ", "negativ is not one of", "(did you mean negative?)",
        "[formats.taxAmount]: negative is not one of", "a day, a month and a year", "billingCity contains no amounts",
        "write gatewayId as text",
    ):  # fmt: skip
        assert words in told, words


@pytest.mark.parametrize(("text", "told"), [
    ('[columns]\ndebit = "D"\ncredit = "C"\namount = "A"', "amount is made in 2 ways"),
    ('[columns]\ndebit = "D"\ncredit = "D"', "debit and credit are two columns"),
    ('[columns]\ndebit = "D"\n[formats.amount]\nnegative = "CREDIT"', "set it in one place"),
    ('[fixed]\ntransactionType = "DEBIT"\n[formats.amount]\nnegative = "CREDIT"', "set it in one place"),
    ('[columns]\na = "amount"\nb = "amount"', "amount is made in 2 ways"),
    ('[columns]\na = "billingCity"\n[templates]\nbillingCity = "{b}"', "billingCity is made in 2 ways"),
    ('[columns]\na = "amount"\n[fixed]\namount = "1.00"', "amount is made of the file's cells and is in"),
    ('[fixed]\namount = "1.00"\n[formats.amount]\ndecimal = ","', "reads nothing"),
    ('[formats.amount]\ncurrency = "12"', "currency is the symbol or the code"),
    ('[formats.amount]\nnegative = "credit"', 'negative can only be "CREDIT", "DEBIT", "refused"'),
    ('[columns]\na = ["amount", "taxAmount"]\n[formats.amount]\ndecimal = ","', "written in different ways"),
    ('[split]\n_a = "{billingCity}, {billingState}"', "begin with _ are never read: _a"),
    ("formats = 7", "formats must be a table"),
])  # fmt: skip
def test_maps_that_contradict_themselves(tmp_path: Path, text: str, told: str) -> None:
    """What can't hold at once is refused before a file is read."""
    with pytest.raises(FileRefused) as refused:
        load_mapping(write(tmp_path, text, "map.toml"))
    assert told in str(refused.value)


def test_a_name_of_ours_in_other_letters(tmp_path: Path) -> None:
    """A column that the map does not name is ours whatever its case, beside a map too."""
    path = csv_file(tmp_path, {"Memo": "USD"})
    Path(path).write_text(Path(path).read_text().replace("Memo", "Currency Code"))
    frame = read(path, mapping=vendors(tmp_path))
    assert frame["currencyCode"].to_list() == ["USD"]


SIDES = '[columns]\ncredit = "Debit"\ndebit = "Credit"\n[formats.amount]\ndecimal = ","\n'


def test_amounts_in_two_columns_are_one_file(tmp_path: Path) -> None:
    """Debits and credits took two maps and two runs, each with the other's rows among its rejects."""
    rows = [
        ("100,00", ""),
        ("", "55,5"),
        ("20,00", "0,00"),
        ("0,00", "40"),
        ("1,00", "2,00"),
        ("0,00", "0,00"),
        ("x", ""),
        ("void", "9,00"),
    ]
    text = "Payee;Debit;Credit\n" + "".join(f"A;{debit};{credit}\n" for debit, credit in rows)
    path, mapping = write(tmp_path, text), load_mapping(write(tmp_path, SIDES, "m.toml"))
    frame = read(path, mapping=mapping)
    assert frame["amount"].to_list() == ["100.00", "55.50", "20.00", "40.00", "2.00", "0.00", "x", "9.00"]
    assert frame["transactionType"].to_list() == [
        "CREDIT",
        "DEBIT",
        "CREDIT",
        "DEBIT",
        "DEBIT",
        "DEBIT",
        "CREDIT",
        "DEBIT",
    ]
    faults = frame["_fault.amount"].to_list()
    assert [at for at, fault in enumerate(faults) if fault] == [4, 6, 7]
    assert "both columns" in faults[4] and "column Credit or Debit is not written" in faults[6]
    typed = read(workbook(tmp_path, [["Payee", "Debit", "Credit"], ["A", None, 12.5], ["B", 7, 0]]), mapping=mapping)
    assert typed["amount"].to_list() == ["12.50", "7.00"]
    assert typed["transactionType"].to_list() == ["DEBIT", "CREDIT"]


def test_a_sign_and_a_word_that_say_the_direction_must_agree(tmp_path: Path) -> None:
    """An export marks what comes back by S, and by a minus after the number: where one is missing nobody knows."""
    text = (
        '[columns]\namount = "Betrag"\ntransactionType = "S/H"\n[values.transactionType]\nCREDIT = "H"\nDEBIT = "S"\n'
    )
    mapping = load_mapping(write(tmp_path, f'{text}[formats.amount]\ndecimal = ","\nnegative = "DEBIT"\n', "m.toml"))
    frame = read(write(tmp_path, "Betrag;S/H\n10,00;H\n3,50-;S\n4,00;S\n-5,00;H\n6,00;x\n"), mapping=mapping)
    assert frame["amount"].to_list() == ["10.00", "3.50", "4.00", "5.00", "6.00"]
    assert frame["transactionType"].to_list() == ["CREDIT", "DEBIT", "DEBIT", "CREDIT", "x"]
    told = frame["_fault.transactionType"].to_list()
    assert [told[0], told[1], told[4]] == [None, None, None]
    assert told[2].endswith("column S/H says DEBIT, and the sign of the amount says CREDIT")
    assert told[3].endswith("column S/H says CREDIT, and the sign of the amount says DEBIT")
