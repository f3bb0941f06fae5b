"""The days on which a file's rows are sent: its column payOn, or one day for the whole file, which its batch keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from batchpay.errors import FileRefused, WrongUse
from batchpay.payment import State
from batchpay.schemas.columns import PAY_ON

if TYPE_CHECKING:
    from batchpay.intake.source import Source
    from batchpay.ledger.records import BatchSummary
    from batchpay.schemas.rule import RuleOptions

OF_REGISTRATION = ("payOn.past", "payOn.range")
"""Rules that are asked once: what is registered keeps its day."""


def refuse_two_days(source: Source, rules: RuleOptions) -> None:
    """Raise WrongUse if a day is given for a whole file that has days of its own."""
    if rules.pay_on is not None and PAY_ON in source.columns:
        raise WrongUse(f"{source.name}: --pay-on is for a file without a column {PAY_ON}, and this one has it")


def with_days_of(batch: BatchSummary | None, rules: RuleOptions, errors: Mapping[str, int]) -> RuleOptions:
    """Return by which rules a batch's file must be read, given what it breaks by these; None is a new batch.

    The batch's day counts for the whole file, and what is registered keeps the day that was right then. Raises
    FileRefused if another day is requested, or one on which nothing of a new batch can be sent.
    """
    if batch is None:
        if rules.pay_on is not None and errors.keys() & {*OF_REGISTRATION}:
            why = "has passed" if rules.pay_on < rules.as_of else "is too far ahead (limits.pay_on_days)"
            raise FileRefused(f"--pay-on {rules.pay_on.isoformat()} {why}: give another day")
        return rules
    refuse_another_day(batch, rules)
    if (day := batch.options.get("pay_on")) is not None:
        rules = replace(rules, pay_on=date.fromisoformat(day))
    return replace(rules, pay_on_days=None) if errors.keys() & {*OF_REGISTRATION} else rules


def refuse_another_day(batch: BatchSummary, rules: RuleOptions) -> None:
    """Raise FileRefused if a content is to be sent on another day than its batch."""
    day = batch.options.get("pay_on")
    if rules.pay_on is not None and day != rules.pay_on.isoformat():
        first = f"batchpay cancel {batch.batch} --reason TEXT, then " if batch.by_state[State.PENDING].rows else ""
        raise FileRefused(
            f"this content is already batch {batch.batch}, {f'to be sent on {day}' if day else 'without a day'}: "
            f"submit it without --pay-on to go on with it. To send it on {rules.pay_on.isoformat()} instead: "
            f"{first}submit it with --again --reason TEXT"
        )
