"""What a call requests when nobody says anything, and when someone does: suggestions accepted, too."""

from __future__ import annotations

import datetime
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import FileRefused, SettingsNotUsable, WrongUse
from batchpay.gateway.accounts import Preflight
from batchpay.payment import State, Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.workflows.requests import (
    CheckOptions,
    Decisions,
    SendOptions,
    file_request,
    moves_real_money,
    preflight_of,
    run_request,
    sending_settings,
    targets,
)
from tests.workflows.desk import Desk
from tests.workflows.office import RELEASE, Office


def test_nobody_decides_by_saying_nothing(desk: Desk) -> None:
    """Nothing is paid again or released, no amount is repaired, no duplicate let through, no open end allowed."""
    nothing = Decisions()
    assert not (nothing.again or nothing.release or nothing.paid_elsewhere_checked)
    assert (nothing.reason, nothing.again_reason) == (None, None)
    before = datetime.datetime.now().astimezone().date()
    rules = file_request("may.csv", None, CheckOptions(), desk.settings).rules
    assert not (rules.normalize or rules.allows_repeated_bills or rules.allow_open_ended or rules.warnings_as_errors)
    assert (rules.accept_suggestions, rules.rules_off) == (frozenset(), frozenset())
    assert before <= rules.as_of <= datetime.datetime.now().astimezone().date()


def test_a_reason_alone_pays_nothing_again() -> None:
    """It may be the reason of a release."""
    assert Decisions(release=True, reason="the limit was raised").again_reason is None
    assert Decisions(again=True, reason="the bank lost it").again_reason == "the bank lost it"


def test_what_a_call_sets_is_requested(desk: Desk) -> None:
    """Each option arrives where it counts."""
    options = CheckOptions(
        as_of=datetime.date(2026, 5, 4), normalize=True, warnings_as_errors=True, allow_duplicates=True,
        allow_open_ended=True, format="csv", encoding="latin-1", sheet="May", include_hidden=True, map_file="map.toml",
        expect_rows=3, expect_cents=4, max_errors=5,
    )  # fmt: skip
    asked = file_request("may.csv", Path("r.csv"), options, desk.settings)
    assert (asked.path, asked.rejects, asked.format, asked.encoding) == ("may.csv", Path("r.csv"), "csv", "latin-1")
    assert (asked.sheet, asked.include_hidden, asked.map_file) == ("May", True, "map.toml")
    assert (asked.expect_rows, asked.expect_cents, asked.max_errors) == (3, 4, 5)
    rules = asked.rules
    assert rules.normalize and rules.allow_duplicates and rules.allow_open_ended and rules.warnings_as_errors
    assert rules.as_of == datetime.date(2026, 5, 4)


@pytest.mark.parametrize(
    ("names", "accepted"),
    [(None, frozenset()), ("all", suggesting_rules()), (" amount.format, ", frozenset({"amount.format"}))],
)
def test_suggestions_are_accepted_by_name_or_all(desk: Desk, names: str | None, accepted: frozenset[str]) -> None:
    """An option without a value means all, no option none; a name that is no rule is a slip, and so is no name."""
    asked = file_request("may.csv", None, CheckOptions(accept_suggestions=names), desk.settings)
    assert asked.rules.accept_suggestions == accepted
    with pytest.raises(WrongUse, match=r"is called amount\.range, pay\.csv\. Name rules"):
        file_request(
            "may.csv", None, CheckOptions(accept_suggestions="pay.csv,amount.range,amount.format"), desk.settings
        )
    for blank in ("", " , "):
        with pytest.raises(WrongUse, match="names no rule; for all of them: --accept-suggestions=all"):
            file_request("may.csv", None, CheckOptions(accept_suggestions=blank), desk.settings)


def test_settings_that_can_not_be_intended_are_refused(desk: Desk) -> None:
    """A limit in words, and a request to switch off rules that keep to the gateway's interface."""
    desk.limit("100.00")
    assert desk.settings.max_amount_cents == 100_00
    desk.limit("a hundred")
    with pytest.raises(SettingsNotUsable, match=r"limits\.max_amount"):
        file_request("may.csv", None, CheckOptions(), desk.settings)
    desk.limit("")
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, rules_off=["amount.format"]))
    with pytest.raises(SettingsNotUsable, match=r"amount\.format, which is not a house rule"):
        file_request("may.csv", None, CheckOptions(), desk.settings)


@pytest.mark.parametrize(("asked", "asks"), [(None, True), (True, True), (False, False)])
def test_the_gateway_is_queried_first_unless_a_call_says_no(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, asked: bool | None, asks: bool
) -> None:
    """Otherwise a wrong key or a deleted account is discovered by the first payments."""
    monkeypatch.setenv("BATCHPAY_API_KEY", "desk-key")
    request, credentials = run_request(desk.settings, SendOptions(limit=3, until=7.0, preflight=asked))
    assert isinstance(request.preflight, Preflight) is asks
    assert (request.limits.rows_max, request.stop.until, request.results) == (3, 7.0, None)
    assert credentials.api_id == "desk"


@pytest.mark.parametrize("url", ["http://pay.example.com", "https://ann:secret@pay.example.com"])
def test_money_goes_to_no_unsafe_origin_and_no_key_is_looked_for(desk: Desk, url: str) -> None:
    """The address is refused before a key is read that could only be sent there."""
    settings = replace(desk.settings, gateway=replace(desk.settings.gateway, base_url=url))
    for ask in (lambda: run_request(settings, SendOptions()), lambda: preflight_of(settings)):
        with pytest.raises(SettingsNotUsable, match="base_url"):
            ask()


def test_a_calls_options_override_the_settings(desk: Desk) -> None:
    """What it does not set stays; the text before a run shows what applies."""
    faster = sending_settings(desk.settings, SendOptions(rate="7", max_in_doubt=2))
    assert (faster.submit.rate, faster.submit.workers, faster.submit.max_in_doubt) == ("7", 1, 2)
    assert faster.gateway == desk.settings.gateway
    gateway, ledger = targets(faster)
    assert gateway == "gateway http://127.0.0.1:9, 1 worker, rate 7 requests per second"
    assert ledger == f"ledger {desk.settings.ledger.url}"
    assert not moves_real_money(faster)
    live = replace(desk.settings.gateway, base_url="https://pay.example.com")
    assert moves_real_money(replace(faster, gateway=live))


ACCEPTED = frozenset({"amount.format"})


def test_a_plan_with_corrections_is_a_different_plan(office: Office) -> None:
    """The page lists them by rule, the plan is refused without them, and the ledger keeps old -> new."""
    path = office.file("10.00", "$20.00")
    plan = office.plan(path, accept_suggestions=ACCEPTED)
    preview = office.dry_run(path, accept_suggestions=ACCEPTED)
    page = preview.page()
    at = page.index("cells corrected as suggested (--accept-suggestions)")
    assert page[at + 1].split() == ["1", "amount.format"]
    assert preview.summary.seal != office.dry_run(path).summary.seal
    with pytest.raises(FileRefused, match=r"rules: accept_suggestions is none, approved was amount\.format"):
        office.submit(path, plan)
    office.submit(path, plan, accept_suggestions=ACCEPTED)
    assert office.received() == ["I-1", "I-2"]
    with closing(office.ledger()) as ledger:
        (batch,) = ledger.batches()
        assert batch.options["accepted_suggestions"] == {"amount.format": 1}
        told = [row.details.get("accepted_suggestions") for row in ledger.rows(batch.batch)]
    assert told == [None, "amount: $20.00 -> 20.00"]


def test_with_and_without_it_is_one_batch(office: Office) -> None:
    """What was rejected before stays rejected until a person releases it, with the cents that it was rejected with."""
    path = office.file("10.00", "$20.00")
    first = office.submit(path)
    assert first.of(State.REJECTED) == Totals(1, 2_000)
    again = office.submit(path, accept_suggestions=ACCEPTED)
    assert (again.batch, office.received()) == (first.batch, ["I-1"])
    released = office.submit(path, decisions=RELEASE, accept_suggestions=ACCEPTED)
    assert (released.batch, released.released, office.received()) == (first.batch, Totals(1, 2_000), ["I-1", "I-2"])


@pytest.mark.parametrize("accept", [None, "achRoutingNumber.format"])
def test_zeros_that_a_spreadsheet_dropped_are_reported_for_accounts_as_well(desk: Desk, accept: str | None) -> None:
    """In a CSV saved by a spreadsheet, routing numbers got their zero back, and accounts were paid without theirs."""
    plain = {"amount": "10.00", "invoiceNumber": "A"}
    cut = {**plain, "achRoutingNumber": "31100775", "invoiceNumber": "B"}
    path = desk.file("pay.csv", plain, cut, {**cut, "achRoutingNumber": "12345678"})
    whole = desk.file("whole.csv", {**plain, "achRoutingNumber": "031100775"})
    told = [desk.dry_run(file, accept_suggestions=accept).summary.notes for file in (path, whole)]
    (note,) = set(told[0]) - set(told[1])
    assert note.startswith(
        "in 1 row the routing number has lost its leading zero, as in a spreadsheet: account numbers"
    )
    assert "zero" not in " ".join(told[1])
