"""Small files that a person writes along with payment files: maps and control totals, in TOML or JSON.

Each is read whole, bounded, and refused with a message that names what is wrong with it.
"""

from __future__ import annotations

import json
from typing import Any

from batchpay.errors import FileRefused
from batchpay.intake.streams import OpenFile

_BYTES_MAX = 1 << 20


def read_toml(path: str, kind: str) -> dict[str, Any]:
    """Read a TOML file; raises FileRefused that says it is not a `kind`."""
    import tomllib  # few calls read one

    try:
        return tomllib.loads(read_text(path, kind))
    except tomllib.TOMLDecodeError as error:
        raise FileRefused(f"{path} is not a {kind}: it is not valid TOML: {error}") from None
    except (ValueError, RecursionError):
        raise FileRefused(f"{path} is not a {kind}: a number is too long, or brackets are nested too deep") from None


def read_json_object(path: str, kind: str) -> dict[str, Any]:
    """Read a JSON object in which no name appears twice (two readers could see two values); raises FileRefused."""
    return json_object(read_text(path, kind), path, kind)


def json_object(text: str, name: str, kind: str) -> dict[str, Any]:
    """Read the text of a JSON object as `read_json_object` does; `name` is where it comes from."""
    try:
        content = json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError):
        raise FileRefused(f"{name} is not a {kind}: it is not valid JSON") from None
    if not isinstance(content, dict):
        raise FileRefused(f"{name} is not a {kind}: it is not a JSON object")
    return content


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, and raise ValueError where a name appears twice in it."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice")
    return value


def read_text(path: str, kind: str) -> str:
    """Read a small file whole; raises FileRefused where it is missing, too large or not UTF-8."""
    file = OpenFile(path)
    try:
        with file.reader() as reader:
            content = reader.read(_BYTES_MAX + 1)
    finally:
        file.close()
    if len(content) > _BYTES_MAX:
        raise FileRefused(f"{path} is not a {kind}: it is larger than {_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileRefused(f"{path} is not a {kind}: it is not UTF-8") from None
