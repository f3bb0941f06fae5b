"""What a block's bytes tell: where quotation marks may stand."""

from __future__ import annotations

import pytest

from batchpay.intake.csv.reader import Octets


@pytest.mark.parametrize(("block", "fine", "doubled"), [
    (b'"a",b\n', True, False), (b'a,"b,c"\r\n', True, False), (b'a,"b\nc"\n', True, False), (b'a,"",c\n', True, True),
    (b'a,"x""y",c\n', True, True), (b'a,"x"y",c\n', False, False), (b'a,"x"y"z",c\n', False, False),
    (b'a,x"y"z,c\n', False, False), (b'a,"x,"y",z"\n', False, False), (b'a,x"\n', False, False),
])  # fmt: skip
def test_marks_stand_at_borders(block: bytes, fine: bool, doubled: bool) -> None:
    """A mark is doubled, or opens a cell right after a border, or closes it right before one."""
    octets = Octets(block, ",")
    assert len(octets.opened) == len(octets.closed) == block.count(b'"')
    assert octets.marks_at_borders() is fine
    assert octets.has_doubled_marks is doubled


@pytest.mark.parametrize(("block", "may"), [
    (b'="1",b\n', True), (b'a,"=""1"""\n', True), (b'"a=",b\n', False), (b'"a=","x""y"\n', True), (b'a="1",b\n', True),
    (b'"a","b=c"\n', False), (b"a=b\n", False),
])  # fmt: skip
def test_text_formulas_are_looked_for_where_they_may_be(block: bytes, may: bool) -> None:
    """A cell with a mark in it has doubled marks, or marks where no cell begins."""
    assert Octets(block, ",").may_have_text_formulas() is may
