"""Checked: the page shows what the command line finds, in the person's own columns, to whoever may see it."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from batchpay.errors import RunStopped
from batchpay.gateway.accounts import Preflight
from batchpay.text import printable
from batchpay.web import spool
from batchpay.web.grid import BLOCK, Grid, grid_path
from batchpay.web.words import rejects_name
from batchpay.web.words import rule as rule_said
from tests.support.in_process import Caller
from tests.web.house import ROWS, SAME_ORIGIN, WRONG, House, csv_of, words_of
from tests.workflows.desk import COLUMNS, PLAIN

SAMPLES = Path(__file__).parents[2] / "samples"


def send(house: House, content: bytes, name: str = "pay.csv", **form: Any) -> str:
    """Upload a file and have it checked; gives its id."""
    answer = house.post("maria", "/files", file=(io.BytesIO(content), name), **form)
    house.work()
    return answer.headers["Location"].rsplit("/", 1)[1]


def check_page(house: House, file_id: str, query: str = "") -> str:
    return house.get("maria", f"/files/{file_id}/check{query}").get_data(as_text=True)


def numbers_in(value: Any) -> set[str]:
    """Every number of a JSON object as a page writes it, those in its texts and names too."""
    if isinstance(value, dict):
        return set().union(*(numbers_in(one) for pair in value.items() for one in pair))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    if isinstance(value, bool) or value is None:
        return set()
    if isinstance(value, int):
        return {f"{value:,}"}
    text = str(value)
    if re.fullmatch(r"[0-9]+\.[0-9]{2}", text):
        whole, _, cents = text.partition(".")
        return {f"{int(whole):,}.{cents}"}
    return set(re.findall(r"[0-9][0-9,.]*[0-9]|[0-9]", text))


@pytest.mark.parametrize("name", ["payments.csv", "spreadsheet.xlsx"])
def test_every_number_is_the_command_lines(house: House, call: Caller, name: str) -> None:
    """What stands above the rows to correct is in `submit --dry-run --json`, whose totals and seal are there."""
    file_id = send(house, (SAMPLES / name).read_bytes(), name)
    found = call("submit", str(SAMPLES / name), "--dry-run", "--json")
    page = check_page(house, file_id)
    sums = page[page.index('class="sum"') : page.index('id="wrong"')]
    shown = set(re.findall(r"[0-9][0-9,.]*[0-9]|[0-9]", unescape(re.sub(r"<[^>]*>", " ", sums))))
    net = f"{float(found['debit']['amount']) - float(found['credit']['amount']):,.2f}".lstrip("-")
    allowed = numbers_in(found) | {net, "0.00", "20", "12", str(len(found["warning_counts"]) - 3)}
    seal = found["seal"]
    assert "-".join((seal[:4], seal[4:8], seal[8:])) in page
    shown -= set(re.findall("[0-9]+", "-".join((seal[:4], seal[4:8], seal[8:]))))
    assert shown <= allowed, shown - allowed
    amounts, moving = found["amount"], found["to_send"]
    apart = [one["amount"] for one in found["currencies"].values()]
    all_together = [amounts["total"], amounts["rejected"], *(moving[one]["amount"] for one in ("DEBIT", "CREDIT"))]
    for amount in apart if len(apart) > 1 else all_together:
        assert next(iter(numbers_in(amount))) in shown
    chips = dict(re.findall(r"<b>([0-9,]+)</b> ([A-Za-z0-9 -]+: [a-z ]+)</a>", page))
    assert sorted(chips) == sorted({f"{count:,}" for count in found["counts"].values()})
    for rule, count in found["counts"].items():
        assert f"<b>{count:,}</b> {rule_said(rule)}</a>" in page


@pytest.mark.parametrize("name", ["payments.csv", "spreadsheet.xlsx", "payments.parquet"])
def test_the_rows_to_correct_are_those_of_the_rejects_file(
    house: House, call: Caller, name: str, tmp_path: Path
) -> None:
    """The sheet has each row with each reason and its own cells, and the download is the rejects file byte for byte."""
    file_id = send(house, (SAMPLES / name).read_bytes(), name)
    rejects = tmp_path / rejects_name(name)
    call("validate", str(SAMPLES / name), "--rejects", str(rejects), "--json")
    answer = house.get("maria", f"/files/{file_id}/marked")
    assert answer.headers["Content-Disposition"] == f"attachment; filename={rejects.name}"
    assert answer.data == rejects.read_bytes() or name.endswith(".xlsx")  # a workbook carries its time
    errors = call("validate", str(SAMPLES / name), "--json")["errors"]
    grid = Grid(spool.place(house.site.home, file_id), file_id, house.site.ledger())
    rows = [row for start in grid.starts() for row in grid.block("", start)]
    told = [
        (row.number, row.line, one.column, one.code, one.message, one.suggestion)
        for row in rows
        for one in row.wrong
        if one.is_error
    ]
    keys = ("row", "line", "column", "code", "message", "suggestion")
    assert sorted(told, key=str) == sorted((tuple(one[key] for key in keys) for one in errors), key=str)
    if name.endswith(".csv"):
        _, *lines = csv.reader(io.StringIO(rejects.read_text("utf-8")))
        own = [[printable(cell) for cell in line[5 : 5 + len(grid.columns)]] for line in lines]
        assert [[cell or "" for cell in row.cells] for row in rows] == own
    grid.close()


@pytest.mark.parametrize("how", ["garbage", "cut off", "of an earlier version"])
def test_rows_that_can_not_be_read_leave_the_rest_of_the_page(house: House, how: str) -> None:
    """After a power cut, or an update, the page was an error, and with it the button that checks the file again."""
    file_id = send(house, csv_of(*ROWS, WRONG))
    path = grid_path(spool.place(house.site.home, file_id))
    if how == "of an earlier version":
        with closing(sqlite3.connect(path, isolation_level=None)) as grid:
            grid.execute("DROP TABLE total")
    else:
        path.write_bytes(b"?" * 5000 if how == "garbage" else path.read_bytes()[:2000])
    page = check_page(house, file_id)
    assert "The rows are no longer kept." in page and "Check again" in page
    assert house.post("maria", f"/files/{file_id}/check").status_code == 303
    house.work()
    assert "1,5" in check_page(house, file_id)


def test_a_filter_shows_the_rows_of_one_rule(house: House) -> None:
    """Filters are plain links; a mistake is marked in its own cell, a blank one says so; all columns can be shown."""
    blank = {"paymentId": "V", "invoiceNumber": "INV-V", "amount": "5.00", "achNameOnCheck": ""}
    file_id = send(house, csv_of(*ROWS, WRONG, blank))
    page = check_page(house, file_id)
    assert 'title="' in page and ">1,5<" in page
    one = check_page(house, file_id, query="?rule=amount.format")
    assert "1,5" in one and "INV-V" not in one
    assert "<i>blank</i>" in check_page(house, file_id, query="?rule=achNameOnCheck.required")
    assert f"{len(COLUMNS)} of {len(COLUMNS)} columns" in house.page("maria", f"/files/{file_id}/check?columns=all")
    assert "1,5" not in check_page(house, file_id, query="?rule=nothing.such")


def test_a_long_sheet_comes_a_hundred_rows_at_a_time(house: House) -> None:
    """The page has the first block and the places of the others; each is fetched by its first row, none twice."""
    wrong = [{**WRONG, "paymentId": f"W{number}", "invoiceNumber": f"I{number}"} for number in range(2 * BLOCK + 5)]
    file_id = send(house, csv_of(*wrong))
    page = check_page(house, file_id, query="?rule=amount.format")
    starts = re.findall(r'data-from="([0-9]+)"', page)
    assert len(starts) == 3
    assert page.count('<th scope="row">') - page.count('<th scope="row">Debits') >= BLOCK
    seen: list[str] = []
    for start in starts:
        answer = house.get("maria", f"/files/{file_id}/rows?rule=amount.format&from={start}")
        seen += re.findall(r"<td>(W[0-9]+)</td>", answer.get_data(as_text=True))
    assert seen == [f"W{number}" for number in range(2 * BLOCK + 5)]


def test_cells_are_text_whatever_stands_in_them(house: House) -> None:
    """Markup, htmx attributes and characters that turn the reading direction do nothing."""
    evil = {**WRONG, "paymentId": '<img src=x onerror="alert(1)">', "invoiceNumber": "<b hx-get=/>\u202e"}
    page = check_page(house, send(house, csv_of(evil)), query="?columns=all")
    assert "<img" not in page and "<b hx-get" not in page and "\u202e" not in page


def test_whole_account_numbers_are_for_who_prepares(house: House) -> None:
    """An approver sees how many rows break which rule, and neither the rows nor the download."""
    file_id = send(house, csv_of(*ROWS, WRONG))
    for name in ("daniel", "sam", "lee"):
        page = house.page(name, f"/files/{file_id}/check")
        assert "amount: wrong format 1" in page
        assert "only people who prepare files see them" in page
        house.get(name, f"/files/{file_id}/rows", 403)
        house.get(name, f"/files/{file_id}/marked", 403)
    house.get("maria", f"/files/{file_id}/marked")
    assert "Maria Lind downloaded the rows to correct" in house.page("maria", f"/files/{file_id}/check")


def test_nothing_is_called_usual_where_nothing_was_compared(house: House) -> None:
    """On an empty ledger it says so; after a payment a changed account stands first, and loud."""
    first = send(house, csv_of(*ROWS))
    assert "There is nothing to compare with yet." in house.page("maria", f"/files/{first}/check")
    house.sent(*ROWS)
    changed = {**ROWS[0], "paymentId": "N", "invoiceNumber": "INV-N", "achAccountNumber": "55500012345"}
    page = house.page("daniel", f"/files/{send(house, csv_of(changed))}/check")
    assert "1 payment goes to a changed bank account." in page
    assert "****2345" in page and "at a phone number that you already had" in page
    same = {**ROWS[0], "paymentId": "M", "invoiceNumber": "INV-M"}
    page = house.page("daniel", f"/files/{send(house, csv_of(same))}/check")
    assert "payees, accounts and amounts are unchanged" in page
    wrong = {**WRONG, "paymentId": "O", "invoiceNumber": "INV-O"}
    assert "unchanged" not in house.page("daniel", f"/files/{send(house, csv_of(wrong))}/check"), "nothing passed"
    house.policy(variance=False)
    page = house.page("daniel", f"/files/{send(house, csv_of({**same, 'amount': '11.00'}))}/check")
    assert "the settings turn this off (policy.variance)" in page and "unchanged" not in page


def test_a_day_that_nothing_uses_stands_above_the_totals(house: House) -> None:
    """On the page of the file and on that to approve: with all rows sent today, it is the first thing said."""
    lines = csv_of(*ROWS).decode().splitlines()
    content = "\n".join([f"{lines[0]},Value Date", *(f"{line},2027-03-01" for line in lines[1:]), ""])
    file_id = send(house, content.encode())
    house.post("maria", f"/files/{file_id}/ask")
    for path, below in (("check", "in the file"), ("approve", "would be paid")):
        page = house.page("daniel", f"/files/{file_id}/{path}")
        told = page.index("Not used of this file: date in Value Date")
        assert told < page.index(below) and "all rows would be sent today" in page[told : page.index(below)]


def test_certain_corrections_are_made_when_a_person_says_so(house: House) -> None:
    """By rule, and shown: what was as suggested passes, how many cells is told, and taking it back checks again."""
    file_id = send(house, csv_of(*ROWS, {**WRONG, "amount": "1,250.00"}, {**WRONG, "paymentId": "X", "amount": "abc"}))
    assert "amount: wrong format: 1 cell as suggested" in house.page("maria", f"/files/{file_id}/check")
    house.post("daniel", f"/files/{file_id}/check", 403)
    house.post("maria", f"/files/{file_id}/check", corrections="chosen", accept="amount.format")
    house.work()
    page = house.page("maria", f"/files/{file_id}/check")
    assert "1 cell corrected as suggested" in page
    assert "4 rows Send 3 credits, USD 1,280.50 · Collect 1 debit" in page, "the corrected row is ready to pay"
    assert json.loads(house.file(file_id)["totals"])["rejected"] == 1
    house.post("maria", f"/files/{file_id}/check")
    house.work()
    assert json.loads(house.file(file_id)["totals"])["rejected"] == 1, "checked again as it was"
    house.post("maria", f"/files/{file_id}/check", corrections="chosen")
    house.work()
    assert json.loads(house.file(file_id)["totals"])["rejected"] == 2


def test_what_is_sent_differently_from_the_file_is_seen_where_nothing_is_left_to_correct(house: House) -> None:
    """The page promises that the approver sees it: with the last wrong row it was gone, nor could it be undone."""
    wrong = ({**WRONG, "amount": "1,250.00"}, {**WRONG, "paymentId": " X", "amount": "7.00"})
    file_id = send(house, csv_of(*ROWS, *wrong))
    house.post("maria", f"/files/{file_id}/check", corrections="chosen", accept="amount.format", normalize="yes")
    house.work()
    said = "2 cells are sent differently from the file. As suggested: amount: wrong format 1. Repaired: payment ID 1."
    page = house.page("maria", f"/files/{file_id}/check")
    assert said in page and "Let batchpay correct what is certain" in page and "Rows to correct" not in page
    house.post("maria", f"/files/{file_id}/ask")
    assert said in house.page("daniel", f"/files/{file_id}/approve")


def test_payments_that_a_new_version_lacks_are_loud(house: House) -> None:
    """The downloaded rows to correct, uploaded as the corrected version: all that were right would not be paid."""
    first = send(house, csv_of(*ROWS, {**WRONG, "amount": "1,250.00"}))
    assert "It replaces this one: upload all rows" in house.page("maria", f"/files/{first}/check")
    corrected = house.get("maria", f"/files/{first}/marked").data.replace(b'"1,250.00"', b"1250.00")
    second = send(house, corrected, before=first)
    house.post("maria", f"/files/{second}/ask")
    page = house.page("daniel", f"/files/{second}/approve")
    assert "3 payments of the previous version are not in this one and would not be paid by it." in page


def test_whoever_chooses_how_a_file_is_read_does_not_approve_it(house: House) -> None:
    """Pia may prepare and approve: having had Maria's file corrected she made it what it is. A plain look again not."""
    mine, other = house.upload(*ROWS, {**WRONG, "amount": "1,250.00"}), house.upload(ROWS[0], name="other.csv")
    house.post("pia", f"/files/{mine}/check", corrections="chosen", accept="amount.format")
    house.post("pia", f"/files/{other}/check")
    house.work()
    for file_id in (mine, other):
        house.post("maria", f"/files/{file_id}/ask")
    refused = words_of(house.approve(mine, by="pia", code=403))
    assert "You chose how this file is read" in refused
    house.approve(mine, by="daniel")
    house.approve(other, by="pia")


def test_a_new_version_says_what_it_changed(house: House) -> None:
    """Changed accounts first, masked; the version before can't be asked about, and says where the new one is."""
    first = house.upload(*ROWS)
    changed = {**ROWS[1], "achAccountNumber": "777888999"}
    second = send(house, csv_of(ROWS[0], changed, {**ROWS[2], "paymentId": "D"}), before=first)
    page = house.page("daniel", f"/files/{second}/check")
    assert "1 payment added, 1 removed, 1 changed." in page
    assert "1 account number changed. Bo Hart B ****3924 → ****8999" in page
    assert house.file(first)["state"] == "replaced"
    house.post("maria", f"/files/{first}/ask", 409)
    assert "There is a newer version of this file." in house.page("maria", f"/files/{first}/check")
    assert first not in house.get("maria", "/").get_data(as_text=True)
    answer = house.as_("maria").post(
        "/files", data={"name": "x.csv", "size": "5", "before": first}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    assert answer.status_code == 400


def test_rows_without_an_id_are_held_against_each_other_by_place_or_content(house: House) -> None:
    """Files of one length by place; with one row less, what did not change is not told as changed."""
    plain = [{"amount": f"{number}.00", "achNameOnCheck": f"P{number}"} for number in range(1, 4)]
    first = house.upload(*plain)
    second = send(house, csv_of(plain[0], {**plain[1], "amount": "9.00"}, plain[2]), before=first)
    assert "0 payments added, 0 removed, 1 changed." in house.page("maria", f"/files/{second}/check")
    third = send(house, csv_of(plain[0], plain[2]), before=second)
    assert "0 payments added, 1 removed, 0 changed." in house.page("maria", f"/files/{third}/check")


def test_a_file_that_may_be_cut_off_waits_for_its_totals(house: House) -> None:
    """Without a line break at its end it is refused until its person states what it comes to, rightly."""
    file_id = send(house, csv_of(*ROWS).rstrip(b"\n"))
    page = house.page("maria", f"/files/{file_id}/check")
    assert "say below that you expect 3 and 60.75" in page and "--expect" not in page
    for total, state in (("60.70", "refused"), ("60.75", "checked")):
        house.post("maria", f"/files/{file_id}/check", expect_rows="3", expect_total=total)
        house.work()
        assert house.file(file_id)["state"] == state
    house.post("maria", f"/files/{file_id}/check", 400, expect_rows="three")


def test_who_fills_in_a_file_is_helped(house: House) -> None:
    """An empty workbook to fill in, and every rule in the words that a row would be told."""
    from openpyxl import load_workbook

    template = house.get("maria", "/template.xlsx")
    header = [cell.value for cell in next(load_workbook(io.BytesIO(template.data)).worksheets[0].iter_rows())]
    assert set(COLUMNS) <= set(header)
    page = house.page("lee", "/rules")
    assert "achNameOnCheck is missing, fill it in" in page
    assert "write digits, a point and two decimals and nothing else" in page
    assert "nothing here can stop it, write a number" in page and "--" not in page


def test_the_page_has_no_options(house: House) -> None:
    """It told people without a command line to submit a row with --allow-duplicates --reason TEXT."""
    bill = {"paymentId": "", "invoiceNumber": "INV-B", "amount": "5.00"}
    page = check_page(house, send(house, csv_of(bill, bill)))
    assert "if both are due give it an invoice number of its own" in page and "--allow" not in page


def test_a_file_of_another_encoding_asks_which(house: House) -> None:
    """What Excel on Windows saves as CSV is not UTF-8: its person chooses, and names come out right."""
    file_id = send(house, csv_of({**ROWS[0], "achNameOnCheck": "José Núñez"}).decode().encode("cp1252"))
    page = house.page("maria", f"/files/{file_id}/check")
    assert "in cp1252 its names read José Núñez" in page and ": choose below what it is" in page
    assert "--encoding" not in page
    house.post("maria", f"/files/{file_id}/check", encoding="cp1252")
    house.work()
    assert "José Núñez" in house.page("daniel", f"/files/{file_id}/payments")


def test_an_ach_file_is_refused_by_its_name(house: House) -> None:
    """The page asked which column is which, and showed the account of the first payment as the name of one."""
    entry = "6220260095937672879924       0000253479E0             OWEN MENON              0021000020000000"
    page = house.page("maria", f"/files/{send(house, entry.encode())}/check")
    assert "it is an ACH file (NACHA), which a bank carries out" in page
    assert "7672879924" not in page


def test_a_workbook_with_several_sheets_asks_which(house: House) -> None:
    """The sheets are listed, one is chosen, and another can be."""
    from openpyxl import Workbook

    book = Workbook()
    for number, name in enumerate(("Vendors", "Payroll")):
        sheet = book.active if number == 0 else book.create_sheet()
        assert sheet is not None
        sheet.title = name
        sheet.append(list(COLUMNS))
        sheet.append([str((PLAIN | ROWS[number]).get(column, "")) for column in COLUMNS])
    content = io.BytesIO()
    book.save(content)
    file_id = send(house, content.getvalue(), "pay.xlsx")
    page = house.page("maria", f"/files/{file_id}/check")
    assert "has several sheets of payments, 'Vendors', 'Payroll'" in page and "--sheet" not in page
    for name, amount in (("Payroll", "20.50"), ("Vendors", "10.00")):
        house.post("maria", f"/files/{file_id}/check", sheet=name)
        house.work()
        assert f"{amount} 1 row" in house.page("maria", f"/files/{file_id}/check")


def test_columns_of_somebody_else_are_asked_about_once(house: House) -> None:
    """A map is proposed, its questions asked, nothing taken before somebody agreed; the next file needs no question."""
    names = {
        "Payee": "achNameOnCheck", "Account No": "achAccountNumber", "Routing No": "achRoutingNumber",
        "Amount": "amount", "Acct Type": "achDepositType", "First": "billingFirstName", "Last": "billingLastName",
        "Direction": "transactionType", "Ref": "invoiceNumber",
    }  # fmt: skip

    def foreign(*rows: dict[str, str]) -> bytes:
        lines = [list(names), *([(PLAIN | row)[name] for name in names.values()] for row in rows)]
        return "".join(",".join(line) + "\n" for line in lines).encode()

    file_id = send(house, foreign(*ROWS), "vendors.csv")
    all_answers: Any = {}
    for _ in range(4):
        proposal = spool.unseal_json(house.site.ledger(), file_id, "proposal", house.file(file_id)["proposal"])
        page = house.page("maria", f"/files/{file_id}/check")
        assert "Which column is which?" in page and PLAIN["achAccountNumber"] not in page
        assert "batchpay gateway list" not in page, "a command, for people who have none"
        needed = [one for one in proposal["questions"] if one["needed"]]
        if not needed:
            break
        answers: Any = {
            f"answer.{one['about']}: {one['question']}": one["choices"][0] if one["choices"] else "1001"
            for one in needed
        }
        all_answers |= answers
        house.post("maria", f"/files/{file_id}/map", **answers)
        house.work()
    assert house.file(file_id)["state"] == "refused", "a proposal alone reads nothing"
    taken = next(iter(all_answers)).removeprefix("answer.")
    assert "Take back" in house.page("maria", f"/files/{file_id}/check")
    house.post("maria", f"/files/{file_id}/map", back=taken)
    house.work()
    proposal = spool.unseal_json(house.site.ledger(), file_id, "proposal", house.file(file_id)["proposal"])
    asked = [f"{one['about']}: {one['question']}" for one in proposal["questions"] if one["needed"]]
    assert asked == [taken], "only this answer was taken back"
    house.post("maria", f"/files/{file_id}/map", **all_answers)
    house.work()
    house.post("maria", f"/files/{file_id}/map", agreed="yes")
    house.work()
    page = house.page("daniel", f"/files/{file_id}/check")
    assert (
        "3 rows Send 2 credits, USD 30.50 · Collect 1 debit, USD 30.25" in page
        and "read with the map that Maria Lind confirmed" in page
    )
    assert "achRoutingNumber Routing No columns" in page and "gatewayId 1001 fixed for every row" in page
    later = send(house, foreign({**ROWS[0], "invoiceNumber": "INV-L"}), "vendors-2.csv")
    page = house.page("daniel", f"/files/{later}/check")
    assert "10.00 1 row" in page and "for an earlier file with the same columns" in page
    house.post("maria", f"/files/{later}/map", anew="yes")
    house.work()
    assert "Which column is which?" in house.page("maria", f"/files/{later}/check")
    house.post("maria", f"/files/{later}/map", **all_answers)
    house.work()
    house.post("maria", f"/files/{later}/map", agreed="yes")
    house.work()
    house.post("maria", f"/files/{later}/ask")
    house.approve(later)
    house.work()
    assert sum(house.arrived.values()) == 1, "the run reads the file through the same map"


def test_the_check_rejects_what_a_run_would_and_says_where_it_could_not_ask(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked, an account that takes no payments is a wrong row; unasked, whoever approves must know."""
    monkeypatch.setattr(Preflight, "refused", lambda self, ids: dict.fromkeys(ids, "unknown"))
    facts = house.facts(send(house, csv_of(*ROWS), "asked.csv"))
    assert (facts["would_send"], facts["counts"]) == (0, {"gatewayId.unknown": len(ROWS)})

    def silent(self: Preflight, ids: object) -> dict[str, str]:
        raise RunStopped("nobody answers")

    monkeypatch.setattr(Preflight, "refused", silent)
    file_id = send(house, csv_of(*ROWS[:1]), "unasked.csv")
    assert house.facts(file_id)["would_send"] == 1
    assert "The gateway accounts could not be checked." in check_page(house, file_id)


def test_warnings_are_told_with_their_places_and_stay_with_the_payment(house: House) -> None:
    """A page had counts: neither who approved nor who looked a week later could tell which payment it was about."""
    rows = [*ROWS, ROWS[0] | {"paymentId": "D", "invoiceNumber": "D", "achAccountNumber": "AB648443"}]
    file_id = house.ask(*rows)
    told = house.page("daniel", f"/files/{file_id}/approve")
    assert "1 row: account number achAccountNumber" in told
    assert "(line 5)" in told
    house.approve(file_id)
    house.work()
    batch = house.file(file_id)["batch"]
    run = house.page("lee", f"/files/{file_id}/run")
    assert "1 warning: the results and the report have each with its payment" in run
    results = house.get("maria", f"/batches/{batch}/results?as=csv").get_data(as_text=True)
    (one,) = [line for line in csv.DictReader(io.StringIO(results)) if line["warnings"]]
    assert (one["paymentId"], one["warnings"].partition(": ")[0]) == ("D", "achAccountNumber")


def test_several_currencies_have_no_sum(house: House) -> None:
    """On the page of the file, the list of files and the page to approve each currency has its own total."""
    rows = [{**row, "currencyCode": code} for row, code in zip(ROWS, ("EUR", "GBP"), strict=False)]
    lines = list(csv.reader(io.StringIO(csv_of(*rows).decode())))
    lines = [
        [*lines[0], "currencyCode"],
        *([*line, row["currencyCode"]] for line, row in zip(lines[1:], rows, strict=True)),
    ]
    file_id = send(house, "\n".join([*map(",".join, lines), ""]).encode())
    total = house.facts(file_id)["amount"]["total"]
    pages = [check_page(house, file_id), house.page("maria", "/")]
    for page in pages:
        assert "EUR " in page and printable(f"{float(total):,.2f}") not in page


def test_a_file_that_was_paid_and_is_read_otherwise_names_its_batch(house: House) -> None:
    """In another encoding its names are other payees; the command line's option for it is not shown."""
    content = csv_of({**ROWS[0], "achNameOnCheck": "José Núñez"}).decode().encode("cp1252")
    for encoding in ("cp1252", "mac-roman"):
        file_id = send(house, content)
        house.post("maria", f"/files/{file_id}/check", encoding=encoding)
        house.work()
        if encoding == "cp1252":
            house.post("maria", f"/files/{file_id}/ask")
            house.approve(file_id)
            house.work()
    page = house.page("maria", f"/files/{file_id}/check")
    assert "is of a file with the same bytes, read as other payments (1 row, 10.00)" in page
    assert "--again" not in page


def test_another_file_dropped_on_a_page_makes_none_vanish(house: House) -> None:
    """The first one was replaced without a word, and paid by nobody: another name and none of its payments is asked."""
    first = house.upload(*ROWS)
    others = [{**ROWS[0], "paymentId": f"X{number}", "invoiceNumber": f"INV-X{number}"} for number in range(3)]
    content = csv_of(*others)
    for answer, name in (("no", "travel.csv"), ("yes", "week-49.csv")):
        data = {"file": (io.BytesIO(content + b"\n"), name), "before": first}
        second = house.as_("maria").post("/files", data=data, headers=SAME_ORIGIN).headers["Location"].split("/")[2]
        house.work()
        assert house.file(first)["state"] == "checked"
        asked = "Is this a new version of pay.csv , or another file?"
        assert asked in house.page("maria", f"/files/{second}/check")
        house.post("lee", f"/files/{second}/version", 403, is_version=answer)
        house.post("maria", f"/files/{second}/version", is_version=answer)
        assert asked not in house.page("maria", f"/files/{second}/check")
        assert house.file(first)["state"] == ("replaced" if answer == "yes" else "checked")
    house.post("maria", f"/files/{second}/check")
    house.work()
    assert house.file(first)["state"] == "replaced", "what a person answered stands"
    assert first in house.get("maria", "/?show=gone").get_data(as_text=True)
    house.post("lee", f"/files/{first}/restore", 403)
    house.post("maria", f"/files/{first}/restore")
    house.work()
    assert house.file(first)["state"] == "checked"
    assert "was not replaced" in house.page("maria", f"/files/{second}/check")


def test_a_file_is_discarded_and_restored(house: House) -> None:
    """Nothing of it is sent meanwhile; one that waits for approval, or was sent, stays. The history says who did it."""
    file_id = house.upload(*ROWS)
    house.post("lee", f"/files/{file_id}/discard", 403)
    house.post("maria", f"/files/{file_id}/discard")
    house.post("maria", f"/files/{file_id}/ask", 409)
    assert file_id not in house.get("maria", "/").get_data(as_text=True)
    assert "This file was discarded" in house.page("maria", f"/files/{file_id}/check")
    house.post("maria", f"/files/{file_id}/restore")
    house.work()
    house.post("maria", f"/files/{file_id}/ask")
    house.post("maria", f"/files/{file_id}/discard", 409)
    house.post("maria", f"/files/{file_id}/restore", 409)
    assert "Maria Lind (maria) discarded it" in house.page("lee", "/audit")


def test_a_note_is_added_at_any_time(house: House) -> None:
    """Also to a file that was sent, by somebody who only looks; an account number is refused, and so is nothing."""
    file_id = house.sent(*ROWS)
    house.post("lee", f"/files/{file_id}/note", 400, note=" ")
    house.post("lee", f"/files/{file_id}/note", 400, note="the account 648443924 is closed")
    house.post("lee", f"/files/{file_id}/note", note="Bo called <b>twice</b>")
    assert "Lee Park noted: Bo called <b>twice</b>" in house.page("maria", f"/files/{file_id}/run")


def test_all_that_was_done_is_listed_by_pages(house: House) -> None:
    """What was older than the latest two hundred was in the CSV alone."""
    with house.store.write() as db:
        for number in range(450):
            house.store.note(db, "maria", None, f"did no. {number}.")
    pages = [house.page("lee", f"/audit?who=maria&page={page}") for page in (1, 2, 3)]
    for place, (number, page) in enumerate(zip((449, 249, 49), pages, strict=True)):
        assert (f"did no. {number}." in page and f"did no. {number - 199}." in page) or place == 2
        assert ("Older" in page, "Newer" in page) == (place < 2, place > 0)
    assert "did no. 0." in pages[2] and "did no. 50." not in pages[2]
    house.page("lee", "/audit?page=-5")
