"""Approving on the page: seal, password, limits, a second person, expiry; and what the child then sends or does not."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchpay.approval.plan import PlanText
from batchpay.errors import BatchpayError, LedgerNotUsable, WaitingForPerson
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor, Totals
from batchpay.settings import LimitsSettings
from batchpay.web import approval, people, run_job
from batchpay.web.acts import page_settings
from batchpay.workflows.approve import add_approval
from batchpay.workflows.policy import policy_of, set_policy
from tests.web.house import ROWS, WRONG, House, words_of

DAY_S = 86_400


def test_nothing_is_approved_with_a_wrong_password_or_another_seal(house: House) -> None:
    """A session alone moves nothing, and what was seen is what is signed."""
    file_id = house.ask()
    assert "Nothing was done" in words_of(house.approve(file_id, code=401, password="wrong"))
    house.approve(file_id, code=401, password="")
    house.approve(file_id, code=409, seal="000000000000")
    assert house.file(file_id)["state"] == "asked"
    house.approve(file_id)
    house.approve(file_id, by="dora", code=409)
    again = house.approve(file_id, password="whatever").headers["Location"]
    assert again.endswith("/run"), "whoever reloads after a lost answer is not told that nothing was done"


def test_makers_do_not_approve(house: House) -> None:
    """Pia has both roles: what she uploaded, and what she asked for, another person approves."""
    own = house.ask(by="pia")
    house.approve(own, by="pia", code=403)
    uploaded = house.upload(*ROWS[:2])
    house.post("pia", f"/files/{uploaded}/ask")
    house.approve(uploaded, by="pia", code=403)
    for name in ("maria", "sam", "lee"):
        house.approve(uploaded, by=name, code=403)
    page = house.page("pia", f"/files/{uploaded}/approve")
    assert "You requested this approval" in page
    assert "Approve and send" not in page


def test_a_limit_holds_for_the_whole_batch(house: House) -> None:
    """An approver above whose limit the total is sees why, and can't pass by it with a form of their own."""
    house.add("low", "Lo Low", "approve", limit_cents=60_74)
    house.add("high", "Hi High", "approve", limit_cents=60_75)
    file_id = house.ask()
    assert "above your limit of 60.74" in house.page("low", f"/files/{file_id}/approve")
    waiting = house.page("low", "/to-approve")
    assert "Waiting for others 1" in waiting and "above your limit of 60.74" in waiting
    assert "waiting for you" not in waiting, "the number at the top of every page is of what this person can approve"
    assert "Waiting for you 1" in house.page("high", "/to-approve")
    house.approve(file_id, by="low", code=403)
    house.approve(file_id, by="high")


def test_a_limit_holds_for_a_day_in_each_direction(house: House) -> None:
    """Three files below it are not approved one by one; what came in is not counted with what went out."""
    house.add("low", "Lo Low", "approve", limit_cents=100_00)
    house.approve(house.ask(), by="low")
    more = [{"paymentId": side, "invoiceNumber": side, "transactionType": side} for side in ("CREDIT", "DEBIT")]
    credit, debit = (house.ask({**row, "amount": "69.60"}) for row in more)
    said = "100.10 of credits with what you approved in the last 24 hours is above your limit of 100.00"
    assert said in house.page("low", f"/files/{credit}/approve")
    assert said in words_of(house.approve(credit, by="low", code=403))
    house.approve(debit, by="low")
    with house.store.write() as db:
        db.execute("UPDATE decision SET at = at - 86401")
    house.approve(credit, by="low")


@pytest.mark.parametrize("edit", ["lowered", "another's", "gone"])
def test_the_day_of_a_limit_is_not_lowered_in_web_db(house: House, edit: str) -> None:
    """The sum was read from the plans' text: whoever could write web.db let a person approve more than their limit."""
    house.add("low", "Lo Low", "approve", limit_cents=100_00)
    small = house.ask({"paymentId": "S", "invoiceNumber": "S", "amount": "0.75"})
    house.approve(small)
    first = house.ask()
    house.approve(first, by="low")
    more = house.ask({"paymentId": "M", "invoiceNumber": "M", "amount": "99.00", "transactionType": "DEBIT"})
    lowered = house.file(first)["plan"].replace("60.75", "0.75")
    plan = {"lowered": lowered, "another's": house.file(small)["plan"], "gone": None}[edit]
    with house.store.write() as db:
        db.execute("UPDATE file SET plan = ? WHERE id = ?", (plan, first))
    said = "Your limit counts what you approved in the last 24 hours, and"
    assert said in house.page("low", f"/files/{more}/approve")
    assert said in words_of(house.approve(more, by="low", code=409))
    assert said in house.page("low", "/to-approve")
    house.approve(more)


def test_a_plan_that_cannot_be_read_concerns_its_own_file_alone(house: House) -> None:
    """One written by another version had blanked the menu's counts, and the list for whoever has a limit."""
    house.add("low", "Lo Low", "approve", limit_cents=1_000_000)
    unreadable, good = house.ask(), house.ask(ROWS[0] | {"paymentId": "D", "invoiceNumber": "INV-D"})
    with house.store.write() as db:
        db.execute("UPDATE file SET plan = replace(plan, '\"plan\": 2', '\"plan\": 99') WHERE id = ?", (unreadable,))
    assert "not a plan of this version" not in house.page("low", f"/files/{good}/approve")
    waiting = house.page("low", "/to-approve")
    assert "To approve 1 waiting for you" in waiting and "Waiting for others 1" in waiting
    assert "not a plan of this version" in waiting
    assert "Withdraw the request" not in house.page("low", f"/files/{unreadable}/approve", 409)
    assert "Withdraw the request" in house.page("maria", f"/files/{unreadable}/approve", 409)
    house.post("maria", f"/files/{unreadable}/withdraw")
    house.post("maria", f"/files/{unreadable}/check")
    house.work()
    house.post("maria", f"/files/{unreadable}/ask")
    house.approve(unreadable)
    house.work()
    assert house.arrived.total() == 3


def test_large_totals_take_two_people(house: House) -> None:
    """The first approval sends nothing; nobody counts twice; the ledger names both."""
    house.policy(second_above="60.75")
    file_id = house.ask()
    house.approve(file_id)
    assert house.file(file_id)["state"] == "asked"
    house.work()
    assert not house.arrived
    assert "already approved this" in house.page("dora", f"/files/{file_id}/approve")
    house.approve(file_id, code=403)
    house.approve(file_id, by="dora")
    house.work()
    assert house.arrived.total() == 3
    (used,) = house.events("plan used")
    assert {one["who"] for one in used["approvals"]} == {"daniel (web)", "dora (web)"}


def test_a_request_that_was_answered_no_can_be_asked_again(house: House) -> None:
    """Turned down with a reason, or withdrawn: approvals that were given before count no more."""
    house.policy(second_above="0.00")
    file_id = house.ask()
    house.approve(file_id)
    house.post("dora", f"/files/{file_id}/decide", 400, decision="turn down")
    house.approve(file_id, by="dora", decision="maybe", code=400)
    house.post("dora", f"/files/{file_id}/decide", decision="turn down", why="wrong week")
    assert "Dora Weiss turned this down: wrong week" in house.page("maria", f"/files/{file_id}/check")
    assert "turned down Dora Weiss turned this down: wrong week" in house.page("maria", "/")
    house.now[0] += 1
    house.post("maria", f"/files/{file_id}/ask")
    house.approve(file_id, by="dora")
    assert house.file(file_id)["state"] == "asked"
    house.post("pia", f"/files/{file_id}/withdraw", 403)
    house.post("maria", f"/files/{file_id}/withdraw")
    assert house.file(file_id)["state"] == "checked"
    house.work()
    assert not house.arrived


def test_a_request_ends_by_itself(house: House) -> None:
    """What nobody approved in time goes back to whoever asked."""
    file_id = house.ask()
    house.now[0] += 7 * DAY_S + 1
    for mark in house.store.all("SELECT mark FROM session"):
        with house.store.write() as db:
            db.execute("UPDATE session SET made_at = ?, seen_at = ? WHERE mark = ?", (*house.now, *house.now, mark[0]))
    assert "Nothing is waiting for approval" in house.page("daniel", "/to-approve")
    assert "Nobody approved this within 7 days" in house.page("maria", f"/files/{file_id}/check")
    assert "not approved in time Nobody approved this" in house.page("maria", "/")


def test_rows_to_correct_are_left_out_knowingly(house: House) -> None:
    """Asking takes a tick where rows are wrong, and nothing can be asked where none is right."""
    file_id = house.upload(*ROWS, WRONG)
    house.post("maria", f"/files/{file_id}/ask", 400)
    house.post("maria", f"/files/{file_id}/ask", partial="yes")
    assert "failed a rule and is not included" in house.page("daniel", f"/files/{file_id}/approve")
    none = house.upload(WRONG, name="none.csv")
    house.post("maria", f"/files/{none}/ask", 409, partial="yes")


def test_what_was_sent_since_it_was_asked_has_no_button_to_approve(house: House) -> None:
    """The same file was asked twice and sent once: the page asked for a password, and refused only then."""
    first, second = house.ask(), house.ask()
    house.approve(second)
    house.work()
    assert house.arrived.total() == 3
    page = house.page("daniel", f"/files/{first}/approve")
    assert "This plan is spent: since it was prepared, its content was submitted in batch" in page
    assert "Approve and send" not in page
    house.approve(first, code=409)
    house.post("daniel", f"/files/{first}/decide", decision="turn down", why="sent already")
    again = house.said("maria", f"/files/{first}/ask", 409)
    assert "submitted in batch" in again and "Check the file again first" in again


def test_a_plan_that_was_changed_is_refused(house: House) -> None:
    """Whoever can write web.db, but has not the ledger's key, changes no amount and adds no approval."""
    file_id = house.ask()
    found = json.loads(house.file(file_id)["plan"])
    found["content"]["to_send"]["total"]["amount"] = "1.00"
    with house.store.write() as db:
        db.execute("UPDATE file SET plan = ? WHERE id = ?", (json.dumps(found), file_id))
    said = house.post("daniel", f"/files/{file_id}/decide", 409, decision="approve", seal=found["seal"], password=True)
    assert "was changed after it was written" in words_of(said)


def test_an_approval_in_web_db_alone_sends_nothing(house: House) -> None:
    """A state and a job written by hand are no approval: the child asks the plan."""
    file_id = house.ask()
    with house.store.write() as db:
        db.execute("UPDATE file SET state = 'approved' WHERE id = ?", (file_id,))
        house.site.jobs.want(db, file_id, "submit", "maria")
    house.work()
    assert not house.arrived
    assert house.file(file_id)["state"] == "checked"
    assert "needs approval by another person" in house.file(file_id)["told"]


def test_a_stop_before_the_first_row_sends_nothing(house: House) -> None:
    """Stopped while it waited for its turn; it goes on with the same approval."""
    file_id = house.ask()
    house.approve(file_id)
    house.post("maria", f"/files/{file_id}/stop")
    house.work()
    assert not house.arrived
    assert "stopped by Maria Lind" in house.page("maria", f"/files/{file_id}/run")
    house.post("maria", f"/files/{file_id}/resume", 403)
    house.post("dora", f"/files/{file_id}/resume", 401, password="wrong")
    house.post("dora", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.arrived.total() == 3
    assert house.file(file_id)["state"] == "done"


def test_a_run_that_ends_early_goes_on_where_it_was(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops it after the batch was registered loses nothing: the same approval holds, and nothing is repeated.

    Also where the ledger says that a person must look first: "nothing was sent, have it checked again" would be false.
    """
    file_id = house.ask()
    house.approve(file_id)
    begin = run_job._Progress.begin
    for error in (LedgerNotUsable("the disk is full"), WaitingForPerson("the ledger was restored")):

        def stops(self: Any, batch: BatchSummary, to_send: Totals, error: BatchpayError = error) -> None:
            begin(self, batch, to_send)
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(run_job._Progress, "begin", stops)
            house.work()
        assert house.file(file_id)["state"] == "stopped"
        assert str(error) in house.page("daniel", f"/files/{file_id}/run")
        house.post("daniel", f"/files/{file_id}/resume", password=True)
    house.work()
    assert house.file(file_id)["state"] == "done"
    assert house.arrived == {"INV-A": 1, "INV-B": 1, "INV-C": 1}
    house.post("daniel", f"/files/{file_id}/resume", 409, password=True)


def test_the_child_counts_no_approval_of_whoever_asked(house: House) -> None:
    """An approval that was put into web.db by hand, with the ledger's key even, is none if it is the asker's."""
    file_id = house.upload()
    house.post("pia", f"/files/{file_id}/ask")
    kept = PlanText("pay.csv", house.file(file_id)["plan"])
    with closing(house.ledger()) as ledger:
        pia = Actor("pia", "page")
        view = add_approval(kept, house.file(file_id)["seal"], ledger, page_settings(house.site.settings), pia)
    with house.store.write() as db:
        house.store.move(db, file_id, "asked", "approved", plan=view.plan.text())
        house.site.jobs.want(db, file_id, "submit", "pia")
    house.work()
    assert not house.arrived
    assert "is among those who approved it" in house.file(file_id)["told"]


@pytest.mark.parametrize("who", ["daniel", "maria"])
def test_whoever_is_switched_off_before_the_plan_is_used_has_not_agreed(house: House, who: str) -> None:
    """An approval, or a request, by somebody who has left meanwhile sent the file; on the page all waits anew."""
    root = Actor("root", "host")
    file_id = house.ask()
    house.approve(file_id)
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        assert people.switch_off(house.store, ledger, root, who) == []
    house.work()
    assert not house.arrived
    assert (house.file(file_id)["state"], house.file(file_id)["plan"]) == ("checked", None)
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        people.reset(house.store, ledger, root, who, on=True)
        assert ledger.people_off() == frozenset()


def test_a_lowering_is_decided_on_the_page_by_another_person(house: House) -> None:
    """Approvers see the policy in force, and what is asked; it takes password and code, and a reason to refuse."""
    settings, maria = house.site.settings, Actor("maria", "desk")
    set_policy(settings, {"approvals": 1, "approve_above": "70000.00"}, None, "the board", maria)
    assert "From a total of 70,000.00 on the command line" in house.page("daniel", "/to-approve")
    assert "Policy in force" not in house.page("maria", "/to-approve")
    for decision, approvals in (("refuse", 1), ("approve", 0)):
        set_policy(settings, {"approvals": 0}, None, "in a hurry", maria)
        page = house.page("daniel", "/to-approve")
        assert "maria@desk asked to lower the policy (approvals 1 to 0: in a hurry)" in page
        (asked_at,) = re.findall(r'name="asked_at" value="([^"]+)"', house.get("daniel", "/to-approve").text)

        def decide(code: int, who: str = "daniel", **changed: Any) -> None:
            form = {"decision": decision, "asked_at": asked_at, "why": "no", "password": True, **changed}  # noqa: B023
            house.post(who, "/policy", code, **form)

        decide(403, "maria")
        decide(400, decision="refuse", why=" ")
        decide(401, password="x")
        decide(409, asked_at="2026-01-01T00:00:00Z")
        decide(303)
        assert policy_of(settings)["recorded"]["approvals"] == approvals
        assert "asked to lower" not in house.page("daniel", "/to-approve")
    told = [event["why"] for event in house.events("policy")]
    assert told == ["the board", "in a hurry", "refused the lowering: no", "in a hurry", "approved the lowering"]


def test_two_who_approve_at_once_are_both_counted(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who was a moment later is told so, and nobody's approval is written over."""
    house.policy(second_above="0.00")
    file_id = house.ask()
    real = add_approval

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(approval, "add_approval", real)
        house.approve(file_id, by="dora")
        return real(*given)

    monkeypatch.setattr(approval, "add_approval", meanwhile)
    house.approve(file_id, code=409)
    assert house.file(file_id)["state"] == "asked"
    house.approve(file_id)
    house.work()
    assert house.arrived.total() == 3


def limit(house: House, **limits: Any) -> None:
    """Change [limits]."""
    settings = replace(house.site.settings, limits=replace(LimitsSettings(), **limits))
    object.__setattr__(house.site, "settings", settings)


OVER = (
    "Above 2 limits: the payments add up to 60.75, 0.01 more than limits.max_total (60.74); "
    "1 of 4 rows are rejected, more than limits.max_rejected (20%)."
)


def test_a_file_above_a_limit_is_sent_once_another_person_has_seen_the_limit(house: House) -> None:
    """Which and by how much: before asking, in the list, and above the button that signs; whatever the total is."""
    limit(house, max_total="60.74", max_rejected="20%")
    house.policy(approvals=1, approve_above="1000.00")
    file_id = house.upload(*ROWS, WRONG)
    page = house.page("maria", f"/files/{file_id}/check")
    assert f"{OVER} It is sent only if another person approves it." in page and "Request approval" in page
    assert page.count("more than limits.max_total") == 1
    house.post("maria", f"/files/{file_id}/ask", partial="yes")
    assert "above a limit" in house.page("daniel", "/to-approve")
    page = house.page("daniel", f"/files/{file_id}/approve")
    assert page.index(f"{OVER} Whoever approves this lets it through.") < page.index(
        "Approve and send: Send 2 credits, USD 30.50 · Collect 1 debit, USD 30.25 · net -0.25"
    )
    house.approve(file_id)
    house.work()
    assert house.arrived.total() == 3


def test_nobody_lets_a_file_above_a_limit_through_where_the_settings_require_no_approvals(house: House) -> None:
    """The page says why there is nothing to request, and a form of one's own is refused as well."""
    limit(house, max_total="60.74", max_rejected="20%")
    file_id = house.upload(*ROWS, WRONG)
    page = house.page("maria", f"/files/{file_id}/check")
    assert f"{OVER} Approval can’t be requested" in page and "Request approval" not in page
    assert "0.01 more than limits.max_total" in house.said("maria", f"/files/{file_id}/ask", 409, partial="yes")
    assert house.file(file_id)["state"] == "checked"
    limit(house, max_total="60.75", max_rejected="25%")
    house.post("maria", f"/files/{file_id}/check")
    house.work()
    assert "Above" not in house.page("maria", f"/files/{file_id}/check")
    house.post("maria", f"/files/{file_id}/ask", partial="yes")


@pytest.mark.parametrize("changed", ["gateway", "rule", "another file", "limit"])
def test_what_would_be_sent_now_is_what_was_approved(house: House, changed: str) -> None:
    """Another gateway, another way to read the file in web.db, a row paid by another file, a limit: nothing is sent.

    Why was a chain of each total that differed.
    """
    file_id = house.ask(*ROWS, {**WRONG, "amount": "1,250.00"}, partial="yes")
    if changed == "another file":
        house.sent({**ROWS[0], "paymentId": "A"})
        house.arrived.clear()
    house.approve(file_id)
    if changed == "gateway":
        gateway = replace(house.site.settings.gateway, base_url="http://127.0.0.1:10")
        object.__setattr__(house.site, "settings", replace(house.site.settings, gateway=gateway))
    elif changed == "limit":
        limit(house, max_total="60.74")
    elif changed == "rule":
        with house.store.write() as db:
            db.execute("UPDATE file SET options = ?", (json.dumps({"accept": ["amount.format"]}),))
    house.work()
    assert not house.arrived
    assert house.file(file_id)["state"] == "checked"
    said = {
        "another file": "now 2 rows and 50.75 would be sent, and 3 rows and 60.75 were approved",
        "rule": "now 4 rows and 1,310.75 would be sent, and 3 rows and 60.75 were approved",
        "gateway": "the gateway is http://127.0.0.1:10, approved was http://127.0.0.1:9",
        "limit": "it is above a limit, the payments add up to 60.75, 0.01 more than limits.max_total (60.74)",
    }  # fmt: skip
    told = f"Nothing was sent: something changed after it was approved ({said[changed]}). Check the file again."
    assert house.file(file_id)["told"] == told
    house.post("maria", f"/files/{file_id}/ask", 409)


def test_a_request_is_for_what_its_page_showed(house: House) -> None:
    """Checked again in another tab, with suggestions accepted: the first tab's button asked for a row more."""
    file_id = house.upload(*ROWS, {**WRONG, "amount": "1,250.00"})
    seen = house.hidden(f"/files/{file_id}/ask")
    house.post("maria", f"/files/{file_id}/check", accept="amount.format", corrections="chosen")
    house.work()
    assert house.facts(file_id)["to_send"]["total"]["rows"] == 4
    house.post("maria", f"/files/{file_id}/ask", 409, partial="yes", **seen)
    assert house.file(file_id)["state"] == "checked"


def test_warnings_that_an_approver_has_not_seen_are_not_approved(house: House) -> None:
    """The seal does not cover them: Daniel's page is from before another file was paid to another account.

    Maria withdrew the request, had the file checked again and requested it anew, with the same seal.
    """
    house.sent({**ROWS[0], "paymentId": "Z", "invoiceNumber": "INV-Z", "achNameOnCheck": "Zoe Park"})
    file_id = house.ask()
    seal, seen = house.file(file_id)["seal"], house.hidden(f"/files/{file_id}/decide")
    assert "changed bank account" not in house.page("daniel", f"/files/{file_id}/approve")
    house.sent({**ROWS[0], "paymentId": "N", "invoiceNumber": "INV-N", "achAccountNumber": "55500012345"})
    house.post("maria", f"/files/{file_id}/withdraw")
    house.post("maria", f"/files/{file_id}/check")
    house.work()
    house.post("maria", f"/files/{file_id}/ask")
    assert "1 payment goes to a changed bank account" in house.page("daniel", f"/files/{file_id}/approve")
    assert house.file(file_id)["seal"] == seal
    house.approve(file_id, code=409, **seen)
    house.post("daniel", f"/files/{file_id}/decide", 409, decision="turn down", why="the first one", **seen)
    assert house.file(file_id)["state"] == "asked"
    house.approve(file_id)


def test_days_are_on_the_page_to_sign_and_with_the_batch(house: House) -> None:
    """Rows and cents by day are what a person signs; what waits for its day is beside the states of the batch."""
    house.policy(zone="UTC")
    day = datetime.now(UTC).date() + timedelta(days=10)
    file_id = house.ask(ROWS[0], ROWS[1] | {"payOn": f"{day:%m/%d/%Y}"}, ROWS[2] | {"payOn": f"{day:%m/%d/%Y}"})
    page = house.page("daniel", f"/files/{file_id}/approve")
    assert "no payment is sent before its day" in page
    assert re.search(rf"{day}( settles [-0-9]+)? 2 30\.25 20\.50", page)
    house.approve(file_id)
    house.work()
    assert house.arrived == {"INV-A": 1}
    assert f"Waiting for their day day payments debits credits {day} 2 30.25 20.50" in house.page(
        "lee", f"/files/{file_id}/run"
    )
    plain = house.sent(ROWS[0] | {"paymentId": "D", "invoiceNumber": "INV-D"})
    assert "Waiting for their day" not in house.page("lee", f"/files/{plain}/run")
    with closing(open_ledger(house.site.settings.ledger)) as ledger:
        assert people.switch_off(house.store, ledger, Actor("root", "host"), "dora") == []
        (ahead,) = people.switch_off(house.store, ledger, Actor("root", "host"), "daniel")
    assert f"2 rows scheduled, next on {day:%m/%d/%Y}; if it must not be paid: batchpay cancel " in ahead
