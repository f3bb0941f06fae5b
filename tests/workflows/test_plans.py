"""A submission from a plan sends what was signed or nothing, once, whatever changed meanwhile."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from batchpay.errors import BatchpayError, FileRefused, WaitingForPerson
from batchpay.ledger.open import accept, confirm
from batchpay.payment import Totals
from batchpay.workflows import approve, check
from batchpay.workflows.requests import Decisions
from tests.support.oracle import Oracle
from tests.workflows.desk import Desk
from tests.workflows.office import AGAIN, ANN, BEN, EVE, NONE, RELEASE, Office


def test_a_plan_pays_once(office: Office) -> None:
    """A used plan only continues its own batch, even if the batch was paid again meanwhile."""
    path = office.file("10.00")
    plan = office.plan(path)
    for _ in range(3):
        office.submit(path, plan)
    office.submit(path, decisions=AGAIN)
    office.submit(path, plan)
    assert office.received() == ["I-1", "I-1"]
    assert len(office.used_plans()) == 1


class HalfAnHourAhead(datetime):
    """The clock of the machine on which a plan is made."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(minutes=30)


@pytest.mark.parametrize("clock", [datetime, HalfAnHourAhead])
def test_a_plan_from_before_a_restore_must_be_prepared_again(
    office: Office, monkeypatch: pytest.MonkeyPatch, clock: type[datetime]
) -> None:
    """The restored ledger does not know that the plan was used: it let all of it through a second time."""
    path, settings = office.file("10.00"), office.settings.ledger
    with monkeypatch.context() as patch:
        patch.setattr(check, "datetime", clock)
        plan, copy = office.plan(path), office.folder / "copy.db"
    with closing(office.ledger()) as ledger:
        ledger.backup(copy)
    office.submit(path, plan)
    copy.replace(settings.url)
    accept(settings, "ann", "the disk died", rows_in_doubt=True)
    confirm(settings, "ann", "compared with the export, as she thought")
    with pytest.raises(FileRefused, match=r"before the ledger was restored.* Prepare a new plan"):
        office.submit(path, plan)
    with pytest.raises(FileRefused, match="before the ledger was restored"):
        office.approve(plan, BEN)
    assert office.received() == ["I-1"]
    other = office.file("20.00", name="other.csv")
    office.submit(other, office.plan(other, name="new.json"))
    assert office.received() == ["I-1", "I-1"]


def test_two_submissions_with_one_plan_at_once(office: Office) -> None:
    """One of them registers; the other waits its turn, is told so, or continues the same batch."""
    path = office.file("10.00", "20.00")
    plan = office.plan(path)
    ends: list[str] = []

    def submit() -> None:
        try:
            office.submit(path, plan)
            ends.append("sent")
        except BatchpayError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "sent" in ends
    assert office.received() == ["I-1", "I-2"]
    assert (office.batches(), len(office.used_plans())) == (1, 1)


def test_a_plan_is_used_in_the_transaction_that_registers(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two check before either registers, the ledger itself accepts the plan only once."""
    path = office.file("10.00")
    plan = office.plan(path)
    office.submit(path, plan)
    blind = approve.let_through

    def sees_no_use(ledger: object, *arguments: object) -> object:
        class Unseen:
            def __getattr__(self, name: str) -> object:
                return (lambda plan: None) if name == "batch_of_plan" else getattr(ledger, name)

        return blind(Unseen(), *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("batchpay.workflows.submit.let_through", sees_no_use)
    monkeypatch.setattr("batchpay.approval.plan.Plan.verify", lambda *arguments: None)
    with pytest.raises(BatchpayError):
        office.submit(path, plan)
    with pytest.raises(BatchpayError):
        office.submit(path, plan, decisions=AGAIN)
    assert office.received() == ["I-1"]
    assert office.batches() == 1


def test_a_row_of_another_file_makes_one_a_duplicate(strict: Office) -> None:
    """Approved, and then one of its payments is sent with another file: nothing of the plan is sent."""
    path = strict.file("10.00", "2000.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.policy(approvals=0)
    strict.submit(strict.file("10.00", name="other.csv"))
    strict.policy(approvals=1)
    with pytest.raises(FileRefused, match=r"to send: DEBIT is 1 row and 2,000\.00, approved was 2 rows and 2,010\.00"):
        strict.submit(path, plan)
    with pytest.raises(FileRefused, match="rules: allow_duplicates is on, approved was off"):
        strict.submit(path, plan, decisions=Decisions(reason="I want to"), allow_duplicates=True)
    assert strict.received() == ["I-1"]


FIRST = ("10.00", "20.00", "30.5")


@pytest.mark.parametrize(("amounts", "decisions", "rules", "words"), [
    ((*FIRST, "1.00"), NONE, {}, "the content differs"), (("10.00", "20.01", "30.5"), NONE, {}, "the content differs"),
    (("20.00", "10.00", "30.5"), NONE, {}, "the content differs"),
    (FIRST, NONE, {"normalize": True}, "rules: normalize is on"),
    (FIRST, NONE, {"max_amount_cents": 100_000}, "rules: max_amount_cents is 100000, approved was none"),
    (FIRST, NONE, {"map_file": "map.toml"}, "the column map differs"), (FIRST, RELEASE, {}, "release is on"),
    (FIRST, Decisions(reason="so"), {}, "reason is so"),
], ids=["row", "amount", "order", "rule", "limit", "map", "release", "reason"])  # fmt: skip
def test_whatever_differs_nothing_is_sent(
    strict: Office, amounts: tuple[str, ...], decisions: Decisions, rules: dict[str, Any], words: str
) -> None:
    """The file, its map, a rule or a decision differs from when it was approved: the submission is refused."""
    path = strict.file(*FIRST)
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.file(*amounts)
    if "map_file" in rules:
        rules = {"map_file": str(strict.folder / "map.toml")}
        Path(rules["map_file"]).write_text('[defaults]\nshipping = "billing"\n')
    with pytest.raises(FileRefused, match=words):
        strict.submit(path, plan, decisions, **rules)
    assert (strict.received(), strict.batches()) == ([], 0)


@pytest.mark.parametrize("change", [{"environment": "live"}, {"base_url": "localhost"}], ids=["environment", "address"])
def test_a_plan_is_for_one_gateway(strict: Office, change: dict[str, Any]) -> None:
    """Another address, or test and live mixed up: refused."""
    path = strict.file("10.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    gateway = strict.settings.gateway
    if "base_url" in change:
        change = {"base_url": gateway.base_url.replace("127.0.0.1", "localhost")}
    strict.settings = replace(strict.settings, gateway=replace(gateway, **change))
    with pytest.raises(FileRefused, match=r"(environment|origin) is .*, approved was"):
        strict.submit(path, plan)
    assert strict.received() == []


def test_rows_that_were_sent_meanwhile_need_another_plan(office: Office) -> None:
    """Part of what a plan shows was sent by another command: it is refused, and a new one shows the rest."""
    path = office.file("10.00", "20.00")
    office.submit(path, limit=1)
    plan = office.plan(path)
    office.policy(approvals=1)
    office.approve(plan, BEN)
    office.policy(approvals=0)
    office.submit(path)
    office.policy(approvals=1)
    with pytest.raises(FileRefused, match=r"to send: pending is 0 rows and 0\.00, approved was 1 row and 20\.00"):
        office.submit(path, plan)
    assert office.received() == ["I-1", "I-2"]


def test_a_plan_of_another_ledger_is_nothing_here(strict: Office, tmp_path: Path, oracle: Oracle) -> None:
    """Approved elsewhere, under another key: refused before the file is acted on."""
    other = Office(tmp_path / "other", oracle)
    path = other.file("10.00")
    plan = other.plan(path)
    other.approve(plan, BEN)
    with pytest.raises(FileRefused, match="another ledger"):
        strict.submit(path, plan)
    with pytest.raises(FileRefused, match="another ledger"):
        strict.approve(plan, BEN)


def test_a_plan_is_used_once_where_two_ledgers_have_one_key(strict: Office) -> None:
    """A ledger that is made at another path finds the key that is there: one approval paid the file on both."""
    path, other = strict.file("10.00"), Office(strict.folder, strict.oracle)
    other.settings = replace(
        strict.settings, ledger=replace(strict.settings.ledger, url=str(strict.folder / "second" / "ledger.db"))
    )
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.submit(path, plan)
    other.ledger().close()
    with pytest.raises(FileRefused, match="another ledger"):
        other.submit(path, plan)
    with pytest.raises(FileRefused, match="another ledger"):
        other.approve(plan, BEN)
    assert strict.received() == ["I-1"]


def test_an_edited_plan_is_refused(strict: Office) -> None:
    """Someone who has the file, and no key, can neither raise an amount nor add a name."""
    path = strict.file("10.00")
    plan = strict.plan(path)
    strict.approve(plan, BEN)
    strict.file("90.00")
    Path(plan).write_text(Path(plan).read_text().replace('"10.00"', '"90.00"'))
    with pytest.raises(FileRefused, match="was changed"):
        strict.submit(path, plan)
    assert strict.received() == []


def test_what_was_shown_is_what_is_approved(strict: Office) -> None:
    """A plan that was replaced between viewing and answering is not approved."""
    plan = strict.plan(strict.file("10.00"))
    seal = strict.read(plan).seal
    strict.plan(strict.file("90.00"))
    with pytest.raises(FileRefused, match="not the plan that was displayed"):
        approve.approve_plan(plan, seal, strict.settings, BEN)
    assert strict.read(plan).approvals == ()


def test_a_used_plan_is_no_longer_approved(office: Office) -> None:
    """There is nothing left to approve: anyone who tries is told which batch it was."""
    path = office.file("10.00")
    plan = office.plan(path)
    office.submit(path, plan)
    with pytest.raises(FileRefused, match="already used, for batch"):
        office.approve(plan, BEN)


@pytest.mark.parametrize("by_plan", [True, False])
def test_a_plan_whose_content_was_sent_another_way_is_not_approved(office: Office, by_plan: bool) -> None:
    """Two makers prepared one file. The second plan was `ready` after the first had been sent, and then refused."""
    path = office.file("10.00", "20.00")
    plan, other = office.plan(path, ANN), office.plan(path, BEN, name="other.json")
    assert office.approve(other, ANN).spent is None
    office.submit(path, plan if by_plan else None, limit=1)
    with pytest.raises(FileRefused, match="spent: since it was prepared, its content was submitted in batch"):
        office.approve(other, EVE)
    rest = office.plan(path, name="rest.json")
    assert office.approve(rest, BEN).spent is None
    office.submit(path)
    with pytest.raises(FileRefused, match="spent"):
        office.approve(rest, EVE)


def test_a_release_spends_the_plans_of_the_same_release(office: Office) -> None:
    """Even if rows are left that nobody can release; paying again for another reason spends none."""
    path = office.file("10.00", "20.00", "x")
    office.submit(path, max_amount_cents=1500)
    plans = [office.plan(path, name=f"{n}.json", decisions=RELEASE) for n in (1, 2)]
    assert office.approve(plans[1], BEN).spent is None
    assert office.submit(path, plans[0], RELEASE).released.rows == 1
    with pytest.raises(FileRefused, match="spent"):
        office.approve(plans[1], EVE)
    again = office.plan(path, name="again.json", decisions=AGAIN)
    assert office.approve(again, BEN).spent is None
    office.submit(path, None, AGAIN)
    with pytest.raises(FileRefused, match="spent"):
        office.approve(again, EVE)


def test_the_page_shows_what_is_left(office: Office) -> None:
    """For a batch that was sent in part, the page, the plan and the seal show the rest, and the run sends just that."""
    path = office.file("10.00", "20.00", "30.00")
    first = office.dry_run(path)
    assert (first.proposal.to_send.new, first.proposal.to_send.pending) == (Totals(3, 6_000), Totals())
    office.submit(path, limit=1)
    rest = office.dry_run(path)
    assert (rest.proposal.to_send.new, rest.proposal.to_send.pending) == (Totals(), Totals(2, 5_000))
    assert rest.schedule.rows == 2
    assert rest.summary.seal != first.summary.seal
    office.submit(path)
    assert office.dry_run(path).proposal.to_send.total == Totals()


def test_held_back_rows_are_on_the_page_and_in_no_approval(office: Office) -> None:
    """A pending row that fails today's rules is shown separately; approving the others doesn't approve it for later."""
    path = office.file("10.00", "20.00", "300.00")
    office.submit(path, limit=1)
    office.policy(approvals=1)
    strict: dict[str, Any] = {"max_amount_cents": 10_000}
    plan = office.plan(path, **strict)
    assert office.read(plan).totals("held_back") == Totals(1, 30_000)
    assert office.read(plan).totals("total") == Totals(1, 2_000)
    office.approve(plan, BEN)
    office.submit(path, plan, **strict)
    assert office.received() == ["I-1", "I-2"]
    assert [one["rows held back"] for one in office.used_plans()] == [1]
    with pytest.raises(WaitingForPerson, match="needs approval"):
        office.resume()
    for used in (None, plan):
        with pytest.raises(WaitingForPerson, match="needs approval"):
            office.submit(path, used)
    assert office.received() == ["I-1", "I-2"]


def test_what_is_unusual_by_earlier_payments_is_listed_by_name(office: Office) -> None:
    """Nothing to compare with, nothing unusual, and a changed account with payee, amount and last four."""
    assert office.dry_run(office.file("10.00")).unusual == [
        "no earlier payments to compare payees, accounts and amounts with"
    ]
    office.submit(office.file("10.00"))
    usual, changed = office.file("11.00", ids="Q"), {"achAccountNumber": "0099999123"}
    assert office.dry_run(usual).unusual == ["compared with earlier payments: nothing unusual"]
    (line,) = office.dry_run(office.file("11.00", ids="R", **changed)).unusual
    assert line.startswith(
        "line 2: achAccountNumber: changed_account: Ada Byron, DEBIT 11.00, account ****9123: a new account or routing"
    )


def test_an_approver_sees_what_nobody_checked(strict: Office) -> None:
    """A page signed before there was any earlier payment looked like one on which nothing was unusual."""
    strict.policy(approvals=1)
    first = strict.file("10.00", name="a.csv")
    second = strict.file("11.00", name="b.csv", ids="R", invoiceNumber="I-2")
    plans = [strict.plan(first, name="a.plan"), strict.plan(second, name="b.plan")]
    for plan in plans:
        page = " ".join(" ".join(strict.approve(plan, BEN).page()).split())
        assert "unchecked payees, accounts and amounts: there are no earlier payments to compare" in page
        assert "unchecked gateway accounts: the gateway was not asked" in page
    strict.submit(first, plans[0])
    strict.submit(second, plans[1])  # there is an earlier payment by now, but that is no part of the approval
    assert strict.received() == ["I-1", "I-2"]
    assert not any("earlier payments" in line for line in strict.dry_run(strict.file("1.00", ids="Q")).page())


def test_an_approver_sees_whose_account_changed(strict: Office) -> None:
    """They saw `1 achAccountNumber.changed_account`, and neither payee nor amount; the plan's file names nobody."""
    strict.policy(approvals=0)
    strict.submit(strict.file("10.00"))
    strict.policy(approvals=1)
    path = strict.file("11.00", "12.00", ids="R", achAccountNumber="0099999123")
    plan = strict.plan(path)
    text = Path(plan).read_text()
    assert not [word for word in ("Ada Byron", "Byron", "9123") if word in text]
    page = strict.approve(plan, BEN).page()
    told = " ".join(line.strip() for line in page[page.index("changed accounts") :])
    for line, amount in ((2, "11.00"), (3, "12.00")):
        assert (
            f"line {line}: achAccountNumber: changed_account: Ada Byron, DEBIT {amount}, account ****9123: a new "
            "account or routing number of a known payee, the last payment had ****"
        ) in told
    assert page.index("changed accounts") < page.index("warnings")
    assert all(len(line) <= 80 for line in page)
    strict.submit(path, plan)
    assert strict.received() == ["I-1", "I-1", "I-2"]


def test_other_changed_accounts_make_another_plan(strict: Office) -> None:
    """The payee was paid to a third account in between: the approver was shown a different last account."""
    strict.policy(approvals=0)
    strict.submit(strict.file("10.00"))
    path = strict.file("11.00", ids="R", achAccountNumber="0099999123")
    plan = strict.plan(path)
    strict.submit(strict.file("13.00", ids="S", name="third.csv", achAccountNumber="0099999777"))
    strict.policy(approvals=1)
    strict.approve(plan, BEN)
    with pytest.raises(FileRefused, match="approved: the warnings name other changed accounts"):
        strict.submit(path, plan)
    found = json.loads(Path(plan).read_text())
    del found["changed_accounts"]
    Path(plan).write_text(json.dumps(found))
    with pytest.raises(FileRefused, match="was changed"):
        strict.approve(plan, EVE)


def test_the_page_says_what_is_rejected(desk: Desk) -> None:
    """The page showed nothing of an invalid row: signers must see that the file is more than what would be sent."""
    row = {"paymentId": "P-1", "invoiceNumber": "A-1", "amount": "10.00"}
    wrong = {"paymentId": "P-2", "invoiceNumber": "A-2", "amount": "7.00", "achRoutingNumber": "121000333"}
    proposal = desk.dry_run(desk.file("may.csv", row, wrong)).proposal
    assert (proposal.valid, proposal.rejected) == (Totals(1, 1_000), Totals(1, 700))
