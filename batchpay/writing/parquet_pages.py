"""Checks the footer and the page headers of a Parquet file before polars decodes it.

polars trusts what a page says about itself: a negative count makes it allocate 2^61 bytes, and Rust then aborts the
process, without any message of ours. Whatever could make it allocate memory that the file can't fill is refused here.
Nothing is decoded: for a million rows some thousand headers are read, each a few bytes (Thrift's compact protocol).
"""

from __future__ import annotations

import os
from typing import Any

_MAGIC_BYTES = 4
_TAIL_BYTES = 8
"""The footer's length and the magic number, at the end of the file."""
_HEADER_BYTES = 512
"""How much is read for a page header at first: few have longer statistics."""
_VARINT_BYTES_MAX = 10

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13
_NUMBERS = (4, 5, 6)
_FIXED = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
"""Bytes of values of these types as fields; in a list a Boolean takes one."""

# Field numbers from Parquet's own definition of its metadata.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN_META = 3
_META_VALUES, _META_UNPACKED, _META_PACKED, _META_DATA, _META_DICTIONARY = 5, 6, 7, 9, 11
_PAGE_KIND, _PAGE_UNPACKED, _PAGE_PACKED, _PAGE_DATA, _PAGE_DICTIONARY, _PAGE_DATA_2 = 1, 2, 3, 5, 7, 8
_VALUES = 1
_DATA_2_NULLS, _DATA_2_DEFINITIONS, _DATA_2_REPETITIONS = 2, 5, 6

Struct = dict[int, Any]
"""The fields of a struct that are numbers, structs or lists of structs, by their numbers."""


class BrokenPages(Exception):
    """The file makes impossible statements about itself."""


def check_pages(descriptor: int) -> list[int]:
    """Check every page header, and return how many rows each row group has.

    Raises BrokenPages where a header can't be read, or claims what its file can't contain.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))[:4], "little")
    footer_at = size - _TAIL_BYTES - length
    _hold(footer_at >= _MAGIC_BYTES)
    try:
        footer, _ = _struct(os.pread(descriptor, length, footer_at), 0)
        groups = footer.get(_FILE_GROUPS, [])
        group_rows = [group[_GROUP_ROWS] for group in groups]
        _hold(footer[_FILE_ROWS] == sum(group_rows) and min(group_rows, default=0) >= 0)
        for group in groups:
            for column in group[_GROUP_COLUMNS]:
                _check_column(descriptor, column[_COLUMN_META], footer_at)
    except (IndexError, KeyError, TypeError, RecursionError):
        raise BrokenPages from None
    return group_rows


def _check_column(descriptor: int, meta: Struct, footer_at: int) -> None:
    """Check the pages of one column of a row group in the order in which polars reads them."""
    values = meta[_META_VALUES]
    if values == 0:
        return  # no page is read, and some writers give no valid start
    at = meta.get(_META_DICTIONARY) or meta[_META_DATA]
    end = at + meta[_META_PACKED]
    _hold(_MAGIC_BYTES <= at <= end <= footer_at)
    while values > 0 and at < end:
        page, length = _page_header(descriptor, at, end)
        at += length + page[_PAGE_PACKED]
        _hold(page[_PAGE_PACKED] >= 0 and at <= end and 0 <= page[_PAGE_UNPACKED] <= meta[_META_UNPACKED])
        if (data := page.get(_PAGE_DATA)) is not None:
            _hold(0 <= data[_VALUES] <= values)
            values -= data[_VALUES]
        elif (data := page.get(_PAGE_DATA_2)) is not None:
            levels = data[_DATA_2_DEFINITIONS], data[_DATA_2_REPETITIONS]
            _hold(0 <= data[_VALUES] <= values and 0 <= data[_DATA_2_NULLS] <= data[_VALUES])
            _hold(min(levels) >= 0 and sum(levels) <= page[_PAGE_PACKED])
            values -= data[_VALUES]
        elif (dictionary := page.get(_PAGE_DICTIONARY)) is not None:
            _hold(0 <= dictionary[_VALUES] <= page[_PAGE_UNPACKED])
    _hold(values == 0)


def _page_header(descriptor: int, at: int, end: int) -> tuple[Struct, int]:
    """Return a page header and its length."""
    most = _HEADER_BYTES
    while True:
        data = os.pread(descriptor, min(most, end - at), at)
        try:
            return _struct(data, 0)
        except IndexError:
            if most >= end - at:
                raise
            most *= 16


def _hold(is_so: bool) -> None:
    if not is_so:
        raise BrokenPages


def _struct(data: bytes, at: int) -> tuple[Struct, int]:
    """Return the struct that begins at a byte, and where it ends; raises IndexError where the data end before that."""
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(data, at)
        if kind in _NUMBERS:
            byte = data[at]  # the most common case of _number, without the call
            if byte < 128:
                fields[number], at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                fields[number], at = _number(data, at)
        else:
            fields[number], at = _value(data, at, kind)
    return fields, at + 1


def _list(data: bytes, at: int) -> tuple[list[Struct] | None, int]:
    """Return a list of structs; for any other list only where it ends."""
    head = data[at]
    at += 1
    count, kind = head >> 4, head & 15
    if count == 15:
        count, at = _varint(data, at)
    if kind != _STRUCT:
        for _ in range(count):
            at = _after(data, at, kind)
        return None, at
    structs = []
    for _ in range(count):
        fields, at = _struct(data, at)
        structs.append(fields)
    return structs, at


def _after_map(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    if count:
        kinds, at = data[at], at + 1
        for _ in range(count):
            at = _after(data, _after(data, at, kinds >> 4), kinds & 15)
    return at


def _after(data: bytes, at: int, kind: int) -> int:
    """Return where an element of a list or a map ends."""
    at = at + 1 if kind in (_TRUE, _FALSE) else _value(data, at, kind)[1]
    if at > len(data):
        raise IndexError
    return at


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    """Return a value, None unless it is a number, a struct or a list of structs, and where it ends."""
    if kind in _NUMBERS:
        return _number(data, at)
    if kind == _STRUCT:
        return _struct(data, at)
    if kind in (_LIST, _SET):
        return _list(data, at)
    if kind == _MAP:
        return None, _after_map(data, at)
    length, at = _varint(data, at) if kind == _BINARY else (_FIXED[kind], at)
    return None, at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise IndexError
