"""The table of words: what headers and cells of other programs mean, however they are written."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.tables import CHOICES, rows_of
from batchpay.schemas.words import evidence, folded, header_key, header_means, meaning

HEADERS, WORDS = list(rows_of("headers.csv")), list(rows_of("words.csv"))
EXACT = ("null", "remnant")
"""Lists that are compared as they are written: `N/A` and `Na` are not the same."""


def test_every_line_is_one() -> None:
    """A header or a word has one meaning in what it belongs to, and every meaning is known."""
    keys = Counter((line["of"], header_key(line["header"])) for line in HEADERS)
    keys += Counter((line["of"], folded(line["word"])) for line in WORDS if line["of"] not in EXACT)
    assert [key for key, count in keys.items() if count > 1 or not key[1]] == []
    known = {*COLUMNS, "payOn", "status", "debit", "credit"}
    assert {line["means"].removesuffix("?") for line in HEADERS if line["of"] == "payment"} <= known
    for line in WORDS:
        if line["of"] in COLUMNS:
            assert line["means"].removesuffix("?") in (*CHOICES[line["of"]], "", "none", "once"), line


@st.composite
def rewritten(draw: st.DrawFn, text: str) -> str:
    """Write a text as others do: in another case, without its accents, with other blanks and signs."""
    text = getattr(text, draw(st.sampled_from(["strip", "upper", "title", "capitalize"])))()
    text = unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD", "NFKC"])), text)
    if draw(st.booleans()):
        text = "".join(one for one in unicodedata.normalize("NFD", text) if not unicodedata.combining(one))
    text = text.replace(" ", draw(st.sampled_from([" ", "  ", "_", "-", ".", "\u00a0", ""])))
    return draw(st.sampled_from(["", " ", "*"])) + text + draw(st.sampled_from(["", " ", ":", ".", " *"]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_a_line_is_found_however_it_is_written(data: st.DataObject) -> None:
    """Letter case, accents, blanks and punctuation make no other header and no other word of it."""
    header = data.draw(st.sampled_from(HEADERS))
    assert header_means(data.draw(rewritten(header["header"])), header["of"]) == header["means"]
    word = data.draw(st.sampled_from([line for line in WORDS if line["of"] not in EXACT]))
    assert meaning(word["of"], data.draw(rewritten(word["word"]))) == word["means"]


@pytest.mark.parametrize(("header", "cells", "kind"), [
    ("Payment Status", (), "status"), ("Marital Status", ("Married",), "status"), ("Fälligkeit", (), "date"),
    ("S/H", (), "direction"), ("Häufigkeit", (), "schedule"), ("Curr.", (), "currency"),
    ("x", ("Void", "Open"), "status"), ("x", ("Debit", "Credit"), "direction"), ("x", ("Weekly",), "schedule"),
    ("x", ("USD", "EUR"), "currency"), ("Taxable", ("Yes",), None), ("Paid", ("TRUE", "FALSE"), None),
    ("Memo", ("paid twice",), None), ("Birth Date", ("01/02/1970",), None),
    ("Every", ("month", "week"), "schedule"), ("x", ("year", "month"), "schedule"), ("Via", ("ACH", "Wire"), "status"),
])  # fmt: skip
def test_evidence(header: str, cells: tuple[str, ...], kind: str | None) -> None:
    """A column says something about money by its header, or by what all of its cells are."""
    assert evidence(header, cells) == kind


@pytest.mark.parametrize("header", ["Número de ruta", "Ruta bancaria", "Número de ruta y tránsito", "Número ABA"])
def test_a_spanish_routing_number(header: str) -> None:
    """A payroll with `Número de ruta` was told that no column has routing numbers, so that it can't be paid."""
    assert header_means(header) == "achRoutingNumber"
