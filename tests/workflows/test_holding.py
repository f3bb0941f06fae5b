"""Rows that `policy.hold` keeps for a person: a payment to a changed bank account does not go out by cron."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import pytest

from batchpay.errors import SettingsNotUsable, WaitingForPerson, WrongUse
from batchpay.payment import Actor, Totals
from batchpay.settings import LimitsSettings, PolicySettings
from batchpay.workflows.policy import set_policy
from tests.workflows.desk import ANN, Desk

GRACE = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
OTHER = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "20.00", "achNameOnCheck": "Ada Byron"}
CHANGED = {"paymentId": "P-3", "invoiceNumber": "A-3", "amount": "30.00", "achAccountNumber": "987654321"}
HELD = "achAccountNumber.changed_account"


def hold(desk: Desk, *names: str, **policy: Any) -> None:
    desk.settings = replace(desk.settings, policy=PolicySettings(hold=list(names), **policy))


def test_the_ledger_holds_what_no_settings_file_says(desk: Desk) -> None:
    """A settings file without the name lets nothing out, and a name that is no warning never reaches the ledger."""
    desk.submit(desk.file("may.csv", GRACE))
    with pytest.raises(SettingsNotUsable, match="no warning"):
        set_policy(desk.settings, {"hold": ["achAccountNumber.changed"]}, None, "fraud", ANN)
    set_policy(desk.settings, {"hold": [HELD]}, None, "fraud", ANN)
    desk.settings = replace(desk.settings, policy=PolicySettings())
    assert desk.submit(desk.file("june.csv", OTHER, CHANGED)).exit_code == 3
    assert desk.arrived.total() == 2


@pytest.mark.usefixtures("on_both")
def test_a_changed_account_waits_until_a_person_releases_it_by_name(desk: Desk) -> None:
    """Neither a second call nor a release of the others sends it; the history names who released it, and their note."""
    desk.submit(desk.file("may.csv", GRACE))
    hold(desk, HELD)
    june = desk.file("june.csv", OTHER, CHANGED)
    first = desk.submit(june)
    assert (first.exit_code, desk.arrived) == (3, {"A-1": 1, "A-2": 1})
    with june.with_suffix(".rejects.csv").open() as lines:
        ((row, errors),) = [(one["_row"], one["_errors"]) for one in csv.DictReader(lines)]
    assert row == "2" and errors.startswith("achAccountNumber: changed_account: Grace Quigley, CREDIT 30.00")
    assert "held for a person" in errors and "--release --rows 2" in errors
    again = desk.submit(june)
    assert any("1 row waits for a person, released by name alone" in note for note in again.notes)
    assert desk.submit(june, release="all of them").released == Totals()
    assert desk.arrived.total() == 2
    note = "called G. Quigley at the number of 2019, she has changed her bank"
    assert desk.submit(june, release=note, rows=[2]).released == Totals(1, 3000)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}
    assert desk.events("released") == [("ann@desk-3", note)]
    with pytest.raises(WrongUse, match="nothing was released"):
        desk.submit(june, release=note, rows=[2])
    assert desk.arrived.total() == 3


@pytest.mark.parametrize(
    ("name", "rows", "held"),
    [
        ("amount.first_payment", (GRACE | CHANGED | {"achAccountNumber": "648443924"}, OTHER), 2),
        ("achAccountNumber.account", (OTHER, CHANGED | {"achAccountNumber": "AB123456"}), 2),
        ("row.same_invoice", (OTHER, OTHER | {"paymentId": "P-9", "amount": "21.00"}), 2),
        ("row.same_amount", (OTHER, OTHER | {"paymentId": "P-9", "invoiceNumber": "A-9"}), 2),
        ("amount.unusual_amount", (OTHER, GRACE | CHANGED | {"achAccountNumber": "648443924", "amount": "99.00"}), 2),
        ("achNameOnCheck.new_payee", (GRACE | CHANGED, OTHER), 2),
    ],
)
def test_any_warning_can_be_held(desk: Desk, name: str, rows: tuple[dict[str, str], ...], held: int) -> None:
    """Of a rule, of the file as a whole, and of earlier payments; without the setting all of them are paid."""
    desk.submit(desk.file("may.csv", GRACE))
    hold(desk, name, first_payment_above="19.99" if name == "amount.first_payment" else "")
    desk.settings = replace(desk.settings, limits=LimitsSettings(max_rejected="0"))  # a held row is no mistake
    path = desk.file("june.csv", *rows)
    assert (desk.submit(path).exit_code, desk.arrived.total()) == (3, 2)
    assert [(one.row, one.name) for one in desk.verdict.failures] == [(held, name)]
    assert desk.submit(path, release="called them at the old number", rows=[held]).released.rows == 1
    assert desk.arrived.total() == 3


def test_an_account_of_many_payees_is_held_with_all_its_rows(desk: Desk) -> None:
    """The warning is told once, of the first row; if that alone waited, all others were paid."""
    hold(desk, "row.shared_account")
    desk.settings = replace(desk.settings, limits=LimitsSettings(max_rejected="0"))
    rows = [
        GRACE | {"achNameOnCheck": f"Payee {number}", "paymentId": f"P-{number}"} | {"invoiceNumber": f"A-{number}"}
        for number in range(4, 9)
    ]
    path = desk.file("june.csv", CHANGED, *rows)
    assert (desk.submit(path).exit_code, desk.arrived) == (3, {"A-3": 1})
    assert desk.submit(path, release="called all of them at the numbers on file", rows=[3, 4]).released.rows == 2
    assert desk.arrived == {"A-3": 1, "A-5": 1, "A-6": 1}


def test_whoever_registered_a_row_does_not_release_it_where_others_must_approve(desk: Desk) -> None:
    """Below the total that needs an approval, one person could have sent it; a company of one has no such policy."""
    desk.submit(desk.file("may.csv", GRACE))
    hold(desk, HELD, approvals=1, approve_above="1000.00")
    june = desk.file("june.csv", OTHER, CHANGED)
    desk.submit(june)
    with pytest.raises(WaitingForPerson, match="another person must release"):
        desk.submit(june, release="called her at home", rows=[2])
    assert desk.events("released") == []
    desk.actor = Actor("ben", "desk-4")
    assert desk.submit(june, release="called her at home", rows=[2]).released.rows == 1


@pytest.mark.parametrize("note", ["x", "ok", "n/a", "called her", "ok ok ok ok"])
def test_a_held_row_needs_a_note_of_who_was_called(desk: Desk, note: str) -> None:
    """The record of why a changed account was paid said "ok"; in a company of one as well."""
    desk.submit(desk.file("may.csv", GRACE))
    hold(desk, HELD)
    june = desk.file("june.csv", OTHER, CHANGED)
    desk.submit(june)
    with pytest.raises(WrongUse, match=r"row 2 is held for a person: write as --reason who was called.*nothing was"):
        desk.submit(june, release=note, rows=[2])
    assert (desk.arrived.total(), desk.events("released")) == (2, [])


def test_a_name_that_is_no_warning_is_refused(desk: Desk) -> None:
    """A mistyped name would hold nothing."""
    hold(desk, "achAccountNumber.changed_acount")
    with pytest.raises(SettingsNotUsable, match=r"no warning.*did you mean achAccountNumber.changed_account"):
        desk.submit(desk.file("may.csv", GRACE))
    assert not desk.arrived


@pytest.mark.parametrize("text", ["ann@desk-3", "root@desk-3 by login, running as pay", "daniel (web)"])
def test_whoever_the_history_names_is_found_again(text: str) -> None:
    """The history has the actor as a text."""
    assert str(Actor.read(text)) == text


@pytest.mark.usefixtures("on_both")
def test_a_known_payee_is_known_however_the_row_is_dressed(desk: Desk) -> None:
    """Two blanks in the name, or any id beside it, made a payment to another account one to a new payee."""
    desk.submit(desk.file("may.csv", GRACE, OTHER | {"achNameOnCheck": "Zoë Straße"}))
    hold(desk, HELD)
    dressed = [
        CHANGED | {"achNameOnCheck": name, "paymentId": f"D-{number}", "invoiceNumber": f"D-{number}"}
        for number, name in enumerate(("GRACE  Quigley", "Zoe\u0308 STRASSE", "Ｇrace Quigley", "Ada Byron"))
    ]
    desk.submit(desk.file("june.csv", *dressed))
    assert [(one.row, one.name) for one in desk.verdict.failures] == [(1, HELD), (2, HELD), (3, HELD)]
    path = desk.file("july.csv", GRACE | {"paymentId": "P-4", "invoiceNumber": "A-4"}, CHANGED)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},billingInternalId", *(f"{line},G-7" for line in lines)]) + "\n")
    desk.submit(path)
    assert [(one.row, one.name) for one in desk.verdict.failures] == [(2, HELD)]
    assert desk.verdict.warning_counts.get("achNameOnCheck.new_payee", 0) == 0
