"""Who may do what with a file: every act, held against every role, every identity and every state, as one table."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from batchpay.approval.approvals import Policy
from batchpay.settings import PolicySettings, Settings
from batchpay.web.acts import ACTS, MAY_NOT, NOT_NOW, RETURN_ACTS, over_limit, page_settings, refused, refused_again
from batchpay.web.people import ROLES, Person
from batchpay.web.words import STATES

IDENTITIES = ("uploader", "editor", "mapper", "asker", "approver", "another")
ALLOWED = {
    "ask": {("prepare", who, "checked") for who in IDENTITIES},
    "withdraw": {("prepare", who, "asked") for who in ("uploader", "asker")},
    "approve": {("approve", "another", "asked")},
    "turn_down": {("approve", who, "asked") for who in ("approver", "another")},
    "stop": {
        (role, who, state)
        for role in ("prepare", "approve", "settle")
        for who in IDENTITIES
        for state in ("approved", "sending")
    },
    "go_on": {("approve", who, state) for who in ("approver", "another") for state in ("stopped", "failed", "done")},
    "release": {("approve", who, state) for who in ("approver", "another") for state in ("stopped", "failed", "done")},
    "archive": {("prepare", who, state) for who in ("uploader", "asker") for state in ("stopped", "failed", "done")},
}
"""All that anybody may do: role, what they did before with this file, and where it stands."""


def person(name: str, *roles: str, limit_cents: int | None = None) -> Person:
    return Person(name, name.title(), frozenset(roles), limit_cents, has_code=False, how="password")


def file(state: str) -> dict[str, str]:
    return {
        "uploaded_by": "uploader",
        "edited_by": '["editor"]',
        "map": '{"made_by": "mapper"}',
        "asked_by": "asker",
        "state": state,
    }


@pytest.mark.parametrize("act", ACTS)
def test_the_table(act: str) -> None:
    """Nothing is allowed but what the table says, and no role beats identity."""
    allowed = {
        (role, who, state)
        for role, who, state in product(ROLES, IDENTITIES, STATES)
        if refused(act, person(who, role), file(state), ["approver"]) is None
    }
    assert allowed == ALLOWED[act]


@pytest.mark.parametrize("act", ACTS)
def test_all_roles_together_change_no_identity(act: str) -> None:
    """Somebody with every role may do what one of the roles may, and nothing more."""
    for who, state in product(IDENTITIES, STATES):
        may = refused(act, person(who, *ROLES), file(state), ["approver"]) is None
        assert may == any((role, who, state) in ALLOWED[act] for role in ROLES)


def test_a_refusal_says_whether_it_is_the_person_or_the_moment() -> None:
    """A person who may not gets 403, a file that stands elsewhere 409."""
    codes = {
        (who, state): refusal.code
        for who, state in product(IDENTITIES, ("asked", "sending"))
        if (refusal := refused("approve", person(who, "approve"), file(state), ["approver"])) is not None
    }
    assert {codes.pop((who, "sending")) for who in ("approver", "another")} == {NOT_NOW}
    assert set(codes.values()) == {MAY_NOT}
    assert refused("go_on", person("another", "approve"), file("stopped"), []) is not None


@pytest.mark.parametrize(("limit_cents", "cents", "may"), [(None, 10**12, True), (500, 500, True), (500, 501, False)])
def test_nobody_approves_above_their_limit(limit_cents: int | None, cents: int, may: bool) -> None:
    """The limit itself is still within it."""
    assert (over_limit(person("a", "approve", limit_cents=limit_cents), cents) is None) is may


def test_who_agrees_that_a_payment_is_sent_again_is_a_second_person() -> None:
    """Neither whoever asked for it nor whoever made the file, whatever their roles, and only within their limit."""
    agreed = {
        who
        for who in (*IDENTITIES, "settler")
        if refused_again(person(who, *ROLES), "settler", file("done"), 5) is None
    }
    assert agreed == {"approver", "another"}
    assert refused_again(person("another", "prepare", "settle", "look"), "settler", file("done"), 5) is not None
    assert refused_again(person("another", "approve", limit_cents=4), "settler", None, 5) is not None
    assert refused_again(person("another", "approve", limit_cents=5), "settler", None, 5) is None


@pytest.mark.parametrize("act", RETURN_ACTS)
def test_who_settles_takes_in_what_a_bank_says(act: str) -> None:
    """By it a paymentId may be paid again: nobody who only prepares or approves says what came back."""
    assert RETURN_ACTS[act] == ("settle",)


@pytest.mark.parametrize(("policy", "second_above_cents"), [
    ({}, None), ({"approvals": 1, "approve_above": "500.00"}, None), ({"approvals": 2}, 0),
    ({"approvals": 2, "approve_above": "500.00"}, 50_000), ({"second_above": "900.00"}, 90_000),
    ({"approvals": 2, "approve_above": "500.00", "second_above": "900.00"}, 50_000),
])  # fmt: skip
def test_the_page_always_asks_another_person(policy: dict[str, Any], second_above_cents: int | None) -> None:
    """Whatever the settings ask of the command line, the page asks for one other person, and never for fewer."""
    found = Policy.from_settings(page_settings(Settings(policy=PolicySettings(**policy))).policy)
    assert (found.approvals, found.above_cents, found.second_above_cents) == (1, 0, second_above_cents)
