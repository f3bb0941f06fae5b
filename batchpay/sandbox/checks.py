"""The sandbox's own checks of what it is sent: the gateway's field tables, strictly, in plain Python.

Deliberately written separately from the rules in `schemas/`: it checks only what the gateway's interface itself says,
not what Nacha or our own caution adds. So are its tables, which share nothing with `schemas/tables`: `fields.csv` (the
nodes' fields, each with its form), `forms.csv` (texts of a certain form) and `codes.csv` (closed lists: ISO 3166-1
alpha-2, ISO 4217 with the codes for funds, metals and testing, states with the territories and the armed forces).

A form is one of `forms.csv`, a list of `codes.csv`, `text`, the words of a closed list (`DEBIT CREDIT`), or the least
and the most of a whole number (`0..1`). `0..1 or 1 0` is a number or one of these words: the interface says one digit,
and shows both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any

from batchpay.sandbox.dialects import Problem
from batchpay.sandbox.faults import table

TEXT_LENGTH_MAX = 255
_CODES = {line["list"]: frozenset(line["codes"].split()) for line in table("codes.csv")}
US_STATES, CANADIAN_PROVINCES = _CODES["US"], _CODES["CA"]
COUNTRIES, CURRENCIES = _CODES["country"], _CODES["currency"]
_FORMS = {line["form"]: (re.compile(line["pattern"]), line["otherwise"]) for line in table("forms.csv")}
_FIELDS: dict[str, dict[str, tuple[str, bool]]] = {}
"""By node, the form of each field, and whether it is required."""
for _line in table("fields.csv"):
    _FIELDS.setdefault(_line["node"], {})[_line["field"]] = _line["form"], _line["required"] == "yes"
_GATEWAY_NAMES = [line["gateway_name"] for line in table("processors.csv")]
_NODES = ("billing", "shipping", "ach", "recurring")
EMAILS_NODE = "emails"
"""A node in `billing` that holds several addresses as {"billingEmail": [...]}: our assumption."""


def _wrong(form: str, value: Any) -> str | None:
    """Say what is wrong with a value of this form; None if nothing is."""
    number, _, words = form.partition(" or ")
    if ".." in number and not (words and isinstance(value, str)):
        return _wrong_number(number, value)
    if words:
        return None if value in words.split() else f"must be one of {', '.join(words.split())}"
    if not isinstance(value, str):
        return "must be a string"
    if not 0 < len(value) <= TEXT_LENGTH_MAX:
        return f"must have 1 to {TEXT_LENGTH_MAX} characters"
    if form == "text":
        return None
    if form in _CODES:
        return None if value in _CODES[form] else "is not on the list of codes"
    if form not in _FORMS:
        return None if value in form.split() else f"must be one of {', '.join(form.split())}"
    pattern, otherwise = _FORMS[form]
    if not pattern.fullmatch(value):
        return otherwise
    if form == "date":
        try:
            datetime.strptime(value, "%m/%d/%Y")  # noqa: DTZ007 - a day of the calendar, wherever
        except ValueError:
            return "is not a day of the calendar"
    return None


def _wrong_number(form: str, value: Any) -> str | None:
    """Check a JSON integer; true and false are not integers, nor is 1.0."""
    least, most = form.split("..")
    if not isinstance(value, int) or isinstance(value, bool):
        return "must be an integer"
    if value < int(least) or (most and value > int(most)):
        return f"must be {least} to {most}" if most else f"must be at least {least}"
    return None


def payment_problems(body: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with a payment."""
    recurring = body.get("recurringIndicator") == "TRUE"
    problems = _node_problems("", body, _FIELDS["payment"], set(_NODES))
    for name in _NODES:
        node = body.get(name)
        if name == "recurring" and not recurring:
            if name in body:
                problems.append(Problem(name, "is not expected where recurringIndicator is not TRUE"))
        elif not isinstance(node, dict):
            problems.append(Problem(name, "is required" if node is None else "must be an object"))
        else:
            allowed = {EMAILS_NODE} if name == "billing" else set()
            problems += _node_problems(f"{name}.", node, _FIELDS[name], allowed)
            problems += _state_problems(name, node)
            if name == "billing" and EMAILS_NODE in node:
                problems += _emails_problems(node[EMAILS_NODE])
    return problems


def _node_problems(
    prefix: str, node: Mapping[str, Any], fields: Mapping[str, tuple[str, bool]], allowed: Set[str] = frozenset()
) -> list[Problem]:
    problems = []
    for name, (form, is_required) in fields.items():
        if name not in node:
            if is_required:
                problems.append(Problem(prefix + name, "is required"))
        elif wrong := _wrong(form, node[name]):
            problems.append(Problem(prefix + name, wrong))
    unknown = [name for name in node if name not in fields and name not in allowed]
    return problems + [Problem(prefix + name, "is not a field of this interface") for name in unknown]


def _state_problems(name: str, node: Mapping[str, Any]) -> list[Problem]:
    """Check that a state is in its country; any text passes in a country whose states the interface does not list."""
    country, state = node.get(f"{name}Country"), node.get(f"{name}State")
    if country not in (None, "US", "CA"):
        return []
    states = _CODES[country] if country else US_STATES | CANADIAN_PROVINCES
    if _wrong("text", state) or state in states:
        return []
    return [Problem(f"{name}.{name}State", "is not a state of that country")]


def _emails_problems(emails: Any) -> list[Problem]:
    name = f"billing.{EMAILS_NODE}.billingEmail"
    addresses = emails.get("billingEmail") if isinstance(emails, dict) and len(emails) == 1 else None
    if not isinstance(addresses, list) or not addresses:
        return [Problem(name, "must be a list of addresses, alone in its node")]
    return [Problem(name, wrong) for address in addresses if (wrong := _wrong("email", address))]


def account_problems(body: Mapping[str, Any], *, update: bool) -> list[Problem]:
    """Return everything that is wrong with a gateway account to create or update; processor B's can't be updated."""
    node = body.get("gateway")
    if not isinstance(node, dict):
        return [Problem("gateway", "is required" if node is None else "must be an object")]
    problems = [Problem(name, "is not a field of this interface") for name in body if name != "gateway"]
    names = " ".join(name for name in _GATEWAY_NAMES if not (update and name.startswith("processorB")))
    gateway_name = str(node.get("gateway_name"))
    fields = {**_FIELDS["account"], "gateway_name": (names, True)}
    fields["accept_amex"] = fields["accept_amex"][0], gateway_name.endswith("_cc")
    for processor in ("processorA", "processorB"):
        # What one processor requires, the interface lists as optional for the others.
        is_own = gateway_name.startswith(processor)
        fields |= {name: (form, is_own and required) for name, (form, required) in _FIELDS[processor].items()}
    return problems + _node_problems("gateway.", node, fields)
