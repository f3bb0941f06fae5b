"""The child that creates a file about a batch: the command line's use cases, written into the parent's memory.

Settings and arguments come over standard input, so that no process list shows a name or a reason; the file goes to
standard output. An error is one sentence on standard error, in the command line's words.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from batchpay.errors import BatchpayError, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.payment import ON_THE_WEB, Actor
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
from batchpay.writing.atomic import Stream
from batchpay.writing.process_memory import keep_memory_private

_LOOKER = Actor("batchpay", "page", ON_THE_WEB)


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
            for file in files:
                file.seek(0)
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


def _compare(
    settings: Settings, into: Any, against: BinaryIO, batch: str, export: str, signed: dict[str, Any] | None = None
) -> None:
    """Write what `batchpay reconcile --json` says; `signed`, a person on the page, settles what it proves."""
    with Path(os.devnull).open("w+b") as nowhere:
        request = ReconcileRequest(Stream(export, against), output=Stream("none.csv", nowhere))
        if signed is None:
            done = reconcile(batch, request, settings, _LOOKER)
        else:
            decider = _SignedOnPage(Signature(signed["name"], signed["reason"]), signed["shown"])
            done = reconcile(batch, request, settings, Actor(**signed["by"]), decider)
    into.write(json.dumps(done.as_json()).encode())


class _SignedOnPage:
    """See workflows.resolve.Decider: the person has seen what the page showed, and signed that."""

    def __init__(self, signature: Signature, shown: Collection[dict[str, Any]]) -> None:
        self._signature = signature
        self._shown = shown

    def show(self, found: FoundDoubt) -> None:
        """They saw exactly this on the page; raises WrongUse if it was another row, attempt or line."""
        if found.as_json() not in self._shown:
            raise WrongUse(f"{found.place} is not as the page showed it; compare the export again")

    def sign(self) -> Signature:
        """Return who decides, and why."""
        return self._signature

    def confirm(self, sent_again: int) -> None:
        """They pressed the button."""


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
    "find": _find,
    "check": _check_ledger,
    "template": _template,
    "rules": _rules,
}


if __name__ == "__main__":
    sys.exit(main())
