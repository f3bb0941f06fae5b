"""The report page: complete in itself, true to the ledger, and unmoved by whatever a file's cells hold."""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
import stat
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from batchpay.ledger.records import Decision
from batchpay.payment import State, Totals
from batchpay.reports import page
from batchpay.reports.page import LISTED_MAX, write_batch_page, write_check_page
from batchpay.reports.page_parts import BARS_MAX, share_of, short_time, shown, timeline_of
from batchpay.summary import Summary
from batchpay.validation.verdict import Failure, Verdict
from tests.support.ledger_factory import Planned, add_batch, ledger_in

HOSTILE = "</td><script>alert('x')</script>\"'<img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m{{7*7}}"
LABELS = {"accepted": "accepted", "declined": "declined"}


class Seen(HTMLParser):
    """Elements, attributes and texts of a page, and whether every element is closed in its turn."""

    VOID = frozenset({"meta", "input", "rect"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.cells: list[list[str]] = []
        self.feed(html)
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th") and self.cells:
            self.cells[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.cells and self.cells[-1] and {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data


def page_of(folder: Path, rows: list[Planned], **attributes: object) -> str:
    with ledger_in(folder) as ledger:
        batch = ledger.find(add_batch(ledger, rows, **attributes))  # type: ignore[arg-type]
        write_batch_page(ledger, batch, folder / "page.html")
    return (folder / "page.html").read_text("utf-8")


def test_a_page_tells_every_row_and_cent(tmp_path: Path) -> None:
    """Totals, states, directions and what a reader must know first stand in the page, and add up."""
    rows = [
        Planned(1, amount_cents=100000), Planned(2, State.IN_DOUBT, amount_cents=250, direction="CREDIT"),
        Planned(3, State.DECLINED, message="Insufficient funds"), Planned(4, State.PENDING),
    ]  # fmt: skip
    html = page_of(tmp_path, rows, rejected=[(5, 75, "amount.range row.duplicate")], stopped="deadline")
    cells = Seen(html).cells
    assert ["accepted", "1", "1,000.00", "20.0 %"] in cells
    assert ["in doubt", "1", "2.50", "20.0 %"] in cells
    assert ["total", "5", "1,028.25", "adds up to the file’s totals"] in cells
    assert "1 row in doubt, 2.50: paid or not, not known yet. A person must look." in html
    assert "The run stopped: deadline." in html
    listed = [line for line in cells if len(line) == 10][1:]
    assert [line[0] for line in listed] == ["in doubt", "declined", "rejected"]
    assert listed[0][-1].startswith("Money leaves our account, so check this first. Look for INV-2")
    assert "--allow-duplicates" in listed[2][-1]
    assert ["Insufficient funds", "1", ""] in cells


def test_hostile_cells_stay_text(tmp_path: Path) -> None:
    """Markup, quotes, direction overrides and control characters in any text of a file are shown, never obeyed."""
    rows = [
        Planned(1, State.IN_DOUBT, name=HOSTILE, invoice=HOSTILE, last_four='"><b'),
        Planned(2, State.DECLINED, name=HOSTILE, message=HOSTILE),
    ]
    html = page_of(tmp_path, rows, file=HOSTILE, stopped=HOSTILE)
    seen = Seen(html)
    assert seen.tags["script"] == 1
    assert seen.tags["img"] == 0
    assert seen.tags["b"] == 0
    assert not any(name.startswith("on") or name == "style" for _, name, _ in seen.attributes)
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "{{7*7}}" in html
    assert "&lt;script&gt;alert(&#39;x&#39;)" in html


def test_a_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    """No address, no outside file; the page's own policy lets nothing through but its one style and one script."""
    html = page_of(tmp_path, [Planned(1), Planned(2, State.IN_DOUBT)])
    seen = Seen(html)
    assert not {name for _, name, _ in seen.attributes} & {"src", "href", "action", "srcset", "data", "background"}
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|innerHTML|eval\(", html)
    contents = [value or "" for _, name, value in seen.attributes if name == "content"]
    policy = next(value for value in contents if "default-src" in value)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600


def test_a_long_list_is_cut_and_says_so(tmp_path: Path) -> None:
    """Those in doubt are listed first; what is left out is counted, with where to find it."""
    rows = [Planned(row, State.DECLINED if row % 2 else State.IN_DOUBT) for row in range(1, LISTED_MAX + 101)]
    html = page_of(tmp_path, rows, rejected=[(LISTED_MAX + 101, 5, "amount.format")])
    listed = [line for line in Seen(html).cells if len(line) == 10][1:]
    assert len(listed) == LISTED_MAX
    assert [line[0] for line in listed[: len(rows) // 2]] == ["in doubt"] * (len(rows) // 2)
    assert f"{LISTED_MAX:,} of {LISTED_MAX + 101:,} are listed here. The others: batchpay results" in html


def test_a_batch_without_rows_has_a_page(tmp_path: Path) -> None:
    """Nothing to show is shown as that."""
    html = page_of(tmp_path, [])
    assert "The file has no rows." in html
    assert "Rows over time" not in html
    assert Seen(html).tags["rect"] == 0


def test_what_persons_decided_stands_in_the_history(tmp_path: Path) -> None:
    """The history names who settled a row and why."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1, State.IN_DOUBT)])
        ledger.resolve(name, [Decision(1, State.ACCEPTED, "G-1")], "Ann (ann@pay1)", "seen <in> the portal")
        write_batch_page(ledger, ledger.find(name), tmp_path / "page.html")
    cells = Seen((tmp_path / "page.html").read_text("utf-8")).cells
    told = [line[1:] for line in cells if len(line) == 4]
    assert ["settled rows in doubt", "Ann (ann@pay1)", "seen <in> the portal"] in told
    assert ["accepted: 1", "Ann (ann@pay1)", "seen <in> the portal"] in told


def test_a_page_says_what_a_controller_files(tmp_path: Path) -> None:
    """Content, seal, and who prepared, approved, submitted and sent; accepted money by direction, never in one sum."""
    rows = [Planned(1), Planned(2, amount_cents=700, direction="CREDIT"), Planned(3, State.DECLINED)]
    with ledger_in(tmp_path) as ledger:
        batch = ledger.find(add_batch(ledger, rows))
        write_batch_page(ledger, batch, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text("utf-8")
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd><bdi>(.*?)</bdi></dd>", html))
    assert facts["batch"] == f"{batch.batch}, test"
    assert facts["content"] == batch.digest.hex()
    assert facts["seal"] == "none: sent without a plan"
    assert facts["approved by"] == "nobody: no approval was asked for"
    assert facts["submitted by"].startswith("tester, ")
    assert facts["settled by"] == "nothing had to be settled"
    assert "<span>control total in the file" in html
    assert '<th scope="col" class="number">control total</th>' in html
    assert "part 1 of 1: 2 accepted, DEBIT 12.50, CREDIT 7.00" in html
    assert "<small>1 row</small>" in html
    tiles = dict(re.findall(r"<span>(accepted .*?)</span><strong>(.*?)</strong>", html))
    assert tiles == {"accepted debits: money in": "12.50", "accepted credits: money out": "7.00"}


def test_accepted_rows_are_listed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part says what it adds up to; what is not listed is counted; on paper no part is folded."""
    monkeypatch.setattr(page, "ACCEPTED_LISTED_MAX", 5)
    monkeypatch.setattr(page, "_ACCEPTED_A_PART", 3)
    html = page_of(tmp_path, [Planned(row, amount_cents=100 * row) for row in range(1, 8)])
    seen = Seen(html)
    assert seen.tags["details"] == 2
    assert "part 1 of 2: 3 accepted, 6.00" in html
    assert "<span>amount in the file" in html
    assert "part 2 of 2: 2 accepted, 9.00" in html
    assert "The first are listed here; 2 more are in the results file." in html
    listed = [line for line in seen.cells if len(line) == 8 and line[0].isdigit()]
    assert [line[:3] for line in listed] == [[str(row + 1), f"{row}.00", "DEBIT"] for row in range(1, 6)], "by line"
    assert re.search(r"@media print \{.*details::details-content \{ content-visibility: visible", html, re.DOTALL)
    assert re.search(r"@page \{ size: letter", html)


def test_a_check_has_a_page_without_a_ledger(tmp_path: Path) -> None:
    """The page of a check tells totals, how often each rule failed, and the first failures."""
    summary = Summary(
        file="in.csv",
        total=Totals(10, 1000),
        by_state={State.PENDING: Totals(8, 900), State.REJECTED: Totals(2, 100)},
        warnings=1,
        finished_at=datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        by_direction={"DEBIT": Totals(8, 900)},
        notes=[HOSTILE],
        checked_only=True,
    )
    verdict = Verdict(
        counts={"amount.format": 1, "currencyCode.choice": 2},
        failures=[
            Failure(3, 4, "amount", "format", "error", HOSTILE, "12.50"),
            Failure(5, None, "currencyCode", "choice", "error", "no", None),
        ],
        warning_counts={"recurringStartDate.banking_day": 1},
        repairs={"amount": 3},
        accepted={"amount.format": 14_304},
    )
    write_check_page(tmp_path / "c.html", summary, verdict, "row")
    html = (tmp_path / "c.html").read_text("utf-8")
    seen = Seen(html)
    assert ["valid", "8", "9.00", "80.0 %"] in seen.cells
    assert ["currencyCode.choice", "2", ""] in seen.cells
    assert ["recurringStartDate.banking_day", "1", ""] in seen.cells
    assert ["5", "currencyCode", "choice", "no", ""] in seen.cells
    assert ["4", "amount", "format", shown(HOSTILE), "12.50"] in seen.cells
    assert "2 rows of 10 would be rejected, 1.00." in html
    assert "cells repaired" in html
    assert "amount 3" in html
    assert "<dt>corrected as suggested</dt><dd><bdi>amount.format 14,304</bdi>" in html
    assert '<th scope="col" class="number" data-numeric>row</th>' in html
    assert "2 of 3 are listed here." in html
    assert seen.tags["script"] == 1


@pytest.mark.parametrize("span_s", [0, 1, 59, 60, 3599, 86_400, 40 * 86_400, 5000 * 86_400])
def test_time_is_cut_into_few_round_steps(span_s: int) -> None:
    """Whatever the span, there are no more bars than can be seen, and no row is lost in them."""
    begin = 1_795_240_000
    seconds = {(begin, "accepted"): 1000, (begin + span_s, "declined"): 1}
    line = timeline_of(seconds, LABELS)
    assert line is not None
    assert max(x for x, *_ in line.bars) < line.width <= BARS_MAX
    assert line.most in (1000, 1001)
    assert [kind for kind, _ in line.keys] == ["accepted", "declined"]
    told = " ".join(title for _, title, _ in line.bars)
    assert "1,000 accepted" in told
    assert "1 declined" in told


def test_a_share_is_never_rounded_away() -> None:
    """One row among many is neither 0 % nor are the others 100 %."""
    assert share_of(1, 100_000)[1] == "under 0.1 %"
    assert share_of(99_999, 100_000)[1] == "over 99.9 %"
    assert share_of(5, 5)[1] == "100.0 %"


def test_long_and_unseen_texts_are_bounded_and_spelled_out() -> None:
    """A text can't flood the page, hide characters or turn the direction of what follows."""
    assert shown("a\u202eb\x00\u200bc") == "a\\u202eb\\x00\\u200bc"
    assert shown("x" * 5000) == "x" * 299 + "…"
    assert shown("Zoë\u00a0李") == "Zoë\u00a0李"


def test_a_time_in_a_list_names_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A printed list was compared with a portal that has other times, and nobody could tell whose they were."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    moment = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
    assert short_time(moment) == "07-01 08:00:00 EDT"
    monkeypatch.undo()
    time.tzset()
