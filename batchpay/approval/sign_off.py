"""The sign-off page: plain lines of at most 80 characters, every figure from the check."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from batchpay.approval.cash_flow import DayFlow, Flow, Schedule, days_of, merge
from batchpay.approval.proposal import Proposal, ToSend
from batchpay.payment import Direction, Totals
from batchpay.text import PAGE_WIDTH as _WIDTH
from batchpay.text import local_time, money, moved, printable, sum_word, wrapped

if TYPE_CHECKING:
    from batchpay.approval.plan import Plan

_GATEWAYS_SHOWN = 20
_DAYS_SHOWN = 31
_REASONS_SHOWN = 20
_NO_GATEWAY = "none is named (gateway.base_url)"


def sign_off_lines(
    proposal: Proposal, schedule: Schedule, counts: dict[str, int], seal: str | None = None
) -> list[str]:
    """Write the sign-off page: what a submission would send at this moment, and what it would not.

    `counts` are the errors by `column.code`. A row that breaks two rules is counted in both.
    """
    directions = proposal.to_send.by_direction
    lines = [
        _rule("="),
        "PAYMENTS TO APPROVE",
        *_wrapped("file", proposal.file),
        *(_wrapped("sheet", proposal.sheet) if proposal.sheet is not None else []),
        *([f"content   {proposal.digest.hex()}"] if proposal.digest else []),
        *_wrapped("gateway", f"{proposal.origin} ({proposal.environment})" if proposal.origin else _NO_GATEWAY),
        f"as of     {schedule.as_of.isoformat()}",
        *([f"seal      {seal}"] if seal else []),
        *_decision_lines(proposal.again, proposal.release, proposal.reason),
        _rule("-"),
        _line("", "rows", sum_word("amount" if proposal.to_send.total.rows else "control total", directions)),
        _total_line("in the file", proposal.total),
        *([_total_line("left out by the map", proposal.left_out)] if proposal.left_out.rows else []),
        _total_line("rejected", proposal.rejected),
        *(
            [f"  of these, with an amount that can't be read: {proposal.unreadable_amounts:,}; it is in no sum"]
            if proposal.unreadable_amounts
            else []
        ),
        *_total_lines(proposal.to_send),
        *_wrapped("moves", moved(directions, proposal.currencies)),
    ]
    lines += _accepted_lines(proposal.accepted_suggestions)
    lines += _warning_lines(proposal.warnings, (*proposal.over_limits, *proposal.notes), proposal.not_checked)
    lines += _gateway_lines(schedule) + _recurring_lines(schedule) + _day_lines(schedule)
    lines += _reason_lines(counts, "rejected or held back" if proposal.to_send.held_back.rows else "rejected")
    lines += [
        _rule("="),
        "",
        "Name ____________________________  Date ______________  Signature _____________",
        "",
    ]
    if len(proposal.currencies) < 2:
        return lines
    by_currency = [_total_line(f"  valid, in {code}", one) for code, one in sorted(proposal.currencies.items())]
    at = next(at for at, line in enumerate(lines) if line.startswith("would be sent"))
    return [*_without_sums(lines[:at]), *by_currency, *_without_sums(lines[at:])]


def plan_lines(plan: Plan, changed_accounts: Sequence[str] = ()) -> list[str]:
    """Write what a plan approves, from the plan alone: totals, directions, accounts, warnings, seal.

    `changed_accounts` are its sealed lines; they appear in full, before any other warning.
    """
    content = plan.content
    warnings, notes = content["warnings"], (*content.get("over_limits", ()), *content["notes"])
    accounts = sorted(plan.by_account().items(), key=lambda item: (len(item[0]), item[0]))
    sides: dict[str, Totals] = {side: plan.totals(side) for side in Direction}
    codes = content.get("currencies", ["USD"])
    amount = sum_word("amount", sides)
    rest = sum((totals for _, totals in accounts[_GATEWAYS_SHOWN:]), Totals())
    lines = [
        _rule("="),
        "PAYMENTS TO APPROVE",
        *_wrapped("file", content["file"]),
        *(_wrapped("sheet", content["sheet"]) if content["sheet"] is not None else []),
        *_wrapped("content", content["digest"]),
        *_wrapped("gateway", f"{content['origin']} ({content['environment']})"),
        *_wrapped("prepared", f"by {plan.prepared_by}, {local_time(plan.created_at)}"),
        *_decision_lines(content["again"], content["release"], content["reason"]),
        _rule("-"),
        _line("", "rows", amount),
        *_shown_totals({name: plan.totals(name) for _, name in _TOTALS}),
        *([] if len(codes) > 1 else _wrapped("moves", moved(sides, dict.fromkeys(codes, Totals())))),
        *_accepted_lines(content["accepted_suggestions"]),
        *([_rule("-"), "changed accounts"] if changed_accounts else []),
        *[line for told in changed_accounts for line in wrapped(printable(told), first="  ", rest="    ")],
        *_warning_lines(warnings, notes, content.get("not_checked", ())),  # a plan of an earlier version has none
        _rule("-"),
        _line("by gateway account", "rows", amount),
        *[_total_line(f"  {name}"[:40], totals) for name, totals in accounts[:_GATEWAYS_SHOWN]],
        *([_total_line(f"  {len(accounts) - _GATEWAYS_SHOWN} more", rest)] if rest.rows else []),
        *_flows_by_day("not before its day (payOn)", days_of(plan.by_day())),
        _rule("="),
        f"seal      {plan.seal}",
    ]
    return _without_sums(lines) if len(codes) > 1 else lines


_SUMS = re.compile(r"( {2,}[0-9][0-9,]*) {2,}[0-9][0-9,]*\.[0-9]{2}(?= |$)")
_TOTALS: tuple[tuple[str, str], ...] = (
    ("would be sent", "total"),
    ("  DEBIT  (collected from payers)", Direction.DEBIT),
    ("  CREDIT (paid to payees)", Direction.CREDIT),
    ("  of these registered earlier, pending", "pending"),
    ("  of these rejected earlier, released", "released"),
    ("  not sent: held back by today's rules", "held_back"),
)
"""Lines of what would be sent, and the part of it that each shows."""


def _total_lines(to_send: ToSend) -> list[str]:
    found: dict[str, Totals] = {
        "total": to_send.total,
        "pending": to_send.pending,
        "released": to_send.released,
        "held_back": to_send.held_back,
        **{direction: to_send.by_direction.get(direction, Totals()) for direction in Direction},
    }
    return _shown_totals(found)


def _shown_totals(found: Mapping[str, Totals]) -> list[str]:
    always = ("total", *Direction)
    return [_total_line(label, found[name]) for label, name in _TOTALS if name in always or found[name].rows]


def _decision_lines(again: bool, release: bool, reason: str | None) -> list[str]:
    lines = ["PAYS THE SAME CONTENT ONCE MORE (--again)"] if again else []
    lines += ["SENDS ROWS THAT WERE REJECTED EARLIER (--release)"] if release else []
    return lines + (_wrapped("reason", reason) if reason else [])


def _accepted_lines(accepted: Mapping[str, int]) -> list[str]:
    """List, by rule, the cells that are sent with a value other than the file's."""
    ranked = sorted(accepted, key=lambda name: (-accepted[name], name))
    lines = [_rule("-"), "cells corrected as suggested (--accept-suggestions)"] if ranked else []
    return lines + [f"{accepted[name]:>11,}  {name}"[:_WIDTH] for name in ranked]


def _warning_lines(warnings: Mapping[str, int], notes: Sequence[str], not_checked: Sequence[str]) -> list[str]:
    """Write the warnings, changed accounts first: they are the most common fraud; and what no warning can be about."""
    ranked = sorted(warnings, key=lambda name: (not name.endswith(".changed_account"), -warnings[name], name))
    lines = [_rule("-"), "warnings"] if ranked else []
    lines += [f"{warnings[name]:>11,}  {name}"[:_WIDTH] for name in ranked[:_REASONS_SHOWN]]
    if len(ranked) > _REASONS_SHOWN:
        lines.append(f"{sum(warnings[name] for name in ranked[_REASONS_SHOWN:]):>11,}  other warnings")
    lines += [line for note in notes for line in _wrapped("note", note)]
    return lines + [line for what in not_checked for line in _wrapped("unchecked", what)]


def _gateway_lines(schedule: Schedule) -> list[str]:
    gateways = schedule.by_gateway()
    lines = [_rule("-"), _flow_header("by gateway account")] if gateways else []
    for found in gateways[:_GATEWAYS_SHOWN]:
        lines += _flow_lines(found.gateway_id, found.flow)
    if len(gateways) > _GATEWAYS_SHOWN:
        rest = Flow()
        for found in gateways[_GATEWAYS_SHOWN:]:
            merge(rest, found.flow)
        lines += _flow_lines(f"{len(gateways) - _GATEWAYS_SHOWN} more", rest)
    return lines


def _recurring_lines(schedule: Schedule) -> list[str]:
    if not schedule.first.rows:
        return []
    lines = [_rule("-"), _flow_header("recurring")]
    for label, flow in (
        ("first payments", schedule.first),
        ("all payments", schedule.planned),
        (f"  of these after {schedule.horizon.isoformat()}", schedule.beyond),
        ("without an end, each time", schedule.open_ended),
        (f"due before {schedule.as_of.isoformat()}", schedule.overdue),
    ):
        if flow.rows:
            lines += _flow_lines(label, flow)
    return lines


def _day_lines(schedule: Schedule) -> list[str]:
    """Write first days one by one, later ones by month; a non-banking day names the day on which it settles."""
    lines = _flows_by_day(f"by day, up to {schedule.horizon.isoformat()}", schedule.by_day())
    if lines and schedule.open_ended.rows:
        lines.append("  Payments without an end date continue after that day until they are stopped.")
    return lines


def _flows_by_day(title: str, days: Sequence[DayFlow]) -> list[str]:
    lines = [_rule("-"), _flow_header(title)] if days else []
    for found in days[:_DAYS_SHOWN]:
        lines += _flow_lines(_day_name(found), found.flow)
    months: defaultdict[str, Flow] = defaultdict(Flow)
    for found in days[_DAYS_SHOWN:]:
        merge(months[found.day.strftime("%Y-%m")], found.flow)
    for month, flow in months.items():
        lines += _flow_lines(f"{month}, later days", flow)
    return lines


def _day_name(found: DayFlow) -> str:
    name = found.day.strftime("%Y-%m-%d %a")
    return name if found.banking_day else f"{name} -> {found.settles_on.strftime('%m-%d')}"


def _reason_lines(counts: dict[str, int], what: str) -> list[str]:
    if not counts:
        return []
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = [_rule("-"), f"why rows are {what}"]
    lines += [f"{count:>11,}  {name}"[:_WIDTH] for name, count in ranked[:_REASONS_SHOWN]]
    if len(ranked) > _REASONS_SHOWN:
        lines.append(f"{sum(count for _, count in ranked[_REASONS_SHOWN:]):>11,}  other reasons")
    return lines


def _rule(character: str) -> str:
    return character * _WIDTH


def _without_sums(lines: Sequence[str]) -> list[str]:
    """Leave out amounts that are sums of several currencies: the notes have those of each."""
    return [_SUMS.sub(lambda sums: sums[1].ljust(len(sums[0])), line).rstrip() for line in lines]


def _line(label: str, rows: str, amount: str) -> str:
    return f"{label:<40}{rows:>15}{amount:>25}".rstrip()


def _total_line(label: str, totals: Totals) -> str:
    return _line(label, f"{totals.rows:,}", money(totals.cents))


def _flow_header(label: str) -> str:
    return f"{label:<30}{'debits':>7}{'amount':>18}{'credits':>8}{'amount':>17}"


def _flow_lines(label: str, flow: Flow) -> list[str]:
    """Write both directions on one line; figures too long for their columns get their own lines."""
    debit = f"{flow.debit.rows:>7,}{money(flow.debit.cents):>18}"
    credit = f"{flow.credit.rows:>8,}{money(flow.credit.cents):>17}"
    label = f"  {label}"
    if len(label) <= 30 and len(debit) == 25 and len(credit) == 25:
        return [f"{label:<30}{debit}{credit}"]
    sides = (("debits", flow.debit), ("credits", flow.credit))
    return [label[:_WIDTH]] + [
        f"    {name:<26}{totals.rows:>20,}{money(totals.cents):>30}" for name, totals in sides if totals.rows
    ]


def _wrapped(label: str, text: str) -> list[str]:
    """Write a label and a text that may be long or contain unprintable characters."""
    return wrapped(printable(text), first=f"{label:<10}", rest=" " * 10)
