"""One defect in a CSV: no cell moves elsewhere, and one bad record costs one record, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.csv import reader as csv_reader
from batchpay.intake.source import open_source
from tests.support.payment_files import write

HEADER = ("ref", "name", "sum", "note")
NAMES = ("Ada Byron", "Table, round", 'Bob "Bobby" Ray')
ROWS = [
    (f"R{number}", NAMES[number % 3], f"{number}.07", "a, b" if number % 2 else "") for number in range(1, 13)
]  # fmt: skip


def encoded(cell: str, *, always: bool) -> str:
    marked = '"' + cell.replace('"', '""') + '"'
    return marked if always or any(mark in cell for mark in ',"\n') else cell


def lines(*, always: bool) -> list[str]:
    return [",".join(encoded(cell, always=always) for cell in row) for row in (HEADER, *ROWS)]


def defects(text: str) -> Iterator[str]:
    """Every line that one slip of a program or a person makes of a line."""
    for at, character in enumerate(text):
        if character in ',"':
            yield text[:at] + text[at + 1 :]
            yield text[:at] + character + text[at:]
        if character == ",":
            yield text[:at] + ";" + text[at + 1 :]
            yield text[:at] + " " + text[at:]
            yield text[: at + 1] + " " + text[at + 1 :]
        if at % 3 == 0:
            yield text[:at] + '"' + text[at:]
            yield text[:at] + "\n" + text[at:]
    yield text + ","
    yield text + '"'
    yield '"' + text
    yield text.replace('""', '\\"')
    yield text.replace('"', "'")


def outcome(path: str) -> dict[int, tuple[str, ...]]:
    """The rows that are not rejected for their shape, by line; raises FileRefused."""
    with open_source(path, required=()) as source:
        found = {}
        for chunk in source.chunks():
            for row in chunk.iter_rows(named=True):
                if not (row.get("_ragged") or row.get("_quotation")):
                    found[row["_line"]] = tuple(row[name] or "" for name in HEADER)
    return found


@pytest.mark.parametrize("always", [False, True], ids=["as needed", "all quoted"])
@pytest.mark.parametrize("bad", [1, 12], ids=["first", "last"])
def test_one_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: bool, bad: int) -> None:
    """Some 300 files of one defect each: every other row is as it was, or the file is refused with a line."""
    monkeypatch.setattr(csv_reader, "PIECE_BYTES", 90)
    refused = rejected = 0
    whole = lines(always=always)
    for damaged in sorted(set(defects(whole[bad]))):
        text = "\n".join([*whole[:bad], damaged, *whole[bad + 1 :]]) + "\n"
        more = damaged.count("\n")
        try:
            found = outcome(write(tmp_path, text))
        except FileRefused as refusal:
            assert "line " in str(refusal)
            refused += 1
            continue
        expected = {2 + at + (more if at >= bad else 0): row for at, row in enumerate(ROWS) if at != bad - 1}
        others = {line: row for line, row in found.items() if not bad < line <= bad + 1 + more}
        assert others == {line: row for line, row in expected.items() if not bad < line <= bad + 1 + more}, damaged
        for line in found.keys() - others.keys():
            # What is left of the record itself may differ in the cell of the slip, but no cell may be another's.
            moved = [
                at
                for at, cell in enumerate(found[line])
                if cell and cell in ROWS[bad - 1] and cell != ROWS[bad - 1][at]
            ]
            assert not moved, damaged
        rejected += bad + 1 not in found
    assert rejected > 5 * refused


@pytest.mark.parametrize("amount", ["78.07", "="])
def test_a_separator_is_missing_before_a_quoted_cell(tmp_path: Path, amount: str) -> None:
    """The comma inside made the count right again: every later cell stood in the wrong column, without a word."""
    text = f'ref,sum,name,note\nR1,{amount}"Table, round",x\nR2,1.00,"a",y\n'
    with open_source(write(tmp_path, text), required=()) as source:
        frame = next(source.chunks())
    assert frame["_quotation"].to_list() == [
        "there is a quotation mark inside a cell that does not begin with one",
        None,
    ]
    assert frame["ref"].to_list() == [f'R1,{amount}"Table, round",x', "R2"]
    assert frame["name"].to_list() == [None, "a"]


@pytest.mark.parametrize(
    "records",
    [
        ['"a', "b", "c,d"],  # never closed, and the next line is no record
        ['"a', 'b,c" x', "c,d"],  # closed in a line that is none by itself
        ['a"b', "c", "e,f"],  # the next line is no record
        ['"a', "b,c", 'd" x,e', "f,g"],  # a row that may stand within quotation marks
        ['"a', "b,c", 'd",e', "f,g"],  # as above, and the cells would come to as many
        ["x,y", '"a,b'],  # the file ends in an open cell
    ],
)
def test_an_end_that_is_not_certain_refuses_the_file(tmp_path: Path, records: list[str]) -> None:
    """Where lines may belong to the bad record no payment is taken from them."""
    text = "zz0,zz1\n" + "".join(f"{record}\n" for record in records)
    if records[1:] == ["b,c", 'd",e', "f,g"]:
        assert [row["zz0"] for row in _rows(write(tmp_path, text))] == ["a\nb,c\nd", "f"]
        return
    with pytest.raises(FileRefused, match=r"line [23]: .*(can't be known|never closed)"):
        _rows(write(tmp_path, text))


def _rows(path: str) -> list[dict[str, object]]:
    with open_source(path, required=()) as source:
        return [row for chunk in source.chunks() for row in chunk.iter_rows(named=True)]


@pytest.mark.parametrize("seed", range(2))
def test_bad_records_across_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Wherever blocks and pieces end, the same records are rejected, and an open cell is given up after a while."""
    random = Random(seed)
    good = "k,l,m"
    for _ in range(60):
        bad = random.choice([['"a,b,c'], ['a"b,c,d', 'a,"b"c,d', good]])
        body = [random.choice(bad) if at % 4 == 1 and (at == 13 or len(bad) > 1) else good for at in range(29)]
        text = "zz0q,zz1q,zz2q\n" + "".join(f"{line}\n" for line in body)
        path = write(tmp_path, text)
        monkeypatch.setattr(csv_reader, "OPEN_BYTES_MAX", random.choice([40, 100, 1 << 20]))
        monkeypatch.setattr(csv_reader, "PIECE_BYTES", random.choice([20, 60, 1 << 20]))
        monkeypatch.setattr(csv_reader, "BLOCK_BYTES", random.choice([(50, 100), (1 << 20, 1 << 20)]))
        assert [row["_line"] for row in _rows(path) if not row.get("_quotation")] == [
            number for number, line in enumerate(body, start=2) if line == good
        ]


_TEXTS = ("Ada Byron", "Table, round", 'Bob "Bobby" Ray', "", "12.50", "two\nlines", "0012", '="0012"', "Zoë")
_SLIPS: dict[str, Callable[[Random, str], str]] = {
    "no separator before a quoted cell": lambda random, text: _replaced(random, text, ',"', '"'),
    "no separator after a quoted cell": lambda random, text: _replaced(random, text, '",', '"'),
    "a mark too many": lambda random, text: _inserted(random, text, '"'),
    "a mark too few": lambda random, text: _replaced(random, text, '"', ""),
    "doubled": lambda random, text: _replaced(random, text, '"', '""'),
    "escaped by a backslash": lambda random, text: text.replace('""', '\\"'),
    "a separator too many": lambda random, text: _inserted(random, text, ","),
    "a separator too few": lambda random, text: _replaced(random, text, ",", ""),
    "another separator": lambda random, text: _replaced(random, text, ",", ";"),
    "a blank before a mark": lambda random, text: _replaced(random, text, ',"', ', "'),
    "cut": lambda random, text: text[: random.randrange(1, len(text))],
}


def _own_text(random: Random, column: str) -> str:
    """A text that no other column has, or none."""
    text = random.choice(_TEXTS)
    return f"{text[:-1]}{column}{text[-1:]}" if text else ""


def _replaced(random: Random, text: str, old: str, new: str) -> str:
    places = [at for at in range(len(text)) if text.startswith(old, at)]
    at = random.choice(places) if places else len(text)
    return text[:at] + new + text[at + len(old) :]


def _inserted(random: Random, text: str, more: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + more + text[at:]


@pytest.mark.parametrize("slip", _SLIPS)
def test_one_slip_in_files_of_any_cells(tmp_path: Path, slip: str) -> None:
    """Files by a seed, each with one slip: other records are what they were, and mostly that one alone is lost."""
    random = Random(slip)
    refused = told = 0
    for _ in range(15):
        rows = [(f"R{at}", *(_own_text(random, column) for column in "abc")) for at in range(9)]
        always, end = random.random() < 0.5, random.choice(["\n", "\r\n"])
        records = [",".join(encoded(cell, always=always) for cell in row) for row in rows]
        bad = random.randrange(len(rows))
        expected = {2 + sum(record.count("\n") + 1 for record in records[:at]): row for at, row in enumerate(rows)}
        records[bad] = _SLIPS[slip](random, records[bad])
        shift = records[bad].count("\n") - sum(cell.count("\n") for cell in rows[bad])
        first = 2 + sum(record.count("\n") + 1 for record in records[:bad])
        begins = {line + (shift if line > first else 0): row for line, row in expected.items() if line != first}
        try:
            found = outcome(write(tmp_path, end.join([",".join(HEADER), *records, ""])))
        except FileRefused as refusal:
            assert "line " in str(refusal)
            refused += 1
            continue
        last = first + records[bad].count("\n")
        assert {line: row for line, row in found.items() if not first <= line <= last} == begins, records[bad]
        changed = [at for at, cell in enumerate(found.get(first, rows[bad])) if cell != rows[bad][at]]
        assert len(changed) <= 1, records[bad]  # the cell of the slip, and no cell is another's
        told += first not in found
    assert refused <= 8
    assert told or slip in ("escaped by a backslash", "doubled")
