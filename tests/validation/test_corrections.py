"""`--accept-suggestions`: what is certain replaces what was read, and nothing else; whose rejects lie on a disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from batchpay.errors import FileRefused
from batchpay.intake.source import Source, open_source
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.columns import CORRECTED
from batchpay.schemas.rule import RuleOptions
from batchpay.validation.check import all_rows, valid_rows
from batchpay.validation.rejects import holds_only_rows_of, open_rejects
from tests.support.payment_files import HEADER, line, rejected, workbook, write
from tests.support.payment_files import VALID as VALID_CELLS
from tests.support.text_chunks import VALID, Cells, Kept, TextChunks
from tests.support.whole_check import check

PLAIN = RuleOptions(as_of=date(2026, 11, 21))
ALL = replace(PLAIN, accept_suggestions=suggesting_rules())
AMOUNTS = replace(PLAIN, accept_suggestions=frozenset({"amount.format"}))
_NUMBERS = itertools.count(1)


def _row(**cells: str | None) -> Cells:
    number = next(_NUMBERS)
    return VALID | {"paymentId": f"P{number}", "invoiceNumber": f"I{number}"} | cells


@pytest.mark.parametrize(
    ("amount", "meant"),
    [("1,381.12", "1381.12"), ("$1,381.12", "1381.12"), ("12,345,678.90", "12345678.90"), ("$7.00", "7.00"),
     ("12.5", "12.50"), (" 1,381.12 ", "1381.12")],
)  # fmt: skip
def test_a_certain_amount_is_sent_as_suggested(amount: str, meant: str) -> None:
    """The row passes with the amount that was meant, it says what it was, and the file's total is the same without."""
    source = TextChunks([_row(amount="1.00"), _row(amount=amount)])
    verdict = check(source, ALL)
    assert verdict.rejected.rows == 0
    rows = pl.concat(list(valid_rows(source, ALL, verdict)))
    assert rows["amount"].to_list() == ["1.00", meant]
    assert rows[CORRECTED].to_list() == [None, f"amount: {amount} -> {meant}"]
    cents = int(meant.replace(".", "")) + 100
    assert (verdict.total.cents, verdict.valid.cents, verdict.unreadable_amounts) == (cents, cents, 0)
    assert check(source, PLAIN).total == verdict.total


@pytest.mark.parametrize(
    "amount",
    ["1,381", "1.381,12", "1,38.12", "1381,12", "(12.00)", "-12.00", "1,381.1", "12.345", "123,456,789.00", "012"],
)
def test_a_doubtful_amount_stays_rejected(amount: str) -> None:
    """What may mean something else is no correction, and its amount is in no sum."""
    source = TextChunks([_row(amount=amount), _row(amount="1.00")])
    verdict = check(source, ALL)
    assert (verdict.accepted, verdict.counts) == ({}, {"amount.format": 1})
    assert (verdict.unreadable_amounts, verdict.total.cents) == (1, 100)


def test_only_the_rules_that_were_named() -> None:
    """Other suggestions stay suggestions; a cell that is wrong in two ways needs both."""
    rows = [_row(amount="1,381.12", transactionType="debit"), _row(amount="1,381.12"), _row(amount=" 1,381.12")]
    verdict = check(TextChunks(rows), AMOUNTS)
    assert verdict.accepted == {"amount.format": 2}
    assert verdict.counts == {"transactionType.choice": 1, "amount.whitespace": 1}
    both = check(TextChunks(rows), ALL)
    assert both.accepted == {"amount.format": 3, "amount.whitespace": 1, "transactionType.choice": 1}
    assert both.valid.cents == 3 * 138112


def test_a_corrected_row_must_keep_every_other_rule() -> None:
    """A correction is judged like a typed cell; the rejects tell old -> new, beside what is only suggested."""
    rows = [_row(amount="$0.00"), _row(amount="1,000.00", billingPhone="5125550100", gatewayId="x")]
    kept = Kept()
    verdict = check(TextChunks(rows), AMOUNTS, rejects=kept)
    assert verdict.counts == {"amount.range": 1, "gatewayId.format": 1, "billingPhone.phone": 1}
    assert [row["amount"] for row in kept.added] == ["$0.00", "1,000.00"], "cells come back as they were read"
    told = ["amount: $0.00 -> 0.00", "amount: 1,000.00 -> 1000.00; billingPhone: 512-555-0100"]
    assert [row["_suggestions"] for row in kept.added] == told


def test_corrected_bills_are_compared_with_others() -> None:
    """The same bill with and without a comma is the same bill twice."""
    bill: Cells = {"paymentId": None, "invoiceNumber": "I-77"}
    verdict = check(TextChunks([_row(**bill, amount="1,381.12"), _row(**bill, amount="1381.12")]), ALL)
    assert verdict.counts == {"row.duplicate": 1}


def test_a_routing_number_without_its_zero() -> None:
    """By its check digit, from text and from a numeric cell; without one that fits nothing is changed."""
    lost = {"_fault.achRoutingNumber": "leading_zero", "_suggest.achRoutingNumber": "021000021"}
    unfit = {"_fault.achRoutingNumber": "leading_zero", "_suggest.achRoutingNumber": None}
    rows = [
        _row(achRoutingNumber="21000021"),
        _row(achRoutingNumber="21000021", **lost),
        _row(achRoutingNumber="21000022"),
        _row(achRoutingNumber="21000022", **unfit),
    ]
    source = TextChunks(rows, extra=list(lost))
    verdict = check(source, ALL)
    assert verdict.accepted == {"achRoutingNumber.format": 1, "achRoutingNumber.leading_zero": 1}
    assert verdict.counts == {"achRoutingNumber.format": 1, "achRoutingNumber.leading_zero": 1}
    assert pl.concat(list(valid_rows(source, ALL, verdict)))["achRoutingNumber"].to_list() == ["021000021"] * 2


def test_an_account_number_is_never_corrected() -> None:
    """It has no suggestion, so that it stands in no list."""
    assert not [name for name in suggesting_rules() if name.startswith("achAccountNumber.")]
    verdict = check(TextChunks([_row(achAccountNumber=" 123456789")]), ALL)
    assert (verdict.accepted, verdict.counts) == ({}, {"achAccountNumber.whitespace": 1})


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx"])
def test_a_doubted_account_in_rejects_is_no_account(tmp_path: Path, ending: str) -> None:
    """A sheet lost the zeros of both numbers; its rejects had the accounts as texts, and zeroless ones were paid."""
    changes = [{"achAccountNumber": 12345678, "achRoutingNumber": 21000021}, {"achAccountNumber": 87654321}]
    rows = [[(VALID_CELLS | cells)[name] for name in HEADER] for cells in changes]
    path = tmp_path / f"r{ending}"
    with open_source(workbook(tmp_path, [HEADER, *rows])) as source:
        rejects = open_rejects(path, source)
        assert check(source, ALL, rejects=rejects).counts == {"achAccountNumber.numeric_account": 2}
        rejects.commit()
    for options in (PLAIN, ALL, replace(ALL, normalize=True)):
        with open_source(str(path)) as again:
            verdict = check(again, options)
        assert verdict.valid.rows == 0
        assert verdict.counts["achAccountNumber.masked"] == 2


def test_repairs_and_corrections_are_counted_apart() -> None:
    """--normalize goes first and stays what it is; the old text is the one that was read."""
    options = replace(ALL, normalize=True)
    source = TextChunks([_row(amount=" 1,381.12", currencyCode="usd"), _row(amount=" 2.00")])
    verdict = check(source, options)
    assert verdict.repairs == {"amount": 2, "currencyCode": 1}
    assert verdict.accepted == {"amount.format": 1}
    assert pl.concat(list(all_rows(source, options)))[CORRECTED].to_list() == ["amount:  1,381.12 -> 1381.12", None]


NAMES = ("Ada", "Grace", "Mary")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Three rows and their total, a chunk each; an example was passed over before each."""
    rows = [line(billingFirstName=name) for name in NAMES]
    total = ",".join("37.50" if name == "amount" else "" for name in HEADER)
    with open_source(write(tmp_path, "".join([",".join(HEADER) + "\n", *rows, total + "\n"]))) as opened:

        def row_by_row() -> Iterator[pl.DataFrame]:
            for row in (row for chunk in opened._chunks() for row in chunk.iter_slices(1)):
                opened.examples.count += 1
                yield row

        yield replace(opened, _chunks=row_by_row)


def write_rejects(source: Source, path: Path, names: tuple[str, ...], after: int = 0) -> Path:
    """Write the rows of these people as rejects, their numbers moved on by some."""
    found = pl.concat(source.chunks()).filter(pl.col("billingFirstName").is_in(names))
    rejects = open_rejects(path, source)
    rejects.add(rejected(found.with_columns(pl.col("_row") + after)))
    rejects.commit()
    return path


@pytest.mark.parametrize("ending", [".csv", ".txt", ".parquet", ".xlsx"])
def test_rows_are_those_of_the_file_where_each_stands_in_its_place(source: Source, tmp_path: Path, ending: str) -> None:
    """Any of them may be there; none may be that stands elsewhere in the file, or after its end."""
    path = tmp_path / f"may.rejects{ending}"
    for names in (NAMES[:1], NAMES[1:], NAMES[::2], NAMES):
        assert holds_only_rows_of(source, write_rejects(source, path, names)), names
    for names, after in ((NAMES[:1], 1), (NAMES[2:], 1), (NAMES[2:], 9)):
        assert not holds_only_rows_of(source, write_rejects(source, path, names, after)), (names, after)
    path.write_bytes(path.read_bytes()[:-9] + b"\0\xff")
    assert not holds_only_rows_of(source, path)


def test_another_header_is_another_file(source: Source, tmp_path: Path) -> None:
    """A column that a person added, or one that was renamed, is theirs."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", NAMES[:1])
    first, rest = path.read_text().split("\n", 1)
    for head in (first + ",note", first.replace("amount", "Amount"), first.removeprefix("_row,")):
        path.write_text(f"{head}\n{rest}")
        assert not holds_only_rows_of(source, path)


@pytest.mark.parametrize("names", [NAMES[:1], NAMES])
def test_what_was_found_in_the_file_stands(source: Source, tmp_path: Path, names: tuple[str, ...]) -> None:
    """The reading ends with the last row that is asked for: the total and the examples after it are still known."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", names)
    list(source.chunks())
    holds_only_rows_of(source, path)
    assert (source.end.total_cents, source.examples.count) == (3750, 4)


def test_a_file_that_changed_meanwhile_is_refused(source: Source, tmp_path: Path) -> None:
    """It is no rejects file of another, which would be left as it is."""
    path = write_rejects(source, tmp_path / "may.rejects.csv", NAMES[:1])

    def changed() -> Iterator[pl.DataFrame]:
        raise FileRefused("it changed")
        yield

    with pytest.raises(FileRefused):
        holds_only_rows_of(replace(source, _chunks=changed), path)
