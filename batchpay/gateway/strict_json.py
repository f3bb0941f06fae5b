"""JSON with a single meaning: what two readers could read differently, or what no answer needs, is refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

DEPTH_MAX = 32


class NotStrictJson(ValueError):
    """The bytes are not a JSON object that every reader reads alike; the text is safe to show."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; raises NotStrictJson.

    Refused: a byte order mark, anything but UTF-8, a key twice in one object, NaN, Infinity and numbers beyond a float,
    lone surrogates, more than DEPTH_MAX levels, anything after the object, and anything that is not an object.
    """
    if not body.strip():
        raise NotStrictJson("the answer is empty")
    try:
        text = body.decode("utf-8").strip(" \t\n\r")
        value, end = _DECODER.raw_decode(text)
    except NotStrictJson:
        raise
    except RecursionError:
        raise NotStrictJson("the answer is nested too deeply") from None
    except ValueError:  # includes UnicodeDecodeError, JSONDecodeError, and a number with thousands of digits
        raise NotStrictJson("the answer is not JSON") from None
    if end < len(text):
        raise NotStrictJson("the answer is not JSON")
    if not isinstance(value, dict):
        raise NotStrictJson("the answer is not a JSON object")
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX or "\\u" in text:
        _look_over(value)
    return value


def _look_over(value: Any) -> None:
    """Refuse what shows only in the parsed value: depth and lone surrogates. Without recursion."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if any("\ud800" <= character <= "\udfff" for character in item):
                raise NotStrictJson("the answer contains an incomplete character")
        elif isinstance(item, (dict, list)):
            if depth > DEPTH_MAX:
                raise NotStrictJson("the answer is nested too deeply")
            parts = [*item.keys(), *item.values()] if isinstance(item, dict) else item
            waiting.extend((part, depth + 1) for part in parts)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotStrictJson("the answer has the same key twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrictJson("the answer contains a number that is too large")
    return number


def _no_constant(_: str) -> NoReturn:
    raise NotStrictJson("the answer contains NaN or Infinity")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
