"""Take in what banks sent back, list it, and record what a person says of it. Nothing is sent, paid or put back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from batchpay.errors import FileRefused, NotUsable, WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import Fact, FactKind
from batchpay.ledger.open import open_ledger
from batchpay.operations.archive import archive
from batchpay.operations.notify import Notice, notify
from batchpay.payment import Actor, Environment, Totals, added_up, format_cents
from batchpay.reconciliation.resolution import refuse_account_numbers
from batchpay.reconciliation.statement import load_export_map
from batchpay.returns.codes import return_codes
from batchpay.returns.matching import Match, Matcher, ReturnVerdict
from batchpay.returns.return_file import ReturnFile, ReturnsMap, read_returns
from batchpay.settings import Settings
from batchpay.text import instant, totals_json
from batchpay.writing.atomic import FileIdentity, ReadFiles, Stream

_LINES_TOLD_MAX = 1_000
_EXIT_CODES = {ReturnVerdict.IN_DOUBT: 7, ReturnVerdict.LISTED: 3, ReturnVerdict.PROPOSED: 3}


@dataclass(frozen=True, slots=True)
class TakenReturns:
    """A file of returns, and what became of its lines."""

    file: ReturnFile
    environment: Environment
    matches: Sequence[Match]
    is_dry_run: bool = False
    is_known: bool = False
    """Whether a night took in the same file before, and so did not look at it again."""
    elsewhere: int = 0
    """Lines without a payment here that name one of the other environment."""
    not_archived: str | None = None
    """Why the file could not be moved; the next night knows it."""

    @property
    def by_verdict(self) -> dict[ReturnVerdict, list[Match]]:
        """Return the lines by what they are."""
        found = {verdict: [one for one in self.matches if one.verdict is verdict] for verdict in ReturnVerdict}
        return {verdict: some for verdict, some in found.items() if some}

    @property
    def exit_code(self) -> int:
        """7 where a payment in doubt came back, 6 where the file could not be moved, 3 where a person must look."""
        return max(6 if self.not_archived else 0, *(_EXIT_CODES.get(one.verdict, 0) for one in self.matches), 0)

    @property
    def note(self) -> str | None:
        """What a person should know of the whole file."""
        if self.not_archived or self.is_known:
            return self.not_archived or "was taken in before, with the same content"
        if not self.elsewhere:
            return None
        (other,) = set(Environment) - {self.environment}
        return (
            f"of the lines without a payment in the {self.environment} environment, {self.elsewhere:,} name payments of"
            f" the {other} environment: take the file in there (gateway.environment)"
        )

    def as_json(self) -> dict[str, Any]:
        """Return what is said of the file, and of its lines: first those that a person must look at."""
        told = sorted(self.matches, key=lambda one: -_EXIT_CODES.get(one.verdict, 0))[:_LINES_TOLD_MAX]
        return {
            "file": self.file.name,
            "environment": self.environment,
            "dry_run": self.is_dry_run,
            "known": self.is_known,
            "lines": len(self.file.lines),
            "skipped": self.file.skipped,
            "counts": {
                verdict.value: totals_json(Totals(len(some), sum(one.line.cents or 0 for one in some)))
                for verdict, some in self.by_verdict.items()
            },
            "note": self.note,
            "list": [_line_json(one) for one in told],
            "exit_code": self.exit_code,
        }


def _line_json(one: Match) -> dict[str, Any]:
    line, payment = one.line, one.payment
    code = return_codes().get(line.code)
    return {
        "line": line.line,
        "code": line.code or None,
        "meaning": code.meaning if code else None,
        "date": line.day.isoformat() if line.day else None,
        "amount": format_cents(line.cents) if line.cents is not None else None,
        "verdict": one.verdict,
        "why": one.why or None,
        "batch": payment.batch if payment else None,
        "row": payment.row if payment else None,
        "perhaps": [{"batch": each.batch, "row": each.row} for each in one.perhaps[:10]] if one.why else [],
    }


def take_returns(
    path: str | Path | Stream,
    settings: Settings,
    actor: Actor,
    *,
    map_file: str | None = None,
    dry_run: bool = False,
    unattended: bool = False,
) -> TakenReturns:
    """Match a file's lines with all payments of the environment, and record what is certain, all or nothing.

    A file that is taken in again is matched again: what it repeats is known. A night passes it over.
    """
    file, environment = _read(path, map_file), environment_of(settings.gateway)
    with closing(open_ledger(settings.ledger, read_only=dry_run)) as ledger:
        if unattended and file.digest in ledger.returned_files(environment):
            return TakenReturns(file, environment, (), dry_run, is_known=True)
        matcher = _matcher(ledger, settings)
        matches = matcher.match(file.lines)
        _let_withdrawals_stand(ledger, environment, matches)
        if not dry_run:
            facts = [one.fact(one.payment) for one in matches if one.verdict is ReturnVerdict.RECORDED and one.payment]
            name = Path(file.name).name
            if ledger.record_facts(facts, environment, name, file.digest, str(actor), unattended=unattended):
                paid = [one.payment for one in matches if one.verdict is ReturnVerdict.RECORDED and one.payment]
                back = added_up({one.direction: Totals(1, one.amount_cents)} for one in paid)
                notify(settings, Notice.RETURNS, file=name, apart=back)
        return TakenReturns(file, environment, matches, dry_run, elsewhere=matcher.elsewhere(matches))


def _let_withdrawals_stand(ledger: Ledger, environment: Environment, matches: Sequence[Match]) -> None:
    """Call known what a person has withdrawn: the same file, taken in again, does not say it anew."""
    new = [(one, one.payment) for one in matches if one.verdict is ReturnVerdict.RECORDED and one.payment]
    facts = (fact for batch in {each.batch for _, each in new} for fact in ledger.facts(environment, batch=batch))
    withdrawn = {(fact.batch, fact.row, fact.code, fact.day) for fact in facts if fact.withdrawn}
    for one, each in new:
        if (each.batch, each.row, one.line.code, one.day) in withdrawn:
            one.set(ReturnVerdict.KNOWN, payment=each)


def _matcher(ledger: Ledger, settings: Settings) -> Matcher:
    is_unique = settings.gateway.reference_is_unique
    return Matcher(ledger, environment_of(settings.gateway), reference_is_unique=is_unique)


def _read(path: str | Path | Stream, map_file: str | None) -> ReturnFile:
    return read_returns(path, load_export_map(map_file, ReturnsMap) if map_file else None)


def take_and_archive(path: str, settings: Settings, actor: Actor, archived_in: str | None) -> TakenReturns:
    """Take a file in where nobody is asked, and move it to an archive, if there is one."""
    try:
        read = FileIdentity.of(Path(path).stat())
    except OSError as error:
        raise FileRefused(f"{path} can't be read: {error.strerror}") from None
    taken = take_returns(path, settings, actor, unattended=True)
    try:
        if archived_in:
            archive(path, archived_in, ReadFiles(read))
    except NotUsable as error:
        return replace(taken, not_archived=str(error))
    return taken


def confirm_match(
    path: str | Path | Stream,
    payment: tuple[str, int],
    reason: str,
    settings: Settings,
    actor: Actor,
    *,
    map_file: str | None = None,
) -> Match:
    """Record that a line of a file is about a row: one that was proposed, or one of those that the line fits.

    Raises WrongUse where no line that waits for a person fits it.
    """
    file, environment = _read(path, map_file), environment_of(settings.gateway)
    with closing(open_ledger(settings.ledger)) as ledger:
        place = _place(ledger, payment, environment, reason)
        for one in _matcher(ledger, settings).match(file.lines):
            chosen = next((each for each in one.perhaps if (each.batch, each.row) == place), None)
            if chosen is not None and one.verdict in (ReturnVerdict.PROPOSED, ReturnVerdict.LISTED):
                fact, name = one.fact(chosen), Path(file.name).name
                ledger.record_facts([fact], environment, name, file.digest, str(actor), unattended=False)
                ledger.confirm_fact(*place, str(actor), reason.strip(), fact.code)
                one.set(ReturnVerdict.RECORDED, payment=chosen)
                return one
    raise WrongUse(f"no line of {file.name} that waits for a person fits row {place[1]} of batch {place[0]}")


def say_of_return(
    payment: tuple[str, int], reason: str, settings: Settings, actor: Actor, *, withdraw: bool, code: str | None = None
) -> tuple[str, int]:
    """Record that what banks said of a row is right, or that it was wrong or undone; return the batch and how much."""
    environment = environment_of(settings.gateway)
    with closing(open_ledger(settings.ledger)) as ledger:
        batch, row = _place(ledger, payment, environment, reason)
        say = ledger.withdraw_fact if withdraw else ledger.confirm_fact
        return batch, say(batch, row, str(actor), reason.strip(), code)


def _place(ledger: Ledger, payment: tuple[str, int], environment: Environment, reason: str) -> tuple[str, int]:
    """Return the batch's whole name, and the row; raises WrongUse where the reason has its account number."""
    batch, row = ledger.find(payment[0], environment).batch, payment[1]
    refuse_account_numbers("the reason", reason, (one for one in ledger.rows(batch) if one.row == row))
    return batch, row


def list_returns(settings: Settings, *, batch: str | None = None, since: date | None = None) -> list[Fact]:
    """Return what came back to an environment, or to one batch of it, the latest first; not what was withdrawn."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = ledger.facts(environment_of(settings.gateway), batch=batch, since=since)
        return sorted((one for one in found if not one.withdrawn), key=lambda one: (one.day, one.number), reverse=True)


def fact_json(fact: Fact) -> dict[str, Any]:
    """Return what `--list --json` tells of one."""
    # A change counts from the day on which we learned of it.
    known_on = fact.taken_at.date() if fact.kind is FactKind.CHANGED else fact.day
    code = return_codes().get(fact.code)
    until = code.until(known_on) if code else None
    return {
        "batch": fact.batch,
        "row": fact.row,
        "place": fact.place,
        "kind": fact.kind,
        "code": fact.code,
        "meaning": code.meaning if code else None,
        "date": fact.day.isoformat(),
        "amount": format_cents(fact.amount_cents),
        "direction": fact.direction,
        "deadline": until.isoformat() if until else None,
        "todo": code.todo if code else None,
        "file": fact.file,
        "taken_at": instant(fact.taken_at),
        "who": fact.who,
        "seen": not fact.is_unattended,
    }
