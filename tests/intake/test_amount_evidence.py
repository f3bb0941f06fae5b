"""Currency and unit of amounts, wherever a file says them: nothing is paid as dollars that may be something else.

Euros were paid as dollars, and of 100000 cents 100,000.00 dollars were made, by a map or by `--normalize`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.csv import reader as csv_reader
from batchpay.payment import Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.verdict import Verdict
from batchpay.workflows.file_check import CheckContext, check_file, open_file
from batchpay.workflows.requests import FileRequest
from tests.support.payment_files import DATA, HEADER, VALID, workbook, write
from tests.support.row_factory import AS_OF

FIELD = DATA / "field"
RULES = RuleOptions(as_of=AS_OF)
REPAIRING = RuleOptions(as_of=AS_OF, normalize=True, accept_suggestions=suggesting_rules())
MAP = """\
[columns]
achNameOnCheck = "{vendor}"
billingLastName = "{vendor}"
achRoutingNumber = "{routing}"
achAccountNumber = "{account}"
achDepositType = "Account Type"
invoiceNumber = "{invoice}"
amount = "{amount}"
[values.achDepositType]
CHECKING = "Checking"
[defaults]
shipping = "billing"
[fixed]
transactionType = "CREDIT"
recurringIndicator = "FALSE"
gatewayId = "1001"
billingFirstName = "Payee"
achAccountType = "BUSINESS"
achAgreementFlag = "1"
"""
NAMES = {"vendor": "Vendor", "routing": "Routing No", "account": "Account No", "invoice": "Invoice", "amount": "Amount"}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of a few rows, so that small files have several chunks."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", (2_000, 4_000))
    monkeypatch.setattr(csv_reader, "CHUNK_ROWS", 10)


def table(amounts: list[str], extra: dict[str, str] | None = None) -> str:
    """Return a CSV of payments with these amounts, and further columns with the same cell in each row."""
    extra = extra or {}
    lines = [",".join((*HEADER, *extra))]
    for at, amount in enumerate(amounts):
        row = VALID | {"amount": f'"{amount}"', "achAccountNumber": f"55512{at:05d}"}
        lines.append(",".join((*(row[name] for name in HEADER), *extra.values())))
    return "\n".join(lines) + "\n"


def checked(path: str | Path, rules: RuleOptions = RULES, **more: Any) -> Verdict:
    """Check a file."""
    request = FileRequest(str(path), rules, **more)
    with open_file(request) as source:
        return check_file(source, request, CheckContext()).verdict


def field(folder: Path, name: str, formats: str = "", rules: RuleOptions = RULES, **more: Any) -> Verdict:
    """Check a file of the collection through a map with these formats and names of columns."""
    if not FIELD.is_dir():
        pytest.skip("the collection of field files is not here")
    names = {key: more.pop(key, text) for key, text in NAMES.items()}
    text = MAP.format(**names) + formats
    return checked(FIELD / name, rules, map_file=write(folder, text, "map.toml"), **more)


EUROPEAN = '[formats.amount]\ndecimal = ","\nthousands = "."\ncurrency = "€"\n'
YEN = '[formats.amount]\nthousands = ","\ncurrency = "¥"\n'


@pytest.mark.parametrize(("name", "formats"), [("n_eur.csv", EUROPEAN), ("n_jpy.csv", YEN), ("n_gbp_col.csv", "")])
def test_another_currency_is_never_paid_as_dollars(tmp_path: Path, name: str, formats: str) -> None:
    """A mark in the cells, a column beside them: each row is refused until currencyCode says the same."""
    assert field(tmp_path, name, formats, REPAIRING).counts == {"amount.currency_mark": 4}


def test_a_currency_that_the_map_states_agrees(tmp_path: Path) -> None:
    """With the currency of the file in currencyCode no amount is an error."""
    text = MAP.format(**NAMES).replace("[fixed]\n", '[fixed]\ncurrencyCode = "EUR"\n') + EUROPEAN
    path = write(tmp_path, "Vendor;Routing No;Account No;Account Type;Invoice;Amount\n", "euros.csv")
    cells = "V;322271627;6767200738;Checking;7;€1.234,50\nW;071000013;7232405140;Checking;8;12,00 €\n"
    write(tmp_path, Path(path).read_text() + cells, "euros.csv")
    verdict = checked(path, map_file=write(tmp_path, text, "map.toml"))
    assert (verdict.counts, verdict.valid) == ({}, Totals(2, 124_650))


@pytest.mark.parametrize("name", ["m_cents.csv", "m_cents_named.csv"])
def test_whole_numbers_are_dollars_or_cents(tmp_path: Path, name: str) -> None:
    """Nothing makes 100000.00 of 100000 until a person says what it is."""
    unknown = field(tmp_path, name, rules=REPAIRING)
    assert (unknown.counts, unknown.accepted, unknown.repairs) == ({"amount.format": 4}, {}, {})
    assert (unknown.total.cents, [one.suggestion for one in unknown.failures]) == (0, [None] * 4)
    assert "--amounts-in" in unknown.failures[0].message
    for unit, cents in (("cents", 135_615), ("dollars", 13_561_500), ("thousands", 13_561_500_000)):
        assert field(tmp_path, name, amounts_in=unit).total == Totals(4, cents)
        assert field(tmp_path, name, f'[formats.amount]\nunit = "{unit}"\n').total == Totals(4, cents)
    assert field(tmp_path, name, amounts_in="cents").valid.rows == 4


def test_thousands(tmp_path: Path) -> None:
    """A header that names the unit is not overlooked; with the unit, 2.14 is 2140.00."""
    names: dict[str, Any] = {
        "routing": "Routing",
        "account": "Account",
        "invoice": "Bill",
        "amount": "Amount (in thousands)",
    }
    assert field(tmp_path, "thou.csv", rules=REPAIRING, **names).counts == {"amount.format": 3}
    verdict = field(tmp_path, "thou.csv", '[formats.amount]\nunit = "thousands"\n', **names)
    assert (verdict.valid, verdict.counts) == (Totals(3, 894_000), {})


def test_amounts_with_a_reason(tmp_path: Path) -> None:
    """Lakhs and an apostrophe are no reason to guess: errors that say why."""
    lakhs = field(tmp_path, "m_lakh.csv", rules=REPAIRING)
    assert (lakhs.counts, lakhs.accepted) == ({"amount.format": 2}, {"amount.format": 1})
    assert all("lakhs" in one.message for one in lakhs.failures)
    apostrophes = field(tmp_path, "q_apos.csv", rules=REPAIRING)
    assert apostrophes.counts == {"amount.format": 2} and "apostrophe" in apostrophes.failures[0].message


@pytest.mark.parametrize("amounts", [["12500", "20001", "99999"], ["7"], ["100", "200"] * 40])
@pytest.mark.usefixtures("small_blocks")
def test_no_repair_without_a_unit(tmp_path: Path, amounts: list[str]) -> None:
    """Of a file of our own columns, too: neither a repair nor a suggestion makes dollars of whole numbers."""
    path = write(tmp_path, table(amounts))
    verdict = checked(path, REPAIRING)
    assert (verdict.counts, verdict.accepted, verdict.repairs) == ({"amount.format": len(amounts)}, {}, {})
    assert {one.suggestion for one in verdict.failures} == {None}
    dollars = checked(path, amounts_in="dollars")
    assert (dollars.counts, dollars.valid.cents) == ({}, 100 * sum(map(int, amounts)))
    assert checked(path, amounts_in="cents").valid.cents == sum(map(int, amounts))


@pytest.mark.usefixtures("small_blocks")
def test_one_amount_with_decimals_is_enough(tmp_path: Path) -> None:
    """Anywhere in the file: then 12 is twelve dollars, as a suggestion and a repair."""
    path = write(tmp_path, table(["12"] * 80 + ["7.50"]))
    verdict = checked(path)
    assert verdict.failures[0].suggestion == "12.00"
    assert checked(path, REPAIRING).valid == Totals(81, 96_750)


def test_cents_have_no_decimals(tmp_path: Path) -> None:
    """An amount that contradicts the stated unit is refused, one in dollars stays as it is written."""
    path = write(tmp_path, table(["1250", "12.50", "012", "€1", "1,250.00"]))
    cents = checked(path, REPAIRING, amounts_in="cents")
    assert {(one.row, one.code) for one in cents.failures} == {(2, "map"), (3, "format"), (4, "currency_mark")}
    dollars = checked(path, amounts_in="dollars")
    assert dollars.valid == Totals(2, 126_250)
    assert {one.row: one.suggestion for one in dollars.failures} == {3: None, 4: None, 5: "1250.00"}


def test_a_map_and_an_option_agree(tmp_path: Path) -> None:
    """A person can't say cents of a file whose map says dollars."""
    cells = write(tmp_path, "amount\n12\n")
    text = write(tmp_path, '[formats.amount]\nunit = "dollars"\n', "map.toml")
    with pytest.raises(FileRefused, match="in dollars, not in cents"):
        checked(cells, map_file=text, amounts_in="cents")
    with pytest.raises(FileRefused, match='unit can only be "dollars", "cents", "thousands"'):
        checked(cells, map_file=write(tmp_path, '[formats.amount]\nunit = "cent"\n', "map.toml"))


def test_yen_are_whole(tmp_path: Path) -> None:
    """A currency without cents is in no doubt, and never in cents."""
    path = write(tmp_path, table(["500", "700"], {"currencyCode": "JPY"}))
    assert {one.suggestion for one in checked(path).failures} == {"500.00", "700.00"}
    assert checked(path, amounts_in="cents").counts == {"amount.format": 2}
    assert checked(path, amounts_in="dollars").valid == Totals(2, 120_000)


CURRENCY_HEADERS = ["Currency", "Curr.", "CCY", "Währung", "devise", "Moneda"]


@pytest.mark.parametrize("header", CURRENCY_HEADERS)
@pytest.mark.parametrize("cell", ["GBP", "gbp", " £ ", "Pound Sterling"])
def test_a_column_beside_the_amounts(tmp_path: Path, header: str, cell: str) -> None:
    """A column of currencies that nothing uses is evidence all the same."""
    verdict = checked(write(tmp_path, table(["12.50", "7.00"], {header: cell})), REPAIRING)
    assert verdict.counts == {"amount.currency_mark": 2}


@pytest.mark.parametrize("cell", ["USD", "usd", "$", "US Dollar", "", "yes"])
def test_a_column_that_says_dollars_or_nothing(tmp_path: Path, cell: str) -> None:
    """No file in dollars is hurt."""
    assert checked(write(tmp_path, table(["12.50", "7.00"], {"Currency": cell}))).counts == {}


@pytest.mark.parametrize(
    ("header", "counts"),
    [
        ("Amount (GBP)", {"amount.currency_mark": 2}),
        ("EUR", {"amount.currency_mark": 2}),
        ("amount_cad", {"amount.currency_mark": 2}),
        ("Betrag in €", {"amount.currency_mark": 2}),
        ("£ Amount", {"amount.currency_mark": 2}),
        ("Amount GBP*", {"amount.currency_mark": 2}),
        ("amount_cents", {"amount.format": 2}),
        ("Amount in minor units", {"amount.format": 2}),
        ("AMOUNT (000s)", {"amount.format": 2}),
        ("Amount USD", {}),
        ("Amount ($)", {}),
        ("ALL AMOUNTS", {}),
        ("Amount Won", {}),
        ("Amount in dollars and cents", {}),
    ],
)
def test_a_header_that_names_currency_or_unit(tmp_path: Path, header: str, counts: dict[str, int]) -> None:
    """What the column of the amounts is called is read, not only who it is mapped to."""
    path = write(tmp_path, table(["12.50", "7.00"]).replace(",amount,", f",{header},", 1))
    text = write(tmp_path, f'[columns]\namount = "{header}"\n', "map.toml")
    assert checked(path, REPAIRING, map_file=text).counts == counts


def sheet(folder: Path, amounts: list[Any], formats: dict[str, str] | None = None, code: str | None = None) -> str:
    """Return a workbook of payments with these amounts, and number formats by row."""
    header = [*HEADER, "currencyCode"]
    rows = [[*(amount if name == "amount" else VALID[name] for name in HEADER), code] for amount in amounts]
    for at, row in enumerate(rows):
        row[header.index("achAccountNumber")] = f"55512{at:05d}"
    column = chr(ord("A") + header.index("amount"))
    shown = {f"{column}{at}": code for at in range(2, len(rows) + 2) for code in (formats or {}).values()}
    return workbook(folder, [header, *rows], **shown)


OTHERS = [
    "[$€-407]#,##0.00",
    '"£"#,##0.00',
    '0.00 "CAD"',
    r"#,##0.00\ [$CHF]",
    "[$¥-411]#,##0.00",
    "¥#,##0.00",
    '_-* #,##0.00\\ "kr"_-',
]


@pytest.mark.parametrize("number_format", OTHERS)
def test_a_number_format_names_a_currency(tmp_path: Path, number_format: str) -> None:
    """A number that is shown in euros is in euros, whatever its cell holds; a corrected file still says so."""
    path = sheet(tmp_path, [12.5, 7], {"": number_format})
    rejects = tmp_path / "again.xlsx"
    assert checked(path, REPAIRING, rejects=rejects).counts == {"amount.currency_mark": 2}
    assert checked(rejects, REPAIRING).counts == {"amount.currency_mark": 2}


@pytest.mark.parametrize(
    "number_format",
    [
        "$#,##0.00",
        '"$"#,##0',
        "[$$-409]#,##0.00",
        '_("$"* #,##0.00_)',
        '0.00 "USD"',
        "[$USD] 0",
        "[$-409]0.00",
        "#,##0.00_);[Red](#,##0.00)",
    ],
)
def test_a_number_format_of_dollars(tmp_path: Path, number_format: str) -> None:
    """An honest workbook is not hurt: dollars, also whole ones, are dollars where they are shown as such."""
    assert checked(sheet(tmp_path, [1250, 7], {"": number_format})).valid == Totals(2, 125_700)


def test_a_number_format_agrees_with_the_currency(tmp_path: Path) -> None:
    """Canadian dollars with their code are as right as any; another text beside the number is none."""
    assert checked(sheet(tmp_path, [12.5], {"": '0.00 "CAD"'}, "CAD")).valid.rows == 1
    hours = checked(sheet(tmp_path, [7.25], {"": '0.00 "hrs"'}))
    assert hours.counts == {"amount.format": 1} and "text beside" in hours.failures[0].message


def test_whole_numbers_of_a_workbook(tmp_path: Path) -> None:
    """A column in which every number is whole may be in cents; one with decimals anywhere is in dollars."""
    path = sheet(tmp_path, [12500, 20001])
    verdict = checked(path, REPAIRING, rejects=tmp_path / "again.xlsx")
    assert (verdict.counts, verdict.total.cents) == ({"amount.format": 2}, 0)
    assert checked(tmp_path / "again.xlsx", REPAIRING).counts == {"amount.format": 2}
    assert checked(path, amounts_in="cents").valid == Totals(2, 32_501)
    assert checked(path, amounts_in="dollars").valid == Totals(2, 3_250_100)
    assert checked(sheet(tmp_path, [12500, 20001.5])).valid == Totals(2, 3_250_150)
    assert checked(sheet(tmp_path, [12500, "20001.50"])).valid == Totals(2, 3_250_150)
    assert checked(sheet(tmp_path, [100] * 3_000 + [0.5])).valid == Totals(3_001, 30_000_050)


def test_a_currency_in_a_workbooks_format_through_a_map(tmp_path: Path) -> None:
    """The collection's workbook in Canadian dollars is never paid in US ones."""
    assert field(tmp_path, "x_cad.xlsx", rules=REPAIRING).counts == {"amount.currency_mark": 4}


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.Decimal(12, 0)])
def test_whole_numbers_of_parquet(tmp_path: Path, kind: Any) -> None:
    """Whatever their type, whole numbers alone may be cents."""
    rows = pl.DataFrame([VALID, VALID | {"achAccountNumber": "5551200001"}])
    rows.with_columns(pl.Series("amount", [12500, 20001]).cast(kind)).write_parquet(tmp_path / "whole.parquet")
    assert checked(tmp_path / "whole.parquet", REPAIRING).counts == {"amount.format": 2}
    assert checked(tmp_path / "whole.parquet", amounts_in="cents").valid == Totals(2, 32_501)
    rows.with_columns(pl.Series("amount", [12500.0, 0.5])).write_parquet(tmp_path / "mixed.parquet")
    assert checked(tmp_path / "mixed.parquet").valid == Totals(2, 1_250_050)
