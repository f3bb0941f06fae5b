"""The page's words: what people call a field, a rule, an event, beside what their own file calls it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from batchpay.schemas.columns import COLUMNS
from batchpay.web.words import field, named, rule, without_options
from tests.support.layouts import LAYOUTS
from tests.web.house import House
from tests.web.test_check_page import check_page, send
from tests.web.test_layouts import answered


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
    assert without_options("fill in achCheckNumber") == "fill in check number"


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
