"""How the page words things: amounts, times, states and rules in words that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from batchpay import text
from batchpay.payment import ON_THE_WEB, Direction, Totals, parse_cents
from batchpay.schemas.columns import COLUMNS
from batchpay.schemas.words import called, header_key, parts_of

_OPTION = re.compile(r",? or (?:use|submit it with) --[a-z-]+(?: --reason TEXT)?| \(batchpay [a-z ]+\)")
_RELEASE = re.compile(r"(?:: | \()(?:submit )?(?:FILE )?--release --rows [^)]*\)?")
_RELEASE_ALL = re.compile(r": submit --release .*")
_COLUMN = re.compile("|".join(COLUMNS))
_TOTALS = re.compile("to send: total is (.+), approved was (.+)")
_ON_THE_PAGE = re.compile(rf" \({re.escape(ON_THE_WEB)}\)(?=\)?$)")
_KINDS = {"xlsx": "xlsx", "xlsm": "xlsx", "parquet": "parquet", "pq": "parquet"}

STATES = {
    "receiving": "uploading",
    "checking": "being checked",
    "checked": "checked",
    "refused": "refused",
    "replaced": "replaced",
    "discarded": "discarded",
    "asked": "waiting for approval",
    "approved": "approved",
    "sending": "being sent",
    "stopped": "stopped",
    "failed": "failed",
    "done": "finished",
}
"""Where a file is. Anything worse than its state, such as a payment in doubt, is shown instead of it."""

ASKS = "This file has its own column names."
"""What a check says that waits for answers about columns."""
BECAME = {"accepted": "was paid", "declined": "was refused"}
"""What a person records of a payment in doubt, as the history says it."""


def count(number: int) -> str:
    """Write a number: 1,234."""
    return f"{number:,}"


def moment(at: float | str | datetime | None, *, to_the_second: bool = False) -> Markup:
    """Write a time in this machine's zone, and name it: Nov 22, 2026, 14:05 CET; the page's script takes the reader's.

    Evidence is written to the second: a portal may show it so, and in another zone.
    """
    if at is None:
        return Markup("")
    if not isinstance(at, datetime):
        at = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
    local = at.astimezone()
    shown = f"{local:%b} {local.day}, {local.strftime('%Y, %H:%M:%S %Z' if to_the_second else '%Y, %H:%M %Z')}"
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    mark = Markup(" data-seconds") if to_the_second else ""
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(text.instant(at), utc, mark, shown)


def needs_answer(file: Mapping[str, Any]) -> bool:
    """Return whether a check only waits for its person's answer: about columns, the sheet, or the encoding."""
    asked = ("choose below what it is", "has several sheets of payments")
    told = (file["told"] or "") if file["state"] == "refused" else ""
    return told == ASKS or any(words in told for words in asked)


def seal(characters: str | None) -> str:
    """Write a seal in groups that two people can compare aloud: F5BF-3B24-B2FC."""
    return "-".join((characters or "")[at : at + 4] for at in range(0, len(characters or ""), 4))


def as_sentence(message: str) -> str:
    """Write a message of the command line as a sentence of a page."""
    return f"{message[:1].upper()}{message[1:].removesuffix('.')}."


def changed_since(lines: Sequence[str]) -> str:
    """Say in one sentence how what would be sent differs from a plan; `lines` are those of NotAsApproved."""
    found = [line.strip() for line in lines[1:]]
    totals = next((match for line in found if (match := _TOTALS.fullmatch(line))), None)
    if totals is None:
        others = f", and {text.counted(len(found) - 1, 'other thing')} changed" if len(found) > 1 else ""
        first = re.sub("^over limits is (.*), approved was none$", r"it is above a limit, \1", found[0])
        return f"something changed after it was approved ({first.replace('origin is', 'the gateway is')}{others})"
    return f"something changed after it was approved (now {totals[1]} would be sent, and {totals[2]} were approved)"


def left_out(facts: dict[str, Any]) -> dict[str, Any]:
    """Return rows and amount of a checked file that a run would neither send nor has sent."""
    if facts.get("known"):
        found: dict[str, Any] = facts["known"]["left"]
        return found
    return {"rows": facts["rejected"], "amount": facts["amount"]["rejected"]}


def several_currencies(facts: dict[str, Any] | None) -> str:
    """Return the totals of each currency of a checked file's valid rows, where it has several; else nothing."""
    found = (facts or {}).get("currencies") or {}
    told = (f"{code} {text.amount(one['amount'])}" for code, one in found.items())
    return ", ".join(told) if len(found) > 1 else ""


def moves(to_send: dict[str, Any], facts: dict[str, Any] | None) -> str:
    """Return what a part of a checked file moves, by direction; `to_send` as a plan or a check has it in JSON."""

    def totals(one: dict[str, Any]) -> Totals:
        return Totals(one["rows"], parse_cents(one["amount"]) or 0)

    currencies = {code: totals(one) for code, one in ((facts or {}).get("currencies") or {}).items()}
    return text.moved({side: totals(to_send[side]) for side in Direction}, currencies)


def field(column: str) -> str:
    """Write a column's name as people say it, `routing number`; one that the table lacks is read word by word."""
    return called("field").get(column) or (" ".join(parts_of(column)).lower() if column in COLUMNS else column)


@lru_cache(1000)
def named(column: str, own: str | None = None) -> Markup:
    """Write a column's name beside the file's own heading, with the gateway's name in small where it is another."""
    said, keys = field(column), [header_key(column), header_key(own or column)]
    heading = Markup("<bdi>{}</bdi> · ").format(own) if keys[1] not in (keys[0], header_key(said)) else ""
    small = Markup(" <small>{}</small>").format(column) if header_key(said) != keys[0] and column in COLUMNS else ""
    return heading + Markup("{}{}").format(said, small)


def code(name: str) -> str:
    """Write a rule's code for people: `checksum` is a wrong check digit."""
    return called("code").get(name) or name.replace("_", " ")


def rule(name: str) -> str:
    """Write a rule's name, `amount.format`, for people: amount: wrong format."""
    column, _, what = name.partition(".")
    return f"{field(column)}: {code(what)}"


def without_options(message: str) -> str:
    """Say in a message what a person does on the page, in place of what a command or its option would do."""
    message = _RELEASE.sub(", on this file's page once its other payments are sent", message)
    message = _RELEASE_ALL.sub(": to send them, upload them as a file of their own", message)
    return _OPTION.sub("", message)


@lru_cache(1000)
def for_people(message: str) -> str:
    """Write a message for the page: columns as people say them, and without options."""
    return _COLUMN.sub(lambda found: field(found[0]), without_options(message))


def rejects_name(name: str) -> str:
    """Return the name of the file of the rows to correct: in the person's own format."""
    stem, _, ending = name.rpartition(".")
    return f"{stem or name}.to-correct.{_KINDS.get(ending.lower(), 'csv')}"


def person_named(who: str, names: Mapping[str, str]) -> str:
    """Name whoever the page or the ledger recorded, `Daniel Osei (daniel)`; `names` are those shown, by account."""
    account = _ON_THE_PAGE.sub("", who)
    shown = names.get(account)
    return f"{shown} ({account})" if shown and shown != account else account


def unknown_batch(batch: str) -> str:
    """Report that a file was sent as a batch that the ledger does not know: what of it was paid can't be known here."""
    return f"The ledger does not know batch {batch}, which this file was sent as: it was restored, or is another one"


FILTERS: dict[str, Any] = {
    "money": text.money,
    "amount": text.amount,
    "count": count,
    "of": text.counted,
    "moment": moment,
    "seal": seal,
    "rule": rule,
    "code": code,
    "field": field,
    "named": named,
    "masked": text.masked,
    "several_currencies": several_currencies,
    "moves": moves,
    "left_out": left_out,
    "for_people": for_people,
    "printable": text.printable,
    "unknown_batch": unknown_batch,
    "needs_answer": needs_answer,
    "sentence": as_sentence,
    "person": person_named,
}
