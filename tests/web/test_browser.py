"""The whole story in a real browser: upload, correct, ask, approve, watch, settle, reconcile; nothing in the console.

Pictures of each page are kept under build/pictures/. Needs a Chromium; skipped with a word where there is none.
"""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from batchpay.web import people
from tests.support.command import Home
from tests.support.page import added
from tests.support.real_browser import real_browser
from tests.web.house import csv_of
from tests.workflows.desk import COLUMNS, PLAIN

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).resolve().parents[2] / "build" / "pictures"
PAYMENTS, RATE, WAIT_MS = 90, "45", 60_000
LOST = ("64844990004", "64955990004")
"""Accounts whose payment the sandbox makes without an answer."""
CAME_BACK = {12: "64840990052", 14: "64840990051", 20: "64840990081"}
"""Rows whose payment the sandbox lets come back: a closed account, one without money, one with another number."""
LOST_CREDIT = {
    "paymentId": "N1", "invoiceNumber": f"INVOICE{'9' * 20}", "amount": "107.25", "achAccountNumber": LOST[0],
    "achNameOnCheck": "AVeryLongNameWithout",
}  # fmt: skip
WRONG = (("amount", "1,250.00"), ("achRoutingNumber", "121000333"), ("transactionType", "debit"))
PEOPLE = {
    "maria": ("Maria Lind", ("prepare",)),
    "daniel": ("Daniel Osei", ("approve", "settle")),
    "nina": ("Nina Roth", ("approve", "look")),
}


@dataclass
class Office:
    """The page as it runs, and the browsers of its people."""

    url: str
    home: Home
    folder: Path
    passwords: dict[str, str]
    browser: Browser
    said: list[str] = field(default_factory=list)
    """What any console said."""
    pages: list[Page] = field(default_factory=list)
    """Those that are open: each asks and draws for as long as it is."""

    def open(self, name: str, **options: Any) -> Page:
        """Open a person's browser."""
        page = self.browser.new_context(
            viewport={"width": 1280, "height": 860}, reduced_motion="reduce", **options
        ).new_page()
        self.pages.append(page)
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: self.said.append(f"{name}: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"{name}: {error}"))
        return page

    def sign_in(self, name: str, **options: Any) -> Page:
        """Open a person's browser, signed in."""
        page = self.open(name, **options)
        page.goto(self.url)
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password", exact=True).fill(self.passwords[name])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".who")).to_contain_text(PEOPLE[name][0])
        return page

    def close(self) -> None:
        """Close the browsers of all people."""
        while self.pages:
            self.pages.pop().context.close()


@contextmanager
def running(command: list[str], home: Home) -> Iterator[str]:
    """Run one of our servers for as long as the block lasts; gives its address."""
    environment = home.environment
    with subprocess.Popen(command, env=environment, cwd=home.path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rsplit(" ", 1)[1].strip()
        finally:
            process.terminate()


@pytest.fixture
def office(opened: Office) -> Iterator[Office]:
    """The office, in which nobody is signed in."""
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Sandbox, page and three people; a browser."""
    with real_browser() as browser:
        if browser is None:
            missing = "no Chromium was found, so the page is not tried in a browser"
            if os.environ.get("BATCHPAY_REQUIRE_BROWSER"):
                pytest.fail(missing)
            pytest.skip(missing)
        expect.set_options(timeout=WAIT_MS)
        PICTURES.mkdir(parents=True, exist_ok=True)
        home = Home(tmp_path_factory.mktemp("office"), extra={"BATCHPAY_RATE": RATE})
        sandbox = [sys.executable, "-m", "batchpay", "sandbox", "--port", "0", "--returns", "returns.csv"]
        with running(sandbox, home) as home.origin:
            passwords = {}
            for name, (shown, roles) in PEOPLE.items():
                passwords[name] = added(home, name, *roles, shown=shown)
            with running(home.command("web", "--listen", "127.0.0.1:0", "--home", "page"), home) as url:
                yield Office(url, home, home.path, passwords, browser)


def workbook(path: Path, *, is_right: bool) -> Path:
    """Write a workbook of payments: the first few with mistakes, or all of them right."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(COLUMNS)
    for number in range(1, PAYMENTS + 1):
        row = PLAIN | {
            "paymentId": f"P-{number:03}", "invoiceNumber": f"INV-{number:03}", "amount": f"{100 + 7 * number}.25",
            "transactionType": "DEBIT" if number % 3 else "CREDIT", "achNameOnCheck": f"Payee {number:03}",
            "achAccountNumber": f"6484{number:05}1",
        }  # fmt: skip
        if number in (40, 63):
            row["achAccountNumber"] = LOST[number == 63]
        row["achAccountNumber"] = CAME_BACK.get(number, row["achAccountNumber"])
        if number <= len(WRONG) and not is_right:
            column, text = WRONG[number - 1]
            row[column] = text
        sheet.append([row.get(column) or None for column in COLUMNS])
    book.save(path)
    return path


def export() -> bytes:
    """What the bank says: all of it was paid today."""
    out, today = io.StringIO(), datetime.now(UTC).date().isoformat()
    out.write("invoiceNumber,amount,status,date\n")
    for number in range(1, PAYMENTS + 1):
        out.write(f"INV-{number:03},{100 + 7 * number}.25,paid,{today}\n")
    return out.getvalue().encode()


def look(page: Page, name: str, *, whole: bool = True) -> None:
    """Keep a picture, and hold the page against the rules of accessibility: nothing serious may be wrong."""
    page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [(name, one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious]


def test_the_whole_story(office: Office) -> None:
    """A wrong workbook is corrected, approved by another person without script, sent, settled and reconciled."""
    maria = office.sign_in("maria")
    look(maria, "01-files")
    maria.get_by_label("choose a file").set_input_files(workbook(office.folder / "payroll.xlsx", is_right=False))
    maria.wait_for_url("**/check")
    expect(maria.get_by_role("heading", name="Rows to correct")).to_contain_text("3")
    look(maria, "02-checked")
    maria.keyboard.press("n")
    expect(maria.locator("td.here")).to_have_text("1,250.00")
    maria.get_by_role("link", name="routing number").click()
    expect(maria.locator("#sheet tbody tr")).to_have_count(1)
    right = workbook(office.folder / "payroll-corrected.xlsx", is_right=True)
    first = maria.url
    maria.get_by_label("choose a file").set_input_files(right)
    maria.wait_for_url(lambda url: url.endswith("/check") and url.split("?")[0] != first.split("?")[0])
    expect(maria.get_by_role("button", name="Request approval")).to_be_visible()
    look(maria, "03-corrected")
    maria.get_by_placeholder("Note to the approver").fill("Payroll, week 47")
    maria.get_by_role("button", name="Request approval").click()
    expect(maria.get_by_text("To approve, you need the role approve")).to_be_visible()
    office.close()
    run = _approve_without_script(office)
    office.close()
    for part in (_watch, _settle, _take_returns, _correct, _on_a_phone):
        part(office, run)
        office.close()
    assert office.said == []


def _approve_without_script(office: Office) -> str:
    """Daniel finds the request, looks and signs; forms and links are enough. Gives the address of the run."""
    daniel = office.sign_in("daniel", java_script_enabled=False)
    daniel.get_by_role("link", name="To approve").click()
    daniel.screenshot(path=PICTURES / "04-to-approve.png")
    daniel.get_by_role("link", name="payroll-corrected.xlsx").click()
    expect(daniel.get_by_text("Payroll, week 47")).to_be_visible()
    daniel.screenshot(path=PICTURES / "05-approve.png", full_page=True)
    daniel.get_by_label("Your password").fill(office.passwords["daniel"])
    daniel.get_by_role("button", name=re.compile("^Approve and send")).click()
    daniel.wait_for_url("**/run")
    return daniel.url


def _watch(office: Office, run: str) -> None:
    """Nina sees how far it is without touching anything, and how it ended."""
    nina = office.sign_in("nina")
    nina.goto(run)
    expect(nina.locator(".stripe")).to_be_visible()
    nina.screenshot(path=PICTURES / "06-running.png")
    expect(nina.locator(".pace")).to_contain_text("The run ended. 2 payments are in doubt")
    expect(nina.get_by_role("link", name="Results, as a workbook")).to_be_visible()
    look(nina, "07-ended")
    with nina.expect_download() as given:
        nina.get_by_role("link", name="Results, as a workbook").click()
    given.value.save_as(office.folder / "results.xlsx")
    assert openpyxl.load_workbook(office.folder / "results.xlsx")["results"].max_row == PAYMENTS + 1


def _settle(office: Office, run: str) -> None:
    """Daniel settles one doubt by hand and the other by the bank's export; he reads times in his own zone."""
    daniel = office.sign_in("daniel", timezone_id="Asia/Tokyo")
    daniel.goto(run)
    daniel.get_by_role("link", name="Look them up and settle").click()
    look(daniel, "08-in-doubt")
    daniel.emulate_media(media="print")  # on paper it is a list to look payments up by: it was blank
    expect(daniel.locator("table.doubts")).to_be_visible()
    expect(daniel.locator("table.doubts select").first).to_be_hidden()
    daniel.emulate_media(media="screen")
    form = daniel.locator("form:has(table.doubts)")
    form.locator("select").first.select_option("accepted")
    form.get_by_label("How you know").fill("seen in the portal")
    form.get_by_label("Your password").fill(office.passwords["daniel"])
    form.get_by_role("button", name="Record what happened").click()
    expect(daniel.locator("table.doubts select")).to_have_count(1)
    daniel.goto(run)
    daniel.get_by_role("link", name="Reconcile with the bank's export").click()
    upload: Any = {"name": "bank.csv", "mimeType": "text/csv", "buffer": export()}
    daniel.locator("input[type=file]").set_input_files(upload)
    daniel.get_by_role("button", name="Compare").click()
    expect(daniel.get_by_text("was paid")).to_be_visible()
    look(daniel, "09-reconciled")
    daniel.get_by_label("Your password").fill(office.passwords["daniel"])
    daniel.get_by_role("button", name="Settle 1 payment").click()
    expect(daniel.get_by_role("status")).to_contain_text("Daniel Osei settled 1 payment by this export")
    expect(daniel.get_by_role("button", name="Settle 1 payment")).to_have_count(0)
    look(daniel, "09-settled")
    daniel.goto(run)
    expect(daniel.get_by_text("Finished. Every payment was answered.")).to_be_visible()
    look(daniel, "10-finished")
    daniel.get_by_role("link", name="History").click()
    look(daniel, "11-history")
    daniel.get_by_role("link", name="Who did what").click()
    look(daniel, "12-audit", whole=False)
    for one in (daniel.locator("td time").first, daniel.locator("td time").last):
        expect(one).to_have_text(re.compile(r"^\w{3} \d+, 20\d\d, \d\d:\d\d GMT\+9$"))
        expect(one).to_have_attribute("title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))


def _take_returns(office: Office, run: str) -> None:
    """Daniel takes in the bank's file; one line is about nobody, and another only perhaps about a payment."""
    daniel = office.sign_in("daniel")
    daniel.get_by_role("link", name="Returns").click()
    expect(daniel.get_by_text("Nothing came back yet")).to_be_visible()
    look(daniel, "17-no-returns")
    told = (office.folder / "returns.csv").read_bytes()
    day, amount = told.decode().splitlines()[1].partition(",")[0], f"{100 + 7 * 15}.25"
    more = f"{day},R03,,INV-999,,5.00,,,\r\n{day},R16,,,CREDIT,{amount},Payee 015,****0151,\r\n"
    upload: Any = {"name": "returns.csv", "mimeType": "text/csv", "buffer": told + more.encode()}
    daniel.locator("input[type=file]").set_input_files(upload)
    daniel.get_by_role("button", name="Take in").click()
    expect(daniel.get_by_role("status")).to_contain_text("3 lines recorded, 1 line perhaps found, 1 line not recorded")
    daniel.get_by_text("Say which payment it is").click()
    look(daniel, "18-returns")
    form = daniel.locator("form:has(select)")
    form.get_by_label("How you know").fill("called the bank")
    form.get_by_label("Your password").fill(office.passwords["daniel"])
    form.get_by_role("button", name="This one came back").click()
    expect(daniel.get_by_text("Say which payment it is")).to_have_count(0)
    daniel.goto(run)
    expect(daniel.get_by_text("3 payments came back")).to_be_visible()
    look(daniel, "19-came-back")
    daniel.get_by_role("link", name="What came back, and what to do").click()
    daniel.get_by_text("Withdraw", exact=True).first.click()
    look(daniel, "20-returns-of-a-batch")


def _correct(office: Office, run: str) -> None:
    """Maria has a file made of what came back, on a phone as well: a closed account, and one without money."""
    maria = office.sign_in("maria")
    maria.goto(run)
    maria.get_by_role("link", name="Make a file of these to correct").click()
    look(maria, "27-to-correct")
    maria.set_viewport_size({"width": 390, "height": 844})
    assert maria.evaluate("document.documentElement.scrollWidth") <= 390
    look(maria, "28-phone-to-correct")
    with maria.expect_download() as given:
        maria.get_by_role("link", name=re.compile("^Download . payments? to correct")).click()
    assert given.value.suggested_filename == "payroll-corrected.to-correct.xlsx"


def _on_a_phone(office: Office, run: str) -> None:
    """At 390 pixels, dark and without motion nothing stands beside the screen; the keyboard alone reaches the page."""
    nina = office.sign_in("nina", color_scheme="dark")
    nina.set_viewport_size({"width": 390, "height": 844})
    for name, address in (
        ("13-phone-files", office.url),
        ("14-phone-run", run),
        ("15-phone-check", run.replace("/run", "/check")),
        ("22-phone-payments", run.replace("/run", "/payments")),
        ("16-phone-history", f"{office.url}history"),
        ("21-phone-returns", f"{office.url}returns"),
    ):
        nina.goto(address)
        assert nina.evaluate("document.documentElement.scrollWidth") <= 390, name
        shown = "[...document.querySelectorAll('.bar nav a, .chips a, .list td, .payments td')]"
        cut = "one.getBoundingClientRect().right > 390 || one.scrollWidth > one.clientWidth + 1"
        assert nina.evaluate(f"{shown}.filter(one => {cut}).map(one => one.textContent)") == [], name
        look(nina, name)
    nina.keyboard.press("Tab")
    expect(nina.get_by_role("link", name="Skip to content")).to_be_focused()


def test_a_person_is_invited_and_enrolls(office: Office) -> None:
    """By the link alone: its token leaves the address at once, and reaches no server. Nina confirms who it was."""
    done = office.home.run("web", "--home", "page", "user", "add", "olga", "--shown", "Olga Tarr", "--role", "approve")
    link = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("link"))
    assert link.startswith(f"{office.url}enroll#")
    olga, asked = office.open("olga"), list[str]()
    olga.on("request", lambda request: asked.append(request.url))
    olga.goto(link)
    expect(olga.get_by_role("heading", name="Olga Tarr")).to_be_visible()
    assert olga.url == f"{office.url}enroll"
    look(olga, "22-enroll")
    olga.set_viewport_size({"width": 390, "height": 844})
    olga.emulate_media(color_scheme="dark")
    assert olga.evaluate("document.documentElement.scrollWidth") <= 390
    look(olga, "23-phone-enroll")
    olga.get_by_text("Or type the secret").click()
    secret = base64.b32decode(olga.locator("code").inner_text().replace(" ", ""))
    for label in ("New password", "The same password again"):
        olga.get_by_label(label).fill("three words that nobody knows")
    olga.get_by_label("Code from your authenticator").fill(people.code_at(secret, int(time.time()) // people.STEP_S))
    olga.get_by_role("button", name="Save and sign in").click()
    expect(olga.get_by_text("Another person has yet to confirm")).to_be_visible()
    assert not any(link.partition("#")[2] in url.partition("#")[0] for url in asked)
    nina = office.sign_in("nina")
    nina.get_by_role("link", name=re.compile("Nina Roth")).click()
    look(nina, "24-confirm")
    form = nina.locator("form:has-text('Olga Tarr')")
    form.get_by_label("Your password").fill(office.passwords["nina"])
    form.get_by_role("button", name="It was Olga Tarr").click()
    expect(nina.get_by_text("Confirm who enrolled")).to_have_count(0)
    olga.reload()
    expect(olga.get_by_text("Another person has yet to confirm")).to_have_count(0)
    olga.get_by_role("link", name=re.compile("Olga Tarr")).click()
    look(olga, "25-phone-you")
    assert olga.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_is_cut_short_says_so_and_can_be_read(office: Office) -> None:
    """A reason ended after two lines like any other, and a long cell could be read nowhere; `n` passed such rows by."""
    rows = [
        {"paymentId": "L1", "invoiceNumber": "INV-L1", "amount": "1" * 90, "achRoutingNumber": "1"},
        *({"paymentId": "", "invoiceNumber": "INV-L2", "amount": "5.00"} for _ in range(2)),
    ]
    maria = office.sign_in("maria")
    content: Any = {"name": "long.csv", "mimeType": "text/csv", "buffer": csv_of(*rows)}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.wait_for_url("**/check")
    lines = maria.locator("td.why div")
    assert lines.first.evaluate("one => one.scrollHeight > one.clientHeight")
    expect(lines.first).to_have_css("-webkit-line-clamp", "2")
    lines.first.click()
    assert lines.first.evaluate("one => one.scrollHeight <= one.clientHeight")
    long = maria.get_by_role("cell", name="1" * 90, exact=True)
    assert long.evaluate("one => one.scrollWidth > one.clientWidth")
    long.click()
    assert long.evaluate("one => one.scrollWidth <= one.clientWidth")
    for _ in range(3):
        maria.keyboard.press("n")
    expect(maria.locator("td.why.here")).to_contain_text("is the same bill as line 3")


def test_a_map_can_be_read_on_a_phone(office: Office) -> None:
    """Its two tables stood side by side at 390 pixels, one upon the other and wider than the screen."""
    maria = office.sign_in("maria")
    rows = "Vendor,Routing #,Account #,Net Due,Invoice No\nAcme Supplies Inc,121000332,551207701,1250.50,A-1\n"
    content: Any = {"name": "theirs.csv", "mimeType": "text/csv", "buffer": rows.encode()}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.wait_for_url("**/check")
    maria.set_viewport_size({"width": 390, "height": 844})
    assert maria.evaluate("document.documentElement.scrollWidth") <= 390
    cards = maria.locator(".two > .card").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert min(cards) > 300
    look(maria, "26-phone-map")


def test_the_first_wrong_cell_is_beside_what_is_wrong(office: Office) -> None:
    """With all columns of a file it was off to the right, so that nobody saw what was wrong without scrolling."""
    maria = office.sign_in("maria")
    content: Any = {"name": "side.csv", "mimeType": "text/csv", "buffer": csv_of(LOST_CREDIT | dict(WRONG[1:2]))}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.wait_for_url("**/check")
    maria.get_by_role("link", name="show all").click()
    wrong = maria.locator("td.error").first
    assert wrong.evaluate("""one => {
        const cell = one.getBoundingClientRect(), sheet = one.closest("#sheet");
        return cell.left >= sheet.querySelector("td.why").getBoundingClientRect().right
            && cell.right <= sheet.getBoundingClientRect().right && sheet.scrollLeft > 0;
    }""")


def test_an_upload_says_what_stops_it(office: Office) -> None:
    """Of two files that were dropped the second was lost without a word; a full disk was called a lost connection.

    A file that was saved again while it was read was tried for ever, as if the connection were lost.
    """
    maria = office.sign_in("maria")
    alert, progress = maria.get_by_role("alert"), maria.locator(".going output")
    maria.evaluate("""() => {
      const data = new DataTransfer();
      for (const name of ["one.csv", "two.csv"]) data.items.add(new File(["x"], name));
      dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""")
    expect(alert).to_have_text("One file at a time. Nothing was uploaded.")
    file: Any = {"name": "full.csv", "mimeType": "text/csv", "buffer": csv_of({})}
    answers = [
        (503, "the upload can't be saved: No space left on device"),
        (401, "You are signed out, and nothing was done. Please sign in first."),
    ]
    maria.route(
        "**/pieces/0", lambda route: route.fulfill(status=answers[0][0], body=answers[0][1], content_type="text/plain")
    )
    maria.get_by_label("choose a file").set_input_files(file)
    expect(progress).to_have_text("the upload can't be saved: No space left on device. Trying again.")
    del answers[0]
    expect(alert).to_have_text("You are signed out, and nothing was done. Please sign in first.")
    maria.evaluate(
        "() => { Blob.prototype.arrayBuffer = () => Promise.reject(new DOMException('', 'NotReadableError')); }"
    )
    maria.get_by_label("choose a file").set_input_files(file)
    expect(alert).to_contain_text("was changed or moved while it was read")


def test_what_was_filled_in_outlives_the_session(office: Office) -> None:
    """Half an hour of looking payments up, or a night: the button led to a page to sign in, and all of it was gone."""
    maria = office.sign_in("maria")
    row = {"paymentId": "S1", "invoiceNumber": "INV-S1", "amount": "6.00"}
    content: Any = {"name": "session.csv", "mimeType": "text/csv", "buffer": csv_of(row)}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.wait_for_url("**/check")
    maria.get_by_placeholder("Note to the approver").fill("as agreed by telephone")
    cookies: Any = maria.context.cookies()
    maria.context.clear_cookies()
    maria.get_by_role("button", name="Request approval").dblclick()
    expect(maria.get_by_role("alert").first).to_contain_text("You are signed out. Nothing was done")
    expect(maria.get_by_placeholder("Note to the approver")).to_have_value("as agreed by telephone")
    maria.context.add_cookies(cookies)
    maria.get_by_role("button", name="Request approval").dblclick()
    expect(maria.get_by_text("as agreed by telephone")).to_be_visible()


def test_long_names_stay_within_a_narrow_window(office: Office) -> None:
    """A file's name without a blank, and buttons, stood beside the screen: at 320 pixels, which is 1280 at 400 %."""
    maria = office.sign_in("maria")
    content: Any = {"name": f"{'n' * 120}.csv", "mimeType": "text/csv", "buffer": csv_of(LOST_CREDIT)}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.wait_for_url("**/check")
    maria.get_by_role("button", name="Request approval").click()
    daniel = office.sign_in("daniel")
    daniel.goto(maria.url)
    daniel.get_by_label("Your password").fill(office.passwords["daniel"])
    daniel.get_by_role("button", name=re.compile("^Approve and send")).click()
    expect(daniel.locator(".pace")).to_contain_text("The run ended")
    pages = [daniel.url, *(f"{office.url}{name}" for name in ("audit", "doubts", "returns", "rules"))]
    pages.append(daniel.get_by_role("link", name="Reconcile").evaluate("one => one.href"))
    for width in (320, 1280):
        daniel.set_viewport_size({"width": width, "height": 800})
        for address in pages:
            daniel.goto(address)
            assert daniel.evaluate("document.documentElement.scrollWidth") <= width, (width, address)


def test_the_approver_finds_the_changed_account_among_a_thousand(office: Office) -> None:
    """By one click, by name and by the last four; no whole account number reaches the approver's browser."""
    account, changed = "648481234", "648400077661"
    rows = [
        {"paymentId": f"T{n}", "invoiceNumber": f"INV-T{n}", "amount": f"{n}.10", "achNameOnCheck": f"Worker {n}",
         "achAccountNumber": f"6485{n:05}3"}
        for n in range(1, 1008)
    ]  # fmt: skip
    known = rows[643] | {"achNameOnCheck": "Zelda Quist", "achAccountNumber": account}
    rows[643] = known | {"achAccountNumber": changed}
    (office.folder / "before.csv").write_bytes(csv_of(known | {"paymentId": "T0", "invoiceNumber": "INV-T0"}))
    assert "accepted  1" in office.home.run("submit", "before.csv").stdout  # it ends with 7: other batches have doubts
    maria = office.sign_in("maria")
    content: Any = {"name": "thousand.csv", "mimeType": "text/csv", "buffer": csv_of(*rows)}
    maria.get_by_label("choose a file").set_input_files(content)
    maria.get_by_role("button", name="Request approval").click()
    maria.wait_for_url("**/approve")
    daniel = office.sign_in("daniel")
    daniel.goto(maria.url)
    expect(daniel.locator("#payments-title")).to_contain_text("1,007")
    table = daniel.locator("#sheet tbody tr")
    daniel.get_by_role("link", name="1 changed account").click()
    expect(table).to_have_count(1)
    for sought in ("zelda quist", "7661"):
        daniel.get_by_label("Find payments").fill(sought)
        daniel.get_by_role("button", name="Find", exact=True).click()
        expect(daniel.get_by_text(f"1 payment with {sought}")).to_be_visible()
        for text in ("Zelda Quist", "644.10 USD", "****7661", "new", "changed account"):
            expect(table).to_contain_text(text)
        shown = daniel.content()
        assert account not in shown and changed not in shown
    look(daniel, "30-changed-account")
    with daniel.expect_download() as download:
        daniel.get_by_role("link", name="Download all, masked").click()
    told = download.value.path().read_text()
    assert told.count("\n") == 1008 and "****7661" in told and not re.search("[0-9]{9}", told)
