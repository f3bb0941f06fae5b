"""Maps proposed for files in the shape of real ones: accounts payable, payroll, a bank's import, open data, exports.

The shapes are those of public files (docs/maps.md names them); names, numbers and amounts are made up here.
"""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.maps.draft import Choice, Draft, Entry, Question
from batchpay.intake.maps.evidence import NAMES, amounts, column_called, dates, ours_for
from batchpay.intake.maps.loading import mapping_of
from batchpay.intake.maps.proposal import finished, propose
from batchpay.schemas.columns import DIRECTION
from batchpay.schemas.words import header_key

ROUTING = ["021000021", "011000015", "021000322"]
ACCOUNTS = ["11391039", "483110589481", "0009988"]
PAYABLES: dict[str, list[Any]] = {
    "Vendor ID": ["V1", "V2", "V3"],
    "Vendor Name": ["Acme Supplies Inc", "Delta Tools LLC", "Max Born"],
    "Routing #": ROUTING,
    "Account #": ACCOUNTS,
    "Account Type": ["Checking", "Savings", "chk"],
    "Amount": [" $1,250.00 ", "$75.50", "$12,000.00"],
    "Invoice Number": ["1", "2", "3"],
    "Memo": [None, "x", "y"],
}


def draft_of(**changes: list[Any]) -> Draft:
    """The draft for the accounts payable with other columns, or without some."""
    cells: dict[str, list[Any]] = {**PAYABLES, **changes}
    return propose({name: pl.Series(values, dtype=pl.String) for name, values in cells.items() if values})


def asked(draft: Draft) -> dict[str, Question]:
    """Open questions by what they are about; the first of several."""
    return {question.about: question for question in reversed(draft.questions)}


def choose(draft: Draft, about: str, begins: str) -> None:
    """Answer the question about a column with the choice that begins so."""
    question = asked(draft)[about]
    assert draft.take(question, next(choice.text for choice in question.choices if choice.text.startswith(begins)))


def test_accounts_payable() -> None:
    """What name and cells both say is in the map; what no file says is asked, and nothing else."""
    draft = draft_of()
    tables = draft.tables
    assert tables["columns"] == {
        "billingInternalId": "Vendor ID", "achNameOnCheck": "Vendor Name", "achRoutingNumber": "Routing #",
        "achAccountNumber": "Account #", "achDepositType": "Account Type", "amount": "Amount",
        "invoiceNumber": "Invoice Number",
    }  # fmt: skip
    assert tables["formats"] == {"amount": {"decimal": ".", "thousands": ",", "currency": "$"}}
    assert tables["values"] == {"achDepositType": {"CHECKING": ["Checking", "chk"], "SAVINGS": ["Savings"]}}
    assert tables["fixed"] == {"recurringIndicator": "FALSE"}
    needed = {question.about for question in draft.needed}
    assert needed == {"transactionType", "billingFirstName", "gatewayId", "achAccountType", "achAgreementFlag"}
    assert [question.about for question in draft.questions if not question.is_needed] == ["paymentId"]


def test_every_answer_completes_the_map() -> None:
    """The answers make a map that reads; an answer that changes a line takes its place."""
    draft = draft_of()
    choose(draft, "transactionType", "CREDIT")
    choose(draft, "billingFirstName", "companies")
    draft.take(asked(draft)["gatewayId"], "1001")
    choose(draft, "achAccountType", "BUSINESS")
    choose(draft, "achAgreementFlag", "1")
    choose(draft, "paymentId", "yes")
    assert draft.questions == []
    assert draft.targets["Vendor Name"] == [
        "achNameOnCheck", "billingCompany", "billingFirstName", "billingLastName",
    ]  # fmt: skip
    assert draft.tables["templates"] == {"paymentId": "{Vendor ID}-{Invoice Number}"}
    text = draft.toml(["made by a test"])
    assert tomllib.loads(text) == draft.tables
    assert mapping_of(tomllib.loads(text), "map.toml").fixed["gatewayId"] == "1001"
    assert "# its name, 3 of 3 cells hold routing numbers, by their check digit" in text


def test_what_is_open_stands_in_the_file_to_be_uncommented() -> None:
    """Each line on offer is one of TOML's, and with it the question is answered; no cell stands in the file."""
    text = draft_of().toml(["made by a test"])
    offered = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    assert 'transactionType = "CREDIT"  # money is paid out, to the accounts in the file' in offered
    for line in offered:
        tomllib.loads(line)
    assert "(in place of the line above)" in text
    words = draft_of(**{"Account Type": ["1", "Checking", "1"]}).toml([])
    assert (
        'CHECKING = ["Checking"]\nSAVINGS = []\n# open: what is 1 in column Account Type? Add "1" to its list.' in words
    )
    assert not any(account in text for account in ACCOUNTS)


def test_routing_numbers_are_known_by_their_check_digit() -> None:
    """A column that nobody has a name for is found by what it holds; three numbers are no accident, two may be one."""
    renamed: dict[str, list[Any]] = {"Routing #": [], "Leitzahl": [*ROUTING]}
    assert draft_of(**renamed).targets["Leitzahl"] == ["achRoutingNumber"]
    renamed["Leitzahl"] = [ROUTING[0], ROUTING[0], ROUTING[1]]
    draft = draft_of(**renamed)
    assert "Leitzahl" not in draft.targets
    assert asked(draft)["achRoutingNumber"].choices == ()
    lost = draft_of(**{"Routing #": ["21000021", "11000015", "21000322"]})
    assert lost.targets["Routing #"] == ["achRoutingNumber"]
    wrong = draft_of(**{"Routing #": ["021000022", "011000016", "021000323"]})
    assert "Routing #" not in wrong.targets
    assert asked(wrong)["achRoutingNumber"].choices[0].text.startswith("Routing # (its name, 0 of 3 cells hold")


def test_a_column_with_our_name_is_ours_where_half_of_it_is_right() -> None:
    """Our own sample has a routing number with a wrong check digit, and its column was asked about."""
    cells = [*ROUTING[:2], "021000022"]
    draft = draft_of(**{"Routing #": [], "achRoutingNumber": cells})
    assert "achRoutingNumber" not in asked(draft)
    assert "achRoutingNumber" not in draft.targets
    assert "achRoutingNumber" in asked(draft_of(**{"Routing #": cells}))
    mostly_wrong = [ROUTING[0], "021000022", "011000016"]
    assert "achRoutingNumber" in asked(draft_of(**{"Routing #": [], "achRoutingNumber": mostly_wrong}))


def test_two_columns_of_amounts_are_a_question() -> None:
    """Net or gross: nobody but a person can say."""
    draft = draft_of(**{"Gross Pay": ["1.00", "2.00", "3.00"]})
    assert [choice.text.split(" (")[0] for choice in asked(draft)["amount"].choices] == [
        "Amount", "Gross Pay", "none of them",
    ]  # fmt: skip
    assert "transactionType" in asked(draft), "whatever the answer"
    choose(draft, "amount", "Gross Pay")
    finished(draft, [*PAYABLES, "Gross Pay"])
    assert draft.targets["Gross Pay"] == ["amount"]
    assert draft.targets["Amount"] == []  # it has the column's own name: unmapped it would be a second amount
    assert "transactionType" in asked(draft)


@pytest.mark.parametrize(("cells", "form"), [
    (["1.250,50", "-13,45", "7,00"], {"decimal": ",", "thousands": "."}),
    (["1.234", "5.678", "900"], {"decimal": ",", "thousands": "."}),
    (["1,234", "5,678", "900"], {"decimal": ".", "thousands": ","}),
    (["1 250,50", "13,45", "7"], {"decimal": ",", "thousands": " "}), (["12.5", "10", "7.25"], {"decimal": "."}),
    (["USD 12.50", "USD 7", "USD 1,000.00"], {"decimal": ".", "thousands": ",", "currency": "USD"}),
    (["12.50", "7.00", "1.00"], None),
])  # fmt: skip
def test_how_amounts_are_written(cells: list[str | None], form: dict[str, str] | None) -> None:
    """One way reads all cells: it is stated, unless it is ours."""
    tables = draft_of(Amount=cells).tables
    assert tables.get("formats", {}).get("amount") == form


def test_amounts_that_two_ways_read_differently_are_asked_about() -> None:
    """`1,234` and `12,5` can't both be: the column is left out until somebody says which."""
    draft = draft_of(Amount=["1,234", "12,5", "7"])
    assert "Amount" not in draft.targets
    question = asked(draft)["amount"]
    draft.take(question, question.choices[0].text)
    texts = [choice.text for choice in asked(draft)["amount"].choices]
    assert sorted(texts) == ["1,234 is 1234.00", "1,234 is not read (the others are like 1234,56)"]
    choose(draft, "amount", "1,234 is 1234.00")
    assert draft.targets["Amount"] == ["amount"]
    assert draft.tables["formats"]["amount"] == {"decimal": ".", "thousands": ","}


def test_what_a_sign_means_is_asked() -> None:
    """Negative amounts are refunds, credits or slips: the answer states the direction too, or asks for it."""
    draft = draft_of(Amount=["-99.00", "5.00", "(7.50)"])
    assert "2 of 3 amounts in column Amount are negative" in asked(draft)["transactionType"].text
    choose(draft, "transactionType", "CREDIT")
    assert draft.tables["formats"]["amount"]["negative"] == "CREDIT"
    assert "transactionType" not in asked(draft)
    draft = draft_of(Amount=["-99.00", "5.00", "(7.50)"])
    choose(draft, "transactionType", "they are not payments")
    assert asked(draft)["transactionType"].text == "which way does the money move?"


def test_day_and_month_are_never_guessed() -> None:
    """Dates that can be read in two ways are asked about; the column is left out until they are."""
    draft = draft_of(**{"Start Date": ["03/04/2026", "05/04/2026", None]})
    assert "Start Date" not in draft.targets
    choose(draft, "recurringIndicator", "TRUE")
    assert "Start Date" not in draft.targets
    texts = [choice.text for choice in asked(draft)["recurringStartDate"].choices]
    assert texts == ["03/04/2026 is March 4, 2026", "03/04/2026 is April 3, 2026"]
    choose(draft, "recurringStartDate", "03/04/2026 is April")
    assert draft.tables["formats"]["recurringStartDate"] == {"date": "%d/%m/%Y"}
    sure = draft_of(**{"Start Date": ["31/12/2026", "05/04/2026", None]})
    choose(sure, "recurringIndicator", "TRUE")
    assert sure.tables["formats"]["recurringStartDate"] == {"date": "%d/%m/%Y"}
    assert "recurringEndOfMonth" in asked(sure)
    ours = draft_of(**{"Start Date": ["12/31/2026", "05/04/2026", None]})
    choose(ours, "recurringIndicator", "TRUE")
    assert "recurringStartDate" not in ours.tables.get("formats", {})


def test_words_that_might_be_anything_are_asked_about() -> None:
    """A bank's import writes 1 for checking and 2 for savings: a convention, and no proof."""
    draft = draft_of(**{"Account Type": ["1", "2", "1"]})
    (both,) = [question for question in draft.needed if question.about == "achDepositType"]
    texts = ["1 is CHECKING; 2 is SAVINGS", "1 is SAVINGS; 2 is CHECKING", "each word apart"]
    assert [choice.text for choice in both.choices] == texts
    choose(draft, "achDepositType", "each word apart")
    choose(draft, "achDepositType", "CHECKING")
    assert draft.tables["values"]["achDepositType"] == {"CHECKING": ["1"]}
    assert asked(draft)["achDepositType"].text == "what is 2 in column Account Type?"
    draft = draft_of(**{"Account Type": ["1", "2", "1"]})
    choose(draft, "achDepositType", "1 is SAVINGS")
    assert draft.tables["values"]["achDepositType"] == {"SAVINGS": ["1"], "CHECKING": ["2"]}


def test_one_column_says_two_things() -> None:
    """`Personal Checking` is whose account it is and what kind; `Business` is only the first."""
    both = draft_of(**{"Account Type": ["Personal Checking", "Business Checking", "Business Savings"]}).tables
    assert both["columns"]["achDepositType"] == both["columns"]["achAccountType"] == "Account Type"
    assert both["values"]["achAccountType"]["PERSONAL"] == ["Personal Checking"]
    assert both["values"]["achDepositType"]["SAVINGS"] == ["Business Savings"]
    draft = draft_of(**{"Account Type": ["Personal", "Business", "Business"]})
    assert draft.targets["Account Type"] == ["achAccountType"]
    assert "achDepositType" in asked(draft)


def test_names_of_people() -> None:
    """First and last names make the name on the account; a whole name is split as a person says, never by itself."""
    names: dict[str, list[Any]] = {"Vendor Name": [], "First Name": ["Ada"] * 3, "Last Name": ["B", "C", "D"]}
    tables = draft_of(**names).tables
    assert tables["templates"] == {"achNameOnCheck": "{First Name} {Last Name}"}
    draft = draft_of(**{"Vendor Name": ["Byron, Ada", "Fox, Tom", "Ruiz, Carla Maria"]})
    texts = [choice.text for choice in asked(draft)["billingFirstName"].choices]
    assert texts[1] == "people, last name and a comma first (3 of 3 can be split reliably)"
    choose(draft, "billingFirstName", "people, last name")
    assert draft.tables["split"] == {"{billingLastName}, {billingFirstName}": "Vendor Name"}


def test_open_data_of_a_city_lacks_accounts() -> None:
    """Published vendor payments name no bank: no general ledger's account is taken for a bank's."""
    cells = {
        "CHECK_NO": ["1001", "1002"], "CHK_DATE": ["01/15/2026", "01/16/2026"], "VENDOR": ["77", "78"],
        "NAME": ["ACME", "DELTA"], "INVOICE": ["A-1", "A-2"], "ACCOUNT": ["610010", "610020"],
        "AMOUNT": ["1.50", "2.50"],
    }  # fmt: skip
    draft = propose({name: pl.Series(values) for name, values in cells.items()})
    assert draft.tables["columns"] == {
        "achCheckNumber": "CHECK_NO", "invoiceNumber": "INVOICE", "amount": "AMOUNT",
        **dict.fromkeys(("achNameOnCheck", "billingCompany", "billingFirstName", "billingLastName"), "NAME"),
    }  # fmt: skip
    assert "can't be paid by ACH" in asked(draft)["achRoutingNumber"].text
    assert len(draft.questions) == 1


def test_a_payment_id_is_offered_only_where_it_tells_the_rows_apart() -> None:
    """A template of cells that two rows share would reject both."""
    assert "from its Vendor ID and Invoice Number, so that" in asked(draft_of())["paymentId"].text
    assert "paymentId" not in asked(draft_of(**{"Vendor ID": ["V1", "V1", "V3"], "Invoice Number": ["1", "1", "3"]}))
    assert "paymentId" not in asked(draft_of(**{"Invoice Number": ["1", None, "3"]}))


def test_a_file_without_a_header() -> None:
    """A first payment is no header: its account number would stand in the map."""
    with pytest.raises(FileRefused, match="its first row looks like a payment"):
        propose({"021000021": pl.Series(["011000015"]), "12.50": pl.Series(["7.00"]), "Ada": pl.Series(["Bob"])})


def test_states_and_countries_are_translated() -> None:
    """Names of states and countries have one code each; what is none stays, and the rules tell it."""
    tables = draft_of(State=["Texas", "ON", "Maine"], Country=["United States", "CA", "usa"]).tables
    assert tables["values"]["billingState"] == {"TX": ["Texas"], "ME": ["Maine"]}
    assert tables["values"]["billingCountry"] == {"US": ["United States", "usa"]}


def test_a_slip_in_a_name_is_a_question() -> None:
    """A name like one that is known is probably that, and nobody knows."""
    draft = draft_of(**{"Vendor Name": [], "Vendor Nmae": ["A", "B", "C"]})
    assert asked(draft)["achNameOnCheck"].choices[0].text == "Vendor Nmae (a name like it, 3 of 3 cells hold letters)"


def test_names_stand_once() -> None:
    """No name means two columns, whatever its case, blanks and signs."""
    assert len(NAMES) == len(set(NAMES))
    assert column_called("ROUTING  #") == ("achRoutingNumber", True)
    assert column_called("Balance") is None and column_called("Memo") is None
    assert header_key("Acct. #") == "acctno"
    assert ours_for("achDepositType", "Business Checking") == "CHECKING" and ours_for("achDepositType", "C") is None


def test_evidence_of_nothing() -> None:
    """Cells that are no amounts and no dates are written in no way."""
    cells = pl.Series(["x", "y"])
    assert amounts(cells).best == () and dates(cells).best == ()
    assert not amounts(pl.Series(["1,50", "2.50"])).is_certain
    assert not amounts(pl.Series(["1.50"] * 10 + ["2,50"])).is_certain
    assert amounts(pl.Series(["1.50"] * 10 + ["x"])).is_certain


def test_any_text_is_a_line_of_toml() -> None:
    """Names out of a file may hold anything that TOML's quotation marks can."""
    wild: dict[str, Any] = {'a"b\\c\n\x7f\x00': "amount", "ü €": "taxAmount"}
    draft = Draft([Entry("columns", key, value, "why\nnot") for key, value in wild.items()])
    draft.questions.append(Question("amount", "which\n[fixed]?", (Choice("x", (Entry("fixed", "amount", '"\n'),)),)))
    found = tomllib.loads(draft.toml(["head\nline"]))
    assert found == {"open": ["amount: which\n[fixed]?"], "columns": wild, "fixed": {}}


def test_debits_and_credits_in_two_columns_are_one_question() -> None:
    """A map could take one of the two columns only."""
    amounts = {"Amount": [], "Debit": ["1.250,50", None, "7,00"], "Credit": [None, "20,00", "0,00"]}
    draft = draft_of(**amounts)
    assert "A bank's own Debit column usually means that you pay." in asked(draft)["amount"].text
    choose(draft, "amount", "Debit is paid out")
    assert {key: draft.tables["columns"][key] for key in ("debit", "credit")} == {"credit": "Debit", "debit": "Credit"}
    assert draft.tables["formats"]["amount"] == {"decimal": ",", "thousands": "."}
    assert DIRECTION not in asked(draft)
    mapping_of(draft.tables, "m.toml")


@pytest.mark.parametrize(("header", "words", "signs", "ways"), [
    ("S/H", "HSH", "", {"CREDIT": ["H"], "DEBIT": ["S"]}), ("D/C", "CDC", "", {"CREDIT": ["C"], "DEBIT": ["D"]}),
    ("Kennzeichen", "SHS", "", {"CREDIT": ["H"], "DEBIT": ["S"]}),
    ("Soll/Haben", "HSH", "-", {"CREDIT": ["H"], "DEBIT": ["S"]}),
])  # fmt: skip
def test_words_of_a_direction(header: str, words: str, signs: str, ways: dict[str, list[str]]) -> None:
    """A column of S and H was not used, and one direction asked for all rows: what came back was paid."""
    signed = {word: signs if word == "S" else "" for word in words}
    draft = draft_of(**{header: [*words], "Amount": [f"{at}.50{signed[word]}" for at, word in enumerate(words, 1)]})
    if header == "Kennzeichen":
        choose(draft, DIRECTION, "Kennzeichen (3 of 3 cells hold words that are known)")
    choose(draft, DIRECTION, "CREDIT: ")
    assert draft.tables["columns"][DIRECTION] == header
    assert draft.tables["values"][DIRECTION] == ways
    assert draft.tables.get("formats", {"amount": {}})["amount"].get("negative") == ("DEBIT" if signs else None)
    assert DIRECTION not in asked(draft)


def test_transaction_codes_say_the_kind_of_account_too() -> None:
    """22 and 32 pay, 27 and 37 collect; 22 and 27 are checking."""
    draft = draft_of(**{"Account Type": [], "Tran Code": ["22", "37", "22"]})
    choose(draft, DIRECTION, "CREDIT: 22 is paid out; DEBIT: 37 is collected")
    assert draft.targets["Tran Code"] == [DIRECTION, "achDepositType"]
    assert draft.tables["values"]["achDepositType"] == {"CHECKING": ["22"], "SAVINGS": ["37"]}


def test_words_that_may_be_no_payments_are_asked_one_by_one() -> None:
    """A credit memo among payments is money that nobody is owed: its rows can be left out."""
    draft = draft_of(Type=["Payment", "Credit memo", "Payment"])
    choose(draft, DIRECTION, "Type (3 of 3")
    choose(draft, DIRECTION, "it is no payment")
    choose(draft, DIRECTION, "CREDIT: it is paid out")
    finished(draft, [*PAYABLES, "Type"])
    assert draft.tables["rows"] == {"column": "Type", "left_out": ["Credit memo"], "payments": ["Payment"]}
    mapping_of(draft.tables, "m.toml")


def test_which_words_of_a_status_are_payments() -> None:
    """Voided and paid bills were paid with the others; an unknown word is asked by itself."""
    draft = draft_of(Status=["Open", "Voided", "Frobnicated"])
    first, second = (question for question in draft.questions if question.about == "rows")
    assert (first.choices[0].text, second.text) == (
        "left out: Voided (1 row); Open (1 row) is paid",
        "is a row with Frobnicated (1 row) in column Status a payment?",
    )
    choose(draft, "rows", "left out")
    choose(draft, "rows", "no: left out")
    rows = {"column": "Status", "left_out": ["Voided", "Frobnicated"], "payments": ["Open"]}
    assert draft.tables["rows"] == rows
    assert draft_of(Status=["Open", "Approved", "Open"]).tables["rows"]["payments"] == ["Open", "Approved"]
    assert "rows" in asked(draft_of(X=["Open", "Paid", "Open"])), "by its words alone"
    for honest in ({"Marital Status": ["single", "married", "divorced"]}, {"Paid": ["TRUE", "FALSE", "TRUE"]}):
        assert "rows" not in asked(draft_of(**honest))


def test_recurring_payments_are_asked_with_all_their_fields() -> None:
    """Thirty monthly gifts were thirty debits today."""
    columns = {
        "Frequency": ["Monthly", "Weekly", "monthly"],
        "Next Gift Date": ["12/1/2026", "12/13/2026", "12/9/2026"],
    }
    draft = draft_of(**columns)
    (recurring,) = [one for one in draft.questions if one.about == "recurringIndicator"]
    assert "rows with Weekly are errors: the gateway has only MONTHLY and DAILY" in recurring.choices[0].text
    choose(draft, "recurringIndicator", "TRUE")
    draft.take(asked(draft)["recurringNumOfPayments"], "12")
    assert draft.tables["values"]["recurringBillingCycle"] == {"MONTHLY": ["Monthly", "monthly"]}
    fixed = {"recurringIndicator": "TRUE", "recurringAgreementFlag": "1", "recurringEndOfMonth": "N"}
    assert draft.tables["fixed"] == {**fixed, "recurringNumOfPayments": "12"}
    assert draft.targets["Next Gift Date"] == ["recurringStartDate"]
    once = draft_of(**columns)
    choose(once, "recurringIndicator", "FALSE")
    assert "Next Gift Date" not in once.targets and "recurringStartDate" not in asked(once)


def test_the_amount_that_fits_comes_first() -> None:
    """Gross and net stand in both rows of a person with two accounts; only the parts add up to what is due."""
    draft = draft_of(**{
        "Vendor ID": ["E1", "E2", "E1"], "Amount": [], "Gross Pay": ["100.00", "80.00", "100.00"],
        "Net Pay": ["70.00", "60.00", "70.00"], "Deposit": ["50.00", "60.00", "20.00"],
    })  # fmt: skip
    texts = [choice.text for choice in asked(draft)["amount"].choices]
    assert texts[0].startswith("Deposit (3 of 3 cells hold amounts, adding up to Net Pay for each payee")
    assert [text.split(" (")[0] for text in texts[1:]] == ["Net Pay", "Gross Pay", "none of them"]


@pytest.mark.parametrize(("name", "cells", "currencies"), [
    ("Amount", ["€1,00", "€2,00", "€3,00"], ["EUR"]), ("Amount (GBP)", ["1.00", "2.00", "3.00"], ["GBP"]),
    ("Amount", ["¥1,000", "¥2,000", "¥3,000"], ["JPY", "CNY"]), ("Amount USD", ["1.00", "2.00", "3.00"], None),
])  # fmt: skip
def test_amounts_in_another_currency_are_asked_about(name: str, cells: list[Any], currencies: list[str] | None) -> None:
    """Euros were read as dollars, one for one."""
    draft = draft_of(**{"Amount": [], name: cells})
    assert draft.targets[name] == ["amount"]
    question = asked(draft).get("currencyCode")
    assert (question and [choice.text for choice in question.choices]) == currencies
    known = draft_of(**{"Amount": [], name: cells, "Curr.": ["EUR"] * 3})
    assert known.targets["Curr."] == ["currencyCode"] and "currencyCode" not in asked(known)


def test_a_list_of_words_is_known_by_what_it_holds() -> None:
    """A column of Checking and Savings under a strange name was not seen, and one value asked for all."""
    draft = draft_of(**{"Account Type": [], "Sorte": ["Checking", "Savings", "Checking"]})
    question = asked(draft)["achDepositType"]
    assert [choice.text.split(" (")[0] for choice in question.choices] == [
        "Sorte", "CHECKING: all are checking accounts", "SAVINGS: all are savings accounts",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "cells", "choices"), [
    ("Amount", ["12500", "20001", "9"], ["dollars: 12500 is 12,500.00", "cents: 12500 is 125.00", "thousands"]),
    ("amount_cents", ["12500", "20001", "9"], ["cents: 12500 is 125.00", "dollars: 12500 is 12,500.00", "thousands:"]),
    ("Amount (in thousands)", ["2.14", "3.5", "1.00"], ["thousands: 2.14 is 2,140.00", "dollars: 2.14 is 2.14"]),
    ("Betrag", ["1.250", "2.500", "3.750"], ["dollars: 1.250 is 1,250.00", "cents: 1.250 is 12.50", "thousands"]),
    ("Amount", ["$12", "$15", "$7"], []), ("Amount", ["12.50", "15", "7"], []),
])  # fmt: skip
def test_what_amounts_are_in_is_asked(name: str, cells: list[Any], choices: list[str]) -> None:
    """Cents were paid as dollars, a hundred times what was due, and thousands as single dollars."""
    draft = draft_of(**{"Amount": [], name: cells})
    found = [choice for one in draft.questions if one.about == "amount" for choice in one.choices]
    assert len(found) == len(choices)
    assert all(choice.text.startswith(text) for choice, text in zip(found, choices, strict=True))
    if choices:
        choose(draft, "amount", choices[0])
        assert draft.tables["formats"]["amount"]["unit"] == choices[0].split(":")[0]
        assert mapping_of(draft.tables, "m.toml").columns[name] == ("amount",)


def test_days_of_payment_are_asked_about() -> None:
    """Next month's payments left today: the column of their days was not used."""
    days = ["01/15/2027", "01/29/2027", "01/13/2027"]
    draft = draft_of(**{"Pay Date": days})
    texts = [choice.text for choice in asked(draft)["payOn"].choices]
    assert texts == ["on the day in Pay Date (01/13/2027 to 01/29/2027)", "all today: the dates are not used"]
    choose(draft, "payOn", "on the day")
    assert draft.targets["Pay Date"] == ["payOn"]
    unsure = draft_of(Due=["03/04/2027", "05/04/2027", "05/04/2027"])
    assert [choice.text.split(": ")[1] for choice in asked(unsure)["payOn"].choices] == [
        "03/04/2027 is March 4, 2027", "03/04/2027 is April 3, 2027", "the dates are not used",
    ]  # fmt: skip
    choose(unsure, "payOn", "all today")
    assert "Due" not in unsure.targets
    theirs = draft_of(Fälligkeit=["09.11.2026", "27.11.2026", "11.11.2026"])
    choose(theirs, "payOn", "on the day in Fälligkeit (11/09/2026 to 11/27/2026)")
    assert theirs.tables["formats"]["payOn"] == {"date": "%d.%m.%Y"}
