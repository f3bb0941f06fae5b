"""ACH records: the same file however its lines end, and refused where its own control totals contradict it."""

from __future__ import annotations

import re
from datetime import date

import pytest

from batchpay.errors import FileRefused
from batchpay.intake.ach_records import check_digit, is_ach, read_ach
from batchpay.payment import Direction
from tests.support.ach_files import ach_file, entry, returned

ACCOUNT = "648443924"
TWO = [entry("26", 1250, ACCOUNT, returned("R01", "12100033"), name="GRACE QUIGLEY"), entry("31", 900, "77")]
FILE = ach_file(TWO, [entry("22", 5, "5")])


@pytest.mark.parametrize("content", [
    FILE, FILE.replace(b"\n", b"\r\n"), FILE.replace(b"\n", b""), b"\xef\xbb\xbf" + FILE,
    b"\n".join(line.rstrip() for line in FILE.splitlines()), FILE.replace(b"\n" + b"9" * 94, b""), FILE + b"\x1a",
    FILE.replace(b"GRACE QUIGLEY ", "GRÁCE QUIGLEY ".encode()),
], ids=["LF", "CR-LF", "one line", "BOM", "trimmed", "no fillers", "end of file mark", "accent"])  # fmt: skip
def test_a_file_is_the_same_however_its_lines_end(content: bytes) -> None:
    """Banks send records in lines, without any line break, trimmed, and with or without fillers."""
    assert is_ach(content[:64])
    first, second = read_ach(content, "r.ach")
    assert (first.created, first.entry_class, len(first.entries)) == (date(2026, 11, 24), "PPD", 2)
    one, other = first.entries
    assert (one.record, one.cents, one.direction, len(one.addenda)) == (3, 1250, Direction.DEBIT, 1)
    assert (one.cell(13, 29), one.cell(4, 11), other.direction) == (ACCOUNT, "02100002", Direction.CREDIT)
    assert [found.cents for found in second.entries] == [5]


def test_two_files_in_one() -> None:
    """Banks put one file behind the other."""
    assert len(read_ach(FILE + ach_file(TWO), "r.ach")) == 3


def changed(first: int, last: int, text: str, record: int) -> bytes:
    """Write something else at some positions of a record."""
    lines = FILE.decode().split("\n")
    line = lines[record - 1]
    lines[record - 1] = line[: first - 1] + text + line[last:]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(("content", "told"), [
    (changed(30, 39, "0000009900", 3), "record 6: the total of debits"),
    (changed(30, 39, "0000009900", 5), "record 6: the total of credits"),
    (changed(4, 11, "02100003", 5), "record 6: the entry hash"),
    (b"\n".join(FILE.splitlines()[:3] + FILE.splitlines()[4:]), "record 5: the number of entries"),
    (b"\n".join(FILE.splitlines()[:6] + FILE.splitlines()[9:]), "record 7: the number of batches"),
    (changed(44, 44, "6", 10), "record 10: the total of credits"),
    (b"\n".join(FILE.splitlines()[:9]), "cut off"),
    (b"\n".join(FILE.splitlines()[:1] + FILE.splitlines()[2:]), "record 2 is out of place"),
    (changed(30, 39, "00000O1250", 3), "record 3 has something else"),
    (changed(24, 29, "261341", 1), "record 1 has no day"),
], ids=range(10))  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(content: bytes, told: str) -> None:
    """What was cut off or changed on its way is not taken; nothing of it is quoted."""
    with pytest.raises(FileRefused, match=re.escape(told)) as refused:
        read_ach(content, "r.ach")
    assert ACCOUNT not in str(refused.value)


@pytest.mark.parametrize("routing", ["121000332", "021000021", "026009593", "011000015"])
def test_the_check_digit_is_computed(routing: str) -> None:
    """Addenda have eight digits of a routing number."""
    assert check_digit(routing[:8]) == routing[8]
