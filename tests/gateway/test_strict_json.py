"""Strict JSON: whatever is accepted means the same to every reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpay.gateway.answer import DEPTH_MAX, NotStrictJson, parse_object

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_plain_objects_are_read(value: dict[str, Any], ascii_only: bool) -> None:
    """What json writes of an object is read back, escaped or not."""
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0d8ncsx1e+-. ', max_size=40).map(str.encode))
def test_anything_else_is_refused_in_one_way(data: bytes) -> None:
    """Bytes of any kind are either an object or NotStrictJson, never another error."""
    try:
        assert isinstance(parse_object(data), dict)
    except NotStrictJson as refused:
        assert str(refused).startswith("the answer ")


@pytest.mark.parametrize(("body", "told"), [
    (b"", "empty"), (b" \r\n", "empty"), (b'{"status":"success"}{"status":"declined"}', "not JSON"),
    (b'{"status":"success"} and more', "not JSON"), (b'{"status":"success"', "not JSON"),
    (b'\xef\xbb\xbf{"status":"success"}', "not JSON"), (b'{"status":"\xff"}', "not JSON"),
    (b'[{"status":"success"}]', "not a JSON object"), (b'{"status":"declined","status":"success"}', "same key twice"),
    (b'{"a":{"id":"1","id":"2"},"status":"success"}', "same key twice"),
    (b'{"a":1e400,"status":"success"}', "too large"), (b'{"a":NaN,"status":"success"}', "the answer "),
    (b'{"a":-Infinity,"status":"success"}', "the answer "),
])  # fmt: skip
def test_what_two_readers_would_read_otherwise_is_no_answer(body: bytes, told: str) -> None:
    """Of two words one reader takes the first and another the last: such an answer proves no payment."""
    with pytest.raises(NotStrictJson, match=told):
        parse_object(body)


def test_depth_is_bounded() -> None:
    """DEPTH_MAX levels are read, one more is not; brackets within a text count for nothing."""
    lists = DEPTH_MAX - 1
    deep = b"[" * lists + b"]" * lists
    parse_object(b'{"a":' + deep + b"}")
    parse_object(b'{"a":' + deep + b',"b":' + deep + b"}")
    with pytest.raises(NotStrictJson, match="nested too deeply"):
        parse_object(b'{"a":' + b"[" * (lists + 1) + b"]" * (lists + 1) + b"}")
    assert parse_object(b'{"a":"' + b"[{" * 100 + b'"}') == {"a": "[{" * 100}


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\uDFFF", rb"\udc00\ud800", rb"\ud800x"])
def test_half_characters_are_refused(escape: bytes) -> None:
    """A lone surrogate is refused as a value and as a key; a pair is a character."""
    for body in (b'{"a":"' + escape + b'"}', b'{"' + escape + b'":1}', b'{"a":[{"b":"' + escape + b'"}]}'):
        with pytest.raises(NotStrictJson, match="incomplete character"):
            parse_object(body)
    assert parse_object(rb'{"a":"\ud83d\ude00"}') == {"a": "\U0001f600"}
