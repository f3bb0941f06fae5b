"""What a block's bytes tell: where quotation marks may stand."""

from __future__ import annotations

import pytest

from batchpay.intake.csv.byte_proof import MARK, Octets, has_doubled_marks, marks_at_borders


@pytest.mark.parametrize(
    ("block", "fine", "doubled"),
    [
        (b'"a",b\n', True, False),
        (b'a,"b,c"\r\n', True, False),
        (b'a,"b\nc"\n', True, False),
        (b'a,"",c\n', True, True),
        (b'a,"x""y",c\n', True, True),
        (b'a,"x"y",c\n', False, False),
        (b'a,"x"y"z",c\n', False, False),
        (b'a,x"y"z,c\n', False, False),
        (b'a,"x,"y",z"\n', False, False),
        (b'a,x"\n', False, False),
    ],
)
def test_marks_stand_at_borders(block: bytes, fine: bool, doubled: bool) -> None:
    """A mark is doubled, or opens a cell right after a border, or closes it right before one."""
    marks = Octets(block, ",").around_marks
    assert len(marks.octets) == len(marks.before) == len(marks.after) == block.count(b'"')
    assert marks_at_borders(marks, ord(",")) is fine
    assert has_doubled_marks(marks) is doubled


def test_few_marks_are_found_as_many_are() -> None:
    """Where marks are few they are taken out of what is found for the blanks: the same, between the same bytes."""
    rare, line = b"x y,z z\n" * 9, b'"a b",c d,"e"\r\n'
    for block, few in ((line, False), (line + rare * 3, True), (rare + line + rare, True), (b"a\n", True)):
        octets = Octets(block, ",")
        assert (octets.mark_count * 30 <= len(block)) is few
        around, places = octets.around_marks, [at for at, octet in enumerate(block) if octet == MARK]
        assert around.octets.to_list() == [MARK] * len(places)
        assert around.before.to_list() == [(b"\n" + block)[at] for at in places]
        assert around.after.to_list() == [block[at + 1] for at in places]
        assert octets.has_marks_after(b",") is (b',"' in block)
