"""A plan: a proposal written down for approval, and later compared with what is actually to be sent.

The plan is a JSON file. It carries a keyed code of its own text, made with the ledger's key, and so does each approval
in it: neither a changed text nor an approval that nobody gave passes. Someone who can read the ledger's key could forge
both, which is why the key has mode 0600.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from batchpay.approval.approvals import Approval, lifted_by
from batchpay.approval.proposal import Proposal, differences
from batchpay.errors import FileRefused, NotAsApproved
from batchpay.intake.small_tables import json_object, read_text
from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import RecordedApproval, SignOff
from batchpay.payment import Actor, Totals, parse_cents
from batchpay.text import instant
from batchpay.writing.atomic import atomic_writer

VERSION = 2
_LATEST = "accepted_suggestions"
"""What was last added to a plan's content: one that was made before can't be compared with what would be sent."""
_WRITTEN_BY = "batchpay submit FILE --dry-run --plan PLAN writes one"
_OF_ANOTHER_VERSION = f"is not a plan of this version of batchpay; {_WRITTEN_BY}"
_CODE_BYTES = 32
_ACTOR = ("name", "host", "authenticated_by")


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan as it was kept, not yet checked against its ledger."""

    name: str
    """What a person calls it: for a plan in a file, the path."""
    text: str = field(repr=False)

    @classmethod
    def read(cls, path: str) -> PlanText:
        """Read a plan's file; raises FileRefused where it can't be read."""
        return cls(path, read_text(path, "plan"))


@dataclass(frozen=True, slots=True)
class Plan:
    """What was prepared to be sent, and who approved it so far."""

    id: str
    """Random: a plan is used once, and two plans of one proposal are different plans."""
    seal: str
    prepared_by: Actor
    created_at: datetime
    content: Mapping[str, Any]
    """The proposal, as Proposal.as_json returns it."""
    code: str
    """Keyed code of everything but the approvals."""
    approvals: tuple[Approval, ...] = ()
    sealed: str = ""
    """The changed accounts, encrypted with the ledger's key: a plan's file, and whoever keeps it, names no payee."""
    restored_at: datetime | None = None
    """When a person accepted the restored ledger that it was made with; None if the ledger was never restored."""
    ledger: str = ""
    """Which ledger it was made with; a plan from before November 2026 does not say."""

    @classmethod
    def make(cls, proposal: Proposal, ledger: Ledger, *, prepared_by: Actor, created_at: datetime) -> Plan:
        """Write a proposal down."""
        content = json.loads(json.dumps(proposal.as_json()))
        plan = cls(
            secrets.token_hex(8),
            proposal.seal(ledger),
            prepared_by,
            created_at,
            content,
            "",
            restored_at=ledger.restored_at(),
            ledger=ledger.identity(),
        )
        if proposal.changed_accounts:
            names = json.dumps(proposal.changed_accounts).encode("ascii")
            plan = replace(plan, sealed=b64encode(ledger.seal(names, plan.place)).decode("ascii"))
        return replace(plan, code=_code(plan.body(), ledger))

    @property
    def place(self) -> str:
        """What the sealed part is bound to."""
        return f"plan {self.id}: changed accounts"

    def changed_accounts(self, ledger: Ledger) -> tuple[str, ...]:
        """Name the payments whose account is new for their payee, as the dry run did."""
        return tuple(json.loads(ledger.unseal(b64decode(self.sealed), self.place))) if self.sealed else ()

    def body(self) -> dict[str, Any]:
        """What the plan's code covers: everything but the approvals."""
        return {
            "plan": VERSION,
            "id": self.id,
            "seal": self.seal,
            "prepared_by": _actor_json(self.prepared_by),
            "created_at": instant(self.created_at),
            "content": dict(self.content),
            **({"changed_accounts": self.sealed} if self.sealed else {}),
            **({"restored_at": instant(self.restored_at)} if self.restored_at else {}),
            **({"ledger": self.ledger} if self.ledger else {}),
        }

    def text(self) -> str:
        """The plan as written to its file."""
        approvals = [{**_approval_json(approval), "code": approval.code} for approval in self.approvals]
        return json.dumps({**self.body(), "code": self.code, "approvals": approvals}, indent=2) + "\n"

    def write(self, path: str) -> None:
        """Write the plan atomically with mode 0600; raises NotUsable where it can't be written."""
        with atomic_writer(path) as file:
            file.write(self.text().encode("ascii"))

    @classmethod
    def parse(cls, kept: PlanText, ledger: Ledger) -> Plan:
        """Read a plan's text; raises FileRefused where it is not one, was changed, or belongs to another ledger."""
        name = kept.name
        found = json_object(kept.text, name, "plan")
        if found.get("plan") != VERSION:
            raise FileRefused(f"{name} {_OF_ANOTHER_VERSION}")
        try:
            plan = cls(
                found["id"],
                found["seal"],
                _actor(found["prepared_by"]),
                datetime.fromisoformat(found["created_at"]),
                found["content"],
                found["code"],
                tuple(
                    Approval(_actor(one["who"]), datetime.fromisoformat(one["at"]), one["seal"], one["code"])
                    for one in found["approvals"]
                ),
                found.get("changed_accounts", ""),
                datetime.fromisoformat(found["restored_at"]) if "restored_at" in found else None,
                found.get("ledger", ""),
            )
            bodies = [(plan.body(), plan.code)] + [
                (approval_body(plan, approval), approval.code) for approval in plan.approvals
            ]
            is_ours = plan.ledger in ("", ledger.identity())  # two ledgers may have one key
            is_ours &= all(hmac.compare_digest(_code(body, ledger), code) for body, code in bodies)
            is_whole = set(found) == {*plan.body(), "code", "approvals"} and isinstance(found["approvals"], list)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise FileRefused(f"{name} is not a plan; {_WRITTEN_BY}") from None
        if not (is_ours and is_whole):
            raise FileRefused(f"plan {name} was changed after it was written, or belongs to another ledger")
        if _LATEST not in plan.content:
            raise FileRefused(f"{name} {_OF_ANOTHER_VERSION}")
        return plan

    @classmethod
    def read(cls, path: str, ledger: Ledger) -> Plan:
        """Read a plan's file; raises FileRefused as `parse` does."""
        return cls.parse(PlanText.read(path), ledger)

    def approved_by(self, approver: Actor, at: datetime, ledger: Ledger) -> Plan:
        """Add an approval; approvals.Policy decides whether it counts."""
        approval = Approval(approver, at, self.seal, code="")
        approval = replace(approval, code=_code(approval_body(self, approval), ledger))
        return replace(self, approvals=(*self.approvals, approval))

    def verify(self, proposal: Proposal, ledger: Ledger) -> None:
        """Raise FileRefused, naming everything that differs, unless exactly what was approved would be sent now."""
        different = differences(self.content, json.loads(json.dumps(proposal.as_json())))
        if self.changed_accounts(ledger) != proposal.changed_accounts:
            different.append("the warnings name other changed accounts")
        if not different and proposal.seal(ledger) != self.seal:
            different = ["the seal is another"]
        if different:
            raise NotAsApproved(proposal.file, different)

    def verify_content(self, proposal: Proposal) -> None:
        """Raise FileRefused unless a used plan names this content and gateway: it lets through only the rest."""
        found = proposal.as_json()
        for name in ("digest", "origin", "environment", "again", "reason"):
            if self.content[name] != found[name]:
                raise NotAsApproved(proposal.file, [f"{name} differs"])

    @property
    def batch_cents(self) -> int:
        """All cents of the batch, sent or to be sent: what policy.approve_above is compared with."""
        return _totals(self.content["batch_total"]).cents

    @property
    def batch_rows(self) -> int:
        """All rows of the batch, sent or to be sent."""
        return _totals(self.content["batch_total"]).rows

    def totals(self, name: str) -> Totals:
        """Rows and cents of a part of what would be sent: total, new, pending, released, held_back, DEBIT, CREDIT."""
        return _totals(self.content["to_send"][name])

    def by_account(self) -> dict[str, Totals]:
        """What would be sent by gateway account."""
        return {name: _totals(part) for name, part in self.content["to_send"]["by_account"].items()}

    def by_day(self) -> dict[str, dict[str, Totals]]:
        """What would not be sent before a day of its own, by that day and by direction."""
        days = self.content["to_send"].get("by_day", {})
        return {day: {side: _totals(part) for side, part in sides.items()} for day, sides in days.items()}

    def sign_off(self, counted: Sequence[Approval]) -> SignOff:
        """What the ledger records when the plan is used, with the approvals that count."""
        return SignOff(
            plan=self.id,
            seal=self.seal,
            prepared_by=str(self.prepared_by),
            approvals=tuple(RecordedApproval(str(approval.who), approval.at) for approval in counted),
            adds=self.totals("new") + self.totals("released"),
            held_back=self.totals("held_back"),
            lifts=lifted_by(self.content.get("over_limits", ())),
        )


def approval_body(plan: Plan, approval: Approval) -> dict[str, Any]:
    """What an approval's code covers: the approval, and the plan that contains it."""
    return {"approval_of": plan.code, **_approval_json(approval)}


def _totals(part: Mapping[str, Any]) -> Totals:
    cents = parse_cents(part["amount"])
    assert cents is not None, "a plan that passed its code holds amounts as they were written"
    return Totals(part["rows"], cents)


def _approval_json(approval: Approval) -> dict[str, Any]:
    return {"who": _actor_json(approval.who), "at": instant(approval.at), "seal": approval.seal}


def _actor_json(actor: Actor) -> dict[str, str]:
    return {name: getattr(actor, name) for name in _ACTOR}


def _actor(found: Mapping[str, str]) -> Actor:
    return Actor(**{name: found[name] for name in _ACTOR})


def _code(body: Mapping[str, Any], ledger: Ledger) -> str:
    """Keyed code of a text, however it is spaced or ordered."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    (code,) = ledger.digest("plan", [text], _CODE_BYTES)
    assert code is not None, "a text has a digest"
    return code.hex()
