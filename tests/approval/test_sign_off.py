"""The page to sign and what an approver is shown: every figure stands there, and every line fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from batchpay.approval.cash_flow import Schedule
from batchpay.approval.plan import Plan
from batchpay.approval.proposal import Proposal, ToSend
from batchpay.approval.sign_off import plan_lines, sign_off_lines
from batchpay.ledger.contract import Ledger
from batchpay.payment import Totals
from tests.approval.proposals import ANN, PROPOSAL, TO_SEND, ledger_in_folder, proposal
from tests.approval.test_cash_flow import AS_OF, recurring, schedule_of, single

PAGE_WORDS = [
    ["file", "pay\\x1bments.csv"],
    ["sheet", "November"],
    ["content", bytes(range(32)).hex()],
    ["gateway", "https://gateway.example (live)"],
    ["in the file", "3", "30.00"],
    ["rejected", "1", "5.00"],
    ["with an amount that can't be read: 1;"],
    ["would be sent", "2", "25.00"],
    ["DEBIT", "(collected from payers)", "1", "5.00"],
    ["CREDIT", "(paid to payees)", "1", "20.00"],
    ["1", "achAccountNumber.changed_account"],
    ["note", "1 hidden row is read as well"],
    ["unchecked", "gateway accounts: the gateway was not asked about them"],
    ["seal", "5EA15EA15EA1"],
]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with ledger_in_folder(tmp_path) as opened:
        yield opened


def page(of: Proposal = PROPOSAL, schedule: Schedule | None = None) -> list[str]:
    return sign_off_lines(of, schedule or schedule_of([]), {}, "5EA15EA15EA1")


def plan_page(ledger: Ledger, of: Proposal) -> list[str]:
    plan = Plan.make(of, ledger, prepared_by=ANN, created_at=datetime(2026, 11, 23, tzinfo=UTC))
    return plan_lines(replace(plan, seal="5EA15EA15EA1"))


@pytest.mark.parametrize("words", PAGE_WORDS, ids=lambda words: words[0])
def test_the_page_to_sign(words: list[str]) -> None:
    """The page names the file, what of it would be sent and what not, the gateway, warnings, notes and the seal."""
    lines = page(proposal(file="pay\x1bments.csv"))
    assert any(in_order(line, words) for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_sum_of_debits_and_credits_is_a_control_total(ledger: Ledger) -> None:
    """25.00 `would be sent` of 5.00 taken and 20.00 paid read as money that moves; one direction alone is an amount."""
    for lines in (page(), plan_page(ledger, PROPOSAL)):
        heads = [line.split()[-3:] for line in lines if line.endswith(("amount", "total")) and "debits" not in line]
        assert set(map(tuple, heads)) == {("rows", "control", "total")}
    one = page(proposal(to_send=replace(TO_SEND, by_direction={"CREDIT": TO_SEND.total})))
    assert ["rows", "amount"] in [line.split() for line in one]
    assert any(in_order(line, ["DEBIT", "0", "0.00"]) for line in one), "that nothing is collected is said"
    nothing = page(proposal(to_send=ToSend()))  # what is in the file may be of both
    assert ["rows", "control", "total"] in [line.split() for line in nothing]


def test_the_page_leaves_out_what_there_is_none_of(ledger: Ledger) -> None:
    """No heading without figures; of equally frequent reasons the first of the alphabet leads, on every page alike."""
    bare = proposal(unreadable_amounts=0, sheet=None, digest=b"", warnings={})
    empty = sign_off_lines(bare, schedule_of([]), {})
    for words in ("recurring", "can't be read", "content", "seal", "by gateway", "by day", "why rows are rejected"):
        assert not any(words in line for line in empty), words
    for words in ("sheet", "cells corrected", "warnings", "PAYS THE SAME", "SENDS ROWS", "changed accounts", " more"):
        assert not any(words in line for line in empty + plan_page(ledger, replace(bare, digest=b"1"))), words
    lines = sign_off_lines(PROPOSAL, schedule_of([]), {"memo.length": 2, "amount.format": 2, "row.ragged": 3}, "5EA1")
    reasons = [line.split()[1] for line in lines if line.endswith((".length", ".format", ".ragged"))]
    assert reasons == ["row.ragged", "amount.format", "memo.length"]


def test_whoever_signs_reads_what_the_figures_below_are(ledger: Ledger) -> None:
    """Each list has its heading, and `--again` is not `--release`."""
    again, release = proposal(again=True, accepted_suggestions={"memo.length": 1}), proposal(release=True)
    for lines in (page(again), plan_page(ledger, again)):
        assert any("PAYS THE SAME" in line for line in lines)
        assert not any("SENDS ROWS" in line for line in lines)
        assert "cells corrected as suggested (--accept-suggestions)" in lines
    assert not any("PAYS THE SAME" in line for line in page(release))
    held_back = proposal(to_send=replace(TO_SEND, held_back=Totals(3, 900)))
    for of, heading in ((PROPOSAL, "why rows are rejected"), (held_back, "why rows are rejected or held back")):
        assert heading in sign_off_lines(of, schedule_of([single(1)]), {"memo.length": 1})
    assert any(line.startswith("by gateway account") for line in page(schedule=schedule_of([single(1)])))
    plan = Plan.make(PROPOSAL, ledger, prepared_by=ANN, created_at=datetime(2026, 11, 23, tzinfo=UTC))
    lines = plan_lines(plan, ["row 2: ****6789"])
    assert lines[lines.index("changed accounts") + 1] == "  row 2: ****6789"


def test_a_page_without_a_gateway_says_so() -> None:
    """`validate` needs none: the first page that anybody saw said `gateway    (live)`."""
    assert "gateway   none is named (gateway.base_url)" in page(proposal(origin=""))
    assert not any("(live)" in line for line in page(proposal(origin="")))


@pytest.mark.parametrize(("kinds", "others"), [(20, []), (21, ["1"]), (25, ["5"])])
def test_of_many_reasons_and_warnings_the_rest_is_one_line(kinds: int, others: list[str]) -> None:
    """Nothing is lost of a file with faults of every kind, and where nothing is left there is no line of a zero."""
    counts = {f"column{number:02}.format": 1 for number in range(kinds)}
    for lines, rest in (
        (sign_off_lines(proposal(warnings={}), schedule_of([]), counts), "other reasons"),
        (page(proposal(warnings=counts)), "other warnings"),
    ):
        assert [line.split()[0] for line in lines if line.endswith(rest)] == others
        assert sum(line.endswith(".format") for line in lines) == 20


def test_the_approver_sees_the_same(ledger: Ledger) -> None:
    """Out of the plan alone: the same totals, warnings, notes and seal as on the signed page, and who prepared it."""
    lines = plan_page(ledger, proposal(file="pay\x1bments.csv"))
    assert max(map(len, lines)) <= 80
    for words in PAGE_WORDS:
        if words[0] not in ("in the file", "rejected", "with an amount that can't be read: 1;", "content"):
            assert any(in_order(line, words) for line in lines), words
    for words in (["by ann@pc1"], ["  7", "1", "5.00"], ["  12", "1", "20.00"]):
        assert any(in_order(line, words) for line in lines), words


def test_the_approver_sees_the_sum_of_the_accounts_that_are_not_listed(ledger: Ledger) -> None:
    """Of twenty-two accounts two would have gone by unseen: what is listed must add up to what would be sent."""
    accounts = {str(number): Totals(1, 100) for number in range(1, 23)} | {"1": Totals(1, 150), "2": Totals(1, 50)}
    sent = Totals(22, 2_200)
    lines = plan_page(ledger, proposal(to_send=ToSend(sent, by_direction={"DEBIT": sent}, by_account=accounts)))
    listed = lines[next(place for place, line in enumerate(lines) if line.startswith("by gateway account")) + 1 : -2]
    assert sum(int(line.split()[-2]) for line in listed) == 22
    assert [line.split()[0] for line in listed[:-1]] == [str(number) for number in range(1, 21)], "as on the page"
    assert in_order(listed[-1], ["2 more", "2", "2.00"])


def test_changed_accounts_come_first() -> None:
    """Changed bank details are the commonest fraud: they lead, however many other warnings there are."""
    lines = page(proposal(warnings={"achNameOnCheck.new_payee": 90_000, "achAccountNumber.changed_account": 1}))
    first = lines.index("warnings") + 1
    assert in_order(lines[first], ["1", "achAccountNumber.changed_account"])
    assert in_order(lines[first + 1], ["90,000", "achNameOnCheck.new_payee"])


def test_what_is_not_all_new_is_shown_apart(ledger: Ledger) -> None:
    """Pending, released and held-back rows, and the decisions behind them, stand on the page and on the plan."""
    to_send = ToSend(
        pending=Totals(1, 100), released=Totals(2, 400), held_back=Totals(3, 900),
        by_direction={"CREDIT": Totals(3, 500)}, by_account={"7": Totals(3, 500)},
    )  # fmt: skip
    of = proposal(to_send=to_send, release=True, again=True, reason="corrected with Kim")
    for lines in (page(of), plan_page(ledger, of)):
        for words in (
            ["would be sent", "3", "5.00"],
            ["pending", "1", "1.00"],
            ["released", "2", "4.00"],
            ["held back", "3", "9.00"],
            ["ONCE MORE (--again)"],
            ["REJECTED EARLIER (--release)"],
            ["reason", "corrected with Kim"],
        ):
            assert any(in_order(line, words) for line in lines), words
    assert not any("held back" in line for line in page())


def test_figures_by_gateway_day_and_reason() -> None:
    """Totals by gateway account, recurring payments, days, reasons, and a place to sign."""
    rows = [single(123_456), single(99, "CREDIT", "12"), recurring(10_000, date(2026, 12, 5), "MONTHLY", 2)]
    lines = sign_off_lines(PROPOSAL, schedule_of(rows), {"amount.format": 2, "achRoutingNumber.checksum": 1})
    for words in (
        ["  7", "2", "1,334.56"],
        ["all payments", "2", "200.00", "0", "0.00"],
        ["2026-11-23 Mon  ", "1", "1,234.56"],
        ["2026-12-05 Sat -> 12-07", "1", "100.00"],
        ["2", "amount.format"],
        ["Name", "Date", "Signature"],
    ):
        assert any(in_order(line, words) for line in lines), words


def test_the_page_stays_in_its_width_whatever_the_figures(ledger: Ledger) -> None:
    """A million of the largest payments, long names and long ids don't break the lines."""
    huge = Totals(10_000_000, 10_000_000 * 9_999_999_999)
    schedule = schedule_of([single(1, gateway_id="9" * 200)] + [single(1, gateway_id=str(n)) for n in range(1, 40)])
    schedule.single.debit = schedule.first.debit = schedule.planned.debit = huge
    of = proposal(
        file="d/" * 150 + "f.csv",
        to_send=replace(TO_SEND, new=huge, by_direction={"DEBIT": huge}, by_account={"9" * 200: huge}),
        warnings={f"column{number}.{'x' * 90}": 10**9 for number in range(60)},
        notes=("n" * 300,),
        reason="r" * 300,
    )
    lines = sign_off_lines(of, schedule, {f"column{number}.{'x' * 90}": 10**9 for number in range(60)})
    long_ids = schedule_of([single(1, gateway_id="9" * length) for length in (28, 29, 60)])
    long_ids.first.debit, long_ids.planned.credit = Totals(1, 1), huge
    for line in lines + page(schedule=long_ids) + plan_page(ledger, of):
        assert len(line) <= 80
        assert "\n" not in line
    assert any(in_order(line, ["20 more", "20", "0.20"]) for line in lines)
    twenty = page(schedule=schedule_of([single(1, gateway_id=str(n)) for n in range(1, 21)]))
    assert not any(" more" in line for line in twenty)
    assert any(in_order(line, ["999,999,999,900,000.00"]) for line in lines)


def test_far_days_are_summed_by_month() -> None:
    """After a month of single days, later ones stand as one line a month, and nothing is lost."""
    lines = page(schedule=schedule_of([recurring(100, AS_OF, "DAILY", 90)]))
    later = [line.split() for line in lines if "later days" in line]
    assert [line[0] for line in later] == ["2026-12,", "2027-01,", "2027-02,"]
    assert sum(int(line[3]) for line in later) == 90 - 31


def in_order(line: str, words: list[str]) -> bool:
    """Whether the words stand in the line in this order."""
    at = 0
    for word in words:
        at = line.find(word, at)
        if at < 0:
            return False
        at += len(word)
    return True
