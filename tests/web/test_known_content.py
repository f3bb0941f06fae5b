"""What the page says of a content that is registered, and of two versions of one file: sums that add up."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from batchpay.payment import Actor
from batchpay.settings import LimitsSettings
from batchpay.web import check_job
from batchpay.workflows.resolve import RowDecision, settle
from tests.web.house import ROWS, SAME_ORIGIN, WRONG, House, Yes, csv_of, words_of
from tests.workflows.desk import ACCEPTED, IN_DOUBT

ANN = Actor("ann", "vm", "")


@pytest.fixture
def part_sent(house: House) -> House:
    """A house in which two payments of a file went and one waits again; the fourth row was left out."""
    house.answer = lambda reference: IN_DOUBT if reference == "INV-C" else ACCEPTED
    batch = house.file(house.sent(*ROWS, WRONG, partial="yes"))["batch"]
    settle(batch, [RowDecision(3, "send again")], Yes(), house.site.settings, ANN)
    return house


def test_what_went_earlier_is_not_ready_to_pay(part_sent: House) -> None:
    """The same content again: its line is what a run would send, what was sent earlier and what is left out."""
    file_id = part_sent.upload(*ROWS, WRONG, name="again.csv")
    line = (
        "4 rows control total 60.75 equals = ready to pay 1 row Collect 1 debit, USD 30.25 plus + "
        "sent earlier 2 rows control total 30.50 plus + left out 1 row control total 0.00"
    )
    assert line in part_sent.page("maria", f"/files/{file_id}/check")
    part_sent.post("maria", f"/files/{file_id}/ask", partial="yes")
    page = part_sent.page("daniel", f"/files/{file_id}/approve")
    assert line.replace("ready to pay", "would be paid") in page
    assert "1 payment Collect 1 debit, USD 30.25" in page


def test_a_content_that_was_paid_is_not_said_to_be_ready(house: House) -> None:
    """Under another name it is the batch it was: nothing is ready, nothing to look at, and the list says so as well."""
    file_id = house.sent(*ROWS)
    batch = house.file(file_id)["batch"]
    page = house.page("maria", f"/files/{house.upload(*ROWS, name='again.csv')}/check")
    assert f"This content is already batch {batch} ." in page and "There is nothing left to send." in page
    assert "ready to pay 0 rows Send nothing plus + sent earlier 3 rows control total 60.75" in page
    assert "Nothing in this file would be sent, so there is nothing to check." in page
    assert "No earlier payment is known here" not in page
    assert "again.csv checked nothing left to send" in house.page("maria", "/")


def test_what_was_paid_is_not_to_be_corrected_where_a_limit_was_lowered(house: House) -> None:
    """A row that fails the rules of today but went earlier is no row to correct: who corrects it would pay it twice."""
    house.sent(*ROWS)
    object.__setattr__(house.site, "settings", replace(house.site.settings, limits=LimitsSettings("15.00")))
    page = house.page("maria", f"/files/{house.upload(*ROWS, name='again.csv')}/check")
    assert "sent earlier 3 rows control total 60.75 plus + left out 0 rows" in page
    assert "Rows to correct" not in page


def test_what_was_sent_is_not_ready_to_pay_on_its_own_page(house: House) -> None:
    """What the check found is still shown after the run; it says what was right then."""
    page = house.page("maria", f"/files/{house.sent(*ROWS)}/check")
    assert (
        "= valid 3 rows Send 2 credits, USD 30.50 · Collect 1 debit, USD 30.25 · net -0.25" in page
        and "ready to pay" not in page
    )


def test_a_payment_that_waits_is_told_beside_those_in_doubt(house: House) -> None:
    """The list of files calls nothing finished of which a payment waits."""
    house.answer = lambda reference: ACCEPTED if reference == "INV-A" else IN_DOUBT
    batch = house.file(house.sent(*ROWS))["batch"]
    settle(batch, [RowDecision(3, "send again")], Yes(), house.site.settings, ANN)
    assert "1 payment in doubt 1 payment waiting" in house.page("maria", "/")


def test_versions_that_may_both_be_paid_name_each_other(house: House) -> None:
    """The first was asked about while the second came in, and others came in at once: who approves one sees each other.

    Two tabs, each to replace the same file: both were asked about, and nothing told whoever approved them.
    """
    maria, first = house.as_("maria"), house.upload(*ROWS)

    def begin(amount: str, before: str) -> tuple[str, bytes]:
        content = csv_of(*ROWS[:2], {**ROWS[2], "amount": amount})
        about = {"name": f"pay-{amount}.csv", "size": str(len(content)), "before": before}
        return maria.post("/files", data=about, headers=SAME_ORIGIN).get_json()["id"], content

    def end(begun: tuple[str, bytes]) -> str:
        maria.put(f"/files/{begun[0]}/pieces/0", data=begun[1], headers=SAME_ORIGIN)
        house.work()
        return begun[0]

    def page(file_id: str, by: str = "daniel", kind: str = "approve") -> str:
        return house.page(by, f"/files/{file_id}/{kind}")

    two, three = begin("31.25", first), begin("32.25", first)
    house.post("maria", f"/files/{first}/ask")
    second, third = end(two), end(three)
    assert "There is a newer version of this file." in page(first)
    told = "Another version, pay-{}.csv , was not replaced and is {}. Payments in both may be paid twice."
    assert told.format("32.25", "checked") in page(second, "maria", "check")
    assert told.format("31.25", "checked") in page(third, "maria", "check")
    fourth = end(begin("33.25", third))
    for file_id in (second, fourth):
        house.post("maria", f"/files/{file_id}/ask")
    assert told.format("31.25", "waiting for approval") in page(fourth) and "32.25" not in page(fourth)
    house.approve(first)
    house.work()
    assert "The previous version, pay.csv , was not replaced" in page(second) and "and is finished." in page(second)
    assert "Another version" not in page(third, "maria", "check"), "it is replaced"


def test_a_file_without_what_a_payment_needs_asks_nothing(house: House) -> None:
    """What is missing is said at once: answers about the rest of it would be for nothing."""
    answer = house.post("maria", "/files", file=(io.BytesIO(b"Payee,Note\nAnn Lee,May\n"), "list.csv"))
    house.work()
    answer = house.get("maria", f"/files/{answer.headers['Location'].rsplit('/', 1)[1]}/check")
    assert "This file can’t be paid as it is" in words_of(answer)
    assert "it has no bank details" in words_of(answer)
    assert "answer." not in answer.get_data(as_text=True)


def test_a_refusal_names_no_place_in_the_machine() -> None:
    """A check reads the upload from memory; that place is nothing for a person."""
    told = check_job._plainly("/proc/self/fd/7: contains a line longer than 29 MiB", "pay.csv.gz")
    assert told == "it contains a line longer than 29 MiB"


def test_what_is_held_back_is_not_called_finished(part_sent: House) -> None:
    """A limit was lowered before the rest went: list and page say that it was not sent, and the way to send it."""
    (file,) = part_sent.store.all("SELECT * FROM file")
    object.__setattr__(part_sent.site, "settings", replace(part_sent.site.settings, limits=LimitsSettings("25.00")))
    part_sent.post("daniel", f"/files/{file['id']}/resume", password=True)
    part_sent.work()
    page = part_sent.page("maria", f"/files/{file['id']}/run")
    assert "1 payment, 30.25, fails that day's rules: held back, not sent." in page
    assert "Finished" not in page and "Every payment was answered" not in page
    assert "pay.csv 1 payment held back" in part_sent.page("maria", "/")
    assert "1 payment held back" in part_sent.page("maria", "/history")
    page = part_sent.page("maria", f"/files/{part_sent.upload(*ROWS, WRONG, name='again.csv')}/check")
    assert "sent earlier 2 rows control total 30.50 plus + left out 2 rows control total 30.25" in page
    assert "1 row of the batch, 30.25, waits and fails today's rules: held back, not sent." in page
    assert "Rows left out 2" in page and "1 all rows" in page
