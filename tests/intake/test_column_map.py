"""Maps: renamed columns, defaults, fixed values, translations; and control totals."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.control_totals import ControlTotals, require_totals, stated_totals
from batchpay.intake.maps.loading import load_mapping
from batchpay.intake.source import open_source
from batchpay.payment import Totals
from batchpay.schemas.columns import BARE_ROW, REQUIRED
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.rejects import open_rejects
from tests.support.payment_files import csv_text, line, read, rejected, workbook, write
from tests.support.whole_check import check

BANK = """\
[columns]
achRoutingNumber = "Routing #"
achAccountNumber = "Account"
billingFirstName = "First"
billingLastName = "Last"
amount = "Sum"
achDepositType = "Kind"
left_out = ["Amount"]
[defaults]
shipping = "billing"
currencyCode = "USD"
invoiceNumber = "none"
[fixed]
gatewayId = "1001"
transactionType = "DEBIT"
recurringIndicator = "FALSE"
achNameOnCheck = "Payer"
achAccountType = "PERSONAL"
achAgreementFlag = "1"
[values.achDepositType]
CHECKING = "Checking"
"""
EXPORT = """\
Routing #,Account,First,Last,Sum,Kind,Memo,invoiceNumber,Amount
021000021,0012,Ada,Byron,12.50,Checking,x,,99
21000021,0013,Max,Born,7.00,Other,y,I-2,98
"""


def test_a_banks_export(tmp_path: Path) -> None:
    """An export is fed as it is: renamed, completed, translated to the letter."""
    mapping = load_mapping(write(tmp_path, BANK, "bank.toml"))
    with open_source(write(tmp_path, EXPORT), mapping=mapping) as source:
        frame = next(source.chunks())
        assert source.carried == ("Memo",)
        assert "mapped by" in source.notes[0]
        assert set(REQUIRED) <= set(source.columns)
        assert source.own_header == tuple(EXPORT.split("\n")[0].split(","))
    row = frame.row(0, named=True)
    assert (row["shippingFirstName"], row["shippingLastName"], row["gatewayId"]) == ("Ada", "Byron", "1001")
    assert frame["achDepositType"].to_list() == ["CHECKING", "Other"]
    assert frame["invoiceNumber"].to_list() == ["none", "I-2"]
    assert frame["amount"].to_list() == ["12.50", "7.00"]


def test_what_a_map_puts_in_is_looked_at(tmp_path: Path) -> None:
    """A value of the map's own that no file could hold unnoticed is found, though the file's text is plain."""
    text = BANK.replace('"Payer"', '"Pay\\u202Eer"')
    with open_source(write(tmp_path, EXPORT), mapping=load_mapping(write(tmp_path, text, "bank.toml"))) as source:
        verdict = check(source, RuleOptions(as_of=date(2026, 11, 21)))
    assert verdict.counts["achNameOnCheck.characters"] == 2


def test_what_was_told_of_the_file_is_not_said_of_what_a_map_makes(tmp_path: Path) -> None:
    """A value of the map's own may need an escape, though no cell of the file does."""
    with open_source(write(tmp_path, EXPORT), mapping=load_mapping(write(tmp_path, BANK, "bank.toml"))) as source:
        assert all(BARE_ROW not in chunk.columns for _ in range(2) for chunk in source.chunks())
    with open_source(write(tmp_path, EXPORT.replace(",98", ",98.00")), required=()) as source:
        assert [BARE_ROW in chunk.columns for _ in range(2) for chunk in source.chunks()] == [False, True]


def test_rejects_can_be_fed_back_with_the_same_map(tmp_path: Path) -> None:
    """The rejects file has the person's own columns and cells, and is read with the same map again."""
    mapping = load_mapping(write(tmp_path, BANK, "bank.toml"))
    target = tmp_path / "rejects.csv"
    with open_source(write(tmp_path, EXPORT), mapping=mapping) as source:
        rejects = open_rejects(target, source)
        first = next(source.chunks())
        rejects.add(rejected(first))
        rejects.commit()
    assert target.read_text().splitlines()[1].endswith(",021000021,0012,Ada,Byron,12.50,Checking,x,,99")
    again = read(str(target), REQUIRED, mapping=mapping)
    assert again.drop("_line").equals(first.drop("_line"))


def test_typed_cells_under_a_map(tmp_path: Path) -> None:
    """A typed cell is judged as the column that the map makes of it."""
    mapping = load_mapping(write(tmp_path, '[columns]\nachRoutingNumber = "Routing"\namount = "Sum"\n', "m.toml"))
    frame = read(workbook(tmp_path, [["Routing", "Sum", "amt"], [21000021, 12.5, 12.345]]), mapping=mapping)
    assert frame["amount"].to_list() == ["12.50"]
    assert frame["_fault.achRoutingNumber"].to_list() == ["leading_zero"]
    assert frame["_suggest.achRoutingNumber"].to_list() == ["021000021"]


@pytest.mark.parametrize(("text", "told"), [
    ('[colums]\na = "amount"', r"\[colums\] is unknown \(did you mean columns\?\)"),
    ('[columns]\namuont = "a"', r"amuont is not a column \(did you mean amount\?\)"),
    ('[defaults]\nshipping = "x"', 'can only be "billing"'), ("[fixed]\ngatewayId = 12", "write gatewayId as text"),
    ('[fixed]\ngatewayid = "12"', "did you mean gatewayId"), ('[values]\nx = "1"', "x is not a table"),
    ('[defaults]\namount = "1"\n[fixed]\namount = "1"', "amount is in"), ("[columns", "is not a column map"),
])  # fmt: skip
def test_unknown_words_of_a_map(tmp_path: Path, text: str, told: str) -> None:
    """Whatever a map has that nothing knows is refused."""
    with pytest.raises(FileRefused, match=told):
        load_mapping(write(tmp_path, text, "map.toml"))


OLD = """\
[columns]
"Sum" = "amount"
"Payee" = ["achNameOnCheck", "billingCompany"]
"Kind" = "achDepositType"
"Memo" = ""
[split]
"Who" = ["{billingLastName}, {billingFirstName}", "{billingFirstName} {billingLastName}"]
[values.achDepositType]
"Chk" = "CHECKING"
"Giro" = "CHECKING"
[values.gatewayId]
"North" = "1001"
"""
NEW = """\
[columns]
amount = "Sum"
achNameOnCheck = "Payee"
billingCompany = "Payee"
achDepositType = "Kind"
left_out = ["Memo"]
[split]
"{billingLastName}, {billingFirstName}" = "Who"
"{billingFirstName} {billingLastName}" = "Who"
[values.achDepositType]
CHECKING = ["Chk", "Giro"]
[values.gatewayId]
1001 = "North"
"""


def test_a_map_of_before_is_read_with_a_note(tmp_path: Path) -> None:
    """Maps were written `theirs = ours`, those of exports the other way round: now both are `ours = theirs`."""
    old, new = (load_mapping(write(tmp_path, text, "m.toml")) for text in (OLD, NEW))
    assert (old.is_turned, new.is_turned) == (True, False)
    assert old.digest == new.digest
    path = write(tmp_path, "Sum,Payee,Kind,Memo,Who\n1.00,A,Chk,x,Ada King\n")
    for mapping, told in ((old, True), (new, False)):
        with open_source(path, mapping=mapping, required=()) as source:
            assert ("ours = theirs" in " ".join(source.notes)) is told


def test_a_map_that_can_be_read_both_ways_says_how_it_is_written(tmp_path: Path) -> None:
    """With our names on both sides the amount and the tax would trade places by a guess."""
    text = '[columns]\namount = "taxAmount"\ntaxAmount = "shippingTax"\n'
    with pytest.raises(FileRefused, match="can be read in two ways"):
        load_mapping(write(tmp_path, text, "m.toml"))
    named = [load_mapping(write(tmp_path, f'written = "{way}"\n{text}', "m.toml")) for way in WAYS]
    assert [one.columns["taxAmount"] for one in named] == [("amount",), ("shippingTax",)]
    both = '[columns]\namount = "amount"\n[fixed]\ngatewayId = "1"\n'
    assert load_mapping(write(tmp_path, both, "m.toml")).columns == {"amount": ("amount",)}


WAYS = ("ours = theirs", "theirs = ours")


@pytest.mark.parametrize(("text", "told"), [
    ('[values.achDepositType]\nCHECKING = "1"\nSAVINGS = ["2", "1"]', "1 is CHECKING and SAVINGS"),
    ('[columns]\namount = "Sum"\nleft_out = ["Sum"]', "Sum is left out and is amount"),
    ('[columns]\namount = ["Sum", "Tax"]', "write what amount is in the file as text"),
    ('written = "theirs"', "written can only be"),
])  # fmt: skip
def test_what_a_map_says_twice(tmp_path: Path, text: str, told: str) -> None:
    """A word or a column that stands for two things stands for none."""
    with pytest.raises(FileRefused, match=told):
        load_mapping(write(tmp_path, text, "map.toml"))


def test_a_map_of_columns_that_are_not_there(tmp_path: Path) -> None:
    """A map that renames what the file has not is the wrong map."""
    mapping = load_mapping(write(tmp_path, '[columns]\namount = "Sun"\n', "map.toml"))
    with pytest.raises(FileRefused, match=r"Sun \(did you mean Sum\?\)"):
        read(write(tmp_path, EXPORT), mapping=mapping)


def test_totals_from_options_and_sidecar(tmp_path: Path) -> None:
    """Totals come from the options or the file beside, and may not contradict each other."""
    path = write(tmp_path, csv_text(2))
    assert stated_totals(path) == ControlTotals()
    assert stated_totals(path, 2, 2500) == ControlTotals(2, 2500)
    write(tmp_path, 'rows = 2\ntotal = "25.00"\n', "payments.csv.control.toml")
    assert stated_totals(path) == ControlTotals(2, 2500)
    assert stated_totals(path, 2).stated
    with pytest.raises(FileRefused, match="totals that differ from the options"):
        stated_totals(path, 3)
    write(tmp_path, 'total = "25"\n', "payments.csv.control.toml")
    assert stated_totals(path) == ControlTotals(None, 2500)


def test_a_control_file_that_is_a_link_to_nothing(tmp_path: Path) -> None:
    """The disk that it is on is not there: the payment file was read as if nobody had stated its totals."""
    path = write(tmp_path, csv_text(1))
    Path(f"{path}.control.toml").symlink_to(tmp_path / "share" / "control.toml")
    with pytest.raises(FileRefused, match=r"control\.toml can't be read: No such file"):
        stated_totals(path)


@pytest.mark.parametrize(
    "text",
    ["row = 2", "rows = -1", "rows = true", "total = 25.0", 'total = "x"', "rows =", "", "# rows = 2\n",
     f"rows = {'9' * 5000}", f'total = "{"9" * 5000}"', "rows = " + "[" * 5000],
)  # fmt: skip
def test_broken_sidecars(tmp_path: Path, text: str) -> None:
    """A control file that states nothing clear is refused: cut off, it let a file pass that was cut off with it."""
    path = write(tmp_path, csv_text(1))
    write(tmp_path, text, "payments.csv.control.toml")
    with pytest.raises(FileRefused, match=r"control\.toml"):
        stated_totals(path)


def test_totals_are_held() -> None:
    """Another number of rows or cents refuses the file."""
    require_totals(ControlTotals(2, 2500), Totals(2, 2500))
    require_totals(ControlTotals(), Totals(7, 7))
    with pytest.raises(FileRefused, match=r"found 1 row, expected 2 and found 12\.50 in total, expected 25\.00"):
        require_totals(ControlTotals(2, 2500), Totals(1, 1250))


def test_a_line_of_another_file_is_no_total(tmp_path: Path) -> None:
    """A file that was cut at a line's end is caught by the totals alone."""
    found = read(write(tmp_path, csv_text(1) + line()), REQUIRED)
    with pytest.raises(FileRefused):
        require_totals(ControlTotals(rows=3), Totals(found.height, 0))


def test_a_blank_that_a_map_puts_in_is_no_value(tmp_path: Path) -> None:
    """A value translated or fixed to nothing is not given: the rules ask for it, and no empty text is sent."""
    text = BANK.replace('"Payer"', '""') + '[values.billingFirstName]\n"" = "Ada"\n'
    with open_source(write(tmp_path, EXPORT), mapping=load_mapping(write(tmp_path, text, "bank.toml"))) as source:
        frame = next(source.chunks())
        verdict = check(source, RuleOptions(as_of=date(2026, 11, 21)))
    assert (frame["billingFirstName"].to_list(), frame["achNameOnCheck"].to_list()) == ([None, "Max"], [None, None])
    assert verdict.counts["billingFirstName.required"] == 1
    assert verdict.counts["achNameOnCheck.required"] == 2
