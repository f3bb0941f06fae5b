"""Reconcile: the bank's export compared with a batch; what it proves is settled, and what is no export is refused."""

from __future__ import annotations

import io
import re
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from batchpay.outcome import Outcome
from batchpay.web import spool
from batchpay.workflows.resolve import RowDecision, settle
from batchpay.workflows.status import batch_status
from tests.web.house import ROWS, SAME_ORIGIN, House, Yes, csv_of, words_of
from tests.workflows.desk import ACCEPTED, ANN, IN_DOUBT

TODAY = datetime.now(UTC).date().isoformat()
LINES = ["INV-A,10.00,paid", "INV-B,20.50,paid", "INV-C,30.25,declined"]


def export(*lines: str) -> bytes:
    """What the gateway exports of today."""
    return "\n".join(["invoiceNumber,amount,status,date", *(f"{line},{TODAY}" for line in lines), ""]).encode()


EXPORT, ALL_PAID = export(*LINES), export(*(line.replace("declined", "paid") for line in LINES))


class Batch:
    """A batch of the house whose payments in `doubts` got no answer, and the pages on which it is reconciled."""

    def __init__(self, house: House, *doubts: str) -> None:
        def answer(reference: str) -> Outcome:
            return IN_DOUBT if reference in doubts else ACCEPTED

        house.answer = answer
        self.file_id = house.sent()
        self.name = str(house.file(self.file_id)["batch"])
        self.path, self.house = f"/batches/{self.name}/reconcile", house

    def compare(self, content: bytes = EXPORT, name: str = "export.csv", code: int = 303) -> str:
        """Upload an export; gives the page that answers, or that shows the result."""
        answer = self.house.post("maria", self.path, code, export=(io.BytesIO(content), name))
        return words_of(answer if code != 303 else self.house.get("sam", self.path))

    def form(self, **changed: Any) -> Any:
        """What Sam's page has now, to settle what the export proves."""
        page = self.house.get("sam", self.path).get_data(as_text=True)
        seen = re.findall(r'name="seen" value="(\w+)"', page)
        return {"seen": seen, "reason": "in the export", "password": True, **changed}

    def settle(self, code: int = 303, by: str = "sam", **form: Any) -> str:
        """Press the button."""
        return self.house.said(by, f"/batches/{self.name}/settle", code, **form)

    def is_reconciled(self) -> bool:
        """Whether the file's pages say so, each of them."""
        pages = [self.house.page("lee", f"/files/{self.file_id}/{page}") for page in ("run", "check")]
        (said,) = {"Reconciled : done" in page for page in pages}
        return said


def test_an_export_is_compared_and_settles_what_it_proves(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare changes nothing; settling takes the role, a reason and the password, and leaves the ledger's word."""
    batch = Batch(house, "INV-C")
    house.post("lee", batch.path, 403)
    batch.compare(b"no", "export.pdf", 400)
    with monkeypatch.context() as patch:  # by processes, as outside of tests
        patch.setattr("batchpay.web.papers.subprocess", subprocess)
        page = batch.compare()
    assert "matched 2 30.50 2 30.50" in page and "was refused" in page
    for stored in spool.place(house.site.home, f"batch-{batch.name}").iterdir():
        assert b"INV-A" not in stored.read_bytes()
    form = batch.form()
    batch.settle(403, by="daniel", **form)
    batch.settle(401, **form | {"password": "wrong"})
    batch.compare(ALL_PAID, "other.csv")
    assert "compared again in the meantime" in batch.settle(409, **form)
    assert not house.events("resolved")
    batch.compare()
    batch.settle(**batch.form())
    (event,) = house.events("resolved")
    assert event["who"].startswith("Sam Reyes (sam (web))")
    assert batch_status(batch.name, house.site.settings).as_json()["declined"] == 1
    assert batch.is_reconciled()
    batch.compare(ALL_PAID)
    assert not batch.is_reconciled(), "a later export that differs takes it back"
    house.now[0] = time.time() + spool.KEPT_S + 60
    spool.sweep(house.store)
    assert not spool.place(house.site.home, f"batch-{batch.name}").exists(), "an export is removed in time"


def test_what_an_export_settled_is_said_and_what_it_did_not(house: House) -> None:
    """Each row with its outcome, and those in doubt that the export does not have; it said neither."""
    batch = Batch(house, "INV-B", "INV-C")
    page = batch.compare(export(LINES[0], LINES[2]))
    assert "1 payment in doubt is not in the export" in page and "Settle 1 payment" in page
    batch.settle(**batch.form())
    said = house.page("maria", batch.path)
    assert "Sam Reyes settled 1 payment by this export: line 4, Grace Quigley , 30.25: was refused" in said
    assert "1 payment in doubt is not in the export" in said
    assert "recorded that line 4 was refused, by the export export.csv: in the export" in house.page("lee", "/audit")


def test_a_comparison_offers_nothing_that_was_settled_since(house: House) -> None:
    """Two people: one settles by hand what the other's page offers, and "settled what it proves" stood for nothing."""
    batch = Batch(house, "INV-C")
    assert "Compared by Maria Lind on" in batch.compare()
    form = batch.form()
    settle(batch.name, [RowDecision(3, "accepted")], Yes(), house.site.settings, ANN)
    answer = batch.settle(409, **form)
    assert "or a payment in doubt was settled" in answer and "Settle 1 payment" not in answer
    assert "recorded that" not in house.page("lee", "/audit")


def test_of_two_exports_at_once_the_list_is_of_the_one_that_is_shown(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sam's export came between Maria's and her result: the page compared with hers, and the list was of his."""
    batch, keep = Batch(house, "INV-C"), spool.keep

    def between(ledger: Any, home: Any, place: str, name: str, content: Any) -> None:
        if name == "compared":
            monkeypatch.setattr(spool, "keep", keep)
            keep(ledger, home, place, "export", [ALL_PAID])
        keep(ledger, home, place, name, content)

    monkeypatch.setattr(spool, "keep", between)
    batch.compare()
    house.get("maria", f"/batches/{batch.name}/reconciled", 409)
    batch.settle(409, **batch.form())
    batch.compare()
    house.get("maria", f"/batches/{batch.name}/reconciled")


def test_an_export_comes_in_pieces_like_a_payment_file(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of more than 8 MB could not be compared: the bank's year in one file."""
    monkeypatch.setattr(spool, "PIECE_BYTES", 100)
    batch, about = Batch(house), {"name": "year.csv", "size": len(ALL_PAID)}

    def start(by: str = "sam", **changed: Any) -> Any:
        return house.as_(by).post(f"/batches/{batch.name}/export", data=about | changed, headers=SAME_ORIGIN)

    assert start("lee").status_code == 403
    assert "more than 128 MiB" in start(size=(128 << 20) + 1).json["error"]
    assert "a CSV file or a workbook" in start(name="year.pdf").json["error"]
    begun = start().json
    for number in range(-(-len(ALL_PAID) // 100)):
        house.post("sam", batch.path, 409, upload=begun["id"])
        piece = ALL_PAID[number * 100 : (number + 1) * 100]
        answer = house.as_("sam").put(f"{begun['pieces']}{number}", data=piece, headers=SAME_ORIGIN)
        assert answer.json == {"next": number + 1}
    assert "year.csv" not in house.page("maria", "/"), "it is no payment file"
    house.post("maria", batch.path, 409, upload=begun["id"])
    assert house.post("sam", batch.path, upload=begun["id"]).headers["Location"] == begun["to"] == batch.path
    page = house.page("lee", batch.path)
    assert "Compared with year.csv" in page and "matched 3 60.75 3 60.75" in page
    assert house.store.file(begun["id"]) is None and not spool.place(house.site.home, begun["id"]).exists()
    assert house.get("lee", f"/batches/{batch.name}/reconciled").data


RESULTS = b"""invoiceNumber,amount,state,http_status,response_code,gateway_reference,attempts,environment
INV-A,10.00,accepted,200,100,1,1,test
"""
RECONCILED = b"""verdict,found_by,row,invoiceNumber,gateway_reference,account,state,amount,line_there
matched,invoice,1,INV-A,1,****3924,accepted,10.00,2
"""


@pytest.mark.parametrize(("content", "told"), [
    (csv_of(*ROWS), "not an export"), (RESULTS, "not an export"), (RECONCILED, "not an export"),
    (b"when,what\n" * 60, "no header is known that names the amount"),
], ids=["payments", "results", "reconciliation", "no columns"])  # fmt: skip
def test_what_is_no_export_is_refused_in_one_sentence(house: House, content: bytes, told: str) -> None:
    """Files of ours would agree with the ledger. What the reading child still had open is not told."""
    batch = Batch(house)
    page = batch.compare(content, "pay.csv", 400)
    assert told in page and "Traceback" not in page
    assert not batch.is_reconciled()


@pytest.mark.parametrize(
    ("header", "is_careful"), [("invoiceNumber,amount,state", True), ("invoiceNumber,amount,Bank status", False)]
)
def test_a_batch_is_not_reconciled_by_what_may_be_a_file_of_ours(house: House, header: str, is_careful: bool) -> None:
    """Few columns, each with a name that our files have: the page says so, and does not call the batch reconciled."""
    batch = Batch(house)
    lines = [f"{row['invoiceNumber']},{row['amount']},accepted" for row in ROWS]
    page = batch.compare("\n".join([header, *lines]).encode(), "pay.csv")
    assert ("Careful: this may be a file of your own" in page) is is_careful
    assert batch.is_reconciled() is not is_careful
