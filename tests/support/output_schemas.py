"""Checks what commands print with --json, and the lines of the log, against the JSON Schema files of docs/schemas/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of one schema file, which may refer to the others."""
    documents = {path.name: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.json")}
    registry: Registry[Any] = Registry().with_resources(
        (file, Resource.from_contents(document)) for file, document in documents.items()
    )
    return Draft202012Validator(documents[f"{name}.json"], registry=registry)


def schema_of(arguments: Sequence[str]) -> str:
    """Return the schema name of a call: the command, with a group's command after it."""
    command, *others = arguments
    below = others[:1] if command in ("gateway", "ledger") or others[:1] == ["user"] else []
    return "-".join([command, *below])


def require_schema(arguments: Sequence[str], value: Any) -> None:
    """Fail if the object of a call does not match its schema."""
    problems = [
        f"{form.json_path}: {form.message[:200]}"
        for problem in validator(schema_of(arguments)).iter_errors(value)
        for form in (problem.context or [problem])
    ]
    assert not problems, "\n".join([" ".join(arguments), *problems])


def log_problems(line: str) -> list[str]:
    """Return what is wrong with a line of a JSON log."""
    return [problem.message for problem in validator("log").iter_errors(json.loads(line))]
