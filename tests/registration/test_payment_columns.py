"""What registration builds of a row, held against a plain reading of CONTRACT.md with the standard library's json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import polars as pl
import pytest

from batchpay.ledger.columns import PackedTexts, PaymentColumns
from batchpay.registration.digests import canonical_bytes, lookup_columns, packed_texts, payment_columns
from batchpay.registration.request_body import RequestForm, show_requests
from batchpay.schemas.columns import (
    ACH,
    BARE_ROW,
    BILLING,
    COLUMNS,
    CORRECTED,
    NUMBERS_ON_THE_WIRE,
    PAY_ON,
    PAYMENT_ID,
    RECURRING,
    SHIPPING,
    TOP,
)
from tests.support.row_factory import Row, valid_rows

STAMP = "BPTEST22-"
_SIZES = {"bill": 16, "payment id": 16, "fingerprint": 16, "payee": 8, "account": 8}
"""Of digests in bytes: of another size none would be found in the ledgers that are there."""
CONTROLS = [chr(code) for code in range(1, 0x20)]
ODD = ['"', "\\", "{", "{} {0}", "}}", '\\"', "a;b", "Ω \u2028", "😀", "\x7f", "</script>", *CONTROLS]
"""PackedTexts that a writer of JSON or of CSV must not stumble over."""
NODES = {"billing": BILLING, "shipping": SHIPPING, "ach": ACH}


class KeylessLedger:
    """Gives every text itself: what was digested can be seen."""

    def digest(self, purpose: str, texts: Sequence[str | None], size: int) -> list[bytes | None]:
        assert size == _SIZES[purpose]
        return [None if text is None else text.encode() for text in texts]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"registration asked the ledger for {name}")


def frame_of(rows: Sequence[Row], **more: Any) -> pl.DataFrame:
    """A chunk as `all_rows` gives it."""
    cells = {name: pl.Series([row[name] for row in rows], dtype=pl.String) for name in COLUMNS}
    numbers = pl.int_range(1, len(rows) + 1, dtype=pl.UInt32, eager=True)
    return pl.DataFrame({"_row": numbers, "_line": numbers + 1, **cells, **more})


def odd_rows() -> list[Row]:
    """Rows that pass every rule, but for odd texts in the free columns of most of them."""
    rows = valid_rows(seed=5, count=400)
    for number, row in enumerate(rows):
        text = ODD[number % len(ODD)]
        row |= {
            "billingCompany": text,
            "achBankName": None if number % 3 else f"x{text}y",
            PAYMENT_ID: f"{text}{number}",
        }
        if number % 4 == 0:
            row |= {"billingEmail": "a@example.com;b@example.org", "gatewayId": f"000{row['gatewayId']}"}
    return rows


def body_of(number: int, row: Row, *, letter: bool) -> str:
    """The request of a row, member by member."""

    def given(names: Sequence[str]) -> dict[str, Any]:
        cells = {name: cell for name in names if (cell := row[name]) is not None}
        return {name: int(cell) if name in NUMBERS_ON_THE_WIRE else cell for name, cell in cells.items()}

    request = given(TOP)
    if row["invoiceNumber"] is None:
        before = {name: request[name] for name in TOP[:3]}
        request = {**before, "invoiceNumber": f"{STAMP}{number}", **request}
    for node, names in NODES.items():
        request[node] = given(names)
    emails = (row["billingEmail"] or "").split(";")
    if len(emails) > 1:
        del request["billing"]["billingEmail"]
        request["billing"]["emails"] = {"billingEmail": emails}
    if row["recurringIndicator"] == "TRUE":
        agrees = row["recurringAgreementFlag"] in ("1", "Y")
        request["recurring"] = {
            **given(RECURRING[:-1]),
            "recurringAgreementFlag": ("Y" if agrees else "N") if letter else int(agrees),
            **given(["achSecCode"]),
        }
    return json.dumps(request, ensure_ascii=False, separators=(",", ":"))


def built(frame: pl.DataFrame, form: RequestForm, carried: Sequence[str] = ()) -> list[PaymentColumns]:
    return list(payment_columns(KeylessLedger(), frame, carried, form))


@pytest.mark.parametrize("letter", [False, True])
@pytest.mark.parametrize("recurring", [None, "TRUE", "FALSE"])
def test_bodies_are_the_bytes_that_json_writes(recurring: str | None, letter: bool) -> None:
    """Every body is what json writes of the row: no odd text, blank cell or mixture of rows changes a byte."""
    rows = [row for row in odd_rows() if recurring in (None, row["recurringIndicator"])]
    (columns,) = built(frame_of(rows), RequestForm(STAMP, letter, "emails"))
    expected = [body_of(number, row, letter=letter).encode() for number, row in enumerate(rows, start=1)]
    assert columns.bodies.each() == expected


@pytest.mark.parametrize("flags", [[False], [None], [True, None], [True, False]])
def test_odd_texts_are_escaped_unless_all_rows_are_known_to_have_none(flags: list[bool | None]) -> None:
    """What the reader told of some rows says nothing of the others, nor of what a correction put in."""
    rows, form = [{**row, "billingCompany": 'a"b'} for row in odd_rows()[:4]], RequestForm(None, False, "emails")
    told = pl.Series(flags * 4, dtype=pl.Boolean).head(4)
    (columns,) = built(frame_of(rows, **{BARE_ROW: told}), form)
    corrected = {BARE_ROW: [True] * 4, CORRECTED: ['amount: "5" -> 5.00'] * 4}
    (also,) = built(frame_of(rows, **corrected), form)
    assert also.bodies.each() == columns.bodies.each()
    assert [json.loads(body)["billing"]["billingCompany"] for body in columns.bodies.each()] == ['a"b'] * 4
    assert all(json.loads(text)["accepted_suggestions"] == 'amount: "5" -> 5.00' for text in also.details.each())


def test_a_row_alone_has_the_same_body_as_among_others() -> None:
    """How bodies are put together depends on the chunk; what they are does not."""
    rows, form = odd_rows()[:40], RequestForm(None, agreement_as_letter=False, emails_node="emails")
    (together,) = built(frame_of(rows), form)
    alone = [body for row in rows for columns in built(frame_of([row]), form) for body in columns.bodies.each()]
    assert alone == together.bodies.each()
    assert [body.encode() for row in rows for body in show_requests(frame_of([row]), form)] != alone, "shown masked"


def test_details_hold_what_results_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Details are JSON too, with the last four of the account and the file's own columns, blank ones as null."""
    rows = odd_rows()
    memo = [None if number % 5 == 0 else ODD[number % len(ODD)] for number in range(len(rows))]
    monkeypatch.setattr("batchpay.registration.digests._ROWS_AT_ONCE", 64)
    monkeypatch.setattr("batchpay.registration.digests.CHUNK_ROWS", 16)
    form = RequestForm(None, agreement_as_letter=False, emails_node="emails")
    parts = built(frame_of(rows, **{'we"ird': memo}), form, ['we"ird'])
    details = [json.loads(text) for columns in parts for text in columns.details.each()]
    assert len(parts) > 3
    assert [row for columns in parts for row in columns.rows] == list(range(1, len(rows) + 1))
    assert [one["carried"] for one in details] == [[text] for text in memo]
    assert [one["name"] for one in details] == [row["achNameOnCheck"] for row in rows]
    assert [one.get(PAYMENT_ID) for one in details] == [row[PAYMENT_ID] for row in rows]
    accounts = [row["achAccountNumber"] or "" for row in rows]
    assert [one["account"] for one in details] == [f"****{text[-4:] if len(text) > 4 else ''}" for text in accounts]


def test_an_account_number_that_another_column_repeats_is_masked() -> None:
    """CONTRACT.md: no account number in results. A file's own column may have it once more, alone or among words."""
    row = odd_rows()[0] | {"achAccountNumber": "0012345678"}
    memo = ["0012345678", 'old: 0012345678/0012345678"', "12345678", None]
    short, shortest = row | {"achAccountNumber": "1234"}, row | {"achAccountNumber": "12345"}
    cells = [*memo, "1234 pieces", "12345 pieces"]
    frame = frame_of([row, row, row, row, short, shortest], memo=cells, other=["a"] * 6)
    form = RequestForm(None, agreement_as_letter=False, emails_node="emails")
    (columns,) = built(frame, form, ["memo", "other"])
    carried = [json.loads(text)["carried"] for text in columns.details.each()]
    assert carried == [
        ["****5678", "a"], ['old: ****5678/****5678"', "a"], ["12345678", "a"], [None, "a"], ["1234 pieces", "a"],
        ["****2345 pieces", "a"],
    ]  # fmt: skip


def test_canonical_text_is_every_cell_of_every_row() -> None:
    """Cells end in 0x1F, rows in 0x1E, a blank cell is a NUL: the batch digest of every ledger rests on it.

    A payOn stands behind the last cell, where there was nothing before: a file without one has the digest it had.
    """
    rows = odd_rows()
    known = [name for name in COLUMNS if name != PAY_ON]
    lines = ["".join(f"{chr(0) if row[name] is None else row[name]}\x1f" for name in known) for row in rows]
    ends = [row[PAY_ON] or "" for row in rows]
    assert any(ends) and not all(ends)
    memo = ["x"] * len(rows)
    texts = [f"{line}{end}\x1e" for line, end in zip(lines, ends, strict=True)]
    assert canonical_bytes(frame_of(rows, memo=memo)) == "".join(texts).encode()
    without = "".join(f"{line}\x1e" for line in lines).encode()
    blank = [row | {PAY_ON: None} for row in rows]
    assert canonical_bytes(frame_of(blank, memo=memo)) == canonical_bytes(frame_of(rows).drop(PAY_ON)) == without


def test_amounts_are_cents_and_digests_have_their_texts() -> None:
    """Cents are counted exactly; bill, payee and account digest what they always did, and older ledgers' forms too."""
    row = valid_rows(seed=6, count=1)[0] | {
        "amount": "99999999.99",
        "paymentId": "Straße 7",
        "invoiceNumber": None,
        "achNameOnCheck": "ZOË Quill",
    }
    (columns,) = built(frame_of([row]), RequestForm(STAMP, agreement_as_letter=False, emails_node="emails"))
    account, routing = row["achAccountNumber"], row["achRoutingNumber"]
    assert columns.amounts_cents == [9_999_999_999]
    way = row["transactionType"]
    bill = [f"{routing}\x1f{account}\x1f{way}\x1f9999999999\x1f".encode()]
    assert (columns.fingerprints, columns.payment_ids) == (bill, [b"strasse 7"])
    lookup = lookup_columns(KeylessLedger(), frame_of([row]))
    assert (lookup.fingerprints, lookup.payment_ids, lookup.with_invoice) == (bill, [b"strasse 7"], [False])
    older_bill = f"{account}\x1f{routing}\x1f99999999.99\x1f{way}\x1f\0".encode()
    assert lookup.older() == ([older_bill], ["Straße 7".encode()])
    assert columns.payees == ["zoë quill".encode()]
    assert columns.accounts == [f"{routing}\x1f{account}".encode()]


def test_texts_come_apart_as_they_were_put_together() -> None:
    """Lengths are bytes, not characters; parts are cut between rows, and their sum is the whole."""
    texts = ["", "Zoë", "x" * 10, "Ω", ""]
    joined = PackedTexts.of(texts)
    assert joined.each() == [text.encode() for text in texts]
    assert [text for part in joined.parts(2) for text in part.each()] == joined.each()
    assert [len(part.lengths) for part in joined.parts(2)] == [2, 2, 1]
    assert "Zoë" not in repr(joined)


def test_texts_are_taken_from_where_polars_built_them() -> None:
    """They lie in several pieces, the first of a few kilobytes; in another order they would be other rows' requests."""
    texts = pl.Series([f"{row} {'é' * (row % 900)} the body of a row" for row in range(2000)])
    packed = packed_texts(texts)
    assert 3 < len(packed.pieces) < 100
    assert packed.each() == [text.encode() for text in texts]
    last = next(row for row, end in enumerate(accumulate(packed.lengths)) if end == len(packed.pieces[0]))
    without_last = texts.gather([row for row in range(2000) if row != last])
    moved = [
        without_last,
        texts.reverse(),
        texts.gather([1, 0, *range(2, 2000)]),
        texts[1:],
        texts[:-1],
        texts[3:4],
        texts.head(0),
    ]
    for other in (*moved, pl.Series(["short"]), pl.concat([texts, texts], rechunk=False)):
        packed = packed_texts(other)
        assert packed.each() == [text.encode() for text in other]
        assert list(packed.lengths) == [len(text.encode()) for text in other]
    alike = pl.Series([f"the body of row {row:020}" for row in range(2000)])
    second = len(packed_texts(alike).pieces[0]) // len(alike[0])
    places = list(range(2000))
    places[1], places[second + 1] = places[second + 1], places[1]  # at the same place, but of another piece
    assert packed_texts(alike.gather(places)).each() == [alike[place].encode() for place in places]


def test_sets_of_rows_are_about_equal_and_whole_chunks() -> None:
    """A set of a few rows costs as much as hundreds more of the set before it."""
    row = valid_rows(seed=5, count=1)[0]
    form = RequestForm(None, agreement_as_letter=False, emails_node="emails")
    for height, expected in ((0, []), (1, [1]), (9000, [9000]), (17_716, [9216, 8500]), (25_000, [8704, 8704, 7592])):
        frame = frame_of([row]).select(pl.all().repeat_by(height).explode()) if height else frame_of([row]).clear()
        assert [len(columns.rows) for columns in payment_columns(KeylessLedger(), frame, (), form)] == expected
