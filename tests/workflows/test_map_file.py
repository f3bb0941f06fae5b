"""`batchpay map`: questions answered one after the other, first rows without account numbers, no file overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import FileRefused, WaitingForPerson, WrongUse
from batchpay.intake.maps.draft import Question
from batchpay.intake.maps.loading import load_mapping
from batchpay.workflows import map_file
from batchpay.workflows.map_file import FileToMap, Proposed, propose_map
from batchpay.workflows.template import make_template
from tests.support.payment_files import workbook, write

PAYROLL = """\
Employee,Routing Number,Account Number,Account Type,Net Amount,Status
Carla Ruiz,021000021,000123456789,checking,1308.82,OK
Tom Fox,011000015,000987654321,savings,1019.06,OK
Sara Ann Chan,,,,2061.85,NO DIRECT DEPOSIT
"""
ANSWERS: Mapping[str, str] = {
    "transactionType": "CREDIT", "billingFirstName": "people, first", "gatewayId": "1001",
    "achAccountType": "PERSONAL", "achAgreementFlag": "1",
}  # fmt: skip


@dataclass
class Person:
    """Answers by the column a question is about; what has no answer stays open."""

    answers: Mapping[str, str]
    asked: list[str] = field(default_factory=list)
    second_thoughts: dict[str, str] = field(default_factory=dict)

    def answer(self, question: Question, number: int, open_count: int) -> str:
        """Choose the option that begins as the answer does."""
        assert number >= 1 <= open_count
        self.asked.append(question.about)
        answer = self.answers.get(question.about)
        if answer is None or not question.choices:
            return answer or ""
        return next(choice.text for choice in question.choices if choice.text.startswith(answer))

    def take_back(self, proposed: Proposed) -> str | None:
        """Take back what there are second thoughts about, once each."""
        key = next((key for key in proposed.answers if key.split(":")[0] in self.second_thoughts), None)
        if key is not None:
            about = key.split(":")[0]
            self.answers = {**self.answers, about: self.second_thoughts.pop(about)}
        return key


def test_a_person_completes_the_map(tmp_path: Path) -> None:
    """Asked once each, the questions of a payroll make a map by which it is read."""
    path, person = write(tmp_path, PAYROLL, "payroll.csv"), Person(ANSWERS)
    proposed = propose_map(FileToMap(path), person, tmp_path / "payroll.toml")
    assert sorted(person.asked) == sorted(ANSWERS)
    assert (proposed.exit_code, proposed.rows, proposed.is_whole) == (0, 3, True)
    assert (tmp_path / "payroll.toml").stat().st_mode & 0o777 == 0o600
    assert load_mapping(str(tmp_path / "payroll.toml")).fixed["transactionType"] == "CREDIT"
    first, _, third = proposed.preview
    assert (first["achAccountNumber"], first["billingFirstName"], first["amount"]) == ("****6789", "Carla", "1308.82")
    assert "in exactly one way" in third["billingFirstName"]
    assert proposed.next_command.endswith(f"--map {tmp_path / 'payroll.toml'}")


def test_without_a_person_what_is_certain_is_written(tmp_path: Path) -> None:
    """With nobody to ask, the file has the rest to be filled in, and the call says that someone must."""
    path = write(tmp_path, PAYROLL, "payroll.csv")
    proposed = propose_map(FileToMap(path), None, tmp_path / "payroll.toml")
    assert proposed.exit_code == 8
    assert {question.about for question in proposed.draft.needed} == set(ANSWERS)
    text = (tmp_path / "payroll.toml").read_text()
    with pytest.raises(WaitingForPerson, match="open questions"):
        load_mapping(str(tmp_path / "payroll.toml"))
    assert 'amount = "Net Amount"' in text
    assert '#   transactionType = "CREDIT"' in text
    assert "0001234" not in text and "6789" not in text


def test_an_answer_can_be_taken_back(tmp_path: Path) -> None:
    """Before the map is written the result is shown; only what was taken back is asked again."""
    person = Person(ANSWERS, second_thoughts={"transactionType": "DEBIT"})
    proposed = propose_map(FileToMap(write(tmp_path, PAYROLL)), person, tmp_path / "payroll.toml")
    assert sorted(person.asked) == sorted([*ANSWERS, "transactionType"])
    assert load_mapping(str(tmp_path / "payroll.toml")).fixed["transactionType"] == "DEBIT"
    assert [key.split(":")[0] for key in proposed.answers] == person.asked[:-1]
    again = propose_map(FileToMap(write(tmp_path, PAYROLL)), None, None, proposed.answers)
    assert again.draft.tables == proposed.draft.tables
    text = (tmp_path / "payroll.toml").read_text()
    assert 'transactionType = "DEBIT"  # answered: money is collected' in text
    assert "To take an answer back, correct its line here" in text


def test_the_most_important_question_comes_first(tmp_path: Path) -> None:
    """What the file can't be paid without comes first and alone; then what decides about the money."""
    person = Person({})
    propose_map(FileToMap(write(tmp_path, PAYROLL)), person, None)
    assert person.asked[:2] == ["transactionType", "billingFirstName"]
    published = "Vendor,Invoice,Amount,Date\nAcme,1,7.00,2026-11-20\nDelta,2,8.50,2026-11-20\n"
    (only,) = propose_map(FileToMap(write(tmp_path, published)), person, None).draft.questions
    assert only.text.startswith("the file can't be paid by ACH: it has no bank details")
    grouped = (
        "Vendor,Routing,Account,Amount\nAcme,,,\n,081000210,29150563,25.50\n,081000210,29150563,19.25\n"
        "Total Acme,,,44.75\nDelta,,,\n,111000025,31650366,7.00\nTOTAL,,,51.75\n"
    )
    (only,) = propose_map(FileToMap(write(tmp_path, grouped)), person, None).draft.questions
    assert only.text.startswith("the file is a report grouped by payee")


def test_what_is_left_open_is_not_asked_again(tmp_path: Path) -> None:
    """A person who does not know continues to the next question."""
    person = Person({})
    proposed = propose_map(FileToMap(write(tmp_path, PAYROLL)), person, None)
    assert sorted(person.asked) == sorted(ANSWERS)
    assert proposed.exit_code == 8


def test_what_may_stay_open(tmp_path: Path) -> None:
    """A paymentId is offered, not required: without an answer the map is complete."""
    text = PAYROLL.replace("Status", "Invoice").replace("OK", "7", 1)
    person = Person(ANSWERS)
    proposed = propose_map(FileToMap(write(tmp_path, text)), person, None)
    assert "paymentId" in person.asked
    assert proposed.exit_code == 0


def test_no_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map holds decisions: it is never replaced, nor is a payment file, nor one that appeared meanwhile."""
    path = write(tmp_path, PAYROLL, "payroll.csv")
    for there in (Path(path), tmp_path / "dangling"):
        if there.name == "dangling":
            there.symlink_to(tmp_path / "none")
        person = Person(ANSWERS)
        with pytest.raises(WrongUse, match="never overwritten"):
            propose_map(FileToMap(path), person, there)
        assert person.asked == []  # nobody answers for nothing
    assert Path(path).read_text() == PAYROLL
    target = tmp_path / "late.toml"
    ask = map_file._ask
    monkeypatch.setattr(map_file, "_ask", lambda *given: (ask(*given), target.write_text("mine"))[0])
    with pytest.raises(WrongUse, match="never overwritten"):
        propose_map(FileToMap(path), Person(ANSWERS), target)
    assert target.read_text() == "mine"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["dangling", "late.toml", "payroll.csv"]


def test_no_account_number_is_shown_whole(tmp_path: Path) -> None:
    """An account number in the wrong column, or in a column that nobody knows, is masked or not shown at all."""
    text = (
        "Payee,ABA #,Invoice No,Vendor No,Iban like,Amt\nAcme 5566778899,021000021,5566778899,5566778899,5566778899,1\n"
    )
    proposed = propose_map(FileToMap(write(tmp_path, text)), Person({"achAccountNumber": "Iban"}), None)
    shown = json.dumps([*proposed.preview, proposed.draft.tables, [q.text for q in proposed.draft.questions]])
    assert "5566778899" not in shown
    assert proposed.preview[0]["invoiceNumber"] == "****8899"
    assert proposed.preview[0]["achRoutingNumber"] == "021000021"


def test_of_a_short_account_nothing_is_shown(tmp_path: Path) -> None:
    """Its last four would be all of it."""
    path = write(tmp_path, PAYROLL.replace("000123456789", "6789"), "payroll.csv")
    proposed = propose_map(FileToMap(path), Person(ANSWERS), tmp_path / "payroll.toml")
    assert proposed.preview[0]["achAccountNumber"] == "****"
    assert "6789" not in proposed.preview[0].values()


def test_a_workbook_with_title_rows(tmp_path: Path) -> None:
    """The header is found by the names that other systems use; numbers and dates are what they are."""
    rows: list[list[Any]] = [
        ["City of Somewhere", None, None, None], ["Vendor payments", None, None, None], [None] * 4,
        ["Vendor Name", "Routing Number", "Account Number", "Amount"],
        ["Acme", "021000021", "0012345", 1234.5], ["Delta", "011000015", "0098765", 7],
    ]  # fmt: skip
    path = workbook(tmp_path, rows)
    proposed = propose_map(FileToMap(path), None, tmp_path / "names.toml")
    assert [row["amount"] for row in proposed.preview] == ["1234.50", "7.00"]
    assert proposed.sheet == "Sheet"


def test_only_the_first_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of millions of rows is not read to its end, and the answer says so."""
    monkeypatch.setattr(map_file, "ROWS_MAX", 2)
    proposed = propose_map(FileToMap(write(tmp_path, PAYROLL)), None, None)
    assert not proposed.is_whole


@pytest.mark.parametrize("text", ["", "021000021,0012345,7.00\n011000015,0012345,8.00\n"])
def test_what_is_not_a_table_is_refused(tmp_path: Path, text: str) -> None:
    """An empty file, and one without a header, have nothing to map."""
    with pytest.raises(FileRefused):
        propose_map(FileToMap(write(tmp_path, text)), None, None)


def test_a_column_that_would_be_taken_for_ours_is_left_out(tmp_path: Path) -> None:
    """A name like one of ours next to the column that became it: the map was refused as soon as it was used."""
    text = PAYROLL.replace("Status", "Amounts").replace("OK", "9.99")
    path = write(tmp_path, text, "payroll.csv")
    proposed = propose_map(FileToMap(path), Person(ANSWERS), tmp_path / "payroll.toml")
    (left,) = [column for column in proposed.columns if column.name == "Amounts"]
    assert (left.targets, "would take it for its own" in left.why) == ((), True)
    assert proposed.preview[0]["amount"] == "1308.82"
    assert load_mapping(str(tmp_path / "payroll.toml")).columns["Amounts"] == ()


def test_a_column_whose_name_polars_takes_for_others_is_left_out(tmp_path: Path) -> None:
    """The map that was proposed for a file with a column `*` was refused for it as soon as it was used."""
    path = write(tmp_path, PAYROLL.replace("Status", "*"), "payroll.csv")
    proposed = propose_map(FileToMap(path), Person(ANSWERS), tmp_path / "payroll.toml")
    assert (proposed.exit_code, proposed.is_whole) == (0, True)
    assert load_mapping(str(tmp_path / "payroll.toml")).columns["*"] == ()


def test_a_column_of_our_name_prompts_for_its_direction(tmp_path: Path) -> None:
    """A map was called complete, and the file was refused with it: no column and no answer said CREDIT or DEBIT."""
    path = write(tmp_path, PAYROLL.replace("Net Amount", "amount"), "payroll.csv")
    assert "transactionType" in {question.about for question in propose_map(FileToMap(path), None, None).draft.needed}
    proposed = propose_map(FileToMap(path), Person(ANSWERS), None)
    assert (proposed.exit_code, proposed.preview[0]["transactionType"]) == (0, "CREDIT")
    (ours,) = [column for column in proposed.columns if column.name == "amount"]
    assert (ours.targets, ours.why) == (("amount",), "it has the column's own name")


def test_of_two_columns_that_differ_in_case_the_one_with_amounts_is_used(tmp_path: Path) -> None:
    """Both were left out, and the map without any amount was called complete."""
    path = write(tmp_path, PAYROLL.replace("Net Amount", "amount").replace("Status", "Amount"), "payroll.csv")
    proposed = propose_map(FileToMap(path), Person(ANSWERS), tmp_path / "payroll.toml")
    columns = load_mapping(str(tmp_path / "payroll.toml")).columns
    assert (columns["amount"], columns["Amount"]) == (("amount",), ())
    assert (proposed.exit_code, proposed.preview[0]["amount"]) == (0, "1308.82")


def test_what_becomes_of_a_column_of_our_name_is_reported_accurately(tmp_path: Path) -> None:
    """Not `it has the column's own name`: whoever reviews the map reads what really becomes of each column."""
    text = PAYROLL.replace("Employee", "achNameOnCheck").replace("Status", "achRoutingNumber")
    proposed = propose_map(FileToMap(write(tmp_path, text)), Person(ANSWERS), None)
    told = {column.name: (column.targets, column.why) for column in proposed.columns}
    assert told["achNameOnCheck"] == (("billingFirstName", "billingLastName"), "")
    assert told["achRoutingNumber"] == ((), "left out: batchpay can't use the name, or would take it for its own")


def test_a_header_without_rows_has_nothing_to_propose_from(tmp_path: Path) -> None:
    """Someone tries the command before the first file comes: every question is open, and nothing breaks."""
    proposed = propose_map(FileToMap(write(tmp_path, PAYROLL.splitlines()[0] + "\n")), None, None)
    assert (proposed.rows, proposed.is_whole, proposed.preview, proposed.exit_code) == (0, True, (), 8)
    assert {column.targets for column in proposed.columns} == {()}


def test_an_existing_file_is_replaced_only_on_a_persons_word(tmp_path: Path) -> None:
    """Someone typed a month of payments into it."""
    path = tmp_path / "payments.csv"
    make_template(path, replace=False)
    made = path.read_bytes()
    path.write_text("typed by hand")
    with pytest.raises(WrongUse, match="already exists"):
        make_template(path, replace=False)
    assert path.read_text() == "typed by hand"
    make_template(path, replace=True)
    assert path.read_bytes() == made


def test_what_the_map_makes_is_shown_in_totals(tmp_path: Path) -> None:
    """Thirty green rows were agreed to of which six were refunds: three first rows show none of that."""
    text = "Payee,ABA #,Acct #,Amt,D/C,Status,Ordered,Memo\n"
    rows = (("10.00", "C", "Open"), ("20.00", "C", "Voided"), ("2.50", "D", "Open"), ("5.00", "C", "Open"))
    for at, (amount, way, status) in enumerate(rows):
        text += f"Ada Byron,021000021,00123{at},{amount},{way},{status},2026-11-0{at + 1},x\n"
    answers = {**ANSWERS, "transactionType": "CREDIT: C is paid out", "rows": "left out", "achDepositType": "CHECKING"}
    proposed = propose_map(FileToMap(write(tmp_path, text)), Person(answers), None)
    assert [(one.by, one.value, one.totals.rows, one.totals.cents) for one in proposed.totals] == [
        ("column Status", "Open", 3, 1750), ("currencyCode", "USD", 3, 1750), ("left out", "Voided", 1, 2000),
        ("transactionType", "CREDIT", 2, 1500), ("transactionType", "DEBIT", 1, 250),
    ]  # fmt: skip
    unused = {one.name: one.evidence for one in proposed.columns if not (one.targets or one.why)}
    assert unused == {"Ordered": "date", "Memo": None}
    assert proposed.as_json()["totals"][2] == {"by": "left out", "value": "Voided", "rows": 1, "amount": "20.00"}
