"""The report as a page: what became of a batch, and who has to do what; or what a check found in a file."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow, RejectedRow
from batchpay.payment import Direction, State, Totals
from batchpay.reports import page_parts
from batchpay.reports.page_parts import ListedRow, Page, PageColumn, short_time, with_place
from batchpay.summary import Summary, summary_of_batch
from batchpay.text import (
    amounts_apart,
    local_time,
    money,
    moved,
    place_of,
    place_word,
    row_count,
    sum_word,
    totals_apart,
)
from batchpay.writing.atomic import FileOrPath

if TYPE_CHECKING:  # it loads polars, and a page of the ledger needs none
    from batchpay.validation.verdict import Failure, Verdict

LISTED_MAX = 2_000
"""Rows listed one by one; results and rejects have all of them."""
ACCEPTED_LISTED_MAX = 10_000
"""Accepted rows listed; a page of more is slow to open. The results file has all of them."""
_ACCEPTED_A_PART = 500
_REASONS_MAX = 12
_HISTORY_MAX = 40
_LABELS = {
    State.ACCEPTED: "accepted",
    State.DECLINED: "declined",
    State.IN_DOUBT: "in doubt",
    State.PENDING: "pending",
    State.SENDING: "being sent",
    State.REJECTED: "rejected",
}
_NEEDS_SOMEONE = (State.IN_DOUBT, State.SENDING, State.DECLINED, State.REJECTED)
_COLUMNS = (
    PageColumn("state", numeric=True), PageColumn("row", numeric=True, number=True),
    PageColumn("amount", numeric=True, number=True), PageColumn("direction", whole=True), PageColumn("name"),
    PageColumn("account", whole=True), PageColumn("invoice"), PageColumn("when", numeric=True, whole=True),
    PageColumn("why"), PageColumn("what to do"),
)  # fmt: skip
_ACCEPTED_COLUMNS = (
    PageColumn("row", number=True), PageColumn("amount", number=True), PageColumn("direction", whole=True),
    PageColumn("name"), PageColumn("account", whole=True), PageColumn("invoice"), PageColumn("sent", whole=True),
    PageColumn("gateway's reference"),
)  # fmt: skip
_CHECK_COLUMNS = tuple(map(PageColumn, ("column", "code", "what is wrong", "suggestion")))


@dataclass(slots=True)
class _Gathered:
    """What one pass over a batch's rows found."""

    seconds: Counter[tuple[int, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By state and text."""
    listed: dict[State, list[LedgerRow]] = field(default_factory=dict)
    currencies: set[str | None] = field(default_factory=set)
    accepted: dict[str, Totals] = field(default_factory=dict)
    """By direction."""
    accepted_rows: list[LedgerRow] = field(default_factory=list)
    """The first of them."""
    warned: list[LedgerRow] = field(default_factory=list)
    """The first rows with warnings."""
    warned_count: int = 0


def write_batch_page(ledger: Ledger, batch: BatchSummary, path: FileOrPath) -> None:
    """Write a batch's page, from the ledger alone: whole or not at all, mode 0600."""
    summary = summary_of_batch(batch)
    gathered = _gather(ledger, batch)
    rejected, rejected_reasons = _gather_rejected(ledger, batch)
    for reason, rows in rejected_reasons.items():
        gathered.reasons[State.REJECTED, reason] += rows
    listed = list(_listed(batch, gathered, rejected))
    needing = sum(summary.of(state).rows for state in _NEEDS_SOMEONE)
    currency = next(iter(gathered.currencies)) if len(gathered.currencies) == 1 else None
    reasons, reasons_left = _ranked(gathered.reasons)
    mood, headlines = _headlines(summary)
    told = (event for event in ledger.events(batch.batch) if event.kind != "progress")
    story = page_parts.story_of(ledger, batch.batch)
    page = Page(
        title="batchpay report",
        file=batch.file,
        facts=[
            *page_parts.facts_to_sign(story, batch),
            ("valid rows", moved(summary.by_direction, summary.currencies)),
            ("last run", local_time(batch.finished_at or batch.started_at)),
            *([("pays again, because", batch.again_reason)] if batch.again_reason else []),
            *(
                (
                    f"not before {day:%m/%d/%Y}",
                    f"{row_count(sum(one.rows for one in sides.values()))}, {totals_apart([sides])}",
                )
                for day, sides in sorted(batch.by_day.items())
            ),
        ],
        mood=mood,
        headlines=headlines,
        total=batch.total,
        directions=[*_directions(summary.by_direction), *_directions(gathered.accepted, "accepted ")],
        outcomes=_outcomes(summary),
        sum_word=sum_word("amount", summary.currencies if len(summary.currencies) > 1 else summary.by_direction),
        currency=f", {currency}" if currency else "",
        timeline=page_parts.timeline_of(gathered.seconds, {str(state): label for state, label in _LABELS.items()}),
        reasons=reasons,
        reasons_left=reasons_left,
        columns=with_place(_COLUMNS, batch.file),
        attention=listed,
        attention_left=needing - len(listed),
        attention_kinds=_kinds(listed, {str(state): _LABELS[state] for state in _NEEDS_SOMEONE}),
        more_at=f"The others: batchpay results {batch.batch}; rejected rows are in the rejects file.",
        warned=[
            (_LABELS[row.state], place_of(place_word(batch.file), row.row, row.line), row) for row in gathered.warned
        ],
        warned_left=gathered.warned_count - len(gathered.warned),
        settled=story.settled,
        accepted_columns=with_place(_ACCEPTED_COLUMNS, batch.file),
        accepted=list(_accepted_parts(gathered.accepted_rows)),
        accepted_left=summary.of(State.ACCEPTED).rows - len(gathered.accepted_rows),
        history=list(deque(told, _HISTORY_MAX))[::-1],
    )
    page_parts.write(page, path)


def write_check_page(path: str | Path, summary: Summary, verdict: Verdict, line_word: str) -> None:
    """Write the page of a check: totals, how often each rule failed, the first failures. Needs no ledger.

    `line_word` is the usual word for a row's place.
    """
    repaired, corrected = (
        ", ".join(f"{name} {cells:,}" for name, cells in some.items()) for some in (verdict.repairs, verdict.accepted)
    )
    broken = Counter({("rejected", name): rows for name, rows in verdict.counts.items()})
    broken.update({("warning", name): rows for name, rows in verdict.warning_counts.items()})
    reasons, reasons_left = _ranked(broken)
    failures = [*verdict.failures[:LISTED_MAX], *verdict.warning_failures[:LISTED_MAX]]
    listed = list(map(_failure_row, failures))
    wrong = summary.of(State.REJECTED)
    if not summary.total.rows:
        mood, headlines = "attention", ["The file has no rows."]
    elif wrong.rows:
        mood = "attention"
        headlines = [
            f"{row_count(wrong.rows)} of {summary.total.rows:,} would be rejected, {money(wrong.cents)}.",
            f"{row_count(summary.valid.rows)} could be sent, {summary.amount_in(State.PENDING)}. Nothing was sent.",
        ]
    else:
        mood, headlines = "fine", ["Every row is valid.", "Nothing was sent."]
    page = Page(
        title="batchpay check",
        file=summary.file,
        facts=[
            ("checked", local_time(summary.finished_at)),
            ("valid rows", moved(summary.by_direction, summary.currencies)),
            ("warnings", f"{summary.warnings:,}"),
            *([("cells repaired", repaired)] if repaired else []),
            *([("corrected as suggested", corrected)] if corrected else []),
        ],
        mood=mood,
        headlines=[*headlines, *summary.notes],
        total=summary.total,
        directions=_directions(summary.by_direction),
        outcomes=_outcomes(summary, {State.PENDING: ("accepted", "valid")}),
        sum_word=sum_word("amount", summary.currencies if len(summary.currencies) > 1 else summary.by_direction),
        reasons=reasons,
        reasons_left=reasons_left,
        reasons_counted="times",
        columns=(PageColumn(line_word, numeric=True, number=True), *_CHECK_COLUMNS),
        attention=listed,
        attention_title="What is wrong",
        attention_left=max(sum(verdict.counts.values()) + verdict.warnings - len(listed), 0),
        attention_kinds=_kinds(listed, {"rejected": "rejected", "warning": "warning"}),
        more_at="The rejects file has all errors with their rows: batchpay validate FILE --rejects PATH.",
    )  # fmt: skip
    page_parts.write(page, path)


def _gather(ledger: Ledger, batch: BatchSummary) -> _Gathered:
    """Read every row that passed the rules once."""
    gathered = _Gathered()
    explained = (State.DECLINED, State.IN_DOUBT, State.SENDING)
    for row in ledger.rows(batch.batch):
        gathered.currencies.add(row.details.get("currencyCode"))
        moment = row.finished_at or row.sent_at
        if moment is not None and row.state is not State.PENDING:
            gathered.seconds[int(moment.timestamp()), str(row.state)] += 1
        if warnings := row.details.get("warnings"):
            gathered.warned_count += 1
            gathered.reasons.update(("warning", ".".join(one.split(": ")[:2])) for one in warnings.split("; "))
            if len(gathered.warned) < LISTED_MAX:
                gathered.warned.append(row)
        if row.state is State.ACCEPTED:
            known = gathered.accepted.get(row.direction, Totals())
            gathered.accepted[row.direction] = known + Totals(1, row.amount_cents)
            if len(gathered.accepted_rows) < ACCEPTED_LISTED_MAX:
                gathered.accepted_rows.append(row)
        if row.state in explained:
            gathered.reasons[row.state, _why(row)] += 1
            listed = gathered.listed.setdefault(row.state, [])
            if len(listed) < LISTED_MAX:
                listed.append(row)
    return gathered


def _gather_rejected(ledger: Ledger, batch: BatchSummary) -> tuple[list[RejectedRow], Counter[str]]:
    listed: list[RejectedRow] = []
    reasons: Counter[str] = Counter()
    for row in ledger.rejected(batch.batch) if batch.by_state[State.REJECTED].rows else ():
        reasons.update(row.reasons)
        if len(listed) < LISTED_MAX:
            listed.append(row)
    return listed, reasons


def _listed(batch: BatchSummary, gathered: _Gathered, rejected: Sequence[RejectedRow]) -> Iterator[ListedRow]:
    """Yield the rows that need someone, in doubt first and credits before debits among them, up to the cap."""
    doubts = [*gathered.listed.get(State.IN_DOUBT, []), *gathered.listed.get(State.SENDING, [])]
    doubts.sort(key=lambda row: row.direction != Direction.CREDIT)
    sent = [*doubts, *gathered.listed.get(State.DECLINED, [])][:LISTED_MAX]
    for row in sent:
        when = row.sent_at or row.finished_at
        texts = [row.direction, *_names_of(row), short_time(when), _why(row), _what_to_do(batch.batch, row)]
        yield _row(row.state, row, texts, int(when.timestamp()) if when else None)
    for failed in rejected[: LISTED_MAX - len(sent)]:
        todo = "Correct it in the rejects file and submit that file."
        if "row.duplicate" in failed.reasons:
            todo = "The same bill appears elsewhere. If due again: submit the rejects with --allow-duplicates"
            todo += " --reason TEXT."
        yield _row(State.REJECTED, failed, [*[""] * 5, ", ".join(failed.reasons), todo])


def _row(state: State, row: LedgerRow | RejectedRow, texts: Sequence[str], when: int | None = None) -> ListedRow:
    cells = [
        (_LABELS[state], _NEEDS_SOMEONE.index(state)),
        (str(row.line or row.row), None),
        (money(row.amount_cents), row.amount_cents),
        *((text, when if column.label == "when" else None) for column, text in zip(_COLUMNS[3:], texts, strict=True)),
    ]
    return str(state), cells


def _names_of(row: LedgerRow) -> list[str]:
    return [row.details.get(name) or "" for name in ("name", "account", "invoiceNumber")]


def _accepted_parts(rows: Sequence[LedgerRow]) -> Iterator[tuple[str, list[list[str]]]]:
    for at in range(0, len(rows), _ACCEPTED_A_PART):
        part = rows[at : at + _ACCEPTED_A_PART]
        cells = [
            [str(row.line or row.row), money(row.amount_cents), row.direction, *_names_of(row),
             short_time(row.sent_at), row.answer.gateway_reference or ""]
            for row in part
        ]  # fmt: skip
        yield amounts_apart((row.direction, row.amount_cents) for row in part), cells


def _failure_row(failure: Failure) -> ListedRow:
    line = failure.row if failure.line is None else failure.line
    texts = (str(line), failure.column, failure.code, failure.message, failure.suggestion or "")
    return "rejected" if failure.severity == "error" else failure.severity, [(text, None) for text in texts]


def _why(row: LedgerRow) -> str:
    answer = row.answer
    if row.state is State.SENDING:
        return "being sent, or left by a run that was killed"
    return answer.message or row.reason or answer.response_code or f"HTTP {answer.http_status or 'answer unknown'}"


def _what_to_do(batch: str, row: LedgerRow) -> str:
    if row.state is State.DECLINED:
        return "Not paid, and not resent automatically. Ask the payee or payer, then submit it in a new file."
    first = "Money leaves our account, so check this first. " if row.direction == Direction.CREDIT else ""
    sought = row.details.get("invoiceNumber") or "amount and name"
    return f"{first}Look for {sought} in the gateway’s portal, then: batchpay resolve {batch} --row {row.row}"


def _headlines(summary: Summary) -> tuple[str, list[str]]:
    """Return what a reader must know first, the most serious thing first."""
    doubt, declined, rejected = (summary.of(state) for state in (State.IN_DOUBT, State.DECLINED, State.REJECTED))
    waiting = summary.of(State.PENDING) + summary.of(State.SENDING)
    lines = []
    if doubt.rows:
        amount = summary.amount_in(State.IN_DOUBT)
        lines.append(f"{row_count(doubt.rows)} in doubt, {amount}: paid or not, not known yet. A person must look.")
    if waiting.rows:
        stopped = f" The run stopped: {summary.stopped}." if summary.stopped else ""
        go_on = f"To continue: batchpay resume {summary.batch}"
        amount = summary.amount_in(State.PENDING, State.SENDING)
        lines.append(f"{row_count(waiting.rows)} not sent yet, {amount}.{stopped} {go_on}")
    if declined.rows:
        lines.append(f"{row_count(declined.rows)} declined by the gateway, {summary.amount_in(State.DECLINED)}.")
    if rejected.rows:
        lines.append(f"{row_count(rejected.rows)} rejected before sending, {money(rejected.cents)}.")
    if summary.returned.rows:
        came_back = f"{row_count(summary.returned.rows)} of those accepted came back"
        lines.append(f"{came_back}, {totals_apart([summary.returned_apart])}: batchpay returns --list")
    accepted = summary.of(State.ACCEPTED)
    if not lines:
        lines.append("Every row was accepted." if accepted.rows else "The file has no rows.")
    else:
        lines.append(f"{row_count(accepted.rows)} accepted, {summary.amount_in(State.ACCEPTED)}.")
    moods = (("doubt", doubt), ("waiting", waiting), ("attention", declined + rejected))
    return next((mood for mood, totals in moods if totals.rows), "fine"), lines


def _outcomes(
    summary: Summary, renamed: Mapping[State, tuple[str, str]] | None = None
) -> list[tuple[str, str, Totals, str, str]]:
    names = {state: (str(state), label) for state, label in _LABELS.items()} | {**(renamed or {})}
    return [
        (*name, totals, *page_parts.share_of(totals.rows, summary.total.rows))
        for state, name in names.items()
        if (totals := summary.of(state)).rows
    ]


def _directions(by_direction: Mapping[str, Totals], of: str = "") -> list[tuple[str, Totals]]:
    labels = {Direction.DEBIT: "debits: money in", Direction.CREDIT: "credits: money out"}
    found = [(of + label, by_direction.get(name, Totals())) for name, label in labels.items()]
    return [(label, totals) for label, totals in found if totals.rows]


def _kinds(listed: Sequence[ListedRow], labels: Mapping[str, str]) -> list[tuple[str, str, int]]:
    counts = Counter(kind for kind, _ in listed)
    return [(kind, label, counts[kind]) for kind, label in labels.items() if counts[kind]]


def _ranked(reasons: Counter[tuple[str, str]]) -> tuple[list[tuple[str, str, int, str]], int]:
    """Return the most frequent reasons, and how many less frequent ones are left out."""
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    most = ranked[0][1] if ranked else 1
    chosen = [(*reason, rows, f"{max(100 * rows / most, 0.8):.2f}") for reason, rows in ranked[:_REASONS_MAX]]
    return chosen, len(ranked) - len(chosen)
