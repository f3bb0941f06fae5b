"""The rules of the `gateway` node: an account at the gateway, as it is created or updated.

An account is handled as one row of text cells, whatever format it was written in; a null cell is an attribute that is
not given. The rules come from the gateway's interface; what it says about accounts whose names it does not list
(software and non-processing ones) can't be checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pandera.polars as pa
import polars as pl

from batchpay.schemas import checks
from batchpay.schemas.rule import Rule, RuleOptions, columns_of, required, rule, rules_of, schema_of

CREATED_NAMES = ("processorA_cc", "processorA_ach", "processorB_ach", "processorC_cc")
UPDATED_NAMES = ("processorA_cc", "processorA_ach", "processorC_cc")
"""An account of processor B can be created, not updated."""
MODES = ("dev", "test", "live")
ATTRIBUTES = (
    "gateway_name", "enabled", "mode", "accept_amex", "active_level2", "active_level3", "account_id", "user_id", "pin",
    "login", "password", "vt_template",
)  # fmt: skip
INTEGERS = frozenset({"enabled", "accept_amex", "active_level2", "active_level3", "account_id"})
"""Attributes that are sent as numbers; the others are sent as text."""

_PROCESSOR_A = ("account_id", "user_id", "pin")
_PROCESSOR_B = ("login", "password", "vt_template")
_WHOLE_NUMBER = r"^(?:0|[1-9][0-9]{0,17})$"
_OPTIONS = RuleOptions(as_of=date.min)
"""No rule of an account depends on the date, and none can be switched off."""
_NAME = pl.col("gateway_name")


@dataclass(frozen=True, slots=True)
class AccountFailure:
    """One rule that an account breaks; its text never quotes a value."""

    row: int
    """Index of the account, from 0."""
    attribute: str
    code: str
    message: str


def account_schema(*, update: bool) -> pa.DataFrameSchema:
    """Make the pandera schema of accounts to create or to update."""
    return schema_of("gateway", _columns(update=update))


def _columns(*, update: bool) -> dict[str, pa.Column]:
    """Columns of the gateway node, with their rules.

    A rule that depends on the name is evaluated only where the name is one that the interface lists.
    """
    names = UPDATED_NAMES if update else CREATED_NAMES
    cards = [name for name in names if name.endswith("_cc")]
    own = {
        "gateway_name": [required("gateway_name"), _name_choice(names, update=update)],
        "enabled": [required("enabled"), _choice("enabled", ("1",))],
        "mode": [required("mode"), _choice("mode", MODES)],
        "accept_amex": [
            _required_where("accept_amex", _NAME.is_in(cards), "a card account"),
            _flag("accept_amex"),
        ],
        "active_level2": [required("active_level2"), _flag("active_level2")],
        "active_level3": [required("active_level3"), _flag("active_level3")],
    }
    for attributes, processor in ((_PROCESSOR_A, "A"), (_PROCESSOR_B, "B")):
        whose = [name for name in names if name.startswith(f"processor{processor}")]
        others = [name for name in names if name not in whose]
        meant = f"accounts of processor {processor} alone" if whose else "creating an account alone"
        for attribute in attributes:
            own[attribute] = [_unexpected_where(attribute, _NAME.is_in(others), meant)]
            if whose:
                own[attribute].append(
                    _required_where(attribute, _NAME.is_in(whose), f"an account of processor {processor}")
                )
    own["account_id"].append(rule("account_id.format", checks.not_matching(pl.col("account_id"), _WHOLE_NUMBER)))
    return columns_of(ATTRIBUTES, own, _OPTIONS)


def check_accounts(accounts: Sequence[Mapping[str, str | None]], *, update: bool) -> list[AccountFailure]:
    """Evaluate every rule for all accounts together; return failures by account, then in the order of the rules."""
    columns = {name: [account.get(name) for account in accounts] for name in ATTRIBUTES}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(ATTRIBUTES, pl.String))
    rules = rules_of(account_schema(update=update))
    # Two rules of one attribute never share a code, so their names are distinct.
    failed = frame.select(one.failed.alias(one.name) for one in rules)
    return [
        AccountFailure(row, rule.column, rule.code, rule.message)
        for row in range(len(accounts))
        for rule in rules
        if failed[row, rule.name]
    ]


def wire_node(account: Mapping[str, str | None]) -> dict[str, int | str]:
    """Write an account that keeps all rules as the `gateway` node of a request; what is not given is left out."""
    given = {name: account[name] for name in ATTRIBUTES if account.get(name) is not None}
    return {name: int(str(cell)) if name in INTEGERS else str(cell) for name, cell in given.items()}


def _name_choice(names: Sequence[str], *, update: bool) -> Rule:
    more = ", an account of processor B can't be updated through this interface" if update else ""
    values = {"listed": ", ".join(f"`{name}`" for name in names), "names": f"{' or '.join(names)}{more}"}
    return rule("gateway_name.choice", checks.not_one_of(_NAME, names), values=values)


def _choice(attribute: str, members: Sequence[str]) -> Rule:
    values = {"listed": " or ".join(f"`{value}`" for value in members), "values": " or ".join(members)}
    return rule("account.choice", checks.not_one_of(pl.col(attribute), members), column=attribute, values=values)


def _flag(attribute: str) -> Rule:
    return _choice(attribute, ("0", "1"))


def _given_where(code: str, attribute: str, fails: pl.Expr, **values: str) -> Rule:
    return rule(f"account.{code}", fails, column=attribute, values=values, reads=("gateway_name",))


def _required_where(attribute: str, where: pl.Expr, whose: str) -> Rule:
    return _given_where("required", attribute, where & pl.col(attribute).is_null(), whose=whose)


def _unexpected_where(attribute: str, where: pl.Expr, meant: str) -> Rule:
    return _given_where("unexpected", attribute, where & pl.col(attribute).is_not_null(), meant=meant)
