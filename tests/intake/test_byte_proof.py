"""What a block's bytes tell: where quotation marks may stand."""

from __future__ import annotations

import pytest

from batchpay.intake.csv.byte_proof import Octets, has_doubled_marks, marks_at_borders


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
