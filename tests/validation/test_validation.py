"""From chunks to a verdict: totals, rejects, duplicates, late rejects, repairs, and what is read how often."""

from __future__ import annotations

import itertools
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpay.errors import SettingsNotUsable
from batchpay.intake.source import open_source
from batchpay.payment import Totals
from batchpay.schemas.catalogue import suggesting_rules
from batchpay.schemas.columns import BARE_ROW, COLUMNS
from batchpay.schemas.rule import RuleFacts, RuleOptions
from batchpay.validation import duplicates
from batchpay.validation.check import RowCheck, all_rows, valid_rows
from batchpay.validation.compiled_rules import Findings, Proof, RuleBook, row_violation
from batchpay.validation.duplicates import NullWords, Places, Uniqueness
from batchpay.validation.verdict import Verdict, without_marks
from tests.support.payment_files import csv_text, write
from tests.support.text_chunks import RECURRING, VALID, Cells, Kept, TextChunks
from tests.support.whole_check import check

OPTIONS = RuleOptions(as_of=date(2026, 11, 21))


_INVOICES = itertools.count()


def _row(number: int, **cells: str | None) -> Cells:
    """A row with a paymentId, and with a bill that no other row has."""
    return VALID | {"paymentId": f"P{number}", "invoiceNumber": f"I{next(_INVOICES)}"} | cells


def _other(number: int, **cells: str | None) -> Cells:
    """Such a row for an account of its own."""
    return _row(number, **{"achAccountNumber": f"{12345678 + number}", **cells})


def _found(verdict: Verdict) -> list[tuple[int, str]]:
    return [(failure.row, f"{failure.column}.{failure.code}") for failure in verdict.failures]


def test_totals_add_up() -> None:
    """Valid and rejected rows and cents add up to the file's, by direction too; an unreadable amount counts 0."""
    rows = [
        _row(1, amount="10.00"),
        _row(2, amount="20.00", transactionType="CREDIT"),
        _row(3, amount="5.00", gatewayId="x"),
        _row(4, amount="five"),
        _row(5, amount="0000000000000000000001.00"),
        _row(6, amount="9" * 200 + ".00"),
    ]
    verdict = check(TextChunks(rows), OPTIONS)
    assert verdict.total == Totals(6, 3600)
    assert (verdict.valid, verdict.rejected) == (Totals(3, 3100), Totals(3, 500))
    assert verdict.by_direction == {"DEBIT": Totals(2, 1100), "CREDIT": Totals(1, 2000)}
    assert verdict.unreadable_amounts == 2
    assert verdict.rejected_mask(pl.Series(range(1, 7))).to_list() == [False, False, True, True, False, True]


def test_rejects_get_rows_as_read_with_all_reasons() -> None:
    """A rejected row is handed on as it was read, unknown columns too, with errors, warnings and suggestions apart."""
    rows = [_row(1), _row(2, amount="12", billingCountry="US", billingZip="x", note="=1+1", achAgreementFlag=None)]
    kept = Kept()
    check(TextChunks(rows, extra=["note"]), OPTIONS, rejects=kept)
    (rejected,) = kept.added
    assert (rejected["_row"], rejected["_line"], rejected["amount"], rejected["note"]) == (2, 3, "12", "=1+1")
    assert [part.split(": ")[:2] for part in rejected["_errors"].split("; ")] == [
        ["amount", "format"],
        ["achAgreementFlag", "required"],
    ]
    assert rejected["_warnings"].startswith("billingZip: zip: ")
    assert rejected["_suggestions"] == "amount: 12.00"


def test_warnings_let_a_row_pass_unless_told_otherwise() -> None:
    """A warning is counted and the row goes on; with `warnings_as_errors` it is rejected."""
    rows = [_row(1, achSecCode="CCD", achAccountType="BUSINESS")]
    verdict = check(TextChunks(rows), OPTIONS)
    assert (verdict.valid.rows, verdict.warnings) == (1, 1)
    assert verdict.warning_counts == {"achSecCode.sec_unverified": 1} and not verdict.counts
    strict = check(TextChunks(rows), RuleOptions(as_of=OPTIONS.as_of, warnings_as_errors=True))
    assert (strict.rejected.rows, strict.warnings, strict.counts) == (1, 0, {"achSecCode.sec_unverified": 1})


@pytest.mark.parametrize("height", [1, 2, 5, 100])
def test_all_copies_of_a_payment_id_fail(height: int) -> None:
    """Every row that shares its paymentId fails, in whatever chunk; an empty one is not a paymentId."""
    rows = [_row(1), _row(2), _row(1, amount="3.00"), _row(4), _row(1, gatewayId="x"), VALID, _row(6, paymentId=" P2")]
    verdict = check(TextChunks(rows, height=height), OPTIONS)
    assert _found(verdict) == [
        (1, "paymentId.duplicate"),
        (3, "paymentId.duplicate"),
        (5, "gatewayId.format"),
        (5, "paymentId.duplicate"),
        (7, "paymentId.whitespace"),
    ]
    assert verdict.counts["paymentId.duplicate"] == 3
    assert (verdict.valid, verdict.rejected) == (Totals(3, 3750), Totals(4, 4050))


_BILL = VALID | {"invoiceNumber": "Straße 7", "amount": "0900.00"}
_SAME_BILL = VALID | {"invoiceNumber": "STRASSE 7", "amount": "900.00"}


@pytest.mark.parametrize("height", [1, 3, 100])
def test_the_same_bill_fails_where_a_row_has_no_payment_id(height: int) -> None:
    """The first row of a bill passes, a later one fails; where each has a paymentId of its own, a person is warned.

    One bill was paid twice as 900.00 and 0900.00, and one whose e-mail address had changed.
    """
    rows = [_BILL, _row(1), _SAME_BILL | {"billingEmail": "a@example.com"}, _SAME_BILL | {"paymentId": "P2"}, VALID]
    verdict = check(TextChunks(rows, height=height), OPTIONS)
    assert _found(verdict) == [(3, "row.duplicate"), (4, "row.duplicate")]
    assert verdict.failures[0].message.startswith("is the same bill as line 2 of this file")
    allowed = check(TextChunks(rows, height=height), RuleOptions(as_of=OPTIONS.as_of, allow_duplicates=True))
    assert allowed.valid.rows == 5

    named = [_BILL | {"paymentId": "P1"}, _SAME_BILL | {"paymentId": "P2"}, _SAME_BILL | {"paymentId": "p1"}]
    verdict = check(TextChunks(named, height=height), OPTIONS)
    assert _found(verdict) == [(1, "paymentId.duplicate"), (3, "paymentId.duplicate"), (3, "row.duplicate")]
    assert [(one.row, one.code) for one in verdict.warning_failures] == [(2, "same_payment")]
    assert (verdict.warnings, verdict.warning_counts, verdict.valid.rows) == (1, {"row.same_payment": 1}, 1)
    strict = check(TextChunks(named, height=height), RuleOptions(as_of=OPTIONS.as_of, warnings_as_errors=True))
    assert (strict.rejected.rows, strict.counts["row.same_payment"]) == (3, 1)


@pytest.mark.parametrize("height", [1, 2, 100])
@pytest.mark.parametrize(
    ("lines", "word", "place"),
    [((2, 5, 6, 9), "line", "line 5"), ((4, 5, 6, 7), "row", "row 5"), ((None,) * 4, "row", "row 2")],
)
def test_the_first_of_two_equal_bills_is_named_by_its_place(
    height: int, lines: tuple[int | None, ...], word: str, place: str
) -> None:
    """The second row, behind a cell of three lines: a person who looked at row 2 of the sheet saw another payment."""
    rows = [_row(1), VALID | {"invoiceNumber": "7"}, _row(2), VALID | {"invoiceNumber": "7"}]
    chunks = [
        chunk.with_columns(pl.Series("_line", [lines[row - 1] for row in chunk["_row"]], pl.UInt32))
        for chunk in TextChunks(rows, height=height).chunks()
    ]
    with ExitStack() as storage:
        places = Places(word)
        unique = Uniqueness(storage, places, days=5)
        for chunk in chunks:
            places.add(chunk)
            unique.add(chunk, None, None)
        assert unique.repeats().bills.to_dicts() == [{"_row": 4, "_first": 2, "named": False, "_place": place}]


def test_an_invoice_number_that_we_stamped_counts_as_blank() -> None:
    """A results file of ours that is submitted again is the same bills as the file that had no invoice numbers."""
    rows = [VALID, VALID | {"invoiceNumber": "BP7K2MXQ-1"}, VALID | {"invoiceNumber": "BP-1"}]
    assert _found(check(TextChunks(rows), OPTIONS)) == [(2, "row.duplicate")]


def test_allowed_duplicates_never_lift_a_payment_id() -> None:
    """--allow-duplicates is about bills: two rows with one paymentId, in whatever case or width, fail all the same."""
    rows = [_row(1, paymentId="Pay-1"), _row(2, paymentId="ＰＡＹ-1")]
    allowed = RuleOptions(as_of=OPTIONS.as_of, allow_duplicates=True, rules_off=frozenset({"row.duplicate"}))
    assert _found(check(TextChunks(rows), allowed)) == [(1, "paymentId.duplicate"), (2, "paymentId.duplicate")]


def test_a_file_without_repetition_is_read_once() -> None:
    """A further pass is made only where a digest came twice or a row failed late."""
    source = TextChunks([_other(number) for number in range(10)])
    check(source, OPTIONS)
    assert source.reads == 1


def test_digests_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """More digests than are held at once give the same answer, in parts."""
    monkeypatch.setattr(duplicates, "_DIGESTS_AT_ONCE", 7)
    rows = [_row(number % 8) for number in range(16)] + [VALID, VALID, _row(99)]
    verdict = check(TextChunks(rows), OPTIONS)
    assert [row for row, _ in _found(verdict)] == [*range(1, 17), 18]


def test_rows_held_by_earlier_batches_fail_late() -> None:
    """What `late` names is rejected with its words, in the totals, the rejects and the list for the ledger."""
    rows = [_other(1), _other(2, gatewayId="x"), _other(3, amount="7.00"), _other(4), _other(4)]
    kept = Kept()
    rejected: list[pl.DataFrame] = []
    seen: list[bool] = []

    def late(verdict: Verdict) -> dict[int, tuple[str, str, str]]:
        seen.extend(verdict.rejected_mask(pl.Series(range(1, 6))))
        return {3: ("paymentId", "duplicate", "this paymentId was used before in row 9 of batch abc")}

    verdict = check(TextChunks(rows, height=2), OPTIONS, rejects=kept, late=late, rejected=rejected)
    assert seen == [False, True, False, True, True]
    assert (verdict.valid, verdict.rejected) == (Totals(1, 1250), Totals(4, 4450))
    assert _found(verdict) == [(2, "gatewayId.format")] + [(row, "paymentId.duplicate") for row in (3, 4, 5)]
    assert [row["_row"] for row in kept.added] == [2]
    assert [row["_row"] for row in kept.came_late] == [3, 4, 5]
    assert kept.came_late[0]["_errors"].endswith("row 9 of batch abc")
    assert pl.concat(rejected).select("_row", "_cents", "_reasons").rows() == [
        (2, 1250, "gatewayId.format"),
        (3, 700, "paymentId.duplicate"),
        (4, 1250, "paymentId.duplicate"),
        (5, 1250, "paymentId.duplicate"),
    ]


def test_a_row_that_fails_early_and_late_is_one_rejected_row() -> None:
    """Its late line replaces the early one and names both reasons; totals count it once."""
    rows = [_row(1, gatewayId="x"), _row(1)]
    kept = Kept()
    rejected: list[pl.DataFrame] = []
    verdict = check(TextChunks(rows), OPTIONS, rejects=kept, rejected=rejected)
    assert verdict.rejected == verdict.total == Totals(2, 2500)
    assert [row["_row"] for row in kept.added] == [1]
    assert [row["_errors"].count("; ") for row in kept.came_late] == [1, 0]
    assert pl.concat(rejected)["_reasons"].to_list() == [
        "paymentId.duplicate gatewayId.format",
        "paymentId.duplicate",
    ]


def test_second_pass_gives_the_rows_that_passed() -> None:
    """`valid_rows` has all known columns and the carried ones; `all_rows` has every row."""
    source = TextChunks([_row(1), _row(2, amount="x"), _row(3)], columns=[*VALID, "paymentId"], extra=["note"])
    verdict = check(source, OPTIONS)
    valid = pl.concat(list(valid_rows(source, OPTIONS, verdict)))
    assert valid.columns == ["_row", "_line", *COLUMNS, "note"]
    assert valid["_row"].to_list() == [1, 3] and valid["billingCity"].to_list() == [None, None]
    assert pl.concat(list(all_rows(source, OPTIONS)))["_row"].to_list() == [1, 2, 3]


def test_what_was_told_of_cells_as_read_is_not_said_of_changed_ones(tmp_path: Path) -> None:
    """Registration hears that no cell needs an escape, unless cells may have been changed since; no reject shows it."""
    changes: tuple[dict[str, Any], ...] = ({"normalize": True}, {"accept_suggestions": suggesting_rules()})
    with open_source(write(tmp_path, csv_text(3))) as source:
        check(source, OPTIONS)
        assert all(rows[BARE_ROW].all() for rows in all_rows(source, OPTIONS))
        for change in changes:
            assert all(BARE_ROW not in rows.columns for rows in all_rows(source, replace(OPTIONS, **change)))
        assert all(BARE_ROW not in without_marks(chunk).columns for chunk in source.chunks())


def test_every_row_is_in_one_result() -> None:
    """Rows that are proven come at once, the others some at a time; each shows which rows passed."""
    rows = [_other(1), _other(2, amount="x"), _other(3), _other(4, achAccountNumber="AB12")]
    with ExitStack() as storage:
        results = list(RowCheck(TextChunks(rows, height=2), OPTIONS, storage, line_word="line").results())
    seen = [(result.rows["_row"].to_list(), result.passed.to_list()) for result in results]
    assert seen == [([1], [True]), ([3], [True]), ([2, 4], [False, True])]


def test_where_all_rows_are_bad_nothing_is_proven_first_and_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a chunk in which all fail the next one is judged as it is; what passed or warns there is told all the same.

    As soon as a chunk has a row that passes, rows are proven again.
    """
    bad, good, warned = {"amount": "x"}, dict[str, str](), {"billingZip": "x", "billingCountry": "US"}
    rows = [
        _other(1, **bad),
        _other(2, **bad),
        _other(1, **good),
        _other(3, **warned),
        _other(4, **good),
        _other(5, **bad),
        _other(6, **good),
        _other(7, **good),
    ]
    told, added = Kept(), Kept()
    usual = check(TextChunks(rows, height=2), OPTIONS, rejects=told)
    monkeypatch.setattr("batchpay.validation.check._JUDGED_AT_ONCE", 1)
    proven, prove = list[int](), RuleBook.prove

    def noted(book: RuleBook, frame: pl.DataFrame) -> Proof:
        proven.append(frame.height)
        return prove(book, frame)

    monkeypatch.setattr(RuleBook, "prove", noted)
    verdict = check(TextChunks(rows, height=2), OPTIONS, rejects=added)
    assert proven == [2, 2, 2, 1, 1]  # the first chunk, the third, the fourth, and what is late of two
    assert _found(verdict) == _found(usual) == [
        (1, "amount.format"), (1, "paymentId.duplicate"), (2, "amount.format"), (3, "paymentId.duplicate"),
        (6, "amount.format"),
    ]  # fmt: skip
    assert (verdict.valid, verdict.rejected) == (usual.valid, usual.rejected) == (Totals(4, 5000), Totals(4, 1250))
    assert [(one.row, one.code) for one in verdict.warning_failures] == [(4, "zip")]
    assert (added.added, added.came_late) == (told.added, told.came_late)


def test_normalize_repairs_what_is_unambiguous_and_counts_it() -> None:
    """White space, letter case of closed lists and decimals are repaired; all else still fails."""
    options = RuleOptions(as_of=OPTIONS.as_of, normalize=True)
    rows = [
        _row(1, amount="12", transactionType=" debit ", billingState="tx", billingCountry="us"),
        _row(2, amount="12.5", billingCity="paris", billingCompany="  "),
        _row(3, amount="1,000", billingState="on", billingCountry="MX"),
    ]
    source = TextChunks(rows)
    verdict = check(source, options)
    assert verdict.repairs == {
        "transactionType": 1, "amount": 2, "billingCompany": 1, "billingState": 1, "billingCountry": 1,
    }  # fmt: skip
    assert _found(verdict) == [(3, "amount.format")]
    repaired = pl.concat(list(valid_rows(source, options, verdict)))
    assert repaired["amount"].to_list() == ["12.00", "12.50"]
    assert repaired["billingCompany"].to_list() == [None, None]
    assert pl.concat(list(all_rows(source, options)))["billingState"].to_list() == ["TX", None, "on"]


def test_typed_cell_faults_silence_the_rules_of_their_cell() -> None:
    """A marked cell gets its code and suggestion alone; no rule that looks at the cell is asked."""
    marks = {"_fault.achRoutingNumber": "leading_zero", "_suggest.achRoutingNumber": "021000021"}
    rows = [
        _row(1, achRoutingNumber="21000021", **marks),
        _row(2, amount=None, **{"_fault.amount": "error_cell"}),
        _row(3, achSecCode="ARC", achCheckNumber=None, **{"_fault.achCheckNumber": "formula"}),
        _row(4),
    ]
    extra = ["_fault.achRoutingNumber", "_suggest.achRoutingNumber", "_fault.amount", "_fault.achCheckNumber"]
    kept = Kept()
    verdict = check(TextChunks(rows, extra=extra), OPTIONS, rejects=kept)
    assert _found(verdict) == [
        (1, "achRoutingNumber.leading_zero"),
        (2, "amount.error_cell"),
        (3, "achCheckNumber.formula"),
    ]
    assert verdict.failures[0].suggestion == "021000021"
    assert not any(name.startswith(("_fault.", "_suggest.")) for name in kept.added[0])


def test_a_doubtful_cell_is_a_warning_beside_the_other_rules() -> None:
    """An account that may have lost zeros goes on with a warning, is compared with others, and breaks other rules."""
    mark = {"_warn.achAccountNumber": "numeric_account"}
    same = _row(1, paymentId=None)
    rows = [{**same, **mark}, same, _row(2, achAccountNumber="000", **mark)]
    source = TextChunks(rows, extra=list(mark))
    verdict = check(source, OPTIONS)
    assert _found(verdict) == [(2, "row.duplicate"), (3, "achAccountNumber.account")]
    assert verdict.warning_counts["achAccountNumber.numeric_account"] == 2
    strict = check(source, replace(OPTIONS, warnings_as_errors=True))
    assert strict.counts["achAccountNumber.numeric_account"] == 2


def test_ragged_rows_get_that_alone() -> None:
    """Cells of a ragged row are not asked, and not compared with others."""
    rows = [_row(1, amount="x", _ragged="has 44 cells, the header 45"), _row(1), VALID, VALID | {"_ragged": "too long"}]
    verdict = check(TextChunks(rows, extra=["_ragged"]), OPTIONS)
    assert _found(verdict) == [(1, "row.ragged"), (4, "row.ragged")]
    assert [failure.message for failure in verdict.failures] == ["has 44 cells, the header 45", "too long"]
    stray = [_row(1, amount="x", _stray="cell AB7"), _row(2, _quotation="a mark", amount="x")]
    verdict = check(TextChunks(stray, extra=["_stray", "_quotation"]), OPTIONS)
    assert _found(verdict) == [(1, "amount.format"), (1, "row.ragged"), (2, "row.quotation")]


def test_house_rules_can_be_switched_off_and_no_others() -> None:
    """A house rule's name switches it off; another's, an unknown one and row.ragged are refused."""
    off = frozenset({"invoiceNumber.whitespace", "achAgreementFlag.agreement", "amount.range", "row.same_payment"})
    rows = [_row(1, invoiceNumber=" 7", achAgreementFlag="0", amount="0.00"), _row(2), _row(3, amount="100000000.00")]
    verdict = check(TextChunks(rows), RuleOptions(as_of=OPTIONS.as_of, rules_off=off))
    assert _found(verdict) == [(3, "amount.range")]
    for name in ("amount.format", "row.ragged", "amount.rnage", "paymentId.duplicate"):
        with pytest.raises(SettingsNotUsable, match=name):
            check(TextChunks([]), RuleOptions(as_of=OPTIONS.as_of, rules_off=frozenset({name})))


def test_options_take_rules_away_or_add_them() -> None:
    """Agreement, start in the past, open end and the limit follow the options."""
    row = _row(
        1, **RECURRING | {"recurringStartDate": "01/15/2026", "recurringNumOfPayments": "0"}, achAgreementFlag="0"
    )
    assert {name for _, name in _found(check(TextChunks([row]), OPTIONS))} == {
        "achAgreementFlag.agreement", "recurringStartDate.past", "recurringNumOfPayments.open_ended",
    }  # fmt: skip
    lenient = RuleOptions(
        as_of=OPTIONS.as_of, allow_open_ended=True, require_agreement=False, past_start=False, max_amount_cents=1249
    )
    assert _found(check(TextChunks([row]), lenient)) == [(1, "amount.limit")]


def test_failures_are_the_first_ones_and_counts_are_of_all() -> None:
    """At most `max_failures` are listed, in row order; counts know all."""
    verdict = check(
        TextChunks([_row(number, amount="x", gatewayId="y") for number in range(10)]), OPTIONS, max_failures=3
    )
    assert _found(verdict) == [(1, "gatewayId.format"), (1, "amount.format"), (2, "gatewayId.format")]
    assert verdict.counts == {"gatewayId.format": 10, "amount.format": 10}


def test_no_account_number_in_what_people_read() -> None:
    """Messages and suggestions about an account number don't hold it."""
    for cell in (" 99887766", "99887766\x00", "9988-7766", "998877665544332211", "A9988776"):
        row = _row(1, achAccountNumber=cell)
        verdict = check(TextChunks([row]), OPTIONS)
        texts = [f"{failure.message} {failure.suggestion}" for failure in verdict.failures + verdict.warning_failures]
        assert texts and not any("9988" in text for text in texts)


def test_empty_file_has_an_empty_verdict() -> None:
    """A header without rows is nothing to do."""
    rejected: list[pl.DataFrame] = []
    verdict = check(TextChunks([]), OPTIONS, rejected=rejected)
    assert not rejected
    assert (verdict.rows, verdict.total) == (0, Totals())


def test_a_fault_elsewhere_in_the_row_hides_no_payment_id() -> None:
    """Both rows of a paymentId fail, though one has a typed cell that is no faithful text."""
    rows = [_row(1), {**_row(1), "_fault.achCheckNumber": "format"}]
    verdict = check(TextChunks(rows, extra=["_fault.achCheckNumber"]), OPTIONS)
    assert verdict.counts["paymentId.duplicate"] == 2


@pytest.mark.parametrize("faulty", [0, 1])
@pytest.mark.parametrize("names", [("", ""), ("A", ""), ("A", "B")])
def test_a_fault_elsewhere_in_the_row_hides_no_bill(faulty: int, names: tuple[str, str]) -> None:
    """The same bill twice, with a formula in the bank's name of one row: the second was not told, or even passed."""
    rows = [_row(1, invoiceNumber="7", paymentId=name or None) for name in names]
    rows[faulty] = {**rows[faulty], "_fault.achBankName": "text_formula"}
    verdict = check(TextChunks(rows, extra=["_fault.achBankName"]), OPTIONS)
    found = [(failure.row, failure.code) for failure in verdict.failures + verdict.warning_failures]
    again = "same_payment" if all(names) else "duplicate"
    assert sorted(found) == sorted([(faulty + 1, "text_formula"), (2, again)])


@pytest.mark.parametrize("column", ["achAccountNumber", "achRoutingNumber", "amount", "invoiceNumber", "paymentId"])
def test_a_fault_in_what_makes_a_bill_is_compared_with_nothing(column: str) -> None:
    """What a cell without faithful text was meant to be is not known."""
    rows = [_row(1, invoiceNumber="7", paymentId=None), _row(2, invoiceNumber="7", paymentId=None)]
    rows[0] = {**rows[0], f"_fault.{column}": "precision"}
    verdict = check(TextChunks(rows, extra=[f"_fault.{column}"]), OPTIONS)
    assert _found(verdict) == [(1, f"{column}.precision")]


def test_sums_beyond_64_bits_are_right() -> None:
    """The totals of absurd amounts are told to the cent all the same."""
    rows = [_row(number, amount="9999999999999.99") for number in range(9_300)]
    assert check(TextChunks(rows, height=10_000), OPTIONS).total == Totals(9_300, 9_300 * 999999999999999)


@pytest.mark.parametrize(("column", "text"), [("billingCountry", "ß"), ("currencyCode", "uſd"), ("billingState", "ﬂ")])
def test_letters_that_only_look_alike_are_not_repaired(column: str, text: str) -> None:
    """What becomes a code by Unicode's rules for capitals is not that code in another letter case."""
    row = {**_row(1), "billingCountry": "US", column: text}
    for normalize in (False, True):
        verdict = check(TextChunks([row]), replace(OPTIONS, normalize=normalize))
        assert verdict.rejected.rows == 1
        assert all(failure.suggestion is None for failure in verdict.failures)


@pytest.mark.parametrize(
    ("phone", "suggestion"),
    [("(212) 555 0100", "212-555-0100"), ("+1 212 555 0100", "212-555-0100"), ("+44 1234 5678", None)],
)
def test_a_phone_number_of_elsewhere_is_not_made_one_of_here(phone: str, suggestion: str | None) -> None:
    """Ten digits behind +44 are no number of North America."""
    (failure,) = check(TextChunks([_row(1, billingPhone=phone)]), OPTIONS).failures
    assert (failure.code, failure.suggestion) == ("phone", suggestion)


def test_a_file_full_of_null_words_takes_no_memory_by_row() -> None:
    """What each row was noted with grew with the file: of a payee called NULL no more than the row's number is kept."""
    count, facts = 20_000, RuleFacts("achNameOnCheck", "placeholder", "warning", "H", "", "")
    accounts = pl.int_range(count, eager=True).cast(pl.String)
    numbers = pl.int_range(1, count + 1, dtype=pl.UInt32, eager=True)
    rows = pl.DataFrame({"_row": numbers, "achRoutingNumber": accounts, "achAccountNumber": accounts})
    findings = Findings(rows, [row_violation(facts, pl.repeat("", count, eager=True))])
    words, passed = NullWords(), pl.repeat(value=True, n=count, eager=True)
    tracemalloc.start()
    words.add(findings, passed)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (late,) = words.late()
    assert (late.rows["_row"].to_list(), kept < count) == (numbers.to_list(), True)
