"""What a page needs from the use cases: other names, several sinks for rejects, progress, plans and files in memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from batchpay.approval.plan import PlanText
from batchpay.errors import LedgerDamaged, RunStopped
from batchpay.intake.source import Source
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.validation.rejects import open_rejects
from batchpay.workflows.approve import add_approval, view_plan
from batchpay.workflows.check import dry_run, validate
from batchpay.workflows.requests import CheckOptions, Decisions, file_request
from batchpay.workflows.status import batch_page, results_again
from batchpay.writing.atomic import PendingFile, Stream
from tests.workflows.desk import ANN, Desk
from tests.workflows.office import BEN

ROWS = (
    {"paymentId": "A", "invoiceNumber": "A", "amount": "10.00", "achNameOnCheck": "Ann Lee"},
    {"paymentId": "B", "invoiceNumber": "B", "amount": "wrong"},
    {"paymentId": "C", "invoiceNumber": "C", "amount": "30.00", "transactionType": "DEBIT"},
)


class Taken:
    """Accepts rejected rows, and remembers what became of them."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.end = ""

    def __call__(self, source: Source) -> Taken:
        """Start over, as with each reading."""
        self.rows, self.end = [], ""
        return self

    def add(self, frame: pl.DataFrame) -> None:
        self.rows += frame["_row"].to_list()

    def late(self, frame: pl.DataFrame) -> None:
        self.rows += frame["_row"].to_list()

    def commit(self, *_: object) -> Path | None:
        self.end = "committed"
        return None

    def abandon(self) -> None:
        self.end = "abandoned"


def test_a_file_has_a_name_separate_from_its_path(desk: Desk) -> None:
    """A page reads an upload from memory: the ledger, the plan and every message know it by the person's name."""
    found = os.memfd_create("upload")
    os.write(found, desk.file("pay.csv", *ROWS).read_bytes())
    desk.submit(desk.file("before.csv", {"paymentId": "X", "invoiceNumber": "X", "amount": "1.00"}))
    asked = file_request(f"/proc/self/fd/{found}", None, CheckOptions(), desk.settings)
    asked = replace(asked, name="payroll.csv")
    preview = dry_run(asked, desk.settings, ANN, Decisions(), requests_max=0, results=None, with_plan=True)
    os.close(found)
    assert preview.summary.file == preview.as_json()["file"] == "payroll.csv"
    assert preview.plan is not None
    assert preview.plan.content["file"] == "payroll.csv"


def test_several_sinks_receive_the_rejected_rows(desk: Desk) -> None:
    """Others receive the rows as well as the rejects file; if the file is refused, all of them let go."""
    path, one, other = desk.file("pay.csv", *ROWS), Taken(), Taken()
    asked = file_request(str(path), desk.folder / "rejects.csv", CheckOptions(), desk.settings)
    preview = validate(replace(asked, sinks=(one, other)), desk.settings)
    assert (one.rows, other.rows) == ([2], [2])
    assert {one.end, other.end} == {"committed"}
    assert preview.summary.rejects == str(desk.folder / "rejects.csv")

    def stop(rows: int) -> None:
        raise RunStopped(f"stopped after {rows} rows")

    with pytest.raises(RunStopped, match="stopped after"):
        validate(replace(asked, sinks=(one,), watch=stop), desk.settings)
    assert one.end == "abandoned"


def test_rejects_need_no_disk(desk: Desk) -> None:
    """The caller creates the pending file: rows that failed need not be on a disk unencrypted."""
    made: list[Path] = []

    def begin(path: Path) -> PendingFile:
        made.append(path)
        return PendingFile(desk.folder / f"begun-{len(made)}")

    asked = file_request(str(desk.file("pay.csv", *ROWS)), None, CheckOptions(), desk.settings)
    validate(
        replace(asked, sinks=(lambda source: open_rejects("marked.xlsx", source, begin),)),
        desk.settings,
    )
    assert made == [Path("marked.xlsx")]
    assert not Path("marked.xlsx").exists()


def test_a_preview_shows_what_there_was_to_compare_with(desk: Desk) -> None:
    """No page may say that nothing is unusual if nothing was compared."""
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=True))
    path = desk.file("pay.csv", *ROWS)
    asked = file_request(str(path), None, CheckOptions(), desk.settings)
    preview = dry_run(asked, desk.settings, ANN, Decisions(), requests_max=0, results=None)
    assert preview.as_json()["compared"] is preview.compared is False
    assert preview.as_json()["unreadable_amounts"] == 1
    desk.submit(desk.file("before.csv", {"paymentId": "X", "invoiceNumber": "X", "amount": "1.00"}))
    assert validate(asked, desk.settings).compared
    desk.settings = replace(desk.settings, policy=replace(desk.settings.policy, variance=False))
    for unasked in (validate(asked, desk.settings), desk.dry_run(path)):
        assert (unasked.compared, unasked.variances, unasked.unusual) == (False, [], [])


def test_a_plan_is_approved_without_a_file(desk: Desk) -> None:
    """A page keeps the plan's text itself, and approves it by the same rules as `batchpay approve`."""
    path = desk.file("pay.csv", *ROWS)
    desk.submit(desk.file("before.csv", {"paymentId": "X", "invoiceNumber": "X", "amount": "1.00"}))
    asked = file_request(str(path), None, CheckOptions(), desk.settings)
    preview = dry_run(asked, desk.settings, ANN, Decisions(), requests_max=0, results=None, with_plan=True)
    assert preview.plan is not None
    kept = PlanText("pay.csv", preview.plan.text())
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        approved = add_approval(kept, preview.plan.seal, ledger, desk.settings, BEN)
        again = view_plan(PlanText("pay.csv", approved.plan.text()), ledger, desk.settings)
    assert [approval.who for approval in again.counted] == [BEN]


def _given(target: Path | Stream, batch: BatchSummary) -> Path | Stream:
    return target


def test_results_and_page_go_into_an_open_file(desk: Desk) -> None:
    """A page delivers a batch's files without writing them anywhere; they are those of the command line."""
    summary = desk.submit(desk.file("pay.csv", *ROWS))
    for ending in ("csv", "xlsx"):
        there, into = desk.folder / f"results.{ending}", io.BytesIO()
        stream = Stream(f"results.{ending}", into)
        for target in (there, stream):
            results_again(summary.batch, partial(_given, target), desk.settings)
        assert into.getvalue()[:1000] == there.read_bytes()[:1000]
    into = io.BytesIO()
    batch_page(summary.batch, lambda _: Stream("page.html", into), desk.settings)
    assert b"</html>" in into.getvalue()


def test_what_is_kept_next_to_the_ledger_is_sealed_for_its_place(desk: Desk) -> None:
    """What a page keeps for a while can't be read without the ledger's key, nor moved to another place."""
    desk.submit(desk.file("pay.csv", *ROWS))
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        sealed = ledger.seal(b"123456789", "upload 1")
        assert b"123456789" not in sealed
        assert ledger.unseal(sealed, "upload 1") == b"123456789"
        with pytest.raises(LedgerDamaged, match=r"^upload 2 can't be decrypted.*another key than ledger\.key_file"):
            ledger.unseal(sealed, "upload 2")


def test_viewing_plans_and_doubts_loads_no_polars() -> None:
    """The page's server stays small: heavy work is a child's."""
    code = (
        "import sys, batchpay.workflows.approve, batchpay.workflows.resolve, batchpay.workflows.status;"
        "sys.exit(bool({'polars', 'pandera', 'requests'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_check_loads_neither_plans_nor_what_few_calls_need() -> None:
    """Most of the time of a small check is loading."""
    few = "{'batchpay.approval.plan', 'batchpay.ledger.records', 'difflib', 'requests', 'tomllib'}"
    of_check = "batchpay.cli.main, batchpay.cli.validate, batchpay.workflows.check"
    code = f"import sys, {of_check}; print({few} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
