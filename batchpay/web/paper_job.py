"""The child that creates a file about a batch: the command line's use cases, written into the parent's memory.

Settings and arguments come over standard input, so that no process list shows a name or a reason; the file goes to
standard output. An error is one sentence on standard error, in the command line's words.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from batchpay.errors import BatchpayError, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import Actor
from batchpay.reconciliation.resolution import DECISIONS, read_decisions, rows_in_doubt
from batchpay.reconciliation.verdicts import FoundDoubt
from batchpay.settings import Settings, load_settings
from batchpay.text import instant
from batchpay.workflows.find_payment import find_payment
from batchpay.workflows.reconcile import ReconcileRequest, reconcile
from batchpay.workflows.report import batch_page, results_again
from batchpay.workflows.resolve import Signature, list_in_doubt
from batchpay.workflows.rules import rule_table
from batchpay.workflows.template import make_template
from batchpay.writing.process_memory import keep_memory_private
from batchpay.writing.stream import Stream

_LOOKER = Actor("batchpay", "page", "the page")


def main() -> int:
    """Create one file; return the exit code."""
    os.umask(0o077)
    keep_memory_private()
    kind, given = sys.argv[1:]
    asked = json.load(sys.stdin)
    settings = load_settings(asked["settings"], {})
    try:
        with os.fdopen(os.dup(1), "w+b") as into, ExitStack() as opened:
            files = [opened.enter_context(os.fdopen(os.dup(int(given)), "rb"))] if given != "-" else []
            KINDS[kind](settings, into, *files, *asked["arguments"])
    except BatchpayError as error:
        sys.stderr.write(str(error))
        return error.exit_code
    except Exception:
        return BatchpayError.exit_code
    return 0


def _results(settings: Settings, into: Any, batch: str, name: str) -> None:
    results_again(batch, lambda _: Stream(name, into), settings)


def _report(settings: Settings, into: Any, batch: str, name: str) -> None:
    batch_page(batch, lambda _: Stream(name, into), settings)


def _doubts(settings: Settings, into: Any, batch: str, name: str) -> None:
    list_in_doubt(batch, settings, _LOOKER, sheet=Stream(name, into))


def _decisions(settings: Settings, into: Any, file: BinaryIO, batch: str, sheet: str) -> None:
    """Read what a filled-in sheet decides; nothing is recorded."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        doubts = {doubt.row: doubt for doubt in rows_in_doubt(ledger, batch, settings.gateway.timeout)}
        filled = read_decisions(Stream(sheet, file), batch, doubts)
    words = {state: word for word, state in DECISIONS.items()}
    found = [
        {
            "row": one.row,
            "decision": words[one.state],
            "reference": one.gateway_reference,
            "attempt": doubts[one.row].attempt,
        }
        for one in filled.decisions
    ]
    into.write(json.dumps({"decisions": found, "notes": filled.notes}).encode())


def _reconcile(settings: Settings, into: Any, against: BinaryIO, batch: str, name: str, export: str) -> None:
    """Match a batch with an export: every row and line of both."""
    reconcile(batch, ReconcileRequest(Stream(export, against), output=Stream(name, into)), settings, _LOOKER)


def _compare(settings: Settings, into: Any, against: BinaryIO, batch: str, export: str) -> None:
    """Write a match's result, as the command line's JSON, and the rows in doubt that the export has."""
    with Path(os.devnull).open("w+b") as nowhere:
        request = ReconcileRequest(Stream(export, against), output=Stream("none.csv", nowhere))
        done = reconcile(batch, request, settings, _LOOKER)
        looked = _Viewer()
        if done.summary.by_state:
            against.seek(0)
            with suppress(_ViewOnly):
                reconcile(batch, request, settings, _LOOKER, looked)
    found = {
        **done.summary.as_json(),
        "reconciliation": {
            "against": done.export.name,
            "columns": done.export.columns,
            "skipped_lines": done.export.skipped,
            "caution": done.caution,
            **done.result.as_json(),
        },
        "found_doubts": [_found_json(one) for one in looked.found],
        "exit_code": done.result.exit_code,
    }
    into.write(json.dumps(found).encode())


def _settle(
    settings: Settings,
    into: Any,
    against: BinaryIO,
    batch: str,
    export: str,
    name: str,
    reason: str,
    by: str,
    shown: str,
) -> None:
    """Settle what an export proves, signed by the person who saw it on the page as `shown`."""
    signature, actor = _Signed(Signature(name, reason), json.loads(shown)), Actor(**json.loads(by))
    with Path(os.devnull).open("w+b") as nowhere:
        request = ReconcileRequest(Stream(export, against), output=Stream("none.csv", nowhere))
        done = reconcile(batch, request, settings, actor, signature)
    into.write(json.dumps({"settled": [_found_json(one) for one in done.settled]}).encode())


class _ViewOnly(Exception):
    """Nothing is to be settled: the page only shows what would be."""


class _Viewer:
    """See workflows.resolve.Decider: remembers what is shown, and signs nothing."""

    def __init__(self) -> None:
        self.found: list[FoundDoubt] = []

    def show(self, found: FoundDoubt) -> None:
        """Remember a row in doubt with its line."""
        self.found.append(found)

    def sign(self) -> Signature:
        """Leave everything as it is."""
        raise _ViewOnly

    def confirm(self, sent_again: int) -> None:
        """Never called."""


class _Signed:
    """See workflows.resolve.Decider: the person has seen what the page showed, and signed that."""

    def __init__(self, signature: Signature, shown: Collection[dict[str, Any]]) -> None:
        self._signature = signature
        self._shown = shown

    def show(self, found: FoundDoubt) -> None:
        """They saw exactly this on the page; raises WrongUse if it was another row, attempt or line."""
        if _found_json(found) not in self._shown:
            raise WrongUse(f"{found.place} is not as the page showed it; compare the export again")

    def sign(self) -> Signature:
        """Return who decides, and why."""
        return self._signature

    def confirm(self, sent_again: int) -> None:
        """They pressed the button."""


def _found_json(found: FoundDoubt) -> dict[str, Any]:
    row, line = found.row, found.line
    return {
        "row": row.row,
        "attempts": row.attempts,
        "place": found.place,
        "amount_cents": row.amount_cents,
        "direction": row.direction,
        "name": row.details.get("name"),
        "account": f"****{row.last_four}",
        "line": line.line,
        "found_by": line.found_by,
        "reference": line.reference,
        "date": line.date_text,
        "becomes": str(found.decision.state) if found.decision else None,
        "why": found.why,
    }


def _find(settings: Settings, into: Any, payment_id: str) -> None:
    """Look a payment up by its paymentId."""
    found = find_payment(payment_id, settings)
    said = {"batch": found.earlier_batch, "place": found.earlier_place, "at": instant(found.at)} if found else None
    into.write(json.dumps(said).encode())


def _check_ledger(settings: Settings, into: Any) -> None:
    """Check the whole ledger; one line for each problem."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        into.write(json.dumps(ledger.check()).encode())


def _template(settings: Settings, into: Any) -> None:
    """Write an empty payment file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.xlsx"
        make_template(path, replace=False)
        into.write(path.read_bytes())


def _rules(settings: Settings, into: Any) -> None:
    """Write every rule: what it applies to, how severe it is, what it says of a row."""
    lines = [
        {"where": line.where, "severity": line.fact.severity, "message": line.fact.message} for line in rule_table()
    ]
    into.write(json.dumps(lines).encode())


KINDS: dict[str, Callable[..., None]] = {
    "results": _results,
    "report": _report,
    "doubts": _doubts,
    "decisions": _decisions,
    "reconcile": _reconcile,
    "compare": _compare,
    "settle": _settle,
    "find": _find,
    "check": _check_ledger,
    "template": _template,
    "rules": _rules,
}


if __name__ == "__main__":
    sys.exit(main())
