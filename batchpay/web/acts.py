"""Who may do what with a file, and in which state: the one table that every page, form and child checks.

A role never overrides identity: whoever uploaded the file or asked for approval, chose how the file is read, or
approved before, does not approve, whatever their roles are. Nor may anyone resume, or agree to send again, what is
above their limit.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchpay.errors import FileRefused, LedgerDamaged
from batchpay.ledger.contract import Ledger
from batchpay.settings import Settings
from batchpay.text import money
from batchpay.web.people import Person
from batchpay.web.spool import Row

MAY_NOT, NOT_NOW = 403, 409
_SIGNED = "web {} signed by {}"
Columns = Row | Mapping[str, Any]
"""A file's row of web.db: values by column name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something can't be done: by this person (MAY_NOT), or in the file's present state (NOT_NOW)."""

    sentence: str
    code: int


@dataclass(frozen=True, slots=True)
class _Act:
    """One thing that people do with a file."""

    words: str
    roles: tuple[str, ...]
    states: tuple[str, ...]
    not_makers: bool = False
    """Whether it takes a person other than everyone who made the file what it is and whoever asked."""
    only_makers: bool = False
    not_twice: bool = False
    """Whether a person may do it only once."""


ACTS = {
    "ask": _Act("request approval", ("prepare",), ("checked",)),
    "withdraw": _Act("withdraw the request", ("prepare",), ("asked",), only_makers=True),
    "approve": _Act("approve", ("approve",), ("asked",), not_makers=True, not_twice=True),
    "turn_down": _Act("turn down", ("approve",), ("asked",), not_makers=True),
    "stop": _Act("stop", ("prepare", "approve", "settle"), ("approved", "sending")),
    "go_on": _Act("continue a run", ("approve",), ("stopped", "failed", "done"), not_makers=True),
    "release": _Act("release held payments", ("approve",), ("stopped", "failed", "done"), not_makers=True),
    "archive": _Act("archive it", ("prepare",), ("stopped", "failed", "done"), only_makers=True),
}
RETURN_ACTS = {"take in": ("settle",), "confirm": ("settle",), "withdraw": ("settle",)}
"""What people do with payments that came back, and the role for it: by it a paymentId may be paid again."""


def refused(act: str, person: Person, file: Columns, approvers: Collection[str] = ()) -> Refusal | None:
    """Return why a person can't do this with a file now; None if they can. `approvers` approved the present request."""
    asked = ACTS[act]
    if not any(person.may(role) for role in asked.roles):
        return Refusal(f"To {asked.words}, you need the role {' or '.join(asked.roles)}.", MAY_NOT)
    if asked.not_makers and person.name == file["uploaded_by"]:
        return Refusal("You uploaded this file, so another person must approve it.", MAY_NOT)
    if asked.not_makers and person.name == file["asked_by"]:
        return Refusal("You requested this approval, so another person must give it.", MAY_NOT)
    if asked.not_makers and person.name in makers(file):
        return Refusal("You chose how this file is read, so another person must approve it.", MAY_NOT)
    if asked.only_makers and person.name not in (file["uploaded_by"], file["asked_by"]):
        return Refusal(f"Only the person who uploaded the file or requested approval can {asked.words}.", MAY_NOT)
    if file["state"] not in asked.states:
        return Refusal("The status of this file has changed in the meantime. Nothing was done; check again.", NOT_NOW)
    if asked.not_twice and person.name in approvers:
        return Refusal("You already approved this; another person must approve it as well.", MAY_NOT)
    if act == "go_on" and not approvers:
        return Refusal("Nobody approved this, so there is nothing to continue.", NOT_NOW)
    return None


def makers(file: Columns) -> set[str]:
    """Return all who made a file what it is: who uploaded it, chose how it is read or made its map, and who asked."""
    mapped_by = json.loads(file["map"])["made_by"] if file["map"] else None
    return {file["uploaded_by"], *json.loads(file["edited_by"]), mapped_by, file["asked_by"]} - {None}


def refused_again(person: Person, asked_by: str, file: Columns | None, cents: int) -> Refusal | None:
    """Return why a person can't be the second to agree to send a payment again; `file` is the one it came from."""
    if not person.may("approve"):
        return Refusal("To agree, you need the role approve.", MAY_NOT)
    if person.name == asked_by:
        return Refusal("You requested this yourself: a second person must agree.", MAY_NOT)
    if file is not None and person.name in makers(file):
        return Refusal("You prepared this payment, so another person must agree that it is sent again.", MAY_NOT)
    return over_limit(person, cents)


def over_limit(person: Person, cents: int, of: str = "") -> Refusal | None:
    """Refuse a total above what a person may approve; `of` says what is in it."""
    if person.limit_cents is None or cents <= person.limit_cents:
        return None
    return Refusal(
        f"{money(cents)}{of} is above your limit of {money(person.limit_cents)}; someone with a higher one must do it.",
        MAY_NOT,
    )


class Signed(NamedTuple):
    """Rows that a person named and signed for: held ones to be released, or those in doubt to be sent again."""

    rows: list[int]
    cents: int
    reason: str

    def seal(self, ledger: Ledger, about: str, who: str) -> str:
        """Return it as web.db keeps it: sealed, so that only who proved who they are on the page can have signed it."""
        return ledger.seal(json.dumps(self).encode(), _SIGNED.format(about, who)).hex()


def signed(ledger: Ledger, about: str, who: str, seal: str) -> Signed:
    """Read what this person signed about a file or batch; raises FileRefused if web.db was changed."""
    try:
        return Signed(*json.loads(ledger.unseal(bytes.fromhex(seal), _SIGNED.format(about, who))))
    except (ValueError, LedgerDamaged):
        raise FileRefused(f"what {who} signed was changed in web.db") from None


def page_settings(settings: Settings) -> Settings:
    """Return the settings the page approves and sends by: always one other person, two where the policy says so."""
    return dataclasses.replace(settings, policy=dataclasses.replace(settings.policy, on_page=True))
