"""Checks requests against schemas/gateway.openapi.yaml, whoever sent them."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import yaml

DESCRIPTION = Path(__file__).parents[2] / "schemas" / "gateway.openapi.yaml"
_FORMATS = jsonschema.FormatChecker(())


@_FORMATS.checks("us-date", raises=ValueError)
def _is_us_date(value: Any) -> bool:
    return not isinstance(value, str) or bool(datetime.strptime(value, "%m/%d/%Y"))  # noqa: DTZ007


class Description:
    """The interface as described."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text("utf-8"))

    def request_problems(self, method: str, path: str, body: Any) -> list[str]:
        """Return how a request violates the description; `path` may hold a query."""
        route, _, query = path.partition("?")
        operation = self._operation(method, route)
        if operation is None:
            return [f"{method} {route} is not described"]
        problems = []
        allowed = {
            item["name"]: item["schema"] for item in operation.get("parameters", []) if item.get("in") == "query"
        }
        for part in filter(None, query.split("&")):
            name, _, text = part.partition("=")
            value = int(text) if text.isdigit() else text
            if name not in allowed:
                problems.append(f"{name} is not a described parameter")
            else:
                problems += self.schema_problems(allowed[name], value)
        wanted = operation.get("requestBody")
        if wanted is None:
            return problems + (["a body where none is described"] if body is not None else [])
        name = wanted["$ref"].rpartition("/")[2]
        schema = self.document["components"]["requestBodies"][name]["content"]["application/json"]["schema"]
        return problems + self.schema_problems(schema, body)

    def schema_problems(self, schema: dict[str, Any], value: Any) -> list[str]:
        """Return how a value violates a schema of the description."""
        whole = {**schema, "components": self.document["components"]}
        validator = jsonschema.Draft202012Validator(whole, format_checker=_FORMATS)
        return [f"{error.json_path}: {error.validator}" for error in validator.iter_errors(value)]

    def named(self, name: str, value: Any) -> list[str]:
        """Return how a value violates the schema of this name."""
        return self.schema_problems({"$ref": f"#/components/schemas/{name}"}, value)

    def _operation(self, method: str, route: str) -> dict[str, Any] | None:
        for template, item in self.document["paths"].items():
            if re.fullmatch(re.escape(template).replace(r"\{id\}", "[1-9][0-9]*"), route):
                found: dict[str, Any] | None = item.get(method.lower())
                return found
        return None
