"""The page that a person signs: plain lines of at most 80 characters, every figure from the check."""

from __future__ import annotations

from collections import defaultdict

from batchpay.approval.cash_flow import DayFlow, Flow, Schedule, merge
from batchpay.payment import Direction, State, Totals
from batchpay.summary import Summary
from batchpay.text import money, printable

_WIDTH = 80
_GATEWAYS_SHOWN = 20
_DAYS_SHOWN = 31
_REASONS_SHOWN = 20


def sign_off_lines(summary: Summary, schedule: Schedule, counts: dict[str, int]) -> list[str]:
    """Write the page that a manager signs: plain lines of at most 80 characters, every figure from the check.

    `counts` are the errors by `column.code`. A row that breaks two rules is counted in both.
    """
    rejected = summary.of(State.REJECTED)
    by_direction = summary.by_direction
    lines = [
        _rule("="),
        "PAYMENTS TO APPROVE",
        *_wrapped("file", summary.file),
        *([f"batch     {summary.batch}"] if summary.batch else []),
        f"as of     {schedule.as_of.isoformat()}",
        _rule("-"),
        _line("", "rows", "amount"),
        _total_line("in the file", summary.total),
        _total_line("would be rejected", rejected),
        _total_line("would be sent", summary.valid),
        _total_line("  DEBIT  (taken from payers)", by_direction.get(Direction.DEBIT, Totals())),
        _total_line("  CREDIT (paid to payees)", by_direction.get(Direction.CREDIT, Totals())),
    ]
    lines += _gateway_lines(schedule) + _recurring_lines(schedule) + _day_lines(schedule)
    lines += _reason_lines(counts)
    lines += [
        _rule("="),
        "",
        "Name ____________________________  Date ______________  Signature _____________",
        "",
    ]
    return lines


def _gateway_lines(schedule: Schedule) -> list[str]:
    gateways = schedule.by_gateway()
    lines = [_rule("-"), _flow_header("by gateway")] if gateways else []
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
    """Day by day at first, later days by month; a day without banking names the day on which it settles."""
    days = schedule.by_day()
    if not days:
        return []
    lines = [_rule("-"), _flow_header(f"by day, up to {schedule.horizon.isoformat()}")]
    for found in days[:_DAYS_SHOWN]:
        lines += _flow_lines(_day_name(found), found.flow)
    months: defaultdict[str, Flow] = defaultdict(Flow)
    for found in days[_DAYS_SHOWN:]:
        merge(months[found.day.strftime("%Y-%m")], found.flow)
    for month, flow in months.items():
        lines += _flow_lines(f"{month}, later days", flow)
    if schedule.open_ended.rows:
        lines.append("  Payments without an end go on after that day, until they are stopped.")
    return lines


def _day_name(found: DayFlow) -> str:
    name = found.day.strftime("%Y-%m-%d %a")
    return name if found.banking_day else f"{name} -> {found.settles_on.strftime('%m-%d')}"


def _reason_lines(counts: dict[str, int]) -> list[str]:
    if not counts:
        return []
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = [_rule("-"), "why rows would be rejected"]
    lines += [f"{count:>11,}  {name}"[:_WIDTH] for name, count in ranked[:_REASONS_SHOWN]]
    if len(ranked) > _REASONS_SHOWN:
        lines.append(f"{sum(count for _, count in ranked[_REASONS_SHOWN:]):>11,}  other reasons")
    return lines


def _rule(character: str) -> str:
    return character * _WIDTH


def _line(label: str, rows: str, amount: str) -> str:
    return f"{label:<40}{rows:>15}{amount:>25}".rstrip()


def _total_line(label: str, totals: Totals) -> str:
    return _line(label, f"{totals.rows:,}", money(totals.cents))


def _flow_header(label: str) -> str:
    return f"{label:<30}{'debits':>7}{'amount':>18}{'credits':>8}{'amount':>17}"


def _flow_lines(label: str, flow: Flow) -> list[str]:
    """Both directions on one line; figures too long for their columns go to lines of their own."""
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
    """Write a label and a text that may be long or hold characters that no page shows."""
    shown = printable(text)
    room = _WIDTH - 10
    pieces = [shown[start : start + room] for start in range(0, len(shown), room)] or [""]
    return [f"{label if number == 0 else '':<10}{piece}" for number, piece in enumerate(pieces)]
