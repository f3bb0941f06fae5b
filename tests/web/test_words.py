"""The page's words: what people call a field, a rule, an event, beside what their own file calls it."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay import ledger
from batchpay.ledger.records import ARRIVED, CLOCK_ACCEPTED, MACHINE_ACCEPTED, WITNESS_ACCEPTED
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.words import called
from batchpay.web.words import as_sentence, field, for_people, named, rule
from tests.support.layouts import LAYOUTS
from tests.web.house import ROWS, House
from tests.web.test_check_page import check_page, send
from tests.web.test_layouts import answered

WRITERS = {"event": 0, "Move": 2, "_say": 0, "_mover": 2, "SqliteMover": 2, "PostgresMover": 2}
"""What writes an event, and which of its arguments is the kind."""
HANDED_ON = {"kind", "event", "_event"}
"""Arguments by which one of these calls another: what they stand for is named where the first is called."""


def test_every_field_has_a_name_of_its_own() -> None:
    """People read the gateway's own names, achRoutingNumber, on every page; no two fields are called the same."""
    said = [field(column) for column in COLUMNS]
    assert len({*said}) == len(COLUMNS)
    assert [one for one in said if re.search("[a-z][A-Z]|ach ", one)] == []


@pytest.mark.parametrize(("column", "own", "shown"), [
    ("achRoutingNumber", "ABA", "<bdi>ABA</bdi> · routing number <small>achRoutingNumber</small>"),
    ("achRoutingNumber", "Routing No.", "routing number <small>achRoutingNumber</small>"),
    ("achRoutingNumber", "ach_routing_number", "routing number <small>achRoutingNumber</small>"),
    ("achRoutingNumber", None, "routing number <small>achRoutingNumber</small>"),
    ("amount", "<b>", "<bdi>&lt;b&gt;</bdi> · amount"), ("amount", None, "amount"), ("row", None, "whole row"),
])  # fmt: skip
def test_a_field_is_named_beside_its_heading(column: str, own: str | None, shown: str) -> None:
    """The file's own heading, what people say, and in small what the gateway says: each once."""
    assert named(column, own) == shown


def test_rules_and_messages_are_in_the_same_words() -> None:
    """A chip said "ascii", and a message told people to fill in achCheckNumber."""
    assert rule("achNameOnCheck.ascii") == "name on the account: special letters"
    assert for_people("fill in achCheckNumber") == "fill in check number"


@pytest.mark.parametrize(("message", "shown"), [
    ("1 row waits for a person, released by name alone: submit --release --rows 500 --reason TEXT",
     "1 row waits for a person, released by name alone, on this file's page once its other payments are sent"),
    ("it was returned, or if it is right after all, release it by name (--release --rows 500 --reason TEXT)",
     "it was returned, or if it is right after all, release it by name, on this file's page once its other payments "
     "are sent"),
    ("2 rows, 3.00, that an earlier submission rejected are valid now: submit --release --as-of 2026-11-02 --reason "
     "TEXT sends them",
     "2 rows, 3.00, that an earlier submission rejected are valid now: to send them, upload them as a file of their "
     "own"),
    ("its rows can't be seen; show or delete them, or use --include-hidden",
     "its rows can't be seen; show or delete them"),
])  # fmt: skip
def test_people_are_told_what_to_do_on_the_page(message: str, shown: str) -> None:
    """The page told people to give an option of the command line."""
    assert for_people(message) == shown


def test_a_sentence_ends_once() -> None:
    """After a failed start the run page ended in two full stops."""
    assert as_sentence("it did not start.") == as_sentence("it did not start") == "It did not start."


def test_a_file_that_can_not_be_paid_needs_no_answers(house: House) -> None:
    """The list said "needs your answers" of a file without account numbers, and its page had nothing to answer."""
    file_id = send(house, b"Payee,Amount\nAnn Lee,1.00\nBo Hart,2.00\n")
    for path in ("/", f"/files/{file_id}/check"):
        page = house.page("maria", path)
        assert "can’t be paid as it is" in page and "it has no bank details, neither routing nor account" in page
        assert "needs your answers" not in page and "until you agree" not in page
    assert "refused it: " in page and "asked which column" not in page


def test_the_last_day_told_is_the_last_day_shown(house: House) -> None:
    """Above days that ended in December it said "up to 2027-11-29", a year from now."""
    often = {
        "recurringIndicator": "TRUE", "recurringBillingCycle": "MONTHLY", "recurringEndOfMonth": "N",
        "recurringAgreementFlag": "1", "recurringStartDate": "12/07/2026", "recurringNumOfPayments": "3",
    }  # fmt: skip
    page = house.page("maria", f"/files/{house.upload(ROWS[0] | often)}/check")
    assert "Day by day, up to 2027-02-07 " in page


def test_a_file_with_its_own_headings_is_told_by_them(house: House) -> None:
    """The map, the sheet and what is wrong name a field by the file's heading, and say what it is."""
    layout = replace(payroll := LAYOUTS["payroll"], answers={**payroll.answers, "achRoutingNumber": "Bank Routing"})
    file_id = send(house, layout.make().replace("091000019", "091000018").encode())
    page = check_page(house, file_id)
    assert "<bdi>Bank Account</bdi></th><td>account number <small>achAccountNumber</small></td>" in page
    assert "no column is account holder: which one applies to all rows?" in page
    answered(layout, house, file_id)
    house.post("maria", f"/files/{file_id}/map", agreed="yes")
    house.work()
    heading = "<bdi>Bank Routing</bdi> · routing number <small>achRoutingNumber</small>"
    for path in (f"/files/{file_id}/check", f"/files/{file_id}/rows?from=1"):
        sheet = house.get("maria", path).get_data(as_text=True)
        assert f"<b>{heading}</b> <q>091000018</q> the check digit does not match" in sheet
    assert f'<th scope="col">{heading}</th>' in check_page(house, file_id)


def test_every_event_has_words(house: House) -> None:
    """History and audit said "resolved", "fenced" and "plan used": the ledger's words for what its source can write."""
    kinds = {MACHINE_ACCEPTED, CLOCK_ACCEPTED, WITNESS_ACCEPTED, ARRIVED}
    modules = [ast.parse(path.read_text("utf-8")) for path in Path(ledger.__path__[0]).rglob("*.py")]
    constants = dict[str, str]()
    for node in (node for module in modules for node in module.body if isinstance(node, ast.Assign)):
        names, values = (getattr(one, "elts", [one]) for one in (node.targets[0], node.value))
        constants |= {ast.unparse(name): ast.unparse(value) for name, value in zip(names, values, strict=False)}
    for call in (node for module in modules for node in ast.walk(module) if isinstance(node, ast.Call)):
        place = WRITERS.get(ast.unparse(call.func).rpartition(".")[2], len(call.args))
        for said in call.args[place : place + 1]:
            name = ast.unparse(said).rpartition(".")[2]
            kinds.add(constants.get(name, name).strip("'"))
    assert len(kinds) > 30 and kinds - {*called("event")} == HANDED_ON
    house.sent(*ROWS)
    page = house.page("lee", "/audit")
    assert "registered the payments of a file in the ledger" in page and "used a sealed plan in the ledger" in page
    assert "registered the payments of a file" in house.get("lee", "/audit.csv").get_data(as_text=True)
